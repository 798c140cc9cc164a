#!/usr/bin/env python3
"""rooms_test.py SOURCE: data flows one way through the rooms of compiler/.

The order of the rooms is the table of docs/architecture.md. A file includes files of its own room and of rooms above
it, and calls functions of those; rooms of one row know nothing of each other. No files go in a circle, nor do those of
dsl/, kernel/ and runtime/. A file reaches another where it includes it, or names (in C) what that file alone defines
for others.
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


class Folder:
    """The C files below a folder: what each defines, and what it reaches of the others."""

    def __init__(self, root):
        self.texts = {
            str(path.relative_to(root)): path.read_text("utf-8")
            for path in root.rglob("*")
            if path.suffix in (".c", ".h", ".cpp")
        }
        codes = {file: COMMENT.sub(" ", text) for file, text in self.texts.items()}
        definers, own = collections.defaultdict(set), collections.defaultdict(set)
        for file, code in codes.items():
            for static, name in DEFINITION.findall(code):
                own[file].add(name)
                if not static and not file.endswith(".h"):
                    definers[name].add(file)
        self.reaches = {file: collections.defaultdict(list) for file in self.texts}  # file -> file -> names there
        for file, code in codes.items():
            for other in INCLUDE.findall(self.texts[file]):
                if other in self.texts:
                    self.reaches[file][other].append("#include")
            for name in sorted(set(re.findall(r"\b[a-z]\w+\b", code)) - own[file]):
                if len(definers[name]) == 1 and file.endswith(".c"):
                    self.reaches[file][next(iter(definers[name]))].append(name)

    def circles(self):
        """Tarjan's strongly connected components of more than one file."""
        index, low, stack, found = {}, {}, [], []

        def visit(file):
            index[file] = low[file] = len(index)
            stack.append(file)
            for other in self.reaches[file]:
                if other not in index:
                    visit(other)
                if other in stack:
                    low[file] = min(low[file], low[other])
            if low[file] == index[file]:
                members = stack[stack.index(file) :]
                del stack[-len(members) :]
                if len(members) > 1:
                    found.append(sorted(members))

        for file in sorted(self.texts):
            if file not in index:
                visit(file)
        return found


folders = {name: Folder(source / name) for name in ("compiler", "dsl", "kernel", "runtime")}
texts, reaches = folders["compiler"].texts, folders["compiler"].reaches
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

for name, folder in folders.items():
    for members in folder.circles():
        failures.append(f"a circle in {name}: " + " ".join(members))
        for file in members:
            for other in members:
                if folder.reaches[file].get(other):
                    failures.append(f"  {file} -> {other}: {', '.join(folder.reaches[file][other][:6])}")

# Files that these pages name are there: those that a recipe asks for (VENDOR.c) apart.
for page, least in (("docs/architecture.md", 10), ("docs/recipes.md", 40)):
    named_files = set(re.findall(r"`([a-z_/]+/[a-z_0-9/]+\.(?:c|h|cpp|lua|py))`", (source / page).read_text("utf-8")))
    for file in sorted(named_files):
        if not any((source / folder / file).exists() for folder in ("", "compiler")):
            failures.append(f"{page} names {file}, which is not there")
    if len(named_files) < least:
        failures.append(f"only {len(named_files)} files were found in {page}")

named = sum(name != "#include" for of in reaches.values() for names in of.values() for name in names)
if len(texts) < 200 or named < 1000 or len(order) < 15 or min(len(f.texts) for f in folders.values()) < 20:
    failures.append(f"only {len(texts)} files, {named} names and {len(order)} rooms were read")
for failure in failures:
    print(failure)
print(f"{len(texts)} files of {len(order)} rooms, {named} names taken from other files: {len(failures)} faults")
sys.exit(1 if failures else 0)
