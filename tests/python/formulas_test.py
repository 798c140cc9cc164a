"""Descriptions against the formulas of their papers or their authors' code, written again in NumPy and float64."""
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


if __name__ == "__main__":
    unittest.main()
