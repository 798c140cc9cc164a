"""pegen_kernels.torch: modules and operators, eager, differentiated, batched, compiled, exported."""
import copy
import functools
import io
import json
import math
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import torch
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

import pegen_kernels as pk
from pegen_kernels.packed import encode_packed
from pegen_kernels.torch import Attention, Encoding, kernel_of, scan

FAST = {"targets": "native", "dtypes": "float32"}
BOTH = {"targets": "native", "dtypes": ["float32", "bfloat16"]}


def rope(x, positions, base=10000.0):
    d = x.shape[-1]
    angle = positions[:, :1].double() * base ** (-2 * torch.arange(d // 2) / d)
    even, odd = x[..., 0::2].double(), x[..., 1::2].double()
    return torch.stack([angle.cos() * even - angle.sin() * odd, angle.sin() * even + angle.cos() * odd], -1).flatten(-2)


MANY = "alibi beit fire gpt_oss kerple relative_bias_table sandwich swin t5".split()  # by default, of heads


@functools.lru_cache(maxsize=None)
def small(spec):
    """A stock description's kernel with few channels and heads, and what it was compiled with."""
    options = {"block": 4, "head_dim": 8} if spec in ("liere", "comrope_ap", "comrope_ld") else {"head_dim": 16}
    options = {"channels": 8} if spec in ("learned_absolute", "sincos", "pope") else options
    options |= {"heads": 2} if spec in MANY else {"heads": 6} if spec == "lookhere" else {}
    return pk.compile(spec, **options, **FAST), options


def gradcheck(call, inputs, eps=1e-2, tolerance=2e-3):
    """torch.autograd.gradcheck by one random direction an input, with sums in float64."""
    return torch.autograd.gradcheck(
        call, tuple(inputs), eps=eps, atol=tolerance, rtol=tolerance, nondet_tol=0, check_undefined_grad=False
    )


class Modules(unittest.TestCase):
    def test_columns_of_every_number_type(self):
        """Columns of 16 bits are more than those of float32 in one kernel of all types, which modules compile."""
        encoding = Encoding("pape", targets="native")
        kernel = encoding.kernel
        q, k = torch.randn(2, 4, 9, 64), torch.randn(2, 4, 9, 64)
        positions, inputs = torch.rand(9, 2), torch.rand(2, 4, 9, 50)
        exact = None
        for dtype in torch.float32, torch.bfloat16, torch.float16:
            rows = [x.clone().to(dtype).requires_grad_() for x in (q, k)]
            out = encoding(*rows, positions, inputs=[inputs.to(dtype)] * 2)
            self.assertEqual({x.shape[-1] for x in out}, {kernel.width_of(dtype)})
            scores = (out[0].double() @ out[1].double().mT).detach()
            exact = scores if exact is None else exact
            self.assertLess((scores - exact).abs().max(), 1 if dtype != torch.float32 else 1e-9)
            (out[0].float().sum() + out[1].float().sum()).backward()
            self.assertEqual(rows[0].grad.shape, q.shape)
        self.assertNotEqual(kernel.width_of(torch.float32), kernel.width_of(torch.bfloat16))

    def test_values(self):
        encoding = Encoding("rope", head_dim=16, **BOTH)
        q, k, positions = torch.randn(2, 4, 7, 16), torch.randn(2, 2, 7, 16), torch.arange(7)[:, None]
        before = q.clone()
        new_q, new_k = encoding(q, k, positions)
        self.assertLess((new_q - rope(q, positions)).abs().max(), 2e-6)
        self.assertLess((new_k - rope(k, positions)).abs().max(), 2e-6)
        self.assertTrue(torch.equal(q, before))
        self.assertTrue(torch.equal(encoding(q, positions=positions), new_q))
        memory = torch.randn(2, 7, 4, 16).transpose(1, 2)
        self.assertEqual(encoding(memory, positions=positions).stride(), memory.stride())
        apart = torch.randn(2, 4, 7, 32)[..., ::2]
        self.assertLess((encoding(apart, positions=positions) - rope(apart, positions)).abs().max(), 2e-6)
        half = encoding(q.bfloat16(), positions=positions)
        self.assertEqual(half.dtype, torch.bfloat16)
        self.assertLess((half - new_q).abs().max(), 0.1)

    def test_operands(self):
        torch.manual_seed(1)
        encoding = Encoding("care", head_dim=64, heads=3, **FAST)
        self.assertEqual([name for name, _ in encoding.named_parameters()], ["axis", "freq"])
        self.assertLess((encoding.axis.norm(dim=-1) - 1).abs().max(), 1e-6)
        self.assertTrue(torch.allclose(encoding.freq[1, 2], 10000.0 ** (-torch.arange(8) / 8)))
        q, positions = torch.randn(2, 3, 9, 64), torch.rand(9, 2)
        out = encoding(q, positions=positions)
        direct = encoding.kernel.encode(q, positions=positions, operands=[p.detach() for p in encoding.parameters()])
        self.assertTrue(torch.equal(out, direct))
        other = copy.deepcopy(encoding)
        with torch.no_grad():
            other.freq.mul_(2)
        self.assertGreater((other(q, positions=positions) - out).abs().max(), 1e-2)
        other.load_state_dict(encoding.state_dict())
        self.assertTrue(torch.equal(other(q, positions=positions), out))
        saved = io.BytesIO()
        torch.save(encoding, saved)
        saved.seek(0)
        self.assertTrue(torch.equal(torch.load(saved, weights_only=False)(q, positions=positions), out))
        for name in ("quatro", "rope_mixed"):
            self.assertTrue(all(p.isfinite().all() and p.abs().max() > 0 for p in Encoding(name, **FAST).parameters()))
        mixed = Encoding("rope_mixed", heads=2, head_dim=16, **FAST).freqs
        length = mixed.norm(dim=0)
        self.assertTrue(torch.allclose(length[0], 10.0 ** (-4 * torch.arange(8) / 16), rtol=1e-5))
        with self.assertRaisesRegex(pk.ArgumentError, "^init: 'w' of plain needs first values"):
            Encoding(
                """local pe = require "pegen"
                local w = pe.learned { name = "w", shape = { "blocks" }, doc = "speed", init = "as one likes" }
                return pe.encoding { name = "plain", axes = { "t" }, head_dim = 8, block = pe.plane(),
                  generators = pe.turn "e12", phase = function(_, i) return w(i) end }
                """,
                **FAST,
            )
        with self.assertRaisesRegex(pk.ArgumentError, "^init: 'generators' has the shape"):
            Encoding("liere", block=8, init={"generators": torch.zeros(3)}, **FAST)
        with self.assertRaisesRegex(pk.ArgumentError, "^init: liere has no operand 'x'"):
            Encoding("liere", block=8, init={"x": torch.zeros}, **FAST)
        liere = Encoding("liere", block=8, init={"generators": lambda shape: torch.randn(shape) / 8}, **FAST)
        self.assertEqual(liere(torch.randn(1, 2, 5, 64), positions=torch.rand(5, 2)).shape, (1, 2, 5, 64))

    def test_maps(self):
        """Channels that are mapped before they turn: gradients of rows alone take what was given."""
        encoding = Encoding("positive_rope", head_dim=16, layout="split")
        q, k, g = (torch.randn(1, 2, 5, 16, requires_grad=i < 2) for i in range(3))
        t = torch.arange(5.0)[:, None]
        out, _ = encoding(q, k, t)
        angle = t * 10000.0 ** (-torch.arange(8) / 8.0)
        first, second = torch.nn.functional.softplus(q).chunk(2, -1)
        turned = (first * angle.cos() - second * angle.sin(), first * angle.sin() + second * angle.cos())
        expected = torch.cat(turned, -1)
        torch.testing.assert_close(out, expected)
        (found,), (exact,) = (torch.autograd.grad(y, q, g) for y in (out, expected))
        torch.testing.assert_close(found, exact)

    def test_matrices(self):
        """Blocks whose matrix is written: gradients of rows, of an operand and of an input take what was given."""
        encoding = Encoding(
            """local pe = require "pegen"
            local w = pe.learned { name = "w", shape = { "heads", "blocks" }, doc = "angles" }
            local c = pe.input { name = "c", shape = {}, doc = "of the token" }
            return pe.encoding { name = "written", axes = { "t" }, head_dim = 6, heads = 2, block = pe.linear(2),
              matrix = function(r, i, head)
                local a = w(head, i) * r.t
                return { { pe.cos(a), c() }, { 0, pe.exp(a / 4) } }
              end }""",
            init={"w": torch.randn(2, 3)},
            **FAST,
        )
        q, c, g = (
            torch.randn(*shape, requires_grad=i < 2) for i, shape in enumerate([(1, 2, 5, 6), (1, 2, 5), (1, 2, 5, 6)])
        )
        t = torch.arange(5.0)[:, None]
        out, _ = encoding(q, q.detach(), t, inputs=c)
        a = encoding.w[None, :, None, :] * t
        first, second = q[..., 0::2], q[..., 1::2]
        expected = torch.stack([a.cos() * first + c[..., None] * second, (a / 4).exp() * second], -1).flatten(-2)
        torch.testing.assert_close(out, expected)
        for found, exact in zip(*(torch.autograd.grad(y, (q, c, encoding.w), g) for y in (out, expected))):
            torch.testing.assert_close(found, exact, atol=2e-5, rtol=2e-5)

    def test_attention(self):
        attention = Attention("alibi", head_dim=16, heads=4, causal=True, **FAST)
        q, k, v, positions = *torch.randn(3, 2, 4, 6, 16), torch.arange(6)[:, None]
        slopes = 2.0 ** (-2 * torch.arange(1, 5))[:, None, None]
        bias = (-slopes * (positions - positions.T).abs()).masked_fill(~torch.ones(6, 6).tril().bool(), -math.inf)
        expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias.expand(2, 4, 6, 6))
        self.assertLess((attention(q, k, v, positions) - expected).abs().max(), 1e-5)
        for half in (torch.float64, torch.int32):
            with self.assertRaisesRegex(pk.ArgumentError, "^q is of type"):
                attention(q.to(half), k, v, positions)
        q, (k, v) = torch.randn(1, 4, 1, 16), torch.randn(2, 1, 4, 1500, 16)  # so many keys go in chunks
        positions, k_positions = torch.tensor([[1499]]), torch.arange(1500)[:, None]
        bias = -slopes * (k_positions - positions).abs().T
        expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias[None])
        self.assertLess((attention(q, k, v, positions, k_positions=k_positions) - expected).abs().max(), 1e-5)

    def test_refusals(self):
        encoding = Encoding("rope", head_dim=16, **BOTH)
        care = Encoding("care", head_dim=16, **FAST)
        q, positions = torch.randn(1, 2, 5, 16), torch.arange(5)[:, None]
        fixed = Encoding("liere", block=8, init={"generators": torch.zeros}, **FAST)
        liere, wide = copy.deepcopy(fixed).requires_grad_(True), torch.randn(1, 2, 5, 64)
        alibi, pape = Attention("alibi", heads=2, **FAST), Attention("pape", heads=2, role="pairwise", **FAST)
        string = Encoding("string_cayley", init={"cayley": torch.zeros, "freqs": torch.zeros}, **FAST)
        for words, call in [
            ("^positions are of 4 tokens", lambda: encoding(q, positions=positions[:4])),
            ("^q has 15 channels", lambda: encoding(q[..., :15], positions=positions)),
            ("^q has 2 dimensions", lambda: encoding(q[0, 0], positions=positions)),
            ("^q is of type torch.float64|^q is of type float64", lambda: encoding(q.double(), positions=positions)),
            ("^q is of type (torch.)?complex64", lambda: encoding(q.to(torch.complex64), positions=positions)),
            ("^k is of type bfloat16, and q of float32", lambda: encoding(q, q.bfloat16(), positions)),
            ("^positions are missing", lambda: encoding(q)),
            ("^positions is a view whose signs",
             lambda: encoding.kernel.encode(q, positions=torch.ones(5, 1, dtype=torch.complex64).conj().imag)),
            ("^inputs: 1 given; rope has 0: none", lambda: encoding(q, positions=positions, inputs=[q])),
            ("^q is a ndarray; expected a torch.Tensor", lambda: encoding(q.numpy(), positions=positions)),
            ("^q is a NoneType; expected", lambda: encoding(None, positions=positions)),
            ("^positions is a ndarray; expected", lambda: encoding(q, positions=positions.numpy())),
            ("^q is torch.sparse_coo; expected a dense", lambda: encoding(q.to_sparse(), positions=positions)),
            ("^k is a list; expected a torch.Tensor", lambda: alibi(wide, [wide], wide, positions)),
            ("^k_positions is a list; expected", lambda: alibi(wide, wide, wide, positions, [positions])),
            ("^input 'a' is a str; expected", lambda: pape(wide, wide, wide, positions, inputs=["a", "b"])),
            ("^inputs: 'b' is missing; pape takes a, b", lambda: pape(wide, wide, wide, positions, inputs={"a": q})),
            ("^inputs: pape has no input 'c'", lambda: pape(wide, wide, wide, positions, inputs={"a": q, "c": q})),
            ("^inputs: 'b' is missing", lambda: pape(wide, wide, wide, positions, inputs=q)),
            ("^spec: rope has no attention", lambda: Attention("rope", **FAST)),
            ("^spec: alibi does not encode", lambda: Encoding("alibi", **FAST)),
            ("^q requires a gradient, and this call would not be recorded",
             lambda: encoding.kernel.encode(q.clone().requires_grad_(), positions=positions)),
        ]:  # fmt: skip
            with self.subTest(words), self.assertRaisesRegex(pk.ArgumentError, words):
                call()
        encode_one = torch.ops.pegen_kernels.encode_one  # whose exceptions are PyTorch's
        for words, call in [
            ("^kernel: 'rope' is not what", lambda: encode_one(q, positions, [], "rope")),
            ("^operands: 0 given; care takes 2", lambda: encode_one(q, torch.zeros(5, 2), [], care.kernel_name)),
            ("^positions are of 4 tokens", lambda: encode_one(q, positions[:4], [], encoding.kernel_name)),
        ]:
            with self.subTest(words), self.assertRaisesRegex((RuntimeError, pk.ArgumentError), words):
                call()
        rows = wide.clone().requires_grad_()
        fixed(rows, positions=torch.zeros(5, 2)).sum().backward()  # rows of dense blocks have gradients
        self.assertTrue(torch.equal(rows.grad, torch.ones_like(rows)))
        liere(wide, positions=torch.ones(5, 2)).square()[..., 0].sum().backward()  # at 0 y_0 gains A_0j x_j
        expected = (2 * wide[..., :1] * wide).sum((0, 1, 2))[:8]
        self.assertLess((liere.generators.grad[0, 0, 0, 0, 1:] - expected[1:]).abs().max(), 1e-4)
        string.requires_grad_(True)
        string(wide, positions=torch.zeros(5, 2)).square()[..., 0].sum().backward()  # at 0 C = I - 2 A
        expected = -2 * (2 * wide[..., :1] * wide).sum((0, 1, 2))
        self.assertLess((string.cayley.grad.flatten()[1:64] - expected[1:]).abs().max(), 1e-3)


