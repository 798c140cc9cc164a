#!/usr/bin/env python3
"""Speed and errors of kernels on an NVIDIA GPU, beside PyTorch's, in one run.

    bench/gpu/prepare BUILD_DIR FOLDER            # where the compiler is
    python3 bench/gpu/bench.py FOLDER             # where the GPU is: all, at most ten minutes
    python3 bench/gpu/bench.py FOLDER --short     # attention and its gradients, about a minute

Needs PyTorch, and nothing else of this project but python/. Measurements run in a process of their own, which is
started again where a kernel ends it, or hangs: that measurement's cell says so, and the others go on. Prints tables in
Markdown; the exit status is 1 where a result was wrong or a kernel of pegen failed.
"""
from __future__ import annotations

import argparse
import json
import lzma
import math
import os
import pathlib
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "python")]

from kernels import PARTS, Case, cases_of  # noqa: E402
from report import markdown  # noqa: E402

MARK = "@pegen-bench "  # begins a worker's lines that are for this script
START_SECONDS = 90  # of a worker, PyTorch's import among them
FATAL = 3  # a worker's exit status where the device takes no further work


# ---- the worker ----


def say(**message: Any) -> None:
    print(MARK + json.dumps(message), flush=True)


def describe_machine(device: str) -> dict[str, Any]:
    import torch

    machine = {"torch": torch.__version__, "cuda": torch.version.cuda, "python": sys.version.split()[0]}
    if device == "cpu":
        return {**machine, "device": "processor (a trial of the script, not a measurement)"}
    properties = torch.cuda.get_device_properties(0)
    machine |= {"device": torch.cuda.get_device_name(), "processors": properties.multi_processor_count,
                "bytes": properties.total_memory, "chip": list(torch.cuda.get_device_capability())}  # fmt: skip
    try:
        asked = ["nvidia-smi", "--query-gpu=driver_version,clocks.max.sm,power.limit", "--format=csv,noheader"]
        words = subprocess.run(asked, capture_output=True, text=True, timeout=20).stdout.splitlines()[0].split(", ")
        machine |= dict(zip(("driver", "most_clock", "power_limit"), words))
    except (OSError, IndexError, subprocess.SubprocessError):
        pass
    return machine


def work(options: argparse.Namespace, cases: list[Case]) -> int:
    """Measures the cases from number options.start on, in this process."""
    import torch
    from measure import MEASURES, Device, Loaded, one_line

    if options.device == "cuda" and not torch.cuda.is_available():
        say(fatal="PyTorch finds no CUDA device; --device cpu tries the script without one")
        return FATAL
    device = Device(options.device, not options.no_graphs)
    folder = pathlib.Path(options.folder)
    loaded = Loaded(str(folder), json.loads((folder / "index.json").read_text()))
    say(machine=describe_machine(options.device))
    for number in range(options.start, len(cases)):
        say(begin=number)
        case = device.fitted(cases[number])
        status = 0
        try:
            result = MEASURES[case.part](case, loaded, device, 0.5 if options.short else 1.0)
        except Exception as error:
            result = {"error": one_line(error)}
            try:
                device.wait()
                if device.is_gpu:
                    torch.cuda.empty_cache()
            except Exception:
                status = FATAL
        say(end=number, result={**case._asdict(), "shape": case.shape, **result})
        if status:
            return status
    return 0


# ---- the script ----


class Worker:
    """A process that measures, and its messages."""

    def __init__(self, words: list[str], environment: dict[str, str]) -> None:
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "bench.py"), *words], stdout=subprocess.PIPE, stderr=self.errors, text=True,
            env=environment, errors="replace",
        )  # fmt: skip
        self.messages: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            if line.startswith(MARK):
                self.messages.put(json.loads(line[len(MARK) :]))
        self.messages.put(None)

    def next(self, seconds: float) -> dict[str, Any] | None:
        """Its next message; None where it has ended. Raises queue.Empty after so many seconds."""
        return self.messages.get(timeout=max(seconds, 0.01))

    def end(self) -> str:
        """Ends the process; how it did, with the last of what it wrote to stderr."""
        is_running = self.process.poll() is None
        if is_running:
            self.process.kill()
        try:
            status = self.process.wait(30)
        except subprocess.TimeoutExpired:  # the driver holds it
            return "does not end"
        self.errors.seek(0)
        tail = " ".join(self.errors.read()[-2000:].split())[-240:]
        how = (
            "was ended" if is_running else f"signal {signal.Signals(-status).name}" if status < 0 else f"exit {status}"
        )
        return f"{how}: {tail}" if tail else how


def _finite(x: Any) -> Any:
    """x, or None for what JSON has no number for; a row says itself that it is wrong."""
    return None if isinstance(x, float) and not math.isfinite(x) else x


