"""The C interface (pegen/pegen.h, pegen/compiler.h) as ctypes sees it, and the library behind it.

Structures are those of the version that this package was built with. Kernels of an older one say so by their size:
`field` reads what may lie behind the end of theirs.
"""
from __future__ import annotations

import ctypes
import os
import pathlib
from ctypes import POINTER, c_char_p, c_double, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

PACKAGE = pathlib.Path(__file__).resolve().parent
NAMESPACE = __name__.partition(".")[0]
"""What operators are registered under. A copy of this package under another name has its own."""
settings = os.environ if NAMESPACE == "pegen_kernels" else {}
"""Where libraries and the program are named. A copy takes those that lie in it."""


class DLTensor(ctypes.Structure):
    """DLPack's tensor; strides count elements."""

    _fields_ = [
        ("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", c_void_p), ("strides", c_void_p), ("byte_offset", c_uint64),
    ]  # fmt: skip


class GradArgs(ctypes.Structure):
    """pegen_grad_args."""

    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32)] + [
        (name, c_void_p)
        for name in ("q_out", "k_out", "out", "lse", "q", "k", "v", "operands", "inputs", "positions", "k_positions",
                     "table")
    ] + [("table_bytes", c_size_t)]  # fmt: skip


class Args(ctypes.Structure):
    """pegen_args."""

    _fields_ = [("struct_size", c_uint32), ("n_operands", c_int32)] + [
        (name, c_void_p)
        for name in ("q", "k", "v", "q_out", "k_out", "out", "positions", "k_positions", "operands", "workspace",
                     "table")
    ] + [
        ("table_bytes", c_size_t), ("workspace_bytes", c_size_t), ("inputs", c_void_p), ("n_inputs", c_int32),
        ("causal", c_int32), ("scale", c_double), ("q_scale", c_void_p), ("k_scale", c_void_p), ("grad", c_void_p),
        ("lse", c_void_p), ("split_keys", c_int64), ("cu_seqlens", c_void_p), ("k_cu_seqlens", c_void_p),
        ("block_table", c_void_p), ("lengths", c_void_p), ("slots", c_void_p),
        ("v_out", c_void_p), ("v_scale", c_void_p), ("q_norm", c_void_p), ("k_norm", c_void_p),
        ("norm_epsilon", c_double), ("origin", c_void_p), ("first_token", c_int64),
    ]  # fmt: skip


class Scan(ctypes.Structure):
    """pegen_scan; its `in`, a word of Python's own, is called `input`."""

    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32)] + [
        (name, c_void_p) for name in ("input", "out", "state_in", "state_out", "cu_seqlens")
    ] + [("period", c_double)]  # fmt: skip


class OperandInfo(ctypes.Structure):
    """pegen_operand."""

    _fields_ = [
        ("name", c_char_p), ("doc", c_char_p), ("units", c_char_p), ("initializer", c_char_p), ("rank", c_int32),
        ("shape", POINTER(c_int64)), ("dimension", POINTER(c_char_p)),
    ]  # fmt: skip


class InputInfo(ctypes.Structure):
    """pegen_input."""

    _fields_ = [("name", c_char_p), ("doc", c_char_p), ("units", c_char_p), ("size", c_int64)]


class WidthInfo(ctypes.Structure):
    """pegen_width."""

    _fields_ = [("out_dim", c_int32), ("n_columns", c_int32), ("columns", POINTER(c_char_p))]


Entry = ctypes.CFUNCTYPE(ctypes.c_int, POINTER(Args), ctypes.c_int, ctypes.c_int)
SizeEntry = ctypes.CFUNCTYPE(c_size_t, POINTER(Args))


class KernelInfo(ctypes.Structure):
    """pegen_kernel; its entries are the fields of type Entry and SizeEntry."""

    _fields_ = [("struct_size", c_uint32), ("abi_version", c_uint32)] + [
        (name, c_char_p) for name in ("name", "doc", "digest", "options", "targets")
    ] + [
        ("dtypes", c_uint32), ("head_dim", c_int32), ("out_dim", c_int32), ("n_axes", c_int32),
        ("axes", POINTER(c_char_p)), ("heads", c_int32), ("skip_tokens", c_int32), ("grid", POINTER(c_int64)),
        ("n_operands", c_int32), ("operands", POINTER(OperandInfo)), ("encode", Entry), ("attention", Entry),
        ("workspace", SizeEntry), ("ptx", c_void_p), ("prepare", Entry), ("table_bytes", SizeEntry),
        ("n_inputs", c_int32), ("n_columns", c_int32), ("inputs", POINTER(InputInfo)), ("columns", POINTER(c_char_p)),
        ("widths", POINTER(WidthInfo)), ("encode_backward", Entry), ("encode_backward_finish", Entry),
        ("encode_backward_workspace", SizeEntry), ("attention_backward", Entry), ("attention_backward_finish", Entry),
        ("attention_backward_workspace", SizeEntry), ("prepare_backward", Entry), ("prepare_backward_finish", Entry),
        ("gradient_table_bytes", SizeEntry), ("prepare_backward_workspace", SizeEntry),
        ("attention_finish", Entry), ("attention_workspace", SizeEntry), ("has_sides", c_int32),
        ("pair_inputs", ctypes.c_uint16), ("key_inputs", ctypes.c_uint16),
        ("append", Entry), ("reads_indices", c_int32), ("needs_input", c_int32), ("ptx_size", c_uint32),
        ("scale", c_double),
        ("has_origin", c_int32), ("reads_narrow_pairs", c_int32),
        ("attention_tangent", Entry),
    ]  # fmt: skip


