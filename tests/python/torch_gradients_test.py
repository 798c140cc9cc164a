"""pegen_kernels.torch: gradients of rows, operands, inputs and positions, tangents, and scans."""
import copy
import math
import unittest

import torch
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

import pegen_kernels as pk
from pegen_kernels.packed import encode_packed
from pegen_kernels.torch import Attention, Encoding, scan
from torch_shared import BOTH, FAST, gradcheck, rope, small


class Gradients(unittest.TestCase):
    def test_backward(self):
        encoding = Encoding("rope", head_dim=16, **FAST)
        q, k = torch.randn(2, 4, 7, 16, requires_grad=True), torch.randn(2, 2, 7, 16, requires_grad=True)
        positions = torch.arange(7)[:, None]
        weight_q, weight_k = torch.randn(2, 4, 7, 16), torch.randn(2, 2, 7, 16)
        new_q, new_k = encoding(q, k, positions)
        ((new_q * weight_q).sum() + (new_k * weight_k).sum()).backward()
        for x, weight in ((q, weight_q), (k, weight_k)):
            reference = x.detach().clone().requires_grad_()
            (rope(reference, positions) * weight).sum().backward()
            self.assertLess((x.grad - reference.grad).abs().max(), 2e-6)
        only_q = encoding(q, k.detach(), positions)[0]
        self.assertEqual(torch.autograd.grad(only_q.sum(), q)[0].shape, q.shape)

    def test_of_one_batch(self):
        """Rows [N,H,D], and positions [N] of one axis."""
        encoding = Encoding("rope", head_dim=16, **FAST)
        q, k, weight = torch.randn(7, 4, 16), torch.randn(7, 2, 16), torch.randn(7, 4, 16)
        made = []
        for at, lift in ((torch.arange(7.0)[:, None], lambda x: x.transpose(0, 1)[None]), (torch.arange(7.0), None)):
            leaves = [x.clone().requires_grad_() for x in (q, k, at)]
            out = encoding(*(map(lift, leaves[:2]) if lift else leaves[:2]), leaves[2])
            out = [x[0].transpose(0, 1) for x in out] if lift else out
            ((out[0] * weight).sum() + out[1].sum()).backward()
            made.append([*out, *(x.grad.reshape(x.shape[0], -1) for x in leaves)])
        self.assertTrue(all(map(torch.equal, *made)))
        with self.assertRaisesRegex(pk.ArgumentError, "three dimensions under vmap"):
            torch.vmap(lambda x: encoding(x, None, torch.arange(7.0)))(torch.stack([q, q]))
        batches = torch.stack([x.transpose(0, 1)[None] for x in (q, q)])
        turned = torch.vmap(lambda x: encoding(x, None, torch.arange(7.0)))(batches)
        self.assertTrue(torch.equal(turned[1, 0].transpose(0, 1), made[0][0].detach()))

    def test_gradcheck(self):
        """Every stock description has right gradients of all that its kernel has gradients of. The kernels compute in
        float32: float64 differences need steps of 1e-2, exact for what is linear in the rows."""
        checked = set()
        for spec in pk.stock():
            kernel, options = small(spec)
            with self.subTest(spec):
                torch.manual_seed(7)
                entry = "attention" if "attention" in kernel.entries else "encode"
                module = (Attention if entry == "attention" else Encoding)(spec, **options, **FAST)
                heads, tokens = kernel.heads or 1, math.prod(kernel.grid or (3,))
                rows = [torch.randn(1, heads, tokens, kernel.head_dim, requires_grad=True) for _ in range(3)]
                sizes = [tokens if info.of_pairs else info.size for info in kernel.inputs]
                inputs = [torch.randn((1, heads, tokens, size)[: 4 if size else 3]) for size in sizes]
                positions = (
                    None if kernel.grid else torch.arange(1.0 * tokens * len(kernel.axes)).reshape(tokens, -1) % 4
                )
                checked.add(spec)
                if entry == "encode":
                    call = lambda q, k: module(q, k, positions, inputs=inputs)  # noqa: B023, E731
                    self.assertTrue(gradcheck(call, rows[:2]))
                else:
                    call = lambda q, k, v: module(  # noqa: B023, E731
                        q, k, v, positions, inputs=inputs, with_lse=True  # noqa: B023
                    )
                    self.assertTrue(gradcheck(call, rows))
        self.assertEqual(set(pk.stock()), checked)

    def test_operands(self):
        """Gradients of every operand and of positions, by central differences in float64 sums of float32 kernels."""
        torch.manual_seed(3)
        slow = {"geope_video": {"exponent_sign": -1}}  # of frequencies that grow a step is too long
        for spec in ("care", "quatro", "rope_mixed", "geope_video"):
            options = {"head_dim": 16, "heads": 2} | slow.get(spec, {})
            encoding = Encoding(spec, **options, **FAST)
            axes = len(pk.compile(spec, **options, **FAST).axes)
            q, k = torch.randn(2, 2, 6, 16), torch.randn(2, 2, 6, 16)
            positions = torch.rand(6, axes, requires_grad=True)
            weights = torch.randn(2, 2, 2, 6, 16)

            def loss():
                return sum((y.double() * w).sum() for y, w in zip(encoding(q, k, positions), weights))  # noqa: B023

            self.assertTrue(all(p.requires_grad for p in encoding.parameters()))
            inputs = [*encoding.parameters(), positions]
            gradients = torch.autograd.grad(loss(), inputs)
            with torch.no_grad():
                for x, gradient in zip(inputs, gradients):
                    direction = torch.randn(x.shape)
                    step = 2e-2
                    x.add_(step * direction)
                    up = loss()
                    x.sub_(2 * step * direction)
                    slope = (up - loss()) / (2 * step)
                    x.add_(step * direction)
                    with self.subTest(f"{spec} {list(x.shape)}"):
                        self.assertLess((slope - (gradient * direction).sum()).abs(), 2e-2 * (1 + slope.abs()))

    def test_columns(self):
        """Gradients of scores by widened rows, against the formula: q, k, projection, inputs of queries, positions."""
        torch.manual_seed(5)
        m, pape = 6, Encoding("pape", head_dim=16, parabolas=6, heads=2, exact_scores=True, **FAST)
        q, k = (torch.randn(2, h, 5, 16, requires_grad=True) for h in (2, 2))
        a, b = (torch.randn(2, 2, 5, m, requires_grad=True) for _ in range(2))
        positions = (4 * torch.rand(5, 2)).requires_grad_()
        weights = torch.randn(2, 2, 5, 5)
        given = [q, k, a, b, positions, *pape.parameters()]

        def formula(q, k, a, b, positions, projection):
            z = torch.einsum("hmp,ijp->hijm", projection, positions[None] - positions[:, None])
            bias = torch.einsum("bhim,hijm->bhij", b, z)
            bias = bias - torch.einsum("bhim,hijm->bhij", torch.nn.functional.softplus(a), z * z)
            return torch.einsum("bhid,bhjd->bhij", q, k) + bias

        new_q, new_k = pape(q, k, positions, inputs={"b": b, "a": a})
        got = torch.autograd.grad((torch.einsum("bhid,bhjd->bhij", new_q, new_k) * weights).sum(), given)
        wide = [x.detach().double().requires_grad_() for x in given]
        right = torch.autograd.grad((formula(*wide) * weights.double()).sum(), wide)
        for x, y in zip(got, right):
            self.assertLess((x - y).abs().max(), 1e-4 * y.abs().max())
        with self.assertRaisesRegex(pk.ArgumentError, "appends columns to q and k, and has no gradients of gradients"):
            fixed = pape.requires_grad_(False)(q, k, positions.detach(), inputs=[a.detach(), b.detach()])
            first = torch.autograd.grad(fixed[0].square().sum(), q, create_graph=True)
            first[0].sum().backward()

    def test_training(self):
        """An optimiser finds the frequencies that made the data; 16-bit rows and torch.func give the same gradients."""
        torch.manual_seed(4)
        teacher = Encoding("rope_mixed", head_dim=16, heads=2, **BOTH)
        student = copy.deepcopy(teacher)
        with torch.no_grad():
            student.freqs.add_(0.05 * torch.randn(student.freqs.shape))
        q, positions = torch.randn(4, 2, 9, 16), torch.rand(9, 2) * 4
        target = teacher(q, positions=positions).detach()
        optimiser = torch.optim.Adam(student.parameters(), lr=3e-3)
        losses = []
        for _ in range(60):
            optimiser.zero_grad()
            loss = (student(q, positions=positions) - target).square().mean()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        self.assertLess(losses[-1], losses[0] / 20)

        call = lambda freqs, q: torch.func.functional_call(
            student, {"freqs": freqs}, (q, None, positions)
        )  # noqa: E731
        measure = lambda freqs, q: (call(freqs, q).float() - target).square().mean()  # noqa: E731
        freqs = student.freqs.detach() + 0.1
        plain = torch.autograd.grad(measure(x := freqs.clone().requires_grad_(), q), x)[0]
        self.assertTrue(torch.allclose(torch.func.grad(measure)(freqs, q), plain, rtol=1e-5))
        half = torch.autograd.grad(measure(x := freqs.clone().requires_grad_(), q.bfloat16()), x)[0]
        self.assertLess((half - plain).norm(), 0.03 * plain.norm())
        each = torch.vmap(
            torch.func.grad(lambda f, q: call(f, q[None]).square().sum(-1)[..., 0].sum()), in_dims=(None, 0)
        )
        one = torch.func.grad(lambda f, q: call(f, q[None]).square().sum(-1)[..., 0].sum())(freqs, q[2])
        self.assertTrue(torch.allclose(each(freqs, q)[2], one, atol=1e-5))
        compiled = torch.compile(lambda q: student(q, positions=positions), fullgraph=True, backend="aot_eager")
        gradient = torch.autograd.grad((compiled(q) - target).square().mean(), student.freqs)[0]
        eager = torch.autograd.grad((student(q, positions=positions) - target).square().mean(), student.freqs)[0]
        self.assertTrue(torch.allclose(gradient, eager))
        with self.assertRaisesRegex(pk.ArgumentError, "gradients of gradients|second derivatives"):
            torch.autograd.grad(measure(x := freqs.clone().requires_grad_(), q), x, create_graph=True)[
                0
            ].sum().backward()

    def test_gradgradcheck(self):
        encoding = Encoding("geope3d", head_dim=12, **FAST)
        x = torch.randn(1, 1, 2, 12, requires_grad=True)
        call = lambda x: encoding(x, positions=torch.arange(6).reshape(2, 3)).square()  # noqa: E731
        weight = torch.randn(1, 1, 2, 12)
        first = torch.autograd.grad((call(x) * weight).sum(), x, create_graph=True)[0]
        second = torch.autograd.grad(first.sum(), x)[0]
        step = 1e-2

        def slope(x):
            x = x.detach().requires_grad_()
            return torch.autograd.grad((call(x) * weight).sum(), x)[0].sum()

        measured = (
            slope(x + step * torch.eye(24)[3].reshape(x.shape)) - slope(x - step * torch.eye(24)[3].reshape(x.shape))
        ) / (2 * step)
        self.assertLess((second.flatten()[3] - measured).abs(), 1e-2)

    def test_checkpoint_and_func(self):
        encoding = Encoding("geope3d", head_dim=24, **FAST)
        q, positions = torch.randn(2, 3, 5, 24), torch.rand(5, 3)
        loss = lambda q: encoding(q, positions=positions).pow(3).sum()  # noqa: E731
        plain = torch.autograd.grad(loss(x := q.clone().requires_grad_()), x)[0]
        kept = torch.utils.checkpoint.checkpoint(loss, y := q.clone().requires_grad_(), use_reentrant=False)
        self.assertTrue(torch.equal(torch.autograd.grad(kept, y)[0], plain))
        self.assertTrue(torch.equal(torch.func.grad(loss)(q), plain))


