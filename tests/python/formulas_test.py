"""Descriptions against the formulas of their papers or their authors' code, written again in NumPy and float64."""
import importlib
import importlib.util
import json
import subprocess
import unittest

import numpy

import pegen_kernels as pk
from pegen_kernels import _native

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

    def test_double_turn(self):
        """A turn about n = (1, 1, 1)/sqrt 3 by Rodrigues and one of the plane of n and e4 commute: their product."""
        n, r = numpy.ones(3) / 3**0.5, numpy.linspace(-30, 50, 12)
        cross = numpy.array([[0, -n[2], n[1]], [n[2], 0, -n[0]], [-n[1], n[0], 0]])
        parts = {
            "turn": (numpy.cos, numpy.sin, -1, numpy.cos),
            "boost": (numpy.cosh, numpy.sinh, 1, numpy.cosh),
            "slide": (lambda u: 1, lambda u: u, 0, lambda u: 1),
        }
        for with_, (even, odd, back, last) in parts.items():
            for pitch in (1.0, -1.0, 0.4, 0.0):
                x, expected = rows(1, 2, 12, 16), numpy.empty((1, 2, 12, 16))
                for i in range(4):
                    for t, at in enumerate(r):
                        theta = 0.05 * 10000.0 ** (-4 * i / 16) * at
                        u, m, along = pitch * theta, numpy.eye(4), numpy.eye(4)
                        m[:3, :3] += numpy.sin(theta) * cross + (1 - numpy.cos(theta)) * cross @ cross
                        along[:3, :3] += (even(u) - 1) * numpy.outer(n, n)
                        along[3, :3], along[:3, 3], along[3, 3] = odd(u) * n, back * odd(u) * n, last(u)
                        expected[..., t, 4 * i : 4 * i + 4] = x[..., t, 4 * i : 4 * i + 4].astype(float) @ (m @ along).T
                options = {"with": with_, "pitch": pitch, "scale": 0.05}
                kernel = pk.compile("double_turn", head_dim=16, **options, **FAST)
                self.near(kernel.encode(x, positions=r[:, None]), expected, 6e-6)


class Axial(Formulas):
    def test_woven(self):
        """Qwen3-VL: of 8 pairs, 4, 2 and 2 of t, h and w; pair i turns with axis i mod 3 while that has pairs left."""
        x, r = rows(1, 2, 24, 16), cells(2, 3, 4)
        axis = [0, 1, 2, 0, 1, 2, 0, 0]
        angle = r[:, axis] * 5e6 ** (-2 * numpy.arange(8) / 16)
        self.encoded("rope_axial", x, angle, "split", grid=(2, 3, 4), axes=3, arrangement="woven", sections=(4, 2, 2))

    def test_partial(self):
        """12 of 20 channels turn, as those of a head of 12 do; the others pass through."""
        x = rows(1, 2, 24, 20)
        two, three = {"grid": (4, 6), "axes": 2}, {"grid": (2, 3, 4), "axes": 3}
        for options in (
            {"arrangement": "sequential", **three},
            {"arrangement": "sequential", **two, "sections": (4, 2), "order": (1, 0)},
            {"arrangement": "alternating", **two, "layout": "split"},
            {"arrangement": "sections", **three, "sections": (2, 3, 1)},
            {"arrangement": "woven", **three, "sections": (2, 2, 2)},
        ):
            r = cells(*options.pop("grid"))
            whole = pk.compile("rope_axial", head_dim=12, **options, **FAST)
            found = pk.compile("rope_axial", head_dim=20, rotary_dim=12, **options, **FAST).encode(x, positions=r)
            self.near(found[..., :12], whole.encode(x[..., :12], positions=r), 1e-7)
            self.near(found[..., 12:], x[..., 12:], 1e-9)
        for given, words in (
            ({"rotary_dim": 7}, "'rotary_dim' is 7, an even number up to head_dim"),
            ({"rotary_dim": 66}, "'rotary_dim' is 66, an even number up to head_dim"),
            ({"rotary_dim": -2}, "'rotary_dim' is -2, an even number up to head_dim"),
            ({"rotary_dim": 4, "axes": 3}, "'rotary_dim' is 4, at least 6 was expected: a pair of each axis"),
            ({"rotary_dim": 32, "sections": (8, 4)}, "names 12 pairs, the 16 of 'rotary_dim' were"),
            ({"rotary_dim": 32, "sections": (16, 16)}, "names 32 pairs, 1 to 16 were"),
        ):
            with self.assertRaisesRegex(pk.CompileError, words):
                pk.compile("rope_axial", **given, **FAST)

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


