#!/usr/bin/env python3
"""Time of PaPE's columns: the kernel's beside eager PyTorch's, and beside a copy of the bytes that the kernel moves.

    bench/pape.py [--pegen build/pegen] [--shape 8,196,12,64] [--parabolas 50] [--axes 2]

One thread, float32, [B,N,H,D] memory. Two ways in PyTorch: the paper's (section 4.1, eq. 13-14: rows of D + 3m + 2),
and the kernel's own columns. The copy is C's memcpy of half of what the kernel reads and writes, inputs included.
Scores of all three are compared in float64 on one batch before they are timed. Contenders take turns; times are the
least of several rounds, since other processes only add to them. Needs PyTorch and a C compiler.
"""
import argparse
import ctypes as c
import os
import subprocess
import tempfile
import time

import torch

from interface import Args, DLTensor

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
ROUNDS = 15


pointer = c.pythonapi.PyCapsule_GetPointer
pointer.restype, pointer.argtypes = c.c_void_p, [c.py_object, c.c_char_p]


class Bed:
    def __init__(self, pegen, folder, shape, m, axes, target):
        B, N, H, D = shape
        obj, lib = os.path.join(folder, "pape.o"), os.path.join(folder, "pape.so")
        spec = os.path.join(ROOT, "specs", "pape.lua")
        options = [f"head_dim={D}", f"heads={H}", f"parabolas={m}", f"axes={axes}"]
        header = os.path.join(folder, "pape.h")
        subprocess.run(
            [pegen, spec, "-o", obj, "--header", header, "--target", target, "--dtype", "f32"]
            + [w for o in options for w in ("-D", o)],
            check=True,
        )
        subprocess.run(["cc", "-shared", obj, "-o", lib], check=True)
        self.encode = c.CDLL(lib).pape_encode
        E = next(int(line.split()[2]) for line in open(header) if line.startswith("#define PAPE_OUT_DIM_F32"))
        torch.manual_seed(1)
        rows = lambda channels: torch.rand(B, N, H, channels).mul_(2).sub_(1).transpose(1, 2)
        self.q, self.k, self.a, self.b = rows(D), rows(D), rows(m), rows(m)
        self.q_out, self.k_out = rows(E), rows(E)
        side = int(round(N ** (1 / axes) + 0.499))
        self.positions = (
            torch.stack(torch.meshgrid(*[torch.arange(side)] * axes, indexing="ij"), -1)
            .reshape(-1, axes)[:N]
            .float()
            .contiguous()
        )
        self.projection = torch.rand(H, m, axes) - 0.5
        self.capsules = [
            x.__dlpack__()
            for x in (self.q, self.k, self.q_out, self.k_out, self.positions, self.projection, self.a, self.b)
        ]
        at = [c.cast(pointer(x, b"dltensor"), c.POINTER(DLTensor)) for x in self.capsules]
        self.operands, self.inputs = (c.POINTER(DLTensor) * 1)(at[5]), (c.POINTER(DLTensor) * 2)(at[6], at[7])
        self.args = Args(
            struct_size=c.sizeof(Args),
            n_operands=1,
            q=at[0],
            k=at[1],
            q_out=at[2],
            k_out=at[3],
            positions=at[4],
            operands=self.operands,
            inputs=self.inputs,
            n_inputs=2,
        )
        self.moved = sum(x.numel() * 4 for x in (self.q, self.k, self.a, self.b, self.q_out, self.k_out))

    def kernel(self):
        error = self.encode(c.byref(self.args), 0, 1)
        if error:
            raise SystemExit(f"the kernel refused: error {error}")

    def paper(self):
        """Eq. 13-14."""
        a, s = -torch.nn.functional.softplus(self.a), torch.einsum("hmp,np->hnm", self.projection, self.positions)[None]
        q = torch.cat(
            [self.q, (a * s * s).sum(-1, keepdim=True), a, -2 * a * s, -(self.b * s).sum(-1, keepdim=True), self.b], -1
        )
        one, s = torch.ones_like(self.k[..., :1]), s.expand(*self.k.shape[:3], -1)
        return q, torch.cat([self.k, one, s * s, s, one, s], -1)

    def monomials(self):
        """The kernel's columns, in an order of their own."""
        a, w, r = -torch.nn.functional.softplus(self.a), self.projection, self.positions
        curvature, slope = torch.einsum("bhnm,hmp,hmo->bhnpo", a, w, w), torch.einsum("bhnm,hmp->bhnp", self.b, w)
        linear = slope - 2 * torch.einsum("bhnpo,no->bhnp", curvature, r)
        i, j = torch.triu_indices(r.shape[1], r.shape[1])
        factor = torch.where(i == j, 1.0, 2.0)
        q = torch.cat([self.q, linear, curvature[..., i, j] * factor], -1)
        return q, torch.cat([self.k, torch.cat([r, r[:, i] * r[:, j]], -1).expand(*self.k.shape[:3], -1)], -1)


def compare(bed):
    """Scores of one batch, less their mean along each row, in units of the row's largest score."""
    scores = [
        q[0].double() @ k[0].double().transpose(-1, -2)
        for q, k in ((bed.q_out, bed.k_out), bed.paper(), bed.monomials())
    ]
    largest = scores[1].abs().amax(-1, keepdim=True)
    centred = [s - s.mean(-1, keepdim=True) for s in scores]
    for name, s in (("kernel", centred[0]), ("PyTorch's own monomials", centred[2])):
        print(f"    {name}: within {((s - centred[1]) / largest).abs().max():.1e} of the paper's scores in float32")


def least(contenders):
    best = dict.fromkeys(contenders, 1e9)
    for f in contenders.values():
        f()
    for _ in range(ROUNDS):
        for name, f in contenders.items():
            calls, start = 0, time.perf_counter()
            while time.perf_counter() - start < 0.02:
                f()
                calls += 1
            best[name] = min(best[name], (time.perf_counter() - start) / calls)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pegen", default=os.path.join(ROOT, "build", "pegen"))
    parser.add_argument("--shape", default="8,196,12,64")
    parser.add_argument("--parabolas", type=int, default=50)
    parser.add_argument("--axes", type=int, default=2)
    parser.add_argument("--target", default="native")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    with tempfile.TemporaryDirectory() as folder:
        bed = Bed(
            options.pegen,
            folder,
            tuple(int(x) for x in options.shape.split(",")),
            options.parabolas,
            options.axes,
            options.target,
        )
        print(
            f"PaPE [{options.shape}], m = {options.parabolas}, P = {options.axes}, "
            f"PyTorch {torch.__version__}, {bed.moved / 1e6:.1f} MB moved"
        )
        bed.kernel()
        compare(bed)
        source, target = torch.rand(bed.moved // 8), torch.rand(bed.moved // 8)
        memcpy = c.CDLL(None).memcpy
        memcpy.argtypes = [c.c_void_p, c.c_void_p, c.c_size_t]
        times = least(
            {
                "copy": lambda: memcpy(target.data_ptr(), source.data_ptr(), bed.moved // 2),
                "kernel": bed.kernel,
                "PyTorch, as the paper": bed.paper,
                "PyTorch, the kernel's columns": bed.monomials,
            }
        )
        for name, seconds in times.items():
            print(
                f"    {name:32s} {seconds * 1e3:9.3f} ms   {times['copy'] / seconds:5.2f} of the copy   "
                f"{seconds / times['kernel']:6.2f} times the kernel's"
            )


main()
