#!/usr/bin/env python3
"""rooms_test.py SOURCE: data flows one way through the rooms of compiler/.

The order of the rooms is the table of docs/architecture.md. A file includes files of its own room and of rooms above
it, and calls functions of those; rooms of one row know nothing of each other. No files go in a circle. A file
reaches another where it includes it, or names (in C) what that file alone defines for others.
"""
import collections
import pathlib
import re
import sys

source = pathlib.Path(sys.argv[1])

COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.S)
# A function's or table's head at the beginning of a line, up to its body or value.
DEFINITION = re.compile(
    r"^(static )?(?!typedef|extern|return|else)[A-Za-z_][\w *]*?\b(\w+)(?:\([^;{}]*\) *{|[\[\w\]]* =)", re.M
)
INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)

order = {}
for number, row in enumerate(re.findall(r"^\| (`.*)$", (source / "docs/architecture.md").read_text("utf-8"), re.M)):
    for room in re.findall(r"`compiler/(\w+)(?:\.c)?`", row.split("|")[0]):
        order[room] = number

root = source / "compiler"
texts = {
    str(path.relative_to(root)): path.read_text("utf-8")
    for path in root.rglob("*")
    if path.suffix in (".c", ".h", ".cpp")
}
codes = {file: COMMENT.sub(" ", text) for file, text in texts.items()}
definers, own = collections.defaultdict(set), collections.defaultdict(set)
for file, code in codes.items():
    for static, name in DEFINITION.findall(code):
        own[file].add(name)
        if not static and not file.endswith(".h"):
            definers[name].add(file)

reaches = {file: collections.defaultdict(list) for file in texts}  # file -> file -> what it names there
for file, code in codes.items():
    for other in INCLUDE.findall(texts[file]):
        if other in texts:
            reaches[file][other].append("#include")
    for name in sorted(set(re.findall(r"\b[a-z]\w+\b", code)) - own[file]):
        if len(definers[name]) == 1 and file.endswith(".c"):
            reaches[file][next(iter(definers[name]))].append(name)

failures = []


def room_of(file):
    return file.split("/")[0].removesuffix(".c").removesuffix(".h")


for file in sorted(texts):
    if room_of(file) not in order:
        failures.append(f"{file}: its room is not in docs/architecture.md")
        continue
    for other, names in sorted(reaches[file].items()):
        here, there = room_of(file), room_of(other)
        if here != there and order[there] >= order[here]:
            failures.append(f"{file} reaches into {there}, which is not above {here}: {other}: {', '.join(names[:4])}")


def circles():
    """Tarjan's strongly connected components of more than one file."""
    index, low, stack, found = {}, {}, [], []

    def visit(file):
        index[file] = low[file] = len(index)
        stack.append(file)
        for other in reaches[file]:
            if other not in index:
                visit(other)
            if other in stack:
                low[file] = min(low[file], low[other])
        if low[file] == index[file]:
            members = stack[stack.index(file) :]
            del stack[-len(members) :]
            if len(members) > 1:
                found.append(sorted(members))

    for file in sorted(texts):
        if file not in index:
            visit(file)
    return found


for members in circles():
    failures.append("a circle: " + " ".join(members))
    for file in members:
        for other in members:
            if reaches[file].get(other):
                failures.append(f"  {file} -> {other}: {', '.join(reaches[file][other][:6])}")

named = sum(name != "#include" for of in reaches.values() for names in of.values() for name in names)
if len(texts) < 200 or named < 1000 or len(order) < 15:
    failures.append(f"only {len(texts)} files, {named} names and {len(order)} rooms were read")
for failure in failures:
    print(failure)
print(f"{len(texts)} files of {len(order)} rooms, {named} names taken from other files: {len(failures)} faults")
sys.exit(1 if failures else 0)
