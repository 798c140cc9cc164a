"""What came of a study: report.html, one page that needs no network; results.png, its first picture; results.md, its
tables; results.csv, a row for each run and test; results.json, everything."""
from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import platform
from dataclasses import dataclass, field
from typing import Any, Sequence

import altair
import pandas
import torch
import vl_convert

from ..explore.files import replace
from ..explore.page import page
from ..request import request_of
from . import statistics
from .data import MEASURES
from .engine import Task
from .study import Study

_SIZE = 320  # pixels


@dataclass(frozen=True)
class Table:
    key: str
    title: str
    text: str
    head: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        lines = [self.head, ["---"] * len(self.head), *self.rows]
        cells = (" | ".join(cell.replace("|", "\\|") for cell in line) for line in lines)
        return f"## {self.title}\n\n{self.text}\n\n" + "\n".join(f"| {line} |" for line in cells) + "\n"


@dataclass
class Picture:
    key: str
    title: str
    text: str
    charts: list[altair.TopLevelMixin] = field(default_factory=list)

    @property
    def places(self) -> list[str]:
        return [f"{self.key}-{i}" for i in range(len(self.charts))]


def machine() -> dict[str, str]:
    """What the runs were made on, as far as figures depend on it."""
    processor = ""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        processor = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    except OSError:
        pass
    version = request_of("rope", {}).run("--version").stdout.strip()
    return {"processor": processor or platform.machine(), "cores": str(os.cpu_count()), "torch": torch.__version__,
            "python": platform.python_version(), "pegen": version}  # fmt: skip


class Findings:
    """Results of those runs that are done, as tables of pandas."""

    def __init__(self, study: Study, tasks: Sequence[Task], results: dict[Task, dict[str, Any]],
                 measures: dict[str, str], pretrained: dict[Task, dict[str, Any]] = {}) -> None:  # fmt: skip
        """measures: of each test, by its name. pretrained: results of what runs start with."""
        self.study, self.tasks, self.results, self.measures = study, tasks, results, measures
        self.pretrained = pretrained
        self.runs = pandas.DataFrame(
            [
                {"variant": task.variant, "seed": task.seed, "test": test, "measure": measures[test], "value": value}
                for task, result in results.items()
                for test, value in result["values"].items()
            ],
            columns=["variant", "seed", "test", "measure", "value"],
        ).astype({"value": float})
        self.comparisons = statistics.compared(study, self.runs)
        self.costs = pandas.DataFrame(
            [
                {
                    "variant": task.variant,
                    "seed": task.seed,
                    "step_ms": result["step_seconds"] * 1e3,
                    "kept_mib": result["kept_bytes"] / 2**20,
                    "parameters": result["parameters"],
                    "of_encodings": result["parameters_of_encodings"],
                    "seconds": result["seconds"],
                    "rate": task.rate,
                }
                for task, result in results.items()
            ]
        )

    @property
    def missing(self) -> str:
        left = len(self.tasks) - len(self.results)
        return f"{left} of {len(self.tasks)} runs are missing: what stands here may still change." if left else ""

    def facts(self, command: str) -> list[str]:
        """Lines that say how it was done."""
        study, shape, training = self.study, self.study.model, self.study.training
        data = ", ".join(f"{k} {v}" for k, v in dataclasses.asdict(study.data).items())
        on = machine()
        rate = f"rate {training.rate:g}"
        if training.rates:
            rates, first = ", ".join(f"{x:g}" for x in training.rates), next(iter(self.measures))
            rate = f"each variant's own rate, of {rates} the best of seed {training.tuning_seed} in '{first}'"
        diverged = [f"{t.variant} (seed {t.seed})" for t, result in self.results.items() if result["diverged"]]
        lines = [
            f"Data: {study.data_set} ({data}).",
            f"Model: {shape.depth} layers of {shape.dim} channels, {shape.heads} heads, float32. Training: AdamW,"
            f" {training.epochs} epochs, batches of {training.batch}, {rate}, weight decay"
            f" {training.weight_decay:g}. Seeds: {', '.join(map(str, study.seeds))}; a seed decides data, first values"
            " and the order of batches for all variants alike.",
            f"Command: {command} ({on['processor']}, {on['cores']} cores; PyTorch {on['torch']}, Python"
            f" {on['python']}, {on['pegen']}); {self.costs['seconds'].sum() / 60 if len(self.costs) else 0:.1f} minutes"
            " of training in all.",
        ]
        lines += [self._pretraining(study.pretraining)] if study.pretraining else []
        return lines + ([f"The loss was not finite in: {', '.join(diverged)}."] if diverged else [])

    def _pretraining(self, of: Study) -> str:
        """What variants begin with, and how well that does what it has learned."""
        data = ", ".join(f"{k} {v}" for k, v in dataclasses.asdict(of.data).items())
        begun = []
        for name in of.variants:
            first = [next(iter(r["values"].values())) for task, r in self.pretrained.items() if task.variant == name]
            mean = _number(pandas.Series(first, dtype=float).mean())
            names = ", ".join(variant.name for variant in self.study.variants.values() if variant.start == name)
            begun.append(f"With {name} (first test {mean}) begin: {names}.")
        how = f"{of.training.epochs} epochs, rate {of.training.rate:g}"
        return " ".join([f"Pretraining: {of.data_set} ({data}), {how}.", *begun])


