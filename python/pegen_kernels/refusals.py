"""Why a kernel refused a call, by the argument's name. Looked for after the refusal alone: kernels check everything
before they write, so a call that goes well pays nothing for this."""
from __future__ import annotations

from typing import Any

from . import _native
from .arrays import CPU, View, contiguous
from .errors import ArgumentError

_ROWS = ("q", "k", "v", "q_out", "k_out", "out", "grad.q_out", "grad.k_out", "grad.q", "grad.k")
_POSITIONS = ("float32", "float64", "int32", "int64")
_OPERANDS = ("float32", "float64", "float16", "bfloat16")


def _rows(kernel: Any, name: str, seen: View) -> str | None:
    names = "[batches, heads, tokens, channels]"
    if len(seen.shape) != 4:
        return f"{name} has {len(seen.shape)} dimensions; expected four, {names}"
    wide = name in ("q_out", "k_out")
    width = kernel.out_dim if wide else kernel.head_dim
    if name not in ("v", "out") and seen.shape[3] != width:
        return (
            f"{name} has {seen.shape[3]} channels; expected {width}, the kernel's {'out_dim' if wide else 'head_dim'}"
        )
    if seen.shape[3] > 1 and seen.key[5][3] != 1:
        return f"{name} has channels that are not adjacent (stride {seen.key[5][3]}); expected a copy where they are"
    given = {"float32": 1, "bfloat16": 2, "float16": 4}.get(seen.dtype)
    if given is None and name in ("q", "k", "v"):
        return f"{name} is of type {seen.dtype}; expected float32, bfloat16 or float16"
    if given and not kernel.dtypes & given and name in ("q", "k", "v"):
        return f"{name} is of type {seen.dtype}, for which the kernel was not compiled (dtypes)"
    return None


def _positions(kernel: Any, name: str, seen: View, tensors: dict[str, View]) -> str | None:
    if seen.dtype not in _POSITIONS:
        return f"{name} are of type {seen.dtype}; expected float32, float64, int32 or int64"
    axes = kernel.n_axes
    if len(seen.shape) not in (2, 3) or seen.shape[-1] != axes:
        return f"{name} have the shape {list(seen.shape)}; expected [tokens, {axes}] or [batches, tokens, {axes}]"
    rows = tensors.get("k" if name == "k_positions" else "q") or tensors.get("k")
    if rows and len(rows.shape) == 4 and seen.shape[-2] != rows.shape[2]:
        of = "k" if name == "k_positions" or "q" not in tensors else "q"
        return f"{name} are of {seen.shape[-2]} tokens; expected {rows.shape[2]}, as many as {of} has"
    if rows and len(seen.shape) == 3 and seen.shape[0] != rows.shape[0]:
        return f"{name} are of {seen.shape[0]} batches; expected {rows.shape[0]}, or [tokens, {axes}] for all of them"
    return None


def _operand(info: Any, seen: View) -> str | None:
    name = f"operand '{info.name.decode()}'"
    shape = tuple(info.shape[i] for i in range(info.rank))
    if seen.shape != shape:
        names = ", ".join(info.dimension[i].decode() for i in range(info.rank))
        return f"{name} has the shape {list(seen.shape)}; expected {list(shape)} ({names})"
    if seen.key[5] != contiguous(shape):
        return f"{name} is not contiguous; expected a copy that is"
    if seen.dtype not in _OPERANDS:
        return f"{name} is of type {seen.dtype}; expected float32, float64, float16 or bfloat16"
    return None


def _heads(kernel: Any, tensors: dict[str, View]) -> str | None:
    for name in ("q", "k"):
        seen = tensors.get(name)
        if seen and len(seen.shape) == 4 and kernel.heads and seen.shape[1] != kernel.heads and "v" not in tensors:
            return f"{name} has {seen.shape[1]} heads; expected {kernel.heads}, which the kernel was made for (heads)"
    return None


def _agreement(tensors: dict[str, View]) -> str | None:
    q = tensors.get("q")
    for name, seen in tensors.items():
        if name == "q" or not q or name.startswith("grad.") or name not in _ROWS:
            continue
        if name in ("k", "v") and seen.dtype != q.dtype:
            return f"{name} is of type {seen.dtype}, and q of {q.dtype}; expected one type"
        if seen.shape[0] != q.shape[0]:
            return f"{name} has {seen.shape[0]} batches, and q {q.shape[0]}; expected as many"
    for name, source in (("q_out", "q"), ("k_out", "k")):
        if name in tensors and source in tensors and tensors[name].shape[:3] != tensors[source].shape[:3]:
            return f"{name} has the shape {list(tensors[name].shape)}, and {source} {list(tensors[source].shape)}"
    return None


def _find(kernel: Any, tensors: dict[str, View], operands: list[View]) -> str | None:
    devices = {seen.key[:2] for seen in (*tensors.values(), *operands)}
    if len(devices) > 1:
        return f"{next(reversed(tensors))} and q are on different devices; expected one"
    for name, seen in tensors.items():
        if name in _ROWS:
            reason = _rows(kernel, name, seen)
        elif name in ("positions", "k_positions"):
            reason = _positions(kernel, name, seen, tensors)
        else:
            reason = None
        if reason:
            return reason
    for i, seen in enumerate(operands):
        if reason := _operand(kernel.operands[i], seen):
            return reason
    if "positions" not in tensors and not kernel.grid and kernel.n_axes and "table_bytes" not in tensors:
        return "positions are missing; this kernel has no built-in grid"
    return _heads(kernel, tensors) or _agreement(tensors)


def refusal(kernel: Any, entry: str, error: int, tensors: dict[str, View], operands: list[View],
            tabled: bool = False) -> ArgumentError:  # fmt: skip
    """The exception for an error of an entry."""
    words = _native.strerror(error)
    on_cpu = all(seen.key[0] == CPU for seen in tensors.values())
    missing = "positions are missing" if tabled else ""
    found = _find(kernel, tensors, operands) if on_cpu or error not in (30, 31, 32) else None
    if found and not (missing and found.startswith(missing)):
        return ArgumentError(found)
    return ArgumentError(f"{kernel.name.decode()}.{entry}: {words}")
