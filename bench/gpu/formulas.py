"""What the encodings of the attention part are, written once more: for float64 references, and for FlexAttention.

A formula makes of its tensors a function (score, batch, head, query, key) as FlexAttention's `score_mod`: indices are
tensors, which broadcast in references. `rows` says how queries and keys are changed before their product.
"""
from __future__ import annotations

from typing import Any, Callable

import torch
from torch import Tensor

Score = Callable[[Tensor, Any, Any, Any, Any], Tensor]


class Known:
    """What a formula may use: operands and inputs by name, heads, the scale of scores, tokens of an image's side."""

    def __init__(self, tensors: dict[str, Tensor], heads: int, scale: float, side: int, like: Tensor) -> None:
        self.tensors, self.heads, self.scale, self.side, self.like = tensors, heads, scale, side, like

    def __getitem__(self, name: str) -> Tensor:
        """The tensor in the number type and on the device of `like`."""
        return self.tensors[name].to(self.like)

    def displacement(self, query: Any, key: Any) -> tuple[Any, Any]:
        """Key less query, in rows and columns of an image."""
        return key // self.side - query // self.side, key % self.side - query % self.side


def plain(known: Known) -> Score:
    return lambda s, b, h, i, j: s


def alibi(known: Known) -> Score:
    slopes = torch.exp2(-8 * torch.arange(1, known.heads + 1).to(known.like) / known.heads)
    return lambda s, b, h, i, j: s - slopes[h] * (i - j).abs()


def softcap(known: Known) -> Score:
    return lambda s, b, h, i, j: 50 * torch.tanh(s / 50)


def window(known: Known) -> Score:
    return lambda s, b, h, i, j: torch.where((i - j).abs() <= 128, s, -torch.inf)


def kerple(known: Known) -> Score:
    strength, rate = known["r1"].clamp(min=0.01), known["r2"].clamp(min=0.01)
    return lambda s, b, h, i, j: s - strength[h] * torch.log1p(rate[h] * (i - j).abs())


def table(known: Known) -> Score:
    values = known["relative_position_bias_table"]
    middle_h, middle_w = values.shape[0] // 2, values.shape[1] // 2

    def score(s: Tensor, b: Any, h: Any, i: Any, j: Any) -> Tensor:
        down, right = known.displacement(i, j)
        return s + values[middle_h - down, middle_w - right, h]

    return score


def pape(known: Known) -> Score:
    """The parabolas of a query, summed: a polynomial of the displacement with five coefficients."""
    across = known["projection"][0]  # [parabolas, axes], one for all heads
    curved, lean = -torch.nn.functional.softplus(known["a"]), known["b"]
    squares = torch.stack([across[:, 0] ** 2, 2 * across[:, 0] * across[:, 1], across[:, 1] ** 2], -1)
    terms = torch.cat([curved @ squares, lean @ across], -1) * known.scale  # [batches, heads, queries, 5]

    def score(s: Tensor, b: Any, h: Any, i: Any, j: Any) -> Tensor:
        down, right = known.displacement(i, j)
        monomials = (down * down, down * right, right * right, down, right)
        for number, monomial in enumerate(monomials):
            s = s + terms[b, h, i, number] * monomial
        return s

    return score


rope_inside = plain
FORMULAS = {"plain": plain, "alibi": alibi, "softcap": softcap, "kerple": kerple, "table": table, "pape": pape,
            "window": window, "rope_inside": rope_inside}  # fmt: skip


def rotated(x: Tensor, positions: Tensor) -> Tensor:
    """RoPE of [..., tokens, channels], pairs (j, j + channels / 2)."""
    half = x.shape[-1] // 2
    angle = positions[:, None].to(x) * 10000.0 ** (-torch.arange(half).to(x) / half)
    cos, sin = angle.cos(), angle.sin()
    first, second = x[..., :half], x[..., half:]
    return torch.cat([cos * first - sin * second, sin * first + cos * second], -1)


ROWS = {"rope_inside": rotated}


def attend(formula: str, known: Known, rows: tuple[Tensor, Tensor, Tensor], batch: int, heads: Tensor,
           queries: Tensor, causal: bool) -> Tensor:  # fmt: skip
    """Attention of some heads of a batch in the rows' number type. rows: q [heads, queries, D], k and v [heads, keys,
    D]; queries: their places in the sequence of keys."""
    q, k, v = rows
    keys = torch.arange(k.shape[1], device=k.device)
    if formula in ROWS:
        q, k = ROWS[formula](q, queries), ROWS[formula](k, keys)
    score = (q @ k.transpose(1, 2)) * known.scale
    at = heads[:, None, None], queries[None, :, None], keys[None, None, :]
    score = FORMULAS[formula](known)(score, batch, *at)
    if causal:
        score = score.masked_fill(at[2] > at[1], float("-inf"))
    return score.softmax(-1) @ v
