"""Running sums over tokens, as an operator: `torch.ops.pegen_kernels.scan`."""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..arrays import raw_view
from ..errors import ArgumentError
from ..scan import run, states_of
from .gradients import is_recorded
from .operators import library
from .tangents import below_autograd, no_tangent, refuse_tangents

_ALONE = 1 << 16  # elements that one thread sums sooner than others are started


def _adjacent(x: Tensor, rank: int) -> Tensor:
    """x with channels side by side, where it has all dimensions."""
    return x if x.ndim < rank or x.stride(-1) == 1 else x.contiguous()


def _results(x: Tensor, cu_seqlens: Tensor | None, wide: bool) -> tuple[Tensor, Tensor]:
    if x.ndim not in (3, 4):
        raise ArgumentError(
            f"x has {x.ndim} dimensions; expected [batches, heads, tokens, channels] or without channels"
        )
    states = states_of(tuple(x.shape), None if cu_seqlens is None else cu_seqlens.shape[0] - 1)
    out = torch.empty(x.shape, dtype=torch.float64 if wide else torch.float32, device=x.device)
    return out, torch.empty(states, dtype=torch.float64, device=x.device)


def _scan(x: Tensor, state: Tensor | None, cu_seqlens: Tensor | None, period: float, reverse: bool,
          wide: bool) -> tuple[Tensor, Tensor]:  # fmt: skip
    if x.is_cuda:  # sums are made on the host, in the order of the tokens, with the same bits there
        here = [y if y is None else y.cpu() for y in (x, state, cu_seqlens)]
        return tuple(y.to(x.device) for y in _scan(*here, period, reverse, wide))
    out, reached = _results(x, cu_seqlens, wide)
    given = {"x": _adjacent(x, 4), "state": state if state is None else _adjacent(state, 3), "cu_seqlens": cu_seqlens}
    views = {name: raw_view(name, tensor) for name, tensor in given.items() if tensor is not None}
    views |= {"out": raw_view("out", out), "state_out": raw_view("state_out", reached)}
    run(views, period, reverse, torch.get_num_threads() if x.numel() > _ALONE else 1)
    return out, reached


library.define(
    "scan(Tensor x, Tensor? state, Tensor? cu_seqlens, float period, bool reverse, bool wide) -> (Tensor, Tensor)",
    tags=(torch.Tag.pt2_compliant_tag,),
)
for _device in ("CPU", "CUDA"):
    library.impl("scan", _scan, _device)
torch.library.register_fake(
    "pegen_kernels::scan",
    lambda x, state, cu_seqlens, period, reverse, wide: _results(x, cu_seqlens, wide),
    lib=library,
)
_alone = below_autograd(torch.ops.pegen_kernels.scan.default)


class _Function(torch.autograd.Function):
    """The operator's arguments."""

    @staticmethod
    def forward(*given: Any) -> Any:
        return _alone(*given)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, state, cu_seqlens, _, ctx.reverse, _ = inputs
        ctx.x, ctx.state = x.dtype, state is not None
        ctx.save_for_backward(*() if cu_seqlens is None else (cu_seqlens,))

    @staticmethod
    def backward(ctx: Any, grad: Tensor, grad_state: Tensor) -> Any:
        bounds = next(iter(ctx.saved_tensors), None)
        gained, of_state = torch.ops.pegen_kernels.scan(
            grad, grad_state, bounds, 0.0, not ctx.reverse, ctx.x == torch.float64
        )
        return gained.to(ctx.x), of_state if ctx.state else None, None, None, None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise no_tangent("scan")


_apply = super(torch.autograd.Function, _Function).apply


def _differentiated(*given: Any) -> Any:
    refuse_tangents("scan", given[:2])
    return (_apply if is_recorded(given[:2]) else _alone)(*given)


library.impl("scan", _differentiated, "Autograd")


def scan(x: Tensor, state: Tensor | None = None, *, cu_seqlens: Tensor | None = None, period: float = 0.0,
         reverse: bool = False, dtype: torch.dtype | None = None, with_state: bool = False) -> Any:  # fmt: skip
    """pegen_kernels.scan with gradients of x and of state, of every order. dtype: torch.float32 or torch.float64."""
    if dtype not in (None, torch.float32, torch.float64):
        raise ArgumentError(f"dtype is {dtype}; expected torch.float32 or torch.float64")
    refuse_tangents("scan", (x, state))
    wide = (x.dtype if dtype is None else dtype) == torch.float64
    out, reached = torch.ops.pegen_kernels.scan(x, state, cu_seqlens, float(period), reverse, wide)
    return (out, reached) if with_state else out
