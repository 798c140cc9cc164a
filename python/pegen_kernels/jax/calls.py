"""A call of a kernel's entry as a custom call of XLA's, and the handler that XLA finds it by (pegen/xla.h)."""
from __future__ import annotations

import ctypes
import functools
import hashlib
import threading
from typing import Any, Mapping, NamedTuple

import jax
import numpy
from jax import numpy as jnp

from .. import _native
from ..arrays import CPU, View, code_of, contiguous
from ..calls import Call, cuda_workspace
from ..errors import ArgumentError
from ..kernel import Kernel
from ..refusals import explain

# ---- the handler ----

_TARGET = "pegen_kernels"
# As pegen/xla.h, like what follows.
_ENTRIES = ("encode", "attention", "encode_backward", "attention_backward", "attention_tangent")
_ROLES = {
    name: role for role, name in enumerate(
        ("q", "k", "v", "q_out", "k_out", "out", "positions", "k_positions", "grad.q_out", "grad.k_out", "grad.q",
         "grad.k", "grad.positions", "grad.k_positions", "workspace", "lse", "grad.out", "grad.lse", "grad.v",
         "cu_seqlens", "k_cu_seqlens"))
}  # fmt: skip
_LISTS = {"operand": 256, "input": 512, "grad.operand": 768, "grad.input": 1024}
_ROWS = ("q", "k", "v", "q_out", "k_out", "out", "grad.q_out", "grad.k_out", "grad.q", "grad.k", "grad.out", "grad.v")
BOUNDS = ("cu_seqlens", "k_cu_seqlens")
MOST_BUFFERS = 64
FROM_INPUT = 2  # PEGEN_GRAD_FROM_INPUT

_known: dict[Kernel, int] = {}  # compiled programs call kernels for as long as the process lives
_lock = threading.Lock()


def _register_target() -> None:
    for platform, name in (("cpu", "pegen_xla_call"), ("CUDA", "pegen_xla_call_cuda")):
        jax.ffi.register_ffi_target(_TARGET, jax.ffi.pycapsule(getattr(_native.library, name)), platform=platform)


@functools.lru_cache(maxsize=None)
def _has_devices() -> bool:
    try:
        return bool(jax.devices("cuda"))
    except RuntimeError:  # how JAX says that it has none
        return False


def _there(kernel: Kernel) -> Kernel:
    """With code for JAX's devices, too: where a program runs is not known while it is traced."""
    return kernel.on_device(0) if _has_devices() else kernel


def number_of(kernel: Kernel) -> int:
    """Under which XLA's programs name the kernel: of what its object holds, so that it is the same in any process."""
    if kernel in _known:
        return _known[kernel]
    with _lock:
        if not _known:
            _register_target()
        number = int.from_bytes(hashlib.blake2b(kernel._data, digest_size=8).digest(), "little", signed=True)
        if error := _native.library.pegen_xla_register(ctypes.addressof(kernel._info), number):
            raise ArgumentError(f"kernel: {_native.strerror(error)}")
        _known[kernel] = number
    return number


# ---- one call ----


def _role(name: str) -> int:
    kind, _, index = name.rpartition(".")
    return _ROLES[name] if name in _ROLES else _LISTS[kind] + int(index)


def _view(name: str, x: Any, is_swapped: bool, address: int) -> View:
    """An array that is traced, as kernels see it; there is nothing at the address."""
    shape, strides = tuple(x.shape), contiguous(tuple(x.shape))
    if is_swapped and name in _ROWS and len(shape) == 4:
        shape, strides = [(a, c, b, d) for a, b, c, d in (shape, strides)]
    return View(address, (CPU, 0, *code_of(name, x.dtype), shape, strides), None)


def _views(given: Mapping[str, Any], is_swapped: bool) -> dict[str, View]:
    return {name: _view(name, x, is_swapped, (i + 1) << 40) for i, (name, x) in enumerate(given.items())}


def _lists(views: dict[str, View]) -> tuple[list[View], list[View]]:
    """Operands, and inputs, in their order."""
    return tuple([x for name, x in views.items() if name.startswith(f"{kind}.")] for kind in ("operand", "input"))


