"""One run: a variant of a study from one seed. What is killed goes on from the last epoch that it kept, and ends with
the same numbers as a run that was not."""
from __future__ import annotations

import os
import pathlib
import pickle
import statistics
import time
from typing import Any, Callable, Iterator, Mapping

import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

from . import inside
from .data import MEASURES, Data, Part
from .model import Transformer, begin, build, weights_of
from .study import Study, Variant

_TESTED_AT_ONCE = 100  # samples
_SECONDS = 5.0  # between two states that are kept


class Batches:
    """Samples in an order of their own for each epoch, and places beside their positions: seed and epoch decide."""

    def __init__(self, part: Part, size: int, seed: int, perturbation: float = 0.0) -> None:
        own = [part.positions] if part.positions.dim() == 3 else []
        self.part, self.size, self.seed, self.perturbation = part, min(size, len(part)), seed, perturbation
        self.samples = TensorDataset(part.tokens, part.targets, *own)

    def __len__(self) -> int:
        return len(self.part) // self.size

    def of(self, epoch: int) -> Iterator[list[torch.Tensor]]:
        random = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
        order = BatchSampler(RandomSampler(self.samples, generator=random), self.size, drop_last=True)
        moves = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
        for tokens, targets, *own in DataLoader(self.samples, sampler=order, batch_size=None):
            if self.perturbation:
                at = own[0] if own else self.part.positions.expand(len(tokens), -1, -1)
                own = [at + self.perturbation * (torch.rand(at.shape, generator=moves) - 0.5).to(at.device)]
            yield [tokens, targets, *own]


def loss_of(model: Transformer, positions: torch.Tensor, batch: Any) -> torch.Tensor:
    tokens, targets, *own = batch
    scores = model(tokens, own[0] if own else positions)
    return torch.nn.functional.cross_entropy(scores.flatten(0, -2), targets.flatten())


def measure(model: Transformer, part: Part) -> float | None:
    """None where nothing was decided for what is measured."""
    total, count, of = 0.0, 0, MEASURES[part.measure].of
    with torch.no_grad():
        for i in range(0, len(part), _TESTED_AT_ONCE):
            some = slice(i, i + _TESTED_AT_ONCE)
            positions = part.positions if part.positions.dim() == 2 else part.positions[some]
            found, n = of(model(part.tokens[some], positions), part.targets[some])
            total, count = total + found, count + n
    value = total / count if count else None
    return value if value is None or value == value else None


def kept_for_backward(model: Transformer, positions: torch.Tensor, batch: Any) -> int:
    """Bytes that a step keeps for its backward pass, but for parameters."""
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    sizes: dict[int, int] = {}
    alive = []  # while they are counted, so that no address is used again

    def pack(x: torch.Tensor) -> torch.Tensor:
        storage, bare = x.untyped_storage(), x.detach()
        if storage.data_ptr() not in own:
            sizes[storage.data_ptr()] = storage.nbytes()
            alive.append(bare)
        return bare  # an output that is kept with its graph would keep that graph, and itself, for ever

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        loss_of(model, positions, batch)
    return sum(sizes.values())


def _clock(data: Data) -> float:
    """Seconds: a processor's of this process alone; on a GPU, where all that was asked for is done."""
    if data.train.tokens.is_cuda:
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


