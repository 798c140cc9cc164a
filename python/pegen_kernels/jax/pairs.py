"""attention: with the encoding in it, and its gradients: of q, k, v, operands, inputs and positions."""
from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
from jax import numpy as jnp

from ..calls import gains_of_attention
from ..errors import ArgumentError
from ..kernel import Kernel
from .arguments import (
    Rest,
    asked,
    dense,
    is_of_one_batch,
    is_perturbed,
    is_zero,
    like,
    never,
    no_tangents,
    of_sums,
    prepared,
    values,
)
from .calls import Static, call


class _Choices(NamedTuple):
    """What of a call is no array."""

    static: Static
    causal: bool
    scale: float

    def call(self, entry: str, given: dict[str, Any], made: dict[str, Any]) -> dict[str, Any]:
        return call(self.static, entry, given, made, causal=self.causal, scale=self.scale)


class _Wanted(NamedTuple):
    """Gradients that a loss asks for: of "q", "operand.0" and so on."""

    choices: _Choices
    names: frozenset[str]


@functools.partial(jax.tree_util.register_dataclass, data_fields=["rows", "made", "rest"], meta_fields=["wanted"])
class _Residual:
    """What backward needs of forward: q, k, v, out, lse, and nothing of the scores' size."""

    def __init__(self, rows: tuple[Any, ...], made: tuple[Any, ...], rest: Rest, wanted: _Wanted) -> None:
        self.rows, self.made, self.rest, self.wanted = rows, made, rest, wanted


def _run(choices: _Choices, rows: tuple[Any, ...], rest: Rest, with_lse: bool) -> tuple[Any, ...]:
    q, _, v = rows
    made = {"out": like(q, v.shape[-1])}
    if with_lse:
        is_swapped = choices.static.layout == "BNHD" and q.ndim == 4
        sizes = (q.shape[0], q.shape[2], q.shape[1]) if is_swapped else q.shape[:-1]
        made["lse"] = jax.ShapeDtypeStruct(sizes, jnp.float32)
    return tuple(choices.call("attention", {**dict(zip("qkv", rows)), **rest.named()}, made).values())


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(choices: _Choices, rows: tuple[Any, ...], rest: Rest) -> Any:
    return _run(choices, rows, rest, False)[0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend_with_lse(choices: _Choices, rows: tuple[Any, ...], rest: Rest) -> tuple[Any, ...]:
    return _run(choices, rows, rest, True)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _back(wanted: _Wanted, gradients: dict[str, Any], rows: tuple[Any, ...], kept: tuple[Any, ...],
          rest: Rest) -> dict[str, Any]:  # fmt: skip
    """gradients: of out, and of lse where the loss looks at it, by their names in the call."""
    given = {**gradients, **dict(zip("qkv", rows)), **dict(zip(("out", "lse"), kept)), **rest.named()}
    made = {f"grad.{name}": jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in zip("qkv", rows)
            if name in wanted.names}  # fmt: skip
    return wanted.choices.call(
        "attention_backward", given, made | of_sums(wanted.choices.static.kernel, rest, wanted.names)
    )


# ---- gradients ----


def _refuse_unknown(kernel: Kernel, names: frozenset[str]) -> None:
    gains = gains_of_attention(kernel)
    lacks = [what for name, what in asked(kernel).items() if name in names - gains]
    if "q" not in gains:
        lacks.append("q, k and v require gradients")
    if lacks:
        raise ArgumentError(
            f"{lacks[0]}, which attention of {kernel.name} does not have yet; expected jax.lax.stop_gradient"
        )


def _forward(choices: _Choices, rows: Any, rest: Any) -> tuple[Any, Any]:
    names = frozenset(name for name, x in [*zip("qkv", rows), *rest.named().items()] if is_perturbed(x))
    _refuse_unknown(choices.static.kernel, names)
    given, plain = values(rows), values(rest)
    made = _attend_with_lse(choices, given, plain)
    return made, _Residual(given, made, plain, _Wanted(choices, names))


def _forward_of_one(choices: _Choices, rows: Any, rest: Any) -> tuple[Any, Any]:
    made, residual = _forward(choices, rows, rest)
    return made[0], residual


def _backward(choices: _Choices, residual: _Residual, gradients: Any) -> tuple[Any, Any]:
    rest = residual.rest
    if all(is_zero(x) for x in gradients):
        return (None,) * 3, rest.gradients({})
    given = {"grad.out": dense(gradients[:1])[0]}
    if not is_zero(gradients[1]):
        given["grad.lse"] = gradients[1]
    made = _back(residual.wanted, given, residual.rows, residual.made, rest)
    return tuple(made.get(f"grad.{name}") for name in "qkv"), rest.gradients(made)


def _backward_of_one(choices: _Choices, residual: _Residual, gradient: Any) -> tuple[Any, Any]:
    lse = residual.made[1]
    return _backward(choices, residual, (gradient, jax.custom_derivatives.SymbolicZero(jax.typeof(lse))))


def _back_forward(wanted: _Wanted, *given: Any) -> tuple[Any, Any]:
    if is_perturbed(given):
        raise ArgumentError(f"{wanted.choices.static.kernel.name}: attention has no gradients of gradients")
    return _back(wanted, *values(given)), None


_attend.defvjp(_forward_of_one, _backward_of_one, symbolic_zeros=True)
_attend_with_lse.defvjp(_forward, _backward, symbolic_zeros=True)
_back.defvjp(_back_forward, never, symbolic_zeros=True)


# ---- what is called ----


def attention(kernel: Kernel, q: Any, k: Any, v: Any, positions: Any = None, *, k_positions: Any = None,
              operands: Any = None, inputs: Any = None, causal: bool = False, scale: float = 0.0,
              with_lse: bool = False, layout: str = "BHND", cu_seqlens: Any = None,
              k_cu_seqlens: Any = None) -> Any:  # fmt: skip
    """Attention with the encoding in it, as of `Kernel.attention`; under jit, vmap, shard_map and reverse-mode
    differentiation. layout: of q, k, v and the result. Gradients are those that the kernel has: of q, k, v, operands,
    inputs and positions.

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
    with no_tangents(f"attention of {kernel.name}"):
        made = (_attend_with_lse if with_lse else _attend)(choices, rows, rest)
    if not is_flat:
        return made
    return (made[0][0], made[1][0].T) if with_lse else made[0]
