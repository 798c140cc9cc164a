"""`pegen compare`: variants of descriptions in one table, a row each."""
from __future__ import annotations

import argparse
import hashlib
import html
import itertools
import json
import os
import pathlib
import re
import sys
import time
from typing import Any, Iterator, Sequence

import pandas

from ..errors import ArgumentError, PegenError
from ..kernel import Kernel, compile
from ..request import request_of
from .facts import run_explain
from .files import ending, replace
from .words import Operands, command, described, grid_of, operands_of, pair, takes_operands

ENDINGS = (".html", ".csv", ".json")
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>
body {{ font: 15px/1.4 system-ui, sans-serif; margin: 1rem; }} div {{ overflow-x: auto; }}
table {{ border-collapse: collapse; }}
th, td {{ text-align: left; padding: .25rem .7rem; border-bottom: 1px solid #ccc; }}
td {{ vertical-align: top; }} th {{ white-space: nowrap; }}
</style></head><body><h1>{title}</h1><p>{note}</p><div>{table}</div></body></html>
"""


def values_of(text: str) -> list[str]:
    """The values of a sweep: 10,100 are two, [8,12,12],[16,8,8] are two lists."""
    found = re.findall(r"\[[^\]]*\]|[^,\[\]]+", text)
    return [value.strip("[]") for value in found]


def variants(
    specs: Sequence[tuple[str, dict[str, str]]], sweep: dict[str, list[str]]
) -> Iterator[tuple[str, dict[str, str]]]:
    """Every description with every choice of the swept options; its own ones stand."""
    for spec, own in specs:
        names = [name for name in sweep if name not in own]
        for choice in itertools.product(*(sweep[name] for name in names)):
            yield spec, {**own, **dict(zip(names, choice))}


def _checked(kernel: Kernel) -> dict[str, Any]:
    """The largest error that check measured in float32, as a power of two (relative to what each line says)."""
    try:
        report, holds = kernel.check(), True
    except PegenError as e:
        report, holds = str(e), False
    powers = [float(x) for x in re.findall(r"^ +f32 .* 2\^(-?[0-9.]+) +<= ", report, re.MULTILINE)]
    return {"check": "passes" if holds else "FAILS", "largest error, log2": max(powers, default=None)}


def _timed(request: Any, label: str, shape: str) -> dict[str, Any]:
    done = request.run("bench", "--json", "--backward", "--shape", shape, "--in-place")
    if done.returncode:
        done = request.run("bench", "--json", "--backward", "--shape", shape)  # attention is never in place
    if done.returncode:
        raise ArgumentError(f"{label}: {(done.stderr or done.stdout).strip()}")
    row = json.loads(done.stdout)["rows"][0]
    microseconds = lambda key: None if row.get(key) is None else row[key] * 1e6  # noqa: E731
    fastest = min((limit["seconds"] for limit in row.get("limits", [])), default=None)
    return {
        "forward, us": microseconds("seconds"),
        "share of the limit": fastest and fastest / row["seconds"],
        "backward, us": microseconds("backward_seconds") or microseconds("backward_rows_seconds"),
    }


def _explained(
    wanted: Sequence[tuple[str, dict[str, str]]], operands: Operands, grid: str | None
) -> list[dict[str, Any]]:
    """What explain tells of each variant, with those of the operands that it has. All are read before anything is
    timed: a mistake in the last is told before hours are spent on the others."""
    words = [f"--grid={grid}"] if grid else []
    found = [run_explain(request_of(spec, options), spec, words)[0] for spec, options in wanted]
    named = {*operands.files, *operands.tensors}
    if not named and operands.checkpoint is None and operands.seed is None:
        return found
    own = [{operand["name"] for operand in facts["operands"]} for facts in found]
    for name in sorted(named - set().union(*own)):
        there = ", ".join(sorted(set().union(*own))) or "none"
        raise ArgumentError(f"operand '{name}': no description has it; expected one of {there}")
    for i, (spec, options) in enumerate(wanted):
        given = operands.of(own[i]) if named else operands  # a checkpoint without --map is refused by explain
        if own[i]:
            found[i] = run_explain(request_of(spec, options), spec, words + given.words())[0]
            found[i]["operands are"] = "; ".join(
                f"{name}: {operand['from']}" for name, operand in found[i]["numbers"]["operands"].items()
            )
    return found


def measure(spec: str, options: dict[str, str], shape: str, explained: dict[str, Any]) -> dict[str, Any]:
    """A row of the table."""
    label = os.path.basename(spec).removesuffix(".lua")
    cost = explained["cost"]
    each = cost.get("per_token") or cost["per_token_and_head"]
    row: dict[str, Any] = {"description": label, **options, "form": explained["form"], "group": explained["group"]}
    if "operands are" in explained:
        row["operands"] = explained["operands are"]
    for key, found in explained["properties"].items():
        row[key.replace("_", " ")] = f"{found['holds']} ({found['known']})"
    row["operations a token"] = sum(each.values())
    row["operations a row"] = cost["per_row_operations"]
    start = time.perf_counter()
    kernel = compile(spec, defines=options, dtypes="f32", targets="native", cache="")
    row["compile, s"] = time.perf_counter() - start
    row["object, bytes"] = len(kernel.object)
    row.update(_checked(kernel))
    row.update(_timed(request_of(spec, options, "native", "f32"), label, shape))
    return row


class Progress:
    """Rows that are done, in a file beside the output: a line each, by what they depend on. Gone once all are."""

    def __init__(self, output: pathlib.Path) -> None:
        self.path = output.with_name(f"{output.name}.part")
        self.rows: dict[str, dict[str, Any]] = {}
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                try:
                    kept = json.loads(line)
                    self.rows[kept["key"]] = kept["row"]
                except (ValueError, KeyError, TypeError):
                    continue  # a line that was cut short is measured again

    def add(self, key: str, row: dict[str, Any]) -> None:
        self.rows[key] = row
        try:
            with open(self.path, "a") as file:
                file.write(json.dumps({"key": key, "row": row}) + "\n")
        except OSError as e:
            raise ArgumentError(f"-o {self.path}: cannot be written: {e.strerror}") from e

    def end(self) -> None:
        self.path.unlink(missing_ok=True)


def write(path: pathlib.Path, rows: Sequence[dict[str, Any]], shape: str) -> None:
    table = pandas.DataFrame(rows)
    if path.suffix == ".json":
        content = table.to_json(orient="records", indent=1)
    elif path.suffix == ".csv":
        content = table.to_csv(index=False)
    else:
        title = html.escape("Position encodings at " + shape)
        note = (
            "float32, one thread of this machine; forward in place where that is possible. Errors and times are with"
            " operands that are drawn. docs/explain.md says more."
        )
        content = _PAGE.format(
            title=title, note=note, table=table.to_html(index=False, na_rep="", float_format="{:.4g}".format)
        )
    replace(path, content.encode())


def _parser() -> argparse.ArgumentParser:
    parser = command(
        "compare",
        "One row for each variant: properties, cost, error, speed forward and backward, size, compile time. What was"
        " interrupted goes on where it stopped when it is run again.",
        "table.html, .csv or .json",
        ("NAME=VALUES", "values to try of an option: base=10,100,1000; of lists sections=[8,12,12],[16,8,8]"),
    )
    takes_operands(parser)
    parser.add_argument("--shape", default="vit_b1", help="as pegen bench has it; default vit_b1")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    given = parser.parse_args(arguments)
    output = pathlib.Path(given.output)
    sweep = {name: values_of(text) for name, text in (pair(parser, word, "-D") for word in given.define)}
    specs = [(spec, options) for spec, _, options in (described(parser, word) for word in given.spec)]
    wanted = list(variants(specs, sweep))
    grid, operands = grid_of(parser, given), operands_of(parser, given)
    done = 0
    try:
        ending(output, ENDINGS)
        progress, rows = Progress(output), []
        explained = _explained(wanted, operands, grid and ",".join(map(str, grid)))
        for (spec, options), facts in zip(wanted, explained):
            text = json.dumps([facts, options, given.shape], sort_keys=True)
            key = hashlib.sha256(text.encode()).hexdigest()
            if key not in progress.rows:
                words = " ".join([spec, *(f"{name}={value}" for name, value in options.items())])
                print(f"{done + 1} of {len(wanted)}: {words}", file=sys.stderr, flush=True)
                progress.add(key, measure(spec, options, given.shape, facts))
            rows.append(progress.rows[key])
            done += 1
        write(output, rows, given.shape)
        progress.end()
    except PegenError as e:
        print(f"pegen compare: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"pegen compare: {done} of {len(wanted)} are done; the same command goes on from there", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
