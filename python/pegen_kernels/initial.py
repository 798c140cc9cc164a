"""First values of operands, by the words in which descriptions say how their authors initialise them."""
from __future__ import annotations

import math
import re
from typing import Any, Callable

import torch

from .errors import ArgumentError
from .kernel import Kernel, Operand


def _directions(operand: Operand) -> torch.Tensor:
    x = torch.randn(operand.shape)
    return x / x.norm(dim=-1, keepdim=True)


def _decay(operand: Operand, base: float) -> torch.Tensor:
    """base^(-i / blocks), along the blocks."""
    axis = operand.dimensions.index("blocks")
    blocks = operand.shape[axis]
    values = base ** (-torch.arange(blocks, dtype=torch.float64) / blocks)
    return values.reshape([-1 if i == axis else 1 for i in range(len(operand.shape))]).expand(operand.shape).float()


def _planar(operand: Operand, base: float) -> torch.Tensor:
    """[axes, heads, blocks]: a direction a head, base^(-2 j / blocks) a pair."""
    axes, heads, blocks = operand.shape
    if axes != 2:
        raise ArgumentError(f"init: '{operand.name}' has a default for two axes only; expected one of your own")
    turn = 2 * math.pi * torch.rand(heads, dtype=torch.float64)
    length = base ** (-2 * torch.arange(blocks, dtype=torch.float64) / blocks)
    return (torch.stack([turn.cos(), turn.sin()])[..., None] * length).float()


def _kaiming(operand: Operand) -> torch.Tensor:
    """A linear layer's, from the axes of a position."""
    axes = operand.shape[operand.dimensions.index("axes")] if "axes" in operand.dimensions else 1
    return (2 * torch.rand(operand.shape) - 1) / math.sqrt(axes)


def _base(words: str, kernel: Kernel) -> float:
    stated = re.search(r"base (\d+(?:\.\d+)?)$", words)
    return float(kernel.options.get("base") or (stated[1] if stated else 10000))


# The words begin so; the first that fits.
_ROWS: list[tuple[str, Callable[[Operand, Kernel], torch.Tensor]]] = [
    ("uniform on the unit sphere", lambda operand, kernel: _directions(operand)),
    ("base^(-i/blocks)", lambda operand, kernel: _decay(operand, _base(operand.initializer, kernel))),
    ("a random direction times base^(-i/blocks)",
     lambda operand, kernel: _directions(operand) * _decay(operand, _base(operand.initializer, kernel))),
    ("for each head a random direction phi",
     lambda operand, kernel: _planar(operand, _base(operand.initializer, kernel))),
    ("uniform Kaiming", lambda operand, kernel: _kaiming(operand)),
    ("normal, standard deviation 0.02, truncated at 2",
     lambda operand, kernel: torch.nn.init.trunc_normal_(torch.empty(operand.shape), std=0.02)),
]  # fmt: skip


def value_of(operand: Operand, kernel: Kernel, given: Any) -> torch.Tensor:
    """given: None, a tensor, or a function from a shape to a tensor."""
    if given is None:
        made = next((make for words, make in _ROWS if operand.initializer.startswith(words)), None)
        if made is None:
            raise ArgumentError(
                f"init: '{operand.name}' of {kernel.name} needs first values, which its description does not say"
                f"; expected init={{'{operand.name}': a tensor or function of shape {list(operand.shape)}}}"
            )
        return made(operand, kernel)
    value = torch.as_tensor(given(operand.shape) if callable(given) else given, dtype=torch.float32)
    if tuple(value.shape) != operand.shape:
        raise ArgumentError(
            f"init: '{operand.name}' has the shape {list(value.shape)}; expected {list(operand.shape)}"
            f" ({', '.join(operand.dimensions)})"
        )
    return value.clone()
