"""The laboratory: a study of seconds, killed and taken up again, ends as one that was not; what is wrong with a study
is said before anything is trained."""
import contextlib
import io
import itertools
import json
import math
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import time

import numpy
import pandas
import torch

from explore_test import opened
from pegen_kernels.lab import inside, lab, statistics, train
from pegen_kernels.lab.data import SETS, Part, _bits, _shape_bias
from pegen_kernels.lab.engine import tasks_of, tuned, tuning_of
from pegen_kernels.lab.model import build, weights_of
from pegen_kernels.lab.study import load

STUDIES = pathlib.Path(__file__).resolve().parents[2] / "studies"
SHORT = """
name = "short"
claim = "Without positions there is nothing to learn."
seeds = [0, 1]
baseline = "none"
[data]
set = "arrows"
cells = [3, 4]
arrows = 2
letters = 1
samples = 640
tested = 100
[model]
dim = 32
heads = 2
depth = 1
[training]
epochs = 4
rate = 6e-3
[variants.none]
[variants.rope]
spec = "rope_axial"
options = { base = 100 }
"""


def run(*words, status=0):
    """The command, in this process; what it says."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            code = lab.main(list(map(str, words)))
        except SystemExit as end:
            code = end.code
    assert code == status, (words, code, said.getvalue())
    return said.getvalue()


def results(folder):
    return json.loads((folder / "results.json").read_text())


def plain(folder):
    """What a run's result holds that no clock decides."""
    clocks = {"step_seconds", "seconds"}
    return [{k: v for k, v in row.items() if k not in clocks} for row in results(folder)["runs"]]


def kill(study, folder, *words):
    """Ends the command for good in the third epoch of its second run."""
    program = """
import sys, time, pathlib
from pegen_kernels.lab import lab, train
train._SECONDS = 0
kept, count = train.Run.epoch, [0]
def epoch(self):
    count[0] += 1
    if count[0] == 7:
        pathlib.Path(sys.argv[3], "stuck").touch()
        time.sleep(600)
    kept(self)
train.Run.epoch = epoch
lab.main(sys.argv[1:])
"""
    started = subprocess.Popen(
        [sys.executable, "-c", program, str(study), "-o", str(folder), *words], stderr=subprocess.DEVNULL
    )
    try:
        while not (folder / "stuck").exists():
            assert started.poll() is None, "it ended by itself"
            time.sleep(0.05)
    finally:
        started.kill()
        assert started.wait() == -signal.SIGKILL


def check_killed(folder):
    """Killed while it trains, the same command goes on and ends with the numbers of a run that nobody killed."""
    study = folder / "short.toml"
    study.write_text(SHORT)
    whole, killed = folder / "whole", folder / "killed"
    for place in (whole, killed):
        place.mkdir()
    run(study, "-o", whole)
    kill(study, killed)
    run(study, "-o", killed, "--report")
    assert results(killed)["missing"] == 3 and "3 of 4 runs are missing" in (killed / "report.html").read_text()
    assert len(list((killed / "runs").glob("*.pt"))) == 1
    said = run(study, "-o", killed)
    assert "rope, seed 0" in said and "none, seed 0" not in said, said
    assert plain(killed) == plain(whole)
    assert results(killed)["missing"] == 0 and not list((killed / "runs").glob("*.pt"))
    # All is done: nothing is trained again, unless the study changes.
    assert "seed" not in run(study, "-o", killed)
    study.write_text(SHORT.replace("seeds = [0, 1]", "seeds = [1, 2]"))
    said = run(study, "-o", killed)
    assert "seed 2" in said and "seed 1" not in said, said
    return whole


def check_journal(folder, whole):
    """A killed study goes on in a storage without a database."""
    study, killed = folder / "short.toml", folder / "journal"
    study.write_text(SHORT)
    killed.mkdir()
    words = ("--storage", f"journal:{folder / 'shared.log'}")
    kill(study, killed, *words)
    said = run(study, "-o", killed, *words)
    assert "rope, seed 0" in said and "none, seed 0" not in said, said
    assert plain(killed) == plain(whole) and "seed" not in run(study, "-o", killed, *words)
    said = run(study, "-o", killed, "--storage", f"journal:{folder / 'nowhere' / 'shared.log'}", status=1)
    assert "expected journal:FILE" in said and "nowhere" in said, said


