"""Why a kernel refused a call, by the argument's name. Looked for after the refusal alone: kernels check everything
before they write, so a call that goes well pays nothing for this."""
from __future__ import annotations

from typing import Any

from . import _native
from .arrays import CPU, View, contiguous
from .errors import ArgumentError

_ROWS = ("q", "k", "v", "q_out", "k_out", "out", "grad.q_out", "grad.k_out", "grad.q", "grad.k")
_READ = ("q", "k", "v", "grad.q_out", "grad.k_out")
_ARGUMENTS = {
    "q_out": "out of q", "k_out": "out of k", "grad.q_out": "grad_q", "grad.k_out": "grad_k",
    "grad.q": "out of grad_q", "grad.k": "out of grad_k", "grad.v": "out of grad_v", "grad.out": "grad",
    "grad.lse": "grad_lse", "grad.positions": "out of grad_positions", "grad.k_positions": "out of grad_k_positions",
}  # fmt: skip
_WRITTEN = (("q_out", "q"), ("k_out", "k"), ("out", "q"), ("grad.q", "grad.q_out"), ("grad.k", "grad.k_out"))
_POSITIONS = ("float32", "float64", "int32", "int64")
_OPERANDS = ("float32", "float64", "float16", "bfloat16")


def _rows(kernel: Any, name: str, seen: View) -> str | None:
    names = "[batches, heads, tokens, channels]"
    if len(seen.shape) != 4:
        return f"{name} has {len(seen.shape)} dimensions; expected four, {names}"
    wide = name in ("q_out", "k_out", "grad.q_out", "grad.k_out")
    width = kernel.out_dim if wide else kernel.head_dim
    if name not in ("v", "out") and seen.shape[3] != width:
        return (
            f"{name} has {seen.shape[3]} channels; expected {width}, the kernel's {'out_dim' if wide else 'head_dim'}"
        )
    if seen.shape[3] > 1 and seen.key[5][3] != 1:
        return f"{name} has channels that are not adjacent (stride {seen.key[5][3]}); expected a copy where they are"
    given = {"float32": 1, "bfloat16": 2, "float16": 4}.get(seen.dtype)
    if given is None and name in _READ:
        return f"{name} is of type {seen.dtype}; expected float32, bfloat16 or float16"
    if given and not kernel.dtypes & given and name in _READ:
        return f"{name} is of type {seen.dtype}, for which the kernel was not compiled (dtypes)"
    return None


def _positions(kernel: Any, name: str, seen: View, tensors: dict[str, View]) -> str | None:
    if seen.dtype not in _POSITIONS:
        return f"{name} are of type {seen.dtype}; expected float32, float64, int32 or int64"
    axes = kernel.n_axes
    if len(seen.shape) not in (2, 3) or seen.shape[-1] != axes:
        return f"{name} have the shape {list(seen.shape)}; expected [tokens, {axes}] or [batches, tokens, {axes}]"
    for of in ("k",) if name == "k_positions" else ("q", "grad.q_out", "k", "grad.k_out"):
        rows = tensors.get(of)
        if not rows or len(rows.shape) != 4 or (of in ("k", "grad.k_out") and name != _places_of_k(tensors)):
            continue
        if seen.shape[-2] != rows.shape[2]:
            of = _ARGUMENTS.get(of, of)
            return f"{name} are of {seen.shape[-2]} tokens; expected {rows.shape[2]}, as many as {of} has"
        if len(seen.shape) == 3 and seen.shape[0] != rows.shape[0]:
            return (
                f"{name} are of {seen.shape[0]} batches; expected {rows.shape[0]}, or [tokens, {axes}] for all of them"
            )
    return None


def _places_of_k(tensors: dict[str, View]) -> str:
    return "k_positions" if "k_positions" in tensors else "positions"


