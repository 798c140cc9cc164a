#!/usr/bin/env python3
"""options_test.py PEGEN: the help, the manual page and the completion scripts offer the same options.

The list of options is read from the help of the program. Scripts are run by their shells where these are
installed; the manual page goes through man, groff and mandoc where these are.
"""
import re
import shutil
import subprocess
import sys
import tempfile

pegen = sys.argv[1]
failures = 0


def expect(condition, message):
    global failures
    if not condition:
        failures += 1
        print("FAIL", message)


def run(*command, text=None):
    done = subprocess.run(command, capture_output=True, input=text, encoding="utf-8")
    return done.returncode, done.stdout, done.stderr


def output(*arguments):
    code, out, err = run(pegen, *arguments)
    expect(code == 0 and not err, f"pegen {' '.join(arguments)}: exit {code} {err}")
    return out


# "  -o, --output FILE   what ...": the spellings, their help, and the commands in brackets at its end.
help_text = output("--help")
rows = re.findall(r"^  (-\S+?(?:, --\S+)?)( [A-Z=]+)? {2,}(.+)$", help_text, re.M)
synopses = re.findall(r"^  (pegen (?!SPEC)(\w+) \S+)", help_text, re.M)
commands = [command for _, command in synopses]
options = {}
for spelling, argument, text in rows:
    of = re.search(r" \(([a-z, ]+)\)$", text)
    of = of.group(1).split(", ") if of and set(of.group(1).split(", ")) <= set(commands) else None
    for one in spelling.split(", "):
        for word in [f"-O{level}" for level in range(4)] if one == "-OLEVEL" else [one]:
            options[word] = (argument.strip(), text, of)
expect(len(rows) > 15 and len(commands) >= 3, f"the help has {len(rows)} options, {len(commands)} commands")


def check_man():
    page = output("--man")
    plain = page.replace("\\-", "-").replace("\\fB", "").replace("\\fI", "").replace("\\fR", "").replace("\\(aq", "'")
    for spelling, argument, text in rows:
        expect(
            f"\n{spelling}{argument}\n{text}.\n" in plain,
            f"the manual page has no {spelling}{argument}, or with another text",
        )
    for synopsis, command in synopses:
        expect(synopsis in plain, f"the manual page has no command {command}")
    expect(not re.search(r"\b20\d\d\b", page), "the manual page has a date in it")
    checkers = {
        "man": ["--warnings", "-l", "-E", "UTF-8"],
        "groff": ["-man", "-ww", "-Tutf8"],
        "mandoc": ["-T", "lint", "-W", "warning"],
    }
    with tempfile.NamedTemporaryFile("w", suffix=".1") as file:
        file.write(page)
        file.flush()
        for program, arguments in checkers.items():
            if not shutil.which(program):
                print(f"{program} is not installed: the manual page is not checked by it")
                continue
            _, out, err = run(program, *arguments, file.name)
            said = out + err if program == "mandoc" else err
            # No date: the same input gives the same bytes.
            said = [line for line in said.splitlines() if line.strip() and "missing date" not in line]
            expect(not said, f"{program}: {said[:3]}")


def bash_complete(words):
    """What bash offers for the last of the words, as readline would split them."""
    split = [part for word in words for part in re.split(r"(=)", word)]
    if len(split) > 1 and split[-1] == "" and split[-2] == "=":
        split.pop()
    quoted = " ".join("'" + word + "'" for word in split)
    script = (
        f"source /dev/stdin; COMP_WORDS=({quoted}); COMP_CWORD={len(split) - 1}; "
        f"_pegen; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    code, out, err = run("bash", "-c", script, text=output("--completion", "bash"))
    expect(code == 0 and not err, f"bash: {err}")
    return out.split()


def check_bash():
    code, _, err = run("bash", "-n", text=output("--completion", "bash"))
    expect(code == 0 and not err, f"bash -n: {err}")
    for command in [None] + commands:
        offered = bash_complete(["pegen"] + ([command] if command else []) + ["-"])
        for word, (_, _, of) in options.items():
            if of is not None:
                expect((word in offered) == (command in of), f"bash: {word} for {command or 'compiling'}")
            elif command is None:
                expect(word in offered, f"bash does not offer {word}")
        expect(set(offered) <= set(options), f"bash offers {set(offered) - set(options)}, which the help does not have")
    expect(set(commands) <= set(bash_complete(["pegen", ""])), "bash does not offer the commands")
    expect(bash_complete(["pegen", "specs", ""]) == [], "bash: a name of a model is no file")
    expect(bash_complete(["pegen", "x.lua", "--emit=pt"]) == ["ptx"], "bash: --emit=pt")
    expect(bash_complete(["pegen", "x.lua", "--emit", "as"]) == ["asm"], "bash: --emit as")
    expect(bash_complete(["pegen", "x.lua", "--dtype", "f32,b"]) == ["f32,bf16"], "bash: the second of a list")
    expect(bash_complete(["pegen", "explain", "x.lua", "--format", ""]) == ["text", "json"], "bash: --format")


def check_zsh():
    if not shutil.which("zsh"):
        print("zsh is not installed: its script is not run")
        return
    script = output("--completion", "zsh")
    code, _, err = run("zsh", "-n", "/dev/stdin", text=script)
    expect(code == 0 and not err, f"zsh -n: {err}")
    for command in [None] + commands:
        words = " ".join(["pegen"] + ([command] if command else []) + ["-"])
        stub = (
            f"_arguments() {{ print -rl -- $@ }}; _describe() {{ print -rl -- $names }}; "
            f"words=({words}); CURRENT=$#words\n"
        )
        code, out, err = run("zsh", "-f", "-c", stub + script)
        expect(code == 0 and not err, f"zsh: {err}")
        offered = set(re.findall(r"^\*?(-[-\w]+?)[-+=]?\[", out, re.M))
        levels = re.search(r"^-O-\[.*:\(([\d ]+)\)$", out, re.M)
        offered |= {f"-O{level}" for level in levels.group(1).split()} if levels else set()
        offered.discard("-O")
        for word, (argument, text, of) in options.items():
            if of is not None:
                expect((word in offered) == (command in of), f"zsh: {word} for {command or 'compiling'}")
            elif command is None:
                expect(word in offered, f"zsh does not offer {word}")
        expect(offered <= set(options), f"zsh offers {offered - set(options)}, which the help does not have")


check_man()
check_bash()
check_zsh()
print(f"{len(options)} spellings of options, {failures} failures")
sys.exit(1 if failures else 0)
