#!/usr/bin/env python3
"""language_test.py PEGEN DOCUMENT: the reference of the language says what the language does.

Every fenced example of the document runs, and every one of language_examples.md beside this file:

  ```lua          a whole spec: compiles
  ```lua fields   fields of pe.encoding: put into FRAME, where they take the place of those of the same name; what
                  stands before the first empty line, if it begins with "local", goes before the encoding
  "-- error: TEXT" at the end of a line of either: must be refused, at this line, with TEXT in the message
  "-- define: NAME=VALUE" on a line of its own: compiled with -D

Every word of the vocabulary, every field and every option of all specs must be in the document. Every word is in an
example that compiles, and every word that takes arguments of its own in one that is refused. The document names no
word that there is not.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

pegen, document = sys.argv[1], pathlib.Path(sys.argv[2])
text = document.read_text(encoding="utf-8")
pages = (document, pathlib.Path(__file__).with_name("language_examples.md"))
failures = 0

FRAME = """local pe = require "pegen"
%s
return pe.encoding {
%s
%s
}
"""
FRAME_FIELDS = {
    "name": '"example"', "axes": '{ "x", "y" }', "head_dim": "24", "block": "pe.plane()",
    "generators": 'pe.turn "e12"', "combine": "pe.sum", "phase": "1",
}  # fmt: skip


# Words that are called with nothing, or with numbers and expressions alone.
VALUES = {"pe.pi", "pe.sum", "pe.mean", "pe.schur", "pe.plane"}
ARITHMETIC = {
    "pe." + name
    for name in "abs sqrt exp log log1p softplus sigmoid relu tanh atan2 float32 floor sin cos min max where".split()
}


def expect(condition, message):
    global failures
    if not condition:
        failures += 1
        print("FAIL", message)


def compile_spec(folder, source, defines=()):
    spec = folder / "example.lua"
    spec.write_text(source, encoding="utf-8")
    command = [pegen, str(spec), "-o", str(folder / "example.o"), "-O0", "--dtype", "f32", "--target", "x86-64-v3"]
    for define in defines:
        command += ["-D", define]
    done = subprocess.run(command, capture_output=True, encoding="utf-8")
    return done.returncode, done.stderr.replace(str(folder) + "/", "")


def framed(example):
    statements, fields = "", example
    if example.startswith("local"):
        statements, _, fields = example.partition("\n\n")
    rest = [
        f"{name} = {value}," for name, value in FRAME_FIELDS.items() if not re.search(rf"(^|, ){name} *=", fields, re.M)
    ]
    return FRAME % (statements, " ".join(rest), fields)


def run_example(folder, page, line, kind, example):
    source = framed(example) if kind == "fields" else example
    defines = re.findall(r"^-- define: (\S+)$", source, re.M)
    code, said = compile_spec(folder, source, defines)
    wanted = [
        (number, found.group(1))
        for number, one in enumerate(source.splitlines(), 1)
        if (found := re.search(r"-- error: (.+)$", one))
    ]
    where = f"{page}:{line}"
    if not wanted:
        if "no kernel can be made" in said:
            print(f"{where}: understood, but there is no kernel of its kind")
            return True
        expect(code == 0 and not said, f"{where}: the example does not compile: {said}")
        return code == 0
    ((number, message),) = wanted
    expect(code == 1 and said.count("\n") == 1, f"{where}: exit {code}, one error was expected: {said}")
    expect(said.startswith(f"example.lua:{number}: error: "), f"{where}: the error is not at its line: {said}")
    expect(message in said, f"{where}: the error is not '{message}': {said}")
    return False


def words(folder):
    """What the vocabulary has, from the vocabulary itself."""
    source = """local pe = require "pegen"
local names = {}
for name in pairs(pe) do names[#names + 1] = "pe." .. name end
for name in pairs(pe.learned) do names[#names + 1] = "pe.learned." .. name end
for name in pairs(%s) do error(table.concat(names, " ")) end"""
    _, said = compile_spec(folder, source % "{ 1 }")
    return re.findall(r"pe\.[\w.]+", said)


def fields(folder, word, arguments=""):
    """The fields of a word that takes named ones, from its error about one that is not there."""
    _, said = compile_spec(folder, f'local pe = require "pegen"\nreturn {word}({arguments}{{ QQQQQQQQQQ = 1 }})')
    listed = re.search(r"; there is: (.+)$", said.strip())
    expect(listed, f"{word} does not list its fields: {said}")
    return listed.group(1).split(", ") if listed else []


def main():
    examples = [
        (page.name, said[: found.start()].count("\n") + 1, found.group(1), found.group(2))
        for page, said in ((page, page.read_text(encoding="utf-8")) for page in pages)
        for found in re.finditer(r"^```lua(?: (\w+))?\n(.*?)^```$", said, re.M | re.S)
    ]
    expect(len(examples) > 100, f"{len(examples)} examples")
    compiled = ""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for page, line, kind, example in examples:
            expect(kind in (None, "fields"), f"{page}:{line}: unknown kind of example '{kind}'")
            if run_example(folder, page, line, kind, example.rstrip("\n")):
                compiled += framed(example) if kind == "fields" else example
        vocabulary = words(folder)
        expect(len(vocabulary) > 20, f"the vocabulary has {len(vocabulary)} words")
        for word in vocabulary:
            expect(f"`{word}" in text or f"## {word}" in text, f"{word} is not in the document")
            expect(re.search(re.escape(word) + r"\b", compiled), f"{word} is in no example that compiles")
        refused_examples = "".join(example for *_, example in examples if "-- error:" in example)
        for word in set(vocabulary) - VALUES - ARITHMETIC:
            expect(re.search(re.escape(word) + r"\b", refused_examples), f"{word} is in no example that is refused")
        good = re.sub(r"^```lua[^`]*-- error:[^`]*^```$", "", text, flags=re.M)
        for word in set(re.findall(r"\bpe(?:\.[a-z_][a-z_0-9]*)+", good)):
            expect(word in vocabulary, f"the document names {word}, which is no word")
        for word, arguments in (
            ("pe.encoding", ""),
            ("pe.learned", ""),
            ("pe.learned.skew", "4, "),
            ("pe.dense", "8, "),
            ("pe.multivector", ""),
        ):
            if word in vocabulary:
                for field in fields(folder, word, arguments):
                    expect(
                        f"`{field}`" in text or f"{field} =" in text,
                        f"the field {field} of {word} is not in the document",
                    )
        for option in re.findall(
            r'options\.option\("(\w+)"', (document.parent.parent / "dsl" / "options.lua").read_text()
        ):
            expect(f"`{option}`" in text, f"the option {option} of all specs is not in the document")
    refused = sum("-- error:" in example for *_, example in examples)
    print(f"{len(examples)} examples, {refused} of them refused; {len(vocabulary)} words; {failures} failures")
    return 1 if failures else 0


sys.exit(main())
