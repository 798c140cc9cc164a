"""A study: a TOML file that says what is trained on what. All of it is read and checked before anything is trained."""
from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import typing
from dataclasses import dataclass, field
from typing import Any, List, Mapping, Optional

import numpy
import torch

from ..errors import ArgumentError, PegenError
from ..explore.facts import run_explain
from ..request import request_of
from .data import LATER, SETS

try:
    import tomllib
except ImportError:  # before Python 3.11
    import tomli as tomllib  # type: ignore[no-redef]

_WORDS = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}


@dataclass(frozen=True)
class Shape:
    """The transformer's sizes."""

    dim: int = 48  # channels, of all heads together
    heads: int = 2
    depth: int = 2
    widening: float = 2.0  # of the perceptron


@dataclass(frozen=True)
class Training:
    """By AdamW, on a rate that rises for a tenth of the steps and falls as a cosine does (PyTorch's OneCycleLR)."""

    epochs: int = 10
    batch: int = 64
    rate: float = 2e-3
    rates: List[float] = field(default_factory=list)  # of which each variant has the best one, instead of `rate`
    tuning_seed: int = 1000  # of the runs that find it
    weight_decay: float = 0.05
    perturbation: float = field(
        default=0.0, metadata=LATER
    )  # by half of which positions move at most, anew in each step and for each token


@dataclass(frozen=True)
class Variant:
    """An encoding as it is tried, or several that are applied together."""

    name: str
    spec: Optional[str] = None  # a stock description's name or a file beside the study; none: no encoding
    options: dict[str, Any] = field(default_factory=dict)
    scale: float = 1.0  # by which positions are multiplied
    fixed: list[str] = field(default_factory=list)  # operands that are not trained
    shared: list[str] = field(default_factory=list)  # operands that all layers share
    init: dict[str, Any] = field(default_factory=dict)  # first values: a deviation of normal ones, or a .npy file
    perturbation: Optional[float] = None  # of training's positions, instead of the study's
    start: str = ""  # the variant with whose pretrained weights it begins
    role: str = ""  # as explain has it
    declared: tuple[str, ...] = ()  # options that the description has
    others: tuple["Variant", ...] = ()  # descriptions that are applied with it

    def parts(self) -> list["Variant"]:
        """One description each, what is pairwise last."""
        every = [part for part in (self, *self.others) if part.spec is not None]
        return sorted(every, key=lambda part: part.role == "pairwise")

    def first_values(self) -> dict[str, Any]:
        """As modules take them."""
        return {name: _first(given) for name, given in self.init.items()}


def _first(given: Any) -> Any:
    if isinstance(given, str):
        return numpy.load(given)
    return lambda shape: given * torch.randn(shape)


@dataclass(frozen=True)
class Study:
    name: str
    claim: str  # what is to be seen, and who says so
    seeds: list[int]
    baseline: str  # the variant that others are compared with
    data_set: str
    data: Any  # a row of SETS with its fields
    model: Shape
    training: Training
    variants: dict[str, Variant]
    text: str  # the file
    pretraining: Optional["Study"] = None  # of variants that others start with, from the same first values

    def perturbation(self, variant: Variant) -> float:
        return self.training.perturbation if variant.perturbation is None else variant.perturbation

    def settings(self, variant: Variant, rate: float) -> dict[str, Any]:
        """What decides a run, but for its encoding and seed."""
        training = dataclasses.replace(self.training, rate=rate, perturbation=self.perturbation(variant))
        parts = {"data": self.data, "model": self.model, "training": training}
        told = {"set": self.data_set} | {name: _deciding(part) for name, part in parts.items()}
        del told["training"]["rates"], told["training"]["tuning_seed"]  # a run at a rate is the same run, tuned or not
        return told


def _deciding(part: Any) -> dict[str, Any]:
    """Fields by name, but those that came LATER and say what was so before: results of before are still right."""
    fields = [(f, getattr(part, f.name)) for f in dataclasses.fields(part)]
    return {f.name: value for f, value in fields if not (f.metadata == LATER and value == f.default)}


