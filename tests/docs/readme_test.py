#!/usr/bin/env python3
"""readme_test.py PEGEN SOURCE CC: the way from an idea to a kernel, by the README's own commands.

Every command of the section "From an idea to a kernel" runs as it stands, in a folder with the project's examples and
specs; what the words beside them promise is looked for in what they print. -lpegen is the runtime's sources here, so
that nothing need be installed. Python's line runs where NumPy can be imported.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

pegen, source, compiler = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
readme = (source / "README.md").read_text(encoding="utf-8")
section = readme.split("## From an idea to a kernel\n")[1].split("\n## ")[0]
commands = [line.split("  #")[0].strip() for line in re.findall(r"^    (\S.*)$", section, re.M)]
runtime = " ".join(str(source / "runtime" / file) for file in ("strerror.c", "kernel.c", "parallel.c"))
promised = {
    "pegen explain": [
        r"norm kept +yes +proved",
        r"translation invariant +yes +proved",
        r"commuting generators +yes +proved",
    ],
    "pegen check": [r"^spindle: pass$"],
    "pegen bench": [r"^vit_b8 .* in +[\d.]+ [mu]s", r"^vit_b8 .* out "],
    "cc -O2 examples/engine": [r"^spindle \(", r"4 threads\nchecksum -?[\d.]+, root mean square 0\.\d+"],
    "cc -O2 -I. examples/train": [r"^step  0: loss 13\.8", r"^step 60: loss 0\.1"],
    "python3": [r"numpy: the same memory: True; changed: True"],
}
failures = []


def has_numpy():
    return subprocess.run([sys.executable, "-c", "import numpy"], capture_output=True).returncode == 0


def run(command, folder):
    words = command.replace("-lpegen", runtime)
    words = re.sub(
        r"^cc\b", f"{compiler} -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -I {source}/runtime/include", words
    )
    words = re.sub(r"^python3\b", sys.executable, words)
    environment = os.environ | {"PATH": os.pathsep.join([str(pathlib.Path(pegen).parent), os.environ["PATH"]])}
    done = subprocess.run(["bash", "-c", words], cwd=folder, env=environment, capture_output=True, encoding="utf-8")
    if done.returncode:
        failures.append(f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    for prefix, texts in promised.items():
        for text in texts if command.startswith(prefix) else []:
            if not re.search(text, done.stdout, re.M):
                failures.append(f"{command}: prints no /{text}/\n{done.stdout}")
    return done.stdout


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    for part in ("examples", "specs"):
        (folder / part).symlink_to(source / part)
    for command in commands:
        if command.startswith("python3") and not has_numpy():
            print("NumPy is not installed: not run:", command)
            continue
        print("$", command)
        print(run(command, folder))
    for prefix in promised:
        if not any(command.startswith(prefix) for command in commands):
            failures.append(f"the section has no command '{prefix} ...'")
print("\n".join(failures) if failures else "all as promised")
sys.exit(1 if failures else 0)
