"""q, k and v that one projection wrote side by side, encoded where they lie.

    qkv = self.qkv(x).view(batches, tokens, 3, heads, head_dim)
    q, k, v = encode_packed(encoding, qkv, positions).unbind(2)

No copy of q and k is made: what attention keeps for its own gradient is all that is kept. In a compiled graph it is
`encoding(q, k, positions)` and a stack of the results, whose memory its compiler plans.
"""
from __future__ import annotations

from typing import Any, Sequence

import torch
from torch import Tensor

from . import torch as _torch
from .arrays import raw_view
from .errors import ArgumentError
from .torch.tangents import refuse_tangents

_FROM_INPUT = 2  # PEGEN_GRAD_FROM_INPUT


def _rows(packed: Tensor) -> tuple[Tensor, Tensor]:
    return packed[:, :, 0].transpose(1, 2), packed[:, :, 1].transpose(1, 2)


def _views(rows: dict[str, Tensor], positions: Tensor | None) -> dict[str, Any]:
    views = {field: raw_view(field, x) for field, x in rows.items()}
    if positions is not None:
        views["positions"] = raw_view("positions", positions)
    return views


def _operands(found: Any, operands: Sequence[Tensor]) -> list[Any]:
    return [raw_view(f"operand '{info.name}'", x) for info, x in zip(found.operands, operands)]


def _encode(name: str, packed: Tensor, positions: Tensor | None, operands: Sequence[Tensor]) -> None:
    found, (q, k) = _torch.kernel_of(name), _rows(packed)
    views = _views({"q": q, "k": k, "q_out": q, "k_out": k}, positions)
    found._call("encode", views, _operands(found, operands), [], {})


class _InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, packed: Tensor, positions: Tensor | None, name: str, *operands: Tensor) -> Tensor:
        _encode(name, packed, positions, operands)
        ctx.mark_dirty(packed)
        ctx.name, ctx.learns = name, any(ctx.needs_input_grad[3:])
        ctx.save_for_backward(packed if ctx.learns else None, positions, *operands)
        return packed

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        packed, positions, *operands = ctx.saved_tensors
        found, gradient = _torch.kernel_of(ctx.name), gradient.contiguous()
        made = torch.empty_like(gradient)
        made[:, :, 2] = gradient[:, :, 2]
        rows = dict(zip(("grad.q_out", "grad.k_out", "grad.q", "grad.k"), (*_rows(gradient), *_rows(made))))
        finish, of_operands = "", []
        if ctx.learns:
            of_operands = [torch.empty(x.shape) for x in operands]
            rows |= {f"grad.operand.{i}": x for i, x in enumerate(of_operands)}
            rows |= dict(zip(("q", "k"), _rows(packed)))  # as they were written: gradients are of what was turned
            finish = "encode_backward_finish"
        found._call("encode_backward", _views(rows, positions), _operands(found, operands), [],
                    {"flags": 0} if ctx.learns else {}, workspace="encode_backward_workspace",
                    finish=finish)  # fmt: skip
        if not ctx.learns:
            return made, None, None, *(None for _ in operands)
        return made, None, None, *(
            x.to(operand.dtype) if needed else None
            for x, operand, needed in zip(of_operands, operands, ctx.needs_input_grad[3:])
        )  # fmt: skip


def _check_kinds(encoding: Any, packed: Any) -> None:
    if not isinstance(encoding, _torch.Encoding):
        raise ArgumentError(f"encoding is a {type(encoding).__name__}; expected a pegen_kernels.torch.Encoding")
    if not isinstance(packed, Tensor):
        raise ArgumentError(f"qkv is a {type(packed).__name__}; expected a torch.Tensor")


def _check(found: Any, packed: Tensor, positions: Tensor | None, operands: Sequence[Tensor]) -> None:
    if packed.ndim != 5 or packed.shape[2] != 3 or not packed.is_contiguous():
        raise ArgumentError(
            f"qkv has the shape {list(packed.shape)}; expected [batches, tokens, 3, heads, {found.head_dim}], adjacent"
        )
    if found.out_dim != found.head_dim:
        raise ArgumentError(f"qkv: {found.name} makes rows wider; expected an encoding that keeps their width")
    if packed.device.type != "cpu":
        raise ArgumentError(f"qkv is on {packed.device}; expected a tensor in the processor's memory")
    if not torch.is_grad_enabled():
        return
    learns = any(x.requires_grad for x in operands)
    if positions is not None and positions.requires_grad:
        raise ArgumentError("positions require a gradient; expected Encoding's own call")
    if (packed.requires_grad or learns) and "encode_backward" not in found.entries:
        raise ArgumentError(f"qkv requires a gradient, which {found.name} does not have yet; expected torch.no_grad()")
    if learns and packed.dtype != torch.float32:
        raise ArgumentError(f"qkv is of {packed.dtype}, and operands require gradients; expected torch.float32, since"
                            " what is kept is what was written")  # fmt: skip


def _planned(encoding: Any, packed: Tensor, positions: Tensor | None) -> Tensor:
    """Encoded rows in a compiled graph, in memory of their own: a gradient's function that writes its argument cannot
    be traced."""
    if packed.ndim != 5 or packed.shape[2] != 3:
        raise ArgumentError(f"qkv has {packed.ndim} dimensions; expected [batches, tokens, 3, heads, channels]")
    q, k = encoding(*_rows(packed), positions)
    return torch.stack([q.transpose(1, 2), k.transpose(1, 2), packed[:, :, 2]], 2)


def encode_packed(encoding: Any, qkv: Tensor, positions: Tensor | None = None) -> Tensor:
    """Encodes q and k of qkv in place, and returns it. encoding: a pegen_kernels.torch.Encoding; qkv: [B,N,3,H,D],
    adjacent, as a projection wrote it and nobody else keeps it; positions: as of Encoding. v is not touched. (Under
    torch.compile qkv is not, either: what is returned is another tensor.)"""
    if torch.compiler.is_compiling():
        return _planned(encoding, qkv, positions)
    _check_kinds(encoding, qkv)
    operands = list(encoding.parameters())
    _check(encoding.kernel, qkv, positions, operands)
    refuse_tangents(f"encode_packed of {encoding.kernel.name}", (qkv, positions, *operands))
    if torch.is_grad_enabled() and (qkv.requires_grad or any(x.requires_grad for x in operands)):
        return _InPlace.apply(qkv, positions, encoding.kernel_name, *operands)
    _encode(encoding.kernel_name, qkv, positions, operands)
    return qkv
