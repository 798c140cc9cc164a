#!/usr/bin/env python3
"""order_test.py SOURCE: no call makes ops or expressions in two of its arguments.

Which of two arguments comes first is the C compiler's choice, so that what a description becomes would depend on it. A
function makes something where it returns a value of the code that is emitted, or an expression. Macros that evaluate
the last argument first (base/order.h) may have any number of such arguments.
"""
import pathlib
import re
import sys

STRUCT = re.compile(r"^typedef struct (\w+) \{(.*?)^\}", re.M | re.S)
HEAD = re.compile(r"^(static )?(?:inline )?(?:const )?(\w+) \*?\(?(\w+)\)?\(([^)]*)\)\s*[{;]", re.M)
ORDERED = re.compile(r"^#define (\w+)\([^)]*\)[ \\\n]+ORDERED[23]\(", re.M)
MACRO = re.compile(r"^#define (\w+)\([^)]*\)((?:.*\\\n)*.*)$", re.M)
CALL = re.compile(r"\b([A-Za-z_]\w*)\s*\(")
HIDDEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\])\'', re.S)


def arguments(code, start):
    """The arguments of the call whose opening parenthesis ends at start."""
    depth, begin, at = 1, start, start
    while at < len(code) and depth:
        depth += (code[at] in "([{") - (code[at] in ")]}")
        if depth == 0 or (depth == 1 and code[at] == ","):
            yield code[begin:at]
            begin = at + 1
        at += 1


def main():
    root = pathlib.Path(sys.argv[1]) / "compiler"
    blank = lambda found: re.sub(r"[^\n]", " ", found.group())
    codes = {path: HIDDEN.sub(blank, path.read_text("utf-8")) for path in sorted(root.rglob("*.[ch]"))}
    made = {"expr", "ir_value"}  # and structs that hold some
    for code in codes.values():
        made |= {name for name, fields in STRUCT.findall(code) if re.search(r"\b(ir_value|two_float)\b", fields)}
    shared, own, ordered = set(), {path: set() for path in codes}, set()
    for path, code in codes.items():
        for static, kind, name, parameters in HEAD.findall(code):
            if kind in made and parameters.strip() != "void":
                (own[path] if static and path.suffix == ".c" else shared).add(name)
        ordered |= set(ORDERED.findall(code))
    for path, code in codes.items():
        for name, body in MACRO.findall(code):
            called = CALL.findall(body)
            shared |= {name} if any(of in shared for of in called) else set()
            own[path] |= {name} if any(of in own[path] for of in called) else set()
            ordered |= {name} if called and called[0] in ordered else set()
    assert len(shared) > 100 and len(ordered) > 20, (len(shared), len(ordered))
    faults = 0
    for path, code in codes.items():
        makers = shared | own[path]
        for call in CALL.finditer(code):
            if call.group(1) in ordered or code[: call.start()].endswith("#define "):
                continue
            making = [a for a in arguments(code, call.end()) if any(n in makers for n in CALL.findall(a))]
            if len(making) > 1 and call.group(1) not in ("if", "for", "while", "switch", "return", "sizeof"):
                line = code.count("\n", 0, call.start()) + 1
                print(f"{path}:{line}: error: {call.group(1)} makes something in {len(making)} of its arguments")
                faults += 1
    print(f"{len(shared)} functions make something, {len(ordered)} in order: {faults} faults")
    return faults > 0


if __name__ == "__main__":
    sys.exit(main())
