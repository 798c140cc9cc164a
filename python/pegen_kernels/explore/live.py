"""Descriptions as the workbench has them: texts with options, read and explained again as they change."""
from __future__ import annotations

import collections
import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import threading
from dataclasses import dataclass
from typing import Any, Mapping

import numpy

from .. import _native
from ..errors import ArgumentError, PegenError
from ..request import Ahead, Request, request_of, stock
from .facts import Facts, explain, run_explain

_TEXT = 1 << 20  # bytes of a description
_KEPT = 64  # answers
_BESIDE = 64  # descriptions in a folder that are looked at


@dataclass(frozen=True)
class Pane:
    """What a page says of one description."""

    name: str  # of the file that its text is written to
    label: str
    text: str
    origin: str  # a stock description's name, or a file of the command line; "": neither
    options: tuple[tuple[str, str], ...]
    grid: tuple[int, ...] | None
    seed: int | None
    # By name: a deviation, or a file that was sent, its tensor and what a person calls the file.
    operands: tuple[tuple[str, tuple[str, str, str]], ...]
    head: int | None
    block: int | None


def _text(found: Any, name: str, most: int = 400) -> str:
    if not isinstance(found, str) or len(found.encode(errors="replace")) > most or "\0" in found:
        raise ArgumentError(f"{name}: expected a text of at most {most} bytes")
    return found


def _whole(found: Any, name: str, most: int) -> int:
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= most:
        raise ArgumentError(f"{name} is {found!r}; expected a whole number of at most {most}")
    return found


def pane_of(given: Any) -> Pane:
    """Raises ArgumentError for what is no pane."""
    if not isinstance(given, dict):
        raise ArgumentError(f"a pane is {type(given).__name__}; expected an object")
    name = _text(given.get("name"), "name", 100)
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", name):
        raise ArgumentError(f"name is '{name}'; expected letters, digits, _ and -")
    options, operands = given.get("options") or {}, given.get("operands") or {}
    if not isinstance(options, dict) or not isinstance(operands, dict):
        raise ArgumentError("options and operands: expected objects")
    for option in [*options, *operands]:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", option):
            raise ArgumentError(f"'{option}': expected the name of an option or operand")
    grid = given.get("grid")
    if grid is not None and not (isinstance(grid, list) and grid):
        raise ArgumentError(f"grid is {grid!r}; expected sizes")
    optional = lambda key, most: None if given.get(key) is None else _whole(given[key], key, most)  # noqa: E731
    return Pane(
        name=name,
        label=_text(given.get("label") or name, "label"),
        text=_text(given.get("text"), "text", _TEXT),
        origin=_text(given.get("origin") or "", "origin", 4096),
        options=tuple(sorted((key, _text(value, key, 1 << 16)) for key, value in options.items())),
        grid=grid and tuple(_whole(size, "grid", 1024) for size in grid),
        seed=optional("seed", 2**63 - 1),
        operands=tuple(sorted((key, _operand(key, value)) for key, value in operands.items())),
        head=optional("head", 1 << 16),
        block=optional("block", 1 << 16),
    )


def _operand(name: str, given: Any) -> tuple[str, str, str]:
    if not isinstance(given, dict):
        raise ArgumentError(f"operand '{name}' is {given!r}; expected an object")
    if "deviation" in given:
        try:
            return "deviation", repr(float(given["deviation"])), f"{name}.npy"
        except (TypeError, ValueError):
            raise ArgumentError(f"operand '{name}': deviation is {given['deviation']!r}; expected a number") from None
    file = _text(given.get("file"), name, 100)
    return file, _text(given.get("tensor") or "", name), _text(given.get("called") or file, name)


