#!/usr/bin/env python3
"""pk.compile(config=...): kernels of configurations are the models' own rotations, for every model_type that is read;
and what is refused, by its name.
"""
import contextlib
import importlib
import io
import json
import os
import tempfile
import unittest

import torch
import vision  # noqa: F401 (before transformers)
import transformers

import pegen_kernels as pk
from pegen_kernels.config import _LAYOUT, described, main

SMALL = dict(hidden_size=64, num_attention_heads=2, num_key_value_heads=2, num_hidden_layers=2, intermediate_size=32)
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048, "rope_theta": 5e5}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 1024, "rope_theta": 5e5}  # fmt: skip
LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}


def small(model, **more):
    made = transformers.CONFIG_MAPPING[model]()
    for name, value in SMALL.items():
        if hasattr(made, name):
            setattr(made, name, value)
    for name, value in more.items():
        setattr(made, name, value)
    return made


def rotated(config, x, positions, layer_type=None):
    """x as the model's own code rotates it."""
    name = type(config).__module__.rpartition(".")[0].rpartition(".")[2]
    code = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    if hasattr(code, "create_sinusoidal_positions"):  # GPT-J's, of rows [B,N,H,D]
        sin, cos = code.create_sinusoidal_positions(512, config.rotary_dim)[positions][None].chunk(2, -1)
        turned = code.apply_rotary_pos_emb(x[..., : config.rotary_dim].transpose(1, 2), sin, cos).transpose(1, 2)
        return torch.cat([turned, x[..., config.rotary_dim :]], -1)
    embedding = next(
        getattr(code, word) for word in dir(code) if word.endswith("RotaryEmbedding") and "Vision" not in word
    )
    of = {} if layer_type is None else {"layer_type": layer_type}
    places = positions.T[:, None] if positions.dim() == 2 else positions[None]
    cos, sin = embedding(config)(x, places, **of)
    width = cos.shape[-1] * (2 if name == "gpt_oss" else 1)
    turned = code.apply_rotary_pos_emb(x[..., :width], x[..., :width], cos, sin)[0]
    return torch.cat([turned, x[..., turned.shape[-1] :]], -1)


