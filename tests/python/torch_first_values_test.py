"""pegen_kernels.torch: what parameters begin with."""
import copy
import io
import math
import unittest

import torch

import pegen_kernels as pk
from pegen_kernels.torch import Attention, Encoding
from torch_shared import FAST, small


def spread(low, high):
    """The deviation of a normal variable of deviation 1 that is cut at these ends."""
    density = [math.exp(-x * x / 2) / math.sqrt(2 * math.pi) for x in (low, high)]
    inside = (math.erf(high / math.sqrt(2)) - math.erf(low / math.sqrt(2))) / 2
    moments = [0 if math.isinf(x) else x * d for x, d in zip((low, high), density)]
    return math.sqrt(1 - (moments[1] - moments[0]) / inside - ((density[0] - density[1]) / inside) ** 2)


class FirstValues(unittest.TestCase):
    """What descriptions state as data, in parameters."""

    def test_stock(self):
        """Every operand of every stock description has first values, by what it states."""
        torch.manual_seed(5)
        for spec in pk.stock():
            kernel, _ = small(spec)
            if not kernel.operands:
                continue
            stated = {operand["name"]: operand["initial"] for operand in kernel.explain()["operands"]}
            module = (Encoding if "encode" in kernel.entries else Attention)(kernel)
            drawn = {name: [value.detach().clone()] for name, value in module.named_parameters()}
            while any(len(several) * several[0].numel() < 2000 for several in drawn.values()):
                module.reset_parameters()
                for name, value in module.named_parameters():
                    drawn[name].append(value.detach().clone())
            for name, several in drawn.items():
                with self.subTest(f"{spec} {name}"):
                    value = torch.stack(several)
                    factor = torch.tensor(stated[name]["factor"]).reshape(stated[name]["factor_shape"])
                    self.assertTrue(value.isfinite().all())
                    kind, plain = stated[name]["distribution"], value / factor
                    if kind == "value":
                        self.assertTrue(torch.equal(value, factor.expand(value.shape).float()))
                    elif kind == "uniform":
                        low, high = stated[name]["low"], stated[name]["high"]
                        self.assertTrue((plain >= low).all() and (plain <= high).all())
                        self.assertLess((plain.mean() - (low + high) / 2).abs(), 0.15 * (high - low))
                    elif kind == "normal":
                        ends = [stated[name].get(end, sign * math.inf) for end, sign in (("low", -1), ("high", 1))]
                        deviation = stated[name]["deviation"] * spread(*(x / stated[name]["deviation"] for x in ends))
                        self.assertLess((plain.std() / deviation - 1).abs(), 0.1)
                    else:
                        self.assertLess((plain.norm(dim=1 + stated[name]["dimension"]) - 1).abs().max(), 1e-5)

    def test_kinds(self):
        from pegen_kernels.torch.initial import draw

        torch.manual_seed(6)
        whole = {"same": [], "factor_shape": [1, 1], "factor": [1]}
        normal = draw({"distribution": "normal", "deviation": 3, **whole}, (200, 50))
        self.assertLess((normal.std() - 3).abs(), 0.1)
        cut = draw({"distribution": "normal", "deviation": 1, "low": -0.5, "high": 2, **whole}, (200, 50))
        self.assertTrue(cut.min() >= -0.5 and cut.max() <= 2 and cut.min() < -0.49 and cut.max() > 1.7)
        self.assertLess((cut.mean() - 0.4476).abs(), 0.03)  # (pdf(-.5) - pdf(2)) / (cdf(2) - cdf(-.5))
        uniform = draw({"distribution": "uniform", "low": 1, "high": 3, **whole, "same": [0]}, (4, 50))
        self.assertTrue(torch.equal(uniform[0], uniform[3]) and uniform.std() > 0.3)
        scaled = {"distribution": "direction", "dimension": 0, "same": [1], "factor_shape": [1, 3], "factor": [1, 2, 4]}
        drawn = draw(scaled, (2, 3))
        self.assertTrue(torch.allclose(drawn.norm(dim=0), torch.tensor([1.0, 2, 4])))
        self.assertTrue(torch.allclose(drawn[:, 1], 2 * drawn[:, 0]))

    def test_reset(self):
        """The first values again, by the same random numbers, in what was built without memory, too."""
        for spec, kind in (("rope_mixed", Encoding), ("care", Encoding), ("relative_bias_table", Attention)):
            options = {"head_dim": 16, "heads": 2, **FAST}
            make = lambda: kind(spec, **options)  # noqa: E731, B023
            torch.manual_seed(9)
            first = make()
            with torch.device("meta"):
                module = make()
            module.to_empty(device="cpu")
            for x in module.parameters():
                torch.nn.init.constant_(x, math.nan)
            torch.manual_seed(9)
            module.reset_parameters()
            for x, y in zip(module.parameters(), first.parameters(), strict=True):
                self.assertTrue(torch.equal(x, y) and x.requires_grad == y.requires_grad)

    def test_reset_what_was_given(self):
        given = torch.rand(2, 2, 8)
        for init in (given, lambda shape: given.reshape(shape), given.tolist()):
            module = Encoding("rope_mixed", heads=2, head_dim=16, init={"freqs": init}, **FAST)
            for of in (module, copy.deepcopy(module)):
                torch.nn.init.zeros_(of.freqs)
                of.reset_parameters()
                self.assertTrue(torch.equal(of.freqs, given))
            file = io.BytesIO()
            torch.save(module, file)
            file.seek(0)
            with self.assertRaisesRegex(pk.ArgumentError, "^init: 'freqs' was given when the module was made"):
                torch.load(file, weights_only=False).reset_parameters()

    def test_comrope_is_rope(self):
        """As ComRoPE's appendix D.1 has it: with these values it is RoPE on halves of the channels."""
        for spec in ("comrope_ap", "comrope_ld"):
            encoding = Encoding(spec, head_dim=16, block=4, **FAST)
            x, positions = torch.randn(1, 1, 6, 16), torch.rand(6, 2) * 9
            made = encoding(x, positions=positions)
            for g in range(4):
                for c in range(2):
                    angle = positions[:, g % 2] * 10000.0 ** (-2 * 2 * (g // 2 * 2 + c) / 16)
                    a, b = x[0, 0, :, 4 * g + 2 * c], x[0, 0, :, 4 * g + 2 * c + 1]
                    turned = torch.stack([angle.cos() * a - angle.sin() * b, angle.sin() * a + angle.cos() * b], -1)
                    self.assertLess((made[0, 0, :, 4 * g + 2 * c : 4 * g + 2 * c + 2] - turned).abs().max(), 1e-5)


if __name__ == "__main__":
    unittest.main()