def check_report(folder):
    found = results(folder)
    assert [(r["variant"], r["seed"]) for r in found["runs"]] == [("none", 0), ("rope", 0), ("none", 1), ("rope", 1)]
    by = {(r["variant"], r["seed"]): r["values"]["3 x 3"] for r in found["runs"]}
    rows = {(c["variant"], c["test"]): c for c in found["comparisons"]}
    difference = numpy.mean([by["rope", s] - by["none", s] for s in (0, 1)])
    assert math.isclose(rows["rope", "3 x 3"]["difference"], difference)
    table = pandas.read_csv(folder / "results.csv")
    assert len(table) == 8 and set(table["test"]) == {"3 x 3", "4 x 4"}
    assert f"{by['rope', 0]:.4f}"[:5] in f"{table[(table.variant == 'rope') & (table.seed == 0)]['value'].iloc[0]:.4f}"
    assert (folder / "results.png").read_bytes().startswith(b"\x89PNG")
    text = (folder / "results.md").read_text()
    assert "2 seeds are few" in text and "| none |" in text and "pegen lab" in text
    page = (folder / "report.html").read_text()
    assert 'src="http' not in page and 'href="http' not in page
    labels = opened(folder / "report.html")
    if labels is None:
        return print("no browser here: the page was not opened")
    shown = [label for label in labels.found["values"] if "variant: rope" in label and "seed: 0" in label]
    assert any(f"{by['rope', 0]:.4f}" in label.replace("−", "-") for label in shown), (shown, by)
    assert {"values", "curves", "distances", "cost"} <= set(labels.found)


