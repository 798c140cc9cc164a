"""A PyTorch whose CUDA device is a stand-in, with the host's memory: torch_cuda.cpp, and below it, as the driver,
tests/ptx/fake_cuda.c. To be imported before torch."""
import ctypes
import os
import types

RUN = ctypes.CFUNCTYPE(
    None, ctypes.c_char_p, ctypes.c_uint, ctypes.c_uint, ctypes.c_uint, ctypes.POINTER(ctypes.c_int64)
)


class State(ctypes.Structure):
    """fake_cuda_state."""

    _fields_ = [
        ("run", RUN), ("n_parameters", ctypes.c_int), ("devices", ctypes.c_int), ("most_shared", ctypes.c_int),
        ("context_id", ctypes.c_ulonglong), ("fail_in", ctypes.c_char_p), ("fail_with", ctypes.c_int),
        ("modules", ctypes.c_int), ("launches", ctypes.c_int), ("retained", ctypes.c_int), ("entry", ctypes.c_char_p),
        ("shared", ctypes.c_uint), ("allowed", ctypes.c_int), ("stream", ctypes.c_void_p),
        ("uploaded", ctypes.c_void_p), ("module", ctypes.c_char_p),
    ]  # fmt: skip


def driver():
    return State.in_dll(ctypes.CDLL("libcuda.so.1"), "fake_cuda")


_path = os.environ.get("PEGEN_TORCH_CUDA")
_library = ctypes.CDLL(_path, mode=ctypes.RTLD_GLOBAL) if _path else None  # before PyTorch asks for devices
is_there = _library is not None
stream = ctypes.c_void_p.in_dll(_library, "stream_of_device") if is_there else None  # the current one
if is_there:
    import torch

    torch.cuda._lazy_init = lambda: None
    torch.cuda.current_stream = lambda device=None: types.SimpleNamespace(cuda_stream=stream.value or 0)
