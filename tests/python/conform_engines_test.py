"""What docs/notes/conform.md says of packages: their functions as engines, and what they follow."""
import unittest

import jax
import numpy
import torch
import vision  # noqa: F401 (before timm and transformers)

from diffusers.models.embeddings import apply_rotary_emb, get_1d_rotary_pos_embed
from diffusers.models.transformers.transformer_flux import FluxPosEmbed
from timm.layers import apply_rot_embed_cat
from torch.nn.attention.bias import causal_lower_right
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention
from transformers import LlamaConfig, T5Config
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.deepseek_v3.modeling_deepseek_v3 import apply_rotary_pos_emb_interleave
from transformers.models.glm4.modeling_glm4 import apply_rotary_pos_emb as glm_rotary
from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as gptj_rotary
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLRotaryEmbedding
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextRotaryEmbedding
from transformers.models.t5.modeling_t5 import T5Attention

from pegen_kernels.conform import conform
from pegen_kernels.conform.cases import CASES, words


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
        rope |= {"truncate": asked.get("truncate", True), "attention_factor": asked["attention_factor"] or None}
    if kind == "llama3":
        rope |= {"low_freq_factor": 1.0, "high_freq_factor": asked.get("high_freq_factor", 4.0)}
    if kind == "longrope":
        rope |= {"short_factor": a["short"].tolist(), "long_factor": a["long"].tolist(),
                 "attention_factor": asked["attention_factor"]}  # fmt: skip
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
        return apply_rotary_pos_emb(a["q"], a["k"], *rotary(config)(a["q"], a["positions"].T[:, None]))

    return engine


def bias_of(make):
    """scaled_dot_product_attention with a bias [H,1 or N,M], masked from the bottom right."""

    def engine(a, asked):
        n, m = a["q"].shape[2], a["k"].shape[2]
        bias = make(a, asked, n, m)
        seen = torch.ones(n, m, dtype=torch.bool).tril(m - n) if asked["mask"] != "none" else torch.ones(n, m).bool()
        bias = bias.expand(-1, n, -1).masked_fill(~seen, -torch.inf)
        scale = 1.0 if asked["scale"] == "1" else None
        return scaled_dot_product_attention(a["q"], a["k"], a["v"], attn_mask=bias[None].float(), scale=scale)

    return engine


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


LEFT = f"{words('mask', 'top-left')}, not {words('mask', 'bottom-right')}"
SIGNED = "slope (key - query), not -slope |key - query|"
HALVES, PAIRS = ("halves (j, j + n/2)", "pairs (2j, 2j+1)")
ALIBI = "ALiBi, 4 heads;ALiBi, 6 heads;ALiBi, 8 heads;ALiBi, 12 heads;ALiBi, 20 heads;ALiBi, 6 heads, cache"
SCALED = "linear;YaRN;YaRN, whole pairs;llama3;longrope, beyond the trained length;longrope, within the trained length"
ENGINES = {
    "transformers, Llama": (llama, f"halves;halves, base 500000;halves, positions by sequence;{SCALED}",
                            {"pairs": f"{HALVES}, not {PAIRS}"}),
    "transformers, GLM-4": (by_angles(glm_rotary, False), "pairs;pairs, base 500000;pairs, 64 of 128 channels",
                            {"halves": f"{PAIRS}, not {HALVES}"}),
    "transformers, GPT-J": (gptj, "pairs;pairs, 64 of 128 channels", {"halves": f"{PAIRS}, not {HALVES}"}),
    "transformers, DeepSeek-V3": (by_angles(apply_rotary_pos_emb_interleave, False), "",
                                  {"pairs": "the scores asked for, with channels in another order"}),
    "transformers, Qwen2-VL": (multimodal(Qwen2VLRotaryEmbedding), "M-RoPE",
                               {"M-RoPE, woven": "arrangement sections, not arrangement woven"}),
    "transformers, Qwen3-VL": (multimodal(Qwen3VLTextRotaryEmbedding), "M-RoPE, woven",
                               {"M-RoPE": "arrangement woven, not arrangement sections"}),
    "transformers, BLOOM": (bias_of(bloom), ALIBI, {"ALiBi, all keys": SIGNED}),
    "transformers, MPT": (bias_of(mpt), ALIBI, {"ALiBi, all keys": SIGNED}),
    "transformers, T5": (bias_of(t5), "T5, encoder;T5, decoder;T5, cache", {}),
    "timm": (timm(False), "pairs", {"halves": f"{PAIRS}, not {HALVES}"}),
    "timm, half=True": (timm(True), "halves", {"pairs": f"{HALVES}, not {PAIRS}"}),
    "diffusers, unbind -1": (diffusers(-1), "pairs", {"halves": f"{PAIRS}, not {HALVES}"}),
    "diffusers, unbind -2": (diffusers(-2), "halves", {"pairs": f"{HALVES}, not {PAIRS}"}),
    "diffusers, FLUX": (flux, "video", {}),
    "torch, is_causal": (sdpa, "attention;causal;groups of heads", {"causal, cache": LEFT, "causal, decode": LEFT}),
    "torch, causal_lower_right": (lower_right, "causal;causal, cache;causal, decode", {}),
    "torch, flex_attention": (flex, "attention;causal;window;groups of heads;softcap;softcap, causal",
                              {"causal, cache": LEFT, "window, cache": LEFT, "softcap, window, cache": LEFT}),
    "jax, dot_product_attention": (jax_attention, "attention;causal;groups of heads",
                                   {"causal, cache": LEFT, "window": "window 5, not window 4",
                                    "window of both directions": "window 5, not window 4"}),
}  # fmt: skip


class Engines(unittest.TestCase):
    def test_all(self):
        for name, (engine, right, wrong) in ENGINES.items():
            for case, told in {**dict.fromkeys(filter(None, right.split(";")), ""), **wrong}.items():
                with self.subTest(name, case=case):
                    found = conform.judge(CASES[case], engine, given=conform._giver("float32", True))
                    self.assertEqual((found.passed, found.words), (not told, told))


if __name__ == "__main__":
    unittest.main()
