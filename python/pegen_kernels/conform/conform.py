"""`pegen conform`: an engine's function against golden cases, and the convention that it follows where it is wrong."""
from __future__ import annotations

import argparse
import fnmatch
import importlib
import importlib.util
import itertools
import json
import os
import pathlib
import sys
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Sequence

import numpy

from ..errors import ArgumentError
from .cases import CASES, Case, words
from .engines import load_c, load_tvm_ffi
from .reference import arrays_of, outputs_of

BOUND = 1e-3  # of the largest number: a few times what float32 phases lose up to position 2000


class Verdict(NamedTuple):
    """passed: None where the engine has no such case. difference: of the largest number."""

    passed: bool | None
    difference: float
    words: str


def asked_of(case: Case) -> dict[str, Any]:
    """What an engine is told beside the arrays."""
    return {"name": case.name, "kind": case.kind, "encoding": case.spec, **case.settings, **case.more}


def apart(found: Mapping[str, Any], expected: Mapping[str, Any]) -> float:
    """The largest difference, of the largest number expected; infinite where anything is no number."""
    worst = max(float(abs(found[x] - expected[x]).max() / abs(expected[x]).max()) for x in expected)
    return worst if numpy.isfinite(worst) else float("inf")


def alternatives(case: Case) -> Iterator[dict[str, Any]]:
    """Conventions that are others than those asked for: one, and then two at once."""
    single = [(name, value) for name, values in case.asked.items() for value in values[1:]]
    pairs = itertools.combinations(single, 2)
    return map(dict, itertools.chain(([x] for x in single), (pair for pair in pairs if pair[0][0] != pair[1][0])))


def _followed(case: Case, found: Any, expected: Any, bound: float) -> str:
    arrays = arrays_of(case)
    for changed in alternatives(case):
        if apart(found, outputs_of(case, arrays, changed)) <= bound:
            return "; ".join(f"{words(x, y)}, not {words(x, case.settings[x])}" for x, y in changed.items())
    tokens = -3 if "cu_seqlens" in arrays else -2
    if "q" in expected and expected["q"].shape[tokens] > 1:  # a single token's score sees no rotation
        q_k = ((numpy.moveaxis(x[name], tokens, -2) for name in "qk") for x in (found, expected))
        scores, others = ({"": q @ k.swapaxes(-1, -2)} for q, k in q_k)
        if apart(scores, others) <= bound:
            return "the scores asked for, of other rows (as of channels in another order)"
    return "no convention that is known here"


def judge(case: Case, engine: Callable[[dict[str, Any], dict[str, Any]], Any], bound: float = BOUND,
          given: Callable[[Any], Any] = lambda x: x) -> Verdict:  # fmt: skip
    """engine: from arrays by name and what is asked to (q, k), or of attention to out; NotImplementedError: it has no
    such case. given: what it is given for an array of NumPy in float64."""
    arrays = arrays_of(case)
    expected = outputs_of(case, arrays)
    try:
        made = engine({name: given(x) for name, x in arrays.items()}, asked_of(case))
        made = made if isinstance(made, (tuple, list)) else (made,)
        if len(made) != len(expected):
            raise ArgumentError(f"{len(made)} outputs; expected {', '.join(expected)}")
        numbers = [x.detach().double().cpu() if hasattr(x, "detach") else x for x in made]
        found = {name: numpy.asarray(x, float) for name, x in zip(expected, numbers)}
    except NotImplementedError as e:
        return Verdict(None, 0.0, f"left out: {e}")
    except Exception as e:  # an engine's own, of any kind
        return Verdict(False, float("inf"), f"{type(e).__name__}: {e}")
    for name, x in expected.items():
        if found[name].shape != x.shape:
            return Verdict(False, float("inf"), f"{name} is {list(found[name].shape)}; expected {list(x.shape)}")
    worst = apart(found, expected)
    return Verdict(worst <= bound, worst, "" if worst <= bound else _followed(case, found, expected, bound))


# ---- the command ----


def _folder_of(root: str, name: str) -> pathlib.Path:
    return pathlib.Path(root, name.replace(", ", "-").replace(" ", "_").replace("/", ":"))


def _write(root: str, case: Case) -> None:
    folder, arrays = _folder_of(root, case.name), arrays_of(case)
    folder.mkdir(parents=True, exist_ok=True)
    for name, x in [*arrays.items(), *((f"expected_{name}", x) for name, x in outputs_of(case, arrays).items())]:
        numpy.save(folder / f"{name}.npy", x)
    (folder / "asked.json").write_text(json.dumps(asked_of(case), indent=1) + "\n")


