"""`pegen plot`: the command line of pictures."""
from __future__ import annotations

import argparse
import os
import pathlib
import sys
from typing import Sequence

from ..errors import PegenError
from .facts import explain
from .files import ending
from .report import ENDINGS, write
from .words import command, described, grid_of, operands_of, pair, takes_operands


def _parser() -> argparse.ArgumentParser:
    parser = command(
        "plot",
        "Draws what an encoding does: scores by displacement, decay, wavelengths, orbits, commutators, spectra and a"
        " table of what holds. Several descriptions stand side by side on shared scales.",
        "report.html, .svg or .png",
        ("NAME=VALUE", "an option of all of them"),
    )
    takes_operands(parser)
    parser.add_argument(
        "--only", default="", metavar="LIST", help="pictures, by the names in the page's links: decay,map"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    given = parser.parse_args(arguments)
    grid, operands = grid_of(parser, given), operands_of(parser, given)
    shared = dict(pair(parser, word, "-D") for word in given.define)
    try:
        ending(pathlib.Path(given.output), ENDINGS)
        facts = []
        for word in given.spec:
            spec, own, options = described(parser, word)
            label = ", ".join([os.path.basename(spec).removesuffix(".lua"), *own])
            options = shared | options
            facts.append(
                explain(spec, grid=grid, operands=operands.files, checkpoint=operands.checkpoint,
                        tensors=operands.tensors, seed=operands.seed, label=label, defines=options)
            )  # fmt: skip
        write(given.output, facts, [key for key in given.only.split(",") if key])
    except PegenError as e:
        print(f"pegen plot: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
