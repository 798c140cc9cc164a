#!/usr/bin/env python3
"""attention.py PEGEN [B,H,N,D [f32|bf16]]: plain attention beside PyTorch's, one thread, in one process.

Needs PyTorch (the figures of README.md are 2.13's) and a C compiler, to link the kernel into a shared library. The two
take turns; printed are the fastest of both, in processor time, and how far their outputs are from float64's: root mean
squares.
"""
import ctypes
import pathlib
import subprocess
import sys
import tempfile
import time

import torch

from interface import Args, DLTensor

SPEC = pathlib.Path(__file__).resolve().parent.parent / "specs" / "attention.lua"
TURNS = 25


def tensor(of):
    sizes = ctypes.c_int64 * of.dim()
    code, bits = {torch.float32: (2, 32), torch.bfloat16: (4, 16)}[of.dtype]
    return DLTensor(of.data_ptr(), 1, 0, of.dim(), code, bits, 1, sizes(*of.shape), sizes(*of.stride()), 0)


def build(pegen, folder, head_dim, dtype):
    object_file, library = folder / "attention.o", folder / "attention.so"
    subprocess.run([pegen, SPEC, "-o", object_file, "-D", f"head_dim={head_dim}", "--dtype", dtype], check=True)
    subprocess.run(["cc", "-shared", "-o", library, object_file], check=True)
    return ctypes.CDLL(str(library))


def fastest(work):
    start = time.thread_time()
    work()
    return time.thread_time() - start


def main():
    pegen = sys.argv[1]
    shape = [int(part) for part in (sys.argv[2] if len(sys.argv) > 2 else "1,12,1024,64").split(",")]
    torch.set_num_threads(1)
    dtype = sys.argv[3] if len(sys.argv) > 3 else "f32"
    of = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
    q, k, v = (torch.randn(shape).to(of) for _ in range(3))
    out = torch.empty_like(q)
    with tempfile.TemporaryDirectory() as folder:
        library = build(pegen, pathlib.Path(folder), shape[3], dtype)
        tensors = {"q": tensor(q), "k": tensor(k), "v": tensor(v), "out": tensor(out)}
        args = Args(struct_size=ctypes.sizeof(Args), **{name: ctypes.pointer(t) for name, t in tensors.items()})

        def ours():
            error = library.attention_attention(ctypes.byref(args), 0, 1)
            if error:
                sys.exit(f"the kernel refused: error {error}")

        def theirs():
            torch.nn.functional.scaled_dot_product_attention(q, k, v)

        times = [(fastest(ours), fastest(theirs)) for _ in range(TURNS)]
        exact = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double())
        of_torch = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        errors = [(x.double() - exact).square().mean().sqrt().item() for x in (out, of_torch)]
    mine, other = min(t[0] for t in times), min(t[1] for t in times)
    print(
        f"{shape}, {dtype}: pegen {mine * 1e3:.2f} ms, PyTorch {torch.__version__} {other * 1e3:.2f} ms, "
        f"{other / mine:.2f} times; errors {errors[0]:.2e} and {errors[1]:.2e}"
    )


main()
