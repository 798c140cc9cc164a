"""Why a kernel refused a call, by the argument's name. Looked for after the refusal alone: kernels check everything
before they write, so a call that goes well pays nothing for this."""
from __future__ import annotations

import ctypes
import math
from typing import Any

from . import _native
from .arrays import CPU, View, contiguous
from .errors import ArgumentError

_ROWS = ("q", "k", "v", "q_out", "k_out", "out", "grad.q_out", "grad.k_out", "grad.q", "grad.k")
_READ = ("q", "k", "v", "grad.q_out", "grad.k_out")
_ARGUMENTS = {
    "q_out": "out of q", "k_out": "out of k", "v_out": "v_cache", "grad.q_out": "grad_q", "grad.k_out": "grad_k",
    "grad.q": "out of grad_q", "grad.k": "out of grad_k", "grad.v": "out of grad_v", "grad.out": "grad",
    "grad.lse": "grad_lse", "grad.positions": "out of grad_positions", "grad.k_positions": "out of grad_k_positions",
}  # fmt: skip
_WRITTEN = (("q_out", "q"), ("k_out", "k"), ("out", "q"), ("grad.q", "grad.q_out"), ("grad.k", "grad.k_out"))
_POSITIONS = ("float32", "float64", "int32", "int64")
_OPERANDS = ("float32", "float64", "float16", "bfloat16")


def _rows(kernel: Any, name: str, seen: View) -> str | None:
    names = "[batches, heads, tokens, channels], or three, [tokens, heads, channels]"
    if len(seen.shape) != 4:
        return f"{name} has {len(seen.shape)} dimensions; expected four, {names}"
    wide = name in ("q_out", "k_out", "grad.q_out", "grad.k_out")
    width = _native.width_of(kernel, seen.dtype) if wide else kernel.head_dim
    if name not in ("v", "out") and seen.shape[3] != width:
        what = f"width of {seen.dtype} rows" if wide else "head_dim"
        return f"{name} has {seen.shape[3]} channels; expected {width}, the kernel's {what}"
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
    seen = _with_axis(axes, name, seen, tensors)
    if len(seen.shape) not in (2, 3) or seen.shape[-1] != axes:
        more = ", [tokens] or [batches, tokens]" if axes == 1 else ""
        return f"{name} have the shape {list(seen.shape)}; expected [tokens, {axes}] or [batches, tokens, {axes}]{more}"
    if name == "positions" and (reason := _positions_of_one(seen, tensors)):
        return reason
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


def _positions_of_one(seen: View, tensors: dict[str, View]) -> str | None:
    """Positions of the tokens of q or of k alone, where these are different ones, as of a decoded token and a cache."""
    for q, k in (("q", "k"), ("grad.q_out", "grad.k_out")):
        tokens = [len(x.shape) == 4 and x.shape[2] for x in (tensors.get(q), tensors.get(k)) if x is not None]
        if len(tokens) == 2 and tokens[0] != tokens[1] and "k_positions" not in tensors:
            return (
                f"positions are of {seen.shape[-2]} tokens, and q has {tokens[0]}, k {tokens[1]}; expected positions of"
                f" q's {tokens[0]} and k_positions of k's {tokens[1]}"
            )
    return None


def _grid(kernel: Any, tensors: dict[str, View]) -> str | None:
    """Rows of a built-in grid, whose positions are left out."""
    if "positions" in tensors or "k_positions" in tensors or "cu_seqlens" in tensors or not kernel.grid:
        return None
    sizes = [kernel.grid[i] for i in range(kernel.n_axes)]
    tokens = math.prod(sizes) + kernel.skip_tokens
    for name in ("q", "grad.q_out", "k", "grad.k_out"):
        seen = tensors.get(name)
        if seen and len(seen.shape) == 4 and seen.shape[2] != tokens:
            skipped = f" and {kernel.skip_tokens} of skip_tokens" * bool(kernel.skip_tokens)
            return (
                f"{name} has {seen.shape[2]} tokens; expected {tokens}, those of the kernel's grid of"
                f" {' x '.join(map(str, sizes))}{skipped}, or positions"
            )
    return None


