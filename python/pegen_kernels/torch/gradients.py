"""Gradients and batches of the operators: for PyTorch's own autograd, for `torch.func`, and for what compiles graphs.

Gradients are those of q, k, operands, inputs and positions, of encodings whose kernels have them: what would need
others is refused when it is called.
"""
from __future__ import annotations

import functools
from typing import Any, Iterable, NamedTuple, Sequence

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.functional import pad

from .._native import NAMESPACE
from ..errors import ArgumentError
from . import extension
from .names import kernel_of
from .operators import OVERLOADS, library, operators, plain
from .tangents import have_tangents, no_tangent, refuse_tangents

_FORWARD = ("encode", "encode_one")

# ---- calls ----


def is_recorded(tensors: Iterable[Tensor | None]) -> bool:
    if torch.is_grad_enabled():
        for x in tensors:
            if x is not None and x.requires_grad:
                return True
    return False


def _encoding(kernel: str) -> str:
    return f"encode of {kernel_of(kernel).name}"


def _refuse_tangents_of_places(positions: Tensor | None, operands: Sequence[Tensor], kernel: str) -> None:
    if forward_ad._current_level >= 0:
        refuse_tangents(f"{_encoding(kernel)} at positions, operands or inputs", (positions, *operands))


def _apply(name: str, rows: Sequence[Tensor], positions: Tensor | None, operands: Sequence[Tensor], kernel: str) -> Any:
    """The kernel, inside a function of autograd's where a gradient is recorded, or a tangent follows."""
    _refuse_tangents_of_places(positions, operands, kernel)
    if is_recorded((*rows, positions, *operands)) or have_tangents(rows):
        return _appliers[name](*rows, positions, kernel, *operands)
    return plain(name)(*rows, positions, operands, kernel)


def call(name: str, rows: Sequence[Tensor], positions: Tensor | None, operands: Sequence[Tensor], kernel: str) -> Any:
    """The operator of that name, the shortest way."""
    if torch.compiler.is_compiling() or torch._C._is_tracing():
        return operators[name](*rows, positions, operands, kernel)
    try:
        if torch._C._are_functorch_transforms_active():  # which cannot look into operators
            _refuse_tangents_of_places(positions, operands, kernel)
            return _functions[name].apply(*rows, positions, kernel, *operands)
        return _apply(name, rows, positions, operands, kernel)
    except (AttributeError, RuntimeError) as error:
        strange = extension.stranger(kernel_of(kernel), dict(zip("qk", rows)), {"positions": positions}, operands)
        raise strange or extension.own(error) from None


def _call_all_backward(gradients: Sequence[Tensor], kept: Sequence[Tensor], positions: Tensor | None,
                       operands: Sequence[Tensor], *choices: Any) -> list[Tensor]:  # fmt: skip
    if torch._C._are_functorch_transforms_active():
        return list(_AllBackward.apply(len(gradients), choices, positions, *gradients, *kept, *operands))
    try:
        return _all_backward(gradients, kept, positions, operands, *choices)
    except RuntimeError as error:
        raise extension.own(error) from None


def _all_backward(gradients: Sequence[Tensor], kept: Sequence[Tensor], positions: Tensor | None,
                  operands: Sequence[Tensor], *choices: Any) -> list[Tensor]:  # fmt: skip
    tensors = (*gradients, *kept, positions, *operands)
    if forward_ad._current_level >= 0:
        refuse_tangents(_encoding(choices[-1]), tensors)
    if is_recorded(tensors):
        raise ArgumentError(f"{kernel_of(choices[-1]).name}: gradients of gradients are there for q and k alone")
    return plain("encode_all_backward")(gradients, kept, positions, operands, *choices)


# ---- gradients ----


class _Facts(NamedTuple):
    """What gradients ask of a kernel, once."""

    name: str
    infos: tuple[str, ...]  # operands, then inputs, as messages have them
    is_differentiable: bool
    has_all: bool
    widens: bool
    needs_input: bool


@functools.lru_cache(maxsize=None)
def _facts(kernel: str) -> _Facts:
    found = kernel_of(kernel)
    infos = *(f"operand '{x.name}'" for x in found.operands), *(f"input '{x.name}'" for x in found.inputs)
    entries = found.entries
    return _Facts(found.name, infos, "encode_backward" in entries, "encode_backward_finish" in entries,
                  found.out_dim != found.head_dim, found.needs_input)  # fmt: skip


def _refuse(facts: _Facts, operands: Sequence[Tensor], is_all: bool, is_forward: bool) -> None:
    """Gradients that the kernel does not have. is_all: not of rows alone."""
    wanted = next((info for info, x in zip(facts.infos, operands) if x.requires_grad), None)
    what = f"{wanted} requires a gradient" if wanted else "positions require a gradient"
    if not facts.is_differentiable:
        raise ArgumentError(f"{what if wanted else 'q and k require gradients'}, which {facts.name} does not have yet; "
                            "expected torch.no_grad()")  # fmt: skip
    if facts.widens and not is_forward:
        raise ArgumentError(f"{facts.name} appends columns to q and k, and has no gradients of gradients")
    if facts.needs_input and not is_forward:
        raise ArgumentError(f"{facts.name} maps channels before they turn, and has no gradients of gradients")
    if is_all and not facts.has_all:
        raise ArgumentError(f"{what}, which {facts.name} does not have yet; expected it detached")
    if is_all and not is_forward:
        raise ArgumentError(f"{what} of a gradient: {facts.name} has second derivatives of q and k alone")


