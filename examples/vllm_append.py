#!/usr/bin/env python3
"""A layer of Qwen3 in vLLM's tensors, on a processor, in two calls; as a program: the first beside PyTorch's operators.

vLLM hands a layer q, k and v of all sequences' new tokens in one tensor, their positions, the slots of their keys in
a cache in pages, and what attention asks: where sequences begin, how long they are, and their pages.
"""
import time
import types

import torch
from pegen_kernels.torch import engines


def forward(kernel, layer, of, qkv, kv_cache):
    """Rows of attention [tokens, H, D]. kernel: compiled attention; of: what vLLM's metadata call so."""
    q = torch.empty(len(qkv), layer.num_heads, layer.head_size, dtype=qkv.dtype)
    engines.qk_norm_rope_kvcache_update(
        qkv, q, of.positions, layer.q_weight, layer.k_weight, layer.eps, layer.cos_sin_cache, layer.is_neox, kv_cache,
        of.slot_mapping)  # fmt: skip
    keys, values = engines.pages(kv_cache, layer.head_size)
    return kernel.attention(q, keys, values, cu_seqlens=of.query_start_loc, block_table=of.block_table,
                            lengths=of.seq_lens, causal=True)  # fmt: skip


def operators(qkv, q_out, positions, q_weight, k_weight, epsilon, cos_sin_cache, _, kv_cache, slot_mapping):
    """What the call does, step by step."""
    (heads, size), (keys, values) = q_out.shape[1:], engines.pages(kv_cache, q_out.shape[2])
    *rows, v = qkv.unflatten(-1, (-1, size)).split([heads, keys.shape[2], keys.shape[2]], 1)
    cos, sin = cos_sin_cache[positions][:, None].chunk(2, -1)
    turned = []
    for x, weight in zip(rows, (q_weight, k_weight)):
        a, b = torch.nn.functional.rms_norm(x, (size,), weight, epsilon).chunk(2, -1)
        turned.append(torch.cat([a * cos - b * sin, b * cos + a * sin], -1))
    at = slot_mapping // keys.shape[1], slot_mapping % keys.shape[1]
    q_out[:], keys[at], values[at] = *turned, v


def main(heads=32, shared=8, size=128, tokens=64):
    """A token of each of 64 sequences."""
    angles = torch.arange(4096.0)[:, None] * 1e6 ** -(torch.arange(0, size, 2) / size)
    numbers = torch.cat([angles.cos(), angles.sin()], -1)
    qkv, at, slots = torch.randn(tokens, (heads + 2 * shared) * size), torch.arange(tokens) * 60, torch.randperm(4096)
    made = []
    for call in (engines.qk_norm_rope_kvcache_update, operators):
        q, cache, times = torch.empty(tokens, heads, size), torch.zeros(256, shared, 16, 2 * size), []
        given = (qkv, q, at, torch.ones(size), torch.ones(size), 1e-6, numbers, True, cache, slots[:tokens])
        for _ in range(99):
            begin = time.perf_counter()
            call(*given)
            times.append(time.perf_counter() - begin)
        made.append((q, cache))
        print(f"{call.__name__}: {1e6 * sorted(times)[49]:.0f} us")
    print(f"apart by at most {max((x - y).abs().max() for x, y in zip(*made)):.1e}")


if __name__ == "__main__":
    main()