class NumberTypes(unittest.TestCase):
    """A model that is cast keeps what its encodings have learned."""

    def test_cast_with_the_model(self):
        torch.manual_seed(7)
        for spec, options in (("rope_frequencies", {}), ("rope_mixed", {"heads": 2}), ("care", {"heads": 2})):
            model = torch.nn.Sequential(torch.nn.Linear(4, 4), Encoding(spec, head_dim=64, **options, **FAST))
            encoding = model[1]
            encoding.scale = torch.nn.Parameter(torch.ones(3))  # no operand: cast like any other
            before = {name: x.detach().clone() for name, x in encoding.named_parameters()}
            for name in before:
                getattr(encoding, name).grad = torch.rand_like(before[name])
            casts = (
                lambda m: m.bfloat16(), lambda m: m.half(), lambda m: m.double(), lambda m: m.to(torch.bfloat16),
                lambda m: m.to("cpu", torch.float16), lambda m: m.type(torch.bfloat16),
            )  # fmt: skip
            for cast in casts:
                cast(model)
                self.assertNotEqual(model[0].weight.dtype, torch.float32)
                self.assertEqual(encoding.scale.dtype, model[0].weight.dtype)
                for name, value in before.items():
                    kept = getattr(encoding, name)
                    if name != "scale":
                        self.assertTrue(kept.dtype == kept.grad.dtype == torch.float32)
                        self.assertTrue(torch.equal(kept, value))
            self.assertEqual({x.device.type for x in model.to("meta").parameters()}, {"meta"})

    def test_cast_that_is_asked_for(self):
        encoding = Encoding("rope_mixed", heads=2, head_dim=16, **FAST)
        x, positions = torch.randn(1, 2, 9, 16), torch.rand(9, 2)
        rounded = encoding.freqs.detach().bfloat16().float()
        self.assertIs(encoding.cast_operands(torch.bfloat16), encoding)
        self.assertEqual(encoding.freqs.dtype, torch.bfloat16)
        self.assertEqual(encoding.float().freqs.dtype, torch.bfloat16)  # it stays what was asked for
        right = encoding.kernel.encode(x, positions=positions, operands=[rounded])
        self.assertTrue(torch.equal(encoding(x, positions=positions), right))
        self.assertEqual(encoding.cast_operands(torch.float64).freqs.dtype, torch.float64)
        with self.assertRaisesRegex(pk.ArgumentError, "^dtype is torch.int32; expected torch.float32, torch.float64"):
            encoding.cast_operands(torch.int32)

    def test_parametrized(self):
        encoding = Encoding("rope_mixed", heads=2, head_dim=16, **FAST)
        torch.nn.utils.parametrize.register_parametrization(encoding, "freqs", torch.nn.Softplus())
        before = encoding.freqs.detach().clone()
        self.assertTrue(torch.equal(encoding.half().freqs, before))


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


