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
from .words import command, described, pair


def _parser() -> argparse.ArgumentParser:
    parser = command(
        "plot",
        "Draws what an encoding does: scores by displacement, decay, wavelengths, orbits, commutators, spectra and a"
        " table of what holds. Several descriptions stand side by side on shared scales.",
        "report.html, .svg or .png",
        ("NAME=VALUE", "an option of all of them"),
    )
    parser.add_argument(
        "--grid", metavar="SIZES", help="tokens along each axis, as 14,14; default: the descriptions' own"
    )
    parser.add_argument("--operands", action="append", default=[], metavar="NAME=FILE.npy",
                        help="an operand; or FILE.safetensors, a checkpoint that has those of --map")  # fmt: skip
    parser.add_argument("--map", action="append", default=[], metavar="NAME=TENSOR",
                        help="what an operand is called in the checkpoint: axis=blocks.0.attn.pe.axis")  # fmt: skip
    parser.add_argument("--seed", type=int, help="of operands that are drawn as their descriptions say; default 0")
    parser.add_argument(
        "--only", default="", metavar="LIST", help="pictures, by the names in the page's links: decay,map"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    given = parser.parse_args(arguments)
    grid = None
    if given.grid:
        try:
            grid = [int(size) for size in given.grid.split(",")]
        except ValueError:
            parser.error(f"--grid {given.grid}: expected whole numbers, as 14,14")
    checkpoints = [word for word in given.operands if word.endswith(".safetensors") and "=" not in word]
    if len(checkpoints) > 1:
        parser.error(f"--operands {checkpoints[1]}: there is a checkpoint already; expected one")
    operands = dict(pair(parser, word, "--operands") for word in given.operands if word not in checkpoints)
    tensors = dict(pair(parser, word, "--map") for word in given.map)
    shared = dict(pair(parser, word, "-D") for word in given.define)
    try:
        ending(pathlib.Path(given.output), ENDINGS)
        facts = []
        for word in given.spec:
            spec, own, options = described(parser, word)
            label = ", ".join([os.path.basename(spec).removesuffix(".lua"), *own])
            options = shared | options
            facts.append(
                explain(spec, grid=grid, operands=operands, checkpoint=(checkpoints or [None])[0], tensors=tensors,
                        seed=given.seed, label=label, defines=options)
            )  # fmt: skip
        write(given.output, facts, [key for key in given.only.split(",") if key])
    except PegenError as e:
        print(f"pegen plot: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
