"""First values of operands, as their descriptions state them (`init`, docs/spec-language.md)."""
from __future__ import annotations

import math
from typing import Any, Mapping

import torch

from ..errors import ArgumentError
from ..kernel import Kernel
from ..records import Operand


def _truncated(shape: list[int], deviation: float, low: float, high: float) -> torch.Tensor:
    """Normal inside low .. high, by the inverse of its distribution function."""
    bounds = [(1 + math.erf(x / deviation / math.sqrt(2))) / 2 for x in (low, high)]
    places = bounds[0] + (bounds[1] - bounds[0]) * torch.rand(shape, dtype=torch.float64)
    return (deviation * math.sqrt(2) * torch.erfinv(2 * places - 1)).clamp(low, high)


def draw(data: dict[str, Any], shape: tuple[int, ...]) -> torch.Tensor:
    """What a description states, the member `initial` of an operand in `Kernel.explain()`, in float32."""
    kind, low, high = data["distribution"], data.get("low"), data.get("high")
    sizes = [1 if i in data["same"] else size for i, size in enumerate(shape)]
    if kind == "value":
        drawn = torch.ones(sizes, dtype=torch.float64)
    elif kind == "uniform":
        drawn = low + (high - low) * torch.rand(sizes, dtype=torch.float64)
    elif kind == "normal" and low is not None:
        drawn = _truncated(sizes, data["deviation"], low, high)
    elif kind == "normal":
        drawn = data["deviation"] * torch.randn(sizes, dtype=torch.float64)
    else:
        drawn = torch.randn(sizes, dtype=torch.float64)
        drawn = drawn / drawn.norm(dim=data["dimension"], keepdim=True)
    factor = torch.tensor(data["factor"], dtype=torch.float64).reshape(data["factor_shape"])
    return (drawn * factor).expand(shape).float().contiguous()


_LOST = object()


class Given:
    """A first value that a caller gave, a tensor or a function. A file of a whole module does not have it: functions
    cannot be written there, and what the module has learned is in its parameters."""

    def __init__(self, value: Any = _LOST) -> None:
        self.value = value

    def __reduce__(self) -> Any:
        return (Given, ())

    def __deepcopy__(self, memo: Any) -> Given:
        return self


def _given(operand: Operand, given: Any) -> torch.Tensor:
    if given is _LOST:
        raise ArgumentError(
            f"init: '{operand.name}' was given when the module was made, and a module that was read from a file does"
            " not know it; expected its parameter to be written by the caller"
        )
    value = torch.as_tensor(given(operand.shape) if callable(given) else given, dtype=torch.float32)
    if operand.is_shaped_as(value.shape):
        value = value.reshape(operand.shape)
    if tuple(value.shape) != operand.shape:
        raise ArgumentError(
            f"init: '{operand.name}' has the shape {list(value.shape)}; expected {list(operand.shape)}"
            f" ({', '.join(operand.dimensions)})"
        )
    return value.clone()


def values_of(kernel: Kernel, init: Mapping[str, Given]) -> dict[str, torch.Tensor]:
    """First values of every operand. init: tensors by name, or functions from a shape to a tensor; others as
    described."""
    if unknown := set(init) - {operand.name for operand in kernel.operands}:
        names = ", ".join(operand.name for operand in kernel.operands) or "none"
        raise ArgumentError(f"init: {kernel.name} has no operand '{min(unknown)}'; it has: {names}")
    values, stated = {}, None
    for operand in kernel.operands:
        if operand.name in init:
            values[operand.name] = _given(operand, init[operand.name].value)
            continue
        if stated is None:
            stated = {o["name"]: o.get("initial") for o in kernel.explain()["operands"]}
        if stated[operand.name] is None:
            raise ArgumentError(
                f"init: '{operand.name}' of {kernel.name} needs first values, which its description does not say"
                f"; expected init={{'{operand.name}': a tensor or function of shape {list(operand.shape)}}}"
            )
        values[operand.name] = draw(stated[operand.name], operand.shape)
    return values
