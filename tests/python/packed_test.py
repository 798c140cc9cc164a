"""pegen_kernels.packed: q, k and v of one projection, encoded where they lie, and trained so."""
import copy
import unittest

import torch

import pegen_kernels as pk
from pegen_kernels.packed import encode_packed
from pegen_kernels.torch import Encoding

FAST = {"targets": "native", "dtypes": ["float32", "bfloat16"]}


class Packed(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        self.x, self.positions = torch.randn(2, 7, 48), torch.rand(7, 2) * 9
        self.projection = torch.nn.Linear(48, 3 * 3 * 64)
        self.encoding = Encoding("care", head_dim=64, heads=3, **FAST)

    def attend(self, projection, encoding, in_place):
        qkv = projection(self.x).view(2, 7, 3, 3, 64)
        if in_place:
            address = qkv.data_ptr()
            qkv = encode_packed(encoding, qkv, self.positions)
            self.assertEqual(qkv.data_ptr(), address)
            q, k, v = (y.transpose(1, 2) for y in qkv.unbind(2))
        else:
            q, k, v = (y.transpose(1, 2) for y in qkv.unbind(2))
            q, k = encoding(q, k, self.positions)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    def test_values_and_gradients(self):
        modules = (self.projection, self.encoding)
        for learns in (True, False):
            both = [copy.deepcopy(modules) for _ in range(2)]
            made = []
            for (projection, encoding), in_place in zip(both, (False, True)):
                encoding.requires_grad_(learns)
                made.append(self.attend(projection, encoding, in_place))
                made[-1].square().sum().backward()
            self.assertTrue(torch.equal(*made))
            for apart, packed in zip(*([*p.parameters(), *e.parameters()] for p, e in both)):
                if apart.grad is None:
                    self.assertIsNone(packed.grad)
                else:
                    error = (apart.grad - packed.grad).abs().max() / apart.grad.abs().max()
                    self.assertLess(float(error), 2.0**-18)
        with torch.no_grad():
            self.assertTrue(torch.equal(self.attend(*modules, False), self.attend(*modules, True)))

    def test_compiled(self):
        """In one graph: the same, and qkv is not written."""

        def run(qkv, encoding):
            q, k, v = (y.transpose(1, 2) for y in encode_packed(encoding, qkv, self.positions).unbind(2))
            return torch.nn.functional.scaled_dot_product_attention(q, k, v)

        qkv = self.projection(self.x).view(2, 7, 3, 3, 64).detach()
        operands = list(self.encoding.parameters())
        for backend in ("aot_eager", "inductor"):
            torch._dynamo.reset()
            compiled = torch.compile(run, fullgraph=True, backend=backend)
            given = [qkv.clone().requires_grad_() for _ in range(2)]
            made = [compiled(given[0], self.encoding), run(2 * given[1] / 2, self.encoding)]
            self.assertTrue(torch.equal(given[0], qkv))
            self.assertLess(float((made[0] - made[1]).detach().abs().max()), 1e-6)
            made = [torch.autograd.grad(x.square().sum(), [y, *operands]) for x, y in zip(made, given)]
            for x, y in zip(*made):
                self.assertLess(float((x - y).abs().max() / y.abs().max()), 2.0**-18)
            with torch.no_grad():
                made = [f(qkv.clone(), self.encoding) for f in (compiled, run)]
            self.assertLess(float((made[0] - made[1]).abs().max()), 1e-6)

    def test_keeps_nothing_of_its_own(self):
        kept = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.untyped_storage()) or x, lambda x: x):
            self.attend(self.projection, self.encoding, True)
        rows = {x.data_ptr() for x in kept if x.nbytes() >= 2 * 7 * 3 * 64 * 4}
        qkv = [x for x in kept if x.nbytes() == 2 * 7 * 3 * 3 * 64 * 4]
        self.assertGreaterEqual(len(qkv), 4)  # the encoding's own and attention's q, k and v are one
        self.assertEqual(len({x.data_ptr() for x in qkv}), 1)
        self.assertLessEqual(len(rows), 3)  # that, attention's output, the projection's weight

    def test_refusals(self):
        qkv, positions = torch.randn(1, 5, 3, 3, 64), torch.rand(5, 2)
        before = qkv.clone()
        for words, given, encoding in (
            (r"^qkv has the shape \[1, 5, 3, 64\]; expected", qkv[:, :, 0], self.encoding),
            ("^qkv has the shape", qkv.transpose(1, 3).contiguous().transpose(1, 3), self.encoding),
            ("^qkv is of torch.bfloat16, and operands", qkv.bfloat16(), self.encoding),
        ):  # fmt: skip
            with self.subTest(words), self.assertRaisesRegex(pk.ArgumentError, words):
                encode_packed(encoding, given, positions)
        with self.assertRaisesRegex(pk.ArgumentError, "^encoding is a Linear; expected"):
            encode_packed(torch.nn.Linear(2, 2), torch.randn(1, 5, 3, 2, 16), None)
        with self.assertRaisesRegex(pk.ArgumentError, "^qkv is a list; expected a torch.Tensor"):
            encode_packed(Encoding("rope", head_dim=16, **FAST), [], None)
        with self.assertRaisesRegex(pk.ArgumentError, "^positions require a gradient"):
            encode_packed(self.encoding, qkv, positions.clone().requires_grad_())
        with self.assertRaisesRegex(pk.ArgumentError, "^positions are of 4 tokens"), torch.no_grad():
            encode_packed(self.encoding, qkv, positions[:4])
        self.assertTrue(torch.equal(qkv, before))


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