def spread(low, high):
    """The deviation of a normal variable of deviation 1 that is cut at these ends."""
    density = [math.exp(-x * x / 2) / math.sqrt(2 * math.pi) for x in (low, high)]
    inside = (math.erf(high / math.sqrt(2)) - math.erf(low / math.sqrt(2))) / 2
    moments = [0 if math.isinf(x) else x * d for x, d in zip((low, high), density)]
    return math.sqrt(1 - (moments[1] - moments[0]) / inside - ((density[0] - density[1]) / inside) ** 2)


class FirstValues(unittest.TestCase):
    """What descriptions state as data, in parameters."""

    def test_stock(self):
        """Every operand of every stock description has first values, by what it states."""
        torch.manual_seed(5)
        for spec in pk.stock():
            kernel, _ = small(spec)
            if not kernel.operands:
                continue
            stated = {operand["name"]: operand["initial"] for operand in kernel.explain()["operands"]}
            module = (Encoding if "encode" in kernel.entries else Attention)(kernel)
            drawn = {name: [value.detach().clone()] for name, value in module.named_parameters()}
            while any(len(several) * several[0].numel() < 2000 for several in drawn.values()):
                module.reset_parameters()
                for name, value in module.named_parameters():
                    drawn[name].append(value.detach().clone())
            for name, several in drawn.items():
                with self.subTest(f"{spec} {name}"):
                    value = torch.stack(several)
                    factor = torch.tensor(stated[name]["factor"]).reshape(stated[name]["factor_shape"])
                    self.assertTrue(value.isfinite().all())
                    kind, plain = stated[name]["distribution"], value / factor
                    if kind == "value":
                        self.assertTrue(torch.equal(value, factor.expand(value.shape).float()))
                    elif kind == "uniform":
                        low, high = stated[name]["low"], stated[name]["high"]
                        self.assertTrue((plain >= low).all() and (plain <= high).all())
                        self.assertLess((plain.mean() - (low + high) / 2).abs(), 0.15 * (high - low))
                    elif kind == "normal":
                        ends = [stated[name].get(end, sign * math.inf) for end, sign in (("low", -1), ("high", 1))]
                        deviation = stated[name]["deviation"] * spread(*(x / stated[name]["deviation"] for x in ends))
                        self.assertLess((plain.std() / deviation - 1).abs(), 0.1)
                    else:
                        self.assertLess((plain.norm(dim=1 + stated[name]["dimension"]) - 1).abs().max(), 1e-5)

    def test_kinds(self):
        from pegen_kernels.torch.initial import draw

        torch.manual_seed(6)
        whole = {"same": [], "factor_shape": [1, 1], "factor": [1]}
        normal = draw({"distribution": "normal", "deviation": 3, **whole}, (200, 50))
        self.assertLess((normal.std() - 3).abs(), 0.1)
        cut = draw({"distribution": "normal", "deviation": 1, "low": -0.5, "high": 2, **whole}, (200, 50))
        self.assertTrue(cut.min() >= -0.5 and cut.max() <= 2 and cut.min() < -0.49 and cut.max() > 1.7)
        self.assertLess((cut.mean() - 0.4476).abs(), 0.03)  # (pdf(-.5) - pdf(2)) / (cdf(2) - cdf(-.5))
        uniform = draw({"distribution": "uniform", "low": 1, "high": 3, **whole, "same": [0]}, (4, 50))
        self.assertTrue(torch.equal(uniform[0], uniform[3]) and uniform.std() > 0.3)
        scaled = {"distribution": "direction", "dimension": 0, "same": [1], "factor_shape": [1, 3], "factor": [1, 2, 4]}
        drawn = draw(scaled, (2, 3))
        self.assertTrue(torch.allclose(drawn.norm(dim=0), torch.tensor([1.0, 2, 4])))
        self.assertTrue(torch.allclose(drawn[:, 1], 2 * drawn[:, 0]))

    def test_reset(self):
        """The first values again, by the same random numbers, in what was built without memory, too."""
        for spec, kind in (("rope_mixed", Encoding), ("care", Encoding), ("relative_bias_table", Attention)):
            options = {"head_dim": 16, "heads": 2, **FAST}
            make = lambda: kind(spec, **options)  # noqa: E731, B023
            torch.manual_seed(9)
            first = make()
            with torch.device("meta"):
                module = make()
            module.to_empty(device="cpu")
            for x in module.parameters():
                torch.nn.init.constant_(x, math.nan)
            torch.manual_seed(9)
            module.reset_parameters()
            for x, y in zip(module.parameters(), first.parameters(), strict=True):
                self.assertTrue(torch.equal(x, y) and x.requires_grad == y.requires_grad)

    def test_reset_what_was_given(self):
        given = torch.rand(2, 2, 8)
        for init in (given, lambda shape: given.reshape(shape), given.tolist()):
            module = Encoding("rope_mixed", heads=2, head_dim=16, init={"freqs": init}, **FAST)
            for of in (module, copy.deepcopy(module)):
                torch.nn.init.zeros_(of.freqs)
                of.reset_parameters()
                self.assertTrue(torch.equal(of.freqs, given))
            file = io.BytesIO()
            torch.save(module, file)
            file.seek(0)
            with self.assertRaisesRegex(pk.ArgumentError, "^init: 'freqs' was given when the module was made"):
                torch.load(file, weights_only=False).reset_parameters()

    def test_comrope_is_rope(self):
        """As ComRoPE's appendix D.1 has it: with these values it is RoPE on halves of the channels."""
        for spec in ("comrope_ap", "comrope_ld"):
            encoding = Encoding(spec, head_dim=16, block=4, **FAST)
            x, positions = torch.randn(1, 1, 6, 16), torch.rand(6, 2) * 9
            made = encoding(x, positions=positions)
            for g in range(4):
                for c in range(2):
                    angle = positions[:, g % 2] * 10000.0 ** (-2 * 2 * (g // 2 * 2 + c) / 16)
                    a, b = x[0, 0, :, 4 * g + 2 * c], x[0, 0, :, 4 * g + 2 * c + 1]
                    turned = torch.stack([angle.cos() * a - angle.sin() * b, angle.sin() * a + angle.cos() * b], -1)
                    self.assertLess((made[0, 0, :, 4 * g + 2 * c : 4 * g + 2 * c + 2] - turned).abs().max(), 1e-5)


class Extension(unittest.TestCase):
    """The operators in C, and the same in Python, where the library or what it needs of PyTorch is not there."""

    def test_both(self):
        script = """
import sys, torch, pegen_kernels as pk
from pegen_kernels.torch import Encoding, extension
torch.manual_seed(0)
encoding = Encoding("care", head_dim=16, heads=2, targets="native", dtypes=["float32"])
q, k = torch.randn(2, 2, 5, 16, requires_grad=True), torch.randn(2, 5, 2, 32)[..., ::2].transpose(1, 2)
positions = torch.rand(5, 2, requires_grad=True)
new_q, new_k = encoding(q, k, positions)
((new_q - 1).square().sum() + new_k.pow(3).sum()).backward()
made = [new_q, new_k, q.grad, positions.grad, *(p.grad for p in encoding.parameters())]
try:
    encoding(q, k, positions[:3])
except pk.ArgumentError as e:
    words = str(e)
told = (extension.reason, [x.detach() for x in made], [x.stride() for x in made], words)
"""
        exec(script, here := {})
        with tempfile.NamedTemporaryFile() as file:
            environment = dict(os.environ, PEGEN_TORCH_LIBRARY="/nowhere/libpegen_torch.so")
            command = [sys.executable, "-c", script + "torch.save(told, sys.argv[1])", file.name]
            done = subprocess.run(command, capture_output=True, text=True, env=environment)
            self.assertEqual(done.returncode, 0, done.stderr)
            found = [here["told"], torch.load(file.name)]
        self.assertIn("/nowhere/libpegen_torch.so", found[1][0])
        if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 10):
            self.assertEqual(found[0][0], "")
        self.assertTrue(all(map(torch.equal, found[0][1], found[1][1])))
        self.assertEqual(found[0][2:], found[1][2:])
        self.assertRegex(found[0][3], "^positions are of 3 tokens")

    def test_memory(self):
        """Results lie in memory as torch.empty_like has it, which is what operators promise compilers."""
        encoding = Encoding("rope", head_dim=8, **FAST)
        base, positions = torch.randn(3, 2, 5, 24), torch.arange(5)[:, None]
        for x in (
            base[..., :8], base[..., ::3], base.transpose(1, 2)[:, :, :2, 8:16], base[:, :1, :, 16:],
            base[:1, :, :, :8],
            base[..., :8].transpose(0, 1), base[:, :1, :, :8].expand(3, 4, 5, 8), base[:0, :, :, :8],
            base[..., :8].contiguous(), base[..., :8].permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3),
            torch.randn(2, 3, 8, 5).transpose(2, 3), torch.randn(1, 1, 5, 8).expand(2, 1, 5, 8),
        ):  # fmt: skip
            rows = x.shape[2]
            made = encoding(x, positions=positions[:rows])
            with self.subTest(f"{list(x.shape)} {x.stride()}"):
                alike = torch.empty_like(x if x.stride(-1) == 1 else x.contiguous())
                self.assertEqual(made.stride(), alike.stride())
                self.assertLess((made - rope(x, positions[:rows])).abs().max() if x.numel() else 0, 2e-6)

    def test_threads(self):
        encoding = Encoding("geope3d", head_dim=48, **FAST)
        q, positions, most = torch.randn(2, 8, 300, 48), torch.rand(300, 3), torch.get_num_threads()
        made = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            made.append(encoding(q, positions=positions))
        torch.set_num_threads(most)
        self.assertTrue(torch.equal(made[0], made[1]) and torch.equal(made[0], made[2]))

    def test_freed(self):
        """Neither calls nor refusals keep memory."""
        encoding = Encoding("rope", head_dim=64, **FAST)
        x, positions = torch.randn(1, 16, 1024, 64), torch.arange(1024)[:, None]

        def size():
            return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

        def work(n):
            for _ in range(n):
                encoding(x, x, positions=positions)
                with self.assertRaises(pk.ArgumentError):
                    encoding(x, positions=positions[:7])

        work(3)
        before = size()
        work(20)
        self.assertLess(size() - before, 8 * x.nbytes)


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


