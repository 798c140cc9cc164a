"""What scripts/test does once the packages are there."""

import difflib
import json
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree

from build_targets import find_targets, list_tests

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build")
JOBS = str(len(os.sched_getaffinity(0)))
SKIPPED = 77  # the exit status of what cannot be tested here
FUZZ_SECONDS = {"all": 15, "soak": 1200}  # of each fuzzer


class Run:
    """What has run so far, for the closing line."""

    def __init__(self, tier):
        self.tier, self.begun, self.passed, self.failed, self.skipped = tier, time.monotonic(), 0, [], {}

    def read_results(self, path):
        for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
            name, status = case.get("name"), case.get("status")
            if status == "run":
                self.passed += 1
            elif status == "fail":
                self.failed.append(name)
            else:
                lines = [line.strip() for line in (case.findtext("system-out") or "").splitlines() if line.strip()]
                self.skipped.setdefault(lines[-1] if lines else "it was not run", []).append(name)

    def close(self):
        """Says in one line how many tests ran, and what was skipped and why; ends the program."""
        parts = [f"{self.passed} passed"]
        if self.failed:
            parts.append(f"{len(self.failed)} failed ({', '.join(self.failed)})")
        for reason, names in self.skipped.items():
            shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            parts.append(f"{len(names)} skipped ({shown}: {reason})")
        print(f"\nscripts/test {self.tier}: {', '.join(parts)}; {time.monotonic() - self.begun:.0f} s", flush=True)
        sys.exit(1 if self.failed else 0)

    def step(self, name, command, skip=None, **options):
        """A check that is no test of ctest's. The first that fails ends the run."""
        print(f"\n== {name}", flush=True)
        status = subprocess.run(command, cwd=ROOT, check=False, **options).returncode
        if status == SKIPPED and skip:
            self.skipped.setdefault(skip, []).append(name)
        elif status:
            self.failed.append(name)
            self.close()

    def build(self, build, targets):
        self.step(f"build: {os.path.basename(build)}", ["cmake", "--build", build, "--target", *targets])

    def ctest(self, build, selection, **options):
        """Builds what the chosen tests need and runs them."""
        names = list_tests(build, selection)
        self.build(build, find_targets(build, names))
        print(f"\n== tests: {os.path.basename(build)}", flush=True)
        results = os.path.join(build, "tests.xml")
        command = ["ctest", "--test-dir", build, *selection, "-j", JOBS, "--output-on-failure", "--no-tests=error"]
        status = subprocess.run([*command, "--output-junit", results], cwd=ROOT, check=False, **options).returncode
        self.read_results(results)
        if status and not self.failed:
            self.failed.append("ctest")
        if self.failed:
            self.close()


def configure(preset, build=BUILD, **define):
    """Where the build has what the preset asks for, it stays as it is: dev is a part of release."""
    cache = os.path.join(build, "CMakeCache.txt")
    text = ""
    if os.path.exists(cache):
        with open(cache, encoding="utf-8") as file:
            text = file.read()
    smaller = preset == "release" and "PEGEN_STOCK_KERNELS:BOOL=ON" not in text
    different = any(f"{key}:STRING={value}\n" not in text for key, value in define.items())
    if not text or smaller or different:
        defines = [f"-D{key}={value}" for key, value in define.items()]
        subprocess.run(["cmake", "--preset", preset, *defines], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def choose_by_name(names):
    """Arguments of ctest. A name that some test has is that test; any other word is a regular expression."""
    configure("dev")
    for preset in ("dev", "release"):  # some tests need the library of stock kernels
        configure(preset)
        known = list_tests(BUILD, [])
        pattern = "|".join(f"^{re.escape(name)}$" if name in known else name for name in names)
        missing = [name for name in names if not any(re.search(name, other) for other in known)]
        if not missing:
            return ["-R", pattern]
    near = difflib.get_close_matches(missing[0], known, 3, 0.5)
    sys.exit(f"scripts/test: no test matches '{missing[0]}'" + (f"; near are {', '.join(near)}" if near else ""))


def test_wheel(run, *arguments):
    skip = "Python's build tools do not install here"
    run.step("the Python package", ["./scripts/wheel", *arguments], skip=skip)


def test_quick(run):
    configure("dev")
    run.ctest(BUILD, ["-L", "^quick$"])


def test_default(run):
    configure("dev")
    run.ctest(BUILD, ["-LE", "^(full|fuzz)$"])
    test_wheel(run)


def test_all(run):
    run.step("layout", ["./scripts/format", "--check"])
    configure("release", PEGEN_FUZZ_SECONDS=FUZZ_SECONDS["all"])
    run.build(BUILD, ["all", "tests/all"])
    run.ctest(BUILD, ["-LE", "^soak$"])
    test_sanitizers(run, ["-LE", "^(long|fuzz)$"])
    test_wheel(run)


def test_sanitizers(run, selection):
    build = os.path.join(ROOT, "build-asan")
    configure("asan", build)
    run.ctest(build, selection)


def test_soak(run):
    configure("release", PEGEN_FUZZ_SECONDS=FUZZ_SECONDS["soak"])
    run.ctest(BUILD, ["-L", "^(fuzz|soak)$"])
    with open(os.path.join(ROOT, "CMakePresets.json"), encoding="utf-8") as file:
        presets = {preset["name"]: preset for preset in json.load(file)["testPresets"]}
    test_sanitizers(run, ["-E", presets["asan-all"]["filter"]["exclude"]["name"]])
    for analyzer in ("clang", "gcc"):
        command = [sys.executable, "tests/static/analyze.py", BUILD, analyzer]
        run.step(f"static analyzer: {analyzer}", command, skip="the analyzer is not installed")
    run.step("mutants", ["./scripts/mutate"])


TIERS = {"quick": test_quick, "default": test_default, "all": test_all, "soak": test_soak}


def main(arguments):
    names = arguments or ["default"]
    run = Run(" ".join(names))
    if names[0] in TIERS and len(names) == 1:
        TIERS[names[0]](run)
    else:
        run.ctest(BUILD, choose_by_name(names))
    run.close()


if __name__ == "__main__":
    main(sys.argv[1:])
