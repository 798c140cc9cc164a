"""Descriptions against the formulas of their papers or their authors' code, written again in NumPy and float64."""
import importlib
import importlib.util
import unittest

import numpy

import pegen_kernels as pk

FAST = {"targets": "native", "dtypes": "float32"}


def rows(*shape, seed=1):
    return numpy.random.default_rng(seed).standard_normal(shape).astype("float32")


def cells(*sizes):
    """Positions of a row-major grid."""
    return (
        numpy.stack(numpy.meshgrid(*map(numpy.arange, sizes), indexing="ij"), -1).reshape(-1, len(sizes)).astype(float)
    )


def turned(x, angle, layout="interleaved"):
    """Pairs of x [..., N, D] turned by angle [..., N, D/2]."""
    x, half = x.astype(float), x.shape[-1] // 2
    first, second = (x[..., 0::2], x[..., 1::2]) if layout == "interleaved" else (x[..., :half], x[..., half:])
    a = numpy.cos(angle) * first - numpy.sin(angle) * second
    b = numpy.sin(angle) * first + numpy.cos(angle) * second
    return numpy.stack([a, b], -1).reshape(x.shape) if layout == "interleaved" else numpy.concatenate([a, b], -1)


class Formulas(unittest.TestCase):
    def theirs(self, module):
        """PyTorch and a module of transformers' models."""
        if not importlib.util.find_spec("torch") or not importlib.util.find_spec("transformers"):
            self.skipTest("transformers is not installed")
        try:
            importlib.import_module("torchvision")
        except ImportError:
            pass
        except RuntimeError:  # of another version than PyTorch: transformers does without what it does not find
            found = importlib.util.find_spec
            importlib.util.find_spec = lambda name, *rest: None if name == "torchvision" else found(name, *rest)
        return importlib.import_module("torch"), importlib.import_module(f"transformers.models.{module}")

    def near(self, found, expected, bound):
        self.assertEqual(numpy.shape(found), numpy.shape(expected))
        self.assertLess(numpy.abs(found - expected).max(), bound)

    def encoded(self, spec, x, angle, layout="interleaved", positions=None, bound=2e-6, **options):
        kernel = pk.compile(spec, head_dim=x.shape[-1], **options, **FAST)
        self.near(kernel.encode(x, positions=positions), turned(x, angle, layout), bound)


