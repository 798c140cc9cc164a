"""arguments_test.py REPOSITORY [--update]: docs/c-interface.md has the table of arguments that kernel/arguments.h has:
which entry reads or writes which field. --update writes it there."""
import pathlib
import re
import sys

ENTRIES = (
    "encode attention append prepare encode_backward attention_backward prepare_backward attention_tangent".split()
)
SIZES = {"G": "Hkv", "V": "Dv", "p": "pages", "g": "page_size", "s": "sequences + 1", "t": "most_pages", "b": "(B)"}
TYPES = {"ROW": "row", "OUT": "row, float8", "POSITION": "position", "OPERAND": "operand"}
TYPES |= {
    "GRADIENT": "float32, float64",
    "INPUT": "input",
    "F32": "float32",
    "I32": "int32",
    "I64": "int64",
    "NONE": "",
}
BEGIN, END = "<!-- arguments -->\n", "<!-- /arguments -->\n"


def shape(kind, letters):
    if kind in ("NUMBER", "MEMORY"):
        return {"NUMBER": "a number", "MEMORY": "bytes"}[kind]
    if kind == "LIST":
        return f"one for each {letters}"
    sizes = (",".join(SIZES.get(x, x) for x in one) for one in letters.split("/") if one or letters == "")
    return " or ".join(f"`[{x}]`" for x in sizes)


def table(text):
    rows = re.findall(r'X\((\w+), (\w+), (\w+), "([^"]*)", (\w+), "([^"]*)", (\w+), \w+\)', text)
    assert len(rows) == len(re.findall(r"^  X\((?:args|grad),", text, re.M)) > 40, "a row of another form"
    yield "| field | shape | type | " + " | ".join(f"`{x}`" for x in ENTRIES) + " | error of its own |"
    yield "|---" * (len(ENTRIES) + 4) + "|"
    for of, field, kind, letters, number, uses, wrong in rows:
        assert len(uses) == len(ENTRIES) and set(uses) <= set(".rwRW"), f"{field}: uses {uses}"
        name = field if of == "args" else f"grad->{field}"
        own = "" if wrong == "OK" else f"`{wrong}`"
        cells = [f"`{name}`", shape(kind, letters), TYPES[number], *uses.replace(".", " "), own]
        yield "| " + " | ".join(cells) + " |"


root = pathlib.Path(sys.argv[1])
page = root / "docs/c-interface.md"
expected = "\n".join(table((root / "kernel/arguments.h").read_text())) + "\n"
text = page.read_text()
before, rest = text.split(BEGIN)
found, after = rest.split(END)
if "--update" in sys.argv:
    page.write_text(before + BEGIN + expected + END + after)
elif found != expected:
    sys.exit(f"{page}: the table is not that of kernel/arguments.h: tests/docs/arguments_test.py . --update")
