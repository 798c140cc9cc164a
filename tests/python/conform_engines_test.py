"""What docs/notes/conform.md says of packages: their functions as engines, and what they follow."""
import unittest
from importlib.util import find_spec

import conform_packages
import jax
import numpy
import torch
import vision  # noqa: F401 (before timm and transformers)

from conform_packages import ALIBI, HALVES, LEFT, PAIRS, bias_of, follows
from diffusers.models.embeddings import (
    apply_rotary_emb,
    get_1d_rotary_pos_embed,
    get_2d_sincos_pos_embed_from_grid,
    get_timestep_embedding,
)
from diffusers.models.transformers.transformer_flux import FluxPosEmbed
from timm.layers import apply_rot_embed_cat, build_sincos2d_pos_embed
from torch.nn.attention.bias import causal_lower_right
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention
from transformers import DINOv3ViTConfig, LlamaConfig, PixtralVisionConfig, T5Config, masking_utils
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.deepseek_v3.modeling_deepseek_v3 import apply_rotary_pos_emb_interleave
from transformers.models.dinov3_vit.modeling_dinov3_vit import DINOv3ViTRopePositionEmbedding
from transformers.models.dinov3_vit.modeling_dinov3_vit import apply_rotary_pos_emb as dinov3_rotary
from transformers.models.glm4.modeling_glm4 import apply_rotary_pos_emb as glm_rotary
from transformers.models.glm4_moe.modeling_glm4_moe import apply_rotary_pos_emb as glm_moe_rotary
from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as gptj_rotary
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb
from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
from transformers.models.pixtral.modeling_pixtral import PixtralVisionRotaryEmbedding
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLRotaryEmbedding
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextRotaryEmbedding
from transformers.models.t5.modeling_t5 import T5Attention

from pegen_kernels.conform import conform
from pegen_kernels.conform.cases import CASES


def angles(a, asked):
    """[B or 1, N, D/2] of the rule without scaling."""
    dim = asked.get("rotary_dim", asked["head_dim"])
    found = a["positions"][..., None] * asked.get("base", 1e4) ** (-torch.arange(0, dim, 2) / dim)
    return found if found.dim() == 3 else found[None]


def llama(a, asked):
    """LlamaRotaryEmbedding and apply_rotary_pos_emb, by a configuration that says what is asked."""
    kind = "longrope" if "factors" in asked else asked.get("scaling", "default")
    rope = {"rope_type": kind, "rope_theta": asked.get("base", 1e4)}
    rope |= {"factor": asked["factor"]} if "factor" in asked else {}
    if kind in ("yarn", "llama3", "longrope"):
        rope["original_max_position_embeddings"] = asked["original_max_position"]
    if kind == "yarn":
        rope |= {x: asked[x] for x in ("beta_fast", "beta_slow") if x in asked}
        rope |= {"truncate": asked.get("truncate", True), "attention_factor": asked["attention_factor"] or None}
    if kind == "llama3":
        rope |= {
            "low_freq_factor": asked.get("low_freq_factor", 1.0),
            "high_freq_factor": asked.get("high_freq_factor", 4.0),
        }
    if kind == "longrope":
        rope |= {"short_factor": a["short"].tolist(), "long_factor": a["long"].tolist(),
                 "attention_factor": asked["attention_factor"]}  # fmt: skip
    if "exponents" in asked:
        kind = "proportional" if asked["exponents"] == "head" else "default"
        rope |= {"rope_type": kind, "partial_rotary_factor": asked["rotary_dim"] / asked["head_dim"]}
    length = asked.get("original_max_position", 2048)
    config = LlamaConfig(hidden_size=asked["head_dim"], num_attention_heads=1, head_dim=asked["head_dim"],
                         max_position_embeddings=length, rope_parameters=rope)  # fmt: skip
    positions = a["positions"] if a["positions"].dim() == 2 else a["positions"][None]
    return apply_rotary_pos_emb(a["q"], a["k"], *LlamaRotaryEmbedding(config)(a["q"], positions))


def twice(x, interleaved):
    return x.repeat_interleave(2, -1) if interleaved else torch.cat([x, x], -1)


def by_angles(rotary, interleaved):
    """A function of (q, k, cos, sin)."""
    return lambda a, asked: rotary(
        a["q"], a["k"], *(f(twice(angles(a, asked), interleaved)) for f in (torch.cos, torch.sin))
    )