class Coordinates(Formulas):
    x = rows(1, 2, 12, 16)

    def axial(self, r, base=100.0):
        """Heo et al., eq. 9-10: the first quarter of the channels' pairs turn with r[0], the others with r[1]."""
        frequency = base ** (-4 * numpy.arange(4) / 16)
        return numpy.concatenate([r[:, :1] * frequency, r[:, 1:] * frequency], -1)

    def test_order(self):
        r = cells(3, 4)
        self.encoded("rope_axial", self.x, self.axial(r), grid=(3, 4))
        self.encoded("rope_axial", self.x, self.axial(r[:, ::-1]), grid=(3, 4), order=(1, 0))
        self.encoded("rope_axial", self.x, self.axial(r[:, ::-1]), positions=r, order=(1, 0))
        freqs = rows(2, 2, 8)
        kernel = pk.compile("rope_mixed", head_dim=16, heads=2, grid=(3, 4), order=(1, 0), **FAST)
        angle = numpy.einsum("na,ahj->hnj", r[:, ::-1], freqs.astype(float))
        self.near(kernel.encode(self.x, operands={"freqs": freqs}), turned(self.x, angle), 4e-6)
        for order in [(0,), (0, 0), (0, 2), (-1, 0)]:
            with self.assertRaisesRegex(pk.CompileError, "option 'order' has"):
                pk.compile("rope_axial", order=order, **FAST)

    def test_coordinates(self):
        p = cells(3, 4)
        n, m = numpy.array([3, 4]), numpy.array([2, 5])
        kinds = {
            "inclusive": (p / (n - 1), p / (n - 1) * n / m),  # LieRE: linspace(0, n / m, n) beyond m cells
            "centres": ((p + 0.5) / n, (p + 0.5) / m), "signed": (2 * (p + 0.5) / n - 1, 2 * (p + 0.5) / m - 1),
            "resampled": (None, p / n * m),  # EVA-02: arange(n) / n * m
        }  # fmt: skip
        for kind, (alone, trained) in kinds.items():
            options = {"coordinates": kind, "cells": (3, 4), "grid": (3, 4), "base": 2.0}
            if alone is not None:
                self.encoded("rope_axial", self.x, self.axial(alone, 2.0), **options)
            self.encoded("rope_axial", self.x, self.axial(trained, 2.0), trained=(2, 5), **options)
        self.encoded("rope_axial", self.x, self.axial(p + 1), grid=(3, 4), origin=-1.0)  # counted from 1
        for words, options in [
            ("needs trained: one number for each of the 2", {"coordinates": "resampled", "cells": (3, 4)}),
            ("option 'cells' has 0 cells", {"coordinates": "centres", "cells": (0, 4)}),
        ]:
            with self.assertRaisesRegex(pk.CompileError, words):
                pk.compile("rope_axial", **options, **FAST)

    def test_sincos(self):
        x, r = rows(1, 1, 12, 16), cells(3, 4)
        bands = 10000.0 ** (-numpy.arange(4) / 4)
        h, w = r[:, :1] * bands, r[:, 1:] * bands
        sin, cos = numpy.sin, numpy.cos
        for options, parts in [
            ({}, [sin(h), cos(h), sin(w), cos(w)]),
            ({"order": (1, 0)}, [sin(w), cos(w), sin(h), cos(h)]),
            ({"arrangement": "functions"}, [sin(h), sin(w), cos(h), cos(w)]),
        ]:
            kernel = pk.compile("sincos", channels=16, grid=(3, 4), **options, **FAST)
            self.near(kernel.encode(x), x + numpy.concatenate(parts, -1), 1e-6)
        with self.assertRaisesRegex(pk.CompileError, "14 channels are no multiple of 4"):
            pk.compile("sincos", channels=14, arrangement="functions", **FAST)

    def test_whole_positions(self):
        text = """local pe = require "pegen"
        return pe.encoding { name = "polar", axes = { "x", "y" }, head_dim = 16, block = pe.plane(), combine = pe.sum,
          generators = pe.turn "e12", phase = function(axis, i) return axis == "x" and i + 1 or 2 * i end,
          position = function(r) return { pe.sqrt(r.x ^ 2 + r.y ^ 2), pe.atan2(r.y, r.x) } end }
        """
        r = numpy.concatenate([cells(3, 3) - 1, [[-2.5, 0], [0, -3], [1e-3, -1e3]]])
        i = numpy.arange(8)
        angle = numpy.hypot(r[:, :1], r[:, 1:]) * (i + 1) + numpy.arctan2(r[:, 1:], r[:, :1]) * 2 * i
        kernel = pk.compile(text, **FAST)
        self.near(kernel.encode(self.x, positions=r), turned(self.x, angle), 4e-6)


