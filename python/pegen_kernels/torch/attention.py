"""Operators of attention: `attention`, `attention_with_lse`, their gradient, `attention_backward`, and their forward
mode, `attention_tangent`.

What the gradient keeps of the forward pass are q, k, v, the output and the log-sum-exps of queries, [B,H,N] in float32:
nothing of the size of the scores. `attention_with_lse` hands these out, for attention over keys that come in pieces.
What a bias has of operands (slopes, tables of displacements, projections) is learned: they have gradients, too, and so
have inputs of the queries that it reads (PaPE), and positions. Tangents are those of q, k and v, on processors. With
cu_seqlens, sequences of different lengths follow each other: q, k and v are [total,H,D].
"""
from __future__ import annotations

import functools
from typing import Any, NamedTuple, Sequence

import torch
from torch import Tensor

from ..arrays import View, raw_view
from ..calls import gains_of_attention
from ..errors import ArgumentError
from ..kernel import Kernel
from . import extension
from .gradients import folded_positions, folded_rows, is_recorded, refuse_flat
from .names import kernel_of
from .operators import adjacent, define, gradient_of, library, operators, plain, result, stream_of
from .tangents import have_tangents, no_tangent, refuse_tangents


class _Choices(NamedTuple):
    """What is no tensor; n_operands of what follows positions are operands, the rest are inputs. wanted: bits, the
    operands and, behind them, the inputs and positions and k_positions whose gradients are."""

    n_operands: int
    causal: bool
    scale: float
    kernel: str
    wanted: int = 0
    bounds: tuple[Tensor | None, Tensor | None] = (None, None)


# ---- where they are not C ----

_SPLIT: dict[str, Any] = {"workspace": "attention_workspace", "finish": "attention_finish", "split_keys": 1}


def wanted_of(wanted: int, operands: Sequence[Any], inputs: Sequence[Any],
              places: Sequence[Any] = ()) -> list[tuple[str, Any]]:  # fmt: skip
    """Those whose bits are set, by their names in the call: "operand.0", "input.0", "positions"."""
    named = [(f"operand.{i}", x) for i, x in enumerate(operands)]
    named += [(f"input.{i}", x) for i, x in enumerate(inputs)]
    named += zip(("positions", "k_positions"), places)
    return [of for i, of in enumerate(named) if wanted >> i & 1]


def _call(entry: str, tensors: dict[str, Tensor | None], operands: Sequence[Tensor], inputs: Sequence[Tensor],
          causal: bool, scale: float, kernel: str | Kernel, workspace: str = "workspace",
          finish: str = "", threads: int = 1, **numbers: int) -> None:  # fmt: skip
    found = kernel_of(kernel) if isinstance(kernel, str) else kernel
    views = {name: raw_view(name, x) for name, x in tensors.items() if x is not None}
    for what, given, infos in (("operands", operands, found.operands), ("inputs", inputs, found.inputs)):
        if len(given) != len(infos):
            raise ArgumentError(f"{what}: {len(given)} given; {found.name} takes {len(infos)}")

    def listed(what: str, given: Sequence[Tensor], infos: Any) -> list[View]:
        return [raw_view(f"{what} '{info.name}'", x) for info, x in zip(infos, given)]

    found._call(entry, views, listed("operand", operands, found.operands), listed("input", inputs, found.inputs),
                {"causal": int(causal), "scale": scale, **numbers}, stream=stream_of(tensors["q"]),
                workspace=workspace, finish=finish, threads=threads)  # fmt: skip


def _attention_with_lse(q: Tensor, k: Tensor, v: Tensor, positions: Tensor | None, k_positions: Tensor | None,
                        operands: Sequence[Tensor], inputs: Sequence[Tensor], causal: bool, scale: float,
                        kernel: str, cu_seqlens: Tensor | None = None, k_cu_seqlens: Tensor | None = None,
                        with_lse: bool = True) -> Any:  # fmt: skip
    q, k, v = adjacent(q), adjacent(k), adjacent(v)
    out, lse = _fake_attention_with_lse(q, k, v)
    tensors = {"q": q, "k": k, "v": v, "out": out, "lse": lse if with_lse else None}
    tensors |= {"cu_seqlens": cu_seqlens, "k_cu_seqlens": k_cu_seqlens}
    splits = q.is_cuda and cu_seqlens is None and kernel_of(kernel).splits_keys
    _call("attention", {**tensors, "positions": positions, "k_positions": k_positions}, operands, inputs, causal, scale,
          kernel, **(_SPLIT if splits else {}))  # fmt: skip
    return out, lse


