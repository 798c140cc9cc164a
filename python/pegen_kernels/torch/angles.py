"""What patched models have in place of cosines and sines, and the functions that rotate by it (models.py).

Angles refuse every operation but a rotation of pegen's, by name: a model that indexes, joins or permutes its cosines
fails where it does so, and computes nothing else without a word.
"""
from __future__ import annotations

import functools
import importlib
import inspect
import itertools
import math
import threading
from typing import Any, Sequence, Tuple

import torch
from torch import Tensor

from ..errors import ArgumentError
from . import rotary

_TOLERANCE = {torch.float32: 2.0**-16, torch.float16: 2.0**-9, torch.bfloat16: 2.0**-6}
"""How far rows in [-1, 1] that both turned may differ; angles of the model's own code are float32."""


class _NoAttribute(ArgumentError, AttributeError):
    """So that hasattr says no."""


class Trial:
    """A run of the model in which own rotations and pegen's are compared."""

    running: Trial | None = None

    def __init__(self) -> None:
        self.path = ""  # of the attention that runs
        self.thread = threading.get_ident()  # others may run other models meanwhile

    def __enter__(self) -> None:
        Trial.running = self

    def __exit__(self, *error: Any) -> None:
        Trial.running = None


class Angles:
    """Positions and frequencies, or the model's own cosines and sines where the patch `gives_numbers`. of: the hook
    that made them; part: what they are in place of; own: the model's own tensor in a trial; rule: of frequencies that
    pairs of channels share with a module's."""

    def __init__(
        self, of: Any, part: str, places: tuple[Tensor, Tensor], own: Tensor | None = None, rule: Any = None
    ) -> None:
        self._of, self._part, self._places, self._own, self._rule = of, part, places, own, rule

    def _refused(self, what: str, kind: type[ArgumentError] = ArgumentError) -> ArgumentError:
        return kind(
            f"{self._of.path} was patched, and its {self._part} are there for rotations alone; the model asks them for"
            f" {what}. pegen_kernels.torch.unpatch(model) gives it its own code back"
        )

    def to(self, device: Any, *rest: Any, **named: Any) -> Angles:
        """On another device, where a model lies on several."""
        if not isinstance(device, (torch.device, str, int)):
            raise self._refused(f"to({device})")
        places = tuple(x.to(device) for x in self._places)
        own = None if self._own is None else self._own.to(device)
        return Angles(self._of, self._part, places, own, self._rule)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # of Python's protocols, or not yet set
            raise AttributeError(name)
        raise self._refused(name, _NoAttribute)

    @classmethod
    def __torch_function__(cls, function: Any, kinds: Any, given: Any = (), named: Any = None) -> Any:
        def found(x: Any) -> Any:
            return (
                x
                if type(x) is Angles
                else next(filter(None, map(found, x)), None)
                if type(x) in (list, tuple)
                else None
            )

        angles = found([*given, *(named or {}).values()])
        raise angles._refused(getattr(function, "__name__", str(function)))


def _refusing(name: str) -> Any:
    def method(self: Angles, *given: Any) -> Any:
        raise self._refused(name)

    return method


_UNARY = ("neg", "pos", "abs", "invert", "len", "iter", "next", "bool", "float", "int", "index", "complex", "array")
_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift")
_COMPARED = ("lt", "le", "gt", "ge", "getitem", "setitem", "contains")
for _name in (*_UNARY, *_COMPARED, *(f"{side}{name}" for name in _BINARY for side in ("", "r", "i"))):
    setattr(Angles, f"__{_name}__", _refusing(f"__{_name}__"))


# ---- functions that rotate ----

How = Tuple[str, bool, bool]
_FUSED: tuple[How, ...] = (("fused", False, False),)
_LIKE_MODEL: tuple[How, ...] = tuple(
    (products, side_by_side, widens)
    for widens, products, side_by_side in itertools.product((False, True), ("rounded", "float32"), (False, True))
)
"""What a patch that is to be like the model tries: the field `products` of a description, by which a model's own code
may round, whether the two cosines of a pair stand side by side, and whether 16-bit rows come back as float32."""