class Inputs(Formulas):
    def test_forgetting(self):
        """FoX, equations 3 to 5, of gates and with a cache: queries are the last of the keys."""
        q, k, v = rows(2, 4, 5, 16), rows(2, 2, 9, 16, seed=2), rows(2, 2, 9, 16, seed=3)
        forgets = 1 / (1 + numpy.exp(-3 * rows(2, 4, 9, seed=4).astype(float) - 2))
        expected = numpy.zeros((2, 4, 5, 16))
        for b, h, i in numpy.ndindex(2, 4, 5):
            seen = i + 5  # of 9 keys
            decay = [numpy.prod(forgets[b, h, j + 1 : seen]) for j in range(seen)]
            weight = numpy.exp(k[b, h // 2, :seen].astype(float) @ q[b, h, i] / 4) * decay
            expected[b, h, i] = weight @ v[b, h // 2, :seen] / weight.sum()
        c = numpy.cumsum(numpy.log(forgets), -1).astype("float32")
        kernel = pk.compile("fox", head_dim=16, **FAST)
        found = kernel.attention(q, k, v, inputs={"c": numpy.ascontiguousarray(c[:, :, 4:]), "key_c": c})
        self.near(found, expected, 2e-6)
        with self.assertRaisesRegex(pk.ArgumentError, "expected .2, 2, 9., a row for each of k's .*heads of q"):
            kernel.attention(q, k, v, inputs=[c[:, :, 4:], c[:, :, 4:]])
        with self.assertRaisesRegex(pk.ArgumentError, "expected float32"):
            kernel.attention(q, k, v, inputs=[c[:, :, 4:].astype("float16"), c])

    def test_dual_chunk(self):
        """Distances of the paper's three cases, of chunks of 4 tokens and a trained length of 7."""
        n, s, c, d = 19, 4, 7, 16
        q, k, v = (rows(1, 2, n, d, seed=seed) for seed in (1, 2, 3))
        i, inside = numpy.arange(n), numpy.arange(n) % s
        apart = i[:, None] // s - i // s
        of_query = numpy.where(apart == 0, inside[:, None],
                               numpy.where(apart == 1, numpy.minimum(inside + s, c - 1)[:, None], c - 1))  # fmt: skip
        distance = of_query - inside
        self.assertLess(distance[apart >= 0].max(), c)
        theta = 10000.0 ** (-numpy.arange(0, d, 2) / d)
        scores = numpy.zeros((1, 2, n, n))
        for a, b in numpy.ndindex(n, n):
            scores[:, :, a, b] = (turned(q[:, :, a : a + 1], distance[a, b] * theta, "split")[:, :, 0]
                                  * k[:, :, b]).sum(-1) * d**-0.5  # fmt: skip
        scores[:, :, i[:, None] < i] = -numpy.inf
        weights = numpy.exp(scores - scores.max(-1, keepdims=True))
        expected = weights / weights.sum(-1, keepdims=True) @ v
        place = numpy.stack([i // s, inside, numpy.minimum(inside + s, c - 1), numpy.full(n, c - 1)], 1).astype(float)
        of_keys = numpy.stack([i // s, inside, inside, inside], 1).astype(float)
        kernel = pk.compile("dual_chunk", head_dim=d, **FAST)
        self.near(kernel.attention(q, k, v, place, k_positions=of_keys, causal=True), expected, 3e-6)

    def test_grok(self):
        """Rotations of Grok-1, by its preset (xai-org/grok-1, model.py: halves, base 10000)."""
        words = [_native.program(), "specs", "Grok-1", "--json"]
        found = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
        self.assertEqual([spec["name"] for spec in found], ["rope"])
        options = found[0]["models"][0]["options"]
        x, places = rows(2, 3, 9, 128), numpy.arange(9.0) * 11
        expected = turned(x, places[:, None] * 10000.0 ** (-numpy.arange(0, 128, 2) / 128), "split")
        self.near(pk.compile("rope", **options, **FAST).encode(x, positions=places[:, None]), expected, 2e-6)

    def test_fope(self):
        """Series of frequencies, by the listing of the paper; of which channels without one are left as they are."""
        heads, d, count = 3, 32, 7  # frequencies of at least 2 pi / 350
        kernel = pk.compile("fope", head_dim=d, heads=heads, trained=350, **FAST)
        x, places = rows(2, heads, 9, d), numpy.arange(9.0) * 7
        made = numpy.abs(rows(2, heads, count, d // 4, seed=3).astype(float)) / 8 + numpy.eye(count, d // 4)
        cosines, sines = made / made.sum(-2, keepdims=True)
        omega = 10000.0 ** (-numpy.arange(0, d, 2) / d)
        self.assertEqual((omega >= 2 * numpy.pi / 350).sum(), count)
        angle = places[:, None] * omega[:count]
        fourier_sin, fourier_cos = numpy.sin(angle) @ sines, numpy.cos(angle) @ cosines  # [H,N,D/4]
        n = min(count, d // 4)
        fourier_sin, fourier_cos = fourier_sin[..., :n], fourier_cos[..., :n]
        first, second = x[..., :n].astype(float), x[..., d // 2 : d // 2 + n].astype(float)
        expected = x.astype(float)
        expected[..., :n] = first * fourier_cos - second * fourier_sin
        expected[..., d // 2 : d // 2 + n] = second * fourier_cos + first * fourier_sin
        operands = {"cosines": cosines[..., :n].astype("float32"), "sines": sines[..., :n].astype("float32")}
        self.near(kernel.encode(x, positions=places[:, None], operands=operands), expected, 1e-5)

    def test_repo(self):
        q, k, places = rows(2, 3, 9, 16), rows(2, 3, 9, 16, seed=2), 100 * rows(2, 3, 9, seed=3)
        kernel = pk.compile("repo", head_dim=16, **FAST)
        angle = places[..., None].astype(float) * 10000.0 ** (-numpy.arange(0, 16, 2) / 16)
        for one, row in zip(kernel.encode(q, k, positions=numpy.zeros((9, 1)), inputs=[places]), (q, k)):
            self.near(one, turned(row, angle, "split"), 2e-6)

    def test_wire(self):
        """Nodes of a graph, at what the lowest eigenvectors of its Laplacian are there; of a line graph, RoPE-like."""
        edges = numpy.triu(rows(9, 9, seed=4) > 0.3, 1)
        adjacent = (edges | edges.T).astype(float)
        spectrum = numpy.linalg.eigh(numpy.diag(adjacent.sum(0)) - adjacent)[1][:, 1:6]
        freqs, x = 3 * rows(5, 2, 8, seed=5), rows(2, 2, 9, 16)
        kernel = pk.compile("rope_mixed", axes=5, heads=2, head_dim=16, **FAST)
        angle = numpy.einsum("np,phj->hnj", spectrum, freqs.astype(float))
        found = kernel.encode(x, positions=spectrum, operands=[freqs.reshape(5, 2, 8)])
        self.near(found, turned(x, angle), 2e-6)

    def test_selective(self):
        q, k = rows(2, 3, 9, 16), rows(2, 3, 9, 16, seed=2)
        chosen = numpy.cumsum(rows(2, 3, 9, 8, seed=3).astype(float) * 3, axis=2).astype("float32")
        kernel = pk.compile("selective_rope", head_dim=16, layout="split", **FAST)
        found = kernel.encode(q, k, positions=numpy.zeros((9, 1)), inputs=[chosen])
        for one, row in zip(found, (q, k)):
            self.near(one, turned(row, chosen.astype(float), "split"), 2e-6)
        with self.assertRaisesRegex(pk.ArgumentError, "go in two calls"):
            kernel.encode(q, k[:, :1], positions=numpy.zeros((9, 1)), inputs=[chosen])
        with self.assertRaisesRegex(pk.ArgumentError, "expected float32"):
            kernel.encode(q, positions=numpy.zeros((9, 1)), inputs=[chosen.astype("float16")])

    def test_sums_of_angles(self):
        q, omega = rows(1, 2, 4096, 16), rows(1, 2, 4096, 8, seed=3) + numpy.float32(2)
        exact = numpy.cumsum(omega.astype(float), axis=2)
        angle = pk.scan(omega, period=2 * numpy.pi)  # of thousands of radians: less whole turns, in float32
        self.assertEqual((angle.dtype, abs(angle).max() < 3.1416), ("float32", True))
        kernel = pk.compile("selective_rope", head_dim=16, **FAST)
        place = numpy.zeros((4096, 1))
        self.near(kernel.encode(q, positions=place, inputs=[angle]), turned(q, exact), 3e-6)
        first, state = pk.scan(omega[:, :, :1000], with_state=True)
        rest, _ = pk.scan(omega[:, :, 1000:], state, with_state=True)
        whole = pk.scan(omega, threads=3)
        self.assertTrue(numpy.array_equal(numpy.concatenate([first, rest], 2), whole))
        bounds = numpy.array([0, 1000, 1000, 4096], "int32")
        apart, states = pk.scan(omega, cu_seqlens=bounds, dtype="float64", with_state=True)
        self.assertTrue(numpy.array_equal(apart[:, :, :1000].astype("float32"), first))
        self.assertTrue(numpy.array_equal(apart[:, :, 1000:], numpy.cumsum(omega[:, :, 1000:].astype(float), axis=2)))
        self.assertTrue(numpy.array_equal(states[0], state[0]) and not states[1].any())
        self.assertTrue(numpy.array_equal(states[2], apart[0, :, -1]))
        self.assertIs(pk.scan(omega, reverse=True, out=omega), omega)
        for refused, given in [
            ("x has 2 dimensions", (place,)),
            ("x is of type int64", (numpy.zeros((1, 1, 3), "int64"),)),
            ("state is float32", (q, numpy.zeros((1, 2, 16), "float32"))),
            ("state is float64", (q, numpy.zeros((1, 2, 15)))),
        ]:
            with self.assertRaisesRegex(pk.ArgumentError, refused):
                pk.scan(*given)
        for refused, named in [
            ("period is -1", {"period": -1}),
            ("cu_seqlens is of type int64; expected int32", {"cu_seqlens": bounds.astype("int64")}),
            ("cu_seqlens ends at [0-9]+; expected [0-9]+, the rows of x; rows behind", {"cu_seqlens": bounds[:3]}),
            ("cu_seqlens falls from", {"cu_seqlens": bounds - numpy.array([0, 0, 1, 0], "int32")}),
            ("dtype is 'float16'", {"dtype": "float16"}),
            ("out is of type float32", {"dtype": "float64", "out": q}),
            ("overlaps", {"out": q[..., ::-1, :]}),
        ]:
            with self.assertRaisesRegex(pk.ArgumentError, refused):
                pk.scan(q, **named)

    def test_pope(self):
        """PoPE (Gopalakrishnan et al.): a channel is a pair of its softplus and the angle, of keys with a phase."""
        heads, n, d = 2, 9, 8
        content, delta = rows(2, heads, n, d), (3 * rows(heads, d, seed=5) - 3).astype("float32")
        kernel = pk.compile("pope", channels=d, heads=heads, **FAST)
        pair = numpy.broadcast_to(numpy.tile(numpy.array([1, 0], "float32"), d), (2, heads, n, 2 * d))
        t, theta = numpy.arange(n), 10000.0 ** (-numpy.arange(d) / d)
        length = numpy.log1p(numpy.exp(content.astype(float)))
        for is_key in (0, 1):
            angle = t[:, None] * theta + is_key * numpy.clip(delta.astype(float), -2 * numpy.pi, 0)[:, None, :]
            expected = numpy.stack([length * numpy.cos(angle), length * numpy.sin(angle)], -1).reshape(
                2, heads, n, 2 * d
            )
            places = numpy.stack([t, numpy.full(n, is_key)], 1).astype(float)
            found = kernel.encode(pair, positions=places, operands=[delta], inputs=[content])
            self.near(found, expected, 2e-6)

    def test_mhrope(self):
        q, k = rows(1, 8, 5, 16), rows(1, 4, 5, 16, seed=2)
        places = numpy.random.default_rng(3).integers(0, 99, (5, 3))
        kernel = pk.compile("mhrope", head_dim=16, heads=4, sections=(1, 2, 0), base=500.0, **FAST)
        found = kernel.encode(q, k, positions=places)
        theta = 500.0 ** (-2 * numpy.arange(8) / 16)
        for one, row in zip(found, (q, k)):
            group = row.shape[1] // 4
            for head in range(row.shape[1]):
                axis = (0, 1, 1, None)[head // group]
                angle = numpy.zeros((5, 8)) if axis is None else places[:, axis, None] * theta
                self.near(one[:, head], turned(row[:, head], angle, "split"), 2e-6)
        with self.assertRaisesRegex(pk.CompileError, "names 9 heads, at most the 8"):
            pk.compile("mhrope", sections=(3, 3, 3), **FAST)

    def test_geope_video(self):
        """Time's channels are RoPE's and space's GeoPE's, each as its own kernel has it at the first frequencies."""
        x, places = rows(1, 2, 24, 29), cells(2, 3, 4)
        for layout in ("interleaved", "split"):
            kernel = pk.compile("geope_video", head_dim=29, heads=2, time_dim=8, layout=layout, **FAST)
            time = numpy.tile(10000.0 ** (-2 * numpy.arange(4) / 8), (2, 1)).astype("float32")
            space = numpy.tile(100.0 ** (2 * numpy.arange(7) / 21), (2, 2, 1)).astype("float32")
            found = kernel.encode(x, positions=places, operands={"time": time, "space": space})
            self.near(found[..., :8], turned(x[..., :8], places[:, :1] * time[0].astype(float), layout), 2e-6)
            geope = pk.compile("geope2d", head_dim=21, layout=layout, **FAST)
            self.near(found[..., 8:], geope.encode(x[..., 8:], positions=places[:, 1:]), 1e-5)
        for given in (27, 28):
            with self.assertRaisesRegex(pk.CompileError, f"is {given}, an even number from 2 to head_dim - 3"):
                pk.compile("geope_video", head_dim=29, time_dim=given, **FAST)

    def test_grape(self):
        q, t = rows(1, 2, 7, 12), numpy.arange(7)
        freq = numpy.exp(0.3 * rows(2, 6, seed=4) - 1)
        planes = pk.compile("grape_m", head_dim=12, heads=2, **FAST)
        angle = -t[:, None] * freq.astype(float)[:, None, :]
        self.near(planes.encode(q, positions=t[:, None], operands=[freq]), turned(q, angle, "split"), 2e-6)
        a, b = rows(2, 3, 12, seed=5), rows(2, 3, 12, seed=6)  # three rank-2 generators a head
        raw = (0.1 * numpy.einsum("hrx,hry->hxy", a, b)).astype("float32")
        mixture = pk.compile("grape_m", kind="mixture", head_dim=12, heads=2, **FAST)
        found = mixture.encode(q, positions=t[:, None], operands=[raw[:, None]])
        for head in range(2):
            values, vectors = numpy.linalg.eigh(1j * (raw[head].astype(float) - raw[head].T))
            for n in t:
                matrix = ((vectors * numpy.exp(-1j * n * values)) @ vectors.conj().T).real
                self.near(found[0, head, n], matrix @ q[0, head, n].astype(float), 1e-5)

    def test_damped_boosts(self):
        """HoPE: a query falls and a key grows, so that scores fall with the distance."""
        q, k, t = rows(1, 1, 6, 8), rows(1, 1, 6, 8, seed=2), numpy.arange(6.0)
        options = {"head_dim": 8, "scale": 0.1, "damping": 1.5}
        same = {**options, "sides": "same"}
        queries = pk.compile("boosts", **same, **FAST).encode(q, positions=t[:, None])
        keys = pk.compile("boosts", inverse=True, **same, **FAST).encode(k, positions=t[:, None])
        for x, y in zip(pk.compile("boosts", **options, **FAST).encode(q, k, t[:, None]), (queries, keys)):
            self.near(x, y.astype(float), 1e-6)
        theta = 0.1 * 10000.0 ** (-numpy.arange(4) / 4)
        u = (t[:, None] - t)[..., None] * theta
        x, y = q[0, 0].astype(float).reshape(6, 1, 4, 2), k[0, 0].astype(float).reshape(1, 6, 4, 2)
        products = numpy.cosh(u) * (x * y).sum(-1) - numpy.sinh(u) * (x[..., 0] * y[..., 1] + x[..., 1] * y[..., 0])
        expected = (numpy.exp(-0.15 * (t[:, None] - t))[..., None] * products).sum(-1)
        self.near(queries[0, 0].astype(float) @ keys[0, 0].astype(float).T, expected, 1e-5)
        with self.assertRaisesRegex(pk.CompileError, "0 or a number above 1"):
            pk.compile("boosts", damping=0.5, **FAST)

    def test_axes_of_three_vectors(self):
        """CARE and QuatRo with three axes and with one: the kernel of three is the product of those of one."""
        places = rows(6, 3, seed=3).astype(float)
        axis, freq, theta = rows(3, 1, 2, 3, seed=4), rows(3, 1, 2, seed=5), rows(3, 1, 5, 3, seed=6)
        axis /= numpy.linalg.norm(axis, axis=-1, keepdims=True)
        for name, order, operands in [
            ("care", (0, 1, 2), (axis, freq)), ("quatro", (2, 1, 0), (theta,)),
        ]:  # fmt: skip
            x = rows(1, 1, 6, 16)
            found = pk.compile(name, axes=3, head_dim=16, **FAST).encode(x, positions=places, operands=list(operands))
            one = pk.compile(name, axes=1, head_dim=16, **FAST)
            for a in order:  # the first acts first
                x = one.encode(x, positions=places[:, a : a + 1], operands=[w[a : a + 1] for w in operands])
            self.near(found, x, 5e-6)

    def test_carope(self):
        x, q = rows(1, 2, 9, seed=4).astype(float), rows(1, 2, 9, 16)
        f = 1 / (1 + numpy.log1p(numpy.exp(x)))
        phase = numpy.cumsum(f[..., None] ** numpy.arange(8), axis=2).astype("float32")
        kernel = pk.compile("carope", head_dim=16, **FAST)
        self.near(
            kernel.encode(q, positions=numpy.zeros((9, 1)), inputs={"phase": phase}),
            turned(q, phase.astype(float)),
            2e-6,
        )
        alike = numpy.cumsum(numpy.full((1, 1, 9, 1), 0.5) ** numpy.arange(8), axis=2).astype("float32")
        rope = numpy.arange(1, 10)[:, None] * 0.5 ** numpy.arange(8)  # one f for all tokens, and heads
        self.near(kernel.encode(q, positions=numpy.zeros((9, 1)), inputs=[alike]), turned(q, rope), 2e-6)


class Matrices(Formulas):
    """Blocks whose matrix a description writes: the formula again, and gradients as differences of it."""

    def test_tiled_angles(self):
        """V-JEPA 2, as transformers has its code (rotate_queries_or_keys): frequencies repeated as a list."""
        for d in (64, 20):
            n, r = d // 3 // 2 * 2, cells(2, 3, 4)
            x = rows(1, 2, 24, d)
            expected = x.astype(float)
            for axis in range(3):
                own = expected[..., axis * n : (axis + 1) * n].copy()
                angle = numpy.tile(r[:, axis : axis + 1] / 10000.0 ** (numpy.arange(n // 2) / (n / 2)), 2)
                swapped = numpy.stack([-own[..., 1::2], own[..., 0::2]], -1).reshape(own.shape)
                expected[..., axis * n : (axis + 1) * n] = own * numpy.cos(angle) + swapped * numpy.sin(angle)
            self.near(pk.compile("vjepa2", head_dim=d, **FAST).encode(x, positions=r), expected, 2e-6)
        r = cells(4, 4, 4)
        paired = pk.compile("vjepa2", head_dim=24, angles="paired", **FAST)
        axial = pk.compile("rope_axial", axes=3, head_dim=24, base=10000.0, **FAST)
        x = rows(1, 1, 64, 24)
        self.near(paired.encode(x, positions=r), axial.encode(x, positions=r), 2e-6)

    def test_tiled_angles_of_transformers(self):
        torch, vjepa2 = self.theirs("vjepa2.modeling_vjepa2")
        x, r = rows(1, 2, 9, 20), numpy.arange(9.0)
        theirs = vjepa2.rotate_queries_or_keys(torch.from_numpy(x).double(), torch.from_numpy(r).double()).numpy()
        places = numpy.stack([r, 0 * r, 0 * r], -1)
        found = pk.compile("vjepa2", head_dim=60, **FAST).encode(numpy.concatenate(3 * [x], -1), positions=places)
        self.near(found[..., :20], theirs, 2e-6)
        self.near(found[..., 20:], numpy.concatenate(2 * [x], -1), 1e-7)

    def test_cut(self):
        """The RoPE of PaPE's code: zeros behind the head up to a multiple of 2 P, halves turned, their place cut."""
        for d, p, r in [
            (64, 3, cells(2, 3, 4)),
            (62, 3, cells(2, 3, 4)),
            (30, 2, cells(4, 6)),
            (24, 3, cells(2, 3, 4)),
        ]:
            n = -(-d // (2 * p)) * 2 * p
            x = rows(1, 2, 24, d)
            frequency = 10000.0 ** (-numpy.linspace(0, n - 2 * p, n // 2 // p) / n)
            padded = numpy.concatenate([x, numpy.zeros((1, 2, 24, n - d))], -1)
            expected = turned(padded, (r[..., None] * frequency).reshape(24, -1), "split")[..., :d]
            self.near(pk.compile("rope_cut", axes=p, head_dim=d, **FAST).encode(x, positions=r), expected, 2e-6)
        with self.assertRaisesRegex(pk.CompileError, "an even number"):
            pk.compile("rope_cut", head_dim=63, **FAST)

    def test_cameras(self):
        """PRoPE: D of a token by Kronecker products; of q D^T, of k and v D^-1, of outputs D."""
        d, n, m = 16, 6, 2
        pose, places = rows(1, 1, n, 4, 4, seed=3), cells(2, 3)
        pose[..., 3, :] = [0, 0, 0, 1]
        back = numpy.linalg.inv(pose.astype(float)).astype("float32")
        x, y = (rows(1, 2, n, d, seed=i) for i in (1, 2))

        def whole(r, camera):
            """Columns of D: those of cameras, then quarters of x and y, whose pairs are (j, j + m)."""
            result = numpy.zeros((d, d))
            result[: d // 2, : d // 2] = numpy.kron(numpy.eye(m), camera)
            for quarter, place in enumerate(r):
                for j in range(m):
                    first = d // 2 + quarter * 2 * m + j
                    c, s = numpy.cos(place * 100.0 ** (-j / m)), numpy.sin(place * 100.0 ** (-j / m))
                    pair = [first, first + m]
                    result[numpy.ix_(pair, pair)] = [[c, -s], [s, c]]
            return result

        inputs = {"camera": pose.reshape(1, 1, n, 16), "camera_inverse": back.reshape(1, 1, n, 16)}
        q, k = pk.compile("prope", head_dim=d, **FAST).encode(x, y, places, inputs=inputs)
        out = pk.compile("prope", head_dim=d, rows="out", **FAST).encode(
            x, positions=places, inputs={"camera": inputs["camera"]}
        )
        for i in range(n):
            own = whole(places[i], pose[0, 0, i].astype(float))
            inverse = numpy.linalg.inv(own)
            self.near(q[0, :, i], x[0, :, i].astype(float) @ own, 2e-5)
            self.near(k[0, :, i], y[0, :, i].astype(float) @ inverse.T, 2e-5)
            self.near(out[0, :, i], x[0, :, i].astype(float) @ own.T, 2e-5)

    def test_gradients(self):
        """Gradients of rows of each side, and by a table those of an operand, from what encode read."""
        kernel = pk.compile(DECAY, **FAST)
        x, y, g = (rows(1, 2, 5, 4, seed=i) for i in (1, 2, 3))
        t, gate = numpy.arange(5.0)[:, None], (0.1 * rows(2, 4, seed=4)).astype("float32")
        self.assertTrue(kernel.needs_input)
        rate = numpy.log1p(numpy.exp(gate.astype(float)))[:, None, :] * t
        table = kernel.prepare(t, operands=[gate])
        sums = kernel.gradient_table(t, operands=[gate])
        q_gain, k_gain = kernel.encode_backward(g, g, table=table, gradients=sums, q=x, k=y)
        self.near(q_gain, g * numpy.exp(-rate), 2e-6)
        self.near(k_gain, g * numpy.exp(rate), 2e-6)
        found = kernel.prepare_backward(sums, t, operands=[gate])
        slope = 1 / (1 + numpy.exp(-gate.astype(float)))
        gained = (g.astype(float) * (y * numpy.exp(rate) - x * numpy.exp(-rate)))[0]
        self.near(found.operands["gate"], (gained * t).sum(1) * slope, 2e-5)


class SecondHeads(Formulas):
    def test_imaginary(self):
        """RoPE++: sines in place of cosines, of complex numbers."""
        t, theta = numpy.arange(7), 10000.0 ** (-numpy.arange(4) / 4)
        q, k = rows(1, 1, 7, 8), rows(1, 1, 7, 8, seed=2)
        z, w = (x[0, 0, :, :4].astype(float) + 1j * x[0, 0, :, 4:] for x in (q, k))
        turns = numpy.exp(1j * (t[:, None] - t)[..., None] * theta)
        products = numpy.einsum("id,jd,ijd->ij", z, w.conj(), turns)
        kernel = pk.compile("rope_plus", head_dim=8, **FAST)
        of_head = lambda x, second: kernel.encode(x, positions=numpy.stack([t, 0 * t + second], -1))[0, 0]  # noqa: E731
        keys = of_head(k, 0).astype(float).T
        self.near(of_head(q, 0) @ keys, products.real, 5e-6)
        self.near(of_head(q, 1) @ keys, products.imag, 5e-6)


DECAY = """local pe = require "pegen"
local gate = pe.learned { name = "gate", shape = { "heads", "blocks" }, doc = "before the softplus" }
local function by(sign)
  return function(r, i, head) return { { pe.exp(sign * pe.softplus(gate(head, i)) * r.t) } } end
end
return pe.encoding { name = "decay", axes = { "t" }, head_dim = 4, heads = 2, block = pe.linear(1),
  matrix = { q = by(-1), k = by(1) } }
"""

FORGETTING = """local pe = require "pegen" -- tokens stand where the sums of their gates' logarithms are
return pe.encoding { name = "forgetting", axes = { "forgotten" }, head_dim = 8, value_dim = 8,
  bias = function(delta) return -delta.forgotten end }
"""


class Gates(Formulas):
    def test_forgetting(self):
        """FoX (Lin et al.), heads as batches: by the formula, d_ij the sum of log f_l over j < l <= i."""
        n, heads = 70, 3
        q, k, v = (rows(1, heads, n, 8, seed=i) for i in range(3))
        gates = numpy.log(1 / (1 + numpy.exp(-rows(1, heads, n, seed=4) - 1)))
        places = pk.scan(gates, dtype="float64").reshape(heads, n)
        kernel = pk.compile(FORGETTING, **FAST)
        by_head = [x.reshape(heads, 1, n, 8) for x in (q, k, v)]
        found = kernel.attention(*by_head, places, causal=True).reshape(1, heads, n, 8)
        d = numpy.array([[[gates[0, h, j + 1 : i + 1].astype(float).sum() for j in range(n)] for i in range(n)]
                         for h in range(heads)])  # fmt: skip
        scores = numpy.einsum("bhic,bhjc->bhij", q.astype(float), k) / numpy.sqrt(8) + d
        weights = numpy.where(numpy.tri(n, dtype=bool), numpy.exp(scores), 0)
        self.near(found, weights / weights.sum(-1, keepdims=True) @ v, 2e-6)


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
            with self.assertRaisesRegex(pk.CompileError, "'directions'"):
                pk.compile("lookhere", directions=words, heads=heads, **FAST)

    def test_relative_rows(self):
        """Transformer-XL's scores as NeMo's and its authors' code has them, [N,2N-1] products that are shifted; those
        of causal layers; and Shaw's, whose distances are clipped."""
        self.n, n, d = 30, 30, 16
        q, k, v, places = *rows(3, 1, 2, n, d), numpy.arange(n, dtype=float)[:, None]
        wide = lambda x: x.astype(float)  # noqa: E731
        u, v_bias, table = rows(2, 1, d, seed=7), rows(2, 1, d, seed=8), rows(2, 2 * n - 1, d, seed=9)
        products = numpy.einsum("bhic,hrc->bhir", wide(q + v_bias), table)
        padded = numpy.pad(products, ((0, 0), (0, 0), (0, 0), (1, 0))).reshape(1, 2, 2 * n, n)
        shifted = padded[:, :, 1:].reshape(1, 2, n, 2 * n - 1)[..., :n]
        content = numpy.einsum("bhic,bhjc->bhij", wide(q + u), k)
        past = numpy.where(self.delta() <= 0, 0, -numpy.inf)
        for behind, ahead, hidden in ((n - 1, n - 1, 0), (n - 1, 0, past)):
            kernel = pk.compile("relative_rows", head_dim=d, behind=behind, ahead=ahead, **FAST)
            given = products[..., : behind + ahead + 1].astype("float32")
            out = kernel.attention(q + u, k, v, places, inputs=[given], causal=ahead == 0)
            self.near(out, self.softmax((content + shifted) / d**0.5 + hidden) @ v, 5e-6)
        clipped = rows(2, 9, d, seed=10)
        index = numpy.clip(self.delta(), -4, 4).astype(int) + 4
        scores = numpy.einsum("bhic,bhjc->bhij", wide(q), k)
        scores += numpy.einsum("bhic,hijc->bhij", wide(q), clipped[:, index])
        kernel = pk.compile("relative_rows", head_dim=d, behind=4, ahead=4, **FAST)
        found = kernel.attention(q, k, v, places, inputs=[numpy.einsum("bhic,hrc->bhir", q, clipped)])
        self.near(found, self.softmax(scores / d**0.5) @ v, 5e-6)
        for name in ("behind", "ahead"):
            with self.assertRaisesRegex(pk.CompileError, f"option '{name}' is -1, 0 or more tokens were"):
                pk.compile("relative_rows", **{name: -1}, **FAST)

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

    def test_gated(self):
        """Additive GRAPE: slopes that tokens gate, of queries, of keys or of both."""
        self.n, n = 40, 40
        slope = numpy.abs(rows(2, seed=7))
        query, key = rows(1, 2, n, seed=8), rows(1, 2, n, seed=9)
        softplus = lambda x: numpy.log1p(numpy.exp(x.astype(float)))[0]  # noqa: E731
        q, k, v = (rows(1, 2, n, 8, seed=i) for i in (1, 2, 3))
        for gates, factor in [
            ("none", numpy.ones((2, n, n))), ("query", softplus(query)[..., None] + numpy.zeros(n)),
            ("key", softplus(key)[:, None, :] + numpy.zeros((n, 1))),
            ("both", softplus(query)[..., None] + softplus(key)[:, None, :]),
        ]:  # fmt: skip
            kernel = pk.compile("grape_a", gates=gates, heads=2, head_dim=8, **FAST)
            given = {"query": {"query_gate": query}, "key": {"key_gate": key}}
            inputs = {**given.get(gates, {}), **(given["query"] | given["key"] if gates == "both" else {})}
            out = kernel.attention(q, k, v, numpy.arange(n, dtype=float)[:, None], operands=[slope], causal=True,
                                   inputs=inputs or None)  # fmt: skip
            scores = numpy.einsum("bhic,bhjc->bhij", q.astype(float), k) / numpy.sqrt(8)
            scores = scores + self.delta() * slope[:, None, None].astype(float) * factor
            scores = numpy.where(self.delta() <= 0, scores, -numpy.inf)
            self.near(out[0] if isinstance(out, tuple) else out, self.softmax(scores) @ v, 5e-6)

    def test_sandwich(self):
        """The products of the embeddings themselves, as in the appendix' code."""
        place, i = numpy.arange(self.n)[:, None], numpy.arange(8)
        angle = place / 1e4 ** (2 * i / 16)
        embedded = numpy.concatenate([numpy.sin(angle), numpy.cos(angle)], -1)
        bias = (embedded @ embedded.T)[None] / (numpy.arange(1, 4) * 8 / 3)[:, None, None]
        self.near(self.scores("sandwich", heads=3, embedding_dim=16), self.softmax(bias), 2e-6)


if __name__ == "__main__":
    unittest.main()
