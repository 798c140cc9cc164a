"""docs/attention-gallery.md: every description there, against FlexAttention's functions of the same meaning."""
import pathlib
import re
import sys
import tempfile
import unittest
import unittest.mock
import warnings

import torch

try:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
except ImportError:  # before PyTorch 2.5
    sys.exit(77)

from pegen_kernels.torch import Attention

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "attention-gallery.md"
HEADS, TOKENS, WIDTH = 4, 64, 32
DOCUMENT = torch.arange(TOKENS) // 23
PADDING = (torch.arange(TOKENS) >= 50).long()
GATES = torch.linspace(0.1, 5, HEADS * TOKENS).sin().mul(3).reshape(1, HEADS, TOKENS).sub(3).exp().neg().cumsum(-1)
LEAN = torch.linspace(-2, 7, HEADS * TOKENS).sin().reshape(1, HEADS, TOKENS)
HEAT = torch.linspace(-1, 9, HEADS * TOKENS).cos().reshape(1, HEADS, TOKENS)
TABLE = torch.linspace(-1, 1, 65 * HEADS).reshape(65, HEADS).sin()


def plain(s, b, h, i, j):
    return s


def all_seen(b, h, i, j):
    return i == i


def causal(b, h, i, j):
    return i >= j


def row(i):
    return i // 8


def apart(i, j):
    return (i.clamp(2, 5) - j).abs()


def turned(x):
    """RoPE, pairs side by side."""
    angle = torch.arange(TOKENS, dtype=x.dtype)[:, None] * 10000.0 ** (-torch.arange(16, dtype=x.dtype) / 16)
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1).flatten(-2)


def parabola(h, i, j):
    return LEAN[0, h, i] * (j - i) - torch.exp(-LEAN[0, h, i]) * (j - i) ** 2 / 64


