"""Pictures of what explain measured: a chart for each description, on scales that all of them share."""
from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, Callable, Iterable, Sequence

import numpy

from .charts import DIVERGING, LEGEND, SIZE, Chart, Spec, Table
from .charts import axis, beside, colour, columns, kind, kinds, layers, number, part, points, tip
from .facts import Facts, tokens_of

_BANDS = 24  # of distances
_MOST_HEADS = 4  # whose biases are shown
_LEAST_SHARE = 1e-8  # of a singular value that is shown
_LEFT = "queries and keys are left as they are"


@dataclass(frozen=True)
class Picture:
    key: str
    title: str
    text: str  # what is to be seen
    charts: dict[str, Chart] = field(default_factory=dict)  # by the description's label
    missing: dict[str, str] = field(default_factory=dict)  # why a description has none


def _tables(picture: Picture, all_facts: Sequence[Facts], of: Callable) -> dict[str, Table]:
    """What each description has to show, by its label; of(facts): a table, or the words why there is none."""
    found = {f.label: of(f) for f in all_facts}
    picture.missing.update({label: table for label, table in found.items() if isinstance(table, str)})
    return {label: table for label, table in found.items() if not isinstance(table, str)}


def _range(tables: dict[str, Table], *names: str) -> tuple[float, float]:
    """The lowest and the highest number of these columns in all tables; 0 and 1 where there are none."""
    numbers = [n for table in tables.values() for name in names for n in table[name]]
    return min(numbers, default=0), max(numbers, default=1)


def _heads(values: numpy.ndarray) -> numpy.ndarray:
    return values.mean(axis=0)


# ---- by distance ----


def _by_distance(f: Facts, values: numpy.ndarray, low: numpy.ndarray, high: numpy.ndarray, what: str) -> list[Spec]:
    """Means, and the range of what lies in a band of distances."""
    distance, reach = f.distance.ravel(), f.distance.max()
    band = numpy.rint(distance) if reach <= _BANDS else numpy.rint(distance * _BANDS / reach)
    rows = []
    for b in numpy.unique(band):
        inside = band == b
        rows.append(
            {
                "distance": float(distance[inside].mean()),
                "score": float(values.ravel()[inside].mean()),
                "low": float(low.ravel()[inside].min()),
                "high": float(high.ravel()[inside].max()),
                "of": what,
            }
        )
    return rows


def _decay_table(f: Facts) -> Table | str:
    if f.equal is None:
        return _LEFT
    rows = _by_distance(f, _heads(f.equal), f.lowest.min(axis=0), f.highest.max(axis=0), "equal (all pairs)")
    if f.random is not None:
        rows += _by_distance(f, f.random[2], f.random[0], f.random[4], "random (5 to 95 %)")
    return columns(rows)


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
        base = {"x": axis("distance", "distance", 0, reach), "color": colour("of", ["#1f5fa8", "#e08214"])}
        band = {"y": axis("low", "score", low, high), "y2": {"field": "high"}}
        line = {**base, "y": number("score")}
        tips = (("distance", "distance"), ("score", "mean"), ("low", "low"), ("high", "high"))
        picture.charts[label] = layers(table, part("area", {**base, **band}, opacity=0.2), part("line", line),
                                       points(line, [kind("of"), *(tip(*words) for words in tips)]))  # fmt: skip
    return picture


def _direction_table(f: Facts) -> Table | str:
    if f.equal is None:
        return _LEFT
    values, rows = _heads(f.equal), []
    ways = [(name, [a == axis for a in range(len(f.grid))]) for axis, name in enumerate(f.axes)]
    if len(f.grid) > 1:
        ways.append(("diagonal", [True] * len(f.grid)))
    for name, moves in ways:
        for step in range(min(g for g, m in zip(f.grid, moves) if m)):
            at = tuple(g - 1 + step * m for g, m in zip(f.grid, moves))
            rows.append({"steps": step, "score": float(values[at]), "direction": name})
    return columns(rows)


def directions(all_facts: Sequence[Facts]) -> Picture:
    picture = Picture(
        "directions",
        "Decay by direction",
        "The score of equal queries and keys from the first token on, along each axis and along the diagonal.",
    )
    tables = _tables(picture, all_facts, _direction_table)
    low, reach = _range(tables, "score")[0], _range(tables, "steps")[1]
    for label, table in tables.items():
        x, y = axis("steps", "steps", 0, reach), axis("score", "score", min(low, 0), 1)
        tips = number("steps"), tip("score", "score")
        picture.charts[label] = kinds(table, x, y, "direction", *tips, dash="direction")
    return picture


# ---- maps ----