def gptj(a, asked):
    turned = []
    for x in (a["q"], a["k"]):
        sin, cos = (f(angles(a, asked)).float() for f in (torch.sin, torch.cos))
        n = 2 * sin.shape[-1]
        y = gptj_rotary(x[..., :n].transpose(1, 2), sin, cos).transpose(1, 2)
        turned.append(torch.cat([y, x[..., n:]], -1))
    return turned


def timm(half):
    def engine(a, asked):
        parts = (f(twice(angles(a, asked)[0], not half)) for f in (torch.sin, torch.cos))
        embedding = torch.cat(list(parts), -1).float()
        return [apply_rot_embed_cat(a[x], embedding, half=half) for x in "qk"]

    return engine


def diffusers(unbind):
    def engine(a, asked):
        positions = a["positions"].double()
        made = get_1d_rotary_pos_embed(asked["head_dim"], positions, asked["base"], use_real=True,
                                       repeat_interleave_real=unbind == -1, freqs_dtype=torch.float64)  # fmt: skip
        return [apply_rotary_emb(a[x], made, use_real_unbind_dim=unbind) for x in "qk"]

    return engine


def flux(a, asked):
    made = FluxPosEmbed(int(asked["base"]), [2 * x for x in asked["sections"]])(a["positions"])
    return [apply_rotary_emb(a[x], made) for x in "qk"]


def multimodal(rotary):
    def engine(a, asked):
        rope = {"rope_type": "default", "rope_theta": asked["base"], "mrope_section": list(asked["sections"])}
        config = LlamaConfig(hidden_size=asked["head_dim"], num_attention_heads=1, head_dim=asked["head_dim"],
                             rope_parameters=rope)  # fmt: skip
        positions = a["positions"] if a["positions"].dim() == 3 else a["positions"][None]
        return apply_rotary_pos_emb(a["q"], a["k"], *rotary(config)(a["q"], positions.movedim(-1, 0)))

    return engine


def pixtral(a, asked):
    rope = {"rope_type": "axial", "rope_theta": asked["base"]}
    config = PixtralVisionConfig(hidden_size=asked["head_dim"], num_attention_heads=1, head_dim=asked["head_dim"],
                                 rope_parameters=rope)  # fmt: skip
    cos, sin = PixtralVisionRotaryEmbedding(config)(a["q"], a["positions"])
    return apply_rotary_pos_emb(a["q"], a["k"], cos[None], sin[None])


def dinov3(a, asked):
    """The case's places of a whole image."""
    height, width = asked["cells"]
    config = DINOv3ViTConfig(hidden_size=asked["head_dim"], num_attention_heads=1, rope_theta=asked["base"],
                             image_size=[height, width], patch_size=1)  # fmt: skip
    at = a["positions"] @ torch.tensor([width, 1])
    cos, sin = (x[at] for x in DINOv3ViTRopePositionEmbedding(config).eval()(torch.zeros(1, 3, height, width)))
    return dinov3_rotary(a["q"], a["k"], cos, sin)


def added(make):
    """A sum with an embedding [N, channels]."""
    return lambda a, asked: a["x"] + make(a["positions"] + (asked["positions"] == "next"), asked)[None]


def timestep(positions, asked):
    flips = asked["functions"] == "cosines"
    return get_timestep_embedding(positions, asked["channels"], flips, asked.get("shift", 0), 1, asked["base"])


def m2m100(positions, asked):
    return M2M100SinusoidalPositionalEmbedding.get_embedding(302, asked["channels"])[positions]


def timm_sum(positions, asked):
    order = asked["order"] == (1, 0)
    made = build_sincos2d_pos_embed([301, 301], asked["channels"], asked["base"], order)
    return made[positions @ torch.tensor([1, 301] if order else [301, 1])]


def of_grid(positions, asked):
    return get_2d_sincos_pos_embed_from_grid(asked["channels"], positions.T)


def masks(a, asked):
    """masking_utils of transformers, which functions of indices are."""
    n, m = a["q"].shape[2], a["k"].shape[2]
    window, starts, causal = (
        asked.get("window", 0),
        a.get("starts", torch.zeros(2, dtype=torch.long)),
        asked["mask"] != "none",
    )
    if asked.get("local") == "chunks":
        seen = masking_utils.chunked_causal_mask_function(window, starts)
    elif window and causal:
        seen = masking_utils.sliding_window_causal_mask_function(window)
    elif window:
        seen = masking_utils.sliding_window_bidirectional_mask_function(window)
    else:
        seen = masking_utils.causal_mask_function
    mask = seen(0, 0, (torch.arange(n) + m - n)[:, None], torch.arange(m))
    return scaled_dot_product_attention(a["q"], a["k"], a["v"], mask)


