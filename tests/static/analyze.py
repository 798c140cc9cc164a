"""analyze.py BUILD ANALYZER [FOLDER...]: reports of a static analyzer ("clang" or "gcc") over C code.

Every report fails, unless reports.tsv says why it is none. A row that nothing reports any more fails as well, when all
folders are read. A row has the analyzer, files as a pattern, the checker, and the reason.
"""

import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

SKIPPED = 77
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
FOLDERS = ("compiler", "kernel", "runtime", "dsl")
# Clang reports what callees in headers of the system do, too; gcc follows one function's paths at -O1.
ANALYZERS = {
    "clang": (["clang-22", "--analyze", "-Xclang", "-analyzer-output=text"], r"\[([a-z]+\.[\w.]+)\]$"),
    "gcc": (["gcc", "-fanalyzer", "-O1", "-S"], r"\[-W(analyzer-[\w-]+)\]$"),
}


def find_sources(build, folders):
    """C files of the folders with what the compiler needs to read them: each once."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        commands = json.load(file)
    sources = {}
    for entry in commands:
        path = os.path.relpath(entry["file"], ROOT)
        if path.endswith(".c") and path.startswith(tuple(folder + "/" for folder in folders)):
            sources.setdefault(path, entry)
    return sources


def find_options(entry):
    """Options of the preprocessor and of the language."""
    words, options = shlex.split(entry["command"]), []
    for i, word in enumerate(words):
        if word.startswith(("-I", "-D", "-std", "-include")) or words[i - 1] in ("-isystem", "-include"):
            options.append(word)
        elif word == "-isystem":
            options.append(word)
    return options


def read_reports(analyzer, path, entry):
    """(file, line, message, checker) of each report of the project's own code."""
    command, pattern = ANALYZERS[analyzer]
    result = subprocess.run(
        [*command, *find_options(entry), entry["file"], "-o", os.devnull],
        cwd=entry["directory"],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        return [(path, 0, result.stderr.strip().splitlines()[0] if result.stderr else "it failed", "error")]
    reports = []
    for line in result.stderr.splitlines():
        match = re.match(r"([^:]+):(\d+):\d+: warning: (.*)", line)
        checker = re.search(pattern, line)
        if match and checker:
            where = os.path.relpath(os.path.join(entry["directory"], match[1]), ROOT)
            if not where.startswith(".."):
                reports.append((where, int(match[2]), match[3], checker[1]))
    return reports


def read_reasons(analyzer):
    with open(os.path.join(HERE, "reports.tsv"), encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file if line.strip() and not line.startswith("#")]
    return [tuple(row[1:3]) for row in rows if row[0] == analyzer]


def main(build, analyzer, *folders):
    if not shutil.which(ANALYZERS[analyzer][0][0]):
        print(f"{ANALYZERS[analyzer][0][0]} is not here")
        return SKIPPED
    reasons, used, fresh = read_reasons(analyzer), set(), set()
    sources = find_sources(build, folders or FOLDERS)
    if not sources:
        sys.exit(f"analyze.py: {build} compiles nothing of {folders or FOLDERS}")
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for reports in pool.map(lambda path: read_reports(analyzer, path, sources[path]), sources):
            for where, line, message, checker in reports:
                known = [row for row in reasons if fnmatch.fnmatch(where, row[0]) and checker == row[1]]
                used.update(known)
                if not known:
                    fresh.add(f"{where}:{line}: {message}")
    for report in sorted(fresh):
        print(report)
    unused = [] if folders else [row for row in reasons if row not in used]
    for files, checker in unused:
        print(f"reports.tsv: nothing in {files} is reported by {checker} any more")
    print(f"{len(sources)} files, {len(fresh)} reports without a reason")
    return 1 if fresh or unused else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
