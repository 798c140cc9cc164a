"""Descriptions of attention against the formulas of their papers or their authors' code, in NumPy and float64."""
import unittest

import numpy

import pegen_kernels as pk
from formulas import Formulas, cells
from kernel_shared import FAST, rows


class SecondHeads(Formulas):
    def test_imaginary(self):
        """RoPE++: sines in place of cosines, of complex numbers."""
        t, theta = numpy.arange(7), 10000.0 ** (-numpy.arange(4) / 4)
        q, k = rows(1, 1, 7, 8), rows(1, 1, 7, 8, seed=2)
        z, w = (x[0, 0, :, :4].astype(float) + 1j * x[0, 0, :, 4:] for x in (q, k))
        turns = numpy.exp(1j * (t[:, None] - t)[..., None] * theta)
        products = numpy.einsum("id,jd,ijd->ij", z, w.conj(), turns)
        kernel = pk.compile("rope_plus", head_dim=8, **FAST)
        of_head = lambda x, second: kernel.encode(x, positions=numpy.stack([t, 0 * t + second], -1))[0, 0]  # noqa: E731
        keys = of_head(k, 0).astype(float).T
        self.near(of_head(q, 0) @ keys, products.real, 5e-6)
        self.near(of_head(q, 1) @ keys, products.imag, 5e-6)


FORGETTING = """local pe = require "pegen" -- tokens stand where the sums of their gates' logarithms are
return pe.encoding { name = "forgetting", axes = { "forgotten" }, head_dim = 8, value_dim = 8,
  bias = function(delta) return -delta.forgotten end }
"""


class Gates(Formulas):
    def test_forgetting(self):
        """FoX (Lin et al.), heads as batches: by the formula, d_ij the sum of log f_l over j < l <= i."""
        n, heads = 70, 3
        q, k, v = (rows(1, heads, n, 8, seed=i) for i in range(3))
        gates = numpy.log(1 / (1 + numpy.exp(-rows(1, heads, n, seed=4) - 1)))
        places = pk.scan(gates, dtype="float64").reshape(heads, n)
        kernel = pk.compile(FORGETTING, **FAST)
        by_head = [x.reshape(heads, 1, n, 8) for x in (q, k, v)]
        found = kernel.attention(*by_head, places, causal=True).reshape(1, heads, n, 8)
        d = numpy.array([[[gates[0, h, j + 1 : i + 1].astype(float).sum() for j in range(n)] for i in range(n)]
                         for h in range(heads)])  # fmt: skip
        scores = numpy.einsum("bhic,bhjc->bhij", q.astype(float), k) / numpy.sqrt(8) + d
        weights = numpy.where(numpy.tri(n, dtype=bool), numpy.exp(scores), 0)
        self.near(found, weights / weights.sum(-1, keepdims=True) @ v, 2e-6)


