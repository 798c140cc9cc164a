"""`pegen lab`: the command line of the laboratory. What is wrong with it is said before PyTorch is imported."""
from __future__ import annotations

import argparse
import os
import pathlib
import sys
from typing import Sequence

from ..errors import ArgumentError, PegenError


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pegen lab",
        description="Trains small transformers that differ in nothing but the encoding, as a study says, and reports"
        " what came of it: report.html, results.md, .csv and .json. What was interrupted goes on where it stopped when"
        " it is run again; the same command in more processes, on any machine with the same --storage, shares them.",
    )
    parser.add_argument("study", metavar="STUDY.toml", help="docs/studies.md says what is in it")
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="FOLDER",
        help="for reports and states of runs; made where it is not there",
    )
    parser.add_argument(
        "--storage", metavar="URL", help="of Optuna, as postgresql://... or journal:FILE; default: FOLDER/runs.db"
    )
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch; default 1, for repeatable results")
    parser.add_argument(
        "--device", metavar="DEVICE", help="of PyTorch, as cuda:1; default: a GPU where it finds one, else cpu"
    )
    parser.add_argument("--check", action="store_true", help="only read the study and try a step of every variant")
    parser.add_argument("--report", action="store_true", help="only write the report of what is done")
    parser.add_argument("--progress", action="store_true", help="print a line of JSON after every epoch")
    return parser


def _make(folder: pathlib.Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise ArgumentError(f"-o {folder}: cannot be made: {e.strerror}") from e


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.threads < 1:
        parser.error(f"--threads {given.threads}: expected 1 or more")
    folder = pathlib.Path(given.output)
    try:
        if not os.path.isfile(given.study):
            raise ArgumentError(f"{given.study}: cannot be read: there is no such file")
        _make(folder)
        from .run import run

        return run(folder, given)
    except PegenError as e:
        print(f"pegen lab: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("pegen lab: interrupted; the same command goes on from there", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
