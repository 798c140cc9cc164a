#!/usr/bin/env python3
"""attention.py PEGEN [B,H,N,D]: plain attention beside PyTorch's, one thread, float32, in one process.

Needs PyTorch (the figures of README.md are 2.13's) and a C compiler, to link the kernel into a shared library. The two take
turns; printed are the fastest of both, in processor time, and the largest difference of their outputs.
"""
import ctypes
import pathlib
import subprocess
import sys
import tempfile
import time

import torch

SPEC = pathlib.Path(__file__).resolve().parent.parent / "specs" / "pairwise" / "attention.lua"
TURNS = 25


class Tensor(ctypes.Structure):
    """DLTensor of dlpack.h."""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]  # fmt: skip


class Args(ctypes.Structure):
    """pegen_args of pegen/pegen.h."""

    _fields_ = [("struct_size", ctypes.c_uint32), ("n_operands", ctypes.c_int32)] + [
        (name, ctypes.c_void_p) for name in "q k v q_out k_out out positions k_positions operands workspace table".split()
    ] + [("table_bytes", ctypes.c_size_t), ("workspace_bytes", ctypes.c_size_t), ("inputs", ctypes.c_void_p),
         ("n_inputs", ctypes.c_int32), ("causal", ctypes.c_int32), ("scale", ctypes.c_double)]  # fmt: skip


def tensor(of):
    sizes = ctypes.c_int64 * of.dim()
    return Tensor(of.data_ptr(), 1, 0, of.dim(), 2, 32, 1, sizes(*of.shape), sizes(*of.stride()), 0)


def build(pegen, folder, head_dim):
    object_file, library = folder / "attention.o", folder / "attention.so"
    subprocess.run([pegen, SPEC, "-o", object_file, "-D", f"head_dim={head_dim}", "--dtype", "f32"], check=True)
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
    q, k, v = (torch.randn(shape) for _ in range(3))
    out = torch.empty_like(q)
    with tempfile.TemporaryDirectory() as folder:
        library = build(pegen, pathlib.Path(folder), shape[3])
        tensors = {"q": tensor(q), "k": tensor(k), "v": tensor(v), "out": tensor(out)}
        args = Args(struct_size=ctypes.sizeof(Args), **{name: ctypes.addressof(t) for name, t in tensors.items()})

        def ours():
            error = library.attention_attention(ctypes.byref(args), 0, 1)
            if error:
                sys.exit(f"the kernel refused: error {error}")

        def theirs():
            torch.nn.functional.scaled_dot_product_attention(q, k, v)

        times = [(fastest(ours), fastest(theirs)) for _ in range(TURNS)]
        difference = (out - torch.nn.functional.scaled_dot_product_attention(q, k, v)).abs().max().item()
    mine, other = min(t[0] for t in times), min(t[1] for t in times)
    print(f"{shape}: pegen {mine * 1e3:.2f} ms, PyTorch {torch.__version__} {other * 1e3:.2f} ms, {other / mine:.2f} times; difference {difference:.1e}")


main()
