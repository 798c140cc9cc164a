"""Pictures: every stock description has a page; what stands in it is what explain says, and no browser complains."""
import contextlib
import html.parser
import io
import itertools
import json
import math
import pathlib
import re
import shutil
import subprocess
import tempfile

import numpy
import altair
import vl_convert

import pegen_kernels as pk
from pegen_kernels.explore import explain
from pegen_kernels.explore import compare, plot
from pegen_kernels.explore.words import Operands
from pegen_kernels.explore import facts as facts_of
from pegen_kernels.explore.facts import tokens_of
from pegen_kernels.explore.charts import KINDS, whole
from pegen_kernels.explore.pictures import all_pictures, score_matrix

HOSTILE = """local pe = require "pegen"
return pe.encoding { name = "hostile", axes = { "x" }, head_dim = 4, block = pe.plane(),
  doc = "</script><script>console.error('doc')</script><b id=broken>",
  generators = { x = pe.bivector { e12 = 1 } }, phase = function(_, i) return 1 / (i + 1) end }
"""


def run(*words, status=0, main=plot.main):
    """The command, in this process; what it says."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            code = main(list(map(str, words)))
        except SystemExit as end:
            code = end.code
    assert code == status, (words, code, said.getvalue())
    return said.getvalue()


class Labels(html.parser.HTMLParser):
    """Values that readers of the screen are told, by picture."""

    def __init__(self):
        super().__init__()
        self.section, self.found, self.ids = "", {}, set()

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.ids.add(attributes.get("id"))
        if tag == "section":
            self.section = attributes["id"]
        if "aria-label" in attributes:
            self.found.setdefault(self.section, []).append(attributes["aria-label"])


BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


def browse(page, *words):
    words = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", *words]
    return subprocess.run([BROWSER, *words, page.as_uri()], capture_output=True, text=True, timeout=240)


def opened(page):
    """What the page says in a browser; None where there is none."""
    if not BROWSER:
        return None
    done = browse(page, "--enable-logging=stderr", "--dump-dom")
    said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert not said, said
    labels = Labels()
    labels.feed(done.stdout)
    return labels


# Says nothing before all charts are drawn.
PROBE = """<script>setInterval(() => {
  const charts = [...document.querySelectorAll("figure div[id]")].map(e => e.querySelector("svg"));
  if (charts.length && charts.every(e => e)) parent.postMessage([document.documentElement.scrollWidth, innerWidth,
    ...charts.map(e => Math.round(e.getBoundingClientRect().right))], "*") }, 200)
</script>"""
PHONE = """<iframe src="{}" style="width:360px;height:800px"></iframe><section id="said"></section><script>
addEventListener("message", e => document.getElementById("said").setAttribute("aria-label", JSON.stringify(e.data)))
</script>"""


def on_a_phone(page):
    """How wide the page is, the window, and where each chart ends, in a window of 360 pixels."""
    before, end, after = page.read_text().rpartition("</body>")
    (page.parent / "probed.html").write_text(before + PROBE + end + after)
    (page.parent / "phone.html").write_text(PHONE.format("probed.html"))
    return json.loads(opened(page.parent / "phone.html").found["said"][0])


def on_paper(page):
    paper = page.with_suffix(".pdf")
    browse(page, f"--print-to-pdf={paper}").check_returncode()
    return paper.read_bytes()


def value_at(labels, section, wanted):
    found = [label for label in labels.found[section] if all(word in label.split("; ") for word in wanted)]
    assert found, (section, wanted, labels.found[section][:3])
    return float(re.search(r"score: (−?-?[0-9.e−-]+)", found[0])[1].replace("−", "-"))


def form_of(chart):
    """A chart with one row of each table, and one number for all."""
    if isinstance(chart, dict):
        return {key: form_of(x[:1] if key == "values" else x) for key, x in chart.items()}
    if isinstance(chart, (list, tuple)):
        return [form_of(x) for x in chart]
    return 0 if type(chart) in (int, float) else chart


# Descriptions with nothing to draw: positions change nothing, or scores read what a model computes of them.
BARE = ("attention", "fox", "gpt_oss", "grape_a", "deberta", "decomposed_bias", "pair_bias", "relative_rows")


def check_every_description():
    """Charts are what Vega-Lite's schema allows; of charts of one form the first is looked at, which takes long."""
    forms = set()
    facts_of.DEFAULT_GRID = {1: (9,), 2: (5, 5), 3: (3, 3, 3), 4: (2, 2, 2, 2)}
    for name in pk.stock():
        facts = explain(name, label=name)
        pictures = list(all_pictures([facts]))
        assert pictures or name in BARE, name
        for picture in pictures:
            chart = whole(picture.charts[name].to_dict())
            if (form := json.dumps(form_of(chart)).replace(name, "")) not in forms:
                altair.Root.validate(chart)
                forms.add(form)
    assert len(forms) > len(pictures), len(forms)


