"""Position encodings of transformers, compiled from descriptions to kernels.

    import pegen_kernels as pk

    geope = pk.compile("geope3d", head_dim=64)
    q, k = geope.encode(q, k, positions)          # NumPy, PyTorch, anything with DLPack; [B,H,N,D], [N,3]

A description is the name of a stock one (`pk.stock()`), a file, or Lua text. `pegen_kernels.torch` has modules and
operators for PyTorch.
"""
from .errors import ArgumentError, CheckFailed, CompileError, PegenError
from .kernel import Kernel, compile, load
from .records import Gained, GradientTable, Input, Operand, Table
from .request import stock
from .scan import scan

__all__ = [
    "ArgumentError", "CheckFailed", "CompileError", "Gained", "GradientTable", "Input", "Kernel", "Operand",
    "PegenError", "Table", "compile", "load", "scan", "stock",
]  # fmt: skip
__version__ = "0.2.0"
