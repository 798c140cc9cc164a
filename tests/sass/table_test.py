#!/usr/bin/env python3
"""table_test.py PEGEN SOURCE TABLE: the static model predicts what a GPU was measured to do.

Each row's kernels are assembled and listed; what `pegen explain --sass` expects of them is within 25 % of what TABLE
says that an H200 did. No GPU is needed. Exit 77: there is no ptxas or no disassembler on this machine.
"""
import json
import pathlib
import subprocess
import sys

pegen, source, table = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
TOLERANCE = 0.25
SKIPPED = 77


def explain(name: str, options: str, gradients: bool) -> dict[str, dict]:
    folders = (source / "specs", source / "bench/gpu/specs")
    spec = next(path for folder in folders if (path := folder / f"{name}.lua").is_file())
    words = [pegen, "explain", str(spec), "--sass", "--format=json"] + ["--no-grad"] * (not gradients)
    for option in options.split():
        words += ["-D", option]
    done = subprocess.run(words, capture_output=True, text=True)
    if "explain --sass needs" in done.stderr:
        print("skipped:", done.stderr.strip())
        sys.exit(SKIPPED)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: {done.stderr}")
    return {entry["name"].removeprefix(f"{name}_"): entry for entry in json.loads(done.stdout)["entries"]}


def rate(entry: dict) -> float:
    return next(bound for bound in entry["bounds"] if bound["chip"] == "H200")["tflops"]


def share(entry: dict) -> float:
    return next(bound for bound in entry["bounds"] if bound["chip"] == "H200")["of_copy"]


def backward(entries: dict[str, dict]) -> float:
    """Two kernels of three and four products for each pair, by which five are counted."""
    queries, keys = (rate(entries[f"attention_backward_{own}_bf16_mma"]) for own in ("queries", "keys"))
    return 5 / (3 / queries + 4 / keys)


PREDICTIONS = {
    "forward": lambda entries: rate(entries["attention_bf16_mma"]),
    "backward": backward,
    "encode": lambda entries: share(entries["encode_bf16"]),
}

rows = [line.split("\t") for line in table.read_text("utf-8").splitlines() if line[0] != "#"]
failures = 0
explained: dict[tuple[str, str], dict[str, dict]] = {}
for name, options, what, measured in rows:
    key = (name, options)
    if key not in explained:
        explained[key] = explain(name, options, any(row[:3] == [name, options, "backward"] for row in rows))
    predicted = PREDICTIONS[what](explained[key])
    ratio = predicted / float(measured)
    wrong = not 1 - TOLERANCE <= ratio <= 1 + TOLERANCE
    failures += wrong
    print(f"{name} {options} {what}: predicted {predicted:.3g}, measured {measured}: {ratio:.2f}", "WRONG" * wrong)

# Facts that do not hang on the model: tiles of plain attention meet every bank once, and nothing is spilled at 64.
plain = explained["attention", "head_dim=64"]["attention_bf16_mma"]
facts = {
    "no spills": plain["spill_stores"] == plain["spill_loads"] == 0,
    "no bank conflicts": plain["accesses_known"] == plain["accesses"] > 40
    and plain["wavefronts"] == plain["wavefronts_least"],
    "two stages of copies": plain["stages"] == 2,
    "two blocks": plain["blocks"] == 2,
    "60 % of issue slots are left to the tensor cores": plain["products"] >= 64 and plain["busy"]["issue"] <= 0.6,
}
for fact, holds in facts.items():
    if not holds:
        print(f"plain attention at head_dim 64: {fact}: WRONG")
        failures += 1
print(f"{len(rows)} figures and {len(facts)} facts, {failures} wrong")
sys.exit(failures > 0)