def has_bounds(given: Mapping[str, Any]) -> bool:
    """Whether rows of sequences follow each other."""
    return any(name in given for name in BOUNDS)


def _asked(kernel: Kernel, views: dict[str, View], numbers: dict[str, int]) -> Call:
    """The call of arrays that are traced, which can be asked about; it lives while it is asked."""
    tensors = {name: x for name, x in views.items() if not name.startswith(("operand.", "input."))}
    return Call(kernel._info, None, tensors, *_lists(views), numbers)


def _check(kernel: Kernel, entry: str, views: dict[str, View]) -> None:
    """What the kernel would refuse, while Python is there to say it."""
    asked = _asked(kernel, views, {})
    if reason := explain(kernel._info, entry, asked.args):
        raise ArgumentError(reason)


def _workspace(kernel: Kernel, entry: str, views: dict[str, View], flags: int) -> int:
    """Bytes that the call needs beside its tensors, on processors and on GPUs: where a program runs is not known while
    it is traced. Where boundaries say how many the handler has them."""
    if has_bounds(views):
        return 0
    of_host = kernel._sizes.get("workspace" if entry == "encode" else f"{entry}_workspace")
    numbers = {"flags": flags, "split_keys": int(entry == "attention")}
    asked = _asked(kernel, views, numbers)
    sizes_of = (of_host, cuda_workspace(kernel._info, entry))
    size = max((size_of(asked.reference) for size_of in sizes_of if size_of), default=0)
    return size + 63 & ~63  # so that every sample's of a vmap is as aligned as the first


def axes_of(x: Any) -> frozenset[str]:
    """Axes of the mesh along which x varies inside shard_map."""
    manual = getattr(jax.typeof(x), "mat", None)
    return manual.varying if manual else frozenset()


def _result(x: Any, axes: frozenset[str]) -> Any:
    """A result's shape and type, varying along axes of a mesh."""
    if not axes:
        return x
    place = jax.sharding.NamedSharding(
        jax.sharding.get_abstract_mesh(), jax.sharding.PartitionSpec(*[None] * len(x.shape))
    )
    manual = jax.sharding.ManualAxisType(varying=axes)
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place, manual_axis_type=manual)


class Static(NamedTuple):
    """What of a call is no array."""

    kernel: Kernel
    names: tuple[str, ...]  # of the rows: q, k or both
    layout: str
    in_place: bool


def call(static: Static, entry: str, given: dict[str, Any], made: dict[str, Any], *, flags: int = 0,
         causal: bool = False, scale: float = 0.0) -> dict[str, Any]:  # fmt: skip
    """given: arrays by their names in the call; made: shapes and types of results by theirs."""
    kernel, is_swapped = _there(static.kernel), static.layout == "BNHD"
    views = _views({**given, **made}, is_swapped)
    _check(kernel, entry, views)
    if size := _workspace(kernel, entry, views, flags):
        made = {**made, "workspace": jax.ShapeDtypeStruct((size,), jnp.uint8)}
    if len(given) + len(made) > MOST_BUFFERS:
        raise ArgumentError(f"{kernel.name} takes {len(given) + len(made)} arrays; at most {MOST_BUFFERS} can be")
    results = [_result(x, axes_of(next(iter(given.values())))) for x in made.values()]
    places = list(given)
    aliases = {
        places.index(name[:-4]): i for i, name in enumerate(made) if static.in_place and name in ("q_out", "k_out")
    }
    custom_call = jax.ffi.ffi_call(
        _TARGET, results, input_output_aliases=aliases, vmap_method="broadcast_all" if aliases else "expand_dims"
    )
    numbers = {
        "kernel": number_of(kernel), "entry": _ENTRIES.index(entry), "layout": int(is_swapped), "flags": flags,
        "causal": int(causal),
    }  # fmt: skip
    roles = {"arguments": [_role(name) for name in given], "results": [_role(name) for name in made]}
    out = custom_call(
        *given.values(),
        scale=numpy.float64(scale),
        **{name: numpy.int64(value) for name, value in numbers.items()},
        **{name: numpy.array(value, numpy.int64) for name, value in roles.items()},
    )
    return dict(zip(made, out))
