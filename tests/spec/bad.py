#!/usr/bin/env python3
"""bad.py ROWS FOLDER: writes each row of bad.txt as a spec into FOLDER, which holds nothing else afterwards."""
import pathlib
import re
import sys

HEAD = 'local pe = require "pegen"'
FIELD = re.compile(r"(?:^  |, )([a-z_]+) = ")


def write_encoding(fields: list[str], row: list[str]) -> list[str]:
    """The row's own lines, and its fields with those of `fields` that it does not give."""
    begin = max((i + 1 for i, line in enumerate(row) if line[:1] not in ("", " ")), default=0)
    own, given = row[begin:], {name for line in row[begin:] for name in FIELD.findall(line)}
    before = row[:begin] if begin and row[begin - 1].startswith("return ") else [*row[:begin], "return pe.encoding {"]
    return [*before, *(line for line in fields if FIELD.findall(line)[0] not in given), *own, "}"]


def main(rows: str, target: str) -> None:
    folder = pathlib.Path(target)
    folder.mkdir(parents=True, exist_ok=True)
    written = set()
    for section in re.split(r"^# (?:whole|fields)$", pathlib.Path(rows).read_text("latin-1"), flags=re.M)[1:]:
        first, *texts = re.split(r"^== ", section, flags=re.M)
        fields = first.strip("\n").split("\n") if first.strip() else []
        for text in texts:
            title, *row = text.rstrip("\n").split("\n")
            name, message = title.split(": ", 1)
            spec = write_encoding(fields, row) if fields else row
            path = folder / f"{name}.lua"
            written.add(path)
            path.write_text("\n".join([f"-- error: {message}", HEAD, *spec, ""]), "latin-1")
    for path in set(folder.glob("*")) - written:
        path.unlink()


main(*sys.argv[1:])