class Biases(Formulas):
    n = 200

    def scores(self, spec, operands=None, positions=None, k_positions=None, **options):
        """What is added to scores: the logarithm of weights of q = 0, up to a constant of each row."""
        kernel = pk.compile(spec, head_dim=8, value_dim=self.n, **options, **FAST)
        zero = numpy.zeros((1, kernel.heads, self.n, 8), "float32")
        v = numpy.broadcast_to(numpy.eye(self.n, dtype="float32"), (1, kernel.heads, self.n, self.n)).copy()
        place = numpy.arange(self.n, dtype=float)[:, None] if positions is None else positions
        out = kernel.attention(zero, zero, v, place, k_positions=k_positions, operands=operands, scale=1.0)
        return (out[0] if isinstance(out, tuple) else out)[0]

    def softmax(self, bias):
        e = numpy.exp(bias - bias.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    def delta(self):
        return numpy.arange(self.n) - numpy.arange(self.n)[:, None]

    def bucket(self, d, causal):
        """transformers, T5Attention._relative_position_bucket, with numbers in place of tensors."""
        buckets, result = (32, 0) if causal else (16, 16 * (d > 0))
        n, exact = (max(-d, 0) if causal else abs(d)), buckets // 2
        if n < exact:
            return result + n
        place = exact + int(numpy.log(n / exact) / numpy.log(128 / exact) * (buckets - exact) + 1e-9)
        return result + min(place, buckets - 1)

    def test_t5(self):
        table = rows(32, 2)
        for causal in (False, True):
            places = numpy.vectorize(lambda d: self.bucket(d, causal))(self.delta())  # noqa: B023
            bias = table.astype(float)[places].transpose(2, 0, 1)
            found = self.scores("t5", {"relative_attention_bias": table}, heads=2, causal=causal)
            self.near(found, self.softmax(bias), 2e-6)

    def test_t5_buckets(self):
        torch, t5 = self.theirs("t5.modeling_t5")
        for causal in (False, True):
            theirs = t5.T5Attention._relative_position_bucket(torch.tensor(self.delta()), not causal, 32, 128).numpy()
            places = numpy.vectorize(lambda d: self.bucket(d, causal))(self.delta())  # noqa: B023
            self.assertTrue((theirs == places).all())

    def test_kerple(self):
        r1, r2 = numpy.array([0.5, 1.5], "float32"), numpy.array([0.25, 0.001], "float32")
        n, clamped = abs(self.delta()), numpy.maximum(r2, 0.01)[:, None, None]
        logarithmic = -r1[:, None, None] * numpy.log1p(clamped * n)
        power = -r1[:, None, None] * numpy.where(n > 0, numpy.maximum(n, 1e-9) ** clamped, 0)
        for kind, bias in (("logarithmic", logarithmic), ("power", power)):
            found = self.scores("kerple", {"r1": r1, "r2": r2}, heads=2, kind=kind)
            self.near(found, self.softmax(bias.astype(float)), 2e-6)

    def test_fire(self):
        """Li et al., the code of the appendix; the query's own position is a second coordinate, 0 of keys."""
        random, i = numpy.random.default_rng(2), numpy.arange(self.n, dtype=float)
        operands = {
            "c": random.uniform(0.1, 0.5, 1), "threshold": numpy.array([-64.0]), "w1": random.standard_normal(32),
            "b1": random.standard_normal(32), "w2": random.standard_normal((3, 32)), "b2": random.standard_normal(3),
        }  # fmt: skip
        operands = {name: value.astype("float32") for name, value in operands.items()}
        c, threshold, w1, b1, w2, b2 = (value.astype(float) for value in operands.values())
        near = numpy.log(abs(c * (i[:, None] - i)) + 1)
        reach = numpy.log(abs(c * numpy.maximum(i, abs(threshold)))[:, None] + 1) + 1e-6
        hidden = numpy.maximum((near / reach)[..., None] * w1 + b1, 0)
        bias = (hidden @ w2.T + b2).transpose(2, 0, 1)
        place = {"positions": numpy.stack([i, i], -1), "k_positions": numpy.stack([i, 0 * i], -1)}
        self.near(self.scores("fire", operands, heads=3, **place), self.softmax(bias), 4e-6)

    def looks(self, directions, heads, distance=lambda d: d):
        """Fuller et al., appendix, on 5 x 6 patches, a field of view at a time: slope, what it multiplies, and the view
        of each head, as a predicate of (down, right)."""
        everywhere, r = lambda y, x: numpy.ones_like(y, bool), cells(5, 6)  # noqa: E731
        halves = [lambda y, x: y <= 0, lambda y, x: y >= 0, lambda y, x: x <= 0, lambda y, x: x >= 0]
        away, y, x = numpy.hypot(*(r[None] - r[:, None]).transpose(2, 0, 1)), *(r[None] - r[:, None]).transpose(2, 0, 1)
        centre = numpy.broadcast_to(numpy.hypot(*(r - r.mean(0)).T), away.shape)
        quarter = [0.25, 0.0625, 0.015625, 0.00390625]
        views = {
            "none": [(s, distance(away), everywhere) for s in quarter],
            "none1zero3": [(s, distance(away) * (s == 0.25), everywhere) for s in quarter],
            "center": [(s, centre, everywhere) for s in quarter],
            "halves": [(0.5, distance(away), view) for view in halves],
            "zerohalves": [(0, away, view) for view in halves],
        }
        found = [head for word in directions.split("-") for head in views[word]][:heads]
        return (
            numpy.stack([numpy.where(view(y, x), -1.5 * slope * of, -numpy.inf) for slope, of, view in found]),
            centre,
        )

    def test_lookhere(self):
        r, self.n = cells(5, 6), 30
        for words, heads, options, distance in [
            ("none1zero3-zerohalves-center", 12, {}, lambda d: d), ("halves-none", 6, {"distance": "sqrt"}, numpy.sqrt),
            ("halves-none1zero3", 8, {"distance": "square"}, numpy.square),
        ]:  # fmt: skip
            bias, centre = self.looks(words, heads, distance)
            places = {"positions": r}
            if "center" in words:
                places = {"positions": numpy.c_[r, 0 * centre[0]], "k_positions": numpy.c_[r, centre[0]]}
            found = self.scores("lookhere", directions=words, heads=heads, **options, **places)
            self.near(found, self.softmax(bias), 2e-6)
        for words, heads in [("halves", 6), ("none-halves", 6), ("halves-none-zero", 8)]:
            with self.assertRaisesRegex(pk.CompileError, "'directions'"):
                pk.compile("lookhere", directions=words, heads=heads, **FAST)

    def test_relative_rows(self):
        """Transformer-XL's scores as NeMo's and its authors' code has them, [N,2N-1] products that are shifted; those
        of causal layers; and Shaw's, whose distances are clipped."""
        self.n, n, d = 30, 30, 16
        q, k, v, places = *rows(3, 1, 2, n, d), numpy.arange(n, dtype=float)[:, None]
        wide = lambda x: x.astype(float)  # noqa: E731
        u, v_bias, table = rows(2, 1, d, seed=7), rows(2, 1, d, seed=8), rows(2, 2 * n - 1, d, seed=9)
        products = numpy.einsum("bhic,hrc->bhir", wide(q + v_bias), table)
        padded = numpy.pad(products, ((0, 0), (0, 0), (0, 0), (1, 0))).reshape(1, 2, 2 * n, n)
        shifted = padded[:, :, 1:].reshape(1, 2, n, 2 * n - 1)[..., :n]
        content = numpy.einsum("bhic,bhjc->bhij", wide(q + u), k)
        past = numpy.where(self.delta() <= 0, 0, -numpy.inf)
        for behind, ahead, hidden in ((n - 1, n - 1, 0), (n - 1, 0, past)):
            kernel = pk.compile("relative_rows", head_dim=d, behind=behind, ahead=ahead, **FAST)
            given = products[..., : behind + ahead + 1].astype("float32")
            out = kernel.attention(q + u, k, v, places, inputs=[given], causal=ahead == 0)
            self.near(out, self.softmax((content + shifted) / d**0.5 + hidden) @ v, 5e-6)
        clipped = rows(2, 9, d, seed=10)
        index = numpy.clip(self.delta(), -4, 4).astype(int) + 4
        scores = numpy.einsum("bhic,bhjc->bhij", wide(q), k)
        scores += numpy.einsum("bhic,hijc->bhij", wide(q), clipped[:, index])
        kernel = pk.compile("relative_rows", head_dim=d, behind=4, ahead=4, **FAST)
        found = kernel.attention(q, k, v, places, inputs=[numpy.einsum("bhic,hrc->bhir", q, clipped)])
        self.near(found, self.softmax(scores / d**0.5) @ v, 5e-6)
        for name in ("behind", "ahead"):
            with self.assertRaisesRegex(pk.CompileError, f"option '{name}' is -1, 0 or more tokens were"):
                pk.compile("relative_rows", **{name: -1}, **FAST)

    def test_rounded_table(self):
        """LookHere's biases as its authors keep them, in bfloat16 and with the largest number of that where nothing is
        seen: a table of displacements for relative_bias_table."""
        r, self.n, far = cells(5, 6), 30, -(2 - 2.0**-7) * 2.0**127
        bias, _ = self.looks("halves-none", 6)
        kept = bias.astype("float32").view("uint32") + 0x7FFF + (bias.astype("float32").view("uint32") >> 16 & 1)
        kept = numpy.where(numpy.isinf(bias), far, (kept & 0xFFFF0000).view("float32").astype(float))
        self.assertGreater(numpy.abs(numpy.where(kept == far, 0, kept - numpy.maximum(bias, far))).max(), 1e-3)
        table = numpy.full((9, 11, 6), far, "float32")
        index = (r[:, None] - r[None] + [4, 5]).astype(int)
        table[index[..., 0], index[..., 1]] = kept.transpose(1, 2, 0)
        found = self.scores("relative_bias_table", {"relative_position_bias_table": table}, heads=6, window_h=5,
                            window_w=6, positions=r)  # fmt: skip
        self.near(found, self.softmax(kept), 2e-6)

    def test_gated(self):
        """Additive GRAPE: slopes that tokens gate, of queries, of keys or of both."""
        self.n, n = 40, 40
        slope = numpy.abs(rows(2, seed=7))
        query, key = rows(1, 2, n, seed=8), rows(1, 2, n, seed=9)
        softplus = lambda x: numpy.log1p(numpy.exp(x.astype(float)))[0]  # noqa: E731
        q, k, v = (rows(1, 2, n, 8, seed=i) for i in (1, 2, 3))
        for gates, factor in [
            ("none", numpy.ones((2, n, n))), ("query", softplus(query)[..., None] + numpy.zeros(n)),
            ("key", softplus(key)[:, None, :] + numpy.zeros((n, 1))),
            ("both", softplus(query)[..., None] + softplus(key)[:, None, :]),
        ]:  # fmt: skip
            kernel = pk.compile("grape_a", gates=gates, heads=2, head_dim=8, **FAST)
            given = {"query": {"query_gate": query}, "key": {"key_gate": key}}
            inputs = {**given.get(gates, {}), **(given["query"] | given["key"] if gates == "both" else {})}
            out = kernel.attention(q, k, v, numpy.arange(n, dtype=float)[:, None], operands=[slope], causal=True,
                                   inputs=inputs or None)  # fmt: skip
            scores = numpy.einsum("bhic,bhjc->bhij", q.astype(float), k) / numpy.sqrt(8)
            scores = scores + self.delta() * slope[:, None, None].astype(float) * factor
            scores = numpy.where(self.delta() <= 0, scores, -numpy.inf)
            self.near(out[0] if isinstance(out, tuple) else out, self.softmax(scores) @ v, 5e-6)

    def test_sandwich(self):
        """The products of the embeddings themselves, as in the appendix' code."""
        place, i = numpy.arange(self.n)[:, None], numpy.arange(8)
        angle = place / 1e4 ** (2 * i / 16)
        embedded = numpy.concatenate([numpy.sin(angle), numpy.cos(angle)], -1)
        bias = (embedded @ embedded.T)[None] / (numpy.arange(1, 4) * 8 / 3)[:, None, None]
        self.near(self.scores("sandwich", heads=3, embedding_dim=16), self.softmax(bias), 2e-6)


if __name__ == "__main__":
    unittest.main()