def check_numbers():
    """RoPE's mean score is that of cosines, its score matrix Toeplitz; GeoPE's matrix is that of its rotors."""
    f = explain("rope", grid=(20,))
    frequency = 10000 ** (-2 * numpy.arange(32) / 64)
    exact = numpy.cos(numpy.outer(numpy.arange(-19, 20), frequency)).mean(axis=1)
    assert abs(f.equal[0] - exact).max() < 1e-12 and abs(f.lowest - f.highest).max() < 1e-12
    matrix = score_matrix(f)
    assert abs(matrix[3, 11] - exact[19 + 8]) < 1e-12 and f.tokens is None
    g = explain("geope2d", grid=(3, 4))
    matrix, lowest, highest = score_matrix(g), g.lowest[0, 2 + 1, 3 + 2], g.highest[0, 2 + 1, 3 + 2]
    pairs = [matrix[h * 4 + w, (h + 1) * 4 + w + 2] for h in range(2) for w in range(2)]
    assert abs(min(pairs) - lowest) < 1e-12 and abs(max(pairs) - highest) < 1e-12
    large = explain(
        "geope2d", grid=(24, 20)
    )  # every second token: pairs of one displacement differ, and none is a mean
    matrix, at = score_matrix(large), tokens_of(large.grid)
    place = tuple(numpy.moveaxis(at[None] - at[:, None] + numpy.array(large.grid) - 1, -1, 0))
    assert len(matrix) == 12 * 10 and large.stride == 2
    assert (matrix > large.lowest[0][place] - 1e-12).all() and (matrix < large.highest[0][place] + 1e-12).all()
    assert abs(matrix - large.equal[0][place]).max() > 1e-3
    hidden = explain("lookhere", grid=(4, 4))
    assert numpy.isneginf(hidden.bias).any() and hidden.equal is None
    assert explain("rope_mixed", seed=4).operands == {"freqs": "drawn as its init says, seed 4"}


def check_page(folder):
    page = folder / "report.html"
    hostile = folder / "hostile.lua"
    hostile.write_text(HOSTILE)
    run("rope_axial", "geope2d,exponent_sign=-1", "lookhere", "--grid", "7,7", "-o", page)
    text = page.read_text()
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", text), "the page asks the network for something"
    facts = explain("rope_axial", grid=(7, 7))
    labels = opened(page)
    if labels is None:
        print("no browser here: pages were not opened")
        return
    for h, w in ((0, 0), (3, -2), (-6, 6)):
        shown = value_at(labels, "map", [f"h displacement: {h}", f"w displacement: {w}"])
        assert math.isclose(shown, facts.equal[0, 6 + h, 6 + w], rel_tol=1e-9), (h, w, shown)
    sections = {"decay", "map", "directions", "bias", "changes", "wavelengths", "orbits", "commutators", "spectrum"}
    assert sections <= set(labels.found), set(labels.found)
    page_width, window, *ends = on_a_phone(page)
    assert page_width <= window == 360 and len(ends) >= 9 and max(ends) <= window, (page_width, window, ends)
    paper = on_paper(page)
    assert paper.startswith(b"%PDF") and len(re.findall(rb"/Type */Page\b", paper)) > 1
    run(hostile, "-o", page)
    labels = opened(page)
    assert "broken" not in labels.ids and "wavelengths" in labels.found


DARK = pathlib.Path(facts_of.__file__).with_name("static") / "figures.js"


# What red, green and blue become to eyes without one kind of cone (G. Machado, M. Oliveira and L. Fernandes, "A
# physiologically-based model for simulation of color vision deficiency", 2009, severity 1).
DEFICIENCIES = {
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
}


def lab(linear):
    """CIE L*a*b* of linear sRGB, white D65."""
    of = [[0.412456, 0.357576, 0.180438], [0.212673, 0.715152, 0.072175], [0.019334, 0.119192, 0.950304]]
    relative = numpy.array(of) @ linear / [0.950489, 1, 1.08884]
    f = numpy.where(relative > 0.008856, numpy.cbrt(relative), 7.787 * relative + 16 / 116)
    return numpy.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def check_colours():
    """Kinds of one picture are told apart by colour (more than 10 in L*a*b*) and from the paper, with two kinds of
    cones, too, on white paper and on the workbench's dark one."""
    dark = dict(re.findall(r'"(#[0-9a-f]{6})": "(#[0-9a-f]{6})"', DARK.read_text()))
    assert set(KINDS) & set(dark)
    palettes = [*KINDS, "#ffffff"], [*(dark.get(c, c) for c in KINDS), "#16191d"]
    for palette, seen in itertools.product(palettes, ([[1, 0, 0], [0, 1, 0], [0, 0, 1]], *DEFICIENCIES.values())):
        channels = [numpy.array([int(c[i : i + 2], 16) for i in (1, 3, 5)]) / 255 for c in palette]
        linear = [numpy.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) for c in channels]
        kinds = [lab(numpy.clip(numpy.array(seen) @ c, 0, 1)) for c in linear]
        least = min(numpy.linalg.norm(a - b) for i, a in enumerate(kinds) for b in kinds[:i])
        assert least > 10, least


