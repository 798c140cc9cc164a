"""What kernels see of arrays: address, shape, strides, number type, device. Nothing is copied.

Arrays of NumPy and tensors of PyTorch are asked directly, anything else by DLPack. An array is described by a `key`
that says everything but the address; equal keys make equal calls, and calls are kept by their keys.
"""
from __future__ import annotations

import ctypes
import sys
from typing import Any, NamedTuple

from ._native import DLTensor
from .errors import ArgumentError

CPU, CUDA = 1, 2
_INT, _UINT, _FLOAT, _BFLOAT, _E4M3, _E5M2 = 0, 1, 2, 4, 10, 12
_NUMPY_CODES = {"bfloat16": (_BFLOAT, 16), "float8_e4m3fn": (_E4M3, 8), "float8_e5m2": (_E5M2, 8)}
_TORCH_CODES = {
    "torch.float32": (_FLOAT, 32), "torch.float64": (_FLOAT, 64), "torch.float16": (_FLOAT, 16),
    "torch.bfloat16": (_BFLOAT, 16), "torch.int32": (_INT, 32), "torch.int64": (_INT, 64),
    "torch.float8_e4m3fn": (_E4M3, 8), "torch.float8_e5m2": (_E5M2, 8),
}  # fmt: skip
_DEVICES = {"cpu": CPU, "cuda": CUDA}
_CODES = (_INT, _UINT, _FLOAT, _BFLOAT, _E4M3, _E5M2)
_WORDS = {_INT: "int", _UINT: "uint", _FLOAT: "float", 5: "complex"}
_WHOLE_WORDS = {_BFLOAT: "bfloat16", _E4M3: "float8_e4m3fn", _E5M2: "float8_e5m2", 6: "bool"}


class View(NamedTuple):
    """The memory of an array for the time of a call."""

    address: int
    key: tuple[Any, ...]  # device type, device, code, bits, shape, strides in elements
    keeps: Any  # what must live as long as the address is used

    @property
    def shape(self) -> tuple[int, ...]:
        return self.key[4]

    @property
    def dtype(self) -> str:
        code, bits = self.key[2:4]
        return _WHOLE_WORDS.get(code) or f"{_WORDS.get(code, 'unknown')}{bits or ''}"


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of an array whose last dimension runs fastest."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def is_contiguous(seen: View) -> bool:
    return all(size == 1 or step == full for size, step, full in zip(*seen.key[4:], contiguous(seen.shape)))


_numpy_seen: dict[Any, tuple[int, int]] = {}  # asking a dtype for its name takes ten times as long as a small kernel
_torch_seen: dict[Any, tuple[int, int]] = {}


def _numpy_code(name: str, dtype: Any) -> tuple[int, int]:
    kind = {"f": _FLOAT, "i": _INT, "u": _UINT}.get(dtype.kind)
    code = _NUMPY_CODES.get(dtype.name) or (None if kind is None else (kind, 8 * dtype.itemsize))
    if code is None or not dtype.isnative:
        raise ArgumentError(f"{name} is of type {dtype}; expected numbers in the machine's own order of bytes")
    _numpy_seen[dtype] = code
    return code


def code_of(name: str, dtype: Any) -> tuple[int, int]:
    """DLPack's code and bits of a number type of NumPy's."""
    return _numpy_seen.get(dtype) or _numpy_code(name, dtype)