def bounds(name: str, seen: View, rows: dict[str, int]) -> str | None:
    """What is wrong with boundaries of sequences. rows: numbers of the rows that they are of, by name."""
    if seen.dtype != "int32":
        return f"{name} is of type {seen.dtype}; expected int32"
    if len(seen.shape) != 1 or not seen.shape[0]:
        return f"{name} has the shape {list(seen.shape)}; expected [sequences + 1]"
    if seen.shape[0] > 1 and seen.key[5][0] != 1:
        return f"{name} is not contiguous; expected a copy that is"
    if seen.key[0] != CPU:
        return f"{name} is on a GPU; expected an array in the processor's memory"
    at = list((ctypes.c_int32 * seen.shape[0]).from_address(seen.address))
    if at[0]:
        return f"{name} begins at {at[0]}; expected 0"
    for i in range(len(at) - 1):
        if at[i] > at[i + 1]:
            return f"{name} falls from {at[i]} to {at[i + 1]} in sequence {i}; expected boundaries that never fall"
    for of, count in rows.items():
        if at[-1] != count:
            rest = "; rows behind the last sequence are one sequence more" * (at[-1] < count)
            return f"{name} ends at {at[-1]}; expected {count}, the rows of {of}{rest}"
    return None


def _sequences(tensors: dict[str, View]) -> str | None:
    """What is wrong with the boundaries of a call, whose rows follow each other."""
    given = [name for name in ("cu_seqlens", "k_cu_seqlens") if name in tensors]
    if given == ["k_cu_seqlens"] and "q" in tensors:
        return "cu_seqlens is missing; expected it beside k_cu_seqlens"
    for name in given:
        of_q, of_k = name == "cu_seqlens", name == given[-1]
        sources = ("q", "grad.q_out") * of_q + ("k", "grad.k_out") * of_k
        found = {_ARGUMENTS.get(of, of): tensors[of] for of in sources if of in tensors}
        rows = {of: seen.shape[0] for of, seen in found.items() if len(seen.shape) == 3}
        if reason := bounds(name, tensors[name], rows):
            return reason
    counts = [tensors[name].shape[0] - 1 for name in given]
    if counts[-1] != counts[0]:
        return f"k_cu_seqlens is of {counts[1]} sequences; expected {counts[0]}, as cu_seqlens"
    return None


def _with_axis(axes: int, name: str, seen: View, tensors: dict[str, View]) -> View:
    """Positions [N] or [B,N] of one axis as [N,1] or [B,N,1]."""
    shape = seen.shape
    of = ("k", "grad.k_out") if name == "k_positions" else ("q", "grad.q_out", "k", "grad.k_out")
    rows = next((x for x in map(tensors.get, of) if x), None)
    is_one = rows is not None and len(rows.shape) == 4 and rows.shape[2] == 1
    if axes != 1 or not (len(shape) == 1 or (len(shape) == 2 and (shape[1] != 1 or (is_one and shape[0] != 1)))):
        return seen
    *type_of, sizes, steps = seen.key
    return View(seen.address, (*type_of, (*sizes, 1), (*steps, 1)), seen.keeps)


def _places_of_k(tensors: dict[str, View]) -> str:
    return "k_positions" if "k_positions" in tensors else "positions"


def _row_input(info: Any, seen: View, tensors: dict[str, View]) -> str | None:
    """Of kernels that turn each row by its own: of q's and of k's tokens alike."""
    name = f"input '{info.name.decode()}'"
    for which in ("q", "k"):
        rows = tensors.get(which)
        if rows is None or len(rows.shape) != 4:
            continue
        expected = rows.shape[:3] + ((info.size,) if info.size else ())
        agrees = [x == y or (i < 2 and x == 1) for i, (x, y) in enumerate(zip(seen.shape, expected))]
        if len(seen.shape) != len(expected) or not all(agrees):
            return (
                f"{name} has the shape {list(seen.shape)}; expected {list(expected)}, a row for each of {which}'s "
                "(1 batch or head: for all); q and k whose tokens or heads differ go in two calls"
            )
    return None if seen.dtype == "float32" else f"{name} is of type {seen.dtype}; expected float32"


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


