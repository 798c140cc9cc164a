"""pegen conform: a right engine passes, wrong ones are told what they follow."""
import contextlib
import importlib.util
import io
import os
import pathlib
import sys
import tempfile
import unittest

import numpy

import pegen_kernels as pk
from pegen_kernels.conform import conform
from pegen_kernels.conform.cases import CASES, HERE, words
from pegen_kernels.conform.reference import arrays_of, outputs_of


def kernels(a, asked):
    """Encodings by pegen's kernels."""
    if asked["kind"] != "encode":
        raise NotImplementedError("attention")
    options = {x: y for x, y in asked.items() if x in kernels.options[asked["encoding"]] and x not in HERE}
    options |= {"skip_tokens": asked["skipped"]} if "skipped" in asked else {}
    kernel = pk.compile(asked["encoding"], defines=options, targets="native", dtypes="float32")
    operands = {}
    if "inv_freq" in a:
        operands["inv_freq"] = a["inv_freq"] / a.get(asked.get("factors"), 1.0)
    positions = a["positions"] if "axes" in asked else a["positions"][..., None]
    return kernel.encode(a["q"], a["k"], positions, operands=operands)


kernels.options = {name: set(pk.compile(name, axes=3, sections=(1, 1, 1), arrangement="sections").options if
                             name == "rope_axial" else pk.compile(name).options)
                   for name in ("rope", "rope_axial", "rope_frequencies")}  # fmt: skip


def slope(head, heads):
    """Press et al.'s code."""
    power = 2 ** int(numpy.log2(heads))
    return 2 ** (-8 * (head + 1) / power) if head < power else slope(2 * (head - power), 2 * power)


def bucket(distance, asked):
    """T5's code, of key - query."""
    count, result = 32, 0
    if asked["causal"]:
        n = max(-distance, 0)
    else:
        count, result, n = 16, 16 * (distance > 0), abs(distance)
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
    scale = {"1": 1, "1/16": 1 / 16, "1/sqrt(d)": len(q) ** -0.5}[asked["scale"]]
    causal, window, cap = asked["mask"] == "bottom-right", asked.get("window"), asked.get("softcap")
    scores, seen = [], []
    for j in range(len(k)):
        if (causal and j > place) or (window and not abs(place - j) < window):
            continue
        s = scale * (q @ k[j])
        s = cap * numpy.tanh(s / cap) if cap else s
        scores.append(s + bias(a, asked, head, j - place))
        seen.append(j)
    weights = numpy.exp(numpy.array(scores))
    sink = numpy.exp(a["sinks"][head]) if "sinks" in a else 0.0
    return weights @ v[seen] / (weights.sum() + sink)


def loops(a, asked):
    """Attention, a query at a time."""
    if asked["kind"] == "encode":
        return kernels(a, asked)
    q, k, v = (a[x].astype(float) for x in "qkv")
    if "cu_seqlens" in a:
        out = numpy.zeros_like(q)
        ends = zip(*(zip(a[x], a[x][1:]) for x in ("cu_seqlens", "k_cu_seqlens")))
        calls = [(q[s:e], k[ks:ke], v[ks:ke], out[s:e]) for (s, e), (ks, ke) in ends]
    else:
        out = numpy.zeros_like(q)
        if "block_table" in a:
            k, v = (
                [numpy.concatenate(x[table])[:n] for table, n in zip(a["block_table"], a["lengths"])] for x in (k, v)
            )
        else:
            k, v = k.swapaxes(1, 2), v.swapaxes(1, 2)
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
        self.assertEqual((found.passed, found.words), (False, "the scores asked for, with channels in another order"))

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
                status, out, _ = run("conform_test:loops", "--only", "pairs*", "--only", "sink")
                self.assertEqual((status, out.splitlines()[-1]), (0, "5 cases: 5 right, 0 wrong, 0 left out"), out)
                status, out, _ = run("conform_test:kernels", "--only", "causal", "--dtype", "float64")
                self.assertIn("-      0.0e+00  left out: attention", out)
                status, out, _ = run("conform_test:neox", "--only", "pairs")
                self.assertEqual(status, 1)
                self.assertIn("WRONG", out)
            finally:
                os.chdir(before)
            self.assertEqual(run("--write", folder, "--only", "window*", "--only", "pairs")[0], 0)
            at = pathlib.Path(folder, "window-cache")
            self.assertEqual(numpy.load(at / "k.npy").dtype, float)
            self.assertIn('"window": 16', (at / "asked.json").read_text())
            numpy.save(at / "found_out.npy", numpy.load(at / "expected_out.npy"))
            numpy.save(pathlib.Path(folder, "window", "found_out.npy"), numpy.load(at.parent / "window" / "q.npy"))
            status, out, _ = run(folder, "--only", "window*")
            self.assertEqual((status, out.splitlines()[-1]), (1, "4 cases: 1 right, 1 wrong, 2 left out"))
        for given, told in [
            (["nothing:here"], "ENGINE nothing:here: No module named 'nothing'; expected MODULE:FUNCTION or a folder"),
            (["--only", "foo", "--write", "x"], "no case is named foo"),
            ([], "expected ENGINE or --write"),
            (["numpy:sin", "--dtype", "bfloat16"], "--dtype bfloat16: expected float32, float64 or float16, and"),
        ]:
            status, _, err = run(*given)
            self.assertEqual(status, 2)
            self.assertIn(told, err)
        self.assertFalse(pathlib.Path("x").exists())

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
