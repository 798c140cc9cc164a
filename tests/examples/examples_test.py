#!/usr/bin/env python3
"""examples_test.py PEGEN SOURCE CC LIBRARIES: the programs in examples/ with kernels of several kinds.

The engine gives the same bits on any number of threads; what explain calls translation invariant gives the same block
of a transformer when all positions move, and what is not gives another. From Python, rope agrees with NumPy.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

pegen, source, compiler, libraries = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3], sys.argv[4]
failures = 0


def expect(condition, message):
    global failures
    if not condition:
        failures += 1
        print("FAIL", message)


def run(*command, status=0, environment={}):
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, encoding="utf-8", env={**os.environ, **environment}
    )
    expect(
        done.returncode == status, f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    )
    return done.stdout


def build(folder, spec, *options):
    name = spec.stem if spec.parent.name == "specs" else "spindle"
    shared = folder / f"{name}.so"
    run(pegen, spec, "-o", shared, "--dtype", "f32,bf16", *options)
    return shared, name


def engine(folder, kernel, *words):
    shared, name = kernel
    out = run(folder / "engine", shared, name, *words)
    numbers = re.search(r"checksum (-?[\d.]+), root mean square ([\d.]+)", out)
    expect(numbers, f"{name}: {out}")
    return [float(text) for text in numbers.groups()] if numbers else [0, 0]


def check_training(folder):
    """The loss falls from print to print, to a hundredth of what it was."""
    for name in ("quatro", "attention"):
        run(pegen, source / f"specs/{name}.lua", "-D", "head_dim=24", "-o", folder / f"{name}.o",
            "--header", folder / f"{name}.h")  # fmt: skip
    run(compiler, "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-I", source / "runtime/include", "-I", folder,
        source / "examples/train.c", folder / "quatro.o", folder / "attention.o", "-lm",
        "-o", folder / "train")  # fmt: skip
    losses = [float(text) for text in re.findall(r"loss ([\d.]+)", run(folder / "train"))]
    expect(len(losses) > 5 and losses == sorted(losses, reverse=True), f"the loss does not fall: {losses}")
    expect(losses and losses[-1] < 0.01 * losses[0], f"the loss hardly falls: {losses}")


def check_decode(folder):
    """Tokens out of pages are those of the whole sequences."""
    for name in ("rope", "attention"):
        run(pegen, source / f"specs/{name}.lua", "-o", folder / f"{name}.o", "--header", folder / f"{name}.h")
    run(compiler, "-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-I", source / "runtime/include",
        "-I", folder, source / "examples/decode.c", folder / "rope.o", folder / "attention.o", "-pthread", "-lm",
        "-o", folder / "decode")  # fmt: skip
    off = re.search(r"^100 and 61 tokens, decoded by 2 threads: off by at most (\S+)$", run(folder / "decode"), re.M)
    expect(off and 0 <= float(off[1]) < 1e-5, f"decode: {off}")


def near(x, y):
    return all(abs(a - b) < 2e-3 * max(1, abs(a)) for a, b in zip(x, y))


def check_engine(folder):
    runtime = [source / "runtime" / file for file in ("strerror.c", "kernel.c", "parallel.c")]
    run(compiler, "-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-I", source / "runtime/include",
        source / "examples/engine.c", *runtime, "-lm", "-pthread", "-o", folder / "engine")  # fmt: skip
    specs = source / "specs"
    for spec, relative, options in [
        (specs / "rope.lua", True, []), (specs / "rope_mixed.lua", True, ["-D", "heads=3"]),
        (source / "examples/new_encoding.lua", True, []), (specs / "geope2d.lua", False, []),
        (specs / "care.lua", False, ["-D", "skip_tokens=1"]),
        (specs / "geope3d.lua", False, ["-D", "grid=3,4,5", "-D", "skip_tokens=2"]),
    ]:  # fmt: skip
        kernel = build(folder, spec, *options)
        alone = engine(folder, kernel)
        expect(alone == engine(folder, kernel, 4), f"{spec.stem}: other bits with four threads")
        expect(0.01 < alone[1] < 10, f"{spec.stem}: root mean square {alone[1]}")
        if "grid=3,4,5" not in options:
            moved = engine(folder, kernel, 2, 5)
            expect(near(alone, moved) == relative, f"{spec.stem}: {alone} became {moved} when all positions moved")
    run(folder / "engine", folder / "rope.so", "rop", status=2)
    run(folder / "engine", status=2)


REFUSALS = """
import sys, numpy
sys.path.insert(0, sys.argv[3])
import kernel
encode = kernel.Encoding(sys.argv[1], sys.argv[2])
positions = numpy.zeros((5, encode.kernel.n_axes))
def refusal(q, k):
    before = numpy.array(q.detach() if hasattr(q, "detach") else q)
    try:
        encode(q, k, positions + 1)
        return "accepted"
    except ValueError as e:
        after = numpy.array(q.detach() if hasattr(q, "detach") else q)
        return f"{e}; unchanged: {numpy.array_equal(before, after)}"
