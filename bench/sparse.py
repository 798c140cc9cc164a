#!/usr/bin/env python3
"""sparse.py PEGEN [--flex] [--json]: what masks leave out, one thread, float32, in one process.

A causal window of 256 and causal attention over [1,4,4096,64] beside the same without a mask, and eight documents told
apart by an axis in one call beside eight calls. With --flex also FlexAttention, compiled, its block mask made before.
Calls take turns; printed are the fastest, in processor time, with --json as an array of rows. Needs PyTorch and a C
compiler.
"""
import ctypes
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import torch

from interface import Args, DLTensor

HEADS, TOKENS, DIM, WINDOW, DOCUMENTS = 4, 4096, 64, 256, 8
TURNS = 25
SPEC = """local pe = require "pegen"
return pe.encoding {{ name = "{name}", axes = {{ {axes} }}, head_dim = {dim},
  bias = function(delta) return {bias} end }}
"""
SPECS = {
    "window": ('"t"', f"pe.where(-delta.t, {WINDOW}, 0, pe.masked)"),
    "documents": ('"document", "t"', "pe.where(pe.abs(delta.document), 0.5, 0, pe.masked)"),
    "plain": ('"t"', "0 * delta.t"),
}


def tensor(of):
    sizes = ctypes.c_int64 * of.dim()
    return DLTensor(of.data_ptr(), 1, 0, of.dim(), 2, 32, 1, sizes(*of.shape), sizes(*of.stride()), 0)


def build(pegen, folder, name):
    axes, bias = SPECS[name]
    spec, object_file, library = folder / f"{name}.lua", folder / f"{name}.o", folder / f"{name}.so"
    spec.write_text(SPEC.format(name=name, axes=axes, bias=bias, dim=DIM))
    subprocess.run([pegen, spec, "-o", object_file, "--dtype", "f32"], check=True)
    subprocess.run(["cc", "-shared", "-o", library, object_file], check=True)
    return getattr(ctypes.CDLL(str(library)), f"{name}_attention")


class Call:
    """A kernel and its tensors."""

    def __init__(self, function, q, k, v, positions, causal=0):
        self.out = torch.empty_like(q)
        self.keep = [q, k, v, positions, self.out]
        tensors = dict(zip(("q", "k", "v", "positions", "out"), map(tensor, self.keep)))
        self.function = function
        self.args = Args(
            struct_size=ctypes.sizeof(Args), causal=causal, **{name: ctypes.pointer(t) for name, t in tensors.items()}
        )

    def __call__(self):
        error = self.function(ctypes.byref(self.args), 0, 1)
        if error:
            sys.exit(f"the kernel refused: error {error}")
        return self.out


def seconds(work):
    start = time.thread_time()
    work()
    return time.thread_time() - start


def flexes(q, k, v):
    """FlexAttention with the same masks."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled = torch.compile(flex_attention)
    length = TOKENS // DOCUMENTS
    masks = {
        "window": lambda b, h, i, j: (i >= j) & (i - j < WINDOW),
        "causal": lambda b, h, i, j: i >= j,
        "documents": lambda b, h, i, j: i // length == j // length,
    }

    def bound(mask):
        block_mask = create_block_mask(mask, None, None, TOKENS, TOKENS, device="cpu")
        return lambda: compiled(q, k, v, block_mask=block_mask)

    return {name: bound(mask) for name, mask in masks.items()}


def main():
    pegen = sys.argv[1]
    torch.set_num_threads(1)
    q, k, v = (torch.randn(1, HEADS, TOKENS, DIM) for _ in range(3))
    time_of = torch.arange(TOKENS, dtype=torch.float32)[:, None].contiguous()
    length = TOKENS // DOCUMENTS
    document = torch.cat([time_of // length, time_of % length], dim=1).contiguous()
    with tempfile.TemporaryDirectory() as folder:
        kernels = {name: build(pegen, pathlib.Path(folder), name) for name in SPECS}
        apart = []
        for i in range(DOCUMENTS):
            rows = [x[:, :, i * length : (i + 1) * length] for x in (q, k, v)]
            apart.append(Call(kernels["plain"], *rows, time_of[:length].contiguous()))
        works = {
            "full": Call(kernels["plain"], q, k, v, time_of),
            "causal": Call(kernels["plain"], q, k, v, time_of, causal=1),
            "window": Call(kernels["window"], q, k, v, time_of, causal=1),
            "documents": Call(kernels["documents"], q, k, v, document),
            "eight calls": lambda: [call() for call in apart],
        }
        others = flexes(q, k, v) if "--flex" in sys.argv else {}
        for name, other in others.items():
            difference = (other() - works[name]()).abs().max().item()
            print(f"{name}: largest difference from FlexAttention {difference:.1e}", file=sys.stderr)
        for i, part in enumerate(apart):
            part()
            together = works["documents"]()[:, :, i * length : (i + 1) * length]
            assert (together - part.out).abs().max().item() < 1e-5
        times = {name: [] for name in [*works, *(f"FlexAttention, {name}" for name in others)]}
        for _ in range(TURNS):
            for name, work in works.items():
                times[name].append(seconds(work))
            for name, other in others.items():
                times[f"FlexAttention, {name}"].append(seconds(other))
    best = {name: min(of) for name, of in times.items()}
    pairs = TOKENS * WINDOW - WINDOW * (WINDOW - 1) // 2
    shares = {"window": best["full"] * pairs / TOKENS**2, "causal": best["full"], "documents": best["eight calls"]}
    rows = [
        {"attention": name, "shape": [1, HEADS, TOKENS, DIM], "samples": TURNS, "seconds": of}
        | ({"times_share": of / shares[name]} if name in shares else {})
        for name, of in best.items()
    ]
    if "--json" in sys.argv:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        of = "full" if row["attention"] == "causal" else "its share"
        share = f", {row['times_share']:.2f} times {of}" if "times_share" in row else ""
        print(f"{row['attention']}: {row['seconds'] * 1e3:.2f} ms{share}")


main()
