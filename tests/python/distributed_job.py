"""What each of several processes does: torchrun --nproc-per-node 4 distributed_job.py. Every check is against one
process with all of it."""
import copy
import pathlib
import sys
import unittest

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import pegen_kernels as pk
from pegen_kernels.distributed import ring_attention
from pegen_kernels.torch import Attention, Encoding

FAST = {"targets": "native", "dtypes": "float32"}
SCORES = pathlib.Path(__file__).parents[1] / "attention" / "scores.lua"
WHOLE = [Replicate()]


def numbers(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Case(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(7)  # the same parameters everywhere
        self.mesh = init_device_mesh("cpu", (4,))
        self.rank = dist.get_rank()

    def near(self, found, expected, bound):
        self.assertLess(float((found - expected).abs().max() / expected.abs().max()), bound)

    def cut(self, x, *placements, mesh=None):
        return distribute_tensor(x, mesh or self.mesh, placements)


class Encodings(Case):
    def spread(self, encoding, mesh, heads_too):
        """The module with operands on the mesh, those of heads with these."""
        spread = copy.deepcopy(encoding)
        for info in encoding.kernel.operands:
            value = getattr(encoding, info.name).detach()
            places = [Shard(info.dimensions.index("heads")) if along == 1 else Replicate() for along in heads_too]
            setattr(spread, info.name, torch.nn.Parameter(distribute_tensor(value, mesh, places)))
        return spread

    def test_to_the_bit(self):
        encoding = Encoding("care", head_dim=32, heads=8, **FAST)
        q, k, weights, positions = (
            numbers(4, 8, 12, 32),
            numbers(4, 8, 12, 32, seed=2),
            numbers(4, 8, 12, 32, seed=3),
            numbers(12, 2),
        )
        flat = init_device_mesh("cpu", (4,))
        square = init_device_mesh("cpu", (2, 2))
        of_batches = numbers(4, 12, 2)
        for mesh, along, places in (
            (flat, (0,), positions), (flat, (1,), positions), (flat, (2,), positions), (flat, (2,), of_batches),
            (flat, (0,), of_batches), (square, (0, 1), positions), (square, (1, 2), of_batches),
            (square, (2, 2), positions), (square, (1, 1), positions), (flat, (3,), positions),
        ):  # fmt: skip
            with self.subTest(along=along, places=places.shape):
                one = copy.deepcopy(encoding)
                given = [q.clone().requires_grad_(), k.clone().requires_grad_(), places.clone().requires_grad_()]
                made = one(*given)
                sum((x * weights).sum() for x in made).backward()
                many = self.spread(encoding, mesh, along)
                cut = [distribute_tensor(x, mesh, [Shard(a) for a in along]).requires_grad_() for x in (q, k)]
                at = distribute_tensor(places, mesh, [Replicate()] * mesh.ndim).requires_grad_()
                found = many(*cut, at)
                for x, y in zip(made, found):
                    if along != (3,):
                        self.assertEqual(list(y.placements), [Shard(a) for a in along])
                    self.assertTrue(torch.equal(y.full_tensor(), x))
                spread = distribute_tensor(weights, mesh, found[0].placements)
                sum((x * spread).sum() for x in found).backward()
                for x, y in zip(given[:2], cut):
                    self.assertTrue(torch.equal(y.grad.full_tensor(), x.grad))
                self.near(at.grad.full_tensor(), given[2].grad, 2.0**-18)
                for x, y in zip(one.parameters(), many.parameters()):
                    self.near(y.grad.full_tensor(), x.grad, 2.0**-18)

    def test_uneven_grouped_and_plain(self):
        encoding = Encoding("rope", head_dim=16, **FAST)
        q, k, positions = numbers(3, 8, 10, 16), numbers(3, 4, 10, 16), torch.arange(10)[:, None]
        made = encoding(q, k, positions)
        for along in (0, 1, 2):  # 3 batches and 10 tokens on 4 machines; 4 heads of keys
            found = encoding(self.cut(q, Shard(along)), self.cut(k, Shard(along)), positions)
            for x, y in zip(made, found):
                self.assertTrue(torch.equal(y.full_tensor(), x))
        k = numbers(3, 2, 10, 16)  # 2 heads of keys: gathered
        found = encoding(self.cut(q, Shard(1)), self.cut(k, Shard(1)), positions)
        self.assertTrue(torch.equal(found[1].full_tensor(), encoding(k, positions=positions)))
        self.assertTrue(torch.equal(found[0].full_tensor(), made[0]))

    def test_what_differs_besides_operands_is_not_cut(self):
        text = """
        local pe = require "pegen"
        return pe.encoding { name = "own", axes = { "t" }, head_dim = 8, heads = pe.option("heads", 4, "heads"),
          block = pe.plane(), generators = pe.turn "e12",
          phase = function(axis, i, head) return (head + 1) / (i + 1) end }
        """
        encoding = Encoding(text, heads=4, **FAST)
        q, positions = numbers(2, 4, 6, 8), torch.arange(6)[:, None]
        found = encoding(self.cut(q, Shard(1)), positions=positions)
        self.assertTrue(torch.equal(found.full_tensor(), encoding(q, positions=positions)))


class Attentions(Case):
    def whole(self, spec, inputs=(), **options):
        causal = options.pop("causal", False)
        attention = Attention(spec, head_dim=32, causal=causal, **FAST, **options)
        q, k, v = (numbers(2, 8, 16, 32, seed=i) for i in range(3))
        positions = numbers(16, len(attention.kernel.axes)).cumsum(0)
        given = [numbers(2, 8, 16, *([i.size] if i.size else []), seed=5) for i in attention.kernel.inputs]
        with torch.no_grad():
            return attention, q, k, v, positions, given, attention(q, k, v, positions, inputs=given)

    def here(self, order):
        """Which of 16 tokens are this machine's."""
        if order == "stretches":
            return list(range(4 * self.rank, 4 * self.rank + 4))
        return [2 * stretch + i for stretch in (self.rank, 7 - self.rank) for i in range(2)]

    def cases(self):
        yield self.whole("alibi", heads=8)
        yield self.whole("alibi", heads=8, causal=True)
        yield self.whole("lingeope", causal=True)
        yield self.whole("pape", heads=8, role="pairwise", parabolas=4)

    def test_ring(self):
        for attention, q, k, v, positions, inputs, expected in self.cases():
            for order in ("stretches", "zigzag"):
                with self.subTest(attention.kernel.name, causal=attention.causal, order=order):
                    here = self.here(order)
                    made = ring_attention(attention, q[:, :, here], k[:, :, here], v[:, :, here], positions[here],
                                          [x[:, :, here] for x in inputs], order=order)  # fmt: skip
                    self.near(made, expected[:, :, here], 2.0**-18)

    def test_gradients_around_the_ring(self):
        for causal, order in ((False, "stretches"), (True, "stretches"), (True, "zigzag")):
            attention, q, k, v, positions, _, _ = self.whole("alibi", heads=8, causal=causal)
            k, v = k[:, :4], v[:, :4]  # grouped heads
            weights, here = numbers(2, 8, 16, 32, seed=9), self.here(order)
            whole = [x.double().requires_grad_() for x in (q, k, v)]
            keys, values = (x.repeat_interleave(2, 1) for x in whole[1:])
            slopes = 2.0 ** -torch.arange(1.0, 9)
            away = (positions - positions.T).abs().double()
            scores = whole[0] @ keys.mT / 32**0.5 - slopes[:, None, None].double() * away
            if causal:
                scores = scores.masked_fill(torch.ones(16, 16).triu(1).bool(), -torch.inf)
            ((scores.softmax(-1) @ values) * weights).sum().backward()
            parts = [x[:, :, here].clone().requires_grad_() for x in (q, k, v)]
            (ring_attention(attention, *parts, positions[here], order=order) * weights[:, :, here]).sum().backward()
            for x, y in zip(whole, parts):
                self.near(y.grad, x.grad[:, :, here], 2.0**-18)

    def test_gradients_of_a_table_around_the_ring(self):
        """Summed over the machines they are those of one process; values of other widths than q's."""
        options = {"heads": 8, "head_dim": 32, "value_dim": 24, "window_h": 4, "window_w": 4}
        attention = Attention("relative_bias_table", **options, **FAST)
        table = attention.relative_position_bias_table
        with torch.no_grad():
            table.copy_(numbers(7, 7, 8))
        q, k, v, weights = (numbers(2, 8, 16, 24 if i > 1 else 32, seed=i) for i in range(4))
        positions, here = torch.cartesian_prod(*[torch.arange(4.0)] * 2), slice(4 * self.rank, 4 * self.rank + 4)
        (right,) = torch.autograd.grad((attention(q, k, v, positions) * weights).sum(), table)
        out = ring_attention(attention, *(x[:, :, here] for x in (q, k, v)), positions[here])
        (made,) = torch.autograd.grad((out * weights[:, :, here]).sum(), table)
        dist.all_reduce(made)
        self.near(made, right, 2.0**-18)

    def test_gradients_of_positions(self):
        """As queries' and as keys', around the ring and through DTensor; of batches that share them and of others."""
        for causal, batches in ((False, ()), (True, ()), (True, (2,))):
            attention, q, k, v, positions, _, _ = self.whole("alibi", heads=8, causal=causal)
            weights = numbers(2, 8, 16, 32, seed=9)
            whole = (positions.expand(*batches, 16, 1) + 0.25).clone().requires_grad_()
            (right,) = torch.autograd.grad((attention(q, k, v, whole) * weights).sum(), whole)
            for order in ("stretches", "zigzag"):
                mine = self.here(order)
                part = whole.detach()[..., mine, :].clone().requires_grad_()
                with self.subTest(causal=causal, batches=batches, around="ring", order=order):
                    out = ring_attention(attention, *(x[:, :, mine] for x in (q, k, v)), part, order=order)
                    (made,) = torch.autograd.grad((out * weights[:, :, mine]).sum(), part)
                    self.near(made, right[..., mine, :], 2.0**-16)
            for along in (0, 1, 2):
                for keys in (along, 0) if along == 2 else (along,):
                    with self.subTest(causal=causal, batches=batches, along=along, keys=keys):
                        cut = [self.cut(x, Shard(y)) for x, y in ((q, along), (k, keys), (v, keys))]
                        placed = self.cut(whole.detach(), Replicate()).requires_grad_()
                        out = copy.deepcopy(attention)(*cut, placed)
                        (out * distribute_tensor(weights, self.mesh, out.placements)).sum().backward()
                        self.near(placed.grad.full_tensor(), right, 2.0**-16)

    def test_gradients_of_a_polynomial(self):
        """PaPE's projection and inputs, around the ring and through DTensor, and positions around the ring."""
        attention, q, k, v, positions, inputs, _ = self.whole("pape", heads=8, role="pairwise", parabolas=4)
        weights, here = numbers(2, 8, 16, 32, seed=9), slice(4 * self.rank, 4 * self.rank + 4)
        whole = [x.clone().requires_grad_() for x in (q, k, v, *inputs)]
        placed = (positions + 0.25).requires_grad_()
        (right,) = torch.autograd.grad((attention(*whole[:3], placed, inputs=whole[3:]) * weights).sum(), placed)
        place = placed.detach()[here].clone().requires_grad_()
        out = ring_attention(
            attention, *(x.detach()[:, :, here] for x in whole[:3]), place, [x.detach()[:, :, here] for x in whole[3:]]
        )
        self.near(torch.autograd.grad((out * weights[:, :, here]).sum(), place)[0], right[here], 2.0**-16)
        for causal, order in ((True, "zigzag"), (False, "stretches")):
            attention.causal, here = causal, self.here(order)
            loss = (attention(*whole[:3], positions, inputs=whole[3:]) * weights).sum()
            right = torch.autograd.grad(loss, [*whole, attention.projection])
            parts = [x[:, :, here].clone().requires_grad_() for x in whole]
            out = ring_attention(attention, *parts[:3], positions[here], parts[3:], order=order)
            made = list(torch.autograd.grad((out * weights[:, :, here]).sum(), [*parts, attention.projection]))
            dist.all_reduce(made[-1])
            for x, y in zip(made, right):
                self.near(x, y if y is right[-1] else y[:, :, here], 2.0**-18)
        for along in (0, 1, 2):
            with self.subTest(along=along):
                cut = [self.cut(x.detach(), Shard(along)).requires_grad_() for x in whole]
                spread = copy.deepcopy(attention)
                projection = self.cut(attention.projection.detach(), Shard(0) if along == 1 else Replicate())
                spread.projection = torch.nn.Parameter(projection)
                out = spread(*cut[:3], self.cut(positions, Replicate()), inputs=cut[3:])
                (out * distribute_tensor(weights, self.mesh, out.placements)).sum().backward()
                for x, y in zip([*cut, spread.projection], right):
                    self.near(x.grad.full_tensor(), y, 2.0**-18)

    def test_a_ring_of_one(self):
        """To the bit what attention is alone, of a module in bfloat16 and of queries with channels apart, too."""
        alone = [dist.new_group([i]) for i in range(4)][self.rank]
        both = {**FAST, "dtypes": ["float32", "bfloat16"]}
        attention = Attention("relative_bias_table", heads=8, head_dim=32, window_h=4, window_w=4, **both)
        positions = torch.cartesian_prod(*[torch.arange(4.0)] * 2)
        for dtype in (torch.float32, torch.bfloat16):
            module = copy.deepcopy(attention).to(dtype)
            rows = [numbers(2, 8, 16, 32, seed=i).to(dtype) for i in range(3)]
            rows[0] = rows[0].mT.contiguous().mT
            rows = [x.requires_grad_() for x in rows]
            made = [
                f(*rows)
                for f in (
                    lambda *x: module(*x, positions),  # noqa: B023
                    lambda *x: ring_attention(module, *x, positions, group=alone),
                )
            ]  # noqa: B023
            made = [(x, *torch.autograd.grad(x.sum(), [*rows, *module.parameters()])) for x in made]
            for x, y in zip(*made):
                self.assertTrue(torch.equal(x, y))

    @torch.no_grad()
    def test_spread(self):
        for attention, q, k, v, positions, inputs, expected in self.cases():
            for along, of_keys in ((0, 0), (1, 1), (2, 2), (2, None)):
                with self.subTest(attention.kernel.name, causal=attention.causal, along=along, of_keys=of_keys):
                    places = [Replicate() if of_keys is None else Shard(of_keys)]
                    found = attention(self.cut(q, Shard(along)), self.cut(k, *places), self.cut(v, *places),
                                      self.cut(positions, Replicate()),
                                      inputs=[self.cut(x, Shard(along)) for x in inputs])  # fmt: skip
                    self.near(found.full_tensor(), expected, 2.0**-18)

    def test_spread_gradients(self):
        """Gradients of q, k, v and a learned table, cut along batches, heads, tokens and two of them. Keys go around
        the ring, or are gathered where queries alone are cut."""
        flat, square = self.mesh, init_device_mesh("cpu", (2, 2))
        cuts = [(flat, (0,), (0,)), (flat, (1,), (1,)), (flat, (2,), (2,)), (flat, (2,), (3,)), (flat, (3,), (3,)),
                (square, (0, 1), (0, 1)), (square, (1, 2), (1, 2)), (square, (2, 0), (3, 0))]  # fmt: skip
        for causal in (False, True):
            attention = Attention("relative_bias_table", heads=8, head_dim=32, window_h=4, window_w=4, causal=causal,
                                  **FAST)  # fmt: skip
            table = attention.relative_position_bias_table
            with torch.no_grad():
                table.copy_(numbers(7, 7, 8))
            whole = [numbers(4, 8, 16, 32, seed=i).requires_grad_() for i in range(3)]
            weights, of_lse = numbers(4, 8, 16, 32, seed=9), numbers(4, 8, 16, seed=10)
            positions = torch.cartesian_prod(*[torch.arange(4.0)] * 2)
            out, lse = attention(*whole, positions, with_lse=True)
            expected = torch.autograd.grad((out * weights).sum() + (lse * of_lse).sum(), [*whole, table])
            for mesh, along, of_keys in cuts:
                with self.subTest(causal=causal, along=along, of_keys=of_keys):
                    spread, places = copy.deepcopy(attention), [Shard(2) if a == 1 else Replicate() for a in along]
                    name = "relative_position_bias_table"
                    setattr(spread, name, torch.nn.Parameter(distribute_tensor(table.detach(), mesh, places)))
                    parts = [distribute_tensor(x.detach(), mesh, [Shard(a) for a in cut]).requires_grad_()
                             for x, cut in zip(whole, (along, of_keys, of_keys))]  # fmt: skip
                    at = distribute_tensor(positions, mesh, [Replicate()] * mesh.ndim)
                    found, found_lse = spread(*parts, at, with_lse=True)
                    self.near(found.full_tensor().detach(), out.detach(), 2.0**-18)
                    self.near(found_lse.full_tensor().detach(), lse.detach(), 2.0**-18)
                    loss = (found * distribute_tensor(weights, mesh, found.placements)).sum()
                    (loss + (found_lse * distribute_tensor(of_lse, mesh, found_lse.placements)).sum()).backward()
                    for x, y in zip([*parts, getattr(spread, name)], expected):
                        self.assertEqual(x.grad.placements, x.placements)
                        self.near(x.grad.full_tensor(), y, 2.0**-18)

    def test_spread_gradients_in_16_bits_with_plain_keys(self):
        """Grouped heads of keys that every machine has whole: their gradients are whole, too."""
        attention = Attention("alibi", heads=8, head_dim=32, **{**FAST, "dtypes": "bfloat16"})
        whole = [numbers(2, 8 if i == 0 else 4, 16, 32, seed=i).bfloat16().requires_grad_() for i in range(3)]
        weights, positions = numbers(2, 8, 16, 32, seed=9).bfloat16(), numbers(16, 1).cumsum(0)
        expected = torch.autograd.grad((attention(*whole, positions) * weights).sum(), whole)
        parts = [None, *(x.detach().clone().requires_grad_() for x in whole[1:])]
        found = attention(self.cut(whole[0].detach(), Shard(2)), *parts[1:], positions)
        (found * self.cut(weights, Shard(2))).sum().backward()
        for x, y in zip(parts[1:], expected[1:]):
            self.assertEqual((type(x.grad), x.grad.dtype), (torch.Tensor, torch.bfloat16))
            self.near(x.grad.float(), y.float(), 2.0**-6)

    def test_refusals(self):
        attention, q, k, v, positions, inputs, _ = self.whole("alibi", heads=8)
        with self.assertRaisesRegex(pk.ArgumentError, "^positions are missing"):
            ring_attention(attention, q, k, v, None)
        with self.assertRaisesRegex(pk.ArgumentError, "^attention is a Encoding; expected a"):
            ring_attention(Encoding("rope", head_dim=32, **FAST), q, k, v, positions)
        turned, *rest, places, _, _ = self.whole("gta")
        with self.assertRaisesRegex(pk.ArgumentError, "^positions require a gradient, which attention of gta around"):
            ring_attention(turned, *rest, places.clone().requires_grad_())
        cut = [self.cut(x, Shard(0)) for x in rest]
        with self.assertRaisesRegex(pk.ArgumentError, "^positions: a gradient is required"):
            turned(*cut, self.cut(places, Replicate()).requires_grad_())
        first = {name: torch.ones for name in ("slope", "gate", "bias")}
        counted = Attention(SCORES, kind="prefix", init=first, **FAST)  # of indices in the whole sequence
        rows = [numbers(4, counted.kernel.heads or 1, 8, counted.kernel.head_dim, seed=i) for i in range(3)]
        places = torch.arange(8.0 * len(counted.kernel.axes)).reshape(8, -1)
        with self.assertRaisesRegex(pk.ArgumentError, "^spec: scores of scores read indices of tokens"):
            ring_attention(counted, *rows, places)
        with self.assertRaisesRegex(pk.ArgumentError, "^spec: scores of scores read indices of tokens"):
            counted(*(self.cut(x, Shard(2)) for x in rows), places)
        by_batches = counted(*(self.cut(x, Shard(0)) for x in rows), places)
        self.assertTrue(torch.equal(by_batches.full_tensor(), counted(*rows, places)))
        with self.assertRaisesRegex(pk.ArgumentError, "^cu_seqlens: given with tensors that are spread"):
            counted(*(self.cut(x, Shard(0)) for x in rows), places, cu_seqlens=torch.zeros(2, dtype=torch.int32))
        for order, tokens in (("zigzags", 4), ("zigzag", 3)):
            with self.assertRaisesRegex(pk.ArgumentError, f"^order is '{order}' of {tokens} tokens; expected"):
                ring_attention(attention, *(x[:, :, :tokens] for x in (q, k, v)), positions[:tokens], order=order)
        tokens = 3 + self.rank % 2
        with self.assertRaisesRegex(pk.ArgumentError, "^q and k are of different numbers of tokens"):
            ring_attention(attention, q[:, :, :tokens], k[:, :, :tokens], v[:, :, :tokens], positions[:tokens])


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = torch.nn.Linear(64, 3 * 64), torch.nn.Linear(64, 64)
        self.encoding = Encoding("rope_mixed", head_dim=16, heads=4, **FAST)

    def forward(self, x, positions):
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, 16)).permute(2, 0, 3, 1, 4)
        q, k = self.encoding(q, k, positions)
        made = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out(made.transpose(1, 2).flatten(2)).clone()


