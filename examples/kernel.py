#!/usr/bin/env python3
"""kernel: a pegen kernel called from Python on NumPy arrays and PyTorch tensors, without a copy.

    pegen specs/rope.lua -o rope.so
    python3 kernel.py ./rope.so rope

A kernel takes DLPack's DLTensor, which every array library hands out: the capsule of x.__dlpack__() holds it. The
capsule stays ours (nothing consumes it), so the kernel reads and writes the array's own memory and the array stays
usable. What is written must say that it may be: read-only arrays of NumPy and immutable ones of JAX are refused, and
so are tensors whose gradients PyTorch is recording, since the kernel would change them behind its back. What is read
may be any of these. Errors are libpegen's sentences where it is installed.
"""
import ctypes
import sys


class Args(ctypes.Structure):
    """pegen_args of pegen/pegen.h, as far as encoding needs it; struct_size says where it ends."""

    _fields_ = [("struct_size", ctypes.c_uint32), ("n_operands", ctypes.c_int32)] + [
        (name, ctypes.c_void_p)
        for name in ("q", "k", "v", "q_out", "k_out", "out", "positions", "k_positions", "operands", "workspace")
    ]


class Kernel(ctypes.Structure):
    """The beginning of pegen_kernel: what the object says of itself."""

    _fields_ = [("struct_size", ctypes.c_uint32), ("abi_version", ctypes.c_uint32)] + [
        (name, ctypes.c_char_p) for name in ("name", "doc", "digest", "options", "targets")
    ] + [("dtypes", ctypes.c_uint32)] + [(name, ctypes.c_int32) for name in ("head_dim", "out_dim", "n_axes")] + [
        ("axes", ctypes.POINTER(ctypes.c_char_p)), ("heads", ctypes.c_int32), ("skip_tokens", ctypes.c_int32)
    ]  # fmt: skip


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_VERSIONED_TENSOR, _VERSIONED_FLAGS, _READ_ONLY = 32, 24, 1  # of struct DLManagedTensorVersioned, DLPack 1.0


def strerror(error):
    """What an error of a kernel means: pegen_strerror, or its number where libpegen is not there."""
    try:
        text = ctypes.CDLL("libpegen.so.1").pegen_strerror
    except OSError:
        return f"error {error} of pegen.h"
    text.restype, text.argtypes = ctypes.c_char_p, [ctypes.c_int]
    return text(error).decode()


class Tensor:
    """The DLTensor of an array for the time of a call: `address`. written: the kernel changes it."""

    def __init__(self, name, x, written=False):
        if getattr(x, "requires_grad", False):
            recording = sys.modules["torch"].is_grad_enabled()
            if written and recording:
                raise ValueError(
                    f"{name} requires a gradient, which this call would not give; expected torch.no_grad()"
                )
            x = x.detach()
        try:
            self.capsule = x.__dlpack__(max_version=(1, 0))
        except TypeError:  # a library from before DLPack 1.0
            self.capsule = x.__dlpack__()
        try:
            managed = _pointer(self.capsule, b"dltensor_versioned")
            writable = not ctypes.c_uint64.from_address(managed + _VERSIONED_FLAGS).value & _READ_ONLY
            self.address = managed + _VERSIONED_TENSOR
        except ValueError:
            self.address = _pointer(self.capsule, b"dltensor")
            fixed = getattr(x, "__array_interface__", {"data": (0, True)})["data"][1]
            writable = not fixed or hasattr(x, "untyped_storage")  # NumPy's word, or a tensor of PyTorch
        if written and not writable:
            raise ValueError(f"{name} may not be written: it is read-only or immutable; expected a copy that is not")


class Encoding:
    """encode(q, k, positions): q [B,H,N,D] and k [B,Hkv,M,D] in place, of any library with __dlpack__, any strides."""

    def __init__(self, path, name):
        self.library = ctypes.CDLL(path)
        self.entry = self.library[f"{name}_encode"]
        self.entry.argtypes = [ctypes.POINTER(Args), ctypes.c_int, ctypes.c_int]
        self.kernel = Kernel.in_dll(self.library, f"{name}_kernel")

    def __call__(self, q, k, positions, operands=(), part=0, parts=1):
        tensors = [Tensor("q", q, True), Tensor("k", k, True), Tensor("positions", positions)]
        tensors += [Tensor("an operand", x) for x in operands]
        q, k, positions, *rest = [tensor.address for tensor in tensors]
        operand_list = (ctypes.c_void_p * (len(rest) + 1))(*rest)
        args = Args(struct_size=ctypes.sizeof(Args), n_operands=len(rest), operands=ctypes.addressof(operand_list),
                    q=q, q_out=q, k=k, k_out=k, positions=positions)  # fmt: skip
        error = self.entry(ctypes.byref(args), part, parts)
        if error:
            raise ValueError(f"the kernel refused its arguments: {strerror(error)}")


def rope(numpy, x, positions, base=10000.0):
    """RoPE of x [B,H,N,D] in float64, to compare with."""
    d = x.shape[-1]
    angle = positions[:, :1] * base ** (-2 * numpy.arange(d // 2) / d)
    even, odd = x[..., 0::2].astype(float), x[..., 1::2].astype(float)
    out = numpy.empty(x.shape)
    out[..., 0::2] = numpy.cos(angle) * even - numpy.sin(angle) * odd
    out[..., 1::2] = numpy.sin(angle) * even + numpy.cos(angle) * odd
    return out


def main():
    import numpy

    encode = Encoding(sys.argv[1], sys.argv[2])
    kernel = encode.kernel
    print(f"{kernel.name.decode()}: {kernel.doc.decode()} ({kernel.targets.decode()})")
    random = numpy.random.default_rng(1)
    # [B,N,H,D] memory, as a projection writes it, seen as [B,H,N,D].
    q, k = (
        random.standard_normal((2, 49, 4, kernel.head_dim), dtype=numpy.float32).transpose(0, 2, 1, 3) for _ in "qk"
    )
    positions = random.integers(0, 1000, (49, kernel.n_axes))
    expected, address = rope(numpy, q, positions), q.ctypes.data
    before = q.copy(), k.copy()
    encode(q, k, positions)
    print(f"numpy: the same memory: {q.ctypes.data == address}; changed: {not numpy.array_equal(q, before[0])}")
    if kernel.name == b"rope":
        print(f"numpy: largest difference from NumPy's float64: {abs(q - expected).max():.1e}")
    try:
        import torch
    except ImportError:
        print("torch: not installed")
        return
    # Calls on tensors of PyTorch give the same bits, and bfloat16 besides.
    tq, tk = torch.from_numpy(before[0].copy()), torch.from_numpy(before[1].copy())
    address = tq.data_ptr()
    encode(tq, tk, torch.from_numpy(positions))
    print(
        f"torch: the same memory: {tq.data_ptr() == address}; "
        f"the same bits as in NumPy: {numpy.array_equal(tq.numpy(), q)}"
    )
    half = torch.from_numpy(before[0]).bfloat16()
    encode(half, half.clone(), torch.from_numpy(positions))
    print(f"torch: bfloat16 off by at most {(half.float() - tq).abs().max():.1e}")


if __name__ == "__main__":
    main()
