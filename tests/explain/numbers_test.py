#!/usr/bin/env python3
"""numbers_test.py PEGEN SPECS: arrays of `pegen explain --format=json` are the papers' formulas, written again."""
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile

pegen, specs = sys.argv[1], pathlib.Path(sys.argv[2])
failures = []


def expect(condition, message):
    if not condition:
        failures.append(message)
        print("FAIL", message)


def run(spec, *arguments):
    return subprocess.run([pegen, "explain", specs / f"{spec}.lua", *arguments], capture_output=True, text=True)


def numbers(spec, *arguments):
    done = run(spec, "--format=json", *arguments)
    expect(done.returncode == 0 and not done.stderr, f"{spec} {arguments}: exit {done.returncode} {done.stderr}")
    return json.loads(done.stdout)["numbers"]


def near(x, y, what):
    worst = max((abs(a - b) for a, b in zip(x, y)), default=0)
    expect(len(x) == len(y) and worst < 1e-12, f"{what}: {len(x)} and {len(y)} numbers, off by {worst}")


def refused(words, spec, *arguments, status=1):
    done = run(spec, *arguments)
    expect(
        done.returncode == status and words in done.stderr and not done.stdout,
        f"{spec} {arguments}: exit {done.returncode}, {done.stderr!r}; expected {words!r}",
    )


def npy(path, shape, values, kind="f4", order="False", version=1):
    sizes = str(tuple(shape))
    header = f"{{'descr': '<{kind}', 'fortran_order': {order}, 'shape': {sizes}, }}\n"
    length = struct.pack("<H" if version == 1 else "<I", len(header))
    letter = {"f4": "f", "f8": "d", "f2": "e"}[kind]
    path.write_bytes(
        b"\x93NUMPY" + bytes([version, 0]) + length + header.encode() + struct.pack(f"<{len(values)}{letter}", *values)
    )
    return path


def check_rope():
    """RoFormer, eq. 15 and section 3.4.3: frequencies, rotations of planes, and the mean of their cosines."""
    frequency = [10000 ** (-2 * i / 64) for i in range(32)]
    found = numbers("rope", "-D", "head_dim=64", "--grid", "20", "--at", "3.5", "--at", "0")
    near(found["phases"]["values"], frequency, "rope: phases")
    expect(found["phases"]["shape"] == [1, 32, 1], "rope: shape of phases")
    expect(found["generators"]["bivectors"] == ["e12"], f"rope: {found['generators']['bivectors']}")
    turns = found["rotors"]["values"][: 32 * 4]
    angles = [3.5 * f for f in frequency]
    exact = [x for a in angles for x in (math.cos(a), -math.sin(a), math.sin(a), math.cos(a))]
    near(turns, exact, "rope: rotors")
    near(found["rotors"]["values"][32 * 4 :], [1, 0, 0, 1] * 32, "rope: rotors at the origin")
    equal = found["scores"]["equal"]
    exact = [sum(math.cos(d * f) for f in frequency) / 32 for d in range(-19, 20)]
    for member in ("values", "lowest", "highest"):  # relative: pairs of one displacement agree
        near(equal[member], exact, f"rope: {member} of equal queries and keys")
    random = found["scores"]["random"]
    expect(random["shape"] == [5, 39] and random["quantiles"] == [0.05, 0.25, 0.5, 0.75, 0.95], "rope: quantiles")
    middle = random["values"][2 * 39 : 3 * 39]
    expect(all(abs(x) < 0.5 for x in middle), "rope: random queries and keys have scores about 0")
    rows = [random["values"][i * 39 : (i + 1) * 39] for i in range(5)]
    expect(all(a <= b for low, high in zip(rows, rows[1:]) for a, b in zip(low, high)), "rope: quantiles ascend")


