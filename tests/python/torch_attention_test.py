"""pegen_kernels.torch.Attention: gradients of q, k, v and of what its bias learns."""
import copy
import math
import pathlib
import unittest
from unittest import mock

import torch
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

import pegen_kernels as pk
from pegen_kernels.torch import Attention, Encoding

FAST = {"targets": "native", "dtypes": "float32"}
BOTH = {"targets": "native", "dtypes": ["float32", "bfloat16"]}
SCALED = """
local pe = require "pegen"
return pe.encoding { name = "scaled", axes = { "t" }, head_dim = pe.option("head_dim", 16, "channels"), scale = 3,
  heads = pe.option("heads", 1, "heads"), bias = function(delta) return 0 * delta.t end }
"""
CAPPED = """
local pe = require "pegen"
return pe.encoding { name = "capped", role = "pairwise", axes = { "t" }, head_dim = 16,
  score = function(s) return 3 * pe.tanh(s / 3) end }
"""
SLOPES = pathlib.Path(__file__).parents[1] / "attention" / "slopes.lua"


class AttentionGradients(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(8)
        self.attention = Attention("alibi", head_dim=16, heads=4, causal=True, **BOTH)
        self.rows = torch.randn(2, 4, 7, 16), torch.randn(2, 2, 9, 16), torch.randn(2, 2, 9, 16)
        self.places = torch.arange(2.0, 9)[:, None], torch.arange(9.0)[:, None]
        self.weight = torch.randn(2, 4, 7, 16)

    def call(self, q, k, v, **options):
        return self.attention(q, k, v, *self.places, **options)

    def expected(self, q, k, v):
        """The formula in float64: the output and lse."""
        q, k, v = q.double(), k.double().repeat_interleave(2, 1), v.double().repeat_interleave(2, 1)
        far = (self.places[0] - self.places[1].T).abs()
        scores = q @ k.transpose(-1, -2) / 4 - 2.0 ** (-2 * torch.arange(1, 5))[:, None, None] * far
        scores = scores.masked_fill(~torch.ones(7, 9).tril(2).bool(), -math.inf)
        return scores.softmax(-1) @ v, scores.logsumexp(-1)

    def test_of_one_batch(self):
        rows = [x[0].transpose(0, 1).requires_grad_() for x in self.rows]
        out, lse = self.attention(*rows, *(x[:, 0] for x in self.places), with_lse=True)
        right, right_lse = self.call(*(x[:1] for x in self.rows), with_lse=True)
        self.assertTrue(torch.equal(out, right[0].transpose(0, 1)) and torch.equal(lse, right_lse[0].T))
        lifted = [x[:1].requires_grad_() for x in self.rows]
        made = torch.autograd.grad((out * self.weight[0].transpose(0, 1)).sum() + lse.sum(), rows)
        other, other_lse = self.call(*lifted, with_lse=True)
        expected = torch.autograd.grad((other * self.weight[:1]).sum() + other_lse.sum(), lifted)
        for x, y in zip(made, expected):
            self.assertTrue(torch.equal(x, y[0].transpose(0, 1)))

    def test_jacobians_of_one_batch(self):
        """Each sample of vmap's has its own tokens, where no position tells whose they are, either."""
        attention = Attention("attention", head_dim=16, **FAST)
        rows = [x[0].transpose(0, 1)[:3] for x in self.rows]
        made = torch.func.jacrev(attention, (0, 1, 2))(*rows)
        self.assertTrue(made[1].any())
        for x, y in zip(made, torch.autograd.functional.jacobian(attention, tuple(rows))):
            self.assertTrue(torch.equal(x, y))

    def test_values(self):
        rows = [x.requires_grad_() for x in self.rows]
        out, lse = self.call(*rows, with_lse=True)
        right, right_lse = self.expected(*rows)
        self.assertLess((out - right).abs().max(), 1e-5)
        self.assertLess((lse - right_lse).abs().max(), 1e-5)
        weight_lse = torch.randn(lse.shape)
        made = torch.autograd.grad((out * self.weight).sum() + (lse * weight_lse).sum(), rows)
        expected = torch.autograd.grad((right * self.weight).sum() + (right_lse * weight_lse).sum(), rows)
        for x, y in zip(made, expected):
            self.assertLess((x - y).abs().max(), 1e-5)
        only = torch.autograd.grad(self.call(*rows, with_lse=True)[1].sum(), rows, allow_unused=True)
        self.assertLess((only[0] - torch.autograd.grad(self.expected(*rows)[1].sum(), rows[0])[0]).abs().max(), 1e-5)
        self.assertEqual(only[2].abs().max(), 0)

    def test_layouts(self):
        """[B,N,H,D] memory, gradients of any strides, bfloat16."""
        rows = [x.transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for x in self.rows]
        out = self.call(*rows)
        self.assertEqual(out.stride(), rows[0].stride())
        (summed,) = torch.autograd.grad(out.sum(), rows[:1])  # whose gradient has strides of 0
        self.assertLess((summed - torch.autograd.grad(self.expected(*rows)[0].sum(), rows[0])[0]).abs().max(), 1e-5)
        half = [x.detach().bfloat16().requires_grad_() for x in self.rows]
        made = torch.autograd.grad((self.call(*half) * self.weight.bfloat16()).sum(), half)
        right = torch.autograd.grad((self.expected(*half)[0] * self.weight.bfloat16()).sum(), half)
        for x, y in zip(made, right):
            self.assertEqual(x.dtype, torch.bfloat16)
            self.assertLess((x - y).norm() / y.norm(), 2e-2)

    def test_transforms(self):
        q, k, v = self.rows
        loss = lambda q: (self.call(q, k, v) * self.weight).sum()  # noqa: E731
        plain = torch.autograd.grad(loss(x := q.clone().requires_grad_()), x)[0]
        self.assertTrue(torch.equal(torch.func.grad(loss)(q), plain))
        kept = torch.utils.checkpoint.checkpoint(loss, y := q.clone().requires_grad_(), use_reentrant=False)
        self.assertTrue(torch.equal(torch.autograd.grad(kept, y)[0], plain))
        many = torch.stack([q, 2 * q, q - 1])
        self.assertTrue(torch.equal(torch.vmap(lambda q: self.call(q, k, v))(many)[1], self.call(2 * q, k, v)))
        samples = torch.vmap(torch.func.grad(loss))(many)
        self.assertTrue(torch.allclose(samples[2], torch.func.grad(loss)(q - 1), atol=1e-6))
        for backend in ("aot_eager", "inductor"):
            torch._dynamo.reset()
            compiled = torch.compile(loss, fullgraph=True, backend=backend)
            found = torch.autograd.grad(compiled(x := q.clone().requires_grad_()), x)[0]
            with self.subTest(backend):
                self.assertLess((found - plain).abs().max(), 1e-5)
        name = self.attention.kernel_name
        given = (x, k, v, *self.places, [], [], True, 0.0, name)
        torch.library.opcheck(torch.ops.pegen_kernels.attention_with_lse.default, given)
        torch.library.opcheck(torch.ops.pegen_kernels.attention.default, given)

        class Model(torch.nn.Module):
            def __init__(self, attention):
                super().__init__()
                self.attention = attention

            def forward(self, q, k, v, positions, k_positions):
                return self.attention(q, k, v, positions, k_positions)

        exported = torch.export.export(Model(self.attention), (q, k, v, *self.places))
        self.assertTrue(torch.equal(exported.module()(q, k, v, *self.places), self.call(q, k, v)))

    def test_refusals(self):
        q, k, v = (x.requires_grad_() for x in self.rows)
        with self.assertRaisesRegex(pk.ArgumentError, "alibi: attention has no gradients of gradients"):
            torch.autograd.grad(self.call(q, k, v).sum(), q, create_graph=True)
        with self.assertRaisesRegex(pk.ArgumentError, "^k has 3 heads; expected a divisor of q's 4"):
            self.attention(q, torch.randn(2, 3, 7, 16), torch.randn(2, 3, 7, 16), self.places[0])


class LearnedBias(unittest.TestCase):
    """Slopes and gains that stand by themselves, beside the formula in float64."""

    def setUp(self):
        torch.manual_seed(9)
        first = {"slope": torch.randn, "gain": torch.randn}
        self.attention = Attention(SLOPES, heads=4, init=first, **FAST)
        self.rows = torch.randn(2, 4, 7, 64), torch.randn(2, 2, 9, 64), torch.randn(2, 2, 9, 64)
        self.places = torch.rand(2, 7, 2) * 6, torch.rand(2, 9, 2) * 6
        self.weight, self.weight_lse = torch.randn(2, 4, 7, 64), torch.randn(2, 4, 7)

    def loss(self, q, k, v, slope, gain, at=None, k_at=None):
        given = {"slope": slope, "gain": gain}
        places = [y if x is None else x for x, y in zip((at, k_at), self.places)]
        run = lambda *rows: torch.func.functional_call(self.attention, given, rows, {"with_lse": True})  # noqa: E731
        out, lse = run(q, k, v, *places)
        return (out * self.weight).sum() + (lse * self.weight_lse).sum()

    def expected(self, q, k, v, slope, gain, at, k_at):
        k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        h, w = (k_at[:, None, None] - at[:, None, :, None]).unbind(-1)
        bias = torch.where(h.square() < 9, gain[1] * h, gain[0] * w.cos())
        bias = bias - torch.nn.functional.softplus(slope)[:, None, None] * (h * h + w * w).sqrt()
        scores = q @ k.mT / 8 + bias
        out = scores.softmax(-1) @ v
        return (out * self.weight).sum() + (scores.logsumexp(-1) * self.weight_lse).sum()

    def given(self, dtype=torch.float32):
        every = [*self.rows, self.attention.slope, self.attention.gain, *self.places]
        return [x.detach().to(dtype).requires_grad_() for x in every]

    def test_values(self):
        self.assertTrue(all(x.requires_grad for x in self.attention.parameters()))
        wide = self.given(torch.float64)
        right = torch.autograd.grad(self.expected(*wide), wide)
        made = torch.autograd.grad(self.loss(*(given := self.given())), given)
        for x, y in zip(made, right):
            self.assertEqual(x.dtype, torch.float32)
            self.assertLess((x - y).abs().max(), 2e-5 * max(1, y.abs().max()))
        q, k, v, slope, gain, at, k_at = given
        (of_places,) = torch.autograd.grad(self.loss(*self.rows, slope.detach(), gain.detach(), at), at)
        self.assertTrue(torch.equal(of_places, made[5]))
        far = at.detach().double().requires_grad_()
        (of_far,) = torch.autograd.grad(self.loss(*self.rows, slope.detach(), gain.detach(), far), far)
        self.assertEqual(of_far.dtype, torch.float64)
        self.assertLess((of_far - right[5]).abs().max(), 2e-5 * right[5].abs().max())
        (only,) = torch.autograd.grad(self.loss(*self.rows, slope.detach(), gain), gain)
        self.assertTrue(torch.equal(only, made[4]))
        (of_wide,) = torch.autograd.grad(self.loss(*self.rows, slope.detach(), wide[4]), wide[4])
        self.assertEqual(of_wide.dtype, torch.float64)
        self.assertLess((of_wide - right[4]).abs().max(), 2e-5 * right[4].abs().max())

    def test_python(self):
        """The operators in Python, as where the PyTorch is an older one, write the same."""
        from pegen_kernels.torch.attention import _attention_backward

        q, k, v, slope, gain = (x.detach() for x in self.given()[:5])
        choices = (False, 0.0, self.attention.kernel_name)
        places = (*self.places, [slope, gain], [])
        out, lse = torch.ops.pegen_kernels.attention_with_lse(q, k, v, *places, *choices)
        for wanted, n in ((0, 3), (1, 4), (2, 4), (3, 5), (4, 4), (8, 4), (13, 6)):
            given = (self.weight, self.weight_lse, q, k, v, out, lse, *places, *choices, wanted)
            made = torch.ops.pegen_kernels.attention_backward(*given)
            self.assertEqual(len(made), n)
            for x, y in zip(made, _attention_backward(*given)):
                self.assertTrue(torch.equal(x, y))
            torch.library.opcheck(torch.ops.pegen_kernels.attention_backward.default, given)
        self.assertEqual(len(torch.ops.pegen_kernels.attention_backward(*given[:-1])), 3)

    def test_transforms(self):
        q, k, v, slope, gain, at, _ = (x.detach() for x in self.given())
        of_slope = lambda slope, q=q: self.loss(q, k, v, slope, gain)  # noqa: E731
        plain = torch.autograd.grad(of_slope(x := slope.clone().requires_grad_()), x)[0]
        self.assertTrue(torch.equal(torch.func.grad(of_slope)(slope), plain))
        samples = torch.vmap(torch.func.grad(of_slope), (None, 0))(slope, torch.stack([q, 2 * q]))
        self.assertTrue(torch.equal(samples[0], plain))
        self.assertTrue(torch.equal(samples[1], torch.func.grad(of_slope)(slope, 2 * q)))
        of_places = lambda at, q=q: self.loss(q, k, v, slope, gain, at)  # noqa: E731
        right = torch.autograd.grad(of_places(x := at.clone().requires_grad_()), x)[0]
        self.assertTrue(torch.equal(torch.func.grad(of_places)(at), right))
        samples = torch.vmap(torch.func.grad(of_places))(torch.stack([at, at + 1]), torch.stack([q, 2 * q]))
        self.assertTrue(torch.equal(samples[1], torch.func.grad(of_places)(at + 1, 2 * q)))
        compiled = torch.compile(of_places, fullgraph=True, backend="aot_eager")
        found = torch.autograd.grad(compiled(x := at.clone().requires_grad_()), x)[0]
        self.assertLess((found - right).abs().max(), 1e-5 * right.abs().max())
        kept = torch.utils.checkpoint.checkpoint(of_slope, y := slope.clone().requires_grad_(), use_reentrant=False)
        self.assertTrue(torch.equal(torch.autograd.grad(kept, y)[0], plain))
        compiled = torch.compile(of_slope, fullgraph=True, backend="aot_eager")
        found = torch.autograd.grad(compiled(x := slope.clone().requires_grad_()), x)[0]
        self.assertLess((found - plain).abs().max(), 1e-5 * plain.abs().max())

    def test_empty(self):
        """What no query reads gains 0."""
        for batches, tokens in ((0, 7), (2, 0)):
            self.attention.zero_grad()
            q, k = torch.randn(batches, 4, tokens, 64), torch.randn(batches, 2, 9, 64)
            self.attention(q, k, k, self.places[0][:batches, :tokens], self.places[1][:batches]).sum().backward()
            for x in self.attention.parameters():
                self.assertEqual(x.grad.abs().max(), 0)


class Sequences(unittest.TestCase):
    """Rows of sequences that follow each other are what calls of each give."""

    def setUp(self):
        torch.manual_seed(11)
        self.attention = Attention(
            SLOPES, heads=4, causal=True, init={"slope": torch.randn, "gain": torch.randn}, **FAST
        )
        self.bounds, self.k_bounds = (torch.tensor(x, dtype=torch.int32) for x in ([0, 3, 3, 12], [0, 4, 6, 18]))
        self.given = [torch.randn(12, 4, 64), torch.randn(18, 2, 64), torch.randn(18, 2, 64), torch.rand(12, 2) * 6]
        self.given = [x.requires_grad_() for x in (*self.given, torch.rand(18, 2) * 6)]
        self.learned = [*self.given, *self.attention.parameters()]
        self.weight, self.weight_lse = torch.randn(12, 4, 64), torch.randn(12, 4)

    def loss(self, *given):
        out, lse = self.attention(*given, with_lse=True, cu_seqlens=self.bounds, k_cu_seqlens=self.k_bounds)
        return (out * self.weight).sum() + (lse * self.weight_lse).sum()

    def apart(self):
        total = 0
        for i in (0, 2):  # the second has no queries
            q, k = (slice(*x[i : i + 2]) for x in (self.bounds, self.k_bounds))
            one = [x[own].transpose(0, 1)[None] for x, own in zip(self.given[:3], (q, k, k))]
            out, lse = self.attention(*one, self.given[3][q], self.given[4][k], with_lse=True)
            total = total + (out[0].transpose(0, 1) * self.weight[q]).sum() + (lse[0].T * self.weight_lse[q]).sum()
        return total

    def test_gradients(self):
        made = torch.autograd.grad(self.loss(*self.given), self.learned)
        for x, y in zip(made, torch.autograd.grad(self.apart(), self.learned)):
            self.assertLess((x - y).abs().max(), 1e-5 * max(1, y.abs().max()))

    def test_compiled(self):
        made = torch.autograd.grad(self.loss(*self.given), self.learned)
        compiled = torch.compile(self.loss, fullgraph=True, backend="aot_eager")
        for x, y in zip(torch.autograd.grad(compiled(*self.given), self.learned), made):
            self.assertLess((x - y).abs().max(), 1e-5 * max(1, y.abs().max()))

    def test_python(self):
        """The operators in Python write the same."""
        from pegen_kernels.torch.attention import _attention_backward, _attention_with_lse

        q, k, v, at, k_at, *learned = (x.detach() for x in self.learned)
        places, numbers = (at, k_at, learned, []), (True, 0.0, self.attention.kernel_name)
        bounds = (self.bounds, self.k_bounds)
        made = torch.ops.pegen_kernels.attention_with_lse(q, k, v, *places, *numbers, *bounds)
        for x, y in zip(made, _attention_with_lse(q, k, v, *places, *numbers, *bounds)):
            self.assertTrue(torch.equal(x, y))
        for bounds in (bounds, (self.bounds, self.bounds)):
            k, v, k_at = (x[: bounds[1][-1]] for x in (k, v, k_at))
            places = (at, k_at, learned, [])
            given = (self.weight, self.weight_lse, q, k, v, *made, *places, *numbers, 15, *bounds)
            gained = torch.ops.pegen_kernels.attention_backward(*given)
            for x, y in zip(gained, _attention_backward(*given)):
                self.assertTrue(torch.equal(x, y))
        torch.library.opcheck(torch.ops.pegen_kernels.attention_backward.default, given)

    def test_refusals(self):
        for words, bounds in [
            ("cu_seqlens", self.bounds + 1),
            ("cu_seqlens", self.bounds.long()),
            ("cu_seqlens is a list", [0, 3, 12]),
        ]:
            with self.assertRaisesRegex(pk.ArgumentError, words):
                self.attention(*self.given, cu_seqlens=bounds, k_cu_seqlens=self.k_bounds)


class LearnedTable(unittest.TestCase):
    def test_values(self):
        """By positions and on a grid, of float32 and bfloat16 rows: the table beside its elements by their indices."""
        torch.manual_seed(10)
        at = torch.tensor([[h, w] for h in range(3) for w in range(3)])
        index = (2 + at[:, None] - at).unbind(-1)
        for grid, width in (("", 16), ((3, 3), 16), ("", 24)):
            bias = Attention("relative_bias_table", head_dim=16, heads=4, window_h=3, window_w=3, value_dim=width,
                             grid=grid, **BOTH)  # fmt: skip
            table = bias.relative_position_bias_table
            self.assertTrue(table.requires_grad)
            for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 2e-2)):
                q, k = torch.randn(2, 2, 4, 9, 16).to(dtype)
                v, weight = torch.randn(2, 2, 4, 9, width).to(dtype)
                with self.subTest(f"{grid} {width} {dtype}"):
                    out = bias(q, k, v, None if grid else at)
                    (made,) = torch.autograd.grad((out * weight).sum(), table)
                    wide = table.detach().double().requires_grad_()
                    scores = q.double() @ k.double().mT / 4 + wide[index].permute(2, 0, 1)
                    (right,) = torch.autograd.grad((scores.softmax(-1) @ v.double() * weight).sum(), wide)
                    self.assertLess((made - right).norm() / right.norm(), tolerance)

    def test_authors_shape(self):
        """Swin's table [(2H-1)(2W-1), heads] is read by its authors' index: as a first value, from a checkpoint, and as
        the parameter itself, which has the gradient then."""
        torch.manual_seed(14)
        name, options = "relative_position_bias_table", dict(head_dim=16, heads=3, window_h=3, window_w=4, **BOTH)
        table = torch.nn.Parameter(torch.randn(5 * 7, 3))
        at = torch.cartesian_prod(torch.arange(3), torch.arange(4))
        far = at[:, None] - at + torch.tensor([2, 3])
        q, k, v, weight = torch.randn(4, 2, 3, 12, 16)
        bias = table[far[..., 0] * 7 + far[..., 1]].permute(2, 0, 1)
        right = torch.softmax(q @ k.mT / 4 + bias, -1) @ v
        (expected,) = torch.autograd.grad((right * weight).sum(), table)
        first, read, own = (Attention("relative_bias_table", init=init, **options) for init in ({name: table}, {}, {}))
        torch.nn.ModuleDict({"attn": read}).load_state_dict({f"attn.{name}": table.detach().clone()})
        setattr(own, name, table)
        for module, shape in ((first, (5, 7, 3)), (read, (5, 7, 3)), (own, (35, 3))):
            out = module(q, k, v, at)
            self.assertLess((out - right).abs().max(), 2e-6)
            (made,) = torch.autograd.grad((out * weight).sum(), module.parameters())
            self.assertEqual(made.shape, shape)
            self.assertLess((made.reshape(35, 3) - expected).abs().max(), 2e-5)
        with self.assertRaisesRegex(RuntimeError, "size mismatch"):
            read.load_state_dict({name: torch.randn(3, 35)})
        with self.assertRaisesRegex(pk.ArgumentError, r"'relative_position_bias_table' has the shape \[3, 35\]; exp"):
            Attention("relative_bias_table", init={name: torch.randn(3, 35)}, **options)
        own.relative_position_bias_table = torch.nn.Parameter(torch.randn(3, 35))
        with self.assertRaisesRegex(pk.ArgumentError, r"'relative_position_bias_table' has the shape \[3, 35\]; exp"):
            own(q, k, v, at)

    def test_scale(self):
        """Without one of the caller's it is what the description states: of T5 1, of others 1/sqrt(head_dim)."""
        torch.manual_seed(13)
        q, k, v = torch.randn(3, 1, 2, 9, 16)
        far = torch.arange(9)[None] - torch.arange(9)[:, None]
        bucket = torch.where(far > 0, 16, 0) + far.abs()  # exact up to 8
        for spec, own in (("t5", 1.0), ("alibi", 0.25), (SCALED, 3.0)):
            attention = Attention(spec, heads=2, head_dim=16, **BOTH)
            self.assertEqual(attention.kernel.scale, own)
            self.assertEqual(attention.kernel.explain().get("scale"), None if spec == "alibi" else own)
            self.assertEqual(f"of q k^T: {own:g} where" in attention.kernel.header, spec != "alibi")
            bias = attention.relative_attention_bias[bucket].permute(2, 0, 1) if spec == "t5" else 0
            bias = -far.abs() * torch.tensor([2**-4, 2**-8])[:, None, None] if spec == "alibi" else bias
            for scale in (0.0, 0.7):
                attention.scale = scale
                leaves = [x.clone().requires_grad_() for x in (q, k, v)]
                right = torch.softmax(leaves[0] @ leaves[1].mT * (scale or own) + bias, -1) @ leaves[2]
                out = attention(*leaves, torch.arange(9))
                self.assertLess((out - right).abs().max(), 2e-6)
                for x, y in zip(torch.autograd.grad(out.sum(), leaves), torch.autograd.grad(right.sum(), leaves)):
                    self.assertLess((x - y).abs().max(), 5e-5)
        self.assertEqual(Encoding("rope", head_dim=16, **BOTH).kernel.scale, 0)

    def test_half(self):
        """A table that was cast to bfloat16 has gradients of its type."""
        torch.manual_seed(12)
        bias = Attention("relative_bias_table", head_dim=16, heads=2, window_h=3, window_w=3, **BOTH)
        rounded = copy.deepcopy(bias).cast_operands(torch.bfloat16)
        with torch.no_grad():
            bias.relative_position_bias_table.copy_(rounded.relative_position_bias_table)
        rows, at = torch.randn(3, 1, 2, 9, 16).bfloat16(), torch.cartesian_prod(torch.arange(3), torch.arange(3))
        out = [module(*rows, at) for module in (bias, rounded)]
        self.assertTrue(torch.equal(*out))
        made = [torch.autograd.grad(x.sum(), m.parameters())[0] for x, m in zip(out, (bias, rounded))]
        self.assertTrue(torch.equal(made[0].bfloat16(), made[1]))

    def test_learning(self):
        """A table that made an output is found again by descent."""
        torch.manual_seed(11)
        at = torch.tensor([[h, w] for h in range(3) for w in range(3)])
        options = dict(head_dim=16, heads=2, window_h=3, window_w=3, **FAST)
        name = "relative_position_bias_table"
        right = Attention("relative_bias_table", init={name: torch.randn}, **options)
        learner = Attention("relative_bias_table", **options)
        q, k, v = torch.randn(3, 8, 2, 9, 16)
        optimizer = torch.optim.Adam(learner.parameters(), lr=0.1)
        with torch.no_grad():
            goal = right(q, k, v, at)
        losses = []
        for _ in range(60):
            optimizer.zero_grad()
            losses.append((learner(q, k, v, at) - goal).square().mean())
            losses[-1].backward()
            optimizer.step()
        self.assertLess(losses[-1], losses[0] / 100)

    def test_refusals(self):
        module = Attention("pape", role="pairwise", head_dim=16, heads=2, **FAST)
        q = torch.randn(1, 2, 3, 16)
        inputs = [torch.randn((1, 2, 3, info.size)[: 4 if info.size else 3]) for info in module.kernel.inputs]
        places = torch.rand(3, len(module.kernel.axes))
        module(q, q, q, places, inputs=inputs)
        older = mock.patch("pegen_kernels.torch.attention.gains_of_attention", return_value=("q", "operand.0"))
        with older, self.assertRaisesRegex(pk.ArgumentError, "^positions: a gradient is required"):
            module(q, q, q, places.requires_grad_(), inputs=inputs)


