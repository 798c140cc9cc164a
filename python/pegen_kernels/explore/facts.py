"""What `pegen explain --format=json` tells of a description, with its arrays as NumPy's."""
from __future__ import annotations

import dataclasses
import itertools
import json
import math
import os
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

import numpy

from ..errors import ArgumentError, CompileError
from ..request import Ahead, Watch, request_of
from .words import Operands

DEFAULT_GRID = {1: (64,), 2: (14, 14), 3: (6, 6, 6), 4: (5, 5, 5, 5)}
_MOST_TOKENS = 1024  # as explain has it
_MOST_NUMBERS = 1 << 21  # of rotors, beyond which their pictures are left out
_ORBIT_STEPS = 49
_MOST_ROTORS = 256  # of tokens: of larger grids every second token's, third's ...


def array_of(data: Mapping[str, Any], member: str = "values") -> numpy.ndarray:
    """null, which is what hides a key, is minus infinity."""
    values = [-math.inf if x is None else x for x in data[member]]
    return numpy.array(values, dtype=float).reshape(data["shape"])


@dataclass(frozen=True)
class Facts:
    """A description with its options, and what holds of it.

    All arrays are float64; scores are those of a query and a key of length 1, displacements count from -(g - 1) to
    g - 1 along an axis of g tokens.
    """

    label: str
    data: dict[str, Any]  # all members of explain's JSON
    grid: tuple[int, ...]
    phases: numpy.ndarray | None  # [heads, blocks, axes], radians for the first unit of position
    equal: numpy.ndarray | None  # [heads, displacements...]: mean score of a query and itself as a key
    lowest: numpy.ndarray | None  # of the pairs of that displacement
    highest: numpy.ndarray | None
    random: numpy.ndarray | None  # [5, displacements...]: quantiles .05, .25, .5, .75, .95
    bias: numpy.ndarray | None  # [heads, displacements...], in units of scale q . k; -infinity hides the key
    # [tokens, heads, blocks, n, n]: rotors of every `stride`-th token along each axis, row-major; None, too, where
    # scores are proved to be functions of the displacement
    tokens: numpy.ndarray | None
    steps: numpy.ndarray | None  # [axes, heads, blocks, n, n]: rotors of the first unit of each axis
    orbits: numpy.ndarray | None  # [axes, ORBIT_STEPS, heads, blocks, n, n]: along each axis, through the grid
    warnings: tuple[str, ...] = ()  # with the file and line of each

    def of(self, head: int | None, block: int | None) -> Facts:
        """One head and one block alone, counted from 0 and up to the last one; None: all."""

        def one(values: numpy.ndarray | None, axis: int, index: int | None) -> numpy.ndarray | None:
            if values is None or index is None:
                return values
            at = min(index, values.shape[axis] - 1)
            return values.take([at], axis=axis)

        heads = {name: one(getattr(self, name), 0, head) for name in ("equal", "lowest", "highest", "bias")}
        return dataclasses.replace(
            self,
            **heads,
            phases=one(one(self.phases, 0, head), 1, block),
            steps=one(one(self.steps, 1, head), 2, block),
            orbits=one(one(self.orbits, 2, head), 3, block),
            tokens=one(self.tokens, 1, head),
        )

    @property
    def axes(self) -> list[str]:
        return [axis["name"] for axis in self.data["axes"]]

    @property
    def stride(self) -> int:
        """Between tokens along each axis, so that few enough are looked at where all pairs matter."""
        return _stride(self.grid)

    @property
    def displacements(self) -> list[numpy.ndarray]:
        """By axis, of every displacement: [displacements...]."""
        return numpy.meshgrid(*(numpy.arange(1 - g, g) for g in self.grid), indexing="ij")

    @property
    def distance(self) -> numpy.ndarray:
        return numpy.sqrt(sum(d.astype(float) ** 2 for d in self.displacements))

    @property
    def operands(self) -> dict[str, str]:
        """Where the values of each operand are from."""
        return {name: operand["from"] for name, operand in self.data["numbers"]["operands"].items()}


