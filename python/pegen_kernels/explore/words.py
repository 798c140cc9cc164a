"""Words of the command line that commands share."""
from __future__ import annotations

import argparse
import os


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
