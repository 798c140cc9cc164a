"""What is called with: arrays that are checked, and put as calls take them."""
from __future__ import annotations

from typing import Any, NamedTuple

import jax
from jax import numpy as jnp

from ..arrays import code_of
from ..errors import ArgumentError
from ..kernel import Kernel, in_order
from .calls import BOUNDS, axes_of


class Rest(NamedTuple):
    """What is read beside rows."""

    positions: Any
    k_positions: Any
    operands: tuple[Any, ...]
    inputs: tuple[Any, ...]
    cu_seqlens: Any = None
    k_cu_seqlens: Any = None

    def named(self) -> dict[str, Any]:
        places = {name: getattr(self, name) for name in ("positions", "k_positions", *BOUNDS)}
        lists = {f"operand.{i}": x for i, x in enumerate(self.operands)}
        lists |= {f"input.{i}": x for i, x in enumerate(self.inputs)}
        return {name: x for name, x in places.items() if x is not None} | lists

    def gradients(self, made: dict[str, Any]) -> Rest:
        """Those that a call made, by their names, in the types of what they are of; None where there is none."""
        of = {name: made[f"grad.{name}"].astype(x.dtype) for name, x in self.named().items() if f"grad.{name}" in made}
        lists = [
            tuple(of.get(f"{kind}.{i}") for i in range(len(xs)))
            for kind, xs in (("operand", self.operands), ("input", self.inputs))
        ]
        return Rest(of.get("positions"), of.get("k_positions"), *lists)


def like(x: Any, width: int) -> Any:
    return jax.ShapeDtypeStruct((*x.shape[:-1], width), x.dtype)


def of_sums(kernel: Kernel, rest: Rest, names: frozenset[str]) -> dict[str, Any]:
    """Shapes and types of the gradients of those names: of sums over rows, and of inputs of tokens in their types."""
    own = {f"input.{i}" for i, info in enumerate(kernel.inputs) if not info.of_pairs}

    def type_of(name: str, x: Any) -> Any:
        return x.dtype if name in own or x.dtype == jnp.float64 else jnp.float32

    named = [(name, x) for name, x in rest.named().items() if name in names]
    return {f"grad.{name}": jax.ShapeDtypeStruct(x.shape, type_of(name, x)) for name, x in named}


# ---- what JAX says of gradients ----


def asked(kernel: Kernel) -> dict[str, str]:
    """What a loss can ask a gradient of beside rows, by its name in the call, in the words of a refusal."""
    of = {f"operand.{i}": f"operand '{info.name}' requires a gradient" for i, info in enumerate(kernel.operands)}
    of |= {f"input.{i}": f"input '{info.name}' requires a gradient" for i, info in enumerate(kernel.inputs)}
    return of | {name: f"{name} require a gradient" for name in ("positions", "k_positions")}


def is_zero(x: Any) -> bool:
    return isinstance(x, jax.custom_derivatives.SymbolicZero)


def dense(gradients: Any) -> tuple[Any, ...]:
    return tuple(jnp.zeros(x.shape, x.dtype) if is_zero(x) else x for x in gradients)


def no_tangent(what: str) -> ArgumentError:
    return ArgumentError(
        f"{what} has no forward-mode derivatives (jax.jvp, jacfwd, linearize, hessian); expected reverse mode"
        " (jax.vjp, jacrev, grad)"
    )


# ---- arguments ----


def _varying(tree: Any) -> Any:
    """All of its arrays varying along the axes along which one of them does, as calls inside shard_map demand. Done
    outside of what has a gradient, so that JAX itself sums that of what is the same on several devices."""
    axes = frozenset().union(*(axes_of(x) for x in jax.tree.leaves(tree)))

    def cast(x: Any) -> Any:
        missing = tuple(axes - axes_of(x))
        return jax.lax.pcast(x, missing, to="varying") if missing else x

    return jax.tree.map(cast, tree)


def _array(name: str, x: Any) -> Any:
    try:
        x = jnp.asarray(x)
    except (TypeError, ValueError) as e:
        raise ArgumentError(f"{name} is a {type(x).__name__}; expected an array") from e
    code_of(name, x.dtype)
    return x


