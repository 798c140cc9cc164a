"""Linear functions whose transpose is another kernel: forward mode runs them, reverse mode turns them around."""
from __future__ import annotations

from typing import Any, NamedTuple, Protocol, Sequence

import jax
from jax import numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from ..errors import ArgumentError


class Linear(Protocol):
    """Linear in `given`, of which `residual` says how; of values, so that JAX finds it among programs that it has."""

    @property
    def name(self) -> str:
        """Who is differentiated, in the words of a refusal."""

    def refuse(self) -> None:
        """Raises where there is a transpose alone: reverse mode traces `run`, and never runs it."""

    def run(self, residual: Any, given: Sequence[Any]) -> tuple[Any, ...]:
        ...

    def transposed(self, residual: Any, gradients: Sequence[Any]) -> tuple[Any, ...]:
        """Gradients of all that is given."""


_linear = Primitive("pegen_linear")
_linear.multiple_results = True


def linear(of: Linear, residual: Any, given: Sequence[Any]) -> tuple[Any, ...]:
    leaves, tree = jax.tree.flatten(residual)
    return tuple(_linear.bind(*leaves, *given, of=of, tree=tree))


def _run(*arrays: Any, of: Linear, tree: Any) -> list[Any]:
    n = tree.num_leaves
    return list(of.run(tree.unflatten(arrays[:n]), arrays[n:]))


def _run_unless_refused(*arrays: Any, of: Linear, tree: Any) -> list[Any]:
    of.refuse()
    return _run(*arrays, of=of, tree=tree)


def _types(*types: Any, of: Linear, tree: Any) -> Any:
    return jax.make_jaxpr(lambda *arrays: _run(*arrays, of=of, tree=tree))(*types).out_avals


def _tangents(primals: Any, tangents: Any, *, of: Linear, tree: Any) -> tuple[Any, Any]:
    n = tree.num_leaves
    if any(not isinstance(x, ad.Zero) for x in tangents[:n]):
        raise ArgumentError(f"{of.name}: derivatives of derivatives are there for q and k alone")
    turned = [ad.instantiate_zeros(x) for x in tangents[n:]]
    bind = _linear.bind
    return bind(*primals, of=of, tree=tree), bind(*primals[:n], *turned, of=of, tree=tree)


def _transpose(gradients: Any, *arrays: Any, of: Linear, tree: Any) -> list[Any]:
    n = tree.num_leaves
    made = of.transposed(tree.unflatten(arrays[:n]), [ad.instantiate_zeros(x) for x in gradients])
    return [None] * n + [y if ad.is_undefined_primal(x) else None for x, y in zip(arrays[n:], made)]


class _Batched(NamedTuple):
    """What vmap makes of one. Along which dimensions: of the residual's leaves; all that is given has its first."""

    of: Linear
    tree: Any
    dims: tuple[Any, ...]

    @property
    def name(self) -> str:
        return self.of.name

    def refuse(self) -> None:
        self.of.refuse()

    def _each(self, run: Any, residual: Any, given: Sequence[Any]) -> tuple[Any, ...]:
        def one(leaves: Any, given: Any) -> Any:
            return run(self.tree.unflatten(leaves), given)

        return jax.vmap(one, (list(self.dims), 0))(residual, list(given))

    def run(self, residual: Any, given: Sequence[Any]) -> tuple[Any, ...]:
        return self._each(self.of.run, residual, given)

    def transposed(self, residual: Any, gradients: Sequence[Any]) -> tuple[Any, ...]:
        return self._each(self.of.transposed, residual, gradients)


def _batch(arrays: Any, dims: Any, *, of: Linear, tree: Any) -> tuple[Any, Any]:
    n = tree.num_leaves
    size = next(x.shape[dim] for x, dim in zip(arrays, dims) if dim is not None)

    def first(x: Any, dim: Any) -> Any:
        return jnp.broadcast_to(x, (size, *x.shape)) if dim is None else jnp.moveaxis(x, dim, 0)

    made = linear(_Batched(of, tree, tuple(dims[:n])), list(arrays[:n]), list(map(first, arrays[n:], dims[n:])))
    return made, (0,) * len(made)


_linear.def_impl(_run_unless_refused)
_linear.def_abstract_eval(_types)
ad.primitive_jvps[_linear] = _tangents
ad.primitive_transposes[_linear] = _transpose
batching.primitive_batchers[_linear] = _batch
mlir.register_lowering(_linear, mlir.lower_fun(_run_unless_refused, multiple_results=True))