class Frequencies(Formulas):
    """rope_frequencies: the product of position and inv_freq as transformers and Meta's code round it."""

    positions = numpy.array([0.0, 1, 7, 4095, 65537, 99991, 100000, 131071])[:, None]
    inv_freq = (1 / 500000.0 ** (numpy.arange(0, 64, 2, dtype="float32") / numpy.float32(64))).astype("float32")

    def angle(self):
        return (self.positions.astype("float32") * self.inv_freq).astype("float32")

    def test_float32_phases(self):
        x, operands = rows(1, 2, 8, 64), {"inv_freq": self.inv_freq}
        kernel = pk.compile("rope_frequencies", head_dim=64, precision="float32", **FAST)
        rounded = turned(x, self.angle().astype(float), "split")
        self.near(kernel.encode(x, positions=self.positions, operands=operands), rounded, 4 * 2.0**-20)
        found = kernel.encode(x, positions=self.positions, operands=operands)
        self.assertLess(numpy.abs(found - rounded).max() / numpy.abs(x).max(), 2.0**-20)
        exact = pk.compile("rope_frequencies", head_dim=64, **FAST)
        apart = numpy.abs(exact.encode(x, positions=self.positions, operands=operands) - rounded).max()
        self.assertGreater(apart, 1e-3)  # what the rounding is worth
        unrounded = turned(x, self.positions * self.inv_freq.astype(float), "split")
        self.near(exact.encode(x, positions=self.positions, operands=operands), unrounded, 4e-6)

    def test_transformers(self):
        torch, llama = self.theirs("llama.modeling_llama")
        rotary = llama.LlamaRotaryEmbedding(llama.LlamaConfig(hidden_size=128, num_attention_heads=2))
        x = rows(1, 2, 8, 64)
        place = torch.tensor(self.positions[:, 0]).long()[None]
        cos, sin = rotary(torch.zeros(1), place)
        theirs, _ = llama.apply_rotary_pos_emb(torch.tensor(x), torch.tensor(x), cos, sin)
        kernel = pk.compile("rope_frequencies", head_dim=64, precision="float32", **FAST)
        ours = kernel.encode(x, positions=self.positions, operands={"inv_freq": rotary.inv_freq.numpy()})
        self.assertLess(numpy.abs(ours - theirs.numpy()).max() / numpy.abs(x).max(), 2.0**-20)

    def test_partial(self):
        x = rows(1, 2, 8, 80)
        kernel = pk.compile("rope_frequencies", head_dim=80, rotary_dim=64, attention_factor=1.5, **FAST)
        found = kernel.encode(x, positions=self.positions, operands={"inv_freq": self.inv_freq})
        angle = self.positions * self.inv_freq.astype(float)
        self.near(found[..., :64], 1.5 * turned(x[..., :64], angle, "split"), 6e-6)
        self.near(found[..., 64:], x[..., 64:], 1e-9)


class Boosts(Formulas):
    def test_boosts(self):
        """Dai et al.: pairs by cosh and sinh; q by a position and k by the inverse of another have a score of their
        difference."""
        x, r = rows(1, 2, 12, 16), numpy.linspace(-40, 60, 12)[:, None]
        u = r * 0.01 * 10000.0 ** (-2 * numpy.arange(8) / 16)
        first, second, cosh, sinh = x[..., 0::2].astype(float), x[..., 1::2].astype(float), numpy.cosh(u), numpy.sinh(u)
        expected = numpy.stack([cosh * first - sinh * second, cosh * second - sinh * first], -1).reshape(x.shape)
        kernel = pk.compile("boosts", head_dim=16, **FAST)
        self.near(kernel.encode(x, positions=r), expected, 4e-6)
        inverse = pk.compile("boosts", head_dim=16, inverse=True, **FAST)
        scores = [
            kernel.encode(x, positions=r + by) @ inverse.encode(x, positions=r + by).swapaxes(-1, -2) for by in (0, 9)
        ]
        self.near(*scores, 2e-5)