def bloom(a, asked, n, m):
    return build_alibi_tensor(torch.ones(1, m), asked["heads"], torch.float32)


def mpt(a, asked, n, m):
    return build_mpt_alibi_tensor(asked["heads"], m)


def t5(a, asked, n, m):
    config = T5Config(num_heads=asked["heads"], d_model=32, is_decoder=asked["causal"],
                      relative_attention_max_distance=asked.get("max_distance", 128))  # fmt: skip
    layer = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    layer.relative_attention_bias.weight.data = a["relative_attention_bias"]
    return layer.compute_bias(n, m, past_seen_tokens=m - n)[0].detach()


def sdpa(a, asked):
    return scaled_dot_product_attention(a["q"], a["k"], a["v"], is_causal=asked["mask"] != "none", enable_gqa=True)


def lower_right(a, asked):
    return scaled_dot_product_attention(a["q"], a["k"], a["v"], causal_lower_right(a["q"].shape[2], a["k"].shape[2]))


def jax_attention(a, asked):
    window = asked.get("window")
    window = window and (window, 0 if asked["mask"] == "bottom-right" else window)
    rows = (numpy.asarray(a[x].transpose(1, 2)) for x in "qkv")
    causal = asked["mask"] == "bottom-right"
    return numpy.asarray(jax.nn.dot_product_attention(*rows, is_causal=causal, local_window_size=window)).swapaxes(1, 2)


def flex(a, asked):
    """Softcap as a score_mod, window and causality as a mask_mod of indices, as its documentation has them."""
    cap, window = asked.get("softcap"), asked.get("window", 1 << 20)
    n, m = a["q"].shape[2], a["k"].shape[2]
    mask = lambda b, h, i, j: (i - j < window) & (i >= j)  # noqa: E731
    blocks = create_block_mask(mask, None, None, n, m, "cpu") if asked["mask"] != "none" else None
    score = (lambda s, b, h, i, j: cap * torch.tanh(s / cap)) if cap else None
    return flex_attention(a["q"], a["k"], a["v"], score, blocks, enable_gqa=True)


SIGNED = follows(direction=("signed", "distance"))
SCALED = "dynamic NTK;dynamic NTK, decode;dynamic NTK, within the trained length;linear;linear, base 1000000;YaRN;" \
         "YaRN, whole pairs;YaRN, turns 64 and 2;YaRN, temperature 1.26;llama3;llama3, factor 32;" \
         "llama3, factors 2 and 8;longrope, beyond the trained length;longrope, within the trained length"  # fmt: skip