def _read(root: str) -> Callable[..., Any]:
    """An engine that has run already, in any language: found_q.npy, found_k.npy or found_out.npy beside its arrays."""

    def engine(_: Any, asked: Mapping[str, Any]) -> Any:
        names = ("q", "k") if asked["kind"] == "encode" else ("out",)
        paths = [_folder_of(root, asked["name"]) / f"found_{name}.npy" for name in names]
        if lacking := [path.name for path in paths if not path.is_file()]:
            raise NotImplementedError(f"there is no {lacking[0]}")
        return [numpy.load(path) for path in paths]

    return engine


def _engine(parser: argparse.ArgumentParser, asked: argparse.Namespace) -> Callable[..., Any]:
    word = asked.engine
    module, _, name = word.rpartition(":")
    if asked.c or asked.tvm_ffi:
        try:
            return (load_c if asked.c else load_tvm_ffi)(module, name)
        except (ImportError, OSError, AttributeError, RuntimeError) as e:
            parser.error(f"ENGINE {word}: {e}; expected LIBRARY.so:FUNCTION")
    if os.path.isdir(word):
        return _read(word)
    sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as e:
        parser.error(f"ENGINE {word}: {e}; expected MODULE:FUNCTION or a folder of outputs")


def _giver(dtype: str, is_torch: bool) -> Callable[[Any], Any]:
    if not is_torch:
        return lambda x: x.astype(dtype) if x.dtype.kind == "f" else x
    torch = importlib.import_module("torch")
    return lambda x: torch.from_numpy(x).to(getattr(torch, dtype) if x.dtype.kind == "f" else None)


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("pegen conform", description=__doc__)
    add = parser.add_argument
    add("engine", nargs="?", metavar="ENGINE", help="MODULE:FUNCTION, or the folder of --write with outputs in it")
    add("--only", action="append", metavar="PATTERN", help="cases of these names, as '*YaRN*'")
    kinds = parser.add_mutually_exclusive_group()
    for flag, told in [("--torch", "give tensors of PyTorch"),
                       ("--c", "ENGINE is LIBRARY.so:FUNCTION of C, as in examples/conform.c"),
                       ("--tvm-ffi", "ENGINE is LIBRARY.so:FUNCTION of TVM-FFI, of Map<String, Tensor> and "
                        "Map<String, Any>; it fills found_q and found_k, or found_out")]:  # fmt: skip
        kinds.add_argument(flag, action="store_true", help=told)
    add("--dtype", default="float32", help="of rows that are given: float32 (default), float64, float16, bfloat16")
    add("--bound", type=float, default=BOUND, help="allowed difference, of the largest number; default %(default)s")
    add("--list", action="store_true", help="print the cases' conventions instead: what is asked for, | and others")
    add("--write", metavar="FOLDER", help="write the cases instead, a folder each of .npy files in float64")
    asked = parser.parse_args(given)
    chosen = [case for name, case in CASES.items() if any(fnmatch.fnmatch(name, x) for x in asked.only or "*")]
    if not chosen or sum(map(bool, (asked.engine, asked.write, asked.list))) != 1:
        parser.error("expected ENGINE, --write or --list" if chosen else f"no case is named {' or '.join(asked.only)}")
    if asked.dtype not in ("float32", "float64", "float16", *(["bfloat16"] if asked.torch else [])):
        parser.error(f"--dtype {asked.dtype}: expected float32, float64 or float16, and bfloat16 with --torch")
    if asked.torch and not importlib.util.find_spec("torch"):
        parser.error("--torch: PyTorch is not installed")
    if asked.list:
        for case in chosen:
            print(case.name)
            for name, values in case.asked.items():
                print(f"  {name} = {values[0]}: {' | '.join(words(name, x) for x in values)}")
        return 0
    if asked.write is not None:
        for case in chosen:
            _write(asked.write, case)
        return 0
    engine, give, passed = _engine(parser, asked), _giver(asked.dtype, asked.torch), []
    width = max(len(case.name) for case in chosen)
    for case in chosen:
        found = judge(case, engine, asked.bound, give)
        passed.append(found.passed)
        word = {True: "right", False: "WRONG", None: "-"}[found.passed]
        print(f"{case.name:{width}} {word:5} {found.difference:8.1e}  {found.words}".rstrip(), flush=True)
    right, wrong, lacking = (passed.count(x) for x in (True, False, None))
    print(f"{len(passed)} cases: {right} right, {wrong} wrong, {lacking} left out")
    return 1 if wrong else 0
