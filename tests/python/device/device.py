"""A PyTorch whose CUDA device is a stand-in, with the host's memory (torch_cuda.cpp; its driver: tests/ptx/fake_cuda.c).
To be imported before torch."""
import ctypes
import os

path = os.environ.get("PEGEN_TORCH_CUDA")
library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL) if path else None  # before PyTorch asks whether there is a device
is_there = library is not None
if is_there:
    import torch

    torch.cuda._lazy_init = lambda: None
    import types

    stream = ctypes.c_void_p.in_dll(library, "stream_of_device")
    torch.cuda.current_stream = lambda device=None: types.SimpleNamespace(cuda_stream=stream.value or 0)