class Axial(Formulas):
    def test_woven(self):
        """Qwen3-VL: of 8 pairs, 4, 2 and 2 of t, h and w; pair i turns with axis i mod 3 while that has pairs left."""
        x, r = rows(1, 2, 24, 16), cells(2, 3, 4)
        axis = [0, 1, 2, 0, 1, 2, 0, 0]
        angle = r[:, axis] * 5e6 ** (-2 * numpy.arange(8) / 16)
        self.encoded("rope_axial", x, angle, "split", grid=(2, 3, 4), axes=3, arrangement="woven", sections=(4, 2, 2))

    def test_spherical(self):
        """Rot(theta r_h) Rot(theta r_w) x as matrices: about x and z as printed; e1 towards e3 as in the code."""
        x, r = rows(1, 2, 12, 12), cells(3, 4)
        for turns, (a, b) in (("paper", (0, 1)), ("code", (0, 2))):
            expected = numpy.empty(x.shape)
            for i in range(4):
                turn = numpy.tile(numpy.eye(3), (12, 1, 1))
                for plane, angle in (((1, 2), r[:, 0]), ((a, b), r[:, 1])):
                    cos, sin = (f(angle * 100.0 ** (-2 * i / 12)) for f in (numpy.cos, numpy.sin))
                    one = numpy.tile(numpy.eye(3), (12, 1, 1))
                    one[:, plane[0], plane[0]] = one[:, plane[1], plane[1]] = cos
                    one[:, plane[1], plane[0]], one[:, plane[0], plane[1]] = sin, -sin
                    turn = turn @ one
                expected[..., 3 * i : 3 * i + 3] = numpy.einsum("nab,chnb->chna", turn, x[..., 3 * i : 3 * i + 3])
            kernel = pk.compile("spherical", head_dim=12, turns=turns, **FAST)
            self.near(kernel.encode(x, positions=r), expected, 2e-6)

    def test_dinov3(self):
        """DINOv3's code: coords 2 (p + 1/2) / n - 1, angles 2 pi coords / base^(4j/D), tiled over both halves."""
        x, r = rows(1, 2, 12, 16), 2 * (cells(3, 4) + 0.5) / numpy.array([3, 4]) - 1
        periods = 100.0 ** (4 * numpy.arange(4) / 16)
        angle = 2 * numpy.pi * numpy.concatenate([r[:, :1] / periods, r[:, 1:] / periods], -1)
        kernel = pk.compile("rope_axial", head_dim=16, layout="split", grid=(3, 4), coordinates="signed", cells=(3, 4),
                            factor=2 * numpy.pi, **FAST)  # fmt: skip
        self.near(kernel.encode(x), turned(x, angle, "split"), 2e-6)


class Amplitudes(Formulas):
    def test_xpos(self):
        q, k, t, i = rows(1, 2, 9, 16), rows(1, 2, 9, 16, seed=2), numpy.arange(9) * 7.5 - 20, numpy.arange(8)
        angle = t[:, None] * 1000.0 ** (-i / 8)
        zeta = numpy.repeat(((2 * i / 16 + 0.4) / 1.4) ** (t[:, None] / 64), 2, -1)
        options = {"head_dim": 16, "base": 1000.0, "scale_base": 64.0}
        kernel = pk.compile("xpos", **options, **FAST)
        found = kernel.encode(q, k, positions=t[:, None])
        self.near(found[0], turned(q, angle) * zeta, 2e-6)
        self.near(found[1], turned(k, angle) / zeta, 2e-6)
        self.near(kernel.encode(k=k, positions=t[:, None]), turned(k, angle) / zeta, 2e-6)
        table = kernel.prepare(t[:, None])
        for one, other in zip(kernel.encode(q, k, table=table), found):
            self.assertEqual(one.tobytes(), other.tobytes())
        back = pk.compile("xpos", inverse=True, **options, **FAST).encode(*found, positions=t[:, None])
        self.near(back[0], q, 2e-6)
        self.near(back[1], k, 2e-6)

    def test_temperature(self):
        q, k, t = rows(1, 2, 6, 16), rows(1, 1, 6, 16, seed=2), numpy.array([0, 3, 7, 8191, 8192, 10**6])[:, None]
        kernel = pk.compile("position_temperature", head_dim=16, **FAST)
        found = kernel.encode(q, k, positions=t)
        scale = numpy.log(numpy.floor((t + 1) / 8192) + 1) * 0.1 + 1  # as Llama4TextAttention has it
        self.near(found[0], q * scale, 1e-6)
        self.assertEqual(found[1].tobytes(), k.tobytes())