def difference(config, layer_type=None):
    options = described(config.to_dict(), layer_type)[1]
    x = torch.randn(1, 2, 12, options["head_dim"], generator=torch.Generator().manual_seed(1))
    positions = torch.tensor([0, 1, 2, 3, 7, 15, 31, 63, 127, 255, 300, 511])
    if "axes" in options:
        positions = torch.stack([positions, positions.flip(0), positions // 2], 1)
    expected = rotated(config, x, positions, layer_type)
    kernel = pk.compile(config=config.to_dict(), layer_type=layer_type, targets="native", dtypes="float32")
    found = kernel.encode(x.numpy(), positions=positions.reshape(12, -1).double().numpy())
    return float((torch.from_numpy(found) - expected).abs().max())


class Models(unittest.TestCase):
    def test_every_model(self):
        """To 511 positions, where a model's own float32 phases are right to 511 2^-24 radians."""
        for model in (model for model in _LAYOUT if "_vl_" not in model):  # which test_axes has
            with self.subTest(model=model):
                config = small(model, **({"rotary_dim": 16} if model in ("codegen", "gptj") else {}))
                rope = getattr(config, "rope_parameters", None) or {}
                layers = [name for name, value in rope.items() if isinstance(value, dict)] or [None]
                for layer_type in layers:
                    self.assertLess(difference(config, layer_type), 2e-4, layer_type)

    def test_scalings(self):
        for rope in YARN, LLAMA3, LINEAR, {**YARN, "beta_fast": 16.0, "truncate": False, "attention_factor": 1.5}:
            with self.subTest(rope=rope):
                self.assertLess(difference(small("llama", rope_parameters=rope)), 2e-4)

    def test_axes(self):
        """Positions (t, h, w) of texts with images."""
        for model, rope in (("qwen2_vl_text", {"mrope_section": [4, 6, 6]}),
                            ("qwen2_5_vl_text", {"mrope_section": [4, 6, 6]}),
                            ("qwen2_vl_text", {"mrope_section": [4, 6, 6], "rope_type": "mrope"}),
                            ("qwen3_vl_text", {"mrope_section": [24, 20, 20], "mrope_interleaved": True}),
                            ("qwen3_5_text", {"mrope_section": [11, 11, 10], "mrope_interleaved": True,
                                              "partial_rotary_factor": 0.25})):  # fmt: skip
            with self.subTest(model=model, rope=rope):
                words = {"rope_type": "default", "rope_theta": 1e4, **rope}
                config = small(model, rope_parameters={**words, "rope_type": "default"})
                self.assertLess(difference(config), 2e-4)
                fields = {**config.to_dict(), "rope_parameters": words}
                self.assertEqual(described(fields), described(config.to_dict()))


class Files(unittest.TestCase):
    def test_old_fields(self):
        """A file of before rope_parameters, and options that override it."""
        fields = {"model_type": "llama", "hidden_size": 128, "num_attention_heads": 4, "rope_theta": 500000,
                  "rope_scaling": {"type": "linear", "factor": 2}}  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "config.json")
            with open(file, "w") as out:
                json.dump(fields, out)
            expected = {"layout": "split", "head_dim": 32, "base": 5e5, "factor": 2, "scaling": "linear"}
            self.assertEqual(described(file), ("rope", expected))
            self.assertEqual(pk.compile(config=file, head_dim=64).head_dim, 64)
            shown = io.StringIO()
            with contextlib.redirect_stdout(shown):
                main([file])
            command = "pegen rope -D layout=split -D head_dim=32 -D base=500000 -D factor=2 -D scaling=linear -o rope.o"
            self.assertEqual(shown.getvalue().strip(), command)
            with contextlib.redirect_stderr(shown), self.assertRaises(SystemExit):
                main([file, "--layer-type", "full_attention"])
            self.assertIn("pegen: error: config: layer_type is 'full_attention'; all layers", shown.getvalue())
        old = {"model_type": "gemma3_text", "head_dim": 64, "rope_theta": 1e6, "rope_local_base_freq": 1e4}
        self.assertEqual(described(old, "sliding_attention")[1]["base"], 1e4)
        self.assertEqual(described(old, "full_attention")[1]["base"], 1e6)

    def test_refused(self):
        llama = {"model_type": "llama", "head_dim": 64}
        for fields, layer_type, words in (
            ({"model_type": "nobody"}, None, "model_type is 'nobody'"),
            ({"model_type": "llama"}, None, "'head_dim', or 'hidden_size'"),
            ({**llama, "rope_scaling": {"type": "longrope", "factor": 2}}, None, "rope_type is 'longrope'"),
            ({**llama, "rope_scaling": {"type": "yarn", "mscale": 1.0}}, None, "'mscale' of rope type 'yarn'"),
            ({**llama, "rope_scaling": {"mrope_section": [1, 2, 3]}}, None, "'mrope_section' has 6 pairs of"),
            ({**llama, "rope_interleave": True}, None, "'rope_interleave' of rope type 'default' is not read"),
            (llama, "full_attention", "all layers turn alike"),
            ({**llama, "rope_parameters": {"a": {}, "b": {}}}, None, "one of a, b was expected"),
        ):
            with self.subTest(words=words), self.assertRaisesRegex(pk.CompileError, words):
                described(fields, layer_type)
        for spec, more, words in ((None, {}, "neither"), ("rope", {"config": llama}, "both"),
                                  ("rope", {"layer_type": "a"}, "none was given"),
                                  (None, {"config": "/nowhere.json"}, "cannot read '/nowhere.json'")):  # fmt: skip
            with self.subTest(words=words), self.assertRaisesRegex(pk.CompileError, words):
                pk.compile(spec, **more)


if __name__ == "__main__":
    unittest.main()