class Pairs(unittest.TestCase):
    """Numbers of pairs beside PyTorch's own attention, which takes them as its mask."""

    def test_gradients(self):
        torch.manual_seed(21)
        attention = Attention("pair_bias", head_dim=16, **BOTH)
        self.assertEqual(attention.kernel.inputs[0].dimensions, ("batches", "heads", "tokens", "keys"))
        q, k, v = torch.randn(3, 4, 37, 16), torch.randn(3, 2, 29, 16), torch.randn(3, 2, 29, 16)
        weight = torch.randn(3, 4, 37, 16)
        for shape in ((3, 4, 37, 29), (1, 4, 37, 29), (3, 1, 37, 29), (1, 1, 37, 29)):
            bias = torch.randn(shape)
            bias[..., 5, :] = -math.inf  # a query that sees no key, and a key that is not seen
            bias[..., 7] = -math.inf
            leaves = [x.clone().requires_grad_() for x in (q, k, v, bias)]
            wide = [x.double().requires_grad_() for x in (q, k, v, bias)]
            out = attention(*leaves[:3], inputs=leaves[3:])
            right = torch.nn.functional.scaled_dot_product_attention(*wide[:3], wide[3], enable_gqa=True)
            seen = torch.arange(37) != 5  # PyTorch's own has NaN there
            self.assertEqual(out[:, :, 5].abs().max(), 0)
            self.assertLess((out - right)[:, :, seen].abs().max(), 2e-6)
            got = torch.autograd.grad((out * weight).sum(), leaves)
            wanted = torch.autograd.grad((right * weight)[:, :, seen].sum(), wide)
            for x, y in zip(got, wanted):
                self.assertLess((x - y.nan_to_num()).abs().max(), 2e-5, shape)

    def test_narrow(self):
        """Numbers of 16 bits are those of float32 that they are, and their gradient is rounded once."""
        attention = Attention("pair_bias", head_dim=16, **FAST)
        q, weight = torch.randn(1, 2, 40, 16), torch.randn(1, 2, 40, 16)
        for dtype in (torch.bfloat16, torch.float16):
            narrow = torch.randn(1, 2, 40, 40).to(dtype).requires_grad_()
            wide = narrow.detach().float().requires_grad_()
            out, right = (attention(q, q, q, inputs=[x]) for x in (narrow, wide))
            self.assertTrue(torch.equal(out, right))
            got, wanted = (torch.autograd.grad((y * weight).sum(), x)[0] for y, x in ((out, narrow), (right, wide)))
            self.assertTrue(got.dtype == dtype and torch.equal(got, wanted.to(dtype)))

    def test_refusals(self):
        attention = Attention("pair_bias", head_dim=16, **FAST)
        with self.assertRaisesRegex(pk.ArgumentError, "expected float32, bfloat16 or float16"):
            attention(*3 * [torch.randn(1, 2, 5, 16)], inputs=[torch.randn(1, 2, 5, 5).double()])
        q, k = torch.randn(1, 2, 5, 16), torch.randn(1, 2, 7, 16)
        with self.assertRaisesRegex(pk.ArgumentError, r"expected \[1, 2, 5, 7\], a number for each pair"):
            attention(q, k, k, inputs=[torch.randn(1, 2, 5, 5)])
        packed, bounds = torch.randn(5, 2, 16), torch.tensor([0, 2, 5], dtype=torch.int32)
        with self.assertRaisesRegex(pk.ArgumentError, "expected no cu_seqlens"):
            attention.kernel.attention(packed, packed, packed, cu_seqlens=bounds, inputs=[torch.randn(5, 2, 5)])


