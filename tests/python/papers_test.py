"""Descriptions of the five papers of docs/papers.md against their formulas, in NumPy and float64."""
import importlib
import importlib.util
import pathlib
import unittest

import numpy

import pegen_kernels as pk
from formulas import Formulas, cells
from kernel_shared import FAST, rows

POSES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "poses.lua"


def attended(q, k, v, bias):
    """softmax((q k^T + bias) / sqrt(D)) v, in float64."""
    scores = (q.astype(float) @ k.swapaxes(-1, -2).astype(float) + bias) / q.shape[-1] ** 0.5
    share = numpy.exp(scores - scores.max(-1, keepdims=True))
    return share / share.sum(-1, keepdims=True) @ v


class Papers(Formulas):
    """Options that choose what a paper leaves open, sets aside or has in its code: docs/papers.md names them."""

    def rotated(self, x, matrices):
        """Triples of x [..., N, D], each by its own matrix [N, D/3, 3, 3]; what is left over stays."""
        whole = x.shape[-1] // 3 * 3
        triples = x[..., :whole].astype(float).reshape(*x.shape[:-1], -1, 3)
        made = numpy.einsum("nbij,...nbj->...nbi", matrices, triples).reshape(*x.shape[:-1], whole)
        return numpy.concatenate([made, x[..., whole:]], -1)

    def about(self, angles):
        """exp of the cross product with angles [..., 3], by Rodrigues."""
        length = numpy.linalg.norm(angles, axis=-1)[..., None, None]
        zero = numpy.zeros(angles.shape[:-1])
        x, y, z = numpy.moveaxis(angles, -1, 0)
        k = numpy.stack([zero, -z, y, z, zero, -x, -y, x, zero], -1).reshape(*angles.shape[:-1], 3, 3)
        safe = numpy.where(length == 0, 1, length)
        return numpy.eye(3) + numpy.sin(length) / safe * k + (1 - numpy.cos(length)) / safe**2 * k @ k

    def test_spherical(self):
        """Turns as matrices, about x, z, y and x again as printed: e1 towards e3 and e2 as in the code. The first axis
        acts last."""
        x = rows(1, 2, 12, 14)  # of which two channels are left over
        for turns, planes in (("paper", [(1, 2), (0, 1), (2, 0)]), ("code", [(1, 2), (0, 2), (0, 1)])):
            for axes in (1, 2, 3, 4):
                r = numpy.random.default_rng(2).uniform(-3, 3, (12, axes))
                matrices = numpy.tile(numpy.eye(3), (12, 4, 1, 1))
                for a in range(axes):
                    angle = r[:, a, None] * 100.0 ** (-2 * numpy.arange(4) / 14)
                    i, j = planes[a % 3]
                    one = numpy.tile(numpy.eye(3), (12, 4, 1, 1))
                    one[..., i, i] = one[..., j, j] = numpy.cos(angle)
                    one[..., j, i], one[..., i, j] = numpy.sin(angle), -numpy.sin(angle)
                    matrices = matrices @ one
                kernel = pk.compile("spherical", head_dim=14, turns=turns, axes=axes, **FAST)
                self.near(kernel.encode(x, positions=r), self.rotated(x, matrices), 3e-6)

    def test_geope(self):
        """Means and foils, i from 1, d of the embedding, triples across heads."""
        x, r = rows(1, 2, 12, 64), cells(3, 4) * 0.25
        for options in [{}, {"first": 1}, {"schedule_dim": 768}, {"first": 1, "exponent_sign": -1, "schedule_dim": 96}]:
            i, d = numpy.arange(21) + options.get("first", 0), options.get("schedule_dim", 64)
            phase = 100.0 ** (options.get("exponent_sign", 1) * 2 * i / d)
            h, w = (
                r[:, a, None, None] * phase[:, None] * numpy.array(unit)
                for a, unit in ((0, [0.0, 1, 0]), (1, [0.0, 0, 1]))
            )
            expected = {
                "generators": self.about((h + w) / 2), "sum": self.about(h + w),
                "product": self.about(h) @ self.about(w),
                "symmetric": self.about(h / 2) @ self.about(w) @ self.about(h / 2),
            }  # fmt: skip
            u, _, v = numpy.linalg.svd(self.about(h) + self.about(w))
            expected["chordal"] = u @ (v * numpy.linalg.det(u @ v)[..., None, None] ** [[0], [0], [1]])
            for mean, matrices in expected.items():
                if mean == "chordal" and "exponent_sign" not in options:
                    continue  # at growing angles some are at a cut, where two rotations are as near
                kernel = pk.compile("geope2d", mean=mean, **options, **FAST)
                self.near(kernel.encode(x, positions=r), self.rotated(x, matrices), 4e-6)
        x = rows(1, 1, 12, 192)  # three heads of 64 channels: triple 21 has channels of two of them
        phase = 100.0 ** (2 * numpy.arange(64) / 192)
        mean = r[:, None, :] * phase[:, None] / 2
        matrices = self.about(numpy.concatenate([0 * mean[..., :1], mean], -1))
        kernel = pk.compile("geope2d", head_dim=192, **FAST)
        self.near(kernel.encode(x, positions=r), self.rotated(x, matrices), 4e-6)

    def vector(self, matrices):
        """The rotation vectors of matrices [..., 3, 3] that turn by less than pi."""
        cos = (numpy.trace(matrices, axis1=-2, axis2=-1) - 1) / 2
        angle = numpy.arccos(numpy.clip(cos, -1, 1))[..., None]
        odd = matrices - matrices.swapaxes(-1, -2)
        along = numpy.stack([odd[..., 2, 1], odd[..., 0, 2], odd[..., 1, 0]], -1) / 2
        return along * numpy.where(angle < 1e-6, 1, angle / numpy.maximum(numpy.sin(angle), 1e-12))

    def test_karcher(self):
        """GeoPE's mean of rotations by distances on the sphere: where the logarithms from it to all sum to nothing."""
        x, r = rows(1, 2, 12, 64), cells(3, 4) * 0.4
        phase = 100.0 ** (-2 * numpy.arange(21) / 64)
        h, w = (self.about(r[:, a, None, None] * phase[:, None] * numpy.eye(3)[a + 1]) for a in (0, 1))
        mean = h
        for _ in range(60):
            back = mean.swapaxes(-1, -2)
            mean = self.about((self.vector(h @ back) + self.vector(w @ back)) / 2) @ mean
        kernel = pk.compile("geope2d", mean="karcher", exponent_sign=-1, **FAST)
        self.near(kernel.encode(x, positions=r), self.rotated(x, mean), 4e-6)
        average = pk.compile("geope2d", exponent_sign=-1, **FAST)
        self.assertGreater(numpy.abs(average.encode(x, positions=r) - self.rotated(x, mean)).max(), 1e-2)

    def test_geope_of_three(self):
        """What the paper's average of three axes sets aside: the generators' sum, a product in their order, and one
        that is the same backwards."""
        x, r = rows(1, 2, 24, 64), cells(2, 3, 4) * 0.25
        for sign in (1, -1):
            phase = 100.0 ** (sign * 2 * numpy.arange(21) / 64)
            d, h, w = (r[:, a, None, None] * phase[:, None] * numpy.eye(3)[a] for a in range(3))
            half = [self.about(axis / 2) for axis in (d, h)]
            for mean, matrices in {
                "generators": self.about((d + h + w) / 3), "sum": self.about(d + h + w),
                "product": self.about(d) @ self.about(h) @ self.about(w),
                "symmetric": half[0] @ half[1] @ self.about(w) @ half[1] @ half[0],
            }.items():  # fmt: skip
                kernel = pk.compile("geope3d", mean=mean, exponent_sign=sign, **FAST)
                self.near(kernel.encode(x, positions=r), self.rotated(x, matrices), 5e-6)

    def test_lingeope(self):
        """Scores by the rotor of the displacement, with frequencies that grow, as printed, or decay."""
        for axes, sign in ((2, 1), (2, -1), (3, 1), (3, -1)):
            r = cells(*[2, 3, 2][:axes]) * 0.3
            n, units = len(r), numpy.eye(3)[3 - axes :]
            q, k, v = (rows(1, 2, n, 16, seed=i) for i in (1, 2, 3))
            phase = 100.0 ** (sign * 2 * numpy.arange(5) / 16)
            turn = self.about((r[None] - r[:, None])[:, :, None] @ units * phase[:, None] / axes)  # [N,N,5,3,3]
            triples = lambda x: x[..., :15].astype(float).reshape(1, 2, n, 5, 3)  # noqa: E731
            scores = numpy.einsum("zhita,ijtab,zhjtb->zhij", triples(q), turn, triples(k))
            scores = (scores + q[..., None, 15].astype(float) * k[..., None, :, 15]) / 4
            share = numpy.exp(scores)
            kernel = pk.compile("lingeope", head_dim=16, axes=axes, exponent_sign=sign, **FAST)
            self.near(kernel.attention(q, k, v, r), share / share.sum(-1, keepdims=True) @ v, 1e-5)

    def drawn(self, kernel, name):
        """First values of an operand, as its description says."""
        (operand,) = (o for o in kernel.operands if o.name == name)
        values = kernel.explain()["numbers"]["operands"][name]["values"]
        return numpy.array(values).reshape(operand.shape)

    def uniform(self, values, most):
        self.assertTrue(((0 <= values) & (values < most)).all())
        self.assertLess(abs(values.mean() - most / 2), most / 12**0.5 / values.size**0.5 * 4)
        self.assertGreater(numpy.ptp(values), 0.8 * most)

    def test_first_values(self):
        """The codes begin so, and LieRE's table 7; and what these values turn by."""
        r = numpy.random.default_rng(2).uniform(-1, 1, (12, 2))
        x = rows(1, 2, 12, 96)
        kernel = pk.compile("quatro", head_dim=96, heads=2, half_angle=True, defines={"first": "code"}, **FAST)
        theta = self.drawn(kernel, "theta")
        speeds = numpy.stack([theta[0, ..., 2], theta[1, ..., 1]])  # of x about k, of y about j
        self.uniform(speeds, 1)
        self.assertEqual(numpy.count_nonzero(theta), numpy.count_nonzero(speeds))
        expected = [
            self.rotated(x[:, head], self.about(r[:, :1, None] * speeds[0, head][:, None] * numpy.eye(3)[2])
                         @ self.about(r[:, 1:, None] * speeds[1, head][:, None] * numpy.eye(3)[1]))
            for head in (0, 1)
        ]  # fmt: skip
        operands = {"theta": theta.astype("float32")}
        self.near(kernel.encode(x, positions=r, operands=operands), numpy.stack(expected, 1), 4e-6)

        kernel = pk.compile("care", head_dim=96, heads=2, grades=(1,), speeds="uniform", **FAST)
        axis, freq = self.drawn(kernel, "axis"), self.drawn(kernel, "freq")
        self.uniform(freq, 1)
        self.near(numpy.linalg.norm(axis, axis=-1), numpy.ones(axis.shape[:-1]), 1e-6)
        expected = [
            self.rotated(x[:, head], self.about(-r[:, 1:, None] * (freq[..., None] * axis)[1, head])
                         @ self.about(-r[:, :1, None] * (freq[..., None] * axis)[0, head]))
            for head in (0, 1)
        ]  # fmt: skip
        operands = {"axis": axis.astype("float32"), "freq": freq.astype("float32")}
        self.near(kernel.encode(x, positions=r, operands=operands), numpy.stack(expected, 1), 4e-6)

        for first, most in (("two_pi", 2 * numpy.pi), ("one", 1)):
            kernel = pk.compile("liere", head_dim=96, heads=2, block=8, defines={"first": first}, **FAST)
            raw = self.drawn(kernel, "generators")
            above = raw[(..., *numpy.triu_indices(8, 1))]
            self.uniform(above, most)
            upper = numpy.triu(raw, 1)
            skew = numpy.einsum("na,ahgij->hngij", r, upper - upper.swapaxes(-1, -2))
            expected = self.blocks(x, self.exponential(skew))
            operands = {"generators": raw.astype("float32")}
            self.near(kernel.encode(x, positions=r, operands=operands), expected, 2e-5)

    def exponential(self, skew):
        """exp of skew matrices: i times one is Hermitian."""
        values, vectors = numpy.linalg.eigh(1j * skew)
        return (vectors * numpy.exp(-1j * values)[..., None, :] @ vectors.conj().swapaxes(-1, -2)).real

    def blocks(self, x, matrices):
        """x [B, H, N, D] by matrices [H, N, D/b, b, b]."""
        of = x.astype(float).reshape(*x.shape[:-1], *matrices.shape[2:4])
        return numpy.einsum("hngij,zhngj->zhngi", matrices, of).reshape(x.shape)

    def test_multipliers(self):
        """ComRoPE-LD, a block's factors the same in all heads, or each head's own (appendix E.2.4)."""
        x, r, raw = rows(1, 2, 12, 16), numpy.random.default_rng(2).uniform(0, 1, (12, 2)), rows(2, 4, 4, 4, seed=5)
        turn = (raw - raw.swapaxes(-1, -2)).astype(float)
        for multiplier, shape in (("shared", (2, 4)), ("heads", (2, 2, 4))):
            factors = rows(*shape, seed=6)
            speed = numpy.einsum("na,ahg->hng", r, factors.astype(float).reshape(2, -1, 4) + numpy.zeros((2, 2, 4)))
            expected = self.blocks(x, self.exponential(speed[..., None, None] * turn[:, None]))
            kernel = pk.compile("comrope_ld", head_dim=16, heads=2, block=4, multiplier=multiplier, **FAST)
            operands = {"generators": raw, "multiplier": factors}
            self.near(kernel.encode(x, positions=r, operands=operands), expected, 4e-6)

    def test_frameworks(self):
        """CARE, table 1: Mixed and Spherical in both; any number of axes."""
        x, speeds = rows(1, 2, 12, 12), rows(4, 2, 4, seed=3)
        units = {"orthogonal": numpy.eye(3)[[2, 1, 0, 2]], "parallel": numpy.eye(3)[[2, 2, 2, 2]]}
        for axes in (1, 2, 3, 4):
            r = numpy.random.default_rng(2).uniform(-3, 3, (12, axes))
            for about, unit in units.items():
                for spec, sense, order in (("quatro", 2, 1), ("care", -1, -1)):
                    expected = numpy.empty(x.shape)
                    for head in range(2):
                        matrix = numpy.eye(3)
                        for a in range(axes)[::order]:
                            turn = sense * r[:, a, None, None] * speeds[a, head].astype(float)[:, None] * unit[a]
                            matrix = matrix @ self.about(turn)
                        expected[:, head] = self.rotated(x[:, head], matrix)
                    options = {"head_dim": 12, "heads": 2, "axes": axes, "about": about}
                    options |= {"grades": (1,)} if spec == "care" else {}
                    kernel = pk.compile(spec, **options, **FAST)
                    name = "theta" if spec == "quatro" else "freq"
                    self.near(kernel.encode(x, positions=r, operands={name: speeds[:axes]}), expected, 6e-6)

    def test_parabolas(self):
        """PaPE, table 2: what is left out of the score. Four axes, too."""
        q, k, v = rows(1, 2, 9, 8), rows(1, 2, 9, 8, seed=2), rows(1, 2, 9, 8, seed=3)
        for axes, without in [(2, w) for w in ("nothing", "a", "b", "content", "softplus", "projection")] + [(4, "b")]:
            m = axes if without == "projection" else 5
            r = numpy.random.default_rng(4).uniform(-1, 1, (9, axes))
            weights, a, b = 0.4 * rows(2, m, axes, seed=5), rows(1, 2, 9, m, seed=6), rows(1, 2, 9, m, seed=7)
            operands = {} if without == "projection" else {"projection": weights}
            inputs = {"a": a, "b": b}
            if without == "projection":
                weights = numpy.tile(numpy.eye(axes), (2, 1, 1))
            if without == "content":
                a, b, inputs = rows(2, m, seed=8), rows(2, m, seed=9), {}
                operands |= {"a": a, "b": b}
                a, b = a[None, :, None], b[None, :, None]
            inputs.pop(without, None)
            delta = numpy.einsum("hla,ija->hijl", weights.astype(float), r[None] - r[:, None])
            curve = 0 if without == "a" else a.astype(float) if without == "softplus" else -numpy.logaddexp(0, a)
            bias = ((curve * numpy.ones(1))[:, :, :, None] * delta**2).sum(-1) if without != "a" else 0
            if without != "b":
                bias = bias + (b.astype(float)[:, :, :, None] * delta).sum(-1)
            expected = attended(q, k, v, bias)
            options = {"head_dim": 8, "heads": 2, "axes": axes, "without": without, "role": "pairwise"}
            options |= {} if without == "projection" else {"parabolas": m}
            kernel = pk.compile("pape", **options, **FAST)
            found = kernel.attention(q, k, v, r, operands=operands, inputs=inputs)
            self.near(found[0] if isinstance(found, tuple) else found, expected, 2e-5)

    def test_factors_of_keys(self):
        """PaPE, appendix C: coefficients h_q(x_i) h_k(x_j)."""
        q, k, v = (rows(1, 2, 9, 8, seed=i) for i in range(3))
        r = numpy.random.default_rng(4).uniform(-2, 2, (9, 2))
        weights = 0.4 * rows(2, 5, 2, seed=5)
        inputs = {f"c{n}": rows(1, 2, 9, 5, seed=5 + n) for n in (1, 2, 3)}
        inputs |= {f"h{n}": rows(1, 2, 9, seed=8 + n) for n in (1, 2, 3)}
        delta = numpy.einsum("hla,ija->hijl", weights.astype(float), r[None] - r[:, None])
        bias = sum(
            numpy.einsum(
                "bhil,hijl,bhj->bhij", inputs[f"c{n}"].astype(float), delta**n, inputs[f"h{n}"].astype(float)
            )
            for n in (1, 2, 3)
        )
        kernel = pk.compile("polynomial", head_dim=8, heads=2, terms=5, role="pairwise", of="both", **FAST)
        found = kernel.attention(q, k, v, r, operands={"projection": weights}, inputs=inputs)
        self.near(found[0] if isinstance(found, tuple) else found, attended(q, k, v, bias), 2e-5)

    def test_learned_absolute(self):
        """A table as it is, and resampled as PyTorch does for other sizes."""
        table, x = rows(4, 5, 8, seed=2), rows(1, 1, 63, 8)
        kernel = pk.compile("learned_absolute", channels=8, table=(4, 5), grid=(4, 5), **FAST)
        self.near(kernel.encode(x[:, :, :20], operands={"vectors": table}), x[:, :, :20] + table.reshape(20, 8), 1e-6)
        if not importlib.util.find_spec("torch"):
            self.skipTest("PyTorch is not installed")
        torch = importlib.import_module("torch")
        image = torch.tensor(table).double().permute(2, 0, 1)[None]
        for rule, mode in (("linear", "bilinear"), ("cubic", "bicubic")):
            kernel = pk.compile("learned_absolute", channels=8, table=(4, 5), image=(7, 9), grid=(7, 9),
                                interpolation=rule, **FAST)  # fmt: skip
            resampled = torch.nn.functional.interpolate(image, size=(7, 9), mode=mode)[0].flatten(1).T.numpy()
            self.near(kernel.encode(x, operands={"vectors": table}), x + resampled, 2e-6)

    def motions(self, poses):
        """D = [R t; 0 1] of rows of a quaternion (w, i, j, k) and a place, R by what it does to vectors."""
        found = numpy.tile(numpy.eye(4), (len(poses), 1, 1))
        unit = poses[:, :4] / numpy.linalg.norm(poses[:, :4], axis=-1, keepdims=True)
        w, u, v = unit[:, None, :1], unit[:, None, 1:], numpy.eye(3)[None]
        moved = v + 2 * numpy.cross(u, numpy.cross(u, v) + w * v)
        found[:, :3, :3], found[:, :3, 3] = moved.swapaxes(-1, -2), poses[:, 4:]
        return found

    def test_poses(self):
        """LieRE's limits: scores of poses by matrices of 4 x 4, the same where one rigid motion moves all of them; and
        what a query gathers, in its frame."""
        n, random = 9, numpy.random.default_rng(5)
        q, k, v = (rows(1, 2, n, 16, seed=i) for i in (1, 2, 3))
        poses, moves = random.normal(0, 1, (n, 7)), random.normal(0, 1, (1, 7))
        d, g = self.motions(poses), self.motions(moves)[0]
        # The product of two motions, as a quaternion and a place.
        (w, *u), (a, *b) = moves[0, :4], poses[:, :4].T
        u, b = numpy.array(u), numpy.array(b).T
        turned = numpy.c_[w * a - b @ u, w * b + a[:, None] * u + numpy.cross(u, b)]
        moved = numpy.c_[turned, (g @ d)[:, :3, 3]]
        self.near(self.motions(moved), g @ d, 1e-12)
        kernel, out = (pk.compile(POSES, head_dim=16, rows=rows_of, **FAST) for rows_of in ("scores", "out"))
        fours = lambda x: x.astype(float).reshape(1, 2, n, 4, 4)  # noqa: E731  blocks of four channels
        relative = numpy.linalg.inv(d)[:, None] @ d
        expected = numpy.einsum("zhica,ijab,zhjcb->zhij", fours(q), relative, fours(k))
        gathered = numpy.einsum("zhij,ijab,zhjcb->zhica", expected, relative, fours(v)).reshape(1, 2, n, 16)
        for at in (poses, moved):
            q_out, k_out = kernel.encode(q, k, at)
            scores = q_out.astype(float) @ k_out.swapaxes(-1, -2)
            self.near(scores, expected, 2e-5 * numpy.abs(expected).max())
            _, v_out = kernel.encode(q, v, at)
            made = out.encode((scores @ v_out).astype("float32"), positions=at)
            self.near(made, gathered, 2e-5 * numpy.abs(gathered).max())
        # Poses apart from a common motion are other poses; a quaternion of 0 turns nothing.
        other = numpy.c_[poses[:, :4], poses[:, 4:] * 2]
        q_out, k_out = kernel.encode(q, k, other)
        self.assertGreater(numpy.abs(q_out @ k_out.swapaxes(-1, -2) - expected).max(), 0.1)
        still = numpy.zeros((n, 7))
        self.near(kernel.encode(q, k, still)[0], q, 1e-6)
        halved = pk.compile(POSES, head_dim=16, length=2.0, **FAST).encode(q, k, other)
        for one, two in zip(halved, kernel.encode(q, k, poses)):
            self.near(one, two, 1e-6)


if __name__ == "__main__":
    unittest.main()
