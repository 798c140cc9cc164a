"""What takes longer, in the background: check, bench and a small study, each a process that can be stopped."""
from __future__ import annotations

import asyncio
import ctypes
import json
import os
import pathlib
import re
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from typing import Any, Sequence

from ..errors import ArgumentError
from .facts import Facts
from .live import Descriptions, Pane

KINDS = ("check", "bench", "train")
_MOST = 2  # that run at a time
_KEPT = 40
_TAIL = 1 << 16  # bytes of messages that are kept
_PR_SET_PDEATHSIG = 1
_STUDY = {  # data by how many axes a position has, with settings that two minutes are enough for
    1: 'set = "text"\nlengths = [64]\nsamples = 600\ntested = 40',
    2: 'set = "digits"\nsizes = [8]\npatch = 2',
    3: 'set = "moving_shapes"\nframes = [4]\nsamples = 600\ntested = 200',
}
_EPOCHS = {1: 6, 2: 12, 3: 6}
_USUAL = {"check": 8.0, "bench": 3.0, "train": 120.0}  # seconds: most descriptions take them; studies are sized to them


def _die_with_parent() -> None:
    """A workbench that is killed leaves nothing running."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@dataclass
class Job:
    number: int
    kind: str
    label: str
    pane: str  # the page's own word for what it is of
    state: str = "waits"  # runs, done, failed, stopped
    started: float = 0.0
    seconds: float = 0.0
    expected: float = 0.0  # seconds: as usual, then by the last one of its kind, then by what is done
    message: str = ""
    result: Any = None
    curve: list[dict[str, Any]] = field(default_factory=list)
    process: asyncio.subprocess.Process | None = None

    def told(self) -> dict[str, Any]:
        seconds = time.monotonic() - self.started if self.state == "runs" else self.seconds
        share = len(self.curve) / (2 * self.curve[0]["epochs"]) if self.curve else seconds / self.expected
        left = seconds * (1 / share - 1) if 0 < share < 1 and self.state == "runs" else None
        return {"number": self.number, "kind": self.kind, "label": self.label, "pane": self.pane, "state": self.state,
                "seconds": seconds, "share": min(share, 0.99), "left": left, "message": self.message,
                "result": self.result, "curve": self.curve}  # fmt: skip


def _study(name: str, axes: int, head_dim: int, variants: Sequence[tuple[str, pathlib.Path, Pane]]) -> str:
    """TOML, whose texts are JSON's; variants: with the file of each."""
    lines = [f"name = {json.dumps(name)}", "seeds = [0]", "[data]", _STUDY[axes], "[model]", f"dim = {2 * head_dim}",
             "heads = 2", "[training]", f"epochs = {_EPOCHS[axes]}"]  # fmt: skip
    for label, file, pane in variants:
        lines += [f"[variants.{json.dumps(label)}]", f"spec = {json.dumps(str(file))}"]
        if pane.options:
            options = ", ".join(f"{key} = {json.dumps(value)}" for key, value in pane.options)
            lines.append(f"options = {{ {options} }}")
    if len(variants) == 1:
        lines += ['[variants."no encoding"]']
    return "\n".join(lines) + "\n"


