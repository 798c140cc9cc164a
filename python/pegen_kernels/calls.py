"""A call of a kernel's entry, built once for every combination of shapes and then reused: only addresses change."""
from __future__ import annotations

import ctypes
from typing import Any

from . import _native
from ._native import Args, DLTensor, GradArgs, library
from .arrays import CUDA, View


class Call:
    """pegen_args with all that it points to. Of one thread at a time.

    tensors: by field of pegen_args; those of pegen_grad_args are called "grad.q_out" and so on; operands and inputs are
    lists of their own; of those, gradients are "grad.operand.0" and so on. numbers: scale, causal; flags of the
    gradients."""

    def __init__(self, kernel: Any, size_of_workspace: Any, tensors: dict[str, View], operands: list[View],
                 inputs: list[View], numbers: dict[str, Any]) -> None:  # fmt: skip
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
        self._grad_operands = (ctypes.c_void_p * (len(operands) + 1))()
        for name, place in zip(tensors, places):
            if name.startswith("grad.operand."):
                self._grad_operands[int(name[13:])] = place
                self._grad.operands = ctypes.addressof(self._grad_operands)
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
        self._workspace = self._room(size_of_workspace)

    def _describe(self, slot: DLTensor, key: tuple[Any, ...]) -> None:
        slot.device_type, slot.device_id, slot.code, slot.bits, shape, strides = key
        slot.ndim, slot.lanes = len(shape), 1
        sizes = (ctypes.c_int64 * (2 * len(shape) + 1))(*shape, *strides)
        self._sizes.append(sizes)
        slot.shape = ctypes.addressof(sizes)
        slot.strides = slot.shape + 8 * len(shape)

    def _room(self, size_of_workspace: Any) -> Any:
        size = size_of_workspace(self.reference) if size_of_workspace else 0
        if not size:
            return None
        room = ctypes.create_string_buffer(size + 64)
        self.args.workspace = (ctypes.addressof(room) + 63) & ~63
        self.args.workspace_bytes = size
        return room

    def point(self, views: list[View]) -> None:
        """Sets the addresses, in the order of tensors, operands, inputs."""
        for slot, seen in zip(self._slots, views):
            slot.data = seen.address


def run(kernel: Any, entry: Any, name: str, call: Call, device: int, threads: int, stream: int) -> int:
    """Calls the entry on the caller's memory; on a GPU's, queues it on the stream. The error, or 0."""
    if device == CUDA:
        return library.pegen_launch(ctypes.addressof(kernel), name.encode(), call.reference, stream)
    if threads > 1:
        return library.pegen_parallel(ctypes.cast(entry, ctypes.c_void_p), call.reference, threads)
    return entry(call.reference, 0, 1)


def entry_of(kernel: Any, field: str, prototype: Any = _native.Entry) -> Any:
    """The function at a field of pegen_kernel, or None."""
    address = _native.field(kernel, field)
    return prototype(address) if address else None