def _paged_input(info: Any, seen: View, cache: tuple[int, ...], heads: int) -> str | None:
    """Of keys in pages, [pages,page_size,Hkv,D]; heads: of q."""
    name, expected = f"input '{info.name.decode()}'", cache[:3] + ((info.size,) if info.size else ())
    agrees = len(seen.shape) == len(expected) and all(
        x == y or (i == 2 and x in (1, heads)) for i, (x, y) in enumerate(zip(seen.shape, expected))
    )
    if not agrees:
        return (
            f"{name} has the shape {list(seen.shape)}; expected {list(expected)}, in k's pages (1 head: for all, or "
            "heads of q)"
        )
    return None if seen.dtype == "float32" else f"{name} is of type {seen.dtype}; expected float32"


def _pair_input(info: Any, seen: View, tensors: dict[str, View], of_keys: bool,
                cache: tuple[int, ...]) -> str | None:  # fmt: skip
    """Of scores: of q's tokens, or of k's."""
    name, which, q = f"input '{info.name.decode()}'", "k" if of_keys else "q", tensors.get("q")
    rows = tensors.get(which)
    if rows is None or q is None or len(rows.shape) != 4 or len(q.shape) != 4:
        return None
    if of_keys and cache:
        return _paged_input(info, seen, cache, q.shape[1])
    expected = rows.shape[:3] + ((info.size,) if info.size else ())
    heads = {1, rows.shape[1], q.shape[1]}
    agrees = len(seen.shape) == len(expected) and all(
        x == y or (i == 0 and x == 1) or (i == 1 and x in heads) for i, (x, y) in enumerate(zip(seen.shape, expected))
    )
    if not agrees:
        return (
            f"{name} has the shape {list(seen.shape)}; expected {list(expected)}, a row for each of {which}'s "
            f"(1 batch or head: for all{', or heads of q' * of_keys})"
        )
    return None if seen.dtype == "float32" else f"{name} is of type {seen.dtype}; expected float32"


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
    is_pairs = "v" in tensors  # they may have fewer heads of keys
    for name in ("q",) if is_pairs else ("q", "k"):
        seen = tensors.get(name)
        if not seen or len(seen.shape) != 4 or not kernel.heads or seen.shape[1] == kernel.heads:
            continue
        is_shared = name == "q" and not is_pairs and kernel.out_dim == kernel.head_dim
        if not is_shared or seen.shape[1] % kernel.heads or not seen.shape[1]:
            expected = f"{kernel.heads}{' or a multiple of it' if is_shared else ''}"
            return f"{name} has {seen.shape[1]} heads; expected {expected}, which the kernel was made for (heads)"
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
         is_of_types: bool, cache: tuple[int, ...] = ()) -> str | None:  # fmt: skip
    """What is wrong with the arguments, where a reason is found. is_of_types: outputs are of their inputs' type. cache:
    the shape of k in pages."""
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
    of_rows = kernel.encode and not kernel.n_columns
    for i, seen in enumerate(inputs):
        info = kernel.inputs[i]
        if of_rows:
            reason = _row_input(info, seen, tensors)
        elif (_native.field(kernel, "pair_inputs") or 0) >> i & 1:
            of_keys = bool(kernel.key_inputs >> i & 1)
            reason = _pair_input(info, seen, tensors, of_keys, cache)
        else:
            reason = _input(info, seen, tensors.get("q"))
        if reason:
            return reason
    if "positions" not in tensors and not kernel.grid and kernel.n_axes and "table_bytes" not in tensors:
        return "positions are missing; this kernel has no built-in grid"
    return _grid(kernel, tensors) or _heads(kernel, tensors) or _agreement(tensors, is_of_types)


