#!/usr/bin/env python3
"""What docs/checkpoints.md says: each of its figures is a model's own code with random weights, held against the kernel
of the command beside it. A difference of more than twice what is written there fails; --write measures anew.
"""
import copy
import math
import re
import sys
import unittest

import torch
from checkpoints import LANGUAGE, REST, ROOT, Used, apart, cells, language, of_llama, other, places, rows

import diffusers
from diffusers.models.embeddings import apply_rotary_emb

sys.path.insert(0, str(ROOT / "examples"))
import diffusers_flux  # noqa: E402

PAGE = ROOT / "docs" / "checkpoints.md"
FAR = re.compile("(these of all models within )([0-9.e-]+[0-9])")


def figure(number):
    """Two digits, rounded up."""
    step = 10.0 ** (math.floor(math.log10(number)) - 1)
    return f"{math.ceil(number / step) * step:.1e}".replace("e-0", "e-")


def tables():
    """The page's rows as this measures them: names to cells, of which figures are numbers; and one more figure, the
    largest difference of rounded phases."""
    near, far = zip(*map(language, LANGUAGE))
    found = {model: [f"`{Used(model).command}`", figure] for model, figure in zip(LANGUAGE, near)}
    return found, {model: list(other(model)) for model in REST}, max(far)


def lines(table):
    show = lambda cell: figure(cell) if isinstance(cell, float) else str(cell)  # noqa: E731
    for model, row in table.items():
        yield " | ".join(["| " + model, *map(show, row)]) + " |"


def written(page):
    """Rows of the page's tables that this makes, by the model's name."""
    cells = [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in page.splitlines()
        if line.startswith("| ") and re.search("[|] `[a-z0-9_]+( [a-z_]+=[^ ]+)*` [|]", line)
    ]
    return {row[0]: row[1:] for row in cells}


class Page(unittest.TestCase):
    def test_figures(self):
        page, (found, rest, far) = written(PAGE.read_text()), tables()
        found.update(rest)
        self.assertLess(far, 2 * float(FAR.search(PAGE.read_text())[2]))
        self.assertEqual(list(page), list(found))
        for model, row in found.items():
            for cell, there in zip(row, page[model]):
                if isinstance(cell, float):
                    self.assertLess(cell, 2 * float(there), f"{model}: {cell:.2e} is no longer {there}")
                else:
                    self.assertEqual(there, cell, model)

    def test_rounded_axes(self):
        """M-RoPE with the model's own frequencies and phases rounded as there, to 131071."""
        for model in "Qwen2-VL", "Qwen3-VL", "Qwen3.5":
            how, *more = REST[model]
            with self.subTest(model=model):
                self.assertLess(how(f"{model} (rounded phases)", *more, last=131071)[1], 2e-6)

    def test_rounding_tells(self):
        """What phases of float64 are apart from a model's own at 10^5, which rounded ones are not."""
        used, rotation, x = Used("Llama 2"), of_llama(), rows(1, 2, 96, 128)
        self.assertGreater(apart(used.encoded(x, places(131071)), rotation.turn(x, places(131071))), 1e-3)


def small_flux():
    """A FLUX with random weights, and what it is called with."""
    torch.manual_seed(0)
    model = diffusers.FluxTransformer2DModel(in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16,
                                             num_attention_heads=2, joint_attention_dim=32, pooled_projection_dim=8,
                                             axes_dims_rope=(4, 6, 6))  # fmt: skip
    return model, {"hidden_states": torch.randn(1, 35, 4), "encoder_hidden_states": torch.randn(1, 3, 32),
                   "pooled_projections": torch.randn(1, 8), "timestep": torch.tensor([0.5]), "guidance": None,
                   "img_ids": cells(1, 5, 7), "txt_ids": torch.zeros(3, 3), "return_dict": False}  # fmt: skip


class Example(unittest.TestCase):
    def test_flux(self):
        """examples/diffusers_flux.py: the same outputs and gradients; a model that was not asked stays as it is."""
        off = lambda x, y: float((x - y).detach().abs().max())  # noqa: E731
        self.addCleanup(setattr, diffusers_flux.transformer_flux, "apply_rotary_emb", apply_rotary_emb)
        model, given = small_flux()
        rotated = copy.deepcopy(model)
        diffusers_flux.use_pegen(rotated)
        made = rotated.pos_embed
        diffusers_flux.use_pegen(rotated)
        self.assertIs(rotated.pos_embed, made)
        outputs = []
        for each in (model, rotated):
            outputs.append(each(**given)[0])
            outputs[-1].square().sum().backward()
        self.assertLess(off(*outputs), 1e-5)
        grads = dict(rotated.named_parameters())
        for name, x in model.named_parameters():
            if x.grad is not None:
                self.assertLess(off(grads[name].grad, x.grad), 1e-5 * float(x.grad.abs().max()) + 1e-7, name)
        given["img_ids"] = given["img_ids"] * 9  # positions matter, to both alike
        with torch.no_grad():
            moved = [each(**given)[0] for each in (model, rotated)]
        self.assertGreater(off(moved[0], outputs[0]), 1e-3)
        self.assertLess(off(*moved), 1e-5)


def write():
    *made, far = tables()
    page = FAR.sub(lambda found: found[1] + figure(far), PAGE.read_text()).splitlines()
    for table, title in zip(made, ("| model | options | exact", "| model | options | difference")):
        first = next(i for i, line in enumerate(page) if line.startswith(title)) + 2
        last = first
        while last < len(page) and page[last].startswith("|"):
            last += 1
        page[first:last] = lines(table)
    PAGE.write_text("\n".join(page) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write()
    else:
        unittest.main()
