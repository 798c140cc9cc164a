#!/usr/bin/env python3
"""readme_test.py PEGEN SOURCE CC CXX [LIBPEGEN]: what README.md and docs/new-encoding.md tell a reader to do works.

README.md is a page: at most 500 words beside code. Its description compiles, its C compiles as C11 and as C++20 and is
accepted, its Python runs with LIBPEGEN where NumPy can be imported, and every link leads to a file. So does the example
at the head of pegen.h compile and run. The commands of the
section "The commands" of docs/new-encoding.md run in a folder with the project's examples and specs; what the words
beside them promise is looked for in what they print. -lpegen is the runtime's sources here, so that nothing need be
installed.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

pegen, source, compiler, cxx_compiler = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3], sys.argv[4]
library = sys.argv[5] if len(sys.argv) > 5 else ""
readme = (source / "README.md").read_text(encoding="utf-8")
idea = (source / "docs/new-encoding.md").read_text(encoding="utf-8").split("## The commands\n")[1]
commands = [line.split("  #")[0].strip() for line in re.findall(r"^    (\S.*)$", idea, re.M)]
runtime = " ".join(str(source / "runtime" / file) for file in ("strerror.c", "kernel.c", "parallel.c"))
promised = {
    "pegen explain": [
        r"norm kept +yes +proved",
        r"translation invariant +yes +proved",
        r"commuting generators +yes +proved",
    ],
    "pegen check": [r"^spindle: pass\b"],
    "pegen bench": [r"^vit_b8 .* in +[\d.]+ [mu]s", r"^vit_b8 .* out "],
    "cc -O2 examples/engine": [r"^spindle \(", r"4 threads\nchecksum -?[\d.]+, root mean square 0\.\d+"],
    "cc -O2 -I. examples/train": [r"^step  0: loss 13\.8", r"^step 60: loss 0\.1"],
    "python3": [r"numpy: the same memory: True; changed: True"],
}
CALL = """
#include "volume.h"
static float row[2][VOLUME_HEAD_DIM] = {{1}, {0, 1}};
static int32_t position[VOLUME_AXES] = {1, 2, 3};
static int64_t shape[4] = {1, 1, 1, VOLUME_HEAD_DIM}, positions_shape[2] = {1, VOLUME_AXES};
int main(void) {
  DLTensor q = {.data = row[0], .device = {kDLCPU, 0}, .ndim = 4, .dtype = {kDLFloat, 32, 1}, .shape = shape}, k = q;
  DLTensor positions = q;
  k.data = row[1];
  positions.data = position, positions.ndim = 2, positions.dtype.code = kDLInt, positions.shape = positions_shape;
%s
  return error ? error : row[0][0] == 1;
}
"""
HEADER_CALL = """
#include "rope.h"
#include <stdio.h>
enum { HEADS = 2, TOKENS = 3 };
static float queries[HEADS * TOKENS * ROPE_HEAD_DIM] = {1}, keys[HEADS * TOKENS * ROPE_HEAD_DIM] = {0, 1};
static int32_t where[TOKENS * ROPE_AXES] = {1, 2, 3};
int main(void) {
%s
  return error ? error : queries[0] == 1;
}
"""
PYTHON = """
import numpy as np
q = k = np.random.default_rng(0).normal(size=(2, 3, 5, 64)).astype("float32")
before, positions = q, np.arange(15, dtype="int32").reshape(5, 3)
%s
assert q.shape == before.shape and np.allclose(np.linalg.norm(q, axis=-1), np.linalg.norm(before, axis=-1), rtol=1e-5)
assert not np.allclose(q, before)
"""
failures = []


def expect(condition, message):
    if not condition:
        failures.append(message)


def has_numpy():
    return subprocess.run([sys.executable, "-c", "import numpy"], capture_output=True).returncode == 0


def run_words(words, folder, **environment):
    done = subprocess.run(words, cwd=folder, env=os.environ | environment, capture_output=True, encoding="utf-8")
    expect(done.returncode == 0, f"{' '.join(map(str, words))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def check_page():
    words = re.sub(r"^(```.*?^```|    .*?)$", "", readme, flags=re.M | re.S)
    words = len(re.findall(r"[^\s|·]*\w[^\s|·]*", re.sub(r"\]\([^)]*\)", "]", words)))
    expect(words <= 500, f"README.md has {words} words, 500 at most")
    for page in [
        source / "README.md",
        *sorted(source.glob("docs/*.md")),
        source / "CONTRIBUTING.md",
        source / "SECURITY.md",
    ]:
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            expect((page.parent / link).exists(), f"{page}: the link {link} leads nowhere")
    for command in re.findall(r"^    (\./scripts/\w+)", readme, re.M):
        expect(os.access(source / command, os.X_OK), f"README.md: {command} is no program")


def check_example(folder):
    code = {kind: text for kind, text in re.findall(r"^```(\w+)\n(.*?)^```", readme, re.M | re.S)}
    (folder / "volume.lua").write_text(code["lua"], encoding="utf-8")
    compiling = re.search(r"`pegen (volume.lua -o volume.o --header volume.h)`", readme)
    run_words([pegen, *compiling.group(1).split()], folder)
    (folder / "call.c").write_text(CALL % code["c"], encoding="utf-8")
    (folder / "call.cpp").write_text(CALL % code["c"], encoding="utf-8")
    strict = ["-Wall", "-Werror", "-I.", f"-I{source}/runtime/include", "volume.o", "-lm", "-o", "call"]
    for words in ([compiler, "-std=c11", "call.c"], [cxx_compiler, "-std=c++20", "call.cpp"]):
        run_words([*words, *strict], folder)
        run_words(["./call"], folder)
    if not library or not has_numpy():
        print("NumPy or libpegen is missing: the lines of Python are not run")
        return
    package = {"PYTHONPATH": str(source / "python"), "PEGEN": pegen, "PEGEN_LIBRARY": library}
    run_words([sys.executable, "-c", PYTHON % code["python"]], folder, XDG_CACHE_HOME=str(folder), **package)


def check_header(folder):
    head = (source / "runtime/include/pegen/pegen.h").read_text(encoding="utf-8")
    example = head.split('#include "rope.h"\n')[1].split("Entries")[0]
    (folder / "header.c").write_text(HEADER_CALL % re.sub(r"^ \*", "", example, flags=re.M), encoding="utf-8")
    run_words([pegen, "rope", "-o", "rope.o", "--header", "rope.h"], folder)
    strict = ["-std=c11", "-Wall", "-Werror", "-I.", f"-I{source}/runtime/include", "header.c", "rope.o"]
    run_words([compiler, *strict, f"{source}/runtime/strerror.c", "-lm", "-o", "header"], folder)
    run_words(["./header"], folder)


def run_command(command, folder):
    words = command.replace("-lpegen", runtime)
    words = re.sub(
        r"^cc\b", f"{compiler} -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -I {source}/runtime/include", words
    )
    words = re.sub(r"^python3\b", sys.executable, words)
    path = os.pathsep.join([str(pathlib.Path(pegen).parent), os.environ["PATH"]])
    printed = run_words(["bash", "-c", words], folder, PATH=path)
    for prefix, texts in promised.items():
        for text in texts if command.startswith(prefix) else []:
            expect(re.search(text, printed, re.M), f"{command}: prints no /{text}/\n{printed}")
    return printed


check_page()
with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    check_example(folder)
    check_header(folder)
    for part in ("examples", "specs"):
        (folder / part).symlink_to(source / part)
    for command in commands:
        if command.startswith("python3") and not has_numpy():
            print("NumPy is not installed: not run:", command)
            continue
        print("$", command)
        print(run_command(command, folder))
    for prefix in promised:
        expect(any(command.startswith(prefix) for command in commands), f"there is no command '{prefix} ...'")
print("\n".join(failures) if failures else "all as promised")
sys.exit(1 if failures else 0)
