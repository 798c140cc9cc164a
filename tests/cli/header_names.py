#!/usr/bin/env python3
"""Headers of descriptions whose names and texts are awkward: each compiles under every standard, or is refused.

usage: header_names.py PEGEN INCLUDES FOLDER COMPILER...

Every COMPILER (gcc, clang) that is there takes every header with -pedantic-errors -Wall -Wextra -Werror; what
stands in a comment has no character that moves, hides or ends what is around it.
"""
import itertools
import os
import shutil
import subprocess
import sys
import unicodedata

pegen, includes, folder = (os.path.abspath(path) for path in sys.argv[1:4])
compilers = [path for path in map(shutil.which, sys.argv[4:]) if path]
STANDARDS = {"c": ("c89", "c99", "c11"), "c++": ("c++98", "c++17")}

DESCRIPTION = """local pe = require "pegen"
local note = pe.option("note", "none", "free text")
local function learned(name)
  return pe.learned {{
    name = name, shape = {{ "blocks" }}, doc = "{doc}", source = "{doc}", init = "{doc}", units = "{doc}"
  }}
end
local operands, inputs = {{}}, {{}}
for _, name in ipairs {{ {operands} }} do operands[#operands + 1] = learned(name) end
for _, name in ipairs {{ {inputs} }} do
  inputs[#inputs + 1] = pe.input {{ name = name, shape = {{}}, doc = "{doc}", source = "{doc}", units = "{doc}" }}
end
return pe.encoding {{
  name = "{name}",
  doc = "{doc}",
  axes = {{ {axes} }},
  head_dim = 4,
  {rest}
}}
"""
ROTARY = """block = pe.plane(), generators = pe.turn "e12", combine = pe.sum,
  phase = function(axis, i, head)
    local x = 1
    for _, operand in ipairs(operands) do x = x + operand(i) end
    return x
  end,"""
COLUMNS = """bias = pe.polynomial { degree = 1, terms = 1, value = function(delta, l, head)
    local x = 1
    for _, input in ipairs(inputs) do x = x + input() end
    return x * delta.t
  end },"""


def quoted(names):
    return ", ".join(f'"{name}"' for name in names)


def compile_header(name="thing", operands=(), inputs=(), axes=("t",), doc="text", options=()):
    """The header's path, or what pegen said."""
    path = os.path.join(folder, f"{name}.lua")
    text = DESCRIPTION.format(
        name=name,
        operands=quoted(operands),
        inputs=quoted(inputs),
        axes=quoted(axes),
        doc=doc,
        rest=COLUMNS if inputs else ROTARY,
    )
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
    header = os.path.join(folder, f"{name}.h")
    if os.path.exists(header):
        os.remove(header)
    command = [pegen, path, "-o", "/dev/null", "--emit", "expr", "--header", header, *options]
    result = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if result.returncode == 0:
        return header, ""
    assert result.returncode == 1 and not os.path.exists(header), result
    return None, result.stderr


def compiles(headers, body=""):
    """Together in one file, in the order given, with `body` after them."""
    for language, standards in STANDARDS.items():
        source = os.path.join(folder, "all." + ("cc" if language == "c++" else "c"))
        with open(source, "w", encoding="utf-8") as file:
            file.write("".join(f'#include "{header}"\n' for header in headers) + body)
        for compiler, standard in itertools.product(compilers, standards):
            flags = [
                "-x",
                language,
                f"-std={standard}",
                "-pedantic-errors",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-I",
                includes,
            ]
            result = subprocess.run([compiler, *flags, "-fsyntax-only", source], capture_output=True, text=True)
            assert result.returncode == 0, (compiler, standard, headers, result.stderr)
    for header in headers:
        with open(header, encoding="utf-8") as file:
            text = file.read()
        harmful = [c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")]
        assert not harmful and "evil" not in text.replace("* /", "*/").split("*/")[-1], (header, harmful)


together = []  # headers that are compiled in one file at the end


def accepted(**given):
    header, message = compile_header(**given)
    assert header, (given, message)
    together.append(header)
    return header


def refused(expected, **given):
    header, message = compile_header(**given)
    assert not header and expected in message, (given, message)
    assert ".lua:" in message and ": error: " in message, message


def main():
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    assert compilers

    # Names that meet in the header, and in a file with other headers.
    uses = ["CAPS_OPERAND_count + CAPS_OPERAND_COUNT", "CASES_OPERAND_Aa + CASES_OPERAND_aA + CASES_OPERAND_B"]
    uses += ["GIVEN_INPUT_Aa + GIVEN_INPUT_aA + GIVEN_INPUT_count + GIVEN_INPUT_COUNT"]
    accepted(name="caps", operands=["count"])
    accepted(name="cases", operands=["Aa", "aA", "b"])
    accepted(name="given", inputs=["Aa", "aA", "count"])
    uses += ["BODY_OPERAND_head_dim + BODY_OPERAND_HEAD_DIM + BODY_OPERAND_operand_x + BODY_INPUT_axes"]
    accepted(name="body", operands=["head_dim", "operand_x"], inputs=["axes", "axis"])
    accepted(name="body_operand", operands=["x"])
    accepted(name="body_input")
    refused("COUNT", operands=["COUNT"])
    refused("COUNT", inputs=["COUNT"])
    for name, prefix in (("rope_a", "ROPE_A"), ("Rope_a", "Rope_a"), ("ROPE_A", "rope_a"), ("Rope_A", "Rope_A")):
        accepted(name=name, operands=["x"])
        uses.append(f"{name}_encode(0, 0, 1) + {prefix}_OPERAND_X + {prefix}_AXES")
    for name in ("pegen", "PEGEN", "pegen_driver", "Pegen_x"):
        refused("pegen", name=name)
    accepted(name="pegenx")
    header, message = compile_header(options=["--name", "pegen"])
    assert not header and "thing.lua:" in message, message

    # Words of C and C++ as names, and reserved shapes of them.
    for word in ("int", "class", "template", "operator", "register", "NULL", "errno", "std", "_t", "size_t", "main"):
        accepted(name=word, operands=["x", word], axes=[word])
        accepted(name=f"in_{word}", inputs=[word])

    # Texts: refused, or made harmless.
    marks = "\u202e\u202a\u2066\u2069\u200f\u061c\u2028\u0085\ufeff\u200b\U000e0041"
    broken = ["\udcff", "\udcc0\udcaf", "\udced\udca0\udc80", "\udcf4\udc90\udc80\udc80", "\udce2\udc80"]
    for i, text in enumerate([*marks, *broken]):
        header, message = compile_header(doc=f"a {text} b", name=f"doc_{i}")
        assert header or (".lua:" in message and "doc" in message), message
        if header:
            together.append(header)
    with open(accepted(doc="λ → θ, “quoted” — ½", name="letters"), encoding="utf-8") as file:
        assert "λ → θ, “quoted” — ½" in file.read()
    for text in ("*/", "/*", "\\", "\x01", "\n", "\x7f", "??/"):
        escaped = "".join(f"\\{ord(c):03}" if c == "\\" or ord(c) < 32 or ord(c) == 127 else c for c in text)
        refused("doc", doc=f"a {escaped} b")
    compiles(together, f"int main(void) {{ return {' + '.join(uses)}; }}\n")


main()