def _attention(*given: Any) -> Tensor:
    return _attention_with_lse(*given, with_lse=False)[0]


def _attention_backward(grad: Tensor, grad_lse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, out: Tensor,
                        lse: Tensor, positions: Tensor | None, k_positions: Tensor | None, operands: Sequence[Tensor],
                        inputs: Sequence[Tensor], causal: bool, scale: float, kernel: str,
                        wanted: int = 0, cu_seqlens: Tensor | None = None,
                        k_cu_seqlens: Tensor | None = None) -> list[Tensor]:  # fmt: skip
    q, k, v = adjacent(q), adjacent(k), adjacent(v)
    of_rest = wanted_of(wanted, operands, inputs, (positions, k_positions))
    made = _results_of_backward(q, k, v, of_rest, kernel)
    tensors = {"q": q, "k": k, "v": v, "out": adjacent(out), "lse": lse, "positions": positions}
    tensors |= {"k_positions": k_positions, "grad.out": adjacent(grad), "grad.lse": grad_lse}
    tensors |= {"cu_seqlens": cu_seqlens, "k_cu_seqlens": k_cu_seqlens}
    tensors |= {f"grad.{name}": x for name, x in zip((*"qkv", *(name for name, _ in of_rest)), made)}
    is_finished = bool(of_rest)
    _call("attention_backward", tensors, operands, inputs, causal, scale, kernel, "attention_backward_workspace",
          "attention_backward_finish" if is_finished else "")  # fmt: skip
    return made


def _attention_tangent(q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, of_q: Tensor, of_k: Tensor,
                       of_v: Tensor, positions: Tensor | None, k_positions: Tensor | None, operands: Sequence[Tensor],
                       inputs: Sequence[Tensor], causal: bool, scale: float, kernel: str,
                       cu_seqlens: Tensor | None = None,
                       k_cu_seqlens: Tensor | None = None) -> tuple[Tensor, Tensor]:  # fmt: skip
    q, k, v, out, *moved = map(adjacent, (q, k, v, out, of_q, of_k, of_v))
    made = _fake_attention_with_lse(q, k, v)
    tensors = {"q": q, "k": k, "v": v, "out": out, "lse": lse, "positions": positions, "k_positions": k_positions}
    tensors |= {"cu_seqlens": cu_seqlens, "k_cu_seqlens": k_cu_seqlens}
    tensors |= {f"grad.{name}": x for name, x in zip((*"qkv", "out", "lse"), (*moved, *made))}
    most = q.numel() * k.shape[-2 if k.ndim == 4 else 0] >> 18  # as the operators in C share work
    _call("attention_tangent", tensors, operands, inputs, causal, scale, kernel_of(kernel).with_tangents(),
          threads=max(1, min(most, torch.get_num_threads())))  # fmt: skip
    return made


