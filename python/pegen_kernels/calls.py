"""A call of a kernel's entry, built once for every combination of shapes and then reused: only addresses change."""
from __future__ import annotations

import ctypes
import functools
import warnings
from typing import Any

from . import _native
from ._native import Args, DLTensor, GradArgs, library
from .arrays import CPU, CUDA, View, room_beside

NO_GRADIENT = 56  # PEGEN_ERROR_NO_GRADIENT


class Call:
    """pegen_args with all that it points to, for one thread at a time.

    tensors: by field of pegen_args; those of pegen_grad_args are called "grad.q_out" and so on; operands and inputs are
    lists of their own; of those, gradients are "grad.operand.0", "grad.input.0" and so on. numbers: scale, causal;
    flags of the gradients. tables: as of set_tables, for the first call."""

    def __init__(self, kernel: Any, size_of_workspace: Any, tensors: dict[str, View], operands: list[View],
                 inputs: list[View], numbers: dict[str, Any], tables: Any = ((0, 0), (0, 0), 0)) -> None:  # fmt: skip
        every = [*tensors.values(), *operands, *inputs]
        self._slots = (DLTensor * len(every))()
        self._sizes = []
        for slot, seen in zip(self._slots, every):
            self._describe(slot, seen.key)
            slot.data = seen.address
        numbers = dict(numbers)
        flags = numbers.pop("flags", 0)
        self.args = Args(struct_size=ctypes.sizeof(Args), n_operands=len(operands), n_inputs=len(inputs), **numbers)
        base, step = ctypes.addressof(self._slots), ctypes.sizeof(DLTensor)
        places = [base + i * step for i in range(len(every))]
        self._grad = GradArgs(struct_size=ctypes.sizeof(GradArgs), flags=flags)
        self._grad_lists = {
            kind: (ctypes.c_void_p * (len(given) + 1))() for kind, given in (("operand", operands), ("input", inputs))
        }
        for name, place in zip(tensors, places):
            kind, _, index = name.removeprefix("grad.").partition(".")
            if index:
                self._grad_lists[kind][int(index)] = place
                setattr(self._grad, f"{kind}s", ctypes.addressof(self._grad_lists[kind]))
                self.args.grad = ctypes.addressof(self._grad)
            elif name.startswith("grad."):
                setattr(self._grad, name[5:], place)
                self.args.grad = ctypes.addressof(self._grad)
            else:
                setattr(self.args, name, place)
        rest = places[len(tensors) :]
        self._operands = (ctypes.c_void_p * (len(operands) + 1))(*rest[: len(operands)])
        self._inputs = (ctypes.c_void_p * (len(inputs) + 1))(*rest[len(operands) :])
        self.args.operands = ctypes.addressof(self._operands)
        self.args.inputs = ctypes.addressof(self._inputs)
        self.reference = ctypes.byref(self.args)
        self.flags = flags
        self.set_tables(*tables[:2], flags | tables[2])
        self._size = size_of_workspace(self.reference) if size_of_workspace else 0
        self._on_host = every[0].key[0] == CPU if every else True
        self._workspace = self._host_room() if self._size and self._on_host else None

    def _describe(self, slot: DLTensor, key: tuple[Any, ...]) -> None:
        slot.device_type, slot.device_id, slot.code, slot.bits, shape, strides = key
        slot.ndim, slot.lanes = len(shape), 1
        sizes = (ctypes.c_int64 * (2 * len(shape) + 1))(*shape, *strides)
        self._sizes.append(sizes)
        slot.shape = ctypes.addressof(sizes)
        slot.strides = slot.shape + 8 * len(shape)

    def _host_room(self) -> Any:
        room = ctypes.create_string_buffer(self._size + 64)
        self.args.workspace = (ctypes.addressof(room) + 63) & ~63
        self.args.workspace_bytes = self._size
        return room

    def borrow(self, views: list[View]) -> Any:
        """A GPU's workspace, for one call: what it returns is to be kept until the work is queued."""
        if not self._size or self._on_host:
            return None
        self.args.workspace, room = room_beside(views[0], self._size)
        self.args.workspace_bytes = self._size
        return room

    def set_tables(self, table: tuple[int, int], gradients: tuple[int, int], flags: int) -> None:
        """Address and bytes of the table and of that of gradients, and the gradients' flags; 0: there is none."""
        self.args.table, self.args.table_bytes = table
        self._grad.table, self._grad.table_bytes = gradients
        self._grad.flags = flags

    def point(self, views: list[View]) -> None:
        """Sets the addresses, in the order of tensors, operands, inputs."""
        for slot, seen in zip(self._slots, views):
            slot.data = seen.address


_LONG_WAIT = 1.0  # seconds
_told: set[str] = set()


def tell_wait(kernel: str, seconds: float) -> None:
    """Warns, once of each kernel, of a first call that waited long for the driver."""
    if seconds > _LONG_WAIT and kernel not in _told:
        _told.add(kernel)
        warnings.warn(
            f"{kernel}: the CUDA driver took {seconds:.1f} s to assemble its PTX in this first call; later calls do not"
            " wait",
            stacklevel=2,
        )


def run(kernel: Any, entry: Any, name: str, call: Call, device: int, threads: int, stream: int) -> int:
    """Calls the entry on the caller's memory; on a GPU's, queues it on the stream. The error, or 0."""
    if device == CUDA:
        error = library.pegen_launch(ctypes.addressof(kernel), name.encode(), call.reference, stream)
        tell_wait(kernel.name.decode(), library.pegen_cuda_assembly_seconds())
        return error
    if threads > 1:
        return library.pegen_parallel(ctypes.cast(entry, ctypes.c_void_p), call.reference, threads)
    return entry(call.reference, 0, 1)


def cuda_workspace(kernel: Any, name: str) -> Any:
    """What says of arguments how many bytes of a GPU's memory a call and its finish have; 0 where it is refused."""
    return lambda reference: library.pegen_cuda_workspace(ctypes.addressof(kernel), name.encode(), reference)


def entry_of(kernel: Any, field: str) -> Any:
    """The function at a field of pegen_kernel, or None."""
    return _native.field(kernel, field) or None


@functools.lru_cache(maxsize=None)
def gains_of_attention(kernel: Any) -> frozenset[str]:
    """What has a gradient of a Kernel's attention: "q" (with k and v), "operand.0", "input.0", "positions" and so on.
    It is asked for one alone of a call without rows, which it refuses in any case: what has no gradient it says
    first."""
    entry, some = kernel._entries["attention_backward"], View(64, (CPU, 0, 2, 32, (1,), (1,)), None)
    if not entry:
        return frozenset()
    names = ["q", "positions", "k_positions", *(f"operand.{i}" for i in range(len(kernel.operands)))]
    names += [f"input.{i}" for i in range(len(kernel.inputs))]

    def has(name: str) -> bool:
        lists = [some] * len(kernel.operands), [some] * len(kernel.inputs)
        given = {"positions": some, "k_positions": some, f"grad.{name}": some}  # what is not given gains nothing
        call = Call(kernel._info, None, given, *lists, {})
        return entry(call.reference, 0, 1) != NO_GRADIENT

    return frozenset(filter(has, names))
