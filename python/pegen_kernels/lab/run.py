"""What `pegen lab` does once its arguments are read."""
from __future__ import annotations

import argparse
import functools
import io
import json
import pathlib
import shlex
import sys
from typing import Any

import torch

from ..errors import ArgumentError, PegenError
from ..explore.files import replace
from . import report
from .data import Data
from .engine import Engine, Task, duration, tasks_of, tuned, tuning_of
from .model import weights_of
from .study import Study, load
from .train import Run, rehearse


def _rehearsed(study: Study, data: Data, starts: dict[str, Any] = {}) -> tuple[dict[str, Any], ...]:
    """By variant: digests of kernels, seconds of a run, weights as those that others start with; starts: such ones."""
    found: tuple[dict[str, Any], ...] = {}, {}, {}
    for name, variant in study.variants.items():
        try:
            for table, value in zip(found, rehearse(study, variant, data, starts.get(variant.start, {}))):
                table[name] = value
        except PegenError as e:
            where = "" if str(e).startswith("[") else f"[variants.{name}]: "
            raise ArgumentError(f"{where}{e}") from e
    return found


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
    before, first, starts, expected_before, like = study.pretraining, [], {}, {}, {}
    if before:
        try:
            digests, expected_before, like = _rehearsed(before, before.data.make(study.seeds[0]).to(device))
        except PegenError as e:
            raise ArgumentError(f"[pretraining]: {e}") from e
        first = tasks_of(before, digests)
        starts = {(task.variant, task.seed): task for task in first}
    data = study.data.make(study.seeds[0]).to(device)
    digests, expected, _ = _rehearsed(study, data, like)
    tuning, tasks = tuning_of(study, digests, starts), tasks_of(study, digests, starts=starts)
    if given.check:
        seconds = [expected_before[t.variant] for t in first] + [expected[t.variant] for t in tuning + tasks]
        print(f"pegen lab: {study.name}: {len(seconds)} runs can be made, {duration(sum(seconds))} of one process")
        return 0
    engine = Engine(study, folder, given.storage)
    measures = {name: part.measure for name, part in data.tests.items()}

    def do(of: Study, task: Task, state: pathlib.Path) -> dict[str, Any]:
        variant, own = of.variants[task.variant], of.data.make(task.seed).to(device)
        start = weights(starts[variant.start, task.seed]) if variant.start else {}
        run = Run(of, variant, task.seed, own, state, task.rate, start)

        def told(epoch: int) -> None:
            loss, value = run.done["curve"][-1]
            point = {"variant": task.variant, "epoch": epoch, "epochs": of.training.epochs, "loss": loss,
                     "test": value}  # fmt: skip
            print(json.dumps(point), flush=True)

        result = run.finish(*([told] if given.progress else []))
        if of is before:
            content = io.BytesIO()
            torch.save(weights_of(run.model), content)
            replace(state.with_suffix(".weights"), content.getvalue())
        return result

    def weights(task: Task) -> dict[str, torch.Tensor]:
        """Trained once more where another machine has them in its folder, or nobody any more."""
        file = engine.states / f"{task.key}.weights"
        if not file.exists():
            do(before, task, file.with_suffix(".pt"))
            file.with_suffix(".pt").unlink(missing_ok=True)
        return torch.load(file, weights_only=True, map_location=device)

    def done(of: Study, tasks: list[Task], expected: dict[str, float]) -> dict[Task, dict[str, Any]]:
        if not given.report:
            engine.add(tasks)
            engine.work(tasks, functools.partial(do, of), expected)
        return engine.results(tasks)

    def complete(of: Study, tasks: list[Task], expected: dict[str, float]) -> dict[Task, dict[str, Any]]:
        """With what other processes have now."""
        found = done(of, tasks, expected)
        while not given.report and len(found) < len(tasks):
            engine.wait(tasks)
            found = done(of, tasks, expected)
        return found

    pretrained = complete(before, first, expected_before) if before else {}
    if tuning:
        rates = tuned(study, complete(study, tuning, expected), next(iter(measures.values())))
        tasks = tasks_of(study, digests, rates, starts)
    results = done(study, tasks, expected)
    words = ["pegen", "lab", given.study, "-o", given.output]
    report.write(folder, report.Findings(study, tasks, results, measures, pretrained), shlex.join(words))
    running = engine.elsewhere({task.key for task in tasks})
    if running:
        print(
            f"pegen lab: {running} runs are with other processes; --report writes again what is done", file=sys.stderr
        )
    return 0
