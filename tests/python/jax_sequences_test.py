"""pegen_kernels.jax: sequences of different lengths whose rows follow each other (cu_seqlens, k_cu_seqlens)."""
import functools
import unittest

from jax_test import ALL, SLOPES, Case, compile, loss, places, rows  # first: it says how many devices there are

import jax
import numpy
from jax import numpy as jnp

import pegen_kernels as pk
from pegen_kernels.jax import attention, encode


def ints(*values):
    return jnp.array(values, "int32")


def lift(x):
    """Rows [N,H,D] as [1,H,N,D]."""
    return x.swapaxes(0, 1)[None]


class Encode(Case):
    def setUp(self):
        self.rope, self.mixed = compile("rope", head_dim=16), compile("rope_mixed", ALL, heads=4, head_dim=16)
        self.q, self.k, self.at = rows(9, 4, 16), rows(20, 4, 16, seed=2), places(20, 2)
        self.bounds = {"cu_seqlens": ints(0, 2, 2, 9), "k_cu_seqlens": ints(0, 11, 13, 20)}
        self.freqs = rows(2, 4, 8, seed=5)

    def run_mixed(self, q, k, at, freqs, **bounds):
        return encode(self.mixed, q, k, at[:9], k_positions=at, operands=[freqs], **bounds)

    def test_values(self):
        """To the bit as the kernel called on NumPy's arrays; boundaries are arrays that a program does not hold."""
        at = self.at[:, :1]
        f = functools.partial(encode, self.rope, k_positions=at)
        expected = self.rope.encode(self.q, self.k, at[:9], k_positions=at, **self.bounds)
        self.equal(f(self.q, self.k, at[:9], **self.bounds), expected)
        self.equal(jax.jit(f)(self.q, self.k, at[:9], **self.bounds), expected)
        self.equal(encode(self.rope, k=self.k, positions=at[:, 0], k_cu_seqlens=ints(0, 20)), expected[1])
        grid, twice = compile("rope", head_dim=16, grid="9"), rows(18, 4, 16, seed=4)
        for in_place in (False, True):
            turn = jax.jit(functools.partial(encode, grid, in_place=in_place))
            for bounds in (ints(0, 9, 9, 18), ints(0, 0, 9, 18)):
                made = turn(twice, cu_seqlens=bounds)
                self.equal(made, grid.encode(twice, cu_seqlens=bounds))
                self.equal(made[9:], encode(grid, lift(twice[9:]))[0].swapaxes(0, 1))  # the grid begins anew
        self.assertEqual(turn._cache_size(), 1)

    def test_gradients(self):
        """Beside the kernel's own entry, and beside calls that have no boundaries."""
        given = (self.q, self.k, self.at, self.freqs)
        back = jax.jit(jax.grad(lambda *x, **b: loss(self.run_mixed(*x, **b)), (0, 1, 2, 3)))
        made = back(*given, **self.bounds)
        self.close(made, back(*given))
        sides = self.run_mixed(*given, **self.bounds)
        turn = functools.partial(self.run_mixed, at=self.at, freqs=self.freqs, **self.bounds)
        rows_alone = jax.jit(lambda *x: jax.vjp(turn, *given[:2])[1](x))
        expected = self.mixed.encode_backward(*sides, self.at[:9], k_positions=self.at, operands=[self.freqs],
                                              **self.bounds)  # fmt: skip
        self.equal(rows_alone(*sides), expected)
        half = [x.astype("bfloat16") for x in given[:2]]
        self.close(back(*half, *given[2:], **self.bounds)[2:], back(*half, *given[2:])[2:])

    def test_samples(self):
        """Along vmap boundaries are of all samples, or of each."""
        many, bounds = rows(3, 9, 4, 16), jnp.stack([ints(0, 2, 9), ints(0, 9, 9), ints(0, 1, 9)])
        grid, at = compile("rope", head_dim=16, grid="9"), self.at[:9, :1]
        f = lambda x, b: encode(self.rope, x, positions=at, cu_seqlens=b)  # noqa: E731
        self.equal(jax.jit(jax.vmap(f, (0, None)))(many, bounds[0]), jnp.stack([f(x, bounds[0]) for x in many]))
        self.equal(jax.vmap(f)(many, bounds), jnp.stack([f(x, b) for x, b in zip(many, bounds)]))
        f = lambda x, b: encode(grid, x, cu_seqlens=b)  # noqa: E731
        bounds = jnp.stack([ints(0, 0, 9), ints(0, 9, 9), ints(0, 9, 9)])
        self.equal(jax.vmap(f)(many, bounds), jnp.stack([f(x, b) for x, b in zip(many, bounds)]))