def check_geope():
    """GeoPE, eq. 3 to 6: a rotor of the mean of two axes' generators, at an angle that is their hypotenuse's half."""
    found = numbers("geope2d", "--at", "2,5", "--grid", "3,4")
    h, w = found["phases"]["values"][:2]
    matrix = found["rotors"]["values"][:9]
    angle = math.acos((matrix[0] + matrix[4] + matrix[8] - 1) / 2)
    exact = math.hypot(2 * h, 5 * w) / 2
    expect(abs(math.cos(angle) - math.cos(exact)) < 1e-12, f"geope2d: turns by {angle}, the formula says {exact}")
    bivectors = found["generators"]
    expect(bivectors["bivectors"] == ["e12", "e13"], f"geope2d: {bivectors['bivectors']}")
    near(bivectors["values"][:4], [0, 1, -1, 0], "geope2d: generators")
    equal = found["scores"]["equal"]
    expect(equal["shape"] == [1, 5, 7], f"geope2d: {equal['shape']}")
    near([equal["values"][17]], [1], "geope2d: a token and itself")
    away = equal["highest"][0] - equal["lowest"][0]  # one pair lies this far apart
    expect(away == 0 and equal["highest"][16] > equal["lowest"][16], "geope2d: pairs of one displacement differ")
    near(equal["values"], equal["values"][::-1], "geope2d: of equal queries and keys, both ways")


PLANES = "block = pe.plane(), generators = pe.turn 'e12', combine = pe.sum, phase = function(_, i) return 2 ^ -i end"
VECTORS = (
    "block = pe.vector(3), generators = { y = pe.quaternion 'j', x = pe.quaternion 'k' }, combine = pe.mean, "
    "phase = function(_, i) return 3 ^ -i end"
)


def described(folder, name, axes, channels, fields):
    text = f'return pe.encoding {{ name = "{name}", axes = {{ {axes} }}, head_dim = {channels}, {fields} }}'
    (folder / f"{name}.lua").write_text(f'local pe = require "pegen"\n{text}\n')
    return folder / name


def check_parts(folder):
    """What a head of several parts has is what each of them has alone; scores of equal rows by shares of channels."""
    whole = described(
        folder,
        "whole",
        "'t', 'y', 'x'",
        20,
        f"parts = {{ {{ span = {{ 0, 8 }}, axes = {{ 't' }}, {PLANES} }}, "
        f"{{ span = {{ 9, 9 }}, axes = {{ 'y', 'x' }}, {VECTORS} }} }}",
    )
    planes, vectors = described(folder, "planes", "'t'", 8, PLANES), described(
        folder, "vectors", "'y', 'x'", 9, VECTORS
    )
    found = numbers(whole, "--at", "2,3,4", "--at", "5,6,7", "--grid", "3,2,4")
    alone = [
        numbers(planes, "--at", "2", "--at", "5", "--grid", "3"),
        numbers(vectors, "--at", "3,4", "--at", "6,7", "--grid", "2,4"),
    ]
    expect(found["positions"]["values"] == [2, 3, 4, 5, 6, 7], "parts: positions")
    expect(len(found["parts"]) == 2, "parts: two of them")
    for part, one in zip(found["parts"], alone):
        for member in ("phases", "generators", "rotors"):
            expect(part[member] == one[member], f"parts: {member} of a part and of it alone")
    t, y, x = 5, 3, 7
    scores = [one["scores"]["equal"] for one in alone]
    for member in ("values", "lowest", "highest"):
        first, second = (score[member] for score in scores)
        exact = [(8 * first[i] + 9 * second[j] + 3) / 20 for i in range(t) for j in range(y * x)]
        near(found["scores"]["equal"][member], exact, f"parts: {member} of equal queries and keys")
    expect(found["scores"]["random"]["shape"] == [5, 5, 3, 7], "parts: random queries and keys")


def check_biases():
    """ALiBi, section 3: -slope |d|, slopes 2^-1 to 2^-8; LookHere hides what is behind a head."""
    found = numbers("alibi", "--grid", "5")["scores"]["bias"]
    exact = [-(2.0 ** -(head + 1)) * abs(d) for head in range(8) for d in range(-4, 5)]
    near(found["values"], exact, "alibi: biases")
    hidden = numbers("lookhere", "--grid", "4,4")["scores"]["bias"]["values"]
    expect(None in hidden and any(x is not None and x < 0 for x in hidden), "lookhere: hidden keys are null")


