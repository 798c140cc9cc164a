"""bench/gpu on a processor: what it prepares, loads, compares and prints. usage: bench_test.py BUILD_DIR"""
import argparse
import importlib.util
import json
import math
import os
import pathlib
import queue
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "bench" / "gpu"
sys.path[:0] = [str(FOLDER), str(ROOT / "python")]
if any(importlib.util.find_spec(name) is None for name in ("torch", "numpy")):
    print("torch or numpy is not installed: not tested")
    sys.exit(77)

import bench  # noqa: E402
import kernels  # noqa: E402
import report  # noqa: E402


class StandIn:
    """A worker that sends what it was given; an exception is raised, and the end of the list is the process's."""

    def __init__(self, messages):
        self.messages, self.ends = list(messages), 0

    def next(self, seconds):
        message = self.messages.pop(0) if self.messages else None
        if isinstance(message, Exception):
            raise message
        return message

    def end(self):
        self.ends += 1
        return "signal SIGSEGV"


def ended(number, case, **result):
    return {"end": number, "result": {**case._asdict(), "shape": case.shape, **result}}


class Cases(unittest.TestCase):
    def test_names(self):
        cases = kernels.cases_of(list(kernels.PARTS), False)
        names = [case.name for case in cases]
        self.assertEqual(len(names), len(set(names)))
        for case in cases:
            self.assertTrue(case.peer or case.part == "calls" or case.kernel in kernels.KERNELS, case)
        short = kernels.cases_of(["attention", "backward"], True)
        self.assertLess({case.name for case in short}, set(names))

    def test_order(self):
        """What compiles for long comes last, so that it costs nothing else."""
        are_late = [case.peer == "FlexAttention" for case in kernels.cases_of(list(kernels.PARTS), False)]
        self.assertEqual(are_late, sorted(are_late))


class Runs(unittest.TestCase):
    cases = [case for case in kernels.PARTS["attention"] if not case.peer][:3]

    def run_of(self, *workers, limit=60.0):
        options = argparse.Namespace(limit=limit, case_limit=5.0, json=None)
        run, started = bench.Run(options, self.cases, {}), []
        run.say = lambda text: None
        rest = [StandIn(messages) for messages in workers]

        def start(number):
            started.append(number)
            return rest[len(started) - 1]

        run.measure(start)
        self.assertTrue(all(worker.ends for worker in rest[: len(started)]))
        return run, started

    def test_process_ends(self):
        """A measurement that ends its process is a cell; the next one has a new process."""
        a, b, c = self.cases
        run, started = self.run_of(
            [{"machine": {"device": "x"}}, {"begin": 0}, ended(0, a, seconds=1.0), {"begin": 1}],
            [{"begin": 2}, ended(2, c, seconds=3.0)],
        )
        self.assertEqual(started, [0, 2])
        self.assertEqual([row.get("seconds") for row in run.rows], [1.0, None, 3.0])
        self.assertEqual(run.rows[1]["error"], "the process ended: signal SIGSEGV")
        self.assertEqual((run.rows[1]["label"], run.machine["device"]), (b.label, "x"))

    def test_process_hangs(self):
        a, b, c = self.cases
        run, started = self.run_of(
            [{"begin": 0}, queue.Empty()], [{"begin": 1}, ended(1, b), {"begin": 2}, ended(2, c)]
        )
        self.assertEqual(started, [0, 1])
        self.assertEqual([row.get("error") for row in run.rows], ["no result after 5 s", None, None])

    def test_fatal_then_next(self):
        """A worker that reports an error and stops, as it does where the device takes no further work."""
        a, b, c = self.cases
        run, started = self.run_of(
            [{"begin": 0}, ended(0, a, error="illegal address"), None],
            [{"begin": 1}, ended(1, b), {"begin": 2}, ended(2, c)],
        )
        self.assertEqual(([row.get("error") for row in run.rows], started), (["illegal address", None, None], [0, 1]))

    def test_limit(self):
        run, started = self.run_of([{"begin": 0}, queue.Empty()], limit=0.0)
        self.assertEqual((run.rows, started), ([], []))
        text = report.markdown({}, run.rows, len(self.cases))
        self.assertIn("3 measurements were not reached", text)

    def test_does_not_start(self):
        with self.assertRaisesRegex(SystemExit, "did not start: the process ended: signal SIGSEGV"):
            self.run_of([])


