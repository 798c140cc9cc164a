"""pegen_kernels on NumPy: what kernels compute, what they refuse and in which words, compiling from many threads."""
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import numpy

import pegen_kernels as pk
from kernel_shared import FAST, rope, rows
from pegen_kernels import arrays


TURN = """local pe = require "pegen"
return pe.encoding { name = "turn", axes = { "t" }, head_dim = pe.option("head_dim", 8, "channels"),
  block = pe.plane(), generators = { t = pe.bivector { e12 = 1 } }, phase = function(axis, i) return 1 / (i + 1) end }
"""


class Compile(unittest.TestCase):
    def test_stock_file_text(self):
        self.assertIn("geope3d", pk.stock())
        stock = pk.compile("rope", head_dim=32, **FAST)
        self.assertEqual((stock.name, stock.head_dim, stock.options["head_dim"]), ("rope", 32, "32"))
        text = pk.compile(TURN, **FAST)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "mine.lua")
            path.write_text(TURN)
            file = pk.compile(path, **FAST)
        self.assertEqual(file.digest, text.digest)
        self.assertIn("turn_encode(", file.header)
        self.assertTrue(pk.compile(TURN, **FAST).from_cache)

    def test_options(self):
        kernel = pk.compile("geope3d", grid=(2, 3, 4), skip_tokens=1, inverse=True, name="mine", **FAST)
        self.assertEqual((kernel.grid, kernel.skip_tokens, kernel.name), ((2, 3, 4), 1, "mine"))
        self.assertEqual(kernel.options["inverse"], "true")
        self.assertEqual(kernel.axes, ["d", "h", "w"])
        defined = pk.compile(TURN, defines={"head_dim": 16}, **FAST)
        self.assertEqual(defined.head_dim, 16)

    def test_mistakes(self):
        with self.assertRaises(pk.CompileError) as caught:
            pk.compile("local pe = require 'pegen'\nreturn pe.encodin {}\n", label="model.lua", **FAST)
        self.assertEqual((caught.exception.file, caught.exception.line), ("model.lua", 2))
        for spec, words, options in [
            ("no_such", "spec: no description 'no_such'", {}), ("rope", "no option 'hed_dim'", {"hed_dim": 2}),
            (5, "^spec is a int; expected a text or a path", {}), ("rope", "^targets: 5 is a int", {"targets": 5}),
            ("rope", "^dtypes: <class 'float'> is a type; expected a text", {"dtypes": [float]}),
            ("rope", "unknown target", {"targets": "z80"}), ("rope", "cannot run the compiler", {"PEGEN": "/none"}),
        ]:  # fmt: skip
            old = os.environ.pop("PEGEN", None)
            try:
                if options.get("PEGEN"):
                    os.environ["PEGEN"] = options.pop("PEGEN")
                elif old:
                    os.environ["PEGEN"] = old
                with self.assertRaisesRegex(pk.CompileError, words):
                    pk.compile(spec, **{**FAST, **options})
            finally:
                os.environ.pop("PEGEN", None)
                if old:
                    os.environ["PEGEN"] = old

    def test_nul(self):
        """No text ends where C's would."""
        for words, options in [
            ("^defines: .* has a NUL", {"head_dim": "16\0junk"}), ("^cache: ", {"cache": "/tmp\0/x"}),
            ("^targets: ", {"targets": "native\0"}), ("^name: ", {"name": "a\0b"}),
        ]:  # fmt: skip
            with self.subTest(words), self.assertRaisesRegex(pk.CompileError, words):
                pk.compile("rope", **{**FAST, **options})
        with self.assertRaisesRegex(pk.CompileError, "^text: "):
            pk.compile(TURN + "\0", **FAST)

    def test_threads(self):
        with tempfile.TemporaryDirectory() as cache, concurrent.futures.ThreadPoolExecutor(8) as pool:
            kernels = list(pool.map(lambda _: pk.compile(TURN, cache=cache, **FAST), range(8)))
        self.assertEqual(sum(not kernel.from_cache for kernel in kernels), 1)
        q = rows(1, 1, 3, 8)
        first = kernels[0].encode(q, positions=[[0], [1], [2]] @ numpy.eye(1))
        for kernel in kernels:
            self.assertTrue(numpy.array_equal(kernel.encode(q, positions=numpy.arange(3.0)[:, None]), first))

    def test_fork_after_loading(self):
        kernel = pk.compile(TURN, **FAST)
        child = os.fork()
        if not child:
            try:
                again = pk.compile(TURN, cache="", **FAST)
                same = numpy.array_equal(
                    *(k.encode(rows(1, 1, 2, 8), positions=numpy.eye(2)[:, 1:]) for k in (kernel, again))
                )
                os._exit(0 if same else 1)
            finally:
                os._exit(2)
        self.assertEqual(os.waitpid(child, 0)[1], 0)


