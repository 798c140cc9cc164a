"""attention: with the encoding in it, its gradients (of q, k, v, operands, inputs and positions) and its tangents (of
q, k and v)."""
from __future__ import annotations

import functools
from typing import Any, NamedTuple, Sequence

import jax
from jax import numpy as jnp

from ..calls import gains_of_attention
from ..errors import ArgumentError
from ..kernel import Kernel
from .arguments import (
    Rest,
    asked,
    is_of_one_batch,
    is_zero,
    like,
    no_tangent,
    of_sums,
    prepared,
)
from .calls import Static, call
from .linear import linear


class _Choices(NamedTuple):
    """What of a call is no array."""

    static: Static
    causal: bool
    scale: float

    def call(self, entry: str, given: dict[str, Any], made: dict[str, Any]) -> dict[str, Any]:
        return call(self.static, entry, given, made, causal=self.causal, scale=self.scale)


def _run(choices: _Choices, rows: tuple[Any, ...], rest: Rest, with_lse: bool) -> dict[str, Any]:
    return choices.call("attention", _given(rows, (), rest), _results(choices.static, *rows, with_lse))


def _results(static: Static, q: Any, k: Any, v: Any, with_lse: bool) -> dict[str, Any]:
    made = {"out": like(q, v.shape[-1])}
    if with_lse:
        is_swapped = static.layout == "BNHD" and q.ndim == 4
        sizes = (q.shape[0], q.shape[2], q.shape[1]) if is_swapped else q.shape[:-1]
        made["lse"] = jax.ShapeDtypeStruct(sizes, jnp.float32)
    return made


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _attend(choices: _Choices, rows: tuple[Any, ...], rest: Rest) -> Any:
    return _run(choices, rows, rest, False)["out"]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _attend_with_lse(choices: _Choices, rows: tuple[Any, ...], rest: Rest) -> tuple[Any, ...]:
    made = _run(choices, rows, rest, True)
    return made["out"], made["lse"]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _back(moves: _Moves, gradients: dict[str, Any], rows: tuple[Any, ...], kept: tuple[Any, ...],
          rest: Rest) -> dict[str, Any]:  # fmt: skip
    """gradients: of out, and of lse where the loss looks at it, by their names in the call."""
    given = {**gradients, **_given(rows, kept, rest)}
    made = {f"grad.{name}": jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in zip("qkv", rows)
            if name in moves.names}  # fmt: skip
    made |= of_sums(moves.choices.static.kernel, rest, frozenset(moves.names))
    return moves.choices.call("attention_backward", given, made)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _forth(choices: _Choices, tangents: tuple[Any, ...], rows: tuple[Any, ...], kept: tuple[Any, ...],
           rest: Rest) -> tuple[Any, ...]:  # fmt: skip
    """What out and lse change by where q, k and v do by tangents."""
    static = choices.static
    static = static._replace(kernel=static.kernel.with_tangents())
    given = {**_given(rows, kept, rest), **{f"grad.{name}": x for name, x in zip("qkv", tangents)}}
    made = {f"grad.{name}": x for name, x in _results(static, *rows, True).items()}
    made = choices._replace(static=static).call("attention_tangent", given, made)
    return made["grad.out"], made["grad.lse"]


def _given(rows: tuple[Any, ...], kept: tuple[Any, ...], rest: Rest) -> dict[str, Any]:
    return {**dict(zip("qkv", rows)), **dict(zip(("out", "lse"), kept)), **rest.named()}


# ---- derivatives ----


class _Moves(NamedTuple):
    """Tangents of what is differentiated by ("q", "operand.0" and so on) to those of out and lse. Its residual is q, k
    and v, out and lse, and the rest: nothing of the scores' size."""

    choices: _Choices
    names: tuple[str, ...]

    @property
    def no_second(self) -> str:
        return f"{self.choices.static.kernel.name}: attention has no gradients of gradients"

    @property
    def takes_none(self) -> bool:
        return True

    def refuse(self, on_gpu: bool) -> None:
        of = f"attention of {self.choices.static.kernel.name}"
        if not set(self.names) <= set("qkv"):
            raise no_tangent(f"{of} at positions, operands or inputs")
        if on_gpu:
            raise no_tangent(f"{of} on GPUs")

    def like(self, residual: Any, given: Sequence[Any]) -> tuple[Any, ...]:
        return residual[1]

    def run(self, residual: Any, given: Sequence[Any]) -> tuple[Any, ...]:
        moved = dict(zip(self.names, given))
        tangents = [moved[name] if name in moved else jnp.zeros_like(x) for name, x in zip("qkv", residual[0])]
        return _forth(self.choices, tuple(tangents), *residual)

    def transposed(self, residual: Any, gradients: Sequence[Any]) -> tuple[Any, ...]:
        of_out, of_lse = gradients
        given = {"grad.out": jnp.zeros_like(residual[1][0]) if of_out is None else of_out}
        if of_lse is not None:
            given["grad.lse"] = of_lse
        made = _back(self, given, *residual)
        gains = residual[2].gradients(made).named() | {name: made.get(f"grad.{name}") for name in "qkv"}
        return tuple(gains[name] for name in self.names)