class Errors(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        os.environ.setdefault("PEGEN_LIBRARY", str(pathlib.Path(sys.argv[1]) / "runtime" / "libpegen.so"))
        import measure

        cls.measure = measure

    def test_not_a_number(self):
        import torch

        right = torch.ones(2, 3, dtype=torch.float64)
        checked = self.measure.Checked([right], lambda results: [results[0][:2]])
        self.assertEqual(checked.errors([torch.ones(4, 3)]), (0.0, 0.0))
        self.assertAlmostEqual(checked.errors([torch.ones(4, 3) * 1.5])[0], 0.5)
        for bad in (math.nan, math.inf):
            spoilt = torch.ones(4, 3)
            spoilt[3, 1] = bad  # beside what is compared
            errors = checked.errors([spoilt])
            self.assertTrue(math.isnan(errors[0]))
            self.assertTrue(self.measure.is_wrong(errors, (1.0, 1.0)))
            self.assertTrue(self.measure.is_wrong(errors, (math.nan, math.nan)))
        self.assertTrue(self.measure.row_errors([torch.full((2,), math.nan)], [torch.ones(2)])["wrong"])

    def test_wrong(self):
        self.assertFalse(self.measure.is_wrong((2e-3, 1e-3), (3e-3, 1e-3)))
        self.assertTrue(self.measure.is_wrong((4e-2, 1e-3), (3e-3, 1e-3)))
        self.assertTrue(self.measure.is_wrong((2e-3, 2e-2), (3e-3, 1e-3)))
        self.assertTrue(self.measure.is_wrong((0.1, 1e-3), (math.nan, math.nan)))

    def test_poison(self):
        """Memory that a kernel is given for its results holds NaN."""
        import torch

        with self.measure.poisoned():
            made = [torch.empty(3), torch.empty_like(torch.ones(2).bfloat16()), torch.ones(1).new_empty(2, 2)]
        self.assertTrue(all(bool(x.isnan().all()) for x in made))
        self.assertFalse(torch.are_deterministic_algorithms_enabled())


class Whole(unittest.TestCase):
    def test_prepare_and_bench(self):
        """One kernel, compiled ahead and loaded without the compiler: its errors are those of 16 bits, and a kernel
        that is not in the folder is a cell."""
        with tempfile.TemporaryDirectory() as folder:
            prepare = [sys.executable, str(FOLDER / "prepare"), sys.argv[1], f"{folder}/made", "--jobs", "1"]
            subprocess.run([*prepare, "--match", "alibi_head_dim-64"], check=True, capture_output=True)
            script = [sys.executable, str(FOLDER / "bench.py"), f"{folder}/made", "--device", "cpu", "--only"]
            named = {"PEGEN": "none", "PATH": ""}
            done = subprocess.run(
                [*script, "backward", "--match", r"pegen bfloat16 .*,64\] causal", "--json", f"{folder}/json"],
                capture_output=True, text=True, env=named,
            )  # fmt: skip
            self.assertEqual(done.returncode, 1, done.stderr)
            rows = {row["label"]: row for row in json.loads(pathlib.Path(folder, "json").read_text())["rows"]}
        self.assertIn("the folder has no such kernel", rows["plain"]["error"])
        alibi = rows["ALiBi"]
        self.assertEqual((alibi["wrong"], alibi["same_bits"]), (False, True))
        self.assertLess(alibi["max_error"], 0.01)
        self.assertGreater(alibi["mean_error"], 1e-4)
        self.assertRegex(done.stdout, r"\| ALiBi \| \*\*pegen\*\* \| \d")
        self.assertIn("1 of pegen's 2 wrong or failed", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
