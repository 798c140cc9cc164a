"""Encodings on more than one machine, over PyTorch's own: DTensor and torch.distributed.

    import pegen_kernels.distributed

teaches DTensor the operators: q and k may be cut along batches, heads (with the operands of these heads) and tokens
(with their positions), so that tensor, sequence and context parallel models need nothing else. Attention whose queries
and keys are both cut along tokens goes around the ring of machines; `ring_attention` does so with plain tensors.
"""
from __future__ import annotations

from typing import Any, NamedTuple, Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from . import _native, sharding
from . import torch as _torch
from .arrays import raw_view
from .calls import gains_of_attention
from .errors import ArgumentError
from .sharding import TOKENS
from .torch.attention import wanted_of
from .torch.tangents import refuse_tangents
from .torch.operators import adjacent

__all__ = ["ring_attention"]

# ---- encodings ----


def _mesh_of(given: dict[str, Any]) -> Any:
    for value in given.values():
        for x in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(x, DTensor):
                return x.device_mesh
    raise AssertionError("called for tensors that are spread")


def _named(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    return {**dict(zip((a.name for a in op._schema.arguments), args)), **kwargs}


def _local_operands(found: Any, operands: Sequence[Any], mesh: Any, cuts: Any) -> list[Tensor]:
    return [sharding.local(x, mesh, sharding.of_operand(cuts, info)) for info, x in zip(found.operands, operands)]


def _local_positions(positions: Any, mesh: Any, cuts: Any) -> Any:
    return None if positions is None else sharding.local(positions, mesh, sharding.of_positions(cuts, positions))


def _encode(name: str, given: dict[str, Any]) -> Any:
    """encode, encode_one and their gradients of rows: every row on its own."""
    mesh, kernel, positions = _mesh_of(given), given["kernel"], given["positions"]
    rows = [x for key, x in given.items() if key not in ("positions", "operands", "kernel")]
    cuts = sharding.cuts_of(rows, positions, kernel, mesh)
    placed = sharding.of_rows(cuts)
    found = _torch.kernel_of(kernel)
    made = getattr(torch.ops.pegen_kernels, name).kernel(
        *(sharding.local(x, mesh, placed) for x in rows), _local_positions(positions, mesh, cuts),
        _local_operands(found, given["operands"], mesh, cuts), sharding.kernel_name(kernel, cuts, mesh))  # fmt: skip
    made = [made] if isinstance(made, Tensor) else made
    spread = [sharding.spread(y, mesh, placed, (*x.shape[:-1], y.shape[-1])) for x, y in zip(rows, made)]
    return spread[0] if len(rows) == 1 else tuple(spread)


def _placements(x: Any, mesh: Any) -> Sequence[Any]:
    return x.placements if isinstance(x, DTensor) else [Replicate()] * mesh.ndim


def _total(made: Tensor, of: Any, placed: Sequence[Any], mesh: Any, cuts: Any) -> Tensor:
    """The gradient of what parts of a call read, placed so, where and as that lies: what they share adds up."""
    total = sharding.spread(made, mesh, sharding.of_gradient(cuts, placed), of.shape)
    total = total.redistribute(mesh, _placements(of, mesh))
    return total if isinstance(of, DTensor) else total.to_local()


def _encode_all_backward(name: str, given: dict[str, Any]) -> list[Any]:
    mesh, kernel, positions, operands = _mesh_of(given), given["kernel"], given["positions"], given["operands"]
    found, rows = _torch.kernel_of(kernel), list(given["gradients"])
    cuts = sharding.cuts_of(given["kept"], positions, kernel, mesh)
    placed = sharding.of_rows(cuts)
    made = torch.ops.pegen_kernels.encode_all_backward.kernel(
        [sharding.local(x, mesh, placed) for x in rows], [sharding.local(x, mesh, placed) for x in given["kept"]],
        _local_positions(positions, mesh, cuts), _local_operands(found, operands, mesh, cuts), given["from_input"],
        given["with_operands"], given["with_positions"], sharding.kernel_name(kernel, cuts, mesh))  # fmt: skip
    spread = [sharding.spread(y, mesh, placed, (*x.shape[:-1], y.shape[-1])) for x, y in zip(rows, made)]
    rest = list(made[len(rows) :])
    shared = [(x, sharding.of_operand(cuts, info)) for info, x in zip(found.operands, operands)]
    shared = shared if given["with_operands"] else []
    if given["with_positions"]:
        shared.append((positions, sharding.of_positions(cuts, positions)))
    return spread + [_total(y, x, places, mesh, cuts) for y, (x, places) in zip(rest, shared)]


# ---- attention ----


def _attend(name: str, q: Tensor, k: Tensor, v: Tensor, positions: Any, k_positions: Any, operands: Sequence[Tensor],
            inputs: Sequence[Tensor], causal: bool, scale: float) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Outputs, and the logarithms of what they were divided by: [B,H,N]."""
    found = _torch.kernel_of(name)
    rows = {"q": q, "k": k, "v": v, "out": q.new_empty((*q.shape[:3], v.shape[3]))}
    rows["lse"] = q.new_empty(q.shape[:3], dtype=torch.float32)
    rows |= {key: x for key, x in (("positions", positions), ("k_positions", k_positions)) if x is not None}
    found._call("attention", {key: raw_view(key, x) for key, x in rows.items()},
                [raw_view("operand", x) for x in operands], [raw_view("input", x) for x in inputs],
                {"causal": int(causal), "scale": float(scale)})  # fmt: skip
    return rows["out"], rows["lse"]


def _merge(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Attention to the keys of both, from attention to those of each; in float32."""
    total = torch.logaddexp(one[1], other[1])
    shares = [torch.where(x[1] == -torch.inf, 0.0, (x[1] - total).exp())[..., None] for x in (one, other)]
    return one[0] * shares[0] + other[0] * shares[1], total


def _pass_on(tensors: list[Tensor], group: Any) -> tuple[list[Tensor], list[Any]]:
    """Begins to send to the next machine and to receive from the one before."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    to, source = (dist.get_global_rank(group, i % size) for i in (rank + 1, rank - 1))
    received = [torch.empty_like(x) for x in tensors]
    moves = [dist.P2POp(dist.isend, x, to, group) for x in tensors]
    moves += [dist.P2POp(dist.irecv, x, source, group) for x in received]
    return received, dist.batch_isend_irecv(moves)


ORDERS = ("stretches", "zigzag")


class _Way(NamedTuple):
    """What attention around a ring is, beside its tensors."""

    kernel: str
    causal: bool
    scale: float
    group: Any
    order: str = ORDERS[0]

    def seen(self, step: int, tokens: int) -> _Seen | None:
        """What this machine does with the keys that it holds at a step."""
        rank, size = dist.get_rank(self.group), dist.get_world_size(self.group)
        return _seen(self.causal, self.order, tokens, rank, (rank - step) % size)


class _Seen(NamedTuple):
    """Which of a machine's queries see which of the keys that came by, and whether by the order of both."""

    queries: slice
    keys: slice
    causal: bool = False


def _seen(causal: bool, order: str, tokens: int, rank: int, owner: int) -> _Seen | None:
    """What the machine `rank` does with the keys of `owner`, which has as many tokens; None: no query sees a key. In
    zigzag order machine r of W has the stretches r and 2 W - 1 - r of 2 W, so that all have as much to do."""
    every, first, second = slice(0, tokens), slice(0, tokens // 2), slice(tokens // 2, tokens)
    if not causal or owner == rank:
        return _Seen(every, every, causal)
    if order == "zigzag":
        return _Seen(every, first) if owner < rank else _Seen(second, every)
    return _Seen(every, every) if owner < rank else None


def _rows_of(x: Tensor, tokens: slice, key: str = "") -> Tensor:
    """A stretch of rows [B,H,N,D], inputs and log-sum-exps [B,H,N], or positions [B,N,P] or [N,P]; operands stay."""
    if _is_operand(key):
        return x
    return x[..., tokens, :] if "positions" in key else x[:, :, tokens]


def _ring(way: _Way, q: Tensor, k: Tensor, v: Tensor, positions: Any, operands: Sequence[Tensor],
          inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Outputs and log-sum-exps, of all keys."""
    size = dist.get_world_size(way.group)
    places = positions.expand(q.shape[0], -1, -1) if positions.ndim == 3 else positions
    held = [k.contiguous(), v.contiguous(), places.contiguous()]
    out = q.new_zeros((*q.shape[:3], v.shape[3]), dtype=torch.float32)
    sums = torch.full(q.shape[:3], -torch.inf)
    for step in range(size):
        coming, waits = _pass_on(held, way.group) if step + 1 < size else ([], [])
        if seen := way.seen(step, q.shape[2]):
            of, keys = seen.queries, [x[..., seen.keys, :] for x in held]
            part = _attend(way.kernel, q[:, :, of], *keys[:2], positions[..., of, :], keys[2], operands,
                           [_rows_of(x, of) for x in inputs], seen.causal, way.scale)  # fmt: skip
            merged = _merge((out[:, :, of], sums[:, :, of]), (part[0].float(), part[1]))
            out[:, :, of], sums[:, :, of] = merged
        for wait in waits:
            wait.wait()
        held = coming
    return out.to(q.dtype), sums


def _is_operand(name: str) -> bool:
    return name.startswith("operand")


def _is_summed(name: str) -> bool:
    """Over many rows, so in float64; the parts of a call leave sums that another entry adds up."""
    return not name.startswith("input")


def _attend_back(
    name: str,
    rows: Sequence[Tensor],
    places: Sequence[Tensor],
    of_all: dict[str, Tensor],
    operands: Sequence[Tensor],
    inputs: Sequence[Tensor],
    numbers: dict[str, Any],
    wanted: Sequence[tuple[str, Tensor]],
) -> list[Tensor]:
    """Gradients of q, k, v and of what is `wanted` of all else through this stretch of the keys. of_all:
    what attention to all keys gave, and its gradient; with its log-sum-exps the weights of a stretch are those that its
    keys have among all."""
    finish = "attention_backward_finish" if wanted else ""
    made = [torch.empty_like(x) for x in rows]
    made += [torch.empty(x.shape, dtype=torch.float64 if _is_summed(key) else x.dtype) for key, x in wanted]
    views = {**dict(zip("qkv", rows)), "positions": places[0], "k_positions": places[1], **of_all}
    views |= dict(zip(("grad.q", "grad.k", "grad.v", *(f"grad.{key}" for key, _ in wanted)), made))
    _torch.kernel_of(name)._call("attention_backward", {key: raw_view(key, x) for key, x in views.items()},
                                 [raw_view("operand", x) for x in operands], [raw_view("input", x) for x in inputs],
                                 numbers, workspace="attention_backward_workspace",
                                 finish=finish)  # fmt: skip
    return made


def _ring_back(way: _Way, rows: Sequence[Tensor], positions: Tensor, of_all: dict[str, Tensor],
               operands: Sequence[Tensor], inputs: Sequence[Tensor], wanted: Sequence[tuple[str, Tensor]],
               with_positions: bool) -> list[Tensor]:  # fmt: skip
    """Keys, values and their positions go around once more; the sums of their gradients go with them, and arrive at
    home. What operands gain is of the queries here. Positions gain as queries' and as keys'."""
    (q, k, v), size = rows, dist.get_world_size(way.group)
    places = positions.expand(q.shape[0], -1, -1) if positions.ndim == 3 else positions
    here = [*wanted, *([("positions", places)] if with_positions else [])]
    totals = [torch.zeros_like(q, dtype=torch.float32)]
    totals += [torch.zeros(x.shape, dtype=torch.float64 if _is_summed(key) else torch.float32) for key, x in here]
    held = [k.contiguous(), v.contiguous(), places.contiguous()]
    sums = [torch.zeros_like(x, dtype=torch.float32) for x in held[:2]]
    sums += [torch.zeros_like(held[2], dtype=torch.float64)] if with_positions else []
    for step in range(size):
        coming, waits = _pass_on(held, way.group) if step + 1 < size else ([], [])
        if seen := way.seen(step, q.shape[2]):
            numbers = {"causal": int(seen.causal), "scale": float(way.scale)}
            mine, (ks, vs, there) = seen.queries, (x[..., seen.keys, :] for x in held)
            of = [(key, _rows_of(x, mine, key)) for key, x in here]
            of += [("k_positions", there)] if with_positions else []
            made = _attend_back(
                way.kernel, (q[:, :, mine], ks, vs), (positions[..., mine, :], there),
                {key: _rows_of(x, mine) for key, x in of_all.items()}, operands, [_rows_of(x, mine) for x in inputs],
                numbers, of,
            )  # fmt: skip
            own = [_rows_of(x, mine, key) for x, (key, _) in zip(totals, [("q", q), *here])]
            theirs = [x[..., seen.keys, :] for x in sums]
            for total, x in zip((own[0], *theirs[:2], *own[1:], *theirs[2:]), made):
                total += x
        for wait in waits:
            wait.wait()
        sums, waits = _pass_on(sums, way.group) if size > 1 else (sums, [])
        for wait in waits:
            wait.wait()
        held = coming
    made = [total.to(x.dtype) for total, x in zip((totals[0], *sums[:2]), rows)]
    made += [total.to(x.dtype) for (_, x), total in zip(wanted, totals[1:])]
    return made + ([(totals[-1] + sums[2]).sum_to_size(positions.shape).to(positions.dtype)] if with_positions else [])


class _Ring(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, positions: Tensor, choices: Any, *rest: Tensor) -> Tensor:
        way, n = ctx.choices = choices
        out, lse = _ring(way, q, k, v, positions, rest[:n], rest[n:])
        ctx.save_for_backward(q, k, v, positions, out, lse, *rest)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        """What operands gain is summed as other parameters' gradients are, by whoever does that."""
        *rows, positions, out, lse = ctx.saved_tensors[:6]
        rest = ctx.saved_tensors[6:]
        way, n = ctx.choices
        bits = sum(needed << i for i, needed in enumerate(ctx.needs_input_grad[5:]))
        wanted = wanted_of(bits, rest[:n], rest[n:])
        of_all = {"out": out, "lse": lse, "grad.out": gradient.contiguous()}
        places = ctx.needs_input_grad[3]
        made = _ring_back(way, rows, positions, of_all, rest[:n], rest[n:], wanted, places)
        of_rest = iter(made[3:])
        of_rest = [next(of_rest) if bits >> i & 1 else None for i in range(len(rest))]
        return *made[:3], made[-1] if places else None, None, *of_rest


def _refuse_indices(found: Any) -> None:
    if _native.field(found._info, "reads_indices"):
        raise ArgumentError(f"spec: scores of {found.name} read indices of tokens in their sequence, of which every"
                            " machine has a stretch; expected one that reads positions")  # fmt: skip


def _refuse_key_inputs(found: Any) -> None:
    for info in found.inputs:
        if info.of_keys or info.of_pairs:
            whose = "keys" if info.of_keys else "pairs"
            raise ArgumentError(
                f"input '{info.name}' is of {whose}, which other machines have; expected one of queries"
            )


def _check_ring(q: Tensor, k: Tensor, v: Tensor, positions: Any, name: str, group: Any) -> None:
    found = _torch.kernel_of(name)
    if positions is None:
        raise ArgumentError(f"positions are missing; {found.name} cannot tell which of all tokens are here")
    if found.skip_tokens:
        raise ArgumentError(f"spec: {found.name} lets {found.skip_tokens} tokens of every machine pass; expected none")
    _refuse_key_inputs(found)
    _refuse_indices(found)
    sizes = torch.tensor([*q.shape[:3], *k.shape[:3]])
    every = [torch.empty_like(sizes) for _ in range(dist.get_world_size(group))]
    dist.all_gather(every, sizes, group)
    if any(not torch.equal(x, every[0]) for x in every) or q.shape[2] != k.shape[2]:
        raise ArgumentError("q and k are of different numbers of tokens on some machines; expected as many everywhere")


def _check_gradients(name: str, positions: Tensor, operands: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
    """(Not on the way back, when others wait.)"""
    found = _torch.kernel_of(name)
    gains = gains_of_attention(found)
    of = [("positions", "positions require", positions)]
    of += [(f"operand.{i}", f"operand '{info.name}' requires", operands[i]) for i, info in enumerate(found.operands)]
    of += [(f"input.{i}", f"input '{info.name}' requires", inputs[i]) for i, info in enumerate(found.inputs)]
    for key, what, x in of:
        if x.requires_grad and key not in gains:
            raise ArgumentError(f"{what} a gradient, which attention of {found.name} around a ring does not have")
    if "q" not in gains:
        raise ArgumentError(f"attention of {found.name} has no gradients yet; expected torch.no_grad()")


def ring_attention(attention: Any, q: Tensor, k: Tensor, v: Tensor, positions: Tensor, inputs: Sequence[Tensor] = (),
                   group: Any = None, order: str = "stretches") -> Tensor:  # fmt: skip
    """Attention of queries here to the keys of all machines of the group.

    attention: a pegen_kernels.torch.Attention; q, k, v, positions, inputs: this machine's tokens, as of its call;
    machine i has the i-th stretch of them, as many as every other. Keys, values and their positions go around once;
    what was computed for each stretch is merged by its log-sum-exp. q, k, v, positions, operands and inputs have
    gradients where the encoding's own attention has them; keys go around once more for that. Operands' are of this
    machine's queries: to be summed over machines as those of a model's other parameters.
    order: with "zigzag" machine i of W has the stretches i and 2 W - 1 - i of 2 W, one behind the other, by which all
    have as much to do where attention is causal.
    """
    if not isinstance(attention, _torch.Attention):
        raise ArgumentError(f"attention is a {type(attention).__name__}; expected a pegen_kernels.torch.Attention")
    group, operands = dist.group.WORLD if group is None else group, attention._operands()
    name, q = attention.kernel_name, adjacent(q)
    refuse_tangents(f"ring_attention of {attention.kernel.name}", (q, k, v, positions, *operands, *inputs))
    _check_ring(q, k, v, positions, name, group)
    if torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v, positions, *operands, *inputs)):
        _check_gradients(name, positions, operands, inputs)
    if order not in ORDERS or (order == "zigzag" and q.shape[2] % 2):
        raise ArgumentError(
            f"order is {order!r} of {q.shape[2]} tokens; expected 'stretches', or 'zigzag' of an even number"
        )
    way = _Way(name, attention.causal, attention.scale, group, order)
    return _Ring.apply(q, k, v, positions, (way, len(operands)), *operands, *inputs)


def _ring_dimension(q: Any, k: Any, given: dict[str, Any], cuts: Any, mesh: Any) -> int | None:
    """The mesh dimension along which keys are cut as queries are, where they can go around."""
    along = [i for i, cut in enumerate(cuts) if cut == TOKENS]
    if len(along) != 1 or not isinstance(k, DTensor) or k.placements[along[0]] != Shard(TOKENS):
        return None
    even = q.shape[2] == k.shape[2] and q.shape[2] % mesh.size(along[0]) == 0
    return along[0] if even and given["k_positions"] is None else None


class _Parts(NamedTuple):
    """A call of attention as its tensors are cut, and what this machine has of it."""

    mesh: Any
    cuts: Any
    name: str  # of the kernel
    ring: int | None  # the mesh dimension along which keys go around
    of_keys: Any  # placements of k and v
    rows: list[Tensor]
    positions: Any
    k_positions: Any
    operands: list[Tensor]
    inputs: list[Tensor]

    @property
    def placed(self) -> list[Any]:
        return sharding.of_rows(self.cuts)

    def local(self, x: Any) -> Any:
        """What queries have."""
        return sharding.local(x, self.mesh, self.placed)

    def spread(self, x: Tensor, shape: Sequence[int]) -> DTensor:
        return sharding.spread(x, self.mesh, self.placed, shape)


def _parts(given: dict[str, Any]) -> _Parts:
    mesh, kernel, q, k, positions = _mesh_of(given), given["kernel"], given["q"], given["k"], given["positions"]
    found = _torch.kernel_of(kernel)
    if given.get("cu_seqlens") is not None or given.get("k_cu_seqlens") is not None:
        raise ArgumentError("cu_seqlens: given with tensors that are spread over machines; expected batches")
    _refuse_key_inputs(found)
    cuts = sharding.cuts_of([q, k], positions, kernel, mesh)
    if TOKENS in cuts:
        _refuse_indices(found)
    placed, ring = sharding.of_rows(cuts), _ring_dimension(q, k, given, cuts, mesh)
    of_keys = placed if ring is not None else sharding.of_rows([None if cut == TOKENS else cut for cut in cuts])
    own = sharding.local(q, mesh, placed)
    rows = [own, *(sharding.local(x, mesh, of_keys) for x in (k, given["v"]))]
    here = None if positions is None else _local_positions(positions, mesh, cuts)
    there = given["k_positions"] if given["k_positions"] is not None else positions
    if there is not None:
        there = sharding.local(there, mesh, sharding.of_positions([None if c == TOKENS else c for c in cuts], there))
    if given["causal"] and TOKENS in cuts and ring is None:  # keys after the last query that is here are not seen
        size, offset = compute_local_shape_and_global_offset(q.shape, mesh, placed)
        seen = offset[2] + size[2] + k.shape[2] - q.shape[2]
        rows[1:], there = [x[:, :, :seen] for x in rows[1:]], there[..., :seen, :]
    operands = _local_operands(found, given["operands"], mesh, cuts)
    inputs = [sharding.local(x, mesh, placed) for x in given["inputs"]]
    part = sharding.kernel_name(kernel, cuts, mesh)
    return _Parts(mesh, cuts, part, ring, of_keys, rows, here, there, operands, inputs)


def _attention(name: str, given: dict[str, Any]) -> Any:
    """attention, and attention_with_lse."""
    p, shape = _parts(given), (*given["q"].shape[:3], given["v"].shape[3])
    numbers = given["causal"], given["scale"]
    if p.ring is not None:
        made = _ring(_Way(p.name, *numbers, p.mesh.get_group(p.ring)), *p.rows, p.positions, p.operands, p.inputs)
    else:
        made = getattr(torch.ops.pegen_kernels, name).kernel(
            *p.rows, p.positions, p.k_positions, p.operands, p.inputs, *numbers, p.name)  # fmt: skip
        made = [made] if isinstance(made, Tensor) else made
    out = p.spread(made[0], shape)
    return (out, p.spread(made[1], shape[:3])) if name == "attention_with_lse" else out


def _gradients_of_places(made: Sequence[Tensor], p: _Parts, given: dict[str, Any], bits: int) -> list[Any]:
    """made: of positions as queries', and as keys' (around a ring these are in the former). bits: 1 positions, 2
    k_positions."""
    positions, keys = given["positions"], given["k_positions"]
    of_keys = positions if keys is None else keys
    spread, made = [], list(made)
    if bits & 1:
        spread.append(_total(made.pop(0), positions, sharding.of_positions(p.cuts, positions), p.mesh, p.cuts))
    if made:  # those that come after the last query here are not in it
        whole = [None if cut == TOKENS else cut for cut in p.cuts]
        seen = torch.nn.functional.pad(made[0], (0, 0, 0, of_keys.shape[-2] - made[0].shape[-2]))
        spread.append(_total(seen, of_keys, sharding.of_positions(whole, of_keys), p.mesh, p.cuts))
    return spread if keys is not None else [sum(spread[1:], spread[0])]


def _attention_backward(name: str, given: dict[str, Any]) -> list[Any]:
    p, kernel = _parts(given), _torch.kernel_of(given["kernel"])
    n, bits = len(p.operands) + len(p.inputs), given.get("wanted", 0)
    of_places = bits >> n
    wanted = wanted_of(bits, p.operands, p.inputs)
    of_all = {key: p.local(given[of]) for key, of in (("out", "out"), ("lse", "lse"), ("grad.out", "grad"))}
    of_lse = p.local(given["grad_lse"])
    numbers = given["causal"], given["scale"]
    if p.ring is not None:
        of_all |= {} if of_lse is None else {"grad.lse": of_lse}
        of_all["grad.out"] = adjacent(of_all["grad.out"])
        way = _Way(p.name, *numbers, p.mesh.get_group(p.ring))
        made = _ring_back(way, p.rows, p.positions, of_all, p.operands, p.inputs, wanted, bool(of_places))
    else:
        bits |= (2 if of_places and given["k_positions"] is None else 0) << n  # of keys at positions apart
        made = torch.ops.pegen_kernels.attention_backward.kernel(
            of_all["grad.out"], of_lse, *p.rows, of_all["out"], of_all["lse"], p.positions, p.k_positions, p.operands,
            p.inputs, *numbers, p.name, bits)  # fmt: skip
    spread = [_total(made[0], given["q"], p.placed, p.mesh, p.cuts)]
    for y, x in zip(made[1:3], (given["k"], given["v"])):
        if p.ring is None:  # sums over machines, in float32; those that come after the last query here are not in it
            y = torch.nn.functional.pad(y.float(), (0, 0, 0, x.shape[2] - y.shape[2]))
        spread.append(_total(y, x, p.of_keys, p.mesh, p.cuts).to(x.dtype))
    for (key, _), y in zip(wanted, made[3:]):
        kind, _, i = key.partition(".")
        placed = sharding.of_operand(p.cuts, kernel.operands[int(i)]) if _is_operand(kind) else p.placed
        spread.append(_total(y, given[f"{kind}s"][int(i)], placed, p.mesh, p.cuts))
    return spread + (_gradients_of_places(made[3 + len(wanted) :], p, given, of_places) if of_places else [])


# ---- what DTensor is taught ----


def _handler(name: str, function: Any) -> Any:
    def handle(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        with torch.no_grad():
            return function(name, _named(op, args, kwargs))

    return handle


_HANDLERS = {
    **dict.fromkeys(("encode", "encode_one", "encode_backward", "encode_one_backward"), _encode),
    "encode_all_backward": _encode_all_backward,
    **dict.fromkeys(("attention", "attention_with_lse"), _attention),
    "attention_backward": _attention_backward,
}
if not hasattr(getattr(DTensor, "_op_dispatcher", None), "_custom_op_handlers"):
    raise ImportError(f"pegen_kernels.distributed: PyTorch {torch.__version__} takes no handlers of DTensor; 2.13 does")
for _name, _function in _HANDLERS.items():
    for _overload in ("default", "kernel", "alone"):
        _op = getattr(getattr(torch.ops.pegen_kernels, _name), _overload)
        DTensor._op_dispatcher._custom_op_handlers[_op] = _handler(_name, _function)
