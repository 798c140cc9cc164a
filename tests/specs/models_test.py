#!/usr/bin/env python3
"""models_test.py PEGEN SPECS: every description of the folder is listed, by names that differ, and what it says that a
model uses is what it takes.

Each model's options are given to the compiler as they are printed, and read as far as the expressions of its kernel.
"""
import json
import pathlib
import subprocess
import sys

pegen, folder = sys.argv[1], pathlib.Path(sys.argv[2])
listed = json.loads(subprocess.run([pegen, "specs", "--json"], check=True, capture_output=True, text=True).stdout)
failures = 0


def expect(condition, message):
    global failures
    if not condition:
        failures += 1
        print("FAIL", message)


files = {path.resolve() for path in folder.glob("*.lua")} | {path.resolve() for path in folder.glob("more/*.lua")}
expect({pathlib.Path(spec["file"]).resolve() for spec in listed} == files, "the list is not what the folders hold")
names = [spec["name"].lower() for spec in listed]
expect(len(set(names)) == len(names), "two descriptions of one name")
expect(names == sorted(names), "the list is not in the order of names")
models = 0
for spec in listed:
    expect(spec["doc"], f"{spec['name']} does not say what it is")
    known = {option["name"] for option in spec["options"]}
    for model in spec["models"]:
        models += 1
        expect(set(model["options"]) <= known, f"{spec['name']}: {model['names']} sets what is no option")
        defines = [word for item in model["options"].items() for word in ("-D", "=".join(item))]
        done = subprocess.run(
            [pegen, spec["name"], *defines, "--emit", "expr", "-o", "-"], capture_output=True, text=True
        )
        expect(done.returncode == 0, f"{spec['name']} {' '.join(defines)}: {done.stderr.strip()}")
expect(models > 20, f"{models} models")
print(f"{len(listed)} descriptions, {models} models, {failures} failures")
sys.exit(1 if failures else 0)