class Encode(unittest.TestCase):
    def test_first_token(self):
        """Rows that begin behind their sequence's first token are what they are in a call of all."""
        kernel = pk.compile("rope", head_dim=16, skip_tokens=2, **FAST)
        q, positions = numpy.random.default_rng(0).standard_normal((1, 4, 12, 16), numpy.float32), numpy.arange(12)
        full, back = kernel.encode(q, positions=positions), kernel.encode_backward(q, positions=positions)
        for first in 1, 2, 11:
            part = q[:, :, first:], None, positions[first:]
            self.assertTrue((kernel.encode(*part, first_token=first) == full[:, :, first:]).all())
            self.assertTrue((kernel.encode_backward(*part, first_token=first) == back[:, :, first:]).all())
        with self.assertRaisesRegex(pk.ArgumentError, "first_token is negative"):
            kernel.encode(q, positions=positions, first_token=-1)

    def test_wrong_width(self):
        """Columns are as many as the number type has."""
        kernel = pk.compile("pape", targets="native")
        q, positions = numpy.zeros((1, 4, 9, 64), numpy.float16), numpy.zeros((9, 2))
        given = {"inputs": [numpy.zeros((1, 4, 9, 50), numpy.float16)] * 2,
                 "operands": [numpy.zeros(x.shape, numpy.float32) for x in kernel.operands],
                 "origin": numpy.zeros(2)}  # fmt: skip
        out = kernel.encode(q, positions=positions, **given)
        self.assertEqual(out.shape[-1], kernel.width_of("float16"))
        self.assertNotEqual(out.shape[-1], kernel.width_of("float32"))
        with self.assertRaisesRegex(pk.ArgumentError, "out of q has 72 channels; expected 80"):
            kernel.encode(q, positions=positions, out=numpy.zeros((1, 4, 9, 72), numpy.float16), **given)

    def setUp(self):
        self.kernel = pk.compile("rope", head_dim=16, targets="native")

    def test_values(self):
        q, k, positions = rows(2, 4, 7, 16), rows(2, 2, 7, 16, seed=2), numpy.arange(100, 107)[:, None]
        before = q.copy()
        new_q, new_k = self.kernel.encode(q, k, positions)
        self.assertLess(abs(new_q - rope(q, positions)).max(), 2e-6)
        self.assertLess(abs(new_k - rope(k, positions)).max(), 2e-6)
        self.assertTrue(numpy.array_equal(q, before))
        self.assertTrue(numpy.array_equal(self.kernel.encode(q, positions=positions), new_q))
        self.assertTrue(numpy.array_equal(self.kernel.encode(k=k, positions=positions, threads=3), new_k))
        each = numpy.stack([positions, positions + 5]).astype("float32")
        self.assertLess(abs(self.kernel.encode(q, positions=each) - rope(q, each)).max(), 2e-6)

    def test_memory(self):
        """[B,N,H,D] memory, outputs of it, in place, and strides of every kind."""
        q, positions = rows(2, 7, 4, 16).transpose(0, 2, 1, 3), numpy.arange(7)[:, None]
        expected = rope(q, positions)
        made = self.kernel.encode(q, positions=positions)
        self.assertEqual(made.strides, q.strides)
        self.assertLess(abs(made - expected).max(), 2e-6)
        wide = numpy.zeros((2, 4, 14, 20), "float32")
        out = wide[:, :, ::2, 2:18]
        self.assertIs(self.kernel.encode(q, positions=positions, out=out), out)
        self.assertTrue(numpy.array_equal(out, made))
        self.assertEqual(abs(wide[..., :2]).max() + abs(wide[..., 18:]).max() + abs(wide[:, :, 1::2]).max(), 0)
        self.assertLess(
            abs(self.kernel.encode(q[:, :, ::-1], positions=positions[::-1])[:, :, ::-1] - made).max(), 1e-6
        )
        broadcast = numpy.broadcast_to(q[:, :1], q.shape)
        self.assertLess(
            abs(self.kernel.encode(broadcast, positions=positions) - rope(broadcast, positions)).max(), 2e-6
        )
        self.assertIs(self.kernel.encode(q, positions=positions, in_place=True), q)
        self.assertTrue(numpy.array_equal(q, made))

    def test_types(self):
        positions = numpy.arange(5)[:, None]
        half = rows(1, 2, 5, 16).astype("float16")
        made = self.kernel.encode(half, positions=positions)
        self.assertEqual(made.dtype, numpy.float16)
        self.assertLess(abs(made - rope(half, positions)).max(), 4e-3)

    def test_never_written(self):
        q, positions = rows(1, 2, 5, 16), numpy.arange(5)[:, None]
        q.flags.writeable = positions.flags.writeable = False
        self.assertLess(abs(self.kernel.encode(q, positions=positions) - rope(q, positions)).max(), 2e-6)
        with self.assertRaisesRegex(pk.ArgumentError, "^q is read-only"):
            self.kernel.encode(q, positions=positions, in_place=True)
        with self.assertRaisesRegex(pk.ArgumentError, "^out of q is read-only"):
            self.kernel.encode(rows(1, 2, 5, 16), positions=positions, out=q)

    def test_jax(self):
        """Immutable arrays are read where they lie, and results are JAX's."""
        try:
            import jax.numpy
        except ImportError:
            self.skipTest("JAX is not installed")
        q, positions = rows(1, 2, 5, 16), numpy.arange(5)[:, None]
        made = self.kernel.encode(jax.numpy.asarray(q), positions=jax.numpy.asarray(positions))
        self.assertIsInstance(made, jax.Array)
        self.assertLess(abs(numpy.asarray(made) - rope(q, positions)).max(), 2e-6)
        half = self.kernel.encode(jax.numpy.asarray(q, "bfloat16"), positions=positions)
        self.assertEqual(half.dtype, "bfloat16")
        self.assertLess(abs(numpy.asarray(half, "float32") - rope(q, positions)).max(), 0.05)
        for kind in ("bool", "complex64"):
            with self.assertRaisesRegex(pk.ArgumentError, f"^q is of type {kind}, which no kernel takes"):
                self.kernel.encode(jax.numpy.zeros((1, 2, 5, 16), kind), positions=positions)
            with self.assertRaisesRegex(pk.ArgumentError, f"^positions is of type {kind}, which"):
                self.kernel.encode(q, positions=jax.numpy.zeros((5, 1), kind))
        with self.assertRaisesRegex(pk.ArgumentError, "^q is read-only or immutable"):
            self.kernel.encode(jax.numpy.asarray(q), positions=positions, in_place=True)

    def test_refusals(self):
        kernel, good, places = self.kernel, rows(1, 2, 5, 16), numpy.arange(5)[:, None]
        care = pk.compile("care", head_dim=16, heads=2, **FAST)
        axis, freq = (rows(*operand.shape) for operand in care.operands)
        places2 = numpy.zeros((5, 2))
        ri = pk.compile("pape_ri", **FAST)
        places_ri = numpy.zeros((5, len(ri.axes)))
        parameters = [rows(*operand.shape) for operand in ri.operands]
        pape_ri = lambda a: ri.encode(  # noqa: E731
            rows(1, 2, 5, ri.head_dim), positions=places_ri, operands=parameters, inputs=[a]
        )
        biased = pk.compile("alibi", heads=4, **FAST)
        alibi = lambda k, v, **options: biased.attention(rows(1, 4, 5, 64), k, v, places, **options)  # noqa: E731
        decoded = (rows(1, 4, 1, 64), *rows(2, 1, 4, 9, 64))
        grid = pk.compile("rope_axial", head_dim=16, grid=(2, 3), skip_tokens=1, **FAST)
        for words, call in [
            ("^q, k: neither", lambda: kernel.encode(positions=places)),
            ("^q has 15 channels; expected 16", lambda: kernel.encode(good[..., :15], positions=places)),
            ("^q has 2 dimensions", lambda: kernel.encode(good[0, 0], positions=places)),
            ("^k has 3 dimensions", lambda: kernel.encode(good, good[0], places)),
            ("^q is of type float64", lambda: kernel.encode(good.astype(float), positions=places)),
            ("^q is of type >f4", lambda: kernel.encode(good.astype(">f4"), positions=places)),
            ("^q is of type object", lambda: kernel.encode(good.astype(object), positions=places)),
            ("^q is a list", lambda: kernel.encode([1, 2], positions=places)),
            ("^q has channels that are not adjacent",
             lambda: kernel.encode(rows(1, 2, 5, 32)[..., ::2], positions=places)),
            ("^k is of type float16, and q of float32", lambda: kernel.encode(good, good.astype("float16"), places)),
            ("^k has 2 batches; expected 1, as many as q has", lambda: kernel.encode(good, rows(2, 2, 5, 16), places)),
            ("^positions are missing", lambda: kernel.encode(good)),
            ("^q has 5 tokens; expected 7, those of the kernel's grid of 2 x 3 and 1 of skip_tokens, or positions",
             lambda: grid.encode(good)),
            ("^positions are of 1 tokens, and q has 1, k 9; expected positions of q's 1 and k_positions of k's 9",
             lambda: biased.attention(*decoded, places[:1])),
            ("^positions are of 9 tokens, and q has 1, k 9; expected positions of q's 1 and k_positions of k's 9",
             lambda: biased.attention(*decoded, numpy.arange(9))),
            ("^positions are of 4 tokens; expected 5", lambda: kernel.encode(good, positions=places[:4])),
            ("^positions have the shape", lambda: kernel.encode(good, positions=places[None, None])),
            ("^positions are of type int16", lambda: kernel.encode(good, positions=places.astype("int16"))),
            ("^positions are of 3 batches", lambda: kernel.encode(good, positions=numpy.zeros((3, 5, 1)))),
            ("^out of q has|^q_out has", lambda: kernel.encode(good, positions=places, out=rows(1, 2, 4, 16))),
            ("^out: 2 arrays", lambda: kernel.encode(good, positions=places, out=(good, good))),
            ("^out: given with in_place", lambda: kernel.encode(good, positions=places, out=good, in_place=True)),
            ("^operands: 'axis' is missing; care takes axis, freq", lambda: care.encode(good, positions=places2)),
            ("^operands: care has no operand 'fre'",
             lambda: care.encode(good, positions=places2, operands={"fre": freq})),
            ("^operand 'freq' has the shape", lambda: care.encode(good, positions=places2, operands=[axis, axis])),
            ("^operands is a int; expected a mapping", lambda: care.encode(good, positions=places2, operands=3)),
            ("^inputs: 1 given; rope has 0: none", lambda: kernel.encode(good, positions=places, inputs=[good])),
            ("^table is a int; expected what prepare returned", lambda: kernel.encode(good, table=5)),
            ("^positions are missing", lambda: kernel.prepare()),
            ("^q has 3 heads; expected 4", lambda: biased.attention(*rows(3, 1, 3, 5, 64), places)),
            ("^operands: 3 given", lambda: care.encode(good, positions=places2, operands=[axis, freq, freq])),
            ("^operand 'freq' is not contiguous",
             lambda: care.encode(good, positions=places2, operands=[axis, numpy.asfortranarray(freq)])),
            ("^q has 3 heads; expected 2",
             lambda: care.encode(rows(1, 3, 5, 16), positions=places2, operands=[axis, freq])),
            ("^input 'a' has the shape", lambda: pape_ri(numpy.ones((1, 2, 4), "f4"))),
            ("^input 'a' is of type int32", lambda: pape_ri(numpy.ones((1, 2, 5), "i4"))),
            ("^k has 3 heads; expected a divisor of q's 4", lambda: alibi(rows(1, 3, 5, 64), rows(1, 3, 5, 64))),
            ("^v has 4 tokens; expected 5, as many as k has", lambda: alibi(rows(1, 4, 5, 64), rows(1, 4, 4, 64))),
            ("^positions are of 5 tokens, and q has 5, k 7; expected positions of q's 5 and k_positions of k's 7",
             lambda: alibi(rows(1, 4, 7, 64), rows(1, 4, 7, 64))),
            ("^out is of type float64", lambda: alibi(*rows(2, 1, 4, 5, 64), out=rows(1, 4, 5, 64, dtype="float64"))),
            ("^out has 4 tokens; expected 5",
             lambda: alibi(*rows(2, 1, 4, 5, 64), out=rows(1, 4, 4, 64))),
            ("^v, out: the last dimension", lambda: alibi(rows(1, 4, 5, 64), rows(1, 4, 5, 32))),
            ("^out has 32 channels; expected 64", lambda: alibi(*rows(2, 1, 4, 5, 64), out=rows(1, 4, 5, 32))),
            ("^out of q is of type float64", lambda: kernel.encode(good, positions=places, out=good.astype(float))),
            ("^grad_q is of type float64", lambda: kernel.encode_backward(good.astype(float), positions=places)),
            ("^out of grad_q is of type float64",
             lambda: kernel.encode_backward(good, positions=places, out=good.astype(float))),
            ("^positions are of 4 tokens; expected 5, as many as grad_q has",
             lambda: kernel.encode_backward(good, positions=places[:4])),
            ("^positions is a float32", lambda: kernel.encode(good, positions=numpy.float32(1))),
            ("^attention: rope has no such entry; it has: encode", lambda: kernel.attention(good, good, good, places)),
        ]:  # fmt: skip
            with self.subTest(words), self.assertRaisesRegex(pk.ArgumentError, words):
                call()
        whole = rows(1, 2, 6, 16)
        before = whole.copy()
        with self.assertRaisesRegex(pk.ArgumentError, "^out of q overlaps q; expected memory of its own"):
            kernel.encode(whole[:, :, :5], positions=places, out=whole[:, :, 1:])
        shared = numpy.lib.stride_tricks.as_strided(whole.copy(), (1, 2, 5, 16), (0, 0, 64, 4))
        odd = numpy.frombuffer(bytearray(4 * 160 + 1), numpy.float32, 160, 1).reshape(1, 2, 5, 16)
        for words, out in [
            ("^out of q has elements that share memory", shared), ("^out of q is not aligned", odd),
        ]:  # fmt: skip
            with self.subTest(words), self.assertRaisesRegex(pk.ArgumentError, words):
                kernel.encode(whole[:, :, :5], positions=places, out=out)
        with self.assertRaisesRegex(pk.ArgumentError, "^scale: scale is not a finite number"):
            biased.attention(*rows(3, 1, 4, 5, 64), places, scale=numpy.inf)
        self.assertTrue(numpy.array_equal(whole, before))

    def test_gpu(self):
        """What lies on a GPU, where there is none: a sentence, whatever the kernel was compiled for."""
        there = lambda x: arrays.View(x.ctypes.data, (arrays.CUDA, *arrays.view("x", x).key[1:]), x)  # noqa: E731
        q, places = rows(1, 2, 5, 16), numpy.arange(5.0)[:, None]
        for targets, words in (
            ("native", "^targets: this object was compiled without a GPU target"),
            ("native,sm_80", "^q: no CUDA driver: libcuda.so.1 cannot be loaded, or finds no device$"),
        ):
            kernel = pk.compile("rope", head_dim=16, targets=targets, dtypes="float32")
            given = {"q": there(q), "q_out": there(q.copy()), "positions": there(places)}
            with self.subTest(targets), self.assertRaisesRegex(pk.ArgumentError, words):
                kernel._call("encode", given, [], [], {})
            apart = "^positions and q are on different devices" if "sm" in targets else words
            with self.assertRaisesRegex(pk.ArgumentError, apart):
                kernel._call("encode", given | {"positions": arrays.view("positions", places)}, [], [], {})

    def test_table_and_operands(self):
        care = pk.compile("care", head_dim=16, heads=2, **FAST)
        self.assertEqual([operand.name for operand in care.operands], ["axis", "freq"])
        self.assertEqual(care.operands[1].dimensions, ("axes", "heads", "blocks"))
        axis, freq = (rows(*operand.shape) for operand in care.operands)
        axis /= numpy.linalg.norm(axis, axis=-1, keepdims=True)
        q, positions = rows(2, 2, 5, 16), rows(5, 2)
        named = care.encode(q, positions=positions, operands={"freq": freq, "axis": axis})
        self.assertLess(abs((named**2).sum() / (q**2).sum() - 1), 1e-5)
        table = care.prepare(positions, operands=[axis, freq])
        self.assertTrue(numpy.array_equal(care.encode(q, table=table), named))
        with self.assertRaisesRegex(pk.ArgumentError, "^table: the table was not made by"):
            care.encode(rows(2, 2, 6, 16), table=table)

    def test_shapes_of_operands(self):
        """Neighbouring dimensions in one, or one as several, with the same bits; gradients come in the shape given."""
        swin = pk.compile("relative_bias_table", head_dim=16, heads=4, window_h=3, window_w=2, **FAST)
        q, table, places = rows(3, 1, 4, 6, 16), rows(5, 3, 4, seed=2), rows(6, 2, seed=3).round()
        attend = lambda x: swin.attention(*q, places, operands=[x])  # noqa: E731
        for shape in ((15, 4), (5, 12), (60,), (5, 3, 2, 2), (1, 5, 3, 4)):
            self.assertTrue(numpy.array_equal(attend(table.reshape(shape)), attend(table)), shape)
        for wrong in (table.reshape(10, 6), table.reshape(4, 15), table.reshape(3, 5, 4), table.reshape(6, 5, 2, 1),
                      table[:4].reshape(12, 4), numpy.asfortranarray(table.reshape(15, 4))):  # fmt: skip
            with self.assertRaisesRegex(pk.ArgumentError, r"bias_table' has the shape .*; expected \[5, 3, 4\]"):
                attend(wrong)
        care = pk.compile("care", head_dim=16, heads=2, **FAST)
        given, gained = [rows(*info.shape, seed=4) for info in care.operands], []
        for operands in (given, [x.reshape(-1) for x in given]):
            table = care.prepare(places, operands=operands)
            gradients = care.gradient_table(places, operands=operands)
            x = rows(1, 2, 6, 16, seed=5)
            care.encode_backward(x, table=table, gradients=gradients, q=x, from_input=True)
            gained.append(care.prepare_backward(gradients, places, operands=operands).operands)
        for info in care.operands:
            whole, flat = (of[info.name] for of in gained)
            self.assertEqual((whole.shape, flat.shape), (info.shape, (whole.size,)))
            self.assertTrue(numpy.array_equal(whole.reshape(-1), flat) and whole.any())

    def test_backward(self):
        """<y, R x> = <R^T y, x>."""
        geope = pk.compile("geope3d", head_dim=24, **FAST)
        x, y, positions = rows(2, 3, 5, 24), rows(2, 3, 5, 24, seed=2), rows(5, 3, seed=3)
        forward, backward = geope.encode(x, positions=positions), geope.encode_backward(y, positions=positions)
        self.assertLess(abs((forward * y).sum() - (backward * x).sum()), 1e-4)
        self.assertGreater(abs((forward * y).sum() - (x * y).sum()), 1e-2)

    def test_backward_by_table(self):
        """Gradients of two layers by one table, against differences of the loss."""
        care = pk.compile("care", head_dim=16, heads=2, **FAST)
        freq, positions = rows(*care.operands[1].shape), rows(5, 2, seed=4)
        axis = rows(*care.operands[0].shape, seed=5)
        axis /= numpy.linalg.norm(axis, axis=-1, keepdims=True)
        x, y = ([rows(2, 2, 5, 16, seed=seed + i) for i in range(2)] for seed in (6, 8))

        def loss(operands, positions):
            outs = [care.encode(layer, positions=positions, operands=operands) for layer in x]
            return sum((out.astype(float) * g).sum() for out, g in zip(outs, y))

        table = care.prepare(positions, operands=[axis, freq])
        for from_input, threads in ((False, 1), (True, 3)):
            gradients = care.gradient_table(positions, operands=[axis, freq])
            for layer, g in zip(x, y):
                kept = layer if from_input else care.encode(layer, table=table)
                turned = care.encode_backward(
                    g, table=table, gradients=gradients, q=kept, from_input=from_input, threads=threads
                )
                self.assertTrue(numpy.array_equal(turned, care.encode_backward(g, table=table)))
            gained = care.prepare_backward(
                gradients, positions, operands=[axis, freq.astype("float64")], of_positions=True, threads=threads
            )
            self.assertEqual((set(gained.operands), gained.k_positions), ({"axis", "freq"}, None))
            self.assertEqual((gained.operands["axis"].dtype, gained.operands["freq"].dtype), ("float32", "float64"))
            for at, gradient, name in (
                (freq, gained.operands["freq"], "freq"),
                (positions, gained.positions, "places"),
            ):
                step = rows(*at.shape, seed=10) * numpy.float32(0.01)
                moved = [(axis, at + sign * step) if name == "freq" else (axis, freq) for sign in (1, -1)]
                places = [positions if name == "freq" else at + sign * step for sign in (1, -1)]
                difference = (loss(moved[0], places[0]) - loss(moved[1], places[1])) / 2
                self.assertLess(abs(difference - (gradient * step).sum()), 2e-3 * abs(gradient * step).sum(), name)
        again = care.prepare_backward(gradients, positions, operands=[axis, freq])
        self.assertTrue(numpy.array_equal(again.operands["axis"], gained.operands["axis"]))
        gradients.clear()
        for words, call in (
            (
                "^gradients: nothing was added",
                lambda: care.prepare_backward(gradients, positions, operands=[axis, freq]),
            ),
            (
                "^gradients: given without table",
                lambda: care.encode_backward(y[0], None, positions, operands=[axis, freq], gradients=gradients),
            ),
            ("^q, k: given without gradients", lambda: care.encode_backward(y[0], table=table, from_input=True)),
            ("^gradients is a int", lambda: care.encode_backward(y[0], table=table, gradients=1)),
            ("^table is a str", lambda: care.encode(x[0], table="no")),
            ("^positions are missing", lambda: care.gradient_table(operands=[axis, freq])),
            ("^prepare_backward: alibi has no such entry", lambda: pk.compile("alibi", **FAST).gradient_table()),
        ):
            with self.subTest(words), self.assertRaisesRegex(pk.ArgumentError, words):
                call()
        care.encode_backward(y[0], table=table, gradients=gradients, q=x[0])
        with self.assertRaisesRegex(pk.ArgumentError, "^grad.table: "):
            care.prepare_backward(gradients, rows(4, 2), operands=[axis, freq])

    def test_threads_of_the_host(self):
        q, positions = rows(1, 8, 64, 16), numpy.arange(64)[:, None]
        expected = self.kernel.encode(q, positions=positions)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            results = pool.map(lambda _: self.kernel.encode(q, positions=positions), range(200))
            self.assertTrue(all(numpy.array_equal(result, expected) for result in results))


