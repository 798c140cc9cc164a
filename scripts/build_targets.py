"""What must be built for chosen tests: every file and folder of the build that their commands name."""

import os
import re
import subprocess


def list_commands(build):
    """Name, words and folder of every test. ctest itself tells only those whose program is built."""
    for folder, folders, names in os.walk(os.path.join(build, "tests")):
        if "CMakeCache.txt" in names:  # a build of its own, of a test
            folders.clear()
            continue
        if "CTestTestfile.cmake" in names:
            with open(os.path.join(folder, "CTestTestfile.cmake"), encoding="utf-8") as file:
                for _, name, words in re.findall(r"^add_test\(\[(=+)\[(.*?)\]\1\] (.*)\)$", file.read(), re.MULTILINE):
                    yield name, re.findall(r'"(.*?)"', words), folder


def list_tests(build, selection):
    """Names of the tests that these arguments of ctest choose, with those that set up what they need."""
    listed = subprocess.run(
        ["ctest", "--test-dir", build, "-N", *selection], capture_output=True, text=True, check=True
    )
    return re.findall(r"^ *Test +#\d+: (\S+)", listed.stdout, re.MULTILINE)


def find_targets(build, tests):
    """Targets of ninja. A test that names no file of the build may need the program and libraries."""
    listed = subprocess.run(["ninja", "-C", build, "-t", "targets", "all"], capture_output=True, text=True, check=True)
    known = {line.rsplit(":", 1)[0] for line in listed.stdout.splitlines() if ":" in line}
    wanted, found = set(tests), set()
    for name, words, folder in list_commands(build):
        if name not in wanted:
            continue
        named = [os.path.relpath(word, build) for word in words if word.startswith(build)]
        files = [word for word in named if word in known]
        folders = ["all" if word == "." else f"{word}/all" for word in named]
        if not files:
            folders += ["all", f"{os.path.relpath(folder, build)}/all"]
            folders = [word for word in folders if word != "tests/all"]  # that is every test's program
        found.update(files, (word for word in folders if word in known))
    return sorted(found)