class Biases(Formulas):
    n = 200

    def scores(self, spec, operands=None, positions=None, k_positions=None, **options):
        """What is added to scores: the logarithm of weights of q = 0, up to a constant of each row."""
        kernel = pk.compile(spec, head_dim=8, value_dim=self.n, **options, **FAST)
        zero = numpy.zeros((1, kernel.heads, self.n, 8), "float32")
        v = numpy.broadcast_to(numpy.eye(self.n, dtype="float32"), (1, kernel.heads, self.n, self.n)).copy()
        place = numpy.arange(self.n, dtype=float)[:, None] if positions is None else positions
        out = kernel.attention(zero, zero, v, place, k_positions=k_positions, operands=operands, scale=1.0)
        return (out[0] if isinstance(out, tuple) else out)[0]

    def softmax(self, bias):
        e = numpy.exp(bias - bias.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    def delta(self):
        return numpy.arange(self.n) - numpy.arange(self.n)[:, None]

    def bucket(self, d, causal):
        """transformers, T5Attention._relative_position_bucket, with numbers in place of tensors."""
        buckets, result = (32, 0) if causal else (16, 16 * (d > 0))
        n, exact = (max(-d, 0) if causal else abs(d)), buckets // 2
        if n < exact:
            return result + n
        place = exact + int(numpy.log(n / exact) / numpy.log(128 / exact) * (buckets - exact) + 1e-9)
        return result + min(place, buckets - 1)

    def test_t5(self):
        table = rows(32, 2)
        for causal in (False, True):
            places = numpy.vectorize(lambda d: self.bucket(d, causal))(self.delta())  # noqa: B023
            bias = table.astype(float)[places].transpose(2, 0, 1)
            found = self.scores("t5", {"relative_attention_bias": table}, heads=2, causal=causal)
            self.near(found, self.softmax(bias), 2e-6)

    def test_t5_buckets(self):
        torch, t5 = self.theirs("t5.modeling_t5")
        for causal in (False, True):
            theirs = t5.T5Attention._relative_position_bucket(torch.tensor(self.delta()), not causal, 32, 128).numpy()
            places = numpy.vectorize(lambda d: self.bucket(d, causal))(self.delta())  # noqa: B023
            self.assertTrue((theirs == places).all())

    def test_kerple(self):
        r1, r2 = numpy.array([0.5, 1.5], "float32"), numpy.array([0.25, 0.001], "float32")
        n, clamped = abs(self.delta()), numpy.maximum(r2, 0.01)[:, None, None]
        logarithmic = -r1[:, None, None] * numpy.log1p(clamped * n)
        power = -r1[:, None, None] * numpy.where(n > 0, numpy.maximum(n, 1e-9) ** clamped, 0)
        for kind, bias in (("logarithmic", logarithmic), ("power", power)):
            found = self.scores("kerple", {"r1": r1, "r2": r2}, heads=2, kind=kind)
            self.near(found, self.softmax(bias.astype(float)), 2e-6)

    def test_fire(self):
        """Li et al., the code of the appendix; the query's own position is a second coordinate, 0 of keys."""
        random, i = numpy.random.default_rng(2), numpy.arange(self.n, dtype=float)
        operands = {
            "c": random.uniform(0.1, 0.5, 1), "threshold": numpy.array([-64.0]), "w1": random.standard_normal(32),
            "b1": random.standard_normal(32), "w2": random.standard_normal((3, 32)), "b2": random.standard_normal(3),
        }  # fmt: skip
        operands = {name: value.astype("float32") for name, value in operands.items()}
        c, threshold, w1, b1, w2, b2 = (value.astype(float) for value in operands.values())
        near = numpy.log(abs(c * (i[:, None] - i)) + 1)
        reach = numpy.log(abs(c * numpy.maximum(i, abs(threshold)))[:, None] + 1) + 1e-6
        hidden = numpy.maximum((near / reach)[..., None] * w1 + b1, 0)
        bias = (hidden @ w2.T + b2).transpose(2, 0, 1)
        place = {"positions": numpy.stack([i, i], -1), "k_positions": numpy.stack([i, 0 * i], -1)}
        self.near(self.scores("fire", operands, heads=3, **place), self.softmax(bias), 4e-6)

    def looks(self, directions, heads, distance=lambda d: d):
        """Fuller et al., appendix, on 5 x 6 patches, a field of view at a time: slope, what it multiplies, and the view
        of each head, as a predicate of (down, right)."""
        everywhere, r = lambda y, x: numpy.ones_like(y, bool), cells(5, 6)  # noqa: E731
        halves = [lambda y, x: y <= 0, lambda y, x: y >= 0, lambda y, x: x <= 0, lambda y, x: x >= 0]
        away, y, x = numpy.hypot(*(r[None] - r[:, None]).transpose(2, 0, 1)), *(r[None] - r[:, None]).transpose(2, 0, 1)
        centre = numpy.broadcast_to(numpy.hypot(*(r - r.mean(0)).T), away.shape)
        quarter = [0.25, 0.0625, 0.015625, 0.00390625]
        views = {
            "none": [(s, distance(away), everywhere) for s in quarter],
            "none1zero3": [(s, distance(away) * (s == 0.25), everywhere) for s in quarter],
            "center": [(s, centre, everywhere) for s in quarter],
            "halves": [(0.5, distance(away), view) for view in halves],
            "zerohalves": [(0, away, view) for view in halves],
        }
        found = [head for word in directions.split("-") for head in views[word]][:heads]
        return (
            numpy.stack([numpy.where(view(y, x), -1.5 * slope * of, -numpy.inf) for slope, of, view in found]),
            centre,
        )

    def test_lookhere(self):
        r, self.n = cells(5, 6), 30
        for words, heads, options, distance in [
            ("none1zero3-zerohalves-center", 12, {}, lambda d: d), ("halves-none", 6, {"distance": "sqrt"}, numpy.sqrt),
            ("halves-none1zero3", 8, {"distance": "square"}, numpy.square),
        ]:  # fmt: skip
            bias, centre = self.looks(words, heads, distance)
            places = {"positions": r}
            if "center" in words:
                places = {"positions": numpy.c_[r, 0 * centre[0]], "k_positions": numpy.c_[r, centre[0]]}
            found = self.scores("lookhere", directions=words, heads=heads, **options, **places)
            self.near(found, self.softmax(bias), 2e-6)
        for words, heads in [("halves", 6), ("none-halves", 6), ("halves-none-zero", 8)]:
            with self.assertRaisesRegex(pk.CompileError, "option 'directions'"):
                pk.compile("lookhere", directions=words, heads=heads, **FAST)

    def test_rounded_table(self):
        """LookHere's biases as its authors keep them, in bfloat16 and with the largest number of that where nothing is
        seen: a table of displacements for relative_bias_table."""
        r, self.n, far = cells(5, 6), 30, -(2 - 2.0**-7) * 2.0**127
        bias, _ = self.looks("halves-none", 6)
        kept = bias.astype("float32").view("uint32") + 0x7FFF + (bias.astype("float32").view("uint32") >> 16 & 1)
        kept = numpy.where(numpy.isinf(bias), far, (kept & 0xFFFF0000).view("float32").astype(float))
        self.assertGreater(numpy.abs(numpy.where(kept == far, 0, kept - numpy.maximum(bias, far))).max(), 1e-3)
        table = numpy.full((9, 11, 6), far, "float32")
        index = (r[:, None] - r[None] + [4, 5]).astype(int)
        table[index[..., 0], index[..., 1]] = kept.transpose(1, 2, 0)
        found = self.scores("relative_bias_table", {"relative_position_bias_table": table}, heads=6, window_h=5,
                            window_w=6, positions=r)  # fmt: skip
        self.near(found, self.softmax(kept), 2e-6)

    def test_sandwich(self):
        """The products of the embeddings themselves, as in the appendix' code."""
        place, i = numpy.arange(self.n)[:, None], numpy.arange(8)
        angle = place / 1e4 ** (2 * i / 16)
        embedded = numpy.concatenate([numpy.sin(angle), numpy.cos(angle)], -1)
        bias = (embedded @ embedded.T)[None] / (numpy.arange(1, 4) * 8 / 3)[:, None, None]
        self.near(self.scores("sandwich", heads=3, embedding_dim=16), self.softmax(bias), 2e-6)


if __name__ == "__main__":
    unittest.main()
