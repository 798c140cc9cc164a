#!/usr/bin/env python3
"""pk.compile(config=...): kernels of configurations are the models' own rotations, for every model_type that is read;
and what is refused, by its name.
"""
import contextlib
import importlib
import inspect
import io
import json
import os
import re
import subprocess
import tempfile
import unittest

import torch
import vision  # noqa: F401 (before transformers)
import transformers
from transformers.models.dinov3_vit import modeling_dinov3_vit as dinov3

import pegen_kernels as pk
from pegen_kernels import _native
from pegen_kernels.config import described, main
from pegen_kernels.config_models import LAYOUT, SECTIONS, TWO_ANGLES

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


def turned_by(config, code, layer_type):
    """What a model's own code makes of rows at places, by the class that takes such a configuration."""
    found = [getattr(code, word) for word in dir(code) if word.endswith("RotaryEmbedding")]
    taken = lambda made: str(inspect.signature(made).parameters["config"].annotation)  # noqa: E731
    own = [made for made in found if type(config).__name__ in taken(made)]
    own += [made for made in found if not {"Vision", "Audio", "DiT"} & set(re.findall("[A-Z][a-zT]+", made.__name__))]
    words, module = {} if layer_type is None else {"layer_type": layer_type}, own[0](config)
    return lambda x, places: module(x, places, **words)