def _input(info: Any, seen: View, rows: View | None) -> str | None:
    name = f"input '{info.name.decode()}'"
    if rows is None or len(rows.shape) != 4:
        return None
    expected = rows.shape[:3] + ((info.size,) if info.size else ())
    if seen.shape != expected:
        return f"{name} has the shape {list(seen.shape)}; expected {list(expected)}, a row for each of q's"
    if seen.dtype not in ("float32", rows.dtype):
        return f"{name} is of type {seen.dtype}; expected float32" + f", or q's {rows.dtype}" * (
            rows.dtype != "float32"
        )
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
    for name in ("q",) if "v" in tensors else ("q", "k"):  # pairs may have fewer heads of keys
        seen = tensors.get(name)
        if seen and len(seen.shape) == 4 and kernel.heads and seen.shape[1] != kernel.heads:
            return f"{name} has {seen.shape[1]} heads; expected {kernel.heads}, which the kernel was made for (heads)"
    return None


def _agreement(tensors: dict[str, View], is_of_types: bool) -> str | None:
    q = tensors.get("q")
    for name, seen in tensors.items():
        if name == "q" or not q or name.startswith("grad.") or name not in _ROWS:
            continue
        if name in ("k", "v") and seen.dtype != q.dtype:
            return f"{name} is of type {seen.dtype}, and q of {q.dtype}; expected one type"
        if seen.shape[0] != q.shape[0]:
            return f"{name} has {seen.shape[0]} batches, and q {q.shape[0]}; expected as many"
    for name, source in _WRITTEN:
        made, given = tensors.get(name), tensors.get(source)
        if not made or not given:
            continue
        of = _ARGUMENTS.get(source, source)
        if made.shape[:3] != given.shape[:3]:
            return f"{name} has the shape {list(made.shape)}, and {of} {list(given.shape)}"
        if is_of_types and made.dtype != given.dtype:  # else it may be one that the kernel converts to
            return f"{name} is of type {made.dtype}, and {of} of {given.dtype}"
    return _attended(tensors)


def _attended(tensors: dict[str, View]) -> str | None:
    if "v" not in tensors:
        return None
    q, k, v, out = (tensors[name].shape for name in ("q", "k", "v", "out"))
    if not k[1] or q[1] % k[1]:
        return f"k has {k[1]} heads; expected a divisor of q's {q[1]}"
    if v[1] != k[1] or v[2] != k[2]:
        return f"v has {v[1]} heads of {v[2]} tokens; expected k's, {k[1]} of {k[2]}"
    if out[3] != v[3]:
        return f"out has {out[3]} channels; expected {v[3]}, as many as v has"
    return None


def find(kernel: Any, tensors: dict[str, View], operands: list[View], inputs: list[View],
         is_of_types: bool) -> str | None:  # fmt: skip
    """What is wrong with the arguments, where a reason is found. is_of_types: outputs are of their inputs' type."""
    named = list(tensors.items())
    named += [(f"operand '{kernel.operands[i].name.decode()}'", seen) for i, seen in enumerate(operands)]
    named += [(f"input '{kernel.inputs[i].name.decode()}'", seen) for i, seen in enumerate(inputs)]
    for name, seen in named:
        if seen.key[:2] != named[0][1].key[:2]:
            return f"{name} and {named[0][0]} are on different devices; expected one"
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
    for i, seen in enumerate(inputs):
        if reason := _input(kernel.inputs[i], seen, tensors.get("q")):
            return reason
    if "positions" not in tensors and not kernel.grid and kernel.n_axes and "table_bytes" not in tensors:
        return "positions are missing; this kernel has no built-in grid"
    return _heads(kernel, tensors) or _agreement(tensors, is_of_types)


_STRIDE, _ALIGNMENT, _OVERLAP, _INDEXED = 23, 24, 25, 54
NO_GRADIENT = 56
_SUBJECTS = {
    7: "operands", 16: "positions", 27: "targets", 28: "workspace", 30: "targets", 37: "inputs", 40: "table",
    41: "table", 42: "table", 43: "q_scale, k_scale", 53: "scale", 55: "positions", 57: "lse",
    58: "grad.table", 59: "cu_seqlens, k_cu_seqlens", 60: "cu_seqlens",
}  # fmt: skip
"""What an error is about, of those that no look at the arguments finds."""