class Polynomials(unittest.TestCase):
    """PaPE beside its formula in float64: what its parabolas are made of, too."""

    def test_gradients(self):
        torch.manual_seed(7)
        m, at, away = 5, torch.rand(9, 2) * 4, torch.rand(9, 2) * 4
        attention = Attention("pape", role="pairwise", head_dim=12, heads=3, parabolas=m, causal=True, **FAST)
        rows, (a, b) = [torch.randn(2, 3, 9, 12) for _ in range(3)], torch.randn(2, 2, 3, 9, m)
        a[0, 0] = 0  # as weights that begin at 0 have it: softplus falls by a half there
        b = b.transpose(1, 2).contiguous().transpose(1, 2)  # [B,N,H,m] in memory
        weight = torch.randn(2, 3, 9, 12)

        def expected(q, k, v, a, b, at, away, w):
            x = torch.einsum("hma,ija->hijm", w, away[None] - at[:, None])
            bias = torch.einsum("hijm,bhim->bhij", x, b) - torch.einsum(
                "hijm,bhim->bhij", x * x, torch.nn.functional.softplus(a)
            )
            scores = (q @ k.mT + bias) / 12**0.5
            return ((scores + torch.full((9, 9), -torch.inf).triu(1)).softmax(-1) @ v * weight).sum()

        leaves = [x.double().requires_grad_() for x in (*rows, a, b, at, away, attention.projection.detach())]
        exact = torch.autograd.grad(expected(*leaves), leaves)
        given = [x.detach().requires_grad_() for x in (*rows, a, b, at, away)]
        out = attention(*given[:3], given[5], k_positions=given[6], inputs=given[3:5])
        made = torch.autograd.grad((out * weight).sum(), (*given, attention.projection))
        for right, x in zip(exact, made):
            self.assertLess((right - x).abs().max() / right.abs().max(), 1e-5)
        out = attention(*rows, at, k_positions=away, inputs=given[3:5])
        alone = torch.autograd.grad((out * weight).sum(), given[3:4])
        self.assertTrue(torch.equal(alone[0], made[3]))

    def test_compiled(self):
        """One graph, forward and backward."""
        attention = Attention("pape_ri", role="pairwise", head_dim=8, axes=2, **FAST)
        q, at, a = torch.randn(1, 2, 6, 8), torch.rand(6, 2), torch.randn(1, 2, 6, requires_grad=True)
        made = []
        for call in (attention, torch.compile(attention, fullgraph=True, backend="aot_eager")):
            made.append(torch.autograd.grad(call(q, q, q, at, inputs=[a]).square().sum(), [a, attention.projection]))
        for eager, compiled in zip(*made):
            self.assertTrue(torch.equal(eager, compiled))