def is_of_sequences(bounds: tuple[Any, Any]) -> bool:
    return any(x is not None for x in bounds)


def is_of_one_batch(rows: dict[str, Any], bounds: tuple[Any, Any]) -> bool:
    """Whether rows are [N,H,D], those of BNHD without its first dimension; not where they are of sequences."""
    return not is_of_sequences(bounds) and any(jnp.ndim(x) == 3 for x in rows.values() if x is not None)


def _bounds(rows: dict[str, Any], given: tuple[Any, Any]) -> list[Any]:
    """cu_seqlens and k_cu_seqlens; what they hold the kernel checks when it runs."""
    made = [None if x is None else _array(name, x) for name, x in zip(BOUNDS, given)]
    for name, x, seen in zip(BOUNDS, given, made):
        if seen is None:
            continue
        dtype = getattr(x, "dtype", seen.dtype)  # jnp.asarray makes int32 of int64
        if dtype != jnp.int32 or seen.ndim != 1 or not seen.size:
            raise ArgumentError(f"{name} is {dtype} {list(seen.shape)}; expected int32 [sequences + 1]")
        for field, of in rows.items():
            if of.ndim != 3:
                raise ArgumentError(f"{field} has {of.ndim} dimensions; expected [tokens, heads, channels], as {name}")
    of_q, of_k = made
    if of_k is not None and of_q is None and "q" in rows:
        raise ArgumentError("k_cu_seqlens: given without cu_seqlens; expected both")
    if of_q is not None and of_k is not None and of_q.size != of_k.size:
        raise ArgumentError(
            f"k_cu_seqlens is of {of_k.size - 1} sequences, and cu_seqlens of {of_q.size - 1}; expected as many"
        )
    return made


def _with_axis(kernel: Kernel, positions: Any) -> Any:
    """[N] or [B,N] of one axis as [N,1] or [B,N,1]; [x,1] is [N,1]."""
    is_bare = len(kernel.axes) == 1 and (positions.ndim == 1 or (positions.ndim == 2 and positions.shape[1] != 1))
    return positions[..., None] if is_bare else positions


def prepared(kernel: Kernel, entry: str, rows: dict[str, Any], positions: Any, k_positions: Any, operands: Any,
             inputs: Any, layout: str, bounds: tuple[Any, Any],
             ) -> tuple[tuple[str, ...], tuple[Any, ...], Rest]:  # fmt: skip
    if not isinstance(kernel, Kernel):
        raise ArgumentError(f"kernel is a {type(kernel).__name__}; expected what pegen_kernels.compile returned")
    if entry not in kernel.entries:
        raise ArgumentError(f"kernel: {kernel.name} has no entry '{entry}'; it has: {', '.join(kernel.entries)}")
    if layout not in ("BHND", "BNHD"):
        raise ArgumentError(f"layout is {layout!r}; expected 'BHND' or 'BNHD'")
    given = {name: _array(name, x) for name, x in rows.items() if x is not None}
    if not given:
        raise ArgumentError("q, k: neither was given")
    is_flat, seqlens = is_of_one_batch(given, bounds), _bounds(given, bounds)
    for name, x in given.items():
        if not is_of_sequences(bounds) and x.ndim != 4 - is_flat:
            raise ArgumentError(f"{name} has {x.ndim} dimensions; expected four, {layout}, or all of three, NHD")
    places = [None if x is None else _with_axis(kernel, _array(name, x)) for name, x in
              (("positions", positions), ("k_positions", k_positions))]  # fmt: skip
    lists = [
        tuple(_array(f"{what} '{info.name}'", x) for info, x in zip(infos, in_order(kernel.name, what, infos, of)))
        for what, infos, of in (("operand", kernel.operands, operands), ("input", kernel.inputs, inputs))
    ]
    lists[0] = tuple(x.reshape(o.shape) if o.is_shaped_as(x.shape) else x for o, x in zip(kernel.operands, lists[0]))
    if is_flat:
        given = {name: x[None] for name, x in given.items()}
        lists[1] = tuple(x.swapaxes(0, 1)[None] if x.ndim > 1 else x for x in lists[1])
    return tuple(given), *_varying((tuple(given.values()), Rest(*places, *lists, *seqlens)))