def _extent(seen: View) -> tuple[int, int]:
    """The first byte of a tensor and the one behind its last."""
    low = high = 0
    for size, stride in zip(seen.shape, seen.key[5]):
        low, high = low + min(0, (size - 1) * stride), high + max(0, (size - 1) * stride)
    width = seen.key[3] // 8
    empty = 0 in seen.shape
    return seen.address + low * width, seen.address + (low if empty else high + 1) * width


def _of_memory(error: int, named: dict[str, View]) -> str | None:
    """Of addresses and strides: which argument it is."""
    outputs = [name for name in named if name.startswith("out") or name == "lse"]
    if error == _ALIGNMENT:
        name = next((name for name, seen in named.items() if seen.address % max(1, seen.key[3] // 8)), None)
        return name and f"{name} is not aligned to its elements; expected a copy that is"
    if error == _STRIDE:
        for name in outputs:
            if any(size > 1 and not stride for size, stride in zip(named[name].shape, named[name].key[5])):
                return f"{name} has elements that share memory; expected an array without strides of 0"
    if error == _OVERLAP:
        for name in outputs:
            low, high = _extent(named[name])
            for other, seen in named.items():
                begin, end = _extent(seen)
                same = (seen.address, seen.key) == (named[name].address, named[name].key)
                if other != name and not same and begin < high and low < end:
                    return f"{name} overlaps {other}; expected memory of its own, or all of its input's"
    if error == _INDEXED:
        for name, seen in named.items():
            if name.startswith("operand '") and seen.dtype != "float32":
                return f"{name} is of type {seen.dtype}; expected float32, since it is read at computed places"
    return None


def _subject(error: int, entry: str, named: dict[str, View]) -> str:
    if error == NO_GRADIENT:
        asked = [name[12:] for name in named if name.startswith("out of grad_")]
        return ", ".join(asked) or f"gradients of {entry}"
    return _SUBJECTS.get(error) or next(iter(named), f"arguments of {entry}")


def _of_one_batch(seen: View) -> View:
    """Rows [total,H,D] as [1,H,total,D], [total,H] as [1,H,total]."""
    *type_of, shape, strides = seen.key
    if len(shape) < 2:
        return seen
    sizes, steps = (1, shape[1], shape[0], *shape[2:]), (0, strides[1], strides[0], *strides[2:])
    return View(seen.address, (*type_of, sizes, steps), seen.keeps)


_OF_ROWS = ("q", "k", "v", "out", "lse")


def refusal(kernel: Any, entry: str, error: int, tensors: dict[str, View], operands: list[View], inputs: list[View],
            tabled: bool = False) -> ArgumentError:  # fmt: skip
    """The exception for an error of an entry."""
    words = _native.strerror(error)
    on_cpu = all(seen.key[0] == CPU for seen in tensors.values())
    missing = "positions are missing" if tabled and entry != "prepare" else ""
    asked = on_cpu or error not in (30, 31, 32)
    named = {_ARGUMENTS.get(name, name): seen for name, seen in tensors.items()}
    if "cu_seqlens" in tensors:
        flat = {name: _of_one_batch(seen) if name in _OF_ROWS else seen for name, seen in tensors.items()}
        found = find(kernel, flat, operands, [_of_one_batch(seen) for seen in inputs], "number type" in words)
    else:
        found = find(kernel, tensors, operands, inputs, "number type" in words) if asked else None
    if found and not (missing and found.startswith(missing)):
        field = next((field for field in _ARGUMENTS if found.startswith(f"{field} ")), "")
        found = _ARGUMENTS.get(field, "") + found[len(field) :]
        return ArgumentError(found)
    named = named | {f"operand '{kernel.operands[i].name.decode()}'": seen for i, seen in enumerate(operands)}
    about = _of_memory(error, named) or f"{_subject(error, entry, named)}: {words}"
    return ArgumentError(about)