# By heading: score_mod, mask_mod, positions of tokens (None: none are needed), and what is done to rows before.
GALLERY = {
    "Softcapping": (lambda s, b, h, i, j: 5 * torch.tanh(s / 5), all_seen, None),
    "Causal mask": (plain, causal, None),
    "Relative position": (lambda s, b, h, i, j: s + 0.1 * (i - j), all_seen, None),
    "ALiBi": (lambda s, b, h, i, j: s + 2.0 ** (-2 * (h + 1)) * (j - i), all_seen, None),
    "Sliding window": (plain, lambda b, h, i, j: (i >= j) & (i - j < 16), None),
    "Dilated sliding window": (plain, lambda b, h, i, j: (i >= j) & (i - j < 24) & ((i - j) % 3 == 0), None),
    "Attention sinks": (plain, lambda b, h, i, j: (i >= j) & ((j < 4) | (i - j < 16)), None),
    "Prefix-LM": (plain, lambda b, h, i, j: (j < 20) | (i >= j), None),
    "Documents": (plain, lambda b, h, i, j: (DOCUMENT[i] == DOCUMENT[j]) & (i >= j), DOCUMENT),
    "Padding": (plain, lambda b, h, i, j: PADDING[j] == 0, PADDING),
    "Documents, given": (plain, lambda b, h, i, j: (DOCUMENT[i] == DOCUMENT[j]) & (i >= j), None),
    "Key padding": (plain, lambda b, h, i, j: PADDING[j] == 0, None),
    "Parabolas, and key padding": (
        lambda s, b, h, i, j: s + parabola(h, i, j) / WIDTH**0.5,
        lambda b, h, i, j: PADDING[j] == 0,
        torch.arange(TOKENS),
    ),
    "Forgetting Transformer": (lambda s, b, h, i, j: s + GATES[0, h, i] - GATES[0, h, j], causal, None),
    "Temperature of each token": (lambda s, b, h, i, j: s * torch.exp(-HEAT[0, h, i]), all_seen, None),
    "Neighbourhood attention": (
        plain,
        lambda b, h, i, j: (apart(row(i), row(j)) <= 2) & (apart(i % 8, j % 8) <= 2),
        None,
    ),
    "Frames": (plain, lambda b, h, i, j: i // 16 >= j // 16, None),
    "A table of lags, learned": (lambda s, b, h, i, j: s + TABLE[(j - i + 32).clamp(0, 64), h], all_seen, None),
    "Temperature by position": (lambda s, b, h, i, j: s * (1 + 0.1 * torch.log(1 + (i + 1) // 16)), all_seen, None),
    "Several at once": (
        lambda s, b, h, i, j: 5 * torch.tanh(s / 5),
        lambda b, h, i, j: (i >= j) & (i - j < 16),
        torch.arange(TOKENS),
        turned,
    ),
}


# What inputs are, and which of the above has their gradients.
INPUTS = {
    "Documents, given": ([DOCUMENT[None, None].float()] * 2, None),
    "Key padding": ([PADDING[None, None].float()], None),
    "Parabolas, and key padding": ([LEAN, PADDING[None, None].float()], None),
    "Forgetting Transformer": ([GATES] * 2, "GATES"),
    "Temperature of each token": ([HEAT], "HEAT"),
}


def exact(q, k, v, score_mod, mask_mod):
    """Attention by score_mod and mask_mod on whole matrices in float64, which has gradients."""
    i, j = torch.arange(TOKENS)[:, None], torch.arange(TOKENS)[None]
    h = torch.arange(HEADS)[:, None, None]
    scores = score_mod(q @ k.transpose(-1, -2) / WIDTH**0.5, 0, h, i, j)
    return scores.masked_fill(~mask_mod(0, h, i, j), -torch.inf).softmax(-1) @ v


class Gallery(unittest.TestCase):
    def test_all(self):
        page = PAGE.read_text(encoding="utf-8")
        examples = re.findall(r"^## (.*?)$.*?^```lua\n(.*?)^```", page, re.M | re.S)
        self.assertEqual([name for name, _ in examples], list(GALLERY))
        for name, source in examples:
            self.assertLessEqual(len(source.strip().splitlines()), 6 + 1, name)  # and the line of `require`
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                self.compare(pathlib.Path(folder) / "example.lua", source, INPUTS.get(name, ([], None)), *GALLERY[name])

    def compare(self, path, source, given, score_mod, mask_mod, place, before=lambda x: x):
        path.write_text(source, encoding="utf-8")
        init = {"bias": TABLE} if "pe.learned" in source else {}
        attention = Attention(path, targets="native", dtypes=["float32"], init=init)
        torch.manual_seed(1)
        rows = [torch.randn(1, HEADS, TOKENS, WIDTH, requires_grad=True) for _ in range(3)]
        weight = torch.randn(1, HEADS, TOKENS, WIDTH)
        q_place = k_place = None if place is None else place[:, None].float()
        if place is PADDING:
            q_place = torch.zeros(TOKENS, 1)
        inputs, name = [x.clone().requires_grad_(given[1] is not None) for x in given[0]], given[1]
        name = "TABLE" if init else name
        out = attention(*rows, q_place, k_place, inputs=inputs)
        gained = torch.autograd.grad(
            (out * weight).sum(), [*rows, *attention.parameters(), *(x for x in inputs if x.requires_grad)]
        )
        if given[1]:  # one tensor is given as both
            gained = [*gained[:3], sum(gained[3:])]

        q, k, v = (x.detach() for x in rows)
        mask = create_block_mask(mask_mod, None, None, TOKENS, TOKENS, device="cpu", BLOCK_SIZE=16)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is not compiled
            flex = flex_attention(before(q), before(k), v, score_mod=score_mod, block_mask=mask)
        self.assertLess((out - flex).abs().max(), 1e-5)

        q, k, v = (x.detach().double().requires_grad_() for x in rows)
        learned = [globals()[name].double().requires_grad_()] if name else []
        with unittest.mock.patch.dict(globals(), {name: learned[0]} if name else {}):
            out = exact(before(q), before(k), v, score_mod, mask_mod)
        right = torch.autograd.grad((out * weight).sum(), [q, k, v, *learned])
        self.assertEqual(len(gained), len(right))
        for x, y in zip(gained, right):
            self.assertLess((x - y).abs().max(), 2e-5)


if __name__ == "__main__":
    unittest.main()