class Transforms(unittest.TestCase):
    """Those that read what another process wrote share that process: it takes seconds to import PyTorch."""

    READER = """
import contextlib, io, json, sys, traceback, torch, pegen_kernels.torch
for line in sys.stdin:
    script, *words = json.loads(line)
    sys.argv, error = ["-c", *words], ""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        try:
            exec(script, {})
        except BaseException:
            error = traceback.format_exc()
    print(json.dumps([said.getvalue(), error]), flush=True)
"""

    @classmethod
    def setUpClass(cls):
        command = [sys.executable, "-W", "ignore", "-c", cls.READER]
        cls.reader = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    @classmethod
    def tearDownClass(cls):
        cls.reader.communicate()

    def elsewhere(self, script, *words):
        """What a script prints in a process that knows nothing of this one's modules."""
        self.reader.stdin.write(json.dumps([script, *words]) + "\n")
        self.reader.stdin.flush()
        said, error = json.loads(self.reader.stdout.readline())
        self.assertEqual(error, "")
        return said

    def setUp(self):
        self.encoding = Encoding("geope3d", head_dim=24, **BOTH)
        self.q, self.k = torch.randn(2, 3, 5, 24), torch.randn(2, 3, 5, 24)
        self.positions = torch.rand(5, 3)

    def test_trace(self):
        """torch.jit.trace, and its file in another process: operands and their gradients, other shapes."""
        text = (
            "import sys, torch, pegen_kernels.torch; t = torch.jit.load(sys.argv[1])\n"
            "torch.manual_seed(1); q, r = torch.randn(2, 2, 7, 16, requires_grad=True), torch.rand(7, 2)\n"
            "y = t(q, q, r)[0] if sys.argv[2] == '3' else t(q, q, q, r); y.square().sum().backward()\n"
            "x = [*t.parameters()][0]; print(*(float(z.double().sum()) for z in (y, q.grad, x.grad)))\n"
        )
        encoding = Encoding("rope_mixed", head_dim=16, heads=2, **FAST)
        bias = Attention("relative_bias_table", head_dim=16, heads=2, **FAST)
        for module, rows in ((encoding, 2), (bias, 3)):
            q, r = torch.randn(1, 2, 5, 16), torch.rand(5, 2)
            with unittest.mock.patch("warnings.warn"), tempfile.TemporaryDirectory() as folder:
                file = os.path.join(folder, "traced.pt")
                torch.jit.trace(module, (*[q] * rows, r)).save(file)
                said = self.elsewhere(text, file, str(rows + 1))
            torch.manual_seed(1)
            q, r = torch.randn(2, 2, 7, 16, requires_grad=True), torch.rand(7, 2)
            y = module(q, q, r)[0] if rows == 2 else module(q, q, q, r)
            y.square().sum().backward()
            expected = [x.double().sum().item() for x in (y, q.grad, next(module.parameters()).grad)]
            self.assertEqual([float(x) for x in said.split()], expected)

    def test_opcheck(self):
        operands, name = [], self.encoding.kernel_name
        q, k = (x.clone().requires_grad_() for x in (self.q, self.k))
        torch.library.opcheck(torch.ops.pegen_kernels.encode.default, (q, k, self.positions, operands, name))
        torch.library.opcheck(torch.ops.pegen_kernels.encode_one.default, (q, self.positions, operands, name))
        torch.library.opcheck(torch.ops.pegen_kernels.encode_one_backward.default, (q, self.positions, operands, name))
        turned = q.detach().transpose(1, 2).contiguous().transpose(1, 2)
        torch.library.opcheck(torch.ops.pegen_kernels.encode_one.default, (turned, self.positions, operands, name))

    def test_vmap(self):
        q, k = torch.randn(4, 2, 3, 5, 24), torch.randn(2, 3, 4, 5, 24)
        places = torch.rand(5, 4, 3)
        made_q, made_k = torch.vmap(self.encoding, in_dims=(0, 2, 1))(q, k, places)
        for i in range(4):
            one_q, one_k = self.encoding(q[i], k[:, :, i], places[:, i])
            self.assertTrue(torch.equal(made_q[i], one_q) and torch.equal(made_k[i], one_k))
        shared = torch.vmap(lambda x: self.encoding(x, positions=self.positions))(q)
        self.assertTrue(torch.equal(shared[3], self.encoding(q[3], positions=self.positions)))
        each = torch.rand(2, 5, 3)  # a batch's own, the same for all of vmap
        apart = torch.vmap(lambda x: self.encoding(x, positions=each))(q)
        self.assertTrue(torch.equal(apart[1], self.encoding(q[1], positions=each)))
        loss = lambda x: self.encoding(x, positions=self.positions).pow(3).sum()  # noqa: E731
        samples = torch.vmap(torch.func.grad(loss))(q)
        self.assertTrue(torch.equal(samples[2], torch.func.grad(loss)(q[2])))

    def test_compile(self):
        def block(q, k):
            q, k = self.encoding(q * 2, k, self.positions)
            return (q * k).sum(-1).relu()

        for backend in ("aot_eager", "inductor"):
            with self.subTest(backend):
                torch._dynamo.reset()
                try:
                    compiled = torch.compile(block, fullgraph=True, backend=backend)
                    q = self.q.clone().requires_grad_()
                    out = compiled(q, self.k)
                except torch._inductor.exc.InductorError as e:
                    print(f"inductor has no compiler here: {str(e)[:80]}")
                    continue
                eager = block(p := self.q.clone().requires_grad_(), self.k)
                self.assertLess((out - eager).abs().max(), 1e-5)
                gradient = torch.autograd.grad(out.sum(), q)[0]
                self.assertLess((gradient - torch.autograd.grad(eager.sum(), p)[0]).abs().max(), 1e-5)

    def test_autocast(self):
        layer = torch.nn.Linear(24, 24)
        with torch.autocast("cpu", torch.bfloat16):
            q = self.encoding(layer(self.q), positions=self.positions)
        self.assertEqual(q.dtype, torch.bfloat16)
        q.float().sum().backward()
        self.assertIsNotNone(layer.weight.grad)

    def test_export(self):
        """An exported program names its kernel, and another process compiles it again."""

        class Model(torch.nn.Module):
            def __init__(self, encoding):
                super().__init__()
                self.encoding = encoding

            def forward(self, q, k, positions):
                return self.encoding(q, k, positions)

        encoding = Encoding("care", head_dim=16, heads=3, **FAST)
        arguments = (torch.randn(2, 3, 5, 16), torch.randn(2, 3, 5, 16), torch.rand(5, 2))
        tokens = torch.export.Dim("tokens", min=2, max=4096)
        shapes = {"q": {2: tokens}, "k": {2: tokens}, "positions": {0: tokens}}
        exported = torch.export.export(Model(encoding), arguments, dynamic_shapes=shapes)
        self.assertIn("pegen_kernels.encode.default", str(exported.graph))
        expected = encoding(*arguments)
        with tempfile.TemporaryDirectory() as folder:
            torch.export.save(exported, f"{folder}/model.pt2")
            torch.save((arguments, expected), f"{folder}/data.pt")
            script = (
                "import sys, torch, pegen_kernels.torch\n"
                "model = torch.export.load(sys.argv[1] + '/model.pt2').module()\n"
                "arguments, expected = torch.load(sys.argv[1] + '/data.pt')\n"
                "assert all(map(torch.equal, model(*arguments), expected))\n"
            )
            self.elsewhere(script, folder)
        name = encoding.kernel_name.replace(encoding.kernel.digest, "0" * 32)
        with self.assertRaisesRegex(pk.CompileError, "the description here is not the one"):
            kernel_of(name)

    def test_file(self):
        """A program that names a file's description loads where there is no such file."""
        text = (pk.kernel._native.specs() / "rope.lua").read_text().replace('"rope"', '"my_rope"')
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/mine.lua"
            with open(path, "w") as file:
                file.write(text)
            name = Encoding(path, head_dim=10, **FAST).kernel_name
        script = "import sys\nfrom pegen_kernels.torch import kernel_of\nprint(kernel_of(sys.argv[1]).name)"
        self.assertEqual(self.elsewhere(script, name), "my_rope\n")

    def test_graphs(self):
        """Compiled graphs hold kernels alone, forward and backward, without autograd's layers."""
        from torch._dynamo.backends.common import aot_autograd

        for spec, operands in (("rope", False), ("care", True)):
            encoding = Encoding(spec, head_dim=16, heads=3, **FAST) if operands else Encoding(spec, head_dim=16, **FAST)
            places, graphs = torch.rand(5, 2 if operands else 1), []

            def keep(graph, inputs):
                graphs.append({str(node.target) for node in graph.graph.nodes if "pegen" in str(node.target)})
                return graph.forward

            torch._dynamo.reset()
            backend = aot_autograd(fw_compiler=keep, bw_compiler=keep)
            compiled = torch.compile(lambda q, k: encoding(q, k, places), fullgraph=True, backend=backend)
            q, k = torch.randn(2, 1, 3, 5, 16).unbind()
            compiled(q.requires_grad_(), k)[0].sum().backward()
            backward = (
                "pegen_kernels.encode_all_backward.kernel" if operands else "pegen_kernels.encode_backward.kernel"
            )
            self.assertEqual(graphs, [{"pegen_kernels.encode.kernel"}, {backward}])

    def test_written(self):
        """What PyTorch keeps for a gradient is known to have changed."""
        kernel = Encoding("rope", head_dim=16, **FAST).kernel
        x, out, positions = torch.randn(1, 1, 2, 16), torch.zeros(1, 1, 2, 16), torch.arange(2)[:, None]
        for kept, call in [
            (x, lambda: kernel.encode(x, positions=positions, in_place=True)),
            (out, lambda: kernel.encode(x, positions=positions, out=out)),
        ]:
            loss = (torch.ones(16, requires_grad=True) * kept).sum()
            call()
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                loss.backward()
        with torch.inference_mode():
            kernel.encode(torch.ones(1, 1, 2, 16), positions=positions, in_place=True)

    def test_names(self):
        """Whoever wrote a program that is loaded decides neither that its descriptions run unconfined nor where kernels
        are kept."""
        from pegen_kernels.torch import names as module

        with tempfile.TemporaryDirectory() as folder:
            encoding = Encoding("rope", head_dim=18, cache=folder, **FAST)
            self.assertNotRegex(encoding.kernel_name, r'["\\\\\n]')
            recipe = module._read(encoding.kernel_name)
            self.assertEqual(set(recipe["options"]), {"head_dim", *FAST})
            recipe["options"] |= {"trust_spec": True, "cache": f"{folder}/other"}
            asked = []
            with unittest.mock.patch.object(
                module._kernels, "compile", lambda spec, **options: asked.append(options) or encoding.kernel
            ):
                kernel_of(module._write(recipe))
            self.assertEqual(asked, [{"head_dim": 18, **FAST}])

    def test_loaded(self):
        """Modules and gradients of a kernel that was loaded from a file, without its description."""
        from pegen_kernels.torch import names

        compiled = Attention("kerple", head_dim=16, heads=2, name="kept", **FAST)  # which no other test has registered
        values = {name: x.detach() for name, x in compiled.named_parameters()}
        with tempfile.TemporaryDirectory() as folder:
            compiled.kernel.save(f"{folder}/kerple.so")
            loaded = Attention(pk.load(f"{folder}/kerple.so"), init=values)
        results = []
        for module in (compiled, loaded):
            torch.manual_seed(2)
            q, k, v = (torch.randn(1, 2, 9, 16, requires_grad=True) for _ in range(3))
            out = module(q, k, v, torch.arange(9)[:, None])
            results.append([out, *torch.autograd.grad(out.sum(), [q, k, v, *module.parameters()])])
        self.assertTrue(all(torch.equal(x, y) for x, y in zip(*results, strict=True)))
        self.assertIs(kernel_of(loaded.kernel_name), loaded.kernel)
        with self.assertRaisesRegex(pk.ArgumentError, "^head_dim: given with a compiled kernel"):
            Attention(loaded.kernel, head_dim=16)
        with self.assertRaisesRegex(pk.CompileError, "without its description"):
            Attention(loaded.kernel)
        with self.assertRaisesRegex(pk.ArgumentError, "it was loaded from a file"):
            kernel_of(names._write({"object": "of another process"}))

    @unittest.skipIf(torch.cuda.is_available(), "this machine has a GPU")
    def test_no_driver(self):
        encoding = Encoding("rope", head_dim=16, targets="native,sm_80", dtypes="float32")
        meta = torch.empty(1, 2, 5, 16, device="meta")
        self.assertEqual(encoding(meta, positions=torch.empty(5, 1, device="meta")).shape, (1, 2, 5, 16))


if __name__ == "__main__":
    unittest.main()