def _stride(grid: Sequence[int]) -> int:
    return next(step for step in itertools.count(1) if math.prod(-(-g // step) for g in grid) <= _MOST_ROTORS)


def run_explain(
    request: Any, label: str, words: Sequence[str] = (), watch: Watch | None = None, ahead: Ahead | None = None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The members of its JSON, and its warnings. Raises CompileError."""
    done = request.run("explain", "--format=json", *words, watch=watch, ahead=ahead)
    if done.returncode:
        raise CompileError(f"{label}: {(done.stderr or done.stdout).strip()}")
    return json.loads(done.stdout), tuple(done.stderr.splitlines())


def tokens_of(grid: Sequence[int]) -> numpy.ndarray:
    """[tokens, axes]: the positions that rotors of tokens are of."""
    places = (numpy.arange(0, g, _stride(grid)) for g in grid)
    return numpy.stack(numpy.meshgrid(*places, indexing="ij"), -1).reshape(-1, len(grid))


def _positions(grid: Sequence[int], with_tokens: bool) -> numpy.ndarray:
    """Units of the axes, steps through the grid along each, and its tokens."""
    units = numpy.eye(len(grid))
    orbits = [unit * at for unit, g in zip(units, grid) for at in numpy.linspace(0, g - 1, _ORBIT_STEPS)]
    tokens = tokens_of(grid)
    return numpy.concatenate([units, orbits, *([tokens] if with_tokens else [])])


def _places(data: dict[str, Any], grid: Sequence[int]) -> tuple[int, bool]:
    """How many rotors of units and orbits there are to tell, and whether those of tokens are: of large blocks none."""
    phases = data["numbers"].get("phases")
    if phases is None:
        return 0, False
    heads, blocks, axes = phases["shape"]
    size = heads * blocks * data["block"]["size"] ** 2
    few, tokens = axes * (1 + _ORBIT_STEPS), len(tokens_of(grid))
    if few * size > _MOST_NUMBERS:
        return 0, False
    relative = data["properties"]["translation_invariant"]
    proved = relative["holds"] == "yes" and relative["known"] == "proved"
    return few, data["role"] == "separable" and not proved and (few + tokens) * size <= _MOST_NUMBERS


def _rotors(numbers: dict[str, Any], few: int) -> dict[str, numpy.ndarray]:
    """What was told of the positions of `_positions`."""
    rotors = array_of(numbers.get("rotors") or numbers["rotors_of_displacements"])
    axes = few // (1 + _ORBIT_STEPS)
    parts = {"steps": rotors[:axes], "orbits": rotors[axes:few].reshape(axes, _ORBIT_STEPS, *rotors.shape[1:])}
    return parts | ({"tokens": rotors[few:]} if len(rotors) > few else {})


def _sizes(data: dict[str, Any]) -> list[Any]:
    """What decides which positions are asked for."""
    phases = data["numbers"].get("phases")
    return [data["role"], data["axes"] and [a.get("grid") for a in data["axes"]], phases and phases["shape"],
            data["block"]["size"], data["properties"]["translation_invariant"]["holds"]]  # fmt: skip


def _told(
    request: Any, name: str, words: Sequence[str], watch: Watch | None, ahead: Ahead | None, like: Facts | None
) -> tuple[dict[str, Any], tuple[str, ...]] | None:
    """None: `like` is not like it, after all."""
    try:
        data, warnings = run_explain(request, name, words, watch, ahead)
    except CompileError:
        if like is None:
            raise
        return None
    return None if like and _sizes(like.data) != _sizes(data) else (data, warnings)


def explain(
    spec: str | os.PathLike[str],
    *,
    grid: Sequence[int] | None = None,
    operands: Mapping[str, str | os.PathLike[str]] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    tensors: Mapping[str, str] | None = None,
    seed: int | None = None,
    label: str | None = None,
    defines: Mapping[str, Any] | None = None,
    like: Facts | None = None,
    rotors: bool = True,
    watch: Watch | None = None,
    ahead: Ahead | None = None,
    **options: Any,
) -> Facts:
    """grid: tokens along each axis; default: the description's own, or `DEFAULT_GRID`. operands: .npy files or
    checkpoints (.safetensors) by name. checkpoint: a file of safetensors that has all operands of `tensors`, which says
    what they are called there. Others are drawn as the description says, from `seed`. options: the description's own;
    those whose names are parameters of this function go into `defines`. like: what was told of the description with
    other options, which saves a look at its axes and sizes where these are still the same. rotors: those of tokens and
    along each axis, too; most of the time goes there. watch: is given each process
    of `pegen explain`, which it may end from another thread. ahead: has that process.

    Raises CompileError with the file and line of a mistake.
    """
    request = request_of(spec, {**(defines or {}), **options})
    files = {name: os.fspath(path) for name, path in (operands or {}).items()}
    kept = None if checkpoint is None else os.fspath(checkpoint)
    words = Operands(files, kept, dict(tensors or {}), seed).words()
    name = label or os.path.basename(os.fspath(spec)).removesuffix(".lua")
    # The axes and the size of what there is to ask for.
    data = like.data if like else run_explain(request, name, words, watch, ahead)[0]
    wanted = grid
    grid = grid or tuple(axis["grid"] for axis in data["axes"] if "grid" in axis) or DEFAULT_GRID.get(len(data["axes"]))
    if grid is None or math.prod(grid) > _MOST_TOKENS:
        raise ArgumentError(
            f"grid: {name} has {len(data['axes'])} axes; expected sizes of at most {_MOST_TOKENS} tokens"
        )
    grid = tuple(int(size) for size in grid)
    words.append(f"--grid={','.join(map(str, grid))}")
    few, with_tokens = _places(data, grid) if rotors else (0, False)
    if few and len(grid) == len(data["axes"]):  # explain refuses another grid
        words += [f"--at={','.join(map(repr, map(float, row)))}" for row in _positions(grid, with_tokens)]
    told = _told(request, name, words, watch, ahead, like)
    if told is None:
        return explain(spec, grid=wanted, operands=operands, checkpoint=checkpoint, tensors=tensors, seed=seed,
                       label=label, defines={**(defines or {}), **options}, rotors=rotors, watch=watch,
                       ahead=ahead)  # fmt: skip
    data, warnings = told
    scores = data["numbers"]["scores"]
    equal, random, bias = (scores.get(member) for member in ("equal", "random", "bias"))
    turned = _rotors(data["numbers"], few) if few else {}
    phases = data["numbers"].get("phases")
    return Facts(
        label=name,
        data=data,
        grid=grid,
        phases=phases and array_of(phases),
        equal=equal and array_of(equal),
        lowest=equal and array_of(equal, "lowest"),
        highest=equal and array_of(equal, "highest"),
        random=random and array_of(random),
        bias=bias and array_of(bias),
        tokens=turned.get("tokens"),
        steps=turned.get("steps"),
        orbits=turned.get("orbits"),
        warnings=warnings,
    )
