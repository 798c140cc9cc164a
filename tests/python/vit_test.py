"""bench/vit.py, its short mode: kernels and formulas agree in a ViT, gradients too, and every line of the table is
printed."""
import pathlib
import re
import subprocess
import sys

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench" / "vit.py"
SHORT = ["--depth", "1", "--batch", "1", "--image", "64", "--rounds", "1", "--no-compile"]
LINES = {
    "rope_mixed": ("formula", "kernel", "in place"), "care": ("formula", "kernel", "in place"),
    "liere_8": ("formula", "kernel", "in place", "table"), "pape": ("projections", "formula", "kernel"),
}  # fmt: skip

found = subprocess.run([sys.executable, str(BENCH), *SHORT, *LINES], capture_output=True, text=True)
print(found.stdout, found.stderr, sep="\n")
if found.returncode:
    sys.exit("bench/vit.py failed")
for name, hows in LINES.items():
    part = re.search(rf"^{name}:\n((?:  .*\n)+)", found.stdout, re.M)
    for how in hows:
        figures = r"[+-][\d.]+ % \(\+- [\d.]+\) +[+-][\d.]+ MiB a layer"
        if not re.search(rf"^  inference +eager +{how} +{figures}", part[1], re.M):
            sys.exit(f"{name}: no line of '{how}'")
    if not re.search(r"^  training +eager +formula ", part[1], re.M):
        sys.exit(f"{name}: no line of training")
found = subprocess.run([sys.executable, str(BENCH), "nonsense"], capture_output=True, text=True)
if found.returncode != 2 or "no encoding 'nonsense'" not in found.stderr:
    sys.exit("an encoding that is not there was not refused")
