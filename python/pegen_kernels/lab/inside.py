"""What attention does inside a trained model, layer by layer, on a test's first samples."""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .data import Part
from .model import Layer, Transformer

_LOOKED_AT = 20  # samples
_TOP = 0.8  # share of a query's attention that its top keys have (PaPE, fig. 3)


def _numbers(of_heads: Tensor) -> list[float] | None:
    """None where training has diverged: a result is written as JSON, which has no NaN."""
    return of_heads.tolist() if bool(torch.isfinite(of_heads).all()) else None


def _distances(layer: Layer, x: Tensor, positions: Tensor, apart: Tensor) -> list[float] | None:
    weights = layer.weights(x, positions)
    mean = (weights * (apart if apart.dim() == 2 else apart[:, None])).sum(-1) / weights.sum(-1)
    return _numbers(mean.mean((0, 2))) if weights.min() > -1e-4 else None


def _grades_of(layer: Layer) -> list[int | None] | None:
    """The grade of each channel, where an encoding of rows has several."""
    for encoding in layer.encodings:
        grades = None if encoding is layer.attention else encoding.kernel.explain().get("grades")
        if grades and len(set(grades) - {None}) > 1:
            return [None if grade is None else int(grade) for grade in grades]
    return None


def _grades(layer: Layer, x: Tensor, positions: Tensor) -> dict[str, float] | None:
    """Softmax sees how a query's scores differ from each other. Each grade's products are a part of a score; its share
    is their covariance with the whole, over the keys of each query, by the whole's variance. Shares sum to 1."""
    of_channels = _grades_of(layer)
    if of_channels is None:
        return None
    q, k, _ = layer.rows(x, positions)
    names = ["none" if grade is None else str(grade) for grade in of_channels]
    seen = torch.ones(x.shape[1], x.shape[1], dtype=torch.float64, device=x.device)
    seen = seen.tril() if layer.causal else seen

    def centred(channels: list[int]) -> Tensor:
        products = q[..., channels].double() @ k[..., channels].double().mT
        return (products - (seen * products).sum(-1, keepdim=True) / seen.sum(-1, keepdim=True)) * seen

    whole = centred(list(range(len(names))))
    variance = float((whole * whole).sum())
    if not 0 < variance < float("inf"):
        return None
    return {
        name: float((centred([c for c, own in enumerate(names) if own == name]) * whole).sum()) / variance
        for name in sorted(set(names))
    }


def _balance(layer: Layer, x: Tensor, positions: Tensor) -> list[float] | None:
    q, k, _ = layer.rows(x, positions, encode=False)
    content = layer.scale * q.double() @ k.double().mT
    weights, blind = (layer.weights(x, positions, content=c).double() for c in (True, False))
    # Softmax hides a factor of each query's, so P is taken as 1 where a query looks at itself.
    place = blind.log() - blind.diagonal(dim1=-2, dim2=-1).log()[..., None]
    seen = weights > 1e-6  # rounding hardly touches these
    apart = weights.log() - place - content
    spread = torch.where(seen, apart, -torch.inf).amax(-1) - torch.where(seen, apart, torch.inf).amin(-1)
    alike = weights.min() > -1e-4 and spread.max() < 1e-3 * (1 + content.abs().max())
    if not alike or torch.where(seen, place, 0).abs().max() < 1e-6:
        return None
    sums = (place + content).logsumexp(-1, keepdim=True)
    ordered, keys = weights.sort(-1, descending=True)
    top = torch.zeros_like(seen).scatter(-1, keys, ordered.cumsum(-1) - ordered < _TOP)
    by = torch.where(top, (place - sums).exp() - (content - sums).exp(), 0.0)
    return _numbers(by.sum((0, 2, 3)) / top.sum((0, 2, 3)))


def measured(model: Transformer, part: Part) -> dict[str, list[Any]]:
    """Measures, each a list with an entry for every layer.

    distances: how far each head looks, the mean distance of keys from their query by attention weights, in units of
    positions (Linear GeoPE, fig. 3). None where values are rotated.
    grades: what each grade's channels share in scores (CARE, discussion). None without grades.
    balance: the mean of (P - Y) / sum(P Y) over each query's top keys, for each head (PaPE, eq. 16). P and Y are the
    exponentials of what scores have of places and of content. None where scores are no such sum.
    """
    positions = part.positions if part.positions.dim() == 2 else part.positions[:_LOOKED_AT]
    apart = torch.cdist(positions, positions)
    found: dict[str, list[Any]] = {"distances": [], "grades": [], "balance": []}
    with torch.no_grad():
        for layer, x, places in model.inside(part.tokens[:_LOOKED_AT], positions):
            found["distances"].append(_distances(layer, x, places, apart))
            found["grades"].append(_grades(layer, x, places))
            found["balance"].append(_balance(layer, x, places))
    return found
