"""Pictures of what explain measured: charts of Altair, one for each description, on scales that all of them share.

Colours are of palettes that people who cannot tell red from green read, too (cividis; blue and orange); every mark has
its values as a tooltip.
"""
from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, Callable, Iterable, Sequence

import altair
import numpy
import pandas

from .facts import Facts, tokens_of

_SIZE = 300  # pixels
_DIVERGING = "blueorange"
_BANDS = 24  # of distances
_MOST_HEADS = 4  # whose biases are shown
_LEAST_SHARE = 1e-8  # of a singular value that is shown
_LEFT = "queries and keys are left as they are"
altair.data_transformers.disable_max_rows()


@dataclass(frozen=True)
class Picture:
    key: str
    title: str
    text: str  # what is to be seen
    charts: dict[str, altair.Chart] = field(default_factory=dict)  # by the description's label
    missing: dict[str, str] = field(default_factory=dict)  # why a description has none


def _chart(rows: pandas.DataFrame) -> altair.Chart:
    return altair.Chart(rows).properties(width=_SIZE, height=_SIZE)


# Told apart by people who cannot tell red from green, too: M. Okabe and K. Ito, "Color universal design", without the
# yellow that white paper swallows.
KINDS = ["#0072b2", "#e69f00", "#000000", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"]


def _axis(title: str, low: float, high: float, kind: str = "linear") -> dict:
    zero = {} if kind == "log" else {"zero": False}
    return {"title": title, "scale": altair.Scale(domain=[low, high], type=kind, nice=False, **zero)}


def _number(name: str, title: str) -> altair.Tooltip:
    return altair.Tooltip(name, title=title, format=".4g")


def _legend() -> altair.Legend:
    """Colours and shapes of one field have one legend only where these agree."""
    return altair.Legend(title=None, orient="bottom", labelLimit=0, columns=2)


def _colour(name: str) -> altair.Color:
    return altair.Color(f"{name}:N", legend=_legend()).scale(range=KINDS)


def _shape(name: str, **legend: Any) -> altair.Shape:
    """With a legend, which is the colours' one where no line has these, too."""
    return altair.Shape(f"{name}:N", **(legend or {"legend": _legend()}))


def _points(base: altair.Chart, *tips: str | altair.Tooltip, size: int = 30) -> altair.Chart:
    return base.mark_point(filled=True, size=size, opacity=1).encode(tooltip=list(tips))


def _kinds(
    table: pandas.DataFrame, x: altair.X, y: altair.Y, of: str | None, *tips: str | altair.Tooltip, size: int = 30,
    line: bool = True, dash: str | None = None, **channels: Any,
) -> altair.Chart:  # fmt: skip
    """A table's points, with lines through them or without, each kind that the column `of` names in a colour. Channels
    are of the points; a dash is of the lines, and has no legend of its own beside the colours'."""
    colour = {"color": _colour(of)} if of else {}
    base = _chart(table).encode(x=x, y=y, **colour)
    points = _points(base.encode(**channels), *([f"{of}:N"] if of else []), *tips, size=size)
    dashes = {} if dash is None else {"strokeDash": altair.StrokeDash(f"{dash}:N", legend=None)}
    return base.mark_line().encode(**dashes) + points if line else points


def _tables(picture: Picture, all_facts: Sequence[Facts], of: Callable) -> dict[str, pandas.DataFrame]:
    """What each description has to show, by its label; of(facts): a table, or the words why there is none."""
    found = {f.label: of(f) for f in all_facts}
    picture.missing.update({label: table for label, table in found.items() if isinstance(table, str)})
    return {label: table for label, table in found.items() if not isinstance(table, str)}


def _range(tables: dict[str, pandas.DataFrame], *columns: str) -> tuple[float, float]:
    """The lowest and the highest number of these columns in all tables; 0 and 1 where there are none."""
    numbers = [table[column] for table in tables.values() for column in columns]
    return min((n.min() for n in numbers), default=0), max((n.max() for n in numbers), default=1)


def _heads(values: numpy.ndarray) -> numpy.ndarray:
    return values.mean(axis=0)


# ---- by distance ----


def _by_distance(
    f: Facts, values: numpy.ndarray, low: numpy.ndarray, high: numpy.ndarray, what: str
) -> pandas.DataFrame:
    """Means, and the range of what lies in a band of distances."""
    distance, reach = f.distance.ravel(), f.distance.max()
    band = numpy.rint(distance) if reach <= _BANDS else numpy.rint(distance * _BANDS / reach)
    rows = []
    for b in numpy.unique(band):
        inside = band == b
        rows.append(
            {
                "distance": distance[inside].mean(),
                "score": values.ravel()[inside].mean(),
                "low": low.ravel()[inside].min(),
                "high": high.ravel()[inside].max(),
                "of": what,
            }
        )
    return pandas.DataFrame(rows)


def _decay_table(f: Facts) -> pandas.DataFrame | str:
    if f.equal is None:
        return _LEFT
    rows = [_by_distance(f, _heads(f.equal), f.lowest.min(axis=0), f.highest.max(axis=0), "equal (all pairs)")]
    if f.random is not None:
        rows.append(_by_distance(f, f.random[2], f.random[0], f.random[4], "random (5 to 95 %)"))
    return pandas.concat(rows)


def decay(all_facts: Sequence[Facts]) -> Picture:
    picture = Picture(
        "decay",
        "Score by distance",
        "The score of a query and a key by how far they are from each other: of a query and itself as a key (the mean,"
        " with the range over all pairs and directions) and of random ones. 1 is what both score where positions change"
        " nothing.",
    )
    tables = _tables(picture, all_facts, _decay_table)
    low, high = _range(tables, "low", "high")
    reach = _range(tables, "distance")[1]
    for label, table in tables.items():
        colour = altair.Color("of:N", legend=_legend(), scale=altair.Scale(range=["#1f5fa8", "#e08214"]))
        base = _chart(table).encode(x=altair.X("distance:Q", **_axis("distance", 0, reach)), color=colour)
        band = base.mark_area(opacity=0.2).encode(y=altair.Y("low:Q", **_axis("score", low, high)), y2="high:Q")
        line = base.encode(y="score:Q")
        tips = (("distance", "distance"), ("score", "mean"), ("low", "low"), ("high", "high"))
        picture.charts[label] = band + line.mark_line() + _points(line, "of:N", *(_number(*tip) for tip in tips))
    return picture


def _direction_table(f: Facts) -> pandas.DataFrame | str:
    if f.equal is None:
        return _LEFT
    values, rows = _heads(f.equal), []
    ways = [(name, [a == axis for a in range(len(f.grid))]) for axis, name in enumerate(f.axes)]
    if len(f.grid) > 1:
        ways.append(("diagonal", [True] * len(f.grid)))
    for name, moves in ways:
        for step in range(min(g for g, m in zip(f.grid, moves) if m)):
            at = tuple(g - 1 + step * m for g, m in zip(f.grid, moves))
            rows.append({"steps": step, "score": values[at], "direction": name})
    return pandas.DataFrame(rows)


def directions(all_facts: Sequence[Facts]) -> Picture:
    picture = Picture(
        "directions",
        "Decay by direction",
        "The score of equal queries and keys from the first token on, along each axis and along the diagonal.",
    )
    tables = _tables(picture, all_facts, _direction_table)
    low, reach = _range(tables, "score")[0], _range(tables, "steps")[1]
    for label, table in tables.items():
        x = altair.X("steps:Q", **_axis("steps", 0, reach))
        y = altair.Y("score:Q", **_axis("score", min(low, 0), 1))
        tip = _number("score", "score")
        picture.charts[label] = _kinds(table, x, y, "direction", "steps:Q", tip, dash="direction")
    return picture


# ---- maps ----


def _map_rows(f: Facts, values: numpy.ndarray) -> tuple[pandas.DataFrame, str, str, str | None]:
    """Of the last two axes; of three, slices along the first, from no displacement on."""
    names = [f"{name} displacement" for name in f.axes]
    columns = {n: d.ravel() for n, d in zip(names, f.displacements)}
    rows = pandas.DataFrame({**columns, "score": values.ravel()})
    if len(names) == 2:
        return rows, names[1], names[0], None
    sliced = rows[(rows[names[0]] >= 0) & (rows[names[0]] % max(1, (f.grid[0] - 1) // 3) == 0)]
    return sliced, names[2], names[1], names[0]


def _steps(name: str, values: pandas.Series) -> dict:
    """An axis of displacements: all of them, those that are hidden too, and labels that do not touch."""
    whole = sorted(values.unique().tolist())
    every = max(1, len(whole) // 9)
    labels = [d for d in whole if d % every == 0]
    return {
        "shorthand": f"{name}:O",
        "axis": altair.Axis(values=labels, labelAngle=0),
        "scale": altair.Scale(domain=whole),
    }


def _heat(f: Facts, values: numpy.ndarray, title: str, scale: altair.Scale, size: int) -> altair.Chart:
    rows, across, down, slices = _map_rows(f, values)
    chart = (
        altair.Chart(rows.replace([numpy.inf, -numpy.inf], numpy.nan))
        .mark_rect()
        .encode(
            x=altair.X(**_steps(across, rows[across])),
            y=altair.Y(**_steps(down, rows[down])),
            color=altair.Color("score:Q", title=None, scale=scale),
            tooltip=[altair.Tooltip(f"{across}:Q"), altair.Tooltip(f"{down}:Q"), _number("score", "score")],
        )
        .properties(width=size, height=size)
    )
    if slices:
        chart = chart.facet(f"{slices}:O", columns=2)
    return chart.properties(title=title) if title else chart


def _line(f: Facts, maps: Sequence[tuple[str, numpy.ndarray]], scale: altair.Scale) -> altair.Chart:
    """Along the one axis."""
    across = f"{f.axes[0]} displacement"
    rows = [
        {across: d, "score": value if numpy.isfinite(value) else None, "of": name or "score"}
        for name, values in maps
        for d, value in zip(f.displacements[0].tolist(), values)
    ]
    y = altair.Y("score:Q", title="score", scale=altair.Scale(domain=scale.domain))
    return _kinds(pandas.DataFrame(rows), altair.X(f"{across}:Q"), y, "of", f"{across}:Q", _number("score", "score"))


def _maps(key: str, title: str, text: str, all_facts: Sequence[Facts], of: Callable, scale: altair.Scale) -> Picture:
    picture = Picture(key, title, text)
    for f in all_facts:
        maps = of(f)
        if maps is None:
            picture.missing[f.label] = "nothing is turned" if key == "map" else "nothing is added to scores"
        elif len(f.grid) > 3:
            picture.missing[f.label] = "a map has one axis, two or three"
        elif len(f.grid) == 1:
            picture.charts[f.label] = _line(f, maps, scale)
        else:
            size = _SIZE // 2 if len(maps) > 1 or len(f.grid) == 3 else _SIZE
            charts = [_heat(f, values, name, scale, size) for name, values in maps]
            picture.charts[f.label] = altair.concat(*charts, columns=2) if len(charts) > 1 else charts[0]
    return picture


def score_map(all_facts: Sequence[Facts]) -> Picture:
    return _maps(
        "map",
        "Score by displacement",
        "The mean score of a query and itself as a key, by where the key lies from the query; of three axes slices"
        " along the first. White is 0.",
        all_facts,
        lambda f: None if f.equal is None else [("", _heads(f.equal))],
        altair.Scale(scheme=_DIVERGING, domain=[-1, 1]),
    )


def bias_map(all_facts: Sequence[Facts]) -> Picture:
    finite = [f.bias[numpy.isfinite(f.bias)] for f in all_facts if f.bias is not None]
    most = max((abs(values).max() for values in finite if values.size), default=1) or 1
    return _maps(
        "bias",
        "What is added to scores",
        f"By where the key lies from the query, in units of scale q . k; heads apart, the first {_MOST_HEADS}. Empty"
        " places are hidden from the query.",
        all_facts,
        lambda f: None if f.bias is None else [(f"head {h}", f.bias[h]) for h in range(min(_MOST_HEADS, len(f.bias)))],
        altair.Scale(scheme=_DIVERGING, domain=[-most, most]),
    )


def difference(all_facts: Sequence[Facts]) -> Picture:
    """Descriptions with the grid of the first one that turns something, less that one."""
    picture = Picture("difference", "Difference of scores", "")
    shown = [f for f in all_facts if f.equal is not None and len(f.grid) <= 3]
    if len(shown) < 2:
        return picture
    first, *others = shown
    off = {f.label: _heads(f.equal) - _heads(first.equal) for f in others if f.grid == first.grid}
    most = max((float(abs(values).max()) for values in off.values()), default=0) or 1.0
    text = f"The score by displacement less that of {first.label}, on one scale. White is no difference."
    scale = altair.Scale(scheme=_DIVERGING, domain=[-most, most])
    found = _maps("difference", picture.title, text, [f for f in others if f.label in off],
                  lambda f: [("", off[f.label])], scale)  # fmt: skip
    found.missing.update({f.label: "others are compared with it" if f is first else "its grid is another"
                          for f in all_facts if f.label not in found.charts})  # fmt: skip
    return found


# ---- what blocks do ----


def _wavelength_table(f: Facts) -> pandas.DataFrame | str:
    if f.phases is None:
        return "nothing turns"
    rows = [
        {"block": block, "axis": name, "wavelength": 2 * numpy.pi / abs(f.phases[0, block, axis])}
        for block in range(f.phases.shape[1])
        for axis, name in enumerate(f.axes)
        if f.phases[0, block, axis]
    ]
    return pandas.DataFrame(rows) if rows else "all phases are 0"


def wavelengths(all_facts: Sequence[Facts]) -> Picture:
    picture = Picture(
        "wavelengths",
        "Wavelengths",
        "Units of position after which a block has turned once, of the first head. The rule is the grid's extent: what"
        " lies above it never comes around inside the grid.",
    )
    tables = _tables(picture, all_facts, _wavelength_table)
    low, high = _range(tables, "wavelength")
    extents = {f.label: max(f.grid) for f in all_facts}
    least, most = min(low, *extents.values()), max(high, *extents.values())
    for label, table in tables.items():
        y = altair.Y("wavelength:Q", **_axis("units of position", least / 1.2, most * 1.2, "log"))
        rule = altair.Chart(pandas.DataFrame({"extent": [extents[label]]})).mark_rule(strokeDash=[6, 4])
        points = _kinds(table, altair.X("block:Q", title="block"), y, "axis", "block:Q",
                        _number("wavelength", "wavelength"), size=40, line=False, shape=_shape("axis"))  # fmt: skip
        picture.charts[label] = points + rule.encode(y="extent:Q")
    return picture


def _orbit_table(f: Facts) -> pandas.DataFrame | str:
    if f.orbits is None:
        return "nothing turns, or there are too many rotors to draw one"
    rows = []
    for axis, name in enumerate(f.axes):
        turns = abs(f.phases[0, :, axis]) * (f.grid[axis] - 1) / (2 * numpy.pi)
        block = int(abs(numpy.log(numpy.maximum(turns, 1e-9))).argmin())
        for step, at in enumerate(numpy.linspace(0, f.grid[axis] - 1, f.orbits.shape[1])):
            x, y = f.orbits[axis, step, 0, block, :2, 0]
            rows.append({"axis": name, "position": at, "channel 0": x, "channel 1": y})
    return pandas.DataFrame(rows)


def orbits(all_facts: Sequence[Facts]) -> Picture:
    picture = Picture(
        "orbits",
        "Orbits",
        "Where a block's first unit vector goes as the position moves through the grid along each axis: its first two"
        " channels, of the first head's block that comes nearest to one turn.",
    )
    for label, table in _tables(picture, all_facts, _orbit_table).items():
        most = max(1.05, *map(abs, _range({label: table}, "channel 0", "channel 1")))
        base = _chart(table).encode(
            x=altair.X("channel 0:Q", **_axis("channel 0", -most, most)),
            y=altair.Y("channel 1:Q", **_axis("channel 1", -most, most)),
            color=_colour("axis"),
        )
        tips = (_number(name, name) for name in ("position", "channel 0", "channel 1"))
        line = base.mark_line(opacity=0.4).encode(order="position:Q")
        picture.charts[label] = line + _points(base, "axis:N", *tips, size=25)
    return picture


def _commutator_table(f: Facts) -> pandas.DataFrame | str:
    if f.steps is None or len(f.axes) == 1:
        return "there is one axis" if len(f.axes) == 1 else "nothing turns"
    steps, rows = f.steps[:, 0], []
    for a, b in itertools.combinations(range(len(f.axes)), 2):
        off = steps[a] @ steps[b] - steps[b] @ steps[a]
        for block, size in enumerate(numpy.linalg.norm(off, axis=(1, 2))):
            rows.append({"axes": f"{f.axes[a]}, {f.axes[b]}", "block": block, "commutator": round(size, 15)})
    return pandas.DataFrame(rows)


def commutators(all_facts: Sequence[Facts]) -> Picture:
    picture = Picture(
        "commutators",
        "Do the axes commute?",
        "The Frobenius norm of R_a R_b - R_b R_a for one step along two axes, block by block of the first head: 0 where"
        " the order of the axes makes no difference.",
    )
    tables = _tables(picture, all_facts, _commutator_table)
    high = max(_range(tables, "commutator")[1] * 1.05, 0.1)
    for label, table in tables.items():
        y = altair.Y("commutator:Q", **_axis("norm", 0, high))
        picture.charts[label] = _kinds(table, altair.X("block:Q", title="block"), y, "axes", "block:Q",
                                       _number("commutator", "norm"), size=40, line=False)  # fmt: skip
    return picture


# ---- what scores depend on ----


def _change_table(f: Facts) -> pandas.DataFrame | str:
    """By distance, how far scores differ where they would not if the encoding knew nothing but the distance."""
    if f.equal is None:
        return _LEFT
    if max(f.grid) < 3:
        return "the grid has no distances to compare"
    values, distance = _heads(f.equal), f.distance
    span = (f.highest - f.lowest).mean(axis=0)
    rows = []
    for d in range(1, int(max(f.grid))):
        ring = abs(distance - d) <= 0.5
        twice = abs(distance - 2 * d) <= 0.5
        rows.append({"distance": d, "what": "all positions move", "change": span[ring].mean()})
        if len(f.grid) > 1:
            rows.append({"distance": d, "what": "directions differ", "change": numpy.ptp(values[ring])})
        if twice.any():
            change = abs(values[ring].mean() - values[twice].mean())
            rows.append({"distance": d, "what": "the scale doubles", "change": change})
    return pandas.DataFrame(rows)


def changes(all_facts: Sequence[Facts]) -> Picture:
    picture = Picture(
        "changes",
        "What changes a score",
        "How far scores of equal queries and keys at one distance differ when all positions move together (0:"
        " relative), between directions (0: isotropic), and from those at twice the distance.",
    )
    tables = _tables(picture, all_facts, _change_table)
    high = max(_range(tables, "change")[1] * 1.05, 0.1)
    for label, table in tables.items():
        y = altair.Y("change:Q", **_axis("difference of scores", 0, high))
        picture.charts[label] = _kinds(table, altair.X("distance:Q", title="distance"), y, "what", "distance:Q",
                                       _number("change", "difference"), size=40,
                                       shape=_shape("what", legend=None))  # fmt: skip
    return picture


def score_matrix(f: Facts) -> numpy.ndarray | None:
    """[tokens, tokens]: scores of equal queries and keys between tokens of the grid, every `f.stride`-th along each
    axis where it has more than 256; means over heads."""
    if f.tokens is not None:
        rows = f.tokens.reshape(len(f.tokens), -1)
        passed = f.data["block"]["leftover_channels"] * f.tokens.shape[1]
        return (rows @ rows.T + passed) / (f.data["head_dim"] * f.tokens.shape[1])
    if f.equal is None:
        return None
    at = tokens_of(f.grid)
    index = at[None] - at[:, None] + (numpy.array(f.grid) - 1)
    return _heads(f.equal)[tuple(numpy.moveaxis(index, -1, 0))]


def _spectrum_table(f: Facts) -> pandas.DataFrame | str:
    matrix = score_matrix(f)
    if matrix is None:
        return _LEFT
    symmetric = bool((abs(matrix - matrix.T) <= 1e-13).all())  # a fifth of the time
    values = numpy.sort(abs(numpy.linalg.eigvalsh(matrix)) if symmetric else
                        numpy.linalg.svd(matrix, compute_uv=False))[::-1]  # fmt: skip
    table = pandas.DataFrame({"rank": numpy.arange(1, len(values) + 1), "share": values / values.sum()})
    return table[table["share"] > _LEAST_SHARE]


def spectrum(all_facts: Sequence[Facts]) -> Picture:
    picture = Picture(
        "spectrum",
        "Spectrum of the scores",
        "Singular values of the matrix of scores between all tokens of the grid (of a large one between every second or"
        " third along each axis), as shares of their sum: the steeper they fall, the fewer places can be told apart.",
    )
    for label, table in _tables(picture, all_facts, _spectrum_table).items():
        x = altair.X("rank:Q", title="rank").scale(type="log", nice=False)
        y = altair.Y("share:Q", **_axis("share", _LEAST_SHARE, 1, "log"))
        picture.charts[label] = _kinds(table, x, y, None, "rank:Q", _number("share", "share"))
    return picture


PICTURES: dict[str, Callable[[Sequence[Facts]], Picture]] = {
    "decay": decay, "map": score_map, "difference": difference, "directions": directions, "bias": bias_map,
    "changes": changes, "wavelengths": wavelengths, "orbits": orbits, "commutators": commutators, "spectrum": spectrum,
}  # fmt: skip

OF_ROTORS = frozenset({"orbits", "commutators", "spectrum"})  # pictures that need them


def all_pictures(all_facts: Sequence[Facts], only: Iterable[str] = PICTURES) -> Iterable[Picture]:
    """Those that there is something to draw in."""
    for key in only:
        picture = PICTURES[key](all_facts)
        if picture.charts:
            yield picture