def check_operands(folder):
    shape = numbers("rope_mixed")["operands"]["freqs"]["shape"]
    count = math.prod(shape)
    values = [k / 1024 for k in range(count)]
    for kind in ("f2", "f4", "f8"):
        file = npy(folder / f"{kind}.npy", shape, values, kind, version=2 if kind == "f8" else 1)
        found = numbers("rope_mixed", "--operands", f"freqs={file}")
        near(found["operands"]["freqs"]["values"], values, f"rope_mixed from {kind}")
        expect(found["operands"]["freqs"]["from"] == str(file), "rope_mixed: where its operand is from")
        expect(sorted(map(abs, found["phases"]["values"])) == sorted(values), "rope_mixed: phases are the operand's")
    first, again, other = (numbers("rope_mixed", "--seed", seed) for seed in ("1", "1", "2"))
    expect(first == again and first != other, "rope_mixed: a seed says what is drawn")
    expect("seed 1" in first["operands"]["freqs"]["from"], "rope_mixed: the seed is named")
    whole = folder / "f4.npy"
    at = f"freqs={folder / 'bad.npy'}"
    bad = folder / "bad.npy"
    refused("cannot be opened", "rope_mixed", "--operands", f"freqs={folder / 'none.npy'}")
    refused("did you mean 'freqs'", "rope_mixed", "--operands", f"freq={whole}")
    refused("operands: none", "geope2d", "--operands", f"freqs={whole}")
    refused("no operand is named", "rope_mixed", "--operands", "=x.npy", status=2)
    npy(bad, [3] + shape[1:], values)
    refused(
        f"has the shape ({', '.join(map(str, [3] + shape[1:]))}); operand 'freqs' has", "rope_mixed", "--operands", at
    )
    npy(bad, shape, values, order="True")
    refused("column order", "rope_mixed", "--operands", at)
    npy(bad, shape, values[:-1])
    refused("ends before", "rope_mixed", "--operands", at)
    npy(bad, shape, values + [0])
    refused("goes on behind", "rope_mixed", "--operands", at)
    npy(bad, shape, values[:-1] + [math.nan])
    refused("not finite", "rope_mixed", "--operands", at)
    for cut in (0, 5, 9, 40):
        bad.write_bytes(whole.read_bytes()[:cut])
        refused("bad.npy: error:", "rope_mixed", "--operands", at)


def checkpoint(path, tensors, kind="F32", more=None):
    """As the library of that name writes it; more: what stands in the header otherwise."""
    entries, data = {"__metadata__": {"format": "pt"}}, b""
    letter = {"F32": "f", "F64": "d", "F16": "e", "BF16": "f"}[kind]
    for name, (shape, values) in tensors.items():
        numbers = [struct.pack(f"<{letter}", value) for value in values]
        raw = b"".join(n[2:] if kind == "BF16" else n for n in numbers)
        entries[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    header = json.dumps(entries | (more or {})).encode()
    header += b" " * (-len(header) % 8)
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)
    return path


