#!/usr/bin/env python3
"""Time of learned dense blocks (LieRE and its like), beside the limits of the machine and PyTorch in the same run.

    bench/dense.py [--pegen build/pegen] [--shape B,N,H,D] [SPEC ...]      SPEC: NAME:option=value,... of specs/NAME.lua

One thread. For each kernel: `prepare` (the table of matrices), `encode` with the table and without, float32,
[B,N,H,D] memory, in place. Beside it: the time of a loop that only scales the bytes that encode moves (table read
included), the multiply-adds per second of a loop that does nothing else, and torch.matrix_exp of the same matrices
where PyTorch is installed. Results are compared with a float64 exponential (NumPy) before they are timed. Needs a C
compiler and NumPy. Contenders take turns; times are of the processor's, and the least of several rounds, since other
processes only add to them.
"""
import argparse
import ctypes as c
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

from interface import Args, DLTensor, Kernel, pointers

try:
    import torch

    torch.set_num_threads(1)
except ImportError:
    torch = None

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
DEFAULT = [
    "liere:heads=12,block=8",
    "liere:heads=12,block=16",
    "liere:heads=12,block=32",
    "liere:heads=12,block=64",
    "rope:",
    "comrope_ap:basis=folded",
]
ROUNDS = 9

LIMITS = r"""
#include <stddef.h>
void scale(float *restrict x, size_t n) { for (size_t i = 0; i < n; i++) x[i] *= 1.0000001f; }
float sum(const float *x, size_t n) { float s[64] = {0}; for (size_t i = 0; i + 64 <= n; i += 64) for (int j = 0; j <
64; j++) s[j] += x[i + j];
  float t = 0; for (int j = 0; j < 64; j++) t += s[j]; return t; }
typedef float vector __attribute__((vector_size(4 * LANES)));
float multiply_adds(size_t n) { vector a[12], x, y; for (int i = 0; i < LANES; i++) x[i] = 0.999f, y[i] = 0.001f;
  for (int i = 0; i < 12; i++) a[i] = y * (float)i;
  for (size_t k = 0; k < n; k++) {
#define STEP(i) a[i] = a[i] * x + y;
    STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7) STEP(8) STEP(9) STEP(10) STEP(11)
  }
  float t = 0; for (int i = 0; i < 12; i++) t += a[i][0]; return t; }
int lanes(void) { return LANES; }
"""