class Known(unittest.TestCase):
    def test_explain_check_bench(self):
        kernel = pk.compile(TURN, **FAST)
        self.assertEqual(kernel.explain()["properties"]["translation_invariant"]["holds"], "yes")
        self.assertRegex(kernel.check(), "turn: pass")
        timed = kernel.bench((1, 16, 2))
        self.assertEqual(timed["pegen"], kernel.explain()["pegen"])

    def test_explain_again(self):
        """A model's layers ask one kernel for first values: its description is read once, and nobody shares a dict."""
        kernel = pk.compile(TURN, **FAST)
        first = kernel.explain()
        first["properties"].clear()
        with unittest.mock.patch.object(kernel, "_request", None):
            self.assertTrue(kernel.explain()["properties"])

    def test_save_and_load(self):
        kernel = pk.compile(TURN, **FAST)
        q = rows(1, 1, 3, 8)
        positions = numpy.arange(3)[:, None]
        with tempfile.TemporaryDirectory() as folder:
            kernel.save(f"{folder}/turn.so")
            kernel.save(f"{folder}/turn.h")
            self.assertEqual(pathlib.Path(folder, "turn.h").read_text(), kernel.header)
            loaded = pk.load(f"{folder}/turn.so")
            self.assertEqual((loaded.digest, loaded.head_dim), (kernel.digest, 8))
            with self.assertRaisesRegex(OSError, "No such file"):
                kernel.save(f"{folder}/none/turn.so")
            self.assertEqual(sorted(os.listdir(folder)), ["turn.h", "turn.so"])
            with self.assertRaisesRegex(pk.CompileError, "is no kernel"):
                pk.load(f"{folder}/turn.h")
        with self.assertRaisesRegex(pk.CompileError, "there is no file"):
            pk.load(f"{folder}/turn.so")
        self.assertTrue(numpy.array_equal(loaded.encode(q, positions=positions), kernel.encode(q, positions=positions)))
        with self.assertRaisesRegex(pk.CompileError, "without its description"):
            loaded.explain()

    def test_tangents(self):
        """The entry of forward mode is in a kernel of its own, which is compiled when first asked for."""
        kernel = pk.compile("alibi", heads=2, head_dim=8, **FAST)
        self.assertNotIn("attention_tangent", kernel.entries)
        made = kernel.with_tangents()
        self.assertIn("attention_tangent", made.entries)
        self.assertIs(made, kernel.with_tangents())
        self.assertIs(made, made.with_tangents())
        self.assertEqual(made.digest, kernel.digest)
        with tempfile.TemporaryDirectory() as folder:
            loaded = []
            for x in (kernel, made):
                x.save(f"{folder}/alibi.so")
                loaded.append(pk.load(f"{folder}/alibi.so"))
        self.assertIs(loaded[1].with_tangents(), loaded[1])
        for x in (loaded[0], pk.compile(TURN, **FAST)):
            with self.assertRaisesRegex(
                pk.ArgumentError,
                f"^{x.name} has no tangents; expected attention, by pegen --tangents where it is loaded$",
            ):
                x.with_tangents()

    def test_saved_again(self):
        """A file that was replaced is loaded anew, while the old kernel stays what it was."""
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/kernel.so"
            for width in (8, 16):
                pk.compile(TURN, head_dim=width, **FAST).save(path)
                loaded = pk.load(path)
                self.assertEqual(loaded.head_dim, width)
                self.assertEqual(loaded.encode(rows(1, 1, 1, width), positions=[[0]] @ numpy.eye(1)).shape[3], width)
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                list(pool.map(lambda _: loaded.save(path), range(64)))
            self.assertEqual(os.listdir(folder), ["kernel.so"])
            self.assertEqual(pk.load(path).head_dim, 16)

    def test_program(self):
        out = subprocess.run([sys.executable, "-m", "pegen_kernels", "--version"], capture_output=True, text=True)
        self.assertRegex(out.stdout, r"^pegen \d+\.\d+\.\d+")


if __name__ == "__main__":
    unittest.main()