def _parts(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type and those of its elements; of Optional what it is where it is there."""
    inner = tuple(part for part in typing.get_args(kind) if part is not type(None))
    if type(None) in typing.get_args(kind):
        return _parts(inner[0])
    return typing.get_origin(kind) or kind, inner


def _fits(value: Any, kind: Any) -> bool:
    kind, inner = _parts(kind)
    if isinstance(value, bool):
        return kind is bool
    if kind is float:
        return isinstance(value, (int, float))
    return isinstance(value, kind) and (kind is not list or all(_fits(x, inner[0]) for x in value))


def _expected(kind: Any) -> str:
    kind, inner = _parts(kind)
    return f"{_WORDS[kind]} of which each is {_WORDS[inner[0]]}" if kind is list else _WORDS[kind]


def _read(kind: type, table: Mapping[str, Any], where: str, hidden: tuple[str, ...] = ()) -> Any:
    """A dataclass from a table of the file: no unknown names, all values of the types of its fields."""
    hints = {name: hint for name, hint in typing.get_type_hints(kind).items() if name not in hidden}
    for name, value in table.items():
        if name not in hints:
            raise ArgumentError(f"{where}: no setting '{name}'; there are: {', '.join(hints)}")
        if not _fits(value, hints[name]):
            raise ArgumentError(f"{where}: {name} is {value!r}; expected {_expected(hints[name])}")
    return kind(**table)


def _table(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = document.get(name, {})
    if not isinstance(found, dict):
        raise ArgumentError(f"{name} is {found!r}; expected a table, [{name}]")
    return dict(found)


@functools.lru_cache(maxsize=None)
def _explained(request: Any, label: str) -> dict[str, Any]:
    """Studies ask for the same descriptions again and again."""
    return run_explain(request, label)[0]


def _variant(name: str, given: Any, shared: Mapping[str, Any], folder: pathlib.Path) -> Variant:
    """A table, or a list of tables: descriptions that are applied together."""
    if not isinstance(given, list):
        return _one(name, given, shared, folder)
    where, tables = f"[variants.{name}]", given
    parts = [_one(name, table, shared, folder) for table in tables]
    if not parts or any(part.spec is None for part in parts):
        raise ArgumentError(f"{where}: is a list; expected a spec in each of its tables, one or more")
    for role, words in (("additive", "add to the embedding"), ("pairwise", "are pairwise")):
        if sum(part.role == role for part in parts) > 1:
            raise ArgumentError(f"{where}: {' and '.join(str(p.spec) for p in parts)}: more than one of them {words}")
    for word in ("scale", "perturbation", "start"):
        if any(word in table for table in tables[1:]):
            what = "model" if word == "start" else "positions"
            raise ArgumentError(f"{where}: {word} is of the {what} of all; expected in the first table alone")
    return dataclasses.replace(parts[0], others=tuple(parts[1:]))


def _one(name: str, table: Any, shared: Mapping[str, Any], folder: pathlib.Path) -> Variant:
    where = f"[variants.{name}]"
    if not isinstance(table, dict):
        raise ArgumentError(f"{where}: is {table!r}; expected a table")
    found: Variant = _read(Variant, {"name": name, **table}, where, ("role", "declared", "others"))
    if (found.perturbation or 0) < 0:
        raise ArgumentError(f"{where}: perturbation is {found.perturbation}; expected 0 or more")
    if found.spec is None:
        if set(table) - {"scale", "perturbation", "start"}:
            raise ArgumentError(f"{where}: names no spec, which is no encoding at all, and says '{min(table)}' of it")
        return found
    spec = str(folder / found.spec) if os.path.isfile(folder / found.spec) else found.spec
    init = {}
    for operand, given in found.init.items():
        if isinstance(given, str) and not os.path.isfile(folder / given):
            raise ArgumentError(f"{where}: init: '{operand}': there is no file '{given}'")
        if isinstance(given, bool) or not isinstance(given, (int, float, str)):
            raise ArgumentError(f"{where}: init: '{operand}' is {given!r}; expected a deviation or the name of a file")
        init[operand] = str(folder / given) if isinstance(given, str) else float(given)
    try:
        plain = _explained(request_of(spec, {}), found.spec)
        own = {key: value for key, value in shared.items() if key in plain["options"]} | found.options
        facts = _explained(request_of(spec, own), found.spec)
    except PegenError as e:
        raise ArgumentError(f"{where}: {e}") from e
    role = "pairwise" if facts["form"] == "attention" else facts["role"]
    return dataclasses.replace(found, spec=spec, options=own, init=init, role=role, declared=tuple(plain["options"]))


def _checked(study: Study) -> Study:
    shape, training = study.model, study.training
    for where, part in (("[model]", shape), ("[training]", training)):
        for name, value in dataclasses.asdict(part).items():
            may_be_0 = name in ("weight_decay", "perturbation", "tuning_seed")
            every = value if isinstance(value, list) else [value]
            if any(x < 0 or (x == 0 and not may_be_0) for x in every):
                least = "0 or more" if may_be_0 else "more than 0"
                raise ArgumentError(f"{where}: {name} is {value}; expected {least}")
    if len(set(training.rates)) < len(training.rates):
        raise ArgumentError(f"[training]: rates are {training.rates}; expected each once")
    if shape.dim % shape.heads:
        raise ArgumentError(f"[model]: dim is {shape.dim}; expected a multiple of heads, {shape.heads}")
    if not study.seeds or len(set(study.seeds)) < len(study.seeds):
        raise ArgumentError(f"seeds are {study.seeds}; expected one or more, each once")
    if training.rates and training.tuning_seed in study.seeds:
        raise ArgumentError(f"[training]: tuning_seed is {training.tuning_seed}; expected none of the seeds")
    if study.baseline not in study.variants:
        names = ", ".join(study.variants)
        raise ArgumentError(f"baseline is '{study.baseline}'; expected one of the variants: {names}")
    for name, variant in study.variants.items():
        if variant.start and variant.start not in study.variants:
            names = ", ".join(study.variants)
            raise ArgumentError(f"[variants.{name}]: start is '{variant.start}'; expected one of the variants: {names}")
    return study


def _with_pretraining(study: Study, document: Mapping[str, Any]) -> Study:
    """What [pretraining] does not say of its [data] and [training] is as in the study; it has one rate."""
    given = _table(document, "pretraining")
    variants = {variant.start: study.variants[variant.start] for variant in study.variants.values() if variant.start}
    try:
        if given and not variants:
            raise ArgumentError("no variant has a start, the name of the one whose weights it begins with")
        for name in set(given) - {"data", "training"}:
            raise ArgumentError(f"no setting '{name}'; there are: data, training")
        of_rates = ("rates", "tuning_seed")
        common = {name: value for name, value in _table(document, "training").items() if name not in of_rates}
        training = _read(Training, common | _table(given, "training"), "[training]", of_rates)
        data_set, data = _data(given if "data" in given else document)
        if not variants:
            return study
        made = dataclasses.replace(
            study, data_set=data_set, data=data, training=training, baseline=next(iter(variants)),
            seeds=study.seeds + ([study.training.tuning_seed] if study.training.rates else []),
            variants={name: dataclasses.replace(variant, start="") for name, variant in variants.items()},
        )  # fmt: skip
        return dataclasses.replace(study, pretraining=_checked(made))
    except ArgumentError as e:
        raise ArgumentError(f"[pretraining]: {e}") from e


def _document(path: pathlib.Path) -> tuple[dict[str, Any], str]:
    """A file's tables and its text."""
    try:
        text = path.read_text()
        return tomllib.loads(text), text
    except OSError as e:
        raise ArgumentError(f"{path}: cannot be read: {e.strerror}") from e
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise ArgumentError(f"{path}: {e}") from e


def _extended(own: dict[str, Any], common: dict[str, Any]) -> dict[str, Any]:
    """What a study says, in place of what the study says that it extends. [data] is replaced as a whole."""
    if "extends" in common:
        raise ArgumentError("extends a study that extends another; expected one that is complete")
    without = own.pop("without", [])
    if not _fits(without, List[str]) or set(without) - set(_table(common, "variants")):
        names = ", ".join(_table(common, "variants"))
        raise ArgumentError(f"without is {without!r}; expected a list of variants of what is extended: {names}")
    merged = common | own
    for name in ("model", "training", "options", "variants"):
        merged[name] = _table(common, name) | _table(own, name)
    merged["variants"] = {name: table for name, table in merged["variants"].items() if name not in without}
    return merged


def load(path: str | os.PathLike[str]) -> Study:
    """Raises ArgumentError with what is wrong in the file."""
    path = pathlib.Path(path)
    document, text = _document(path)
    try:
        if "extends" in document:
            base = document.pop("extends")
            if not isinstance(base, str):
                raise ArgumentError(f"extends is {base!r}; expected the name of a file beside the study")
            common, more = _document(path.parent / base)
            common.pop("name", None)
            document, text = _extended(document, common), f"{text}\n# {base}\n\n{more}"
        return _with_pretraining(_checked(_study(document, text, path)), document)
    except ArgumentError as e:
        raise ArgumentError(f"{path}: {e}") from e


def _data(document: Mapping[str, Any]) -> tuple[str, Any]:
    """The name of a set and its row of SETS, as [data] has it."""
    data = _table(document, "data")
    data_set = data.pop("set", None)
    if not isinstance(data_set, str) or data_set not in SETS:
        said = "names no data" if data_set is None else f"set is {data_set!r}"
        raise ArgumentError(f"[data]: {said}; expected set, one of {', '.join(map(repr, SETS))}")
    return data_set, _read(SETS[data_set], data, "[data]")


def _study(document: Mapping[str, Any], text: str, path: pathlib.Path) -> Study:
    known = ("name", "claim", "seeds", "baseline", "pretraining", "data", "model", "training", "options", "variants")
    for name in document:
        if name not in known:
            raise ArgumentError(f"no setting '{name}'; there are: {', '.join(known)}")
    head = {"name": path.stem, "claim": "", "seeds": [0, 1, 2], "baseline": ""} | {
        name: document[name] for name in known[:4] if name in document
    }
    for name, kind in (("name", str), ("claim", str), ("seeds", List[int]), ("baseline", str)):
        if not _fits(head[name], kind):
            raise ArgumentError(f"{name} is {head[name]!r}; expected {_expected(kind)}")
    data_set, data = _data(document)
    model = _read(Shape, _table(document, "model"), "[model]")
    training = _read(Training, _table(document, "training"), "[training]")
    shared, tables = _table(document, "options"), _table(document, "variants")
    if not tables:
        raise ArgumentError("has no variants; expected [variants.NAME] with a spec, two or more")
    variants = {name: _variant(name, table, shared, path.parent) for name, table in tables.items()}
    head["baseline"] = head["baseline"] or next(iter(variants))
    return Study(**head, data_set=data_set, data=data, model=model, training=training, variants=variants, text=text)
