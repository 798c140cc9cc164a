"""One file that holds the pictures: a page that needs no network, or an image."""
from __future__ import annotations

import os
import pathlib
from typing import Any, Sequence

import vl_convert

from ..errors import ArgumentError
from .charts import Spec, whole
from .facts import Facts
from .files import ending, replace
from .page import page
from .pictures import Picture, all_pictures

ENDINGS = (".html", ".svg", ".png")
_APART = {"scale": {channel: "independent" for channel in ("color", "shape", "strokeDash")}}  # a legend of its own each
PROPERTIES = ("norm_kept", "translation_invariant", "rotation_invariant", "commuting_generators", "invertible",
               "distance_decay", "context_aware", "identity_at_origin")  # fmt: skip


def table_of(all_facts: Sequence[Facts]) -> list[tuple[str, list[dict[str, str]]]]:
    """Rows of the table: what is told, and a cell for each description."""

    def row(name: str, cell: Any) -> tuple[str, list[dict[str, str]]]:
        return name, [cell(f) for f in all_facts]

    def plain(value: Any) -> dict[str, str]:
        return {"text": str(value), "why": ""}

    def token(f: Facts) -> dict[str, str]:
        cost = f.data["cost"]
        each = cost.get("per_token") or cost["per_token_and_head"]
        whose = "token" if "per_token" in cost else "token and head"
        return plain(
            f"{sum(each.values())} a {whose}, {each['sines']} of them sines; {cost['per_row_operations']} a row"
        )

    rows = [
        row("what it is", lambda f: plain(f.data["doc"])),
        row("options", lambda f: plain(", ".join(f"{k}={v}" for k, v in f.data["options"].items()) or "none")),
        row("group", lambda f: plain(f.data["group"])),
        row("normal form", lambda f: plain(f.data["normal_form"])),
        row("operands", lambda f: plain("; ".join(f"{k}: {v}" for k, v in f.operands.items()) or "none")),
    ]
    for key in PROPERTIES:
        cells = [f.data["properties"][key] for f in all_facts]
        found = [{"text": f"{cell['holds']} ({cell['known']})", "why": cell["how"]} for cell in cells]
        rows.append((key.replace("_", " "), found))
    return rows + [
        row("precision of rows", lambda f: plain(f.data["precision"]["rows"])),
        row("operations", token),
        row("bytes a row, float32", lambda f: plain(f.data["cost"]["per_row_bytes_float32"])),
    ]


def _page(title: str, all_facts: Sequence[Facts], pictures: Sequence[Picture]) -> str:
    charts = [
        (f"{picture.key}-{i}", whole(chart.to_dict()))
        for picture in pictures
        for i, chart in ((i, picture.charts.get(f.label)) for i, f in enumerate(all_facts))
        if chart is not None
    ]
    return page(pathlib.Path(__file__).with_name("report.html.j2"), charts, title=title,
                facts=list(enumerate(all_facts)), table=table_of(all_facts), pictures=pictures)  # fmt: skip


def _charts(picture: Picture, labels: Sequence[str]) -> Spec:
    charts = [picture.charts[label].to_dict(title=label) for label in labels if label in picture.charts]
    return {"hconcat": charts, "title": picture.title, "resolve": _APART}


def image(pictures: Sequence[Picture], all_facts: Sequence[Facts], kind: str) -> bytes:
    rows = [_charts(picture, [f.label for f in all_facts]) for picture in pictures]
    chart = whole({"vconcat": rows, "background": "white", "resolve": _APART})
    return (
        vl_convert.vegalite_to_svg(chart).encode() if kind == ".svg" else vl_convert.vegalite_to_png(chart, scale=1.5)
    )


def mosaic(pictures: Sequence[Picture], label: str, columns: int) -> bytes:
    """Pictures of one description as a PNG, so many side by side."""
    charts = [picture.charts[label].to_dict(title=picture.title) for picture in pictures]
    chart = whole({"concat": charts, "columns": columns, "background": "white", "resolve": _APART})
    return vl_convert.vegalite_to_png(chart, scale=1.3)


def write(path: str | os.PathLike[str], all_facts: Sequence[Facts], only: Sequence[str] = ()) -> None:
    """Writes a report: .html, one page with everything in it; .svg or .png, its pictures. only: their keys. An old file
    stays until the new one is complete.

    Raises ArgumentError for another ending, an unknown picture or descriptions of one label.
    """
    path = pathlib.Path(path)
    ending(path, ENDINGS)
    labels = [f.label for f in all_facts]
    if len(set(labels)) < len(labels):
        raise ArgumentError(f"two descriptions are called '{max(labels, key=labels.count)}': give them labels")
    pictures = list(all_pictures(all_facts))
    keys = [picture.key for picture in pictures]
    for key in only:
        if key not in keys:
            raise ArgumentError(f"--only {key}: no such picture of these; there are {', '.join(keys)}")
    pictures = [picture for picture in pictures if not only or picture.key in only]
    if path.suffix == ".html":
        content = _page(", ".join(labels), all_facts, pictures).encode()
    elif pictures:
        content = image(pictures, all_facts, path.suffix)
    else:
        raise ArgumentError(f"{', '.join(labels)}: there is nothing to draw, since positions change nothing")
    replace(path, content)