def legends_in(vega):
    """Legends of groups, with what their scales tell apart."""
    for legend in vega.get("legends", []):
        told = [scale["domain"] for scale in vega.get("scales", []) if scale["name"] in legend.values()]
        yield json.dumps(told[0] if told else legend, sort_keys=True)
    for mark in vega.get("marks", []):
        yield from legends_in(mark)


def check_legends():
    """A picture has one legend at most, so that no entry is there twice."""
    for picture in all_pictures([explain("rope_axial", grid=(6, 6)), explain("geope2d", grid=(6, 6))]):
        for label, chart in picture.charts.items():
            legends = list(legends_in(vl_convert.vegalite_to_vega(whole(chart.to_dict()))))
            assert len(legends) <= 1, (picture.key, label, legends)


def check_rule():
    """The rule of the grid's extent lies inside the axes, where all wavelengths are longer than it, too."""
    (picture,) = [p for p in all_pictures([explain("rope_axial", grid=(2, 2), label="x")]) if p.key == "wavelengths"]
    points, rule = picture.charts["x"].to_dict()["layer"]
    low, high = points["encoding"]["y"]["scale"]["domain"]
    assert low < 2 < high, (low, high)


def check_images(folder):
    run("rope_axial", "--grid", "4,4", "--only", "decay,map", "-o", folder / "a.svg")
    assert (folder / "a.svg").read_text().count("displacement: 3") > 4
    run("rope_axial", "--grid", "4,4", "--only", "decay", "-o", folder / "a.png")
    assert (folder / "a.png").read_bytes().startswith(b"\x89PNG")


def checkpoint_of(folder, value):
    """A checkpoint that has the frequencies of rope_mixed's 32 pairs, all of this value."""
    values = numpy.full((2, 1, 32), value, dtype=numpy.float32)
    entry = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [0, values.nbytes]}
    header = json.dumps({"blocks.3.freqs": entry}).encode()
    file = folder / "model.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header + values.tobytes())
    return file


def check_checkpoint(folder):
    """Operands of a checkpoint are those that pictures are of."""
    file = checkpoint_of(folder, 0.25)
    f = explain("rope_mixed", checkpoint=file, tensors={"freqs": "blocks.3.freqs"}, grid=(3, 3))
    assert set(abs(f.phases.ravel())) == {0.25} and f.operands["freqs"] == f"blocks.3.freqs of {file}"
    words = ["rope_mixed", "--operands", file, "--grid", "3,3", "--only", "wavelengths", "-o", folder / "c.svg"]
    run(*words, "--map", "freqs=blocks.3.freqs")
    assert "did you mean 'blocks.3.freqs'" in run(*words, "--map", "freqs=blocks.3.freq", status=1)
    assert "there is a checkpoint already" in run(*words, "--operands", file, status=2)


def check_deviation(folder):
    """What explain tells of learned matrices is of the entries above their diagonals, in blocks that hear the axis."""
    shape = {"comrope_ap": (2, 8, 8, 8), "liere": (2, 2, 1, 64, 64)}
    for name, raw in shape.items():
        array = folder / f"{name}.npy"
        values = numpy.random.default_rng(3).normal(0.1, 0.3, raw) * (1 + numpy.arange(raw[0])).reshape(
            -1, *[1] * (len(raw) - 1)
        )
        numpy.save(array, values)
        f = explain(name, heads=2, operands={"generators": array})
        told_of = f.data["numbers"]["generators"]
        generators = numpy.reshape(told_of["values"], told_of["shape"])
        upper = numpy.triu_indices(generators.shape[-1], 1)
        for axis, told in enumerate(f.data["axes"]):
            heard = f.phases[..., axis] != 0
            entries = (generators[:, :, axis] * f.phases[..., axis, None, None])[heard][:, upper[0], upper[1]]
            assert told["generator"].endswith(f"; above the diagonal of deviation {entries.std():.3g}"), told
        assert "deviation" not in str(explain(name, heads=2).data["axes"])


