#!/usr/bin/env python3
"""explain_test.py PEGEN SPECS INPUTS: what `pegen explain` says of every spec is what the papers say (claims.py).

The JSON is parsed with Python's own parser; the text must say the same of every property.
"""
import json
import pathlib
import subprocess
import sys

from claims import CLAIMS

pegen, specs, inputs = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
failures = []
NO_KERNEL = b"no kernel can be made of what"


def expect(condition, message):
    if not condition:
        failures.append(message)
        print("FAIL", message)


def explain(spec, options, form):
    command = [pegen, "explain", str(spec), f"--format={form}"]
    for option in options:
        command += ["-D", option]
    run = subprocess.run(command, capture_output=True)
    if NO_KERNEL in run.stderr:
        print("no kernel yet, and so not explained:", spec.name, *options)
        return None
    expect(run.returncode == 0 and not run.stderr, f"{' '.join(command)}: exit {run.returncode} {run.stderr!r}")
    return run.stdout.decode("utf-8", "strict" if form == "json" else "replace")


def check_shape(name, facts):
    """What every answer has, whatever the encoding."""
    expect(facts["name"] == name or name.startswith("input "), f"{name}: the name is {facts['name']}")
    block = facts["block"]
    channels = block["size"] * block["count"] + block["leftover_channels"]
    expect(channels == facts["head_dim"] or channels == 0, f"{name}: channels do not add up")
    expect(
        facts["cost"]["per_row_bytes_float32"] == 4 * (2 * facts["head_dim"] + facts["columns_added"]), f"{name}: bytes"
    )
    cost = facts["cost"]
    work = (
        cost["per_row_operations"]
        + cost["per_pair_operations"]
        + sum(cost.get("per_token", cost.get("per_token_and_head")).values())
    )
    expect(work > 0, f"{name}: no operations")
    for key, value in facts["properties"].items():
        expect(value["holds"] in ("yes", "no", "on average", "not applicable"), f"{name}: {key} holds {value['holds']}")
        expect(
            value["known"] == "proved" or "deviation" in value or "far_score" in value,
            f"{name}: {key} is measured without a figure",
        )
        expect(value["how"] and value["meaning"], f"{name}: {key} without a reason")


def check_text(name, facts, text):
    for key, value in facts["properties"].items():
        said = [
            line
            for line in text.splitlines()
            if value["how"] in line and f" {value['holds']} " in line and f" {value['known']} " in line
        ]
        expect(said, f"{name}: the text does not say that {key} is '{value['holds']}', {value['known']}")


def check_claims(file, options, claims, source):
    name = file.stem
    what = " ".join([name] + options)
    answer = explain(file, options, "json")
    if answer is None:
        return
    facts = json.loads(answer)
    check_shape(name, facts)
    if not options:
        check_text(what, facts, explain(file, options, "text"))
    for key, claim in claims.items():
        got = facts["properties"][key]
        holds, known = claim or (got["holds"], got["known"])
        expect(
            got["holds"] == holds and got["known"] == known,
            f"{what}: {key} is '{got['holds']}' ({got['known']}: {got['how']}), "
            f"expected '{holds}' ({known}) by {source}",
        )
    missing = set(facts["properties"]) - set(claims)
    expect(not missing, f"{what}: no claim about {sorted(missing)}")


def check_settings():
    """What a control of an option needs: its kind, default and choices, whatever -D says."""
    facts = json.loads(explain(specs / "geope2d.lua", ["base=7"], "json"))
    told = {setting["name"]: setting for setting in facts["settings"]}
    expect(list(told) == list(facts["options"]), "settings are not the options")
    expect((told["base"]["kind"], told["base"]["default"]) == ("number", "100"), told["base"])
    expect((told["head_dim"]["kind"], told["inverse"]["kind"]) == ("integer", "boolean"), told)
    expect((told["grid"]["kind"], told["grid"]["default"]) == ("list", ""), told["grid"])
    rope = {setting["name"]: setting for setting in json.loads(explain(specs / "rope.lua", [], "json"))["settings"]}
    expect((rope["factors"]["kind"], rope["factors"]["default"]) == ("numbers", "1"), rope["factors"])
    expect((told["layout"]["kind"], told["layout"]["choices"]) == ("string", ["interleaved", "split"]), told["layout"])
    expect(told["exponent_sign"]["choices"] == ["1", "-1"] and "choices" not in told["base"], told)
    expect(told["base"]["range"] == [2, 1e6] and "range" not in told["head_dim"], told["base"])


def check_grades():
    """Grades stand where the layout has put channels; what passes through has none, nor has what is no multivector."""
    of_care = json.loads(explain(specs / "care.lua", ["head_dim=17", "grades=0,1,3"], "json"))["grades"]
    expect(of_care == [0, 1, 1, 1, 3] * 3 + [None] * 2, of_care)
    split = json.loads(explain(specs / "geope2d.lua", ["head_dim=4", "layout=split"], "json"))["grades"]
    expect(split == [1, 1, 1, None], split)
    whole = json.loads(explain(specs / "more" / "geope_video.lua", [], "json"))
    passed = whole["block"]["leftover_channels"] + sum(p["block"]["leftover_channels"] for p in whole["parts"])
    expect(whole["grades"].count(1) == whole["head_dim"] - passed, whole["grades"])
    for name, options in (("liere", ["block=8"]), ("pape", []), ("alibi", []), ("sincos", []), ("more/prope", [])):
        facts = json.loads(explain(specs / f"{name}.lua", options, "json"))
        expect("grades" not in facts, f"{name}: {facts.get('grades')}")


def check_inputs():
    """Specs made to be awkward, each beside what must come out of it."""
    for file in sorted(inputs.glob("*.lua")):
        wanted = json.loads(file.with_suffix(".json").read_text(encoding="utf-8"))
        facts = json.loads(explain(file, [], "json"))
        check_shape(f"input {file.stem}", facts)
        check_text(f"input {file.stem}", facts, explain(file, [], "text"))
        for path, value in wanted.items():
            got = facts
            for key in path.split("."):
                got = got[int(key)] if isinstance(got, list) else got[key]
            expect(got == value, f"{file.name}: {path} is {got!r}, expected {value!r}")


files = sorted(specs.glob("*.lua"))
for file in files:
    expect(file.stem in CLAIMS, f"{file.name}: claims.py does not say what its paper states")
    for options, claims, source in CLAIMS.get(file.stem, []):
        check_claims(file, options, claims, source)
for name in set(CLAIMS) - {file.stem for file in files}:
    expect(False, f"claims.py names {name}, which is no spec")
check_settings()
check_inputs()
print(f"{len(failures)} failures")
sys.exit(1 if failures else 0)