def _keep(ctx: Any, rows: Sequence[Tensor], output: Any, positions: Tensor | None, operands: Sequence[Tensor],
          kernel: str, is_forward: bool) -> None:  # fmt: skip
    facts = _facts(kernel)
    ctx.with_positions = positions is not None and positions.requires_grad
    ctx.with_operands = any([x.requires_grad for x in operands])
    ctx.with_all = is_all = ctx.with_positions or ctx.with_operands or facts.needs_input
    if not (is_forward and facts.is_differentiable and (facts.has_all or not is_all)):
        _refuse(facts, operands, is_all, is_forward)
    kept: Sequence[Tensor] = ()
    if is_all:
        # What encode wrote is kept by the attention that follows in any case; rounded to 16 bits it is too coarse.
        ctx.from_input = facts.needs_input or rows[0].dtype != torch.float32
        if not facts.widens:
            kept = rows if ctx.from_input else output if isinstance(output, (tuple, list)) else (output,)
    ctx.has_positions = positions is not None
    places = [*([positions] if ctx.has_positions else []), *operands]
    ctx.save_for_backward(*kept, *places)
    ctx.save_for_forward(*places)
    ctx.kernel, ctx.n_kept, ctx.n_operands = kernel, len(kept), len(operands)


def _as(x: Tensor, like: Tensor) -> Tensor:
    return x if x.dtype == like.dtype else x.to(like.dtype)


def _gradients(backward: str, ctx: Any, gradients: Sequence[Tensor]) -> tuple[Any, Any, Any]:
    """Gradients of rows, of positions, and of operands. Where columns are appended nothing is kept: what stands in its
    place is not looked at."""
    saved, n = ctx.saved_tensors, ctx.n_kept
    positions = saved[n] if ctx.has_positions else None
    operands = saved[n + ctx.has_positions :]
    none = (None,) * ctx.n_operands
    if not ctx.with_all:
        made = call(backward, gradients, positions, operands, ctx.kernel)
        return made if len(gradients) == 2 else (made,), None, none
    choices = (ctx.from_input, ctx.with_operands, ctx.with_positions, ctx.kernel)
    made = _call_all_backward(gradients, saved[:n] or gradients, positions, operands, *choices)
    of_positions = _as(made.pop(), positions) if ctx.with_positions else None
    of_operands = map(_as, made[len(gradients) :], operands) if ctx.with_operands else none
    return made[: len(gradients)], of_positions, of_operands


def _tangents(forward: str, ctx: Any, tangents: Sequence[Tensor]) -> Any:
    """Tangents of what the operator writes, which is linear in rows but for columns that do not depend on them."""
    places, found = ctx.saved_tensors, kernel_of(ctx.kernel)
    made = call(forward, tangents, *((places[0], places[1:]) if ctx.has_positions else (None, places)), ctx.kernel)
    if found.out_dim == found.head_dim:
        return made
    made = (made,) if len(tangents) == 1 else made
    cut = tuple(pad(x[..., : found.head_dim], (0, x.shape[-1] - found.head_dim)) for x in made)
    return cut if len(cut) > 1 else cut[0]


# ---- batches of vmap ----


def folded_rows(size: int, x: Tensor, dim: int | None) -> Tensor:
    """[V, B, ...] as [V B, ...]; what has no V is repeated."""
    x = x.unsqueeze(0).expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
    return x.flatten(0, 1)


def refuse_flat(rows: Sequence[Tensor], dims: Sequence[Any]) -> None:
    """Samples [N,H,D] would follow each other as tokens of one batch."""
    for x, dim in zip(rows, dims):
        if x.ndim - (dim is not None) == 3:
            raise ArgumentError("q, k have three dimensions under vmap; expected [batches, heads, tokens, channels]")


def folded_positions(size: int, batches: int, x: Tensor | None, dim: int | None, kernel: str) -> Tensor | None:
    if x is None:
        return x
    shape = [n for i, n in enumerate(x.shape) if i != dim]
    if len(kernel_of(kernel).axes) == 1 and (len(shape) == 1 or (len(shape) == 2 and shape[1] != 1)):
        x = x.unsqueeze(-1)  # [N], [B,N]
    if dim is None and x.ndim == 2:
        return x
    x = x.unsqueeze(0).expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
    if x.ndim == 3:  # [V, N, P]
        x = x.unsqueeze(1).expand(size, batches, *x.shape[1:])
    return x.flatten(0, 1)


