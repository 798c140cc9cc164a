#!/usr/bin/env python3
"""tiers_test.py BUILD SOURCE whole|partly: the tiers of scripts/test. whole: the build has every test.

Every expression of tests/tiers.cmake matches a test; what is built for a test is what its command names; a run's
closing line counts what passed and failed, and says what was skipped and why.
"""
import contextlib
import io
import os
import re
import sys
import tempfile
import unittest

BUILD, SOURCE, WHOLE = sys.argv[1], sys.argv[2], sys.argv[3] == "whole"
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(SOURCE, "scripts"))
import run_tests  # noqa: E402
from build_targets import find_targets, list_commands, list_tests  # noqa: E402

RESULTS = """<?xml version="1.0"?><testsuite>
<testcase name="a" status="run"><system-out>fine</system-out></testcase>
<testcase name="b" status="notrun"><skipped message="SKIP"/><system-out>one
torch is not installed: not tested
</system-out></testcase>
<testcase name="c" status="notrun"><skipped message="SKIP"/><system-out>torch is not installed: not tested</system-out>
</testcase>{more}</testsuite>"""
FAILED = '<testcase name="d" status="fail"><failure message=""/><system-out>no</system-out></testcase>'


def close(text):
    """The closing line and the exit status of a run with these results."""
    run, said = run_tests.Run("quick"), io.StringIO()
    with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
        file.write(text)
        file.flush()
        run.read_results(file.name)
    with contextlib.redirect_stdout(said):
        try:
            run.close()
        except SystemExit as end:
            return said.getvalue().strip(), end.code


class Tiers(unittest.TestCase):
    def test_closing_line(self):
        line, status = close(RESULTS.format(more=""))
        self.assertRegex(
            line, r"^scripts/test quick: 1 passed, 2 skipped \(b, c: torch is not installed: not tested\); \d+ s$"
        )
        self.assertEqual(status, 0)
        line, status = close(RESULTS.format(more=FAILED))
        self.assertIn("1 passed, 1 failed (d), 2 skipped", line)
        self.assertEqual(status, 1)

    def test_expressions(self):
        with open(os.path.join(SOURCE, "tests", "tiers.cmake"), encoding="utf-8") as file:
            text = re.sub(r"^\s*#.*$", "", file.read(), flags=re.MULTILINE)
        names = [name for name, _, _ in list_commands(BUILD)]
        lists = re.findall(r"set\(([A-Z_]+)\n?(.*?)\)\n(?=\n|$)", text, re.DOTALL)
        self.assertEqual(
            [name for name, _ in lists],
            ["QUICK", "DEFAULT_THOUGH_LONG", "FULL_THOUGH_SHORT", "SOAK", "LONG_UNDER_SANITIZERS"],
        )
        for name, expressions in lists:
            for expression in re.findall(r'"(.*?)"', expressions):
                found = [n for n in names if re.search(expression.replace("${native}", "x86-64-v[234]"), n)]
                if WHOLE:
                    self.assertTrue(found, f"{name}: no test matches {expression}")

    def test_targets(self):
        self.assertEqual({name for name, _, _ in list_commands(BUILD)}, set(list_tests(BUILD, [])))
        self.assertEqual(find_targets(BUILD, ["specs_check_rounded"]), ["pegen"])
        self.assertIn("tests/unit/unit_expr", find_targets(BUILD, ["unit_expr"]))
        self.assertIn("all", find_targets(BUILD, ["rooms"]))
        self.assertNotIn("tests/all", find_targets(BUILD, list_tests(BUILD, ["-L", "^quick$"])))


unittest.main(argv=sys.argv[:1])
