"""pegen_kernels.torch: batched, compiled, exported, traced, in other processes."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import torch

import pegen_kernels as pk
from pegen_kernels.torch import Attention, Encoding, kernel_of
from torch_shared import BOTH, FAST


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
