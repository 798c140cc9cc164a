#!/usr/bin/env python3
"""gallery_test.py SOURCE: every stock description is in the gallery, with pictures where positions change something.

Needs nothing but what is in the repository, so it runs where tests/python/explore_test.py is skipped, too.
"""
import pathlib
import re
import sys

source = pathlib.Path(sys.argv[1])
gallery = source / "docs" / "gallery"
index = (gallery / "README.md").read_text(encoding="utf-8")
names = sorted(path.stem for folder in ("specs", "specs/more") for path in (source / folder).glob("*.lua"))
shown = set(re.findall(r"\]\((\w+)\.png\)", index))
failures = []
for name in names:
    if f"## {name}\n" not in index:
        failures.append(f"no {name}; scripts/gallery {name} draws it")
        continue
    told = index.partition(f"## {name}\n")[2].partition("\n## ")[0]
    if (name in shown) == ("nothing to draw" in told):
        failures.append(f"{name}: expected either a picture or that there is nothing to draw")
for name in shown:
    picture = gallery / f"{name}.png"
    if not picture.exists() or picture.stat().st_size >= 150_000:
        failures.append(f"{name}.png: missing, or larger than 150 kB")
if len(names) < 40:
    failures.append(f"only {len(names)} descriptions were found")
for failure in failures:
    print("docs/gallery:", failure)
sys.exit(1 if failures else 0)