FORGETTING = """local pe = require "pegen" -- tokens stand where the sums of their gates' logarithms are
return pe.encoding { name = "forgetting", axes = { "forgotten" }, head_dim = 8, value_dim = 8,
  bias = function(delta) return -delta.forgotten end }
"""


class ForwardMode(unittest.TestCase):
    """Tangents of rows are encoded; others are refused by the name of who would drop them. Gradients beside go on."""

    def test_rows(self):
        """Against what is linear: the encoded tangent, less what is encoded of zeros."""
        rope, mixed = Encoding("rope", head_dim=16, **FAST), Encoding("rope_mixed", head_dim=16, heads=2, **FAST)
        pape, ops = Encoding("pape", **FAST), torch.ops.pegen_kernels
        torch.manual_seed(4)
        q, k, wide, p, place = *torch.randn(2, 1, 2, 5, 16), torch.randn(1, 2, 5, 64), torch.arange(5), torch.rand(5, 2)
        pape_axes = torch.rand(5, len(pape.kernel.axes))
        given = [torch.randn(1, 2, *(5, info.size)[: 1 + (info.size > 0)]) for info in pape.kernel.inputs]
        calls = {
            "one": (q, lambda q: rope(q, None, p)), "key alone": (q, lambda q: rope(k, q, p)[1]),
            "both": (q, lambda q: torch.stack(rope(q, 2 * q, p))), "mixed": (q, lambda q: mixed(q, None, place)),
            "vmap": (q, lambda q: torch.vmap(lambda q: rope(q, None, p))(q[None])[0]),
            "columns": (wide, lambda q: torch.stack(pape(q, q, pape_axes, given))),
            "gradient": (q, lambda q: torch.func.grad(lambda q: rope(q, None, p).square().sum())(q)),
            "operator": (q, lambda q: ops.encode_one(q, p[:, None], [], rope.kernel_name)),
            "its gradient": (q, lambda q: ops.encode_one_backward(q, p[:, None], [], rope.kernel_name)),
        }  # fmt: skip
        for name, (x, call) in calls.items():
            tangent = torch.randn_like(x)
            expected = call(tangent) - call(0 * tangent)
            with self.subTest(name):
                made = []
                if name in ("operator", "its gradient"):
                    with self.assertRaisesRegex(pk.ArgumentError, "^encode of rope has no forward-mode derivatives"):
                        torch.func.jvp(call, (x,), (tangent,))
                else:
                    made = [torch.func.jvp(call, (x,), (tangent,))[1], torch.func.linearize(call, x)[1](tangent)]
                for of in (x, x.clone().requires_grad_()):
                    with forward_ad.dual_level():
                        out = forward_ad.unpack_dual(call(forward_ad.make_dual(of, tangent)))
                        made.append(out.tangent)
                        self.assertTrue(torch.equal(out.primal, call(x)))
                for found in made:
                    self.assertLess((found - expected).abs().max(), 1e-5 * expected.abs().max())
        turn = torch.func.jacfwd(lambda q: rope(q, None, p))(q)
        self.assertTrue(torch.equal(turn, torch.func.jacrev(lambda q: rope(q, None, p))(q)))
        curved = torch.func.hessian(lambda q: rope(q, None, p).square().sum())(q).reshape(160, 160)
        self.assertLess((curved - 2 * torch.eye(160)).abs().max(), 1e-5)

    def test_refused(self):
        rope, mixed = Encoding("rope", head_dim=16, **FAST), Encoding("rope_mixed", head_dim=16, heads=2, **FAST)
        alibi, p, place = Attention("alibi", heads=2, head_dim=16, **FAST), torch.arange(5), torch.rand(5, 2)
        q, ops = torch.randn(1, 2, 5, 16), torch.ops.pegen_kernels
        of_all = [place, [mixed.freqs], False, True, False, mixed.kernel_name]
        calls = {
            "encode of rope": (
                lambda q: ops.encode_one.kernel(q, p[:, None], [], rope.kernel_name),
                lambda q: ops.encode.kernel(q, q, p[:, None], [], rope.kernel_name)[1],
            ),
            "encode of rope_mixed at positions, operands or inputs": (
                lambda q: mixed(torch.ones(1, 2, 5, 16), None, q[0, 0, :, :2]),
                lambda q: torch.func.functional_call(mixed, {"freqs": q[:, :, 0, :8]}, (q, None, place)),
            ),
            "encode of rope_mixed": (
                lambda q: ops.encode_all_backward([q], [q], *of_all)[0],
                lambda q: ops.encode_all_backward.kernel([q], [q], *of_all)[0],
            ),
            "attention of alibi": (
                lambda q: ops.attention.kernel(q, q, q, p[:, None], None, [], [], False, 0.0, alibi.kernel_name),
            ),
            "attention of alibi at positions, operands or inputs": (
                lambda q: alibi(q, q, q, q[0, 0, :, 0]), lambda q: alibi(q.detach(), q, q, q[0, 0, :, 0])[1],
                lambda q: torch.vmap(lambda q: alibi(q, q, q, q[0, 0, :, 0]))(q[None]),
            ),
            "scan": (scan, lambda q: ops.scan(q, None, None, 0.0, False, False)[0]),
            "encode_packed of rope": (
                lambda q: encode_packed(rope, torch.stack([q.transpose(1, 2)] * 3, 2).contiguous(), p),
            ),
        }  # fmt: skip

        def dual(call, x):
            with forward_ad.dual_level():
                call(forward_ad.make_dual(x, x.detach()))

        for name, several in calls.items():
            for i, call in enumerate(several):
                for way in (
                    lambda: dual(call, q), lambda: dual(call, q.clone().requires_grad_()),  # noqa: B023
                    lambda: torch.func.jvp(call, (q,), (q,)), lambda: torch.func.jacfwd(call)(q),  # noqa: B023
                ):  # fmt: skip
                    with self.subTest(f"{name} {i}"), self.assertRaisesRegex(
                        pk.ArgumentError, f"^{name} has no forward-mode derivatives .*; expected reverse mode"
                    ):
                        way()
        self.graphs_refuse(
            {
                "encode of rope": lambda q: rope(q, None, p),
                "attention of alibi": lambda q: alibi(q, q, q, p),
                "scan": lambda q: scan(q),
            },
            dual,
            q,
        )
        with forward_ad.dual_level():  # nothing has a tangent
            self.assertTrue(torch.equal(rope(q, None, p), rope(q.clone(), None, p)))

    def graphs_refuse(self, calls, dual, q):
        """What was compiled, traced or exported before there was a tangent.

        Where a parameter requires a gradient PyTorch refuses by itself."""
        for name, call in calls.items():
            module = type("Model", (torch.nn.Module,), {"forward": lambda self, q: call(q)})()  # noqa: B023
            compiled = torch.compile(call, backend="aot_eager")
            graphs = {
                "compiled": compiled, "traced": make_fx(call)(q),
                "exported": torch.export.export(module, (q,)).run_decompositions().module(),
            }  # fmt: skip
            for kind, graph in graphs.items():
                self.assertTrue(torch.equal(graph(q), call(q)))
                with self.subTest(f"{name} {kind}"), self.assertRaisesRegex(
                    pk.ArgumentError, f"^{name} has no forward-mode derivatives .*; expected reverse mode"
                ):
                    dual(graph, q)


