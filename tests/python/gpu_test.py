"""What users do on a CUDA device: tensors go in, kernels are compiled for the device, results are those of processors.
Over the stand-in, whose launches compute nothing, results' places and what was launched."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import stand_in  # noqa: E402, before torch

try:
    import torch

    has_device = stand_in.is_there or torch.cuda.is_available()
except ImportError:
    has_device = False
if has_device:
    import pegen_kernels as pk
    import pegen_kernels.torch as pt
    from pegen_kernels import _native
    from pegen_kernels.torch import extension

ROPE = {"spec": "rope", "head_dim": 64, "dtypes": "float32"}
WHY_SKIPPED = "no CUDA device, or no PyTorch that sees one"


@unittest.skipUnless(has_device, WHY_SKIPPED)
class Gpu(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(7)
        self.launched = []
        if stand_in.is_there:
            self.driver = stand_in.driver()
            self.callback = stand_in.RUN(lambda entry, *rest: self.launched.append(entry.decode()))
            self.driver.run, self.driver.n_parameters = self.callback, 160

    def tearDown(self):
        if stand_in.is_there:
            self.driver.run = stand_in.RUN()

    def same(self, got, expected, bound=1e-4):
        self.assertEqual((got.device.type, got.shape, got.dtype), ("cuda", expected.shape, expected.dtype))
        self.assertEqual(got.stride(), expected.stride())
        if not stand_in.is_there:
            error = (got.cpu().double() - expected.double()).abs().max() / expected.double().abs().max()
            self.assertLess(float(error), bound)

    def of_launched(self, kernel, *names):
        """What was launched since, in this order; where threads are a stand-in's."""
        if stand_in.is_there:
            self.assertEqual([name.removeprefix(f"{kernel.name}_") for name in self.launched], list(names))
        self.launched.clear()

    def test_operators_are_c(self):
        self.assertEqual(extension.reason, "")

    def test_rows(self):
        here, there = pt.Encoding(**ROPE), pt.Encoding(**ROPE).cuda()
        for order in ((0, 1, 2, 3), (0, 2, 1, 3)):
            q, k = (torch.randn(2, heads, 9, 64).permute(order).contiguous().permute(order) for heads in (4, 2))
            at = torch.rand(9, 1)
            made = there(q.cuda(), k.cuda(), at.cuda())
            for x, expected in zip(made, here(q, k, at)):
                self.same(x, expected)
            self.of_launched(there.kernel, "encode_f32")
            self.same(there(q.cuda(), None, at.cuda()), here(q, None, at))
            self.launched.clear()

    def gradients(self, module, where, given, rows):
        given = [x.detach().to(where).requires_grad_() for x in given]
        made = module.to(where)(*given)
        made = made if isinstance(made, tuple) else (made,)
        weights = [torch.ones_like(x) for x in rows]
        wanted = [*given, *module.parameters()]
        return torch.autograd.grad(made, wanted, [x.to(where) for x in weights[: len(made)]])

    def test_gradients(self):
        module = pt.Encoding("rope_mixed", heads=4, head_dim=64, dtypes="float32")
        q, k, at = torch.randn(2, 4, 9, 64), torch.randn(2, 4, 9, 64), torch.rand(9, 2)
        expected = self.gradients(module, "cpu", (q, k, at), (q, k))
        made = self.gradients(module, "cuda", (q, k, at), (q, k))
        for x, y in zip(made, expected, strict=True):
            self.same(x, y)
        gains = ("f32", "positions", "scatter", "gather")
        self.of_launched(module.kernel, "encode_f32", *(f"encode_gradient_{name}" for name in gains))
        q, k = q.cuda().requires_grad_(), k.cuda()
        (gained,) = torch.autograd.grad(module.requires_grad_(False)(q, k, at.cuda())[0].sum(), q)
        self.same(gained, expected[0], float("inf"))
        self.of_launched(module.kernel, "encode_f32", "encode_backward_f32")

    def test_attention(self):
        module = pt.Attention("alibi", heads=4, head_dim=64, dtypes="float32")
        q, k, v = (torch.randn(2, 4, 9, 64) for _ in range(3))
        at = torch.rand(9, 1)
        expected = self.gradients(module, "cpu", (q, k, v, at), (q,))
        made = self.gradients(module, "cuda", (q, k, v, at), (q,))
        for x, y in zip(made, expected, strict=True):
            self.same(x, y, 1e-3)
        backward = ("queries_gains_f32_simt", "keys_gains_f32_simt", "positions", "positions")
        self.of_launched(module.kernel, "attention_few_f32_simt", *(f"attention_backward_{name}" for name in backward))
        few = pt.Attention("attention", head_dim=64, dtypes="bfloat16")
        q, k = torch.randn(1, 8, 1, 64).bfloat16(), torch.randn(1, 2, 600, 64).bfloat16()
        out, lse = few.cuda()(q.cuda(), k.cuda(), k.cuda(), with_lse=True)
        for x, y in zip((out, lse), few.cpu()(q, k, k, with_lse=True)):
            self.same(x, y, 2e-2)
        self.of_launched(few.kernel, "attention_few_bf16_mma", "attention_finish_bf16")

    def test_tangents(self):
        """Attention has tangents on processors alone."""
        module = pt.Attention("alibi", heads=4, head_dim=64, dtypes="float32")
        q, at = torch.randn(1, 4, 9, 64).cuda(), torch.rand(9).cuda()
        with self.assertRaisesRegex(pk.ArgumentError, "^attention of alibi on GPUs has no forward-mode derivatives"):
            torch.func.jvp(lambda q: module(q, q, q, at), (q,), (q,))

    def test_kernel(self):
        """A kernel that was compiled for processors is compiled for the device that it is called on."""
        kernel = pk.compile(**ROPE)
        q, at = torch.randn(1, 2, 9, 64), torch.rand(9, 1)
        self.same(kernel.encode(q.cuda(), positions=at.cuda()), kernel.encode(q, positions=at))
        self.of_launched(kernel, "encode_f32")
        self.assertIs(kernel.on_device(0), kernel.on_device(0))
        self.assertLessEqual(int(kernel.on_device(0).chip[3:]), _native.library.pegen_cuda_chip(0))
        self.assertIsNone(kernel.chip)
        named = pk.compile(**ROPE, targets="native,sm_75")
        self.assertIs(named.on_device(0), named)

    def test_refusals(self):
        chip = _native.library.pegen_cuda_chip(0)
        self.assertGreater(chip, 0)
        self.assertEqual(_native.library.pegen_cuda_chip(99), 0)
        q, at = torch.randn(1, 2, 9, 64).cuda(), torch.rand(9, 1).cuda()
        words = f"^targets: rope was compiled for native, and device 0 is of sm_{chip}; expected targets that have sm_"
        with self.assertRaisesRegex(pk.ArgumentError, words):
            pk.compile(**ROPE, targets="native").encode(q, positions=at)
        with self.assertRaisesRegex(pk.ArgumentError, words):
            pt.Encoding(**ROPE, targets="native")(q, q, at)
        for error in (b"cuModuleLoadData",) if stand_in.is_there else ():
            self.driver.fail_in, self.driver.fail_with = error, 209
            newer = pk.compile(**ROPE, targets="native,sm_90")
            words = f"^targets: rope was compiled for native, sm_90, and device 0 is of sm_{chip}; expected targets"
            with self.assertRaisesRegex(pk.ArgumentError, words):
                newer.encode(q, positions=at)
        module = pt.Encoding(**ROPE)
        for given in ((q, q, at.cpu()), (q.cpu(), q.cpu(), at)):
            with self.assertRaisesRegex(pk.ArgumentError, "^positions and q are on different devices; expected one"):
                module(*given)
        with self.assertRaisesRegex(pk.ArgumentError, "^q has 32 channels; expected 64"):
            module(q[..., :32], q, at)
        self.of_launched(module.kernel)

    @unittest.skipUnless(stand_in.is_there, "streams of a stand-in")
    def test_stream(self):
        """Operators queue on the current stream of their tensors' device."""
        module = pt.Encoding(**ROPE)
        q, at = torch.randn(1, 2, 9, 64).cuda(), torch.rand(9, 1).cuda()
        try:
            stand_in.stream.value = 9
            module(q, q, at)
            self.assertEqual(self.driver.stream, 9)
        finally:
            stand_in.stream.value = None

    def test_failed_launch(self):
        if not stand_in.is_there:
            self.skipTest("a driver that fails is a stand-in")
        module = pt.Encoding(**ROPE)
        q, at = torch.randn(1, 2, 9, 64).cuda(), torch.rand(9, 1).cuda()
        module(q, q, at)
        self.driver.fail_in, self.driver.fail_with = b"cuLaunchKernel", 700
        with self.assertRaisesRegex(pk.ArgumentError, "CUDA_ERROR_ILLEGAL_ADDRESS"):
            module(q, q, at)

    @unittest.skipUnless(stand_in.is_there, "a driver that takes its time is a stand-in")
    def test_wait(self):
        """A first call that waits for the driver's assembly says so once, from operators and from kernels."""
        q, at = torch.randn(1, 2, 9, 32).cuda(), torch.rand(9, 1).cuda()
        module = pt.Encoding("rope", head_dim=32, name="waited", dtypes="float32")
        kernel = pk.compile("rope", head_dim=32, name="waited_too", dtypes="float32")
        calls = {"waited": lambda: module(q, q, at), "waited_too": lambda: kernel.encode(q, positions=at)}
        with unittest.mock.patch.dict(os.environ, FAKE_CUDA_ASSEMBLY_US="1100000"):
            for name, call in calls.items():
                with self.assertWarnsRegex(UserWarning, f"^{name}: the CUDA driver took 1.1 s to assemble its PTX"):
                    call()
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    call()

    def assemble(self, *words):
        """pegen --cubin: the path of an object, and what was said."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name) / "rope.so"
        command = [_native.program(), *words, "--cubin", "--dtype", "f32", "-o", path, _native.specs() / "rope.lua"]
        return path, subprocess.run(command, capture_output=True, text=True).stderr

    def test_machine_code(self):
        """Machine code for the device is taken in place of PTX, and PTX where it is for another chip."""
        q, at = torch.randn(1, 2, 9, 64), torch.rand(9, 1)
        for chip in (_native.library.pegen_cuda_chip(0), 75):
            path, told = self.assemble("--target", f"native,sm_{chip}", "--name", f"assembled_{chip}")
            if "--cubin needs ptxas" in told:
                self.skipTest(told)
            self.assertEqual(told, "")
            kernel = pk.load(path)
            if stand_in.is_there and chip == 75:
                self.driver.fail_in, self.driver.fail_with = b"cuModuleLoadData", 209
            self.same(kernel.encode(q.cuda(), positions=at.cuda()), kernel.encode(q, positions=at))
            self.of_launched(kernel, "encode_f32")
            if stand_in.is_there:
                self.assertEqual(self.driver.module[:4] == b"\x7fELF", chip != 75)

    def test_machine_code_refused(self):
        for targets in ("native", "sm_80"):
            _, told = self.assemble("--target", targets)
            self.assertRegex(told, "error: --cubin is for objects with PTX; expected --target x86-64-v3,sm_90")

    def test_scan(self):
        x = torch.randn(2, 3, 50, 4)
        expected = pt.scan(x, with_state=True)
        for got, of in zip(pt.scan(x.cuda(), with_state=True), expected):
            self.assertEqual(got.device.type, "cuda")
            self.assertTrue(torch.equal(got.cpu(), of))
        self.assertTrue(torch.equal(pk.scan(x.cuda()).cpu(), expected[0]))
        given = x.cuda().requires_grad_()
        (gained,) = torch.autograd.grad(pt.scan(given).sum(), given)
        self.assertTrue(torch.equal(gained.cpu()[0, 0, :, 0], torch.arange(50.0, 0, -1)))


if __name__ == "__main__":
    if not has_device:
        print(f"skipped: {WHY_SKIPPED}")
        sys.exit(77)
    unittest.main()
