#!/usr/bin/env python3
"""What docs/checkpoints.md says: each of its figures is a model's own code with random weights, held against the kernel
of the command beside it. A difference of more than twice what is written there fails; --write measures anew.
"""
import math
import re
import sys
import unittest

from checkpoints import LANGUAGE, REST, ROOT, Used, apart, language, of_llama, other, places, rows

PAGE = ROOT / "docs" / "checkpoints.md"


def figure(number):
    """Two digits, rounded up."""
    step = 10.0 ** (math.floor(math.log10(number)) - 1)
    return f"{math.ceil(number / step) * step:.1e}".replace("e-0", "e-")


def tables():
    """The page's rows as this measures them: names to cells, of which figures are numbers."""
    found = {model: [f"`{Used(model).command}`", *language(model)] for model in LANGUAGE}
    return found, {model: list(other(model)) for model in REST}


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
        page, found = written(PAGE.read_text()), {}
        for table in tables():
            found.update(table)
        self.assertEqual(list(page), list(found))
        for model, row in found.items():
            for cell, there in zip(row, page[model]):
                if isinstance(cell, float):
                    self.assertLess(cell, 2 * float(there), f"{model}: {cell:.2e} is no longer {there}")
                else:
                    self.assertEqual(there, cell, model)

    def test_rounding_tells(self):
        """What phases of float64 are apart from a model's own at 10^5, which rounded ones are not."""
        used, rotation, x = Used("Llama 2"), of_llama(), rows(1, 2, 96, 128)
        self.assertGreater(apart(used.encoded(x, places(131071)), rotation.turn(x, places(131071))), 1e-3)


def write():
    page = PAGE.read_text().splitlines()
    for table, title in zip(tables(), ("| model | options |", "| model | whose code |")):
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
