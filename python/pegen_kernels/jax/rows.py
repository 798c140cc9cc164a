"""encode: rows turned by their positions, and the gradients of that: of q, k, operands and positions."""
from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
from jax import numpy as jnp

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
from .calls import FROM_INPUT, Static, call


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _encode(static: Static, rows: tuple[Any, ...], rest: Rest) -> tuple[Any, ...]:
    given = dict(zip(static.names, rows))
    made = {f"{name}_out": like(x, static.kernel.width_of(x.dtype)) for name, x in given.items()}
    return tuple(call(static, "encode", {**given, **rest.named()}, made).values())


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _back(static: Static, gradients: tuple[Any, ...], rest: Rest) -> tuple[Any, ...]:
    """Gradients of rows: linear in those that come in, and encode is in turn its gradient."""
    given = {f"grad.{name}_out": x for name, x in zip(static.names, gradients)}
    made = {f"grad.{name}": like(x, static.kernel.head_dim) for name, x in zip(static.names, gradients)}
    return tuple(call(static, "encode_backward", {**given, **rest.named()}, made).values())


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _back_all(wanted: _Wanted, gradients: tuple[Any, ...], kept: tuple[Any, ...], rest: Rest) -> dict[str, Any]:
    """Gradients of rows, of all operands and of positions, in one pass."""
    static = wanted.static
    given = {f"grad.{name}_out": x for name, x in zip(static.names, gradients)} | dict(zip(static.names, kept))
    made = {f"grad.{name}": like(x, static.kernel.head_dim) for name, x in zip(static.names, gradients)}
    made |= of_sums(static.kernel, rest, wanted.names)
    return call(static, "encode_backward", {**given, **rest.named()}, made, flags=FROM_INPUT * wanted.from_input)


# ---- gradients ----


class _Wanted(NamedTuple):
    """Gradients that a loss asks for: of "rows", "positions", "operand.0" and so on."""

    static: Static
    names: frozenset[str]
    from_input: bool


@functools.partial(jax.tree_util.register_dataclass, data_fields=["kept", "rest"], meta_fields=["wanted"])
class _Residual:
    """What backward needs of forward."""

    def __init__(self, kept: tuple[Any, ...], rest: Rest, wanted: _Wanted) -> None:
        self.kept, self.rest, self.wanted = kept, rest, wanted


def _refuse_unknown(kernel: Kernel, names: frozenset[str], rest: Rest) -> None:
    for name, what in asked(kernel).items():
        if name in names and "encode_backward_finish" not in kernel.entries:
            raise ArgumentError(f"{what}, which {kernel.name} does not have yet; expected jax.lax.stop_gradient of it")
    if names and "encode_backward" not in kernel.entries:
        raise ArgumentError(
            f"q and k require gradients, which {kernel.name} does not have yet; expected jax.lax.stop_gradient of them"
        )


def _encode_forward(static: Static, rows: Any, rest: Any) -> tuple[Any, Any]:
    given, plain = values(rows), values(rest)
    names = frozenset(name for name, x in rest.named().items() if is_perturbed(x))
    if is_perturbed(rows):
        names |= {"rows"}
    _refuse_unknown(static.kernel, names, plain)
    kernel = static.kernel
    # Attention keeps what encode wrote in any case; rounded to 16 bits it is too coarse.
    widens = kernel.out_dim != kernel.head_dim
    from_input = widens or kernel.needs_input or given[0].dtype != jnp.float32
    needs_rows = bool(names) if kernel.needs_input else bool(names - {"rows"}) and not widens
    if needs_rows and from_input:
        static = static._replace(in_place=False)
    out = _encode(static, given, plain)
    kept = (given if from_input else out) if needs_rows else ()
    return out, _Residual(kept, plain, _Wanted(static._replace(in_place=False), names, from_input))


def _encode_backward(static: Static, residual: _Residual, gradients: Any) -> tuple[Any, Any]:
    wanted, rest = residual.wanted, residual.rest
    if all(is_zero(x) for x in gradients):
        return (None,) * len(gradients), rest.gradients({})
    if wanted.names <= {"rows"} and not wanted.static.kernel.needs_input:
        return _back(wanted.static, dense(gradients), rest), rest.gradients({})
    made = _back_all(wanted, dense(gradients), residual.kept, rest)  # of columns nothing is kept
    return tuple(made[f"grad.{name}"] for name in wanted.static.names), rest.gradients(made)


def _back_forward(static: Static, gradients: Any, rest: Any) -> tuple[Any, Any]:
    if is_perturbed(rest):
        raise ArgumentError(f"{static.kernel.name}: gradients of gradients are there for q and k alone")
    return _back(static, values(gradients), values(rest)), values(rest)


def _back_backward(static: Static, rest: Rest, gradients: Any) -> tuple[Any, Any]:
    if static.kernel.out_dim != static.kernel.head_dim:
        raise ArgumentError(f"{static.kernel.name} appends columns to q and k, and has no gradients of gradients")
    return _encode(static, dense(gradients), rest), rest.gradients({})


def _back_all_forward(wanted: _Wanted, *given: Any) -> tuple[Any, Any]:
    if is_perturbed(given):
        raise ArgumentError(f"{wanted.static.kernel.name}: gradients of gradients are there for q and k alone")
    return _back_all(wanted, *values(given)), None


_encode.defvjp(_encode_forward, _encode_backward, symbolic_zeros=True)
_back.defvjp(_back_forward, _back_backward, symbolic_zeros=True)
_back_all.defvjp(_back_all_forward, never, symbolic_zeros=True)


# ---- what is called ----


def encode(kernel: Kernel, q: Any = None, k: Any = None, positions: Any = None, *, k_positions: Any = None,
           operands: Any = None, inputs: Any = None, layout: str = "BHND", in_place: bool = False,
           cu_seqlens: Any = None, k_cu_seqlens: Any = None) -> Any:  # fmt: skip
    """Encodes q and k by their positions; under jit, vmap, shard_map and reverse-mode differentiation.

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
    with no_tangents(f"encode of {kernel.name}"):
        out = _encode(Static(kernel, names, "BNHD" if is_flat else layout, in_place), rows, rest)
    out = tuple(x[0] for x in out) if is_flat else out
    return out[0] if len(out) == 1 else out