_STRIDE, _ALIGNMENT, _OVERLAP, _INDEXED = 23, 24, 25, 54
_OF_SEQUENCES = (59, 72)  # PEGEN_ERROR_SEQUENCES, _BOUNDS
NO_GRADIENT = 56
_SUBJECTS = {
    7: "operands", 16: "positions", 27: "targets", 28: "workspace", 30: "targets", 37: "inputs", 40: "table",
    41: "table", 42: "table", 43: "q_scale, k_scale", 51: "v, out", 53: "scale", 55: "positions", 57: "lse",
    58: "grad.table", 59: "cu_seqlens, k_cu_seqlens", 60: "cu_seqlens",
    61: "block_table, lengths, k, v", 62: "block_table", 63: "lengths", 64: "block_table", 65: "slots", 66: "slots",
    67: "slots", 68: "q_norm, k_norm, epsilon", 69: "q_norm, k_norm, v_cache", 72: "cu_seqlens, k_cu_seqlens",
    73: "positions", 74: "origin",
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


def _of_pages(seen: View, batches: int, keys: int) -> View:
    """A cache [pages,page_size,Hkv,D] as the rows [batches,Hkv,keys,D] that a call without pages would have."""
    *type_of, shape, strides = seen.key
    if len(shape) != 4:
        return seen
    sizes, steps = (batches, shape[2], keys, shape[3]), (0, strides[2], 0, strides[3])
    return View(seen.address, (*type_of, sizes, steps), seen.keeps)


def _without_pages(tensors: dict[str, View], of_rows: dict[str, View]) -> dict[str, View]:
    """`of_rows`, with the keys of `tensors` as rows that follow each other, and positions of one sequence."""
    batches = of_rows["q"].shape[0] if of_rows["q"].shape else 0
    places = tensors.get("k_positions")
    keys = places.shape[-2] if places is not None and len(places.shape) > 1 else 1
    rows = of_rows | {name: _of_pages(tensors[name], batches, keys) for name in ("k", "v")}
    if "cu_seqlens" in tensors and places is not None and len(places.shape) == 3:
        *type_of, shape, strides = places.key
        rows["k_positions"] = View(places.address, (*type_of, shape[1:], strides[1:]), places.keeps)
    return rows


def _of_one_batch(seen: View) -> View:
    """Rows [total,H,D] as [1,H,total,D], [total,H] as [1,H,total]."""
    *type_of, shape, strides = seen.key
    if len(shape) < 2:
        return seen
    sizes, steps = (1, shape[1], shape[0], *shape[2:]), (0, strides[1], strides[0], *strides[2:])
    return View(seen.address, (*type_of, sizes, steps), seen.keeps)


def _at_slots(tensors: dict[str, View]) -> dict[str, View]:
    """Rows of q and k of a call with slots, as those of batches."""
    rows = {name: seen for name, seen in tensors.items() if name not in ("v", "v_out")}
    flat = {name: _of_one_batch(rows[name]) for name in ("q", "q_out", "k") if name in rows}
    return rows | {name: seen for name, seen in flat.items() if len(rows[name].shape) == 3}


def _values(tensors: dict[str, View]) -> str | None:
    """Of `append`, whose v is as k."""
    k, v, cache = tensors["k"], tensors.get("v"), tensors.get("v_out")
    if v is None or cache is None:
        return None
    if v.shape != k.shape or v.dtype != k.dtype:
        return f"v is of type {v.dtype} and has the shape {list(v.shape)}; expected {k.dtype} and {list(k.shape)}, as k"
    if len(cache.shape) != 4 or cache.shape[2:] != (k.shape[1], k.shape[-1]):
        expected = f"[pages, tokens of a page, {k.shape[1]}, {k.shape[-1]}]"
        return f"v_cache has the shape {list(cache.shape)}; expected {expected}"
    return None


def _is_flat(tensors: dict[str, View]) -> bool:
    return "cu_seqlens" in tensors or any(len(tensors[name].shape) == 3 for name in _READ if name in tensors)


def ranks(tensors: dict[str, View]) -> str | None:
    """What is wrong with the numbers of dimensions of rows, of which one has three."""
    given = {_ARGUMENTS.get(name, name): len(seen.shape) for name, seen in tensors.items() if name in _ROWS}
    (first, rank), *others = given.items()
    for name, other in others:
        if other != rank:
            return f"{name} has {other} dimensions, and {first} {rank}; expected as many"
    if "cu_seqlens" in tensors and rank != 3:
        return f"{first} has {rank} dimensions; expected [tokens, heads, channels]"
    return None


_OF_ROWS = (*_ROWS, "lse", "grad.out", "grad.lse", "grad.v")


def of_batches(
    tensors: dict[str, View], inputs: list[View], but: tuple[str, ...] = ()
) -> tuple[dict[str, View], list[View]]:
    """Rows [total,H,D] and their inputs as those of one batch; those of the names `but` as they are."""
    flat = {
        name: _of_one_batch(seen) if name in _OF_ROWS and name not in but else seen for name, seen in tensors.items()
    }
    return flat, [_of_one_batch(seen) for seen in inputs]


_NO_PTX, _OF_CUDA = 30, 32


def _chip(kernel: Any, error: int, tensors: dict[str, View]) -> str | None:
    """A kernel that was not compiled for the device."""
    device = next(seen.key[1] for seen in tensors.values() if seen.key[0] != CPU)
    chip = _native.library.pegen_cuda_chip(device)
    is_other = error == _NO_PTX or _native.library.pegen_cuda_error_name() in _OTHER_CHIP
    if not chip or not is_other:
        return None
    targets = filter(None, (*kernel.targets.decode().split(), _native.chip_of(kernel)))
    return (
        f"targets: {kernel.name.decode()} was compiled for {', '.join(targets)}, and device"
        f" {device} is of sm_{chip}; expected targets that have sm_{chip} or lower, or none, which compiles for it"
    )


_OTHER_CHIP = (b"CUDA_ERROR_NO_BINARY_FOR_GPU", b"CUDA_ERROR_INVALID_PTX", b"CUDA_ERROR_UNSUPPORTED_PTX_VERSION")


def refusal(kernel: Any, entry: str, error: int, tensors: dict[str, View], operands: list[View], inputs: list[View],
            tabled: bool = False) -> ArgumentError:  # fmt: skip
    """The exception for an error of an entry."""
    words = _native.strerror(error)
    on_cpu = all(seen.key[0] == CPU for seen in tensors.values())
    missing = "positions are missing" if tabled and entry != "prepare" else ""
    asked = on_cpu or error not in (30, 31, 32)
    named = {_ARGUMENTS.get(name, name): seen for name, seen in tensors.items()}
    if error in _OF_SEQUENCES and (reason := _sequences(tensors)):
        return ArgumentError(reason)
    if "slots" in tensors and "k" in tensors and "k_out" in tensors and len(tensors["k"].shape) in (3, 4):
        of_rows = _at_slots(tensors)
        batches, _, count, _ = of_rows["k"].shape
        of_rows["k_out"] = _of_pages(tensors["k_out"], batches, count)
        found = None
        if not 65 <= error <= 69:
            found = find(kernel, of_rows, operands, inputs, "number type" in words) or _values(tensors)
    elif asked and ("block_table" in tensors or ("slots" not in tensors and _is_flat(tensors))):
        is_paged, is_flat = "block_table" in tensors, _is_flat(tensors)
        if not is_paged and (reason := ranks(tensors)):
            return ArgumentError(reason)
        flat, rows = of_batches(tensors, inputs, ("k", "v") if is_paged else ()) if is_flat else (tensors, inputs)
        of_keys = (_native.field(kernel, "key_inputs") or 0) if is_paged else 0  # in pages, as they were given
        rows = [given if of_keys >> i & 1 else row for i, (given, row) in enumerate(zip(inputs, rows))]
        if is_paged:
            flat = _without_pages(tensors, flat)
        cache = tensors["k"].shape if is_paged else ()
        is_found = not 61 <= error <= 64
        found = find(kernel, flat, operands, rows, "number type" in words, cache) if is_found else None
    else:
        found = find(kernel, tensors, operands, inputs, "number type" in words) if asked else None
    if found and not (missing and found.startswith(missing)):
        field = next((field for field in _ARGUMENTS if found.startswith(f"{field} ")), "")
        found = _ARGUMENTS.get(field, "") + found[len(field) :]
        return ArgumentError(found)
    named = named | {f"operand '{kernel.operands[i].name.decode()}'": seen for i, seen in enumerate(operands)}
    if not on_cpu and error in (_NO_PTX, _OF_CUDA) and (reason := _chip(kernel, error, tensors)):
        return ArgumentError(reason)
    about = _of_memory(error, named) or f"{_subject(error, entry, named)}: {words}"
    return ArgumentError(about)
