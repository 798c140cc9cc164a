"""Why a kernel refused a call: libpegen's sentences (pegen_explain_error) with this package's names of arguments. Asked
for after the refusal alone: kernels check everything before they write, so a call that goes well pays nothing."""
from __future__ import annotations

import ctypes
import re
from typing import Any

from . import _native
from ._native import Args, DLTensor, GradArgs
from .arrays import CPU
from .errors import ArgumentError

_ARGUMENTS = {
    "q_out": "out of q", "k_out": "out of k", "v_out": "v_cache", "norm_epsilon": "epsilon", "grad->q_out": "grad_q",
    "grad->k_out": "grad_k",
    "grad->q": "out of grad_q", "grad->k": "out of grad_k", "grad->v": "out of grad_v", "grad->out": "grad",
    "grad->lse": "grad_lse", "grad->positions": "out of grad_positions", "grad->table": "grad.table",
    "grad->k_positions": "out of grad_k_positions",
}  # fmt: skip


_NO_PTX, _OF_CUDA = 30, 32
_OTHER_CHIP = (b"CUDA_ERROR_NO_BINARY_FOR_GPU", b"CUDA_ERROR_INVALID_PTX", b"CUDA_ERROR_UNSUPPORTED_PTX_VERSION")


def explain(kernel: Any, entry: str, args: Args, error: int = 0) -> str | None:
    """The sentence for an error of an entry. Without an error what shapes and number types would be refused for; None:
    nothing."""
    text = ctypes.create_string_buffer(1024)
    at = ctypes.addressof(kernel)
    _native.library.pegen_explain_error(at, entry.encode(), ctypes.byref(args), error, text, len(text))
    words = _native.strerror(error)
    said, general, _ = text.value.decode(errors="replace").partition(words)
    names = re.compile(r"grad->\w+|\b[qkv]_out\b|\bnorm_epsilon\b")
    return names.sub(lambda name: _ARGUMENTS.get(name[0], name[0]), said) + general or None


def _chip(kernel: Any, error: int, args: Args) -> str | None:
    """A kernel that was not compiled for the device of its rows."""
    grad = GradArgs.from_address(args.grad) if args.grad else GradArgs()
    rows = [DLTensor.from_address(place) for place in (args.q, args.k, grad.q_out, grad.k_out) if place]
    device = next((x.device_id for x in rows if x.device_type != CPU), None)
    is_other = error == _NO_PTX or _native.library.pegen_cuda_error_name() in _OTHER_CHIP
    chip = None if device is None else _native.library.pegen_cuda_chip(device)
    if not chip or not is_other:
        return None
    targets = filter(None, (*kernel.targets.decode().split(), _native.chip_of(kernel)))
    return (
        f"targets: {kernel.name.decode()} was compiled for {', '.join(targets)}, and device"
        f" {device} is of sm_{chip}; expected targets that have sm_{chip} or lower, or none, which compiles for it"
    )


def refusal(kernel: Any, entry: str, error: int, args: Args) -> ArgumentError:
    """The exception for an error of an entry."""
    reason = _chip(kernel, error, args) if error in (_NO_PTX, _OF_CUDA) else None
    return ArgumentError(reason or explain(kernel, entry, args, error) or _native.strerror(error))
