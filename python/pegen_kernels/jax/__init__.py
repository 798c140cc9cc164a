"""JAX: encodings and attention as functions that jit, vmap, shard_map and grad go through.

    care = pegen_kernels.compile("care", head_dim=64, heads=12)
    q, k = pegen_kernels.jax.encode(care, q, k, positions, operands=parameters)      # [B,H,N,D], [N,P]

The kernel is called by XLA itself, through the custom calls of its foreign function interface, on XLA's memory and
threads; Python is there while a function is traced only. Gradients are those that the kernel has; what requires others
is refused while it is traced. Inside shard_map every device encodes the rows that it has: of a kernel whose heads
differ, one that is compiled for as many heads.
"""
from .pairs import attention
from .rows import encode

__all__ = ["attention", "encode"]
