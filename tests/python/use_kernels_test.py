"""use_kernels=True of transformers with pegen_kernels.torch.register_rotary: logits are those of the models'
own code to the bit, in bfloat16, too, in all models that offer their rotation for replacement, and so are gradients
but for the order of sums."""
import copy
import inspect
import os
import unittest
from unittest import mock

os.environ["HF_HUB_OFFLINE"] = "1"
import kernels
import torch
import vision  # noqa: F401 (before transformers)
from transformers.utils import import_utils

# transformers 5.24 takes kernels from 0.18.2 on. What it uses of them, older ones have, too.
_asked = inspect.unwrap(import_utils.is_kernels_available)
_asked.__defaults__ = ("0.17.2", _asked.__defaults__[1])
import_utils.is_kernels_available.cache_clear()

import small_models as small
from transformers.integrations import hub_kernels
from transformers.models.llama import modeling_llama

from pegen_kernels.torch import RotaryPosEmb, layers, register_rotary


def counted():
    return mock.patch.object(layers, "_turn", side_effect=layers._turn)


def of_models(turned):
    """How many calls were of models' rows: what is tried has five tokens."""
    return sum(call.args[1][0].shape[2] != 5 for call in turned.call_args_list)


def offers(model):
    return any("rotary_pos_emb" in vars(x).get("_kernel_funcs", {}) for x in model.modules())


def run(model, given):
    model.zero_grad()
    rows = model(**given)[0]
    small.weighted(rows).backward()
    return rows.detach(), small.gradients(model)


class UseKernels(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        register_rotary()
        mapping = hub_kernels.get_kernel_mapping_transformers()
        for name in {*mapping} - {"rotary_pos_emb"}:  # which lie on the network
            mapping[name] = {}

    def same(self, found, expected):
        self.assertTrue(torch.equal(found, expected))

    def test_models(self):
        n = 0
        for name in small.CLASSES:
            model, given = small.made(name), small.given(name)
            if not offers(model):
                continue
            with self.subTest(name), counted() as turned:
                half, halves = copy.deepcopy(model).bfloat16(), dict(given)
                for word, x in given.items():
                    halves[word] = x.bfloat16() if x.is_floating_point() else x
                with torch.no_grad():
                    own_half = half(**halves)[0]
                own, of_own = run(model, given)
                turned.assert_not_called()
                model.set_use_kernels(True)
                ours, of_ours = run(model, given)
                n_full = of_models(turned)
                self.assertGreater(n_full, 0)
                self.same(ours, own)
                self.assertLess(small.apart(of_ours, of_own), 2.0**-20)
                with torch.no_grad():
                    self.same(half(**halves)[0], own_half)
                self.assertGreater(of_models(turned), n_full)
                n += 1
        self.assertGreaterEqual(n, 76)
        print(f"use_kernels_test: {n} classes have their own code's rows to the bit, and its gradients")

    def test_training_compiled(self):
        model, given = small.made("Llama"), small.given("Llama")
        model.set_use_kernels(True)
        self.assertIs(modeling_llama.apply_rotary_pos_emb.forward.__func__, RotaryPosEmb.forward)
        layers._found.cache_clear()
        with torch.no_grad():
            compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
            self.same(compiled(**given)[0], model(**given)[0])
        model.train()
        with counted() as turned:
            self.assertEqual(len(run(model, given)[1]), len([*model.parameters()]))
            self.assertGreater(of_models(turned), 0)


class Layer(unittest.TestCase):
    def given(self, dim, width=16, dtype=torch.float32):
        torch.manual_seed(1)
        shape = (2, 4, 5, 16) if dim == 1 else (2, 5, 4, 16)
        q, k = torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype)
        k = (k[:, :2] if dim == 1 else k[:, :, :2]).clone()  # two heads of q share one of k
        angles = torch.randn(2, 5, 8).repeat(1, 1, 2)[..., :width]
        return q.requires_grad_(), k.requires_grad_(), angles.cos().to(dtype), angles.sin().to(dtype)

    def test_alone(self):
        """Without a model: both places of heads, grouped heads, gradients; q and k stay as they are."""
        for dim in (1, 2):
            q, k, cos, sin = self.given(dim)
            before = q.detach().clone()
            for rows in zip(RotaryPosEmb()(q, k, cos, sin, dim), layers._by_halves(q, k, cos, sin, dim)):
                self.assertTrue(torch.equal(*rows))
                self.assertEqual(rows[0].shape, rows[1].shape)
                gains = [torch.autograd.grad(x.square().sum(), (q, k), allow_unused=True) for x in rows]
                for x, y in zip(*gains):
                    self.assertTrue(x is y is None or torch.allclose(x, y, 1e-6, 1e-6))
            self.assertTrue(torch.equal(before, q))

    def test_of_tokens(self):
        """Cosines without batches, as Pixtral gives them for an image."""
        q, k, cos, sin = self.given(1)
        RotaryPosEmb()(q, k, cos, sin)  # tries kernels
        with counted() as turned:
            made = RotaryPosEmb()(q, k, cos[0], sin[0], 0)
            turned.assert_called_once()
        for rows in zip(made, layers._by_halves(q, k, cos[0], sin[0], 0)):
            self.assertTrue(torch.equal(*rows))

    def test_other_functions(self):
        """What is no rotation of halves, and what no kernel takes, the function itself computes."""

        def neighbours(q, k, cos, sin, unsqueeze_dim=1):
            cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
            turn = lambda x: torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
            return q * cos + turn(q) * sin, k * cos + turn(k) * sin

        def partial(q, k, cos, sin, unsqueeze_dim=1):
            n = cos.shape[-1]
            made = layers._by_halves(q[..., :n], k[..., :n], cos, sin, unsqueeze_dim)
            return tuple(torch.cat((x, y[..., n:]), -1) for x, y in zip(made, (q, k)))

        def plain(q, k, cos, sin, unsqueeze_dim=1):
            return layers._by_halves(q, k, cos, sin, unsqueeze_dim)

        for function, width, dtype in ((neighbours, 16, torch.float32), (partial, 6, torch.float32),
                                       (partial, 8, torch.float32), (plain, 16, torch.float64)):  # fmt: skip
            layer = kernels.use_kernel_forward_from_hub("rotary_pos_emb")(function)
            given = self.given(1, width, dtype)
            with counted() as turned:
                expected = layer(*given)
                layer.forward = RotaryPosEmb.forward.__get__(layer)
                tried = turned.call_count
                for x, y in zip(layer(*given), expected):
                    self.assertTrue(torch.equal(x, y))
                layer(*given)
                self.assertIn(turned.call_count - tried, (0, 4))  # tried once, if at all


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
