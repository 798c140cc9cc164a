"""Charts as Vega-Lite has them, apart from their tables: a chart that stands needs another's tables alone.

Colours are of palettes that people who cannot tell red from green read, too (cividis; blue and orange); every mark has
its values as a tooltip.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterable, Mapping, Sequence

Spec = dict[str, Any]  # of Vega-Lite
Table = dict[str, list[Any]]  # columns

SIZE = 300  # pixels
DIVERGING = "blueorange"
# Told apart by people who cannot tell red from green, too: M. Okabe and K. Ito, "Color universal design", without the
# yellow that white paper swallows.
KINDS = ["#0072b2", "#e69f00", "#000000", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"]
# Colours and shapes of one field have one legend only where these agree.
LEGEND = {"title": None, "orient": "bottom", "labelLimit": 0, "columns": 2}
_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"


@dataclass(frozen=True)
class Chart:
    spec: Spec  # that says {"data": {"name": NAME}} where a table belongs
    tables: dict[str, Table]

    def to_dict(self, **more: Any) -> Spec:
        """All of it, with rows of its tables where these belong."""
        rows = {name: [dict(zip(table, row)) for row in zip(*table.values())] for name, table in self.tables.items()}

        def filled(part: Any) -> Any:
            if isinstance(part, list):
                return [filled(inside) for inside in part]
            if not isinstance(part, dict):
                return part
            return {key: {"values": rows[inside["name"]]} if key == "data" else filled(inside)
                    for key, inside in part.items()}  # fmt: skip

        return {**filled(self.spec), **more}


def whole(spec: Spec) -> Spec:
    """A chart that stands alone."""
    return {"$schema": _SCHEMA, **spec}


def columns(rows: Sequence[Mapping[str, Any]]) -> Table:
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}


def number(field: str, title: str | None = None, **more: Any) -> Spec:
    """A channel; so are the next two."""
    return {"field": field, "type": "quantitative", **({} if title is None else {"title": title}), **more}


def kind(field: str, **more: Any) -> Spec:
    return {"field": field, "type": "nominal", **more}


def axis(field: str, title: str, low: float, high: float, scale: str = "linear") -> Spec:
    zero = {} if scale == "log" else {"zero": False}
    return number(field, title, scale={"domain": [low, high], "type": scale, "nice": False, **zero})


def colour(field: str, colours: Sequence[str] = KINDS) -> Spec:
    return kind(field, legend=LEGEND, scale={"range": colours})


def tip(field: str, title: str) -> Spec:
    return number(field, title, format=".4g")


def part(mark: str, encoding: Spec, **more: Any) -> Spec:
    return {"mark": {"type": mark, **more}, "encoding": encoding}


def points(encoding: Spec, tips: Iterable[Spec], size: int = 30) -> Spec:
    return part("point", {**encoding, "tooltip": list(tips)}, filled=True, size=size, opacity=1)


def layers(table: Table, *parts: Spec) -> Chart:
    """Parts of one table; one part alone needs no layers."""
    inside = {"layer": list(parts)} if len(parts) > 1 else parts[0]
    return Chart({"data": {"name": "table"}, "width": SIZE, "height": SIZE, **inside}, {"table": table})


def kinds(
    table: Table, x: Spec, y: Spec, of: str | None, *tips: Spec, size: int = 30, line: bool = True,
    dash: str | None = None, **channels: Any,
) -> Chart:  # fmt: skip
    """A table's points, with lines through them or without, each kind that the column `of` names in a colour. Channels
    are of the points; a dash is of the lines, and has no legend of its own beside the colours'."""
    base = {"x": x, "y": y, **({"color": colour(of)} if of else {})}
    marks = points({**base, **channels}, [*([kind(of)] if of else []), *tips], size)
    dashes = {} if dash is None else {"strokeDash": kind(dash, legend=None)}
    return layers(table, *([part("line", {**base, **dashes})] if line else []), marks)


def beside(charts: Sequence[Chart], columns: int) -> Chart:
    """Charts as one; tables of each under names of their own."""
    specs, tables = [], {}
    for i, chart in enumerate(charts):
        assert list(chart.tables) == ["table"]
        specs.append({**chart.spec, "data": {"name": f"table{i}"}})
        tables[f"table{i}"] = chart.tables["table"]
    return Chart({"concat": specs, "columns": columns}, tables)
