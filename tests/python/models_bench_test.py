"""bench/models.py, its short mode: models of each kind run before and after patch, and rotation is a part of each. And
bench/tangents.py: it runs, and has figures of both types."""
import pathlib
import re
import subprocess
import sys

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench" / "models.py"
NAMES = ["ModernBERT base", "CodeGen 350M", "ViT-S/16 RoPE (timm)"]

found = subprocess.run([sys.executable, str(BENCH), "--rounds", "1", "--tokens", "16", *NAMES], capture_output=True,
                       text=True)  # fmt: skip
print(found.stdout, found.stderr, sep="\n")
if found.returncode:
    sys.exit("bench/models.py failed")
for name in NAMES:
    figures = r"([\d.]+) %, ([\d.]+) % \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|"
    line = re.search(rf"^\| {re.escape(name)} \| \d+ \| {figures}$", found.stdout, re.M)
    if not line or min(map(float, line.groups())) <= 0 or max(map(float, line.groups()[:2])) > 60:
        sys.exit(f"{name}: no line of figures, or such that cannot be")
found = subprocess.run([sys.executable, str(BENCH), "nonsense"], capture_output=True, text=True)
if found.returncode != 2 or "no model 'nonsense'" not in found.stderr:
    sys.exit("a model that is not there was not refused")
found = subprocess.run([sys.executable, str(BENCH.with_name("tangents.py")), "--rounds", "1", "--tokens", "32"],
                       capture_output=True, text=True)  # fmt: skip
if len(re.findall(r"^\| 32, b?float\d+ \|( [\d.-]+ \|){4}$", found.stdout, re.M)) != 2:
    sys.exit(f"bench/tangents.py: {found.stdout} {found.stderr}")