class Attention(Case):
    def setUp(self):
        self.kernel, (h, k_h) = compile(SLOPES, heads=4), (4, 2)
        q, k, v = rows(12, h, 64), rows(20, k_h, 64, seed=2), rows(20, k_h, 64, seed=3)
        self.given = (q, k, v, places(12, 2), places(20, 2, seed=4), rows(4, seed=5), rows(2, seed=6))
        self.bounds = {"cu_seqlens": ints(0, 5, 5, 12), "k_cu_seqlens": ints(0, 9, 11, 20)}

    def attend(self, q, k, v, at, k_at, slope, gain, **options):
        operands = {"slope": slope, "gain": gain}
        return attention(self.kernel, q, k, v, at, k_positions=k_at, operands=operands, causal=True, **options)

    def loss(self, *given, **options):
        return loss(self.attend(*given, with_lse=True, **options))

    def apart(self, *given):
        """The loss of calls of one sequence each; the second has no queries."""
        pieces = []
        for begin, end, k_begin, k_end in ((0, 5, 0, 9), (5, 12, 11, 20)):
            q, k = slice(begin, end), slice(k_begin, k_end)
            one = [lift(x[own]) for x, own in zip(given[:3], (q, k, k))]
            out, lse = self.attend(*one, given[3][q], given[4][k], *given[5:], with_lse=True)
            pieces.append((out[0].swapaxes(0, 1), lse[0].T))
        return loss([jnp.concatenate(x) for x in zip(*pieces)])

    def test_values(self):
        q, k, v, at, k_at, *operands = self.given
        expected = self.kernel.attention(q, k, v, at, k_positions=k_at, operands=operands, causal=True, **self.bounds)
        self.equal(jax.jit(self.attend)(*self.given, **self.bounds), expected)
        self.equal(self.attend(*self.given, layout="BNHD", **self.bounds), expected)
        out, lse = self.attend(*self.given, with_lse=True, **self.bounds)
        self.equal(out, expected)
        self.assertEqual(lse.shape, (12, 4))
        shared = {"cu_seqlens": ints(0, 5, 12)}  # of keys, too
        one = self.kernel.attention(q, k[:12], v[:12], at, operands=operands, **shared)
        self.equal(attention(self.kernel, q, k[:12], v[:12], at, operands=operands, **shared), one)

    def test_gradients(self):
        wanted = tuple(range(7))
        back = jax.jit(jax.grad(self.loss, wanted))
        made = back(*self.given, **self.bounds)
        self.close(made, jax.grad(self.apart, wanted)(*self.given))
        self.equal(made, back(*self.given, **self.bounds))
        others = {"cu_seqlens": ints(0, 1, 2, 12), "k_cu_seqlens": ints(0, 3, 6, 20)}  # of another workspace
        alone = jax.grad(self.loss, wanted)(*self.given, **others)
        self.equal(back(*self.given, **others), alone)
        self.assertEqual(back._cache_size(), 1)

    def test_samples(self):
        """Gradients of samples with boundaries of their own."""
        many = [jnp.stack([x, x[::-1]]) for x in self.given[:3]]
        bounds = {"cu_seqlens": jnp.stack([ints(0, 5, 12), ints(0, 1, 12)]),
                  "k_cu_seqlens": jnp.stack([ints(0, 9, 20), ints(0, 12, 20)])}  # fmt: skip

        def f(q, k, v, bounds):
            return jax.grad(self.loss, (0, 1, 2, 5, 6))(q, k, v, *self.given[3:], **bounds)

        made = jax.jit(jax.vmap(f))(*many, bounds)
        for i in range(2):
            one = {name: x[i] for name, x in bounds.items()}
            self.close([x[i] for x in made], f(*(x[i] for x in many), one))

    def test_threads(self):
        """XLA's threads share a call, and no bit depends on it."""
        kernel = compile("alibi", head_dim=64, heads=4)
        q, k, v = (rows(1500, 4, 64, seed=i) for i in range(3))
        at, bounds = jnp.arange(1500.0), ints(0, 700, 701, 1500)
        out = jax.jit(functools.partial(attention, kernel))(q, k, v, at, cu_seqlens=bounds)
        self.equal(out, kernel.attention(q, k, v, at[:, None], cu_seqlens=bounds))

    def test_shards(self):
        """Every device has sequences of its own; what they learn is summed."""
        place = jax.sharding.PartitionSpec
        mesh = jax.sharding.Mesh(numpy.array(jax.devices()[:2]), ("x",))
        at, bounds = self.given[3], jnp.stack([ints(0, 5, 12), ints(0, 0, 12)])
        many = [jnp.concatenate([x[:12], x[:12][::-1]]) for x in self.given[:3]]

        def f(q, k, v, bounds, slope):
            operands = {"slope": slope, "gain": self.given[6]}
            out = attention(self.kernel, q, k, v, at, operands=operands, cu_seqlens=bounds[0])
            return out, jax.grad(lambda s: (attention(self.kernel, q, k, v, at, operands=operands | {"slope": s},
                                                      cu_seqlens=bounds[0]) ** 2).sum())(slope)  # fmt: skip

        cut = jax.jit(jax.shard_map(f, mesh=mesh, in_specs=(place("x"),) * 4 + (place(),),
                                    out_specs=(place("x"), place())))  # fmt: skip
        out, gradient = cut(*many, bounds, self.given[5])
        apart = [f(*(x[12 * i :][:12] for x in many), bounds[i:], self.given[5]) for i in range(2)]
        self.equal(out, jnp.concatenate([x[0] for x in apart]))
        self.close(gradient, apart[0][1] + apart[1][1])


