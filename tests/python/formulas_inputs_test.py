"""Descriptions that read inputs, against the formulas of their papers or their authors' code, in NumPy and float64."""
import json
import subprocess
import unittest

import numpy

import pegen_kernels as pk
from pegen_kernels import _native
from formulas import Formulas, cells, turned
from kernel_shared import FAST, rows


class Inputs(Formulas):
    def test_forgetting(self):
        """FoX, equations 3 to 5, of gates and with a cache: queries are the last of the keys."""
        q, k, v = rows(2, 4, 5, 16), rows(2, 2, 9, 16, seed=2), rows(2, 2, 9, 16, seed=3)
        forgets = 1 / (1 + numpy.exp(-3 * rows(2, 4, 9, seed=4).astype(float) - 2))
        expected = numpy.zeros((2, 4, 5, 16))
        for b, h, i in numpy.ndindex(2, 4, 5):
            seen = i + 5  # of 9 keys
            decay = [numpy.prod(forgets[b, h, j + 1 : seen]) for j in range(seen)]
            weight = numpy.exp(k[b, h // 2, :seen].astype(float) @ q[b, h, i] / 4) * decay
            expected[b, h, i] = weight @ v[b, h // 2, :seen] / weight.sum()
        c = numpy.cumsum(numpy.log(forgets), -1).astype("float32")
        kernel = pk.compile("fox", head_dim=16, **FAST)
        found = kernel.attention(q, k, v, inputs={"c": numpy.ascontiguousarray(c[:, :, 4:]), "key_c": c})
        self.near(found, expected, 2e-6)
        with self.assertRaisesRegex(pk.ArgumentError, "expected .2, 2, 9., a row for each of k's .*heads of q"):
            kernel.attention(q, k, v, inputs=[c[:, :, 4:], c[:, :, 4:]])
        with self.assertRaisesRegex(pk.ArgumentError, "expected float32"):
            kernel.attention(q, k, v, inputs=[c[:, :, 4:].astype("float16"), c])

    def test_dual_chunk(self):
        """Distances of the paper's three cases, of chunks of 4 tokens and a trained length of 7."""
        n, s, c, d = 19, 4, 7, 16
        q, k, v = (rows(1, 2, n, d, seed=seed) for seed in (1, 2, 3))
        i, inside = numpy.arange(n), numpy.arange(n) % s
        apart = i[:, None] // s - i // s
        of_query = numpy.where(apart == 0, inside[:, None],
                               numpy.where(apart == 1, numpy.minimum(inside + s, c - 1)[:, None], c - 1))  # fmt: skip
        distance = of_query - inside
        self.assertLess(distance[apart >= 0].max(), c)
        theta = 10000.0 ** (-numpy.arange(0, d, 2) / d)
        scores = numpy.zeros((1, 2, n, n))
        for a, b in numpy.ndindex(n, n):
            scores[:, :, a, b] = (turned(q[:, :, a : a + 1], distance[a, b] * theta, "split")[:, :, 0]
                                  * k[:, :, b]).sum(-1) * d**-0.5  # fmt: skip
        scores[:, :, i[:, None] < i] = -numpy.inf
        weights = numpy.exp(scores - scores.max(-1, keepdims=True))
        expected = weights / weights.sum(-1, keepdims=True) @ v
        place = numpy.stack([i // s, inside, numpy.minimum(inside + s, c - 1), numpy.full(n, c - 1)], 1).astype(float)
        of_keys = numpy.stack([i // s, inside, inside, inside], 1).astype(float)
        kernel = pk.compile("dual_chunk", head_dim=d, **FAST)
        self.near(kernel.attention(q, k, v, place, k_positions=of_keys, causal=True), expected, 3e-6)

    def test_grok(self):
        """Rotations of Grok-1, by its preset (xai-org/grok-1, model.py: halves, base 10000)."""
        words = [_native.program(), "specs", "Grok-1", "--json"]
        found = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
        self.assertEqual([spec["name"] for spec in found], ["rope"])
        options = found[0]["models"][0]["options"]
        x, places = rows(2, 3, 9, 128), numpy.arange(9.0) * 11
        expected = turned(x, places[:, None] * 10000.0 ** (-numpy.arange(0, 128, 2) / 128), "split")
        self.near(pk.compile("rope", **options, **FAST).encode(x, positions=places[:, None]), expected, 2e-6)

    def test_fope(self):
        """Series of frequencies, by the listing of the paper; of which channels without one are left as they are."""
        heads, d, count = 3, 32, 7  # frequencies of at least 2 pi / 350
        kernel = pk.compile("fope", head_dim=d, heads=heads, trained=350, **FAST)
        x, places = rows(2, heads, 9, d), numpy.arange(9.0) * 7
        made = numpy.abs(rows(2, heads, count, d // 4, seed=3).astype(float)) / 8 + numpy.eye(count, d // 4)
        cosines, sines = made / made.sum(-2, keepdims=True)
        omega = 10000.0 ** (-numpy.arange(0, d, 2) / d)
        self.assertEqual((omega >= 2 * numpy.pi / 350).sum(), count)
        angle = places[:, None] * omega[:count]
        fourier_sin, fourier_cos = numpy.sin(angle) @ sines, numpy.cos(angle) @ cosines  # [H,N,D/4]
        n = min(count, d // 4)
        fourier_sin, fourier_cos = fourier_sin[..., :n], fourier_cos[..., :n]
        first, second = x[..., :n].astype(float), x[..., d // 2 : d // 2 + n].astype(float)
        expected = x.astype(float)
        expected[..., :n] = first * fourier_cos - second * fourier_sin
        expected[..., d // 2 : d // 2 + n] = second * fourier_cos + first * fourier_sin
        operands = {"cosines": cosines[..., :n].astype("float32"), "sines": sines[..., :n].astype("float32")}
        self.near(kernel.encode(x, positions=places[:, None], operands=operands), expected, 1e-5)

    def test_repo(self):
        q, k, places = rows(2, 3, 9, 16), rows(2, 3, 9, 16, seed=2), 100 * rows(2, 3, 9, seed=3)
        kernel = pk.compile("repo", head_dim=16, **FAST)
        angle = places[..., None].astype(float) * 10000.0 ** (-numpy.arange(0, 16, 2) / 16)
        for one, row in zip(kernel.encode(q, k, positions=numpy.zeros((9, 1)), inputs=[places]), (q, k)):
            self.near(one, turned(row, angle, "split"), 2e-6)

    def test_wire(self):
        """Nodes of a graph, at what the lowest eigenvectors of its Laplacian are there; of a line graph, RoPE-like."""
        edges = numpy.triu(rows(9, 9, seed=4) > 0.3, 1)
        adjacent = (edges | edges.T).astype(float)
        spectrum = numpy.linalg.eigh(numpy.diag(adjacent.sum(0)) - adjacent)[1][:, 1:6]
        freqs, x = 3 * rows(5, 2, 8, seed=5), rows(2, 2, 9, 16)
        kernel = pk.compile("rope_mixed", axes=5, heads=2, head_dim=16, **FAST)
        angle = numpy.einsum("np,phj->hnj", spectrum, freqs.astype(float))
        found = kernel.encode(x, positions=spectrum, operands=[freqs.reshape(5, 2, 8)])
        self.near(found, turned(x, angle), 2e-6)

    def test_selective(self):
        q, k = rows(2, 3, 9, 16), rows(2, 3, 9, 16, seed=2)
        chosen = numpy.cumsum(rows(2, 3, 9, 8, seed=3).astype(float) * 3, axis=2).astype("float32")
        kernel = pk.compile("selective_rope", head_dim=16, layout="split", **FAST)
        found = kernel.encode(q, k, positions=numpy.zeros((9, 1)), inputs=[chosen])
        for one, row in zip(found, (q, k)):
            self.near(one, turned(row, chosen.astype(float), "split"), 2e-6)
        with self.assertRaisesRegex(pk.ArgumentError, "go in two calls"):
            kernel.encode(q, k[:, :1], positions=numpy.zeros((9, 1)), inputs=[chosen])
        with self.assertRaisesRegex(pk.ArgumentError, "expected float32"):
            kernel.encode(q, positions=numpy.zeros((9, 1)), inputs=[chosen.astype("float16")])

    def test_sums_of_angles(self):
        q, omega = rows(1, 2, 4096, 16), rows(1, 2, 4096, 8, seed=3) + numpy.float32(2)
        exact = numpy.cumsum(omega.astype(float), axis=2)
        angle = pk.scan(omega, period=2 * numpy.pi)  # of thousands of radians: less whole turns, in float32
        self.assertEqual((angle.dtype, abs(angle).max() < 3.1416), ("float32", True))
        kernel = pk.compile("selective_rope", head_dim=16, **FAST)
        place = numpy.zeros((4096, 1))
        self.near(kernel.encode(q, positions=place, inputs=[angle]), turned(q, exact), 3e-6)
        first, state = pk.scan(omega[:, :, :1000], with_state=True)
        rest, _ = pk.scan(omega[:, :, 1000:], state, with_state=True)
        whole = pk.scan(omega, threads=3)
        self.assertTrue(numpy.array_equal(numpy.concatenate([first, rest], 2), whole))
        bounds = numpy.array([0, 1000, 1000, 4096], "int32")
        apart, states = pk.scan(omega, cu_seqlens=bounds, dtype="float64", with_state=True)
        self.assertTrue(numpy.array_equal(apart[:, :, :1000].astype("float32"), first))
        self.assertTrue(numpy.array_equal(apart[:, :, 1000:], numpy.cumsum(omega[:, :, 1000:].astype(float), axis=2)))
        self.assertTrue(numpy.array_equal(states[0], state[0]) and not states[1].any())
        self.assertTrue(numpy.array_equal(states[2], apart[0, :, -1]))
        self.assertIs(pk.scan(omega, reverse=True, out=omega), omega)
        for refused, given in [
            ("x has 2 dimensions", (place,)),
            ("x is of type int64", (numpy.zeros((1, 1, 3), "int64"),)),
            ("state is float32", (q, numpy.zeros((1, 2, 16), "float32"))),
            ("state is float64", (q, numpy.zeros((1, 2, 15)))),
        ]:
            with self.assertRaisesRegex(pk.ArgumentError, refused):
                pk.scan(*given)
        for refused, named in [
            ("period is -1", {"period": -1}),
            ("cu_seqlens is of type int64; expected int32", {"cu_seqlens": bounds.astype("int64")}),
            ("cu_seqlens ends at [0-9]+; expected [0-9]+, the rows of x; rows behind", {"cu_seqlens": bounds[:3]}),
            ("cu_seqlens falls from", {"cu_seqlens": bounds - numpy.array([0, 0, 1, 0], "int32")}),
            ("dtype is 'float16'", {"dtype": "float16"}),
            ("out is of type float32", {"dtype": "float64", "out": q}),
            ("overlaps", {"out": q[..., ::-1, :]}),
        ]:
            with self.assertRaisesRegex(pk.ArgumentError, refused):
                pk.scan(q, **named)

    def test_pope(self):
        """PoPE (Gopalakrishnan et al.): a channel is a pair of its softplus and the angle, of keys with a phase."""
        heads, n, d = 2, 9, 8
        content, delta = rows(2, heads, n, d), (3 * rows(heads, d, seed=5) - 3).astype("float32")
        kernel = pk.compile("pope", channels=d, heads=heads, **FAST)
        pair = numpy.broadcast_to(numpy.tile(numpy.array([1, 0], "float32"), d), (2, heads, n, 2 * d))
        t, theta = numpy.arange(n), 10000.0 ** (-numpy.arange(d) / d)
        length = numpy.log1p(numpy.exp(content.astype(float)))
        for is_key in (0, 1):
            angle = t[:, None] * theta + is_key * numpy.clip(delta.astype(float), -2 * numpy.pi, 0)[:, None, :]
            expected = numpy.stack([length * numpy.cos(angle), length * numpy.sin(angle)], -1).reshape(
                2, heads, n, 2 * d
            )
            places = numpy.stack([t, numpy.full(n, is_key)], 1).astype(float)
            found = kernel.encode(pair, positions=places, operands=[delta], inputs=[content])
            self.near(found, expected, 2e-6)

    def test_mhrope(self):
        q, k = rows(1, 8, 5, 16), rows(1, 4, 5, 16, seed=2)
        places = numpy.random.default_rng(3).integers(0, 99, (5, 3))
        kernel = pk.compile("mhrope", head_dim=16, heads=4, sections=(1, 2, 0), base=500.0, **FAST)
        found = kernel.encode(q, k, positions=places)
        theta = 500.0 ** (-2 * numpy.arange(8) / 16)
        for one, row in zip(found, (q, k)):
            group = row.shape[1] // 4
            for head in range(row.shape[1]):
                axis = (0, 1, 1, None)[head // group]
                angle = numpy.zeros((5, 8)) if axis is None else places[:, axis, None] * theta
                self.near(one[:, head], turned(row[:, head], angle, "split"), 2e-6)
        with self.assertRaisesRegex(pk.CompileError, "names 9 heads, at most the 8"):
            pk.compile("mhrope", sections=(3, 3, 3), **FAST)

    def test_geope_video(self):
        """Time's channels are RoPE's and space's GeoPE's, each as its own kernel has it at the first frequencies."""
        x, places = rows(1, 2, 24, 29), cells(2, 3, 4)
        for layout in ("interleaved", "split"):
            kernel = pk.compile("geope_video", head_dim=29, heads=2, time_dim=8, layout=layout, **FAST)
            time = numpy.tile(10000.0 ** (-2 * numpy.arange(4) / 8), (2, 1)).astype("float32")
            space = numpy.tile(100.0 ** (2 * numpy.arange(7) / 21), (2, 2, 1)).astype("float32")
            found = kernel.encode(x, positions=places, operands={"time": time, "space": space})
            self.near(found[..., :8], turned(x[..., :8], places[:, :1] * time[0].astype(float), layout), 2e-6)
            geope = pk.compile("geope2d", head_dim=21, layout=layout, **FAST)
            self.near(found[..., 8:], geope.encode(x[..., 8:], positions=places[:, 1:]), 1e-5)
        for given in (27, 28):
            with self.assertRaisesRegex(pk.CompileError, f"is {given}, an even number from 2 to head_dim - 3"):
                pk.compile("geope_video", head_dim=29, time_dim=given, **FAST)

    def test_grape(self):
        q, t = rows(1, 2, 7, 12), numpy.arange(7)
        freq = numpy.exp(0.3 * rows(2, 6, seed=4) - 1)
        planes = pk.compile("grape_m", head_dim=12, heads=2, **FAST)
        angle = -t[:, None] * freq.astype(float)[:, None, :]
        self.near(planes.encode(q, positions=t[:, None], operands=[freq]), turned(q, angle, "split"), 2e-6)
        a, b = rows(2, 3, 12, seed=5), rows(2, 3, 12, seed=6)  # three rank-2 generators a head
        raw = (0.1 * numpy.einsum("hrx,hry->hxy", a, b)).astype("float32")
        mixture = pk.compile("grape_m", kind="mixture", head_dim=12, heads=2, **FAST)
        found = mixture.encode(q, positions=t[:, None], operands=[raw[:, None]])
        for head in range(2):
            values, vectors = numpy.linalg.eigh(1j * (raw[head].astype(float) - raw[head].T))
            for n in t:
                matrix = ((vectors * numpy.exp(-1j * n * values)) @ vectors.conj().T).real
                self.near(found[0, head, n], matrix @ q[0, head, n].astype(float), 1e-5)

    def test_damped_boosts(self):
        """HoPE: a query falls and a key grows, so that scores fall with the distance."""
        q, k, t = rows(1, 1, 6, 8), rows(1, 1, 6, 8, seed=2), numpy.arange(6.0)
        options = {"head_dim": 8, "scale": 0.1, "damping": 1.5}
        same = {**options, "sides": "same"}
        queries = pk.compile("boosts", **same, **FAST).encode(q, positions=t[:, None])
        keys = pk.compile("boosts", inverse=True, **same, **FAST).encode(k, positions=t[:, None])
        for x, y in zip(pk.compile("boosts", **options, **FAST).encode(q, k, t[:, None]), (queries, keys)):
            self.near(x, y.astype(float), 1e-6)
        theta = 0.1 * 10000.0 ** (-numpy.arange(4) / 4)
        u = (t[:, None] - t)[..., None] * theta
        x, y = q[0, 0].astype(float).reshape(6, 1, 4, 2), k[0, 0].astype(float).reshape(1, 6, 4, 2)
        products = numpy.cosh(u) * (x * y).sum(-1) - numpy.sinh(u) * (x[..., 0] * y[..., 1] + x[..., 1] * y[..., 0])
        expected = (numpy.exp(-0.15 * (t[:, None] - t))[..., None] * products).sum(-1)
        self.near(queries[0, 0].astype(float) @ keys[0, 0].astype(float).T, expected, 1e-5)
        with self.assertRaisesRegex(pk.CompileError, "0 or a number above 1"):
            pk.compile("boosts", damping=0.5, **FAST)

    def test_axes_of_three_vectors(self):
        """CARE and QuatRo with three axes and with one: the kernel of three is the product of those of one."""
        places = rows(6, 3, seed=3).astype(float)
        axis, freq, theta = rows(3, 1, 2, 3, seed=4), rows(3, 1, 2, seed=5), rows(3, 1, 5, 3, seed=6)
        axis /= numpy.linalg.norm(axis, axis=-1, keepdims=True)
        for name, order, operands in [
            ("care", (0, 1, 2), (axis, freq)), ("quatro", (2, 1, 0), (theta,)),
        ]:  # fmt: skip
            x = rows(1, 1, 6, 16)
            found = pk.compile(name, axes=3, head_dim=16, **FAST).encode(x, positions=places, operands=list(operands))
            one = pk.compile(name, axes=1, head_dim=16, **FAST)
            for a in order:  # the first acts first
                x = one.encode(x, positions=places[:, a : a + 1], operands=[w[a : a + 1] for w in operands])
            self.near(found, x, 5e-6)

    def test_carope(self):
        x, q = rows(1, 2, 9, seed=4).astype(float), rows(1, 2, 9, 16)
        f = 1 / (1 + numpy.log1p(numpy.exp(x)))
        phase = numpy.cumsum(f[..., None] ** numpy.arange(8), axis=2).astype("float32")
        kernel = pk.compile("carope", head_dim=16, **FAST)
        self.near(
            kernel.encode(q, positions=numpy.zeros((9, 1)), inputs={"phase": phase}),
            turned(q, phase.astype(float)),
            2e-6,
        )
        alike = numpy.cumsum(numpy.full((1, 1, 9, 1), 0.5) ** numpy.arange(8), axis=2).astype("float32")
        rope = numpy.arange(1, 10)[:, None] * 0.5 ** numpy.arange(8)  # one f for all tokens, and heads
        self.near(kernel.encode(q, positions=numpy.zeros((9, 1)), inputs=[alike]), turned(q, rope), 2e-6)


if __name__ == "__main__":
    unittest.main()
