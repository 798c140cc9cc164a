#!/usr/bin/env python3
"""append.py PEGEN [B,N,H,HKV,D ...] [--dtype f32|bf16] [--spec NAME] [--json]: one call to serve tokens beside the
calls that it replaces and beside a loop that only moves the same bytes.

B sequences of N new tokens each, H heads of q in place, HKV of k and v, which go to random slots of caches of 65536
tokens. All take turns in one process and one thread; printed are the fastest: NAME_append with norms and by a table of
positions as layers share it, the same without a table; two loops that normalise q and k in place (a C compiler's, for
this machine), NAME_encode with slots and a copy of v, the first two of which are printed alone, too; and the moving of
the bytes, q onto itself. Needs a C compiler and NumPy.
"""
import argparse
import ctypes
import json
import pathlib
import subprocess
import tempfile
import time

import numpy

from interface import Args, DLTensor

SPECS = pathlib.Path(__file__).resolve().parent.parent / "specs"
SHAPES = ["64,1,32,8,128", "1,2048,32,8,128"]
TYPES = {
    "f32": (2, 32, "float", "x", "x"),
    "bf16": (4, 16, "uint16_t", "number((uint32_t)(x) << 16)", "(bits(x) + 0x7fff + (bits(x) >> 16 & 1)) >> 16"),
}  # DLPack's code and bits; in C: the type, an element as float, and a float as an element
PAGE, PAGES = 16, 4096
LOOPS = """
#include <math.h>
#include <stdint.h>
#include <string.h>
typedef long long lanes __attribute__((vector_size(64), aligned(1)));
static inline float number(uint32_t x) { float y; memcpy(&y, &x, 4); return y; }
static inline uint32_t bits(float x) { uint32_t y; memcpy(&y, &x, 4); return y; }
void normalise(TYPE *x, const float *w, int64_t rows, float epsilon) {
  for (int64_t r = 0; r < rows; r++, x += D) {
    float sum = 0, y[D];
    for (int i = 0; i < D; i++) y[i] = LOAD(x[i]), sum += y[i] * y[i];
    float factor = 1 / sqrtf(sum / D + epsilon);
    for (int i = 0; i < D; i++) y[i] *= factor * w[i];
    for (int i = 0; i < D; i++) x[i] = (TYPE)(STORE(y[i]));
  }
}
void place(TYPE *cache, const TYPE *rows, const int64_t *slots, int64_t tokens, int64_t heads) {
  for (int64_t t = 0; t < tokens; t++)
    memcpy(cache + slots[t] * heads * D, rows + t * heads * D, (size_t)heads * D * sizeof(TYPE));
}
void onto_itself(char *x, int64_t bytes, long long zero) {
  for (int64_t i = 0; i < bytes; i += 64) *(lanes *)(x + i) ^= zero;
}
"""


def tensor(of, shape, code=2, bits=32):
    sizes = ctypes.c_int64 * len(shape)
    return ctypes.pointer(DLTensor(of.ctypes.data, 1, 0, len(shape), code, bits, 1, sizes(*shape), None, 0))


def build(folder, pegen, spec, dtype, width):
    object_file, library, source = folder / f"{spec}.o", folder / f"{spec}-{width}.so", folder / "loops.c"
    subprocess.run([pegen, SPECS / f"{spec}.lua", "-o", object_file, "--dtype", dtype, "-D", f"head_dim={width}"],
                   check=True)  # fmt: skip
    macros = zip(("TYPE", "LOAD(x)", "STORE(x)"), TYPES[dtype][2:])
    source.write_text("".join(f"#define {name} {words}\n" for name, words in [("D", width), *macros]) + LOOPS)
    subprocess.run(["cc", "-O3", "-march=native", "-ffast-math", "-shared", "-fPIC", "-o", library, source,
                    object_file, "-lm"], check=True)  # fmt: skip
    return ctypes.CDLL(str(library))


