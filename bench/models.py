#!/usr/bin/env python3
"""models.py [--rounds N] [--tokens N] [MODEL ...]: what patch does to the speed of models, as a table of ratios.

Models have the published widths and random weights; those of language have four layers, those of images all of theirs.
A model and its patched copy, which share their parameters, run in turn. Each run gives two times: of the model, and of
rotation in it, which is the functions that rotate q and k and what makes their angles. A ratio is the median, over the
rounds, of own time by patched time. Times are of the thread's processor time, with one thread, so that other programs
disturb them less.
"""
import argparse
import copy
import functools
import importlib
import pathlib
import statistics
import sys
import time
import warnings

import torch

torch.set_num_threads(1)
warnings.filterwarnings("ignore")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "python"))
import vision  # noqa: E402, F401 (before timm)

import timm  # noqa: E402
import transformers as T  # noqa: E402
from pegen_kernels.torch import patch  # noqa: E402
from pegen_kernels.torch.models import _replaced  # noqa: E402

T.logging.set_verbosity_error()


def sizes(hidden, heads, kv_heads, head_dim, inner, **more):
    common = {"vocab_size": 1000, "num_hidden_layers": 4, "max_position_embeddings": 4096, "pad_token_id": 0,
              "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
    return {**common, "hidden_size": hidden, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
            "head_dim": head_dim, "intermediate_size": inner, **more}  # fmt: skip


TWO_KINDS = {"layer_types": ["sliding_attention", "full_attention"] * 2}
LANGUAGE = {  # class, configuration
    "Llama 3.2 1B": ("Llama", sizes(2048, 32, 8, 64, 8192)),
    "Qwen3 0.6B": ("Qwen3", sizes(1024, 16, 8, 128, 3072)),
    "Gemma 3 1B": ("Gemma3Text", sizes(1152, 4, 1, 256, 6912, **TWO_KINDS)),
    "OLMo 2 1B": ("Olmo2", sizes(2048, 16, 16, 128, 8192)),
    "GLM Edge 1.5B": ("Glm", sizes(2048, 16, 4, 128, 6144, partial_rotary_factor=0.5)),
    "DeepSeek V2 Lite": ("DeepseekV2", sizes(
        2048, 16, 16, 64, 10944, q_lora_rank=None, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64,
        v_head_dim=128, first_k_dense_replace=4)),
    "Pythia 410M": ("GPTNeoX", sizes(1024, 16, 16, 64, 4096)),
    "CodeGen 350M": ("CodeGen", {"vocab_size": 1000, "n_embd": 1024, "n_layer": 4, "n_head": 16, "rotary_dim": 32}),
    "ModernBERT base": ("ModernBert", sizes(768, 12, 12, 64, 1152, global_attn_every_n_layers=2)),
}  # fmt: skip
IMAGES = {
    "ViT-S/16 RoPE (timm)": "vit_small_patch16_rope_224",
    "ViT-S/16 RoPE-Mixed (timm)": "vit_small_patch16_rope_mixed_224",
    "EVA-02 S/14 (timm)": "eva02_small_patch14_224", "DINOv3 S/16 (timm)": "vit_small_patch16_dinov3",
}  # fmt: skip


def made(name, tokens):
    """A model, and a call of it."""
    torch.manual_seed(1)
    if name in IMAGES:
        model = timm.create_model(IMAGES[name], num_classes=10).eval()
        shape = (1, 3, *model.patch_embed.img_size)
        return model, lambda model, dtype: model(torch.zeros(shape, dtype=dtype)), model.patch_embed.num_patches
    kind, given = LANGUAGE[name]
    model = T.AutoModel.from_config(getattr(T, f"{kind}Config")(**given), attn_implementation="sdpa").eval()
    named = {} if kind == "ModernBert" else {"use_cache": False}
    ids = torch.arange(tokens)[None] % 900 + 3
    return model, lambda model, dtype: model(ids, **named), tokens


class Rotation:
    """Time that rotation takes, while a model runs."""

    def __init__(self):
        self.spent, self.depth = 0.0, 0

    def timed(self, run):
        @functools.wraps(run)
        def call(*given, **named):
            begin, self.depth = time.thread_time(), self.depth + 1
            try:
                return run(*given, **named)
            finally:
                self.depth -= 1
                self.spent += (time.thread_time() - begin) * (self.depth == 0)

        return call

    def watch(self, own, ours):
        """Puts a timer around functions that rotate, and around what makes angles in both models."""
        paths = {module: path for path, module in ours.named_modules()}
        changes = list(_replaced(ours))
        for module, change in changes:
            for model in (own, ours):
                of = model.get_submodule(paths[module])
                name = "get_embed" if "get_embed" in vars(module) else "_call_impl"
                setattr(of, name, self.timed(getattr(of, name)))
        for code, name in {pair for _, change in changes for pair in change.functions}:
            names = vars(importlib.import_module(code))
            if not hasattr(names[name], "of_bench"):
                names[name] = self.timed(names[name])
                names[name].of_bench = True


rotation = Rotation()


def measured(name, dtype, rounds, tokens):
    """Medians: rotation's share of the model's own time; ratios of rotation and of the model."""
    model, run, tokens = made(name, tokens)
    own = model.to(dtype)
    ours = patch(copy.deepcopy(own, {id(x): x for x in own.parameters()}), targets="native")
    rotation.watch(own, ours)
    lines = []
    with torch.no_grad():
        for i in range(rounds + 1):
            pair = []
            for of in (own, ours) if i % 2 else (ours, own):
                rotation.spent, begin = 0.0, time.thread_time()
                run(of, dtype)
                pair.append((time.thread_time() - begin, rotation.spent))
            (a, turned_a), (b, turned_b) = pair if i % 2 else pair[::-1]
            lines.append((turned_a / a, turned_a / turned_b, a / b))
    share, turned, whole = (statistics.median(column) for column in zip(*lines[1:]))
    return tokens, share, turned, whole


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--tokens", type=int, default=256, help="of models of language")
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join([*LANGUAGE, *IMAGES]))
    given = parser.parse_args()
    for name in given.models:
        if name not in {**LANGUAGE, **IMAGES}:
            parser.error(f"no model '{name}'; expected one of {', '.join([*LANGUAGE, *IMAGES])}")
    print("| model | tokens | rotation's share | rotation, float32 | bfloat16 | model, float32 | bfloat16 |")
    print("|---|---|---|---|---|---|---|")
    for name in given.models or [*LANGUAGE, *IMAGES]:
        found = [measured(name, dtype, given.rounds, given.tokens) for dtype in (torch.float32, torch.bfloat16)]
        shares = ", ".join(f"{100 * share:.1f} %" for _, share, _, _ in found)
        ratios = [f"{x[column]:.{digits}f}" for column, digits in ((2, 1), (3, 3)) for x in found]
        print("|", " | ".join([name, str(found[0][0]), shares, *ratios]), "|", flush=True)


if __name__ == "__main__":
    sys.exit(main())