_LAYOUTS = ("split", "interleaved", "woven")
"""Which channels are a pair: (j, j + n/2), (2j, 2j+1), or the latter, which come back as the former."""


def _error(expected: Any, found: Any) -> float:
    """The largest, as a multiple of what rounding allows."""
    errors = [
        float((x.double() - y.double()).abs().max()) / _TOLERANCE[x.dtype] if x.shape == y.shape else math.inf
        for y, x in zip(_listed(expected), _listed(found))
    ]
    return math.inf if any(error != error for error in errors) else max(errors)


def _listed(made: Any) -> Sequence[Tensor]:
    return [made] if isinstance(made, Tensor) else made


def _compare(own: Any, ways: Sequence[Any], rows: Sequence[Tensor], angles: Sequence[Angles], rest: Any) -> Any:
    """The first of our ways that does to random rows, of the shape and type of the model's, what its own function does
    to them. rest: of its arguments, by position and by name."""
    rows = [torch.rand_like(x) * 2 - 1 for x in rows]
    if angles[0]._of.is_like_model:
        return _same(own, ways, rows, angles, rest)
    made = (x._own if x._own.is_complex() else x._own.float() for x in angles)
    expected = own(*(x.float() for x in rows), *made, *rest[0], **rest[1])
    least, refused = math.inf, None
    for way in ways:
        try:
            error = _error(expected, way(rows, angles))
        except ArgumentError as reason:  # rows are not as many as positions, or of no type that kernels have
            refused = reason
            continue
        if error <= 1:
            return way
        least = min(least, error)
    if refused and least == math.inf:
        raise refused
    raise ArgumentError(
        f"it rotates q and k in a way that is not known (off by {least * _TOLERANCE[rows[0].dtype]:.1e})"
    )


def _same(own: Any, ways: Sequence[Any], rows: Sequence[Tensor], angles: Sequence[Angles], rest: Any) -> Any:
    """As _compare, to the bit."""
    expected = _listed(own(*rows, *(x._own for x in angles), *rest[0], **rest[1]))
    for way in ways:
        try:
            found = _listed(way(rows, angles))
        except ArgumentError:  # rows are not as many as cosines
            continue
        if all(x.dtype == y.dtype and torch.equal(x, y) for x, y in zip(expected, found)):
            return way
    raise ArgumentError("like_model: it rotates q and k, or rounds them, in a way that is not known")


def _pairs_of(made: Tensor, rotary_dim: int, side_by_side: bool) -> Tensor:
    """A number for each pair of channels, [B,1,N,pairs], of a model's cosines or sines, which stand there once, twice
    in halves or twice side by side."""
    if made.shape[-1] == rotary_dim:
        made = made[..., ::2] if side_by_side else made[..., : rotary_dim // 2]
    return made.reshape(-1, 1, *made.shape[-2:])


def _turned(rows: Sequence[Tensor], numbers: tuple[Tensor, Tensor], layout: str, products: str, options: Any) -> Any:
    """Rows [B,H,N,D] by the model's own numbers [B,H,N,pairs]; tokens before the first that has some stay."""
    name = rotary.given_kernel(rows[0].shape[-1], 2 * numbers[0].shape[-1], layout, products, **options)
    before = rows[0].shape[2] - numbers[0].shape[2]
    if before < 0:
        raise ArgumentError("there are fewer tokens than cosines")
    made = rotary.turn(name, [x[:, :, before:] for x in rows], *numbers)
    return [torch.cat((x[:, :, :before], y), 2) for x, y in zip(rows, made)] if before else made


def _encoded(name: str, rows: Sequence[Tensor], places: tuple[Tensor, Tensor]) -> Sequence[Tensor]:
    if len(rows) > 1:
        return rotary.encode(name, rows[0], rows[1], *places)
    return (rotary.encode_one(name, rows[0], *places),)


def _with_prefix(places: tuple[Tensor, Tensor], tokens: int) -> tuple[Tensor, Tensor]:
    """Tokens before the first that has a position are at 0, where nothing turns."""
    more = tokens - places[0].shape[0]
    return torch.nn.functional.pad(places[0], (0, 0, more, 0)), places[1]


def _woven(x: Tensor, rotary_dim: int) -> Tensor:
    halves = x[..., :rotary_dim].unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)
    return torch.cat((halves, x[..., rotary_dim:]), -1)


