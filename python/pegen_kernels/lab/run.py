"""What `pegen lab` does once its arguments are read."""
from __future__ import annotations

import argparse
import json
import pathlib
import shlex
import sys
from typing import Any

import torch

from ..errors import ArgumentError, PegenError
from . import report
from .data import Data
from .engine import Engine, Task, tasks_of
from .study import Study, load
from .train import Run, rehearse


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


def run(folder: pathlib.Path, given: argparse.Namespace) -> int:
    torch.set_num_threads(given.threads)
    study = load(given.study)
    data = study.data.make(study.seeds[0])
    tasks = tasks_of(study, _rehearsed(study, data))
    if given.check:
        print(f"pegen lab: {study.name}: {len(tasks)} runs can be made")
        return 0
    engine = Engine(study, folder, given.storage)

    def do(task: Task, state: pathlib.Path) -> dict[str, Any]:
        own = study.data.make(task.seed)
        run = Run(study, study.variants[task.variant], task.seed, own, state)

        def told(epoch: int) -> None:
            loss, value = run.done["curve"][-1]
            point = {"variant": task.variant, "epoch": epoch, "epochs": study.training.epochs, "loss": loss,
                     "test": value}  # fmt: skip
            print(json.dumps(point), flush=True)

        return run.finish(*([told] if given.progress else []))

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
