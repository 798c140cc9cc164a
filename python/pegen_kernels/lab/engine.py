"""Runs as tasks of Optuna: a task is a trial of a study in a storage that any number of processes share.

Optuna rather than Ray, since a table in a database is all that processes have to share: the same command, started once
more on any machine with the same --storage, is one more worker, and none is special. A trial is claimed by one worker;
those whose worker was lost are tried again: at once where this machine sees that it is gone (its lock is free), else
when its heartbeat has been silent for a while. Results lie in the storage, states of runs in the folder.
"""
from __future__ import annotations

import fcntl
import hashlib
import json
import pathlib
import socket
import sys
import time
import warnings
from contextlib import contextmanager
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Tuple

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from ..errors import ArgumentError
from .data import MEASURES
from .study import Study

_HEARTBEAT = 20  # seconds
_PAUSE = 2.0  # seconds between two looks at what other processes do
_LIVE = (TrialState.WAITING, TrialState.RUNNING, TrialState.COMPLETE)


class Task(NamedTuple):
    variant: str
    seed: int
    key: str  # of all that decides its result
    rate: float  # of learning


Starts = Mapping[Tuple[str, int], Task]  # runs of pretraining, by variant and seed


def _task(study: Study, digests: Mapping[str, str], name: str, seed: int, rate: float, starts: Starts) -> Task:
    variant = study.variants[name]
    parts = [
        study.settings(variant, rate),
        variant.spec and digests[name],
        variant.scale,
        variant.fixed,
        variant.init,
        seed,
    ]
    parts += [[other.fixed, other.init] for other in variant.others]
    parts += [part.shared for part in variant.parts() if part.shared]
    parts += [starts[variant.start, seed].key] if variant.start else []
    key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]
    return Task(name, seed, key, rate)


def tasks_of(study: Study, digests: Mapping[str, str], rates: Mapping[str, float] = {},
             starts: Starts = {}) -> list[Task]:  # fmt: skip
    """All variants of the first seed first. digests: of each variant's kernels. rates: of variants that have their
    own."""
    common = study.training.rate
    return [
        _task(study, digests, name, seed, rates.get(name, common), starts)
        for seed in study.seeds
        for name in study.variants
    ]


def tuning_of(study: Study, digests: Mapping[str, str], starts: Starts = {}) -> list[Task]:
    """Runs that tell which of the study's rates a variant learns best with: of one seed, which no result is from."""
    seed = study.training.tuning_seed
    rates, variants = study.training.rates, study.variants
    return [_task(study, digests, name, seed, rate, starts) for rate in rates for name in variants]


def tuned(study: Study, results: Mapping[Task, dict[str, Any]], measure: str) -> dict[str, float]:
    """Each variant's rate: that of the run with the best value in the first test, the first of equals. measure: what
    that test measures. A run without a value is worse than all others."""
    sign = 1 if MEASURES[measure].higher_is_better else -1
    best: dict[str, tuple[float, float]] = {}
    for task in sorted(results, key=lambda task: study.training.rates.index(task.rate)):
        value = next(iter(results[task]["values"].values()))
        worth = float("-inf") if value is None else sign * value
        if task.variant not in best or worth > best[task.variant][0]:
            best[task.variant] = worth, task.rate
    return {name: rate for name, (_, rate) in best.items()}


def duration(seconds: float) -> str:
    """In the unit that is read at a glance."""
    minutes = seconds / 60
    return f"about {seconds:.0f} s" if minutes < 2 else f"about {minutes:.0f} min" if minutes < 120 else (
        f"about {minutes / 60:.1f} h")  # fmt: skip


def _again(study: optuna.Study, trial: FrozenTrial) -> None:
    """What a lost worker had goes back."""
    kept = {name: trial.user_attrs[name] for name in ("variant", "seed", "key") if name in trial.user_attrs}
    if "key" in kept:
        study.enqueue_trial({}, user_attrs=kept)


def _storage(url: str) -> optuna.storages.BaseStorage:
    """journal:FILE is Optuna's journal, a file that grows by a line a change and needs no database. It has no
    heartbeat: what a lost worker had is taken up on that worker's own machine alone."""
    kind, _, path = url.partition(":")
    if kind == "journal":
        if not path or not pathlib.Path(path).resolve().parent.is_dir():
            raise ArgumentError(f"there is no folder for the file '{path}'; expected journal:FILE")
        return JournalStorage(JournalFileBackend(path))
    return optuna.storages.RDBStorage(
        url, heartbeat_interval=_HEARTBEAT, grace_period=4 * _HEARTBEAT, heartbeat_stale_trial_callback=_again,
        engine_kwargs={"connect_args": {"timeout": 60}} if kind == "sqlite" else None,
    )  # fmt: skip