class Jobs:
    def __init__(self, descriptions: Descriptions) -> None:
        self.descriptions = descriptions
        self.all: dict[int, Job] = {}
        self._room = asyncio.Semaphore(_MOST)
        self._tasks: set[asyncio.Task[None]] = set()
        self._last = dict(_USUAL)  # seconds by kind
        self._folder = tempfile.TemporaryDirectory(dir=descriptions.folder)

    def _command(self, kind: str, panes: Sequence[Pane], number: int, facts: Sequence[Facts]) -> list[str]:
        request = self.descriptions.request(panes[0])
        if kind == "check":
            return [*request.words("check", "--json"), str(request.file)]
        if kind == "bench":
            return [*request.words("bench", "--json", "--shape", "vit_b1"), str(request.file)]
        axes = len(facts[0].axes)
        if axes not in _STUDY:
            raise ArgumentError(f"train: {panes[0].label} has {axes} axes; the studies have one, two or three")
        if any(len(f.axes) != axes for f in facts):
            raise ArgumentError("train: the two descriptions have different numbers of axes")
        folder = pathlib.Path(self._folder.name) / str(number)
        folder.mkdir()
        variants = [(pane.label, self.descriptions.path(pane), pane) for pane in panes[:2]]
        (folder / "study.toml").write_text(
            _study(f"{panes[0].label}: two minutes", axes, facts[0].data["head_dim"], variants)
        )
        return [sys.executable, "-m", "pegen_kernels", "lab", str(folder / "study.toml"), "-o", str(folder / "out"),
                "--progress"]  # fmt: skip

    def start(self, kind: str, panes: Sequence[Pane], facts: Sequence[Facts], place: str) -> Job:
        if kind not in KINDS or not panes:
            raise ArgumentError(f"job '{kind}': expected one of {', '.join(KINDS)} and a description")
        number = max(self.all, default=0) + 1
        words = self._command(kind, panes, number, facts)
        labels = [pane.label for pane in (panes[:2] if kind == "train" else panes[:1])]
        job = Job(number, kind, " and ".join(labels), place, expected=self._last[kind])
        self.all[number] = job
        for old in list(self.all)[:-_KEPT]:
            if self.all[old].state not in ("waits", "runs"):
                del self.all[old]
        task = asyncio.get_running_loop().create_task(self._run(job, words))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return job

    async def _run(self, job: Job, words: list[str]) -> None:
        async with self._room:
            if job.state == "stopped":
                return
            job.state, job.started = "runs", time.monotonic()
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            job.process = await asyncio.create_subprocess_exec(
                *words, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE, start_new_session=True, preexec_fn=_die_with_parent, limit=1 << 24,
                env=environment,
            )  # fmt: skip
            if job.state == "stopped":  # while it was started
                self._end(job)
            try:
                out, err = await asyncio.gather(self._read(job), self._messages(job))
                status = await job.process.wait()
            finally:
                self._end(job)
            job.seconds = time.monotonic() - job.started
            if job.state == "stopped":
                return
            self._finish(job, status, out, err)

    async def _read(self, job: Job) -> str:
        assert job.process and job.process.stdout
        found: list[str] = []
        begun: set[str] = set()  # targets: each takes as long as another
        async for line in job.process.stdout:
            text = line.decode(errors="replace")
            if job.kind == "train" and text.startswith("{"):
                job.curve.append(json.loads(text))
                continue
            found.append(text)
            if job.kind == "check" and '"target": ' in text and text not in begun:
                targets = re.search(r'"targets": \[(.*?)\]', "".join(found), re.DOTALL)
                if targets and begun:  # so many are done
                    job.expected = (time.monotonic() - job.started) * (targets[1].count('"') // 2) / len(begun)
                begun.add(text)
        return "".join(found)

    async def _messages(self, job: Job) -> str:
        """The last ones."""
        assert job.process and job.process.stderr
        kept = b""
        while part := await job.process.stderr.read(4096):
            kept = (kept + part)[-_TAIL:]
        return kept.decode(errors="replace")

    def _finish(self, job: Job, status: int, out: str, err: str) -> None:
        told = re.sub(re.escape(str(self.descriptions.folder)) + r"\S*/", "", err.strip())
        job.state = "done" if status == 0 else "failed"
        try:
            if job.kind == "check":
                checks = json.loads(out)["checks"]
                bad = [check for check in checks if not check["pass"]]
                measured = [check for check in checks if check.get("bound") and check.get("error") is not None]
                worst = max(measured, key=lambda check: check["error"] / check["bound"], default=None)
                job.result = {"checks": len(checks), "failed": bad[:20], "worst": worst}
                job.message = f"{len(checks) - len(bad)} of {len(checks)} checks pass"
            elif status == 0 and job.kind == "bench":
                job.result = json.loads(out)["rows"]
                job.message = "vit_b1, float32, one thread"
            else:
                job.message = told.splitlines()[-1] if told and status else "trained"
        except (ValueError, KeyError, TypeError):
            job.state, job.message = "failed", told or f"ended with status {status}"
        if job.state == "done":
            self._last[job.kind] = job.seconds

    def _end(self, job: Job) -> None:
        """With all that it started."""
        if job.process and job.process.returncode is None:
            try:
                os.killpg(job.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def stop(self, number: int) -> None:
        job = self.all.get(number)
        if job is None:
            raise ArgumentError(f"there is no job {number}")
        if job.state in ("waits", "runs"):
            job.state, job.message = "stopped", "stopped"
            job.seconds = time.monotonic() - job.started if job.started else 0.0
            self._end(job)

    async def close(self) -> None:
        for number in self.all:
            self.stop(number)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._folder.cleanup()