def _refuse_unknown(kernel: Kernel, names: Sequence[str]) -> None:
    gains = gains_of_attention(kernel)
    lacks = [what for name, what in asked(kernel).items() if name in names and name not in gains]
    if "q" not in gains:
        lacks.append("q, k and v require gradients")
    if lacks:
        raise ArgumentError(
            f"{lacks[0]}, which attention of {kernel.name} does not have yet; expected jax.lax.stop_gradient"
        )


def _tangents(choices: _Choices, given: Any, tangents: Any) -> tuple[Any, Any]:
    (rows, rest), (of_rows, of_rest) = given, tangents
    moved = {name: x for name, x in [*zip("qkv", of_rows), *of_rest.named().items()] if not is_zero(x)}
    _refuse_unknown(choices.static.kernel, tuple(moved))
    made = _attend_with_lse(choices, rows, rest)
    return made, linear(_Moves(choices, tuple(moved)), (rows, made, rest), tuple(moved.values()))


def _tangents_of_one(choices: _Choices, given: Any, tangents: Any) -> tuple[Any, Any]:
    made, moved = _tangents(choices, given, tangents)
    return made[0], moved[0]


def _no_second(of: _Moves | _Choices, *_: Any) -> Any:
    choices = of.choices if isinstance(of, _Moves) else of
    raise ArgumentError(_Moves(choices, ()).no_second)


_attend.defjvp(_tangents_of_one, symbolic_zeros=True)
_attend_with_lse.defjvp(_tangents, symbolic_zeros=True)
_back.defjvp(_no_second, symbolic_zeros=True)
_forth.defjvp(_no_second, symbolic_zeros=True)


# ---- what is called ----


def attention(kernel: Kernel, q: Any, k: Any, v: Any, positions: Any = None, *, k_positions: Any = None,
              operands: Any = None, inputs: Any = None, causal: bool = False, scale: float = 0.0,
              with_lse: bool = False, layout: str = "BHND", cu_seqlens: Any = None,
              k_cu_seqlens: Any = None) -> Any:  # fmt: skip
    """Attention with the encoding in it, as of `Kernel.attention`; under jit, vmap, shard_map and differentiation:
    reverse mode, and on processors forward mode by q, k and v. layout: of q, k, v and the result. Gradients are those
    that the kernel has: of q, k, v, operands, inputs and positions.

    cu_seqlens: [S+1] int32, sequences of different lengths whose rows follow each other: q [total,H,head_dim] has those
    of sequence i from cu_seqlens[i] to cu_seqlens[i+1], and so have k and v by k_cu_seqlens, which is cu_seqlens where
    it is left out. Positions are [total,P], inputs [total,H,size]. They are arrays like any other: one program serves
    all lengths with as many sequences and rows, and along vmap they may differ. Those that begin elsewhere than at 0,
    fall, or end elsewhere than with the rows are refused when the program runs, as JAX reports errors of its own. On
    processors.

    Returns [B,H,N,Dv]; with_lse: and ln of the sums of exp(score), [B,H,N] of float32 in either layout. Rows
    [N,H,head_dim] are one batch: [N,H,Dv] and [N,H] are returned, and inputs are [N,H,size]. Arrays are never
    written. Raises ArgumentError.
    """
    bounds = (cu_seqlens, k_cu_seqlens)
    names, rows, rest = prepared(
        kernel, "attention", {"q": q, "k": k, "v": v}, positions, k_positions, operands, inputs, layout, bounds
    )
    if len(rows) != 3:
        raise ArgumentError("q, k, v: one of them is None")
    is_flat = is_of_one_batch({"q": q, "k": k, "v": v}, bounds)
    choices = _Choices(Static(kernel, names, "BNHD" if is_flat else layout, False), bool(causal), float(scale))
    made = (_attend_with_lse if with_lse else _attend)(choices, rows, rest)
    if not is_flat:
        return made
    return (made[0][0], made[1][0].T) if with_lse else made[0]
