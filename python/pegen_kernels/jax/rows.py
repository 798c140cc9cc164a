"""encode: rows turned by their positions, its gradients (of q, k, operands and positions) and its tangents (of q and
k)."""
from __future__ import annotations

import functools
from typing import Any, NamedTuple, Sequence

import jax
from jax import numpy as jnp

from ..errors import ArgumentError
from ..kernel import Kernel
from .arguments import (
    Rest,
    asked,
    dense,
    is_of_one_batch,
    is_zero,
    like,
    no_tangent,
    of_sums,
    prepared,
)
from .calls import FROM_INPUT, Static, call
from .linear import linear


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _encode(static: Static, rows: tuple[Any, ...], rest: Rest) -> tuple[Any, ...]:
    given = dict(zip(static.names, rows))
    made = {f"{name}_out": like(x, static.kernel.width_of(x.dtype)) for name, x in given.items()}
    return tuple(call(static, "encode", {**given, **rest.named()}, made).values())


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _back(static: Static, gradients: tuple[Any, ...], rest: Rest) -> tuple[Any, ...]:
    """Gradients of rows: linear in those that come in, and encode is in turn its gradient."""
    given = {f"grad.{name}_out": x for name, x in zip(static.names, gradients)}
    made = {f"grad.{name}": like(x, static.kernel.head_dim) for name, x in zip(static.names, gradients)}
    return tuple(call(static, "encode_backward", {**given, **rest.named()}, made).values())


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _back_all(wanted: _Wanted, gradients: tuple[Any, ...], kept: tuple[Any, ...], rest: Rest) -> dict[str, Any]:
    """Gradients of rows, of all operands and of positions, in one pass."""
    static = wanted.static
    given = {f"grad.{name}_out": x for name, x in zip(static.names, gradients)} | dict(zip(static.names, kept))
    made = {f"grad.{name}": like(x, static.kernel.head_dim) for name, x in zip(static.names, gradients)}
    made |= of_sums(static.kernel, rest, wanted.names)
    return call(static, "encode_backward", {**given, **rest.named()}, made, flags=FROM_INPUT * wanted.from_input)


# ---- derivatives ----


def _no_second(static: Static) -> str:
    return f"{static.kernel.name}: derivatives of derivatives are there for q and k alone"


class _Wanted(NamedTuple):
    """What is differentiated by: "rows", "positions", "operand.0" and so on."""

    static: Static
    names: frozenset[str]
    from_input: bool


class _Turn(NamedTuple):
    """Tangents of rows, and of what else is differentiated by, to those of encoded rows."""

    wanted: _Wanted

    @property
    def no_second(self) -> str:
        return _no_second(self.wanted.static)

    @property
    def takes_none(self) -> bool:
        return False

    def refuse(self, on_gpu: bool) -> None:
        if not self.wanted.names <= {"rows"}:
            raise no_tangent(f"encode of {self.wanted.static.kernel.name} at positions, operands or inputs")

    def like(self, residual: Any, given: Sequence[Any]) -> tuple[Any, ...]:
        return self.run(residual, given)

    def run(self, residual: Any, given: Sequence[Any]) -> tuple[Any, ...]:
        static, (_, rest) = self.wanted.static, residual
        made = _encode(static, tuple(given[: len(static.names)]), rest)
        return tuple(_without_columns(static.kernel, x) for x in made)

    def transposed(self, residual: Any, gradients: Sequence[Any]) -> tuple[Any, ...]:
        static, names, _ = self.wanted
        kept, rest = residual
        if "encode_backward" not in static.kernel.entries:
            raise ArgumentError(
                f"q and k require gradients, which {static.kernel.name} does not have yet; expected"
                " jax.lax.stop_gradient of them"
            )
        if names <= {"rows"} and not static.kernel.needs_input:
            return _back(static, tuple(gradients), rest)
        made = _back_all(self.wanted, tuple(gradients), kept, rest)  # of columns nothing is kept
        others = [made[f"grad.{name}"].astype(x.dtype) for name, x in rest.named().items() if name in names]
        return (*(made[f"grad.{name}"] for name in static.names), *others)


class _TurnBack(NamedTuple):
    """Tangents of rows' gradients, which come in, to those of what _back makes of them."""

    static: Static

    @property
    def no_second(self) -> str:
        return _no_second(self.static)

    @property
    def takes_none(self) -> bool:
        return False

    def refuse(self, on_gpu: bool) -> None:
        pass

    def like(self, rest: Any, given: Sequence[Any]) -> tuple[Any, ...]:
        return self.run(rest, given)

    def run(self, rest: Any, given: Sequence[Any]) -> tuple[Any, ...]:
        return _back(self.static, tuple(given), rest)

    def transposed(self, rest: Any, gradients: Sequence[Any]) -> tuple[Any, ...]:
        return _Turn(_Wanted(self.static, frozenset(["rows"]), False)).run(((), rest), gradients)