# ---- tables ----


def _number(value: float | None, digits: int = 3) -> str:
    return "" if value is None or value != value else f"{value:.{digits}f}"


def _values(found: Findings) -> Table:
    means = statistics.summary(found.runs).set_index(["variant", "test"])
    tests = list(found.measures)

    def cell(variant: str, test: str) -> str:
        if (variant, test) not in means.index:
            return ""
        row = means.loc[(variant, test)]
        spread = f" ± {_number(row['std'])}" if row["count"] > 1 else ""
        return f"{_number(row['mean'])}{spread}"

    head = ["variant", *(f"{test} ({found.measures[test]})" for test in tests)]
    rows = [[name, *(cell(name, test) for test in tests)] for name in found.study.variants]
    return Table("results", "Results", "Mean and standard deviation over seeds.", head, rows)


def _comparisons(found: Findings) -> Table:
    rows = [
        [c["variant"], c["test"], f"{c['difference']:+.3f}",
         f"{c['low']:+.3f} to {c['high']:+.3f}" if c["low"] is not None else "", _number(c["p"]),
         _number(c["p_corrected"]), c["verdict"]]
        for c in found.comparisons
    ]  # fmt: skip
    head = [
        "variant",
        "test",
        f"difference from {found.study.baseline}",
        "95 % interval",
        "p",
        "p, corrected",
        "so it is",
    ]
    return Table("differences", "Differences", statistics.said(found.study, found.comparisons), head, rows)


def _costs(found: Findings) -> Table:
    rows = []
    if len(found.costs):
        each = found.costs.groupby("variant").median(numeric_only=True)
        base = each["step_ms"].get(found.study.baseline)
        bare = min((each["step_ms"][name] for name in each.index if not found.study.variants[name].spec), default=None)
        for name in (name for name in found.study.variants if name in each.index):
            row = each.loc[name]
            ratio = f"{row['step_ms'] / base:.2f}" if base else ""
            share = f"{1 - bare / row['step_ms']:.2f}" if bare else ""
            rows.append([name, f"{row['step_ms']:.1f}", ratio, share, f"{row['kept_mib']:.2f}",
                         f"{row['parameters']:.0f}", f"{row['of_encodings']:.0f}", f"{row['rate']:g}"])  # fmt: skip
    text = (
        "A step of training (forward, backward, AdamW): the processor's time, the median over steps and seeds, to be"
        " read as what the machine was when it was shared with other work. Kept: what a step holds for its backward"
        " pass, parameters apart. The encoding's share of a step is what it takes beyond one without an encoding, where"
        " the study has such a variant."
    )
    head = ["variant", "step, ms", f"times {found.study.baseline}", "encoding's share", "kept, MiB", "parameters",
            "of encodings", "rate"]  # fmt: skip
    return Table("costs", "Cost", text, head, rows)


