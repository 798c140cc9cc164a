"""The operators as C (libpegen_torch), where it is installed and this PyTorch has what it needs of
PyTorch's stable interface, 2.10 or later. Nothing else depends on it: without it the same operators are Python.
"""
from __future__ import annotations

import ctypes
import threading
from typing import Any, Callable, Sequence

import torch
from torch import Tensor

from .. import _native
from .._native import Args, KernelInfo
from ..calls import tell_wait
from ..errors import ArgumentError, PegenError
from ..refusals import refusal

_FIND = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
_EXPLAIN = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t
)
_TELL = ctypes.CFUNCTYPE(None, ctypes.c_char_p)
_TELL_WAIT = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_double)
_ON_PROCESSOR = -1


class _Answers(ctypes.Structure):
    """torch_answers."""

    _fields_ = [("find", _FIND), ("explain", _EXPLAIN), ("tell", _TELL), ("launch", ctypes.c_void_p),
                ("launch_bytes", ctypes.c_void_p), ("assembly_seconds", ctypes.c_void_p),
                ("tell_wait", _TELL_WAIT),
                ("operators", ctypes.c_char_p)]  # fmt: skip


_library: ctypes.CDLL | None = None
_callbacks: list[_Answers] = []  # C keeps their addresses
_last = threading.local()  # .error: what was last refused on this thread
reason = "not started"  # why the operators are Python; "": they are C


def _say(error: Exception, text: int, size: int) -> None:
    _last.error = error
    words = str(error).encode()[: size - 1]
    ctypes.memmove(text, words + b"\0", len(words) + 1)


def _tell(text: bytes) -> None:
    """What the operator is about to throw."""
    if str(getattr(_last, "error", None)) != text.decode():
        _last.error = ArgumentError(text.decode())


def _explain(kernel: int, entry: bytes, error: int, args: int, text: int, size: int) -> None:
    given = Args.from_address(args)
    _say(refusal(KernelInfo.from_address(kernel), entry.decode(), error, given), text, size)


def start(kernel_of: Callable[[str], Any]) -> bool:
    """Registers the operators in C; kernel_of finds those that they ask for by name. False where they cannot be had."""
    global _library, reason
    path = _native.settings.get("PEGEN_TORCH_LIBRARY") or str(_native.PACKAGE / "lib" / "libpegen_torch.so")
    try:
        library = ctypes.CDLL(path)
    except OSError as e:
        reason = str(e)
        return False

    def find(name: bytes, device: int, text: int, size: int) -> None:
        try:
            found = kernel_of(name.decode())
            add(name.decode(), found if device == _ON_PROCESSOR else found.on_device(device), device)
        except PegenError as e:
            _say(e, text, size)

    library.pegen_torch_start.restype = ctypes.c_char_p
    library.pegen_torch_add.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p]
    of_launcher = (ctypes.cast(getattr(_native.library, name), ctypes.c_void_p).value
                   for name in ("pegen_launch", "pegen_cuda_workspace", "pegen_cuda_assembly_seconds"))  # fmt: skip
    wait = _TELL_WAIT(lambda kernel, seconds: tell_wait(kernel.decode(), seconds))
    _callbacks[:] = [
        _Answers(_FIND(find), _EXPLAIN(_explain), _TELL(_tell), *of_launcher, wait, _native.NAMESPACE.encode())
    ]
    missing = library.pegen_torch_start(ctypes.byref(_callbacks[0]))
    if missing:
        reason = f"this PyTorch has no {missing.decode()}"
        return False
    _library, reason = library, ""
    return True


def add(name: str, kernel: Any, device: int = _ON_PROCESSOR) -> None:
    """Makes a kernel known to the operators; it is kept for as long as the process lives. device: of CUDA."""
    if _library and not _library.pegen_torch_add(name.encode(), device, ctypes.addressof(kernel._info)):
        raise MemoryError("pegen_torch_add")


def stranger(kernel: Any, rows: dict[str, Any], places: dict[str, Any], rest: Sequence[Any]) -> ArgumentError | None:
    """After a failure: the first argument that is no tensor which operators take. rest: operands, then inputs."""
    names = [f"operand '{info.name}'" for info in kernel.operands] + [f"input '{info.name}'" for info in kernel.inputs]
    places = {name: x for name, x in places.items() if x is not None}
    for name, x in [*rows.items(), *places.items(), *zip(names, rest)]:
        if not isinstance(x, Tensor):
            return ArgumentError(f"{name} is a {type(x).__name__}; expected a torch.Tensor")
        if x.layout != torch.strided or x.is_nested:
            return ArgumentError(f"{name} is {'nested' if x.is_nested else x.layout}; expected a dense tensor")
    return None


def own(error: Exception) -> Exception:
    """What an operator in C refused, as this package's exception: PyTorch has none but RuntimeError for it."""
    said = getattr(_last, "error", None)
    _last.error = None
    return said if said is not None and str(error).startswith(str(said)) else error
