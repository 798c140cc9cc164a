"""The operators: `torch.ops.pegen_kernels.encode`, `encode_one`, `encode_backward` and so on, `attention`.

Each names its kernel by a text (names.py). They are C, where the PyTorch of this process has what that needs
(extension.py); the functions here are what runs elsewhere, and what says which results each has (fakes). Each
is there three times: as itself; as the overload `kernel`, where autograd does no more than refuse tangents; and as
`alone`, which autograd does not see. Attention's operators are in attention.py.
"""
from __future__ import annotations

from typing import Any, Sequence

import torch
from torch import Tensor

from .._native import NAMESPACE
from ..arrays import raw_view
from ..errors import ArgumentError
from . import extension
from .names import kernel_of
from .tangents import refusing

library = torch.library.Library(NAMESPACE, "DEF")
_FROM_INPUT = 2  # PEGEN_GRAD_FROM_INPUT


def adjacent(x: Tensor) -> Tensor:
    """x with channels side by side."""
    return x if x.stride(-1) == 1 else x.contiguous()


def result(x: Tensor, width: int) -> Tensor:
    """What an operator writes for the rows x: in the same order of memory."""
    return torch.empty_like(x) if x.shape[-1] == width else x.new_empty((*x.shape[:-1], width))


def stream_of(x: Tensor) -> int:
    return torch.cuda.current_stream(x.device).cuda_stream if x.is_cuda else 0


def _run(entry: str, name: str, rows: dict[str, Tensor], results: dict[str, Tensor], positions: Tensor | None,
         operands: Sequence[Tensor], width: int, workspace: str = "workspace") -> None:  # fmt: skip
    found = kernel_of(name)
    views = {field: raw_view(field, x) for field, x in {**rows, **results}.items()}
    for field, x in rows.items():
        if x.ndim not in (3, 4):
            raise ArgumentError(
                f"{field} has {x.ndim} dimensions; expected [batches, heads, tokens, channels]"
                " or [tokens, heads, channels]"
            )
        if x.shape[-1] != width:
            raise ArgumentError(f"{field} has {x.shape[-1]} channels; expected {width}")
    if positions is not None:
        views["positions"] = raw_view("positions", positions)
    infos = [*found.operands, *found.inputs]  # the schema has no list of inputs
    if len(operands) != len(infos):
        raise ArgumentError(f"operands: {len(operands)} given; {found.name} takes {len(infos)}")
    given = [raw_view(f"'{info.name}'", x) for info, x in zip(infos, operands)]
    n = len(found.operands)
    found._call(
        entry, views, given[:n], given[n:], {}, stream=stream_of(next(iter(rows.values()))), workspace=workspace
    )


def _encode(q: Tensor, k: Tensor, positions: Tensor | None, operands: Sequence[Tensor], kernel: str) -> Any:
    found, rows = kernel_of(kernel), {"q": adjacent(q), "k": adjacent(k)}
    out = {f"{field}_out": result(x, found.width_of(x.dtype)) for field, x in rows.items()}
    _run("encode", kernel, rows, out, positions, operands, found.head_dim)
    return tuple(out.values())


def _encode_one(x: Tensor, positions: Tensor | None, operands: Sequence[Tensor], kernel: str) -> Tensor:
    found, x = kernel_of(kernel), adjacent(x)
    out = result(x, found.width_of(x.dtype))
    _run("encode", kernel, {"q": x}, {"q_out": out}, positions, operands, found.head_dim)
    return out


def _backward(gradients: dict[str, Tensor], positions: Tensor | None, operands: Sequence[Tensor], kernel: str) -> Any:
    found = kernel_of(kernel)
    rows = {f"grad.{field}_out": adjacent(x) for field, x in gradients.items()}
    out = {field[:-4]: result(x, found.head_dim) for field, x in rows.items()}
    width = found.width_of(next(iter(rows.values())).dtype)
    _run("encode_backward", kernel, rows, out, positions, operands, width, "encode_backward_workspace")
    return tuple(out.values())


def _encode_backward(grad_q: Tensor, grad_k: Tensor, positions: Tensor | None, operands: Sequence[Tensor],
                     kernel: str) -> Any:  # fmt: skip
    return _backward({"q": grad_q, "k": grad_k}, positions, operands, kernel)


def _encode_one_backward(grad: Tensor, positions: Tensor | None, operands: Sequence[Tensor], kernel: str) -> Tensor:
    return _backward({"q": grad}, positions, operands, kernel)[0]


def gradient_of(x: Tensor) -> Tensor:
    """What a gradient of an operand or of positions is written to."""
    return torch.empty(x.shape, dtype=torch.float64 if x.dtype == torch.float64 else torch.float32, device=x.device)


def _results_of_all(gradients: Sequence[Tensor], positions: Tensor | None, operands: Sequence[Tensor],
                    with_operands: bool, with_positions: bool, kernel: str) -> dict[str, Tensor]:  # fmt: skip
    width = kernel_of(kernel).head_dim
    made = {f"grad.{field}": result(adjacent(x), width) for field, x in zip("qk", gradients)}
    if with_operands:
        n = len(kernel_of(kernel).operands)
        made |= {f"grad.operand.{i}": gradient_of(x) for i, x in enumerate(operands[:n])}
        made |= {f"grad.input.{i}": x.new_empty(x.shape) for i, x in enumerate(operands[n:])}
    if with_positions and positions is not None:
        made["grad.positions"] = gradient_of(positions)
    return made


