"""Descriptions against the formulas of their papers or their authors' code, written again in NumPy and float64."""
import unittest

import numpy

import pegen_kernels as pk
from formulas import Formulas, cells, turned
from kernel_shared import FAST, rows


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


DECAY = """local pe = require "pegen"
local gate = pe.learned { name = "gate", shape = { "heads", "blocks" }, doc = "before the softplus" }
local function by(sign)
  return function(r, i, head) return { { pe.exp(sign * pe.softplus(gate(head, i)) * r.t) } } end
end
return pe.encoding { name = "decay", axes = { "t" }, head_dim = 4, heads = 2, block = pe.linear(1),
  matrix = { q = by(-1), k = by(1) } }
"""


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


if __name__ == "__main__":
    unittest.main()
