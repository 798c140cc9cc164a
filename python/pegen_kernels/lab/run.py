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
from .engine import Engine, Task, duration, tasks_of, tuned, tuning_of
from .study import Study, load
from .train import Run, rehearse


def _rehearsed(study: Study, data: Data) -> tuple[dict[str, str], dict[str, float]]:
    """Digests of kernels by variant, and seconds of a run."""
    digests, seconds = {}, {}
    for name, variant in study.variants.items():
        try:
            digests[name], seconds[name] = rehearse(study, variant, data)
        except PegenError as e:
            where = "" if str(e).startswith("[") else f"[variants.{name}]: "
            raise ArgumentError(f"{where}{e}") from e
    return digests, seconds


def _device(given: str | None) -> str:
    if given is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(1, device=given).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as e:
        raise ArgumentError(f"--device {given}: {str(e).splitlines()[0]}") from e
    return given


def run(folder: pathlib.Path, given: argparse.Namespace) -> int:
    torch.set_num_threads(given.threads)
    study = load(given.study)
    device = _device(given.device)
    data = study.data.make(study.seeds[0]).to(device)
    digests, expected = _rehearsed(study, data)
    tuning, tasks = tuning_of(study, digests), tasks_of(study, digests)
    if given.check:
        whole = duration(sum(expected[task.variant] for task in tuning + tasks))
        print(f"pegen lab: {study.name}: {len(tuning + tasks)} runs can be made, {whole} of one process")
        return 0
    engine = Engine(study, folder, given.storage)
    measures = {name: part.measure for name, part in data.tests.items()}

    def do(task: Task, state: pathlib.Path) -> dict[str, Any]:
        own = study.data.make(task.seed).to(device)
        run = Run(study, study.variants[task.variant], task.seed, own, state, task.rate)

        def told(epoch: int) -> None:
            loss, value = run.done["curve"][-1]
            point = {"variant": task.variant, "epoch": epoch, "epochs": study.training.epochs, "loss": loss,
                     "test": value}  # fmt: skip
            print(json.dumps(point), flush=True)

        return run.finish(*([told] if given.progress else []))

    def done(tasks: list[Task]) -> dict[Task, dict[str, Any]]:
        if not given.report:
            engine.add(tasks)
            engine.work(tasks, do, expected)
        return engine.results(tasks)

    rates: dict[str, float] = {}
    if tuning:
        found = done(tuning)
        while not given.report and len(found) < len(tuning):
            engine.wait(tuning)
            found = done(tuning)
        rates = tuned(study, found, next(iter(measures.values())))
        tasks = tasks_of(study, digests, rates)
    results = done(tasks)
    words = ["pegen", "lab", given.study, "-o", given.output]
    report.write(folder, report.Findings(study, tasks, results, measures), shlex.join(words))
    running = engine.elsewhere({task.key for task in tasks})
    if running:
        print(
            f"pegen lab: {running} runs are with other processes; --report writes again what is done", file=sys.stderr
        )
    return 0
