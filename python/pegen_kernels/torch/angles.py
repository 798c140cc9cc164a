"""What patched models have in place of cosines and sines, and the functions that rotate by it (models.py).

Angles refuse every operation but a rotation of pegen's, by name: a model that indexes, joins or permutes its cosines
fails where it does so, and computes nothing else without a word.
"""
from __future__ import annotations

import functools
import importlib
import threading
from typing import Any, Sequence

import torch
from torch import Tensor

from ..errors import ArgumentError
from . import rotary

_TOLERANCE = {torch.float32: 2.0**-16, torch.float16: 2.0**-9, torch.bfloat16: 2.0**-6}
"""Of rows in [-1, 1] that both turned; angles of the model's own code are float32."""


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
    """Positions and frequencies. of: the hook that made them; part: what they are in place of; own: the model's own
    tensor in a trial."""

    def __init__(self, of: Any, part: str, places: tuple[Tensor, Tensor], own: Tensor | None = None) -> None:
        self._of, self._part, self._places, self._own = of, part, places, own

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
        return Angles(self._of, self._part, places, None if self._own is None else self._own.to(device))

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


def _compare(own: Any, ours: Any, rows: Sequence[Tensor], angles: Sequence[Angles], rest: Any, named: Any) -> None:
    """Both ways on random rows of the shape and type of the model's."""
    rows = [torch.rand_like(x) * 2 - 1 for x in rows]
    expected = own(*(x.float() for x in rows), *(x._own.float() for x in angles), *rest, **named)
    found = ours(*rows, *angles, *rest, **named)
    pairs = [(expected, found)] if isinstance(expected, Tensor) else zip(expected, found)
    for y, x in pairs:
        error = float((x.double() - y.double()).abs().max()) if x.shape == y.shape else float("inf")
        if not error <= _TOLERANCE[x.dtype]:
            raise ArgumentError(f"it rotates q and k in a way that is not known (off by {error:.1e})")


def _rotated(name: str, q: Tensor, k: Tensor, places: tuple[Tensor, Tensor], dim: int) -> tuple[Tensor, Tensor]:
    if q.ndim == 3:  # [N,H,D]
        q, k = rotary.encode(name, q.transpose(0, 1)[None], k.transpose(0, 1)[None], *places)
        return q[0].transpose(0, 1), k[0].transpose(0, 1)
    if dim == 2:  # [B,N,H,D]
        q, k = rotary.encode(name, q.transpose(1, 2), k.transpose(1, 2), *places)
        return q.transpose(1, 2), k.transpose(1, 2)
    return rotary.encode(name, q, k, *places)


def _rotate_pair(q: Tensor, k: Tensor, cos: Angles, sin: Angles, unsqueeze_dim: int = 1) -> tuple[Tensor, Tensor]:
    if type(cos) is not Angles or type(sin) is not Angles:
        raise (cos if type(cos) is Angles else sin)._refused("a rotation by them and other numbers")
    if (cos._part, sin._part) != ("cosines", "sines") or cos._of is not sin._of:
        raise cos._refused("a rotation in which they are something else")
    name = cos._of.rule.kernel(q.shape[-1], **cos._of.options)
    return _rotated(name, q, k, cos._places, unsqueeze_dim)


def _rotate_one(x: Tensor, emb: Angles, half: bool = False) -> Tensor:
    positions, frequencies = emb._places
    heads, layout = frequencies.shape[1], "split" if half else "interleaved"
    name = rotary.kernel(x.shape[-1], 2 * frequencies.shape[-1], 2, heads, layout, 1.0, **emb._of.options)
    return rotary.encode_one(name, x, positions, frequencies)


def stand_in(module: str, name: str) -> None:
    """Replaces a function that rotates, a name in the module that calls it: by one that lets pegen rotate where it is
    given angles, and is the model's own everywhere else, as for models that are not patched. It stays for as long as
    the process lives."""
    names = vars(importlib.import_module(module))
    own = names[name]
    if hasattr(own, "_of_pegen"):
        return
    ours = _rotate_one if name == "apply_rot_embed_cat" else _rotate_pair
    n_rows = 1 if ours is _rotate_one else 2

    @functools.wraps(own)
    def rotation(*given: Any, **named: Any) -> Any:
        angles = [x for x in (*given, *named.values()) if type(x) is Angles]
        if not angles:
            if Trial.running is not None and Trial.running.thread == threading.get_ident():
                raise ArgumentError("what makes its angles is not known")
            return own(*given, **named)
        if angles[0]._own is not None:
            n = n_rows + len(angles)
            if any(type(x) is Angles for x in (*given[:n_rows], *given[n:])) or len(given) < n:
                raise angles[0]._refused("a rotation with other arguments")
            _compare(own, ours, given[:n_rows], given[n_rows:n], given[n:], named)
        return ours(*given, **named)

    rotation._of_pegen = own  # type: ignore[attr-defined]
    names[name] = rotation
