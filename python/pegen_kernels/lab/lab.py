"""`pegen lab`: the command line of the laboratory."""
from __future__ import annotations

import argparse
import pathlib
import shlex
import sys
from typing import Any, Sequence

import torch

from ..errors import ArgumentError, PegenError
from . import report
from .data import Data
from .engine import Engine, Task, tasks_of
from .study import Study, load
from .train import Run, rehearse


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pegen lab",
        description="Trains small transformers that differ in nothing but the encoding, as a study says, and reports"
        " what came of it: report.html, results.md, .csv and .json. What was interrupted goes on where it stopped when"
        " it is run again; the same command in more processes, on any machine with the same --storage, shares them.",
    )
    parser.add_argument("study", metavar="STUDY.toml", help="docs/studies.md says what is in it")
    parser.add_argument("-o", "--output", required=True, metavar="FOLDER", help="for reports and states of runs")
    parser.add_argument(
        "--storage", metavar="URL", help="of Optuna, as postgresql://... or journal:FILE; default: FOLDER/runs.db"
    )
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch; default 1, for repeatable results")
    parser.add_argument("--check", action="store_true", help="only read the study and try a step of every variant")
    parser.add_argument("--report", action="store_true", help="only write the report of what is done")
    return parser


def _rehearsed(study: Study, data: Data) -> dict[str, str]:
    """Digests of kernels by variant."""
    found = {}
    for name, variant in study.variants.items():
        try:
            found[name] = rehearse(study, variant, data)
        except PegenError as e:
            where = "" if str(e).startswith("[") else f"[variants.{name}]: "
            raise ArgumentError(f"{where}{e}") from e
    return found


def _run(study: Study, folder: pathlib.Path, given: argparse.Namespace) -> int:
    data = study.data.make(study.seeds[0])
    tasks = tasks_of(study, _rehearsed(study, data))
    if given.check:
        print(f"pegen lab: {study.name}: {len(tasks)} runs can be made")
        return 0
    engine = Engine(study, folder, given.storage)

    def do(task: Task, state: pathlib.Path) -> dict[str, Any]:
        own = study.data.make(task.seed)
        return Run(study, study.variants[task.variant], task.seed, own, state).finish()

    if not given.report:
        engine.add(tasks)
        engine.work(tasks, do)
    results = engine.results(tasks)
    measures = {name: part.measure for name, part in data.tests.items()}
    words = ["pegen", "lab", given.study, "-o", given.output]
    report.write(folder, report.Findings(study, tasks, results, measures), shlex.join(words))
    running = engine.elsewhere({task.key for task in tasks})
    if running:
        print(
            f"pegen lab: {running} runs are with other processes; --report writes again what is done", file=sys.stderr
        )
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.threads < 1:
        parser.error(f"--threads {given.threads}: expected 1 or more")
    torch.set_num_threads(given.threads)
    folder = pathlib.Path(given.output)
    try:
        if not folder.is_dir():
            raise ArgumentError(f"-o {folder}: there is no such folder; make it first")
        return _run(load(given.study), folder, given)
    except PegenError as e:
        print(f"pegen lab: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("pegen lab: interrupted; the same command goes on from there", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