class Training(Case):
    def steps(self, model, x, target, positions):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        for _ in range(3):
            torch.nn.functional.mse_loss(model(x, positions), target).backward()
            optimizer.step()
            optimizer.zero_grad()

    def test_data_parallel(self):
        first = Block()
        x, target, positions = numbers(8, 5, 64), numbers(8, 5, 64, seed=2), numbers(5, 2)
        alone = copy.deepcopy(first)
        self.steps(alone, x, target, positions)
        moved = (alone.encoding.freqs - first.encoding.freqs).abs().max().detach()
        self.assertGreater(float(moved), 2.0**-14)
        mine = slice(2 * self.rank, 2 * self.rank + 2)
        for way in (DistributedDataParallel, fully_shard):
            with self.subTest(way.__name__):
                model = copy.deepcopy(first)
                wrapped = way(model)
                self.steps(wrapped, x[mine], target[mine], positions)
                for (name, mine_), own in zip(model.named_parameters(), alone.parameters()):
                    value = mine_.full_tensor() if isinstance(mine_, DTensor) else mine_
                    self.near(value.detach(), own.detach(), 2.0**-18)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    program = unittest.main(exit=False, verbosity=2 if dist.get_rank() == 0 else 0)
    dist.destroy_process_group()
    sys.exit(not program.result.wasSuccessful())


if __name__ == "__main__":
    main()
