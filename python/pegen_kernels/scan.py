"""Running sums over tokens (pegen/scan.h): the angles of Selective RoPE and CARoPE, the gates of FoX."""
from __future__ import annotations

import ctypes
import math
import sys
from typing import Any

from ._native import DLTensor, Scan, library, strerror
from .arrays import CPU, View, give_back, view
from .errors import ArgumentError

_REVERSE = 1  # PEGEN_SCAN_REVERSE
_READ = ("float32", "float64", "float16", "bfloat16")
_WRITTEN = ("float32", "float64")


def states_of(shape: tuple[int, ...], sequences: int | None) -> tuple[int, ...]:
    """The shape of states beside x: of its batches, or of so many sequences."""
    return (shape[0] if sequences is None else sequences, shape[1], *shape[3:])


def _bounds(seen: View, count: int) -> str | None:
    """What is wrong with the boundaries of sequences of so many tokens of x."""
    if seen.dtype != "int32":
        return f"cu_seqlens is of type {seen.dtype}; expected int32"
    if len(seen.shape) != 1 or not seen.shape[0]:
        return f"cu_seqlens has the shape {list(seen.shape)}; expected [sequences + 1]"
    if seen.shape[0] > 1 and seen.key[5][0] != 1:
        return "cu_seqlens is not contiguous; expected a copy that is"
    at = list((ctypes.c_int32 * seen.shape[0]).from_address(seen.address))
    if at[0]:
        return f"cu_seqlens begins at {at[0]}; expected 0"
    for i in range(len(at) - 1):
        if at[i] > at[i + 1]:
            return f"cu_seqlens falls from {at[i]} to {at[i + 1]} in sequence {i}; expected boundaries that never fall"
    rest = "; rows behind the last sequence are one sequence more" * (at[-1] < count)
    return f"cu_seqlens ends at {at[-1]}; expected {count}, the rows of x{rest}" if at[-1] != count else None


def _refusal(views: dict[str, View], period: float) -> str | None:
    x, bounds = views["x"], views.get("cu_seqlens")
    if len(x.shape) not in (3, 4):
        return f"x has {len(x.shape)} dimensions; expected [batches, heads, tokens, channels] or without channels"
    if x.dtype not in _READ:
        return f"x is of type {x.dtype}; expected float32, float64, float16 or bfloat16"
    if not 0 <= period < math.inf:
        return f"period is {period}; expected 0 or a positive number"
    for name, seen in views.items():
        if seen.key[0] != CPU:
            return f"{name} is on a GPU; expected an array on the host, where sums are made"
    if bounds and x.shape[0] != 1:
        return f"x has {x.shape[0]} batches; expected 1, in which the sequences of cu_seqlens follow each other"
    if bounds and (reason := _bounds(bounds, x.shape[2])):
        return reason
    states = states_of(x.shape, bounds.shape[0] - 1 if bounds else None)
    for name, shape, types in [("out", x.shape, _WRITTEN), ("state", states, _WRITTEN[1:])]:
        seen = views.get(name)
        if seen and (seen.shape != shape or seen.dtype not in types):
            return f"{name} is {seen.dtype} {list(seen.shape)}; expected {' or '.join(types)} {list(shape)}"
    return None


def run(views: dict[str, View], period: float, reverse: bool, threads: int) -> None:
    """x, out, and of state, state_out and cu_seqlens those that there are."""
    refused = _refusal(views, period)
    if refused:
        raise ArgumentError(refused)
    slots, sizes = (DLTensor * len(views))(), []
    scan = Scan(struct_size=ctypes.sizeof(Scan), flags=_REVERSE if reverse else 0, period=period)
    fields = {"x": "input", "state": "state_in"}
    for slot, (name, seen) in zip(slots, views.items()):
        slot.device_type, slot.device_id, slot.code, slot.bits, shape, strides = seen.key
        slot.data, slot.ndim, slot.lanes = seen.address, len(shape), 1
        sizes.append((ctypes.c_int64 * (2 * len(shape) + 1))(*shape, *strides))
        slot.shape = ctypes.addressof(sizes[-1])
        slot.strides = slot.shape + 8 * len(shape)
        setattr(scan, fields.get(name, name), ctypes.addressof(slot))
    error = library.pegen_scan_parallel(ctypes.byref(scan), threads)
    if error:
        raise ArgumentError(strerror(error))


