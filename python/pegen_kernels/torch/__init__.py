"""PyTorch: encodings as modules, and as operators that compile, export, differentiate and batch.

    encoding = pegen_kernels.torch.Encoding("care", head_dim=64, heads=12)
    q, k = encoding(q, k, positions)
"""
from .gradients import call
from .layers import RotaryPosEmb, register_rotary
from .models import patch, unpatch
from .modules import Attention, Encoding
from .names import kernel_of, register
from .sums import scan
from .transformers_attention import register_attention

__all__ = [
    "Attention", "Encoding", "RotaryPosEmb", "call", "kernel_of", "patch", "register", "register_attention",
    "register_rotary", "scan", "unpatch",
]  # fmt: skip