def check_checkpoint(folder):
    axis, freq = (numbers("care")["operands"][name]["shape"] for name in ("axis", "freq"))
    values = {"axis": [1 + k % 7 for k in range(math.prod(axis))], "freq": [k / 64 for k in range(math.prod(freq))]}
    tensors = {f"blocks.0.{name}": (shape, values[name]) for name, shape in (("axis", axis), ("freq", freq))}
    mapped = ("--map", "axis=blocks.0.axis", "--map", "freq=blocks.0.freq")
    for kind in ("F32", "F64", "F16", "BF16"):
        file = checkpoint(folder / f"{kind}.safetensors", tensors, kind)
        found = numbers("care", "--operands", str(file), *mapped)["operands"]
        for name in ("axis", "freq"):
            near(found[name]["values"], values[name], f"care from {kind}")
            expect(found[name]["from"] == f"blocks.0.{name} of {file}", "care: where its operand is from")
    one = numbers("care", "--operands", f"freq={file}", "--map", "freq=blocks.0.freq")["operands"]
    expect(one["freq"]["values"] == found["freq"]["values"] and "drawn" in one["axis"]["from"], "care: one of two")
    own = checkpoint(folder / "own.safetensors", {"freqs": ([2, 1, 32], [1.0] * 64)})
    found = numbers("rope_mixed", "--operands", str(own))["operands"]["freqs"]
    expect(set(found["values"]) == {1.0}, "rope_mixed: a tensor of the operand's own name")
    at = ("--operands", str(file))
    bad = folder / "bad.safetensors"
    refused("did you mean 'blocks.0.axis'", "care", *at, "--map", "axis=blocks.0.axs")
    refused("of 2 it has: blocks.0.axis, blocks.0.freq", "care", *at, "--map", "axis=nothing.like.it")
    refused("no operand 'axes', did you mean 'axis'?", "care", *at, "--map", "axes=blocks.0.axis")
    refused("has the shape [", "care", *at, "--map", "axis=blocks.0.freq")
    refused("which tensors are meant? Expected --map NAME=TENSOR", "care", *at)
    refused("no checkpoint is given", "care", "--map", "axis=blocks.0.axis")
    refused("no checkpoint is for that operand", "care", "--operands", f"freq={file}", *mapped)
    refused("expected NAME=TENSOR", "care", *at, "--map", "axis", status=2)
    refused("has one already", "care", *at, "--map", "axis=a", "--map", "axis=b", status=2)
    refused("cannot be opened", "care", "--operands", str(folder / "none.safetensors"), *mapped)
    entry = {"dtype": "I64", "shape": axis, "data_offsets": [0, 8 * math.prod(axis)]}
    wrong = (
        ("is of type I64; expected F64", entry),
        ("lie outside of it", entry | {"dtype": "F32"}),
        ("lie outside of it", entry | {"dtype": "F64", "data_offsets": [1 << 62, (1 << 62) + 8 * math.prod(axis)]}),
        ("lie outside of it", entry | {"dtype": "F64", "data_offsets": [-8, 8 * math.prod(axis) - 8]}),
        ("has no dtype, shape and data_offsets", {"dtype": "F32", "shape": axis}),
        ("has no dtype, shape and data_offsets", [1]),
        ("has the shape [1e+300, 2]", entry | {"dtype": "F64", "shape": [1e300, 2]}),
    )
    for words, given in wrong:
        checkpoint(bad, tensors, more={"blocks.0.axis": given})
        refused(words, "care", "--operands", str(bad), *mapped)
    checkpoint(bad, {"blocks.0.axis": (axis, [math.nan] * math.prod(axis))})
    refused("number 0 is not finite", "care", "--operands", f"axis={bad}", *mapped[:2])
    whole = file.read_bytes()
    for cut in (0, 7, 8, 60, len(whole) - 1):
        bad.write_bytes(whole[:cut])
        refused("bad.safetensors: error:", "care", "--operands", str(bad), *mapped)
    bad.write_bytes(struct.pack("<Q", 1 << 63) + whole[8:])
    refused("longer than the file", "care", "--operands", str(bad), *mapped)
    twice = b'{"a": 1, "a": 2}'
    bad.write_bytes(struct.pack("<Q", len(twice)) + twice)
    refused("has 2 tensors 'a'", "care", "--operands", f"axis={bad}", "--map", "axis=a")


def check_measured():
    """Properties are measured on the grid that is given, from its neighbours on."""
    done = run("rope_axial", "--grid", "14,14").stdout
    expect("over the 14 x 14 grid, equal q and k score" in done, "rope_axial: decay on the grid")
    expect("up to 18.4" in done and "32" not in done.split("distance decay")[1].split("\n")[0], "rope_axial: distances")
    found = numbers("liere", "--grid", "2,2", "--seed", "3")["scores"]
    expect(len(found["heads"]) >= 1 and found["equal"]["shape"][1:] == [3, 3], "liere: scores")


def main():
    check_rope()
    check_geope()
    check_biases()
    check_measured()
    refused("--grid has 1 sizes; the description has 2 axes", "geope2d", "--grid", "14")
    refused("more than 1024 tokens", "geope2d", "--grid", "33,32")
    refused("--at has 1 coordinates", "geope2d", "--at", "14")
    refused("after positions of 2", "geope2d", "--at", "1,2", "--at", "3", status=2)
    refused("expected numbers", "geope2d", "--at", "1,nan", status=2)
    refused("no number of tokens", "geope2d", "--grid", "14,0", status=2)
    refused("whole number", "geope2d", "--seed", "-1", status=2)
    with tempfile.TemporaryDirectory() as folder:
        check_parts(pathlib.Path(folder))
        check_operands(pathlib.Path(folder))
        check_checkpoint(pathlib.Path(folder))
    print(f"numbers_test: {len(failures)} failures")
    sys.exit(bool(failures))


main()
