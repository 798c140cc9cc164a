#!/usr/bin/env python3
"""papers_test.py PEGEN SOURCE: docs/papers.md is true: descriptions with the options that it names are compiled as far
as expressions, tests and studies that it names are there, each table of a paper has a row, and a paper's number finds
each of its descriptions."""
import pathlib
import re
import subprocess
import sys

TABLES = {"2512.04963": 5, "2406.10322": 10, "2506.03737": 8, "2511.11665": 1, "2602.01418": 8}  # of each paper
pegen, source = sys.argv[1], pathlib.Path(sys.argv[2])
page = (source / "docs" / "papers.md").read_text()
formulas = (source / "tests" / "python" / "papers_test.py").read_text()
failures, found = [], 0


def run(*words):
    return subprocess.run([pegen, *words], capture_output=True, text=True)


def numbers(cell):
    """A row of "tables 1–3, 6" is about four."""
    found = re.search(r"\btables? ((?:\d+(?:–\d+)?(?:, )?)+)", cell)
    for part in found.group(1).strip(", ").split(", ") if found else []:
        first, _, last = part.partition("–")
        yield from range(int(first), int(last or first) + 1)


for section in re.split(r"^## ", page, flags=re.M)[1:]:
    number = re.search(r"\d{4}\.\d{5}", section.splitlines()[0]).group()
    listed = {line.split()[0] for line in run("specs", number).stdout.splitlines() if line[:1].strip()}
    for command in re.findall(r"`(\w+(?: -D [\w=.,/-]+)+)`", section):
        option, values = command.rsplit("=", 1)  # the last option may have several, as in mean=sum/product
        for value in values.split("/"):
            found += 1
            done = run(*f"{option}={value}".split(), "--emit", "expr", "-o", "-")
            if done.returncode:
                failures.append(f"{option}={value}: {done.stderr.strip()}")
    rows = re.findall(r"^\| ([^|]*) \|", section, re.M)
    without = set(range(1, TABLES[number] + 1)) - {table for row in rows for table in numbers(row)}
    if without:
        failures.append(f"{number}: no row for tables {sorted(without)}")
    own = re.search(r"^Descriptions: (.*)$", section, re.M).group(1)
    if set(re.findall(r"`(\w+)`", own)) != listed:
        failures.append(f"{number}: the page has {own}, pegen specs {number} {', '.join(sorted(listed))}")
for test in re.findall(r"`(test_\w+)`", page):
    found += 1
    if f"def {test}(" not in formulas:
        failures.append(f"{test}: is no test of tests/python/papers_test.py")
for study in re.findall(r"\((\.\./[^)#]+)\)", page):
    found += 1
    if not (source / "docs" / study).exists():
        failures.append(f"{study}: is not there")
if found < 30:
    failures.append(f"{found} names on the page; 30 were expected")
print(f"{found} names", *failures, sep="\n")
sys.exit(1 if failures else 0)