def measure(given, shape, folder):
    batch, tokens, heads, shared, width = (int(part) for part in shape.split(","))
    code, bits, *_ = TYPES[given.dtype]
    library, count = build(folder, given.pegen, given.spec, given.dtype, width), batch * tokens
    random = numpy.random.default_rng(0)

    def rows(*sizes):
        x = random.standard_normal(sizes).astype("float32")
        return x if bits == 32 else (x.view("uint32") >> 16).astype("uint16")

    q, k, v = (rows(count, h, width) for h in (heads, shared, shared))
    caches = [numpy.zeros((PAGES, PAGE, shared, width), f"uint{bits}") for _ in range(2)]
    slots, weights = random.permutation(PAGES * PAGE)[:count].copy(), numpy.ones(width, "float32")
    starts = random.integers(0, 8192, batch)
    at = (starts[:, None] + numpy.arange(tokens)).astype("float32").ravel()
    of = {name: tensor(x, x.shape, code, bits) for name, x in (("q", q), ("k", k), ("v", v))}
    of |= {"q_out": of["q"], "slots": tensor(slots, slots.shape, 0, 64), "positions": tensor(at, at.shape)}
    of |= {f"{name}_out": tensor(x, x.shape, code, bits) for name, x in zip("kv", caches)}
    norms = {"q_norm": tensor(weights, weights.shape), "k_norm": tensor(weights, weights.shape), "norm_epsilon": 1e-6}
    only_encode = {name: x for name, x in of.items() if name not in ("v", "v_out")}

    def call(entry, **fields):
        args = Args(struct_size=ctypes.sizeof(Args), **fields)
        function = getattr(library, f"{given.spec}_{entry}")

        def run():
            error = function(ctypes.byref(args), 0, 1)
            if error:
                raise SystemExit(f"the kernel refused: error {error}")

        return run

    size_of = getattr(library, f"{given.spec}_table_bytes")
    size_of.restype = ctypes.c_size_t
    asked = Args(struct_size=ctypes.sizeof(Args), positions=of["positions"])
    table_bytes = size_of(ctypes.byref(asked))
    room = ctypes.create_string_buffer(table_bytes + 64)
    table = {"table": ctypes.addressof(room) + 63 & ~63, "table_bytes": table_bytes}
    call("prepare", positions=of["positions"], **table)()
    address, integer = (lambda x: ctypes.c_void_p(x.ctypes.data)), ctypes.c_int64
    norm = lambda: [library.normalise(address(x), address(weights), integer(x.size // width), ctypes.c_float(1e-6))
                    for x in (q, k)]  # fmt: skip
    place = lambda x, cache: library.place(address(cache), address(x), address(slots), integer(count), integer(shared))
    encode = call("encode", **only_encode, **table)

    def separate():
        norm()
        encode()
        place(v, caches[1])

    def moving():
        library.onto_itself(address(q), integer(q.nbytes), ctypes.c_longlong(0))
        place(k, caches[0])
        place(v, caches[1])

    works = {
        "append": call("append", **of, **norms, **table),
        "without table": call("append", **of, **norms),
        "without norms": call("append", **of, **table),
        "separate": separate,
        "norms": norm,
        "encode": encode,
        "moving": moving,
    }
    best = {}
    for _ in range(max(30, min(2000, int(2e8 / q.nbytes)))):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            best[name] = min(best.get(name, 1e9), time.perf_counter() - start)
    moved = 2 * (q.nbytes + k.nbytes + v.nbytes)
    return {
        "append": given.spec, "shape": shape, "dtype": given.dtype,
        "microseconds": {name: round(value * 1e6, 1) for name, value in best.items()},
        "of_separate": round(best["append"] / best["separate"], 3),
        "of_moving": round(best["moving"] / best["append"], 3), "gb_per_s": round(moved / best["append"] / 1e9, 1),
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pegen")
    parser.add_argument("shapes", nargs="*", default=SHAPES)
    parser.add_argument("--dtype", choices=TYPES, default="bf16")
    parser.add_argument("--spec", default="rope")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for shape in given.shapes:
            found.append(measure(given, shape, pathlib.Path(folder)))
            if not given.json:
                times = ", ".join(f"{name} {value}" for name, value in found[-1]["microseconds"].items())
                print(f"{given.spec} {shape} {given.dtype}: us: {times}; append is {found[-1]['of_separate']} of the "
                      f"separate calls, moving {found[-1]['of_moving']} of append")  # fmt: skip
    if given.json:
        print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