class Watch:
    """The processes of one question: all are ended where it is asked no more."""

    def __init__(self, number: int = 0) -> None:
        self.number, self.cancelled = number, False
        self._lock = threading.Lock()
        self._processes: list[subprocess.Popen[str]] = []

    def __call__(self, process: subprocess.Popen[str]) -> None:
        with self._lock:
            self._processes = [other for other in self._processes if other.poll() is None] + [process]
            if self.cancelled:
                process.kill()

    def cancel(self) -> None:
        with self._lock:
            self.cancelled = True
            for process in self._processes:
                process.kill()


class Descriptions:
    """folder: for texts and operands. files: descriptions of the command line, by the names of their panes."""

    def __init__(self, folder: pathlib.Path, files: Mapping[str, str]) -> None:
        self.folder, self.files = folder, dict(files)
        self.ahead = Ahead()
        self._lock = threading.Lock()
        self._facts: collections.OrderedDict[Any, Facts] = collections.OrderedDict()
        self._latest: collections.OrderedDict[Any, Facts] = collections.OrderedDict()  # by text
        for part in ("texts", "operands"):
            (folder / part).mkdir(exist_ok=True)

    def source(self, name: str) -> pathlib.Path:
        """Where a stock description, or one of the command line, lies."""
        if name in self.files:
            return pathlib.Path(self.files[name])
        if name not in stock():
            raise ArgumentError(f"there is no description '{name}'")
        file = request_of(name, {}).file
        assert file is not None
        return pathlib.Path(file)

    def _has_origin(self, pane: Pane) -> bool:
        """A file that an earlier server was started with is none of this one's."""
        return pane.origin in self.files or pane.origin in stock()

    def is_unchanged(self, pane: Pane) -> bool:
        return self._has_origin(pane) and pane.text == self.source(pane.origin).read_text()

    def path(self, pane: Pane) -> pathlib.Path:
        """Its text as a file, with copies of the descriptions that lie beside its origin, which it may require."""
        digest = hashlib.sha256(json.dumps([pane.name, pane.origin, pane.text]).encode()).hexdigest()[:24]
        folder = self.folder / "texts" / digest
        file = folder / f"{pane.name}.lua"
        with self._lock:
            if not file.exists():
                folder.mkdir(exist_ok=True)
                if self._has_origin(pane):
                    self._copy_beside(self.source(pane.origin).parent, folder)
                file.write_text(pane.text)
        return file

    @staticmethod
    def _copy_beside(origin: pathlib.Path, folder: pathlib.Path) -> None:
        (folder / "parts").mkdir(exist_ok=True)
        for found in [*sorted(origin.glob("*.lua"))[:_BESIDE], *sorted((origin / "parts").glob("*.lua"))[:_BESIDE]]:
            if found.is_file() and not found.is_symlink() and found.stat().st_size <= _TEXT:
                shutil.copyfile(found, folder / found.relative_to(origin))

    def keep_operand(self, ending: str, content: bytes) -> str:
        if ending not in (".npy", ".safetensors"):
            raise ArgumentError(f"'{ending}': expected a file of NumPy (.npy) or a checkpoint (.safetensors)")
        name = hashlib.sha256(content).hexdigest()[:24] + ending
        (self.folder / "operands" / name).write_bytes(content)
        return name

    def _drawn(self, pane: Pane, name: str, deviation: float) -> pathlib.Path:
        """Normal numbers of this deviation, of the shape that the options give."""
        data = run_explain(self.request(pane), pane.name)[0]
        shapes = {operand["name"]: operand["shape"] for operand in data["operands"]}
        if name not in shapes:
            raise ArgumentError(f"operand '{name}': {pane.label} has none of this name")
        seed = pane.seed or 0
        digest = hashlib.sha256(json.dumps([name, shapes[name], deviation, seed]).encode()).hexdigest()[:24]
        file = self.folder / "operands" / f"{digest}.npy"
        if not file.exists():
            drawn = numpy.random.default_rng(seed).normal(0, deviation, shapes[name])
            numpy.save(file, drawn)
        return file

    def operand_files(self, pane: Pane) -> tuple[dict[str, str], str | None, dict[str, str]]:
        """Files by operand, a checkpoint, and what tensors are called there."""
        files: dict[str, str] = {}
        checkpoint, tensors = None, {}
        for name, (kind, word, _) in pane.operands:
            if kind == "deviation":
                files[name] = str(self._drawn(pane, name, float(word)))
                continue
            if not re.fullmatch(r"[0-9a-f]{24}\.(npy|safetensors)", kind):
                raise ArgumentError(f"operand '{name}': '{kind}' is no file that was sent")
            file = self.folder / "operands" / kind
            if not file.is_file():
                raise ArgumentError(f"operand '{name}': its file is no longer here: drop it once more")
            if file.suffix == ".npy":
                files[name] = str(file)
            else:
                checkpoint, tensors[name] = str(file), word or name
        return files, checkpoint, tensors

    def facts(self, pane: Pane, watch: Watch | None = None, rotors: bool = True) -> Facts:
        """rotors: as `explain` has it. Raises PegenError."""
        key = (pane.name, pane.text, pane.origin, pane.options, pane.grid, pane.seed, pane.operands)
        with self._lock:
            found = self._facts.get((key, True)) or self._facts.get((key, rotors))
            like = self._latest.get((pane.name, pane.text, pane.origin))
        if found is None:
            files, checkpoint, tensors = self.operand_files(pane)
            found = explain(self.path(pane), grid=pane.grid, operands=files, checkpoint=checkpoint, tensors=tensors,
                            seed=pane.seed, label=pane.name, defines=dict(pane.options), like=like,
                            rotors=rotors, watch=watch, ahead=self.ahead)  # fmt: skip
            with self._lock:
                for kept, at in ((self._facts, (key, rotors)), (self._latest, key[:3])):
                    kept[at] = found
                    kept.move_to_end(at)
                    if len(kept) > _KEPT:
                        kept.popitem(last=False)
        shown = found.of(pane.head, pane.block)
        return Facts(**{**vars(shown), "label": pane.label})

    def message_of(self, pane: Pane, told: PegenError | str) -> dict[str, Any]:
        """An error or a warning for the page: the words, and the line where they are of the pane's own text."""
        message = str(told).removeprefix(f"{pane.name}: ")
        folder = re.escape(str(self.folder / "texts")) + r"/[0-9a-f]+/"
        place = re.match(folder + re.escape(f"{pane.name}.lua") + r":(\d+): ", message)
        words = re.sub(folder, "", message)
        if place:
            words = re.sub(r"^[^:]*:\d+: (error: |warning: )?", "", words)
        return {"line": int(place[1]) if place else None, "message": words}

    def request(self, pane: Pane) -> Request:
        return request_of(self.path(pane), dict(pane.options))


def reference() -> str:
    """The reference of the language."""
    for folder in (_native.PACKAGE / "share" / "pegen", _native.PACKAGE.parents[1] / "docs"):
        if (folder / "spec-language.md").is_file():
            return (folder / "spec-language.md").read_text()
    return ""


def vocabulary() -> list[dict[str, str]]:
    """Words and what the reference says of them: rows of its tables, and the sections of pe.WORD."""
    found: dict[str, str] = {}
    text = reference()
    for words, body in re.findall(r"^## (pe\.[^\n]*)\n\n([^\n|`][^\n]*)", text, re.MULTILINE):
        found[words.split("(")[0].split(" ")[0]] = f"{words}: {body}"
    for row in re.findall(r"^\| (`[^\n]*)\|$", text, re.MULTILINE):
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row)]
        for word in re.findall(r"`([^`]+)`", cells[0]):
            name = re.match(r"(pe\.)?[a-z_][a-z_0-9.]*", word)
            if name and len(cells) > 1:
                told = ". ".join(cell.replace("\\|", "|") for cell in cells[1:] if cell)
                found.setdefault(name[0], f"{word}: {told}" if word != name[0] else told)
    return [{"word": word, "text": re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)} for word, text in found.items()]
