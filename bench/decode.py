#!/usr/bin/env python3
"""decode.py PEGEN [B,H,HKV,N,M,D ...] [--dtype f32|bf16|f16] [--bias] [--threads N] [--json]: attention of few queries
against many keys beside PyTorch's and beside a pass over the same keys and values.

N queries of H heads, M keys of HKV heads. Needs PyTorch (the figures of docs/speed.md are 2.13's) and a C compiler, to
link kernels into shared libraries. All take turns in one process; printed are the fastest, in wall time: pegen's, the
same with its keys in chunks (split_keys), with --bias ALiBi's, PyTorch's, and a sum over k and v, which reads them once
and does nothing else. With --json a row is an object, and all of them are one array.
"""
import argparse
import concurrent.futures
import ctypes
import json
import pathlib
import subprocess
import tempfile
import time

import torch

from interface import Args, DLTensor

SPECS = pathlib.Path(__file__).resolve().parent.parent / "specs"
SHAPES = ["1,12,4,1,1024,64", "1,12,4,1,4096,64", "1,12,4,1,16384,64", "1,32,8,1,4096,128", "8,12,4,1,16384,64"]
DTYPES = {"f32": (torch.float32, 2, 32), "bf16": (torch.bfloat16, 4, 16), "f16": (torch.float16, 2, 16)}
READ = """
#include <stddef.h>
typedef float lanes __attribute__((vector_size(64)));
float read_all(const char *from, size_t bytes) {
  lanes sum[8] = {0};
  for (size_t i = 0; i + 512 <= bytes; i += 512)
    for (int j = 0; j < 8; j++) {
      __builtin_prefetch(from + i + 4096 + 64 * j);
      sum[j] += *(const lanes *)(from + i + 64 * j);
    }
  for (int j = 1; j < 8; j++) sum[0] += sum[j];
  return sum[0][0];
}
"""


def tensor(of, code=2, bits=32):
    sizes = ctypes.c_int64 * of.dim()
    return DLTensor(of.data_ptr(), 1, 0, of.dim(), code, bits, 1, sizes(*of.shape), sizes(*of.stride()), 0)


def build(pegen, folder, name, dtype, options):
    object_file, library = folder / f"{name}.o", folder / f"{name}.so"
    words = [word for option in options for word in ("-D", option)]
    subprocess.run([pegen, SPECS / f"{name}.lua", "-o", object_file, "--dtype", dtype, *words], check=True)
    subprocess.run(["cc", "-shared", "-o", library, object_file], check=True)
    return ctypes.CDLL(str(library))


def reader(folder):
    source, library = folder / "read.c", folder / "read.so"
    source.write_text(READ)
    subprocess.run(["cc", "-O2", "-march=native", "-shared", "-fPIC", "-o", library, source], check=True)
    read = ctypes.CDLL(str(library)).read_all
    read.argtypes, read.restype = [ctypes.c_void_p, ctypes.c_size_t], ctypes.c_float
    return read


def in_parts(call, parts):
    """call(part, parts) on as many threads."""
    if parts == 1:
        return lambda: call(0, 1)

    pool = concurrent.futures.ThreadPoolExecutor(parts - 1)

    def run():
        others = [pool.submit(call, part, parts) for part in range(1, parts)]
        call(0, parts)
        for other in others:
            other.result()

    return run


def attention(library, name, tensors, threads, split=False):
    args = Args(struct_size=ctypes.sizeof(Args), split_keys=split, **tensors)
    size_of = getattr(library, f"{name}_attention_workspace")
    size_of.restype = ctypes.c_size_t
    args.workspace_bytes = size_of(ctypes.byref(args))
    room = ctypes.create_string_buffer(args.workspace_bytes + 64)
    args.workspace = ctypes.addressof(room) + 63 & ~63

    def caller(entry):
        def call(part, parts):
            error = entry(ctypes.byref(args), part, parts)
            if error:
                raise SystemExit(f"the kernel refused: error {error}")

        return in_parts(call, threads), room

    works = [caller(getattr(library, f"{name}_attention"))]
    if split:
        works.append(caller(getattr(library, f"{name}_attention_finish")))

    def run():
        for work, _ in works:
            work()

    return run