def _grades(found: Findings) -> Table | None:
    rows = [
        {"variant": task.variant, "layer": layer + 1, **shares}
        for task, result in found.results.items()
        for layer, shares in enumerate(result.get("grades") or [])
        if shares
    ]
    if not rows:
        return None
    means = pandas.DataFrame(rows).groupby(["variant", "layer"], sort=False).mean().sort_index(axis=1)
    names = ["passed through" if name == "none" else f"grade {name}" for name in means.columns]
    cells = [[variant, str(layer), *map(_number, row)] for (variant, layer), *row in means.itertuples()]
    text = (
        f"What channels of each grade share in the variance of a query's scores, '{next(iter(found.measures))}':"
        " covariances with the whole, which add up to 1; means over seeds (CARE, discussion). Positions do not change"
        " scalars (grade 0)."
    )
    return Table("grades", "Use of grades", text, ["variant", "layer", *names], cells)


# ---- pictures ----


def _colour(found: Findings) -> dict[str, Any]:
    """Colour and shape, so that neither is needed."""
    legend = altair.Legend(title=None, orient="bottom", columns=2, labelLimit=0)
    order = list(found.study.variants)
    return {"color": altair.Color("variant:N", sort=order, legend=legend).scale(scheme="tableau10", domain=order),
            "shape": altair.Shape("variant:N", sort=order, legend=legend).scale(domain=order)}  # fmt: skip


def _by_test(found: Findings) -> Picture:
    picture = Picture("values", "What was learned", "Every run is a point, the mean of its variant a line.")
    for measure, rows in found.runs.dropna().groupby("measure", sort=False):
        offset = altair.XOffset("variant:N", sort=list(found.study.variants))
        base = altair.Chart(rows).encode(
            x=altair.X("test:N", sort=list(found.measures), title=None, axis=altair.Axis(labelAngle=-30)),
            xOffset=offset,
            y=altair.Y("value:Q", title=MEASURES[measure].title, scale=altair.Scale(zero=False)),
        )
        tips = ["variant:N", "test:N", "seed:O", altair.Tooltip("value:Q", format=".4f")]
        points = base.mark_point(filled=True, size=45, opacity=0.8).encode(**_colour(found), tooltip=tips)
        means = base.mark_tick(thickness=2, size=14, color="#333").encode(y="mean(value):Q")
        width = max(_SIZE, 18 * len(found.study.variants) * rows["test"].nunique())
        picture.charts.append((points + means).properties(width=width, height=_SIZE))
    return picture


def _curves(found: Findings) -> Picture:
    rows = [
        {"variant": task.variant, "epoch": epoch + 1, "loss": loss, "value": value}
        for task, result in found.results.items()
        for epoch, (loss, value) in enumerate(result["curve"])
    ]
    table = pandas.DataFrame(rows, columns=["variant", "epoch", "loss", "value"]).astype(
        {"loss": float, "value": float}
    )
    first = next(iter(found.measures))
    picture = Picture("curves", "While it was learned", f"Means over seeds: the loss of training, and '{first}'.")
    means = table.groupby(["variant", "epoch"], sort=False).mean().reset_index()
    for column, title in (("loss", "loss of training"), ("value", MEASURES[found.measures[first]].title)):
        of = means[["variant", "epoch", column]].dropna().rename(columns={column: "y"})
        base = altair.Chart(of).encode(
            x=altair.X("epoch:Q", axis=altair.Axis(tickMinStep=1)),
            y=altair.Y("y:Q", title=title, scale=altair.Scale(zero=False)),
        )
        look = _colour(found)
        tips = ["variant:N", "epoch:Q", altair.Tooltip("y:Q", title=title, format=".4f")]
        lines = base.mark_line().encode(color=look["color"])
        chart = lines + base.mark_point(filled=True, size=30, opacity=1).encode(**look, tooltip=tips)
        picture.charts.append(chart.properties(width=_SIZE, height=_SIZE))
    return picture


