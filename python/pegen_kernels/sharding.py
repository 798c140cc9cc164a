"""Which parts of an encoding's arguments belong together, for tensors that are spread over machines.

A mesh dimension cuts a call along batches, along heads or along tokens, or not at all: what does not fit is gathered.
Operands go with the heads that they are of; positions with their tokens.
"""
from __future__ import annotations

from typing import Any, Sequence

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from . import torch as _torch
from .errors import CompileError
from .torch import names

BATCH, HEADS, TOKENS = 0, 1, 2  # dimensions of rows, and the cuts along them
Cuts = Sequence[Any]  # of each mesh dimension: one of these, or None

# ---- kernels of fewer heads ----

_variants: dict[tuple[str, int], str | None] = {}


def _heads_dimension(info: Any) -> int | None:
    """The dimension of an operand that counts heads that differ."""
    at = info.dimensions.index("heads") if "heads" in info.dimensions else None
    return at if at is not None and info.shape[at] > 1 else None


def _results(found: Any, heads: int, rows: Tensor, operands: list[Tensor], inputs: list[Tensor]) -> Tensor:
    positions = torch.arange(3.0 * len(found.axes)).reshape(3, -1)  # whole, as tables of displacements want them
    if "encode" in found.entries:
        return torch.stack(found.encode(rows, rows, positions, operands=operands, inputs=inputs))
    return found.attention(rows, rows, rows, positions, operands=operands, inputs=inputs)


def _is_part(found: Any, part: Any, parts: int) -> bool:
    """The kernel of fewer heads does to its operands what the whole one does to those of the same heads. (Not so where
    something besides operands differs from head to head, as ALiBi's slopes do.)"""
    if part.skip_tokens != found.skip_tokens or len(part.operands) != len(found.operands):
        return False
    numbers = torch.Generator().manual_seed(1)
    rows = torch.rand(1, found.heads, 3, found.head_dim, generator=numbers)
    operands = [torch.rand(info.shape, generator=numbers) for info in found.operands]
    inputs = [torch.rand(1, found.heads, 3, *i.shape[3:], generator=numbers) for i in found.inputs]
    whole, made, n = _results(found, found.heads, rows, operands, inputs), [], found.heads // parts
    for i in range(parts):
        cut = [x if (at := _heads_dimension(info)) is None else x.narrow(at, i * n, n).contiguous()
               for info, x in zip(found.operands, operands)]  # fmt: skip
        those = [x.narrow(1, i * n, n).contiguous() for x in inputs]
        made.append(_results(part, n, rows.narrow(1, i * n, n).contiguous(), cut, those))
    return torch.equal(torch.cat(made, whole.ndim - 3), whole)


def part_of(name: str, parts: int) -> str | None:
    """The kernel of each part of the heads, or None: there is none that computes the same."""
    found = _torch.kernel_of(name)
    if parts == 1 or found.heads <= 1:
        return name
    if (name, parts) not in _variants:
        made = None
        recipe = names._read(name)
        if found.heads % parts == 0 and "heads" in recipe["options"] and found.grid is None:
            try:
                made = _torch.register(recipe["spec"], **{**recipe["options"], "heads": found.heads // parts})
            except CompileError:
                made = None
            if made is not None and not _is_part(found, _torch.kernel_of(made), parts):
                made = None
        _variants[name, parts] = made
    return _variants[name, parts]


# ---- placements ----


def cuts_of(rows: Sequence[Any], positions: Any, name: str, mesh: Any) -> list[Any]:
    """What each mesh dimension cuts, by where the first of the rows lie."""
    found = _torch.kernel_of(name)
    placements = rows[0].placements if isinstance(rows[0], DTensor) else [Replicate()] * mesh.ndim
    cuts: list[Any] = []
    for i, placement in enumerate(placements):
        cut = placement.dim if isinstance(placement, Shard) and placement.dim in (BATCH, HEADS, TOKENS) else None
        if cut == HEADS:
            parts = mesh.size(i)
            for j, other in enumerate(cuts):
                parts *= mesh.size(j) if other == HEADS else 1
            alike = len({x.shape[1] for x in rows}) == 1
            if any(x.shape[1] % parts for x in rows) or not (alike or found.heads <= 1) or not part_of(name, parts):
                cut = None
        if cut == TOKENS and (positions is None or found.skip_tokens):
            cut = None
        cuts.append(cut)
    return cuts


def kernel_name(name: str, cuts: Cuts, mesh: Any) -> str:
    parts = 1
    for i, cut in enumerate(cuts):
        parts *= mesh.size(i) if cut == HEADS else 1
    return part_of(name, parts) or name


def of_rows(cuts: Cuts) -> list[Any]:
    return [Replicate() if cut is None else Shard(cut) for cut in cuts]


def of_positions(cuts: Cuts, positions: Any) -> list[Any]:
    where = {TOKENS: positions.ndim - 2, **({BATCH: 0} if positions.ndim == 3 else {})}
    return [Shard(where[cut]) if cut in where else Replicate() for cut in cuts]


def of_operand(cuts: Cuts, info: Any) -> list[Any]:
    at = _heads_dimension(info)
    return [Shard(at) if cut == HEADS and at is not None else Replicate() for cut in cuts]


def of_gradient(cuts: Cuts, placements: Sequence[Any]) -> list[Any]:
    """Placements of gradients: parts of what several parts of a call share add up."""
    return [Partial() if cut is not None and isinstance(place, Replicate) else place
            for cut, place in zip(cuts, placements)]  # fmt: skip


def local(x: Any, mesh: Any, placements: Sequence[Any]) -> Any:
    """This machine's part, gathered and cut as said; a tensor that is not spread is the same everywhere."""
    if x is None:
        return None
    if not isinstance(x, DTensor):
        x = DTensor.from_local(x, mesh, [Replicate()] * mesh.ndim, run_check=False)
    return x.redistribute(mesh, placements).to_local()


def spread(x: Tensor, mesh: Any, placements: Sequence[Any], shape: Sequence[int]) -> DTensor:
    """The tensor of which x is this machine's part."""
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(x, mesh, placements, run_check=False, shape=torch.Size(shape), stride=stride)
