"""Words of the command line that commands share."""
from __future__ import annotations

import argparse
import os
from typing import NamedTuple


def command(name: str, description: str, output: str, define: tuple[str, str]) -> argparse.ArgumentParser:
    """What commands take alike: descriptions, where the result goes, and -D, which is `define`'s value and help."""
    parser = argparse.ArgumentParser(prog=f"pegen {name}", description=description)
    help = "a description, or the name of a stock one; with options of its own behind it: rope_axial,base=10"
    parser.add_argument("spec", nargs="+", metavar="SPEC", help=help)
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help=output)
    parser.add_argument("-D", "--define", action="append", default=[], metavar=define[0], help=define[1])
    return parser


def pair(parser: argparse.ArgumentParser, word: str, option: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not (name and equals and value):
        parser.error(f"{option} {word}: expected NAME=VALUE")
    return name, value


def described(parser: argparse.ArgumentParser, word: str) -> tuple[str, list[str], dict[str, str]]:
    """rope_axial,sections=8,12,12: a description, its words, and options; a word without = goes on with the list before
    it."""
    spec, *words = [word] if os.path.exists(word) else word.split(",")
    found: list[str] = []
    for word in words:
        if "=" in word or not found:
            found.append(word)
        else:
            found[-1] += f",{word}"
    return spec, words, dict(pair(parser, word, "SPEC,") for word in found)


class Operands(NamedTuple):
    """What --operands, --map and --seed say."""

    files: dict[str, str]  # by the operand's name
    checkpoint: str | None
    tensors: dict[str, str]  # what operands are called in the checkpoint
    seed: int | None

    def words(self) -> list[str]:
        """Operands as words of `pegen explain`."""
        found = [f"--operands={name}={file}" for name, file in self.files.items()]
        if self.checkpoint is not None:
            found.append(f"--operands={self.checkpoint}")
        found += [f"--map={name}={tensor}" for name, tensor in self.tensors.items()]
        return found + ([f"--seed={self.seed}"] if self.seed is not None else [])

    def of(self, names: set[str]) -> Operands:
        """What is said of the operands of these names."""
        tensors = {name: tensor for name, tensor in self.tensors.items() if name in names}
        files = {name: file for name, file in self.files.items() if name in names}
        return Operands(files, self.checkpoint if tensors else None, tensors, self.seed)


def takes_operands(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--grid", metavar="SIZES", help="tokens along each axis, as 14,14; default: the descriptions' own"
    )
    parser.add_argument("--operands", action="append", default=[], metavar="NAME=FILE.npy",
                        help="an operand; or FILE.safetensors, a checkpoint that has those of --map")  # fmt: skip
    parser.add_argument("--map", action="append", default=[], metavar="NAME=TENSOR",
                        help="what an operand is called in the checkpoint: axis=blocks.0.attn.pe.axis")  # fmt: skip
    parser.add_argument("--seed", type=int, help="of operands that are drawn as their descriptions say; default 0")


def operands_of(parser: argparse.ArgumentParser, given: argparse.Namespace) -> Operands:
    checkpoints = [word for word in given.operands if word.endswith(".safetensors") and "=" not in word]
    if len(checkpoints) > 1:
        parser.error(f"--operands {checkpoints[1]}: there is a checkpoint already; expected one")
    files = dict(pair(parser, word, "--operands") for word in given.operands if word not in checkpoints)
    tensors = dict(pair(parser, word, "--map") for word in given.map)
    return Operands(files, (checkpoints or [None])[0], tensors, given.seed)


def grid_of(parser: argparse.ArgumentParser, given: argparse.Namespace) -> list[int] | None:
    try:
        return [int(size) for size in given.grid.split(",")] if given.grid else None
    except ValueError:
        parser.error(f"--grid {given.grid}: expected whole numbers, as 14,14")