def _fake_attention(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Tensor:
    return result(adjacent(q), v.shape[-1])


def _fake_attention_with_lse(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return _fake_attention(q, k, v), q.new_empty(q.shape[:-1], dtype=torch.float32)


def _results_of_backward(q: Tensor, k: Tensor, v: Tensor, of_rest: Sequence[tuple[str, Tensor]],
                         kernel: str) -> list[Tensor]:  # fmt: skip
    rows = [torch.empty_like(adjacent(x)) for x in (q, k, v)]
    own = {f"input.{i}" for i, info in enumerate(kernel_of(kernel).inputs) if not info.of_pairs}
    return rows + [x.new_empty(x.shape) if name in own else gradient_of(x) for name, x in of_rest]


def _fake_attention_backward(*given: Any, wanted: int = 0) -> list[Tensor]:
    wanted = given[14] if len(given) > 14 else wanted  # left out by programs of older versions
    return _results_of_backward(*given[2:5], wanted_of(wanted, given[9], given[10], given[7:9]), given[13])


_PLACES = (
    "Tensor? positions, Tensor? k_positions, Tensor[] operands, Tensor[] inputs, bool causal, float scale, str kernel"
)
_BOUNDS = "Tensor? cu_seqlens=None, Tensor? k_cu_seqlens=None"
define("attention", f"(Tensor q, Tensor k, Tensor v, {_PLACES}, {_BOUNDS}) -> Tensor", _attention, _fake_attention)
define(
    "attention_with_lse", f"(Tensor q, Tensor k, Tensor v, {_PLACES}, {_BOUNDS}) -> (Tensor, Tensor)",
    _attention_with_lse, _fake_attention_with_lse,
)  # fmt: skip
define(
    "attention_backward",
    "(Tensor grad, Tensor? grad_lse, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse,"
    f" {_PLACES}, int wanted=0, {_BOUNDS}) -> Tensor[]",
    _attention_backward, _fake_attention_backward,
)  # fmt: skip
define(
    "attention_tangent",
    "(Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, Tensor of_q, Tensor of_k, Tensor of_v,"
    f" {_PLACES}, {_BOUNDS}) -> (Tensor, Tensor)",
    _attention_tangent, _fake_attention_with_lse, ("CPU",),
)  # fmt: skip

# ---- gradients ----


@functools.lru_cache(maxsize=None)
def gaining(kernel: str) -> int:
    """Bits: the operands that have a gradient; -1: q, k and v have none either."""
    found = kernel_of(kernel)
    gains = gains_of_attention(found)
    return sum((f"operand.{i}" in gains) << i for i in range(len(found.operands))) if "q" in gains else -1


def _refuse(choices: _Choices, rest: Sequence[Tensor | None]) -> int:
    """Raises where what requires a gradient has none. rest: operands, inputs, positions, k_positions. Bits: those that
    require theirs."""
    found = kernel_of(choices.kernel)
    gains = gains_of_attention(found)
    says = [f"operand '{info.name}'" for info in found.operands] + [f"input '{info.name}'" for info in found.inputs]
    names = [f"operand.{i}" for i in range(len(found.operands))] + [f"input.{i}" for i in range(len(found.inputs))]
    given = zip((*says, "positions", "k_positions"), (*names, "positions", "k_positions"), rest)
    for what, name, x in given:
        if x is not None and x.requires_grad and name not in gains:
            raise ArgumentError(f"{what}: a gradient is required, which attention of {found.name} does not have yet;"
                                " expected it detached")  # fmt: skip
    if "q" not in gains:
        raise ArgumentError(f"q, k and v require gradients, which attention of {found.name} does not have yet;"
                            " expected torch.no_grad()")  # fmt: skip
    return sum((x is not None and x.requires_grad) << i for i, x in enumerate(rest))


def _attention_of(kernel: str) -> str:
    return f"attention of {kernel_of(kernel).name}"


def _no_second(kernel: str) -> ArgumentError:
    return ArgumentError(f"{kernel_of(kernel).name}: attention has no gradients of gradients")


def _folded(size: int, tensors: Sequence[Tensor | None], dims: Sequence[Any]) -> list[Tensor | None]:
    """Tensors whose first dimension is batches, vmap's and their own as one."""
    return [x if x is None else folded_rows(size, x, dim) for x, dim in zip(tensors, dims)]


def _unfolded(size: int, made: Sequence[Tensor]) -> Any:
    return tuple(x.unflatten(0, (size, -1)) for x in made), (0,) * len(made)


def _is_flat(x: Tensor, dim: Any) -> bool:
    """Samples [N,H,D] would follow each other as tokens of one batch."""
    return x.ndim - (dim is not None) == 3


def _each(function: Any, size: int, choices: _Choices, given: Sequence[Any], dims: Sequence[Any]) -> Any:
    """A call for each sample of vmap's."""
    each = [[x if d is None else x.select(d, i) for x, d in zip(given, dims)] for i in range(size)]
    made = [torch.stack(xs) for xs in zip(*(function.apply(choices, *xs) for xs in each))]
    return tuple(made), (0,) * len(made)


def _folded_places(size: int, choices: _Choices, batches: int, places: Sequence[Any], dims: Sequence[Any]) -> list[Any]:
    """positions, k_positions, operands and inputs."""
    n = choices.n_operands
    if any(dim is not None for dim in dims[2 : 2 + n]):
        raise ArgumentError("operands are of different values along vmap; expected the same for all of it")
    both = [folded_positions(size, batches, x, dim, choices.kernel) for x, dim in zip(places[:2], dims[:2])]
    return [*both, *places[2 : 2 + n], *_folded(size, places[2 + n :], dims[2 + n :])]


def _flat(choices: _Choices, places: Sequence[Any]) -> tuple[Any, ...]:
    """positions, k_positions, operands and inputs, as operators take them."""
    n = choices.n_operands
    return (*places[:2], places[2 : 2 + n], places[2 + n :], choices.causal, choices.scale, choices.kernel)


class _Backward(torch.autograd.Function):
    """choices, gradient of the output, of lse, q, k, v, out, lse, places."""

    @staticmethod
    def forward(choices: _Choices, *given: Any) -> Any:
        places = _flat(choices, given[7:])
        return tuple(plain("attention_backward")(*given[:7], *places, choices.wanted, *choices.bounds))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.kernel = inputs[0].kernel

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        raise _no_second(ctx.kernel)

    jvp = backward

    @staticmethod
    def vmap(info: Any, dims: Any, choices: _Choices, *given: Any) -> Any:
        size, dims = info.batch_size, dims[1:]
        if choices.wanted or _is_flat(given[2], dims[2]):
            return _each(_Backward, size, choices, given, dims)  # gradients of what all share differ from each to each
        rows = _folded(size, given[:7], dims[:7])
        places = _folded_places(size, choices, rows[2].shape[0] // size, given[7:], dims[7:])
        return _unfolded(size, _Backward.apply(choices, *rows, *places))


class _Tangent(torch.autograd.Function):
    """choices, q, k, v, out, lse, what q, k and v change by, places; what the output and lse change by."""

    @staticmethod
    def forward(choices: _Choices, *given: Any) -> Any:
        return plain("attention_tangent")(*given[:8], *_flat(choices, given[8:]), *choices.bounds)

    setup_context, backward, jvp = _Backward.setup_context, _Backward.backward, _Backward.jvp

    @staticmethod
    def vmap(info: Any, dims: Any, choices: _Choices, *given: Any) -> Any:
        size, dims = info.batch_size, dims[1:]
        if _is_flat(given[0], dims[0]):
            return _each(_Tangent, size, choices, given, dims)
        rows = _folded(size, given[:8], dims[:8])
        places = _folded_places(size, choices, rows[0].shape[0] // size, given[8:], dims[8:])
        return _unfolded(size, _Tangent.apply(choices, *rows, *places))


def _saved(ctx: Any) -> tuple[list[Tensor], list[Tensor | None]]:
    """q, k, v, out and lse; positions, k_positions, operands and inputs."""
    saved = ctx.saved_tensors  # once: checkpoints compute them anew
    rest = list(saved[5:])
    places = [rest.pop(0) if has else None for has in ctx.has]
    return saved[:5], places + rest


class _Function(torch.autograd.Function):
    """choices, q, k, v, places; the output and lse."""

    @staticmethod
    def forward(choices: _Choices, *given: Any) -> Any:
        return plain("attention_with_lse")(*given[:3], *_flat(choices, given[3:]), *choices.bounds)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        wanted = _refuse(inputs[0], (*inputs[6:], *inputs[4:6]))
        ctx.choices = inputs[0]._replace(wanted=wanted)
        ctx.set_materialize_grads(False)
        ctx.has = [x is not None for x in inputs[4:6]]
        kept = (*inputs[1:4], *output, *(x for x in inputs[4:] if x is not None))
        ctx.save_for_backward(*kept)
        ctx.save_for_forward(*kept)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_lse: Tensor | None) -> Any:
        kept, places = _saved(ctx)
        grad = torch.zeros_like(kept[3]) if grad is None else grad
        made = _call_backward(ctx.choices, grad, grad_lse, *kept, *places)
        of_rest, wanted, rest = iter(made[3:]), ctx.choices.wanted, (*places[2:], *places[:2])
        gains = [next(of_rest).to(x.dtype) if wanted >> i & 1 else None for i, x in enumerate(rest)]
        return (None, *made[:3], *gains[-2:], *gains[:-2])

    @staticmethod
    def jvp(ctx: Any, _: Any, *tangents: Any) -> Any:
        choices, (kept, places) = ctx.choices, _saved(ctx)
        who = _attention_of(choices.kernel)
        if kept[0].is_cuda:
            raise no_tangent(f"{who} on GPUs")
        if any(x is not None for x in tangents[3:]):
            raise no_tangent(f"{who} at positions, operands or inputs")
        moved = [x.new_zeros(x.shape[-1:]).expand(x.shape) if to is None else to for x, to in zip(kept, tangents[:3])]
        return _Tangent.apply(choices, *kept, *moved, *places)

    @staticmethod
    def vmap(info: Any, dims: Any, choices: _Choices, *given: Any) -> Any:
        size, dims = info.batch_size, dims[1:]
        refuse_flat(given[:3], dims[:3])
        rows = _folded(size, given[:3], dims[:3])
        places = _folded_places(size, choices, rows[0].shape[0] // size, given[3:], dims[3:])
        return _unfolded(size, _Function.apply(choices, *rows, *places))


_apply = super(torch.autograd.Function, _Function).apply


def _call_backward(choices: _Choices, *given: Any) -> Any:
    if have_tangents(given):
        raise _no_second(choices.kernel)
    try:
        if torch._C._are_functorch_transforms_active():
            return _Backward.apply(choices, *given)
        if is_recorded(given):
            raise _no_second(choices.kernel)
        places = _flat(choices, given[7:])
        return plain("attention_backward")(*given[:7], *places, choices.wanted, *choices.bounds)
    except RuntimeError as error:
        raise extension.own(error) from None


def _choices(operands: Sequence[Any], causal: bool, scale: float, kernel: str, wanted: int = 0,
             cu_seqlens: Any = None, k_cu_seqlens: Any = None) -> _Choices:  # fmt: skip
    """As the operators' arguments, of which programs of older versions leave the last ones out."""
    return _Choices(len(operands), causal, scale, kernel, wanted, (cu_seqlens, k_cu_seqlens))


def _run(name: str, q: Any, k: Any, v: Any, positions: Any, k_positions: Any, operands: Any, inputs: Any, causal: bool,
         scale: float, kernel: str, *bounds: Any) -> Any:  # fmt: skip
    """The kernel, inside a function of autograd's where a gradient is recorded."""
    tensors = (q, k, v, positions, k_positions, *operands, *inputs)
    is_transformed = torch._C._are_functorch_transforms_active()
    if not is_transformed and not is_recorded(tensors) and not have_tangents(tensors):
        return plain(name)(q, k, v, positions, k_positions, operands, inputs, causal, scale, kernel, *bounds)
    choices = _choices(operands, causal, scale, kernel, 0, *bounds)
    made = (_Function.apply if is_transformed else _apply)(choices, *tensors)
    return made if name == "attention_with_lse" else made[0]


def attend(name: str, *given: Any) -> Any:
    """`attention` or `attention_with_lse`, the shortest way; arguments as the operators'."""
    if torch.compiler.is_compiling() or torch._C._is_tracing():
        return operators[name](*given)
    try:
        return _run(name, *given)
    except (AttributeError, RuntimeError) as error:
        places = dict(zip(("positions", "k_positions"), given[3:5]))
        places |= dict(zip(("cu_seqlens", "k_cu_seqlens"), given[10:]))
        strange = extension.stranger(kernel_of(given[9]), dict(zip("qkv", given)), places, [*given[5], *given[6]])
        raise strange or extension.own(error) from None


def _implement(name: str) -> None:
    def autograd(*given: Any) -> Any:
        if torch._C._are_functorch_transforms_active():  # which cannot look into operators
            refuse_tangents(_attention_of(given[9]), (*given[:5], *given[5], *given[6]))
        return _run(name, *given)

    library.impl(name, autograd, "Autograd")


def _backward_operator(*given: Any) -> Any:
    operands, inputs, *rest = given[9:]
    return list(_call_backward(_choices(operands, *rest), *given[:9], *operands, *inputs))


def _tangent_operator(*given: Any) -> Any:
    operands, inputs, causal, scale, kernel, *bounds = given[10:]
    tensors = (*given[:10], *operands, *inputs)
    if have_tangents(tensors) or is_recorded(tensors):
        raise _no_second(kernel)
    return plain("attention_tangent")(*given)


for _name in ("attention", "attention_with_lse"):
    _implement(_name)
library.impl("attention_backward", _backward_operator, "Autograd")
library.impl("attention_tangent", _tangent_operator, "Autograd")