def _of_numpy(name: str, x: Any, written: bool) -> View:
    interface = x.__array_interface__
    address, fixed = interface["data"]
    if written and fixed:
        raise ArgumentError(f"{name} is read-only; expected an array that may be written")
    dtype = x.dtype
    code = code_of(name, dtype)
    size = dtype.itemsize
    if interface["strides"] is None:
        strides = contiguous(x.shape)
    elif any(step % size for step in x.strides):
        raise ArgumentError(f"{name} has strides that are no multiples of its elements")
    else:
        strides = tuple(step // size for step in x.strides)
    return View(address, (CPU, 0, *code, x.shape, strides), x)


def raw_view(name: str, x: Any) -> View:
    """The memory of a tensor of PyTorch, inside an operator: whoever calls those looks after gradients."""
    code = _torch_seen.get(x.dtype)
    if code is None and (code := _TORCH_CODES.get(str(x.dtype))):
        _torch_seen[x.dtype] = code
    device = _DEVICES.get(x.device.type)
    if code is None or device is None or x.layout is not sys.modules["torch"].strided:
        raise ArgumentError(f"{name} is of type {x.dtype}, {x.layout}, on {x.device}, which no kernel takes")
    return View(x.data_ptr(), (device, x.device.index or 0, *code, tuple(x.shape), x.stride()), x)


def _of_torch(name: str, x: Any, written: bool) -> View:
    if x.is_neg():
        raise ArgumentError(f"{name} is a view whose signs PyTorch has not turned yet; expected x.resolve_neg()")
    if x.requires_grad and sys.modules["torch"].is_grad_enabled():
        what = "would be changed behind PyTorch's back" if written else "would not be recorded"
        raise ArgumentError(
            f"{name} requires a gradient, and this call {what}; use pegen_kernels.torch, or torch.no_grad()"
        )
    seen = raw_view(name, x)
    if written and not x.is_inference():  # what PyTorch kept of it for a gradient is no longer that
        sys.modules["torch"].autograd.graph.increment_version(x)
    return seen


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_VERSIONED_TENSOR, _VERSIONED_FLAGS, _READ_ONLY = 32, 24, 1  # of struct DLManagedTensorVersioned, DLPack 1.0


def _of_dlpack(name: str, x: Any, written: bool) -> View:
    if not hasattr(x, "__dlpack__"):
        raise ArgumentError(f"{name} is a {type(x).__name__}; expected an array with __dlpack__")
    try:
        capsule = x.__dlpack__(max_version=(1, 0))
    except TypeError:  # a library from before DLPack 1.0
        capsule = x.__dlpack__()
    try:
        managed = _pointer(capsule, b"dltensor_versioned")
        fixed = bool(ctypes.c_uint64.from_address(managed + _VERSIONED_FLAGS).value & _READ_ONLY)
        tensor = DLTensor.from_address(managed + _VERSIONED_TENSOR)
    except ValueError:
        tensor, fixed = DLTensor.from_address(_pointer(capsule, b"dltensor")), True  # it cannot say that it is not
    if tensor.code not in _CODES or tensor.lanes != 1:
        raise ArgumentError(f"{name} is of type {getattr(x, 'dtype', 'unknown')}, which no kernel takes")
    if written and fixed:
        raise ArgumentError(f"{name} is read-only or immutable; expected an array that may be written")
    sizes = (ctypes.c_int64 * tensor.ndim).from_address(tensor.shape) if tensor.ndim else ()
    shape = tuple(sizes)
    strides = (
        tuple((ctypes.c_int64 * tensor.ndim).from_address(tensor.strides)) if tensor.strides else contiguous(shape)
    )
    key = (tensor.device_type, tensor.device_id, tensor.code, tensor.bits, shape, strides)
    return View((tensor.data or 0) + tensor.byte_offset, key, (x, capsule))


def view(name: str, x: Any, written: bool = False) -> View:
    """The memory of x, called `name` in messages. written: the kernel changes it."""
    kind = type(x).__module__.partition(".")[0]
    if kind == "numpy" and isinstance(x, sys.modules["numpy"].ndarray):  # a scalar's memory is gone at once
        return _of_numpy(name, x, written)
    if kind == "torch" or (torch := sys.modules.get("torch")) and isinstance(x, torch.Tensor):
        return _of_torch(name, x, written)
    return _of_dlpack(name, x, written)


def zeros_like(x: Any, dtype: str) -> Any:
    """A contiguous array of x's library and shape, of that number type; for `give_back` as below."""
    torch = sys.modules.get("torch")
    if torch and isinstance(x, torch.Tensor):
        return torch.zeros(x.shape, dtype=getattr(torch, dtype), device=x.device)
    import numpy

    return numpy.zeros(view("array", x).shape, dtype=dtype)


def empty_like(x: Any, shape: tuple[int, ...]) -> Any:
    """An array of x's library and number type with another shape, whose axes lie in memory as x's do, channels last.
    Where the library's arrays cannot be written it is one of NumPy, for `give_back`."""
    torch = sys.modules.get("torch")
    is_torch = torch and isinstance(x, torch.Tensor)
    seen = None if is_torch else view("array", x)
    strides = x.stride() if is_torch else seen.key[5]
    last = len(shape) - 1
    order = [*sorted(range(last), key=lambda axis: -abs(strides[axis])), last]
    places = [order.index(axis) for axis in range(last + 1)]
    sizes = [shape[axis] for axis in order]
    if is_torch:
        return torch.empty(sizes, dtype=x.dtype, device=x.device).permute(places)
    import numpy

    return numpy.empty(sizes, dtype=x.dtype if isinstance(x, numpy.ndarray) else _numpy_dtype(seen.dtype)).transpose(
        places
    )


def has_room_beside(seen: View) -> bool:
    torch = sys.modules.get("torch")
    return bool(torch) and isinstance(seen.keeps, torch.Tensor)


def room_beside(seen: View, size: int) -> tuple[int, Any]:
    """Memory of so many bytes where an array of a GPU lies: its address, and what must live until the work on it is
    queued. PyTorch's allocator hands it out again behind that work, on the same stream."""
    if not has_room_beside(seen):
        raise ArgumentError("workspace: memory of a GPU is only asked for of PyTorch; expected its tensors")
    torch = sys.modules["torch"]
    room = torch.empty(size, dtype=torch.uint8, device=seen.keeps.device)
    return room.data_ptr(), room


def _numpy_dtype(name: str) -> Any:
    import numpy

    if name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        import ml_dtypes  # comes with every library that has such arrays

        return getattr(ml_dtypes, name)
    return numpy.dtype(name)


def give_back(x: Any, made: Any) -> Any:
    """What empty_like(x) made, as an array of x's library where that has another kind."""
    if type(x).__module__.partition(".")[0] in ("jax", "jaxlib") and type(made).__module__ == "numpy":
        return sys.modules["jax"].numpy.asarray(made)
    return made