class Sums(unittest.TestCase):
    def test_gradients(self):
        x = torch.randn(1, 3, 9, 4, dtype=torch.float64, requires_grad=True)
        state = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
        bounds = torch.tensor([0, 4, 9], dtype=torch.int32)
        for reverse in (False, True):

            def call(x, state):
                return scan(x, state, cu_seqlens=bounds, reverse=reverse, with_state=True)

            self.assertTrue(torch.autograd.gradcheck(call, (x, state)))
            self.assertTrue(torch.autograd.gradgradcheck(call, (x, state)))
        turned = scan(x, period=2 * math.pi)
        self.assertTrue(torch.allclose(turned.cos(), x.cumsum(2).cos()))
        self.assertTrue(
            torch.equal(torch.autograd.grad(turned.sum(), x)[0][0, 0, :, 0], torch.arange(9.0, 0, -1).double())
        )
        low = torch.randn(2, 3, 5, dtype=torch.bfloat16, requires_grad=True)
        found = scan(low)
        self.assertEqual(found.dtype, torch.float32)
        self.assertTrue(torch.equal(found, low.detach().double().cumsum(2).float()))
        found.sum().backward()
        self.assertTrue(torch.equal(low.grad, torch.arange(5.0, 0, -1).bfloat16().expand(2, 3, 5)))
        with self.assertRaisesRegex(pk.ArgumentError, "x has 2 dimensions"):
            scan(torch.zeros(3, 4))

    def test_gates(self):
        """Gates of the Forgetting Transformer have gradients: through sums, as positions, through attention."""
        n, heads = 33, 2
        rows = [torch.randn(heads, 1, n, 8, requires_grad=True) for _ in range(3)]
        gates = torch.randn(1, heads, n, requires_grad=True)
        attention = Attention(FORGETTING, causal=True, **FAST)
        weight = torch.randn(heads, 1, n, 8)

        def formula(q, k, v, gates):
            sums = torch.nn.functional.logsigmoid(gates.double()).cumsum(2).reshape(heads, 1, n)
            scores = q.double() @ k.double().mT / 8**0.5 + sums[..., :, None] - sums[..., None, :]
            hidden = torch.ones(n, n, dtype=torch.bool).triu(1)
            return scores.masked_fill(hidden, -math.inf).softmax(-1) @ v.double()

        def ours(q, k, v, gates):
            sums = scan(torch.nn.functional.logsigmoid(gates), dtype=torch.float64)
            return attention(q, k, v, sums.reshape(heads, n))

        given = (*rows, gates)
        expected = torch.autograd.grad((formula(*given) * weight).sum(), given)
        for found, right in zip(torch.autograd.grad((ours(*given) * weight).sum(), given), expected):
            self.assertLess((found - right).abs().max(), 2e-5 * right.abs().max())
        compiled = torch.compile(ours, fullgraph=True)
        for found, right in zip(torch.autograd.grad((compiled(*given) * weight).sum(), given), expected):
            self.assertLess((found - right).abs().max(), 2e-5 * right.abs().max())


if __name__ == "__main__":
    unittest.main()
