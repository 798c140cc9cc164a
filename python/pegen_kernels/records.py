"""What kernels have and hand out: operands, inputs, tables, gradients."""
from __future__ import annotations

import itertools
import math
import operator
from typing import Any, NamedTuple, Sequence


class Operand(NamedTuple):
    """A learned parameter of an encoding."""

    name: str
    doc: str
    units: str
    initializer: str  # how its authors initialise it, in words; "" where they do not say
    shape: tuple[int, ...]
    dimensions: tuple[str, ...]  # what each counts: "axes", "heads", "blocks", or a number

    def is_shaped_as(self, shape: Sequence[int]) -> bool:
        """Whether a contiguous array of that shape, whose rank is another one, has the operand's numbers in its order:
        some neighbouring dimensions are one there, or some of its dimensions are several."""
        if len(shape) == len(self.shape) or math.prod(shape) != math.prod(self.shape):
            return False
        ends, own = (set(itertools.accumulate(sizes, operator.mul)) for sizes in (shape, self.shape))
        return ends <= own or own <= ends


class Input(NamedTuple):
    """A tensor with a row for each query token and head, or each key's: [batches, heads, tokens, size], or [B,H,N]
    where size is 0; or with a number for each pair of a query and a key, [batches, heads, tokens, keys], size -1."""

    name: str
    doc: str
    units: str
    size: int
    of_keys: bool = False  #: of the tokens of k, and the heads of k or of q

    @property
    def of_pairs(self) -> bool:
        """Whether it has a number for each pair of a query and a key."""
        return self.size < 0

    @property
    def dimensions(self) -> tuple[str, ...]:
        """What each counts: "batches", "heads", "tokens" or "keys", or a number."""
        last = ["keys" if self.of_pairs else str(self.size)] if self.size else []
        return ("batches", "heads", "keys" if self.of_keys else "tokens", *last)

    @property
    def shape(self) -> tuple[int | None, ...]:
        """As an operand's; None: for each call to choose."""
        return (None, None, None, *([None if self.of_pairs else self.size] if self.size else []))


class Table(NamedTuple):
    """What `prepare` computed of positions and operands, for `encode`."""

    address: int
    size: int
    keeps: Any


class GradientTable:
    """Sums of what the rows of many calls gave the tokens of a table: `encode_backward` adds to them, one call after
    the other, `prepare_backward` goes on from there. Another process cannot read them."""

    def __init__(self, address: int, size: int, keeps: Any) -> None:
        self.address, self.size, self.keeps = address, size, keeps
        self.is_begun = False

    def clear(self) -> None:
        """The next `encode_backward` begins anew."""
        self.is_begun = False


class Gained(NamedTuple):
    """Gradients that `prepare_backward` made."""

    operands: dict[str, Any]  # by name
    positions: Any  # None: not asked for; k_positions: or not given
    k_positions: Any
