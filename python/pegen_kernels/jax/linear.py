"""Linear functions whose transpose is another kernel: forward mode runs them, reverse mode turns them around."""
from __future__ import annotations

import functools
from typing import Any, NamedTuple, Protocol, Sequence

import jax
from jax import numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from ..errors import ArgumentError


class Linear(Protocol):
    """Linear in `given`, of which `residual` says how; of values, so that JAX finds it among programs that it has."""

    @property
    def no_second(self) -> str:
        """A refusal of derivatives of derivatives."""

    @property
    def takes_none(self) -> bool:
        """Whether `transposed` takes None for the gradient of what no loss looks at."""

    def refuse(self, on_gpu: bool) -> None:
        """Raises where there is a transpose alone, there or at all: reverse mode never runs `run`."""

    def like(self, residual: Any, given: Sequence[Any]) -> tuple[Any, ...]:
        """Arrays of the types that `run` makes: what reverse mode traces."""

    def run(self, residual: Any, given: Sequence[Any]) -> tuple[Any, ...]:
        ...

    def transposed(self, residual: Any, gradients: Sequence[Any]) -> tuple[Any, ...]:
        """Gradients of all that is given."""


_linear = Primitive("pegen_linear")
_linear.multiple_results = True


def linear(of: Linear, residual: Any, given: Sequence[Any]) -> tuple[Any, ...]:
    leaves, tree = jax.tree.flatten(residual)
    return tuple(_linear.bind(*leaves, *given, of=of, tree=tree))


def _split(arrays: Sequence[Any], tree: Any) -> tuple[Any, Sequence[Any]]:
    n = tree.num_leaves
    return tree.unflatten(arrays[:n]), arrays[n:]


def _run_on(on_gpu: bool, *arrays: Any, of: Linear, tree: Any) -> list[Any]:
    of.refuse(on_gpu)
    return list(of.run(*_split(arrays, tree)))


def _run(*arrays: Any, of: Linear, tree: Any) -> list[Any]:
    platforms = {device.platform for x in arrays if isinstance(x, jax.Array) for device in x.devices()}
    return _run_on("gpu" in platforms, *arrays, of=of, tree=tree)


def _types(*types: Any, of: Linear, tree: Any) -> Any:
    return jax.make_jaxpr(lambda *arrays: list(of.like(*_split(arrays, tree))))(*types).out_avals


def _tangents(primals: Any, tangents: Any, *, of: Linear, tree: Any) -> tuple[Any, Any]:
    n = tree.num_leaves
    if any(not isinstance(x, ad.Zero) for x in tangents[:n]):
        raise ArgumentError(of.no_second)
    turned = [ad.instantiate_zeros(x) for x in tangents[n:]]
    bind = _linear.bind
    return bind(*primals, of=of, tree=tree), bind(*primals[:n], *turned, of=of, tree=tree)


def _transpose(gradients: Any, *arrays: Any, of: Linear, tree: Any) -> list[Any]:
    n = tree.num_leaves
    if all(isinstance(x, ad.Zero) for x in gradients):
        return [None] * len(arrays)
    wanted = [None if of.takes_none and isinstance(x, ad.Zero) else ad.instantiate_zeros(x) for x in gradients]
    made = of.transposed(tree.unflatten(arrays[:n]), wanted)
    return [None] * n + [y if ad.is_undefined_primal(x) else None for x, y in zip(arrays[n:], made)]


class _Batched(NamedTuple):
    """What vmap makes of one. Along which dimensions: of the residual's leaves; all that is given has its first."""

    of: Linear
    tree: Any
    dims: tuple[Any, ...]

    @property
    def no_second(self) -> str:
        return self.of.no_second

    @property
    def takes_none(self) -> bool:
        return self.of.takes_none

    def refuse(self, on_gpu: bool) -> None:
        self.of.refuse(on_gpu)

    def _each(self, run: Any, residual: Any, given: Sequence[Any]) -> tuple[Any, ...]:
        def one(leaves: Any, given: Any) -> Any:
            return run(self.tree.unflatten(leaves), given)

        return jax.vmap(one, (list(self.dims), 0))(residual, list(given))

    def like(self, residual: Any, given: Sequence[Any]) -> tuple[Any, ...]:
        return self._each(self.of.like, residual, given)

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


_linear.def_impl(_run)
_linear.def_abstract_eval(_types)
ad.primitive_jvps[_linear] = _tangents
ad.primitive_transposes[_linear] = _transpose
batching.primitive_batchers[_linear] = _batch
for _platform in (None, "cuda"):
    _lowered = mlir.lower_fun(functools.partial(_run_on, _platform == "cuda"), multiple_results=True)
    mlir.register_lowering(_linear, _lowered, platform=_platform)
