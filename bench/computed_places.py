#!/usr/bin/env python3
"""computed_places.py [--rounds N] [CASE ...]: attention whose biases are read at computed places, as a table of ratios.

Each case has plain attention, pegen's with the bias, and the model's own code with random weights, forward and
backward. They run in turns with one thread, and a time is the least of the thread's processor time.
plain: pegen's attention without a bias, on the same rows. The model's own: SAM's adds tensors of N x N to scores
(transformers' SamVisionAttention.get_decomposed_rel_pos), and DeBERTa's layer is DisentangledSelfAttention, projections
of tokens and of distances included, beside the same projections, two products with distances and pegen's attention.
"""
import argparse
import pathlib
import sys

import pegen_kernels as pk
import torch
from pegen_kernels.torch import Attention
from tangents import least

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "python"))
import vision  # noqa: E402, F401 (before transformers)

from transformers import DebertaV2Config, SamVisionConfig  # noqa: E402
from transformers.models.deberta_v2.modeling_deberta_v2 import DisentangledSelfAttention  # noqa: E402
from transformers.models.sam.modeling_sam import SamVisionAttention  # noqa: E402

torch.set_num_threads(1)


def leaves(*shape, n=3, std=1.0):
    return [(std * torch.randn(shape)).requires_grad_() for _ in range(n)]


def plain_of(q, k, v):
    attention = Attention(pk.compile("attention", head_dim=q.shape[-1]))
    return lambda: attention(q, k, v)


def sam(batch, size, heads=12, D=64):
    q, k, v = leaves(batch, heads, size * size, D)
    tables = leaves(2 * size - 1, D, n=2, std=0.25)
    attention = Attention(pk.compile("decomposed_bias", window_h=size, window_w=size, head_dim=D))
    theirs = SamVisionAttention(SamVisionConfig(hidden_size=heads * D, num_attention_heads=heads), size)
    place = torch.cartesian_prod(*2 * [torch.arange(float(size))])
    rows = lambda x: x.reshape(batch * heads, size * size, D)  # noqa: E731
    products = [(q @ table.T).detach().requires_grad_() for table in tables]

    def own():
        bias = theirs.get_decomposed_rel_pos(rows(q), *tables, (size, size), (size, size))
        bias = bias.reshape(batch, heads, size * size, size * size)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)

    return plain_of(q, k, v), lambda: attention(q, k, v, place, inputs=dict(zip(("rel_h", "rel_w"), products))), own


def deberta(batch, tokens, heads=12, D=64):
    config = DebertaV2Config(
        hidden_size=heads * D, num_attention_heads=heads, relative_attention=True, pos_att_type=["c2p", "p2c"],
        position_buckets=256, max_position_embeddings=512, share_att_key=True, layer_norm_eps=1e-7,
    )  # fmt: skip
    layer = DisentangledSelfAttention(config).eval()
    attention = Attention(pk.compile("deberta", head_dim=D))
    (x,), (distances,) = leaves(batch, tokens, heads * D, n=1), leaves(512, heads * D, n=1)
    split = lambda y: y.unflatten(-1, (heads, D)).transpose(-2, -3)  # noqa: E731
    mask, place = torch.ones(1, 1, tokens, tokens), torch.arange(float(tokens))

    def ours():
        q, k, v = (split(project(x)) for project in (layer.query_proj, layer.key_proj, layer.value_proj))
        c2p, p2c = q @ split(layer.key_proj(distances)).mT, k @ split(layer.query_proj(distances)).mT
        return attention(q, k, v, place, inputs={"c2p": c2p, "p2c": p2c})

    def plain():
        return core(*(split(project(x)) for project in (layer.query_proj, layer.key_proj, layer.value_proj)))

    core = Attention(pk.compile("attention", head_dim=D))
    return plain, ours, lambda: layer(x, mask, rel_embeddings=distances)[0]


def pairs(tokens, heads=4, D=32):
    q, k, v = leaves(1, heads, tokens, D)
    (bias,) = leaves(1, heads, tokens, tokens, n=1)
    attention = Attention(pk.compile("pair_bias", head_dim=D))
    own = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)  # noqa: E731
    return plain_of(q, k, v), lambda: attention(q, k, v, inputs={"bias": bias}), own


CASES = {
    "SAM-B, a window layer, [25,12,14x14,64]": lambda: sam(25, 14),
    "SAM-B, a global layer, [1,12,64x64,64]": lambda: sam(1, 64),
    "DeBERTa-v3-base, a layer, [8,512,768]": lambda: deberta(8, 512),
    "AlphaFold's pairs, [1,4,768,32]": lambda: pairs(768),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[2].partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("cases", nargs="*", help="words of the cases to run; none: all")
    given = parser.parse_args()
    print("| case | plain, ms | with the bias / plain | the model's own / with the bias | backward: the same |  |  |")
    print("|---|---|---|---|---|---|---|")
    for name, make in CASES.items():
        if given.cases and not any(word in name for word in given.cases):
            continue
        works = make()
        outs = [work() for work in works]
        forward = least(given.rounds, works)
        g = torch.randn_like(outs[0])
        backs = [lambda out=out: out.backward(g.reshape(out.shape), retain_graph=True) for out in outs]
        figures = []
        for plain, ours, theirs in (forward, least(given.rounds, backs)):
            figures += [f"{1e3 * plain:.1f}", f"{ours / plain:.2f}", f"{theirs / ours:.2f}"]
        print(f"| {name} |", " | ".join(figures), "|", flush=True)


if __name__ == "__main__":
    main()
