"""pegen conform: a right engine passes, wrong ones are told what they follow."""
import contextlib
import importlib.util
import io
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy

import pegen_kernels as pk
from pegen_kernels.conform import conform
from pegen_kernels.conform.cases import CASES, words
from pegen_kernels.conform.reference import arrays_of, outputs_of

SOURCE = pathlib.Path(__file__).resolve().parents[2]


def kernels(a, asked):
    """Encodings by pegen's kernels, which most rules are options of."""
    if asked["kind"] == "attention":
        raise NotImplementedError("attention")
    told, q, k = dict(asked), a["q"], a["k"]
    options = kernels.options[asked["encoding"]]
    positions = a["positions"] if "positions" in a else restarted(a["cu_seqlens"])
    positions = positions + (asked["positions"] == "next")
    if "cu_seqlens" in a:
        q, k = (x.swapaxes(0, 1)[None] for x in (q, k))
    count = asked.get("rotary_dim") or asked.get("head_dim")
    channels = numpy.arange(count)
    if asked.get("partners") == "head":
        channels = numpy.concatenate([numpy.arange(count // 2), numpy.arange(count // 2) + asked["head_dim"] // 2])
    elif asked.get("turning") == "last":
        channels += asked["head_dim"] - count
    if "turning" in asked:
        told |= {"head_dim": count, "rotary_dim": 0}
    if asked.get("exponents") == "head":
        told["base"] = asked["base"] ** (count / asked["head_dim"])
    if asked.get("scaling") == "dynamic":
        length = positions.max() + 1
        factor = max(1.0, asked["factor"] * length / asked["original_max_position"] - (asked["factor"] - 1))
        told |= {"scaling": "ntk", "factor": float(factor)}
        del told["original_max_position"]
    if asked.get("scaling") == "base":
        told |= {"scaling": "none", "base": asked["base"] * asked["factor"], "factor": 1.0}
    told = {x: y for x, y in told.items() if x in options}
    told |= {"skip_tokens": asked["skipped"]} if "skipped" in asked else {}
    kernel = pk.compile(asked["encoding"], defines=told, targets="native", dtypes="float32")
    operands = {"inv_freq": a["inv_freq"] / a.get(asked.get("factors"), 1.0)} if "inv_freq" in a else {}
    positions = positions if "axes" in asked else positions[..., None]
    turned = [x.copy() for x in (q, k)]
    parts = channels if "turning" in asked else slice(None)
    for x, y in zip(turned, kernel.encode(*(numpy.ascontiguousarray(x[..., parts]) for x in (q, k)), positions,
                                          operands=operands)):  # fmt: skip
        x[..., parts] = y
    if "growth" in asked:
        grown = pk.compile("position_temperature", head_dim=64, floor_scale=asked["floor_scale"], targets="native")
        turned[0] = grown.encode(turned[0], turned[1], positions)[0]
    return [x[0].swapaxes(0, 1) for x in turned] if "cu_seqlens" in a else turned


def restarted(bounds):
    return numpy.concatenate([numpy.arange(end - start) for start, end in zip(bounds, bounds[1:])])


def summed(a, asked):
    """Sines and cosines, a channel at a time."""
    out, channels, axes = a["x"].astype(float), asked["channels"], asked["axes"]
    out *= channels**0.5 if asked["input"] == "scaled" else 1
    each = channels // axes
    order, kind = asked.get("order", (0,)), asked.get("arrangement", "axes")
    for n in range(out.shape[1]):
        p = numpy.reshape(a["positions"][n], -1) + (asked["positions"] == "next")
        for c in range(channels):
            if kind == "functions":
                which, axis, j = c // (channels // 2), c % (channels // 2) // (each // 2), c % (each // 2)
            elif kind == "mixed":
                which, axis, j = c % 2, c // each, c % each // 2
            else:
                which, axis, j = c % each // (each // 2), c // each, c % (each // 2)
            angle = p[order[axis]] * asked["base"] ** (-j / (each // 2 - asked.get("shift", 0)))
            out[:, n, c] += numpy.sin(angle) if (which == 0) == (asked["functions"] == "sines") else numpy.cos(angle)
    return out


def shared(a, asked):
    """Pixtral's image: rows have the even frequencies, columns the odd ones."""
    found, half = [a["q"].astype(float), a["k"].astype(float)], asked["head_dim"] // 2
    for x in found:
        for n in range(x.shape[2]):
            for j in range(half):
                axis, own = divmod(j, half // 2)
                angle = a["positions"][n][axis] * asked["base"] ** (-2 * (2 * own + axis) / (2 * half))
                pair = [j, j + half] if asked["layout"] == "split" else [2 * j, 2 * j + 1]
                cos, sin = numpy.cos(angle), numpy.sin(angle)
                x[..., n, pair] = x[..., n, pair] @ numpy.array([[cos, sin], [-sin, cos]])
    return found


kernels.options = {name: set(pk.compile(name, axes=3, sections=(1, 1, 1), arrangement="sections").options if
                             name == "rope_axial" else pk.compile(name).options)
                   for name in ("rope", "rope_axial", "rope_frequencies", "xpos")}  # fmt: skip


def slope(head, heads):
    """Press et al.'s code."""
    power = 2 ** int(numpy.log2(heads))
    return 2 ** (-8 * (head + 1) / power) if head < power else slope(2 * (head - power), 2 * power)


def bucket(distance, asked):
    """T5's code, of key - query."""
    count, result, n = asked.get("num_buckets", 32), 0, max(-distance, 0)
    if not asked["causal"]:
        count //= 2
        result, n = count * (distance > 0), abs(distance)
    if n < count // 2:
        return result + n
    ratio = numpy.log(n / (count // 2)) / numpy.log(asked.get("max_distance", 128) / (count // 2))
    return result + min(count // 2 + int(ratio * (count // 2) + 1e-9), count - 1)


def bias(a, asked, head, distance):
    if asked["encoding"] == "alibi":
        return -slope(head, asked["heads"]) * abs(distance)
    return a["relative_attention_bias"][bucket(distance, asked), head] if asked["encoding"] == "t5" else 0.0


def one_query(a, asked, q, k, v, head, place):
    """Attention of one query at a place among its keys: one score after the other."""
    root = len(q) ** -0.5
    scale = {"1": 1, "1/16": 1 / 16, "1/sqrt(d)": root, "yarn": root * (0.1 * numpy.log(40) + 1) ** 2}[asked["scale"]]
    causal, window, cap = asked["mask"] == "bottom-right", asked.get("window"), asked.get("softcap")
    before, behind = (1, scale) if asked.get("capping") == "unscaled" else (scale, 1)
    scores, seen = [], []
    for j in range(len(k)):
        ahead = causal and j > place and j >= asked.get("prefix", 0)
        if asked.get("local") == "chunks":
            gone = j // window != place // window
        else:
            gone = window and not abs(place - j) < window and j >= asked.get("kept", 0)
        if not ahead and not gone:
            s = before * (q @ k[j])
            s = cap * numpy.tanh(s / cap) if cap else s
            scores.append(behind * s + bias(a, asked, head, j - place))
            seen.append(j)
    weights = numpy.exp(numpy.array(scores))
    sink = numpy.exp(a["sinks"][head] if asked["sink"] == "logit" else 0) if "sinks" in a else 0.0
    return weights @ v[seen] / (weights.sum() + sink) if seen else 0.0


def loops(a, asked):
    """Attention, a query at a time, and others by kernels or a channel at a time."""
    if asked["kind"] != "attention":
        of = summed if asked["kind"] == "add" else shared if asked.get("arrangement") == "shared" else kernels
        return of(a, asked)
    q, k, v = (a[x].astype(float) for x in "qkv")
    if "cu_seqlens" in a:
        out = numpy.zeros((*q.shape[:-1], v.shape[-1]))
        ends = zip(*(zip(a[x], a[x][1:]) for x in ("cu_seqlens", "k_cu_seqlens")))
        calls = [(q[s:e], k[ks:ke], v[ks:ke], out[s:e]) for (s, e), (ks, ke) in ends]
    else:
        out = numpy.zeros((*q.shape[:-1], v.shape[-1]))
        if "block_table" in a:
            k, v = (
                [numpy.concatenate(x[table])[:n] for table, n in zip(a["block_table"], a["lengths"])] for x in (k, v)
            )
        else:
            k, v = (x[a.get("slots", slice(None))].swapaxes(1, 2) for x in (k, v))
            bounds = [a.get("starts", [0] * len(q)), a.get("lengths", [k.shape[1]] * len(q))]
            k, v = ([x[i][start:end] for i, (start, end) in enumerate(zip(*bounds))] for x in (k, v))
        calls = list(zip(q.swapaxes(1, 2), k, v, out.swapaxes(1, 2)))
    for x, keys, values, result in calls:
        for i in range(len(x)):
            for h in range(x.shape[1]):
                of = h // (x.shape[1] // keys.shape[1])
                place = len(keys) - len(x) + i
                result[i, h] = one_query(a, asked, x[i, h], keys[:, of], values[:, of], h, place)
    return out


def neox(a, asked):
    """Rotation of halves by positions counted in the call, whatever is asked."""
    half = asked["head_dim"] // 2
    angle = numpy.arange(a["q"].shape[2])[:, None] * 1e4 ** (-numpy.arange(half) / half)
    turn = lambda x: numpy.concatenate(
        [
            x[..., :half] * numpy.cos(angle) - x[..., half:] * numpy.sin(angle),
            x[..., half:] * numpy.cos(angle) + x[..., :half] * numpy.sin(angle),
        ],
        -1,
    )  # noqa: E731, E501  # fmt: skip
    return turn(a["q"]), turn(a["k"])


def build(folder, source, *words):
    library = pathlib.Path(folder, f"{source.stem}.so")
    compiler = "c++" if source.suffix == ".cc" else "cc"
    subprocess.run([compiler, "-shared", "-fPIC", source, *words, "-o", library], check=True)
    return library


def run(*given):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = conform.main(given)
        except SystemExit as e:
            status = e.code
    return status, out.getvalue(), err.getvalue()


class Conform(unittest.TestCase):
    def test_right(self):
        for name, case in CASES.items():
            with self.subTest(name):
                found = conform.judge(case, loops, given=lambda x: x.astype("float32") if x.dtype == float else x)
                self.assertTrue(found.passed, found)

    def test_wrong(self):
        """Each other convention of each case is told from the one asked for, and called by its name."""
        for name, case in CASES.items():
            arrays, expected = arrays_of(case), outputs_of(case, arrays_of(case))
            for changed in conform.alternatives(case):
                if len(changed) == 2:
                    break
                with self.subTest(name, **changed):
                    made = outputs_of(case, arrays, changed)
                    self.assertGreater(conform.apart(made, expected), 5 * conform.BOUND)
                    found = conform.judge(case, lambda a, asked: list(made.values()))
                    ((key, value),) = changed.items()
                    told = f"{words(key, value)}, not {words(key, case.settings[key])}"
                    self.assertEqual((found.passed, found.words), (False, told))

    def test_two_at_once(self):
        found = conform.judge(CASES["pairs"], neox)
        self.assertEqual(found.words, "halves (j, j + n/2), not pairs (2j, 2j+1); positions counted from 0 in each "
                         "call, not the positions of the call")  # fmt: skip

    def test_channels_in_another_order(self):
        """DeepSeek's rows: a pair's channels are written apart, and scores do not see it."""

        def apart(a, asked):
            return [numpy.concatenate([x[..., ::2], x[..., 1::2]], -1) for x in kernels(a, asked)]

        found = conform.judge(CASES["pairs"], apart, given=lambda x: x.astype("float32") if x.dtype == float else x)
        self.assertEqual(
            (found.passed, found.words),
            (False, "the scores asked for, of other rows (as of channels in another order)"),
        )
        apart = lambda a, asked: [x[..., ::-1] for x in kernels(a, asked)]  # noqa: E731
        found = conform.judge(
            CASES["pairs, packed"], apart, given=lambda x: x.astype("float32" if x.dtype == float else x.dtype)
        )
        self.assertEqual(found.words, "the scores asked for, of other rows (as of channels in another order)")
        found = conform.judge(CASES["pairs, decode"], lambda a, asked: [a["q"][..., ::-1], a["k"][..., ::-1]])
        self.assertEqual(found.words, "no convention that is known here")

    def test_cases(self):
        self.assertIn(f"\n{len(CASES)} cases are computed", (SOURCE / "docs/python.md").read_text())
        self.assertTrue(all(next(conform.alternatives(case), None) for case in CASES.values()))

    def test_engines_that_fail(self):
        case = CASES["causal"]
        for engine, told in [
            (lambda a, asked: 1 / 0, "ZeroDivisionError: division by zero"),
            (lambda a, asked: (a["q"], a["k"]), "ArgumentError: 2 outputs; expected out"),
            (lambda a, asked: a["q"][:, :1], "out is [2, 1, 12, 32]; expected [2, 2, 12, 32]"),
            (lambda a, asked: a["q"], "no convention that is known here"),
            (lambda a, asked: a["q"] * numpy.nan, "no convention that is known here"),
        ]:
            found = conform.judge(case, engine)
            self.assertEqual((found.passed, found.words), (False, told))

    def test_command(self):
        with tempfile.TemporaryDirectory() as folder:
            here = str(pathlib.Path(__file__).parent)
            before = os.getcwd()
            os.chdir(here)
            try:
                status, out, _ = run(
                    "conform_test:loops", "--only", "pairs*", "--only", "sink", "--only", "sums, image"
                )
                self.assertEqual(status, 0, out)
                self.assertRegex(out, r"\n(\d\d) cases: \1 right, 0 wrong, 0 left out\n$")
                status, out, _ = run("conform_test:kernels", "--only", "causal", "--dtype", "float64")
                self.assertIn("-      0.0e+00  left out: attention", out)
                status, out, _ = run("conform_test:neox", "--only", "pairs")
                self.assertEqual(status, 1)
                self.assertIn("WRONG", out)
            finally:
                os.chdir(before)
            status, out, _ = run("--list", "--only", "T5, decode")
            self.assertEqual((status, out.splitlines()[0]), (0, "T5, decode"))
            self.assertIn("  places = behind: queries at the cache's end | queries counted from 0\n", out)
            self.assertEqual(run("--write", folder, "--only", "window*", "--only", "pairs")[0], 0)
            at = pathlib.Path(folder, "window-cache")
            self.assertEqual(numpy.load(at / "k.npy").dtype, float)
            self.assertIn('"window": 16', (at / "asked.json").read_text())
            numpy.save(at / "found_out.npy", numpy.load(at / "expected_out.npy"))
            numpy.save(pathlib.Path(folder, "window", "found_out.npy"), numpy.load(at.parent / "window" / "q.npy"))
            status, out, _ = run(folder, "--only", "window*")
            self.assertEqual((status, out.splitlines()[-1]), (1, "6 cases: 1 right, 1 wrong, 4 left out"))
        for given, told in [
            (["nothing:here"], "ENGINE nothing:here: No module named 'nothing'; expected MODULE:FUNCTION or a folder"),
            (["--only", "foo", "--write", "x"], "no case is named foo"),
            ([], "expected ENGINE, --write or --list"),
            (["numpy:sin", "--list"], "expected ENGINE, --write or --list"),
            (["numpy:sin", "--dtype", "bfloat16"], "--dtype bfloat16: expected float32, float64 or float16, and"),
        ]:
            status, _, err = run(*given)
            self.assertEqual(status, 2)
            self.assertIn(told, err)
        self.assertFalse(pathlib.Path("x").exists())

    @unittest.skipUnless(shutil.which("cc"), "there is no C compiler")
    def test_c(self):
        """examples/conform.c, and C functions that fail."""
        with tempfile.TemporaryDirectory() as folder:
            library = build(folder, SOURCE / "examples/conform.c", "-std=c11", "-Wall", "-Wextra", "-Werror", "-lm")
            only = ["--only", "halves*", "--only", "causal"]
            status, out, _ = run("--c", f"{library}:rotate", *only)
            self.assertEqual(status, 0, out)
            self.assertRegex(
                out, r"(?s)^halves +right .*packed +- .*left out: rotate returned 1\n.*turned back +right "
            )
            status, out, _ = run("--c", f"{library}:rotate", "--only", "pairs, far", "--dtype", "float64")
            self.assertEqual(status, 1)  # an engine of float32
            path = pathlib.Path(folder, "wrong.c")
            path.write_text("int wrong(void) { return 7; } int nothing(void) { return 0; }")
            library = build(folder, path)
            for name, told in [
                ("wrong", "ArgumentError: wrong returned 7"),
                ("nothing", "no convention that is known"),
            ]:
                status, out, _ = run("--c", f"{library}:{name}", "--only", "sums", "--only", "T5, decode")
                self.assertEqual((status, out.count(told)), (1, 2), out)
            for word, told in [
                (f"{library}:foo", "undefined symbol"),
                ("foo.so:x", "foo.so: cannot open shared object"),
            ]:
                status, _, err = run("--c", word)
                self.assertEqual((status, told in err, "expected LIBRARY.so:FUNCTION" in err), (2, True, True), err)

    @unittest.skipUnless(shutil.which("c++") and importlib.util.find_spec("tvm_ffi"), "TVM-FFI is not installed")
    def test_tvm_ffi(self):
        import tvm_ffi.libinfo as info

        words = ["-std=c++17", "-O0", f"-I{info.find_include_path()}", f"-I{info.find_dlpack_include_path()}"]
        with tempfile.TemporaryDirectory() as folder:
            library = build(folder, SOURCE / "tests/python/conform_tvm_ffi.cc", *words, info.find_libtvm_ffi())
            only = [word for name in ("pairs", "halves", "causal") for word in ("--only", name)]
            status, out, _ = run("--tvm-ffi", f"{library}:rotate", *only)
            self.assertEqual((status, out.splitlines()[-1]), (1, "3 cases: 1 right, 1 wrong, 1 left out"), out)
            self.assertIn("left out: no attention here", out)
            self.assertIn("pairs (2j, 2j+1), not halves (j, j + n/2)", out)
        self.assertEqual(run("--tvm-ffi", "foo.so:rotate")[0], 2)

    @unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is not installed")
    def test_torch(self):
        import torch

        def sdpa(a, asked):  # top-left, as its documentation says
            return torch.nn.functional.scaled_dot_product_attention(a["q"], a["k"], a["v"], is_causal=True)

        found = conform.judge(CASES["causal, cache"], sdpa, 2**-6, conform._giver("bfloat16", True))
        self.assertIn(words("mask", "top-left"), found.words)
        self.assertTrue(conform.judge(CASES["causal"], sdpa, 2**-6, conform._giver("bfloat16", True)).passed)


if __name__ == "__main__":
    sys.modules.setdefault("conform_test", sys.modules["__main__"])
    unittest.main()