new = lambda d=encode.kernel.head_dim: numpy.ones((1, 2, 5, d), dtype=numpy.float32)
fixed = new()
fixed.flags.writeable = False
print("read-only:", refusal(fixed, new()))
print("width:", refusal(new(3), new(3)))
try:
    import jax.numpy
    print("jax:", refusal(jax.numpy.ones((1, 2, 5, encode.kernel.head_dim)), new()))
except ImportError:
    print("jax: not installed")
try:
    import torch
    learned = torch.from_numpy(new()).requires_grad_()
    print("recording:", refusal(learned, new()))
    with torch.no_grad():
        print("no_grad:", refusal(learned, new()))
except ImportError:
    print("torch: not installed")
"""


def check_refusals(shared, name):
    """What examples/kernel.py must not write, it refuses in words; errors of the kernel are sentences."""
    out = run(
        sys.executable, "-c", REFUSALS, shared, name, source / "examples", environment={"LD_LIBRARY_PATH": libraries}
    )
    lines = dict(line.split(": ", 1) for line in out.splitlines())
    for case in ("read-only", "jax", "recording"):
        words = "requires a gradient" if case == "recording" else "may not be written"
        said = lines.get(case, lines.get("torch", ""))
        expect(said == "not installed" or (words in said and "unchanged: True" in said), f"{name}, {case}: {out}")
    width = "error 12 of pegen.h" if libraries == "none" else "is not the kernel's head_dim"
    expect(f"{width}; unchanged: True" in lines["width"], f"{name}: {lines['width']}")
    expect(lines.get("no_grad", "accepted") == "accepted", f"{name}: {out}")


def check_python(folder):
    if subprocess.run([sys.executable, "-c", "import numpy"], capture_output=True).returncode:
        print("NumPy is not installed: examples/kernel.py is not run")
        return
    for name in ("rope", "geope3d"):
        shared, _ = build(folder, source / "specs" / f"{name}.lua")
        out = run(sys.executable, source / "examples/kernel.py", shared, name)
        print(out)
        expect("numpy: the same memory: True; changed: True" in out, f"{name}: {out}")
        check_refusals(shared, name)
        if name == "rope":
            off = re.search(r"NumPy's float64: ([\d.e+-]+)", out)
            expect(off and float(off.group(1)) < 5e-6, f"rope: {out}")
        if "torch: not installed" in out:
            continue
        expect("torch: the same memory: True; the same bits as in NumPy: True" in out, f"{name}: {out}")
        off = re.search(r"bfloat16 off by at most ([\d.e+-]+)", out)
        expect(off and float(off.group(1)) < 0.05, f"{name}: {out}")


with tempfile.TemporaryDirectory() as name:
    check_engine(pathlib.Path(name))
    check_training(pathlib.Path(name))
    check_decode(pathlib.Path(name))
    check_python(pathlib.Path(name))
print(f"{failures} failures")
sys.exit(1 if failures else 0)
