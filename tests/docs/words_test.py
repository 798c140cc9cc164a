#!/usr/bin/env python3
"""words_test.py SOURCE: the documentation is short and plain, and comments are sentences of their own.

docs/*.md has at most so many words, code included (notes and galleries have folders of their own). Sentences of it and
of README.md are short, and none has a word that the glossary's last column replaces.

Comments that begin with "Of", "The same" or "That of" have their subject elsewhere: there are none.
"""
import io
import pathlib
import re
import sys
import tokenize

source = pathlib.Path(sys.argv[1])
WORDS, LONGEST, MEAN = 25000, 25, 12
ABBREVIATIONS = re.compile(r"\b(e\.g|i\.e|vs|et al|cf|Fig|approx)\.")
WORD = re.compile(r"[^\s|·]*\w[^\s|·]*")
FOLDERS = (
    "compiler",
    "dsl",
    "kernel",
    "python",
    "runtime",
    "scripts",
    "bench",
    "examples",
    "specs",
    "studies",
    "tests",
)
SUBJECT_ELSEWHERE = re.compile(r"(?:^|[.!?:] )(?:Of|The same|That of|Those of)\b")
C_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\])\'|(/\*.*?\*/|//[^\n]*(?:\n[ \t]*//[^\n]*)*)', re.S)
LUA_COMMENT = re.compile(r"(?:^|(?<=\s))--(?!\[)[^\n]*(?:\n[ \t]*--(?!\[)[^\n]*)*", re.M)
failures = []


def without_code(page):
    """The text of a page in which code is blank, an inline piece of it one word, and a link what it shows."""
    blank = lambda found: re.sub(r"[^\n]", "", found.group())  # noqa: E731
    page = re.sub(r"^```.*?^```$", blank, page, flags=re.M | re.S)
    page = re.sub(r"^(?:    |      ).*$", "", page, flags=re.M)
    page = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", page)
    page = re.sub(r"`[^`\n]*`", "code", page)
    return re.sub(r"code(?:,? (?:and |or )?code)+", "code", page)  # a list of names is read as one


def sentences(page):
    """Sentences of paragraphs, items of lists and cells of tables; facts of a cell stand between semicolons."""
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-|#]|\d+\. ))", ABBREVIATIONS.sub(r"\1", without_code(page))):
        if block.lstrip().startswith("#"):
            continue
        is_row = block.lstrip().startswith("|")
        for piece in block.split("|") if is_row else [block]:
            for sentence in re.split(r"(?<=[.!?:;])\s" if is_row else r"(?<=[.!?:])[)\"*]*\s", piece):
                if words := WORD.findall(sentence):
                    yield len(words), " ".join(sentence.split())


def check_pages():
    pages = {page: page.read_text(encoding="utf-8") for page in sorted(source.glob("docs/*.md"))}
    total = sum(len(WORD.findall(text)) for text in pages.values())
    if total > WORDS:
        failures.append(f"docs/*.md has {total} words, {WORDS} at most")
    glossary = source / "docs" / "glossary.md"
    last_cells = re.findall(r"^\|.*\|([^|\n]*)\|$", pages[glossary], re.M)
    replaced = [word for cell in last_cells for word in re.findall(r"`([^`]+)`", cell)]
    if len(replaced) < 10:
        failures.append(f"docs/glossary.md replaces only {len(replaced)} words")
    pages[source / "README.md"] = (source / "README.md").read_text(encoding="utf-8")
    for page, text in pages.items():
        name, lengths = page.relative_to(source), []
        for length, sentence in sentences(text):
            lengths.append(length)
            if length > LONGEST:
                failures.append(f"{name}: {length} words, {LONGEST} at most: {sentence}")
        if (mean := sum(lengths) / len(lengths)) > MEAN:
            failures.append(f"{name}: {mean:.1f} words a sentence, {MEAN} at most")
        for number, line in enumerate(without_code(text).splitlines(), 1):
            for word in replaced if page != glossary else ():
                if re.search(rf"\b{word}\b", line, re.I):
                    failures.append(f"{name}:{number}: the glossary replaces '{word}'")
    print(f"{total} words in {len(pages) - 1} pages")


def comments(path):
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".py":
        lines = [
            (token.start[0], token.string.lstrip("#! "))
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
            if token.type == tokenize.COMMENT
        ]
        run = []
        for number, line in lines:
            if run and number != run[-1][0] + 1:
                yield " ".join(said for _, said in run)
                run = []
            run.append((number, line))
        yield " ".join(said for _, said in run)
        for found in re.findall(r'^\s*"""(.*?)"""', text, re.M | re.S):
            yield found
    elif path.suffix == ".lua":
        for found in LUA_COMMENT.findall(text):
            yield re.sub(r"^[ \t]*--+ ?", "", found, flags=re.M)
    else:
        for found in C_COMMENT.findall(text):
            yield re.sub(r"^[ \t]*(?:/\*+|\*+(?!/)|//+) ?|\*/", "", found, flags=re.M)


def check_comments():
    files = 0
    for path in sorted(path for folder in FOLDERS for path in (source / folder).rglob("*")):
        name = path.relative_to(source)
        if path.suffix not in (".c", ".h", ".cpp", ".lua", ".py") or "inputs" in name.parts or "dlpack" in name.parts:
            continue
        files += 1
        for said in (" ".join(comment.split()) for comment in comments(path)):
            for found in SUBJECT_ELSEWHERE.finditer(said):
                failures.append(f"{name}: a comment has its subject elsewhere: {said[found.start() :][:100]}")
    print(f"comments of {files} files")
    if files < 500:
        failures.append(f"only {files} files were read")


check_pages()
check_comments()
for failure in failures:
    print("FAIL", failure)
sys.exit(1 if failures else 0)