def _of_heads(found: Findings, key: str, title: str, said: str, unit: str, scale: str = "linear") -> Picture:
    """What is measured of each head of each layer; older results have none."""
    picture = Picture(key, title, said)
    rows = [
        {"variant": task.variant, "seed": task.seed, "layer": layer + 1, "head": head + 1, "value": value}
        for task, result in found.results.items()
        for layer, of_layer in enumerate(result.get(key) or [])
        for head, value in enumerate(of_layer or [])
    ]
    if rows:
        base = altair.Chart(pandas.DataFrame(rows)).encode(x=altair.X("layer:O", axis=altair.Axis(labelAngle=0)))
        tips = ["variant:N", "seed:O", "layer:O", "head:O", altair.Tooltip("value:Q", format=".3f")]
        y, look = altair.Y("value:Q", title=unit, scale=altair.Scale(type=scale)), _colour(found)
        points = base.mark_point(filled=True, size=30, opacity=0.6).encode(y=y, tooltip=tips, **look)
        lines = base.mark_line().encode(y="mean(value):Q", color=look["color"])
        picture.charts.append((points + lines).properties(width=_SIZE, height=_SIZE))
    return picture


def _distances(found: Findings) -> Picture:
    first = next(iter(found.measures))
    said = f"The distance of keys by attention weights, '{first}': a head is a point, the mean a line."
    return _of_heads(found, "distances", "How far layers look", said, "distance, in units of positions")


def _balance(found: Findings) -> Picture:
    first = next(iter(found.measures))
    said = (
        f"Where scores are sums of a bias and a product, '{first}': the mean of (P - Y) / sum(P Y) over each query's"
        " top keys (80 % of its attention), P and Y their exponentials. Above 0 a head leans on positions, below on"
        " content (PaPE, eq. 16). A head is a point, the mean a line."
    )
    return _of_heads(found, "balance", "Positions or content", said, "z", "symlog")


def _cost(found: Findings) -> Picture:
    picture = Picture("cost", "What it cost", "A step of training by its time and what it keeps; every run is a point.")
    base = altair.Chart(found.costs).encode(
        x=altair.X("step_ms:Q", title="a step, ms of the processor", scale=altair.Scale(zero=False)),
        y=altair.Y("kept_mib:Q", title="kept for the backward pass, MiB", scale=altair.Scale(zero=False)),
        tooltip=["variant:N", "seed:O", altair.Tooltip("step_ms:Q", format=".2f"),
                 altair.Tooltip("kept_mib:Q", format=".2f")], **_colour(found),
    )  # fmt: skip
    picture.charts.append(base.mark_point(filled=True, size=45, opacity=0.8).properties(width=_SIZE, height=_SIZE))
    return picture


# ---- files ----


def _image(picture: Picture) -> bytes:
    chart = altair.hconcat(*picture.charts, background="white")
    return vl_convert.vegalite_to_png(chart.to_json(), scale=1.3)


def _json(found: Findings, command: str) -> str:
    study = found.study
    content = {
        "name": study.name, "claim": study.claim, "command": command, "machine": machine(), "study": study.text,
        "missing": len(found.tasks) - len(found.results), "comparisons": found.comparisons,
        "runs": [task._asdict() | result for task, result in found.results.items()],
    }  # fmt: skip
    if found.pretrained:
        content["pretraining"] = [task._asdict() | result for task, result in found.pretrained.items()]
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def write(folder: pathlib.Path, found: Findings, command: str) -> None:
    """Old files stay until the new ones are complete. Raises ArgumentError where they cannot be written."""
    tables = [table for table in (_values(found), _comparisons(found), _costs(found), _grades(found)) if table]
    each = (_by_test, _curves, _distances, _balance, _cost)
    pictures = [picture_of(found) for picture_of in each] if len(found.runs) else []
    pictures = [picture for picture in pictures if picture.charts]
    charts = [(at, c.to_dict()) for picture in pictures for at, c in zip(picture.places, picture.charts)]
    facts = found.facts(command)
    claim = [part.strip() for part in found.study.claim.strip().split("\n\n")]
    html = page(pathlib.Path(__file__).with_name("report.html.j2"), charts, study=found.study, claim=claim, facts=facts,
                missing=found.missing, pictures=pictures, tables=tables)  # fmt: skip
    lines = [f"# {found.study.name}", *claim, *facts, *filter(None, [found.missing])]
    replace(folder / "report.html", html.encode())
    if pictures:
        replace(folder / "results.png", _image(pictures[0]))
    replace(folder / "results.md", "\n\n".join([*lines, *(table.markdown() for table in tables)]).encode())
    replace(folder / "results.csv", found.runs.to_csv(index=False).encode())
    replace(folder / "results.json", _json(found, command).encode())