class _Rotate:
    """A function of transformers that rotates rows of q and k, or of one of them, by cosines and sines or by complex
    numbers. Its layout, and where it says none the dimension of heads, a model's trial finds."""

    def __init__(self, module: str, name: str, own: Any) -> None:
        self.key, self.own = (module, name), own
        self.names = [*inspect.signature(own).parameters]

    def split(self, given: Sequence[Any], named: dict[str, Any]) -> tuple[Any, Any, Sequence[int]]:
        """Rows, angles, and the dimensions that may be that of heads."""
        n = next((i for i, x in enumerate(given) if type(x) is Angles), 0)
        of = next(x for x in (*given, *named.values()) if type(x) is Angles)
        end = n + (1 if of._part == "complex numbers" else 2)
        rows, angles, rest = given[:n], given[n:end], {**dict(zip(self.names[end:], given[end:])), **named}
        dims = (rest.pop("unsqueeze_dim", 1),) if "unsqueeze_dim" in self.names else (1, 2)
        if any(type(x) is not Angles for x in angles) or len(angles) < end - n:
            raise of._refused("a rotation by them and other numbers")
        is_sine_first = any(x.startswith("sin") for x in self.names[n : n + 1])
        order = ["sines", "cosines"] if is_sine_first else ["cosines", "sines"]
        if len(angles) > 1 and ([x._part for x in angles] != order or angles[1]._of is not of._of):
            raise of._refused("a rotation in which they are something else")
        if len(rows) not in (1, 2) or any(not isinstance(x, Tensor) for x in rows) or rest.pop("position_ids", None):
            raise of._refused("a rotation with other arguments")
        if rest:
            raise of._refused(f"a rotation with {next(iter(rest))}")
        return rows, angles, dims

    @staticmethod
    def rotated(rows: Sequence[Tensor], angles: Sequence[Angles], layout: str, dim: int, how: How) -> Sequence[Tensor]:
        rows = [x.float() for x in rows] if how[2] else rows
        rule, head_dim = angles[0]._rule, rows[0].shape[-1]
        if rule.rotary_dim > head_dim:
            raise angles[0]._refused(f"a rotation of {rule.rotary_dim} channels of {head_dim}")
        pairs, options, places = (
            "interleaved" if layout == "woven" else layout,
            angles[0]._of.kernel_options,
            angles[0]._places,
        )

        def encoded(rows: Sequence[Tensor]) -> Sequence[Tensor]:
            """Encodes [B,H,N,D]."""
            if angles[0]._of.gives_numbers:
                numbers = tuple(_pairs_of(x, rule.rotary_dim, how[1]) for x in places)
                return _turned(rows, numbers, pairs, how[0], options)
            at = _with_prefix(places, rows[0].shape[2]) if rule.has_prefix else places
            return _encoded(rule.kernel(head_dim, pairs, **options), rows, at)

        if rows[0].ndim == 3:  # [N,H,D]
            made = [x[0].transpose(0, 1) for x in encoded([x.transpose(0, 1)[None] for x in rows])]
        elif dim == 2:  # [B,N,H,D]
            made = [x.transpose(1, 2) for x in encoded([x.transpose(1, 2) for x in rows])]
        else:
            made = encoded(rows)
        return [_woven(x, rule.rotary_dim) for x in made] if layout == "woven" else made

    def __call__(self, *given: Any, **named: Any) -> Any:
        rows, angles, dims = self.split(given, named)
        layouts = angles[0]._of.layouts
        if angles[0]._own is not None:
            known = layouts.get(self.key)
            hows = _LIKE_MODEL if angles[0]._of.is_like_model else _FUSED
            tried = [x for x in itertools.product(_LAYOUTS, dims, hows) if known is None or x[0] == known[0]]
            ways = {functools.partial(self.rotated, layout=x[0], dim=x[1], how=x[2]): x for x in tried}
            rest = given[len(rows) + len(angles) :], named
            layouts[self.key] = ways[_compare(self.own, list(ways), rows, angles, rest)]
        if self.key not in layouts:
            raise angles[0]._refused("a rotation that did not run when it was patched")
        layout, dim, how = layouts[self.key]
        made = self.rotated(rows, angles, layout, dims[0] if len(dims) == 1 else dim, how)
        return made[0] if len(rows) == 1 else tuple(made)


