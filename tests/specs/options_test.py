#!/usr/bin/env python3
"""options_test.py PEGEN: every option of every stock description, given alone, changes the kernel or is refused.

An option is given other values than its own until one has an effect. What the kernel is then is compared as
expressions, which are cheap; where these are the same, as `explain` tells it, first values of operands among it; and
at last as the whole module. The text of the options themselves is left out.
"""
import concurrent.futures
import functools
import json
import os
import re
import subprocess
import sys

pegen = sys.argv[1]


@functools.cache  # every option is compared with the same description without options
def run(spec, defines, *what):
    return subprocess.run([pegen, spec, *defines, *what, "-o", "-"], capture_output=True, text=True)


def expressions(spec, defines):
    done = run(spec, defines, "--emit", "expr")
    return (done.stdout, None) if done.returncode == 0 else (None, done.stderr)


@functools.cache
def told(spec, defines):
    done = subprocess.run([pegen, "explain", spec, *defines, "--format=json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {key: value for key, value in json.loads(done.stdout).items() if key != "options"}


def module(spec, defines):
    """The kernel's code, constants and digest, of float32 for one processor."""
    done = run(spec, defines, "--emit", "llvm", "--target", "x86-64-v3", "--dtype", "f32", "-O0")
    assert done.returncode == 0, done.stderr
    return re.sub(r'c"[^"]*=[^"]*\\00"|\[\d+ x i8\]', "", done.stdout)


def choices(spec, name):
    """The values that an option is limited to, as the refusal of another one lists them."""
    found = re.search("one of these was expected: (.*)", run(spec, ("-D", f"{name}=1234567"), "--emit", "expr").stderr)
    return found.group(1).split(", ") if found else []


def others(spec, option):
    """Values that differ from the option's own, the likely ones first."""
    value, name = option["default"], option["name"]
    values = choices(spec, name) if re.match("[a-z]", value) else []
    if value == "call":
        values += ["3.5", "3.5,4.5", "3.5,4.5,5.5"]
    if "-" in value:
        values += value.split("-")
    if value in ("true", "false"):
        values.append("false" if value == "true" else "true")
    elif re.fullmatch(r"-?\d+", value):
        number = int(value)
        values += [str(x) for x in (number + 1, number + 2, number * 2, number + 4, number - 1, -number, number // 2)]
    elif re.fullmatch(r"-?\d+(\.\d*)?(e[+-]?\d+)?", value):
        number = float(value)
        values += [str(x) for x in (number + 1.5, number * 0.75, number * 2, -number - 1.0)]
    elif re.fullmatch(r"(-?\d+(,-?\d+)*)?", value):
        entries = [int(x) for x in value.split(",") if x]
        values += [",".join(map(str, reversed(entries))), ",".join(map(str, entries[:-1]))] if entries else []
        values += ["1,0", "1", "5", "5,6", "5,6,7", "2,1,0", "2,2,4", "8,12,12", "1,0,2"]
    return [x for x in values if x != value]


def try_option(task):
    spec, option = task
    base, _ = expressions(spec["name"], ())
    refusals, idle = [], None
    for value in others(spec["name"], option):
        defines = ("-D", f"{option['name']}={value}")
        text, refusal = expressions(spec["name"], defines)
        if text is None:
            refusals.append(refusal)
            continue
        differs = text != base or any(of(spec["name"], defines) != of(spec["name"], ()) for of in (told, module))
        if differs:
            return spec["name"], option["name"], "effect", value
        idle = value
    if idle:
        return spec["name"], option["name"], "none", idle
    named = [line for line in refusals if option["name"] in line]
    return spec["name"], option["name"], "refused" if named else "untried", (refusals or [""])[0].strip()


def main():
    listed = json.loads(subprocess.run([pegen, "specs", "--json"], check=True, capture_output=True, text=True).stdout)
    tasks = [(spec, option) for spec in listed for option in spec["options"]]
    with concurrent.futures.ThreadPoolExecutor(min(len(os.sched_getaffinity(0)), 4)) as pool:
        found = list(pool.map(try_option, tasks))
    counts = {}
    for spec, option, what, text in found:
        counts[what] = counts.get(what, 0) + 1
        if what in ("none", "untried"):
            print("FAIL", spec, option, what, text)
        elif what == "refused" or "-v" in sys.argv:
            print(spec, option, what, text)
    print(f"{len(listed)} descriptions:", ", ".join(f"{counts[key]} {key}" for key in sorted(counts)))
    sys.exit(1 if counts.get("none") or counts.get("untried") or len(found) < 200 else 0)


main()
