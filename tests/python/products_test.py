"""Products that are rounded: rows and their gradients are, to the bit, those of PyTorch's operators, which multiply,
round and add. That holds in every number type, and where products are rounded to float32 alone."""
import sys
import unittest

try:
    import torch
except ImportError:
    print("products_test: PyTorch cannot be imported here")
    sys.exit(77)
import pegen_kernels as pk
import pegen_kernels.torch as pt

ROPE = """
local pe = require "pegen"
local layout = pe.option("layout", "interleaved", "pairs", { "interleaved", "split" })
return pe.encoding { name = "rounded", axes = { "t" }, head_dim = 32, block = pe.plane(), layout = layout,
  generators = pe.turn "e12", phase = function(_, i) return 100 ^ (-i / 16) end, products = "rounded" }
"""
TYPES = ("float32", "bfloat16", "float16")


def rotated(x, cosines, sines, layout):
    """As models write it; cosines and sines have the rows' type."""
    if layout == "split":
        cosines, sines = (torch.cat((y, y), -1) for y in (cosines, sines))
        first, second = x.chunk(2, -1)
        return x * cosines + torch.cat((-second, first), -1) * sines
    cosines, sines = (y.repeat_interleave(2, -1) for y in (cosines, sines))
    other = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    return x * cosines + other * sines


class Products(unittest.TestCase):
    def rows(self, dtype, n=16):
        torch.manual_seed(5)
        x = torch.randn(2, 3, 7, 2 * n)
        x[0, 0, 0, :4] = torch.tensor([0.0, -0.0, float("inf"), 2.0**-126])
        angles = torch.randn(2, 1, 7, n) * 30
        return x.to(dtype), angles.cos(), angles.sin()

    def same(self, got, expected):
        both_nan = got.isnan() & expected.isnan()
        equal = (got.view(torch.uint8) == expected.view(torch.uint8)).reshape(*got.shape, -1).all(-1)
        self.assertTrue(bool((equal | both_nan).all()), (got, expected))

    def test_rounded(self):
        for target in ("native", "x86-64-v2"):
            for layout in ("split", "interleaved"):
                kernel = pt.Encoding("cos_sin", defines={"head_dim": 32, "layout": layout}, targets=target)
                for name in TYPES:
                    with self.subTest(target=target, layout=layout, type=name):
                        dtype = getattr(torch, name)
                        x, cosines, sines = self.rows(dtype)
                        x.requires_grad_()
                        given = {"cos": cosines, "sin": sines}
                        expected = rotated(x, cosines.to(dtype), sines.to(dtype), layout)
                        got = kernel(x, None, torch.zeros(7, 1), inputs=given)
                        self.same(got, expected)
                        weights = torch.randn(expected.shape).to(dtype)
                        self.same(*(torch.autograd.grad(y, x, weights)[0] for y in (got, expected)))

    def test_float32(self):
        kernel = pt.Encoding("cos_sin", defines={"head_dim": 32, "products": "float32"}, targets="native")
        for name in TYPES:
            dtype = getattr(torch, name)
            x, cosines, sines = self.rows(dtype)
            got = kernel(x, None, torch.zeros(7, 1), inputs={"cos": cosines, "sin": sines})
            self.same(got, rotated(x.float(), cosines, sines, "split").to(dtype))

    def test_fused_differs(self):
        """What the test could not see if all rounded alike."""
        fused = pt.Encoding("cos_sin", defines={"head_dim": 32, "products": "fused"}, targets="native")
        x, cosines, sines = self.rows(torch.bfloat16)
        got = fused(x, None, torch.zeros(7, 1), inputs={"cos": cosines, "sin": sines})
        self.assertFalse(torch.equal(got, rotated(x, cosines.bfloat16(), sines.bfloat16(), "split")))

    def test_rotors(self):
        """Rotors of a description have entries that are rounded, too; a table holds them unrounded."""
        positions = torch.arange(1.0, 8.0)[:, None]  # at 0 the sine of a rotor may be -0
        for layout, of_first in (("interleaved", slice(0, None, 2)), ("split", slice(0, 16))):
            made = {"defines": {"layout": layout}, "targets": "native"}
            unit = torch.zeros(1, 1, 7, 32)
            unit[..., of_first] = 1
            turned = pt.Encoding(ROPE, **made)(unit, None, positions)[0, 0]
            halves = turned.chunk(2, -1) if layout == "split" else (turned[:, ::2], turned[:, 1::2])
            for name in ("bfloat16", "float16"):
                dtype = getattr(torch, name)
                x = self.rows(dtype)[0]
                expected = rotated(x, *(y.to(dtype) for y in halves), layout)
                self.same(pt.Encoding(ROPE, **made)(x, None, positions), expected)
            kernel = pk.compile(ROPE, **made)
            got = kernel.encode(q=x.numpy(), table=kernel.prepare(positions.numpy()))
            self.same(torch.from_numpy(got), expected)


if __name__ == "__main__":
    unittest.main()