class Run:
    """What has been measured, within a time."""

    def __init__(self, options: argparse.Namespace, cases: list[Case], machine: dict[str, Any]) -> None:
        self.options, self.cases, self.machine = options, cases, machine
        self.began = time.monotonic()
        self.rows: list[dict[str, Any]] = []

    def left(self) -> float:
        return self.options.limit - (time.monotonic() - self.began)

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.began:5.1f} s] {text}", file=sys.stderr, flush=True)

    def add(self, number: int, result: dict[str, Any]) -> None:
        self.rows.append(result)
        words = [f"{key} {result[key]:.3g}" for key in ("tflops", "gbs", "of_copy", "max_error") if key in result]
        if "seconds" in result:
            words.insert(0, f"{result['seconds'] * 1e6:.1f} us")
        words += ["WRONG"] * bool(result.get("wrong")) + ["other bits again"] * (result.get("same_bits") is False)
        self.say(f"{number + 1}/{len(self.cases)} {self.cases[number].name}: {result.get('error') or ', '.join(words)}")
        self.save()

    def fail(self, number: int, message: str) -> None:
        case = self.cases[number]
        self.add(number, {**case._asdict(), "shape": case.shape, "error": message})

    def save(self) -> None:
        """Writes the JSON file anew; the old one stays until it is complete."""
        if self.options.json:
            temporary = pathlib.Path(f"{self.options.json}.tmp")
            numbers = [{name: _finite(x) for name, x in row.items()} for row in self.rows]
            temporary.write_text(json.dumps({"machine": self.machine, "rows": numbers}, indent=1) + "\n")
            temporary.replace(self.options.json)

    def measure(self, start_worker: Any) -> None:
        """All cases, by as many workers as it takes."""
        number = 0
        while number < len(self.cases) and self.left() > 0:
            worker = start_worker(number)
            try:
                number = self._follow(worker, number)
            finally:
                worker.end()

    def _follow(self, worker: Worker, number: int) -> int:
        """Takes a worker's results; returns the number of the case that the next worker begins with."""
        begun, allowed = -1, START_SECONDS
        while number < len(self.cases):
            try:
                message = worker.next(min(allowed, self.left()))
            except queue.Empty:
                if self.left() <= 0:
                    return number
                how = f"no result after {allowed:.0f} s"
                message = None
            else:
                how = "" if message else f"the process ended: {worker.end()}"
            if message is None and begun < 0:
                sys.exit(f"the worker did not start: {how}")
            if message is None:
                if begun == number:
                    self.fail(number, how)
                    number += 1
                return number
            if "fatal" in message:
                sys.exit(message["fatal"])
            self.machine |= message.get("machine", {})
            if "begin" in message:
                begun, allowed = message["begin"], self.options.case_limit
            if "end" in message:
                self.add(number, message["result"])
                number += 1
        return number

    def finish(self, reason: str) -> int:
        """Prints the tables; the exit status. reason: why it ended early."""
        if reason:
            self.say(f"ended early: {reason}")
        print(markdown(self.machine, self.rows, len(self.cases) - len(self.rows)))
        self.save()
        own = [row for row in self.rows if not row["peer"]]
        bad = [row for row in own if row.get("error") or row.get("wrong") or row.get("same_bits") is False]
        self.say(f"{len(self.rows)} of {len(self.cases)} measured; {len(bad)} of pegen's {len(own)} wrong or failed")
        return bool(bad or reason)


def unpacked(source: pathlib.Path, target: pathlib.Path) -> dict[str, Any]:
    """Unpacks what `prepare` wrote; its index."""
    try:
        index = json.loads((source / "index.json").read_text())
    except OSError as error:
        sys.exit(f"{source}: {error.strerror}; expected a folder that bench/gpu/prepare wrote")
    for name in index["files"]:
        (target / name).write_bytes(lzma.decompress((source / f"{name}.xz").read_bytes()))
    (target / "index.json").write_text(json.dumps(index))
    return index


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="what bench/gpu/prepare wrote")
    parser.add_argument("--only", choices=PARTS, action="append", help="a part; may be given again")
    parser.add_argument("--short", action="store_true", help="the cases that tell most; those of attention alone")
    parser.add_argument("--match", default="", help="only cases whose names this regular expression finds")
    parser.add_argument("--json", help="write every figure to this file, after each measurement")
    parser.add_argument("--limit", type=float, default=0, help="seconds; 600, with --short 120")
    parser.add_argument("--case-limit", type=float, default=75, help="seconds of one measurement")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: tries the script, small")
    parser.add_argument("--no-graphs", action="store_true", help="time between events, not in CUDA graphs")
    parser.add_argument("--list", action="store_true", help="print the names of cases, and end")
    parser.add_argument("--start", type=int, default=-1, help=argparse.SUPPRESS)  # of a worker
    options = parser.parse_args()
    options.limit = options.limit or (120 if options.short else 600)
    return options


def main() -> int:
    options = parse()
    parts = options.only or list(PARTS)
    cases = [
        case for case in cases_of(parts, options.short) if case.part == "machine" or re.search(options.match, case.name)
    ]
    if options.list:
        print(*(case.name for case in cases), sep="\n")
        return 0
    if options.start >= 0:
        return work(options, cases)
    with tempfile.TemporaryDirectory() as folder:
        index = unpacked(pathlib.Path(options.folder), pathlib.Path(folder))
        environment = {**os.environ, "PEGEN_LIBRARY": f"{folder}/libpegen.so", "PYTHONUNBUFFERED": "1"}
        words = [folder, "--match", options.match, "--device", options.device]
        words += ["--short"] * options.short + ["--no-graphs"] * options.no_graphs
        words += [word for part in parts for word in ("--only", part)]
        run = Run(options, cases, {"commit": index["commit"]})
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("signal SIGTERM"))
        reason: Any = ""
        try:
            run.measure(lambda number: Worker([*words, "--start", str(number)], environment))
        except KeyboardInterrupt:
            reason = "interrupted"
        except SystemExit as stop:
            reason = stop.code
        return run.finish(str(reason))


if __name__ == "__main__":
    sys.exit(main())