class Engine:
    """folder: where states and, without a storage of its own (a URL as SQLAlchemy has it, or journal:FILE), the storage
    lie."""

    def __init__(self, study: Study, folder: pathlib.Path, storage: str | None) -> None:
        self.states = folder / "runs"
        self.states.mkdir(exist_ok=True)
        url = storage or f"sqlite:///{(folder / 'runs.db').resolve()}"
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            try:
                self.trials = optuna.create_study(storage=_storage(url), study_name=study.name, load_if_exists=True)
            except Exception as e:  # of SQLAlchemy, of a database's own client, of files
                raise ArgumentError(f"--storage {url}: {str(e).splitlines()[0]}") from e

    def add(self, tasks: list[Task]) -> None:
        """What is not there yet, and what a process of this machine left that is gone."""
        for trial in self.trials.get_trials(states=(TrialState.RUNNING,)):
            if trial.user_attrs.get("host") == socket.gethostname():
                with self._lock(trial.user_attrs["key"]) as held:
                    if held:
                        self.trials.tell(trial.number, state=TrialState.FAIL)
        known = {trial.user_attrs.get("key") for trial in self.trials.get_trials(states=_LIVE)}
        for task in tasks:
            if task.key not in known:
                self.trials.enqueue_trial({}, user_attrs=task._asdict())

    @contextmanager
    def _lock(self, key: str) -> Iterator[bool]:
        """Whether it was free. It is the system's, which frees it when a process ends in whatever way."""
        with open(self.states / f"{key}.lock", "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True

    def results(self, tasks: list[Task]) -> dict[Task, dict[str, Any]]:
        found = {}
        for trial in self.trials.get_trials(states=(TrialState.COMPLETE,)):
            found.setdefault(trial.user_attrs.get("key"), trial.user_attrs.get("result"))
        return {task: found[task.key] for task in tasks if task.key in found}

    def _done(self, trial: optuna.Trial) -> bool:
        """Whether another trial has the same task, or this one none: Optuna makes a new one where nothing waits."""
        key = trial.user_attrs.get("key")
        others = self.trials.get_trials(states=(TrialState.RUNNING, TrialState.COMPLETE))
        return key is None or any(t.number < trial.number and t.user_attrs.get("key") == key for t in others)

    def work(self, tasks: list[Task], do: Callable[[Task, pathlib.Path], dict[str, Any]],
             expected: Mapping[str, float]) -> None:  # fmt: skip
        """Until nothing waits. do: a run, which may keep its state in the file that it is given. expected: seconds of
        a run, by variant."""
        by_key = {task.key: task for task in tasks}
        took = {"expected": 1e-9, "seconds": 1e-9}  # of what this process has done

        def objective(trial: optuna.Trial) -> float:
            task = by_key.get(trial.user_attrs.get("key"))
            if task is None or self._done(trial):
                raise optuna.TrialPruned
            with self._lock(task.key):
                trial.set_user_attr("host", socket.gethostname())
                waiting = [by_key[t.user_attrs["key"]] for t in self.waiting(by_key)]
                left = sum(expected[t.variant] for t in [task, *waiting]) * took["seconds"] / took["expected"]
                told = f"{len(waiting)} more wait, {duration(left / max(1, self.elsewhere(by_key)))} left"
                print(f"{task.variant}, seed {task.seed} ({told})", file=sys.stderr, flush=True)
                state, start = self.states / f"{task.key}.pt", time.monotonic()
                result = do(task, state)
                took["seconds"] += time.monotonic() - start
                took["expected"] += expected[task.variant]
                trial.set_user_attr("result", result)
                state.unlink(missing_ok=True)
            return float(next(iter(result["values"].values())) or 0)

        while self.waiting(by_key):
            self.trials.optimize(objective, n_trials=1)

    def wait(self, tasks: list[Task]) -> None:
        """Until no other process has one of these runs."""
        while self.elsewhere({task.key for task in tasks}):
            time.sleep(_PAUSE)

    def waiting(self, keys: Any) -> list[FrozenTrial]:
        """Trials of these tasks; a study that has changed leaves others behind."""
        return [t for t in self.trials.get_trials(states=(TrialState.WAITING,)) if t.user_attrs.get("key") in keys]

    def elsewhere(self, keys: Any) -> int:
        """How many of these run now."""
        running = self.trials.get_trials(states=(TrialState.RUNNING,))
        return sum(t.user_attrs.get("key") in keys for t in running)