def tensor(array):
    t = DLTensor(array.ctypes.data, 1, 0, array.ndim, 2, array.itemsize * 8, 1)
    t.shape = (c.c_int64 * array.ndim)(*array.shape)
    t.strides = (c.c_int64 * array.ndim)(*(s // array.itemsize for s in array.strides))
    t.array = array
    return t


def aligned(size):
    """Zeroed float32 memory at a multiple of 64 bytes."""
    room = np.zeros(size + 16, np.float32)
    skip = (-room.ctypes.data % 64) // 4
    return room[skip : skip + size]


def library(folder, name, *command):
    path = os.path.join(folder, name + ".so")
    subprocess.run([*command, "-shared", "-o", path], check=True)
    return c.CDLL(path)


def least(contenders):
    """{name: seconds} of callables that take turns; each round runs long enough to be timed."""
    calls = {}
    for name, f in contenders.items():
        start = time.process_time()
        f()
        calls[name] = max(1, int(0.02 / (time.process_time() - start + 1e-9)))
    best = dict.fromkeys(contenders, 1e9)
    for _ in range(ROUNDS):
        for name, f in contenders.items():
            start = time.process_time()
            for _ in range(calls[name]):
                f()
            best[name] = min(best[name], (time.process_time() - start) / calls[name])
    return best


def exponential(m):
    """exp of skew matrices in float64, by the eigenvalues of the Hermitian i M."""
    w, v = np.linalg.eigh(1j * m)
    return np.einsum("...ik,...k,...jk->...ij", v, np.exp(-1j * w), v.conj()).real


class Bed:
    """One kernel, its tensors and its calls."""

    def __init__(self, pegen, folder, spec, shape, target):
        name, _, options = spec.partition(":")
        B, N, H, D = shape
        self.shape = shape
        given = (
            [f"head_dim={D}"]
            + ([f"heads={H}"] if "learned" in name or name in ("rope_mixed", "care", "quatro") else [])
            + (options.split(",") if options else [])
        )
        path = name if name.endswith(".lua") else os.path.join(ROOT, "specs", name + ".lua")
        self.name = os.path.splitext(os.path.basename(path))[0]
        obj = os.path.join(folder, "kernel.o")
        subprocess.run(
            [pegen, path, "-o", obj, "--target", target, "--dtype", "f32"] + [w for o in given for w in ("-D", o)],
            check=True,
        )
        lib = library(folder, f"kernel{len(os.listdir(folder))}", "cc", obj)
        self.kernel = Kernel.in_dll(lib, f"{self.name}_kernel")
        self.encode, self.prepare = getattr(lib, f"{self.name}_encode"), getattr(lib, f"{self.name}_prepare", None)
        rng = np.random.default_rng(1)
        self.q, self.k = (aligned(B * N * H * D).reshape(B, N, H, D) for _ in range(2))
        for x in (self.q, self.k):
            x[...] = rng.uniform(-1, 1, x.shape)
        side = int(np.ceil(N**0.5))
        grid = np.stack([np.arange(N) // side, np.arange(N) % side], 1) / (side - 1)
        self.positions = np.ascontiguousarray(grid[:, : self.kernel.n_axes], np.float32)
        self.operands = []
        for i in range(self.kernel.n_operands):
            o = self.kernel.operands[i]
            self.operands.append(rng.uniform(-1, 1, [o.shape[d] for d in range(o.rank)]).astype(np.float32))
        self.args = Args(c.sizeof(Args), len(self.operands))
        self.keep = (
            [tensor(x.transpose(0, 2, 1, 3)) for x in (self.q, self.k)]
            + [tensor(self.positions)]
            + [tensor(x) for x in self.operands]
        )
        for field, t in zip(("q", "k", "positions"), self.keep):
            setattr(self.args, field, c.pointer(t))
        self.args.q_out, self.args.k_out = self.args.q, self.args.k
        self.pointers = pointers(self.keep[3:])
        self.args.operands = self.pointers
        self.table_bytes = 0
        if self.prepare:
            size = getattr(lib, f"{self.name}_table_bytes")
            size.restype = c.c_size_t
            self.table_bytes = size(c.byref(self.args))
            self.table = aligned(self.table_bytes // 4)

    def call(self, entry, with_table):
        self.args.table = self.table.ctypes.data if with_table else None
        self.args.table_bytes = self.table_bytes
        error = entry(c.byref(self.args), 0, 1)
        if error:
            sys.exit(f"{self.name}: error {error}")


def matrices(bed, b):
    """M of LieRE's description: float64 [N, H, blocks, b, b]."""
    raw = bed.operands[0].astype(np.float64)
    a = np.triu(raw, 1)
    a = a - a.swapaxes(-1, -2)
    return np.einsum("np,phgij->nhgij", bed.positions.astype(np.float64), a)


def check(bed, m):
    """The kernel's rows against float64 rotations of a sample of tokens; returns the largest norm of a matrix."""
    b = m.shape[-1]
    q = bed.q.copy()
    bed.call(bed.prepare, True)
    bed.call(bed.encode, True)
    tabled = bed.q.copy()
    bed.q[...] = q
    bed.call(bed.encode, False)
    without = bed.q.copy()
    bed.q[...] = q
    some = np.linspace(0, m.shape[0] - 1, 7).astype(int)
    r = exponential(m[some])
    blocked = q[:, some].shape[-1] // b * b
    blocks = q[:, some, :, :blocked].astype(np.float64).reshape(q.shape[0], len(some), q.shape[2], -1, b)
    expected = np.einsum("nhgij,znhgj->znhgi", r, blocks)
    got = tabled[:, some, :, :blocked].reshape(expected.shape)
    norm = np.abs(np.linalg.eigvalsh(1j * m)).max()
    if not np.abs(tabled - without).max() < 2**-20 * np.linalg.norm(blocks, axis=-1).max() * max(1, norm):
        sys.exit("with and without a table: different rows")
    error = np.abs(got - expected).max() / np.linalg.norm(blocks, axis=-1).max() / max(1, norm)
    if not error < 2**-20:
        sys.exit(f"error 2^{np.log2(error):.1f} of a block's norm")
    return norm


def report(bed, limits):
    B, N, H, D = bed.shape
    is_liere = bed.name == "liere"
    rows = 2 * B * N * H * D * 4
    contenders = {
        "encode with a table": lambda: bed.call(bed.encode, True),
        "encode without": lambda: bed.call(bed.encode, False),
    }
    if not bed.prepare:
        contenders = {"encode": lambda: bed.call(bed.encode, False)}
    m = None
    if is_liere:
        b = bed.operands[0].shape[-1]
        m = matrices(bed, b)
        norm = check(bed, m)
    if bed.prepare:
        bed.call(bed.prepare, True)
        contenders["prepare"] = lambda: bed.call(bed.prepare, True)
    moved = aligned(rows // 4)
    moved[...] = 1
    read = aligned(max(16, bed.table_bytes // 4))

    def limit():
        limits.scale(moved.ctypes.data_as(c.c_void_p), c.c_size_t(moved.size))
        if bed.table_bytes:
            limits.sum(read.ctypes.data_as(c.c_void_p), c.c_size_t(read.size))

    def peak():
        limits.multiply_adds(c.c_size_t(100000))

    contenders["limit"], contenders["peak"] = limit, peak
    if torch and m is not None:
        mt = torch.from_numpy(m.reshape(-1, b, b).astype(np.float32))
        contenders["torch.matrix_exp"] = lambda: torch.matrix_exp(mt)
    t = least(contenders)
    gflops = 2 * 12 * limits.lanes() * 100000 / t["peak"] * 1e-9
    print(
        f"{bed.name} {bed.kernel.options.decode()}  [{B},{N},{H},{D}]  table {bed.table_bytes / 1e6:.2f} MB; peak "
        f"{gflops:.0f} GFLOP/s; bytes at {(2 * rows + bed.table_bytes) / t['limit'] * 1e-9:.0f} GB/s"
    )
    for name, seconds in t.items():
        text = f"    {name:22s} {seconds * 1e3:9.3f} ms"
        if name.startswith("encode"):
            text += f"   {t['limit'] / seconds:.2f} of the limit"
            if is_liere:
                text += f", {2 * 2 * B * N * H * D * b / seconds * 1e-9 / gflops:.2f} of the peak"
        if name == "prepare" and is_liere:
            count = m.shape[0] * m.shape[1] * m.shape[2]
            text += f"   {count} matrices, |M| <= {norm:.1f}: {seconds / count * 1e6:.3f} us each"
        if name == "torch.matrix_exp":
            text += f"   prepare is {seconds / t['prepare']:.1f} times as fast"
        print(text)
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("specs", nargs="*", default=DEFAULT)
    parser.add_argument("--pegen", default=os.path.join(ROOT, "build", "pegen"))
    parser.add_argument("--shape", default="8,196,12,64")
    parser.add_argument("--target", default="native")
    options = parser.parse_args()
    shape = tuple(int(x) for x in options.shape.split(","))
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "limits.c")
        with open(source, "w") as f:
            f.write(LIMITS)
        lanes = 16 if " avx512f " in open("/proc/cpuinfo").read() else 8
        limits = library(
            folder, "limits", "cc", "-O3", "-march=native", "-ffast-math", f"-DLANES={lanes}", "-fPIC", source
        )
        limits.multiply_adds.restype = limits.sum.restype = c.c_float
        for spec in options.specs:
            report(Bed(options.pegen, folder, spec, shape, options.target), limits)


main()