def check_refusals(folder):
    page = folder / "kept.html"
    page.write_text("kept")
    assert "expected one of .html" in run("rope", "-o", folder / "a.pdf", status=1)
    assert "no such picture" in run("rope", "-o", page, "--only", "nothing", status=1)
    assert "--grid has 1 sizes" in run("geope2d", "--grid", "14", "-o", page, status=1)
    assert "at most 1024 tokens" in run("geope2d", "-D", "grid=64,64", "-o", page, status=1)
    assert "no description 'none'" in run("none", "-o", page, status=1)
    assert "unknown option 'heds'" in run("rope,heds=2", "-o", page, status=1).replace("no option", "unknown option")
    assert "no operand 'x'" in run("rope_mixed", "--operands", "x=y.npy", "-o", page, status=1)
    assert "two descriptions are called 'rope'" in run("rope", "rope", "-o", page, status=1)
    assert "expected whole numbers" in run("rope", "--grid", "a", "-o", page, status=2)
    assert "expected NAME=VALUE" in run("rope", "-D", "base", "-o", page, status=2)
    assert "there is no folder" in run("rope", "-o", folder / "nowhere" / "a.html", status=1)
    assert page.read_text() == "kept"
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith(".")) == []


def check_compare(folder):
    """A row a variant; what an interrupted run has done is not done again; a mistake in the last is told first."""
    assert compare.values_of("10,100") == ["10", "100"] and compare.values_of("[8,12],[4,16]") == ["8,12", "4,16"]
    table = folder / "table.json"
    words = ["rope", "rope_axial,axes=3", "-D", "base=10,100", "--shape", "1,8,2", "-o", table]
    bad = run(*words[:2], "rope,layout=spilt", *words[2:], status=1, main=compare.main)
    assert "spilt" in bad and "1 of" not in bad and not table.exists(), bad
    kept, count = compare.measure, 0

    def interrupted(*arguments):
        nonlocal count
        count += 1
        if count == 3:
            raise KeyboardInterrupt
        return kept(*arguments)

    compare.measure = interrupted
    try:
        assert "2 of 4 are done" in run(*words, status=130, main=compare.main)
    finally:
        compare.measure = kept
    with open(folder / "table.json.part", "a") as part:
        part.write('{"key": "cut sho')
    said = run(*words, main=compare.main)
    assert "3 of 4" in said and "2 of 4" not in said, said
    rows = json.loads(table.read_text())
    assert [(row["description"], row["base"]) for row in rows] == [
        ("rope", "10"), ("rope", "100"), ("rope_axial", "10"), ("rope_axial", "100"),
    ]  # fmt: skip
    for row in rows:
        assert (
            row["check"] == "passes"
            and row["largest error, log2"] < -20
            and row["translation invariant"] == "yes (proved)"
        )
        assert min(row["forward, us"], row["backward, us"], row["compile, s"], row["object, bytes"]) > 0
    assert not (folder / "table.json.part").exists()


def check_compared_checkpoint(folder):
    """Operands of a checkpoint are those that properties are measured of, in the descriptions that have them."""
    file, table = checkpoint_of(folder, 0.0), folder / "checkpoint.json"
    words = ["rope_mixed", "rope_axial", "--grid", "6,6", "--shape", "1,36,2", "-o", table, "--operands", file]
    for tensors, word in (
        ("freqs=blocks.3.freq", "did you mean 'blocks.3.freqs'"),
        ("freq=blocks.3.freqs", "operand 'freq': no description has it; expected one of freqs"),
    ):
        said = run(*words, "--map", tensors, status=1, main=compare.main)
        assert word in said and "1 of" not in said and not table.exists(), said
    assert "6,x" in run("rope", "-o", table, "--grid", "6,x", status=2, main=compare.main)
    run(*words, "--map", "freqs=blocks.3.freqs", main=compare.main)
    mixed, axial = json.loads(table.read_text())
    assert mixed["operands"] == f"freqs: blocks.3.freqs of {file}" and axial["operands"] is None, (mixed, axial)
    assert mixed["distance decay"] == "no (measured)" and axial["distance decay"] != "no (measured)"  # nothing turns
    tensors = {"freqs": "blocks.3.freqs"}
    facts = [
        compare._explained([("rope_mixed", {})], Operands({}, checkpoint_of(folder, value), tensors, None), None)
        for value in (0.5, 0.25)
    ]
    assert facts[0] != facts[1]  # a checkpoint that has changed under its name is measured anew


if __name__ == "__main__":  # lab_test.py opens pages, too
    with tempfile.TemporaryDirectory() as name:
        check_compare(pathlib.Path(name))
        check_compared_checkpoint(pathlib.Path(name))
        check_numbers()
        check_colours()
        check_legends()
        check_rule()
        check_every_description()
        check_page(pathlib.Path(name))
        check_images(pathlib.Path(name))
        check_checkpoint(pathlib.Path(name))
        check_deviation(pathlib.Path(name))
        check_refusals(pathlib.Path(name))
    print("explore_test: pages hold what explain says")