def _batch(name: str, size: int, rows: Sequence[Tensor], row_dims: Sequence[Any], positions: Any, positions_dim: Any,
           operands: Sequence[Tensor], operand_dims: Sequence[Any], kernel: str) -> Any:  # fmt: skip
    """The operator on all of vmap's batches at once, and the dimension that they have in what it returns."""
    if any(dim is not None for dim in operand_dims):
        raise ArgumentError("operands are of different values along vmap; expected the same for all of it")
    refuse_flat(rows, row_dims)
    folded = [folded_rows(size, x, dim) for x, dim in zip(rows, row_dims)]
    places = folded_positions(size, folded[0].shape[0] // size, positions, positions_dim, kernel)
    made = call(name, folded, places, operands, kernel)
    if len(rows) == 1:
        return made.unflatten(0, (size, -1)), 0
    return tuple(x.unflatten(0, (size, -1)) for x in made), (0,) * len(rows)


def _register_batch(name: str, n: int) -> None:
    def batch(info: Any, dims: Any, *given: Any) -> Any:
        *rows, positions, operands, kernel = given
        return _batch(name, info.batch_size, rows, dims[:n], positions, dims[n], operands, dims[n + 1], kernel)

    for overload in OVERLOADS:
        torch.library.register_vmap(f"{NAMESPACE}::{name}{overload}", batch, lib=library)


# ---- torch.func ----


def _each(size: int, positions: Any, tensors: Sequence[Any], dims: Sequence[Any], n: int, choices: Any) -> list[Tensor]:
    """encode_all_backward under vmap: gradients of what all samples share differ from sample to sample. tensors: n
    gradients, as many kept ones, operands; dims: those of positions, then of the tensors."""
    made = []
    for i in range(size):
        place, *xs = (x if d is None else x.select(d, i) for x, d in zip((positions, *tensors), dims))
        made.append(plain("encode_all_backward")(xs[:n], xs[n : 2 * n], place, xs[2 * n :], *choices))
    return [torch.stack(xs) for xs in zip(*made)]


def _each_operator(info: Any, dims: Any, *given: Any) -> Any:
    gradients, kept, positions, operands, *choices = given
    flat = [*gradients, *kept, *operands]
    out = _each(info.batch_size, positions, flat, [dims[2], *dims[0], *dims[1], *dims[3]], len(gradients), choices)
    return out, [0] * len(out)


for _overload in OVERLOADS:
    torch.library.register_vmap(f"{NAMESPACE}::encode_all_backward{_overload}", _each_operator, lib=library)


class _AllBackward(torch.autograd.Function):
    """encode_all_backward inside torch.func's transforms, which cannot look into operators."""

    @staticmethod
    def forward(n: int, choices: Any, positions: Any, *tensors: Tensor) -> Any:
        made = plain("encode_all_backward")(tensors[:n], tensors[n : 2 * n], positions, tensors[2 * n :], *choices)
        return tuple(made)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.kernel = inputs[1][-1]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        raise ArgumentError(f"{kernel_of(ctx.kernel).name}: gradients of gradients are there for q and k alone")

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise no_tangent(_encoding(ctx.kernel))

    @staticmethod
    def vmap(info: Any, dims: Any, n: int, choices: Any, positions: Any, *tensors: Tensor) -> Any:
        out = tuple(_each(info.batch_size, positions, tensors, dims[2:], n, choices))
        return out, (0,) * len(out)


def _function(forward: str, backward: str, n: int) -> Any:
    """The operator as torch.func.grad takes it, which cannot look into operators: rows, positions, kernel, operands."""

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(*given: Any) -> Any:
            return plain(forward)(*given[: n + 1], given[n + 2 :], given[n + 1])

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            _keep(ctx, inputs[:n], output, inputs[n], inputs[n + 2 :], inputs[n + 1], forward in _FORWARD)

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Any:
            rows, positions, operands = _gradients(backward, ctx, gradients)
            return (*rows, positions, None, *operands)

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Any:
            return _tangents(forward, ctx, tangents[:n])

        @staticmethod
        def vmap(info: Any, dims: Any, *given: Any) -> Any:
            rows, positions, kernel, operands = given[:n], given[n], given[n + 1], given[n + 2 :]
            return _batch(forward, info.batch_size, rows, dims[:n], positions, dims[n], operands, dims[n + 2 :], kernel)

    return Function


_functions: dict[str, Any] = {}
_appliers: dict[str, Any] = {}  # their `apply` without the part that is for torch.func
_PAIRS = (
    ("encode", "encode_backward", 2), ("encode_backward", "encode", 2),
    ("encode_one", "encode_one_backward", 1), ("encode_one_backward", "encode_one", 1),
)  # fmt: skip
for _forward, _back, _n in _PAIRS:
    _register_batch(_forward, _n)
    _functions[_forward] = _function(_forward, _back, _n)
    _appliers[_forward] = super(torch.autograd.Function, _functions[_forward]).apply


def _implement(name: str, n: int) -> None:
    """What autograd does where an operator is called directly or traced: graphs hold kernels, not operators."""

    def autograd(*given: Any) -> Any:
        if torch._C._are_functorch_transforms_active():  # which cannot look into operators
            refuse_tangents(_encoding(given[-1]), given[:n])
        return _apply(name, given[:n], *given[n:])

    library.impl(name, autograd, "Autograd")


for _forward, _, _n in _PAIRS:
    _implement(_forward, _n)
library.impl("encode_all_backward", _all_backward, "Autograd")