def _made(x: Any, shape: tuple[int, ...], dtype: str) -> Any:
    torch = sys.modules.get("torch")
    if torch and isinstance(x, torch.Tensor):
        return torch.empty(shape, dtype=getattr(torch, dtype), device=x.device)
    import numpy

    return numpy.empty(shape, dtype=dtype)


def _by_way_of_host(x: Any, out: Any, state: Any, cu_seqlens: Any, **rest: Any) -> Any:
    """Scans a tensor on a device: sums are made in the order of the tokens, on the host."""
    here = [y.cpu() if hasattr(y, "cpu") else y for y in (x, state, cu_seqlens)]
    made = scan(here[0], here[1], cu_seqlens=here[2], out=None if out is None else out.cpu(), **rest)
    sums, reached = made if rest["with_state"] else (made, None)
    sums = sums.to(x.device) if out is None else out.copy_(sums)
    return (sums, reached.to(x.device)) if rest["with_state"] else sums


def scan(x: Any, state: Any = None, *, cu_seqlens: Any = None, period: float = 0.0, reverse: bool = False,
         dtype: str | None = None, out: Any = None, with_state: bool = False, threads: int = 1) -> Any:  # fmt: skip
    """state + x[0] + ... + x[t] of each token t, in float64 and in the order of the tokens.

    x: [B,H,N,C] or [B,H,N] of float32, float64, float16 or bfloat16, any strides but of channels. state: what sums
    begin with, float64 [B,H,C] or [B,H]; with_state: what they have come to is returned, too, for the tokens that
    follow. Tokens in pieces give the same bits as at once, and so does any number of threads. cu_seqlens: int32
    [sequences + 1] where x is one batch in which sequences follow each other, each with a state. period: sums are
    returned less whole periods, within half of one (2 * math.pi: angles of a long text, in float32). reverse: from the
    last token to the first, which is the gradient of the other. dtype: "float32" or "float64", by default float64 of
    float64 and float32 of all others; out: an array for it, which may be x itself.
    Tensors on a CUDA device are copied to the host and back, which waits for the device.
    """
    if getattr(x, "is_cuda", False):
        return _by_way_of_host(x, out, state, cu_seqlens, period=period, reverse=reverse, dtype=dtype,
                               with_state=with_state, threads=threads)  # fmt: skip
    seen = {"x": view("x", x)}
    shape = seen["x"].shape
    if cu_seqlens is not None:
        seen["cu_seqlens"] = view("cu_seqlens", cu_seqlens)
    if dtype not in (None, *_WRITTEN):
        raise ArgumentError(f"dtype is '{dtype}'; expected 'float32' or 'float64'")
    made = out
    if made is None:
        made = _made(x, shape, dtype or ("float64" if seen["x"].dtype == "float64" else "float32"))
    seen["out"] = view("out", made, written=True)
    if dtype and seen["out"].dtype != dtype:
        raise ArgumentError(f"out is of type {seen['out'].dtype}; expected {dtype}, as dtype says")
    if state is not None:
        seen["state"] = view("state", state)
    if not with_state:
        run(seen, period, reverse, threads)
        return give_back(x, made) if out is None else out
    bounds = seen.get("cu_seqlens")
    reached = _made(x, states_of(shape, bounds.shape[0] - 1 if bounds and bounds.shape else None), "float64")
    seen["state_out"] = view("state_out", reached, written=True)
    run(seen, period, reverse, threads)
    return give_back(x, made) if out is None else out, give_back(x, reached)