def _without_columns(kernel: Kernel, x: Any) -> Any:
    """Columns that are appended do not depend on rows."""
    n = kernel.head_dim
    return x if kernel.out_dim == n else jnp.pad(x[..., :n], ((0, 0),) * (x.ndim - 1) + ((0, x.shape[-1] - n),))


def _refuse_unknown(kernel: Kernel, names: frozenset[str]) -> None:
    for name, what in asked(kernel).items():
        if name in names and "encode_backward_finish" not in kernel.entries:
            raise ArgumentError(f"{what}, which {kernel.name} does not have yet; expected jax.lax.stop_gradient of it")


def _encode_tangents(static: Static, given: Any, tangents: Any) -> tuple[Any, Any]:
    (rows, rest), (of_rows, of_rest) = given, tangents
    moved = {name: x for name, x in of_rest.named().items() if not is_zero(x)}
    names = frozenset(moved) | ({"rows"} if not all(map(is_zero, of_rows)) else frozenset())
    kernel = static.kernel
    _refuse_unknown(kernel, names)
    # Attention keeps what encode wrote in any case; rounded to 16 bits it is too coarse.
    widens = kernel.out_dim != kernel.head_dim
    from_input = widens or kernel.needs_input or rows[0].dtype != jnp.float32
    needs_rows = kernel.needs_input or (bool(moved) and not widens)
    if needs_rows and from_input:
        static = static._replace(in_place=False)
    out = _encode(static, rows, rest)
    kept = (rows if from_input else out) if needs_rows else ()
    turn = _Turn(_Wanted(static._replace(in_place=False), names, from_input))
    return out, linear(turn, (kept, rest), [*dense(of_rows), *moved.values()])


def _back_tangents(static: Static, given: Any, tangents: Any) -> tuple[Any, Any]:
    (gradients, rest), (of_gradients, of_rest) = given, tangents
    if not all(map(is_zero, of_rest.named().values())):
        raise ArgumentError(f"{static.kernel.name}: gradients of gradients are there for q and k alone")
    return _back(static, gradients, rest), linear(_TurnBack(static), rest, dense(of_gradients))


def _no_more_tangents(wanted: _Wanted, *_: Any) -> Any:
    raise ArgumentError(f"{wanted.static.kernel.name}: gradients of gradients are there for q and k alone")


_encode.defjvp(_encode_tangents, symbolic_zeros=True)
_back.defjvp(_back_tangents, symbolic_zeros=True)
_back_all.defjvp(_no_more_tangents, symbolic_zeros=True)


# ---- what is called ----


def encode(kernel: Kernel, q: Any = None, k: Any = None, positions: Any = None, *, k_positions: Any = None,
           operands: Any = None, inputs: Any = None, layout: str = "BHND", in_place: bool = False,
           cu_seqlens: Any = None, k_cu_seqlens: Any = None) -> Any:  # fmt: skip
    """Encodes q and k by their positions; under jit, vmap, shard_map and differentiation: reverse mode, and
    forward mode by q and k.

    q: [B,H,N,head_dim], k: [B,Hkv,M,head_dim] of float32, bfloat16 or float16 (layout "BNHD": [B,N,H,head_dim]); one of
    them may be left out; of one batch also [N,H,head_dim], in any layout. positions, k_positions, operands, inputs: as
    of `Kernel.encode`; operands and inputs have gradients.
    cu_seqlens, k_cu_seqlens: as of `attention`, of q [total,H,head_dim] and of k.
    in_place: the results take the memory of q and k where XLA has no more use for these (in a jitted model that is
    always; q and k that are still read, and arguments that are not donated, are copied first).

    Returns (q, k) encoded, or one array where only one was given. Arrays are never written. Raises ArgumentError.
    """
    bounds = (cu_seqlens, k_cu_seqlens)
    names, rows, rest = prepared(
        kernel, "encode", {"q": q, "k": k}, positions, k_positions, operands, inputs, layout, bounds
    )
    if in_place and kernel.out_dim != kernel.head_dim:
        raise ArgumentError(f"in_place: {kernel.name} appends columns to q and k; expected in_place=False")
    is_flat = is_of_one_batch({"q": q, "k": k}, bounds)
    out = _encode(Static(kernel, names, "BNHD" if is_flat else layout, in_place), rows, rest)
    out = tuple(x[0] for x in out) if is_flat else out
    return out[0] if len(out) == 1 else out