class Refused(Case):
    def setUp(self):
        self.kernel, self.alibi = compile("rope", head_dim=16), compile("alibi", heads=4)
        self.x, self.at = rows(9, 4, 16), places(9, 1)

    def test_traced(self):
        x, at, good = self.x, self.at, ints(0, 4, 9)
        f = functools.partial(encode, self.kernel, positions=at)
        for words, call in [
            ("^cu_seqlens is float32", lambda: f(x, cu_seqlens=jnp.ones(3))),
            ("^cu_seqlens is int64", lambda: f(x, cu_seqlens=numpy.array([0, 9]))),
            (r"^cu_seqlens is int32 \[1, 3\]; expected int32 \[sequences", lambda: f(x, cu_seqlens=good[None])),
            ("^k_cu_seqlens is int32 ", lambda: f(k=x, k_cu_seqlens=good[:0])),
            ("^cu_seqlens is a str; expected an array", lambda: f(x, cu_seqlens="3")),
            ("^k_cu_seqlens: given without", lambda: f(x, x, k_cu_seqlens=good)),
            ("^k_cu_seqlens is of 1 sequences, and", lambda: f(x, x, cu_seqlens=good, k_cu_seqlens=good[1:])),
            ("^q has 4 dimensions; expected .tokens, heads", lambda: f(lift(x), cu_seqlens=good)),
            ("^positions are of 8 tokens; expected 9", lambda: encode(
                self.kernel, x, positions=at[:8], cu_seqlens=good)),
            ("^q has 8 channels", lambda: f(x[..., :8], cu_seqlens=good)),
            ("^k has 4 dimensions; expected", lambda: attention(
                self.alibi, *(rows(9, 4, 64), rows(1, 4, 9, 64), rows(9, 4, 64)), at, cu_seqlens=good)),
        ]:  # fmt: skip
            with self.subTest(words):
                self.assertRaisesRegex(pk.ArgumentError, words, call)
                self.assertRaisesRegex(pk.ArgumentError, words, jax.jit(call))

    def test_values(self):
        """What boundaries hold is known when a program runs."""
        f = jax.jit(lambda b, k_b: encode(self.kernel, self.x, self.x, self.at, cu_seqlens=b, k_cu_seqlens=k_b))
        good = ints(0, 4, 9)
        for wrong in (ints(1, 4, 9), ints(0, 4, 8), ints(0, 10, 9), ints(0, -1, 9), ints(0, 1 << 30, 9)):
            for given in ((wrong, good), (good, wrong)):
                with self.subTest(given), self.assertRaisesRegex(
                    Exception, "rope.encode: cu_seqlens or k_cu_seqlens does"
                ):
                    jax.block_until_ready(f(*given))
        skips = compile("geope3d", grid=(1, 2, 3), skip_tokens=1)
        with self.assertRaisesRegex(Exception, "geope3d.encode: cu_seqlens is for"):
            at = places(14, 3)
            jax.block_until_ready(encode(skips, rows(14, 3, 64), positions=at, cu_seqlens=ints(0, 7, 14)))
        kernel, (q, at) = self.alibi, (rows(9, 4, 64), self.at)
        wrong = [jax.jit(functools.partial(attention, kernel)), jax.jit(jax.grad(
            lambda q, *x, **b: attention(kernel, q, *x, **b).sum()))]  # fmt: skip
        for call in wrong:
            with self.assertRaisesRegex(Exception, "alibi.attention: cu_seqlens or k_cu_seqlens does"):
                jax.block_until_ready(call(q, q, q, at, cu_seqlens=ints(0, 4, 10)))
        self.equal(f(good, good), self.kernel.encode(self.x, self.x, self.at, cu_seqlens=good))

    def test_strangers(self):
        """Programs that this package does not write are refused by the handler."""
        from pegen_kernels.jax.calls import number_of

        x, at, good = self.x, self.at, ints(0, 4, 9)
        encode(self.kernel, x, positions=at)

        def call(arguments=(0, 6, 19), results=(3,), given=(x, at, good), made=x, entry=0):
            numbers = {"kernel": number_of(self.kernel), "entry": entry, "layout": 0, "flags": 0, "causal": 0}
            out = jax.ffi.ffi_call("pegen_kernels", [jax.ShapeDtypeStruct(made.shape, made.dtype)] * len(results))(
                *given, scale=numpy.float64(0), arguments=numpy.array(arguments, "int64"),
                results=numpy.array(results, "int64"), **{k: numpy.int64(x) for k, x in numbers.items()},
            )  # fmt: skip
            return out[0].block_until_ready()

        expected = self.kernel.encode(x, positions=at, cu_seqlens=good)
        self.equal(call(), expected)
        for words, choices in [
            ("a role that it cannot have", {"results": (19,)}),
            ("a role that it cannot have", {"arguments": (0, 19, 19), "given": (x, good, good)}),
            ("a role that there is not", {"arguments": (0, 6, 21)}),
            ("too few", {"given": (x[None], at[None], good[0])}),
            ("rope.encode: cu_seqlens and", {"given": (x, at, good.astype("float32"))}),
            ("rope.encode: cu_seqlens and", {"given": (x, at, good[0])}),
            ("rope.encode: cu_seqlens and", {"given": (x, at, good[None])}),
            ("rope.encode: cu_seqlens and", {"given": (x, at, good[:0])}),
            ("rope.encode: cu_seqlens and", {"arguments": (0, 6, 20)}),
            ("sizes in front", {"given": (lift(x), at, good), "made": lift(x)}),
            ("rope.encode: ", {"made": lift(x)}),
            ("rope.encode: ", {"given": (x, at[:8], good)}),
            ("rope.encode_backward: cu_seqlens or k_cu_seqlens does", {
                "arguments": (8, 6, 19), "results": (10,), "given": (x, at, good + 1), "entry": 2}),
        ]:  # fmt: skip
            with self.subTest(words, choices=list(choices)), self.assertRaisesRegex(Exception, words):
                call(**choices)
        self.equal(call(), expected)

    def test_workspace(self):
        """A program may bring one; one that is too small for what boundaries ask for is refused."""
        kernel, q, at = compile("rope_mixed", head_dim=16, heads=4), self.x, places(9, 2)
        freqs = jnp.ones(kernel.operands[0].shape, "float32")
        encode(kernel, q, positions=at, operands=[freqs])
        from pegen_kernels.jax.calls import number_of

        def call(*sizes):
            made = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (q, freqs, *(numpy.empty(n, "u1") for n in sizes))]
            numbers = {"kernel": number_of(kernel), "entry": 2, "layout": 0, "flags": 2, "causal": 0}
            return jax.block_until_ready(jax.ffi.ffi_call("pegen_kernels", made)(
                q, q, at, freqs, ints(0, 4, 9), scale=numpy.float64(0),
                arguments=numpy.array((8, 0, 6, 256, 19), "int64"),
                results=numpy.array((10, 768, 14)[: len(made)], "int64"),
                **{k: numpy.int64(x) for k, x in numbers.items()}))[:2]  # fmt: skip

        self.equal(call(1 << 20), call())
        for size in (0, 8):
            with self.subTest(size), self.assertRaisesRegex(Exception, "workspace"):
                call(size)


if __name__ == "__main__":
    unittest.main()