def turned_scores(q, k, at, sign):
    """Linear GeoPE's of 20 channels."""
    delta = (at[None] - at[:, None])[..., None] * 100.0 ** (sign * 2 * torch.arange(6).double() / 20)
    zero = torch.zeros_like(delta[:, :, 0])
    _, y, z = (x / 4 for x in (zero, delta[:, :, 0], delta[:, :, 1]))  # the mean of half angles, twice
    skew = torch.stack([zero, -z, y, z, zero, zero, -y, zero, zero], -1).unflatten(-1, (3, 3)) * 2
    turned = torch.einsum("ijgab,nhjgb->nhijga", skew.matrix_exp(), k[..., :18].unflatten(-1, (6, 3)))
    scores = torch.einsum("bhia,bhija->bhij", q[..., :18], turned.flatten(-2)) + q[..., 18:] @ k[..., 18:].mT
    return scores / 20**0.5


class Rotations(unittest.TestCase):
    """Linear GeoPE beside its formula in float64."""

    def test_gradients(self):
        for sign, options in ((1, {}), (-1, {"exponent_sign": -1})):
            with self.subTest(options):
                self.check_gradients(sign, options)

    def check_gradients(self, sign, options):
        torch.manual_seed(5)
        rows, at = [torch.randn(2, 3, 7, 20) for _ in range(3)], torch.rand(7, 2) * 6
        weight, attention = torch.randn(2, 3, 7, 20), Attention("lingeope", head_dim=20, **options, **FAST)

        def expected(q, k, v, at):
            return (turned_scores(q, k, at, sign).softmax(-1) @ v * weight).sum()

        rows.append(at)  # of queries and keys: a token gains as both
        right = torch.autograd.grad(expected(*(wide := [x.double().requires_grad_() for x in rows])), wide)
        loss = (attention(*(given := [x.clone().requires_grad_() for x in rows])) * weight).sum()
        for x, y in zip(torch.autograd.grad(loss, given), right):
            self.assertLess((x - y).abs().max(), 1e-5)


