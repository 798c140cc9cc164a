#!/usr/bin/env python3
"""Names in the rules that -MD writes, as make reads them: every character of ASCII and some beyond, in every place.

usage: make_names.py PEGEN SPEC VOCABULARY FOLDER

A name is read back where make finds the target up to date while it is newer than the description, and makes it again
when it is older. Where pegen refuses a name it says so and writes nothing.
"""
import os
import shutil
import string
import subprocess
import sys

pegen, spec, vocabulary, room = (os.path.abspath(path) for path in sys.argv[1:5])
folder, old_vocabulary = os.path.join(room, "names"), os.path.join(room, "vocabulary")
REFUSED = set("\n\t;=\x01\x7f\r\x0b\x0c")


def run(*command):
    environment = {**os.environ, "LC_ALL": "C", "PEGEN_DSL": old_vocabulary}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", env=environment)


def check(stem, refused):
    """One compilation whose description, object and header are called so."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    source, output, header = f"{stem}.lua", f"{stem}.expr", f"{stem}.h"
    shutil.copy(spec, os.path.join(folder, source))
    source, output, header = f"./{source}", f"./{output}", f"./{header}"
    result = run(pegen, source, "-o", output, "--header", header, "-MF", "rule.d")
    left = os.listdir(folder)
    if refused:
        assert result.returncode == 1 and "cannot stand in a rule of make" in result.stderr, (stem, result)
        assert len(left) == 1, (stem, left)
        return
    assert result.returncode == 0, (stem, result)
    with open(os.path.join(folder, "rule.d"), encoding="utf-8", newline="") as file:
        rule = file.read()
    with open(os.path.join(folder, "Makefile"), "w", encoding="utf-8", newline="") as file:
        file.write(rule + "\t@echo remade\n")
    for target in (output, header):
        for age, expected in ((1, False), (3, True)):
            os.utime(os.path.join(folder, source), (age, age))
            os.utime(os.path.join(folder, target), (2, 2))
            answer = run("make", "--", target)
            assert answer.returncode == 0, (target, answer, rule)
            assert ("remade" in answer.stdout) == expected, (target, age, answer, rule)


def main():
    shutil.rmtree(room, ignore_errors=True)
    shutil.copytree(vocabulary, old_vocabulary)
    for name in os.listdir(old_vocabulary):
        os.utime(os.path.join(old_vocabulary, name), (1, 1))
    characters = [c for c in string.punctuation if c != "/"] + [" ", "\t", "\n", "\r", "\x01", "\x7f", "é", "→"]
    for c in characters:
        check(f"a{c}b", c in REFUSED)
    for stem in (
        "a\\ b",
        "a\\\\ b",
        "a\\#b",
        "a\\:b",
        "a\\b",
        "a\\\\b",
        "a$(x)b",
        "${x}",
        " a",
        "#",
        "%",
        "a&",
        "|",
        "x\\%y",
        "~a",
        "[a]",
        "a*",
        "a b  c",
        "$",
        "$$",
        "'",
        '"',
        "-a",
        "@a",
        "+a",
        "include",
        "a(b",
    ):
        check(stem, False)


main()