ENGINES = {
    "transformers, Llama": (llama, f"halves;halves, base 500000;halves, positions by sequence;{SCALED}",
                            {"pairs": HALVES}),
    "transformers, GLM-4": (by_angles(glm_rotary, False), "pairs;pairs, base 500000;pairs, 64 of 128 channels",
                            {"halves": PAIRS}),
    "transformers, GPT-J": (gptj, "pairs;pairs, 64 of 128 channels", {"halves": PAIRS}),
    "transformers, DeepSeek-V3": (by_angles(apply_rotary_pos_emb_interleave, False), "",
                                  {"pairs": "the scores asked for, of other rows (as of channels in another order)"}),
    "transformers, proportional": (llama, "halves, 128 of 512 channels, of all", {}),
    "transformers, GLM-4.5": (by_angles(glm_moe_rotary, False), "halves;halves, 32 of 80 channels;"
                              "halves, 64 of 256 channels",
                              {"halves, the last 64 of 192 channels": follows(turning=("first", "last"))}),
    "transformers, Pixtral": (pixtral, "image, halves, frequencies that alternate",
                              {"image, halves": follows(arrangement=("shared", "sequential"))}),
    "transformers, DINOv3": (dinov3, "image, signed coordinates", {}),
    "transformers, M2M-100": (added(m2m100), "sums, exponents to 1", {"sums": follows(shift=(1, 0))}),
    "transformers, masks": (masks, "causal, cache;causal, decode;window;window, cache;window, decode;chunks;"
                            "chunks, cache;chunks, decode", {"window of both directions": "window 5, not window 4"}),
    "transformers, Qwen2-VL": (multimodal(Qwen2VLRotaryEmbedding),
                               "M-RoPE;M-RoPE, decode;M-RoPE, positions by sequence",
                               {"M-RoPE, woven": "pairs in sections, not pairs woven"}),
    "transformers, Qwen3-VL": (multimodal(Qwen3VLTextRotaryEmbedding), "M-RoPE, woven",
                               {"M-RoPE": "pairs woven, not pairs in sections"}),
    "transformers, BLOOM": (bias_of(bloom), ALIBI, {"ALiBi, all keys": SIGNED}),
    "transformers, MPT": (bias_of(mpt), ALIBI, {"ALiBi, all keys": SIGNED}),
    "transformers, T5": (bias_of(t5), "T5, encoder;T5, decoder;T5, cache", {}),
    "timm": (timm(False), "pairs", {"halves": PAIRS}),
    "timm, half=True": (timm(True), "halves", {"pairs": HALVES}),
    "diffusers, unbind -1": (diffusers(-1), "pairs", {"halves": PAIRS}),
    "diffusers, unbind -2": (diffusers(-2), "halves", {"pairs": HALVES}),
    "timm, build_sincos2d_pos_embed": (added(timm_sum), "sums, image, all sines first",
                                       {"sums, image": follows(arrangement=("functions", "axes"))}),
    "diffusers, get_timestep_embedding": (added(timestep), "sums;sums, cosines first;sums, exponents to 1;"
                                          "sums, positions from 1", {}),
    "diffusers, get_2d_sincos_pos_embed_from_grid": (added(of_grid), "sums, image",
                                                     {"sums, image, columns first": "order (0, 1), not order (1, 0)"}),
    "diffusers, FLUX": (flux, "video;video, base 256;video, 44, 42 and 42 channels;video, 64 channels", {}),
    "torch, is_causal": (sdpa, "attention;causal;groups of heads", {"causal, cache": LEFT, "causal, decode": LEFT}),
    "torch, causal_lower_right": (lower_right, "causal;causal, cache;causal, decode", {}),
    "torch, flex_attention": (flex, "attention;causal;window;groups of heads;softcap;softcap, causal",
                              {"causal, cache": LEFT, "window, cache": LEFT, "softcap, window, cache": LEFT}),
    "jax, dot_product_attention": (jax_attention, "attention;causal;groups of heads",
                                   {"causal, cache": LEFT, "window": "window 5, not window 4",
                                    "window of both directions": "window 5, not window 4"}),
}  # fmt: skip


class Engines(unittest.TestCase):
    def check(self, package, engines):
        for name, (engine, right, wrong) in engines.items():
            for case, told in {**dict.fromkeys(filter(None, right.split(";")), ""), **wrong}.items():
                with self.subTest(package, engine=name, case=case):
                    found = conform.judge(CASES[case], engine, given=conform._giver("float32", True))
                    self.assertEqual((found.passed, found.words), (not told, told))

    def test_large(self):
        self.check("", ENGINES)


def check_of(package):
    @unittest.skipUnless(find_spec(package.__name__), f"{package.__name__} is not installed")
    def check(self):
        try:
            engines = package()
        except ImportError as e:  # what it needs itself
            self.skipTest(str(e))
        self.check(package.__name__, engines)

    return check


class XposWithACache(unittest.TestCase):
    """Origins are the middle of each call, so that scores of one query and a cache are not those of a whole call."""

    rows = torch.tensor(numpy.random.default_rng(0).standard_normal((2, 1, 80, 64)), dtype=torch.float32)

    def check(self, whole, step):
        self.assertGreater(float((whole - step).abs().max() / whole.abs().max()), 0.01)

    @unittest.skipUnless(find_spec("torchscale"), "torchscale is not installed")
    def test_torchscale(self):
        from torchscale.component.xpos_relative_position import XPOS

        (q, k), xpos = self.rows, XPOS(64)
        cache = torch.cat([xpos(k[:, i : i + 1], i, downscale=True) for i in range(80)], 1)
        self.check((xpos(q) @ xpos(k, downscale=True).mT)[:, -1:], xpos(q[:, -1:], 79) @ cache.mT)

    @unittest.skipUnless(find_spec("rotary_embedding_torch"), "rotary_embedding_torch is not installed")
    def test_rotary_embedding_torch(self):
        from rotary_embedding_torch import RotaryEmbedding

        (q, k), (whole, step) = self.rows, (RotaryEmbedding(64, use_xpos=True) for _ in range(2))
        turned, keys = whole.rotate_queries_and_keys(q, k)
        last, cache = step.rotate_queries_with_cached_keys(q[:, -1:], k)
        self.check((turned @ keys.mT)[:, -1:], last @ cache.mT)


for package in conform_packages.PACKAGES:
    setattr(Engines, f"test_{package.__name__}", check_of(package))


if __name__ == "__main__":
    unittest.main(verbosity=2)
