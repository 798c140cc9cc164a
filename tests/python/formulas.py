"""Descriptions against formulas: what the tests of them share."""
import importlib
import importlib.util
import unittest

import numpy

import pegen_kernels as pk
from kernel_shared import FAST


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