def rotated(config, x, positions, layer_type=None, interleaved=False):
    """x as the model's own code rotates it."""
    name = type(config).__module__.rpartition(".")[0].rpartition(".")[2]
    code = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    if hasattr(code, "create_sinusoidal_positions"):  # GPT-J's, of rows [B,N,H,D]
        sin, cos = code.create_sinusoidal_positions(512, config.rotary_dim)[positions][None].chunk(2, -1)
        turned = code.apply_rotary_pos_emb(x[..., : config.rotary_dim].transpose(1, 2), sin, cos).transpose(1, 2)
        return torch.cat([turned, x[..., config.rotary_dim :]], -1)
    places = positions.T[:, None] if positions.dim() == 2 else positions[None]
    made = turned_by(config, code, layer_type)(x, places)
    if isinstance(made, torch.Tensor):  # complex numbers, of rows [B,N,H,D] in Llama 4
        if name == "deepseek_v2":
            return code.apply_rotary_emb(x, x, made)[0]
        return code.apply_rotary_emb(*2 * [x.transpose(1, 2)], made)[0].transpose(1, 2)
    width = made[0].shape[-1] * (2 if name == "gpt_oss" else 1)
    if interleaved and hasattr(
        code, "apply_rotary_pos_emb_interleave"
    ):  # it writes pairs apart, which scores do not see
        turned = code.apply_rotary_pos_emb_interleave(x, x, *made)[0]
        return turned.unflatten(-1, (2, width // 2)).transpose(-1, -2).flatten(-2)
    turn = code.apply_rotary_pos_emb
    if name == "deepseek_v4":  # the last channels
        return turn(x, *made)
    part = x[..., :width]
    turned = turn(part, *made) if next(iter(inspect.signature(turn).parameters)) == "x" else turn(part, part, *made)[0]
    return torch.cat([turned, x[..., turned.shape[-1] :]], -1)


NEAR = [0, 1, 2, 3, 5, 7, 15, 31]
PLACES = torch.tensor([*NEAR, 63, 127, 255, 300, 511])


def differences(config, layer_type=None, length=None, places=PLACES):
    """How far kernel and model are apart: at the first places and at all, of rows up to 1."""
    fields = config.to_dict()
    options = described(fields, layer_type, length)[1]
    x = 2 * torch.rand(1, 2, len(places), options["head_dim"], generator=torch.Generator().manual_seed(1)) - 1
    axes = options.get("axes") or len(options.get("sections", [0]))
    positions = places
    if axes > 1:
        positions = torch.stack([places, places // 2, places // 3, places // 5][:axes], 1)
    expected = rotated(config, x, positions, layer_type, options.get("layout") == "interleaved")
    kernel = pk.compile(config=fields, layer_type=layer_type, text_length=length, targets="native", dtypes="float32")
    found = kernel.encode(x.numpy(), positions=positions.reshape(len(places), -1).double().numpy())
    apart = (torch.from_numpy(found) - expected.detach()).abs().amax((0, 1, 3))
    return float(apart[: len(NEAR)].max()), float(apart.max())


def layers_of(config):
    """The types of layers that turn differently."""
    rope = getattr(config, "rope_parameters", None) or {}
    used = getattr(config, "layer_types", None) or rope
    return [name for name, value in rope.items() if isinstance(value, dict) and
            (name in used or name in ("main", "compress"))] or [None]  # fmt: skip


# Sizes that fit what a model divides: sections of axes, parts of heads.
ROPE = {"rope_type": "default", "rope_theta": 1e4}
MORE = {
    **dict.fromkeys(("codegen", "gptj"), {"rotary_dim": 16}),
    **{model: {"head_dim": 2 * sum(sizes), "hidden_size": 4 * sum(sizes)} for model, sizes in SECTIONS.items()},
    **dict.fromkeys(("qwen3_5_text", "qwen3_5_moe_text", "hy_v4_vl_text"), {}),
    "glm4v_moe_text": {"head_dim": 128, "hidden_size": 256},
    "qwen4_exp_text": {"rope_parameters": {**ROPE, "partial_rotary_factor": 0.25}},
    "hunyuan_vl_text": {"head_dim": 32, "rope_parameters": {**ROPE, "mrope_section": [4, 4, 4, 4]}},
}


class Models(unittest.TestCase):
    def close(self, found):
        """A model's own float32 phases are right to 2^-24 of themselves."""
        self.assertLess(found[0], 1e-5)
        self.assertLess(found[1], 1e-4)

    def test_every_model(self):
        for model in LAYOUT:
            config = small(model, **MORE.get(model, {}))
            saved = json.loads(config.to_json_string())  # which leaves out what is nobody's own
            for layer_type in layers_of(config):
                with self.subTest(model=model, layer_type=layer_type):
                    self.close(differences(config, layer_type))
                    self.assertEqual(described(saved, layer_type), described(config.to_dict(), layer_type))

    def test_scalings(self):
        for rope in YARN, LLAMA3, LINEAR, {**YARN, "beta_fast": 16.0, "truncate": False, "attention_factor": 1.5}:
            with self.subTest(rope=rope):
                self.close(differences(small("llama", rope_parameters=rope)))

    def test_deepseek(self):
        """Frequencies of YaRN whose amplitude has two parts; pairs apart where the file says so."""
        for model, words in (("deepseek_v3", {}), ("deepseek_v3", {"rope_interleave": False}), ("deepseek_v2", {}),
                             ("deepseek_v32", {})):  # fmt: skip
            for mscale in (1.0, 1.0), (0.707, 1.0), (None, None):
                rope = {**YARN, **{k: v for k, v in zip(("mscale", "mscale_all_dim"), mscale) if v is not None}}
                with self.subTest(model=model, words=words, mscale=mscale):
                    self.close(differences(small(model, rope_parameters=rope, **words)))
        older = {"rope_type": "yarn", "factor": 16, "original_max_position_embeddings": 1024}
        config = transformers.DeepseekV4Config(rope_scaling=older, max_position_embeddings=16384, num_hidden_layers=2)
        for layer_type in "main", "compress":
            self.close(differences(config, layer_type))
            fields = {key: value for key, value in config.to_dict().items() if key != "rope_parameters"}
            self.assertEqual(described({**fields, "rope_scaling": older}, layer_type),
                             described(config.to_dict(), layer_type))  # fmt: skip

    def test_lengths(self):
        """Rules that depend on the length of the text: which is refused where it is not given."""
        steps = torch.arange(16) / 16.0
        factors = {"short_factor": (1 + steps).tolist(), "long_factor": (1 + 60 * steps**2).tolist()}
        longrope = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 256, **factors}
        dynamic = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}
        for model, rope in ("phi3", longrope), ("llama", longrope), ("llama", dynamic):
            config = small(model, rope_parameters=rope, head_dim=32)
            config.max_position_embeddings = 512 if rope is dynamic else 1024
            if model == "phi3":
                config.original_max_position_embeddings = 256
            for length in 200, 1000:
                with self.subTest(model=model, rope=rope["rope_type"], length=length):
                    places = torch.cat([PLACES[PLACES < length], torch.tensor([length - 1])])
                    self.close(differences(config, length=length, places=places))
            with self.assertRaisesRegex(pk.CompileError, "turn at other rates .* 'text_length'"):
                described(config.to_dict())
        for model in "hunyuan_v1_dense", "hunyuan_v1_moe":
            alpha = {"rope_type": "dynamic", "alpha": 1000.0, "factor": 1.0, "mscale": 1.0, "rope_theta": 1e4}
            self.close(differences(small(model, rope_parameters=alpha, head_dim=32)))

    def test_axes(self):
        """Positions (t, h, w) of texts with images."""
        for model, rope in (("qwen2_vl_text", {"mrope_section": [4, 6, 6]}),
                            ("qwen2_5_vl_text", {"mrope_section": [4, 6, 6]}),
                            ("qwen2_vl_text", {"mrope_section": [4, 6, 6], "rope_type": "mrope"}),
                            ("qwen3_vl_text", {"mrope_section": [24, 20, 20], "mrope_interleaved": True}),
                            ("qwen3_vl_text", {"mrope_section": [32, 16, 16]}),
                            ("glm4v_text", {"mrope_section": [4, 6, 6]}),
                            ("hunyuan_vl_text", {"mrope_section": [4, 4, 4, 4]}),
                            ("hunyuan_vl_text", {"mrope_section": [4, 6, 6], "alpha": 1000.0, "rope_type": "dynamic"}),
                            ("qwen3_5_text", {"mrope_section": [11, 11, 10], "mrope_interleaved": True,
                                              "partial_rotary_factor": 0.25})):  # fmt: skip
            with self.subTest(model=model, rope=rope):
                words = {"rope_type": "default", "rope_theta": 1e4, **rope}
                config = small(
                    model, rope_parameters={**words, "rope_type": words["rope_type"].replace("mrope", "default")}
                )
                if getattr(config, "head_dim", 0) is None:
                    config.head_dim = 32
                self.close(differences(config))
                fields = {**config.to_dict(), "rope_parameters": words}
                self.assertEqual(described(fields), described(config.to_dict()))

    def test_images(self):
        """DINOv3, at the resolution of its configuration."""
        config = transformers.DINOv3ViTConfig(image_size=(64, 96), num_register_tokens=4)
        rope = dinov3.DINOv3ViTRopePositionEmbedding(config).eval()
        x = torch.randn(1, 6, 5 + 4 * 6, 64, generator=torch.Generator().manual_seed(1))
        expected = dinov3.apply_rotary_pos_emb(x, x, *rope(torch.zeros(1, 3, 64, 96)))[0]
        found = pk.compile(config=config.to_dict(), targets="native", dtypes="float32").encode(x.numpy())
        self.assertLess(float((torch.from_numpy(found) - expected).abs().max()), 1e-5)

    def test_layers_without_rotation(self):
        """Llama 4's, by its code of an attention layer: the length of q tells the position."""
        config = small("llama4_text", head_dim=32, attn_scale=0.2, floor_scale=64)
        kernel = pk.compile(config=config.to_dict(), layer_type="no_rope", targets="native", dtypes="float32")
        q = torch.randn(1, 2, len(PLACES), 32, generator=torch.Generator().manual_seed(1))
        scales = torch.log1p(torch.floor((PLACES.float() + 1.0) / 64)) * 0.2 + 1.0
        found, kept = kernel.encode(q.numpy(), q.numpy(), positions=PLACES.reshape(-1, 1).double().numpy())
        self.assertLess(float((torch.from_numpy(found) - q * scales[:, None]).abs().max()), 1e-5)
        self.assertTrue((torch.from_numpy(kept) == q).all())
        config.attn_temperature_tuning = False
        for fields, words in ((config.to_dict(), "no 'attn_temperature_tuning'"),
                              ({"model_type": "llama"}, "'no_rope_layers' is missing")):  # fmt: skip
            with self.assertRaisesRegex(pk.CompileError, words):
                described(fields, "no_rope")


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

    def test_left_out(self):
        """Fields that a file has not got mean what the model's class makes of that."""
        for model in LAYOUT:
            made = transformers.CONFIG_MAPPING[model]().to_dict()
            rope = made.get("rope_parameters") or {}
            if rope.get("rope_type", "default") != "default" or layers_of(transformers.CONFIG_MAPPING[model]()) != [
                None
            ]:
                continue
            if model in TWO_ANGLES or "mrope_section" in rope:
                continue
            bare = {name: value for name, value in made.items() if not re.search("rope_|rotary|head_dim", name)}
            bare |= {name: made[name] for name in ("qk_rope_head_dim", "rotary_dim") if name in made}
            if model in SECTIONS:  # which a head has to fit
                share = rope.get("partial_rotary_factor", 1)
                made["head_dim"] = bare["head_dim"] = int(2 * sum(SECTIONS[model]) / share)
            with self.subTest(model=model):
                self.assertEqual(described(bare), described(made))

    def test_command(self):
        """What the command prints is what pegen takes, lists of numbers too."""
        rope = {"type": "su", "short_factor": [1.0, 1.1, 1.25, 2.0], "long_factor": [1.0, 3.0, 7.0, 64.125]}
        fields = {"model_type": "phi3", "hidden_size": 16, "num_attention_heads": 2, "rope_scaling": rope,
                  "max_position_embeddings": 4096, "original_max_position_embeddings": 1024}  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "config.json")
            with open(file, "w") as out:
                json.dump(fields, out)
            shown = io.StringIO()
            with contextlib.redirect_stdout(shown):
                main([file, "--length", "4096"])
        command = shown.getvalue().split()
        self.assertIn("factors=1,3,7,64.125", command)
        words = [_native.program(), *command[1:-2], "--emit", "expr", "-o", "-"]
        subprocess.run(words, check=True, capture_output=True)

    def test_parts(self):
        """The text's part of a model of images, whose file leaves out what its class knows (Gemma 3)."""
        text = {
            "hidden_size": 2560,
            "model_type": "gemma3_text",
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        }
        whole = {"model_type": "gemma3", "text_config": text}
        expected = {"layout": "split", "head_dim": 256, "base": 1e6, "factor": 8.0, "scaling": "linear"}
        self.assertEqual(described(whole, "full_attention"), ("rope", expected))
        self.assertEqual(
            described(whole, "sliding_attention"), ("rope", {"layout": "split", "head_dim": 256, "base": 1e4})
        )
        flat = {"model_type": "qwen2_vl", "hidden_size": 3584, "num_attention_heads": 28, "rope_theta": 1e6,
                "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}  # fmt: skip
        self.assertEqual(described(flat)[1]["sections"], [16, 24, 24])
        scout = {"factor": 16.0, "high_freq_factor": 1.0, "low_freq_factor": 1.0, "rope_type": "llama3",
                 "original_max_position_embeddings": 8192}  # fmt: skip
        llama4 = transformers.Llama4TextConfig(rope_scaling=scout, rope_theta=5e5).to_dict()
        self.assertEqual(described({"model_type": "llama4", "text_config": llama4})[1]["scaling"], "llama3")
        older = {"model_type": "modernbert", "hidden_size": 768, "num_attention_heads": 12, "global_rope_theta": 2e5}
        self.assertEqual([described(older, f"{kind}_attention")[1]["base"] for kind in ("full", "sliding")], [2e5, 1e4])

    def test_refused(self):
        llama = {"model_type": "llama", "head_dim": 64}
        for fields, layer_type, words in (
            ({"model_type": "nobody"}, None, "model_type is 'nobody', whose pairs .* known; 'rope' has options"),
            ({"model_type": "llama"}, None, "'head_dim', or 'hidden_size'"),
            ({**llama, "rope_scaling": {"type": "of_nobody", "factor": 2}}, None, "rope_type is 'of_nobody'"),
            ({**llama, "rope_scaling": {"type": "yarn", "msale": 1.0}}, None, "'msale' of rope type 'yarn'"),
            ({**llama, "rope_scaling": {"type": "yarn", "factor": 2}}, None, "'original_max_position_embeddings' was"),
            (
                {**llama, "rope_scaling": {"type": "dynamic", "factor": 2}},
                None,
                "'max_position_embeddings' was expected",
            ),
            ({"model_type": "deepseek_v3"}, None, "'qk_rope_head_dim' was expected"),
            (
                {"model_type": "gemma4_text", "rope_parameters": {"full_attention": None, "sliding_attention": {}}},
                "full_attention",
                "layers of 'full_attention' do not turn",
            ),
            ({**llama, "use_rope": False}, None, "'use_rope' is false"),
            ({"model_type": "dinov3_vit", "head_dim": 64}, None, "'image_size' and 'patch_size' were"),
            ({"model_type": "dinov3_vit", "image_size": 224, "patch_size": 16}, "main", "all layers turn alike"),
            ({"model_type": "hunyuan_vl", "head_dim": 64}, None, "'mrope_section' was expected"),
            ({**llama, "rope_scaling": {"mrope_section": [1, 2, 3]}}, None, "'mrope_section' has 6 pairs of"),
            ({**llama, "rope_interleave": True}, None, "'rope_interleave' of rope type 'default' is not read"),
            (llama, "full_attention", "all layers turn alike"),
            ({**llama, "rope_parameters": {"a": {}, "b": {}}}, None, "one of a, b was expected"),
        ):
            with self.subTest(words=words), self.assertRaisesRegex(pk.CompileError, words):
                described(fields, layer_type)
        for spec, more, words in ((None, {}, "neither"), ("rope", {"config": llama}, "both"),
                                  ("rope", {"layer_type": "a"}, "none was given"),
                                  ("rope", {"text_length": 5}, "text_length is of a 'config'"),
                                  (None, {"config": "/nowhere.json"}, "cannot read '/nowhere.json'")):  # fmt: skip
            with self.subTest(words=words), self.assertRaisesRegex(pk.CompileError, words):
                pk.compile(spec, **more)


if __name__ == "__main__":
    unittest.main()