def seconds(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(given, shape, folder, read):
    batch, heads, shared, n, m, width = (int(part) for part in shape.split(","))
    dtype, code, bits = DTYPES[given.dtype]
    q = torch.randn(batch, heads, n, width).to(dtype)
    k, v = (torch.randn(batch, shared, m, width).to(dtype) for _ in range(2))
    out = torch.empty_like(q)
    rows = {name: ctypes.pointer(tensor(x, code, bits)) for name, x in (("q", q), ("k", k), ("v", v), ("out", out))}
    places = torch.arange(m - n, m, dtype=torch.float32)[:, None], torch.arange(m, dtype=torch.float32)[:, None]

    def theirs():
        torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=heads != shared)

    def read_part(part, parts):
        for x in (k, v):
            size = x.nbytes // parts // 512 * 512
            read(x.data_ptr() + part * size, size)

    plain = build(given.pegen, folder, "attention", given.dtype, [f"head_dim={width}"])
    works = {
        "pegen": attention(plain, "attention", rows, given.threads),
        "split": attention(plain, "attention", rows, given.threads, True),
        "PyTorch": theirs,
        "reading": in_parts(read_part, given.threads),
    }
    if given.bias:
        biased = build(given.pegen, folder, "alibi", given.dtype, [f"head_dim={width}", f"heads={heads}"])
        positions = {"positions": ctypes.pointer(tensor(places[0])), "k_positions": ctypes.pointer(tensor(places[1]))}
        works["alibi"] = attention(biased, "alibi", {**rows, **positions}, given.threads)
    if given.alone:
        del works["PyTorch"]
    turns = max(15, min(400, int(2e9 / (k.nbytes * 8 + 1e6))))
    times = [{name: seconds(work) for name, work in works.items()} for _ in range(turns)]
    best = {name: min(turn[name] for turn in times) for name in works}
    works["split"]()
    difference = (out - torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=heads != shared)).abs()
    flops = 4 * batch * heads * n * m * width / best["pegen"]
    return {
        "attention": "few queries",
        "shape": dict(zip(("batch", "heads", "k_heads", "queries", "keys", "head_dim"), map(int, shape.split(",")))),
        "dtype": given.dtype,
        "threads": given.threads,
        "samples": turns,
        "seconds": best,
        "of_reading": best["reading"] / best["pegen"],
        "flops_per_second": flops,
        "difference": difference.max().item(),
    }


def tell(row):
    best = row["seconds"]
    shape = ",".join(map(str, row["shape"].values()))
    print(
        f"[{shape}] {row['dtype']}, {row['threads']} threads: "
        + ", ".join(f"{name} {of * 1e3:.3f} ms" for name, of in best.items())
        + f"; of reading {row['of_reading']:.2f}, {row['flops_per_second'] * 1e-9:.0f} Gflop/s, "
        + (f"PyTorch/pegen {best['PyTorch'] / best['pegen']:.2f}" if "PyTorch" in best else "")
        + (f", alibi/plain {best['alibi'] / best['pegen']:.2f}" if "alibi" in best else "")
        + f"; difference {row['difference']:.1e}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pegen")
    parser.add_argument("shapes", nargs="*", default=SHAPES)
    parser.add_argument("--dtype", choices=DTYPES, default="f32")
    parser.add_argument("--bias", action="store_true")
    parser.add_argument("--alone", action="store_true", help="without PyTorch, whose 16-bit types take long")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_intermixed_args()
    torch.set_num_threads(given.threads)
    with tempfile.TemporaryDirectory() as folder:
        read, rows = reader(pathlib.Path(folder)), []
        for index, shape in enumerate(given.shapes):
            room = pathlib.Path(folder) / str(index)
            room.mkdir()
            rows.append(measure(given, shape, room, read))
            if not given.json:
                tell(rows[-1])
        if given.json:
            print(json.dumps(rows, indent=1))


main()