def _map_table(f: Facts, values: numpy.ndarray) -> tuple[Table, str, str, str | None]:
    """A map of the last two axes; of three axes, slices along the first, from no displacement on."""
    names = [f"{name} displacement" for name in f.axes]
    shown, places = values.astype(object), f.displacements
    shown[~numpy.isfinite(values)] = None
    chosen = numpy.full(values.shape, True)
    if len(names) == 3:
        chosen = (places[0] >= 0) & (places[0] % max(1, (f.grid[0] - 1) // 3) == 0)
    table = {name: place[chosen].tolist() for name, place in zip(names, places)} | {"score": shown[chosen].tolist()}
    return table, names[-1], names[-2], names[0] if len(names) == 3 else None


def _steps(name: str, values: list[int]) -> Spec:
    """An axis of displacements: all of them, those that are hidden too, and labels that do not touch."""
    found = sorted(set(values))
    every = max(1, len(found) // 9)
    labels = [d for d in found if d % every == 0]
    return {"field": name, "type": "ordinal", "axis": {"values": labels, "labelAngle": 0}, "scale": {"domain": found}}


def _heat(f: Facts, values: numpy.ndarray, title: str, scale: Spec, size: int) -> Chart:
    table, across, down, slices = _map_table(f, values)
    encoding = {
        "x": _steps(across, table[across]),
        "y": _steps(down, table[down]),
        "color": number("score", scale=scale) | {"title": None},
        "tooltip": [number(across), number(down), tip("score", "score")],
    }
    spec = {**part("rect", encoding), "width": size, "height": size}
    if slices:
        spec = {"facet": {"field": slices, "type": "ordinal"}, "spec": spec, "columns": 2}
    return Chart({"data": {"name": "table"}, **spec, **({"title": title} if title else {})}, {"table": table})


def _line(f: Facts, maps: Sequence[tuple[str, numpy.ndarray]], scale: Spec) -> Chart:
    """Along the one axis."""
    across = f"{f.axes[0]} displacement"
    rows = [
        {across: d, "score": float(value) if numpy.isfinite(value) else None, "of": name or "score"}
        for name, values in maps
        for d, value in zip(f.displacements[0].tolist(), values)
    ]
    y = number("score", "score", scale={"domain": scale["domain"]})
    return kinds(columns(rows), number(across), y, "of", number(across), tip("score", "score"))


def _maps(key: str, title: str, text: str, all_facts: Sequence[Facts], of: Callable, scale: Spec) -> Picture:
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
            size = SIZE // 2 if len(maps) > 1 or len(f.grid) == 3 else SIZE
            charts = [_heat(f, values, name, scale, size) for name, values in maps]
            picture.charts[f.label] = beside(charts, 2) if len(charts) > 1 else charts[0]
    return picture


def score_map(all_facts: Sequence[Facts]) -> Picture:
    return _maps(
        "map",
        "Score by displacement",
        "The mean score of a query and itself as a key, by where the key lies from the query; of three axes slices"
        " along the first. White is 0.",
        all_facts,
        lambda f: None if f.equal is None else [("", _heads(f.equal))],
        {"scheme": DIVERGING, "domain": [-1, 1]},
    )


def bias_map(all_facts: Sequence[Facts]) -> Picture:
    finite = [f.bias[numpy.isfinite(f.bias)] for f in all_facts if f.bias is not None]
    most = max((float(abs(values).max()) for values in finite if values.size), default=1) or 1
    return _maps(
        "bias",
        "What is added to scores",
        f"By where the key lies from the query, in units of scale q . k; heads apart, the first {_MOST_HEADS}. Empty"
        " places are hidden from the query.",
        all_facts,
        lambda f: None if f.bias is None else [(f"head {h}", f.bias[h]) for h in range(min(_MOST_HEADS, len(f.bias)))],
        {"scheme": DIVERGING, "domain": [-most, most]},
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
    scale = {"scheme": DIVERGING, "domain": [-most, most]}
    found = _maps("difference", picture.title, text, [f for f in others if f.label in off],
                  lambda f: [("", off[f.label])], scale)  # fmt: skip
    found.missing.update({f.label: "others are compared with it" if f is first else "its grid is another"
                          for f in all_facts if f.label not in found.charts})  # fmt: skip
    return found


# ---- what blocks do ----


def _wavelength_table(f: Facts) -> Table | str:
    if f.phases is None:
        return "nothing turns"
    rows = [
        {"block": block, "axis": name, "wavelength": float(2 * numpy.pi / abs(f.phases[0, block, axis]))}
        for block in range(f.phases.shape[1])
        for axis, name in enumerate(f.axes)
        if f.phases[0, block, axis]
    ]
    return columns(rows) if rows else "all phases are 0"


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
        y = axis("wavelength", "units of position", least / 1.2, most * 1.2, "log")
        tips = number("block"), tip("wavelength", "wavelength")
        of = kinds(table, number("block", "block"), y, "axis", *tips, size=40, line=False,
                   shape=kind("axis", legend=LEGEND))  # fmt: skip
        rule = {"data": {"name": "extent"}, **part("rule", {"y": number("extent")}, strokeDash=[6, 4])}
        inside = {key: of.spec[key] for key in ("data", "mark", "encoding")}
        picture.charts[label] = Chart({"width": SIZE, "height": SIZE, "layer": [inside, rule]},
                                      {**of.tables, "extent": {"extent": [extents[label]]}})  # fmt: skip
    return picture


def _orbit_table(f: Facts) -> Table | str:
    if f.orbits is None:
        return "nothing turns, or there are too many rotors to draw one"
    rows = []
    for axis, name in enumerate(f.axes):
        turns = abs(f.phases[0, :, axis]) * (f.grid[axis] - 1) / (2 * numpy.pi)
        block = int(abs(numpy.log(numpy.maximum(turns, 1e-9))).argmin())
        for step, at in enumerate(numpy.linspace(0, f.grid[axis] - 1, f.orbits.shape[1])):
            x, y = f.orbits[axis, step, 0, block, :2, 0].tolist()
            rows.append({"axis": name, "position": float(at), "channel 0": x, "channel 1": y})
    return columns(rows)


def orbits(all_facts: Sequence[Facts]) -> Picture:
    picture = Picture(
        "orbits",
        "Orbits",
        "Where a block's first unit vector goes as the position moves through the grid along each axis: its first two"
        " channels, of the first head's block that comes nearest to one turn.",
    )
    for label, table in _tables(picture, all_facts, _orbit_table).items():
        most = max(1.05, *map(abs, _range({label: table}, "channel 0", "channel 1")))
        base = {"x": axis("channel 0", "channel 0", -most, most), "y": axis("channel 1", "channel 1", -most, most),
                "color": colour("axis")}  # fmt: skip
        tips = [kind("axis"), *(tip(name, name) for name in ("position", "channel 0", "channel 1"))]
        line = part("line", {**base, "order": number("position")}, opacity=0.4)
        picture.charts[label] = layers(table, line, points(base, tips, size=25))
    return picture


def _commutator_table(f: Facts) -> Table | str:
    if f.steps is None or len(f.axes) == 1:
        return "there is one axis" if len(f.axes) == 1 else "nothing turns"
    steps, rows = f.steps[:, 0], []
    for a, b in itertools.combinations(range(len(f.axes)), 2):
        off = steps[a] @ steps[b] - steps[b] @ steps[a]
        for block, size in enumerate(numpy.linalg.norm(off, axis=(1, 2))):
            rows.append({"axes": f"{f.axes[a]}, {f.axes[b]}", "block": block, "commutator": round(float(size), 15)})
    return columns(rows)


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
        tips = number("block"), tip("commutator", "norm")
        picture.charts[label] = kinds(table, number("block", "block"), axis("commutator", "norm", 0, high), "axes",
                                      *tips, size=40, line=False)  # fmt: skip
    return picture


# ---- what scores depend on ----


def _change_table(f: Facts) -> Table | str:
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
        rows.append({"distance": d, "what": "all positions move", "change": float(span[ring].mean())})
        if len(f.grid) > 1:
            rows.append({"distance": d, "what": "directions differ", "change": float(numpy.ptp(values[ring]))})
        if twice.any():
            change = float(abs(values[ring].mean() - values[twice].mean()))
            rows.append({"distance": d, "what": "the scale doubles", "change": change})
    return columns(rows)


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
        y = axis("change", "difference of scores", 0, high)
        tips = number("distance"), tip("change", "difference")
        picture.charts[label] = kinds(table, number("distance", "distance"), y, "what", *tips, size=40,
                                      shape=kind("what", legend=None))  # fmt: skip
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


def _spectrum_table(f: Facts) -> Table | str:
    matrix = score_matrix(f)
    if matrix is None:
        return _LEFT
    symmetric = bool((abs(matrix - matrix.T) <= 1e-13).all())  # a fifth of the time
    values = numpy.sort(abs(numpy.linalg.eigvalsh(matrix)) if symmetric else
                        numpy.linalg.svd(matrix, compute_uv=False))[::-1]  # fmt: skip
    shares = [share for share in (values / values.sum()).tolist() if share > _LEAST_SHARE]
    return {"rank": list(range(1, len(shares) + 1)), "share": shares}


def spectrum(all_facts: Sequence[Facts]) -> Picture:
    picture = Picture(
        "spectrum",
        "Spectrum of the scores",
        "Singular values of the matrix of scores between all tokens of the grid (of a large one between every second or"
        " third along each axis), as shares of their sum: the steeper they fall, the fewer places can be told apart.",
    )
    for label, table in _tables(picture, all_facts, _spectrum_table).items():
        x = number("rank", "rank", scale={"type": "log", "nice": False})
        y = axis("share", "share", _LEAST_SHARE, 1, "log")
        picture.charts[label] = kinds(table, x, y, None, number("rank"), tip("share", "share"))
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