class Run:
    """state: a file that holds how far it is; written at most every five seconds, at the end of an epoch."""

    def __init__(self, study: Study, variant: Variant, seed: int, data: Data, state: pathlib.Path,
                 rate: float | None = None, start: Mapping[str, torch.Tensor] = {}) -> None:  # fmt: skip
        """rate: of learning; without it the study's. start: pretrained weights."""
        self.made_of = (study, variant, seed, data, state, rate, start)
        self.study, self.data, self.state = study, data, state
        self.model = build(study, variant, data, seed)
        begin(self.model, start, variant)
        training, most = study.training, study.training.rate if rate is None else rate
        self.batches = Batches(data.train, training.batch, seed, study.perturbation(variant))
        trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, lr=most, weight_decay=training.weight_decay)
        self.rate = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, most, total_steps=training.epochs * len(self.batches) + 1, pct_start=0.1
        )
        self.done: dict[str, Any] = {"epoch": 0, "curve": [], "steps": [], "seconds": 0.0}

    def restore(self) -> None:
        try:
            kept = torch.load(self.state, weights_only=True)
            for part in ("model", "optimizer", "rate"):
                getattr(self, part).load_state_dict(kept[part])
            self.done = kept["done"]
        except FileNotFoundError:
            pass
        except (OSError, RuntimeError, KeyError, EOFError, pickle.UnpicklingError):
            self.__init__(*self.made_of)  # type: ignore[misc]  # cut short: from the start

    def keep(self) -> None:
        temporary = self.state.with_suffix(f".{os.getpid()}.tmp")
        parts = {name: getattr(self, name).state_dict() for name in ("model", "optimizer", "rate")}
        torch.save({**parts, "done": self.done}, temporary)
        temporary.replace(self.state)

    def step(self, batch: Any) -> float:
        loss = loss_of(self.model, self.data.train.positions, batch)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.rate.step()
        return loss.item()

    def epoch(self) -> None:
        start, losses = time.perf_counter(), []
        for batch in self.batches.of(self.done["epoch"]):
            before = _clock(self.data)
            losses.append(self.step(batch))
            self.done["steps"].append(_clock(self.data) - before)
        self.done["epoch"] += 1
        first = next(iter(self.data.tests.values()))
        self.done["curve"].append([statistics.fmean(losses), measure(self.model, first)])
        self.done["seconds"] += time.perf_counter() - start

    def result(self) -> dict[str, Any]:
        """What a report is written from; plain numbers."""
        first = next(self.batches.of(0))
        curve = [[None if x is None or x != x else x for x in point] for point in self.done["curve"]]
        count = lambda found: sum(p.numel() for p in found)  # noqa: E731
        of_encodings = {p for encoding in self.model.encodings() for p in encoding.parameters()}
        return {
            "values": {name: measure(self.model, part) for name, part in self.data.tests.items()},
            "curve": curve,
            **inside.measured(self.model, next(iter(self.data.tests.values()))),
            "diverged": any(x is None for x, _ in curve),
            "step_seconds": statistics.median(self.done["steps"]),
            "seconds": self.done["seconds"],
            "kept_bytes": kept_for_backward(self.model, self.data.train.positions, first),
            "parameters": count(self.model.parameters()),
            "parameters_of_encodings": count(of_encodings),
            "data": self.data.digest(),
        }

    def finish(self, told: Callable[[int], None] = lambda epoch: None) -> dict[str, Any]:
        """told: is called with the number of epochs after each."""
        self.restore()
        kept = time.monotonic()
        while self.done["epoch"] < self.study.training.epochs:
            self.epoch()
            if time.monotonic() - kept >= _SECONDS:
                self.keep()
                kept = time.monotonic()
            told(self.done["epoch"])
        return self.result()


def _expected(run: Run) -> float:
    """Seconds of a run, from one step: a test is a forward pass, a third of a step by tokens."""
    data, epochs, first = run.data, run.study.training.epochs, next(run.batches.of(0))
    run.step(first)  # which makes what later steps find
    start = time.perf_counter()
    run.step(first)
    step = time.perf_counter() - start
    a_token = step / 3 / (run.batches.size * data.train.tokens.shape[1])
    tests = [a_token * len(part) * part.tokens.shape[1] for part in data.tests.values()]
    return epochs * (len(run.batches) * step + tests[0]) + sum(tests)


def rehearse(study: Study, variant: Variant, data: Data,
             start: Mapping[str, torch.Tensor] = {}) -> tuple[str, float, dict[str, torch.Tensor]]:  # fmt: skip
    """A step of training and a sample of every test, so that what cannot be is told before hours are spent. Returns the
    digest of what is trained, the seconds that a run will take and weights as those that it will have."""
    run = Run(study, variant, 0, data, pathlib.Path(os.devnull), start=start)
    model = run.model
    few = Part(data.train.tokens[:2], data.train.positions[:2] if data.train.positions.dim() == 3 else
               data.train.positions, data.train.targets[:2])  # fmt: skip
    loss_of(model, few.positions, next(Batches(few, 2, 0, study.perturbation(variant)).of(0))).backward()
    for part in data.tests.values():
        positions = part.positions if part.positions.dim() == 2 else part.positions[:2]
        with torch.no_grad():
            model(part.tokens[:2], positions)
    digest = "-".join(encoding.kernel.digest for encoding in model.encodings())
    return digest, _expected(run), weights_of(model)