def _encode_all_backward(gradients: Sequence[Tensor], kept: Sequence[Tensor], positions: Tensor | None,
                         operands: Sequence[Tensor], from_input: bool, with_operands: bool, with_positions: bool,
                         kernel: str) -> list[Tensor]:  # fmt: skip
    """Gradients of rows, then of all operands and inputs, then of positions, in one pass over the rows. kept: what
    encode wrote, or what it read."""
    found = kernel_of(kernel)
    made = _results_of_all(gradients, positions, operands, with_operands, with_positions, kernel)
    given = {f"grad.{field}_out": adjacent(x) for field, x in zip("qk", gradients)}
    given |= {field: adjacent(x) for field, x in zip("qk", kept)}
    views = {field: raw_view(field, x) for field, x in {**given, **made}.items()}
    if positions is not None:
        views["positions"] = raw_view("positions", positions)
    n = len(found.operands)
    parameters = [raw_view(f"operand '{info.name}'", x) for info, x in zip(found.operands, operands)]
    inputs = [raw_view(f"input '{info.name}'", x) for info, x in zip(found.inputs, operands[n:])]
    found._call("encode_backward", views, parameters, inputs, {"flags": _FROM_INPUT if from_input else 0},
                stream=stream_of(gradients[0]), workspace="encode_backward_workspace",
                finish="encode_backward_finish")  # fmt: skip
    return list(made.values())


def _fake_encode(q: Tensor, k: Tensor, positions: Any, operands: Any, kernel: str) -> Any:
    width = kernel_of(kernel).width_of(q.dtype)
    return result(adjacent(q), width), result(adjacent(k), width)


def _fake_encode_one(x: Tensor, positions: Any, operands: Any, kernel: str) -> Tensor:
    return result(adjacent(x), kernel_of(kernel).width_of(x.dtype))


def _fake_encode_backward(grad_q: Tensor, grad_k: Tensor, positions: Any, operands: Any, kernel: str) -> Any:
    width = kernel_of(kernel).head_dim
    return result(adjacent(grad_q), width), result(adjacent(grad_k), width)


def _fake_encode_one_backward(grad: Tensor, positions: Any, operands: Any, kernel: str) -> Tensor:
    return result(adjacent(grad), kernel_of(kernel).head_dim)


def _fake_encode_all_backward(gradients: Any, kept: Any, positions: Any, operands: Any, from_input: bool,
                              with_operands: bool, with_positions: bool, kernel: str) -> list[Tensor]:  # fmt: skip
    return list(_results_of_all(gradients, positions, operands, with_operands, with_positions, kernel).values())


_is_c = extension.start(kernel_of)
OVERLOADS = ("", ".kernel", ".alone")
operators: dict[str, Any] = {}
"""With a gradient, or a refusal of one (gradients.py, attention.py)."""
_kernels: dict[str, tuple[Any, Any]] = {}
"""The overloads `alone` and `kernel`."""


def plain(name: str) -> Any:
    """The kernel, where autograd has done its part. A graph that is being made may be given tangents when it runs."""
    return _kernels[name][torch._C._len_torch_dispatch_stack() > 0]


def define(name: str, schema: str, function: Any, fake: Any,
           devices: Sequence[str] = () if _is_c else ("CPU", "CUDA")) -> None:  # fmt: skip
    """An operator and its overloads. function: what it is on devices where it is not C; fake: what its results are."""
    for overload in OVERLOADS:
        library.define(f"{name}{overload}{schema}", tags=(torch.Tag.pt2_compliant_tag,))
        for device in devices:
            library.impl(name + overload, function, device)
        torch.library.register_fake(f"{NAMESPACE}::{name}{overload}", fake, lib=library)
    packet = getattr(getattr(torch.ops, NAMESPACE), name)
    operators[name], _kernels[name] = packet.default, (packet.alone, packet.kernel)
    library.impl(f"{name}.kernel", refusing(name, packet.kernel), "Autograd")
    library.impl(f"{name}.alone", torch.library.fallthrough_kernel, "Autograd")


_PLACES = "Tensor? positions, Tensor[] operands, str kernel"
define("encode", f"(Tensor q, Tensor k, {_PLACES}) -> (Tensor, Tensor)", _encode, _fake_encode)
define("encode_one", f"(Tensor x, {_PLACES}) -> Tensor", _encode_one, _fake_encode_one)
define(
    "encode_backward", f"(Tensor grad_q, Tensor grad_k, {_PLACES}) -> (Tensor, Tensor)", _encode_backward,
    _fake_encode_backward,
)  # fmt: skip
define("encode_one_backward", f"(Tensor grad, {_PLACES}) -> Tensor", _encode_one_backward, _fake_encode_one_backward)
define(
    "encode_all_backward",
    "(Tensor[] gradients, Tensor[] kept, Tensor? positions, Tensor[] operands, bool from_input, bool with_operands,"
    " bool with_positions, str kernel) -> Tensor[]",
    _encode_all_backward, _fake_encode_all_backward,
)  # fmt: skip