class Tangents(unittest.TestCase):
    """Forward mode of attention beside formulas in float64, by every way to ask for it."""

    def setUp(self):
        torch.manual_seed(31)
        self.at = torch.rand(7, 2) * 6

    def near(self, made, right, tolerance=1e-5):
        for x, y in zip(made, right):
            self.assertLessEqual((x - y).abs().max(), tolerance * y.abs().max())

    def check(self, call, formula, rows, tolerance=1e-5):
        """call, formula: q, k and v to the output and lse."""
        to = [torch.randn_like(x) for x in rows]
        for moved in ((0, 1, 2), (0,), (1, 2)):

            def of(function, xs):
                return lambda *some: function(*(dict(enumerate(xs)) | dict(zip(moved, some))).values())  # noqa: B023

            some, tangents = [rows[i] for i in moved], tuple(to[i] for i in moved)
            wide = [x.double() for x in rows]
            exact = tuple(wide[i] for i in moved), tuple(x.double() for x in tangents)
            right = torch.func.jvp(of(formula, wide), *exact)
            made = torch.func.jvp(of(call, rows), tuple(some), tangents)
            for x, y in zip(made, right):
                self.near(x, y, tolerance)
            linear = torch.func.linearize(of(call, rows), *some)[1](*tangents)
            for leaves in (some, [x.clone().requires_grad_() for x in some]):
                with forward_ad.dual_level():
                    out = of(call, rows)(*map(forward_ad.make_dual, leaves, tangents))
                    dual = [forward_ad.unpack_dual(x) for x in out]
                for one, x, y, z in zip(dual, linear, *made):
                    self.assertTrue(torch.equal(one.primal, y) and torch.equal(one.tangent, z) and torch.equal(x, z))

    def test_plain(self):
        attention = Attention("attention", head_dim=16, **FAST)
        rows = torch.randn(2, 3, 7, 16), torch.randn(2, 3, 9, 16), torch.randn(2, 3, 9, 16)
        places = torch.arange(7), torch.arange(9)
        scores = lambda q, k: q @ k.mT / 4  # noqa: E731
        self.check(lambda *x: attention(*x, *places, with_lse=True),
                   lambda q, k, v: (scores(q, k).softmax(-1) @ v, scores(q, k).logsumexp(-1)), rows)  # fmt: skip

    def test_biases(self):
        """ALiBi's, causal and with keys that heads share; of 16 bits, too, where the output that is read is rounded."""
        case = AttentionGradients()
        case.setUp()
        self.check(lambda *x: case.call(*x, with_lse=True), case.expected, case.rows)
        narrow = [x.bfloat16() for x in case.rows]
        self.check(lambda *x: case.call(*x, with_lse=True), case.expected, narrow, 2**-6)
        spread = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in case.rows]  # in other orders of memory
        to = [torch.randn_like(x) for x in case.rows]
        made = torch.func.jvp(case.call, case.rows, tuple(to))[1]
        for rows, by in ((spread, to), (case.rows, [x.mT.contiguous().mT for x in to])):
            self.assertTrue(torch.equal(torch.func.jvp(case.call, tuple(rows), tuple(by))[1], made))

    def test_rotations(self):
        attention = Attention("lingeope", head_dim=20, **FAST)
        rows = [torch.randn(2, 3, 7, 20) for _ in range(3)]

        def formula(q, k, v):
            scores = turned_scores(q, k, self.at.double(), 1)
            return scores.softmax(-1) @ v, scores.logsumexp(-1)

        self.check(lambda *x: attention(*x, self.at, with_lse=True), formula, rows)

    def test_scores(self):
        """Scores that bend, and gpt-oss' sink, which has a part in every sum."""
        capped = Attention(CAPPED, **FAST)
        oss = Attention("gpt_oss", heads=2, head_dim=16, causal=True, init={"sinks": torch.randn}, **FAST)
        rows, at = [torch.randn(1, 2, 9, 16) * 2 for _ in range(3)], torch.arange(9.0)

        def of_capped(q, k, v):
            scores = 3 * (q @ k.mT / 12).tanh()
            return scores.softmax(-1) @ v, scores.logsumexp(-1)

        def of_oss(q, k, v):
            scores = (q @ k.mT / 4).masked_fill(~torch.ones(9, 9).tril().bool(), -math.inf)
            sums = torch.cat([scores, oss.sinks.double()[:, None, None].expand(1, 2, 9, 1)], -1).logsumexp(-1)
            return (scores - sums[..., None]).exp() @ v, sums

        with torch.no_grad():
            self.check(lambda *x: capped(*x, at, with_lse=True), of_capped, rows)
            self.check(lambda *x: oss(*x, at, with_lse=True), of_oss, rows)

    def test_sequences(self):
        """Rows of sequences that follow each other are what calls of each give; without one, of one batch."""
        attention = Attention("alibi", heads=4, head_dim=16, **FAST)
        bounds, k_bounds = (torch.tensor(x, dtype=torch.int32) for x in ([0, 3, 3, 7], [0, 4, 6, 11]))
        rows = torch.randn(7, 4, 16), torch.randn(11, 2, 16), torch.randn(11, 2, 16)
        to, at, k_at = [torch.randn_like(x) for x in rows], torch.rand(7) * 6, torch.rand(11) * 6

        def call(*rows):
            return attention(*rows, at, k_at, with_lse=True, cu_seqlens=bounds, k_cu_seqlens=k_bounds)

        out, lse = torch.func.jvp(call, rows, tuple(to))[1]
        for i in (0, 2):  # the second has no queries
            q, k = (slice(*x[i : i + 2].tolist()) for x in (bounds, k_bounds))
            one, by = (tuple(x[own] for x, own in zip(xs, (q, k, k))) for xs in (rows, to))
            alone = torch.func.jvp(lambda *x: attention(*x, at[q], k_at[k], with_lse=True), one, by)[1]  # noqa: B023
            self.near((out[q], lse[q]), alone)
            lifted = [tuple(x.transpose(0, 1)[None] for x in xs) for xs in (one, by)]
            batch = torch.func.jvp(lambda *x: attention(*x, at[q], k_at[k], with_lse=True), *lifted)[1]  # noqa: B023
            self.near(alone, (batch[0][0].transpose(0, 1), batch[1][0].T), 1e-6)
        for forward, back in zip(*(way(call, (0, 1, 2))(*rows) for way in (torch.func.jacfwd, torch.func.jacrev))):
            self.near(forward, back)

    def test_jacobians(self):
        """Forward and reverse mode give the same, of rows in batches and of one batch; samples that differ."""
        attention = Attention("alibi", heads=2, head_dim=4, **FAST)
        rows, at = [torch.randn(1, 2, 3, 4) for _ in range(3)], torch.arange(3)
        call = lambda *x: attention(*x, at, with_lse=True)  # noqa: E731
        for given in (rows, [x[0].transpose(0, 1) for x in rows]):
            made = [way(call, (0, 1, 2))(*given) for way in (torch.func.jacfwd, torch.func.jacrev)]
            for forward, back in zip(*made):
                self.near(forward, back)
        many, to = torch.randn(4, 1, 2, 3, 4), torch.randn(4, 1, 2, 3, 4)
        one = lambda q, by: torch.func.jvp(lambda q: call(q, *rows[1:]), (q,), (by,))[1]  # noqa: E731
        for x, y in zip(torch.vmap(one)(many, to), zip(*(one(*x) for x in zip(many, to)))):
            self.assertTrue(torch.equal(x, torch.stack(y)))
        graph = make_fx(one)(rows[0], to[0])
        for x, y in zip(graph(rows[0], to[1]), one(rows[0], to[1])):
            self.assertTrue(torch.equal(x, y))

    def test_operator(self):
        attention, ops = Attention("alibi", heads=2, head_dim=16, **FAST), torch.ops.pegen_kernels
        q, to, at = torch.randn(1, 2, 5, 16), torch.randn(1, 2, 5, 16), torch.arange(5)[:, None]
        rest = (at, None, [], [], False, 0.0, attention.kernel_name)
        made = ops.attention_with_lse(q, q, q, *rest)
        torch.library.opcheck(ops.attention_tangent.default, (q, q, q, *made, to, to, to, *rest))
        with forward_ad.dual_level():
            dual = ops.attention(*3 * [forward_ad.make_dual(q, to)], *rest)
            right = ops.attention_tangent(q, q, q, *made, to, to, to, *rest)[0]
            self.assertTrue(torch.equal(forward_ad.unpack_dual(dual).tangent, right))
        with self.assertRaisesRegex(pk.ArgumentError, "^attention of alibi has no forward-mode derivatives"):
            torch.func.jvp(lambda q: ops.attention(q, q, q, *rest), (q,), (to,))

    def test_refusals(self):
        """Derivatives of tangents and tangents of derivatives, and kernels that were loaded without."""
        attention, q, to = Attention("alibi", heads=2, head_dim=4, **FAST), torch.randn(1, 2, 3, 4), torch.randn(3)
        call = lambda q: attention(q, q, q, torch.arange(3)).sum()  # noqa: E731

        def dual(to_gradient):
            leaf = q.clone().requires_grad_()
            with forward_ad.dual_level():
                out = forward_ad.unpack_dual(call(forward_ad.make_dual(leaf, q)))
                (out.tangent if to_gradient else out.primal).backward()

        ways = [torch.func.jacfwd, torch.func.jacrev]
        for work in [lambda: dual(True), lambda: dual(False), *(
            lambda outer=outer, inner=inner: outer(inner(call))(q) for outer in ways for inner in ways
        )]:  # fmt: skip
            with self.assertRaisesRegex(pk.ArgumentError, "^alibi: attention has no gradients of gradients"):
                work()
        with forward_ad.dual_level():
            loss = call(forward_ad.make_dual(leaf := q.clone().requires_grad_(), q))
        loss.backward()  # without the tangent
        self.assertTrue(torch.equal(leaf.grad, torch.func.grad(call)(q)))
        at = torch.arange(3.0)
        with self.assertRaisesRegex(
            pk.ArgumentError, "^attention of alibi at positions, operands or inputs has no forward-mode derivatives"
        ):
            torch.func.jvp(lambda at: attention(q, q, q, at), (at,), (to,))


if __name__ == "__main__":
    unittest.main()
