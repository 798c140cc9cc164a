"""pegen_kernels.torch: modules and operators, of all number types, in C and in Python."""
import copy
import io
import math
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import unittest

import torch

import pegen_kernels as pk
from pegen_kernels.torch import Attention, Encoding
from torch_shared import BOTH, FAST, rope


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


if __name__ == "__main__":
    unittest.main()