class Ptx(ctypes.Structure):
    """pegen_ptx, as far as Python reads it."""

    _fields_ = [("text", c_void_p), ("size", c_uint64), ("digest", c_uint64 * 2), ("chip", c_char_p)]


def chip_of(kernel: KernelInfo) -> str | None:
    """The chip that a kernel's PTX is for, "sm_90"; None: it has none."""
    return Ptx.from_address(kernel.ptx).chip.decode() if kernel.ptx else None


class CompileRequest(ctypes.Structure):
    """pegen_compile_request."""

    _fields_ = [("struct_size", c_uint32), ("n_defines", c_int32)] + [
        (name, c_char_p) for name in ("file", "text", "label")
    ] + [("defines", POINTER(c_char_p))] + [
        (name, c_char_p) for name in ("targets", "dtypes", "name", "program", "cache")
    ] + [("max_seconds", c_double), ("max_memory", c_int64), ("trust_spec", c_int32),
         ("max_cache", c_int64), ("tangents", c_int32)]  # fmt: skip


class Compiled(ctypes.Structure):
    """pegen_compiled."""

    _fields_ = [
        ("struct_size", c_uint32), ("from_cache", c_int32), ("error", c_char_p), ("kernel", POINTER(KernelInfo)),
        ("header", c_char_p), ("explanation", c_char_p), ("object", c_void_p), ("object_size", c_size_t),
    ]  # fmt: skip


def field(kernel: KernelInfo, name: str) -> Any:
    """A field of pegen_kernel; None where the kernel is older than the field."""
    member = getattr(KernelInfo, name)
    return getattr(kernel, name) if member.offset + member.size <= kernel.struct_size else None


def width_of(kernel: KernelInfo, dtype: str) -> int:
    """Channels of an encoded row of a number type."""
    widths = field(kernel, "widths")
    types = ("float32", "bfloat16", "float16")  # in the order of pegen_kernel.widths
    return widths[types.index(dtype)].out_dim if widths and dtype in types else kernel.out_dim


def _load() -> ctypes.CDLL:
    path = settings.get("PEGEN_LIBRARY") or PACKAGE / "lib" / "libpegen.so"
    library = ctypes.CDLL(str(path))
    for name, result, arguments in [
        ("pegen_strerror", c_char_p, [ctypes.c_int]),
        ("pegen_explain_error", ctypes.c_int, [c_void_p, c_char_p, POINTER(Args), ctypes.c_int, c_char_p, c_size_t]),
        ("pegen_compile", POINTER(Compiled), [POINTER(CompileRequest)]),
        ("pegen_explain", POINTER(Compiled), [POINTER(CompileRequest)]),
        ("pegen_compiled_free", None, [POINTER(Compiled)]),
        ("pegen_kernel_supported", ctypes.c_int, [c_void_p]),
        ("pegen_parallel", ctypes.c_int, [c_void_p, POINTER(Args), ctypes.c_int]),
        ("pegen_scan_parallel", ctypes.c_int, [POINTER(Scan), ctypes.c_int]),
        ("pegen_launch", ctypes.c_int, [c_void_p, c_char_p, POINTER(Args), c_void_p]),
        ("pegen_cuda_workspace", c_size_t, [c_void_p, c_char_p, POINTER(Args)]),
        ("pegen_cuda_error_name", c_char_p, []),
        ("pegen_cuda_assembly_seconds", c_double, []),
        ("pegen_cuda_device_count", ctypes.c_int, []),
        ("pegen_cuda_chip", ctypes.c_int, [ctypes.c_int]),
        ("pegen_xla_register", ctypes.c_int, [c_void_p, c_int64]),
    ]:
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


library = _load()


def strerror(error: int) -> str:
    """The sentence for an error of a kernel."""
    text = library.pegen_strerror(error).decode()
    detail = library.pegen_cuda_error_name().decode()
    return f"{text} ({detail})" if detail and error in (31, 32) else text


def program() -> str:
    """Path of the compiler: PEGEN, or the one in this package."""
    return settings.get("PEGEN") or str(PACKAGE / "bin" / "pegen")


def specs() -> pathlib.Path:
    """Folder of the stock descriptions."""
    installed = PACKAGE / "share" / "pegen" / "specs"
    return installed if installed.is_dir() else PACKAGE.parents[1] / "specs"


def spec_folders() -> list[pathlib.Path]:
    """Folders of the stock descriptions: of those that `libpegen_kernels` has, and of the others."""
    return [specs(), specs() / "more"]