def check_statistics():
    """A difference in all of five seeds is found, chance is not; one seed tells nothing; no spread is no proof."""
    with tempfile.TemporaryDirectory() as name:
        study_file = pathlib.Path(name) / "short.toml"
        study_file.write_text(SHORT + '[variants.other]\nspec = "rope_mixed"\n')
        study = load(study_file)
    chance = numpy.random.default_rng(1).normal(0.5, 0.05, (2, 5))

    def runs(seeds):
        values = {"none": chance[0], "rope": chance[0] + 0.2 + 0.1 * (chance[1] - 0.5), "other": chance[1]}
        return pandas.DataFrame([
            {"variant": v, "seed": s, "test": "t", "measure": "accuracy", "value": values[v][s]}
            for v, s in itertools.product(values, range(seeds))
        ])  # fmt: skip

    rope, other = statistics.compared(study, runs(5))
    assert rope["verdict"] == "better" and other["verdict"] == "not told apart", (rope, other)
    assert rope["low"] < 0.2 < rope["high"] and rope["p_corrected"] > rope["p"]
    one = statistics.compared(study, runs(1))
    assert all(row["p"] is None and row["verdict"] == "not told apart" for row in one)
    assert "One seed" in statistics.said(study, one)
    assert statistics._against(numpy.array([0.1, 0.1, 0.1]))["p"] == 0.25
    assert statistics._against(numpy.zeros(3))["p"] == 1
    # Holm's own example of four: .005 x 4, .01 x 3, .03 x 2, and .04 not below the one before it.
    assert numpy.allclose(statistics._corrected([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])


def check_data():
    """Every set makes what it says, the same of a seed anywhere, another of another seed."""
    small = {"samples": 40, "tested": 20}
    for name, kind in SETS.items():
        data = kind(**({} if name == "digits" else small)).make(1)
        for part in (data.train, *data.tests.values()):
            assert part.positions.shape[-1] == len(data.axes) and len(part.targets) == len(part.tokens)
            assert part.positions.shape[-2] == part.tokens.shape[1], name
            assert int(part.targets.max()) < data.classes
        assert data.digest() == kind(**({} if name == "digits" else small)).make(1).digest() != kind(
            **({} if name == "digits" else small)).make(2).digest()  # fmt: skip
    scores = torch.eye(4)[[0, 1, 2, 3]]
    pairs = torch.tensor([[0, 1], [0, 1], [1, 0], [3, 0]])  # shape, texture, neither, shape
    assert _shape_bias(scores, pairs) == (2, 3)
    bits, count = _bits(torch.zeros(1, 4, 8), torch.zeros(1, 4, dtype=torch.int64))
    assert math.isclose(bits, 6, rel_tol=1e-6) and count == 2
    arrows = SETS["arrows"](cells=[5], samples=50, tested=1).make(0).train
    for cells, target in zip(arrows.tokens.reshape(-1, 5, 5), arrows.targets):
        (at,) = ((cells >= 5) & (cells <= 8)).nonzero().tolist()
        step = [(0, 1), (1, 0), (0, -1), (-1, 0)][cells[tuple(at)] - 5]
        assert cells[at[0] + step[0], at[1] + step[1]] == 1 + target and ((cells > 0) & (cells < 5)).sum() == 8


def check_alike(folder):
    """Variants differ in nothing but the encoding: what they share begins alike, to the bit."""
    file = folder / "alike.toml"
    file.write_text(SHORT + '[variants.mixed]\nspec = "rope_mixed"\n[variants.pape]\nspec = "pape"\n'
                    'options = { parabolas = 4, role = "pairwise" }\n[variants.sincos]\nspec = "sincos"\n')  # fmt: skip
    study = load(file)
    data = study.data.make(0)
    first = build(study, study.variants["none"], data, 3).state_dict()
    for variant in study.variants.values():
        own = build(study, variant, data, 3).state_dict()
        assert all(torch.equal(own[name], value) for name, value in first.items()), variant.name


REFUSED = (
    ('set = "arrows"', "", "[data]: names no data; expected set, one of 'digits'"),
    ('set = "arrows"', 'set = "imagenet"', "[data]: set is 'imagenet'"),
    ('"rope_axial"', '"rope_axail"', "[variants.rope]: spec: no description 'rope_axail'"),
    ('"rope_axial"', '"geope3d"', "has 3 axes (d, h, w); [data] 'arrows' has 2 (h, w)"),
    ("{ base = 100 }", "{ bse = 100 }", "no option 'bse'"),
    ("{ base = 100 }", "{ base = 100 }\ninit = { freqs = 0.1 }", "rope_axial has no operand 'freqs'"),
    ("{ base = 100 }", '{ base = 100 }\ninit = { freqs = "f.npy" }', "there is no file 'f.npy'"),
    ("{ base = 100 }", '{ base = 100 }\nfixed = ["freqs"]', "fixed: no operand 'freqs'; there are: none"),
    ("seeds = [0, 1]", "seeds = [0, 0]", "expected one or more, each once"),
    ("seeds = [0, 1]", 'seeds = "0"', "seeds is '0'; expected a list"),
    ('baseline = "none"', 'baseline = "alibi"', "expected one of the variants: none, rope"),
    ("depth = 1", "deep = 1", "[model]: no setting 'deep'; there are: dim, heads"),
    ("depth = 1", "depth = 1.5", "[model]: depth is 1.5; expected a whole number"),
    ("heads = 2", "heads = 3", "expected a multiple of heads, 3"),
    ("arrows = 2", "arrows = 9", "do not fit [3, 4] cells"),
    ("epochs = 4", "epochs = 0", "[training]: epochs is 0; expected more than 0"),
    ("[variants.none]", "[variants.none]\nfixed = []", "names no spec"),
    ("seeds = [0, 1]", "seeds = [0, 1", "Unclosed array"),
    ("epochs = 4", "epochs = 4\nperturbation = -1.0", "perturbation is -1.0; expected 0 or more"),
    ("{ base = 100 }", "{ base = 100 }\nperturbation = -1.0", "perturbation is -1.0; expected 0 or more"),
    ("rate = 6e-3", "rates = [6e-3, 6e-3]", "rates are [0.006, 0.006]; expected each once"),
    ("rate = 6e-3", "rates = [6e-3, 0.0]", "rates is [0.006, 0.0]; expected more than 0"),
    ("rate = 6e-3", "rates = [6e-3]\ntuning_seed = 1", "tuning_seed is 1; expected none of the seeds"),
    ("{ base = 100 }", '{ base = 100 }\nshared = ["freqs"]', "shared: no operand 'freqs'; there are: none"),
)


TOGETHER = """
[[variants.both]]
spec = "rope_axial"
options = { base = 100 }
[[variants.both]]
spec = "alibi"
"""


def check_list(folder):
    """Descriptions that are applied together: RoPE turns rows that ALiBi's attention then reads."""
    file = folder / "list.toml"
    file.write_text(SHORT + TOGETHER)
    study = load(file)
    data = study.data.make(0)
    models = {name: build(study, variant, data, 0) for name, variant in study.variants.items()}
    layer = models["both"].layers[0]
    assert [encoding.kernel.name for encoding in layer.encodings] == ["rope_axial", "alibi"]
    positions = data.train.positions.float()
    x = torch.randn(2, len(positions), 32)
    found = {name: model.layers[0].attend(x, positions) for name, model in models.items()}
    q, k, v = layer.qkv(x).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
    q, k = models["rope"].layers[0].encodings[0](q, k, positions)
    assert torch.equal(found["both"], layer.encodings[1](q, k, v, positions))
    assert not torch.allclose(found["both"], found["rope"]) and not torch.allclose(found["both"], found["none"])
    for old, new, words in (
        ('spec = "alibi"', "", "expected a spec in each of its tables"),
        ('spec = "rope_axial"\noptions = { base = 100 }', 'spec = "alibi"', "more than one of them are pairwise"),
        ('spec = "alibi"', 'spec = "alibi"\nscale = 2.0', "expected in the first table alone"),
    ):
        file.write_text(SHORT + TOGETHER.replace(old, new))
        assert words in run(file, "-o", folder / "list", "--check", status=1)


SHARED = """
[variants.own]
spec = "liere"
options = { block = 8 }
[variants.shared]
spec = "liere"
options = { block = 8 }
shared = ["generators"]
"""


def check_memory(folder):
    """What is kept for a backward pass is counted, and then free again: a study of many runs needs no more than one."""
    file = folder / "memory.toml"
    file.write_text(SHORT)
    study = load(file)
    data = study.data.make(0)
    batch = next(train.Batches(data.train, 640, 0).of(0))
    for variant in study.variants.values():
        model = build(study, variant, data, 0)
        once = train.kept_for_backward(model, data.train.positions, batch)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert all(train.kept_for_backward(model, data.train.positions, batch) == once for _ in range(20))
        grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
        assert grown < 5 * once, (variant.name, once, grown)


def check_shared(folder):
    """Generators that layers share are one tensor: trained as one, kept and counted as one (LieRE, table 4)."""
    file = folder / "shared.toml"
    file.write_text(SHORT.replace("depth = 1", "depth = 2").replace("epochs = 4", "epochs = 1") + SHARED)
    study = load(file)
    data = study.data.make(0)
    for name, count in (("own", 2), ("shared", 1)):
        run_of = train.Run(study, study.variants[name], 0, data, folder / f"{name}.pt")
        one, other = run_of.model.encodings()
        assert len({id(one.generators), id(other.generators)}) == count
        run_of.epoch()
        run_of.keep()
        again = train.Run(study, study.variants[name], 0, data, folder / f"{name}.pt")
        again.restore()
        kept = [encoding.generators for encoding in again.model.encodings()]
        assert torch.equal(kept[0], one.generators) and torch.equal(kept[0], kept[1]) == (count == 1)
        assert run_of.result()["parameters_of_encodings"] == count * one.generators.numel()
    keys = {task.variant: task.key for task in tasks_of(study, {name: "the same" for name in study.variants})}
    assert keys["own"] != keys["shared"] and keys["own"] == keys["rope"]


def check_perturbed(folder):
    """Positions of training move by half of it at most, another way each epoch, and the same again; those of tests stay
    (ComRoPE, table 3)."""
    file = folder / "perturbed.toml"
    file.write_text(SHORT.replace("epochs = 4", "epochs = 2\nperturbation = 0.5"))
    study = load(file)
    data = study.data.make(0)
    still = data.train.positions.clone()
    run_of = train.Run(study, study.variants["rope"], 0, data, folder / "perturbed.pt")

    def positions_of(epoch):
        return torch.stack([batch[2] for batch in run_of.batches.of(epoch)])

    moved = positions_of(0) - still
    assert 0.2 < moved.abs().max() <= 0.25 and abs(moved.mean()) < 0.01
    assert (moved[0, 0] != moved[0, 1]).all() and (moved[0] != moved[1]).all()
    assert torch.equal(positions_of(0), positions_of(0)) and not torch.equal(positions_of(0), positions_of(1))
    run_of.finish()
    assert torch.equal(data.train.positions, still)
    assert all(len(batch) == 2 for batch in train.Batches(data.train, 9, 0).of(0))
    file.write_text(SHORT)
    plain_study = load(file)
    rope = plain_study.variants["rope"]
    assert "perturbation" not in plain_study.settings(rope, 6e-3)["training"]  # results of before go on to count
    digests = {name: "the same" for name in study.variants}
    assert tasks_of(study, digests)[0].key != tasks_of(plain_study, digests)[0].key
    # A variant's own, in place of the study's.
    half = SHORT.replace("epochs = 4", "epochs = 4\nperturbation = 0.5")
    file.write_text(half)
    first = tasks_of(load(file), digests)[0].key
    file.write_text(half + "perturbation = 0.0\n")
    own = load(file)
    assert [own.perturbation(variant) for variant in own.variants.values()] == [0.5, 0.0]
    assert [task.key for task in tasks_of(own, digests)[:2]] == [first, tasks_of(plain_study, digests)[1].key]


def check_tuned(folder):
    """Each variant has the rate that a run of another seed learned best with; runs at that rate are those of a study
    that states it."""
    file, out, plain_out = folder / "tuned.toml", folder / "tuned", folder / "untuned"
    short = SHORT.replace("seeds = [0, 1]", "seeds = [0]").replace("epochs = 4", "epochs = 2")
    file.write_text(short.replace("rate = 6e-3", "rates = [6e-3, 1e-9]\ntuning_seed = 7"))
    for place in (out, plain_out):
        place.mkdir()
    said = run(file, "-o", out)
    lines = [line for line in said.splitlines() if "seed 7" in line]
    assert len(lines) == 4 and all(" left)" in line for line in lines) and "seed 0" in said, said
    found = results(out)
    assert found["missing"] == 0 and [(r["seed"], r["rate"]) for r in found["runs"]] == [(0, 6e-3)] * 2
    assert "of 0.006, 1e-09 the best of seed 7 in '3 x 3'" in (out / "results.md").read_text()
    study = load(file)
    digests = {name: "the same" for name in study.variants}
    tuning = tuning_of(study, digests)
    worths = {("none", 6e-3): 0.3, ("none", 1e-9): 0.3, ("rope", 6e-3): None, ("rope", 1e-9): 0.1}
    made = {task: {"values": {"3 x 3": worths[task.variant, task.rate]}} for task in tuning}
    assert tuned(study, made, "accuracy") == {"none": 6e-3, "rope": 1e-9}
    worths["none", 6e-3] = 0.4
    made = {task: {"values": {"3 x 3": worths[task.variant, task.rate]}} for task in tuning}
    assert tuned(study, made, "bits")["none"] == 1e-9  # where less is better
    file.write_text(short)
    run(file, "-o", plain_out)
    assert plain(plain_out) == plain(out)
    assert all("tuning_seed" not in study.settings(v, 1.0)["training"] for v in study.variants.values())


def check_extended(folder):
    """A study says what differs from another; data are replaced, all else is laid over."""
    whole, file = folder / "whole.toml", folder / "more.toml"
    whole.write_text(SHORT)
    own = 'extends = "whole.toml"\nwithout = ["none"]\nbaseline = "mixed"\n[data]\nset = "arrows"\ncells = [5]\n'
    file.write_text(own + '[training]\nepochs = 2\n[variants.mixed]\nspec = "rope_mixed"\n')
    study = load(file)
    assert (study.name, study.seeds, study.claim) == ("more", [0, 1], "Without positions there is nothing to learn.")
    assert list(study.variants) == ["rope", "mixed"] and study.data == SETS["arrows"](cells=[5])
    assert (study.training.epochs, study.training.rate, study.model.dim) == (2, 6e-3, 32)
    assert 'extends = "whole.toml"' in study.text and 'name = "short"' in study.text
    for text, words in (
        ('extends = "absent.toml"\n', "absent.toml: cannot be read"),
        ("extends = 1\n", "extends is 1; expected the name of a file"),
        ('extends = "whole.toml"\nwithout = ["all"]\n', "expected a list of variants of what is extended: none, rope"),
        ('extends = "more.toml"\n', "extends a study that extends another"),
        ('without = ["none"]\n' + SHORT, "no setting 'without'"),
    ):
        other = folder / "wrong.toml"
        other.write_text(text)
        assert words in run(other, "-o", folder / "extended", "--check", status=1), text


PRETRAINING = """
[pretraining.data]
set = "arrows"
cells = [3]
arrows = 1
letters = 0
samples = 640
tested = 100
[pretraining.training]
epochs = 4
"""
BEGUN = """
[variants.learned]
spec = "learned_absolute"
start = "learned"
[[variants.zero]]
spec = "learned_absolute"
start = "learned"
[[variants.zero]]
spec = "comrope_ld"
options = { block = 4 }
init = { generators = 0 }
"""
MORE = """
[variants.turned]
spec = "comrope_ap"
options = { block = 4 }
fixed = ["generators"]
start = "turned"
[variants.own]
spec = "comrope_ld"
options = { block = 4 }
start = "turned"
[variants.mixed]
spec = "rope_mixed"
[[variants.after]]
spec = "rope_axial"
start = "mixed"
[[variants.after]]
spec = "rope_mixed"
"""


def check_pretrained(folder):
    """Weights are taken over by name, in whatever place of a list; what is new keeps its first values. What starts from
    zero, or as RoPE does, gives what the pretrained model gives (ComRoPE, appendix B.2)."""
    file = folder / "pretrained.toml"
    file.write_text(SHORT + PRETRAINING + BEGUN + MORE)
    study = load(file)
    data, before = study.data.make(0), study.pretraining
    first = {name: train.Run(before, v, 0, before.data.make(0), folder / name) for name, v in before.variants.items()}
    for run_of in first.values():
        run_of.epoch()
    part = next(iter(data.tests.values()))

    def begun(name):
        variant = study.variants[name]
        return train.Run(study, variant, 0, data, folder / f"{name}.pt", 1e-3, weights_of(first[variant.start].model))

    with torch.no_grad():
        for name, start in (("learned", "learned"), ("zero", "learned"), ("turned", "turned"), ("own", "turned")):
            wanted = first[start].model(part.tokens, part.positions)
            unlike = build(study, study.variants[name], data, 0)(part.tokens, part.positions)
            assert torch.allclose(begun(name).model(part.tokens, part.positions), wanted, atol=2e-6), name
            assert not torch.allclose(unlike, wanted, atol=1e-2), name
    own, new = (model.layers[0].encodings[0] for model in (begun("own").model, first["turned"].model))
    assert own.multiplier.abs().max() == 1 and torch.equal(own.generators, new.generators)
    freqs = [model.layers[0].encodings[-1].freqs for model in (begun("after").model, first["mixed"].model)]
    assert torch.equal(*freqs) and len(begun("after").model.layers[0].encodings) == 2
    # A state that was cut short: the run begins again, with the weights that it began with.
    (folder / "zero.pt").write_bytes(b"cut")
    cut = begun("zero")
    cut.restore()
    assert torch.equal(cut.model.embed.weight, first["learned"].model.embed.weight)
    # Keys: a start is what is trained before it; without one nothing has changed.
    digests = {name: "the same" for name in study.variants}

    def keys(text):
        file.write_text(text)
        found = load(file)
        starts = {(t.variant, t.seed): t for t in tasks_of(found.pretraining, digests)} if found.pretraining else {}
        return {task.variant: task.key for task in tasks_of(found, digests, starts=starts)}

    whole, longer = keys(SHORT + PRETRAINING + BEGUN), keys(SHORT + PRETRAINING.replace("= 4", "= 5") + BEGUN)
    assert keys(SHORT) == {name: whole[name] for name in ("none", "rope")}
    assert {name for name in whole if whole[name] != longer[name]} == {"learned", "zero"}


UNBEGUN = (
    ('start = "learned"\n[[', 'start = "lerned"\n[[', "start is 'lerned'; expected one of the variants: none, rope"),
    ('start = "learned"', "", "[pretraining]: no variant has a start"),
    ("epochs = 4\n\n", "epochs = 4\nrates = [1e-3]\n", "[pretraining]: [training]: no setting 'rates'; there are:"),
    ("[pretraining.training]", "[pretraining.model]", "[pretraining]: no setting 'model'; there are: data, training"),
    ("epochs = 4\n\n", "epochs = 0\n", "[pretraining]: [training]: epochs is 0"),
    ('\n[[variants.zero]]\nspec = "c', '\noptions.table = [3, 3]\n[[variants.zero]]\nspec = "c',
     "start 'learned': added learned_absolute.vectors has other sizes there, 4 x 4 x 32 for 3 x 3 x 32"),
    ('"arrows"\ncells = [3]\narrows = 1\nletters = 0', '"moving_shapes"',
     "has other sizes there, 4 x 4 x 4 x 32 for 4 x 4 x 32"),
    ("arrows = 1", "arrows = 9", "[pretraining]: [data]: 9 arrows"),
    ('"comrope_ld"', '"comrope_ld"\nstart = "learned"', "start is of the model of all; expected in the first table"),
)  # fmt: skip


def check_begun(folder):
    """Killed in pretraining and shared by two processes, a study ends as one that nobody killed; weights that are gone
    are made again; what is wrong is said before."""
    study, whole, killed = folder / "begun.toml", folder / "begun", folder / "begun_again"
    text = (SHORT + PRETRAINING + BEGUN).replace("rate = 6e-3", "rates = [6e-3]")
    for old, new, words in UNBEGUN:
        assert old in text, old
        study.write_text(text.replace(old, new))
        assert words in (said := run(study, "-o", folder / "unbegun", "--check", status=1)), (new, said)
    study.write_text(text)
    assert "15 runs can be made" in run(study, "-o", whole, "--check")
    run(study, "-o", whole)
    killed.mkdir()
    kill(study, killed)
    words = [sys.executable, "-m", "pegen_kernels.lab.lab", study, "-o", killed]
    other = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    run(study, "-o", killed)
    assert other.wait() == 0
    run(study, "-o", killed, "--report")
    assert plain(killed) == plain(whole) and results(killed)["missing"] == 0
    kept = list((killed / "runs").glob("*.weights"))
    assert len(kept) == 3 == len(results(whole)["pretraining"]) and not list((killed / "runs").glob("*.pt"))
    for weights in kept:
        weights.unlink()
    study.write_text(text + '[variants.late]\nstart = "learned"\n')
    said = run(study, "-o", killed)
    assert "late, seed 1" in said and "learned, seed" not in said and len(results(killed)["runs"]) == 10, said
    assert plain(killed)[:4] == plain(whole)[:4] and len(list((killed / "runs").glob("*.weights"))) == 3
    reached = numpy.mean([row["values"]["3 x 3"] for row in results(whole)["pretraining"]])
    text = (whole / "results.md").read_text()
    assert f"4 epochs, rate 0.002. With learned (first test {reached:.3f}) begin: learned, zero." in text, text


DISTANCES = """
[variants.near]
spec = "alibi"
scale = 40.0
[variants.rotated]
spec = "gta"
"""


def check_distances(folder):
    """How far heads look: without scores as far as positions are apart, with a steep bias hardly; of values that an
    encoding rotates nothing is said (Linear GeoPE, fig. 3)."""
    file = folder / "distances.toml"
    file.write_text(SHORT.replace("depth = 1", "depth = 2") + DISTANCES)
    study = load(file)
    part = next(iter(study.data.make(0).tests.values()))
    positions = part.positions.double()
    apart = float((positions[:, None] - positions[None]).norm(dim=-1).mean())
    found = {}
    for name, variant in study.variants.items():
        model = build(study, variant, study.data.make(0), 0)
        for layer in model.layers:
            torch.nn.init.zeros_(layer.qkv.weight[:64])
            torch.nn.init.zeros_(layer.qkv.bias)
        found[name] = inside.measured(model, part)["distances"]
    assert numpy.allclose(found["none"], apart) and numpy.allclose(found["rope"], apart), (found, apart)
    near = numpy.array(found["near"])  # of each layer and head
    assert near.shape == (2, 2) and near[:, 0].max() < 0.3 and near[:, 1].max() < 0.97 * apart, found
    assert found["rotated"] == [None, None], found


PARTS = """
[variants.care]
spec = "care"
options = { grades = [0, 1, 2] }
[variants.pape]
spec = "pape"
options = { parabolas = 4, role = "pairwise" }
[variants.columns]
spec = "pape"
options = { parabolas = 4 }
[variants.rotated]
spec = "gta"
"""


def looked_into(folder):
    """Models of variants, not trained, whose scores are large, and what is measured in their layers."""
    file = folder / "parts.toml"
    file.write_text(SHORT + PARTS)
    study = load(file)
    data = study.data.make(0)
    part = next(iter(data.tests.values()))
    for name, variant in study.variants.items():
        model = build(study, variant, data, 0)
        for layer in model.layers:
            layer.qkv.weight.data *= 3
            for linear in layer.of_token:
                if hasattr(linear, "weight"):
                    linear.weight.data *= 3
        with torch.no_grad():
            given = next(iter(model.inside(part.tokens[:20], part.positions)))
            yield name, *given, inside.measured(model, part)
            model.layers[0].qkv.weight.data[0] = torch.nan  # as where training has diverged
            found = inside.measured(model, part)
            assert all(of_layers == [None] for of_layers in found.values()), (name, found)


def check_grades_and_balance(folder):
    """Each grade's share in scores (CARE, discussion), and the weight of places and content (PaPE, eq. 15-16), as of
    loops over pairs; of other variants there is nothing to say."""
    balances = {}
    for name, layer, x, places, found in looked_into(folder):
        balances[name] = found["balance"][0]
        assert (found["grades"][0] is not None) == (name == "care"), (name, found)
        q, k, _ = (y.detach().double().numpy() for y in layer.rows(x, places))
        if name == "care":
            blocks = [(0, 0), (1, 1), (2, 1), (3, 2), (4, 1), (5, 2), (6, 2)]  # 1, e1, e2, e12, e3, e31, e23; twice
            of = {str(g): [c + n for c, own in blocks for n in (0, 7) if own == g] for g in range(3)} | {
                "none": [14, 15]
            }
            products = {g: q[..., of[g]] @ k[..., of[g]].swapaxes(-1, -2) for g in of}
            for layer.causal in (True, False):  # of text a query sees no later keys
                seen = numpy.tri(len(places)) if layer.causal else numpy.ones((len(places), len(places)))
                own = {g: (s - (s * seen).sum(-1, keepdims=True) / seen.sum(-1)[:, None]) * seen
                       for g, s in products.items()}  # fmt: skip
                whole = sum(own.values())
                shares = {g: (s * whole).sum() / (whole**2).sum() for g, s in own.items()}
                told = inside._grades(layer, x, places)
                assert math.isclose(sum(shares.values()), 1) and shares.keys() == told.keys()
                assert all(math.isclose(told[g], shares[g], abs_tol=1e-9) for g in of), (told, shares)
            assert told == found["grades"][0]
        if name == "pape":
            a, b = (y.detach().double().numpy() for y in layer.inputs(0, x))
            apart = numpy.einsum("hla,ija->hijl", layer.attention.projection.detach().double().numpy(),
                                 (places[None] - places[:, None]).double().numpy())  # fmt: skip
            total, count = numpy.zeros(2), numpy.zeros(2)
            for n, head, i in itertools.product(range(20), range(2), range(len(places))):
                bias = apart[head, i] ** 2 @ -numpy.logaddexp(0, a[n, head, i]) + apart[head, i] @ b[n, head, i]
                p, y = numpy.exp(bias / 4), numpy.exp(k[n, head] @ q[n, head, i] / 4)
                weights, reached = p * y / (p @ y), 0
                for j in numpy.argsort(-weights):
                    if reached >= 0.8:
                        break
                    reached += weights[j]
                    total[head] += (p[j] - y[j]) / (p @ y)
                    count[head] += 1
            assert numpy.allclose(found["balance"][0], total / count, atol=1e-4), (found, total / count)
    assert numpy.allclose(balances["pape"], balances["columns"], atol=1e-3), balances
    assert [balances[name] for name in ("none", "rope", "care", "rotated")] == [None] * 4, balances
    file, out = folder / "parts.toml", folder / "parts"
    out.mkdir()
    file.write_text((SHORT + PARTS).replace("seeds = [0, 1]", "seeds = [0]").replace("epochs = 4", "epochs = 1"))
    run(file, "-o", out)
    (shares,) = (row["grades"][0] for row in results(out)["runs"] if row["variant"] == "care")
    text, page = (out / "results.md").read_text(), (out / "report.html").read_text()
    assert "| variant | layer | grade 0 | grade 1 | grade 2 | passed through |" in text
    assert f"| care | 1 | {' | '.join(f'{shares[g]:.3f}' for g in ('0', '1', '2', 'none'))} |" in text
    assert 'id="grades"' in page and 'id="balance"' in page


def check_refusals(folder):
    """In words, before a second of training: nothing is written."""
    file, out = folder / "wrong.toml", folder / "refused"
    out.mkdir()
    for old, new, words in REFUSED:
        file.write_text(SHORT.replace(old, new))
        said = run(file, "-o", out, status=1)
        assert words in said, (new, said)
        assert not list(out.iterdir()), new
    file.write_text(SHORT)
    assert "4 runs can be made, about " in run(file, "-o", folder / "made" / "here", "--check")
    assert "--device nothing: " in run(file, "-o", out, "--device", "nothing", status=1)
    assert (folder / "made" / "here").is_dir()
    assert "cannot be made" in run(file, "-o", file / "below", status=1)
    # What is wrong with the command line is said before PyTorch is imported.
    early = (
        "import sys; sys.modules['torch'] = None; from pegen_kernels.lab import lab; sys.exit(lab.main(sys.argv[1:]))"
    )
    for words, told in (
        (["none.toml", "-o", str(out)], "none.toml: cannot be read: there is no such file"),
        ([str(file), "-o", str(out), "--threads", "0"], "expected 1 or more"),
        ([str(file), "-o", str(file / "below")], "cannot be made"),
    ):
        done = subprocess.run([sys.executable, "-c", early, *words], capture_output=True, text=True)
        assert done.returncode and told in done.stderr, done.stderr
    assert "--storage nonsense://x" in run(file, "-o", out, "--storage", "nonsense://x", status=1)
    assert "expected 1 or more" in run(file, "-o", out, "--threads", "0", status=2)


def check_studies():
    """Studies of the repository can be read, and each has its results, in files and in studies/README.md."""
    text = (STUDIES / "README.md").read_text()
    for file in sorted(STUDIES.glob("*.toml")):
        study = load(file)
        assert len(study.seeds) >= 3 and study.claim and study.name == file.stem, file
        assert f"({file.name})" in text, file
        kept = STUDIES / "results" / f"{study.name}.json"
        if kept.exists():
            found = json.loads(kept.read_text())
            assert found["missing"] == 0 and found["study"] == study.text, f"{kept} is of another study"


if __name__ == "__main__":
    os.nice(5)
    torch.set_num_threads(1)
    check_statistics()
    check_data()
    check_studies()
    with tempfile.TemporaryDirectory() as name:
        check_list(pathlib.Path(name))
        check_memory(pathlib.Path(name))
        check_shared(pathlib.Path(name))
        check_perturbed(pathlib.Path(name))
        check_tuned(pathlib.Path(name))
        check_pretrained(pathlib.Path(name))
        check_begun(pathlib.Path(name))
        check_extended(pathlib.Path(name))
        check_distances(pathlib.Path(name))
        check_grades_and_balance(pathlib.Path(name))
        check_refusals(pathlib.Path(name))
        check_alike(pathlib.Path(name))
        whole = check_killed(pathlib.Path(name))
        check_report(whole)
        check_journal(pathlib.Path(name), whole)
    print("lab_test: studies are killed, taken up again and reported")