class _RotateOne:
    """timm's function that rotates rows by sines and cosines that are one tensor."""

    def __init__(self, own: Any) -> None:
        self.own = own

    @staticmethod
    def rotated(rows: Sequence[Tensor], angles: Sequence[Angles], half: bool, how: How) -> Tensor:
        layout, options = "split" if half else "interleaved", angles[0]._of.kernel_options
        if angles[0]._of.is_like_model:
            (embed,) = angles[0]._places
            sines, cosines = embed.reshape(1, -1, *embed.shape[-2:]).tensor_split(2, -1)
            n = cosines.shape[-1] // 2
            numbers = tuple(x[..., ::2] if how[1] else x[..., :n] for x in (cosines, sines))
            return _turned(rows, numbers, layout, how[0], options)[0]
        positions, frequencies = angles[0]._places
        heads = frequencies.shape[1]
        name = rotary.kernel(rows[0].shape[-1], 2 * frequencies.shape[-1], 2, heads, layout, 1.0, **options)
        return rotary.encode_one(name, rows[0], positions, frequencies)

    def __call__(self, x: Tensor, emb: Angles, half: bool = False) -> Tensor:
        others = [y for y in (x, half) if type(y) is Angles]
        if others:
            raise others[0]._refused("a rotation with other arguments")
        if emb._own is not None:
            tried = _LIKE_MODEL if emb._of.is_like_model else _FUSED
            ways = {functools.partial(self.rotated, half=half, how=how): how for how in tried}
            found = ways[_compare(self.own, list(ways), [x], [emb], ((half,), {}))]
            emb._of.layouts[ROTATION_OF_IMAGES] = (half, 1, found)
        return self.rotated([x], [emb], half, emb._of.layouts[ROTATION_OF_IMAGES][2])


ROTATION_OF_IMAGES = "apply_rot_embed_cat"


def stand_in(module: str, name: str) -> None:
    """Replaces a function that rotates, a name in the module that calls it: by one that lets pegen rotate where it is
    given angles, and is the model's own everywhere else, as for models that are not patched. It stays for as long as
    the process lives."""
    names = vars(importlib.import_module(module))
    own = names[name]
    if hasattr(own, "_of_pegen"):
        return
    ours: Any = _RotateOne(own) if name == ROTATION_OF_IMAGES else _Rotate(module, name, own)

    @functools.wraps(own)
    def rotation(*given: Any, **named: Any) -> Any:
        if any(type(x) is Angles for x in (*given, *named.values())):
            return ours(*given, **named)
        if Trial.running is not None and Trial.running.thread == threading.get_ident():
            raise ArgumentError("what makes its angles is not known")
        return own(*given, **named)

    rotation._of_pegen = own  # type: ignore[attr-defined]
    names[name] = rotation
