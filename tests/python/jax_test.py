"""pegen_kernels.jax: what XLA computes through kernels, under jit, vmap, shard_map and grad, and what is refused."""
import os

# XLA's own code need not be fast here, and it is soon made.
os.environ["XLA_FLAGS"] = (
    "--xla_force_host_platform_device_count=4 --xla_backend_optimization_level=0"
    " --xla_llvm_disable_expensive_passes=true"
)
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import functools
import pathlib
import shutil
import subprocess
import time
import unittest

import jax
import numpy
from jax import numpy as jnp

import pegen_kernels as pk
from pegen_kernels.jax import attention, encode

SLOPES = str(pathlib.Path(__file__).parents[1] / "attention" / "slopes.lua")
ALL = ("float32", "bfloat16", "float16")


@functools.lru_cache(None)
def compile(spec, dtypes="float32", **options):
    return pk.compile(spec, targets="native", dtypes=dtypes, **options)


def rows(*shape, seed=1, dtype="float32"):
    return jnp.asarray(numpy.random.default_rng(seed).standard_normal(shape), dtype)


def places(*shape, seed=3):
    return jnp.asarray(numpy.random.default_rng(seed).uniform(-3, 3, shape), "float32")


def mixed(x, positions, freqs):
    """RoPE-Mixed of x [B,H,N,D] in JAX; positions [N,P] or [B,N,P], freqs [P,H,D/2]."""
    positions = positions if positions.ndim == 3 else positions[None]
    angle = jnp.einsum("bnp,phd->bhnd", positions, freqs)
    even, odd = x[..., 0::2], x[..., 1::2]
    out = jnp.stack([jnp.cos(angle) * even - jnp.sin(angle) * odd, jnp.sin(angle) * even + jnp.cos(angle) * odd], -1)
    return out.reshape(x.shape)


def loss(outputs):
    """With gradients that are neither constant nor zero."""
    outputs = [x.astype("float32") for x in outputs]
    return sum((x * jnp.cos(jnp.arange(x.size, dtype=x.dtype).reshape(x.shape)) + x**2 / 2).sum() for x in outputs)


class Case(unittest.TestCase):
    def equal(self, a, b):
        a, b = jax.tree.leaves(a), jax.tree.leaves(b)
        self.assertEqual(len(a), len(b))
        for x, y in zip(a, b):
            self.assertTrue(numpy.array_equal(numpy.asarray(x), numpy.asarray(y)))

    def close(self, a, b, tolerance=2e-5):
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
            x, y = numpy.asarray(x), numpy.asarray(y)
            self.assertEqual(x.shape, y.shape)
            self.assertLess(numpy.abs(x - y).max(), tolerance * max(1, numpy.abs(y).max()))


class Encode(Case):
    def test_values(self):
        """With jit and without, rows are the same to the bit as the kernel's on NumPy's arrays."""
        rope, care = compile("rope", ALL, head_dim=16), compile("care", ALL, head_dim=64, heads=4)
        turned = {info.name: rows(*info.shape, seed=i) for i, info in enumerate(care.operands)}
        for kernel, dtype, shape, given in [
            (rope, "float32", (2, 4, 7, 16), {"positions": places(7, 1)}),
            (rope, "bfloat16", (2, 4, 7, 16), {"positions": places(2, 7, 1)}),
            (rope, "float16", (2, 4, 7, 16), {"positions": jnp.arange(7)[:, None]}),
            (rope, "float32", (1, 3, 4, 16), {"positions": places(4, 1), "k_positions": places(4, 1, seed=9)}),
            (care, "float32", (2, 4, 7, 64), {"positions": places(7, 2), "operands": turned}),
            (care, "bfloat16", (2, 4, 7, 64), {"positions": places(7, 2), "operands": list(turned.values())}),
            (compile("geope3d", grid=(1, 2, 3), skip_tokens=1), "float32", (2, 3, 7, 64), {}),
        ]:
            q, k = rows(*shape, dtype=dtype), rows(*shape, seed=2, dtype=dtype)
            with self.subTest(kernel=kernel.name, dtype=dtype):
                expected = kernel.encode(q, k, **given)
                self.equal(encode(kernel, q, k, **given), expected)
                self.equal(jax.jit(lambda q, k, given: encode(kernel, q, k, **given))(q, k, given), expected)
                self.equal(jax.jit(lambda q, given: encode(kernel, q, **given))(q, given), expected[0])
                self.equal(encode(kernel, k=k, **given), expected[1])
                swapped = [x.swapaxes(1, 2) for x in encode(
                    kernel, q.swapaxes(1, 2), k.swapaxes(1, 2), layout="BNHD", **given)]  # fmt: skip
                self.equal(swapped, expected)

    def test_columns_and_inputs(self):
        pape = compile("pape", heads=2)
        given = {"operands": [rows(*info.shape, seed=i) for i, info in enumerate(pape.operands)],
                 "inputs": [rows(*((1, 2, 5) + ((i.size,) if i.size else ())), seed=7) for i in pape.inputs],
                 "positions": places(5, 2)}  # fmt: skip
        q, k = rows(1, 2, 5, 64), rows(1, 2, 5, 64, seed=2)
        if "encode" in pape.entries:
            self.equal(jax.jit(lambda q, k: encode(pape, q, k, **given))(q, k), pape.encode(q, k, **given))

    def test_threads(self):
        """XLA's threads share a call, and no bit depends on it."""
        kernel = compile("rope_mixed", heads=8, head_dim=64)
        q, positions, freqs = rows(4, 8, 512, 64), places(512, 2), rows(2, 8, 32)
        f = jax.jit(lambda q: encode(kernel, q, positions=positions, operands=[freqs]))
        self.equal(f(q), kernel.encode(q, positions=positions, operands=[freqs]))
        back = jax.jit(jax.grad(lambda q, freqs: loss([encode(kernel, q, positions=positions, operands=[freqs])]), 1))
        gradients = [back(q, freqs) for _ in range(3)]
        self.close(gradients[0], jax.grad(lambda freqs: loss([mixed(q, positions, freqs)]))(freqs), 1e-4)
        self.equal(gradients[1], gradients[0])
        self.equal(gradients[2], gradients[0])

    def test_memory(self):
        """What JAX calls immutable stays as it is, donated or not, in place or not."""
        kernel, positions = compile("rope", head_dim=16), places(7, 1)
        q = rows(2, 4, 7, 16)
        before, expected = numpy.array(q), kernel.encode(q, positions=positions)
        for in_place in (False, True):
            f = lambda q: encode(kernel, q, positions=positions, in_place=in_place)  # noqa: B023,E731
            self.equal(f(q), expected)
            self.equal(jax.jit(f)(q), expected)
            self.equal(jax.jit(lambda q: (f(q), q + 1))(q), (expected, before + 1))  # noqa: B023
            self.equal(jax.jit(lambda q: f(q + 1))(q), kernel.encode(before + 1, positions=positions))  # noqa: B023
            gone = jnp.array(before)
            self.equal(jax.jit(f, donate_argnums=0)(gone), expected)
            self.assertTrue(not in_place or gone.is_deleted())
            self.equal(jax.jit(jax.vmap(f))(jnp.stack([q, q + 1]))[0], expected)
            self.equal(q, before)
        text = jax.jit(lambda q: encode(kernel, q, positions=positions, in_place=True)).lower(q).as_text()
        self.assertIn("output_operand_aliases", text.replace("output_operand_alias<", "output_operand_aliases<"))

    def test_cost(self):
        """At most 5 us of a call in a jitted graph, the kernel's own work on a row of 64 channels included."""
        kernel, q, positions = compile("rope", head_dim=64), rows(1, 1, 1, 64), places(1, 1)

        def seconds(n):
            f = jax.jit(lambda q: functools.reduce(lambda x, _: encode(kernel, x, positions=positions), range(n), q))
            f(q).block_until_ready()
            times = []
            for _ in range(30):
                start = time.perf_counter()
                f(q).block_until_ready()
                times.append(time.perf_counter() - start)
            return min(times)

        self.assertLess((seconds(201) - seconds(1)) / 200, 5e-6)


class Gradients(Case):
    def setUp(self):
        self.kernel = compile("rope_mixed", ALL, heads=4, head_dim=16)
        self.q, self.k = rows(2, 4, 7, 16), rows(2, 4, 7, 16, seed=2)
        self.positions, self.freqs = places(7, 2), rows(2, 4, 8, seed=5)

    def both(self, q, k, positions, freqs):
        return encode(self.kernel, q, k, positions, operands=[freqs])

    def reference(self, q, k, positions, freqs):
        return mixed(q, positions, freqs), mixed(k, positions, freqs)

    def test_all(self):
        given = (self.q, self.k, self.positions, self.freqs)
        for wanted in [(0,), (1,), (0, 1), (0, 3), (2,), (3,), (0, 1, 2, 3)]:
            got = jax.jit(jax.grad(lambda *x: loss(self.both(*x)), wanted))(*given)
            self.close(got, jax.grad(lambda *x: loss(self.reference(*x)), wanted)(*given), 1e-4)
        one = jax.grad(lambda q: loss(self.both(q, *given[1:])[:1]))(self.q)
        self.close(one, jax.grad(lambda q: loss(self.reference(q, *given[1:])[:1]))(self.q))
        batches = (self.q, self.k, places(2, 7, 2), self.freqs)
        got = jax.grad(lambda *x: loss(self.both(*x)), (2, 3))(*batches)
        self.close(got, jax.grad(lambda *x: loss(self.reference(*x)), (2, 3))(*batches), 1e-4)

    def test_layout_and_types(self):
        swap = lambda x: x.swapaxes(1, 2)  # noqa: E731

        def f(q, freqs, in_place=False):
            return loss([swap(encode(self.kernel, swap(q), positions=self.positions, operands=[freqs], layout="BNHD",
                                     in_place=in_place))])  # fmt: skip

        expected = jax.grad(lambda q, freqs: loss([mixed(q, self.positions, freqs)]), (0, 1))(self.q, self.freqs)
        self.close(jax.grad(f, (0, 1))(self.q, self.freqs), expected, 1e-4)
        self.close(jax.jit(jax.grad(functools.partial(f, in_place=True), (0, 1)))(self.q, self.freqs), expected, 1e-4)
        small = self.q.astype("bfloat16")
        got = jax.grad(f, (0, 1))(small, self.freqs)
        self.assertEqual([x.dtype.name for x in got], ["bfloat16", "float32"])
        expected = jax.grad(lambda q, freqs: loss([mixed(q, self.positions, freqs)]), (0, 1))(
            small.astype("float32"), self.freqs
        )
        self.close([x.astype("float32") for x in got], expected, 0.03)

    def test_integer_positions(self):
        kernel, at = compile("rope", head_dim=16), jnp.arange(7)[:, None]
        got = jax.grad(lambda q: loss([encode(kernel, q, positions=at)]))(self.q)
        self.close(got, jax.grad(lambda q: loss([encode(kernel, q, positions=at.astype("float32"))]))(self.q))
        with self.assertRaisesRegex(TypeError, "int32"):
            jax.grad(lambda at: loss([encode(kernel, self.q, positions=at)]))(at)

    def test_second(self):
        """Rows have second derivatives; those of anything else are refused."""
        f = lambda q, *rest: (self.both(q, *rest)[0] ** 3).sum()  # noqa: E731
        g = lambda q, *rest: (self.reference(q, *rest)[0] ** 3).sum()  # noqa: E731
        twice = lambda f: jax.grad(lambda q, *rest: (jax.grad(f)(q, *rest) ** 2).sum())  # noqa: E731
        given = (self.q, self.k, self.positions, self.freqs)
        self.close(jax.jit(twice(f))(*given), twice(g)(*given), 1e-4)
        with self.assertRaisesRegex(pk.ArgumentError, "gradients of gradients"):
            jax.grad(lambda freqs: jax.grad(f, 3)(*given[:3], freqs).sum())(self.freqs)

    def test_refused(self):
        liere = compile("liere", head_dim=16, heads=2)
        q, positions = rows(1, 2, 3, 16), places(3, 2)
        operands = [rows(*info.shape) for info in liere.operands]
        if "encode_backward" not in liere.entries:
            with self.assertRaisesRegex(pk.ArgumentError, "require gradients, which liere does not have"):
                jax.grad(lambda q: encode(liere, q, positions=positions, operands=operands).sum())(q)
        if "encode_backward_finish" not in liere.entries:
            with self.assertRaisesRegex(pk.ArgumentError, "^operand '.*' requires a gradient"):
                jax.grad(lambda x: encode(liere, q, positions=positions, operands=x).sum())(operands)


class ForwardMode(Case):
    """Tangents of rows are encoded rows, and others are refused by name. Reverse mode goes through both."""

    def setUp(self):
        self.kernel = compile("rope_mixed", ALL, heads=4, head_dim=16)
        self.q, self.k, self.to = rows(2, 4, 7, 16), rows(2, 4, 7, 16, seed=2), rows(2, 4, 7, 16, seed=8)
        self.positions, self.freqs = places(7, 2), rows(2, 4, 8, seed=5)

    def f(self, q, k=None, positions=None, freqs=None, **options):
        positions = self.positions if positions is None else positions
        return encode(self.kernel, q, k, positions, operands=[self.freqs if freqs is None else freqs], **options)

    def test_rows(self):
        """To the bit the encoded tangents, by every way to ask for them."""
        swapped = lambda q: self.f(q.swapaxes(1, 2), layout="BNHD")  # noqa: E731
        mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
        by, one = jax.sharding.PartitionSpec("data"), jax.sharding.PartitionSpec()
        for name, f, x in [
            ("one", self.f, self.q), ("key alone", lambda q: self.f(self.k, q)[1], self.q),
            ("both", lambda q: jnp.stack(self.f(q, 2 * q)), self.q),
            ("in place", lambda q: self.f(q, in_place=True), self.q),
            ("swapped", swapped, self.q), ("flat", lambda q: self.f(q), self.q[0].swapaxes(0, 1)),
            ("small", self.f, self.q.astype("bfloat16")), ("vmap", jax.vmap(lambda q: self.f(q[None])[0]), self.q),
            ("remat", jax.checkpoint(self.f), self.q),
            ("scan", lambda q: jax.lax.scan(lambda x, _: (self.f(x), None), q, None, 3)[0], self.q),
            ("gradient", lambda q: jax.grad(lambda q: (self.f(q) ** 2).sum())(q), self.q),
            ("shards", jax.shard_map(lambda q, at, freqs: self.f(q, None, at, freqs), mesh=mesh,
                                     in_specs=(by, one, one), out_specs=by), self.q),
        ]:  # fmt: skip
            if name == "shards":
                f = functools.partial(lambda f, q: f(q, self.positions, self.freqs), f)
            to = jnp.asarray(self.to.ravel()[: x.size].reshape(x.shape), x.dtype)
            with self.subTest(name):
                for way in (f, jax.jit(f)):
                    self.equal(jax.jvp(way, (x,), (to,)), (f(x), f(to)))
                    self.equal(jax.linearize(way, x)[1](to), f(to))
                    self.equal(jax.jit(lambda x, to: jax.jvp(way, (x,), (to,)))(x, to), (f(x), f(to)))  # noqa: B023
                    turned = jax.linear_transpose(lambda to: jax.jvp(way, (x,), (to,))[1], x)(f(to))  # noqa: B023
                    self.equal(turned, jax.vjp(f, x)[1](f(to)))

    def test_jacobians(self):
        q = self.q[:1, :, :2]
        f = lambda q: self.f(q, positions=self.positions[:2])  # noqa: E731
        self.equal(jax.jacfwd(f)(q), jax.jacrev(f)(q))
        curved = jax.hessian(lambda q: (f(q) ** 2).sum())(q).reshape(128, 128)
        self.close(curved, 2 * jnp.eye(128), 1e-5)
        third = jax.jacfwd(jax.jacfwd(jax.grad(lambda q: (f(q) ** 3).sum())))(q)
        self.close(third, jax.jacrev(jax.jacrev(jax.jacrev(lambda q: (f(q) ** 3).sum())))(q), 1e-5)

    def test_columns(self):
        """Those that are appended do not depend on rows, and matrices of channels go along."""
        for name, options in (("pape", {"heads": 2}), ("prope", {})):
            kernel = compile(name, **options)
            shapes = [(1, 2, 5, info.size)[: 3 + (info.size > 0)] for info in kernel.inputs]
            given = {"operands": [rows(*info.shape, seed=i) for i, info in enumerate(kernel.operands)],
                     "inputs": [rows(*shape, seed=7) for shape in shapes],
                     "positions": places(5, len(kernel.axes)) if len(kernel.axes) else None}  # fmt: skip
            f = lambda q: jnp.stack(encode(kernel, q, 3 * q, **given))  # noqa: B023,E731
            q, to = rows(1, 2, 5, kernel.head_dim), rows(1, 2, 5, kernel.head_dim, seed=2)
            with self.subTest(name):
                found = jax.jit(lambda q, to: jax.jvp(f, (q,), (to,))[1])(q, to)  # noqa: B023
                self.close(found, f(to) - f(0 * to))
                back = jax.linear_transpose(jax.linearize(f, q)[1], q)
                self.close(back(found), jax.vjp(f, q)[1](found))

    def test_refused(self):
        """Tangents of what is no row, where they are computed; gradients through them are not."""
        given = (self.q, self.positions, self.freqs)
        for i in (1, 2):
            f = lambda x: self.f(*given[:1], None, *given[1:i], x, *given[i + 1 :])  # noqa: B023,E731
            linear = jax.linearize(f, given[i])[1]
            for call in (
                lambda: jax.jvp(f, (given[i],), (given[i],)), lambda: jax.jacfwd(f)(given[i]),  # noqa: B023
                lambda: jax.jvp(jax.jit(f), (given[i],), (given[i],)), lambda: linear(given[i]),  # noqa: B023
                lambda: jax.jit(lambda x: jax.jvp(f, (x,), (x,)))(given[i]),  # noqa: B023
                lambda: jax.vmap(lambda x: jax.jvp(f, (x,), (x,)))(given[i][None]),  # noqa: B023
                lambda: jax.jvp(lambda x: self.f(x[0], None, *x[1:]), (given,), (given,)),
            ):  # fmt: skip
                with self.subTest(i), self.assertRaisesRegex(
                    pk.ArgumentError, "^encode of rope_mixed at positions, operands or inputs has no forward-mode"
                    " derivatives .*; expected reverse mode"
                ):  # fmt: skip
                    call()
            self.equal(jax.linear_transpose(linear, given[i])(self.to), jax.vjp(f, given[i])[1](self.to))
            for outer in (jax.jacfwd, jax.jacrev):
                with self.subTest(outer=outer), self.assertRaisesRegex(
                    pk.ArgumentError, "there for q and k alone|at positions, operands or inputs has no forward"
                ):
                    outer(lambda x: jax.jvp(lambda q: self.f(q, None, *given[1:i], x, *given[i + 1 :]),  # noqa: B023
                                            (self.q,), (self.q,))[1].sum())(given[i])  # fmt: skip


class Batches(Case):
    def setUp(self):
        self.kernel = compile("rope_mixed", heads=4, head_dim=16)
        self.q, self.positions, self.freqs = rows(3, 2, 4, 7, 16), places(3, 7, 2), rows(3, 2, 4, 8, seed=5)

    def f(self, q, positions, freqs):
        return encode(self.kernel, q, positions=positions, operands=[freqs])

    def test_vmap(self):
        """Along rows, positions, operands, and all that can be of them."""
        given = (self.q, self.positions, self.freqs)
        for axes in [(0, None, None), (0, 0, None), (0, 0, 0), (None, 0, None), (0, None, 0), (None, None, 0)]:
            at = [x if axis == 0 else x[0] for x, axis in zip(given, axes)]
            expected = [self.f(*(x[i] if axis == 0 else x for x, axis in zip(at, axes))) for i in range(3)]
            with self.subTest(axes):
                self.equal(jax.jit(jax.vmap(self.f, axes))(*at), jnp.stack(expected))
        batches = places(3, 2, 7, 2)
        expected = jnp.stack([self.f(self.q[i], batches[i], self.freqs[0]) for i in range(3)])
        self.equal(jax.vmap(self.f, (0, 0, None))(self.q, batches, self.freqs[0]), expected)
        twice = jax.vmap(jax.vmap(self.f, (0, None, None)), (0, None, 0))
        q = jnp.stack([self.q, self.q + 1, self.q * 2])
        expected = jnp.stack([
            jnp.stack([self.f(q[i, j], self.positions[0], self.freqs[i]) for j in range(3)]) for i in range(3)
        ])  # fmt: skip
        self.equal(twice(q, self.positions[0], self.freqs), expected)
        last = jax.vmap(self.f, (4, None, None), 4)(jnp.moveaxis(self.q, 0, 4), self.positions[0], self.freqs[0])
        self.equal(
            last, jnp.moveaxis(jax.vmap(self.f, (0, None, None))(self.q, self.positions[0], self.freqs[0]), 0, 4)
        )

    def test_gradients_of_samples(self):
        """One for each sample, of what all share, too."""
        one = jax.grad(lambda freqs, q, positions: loss([self.f(q, positions, freqs)]), (0, 1))
        got = jax.jit(jax.vmap(one, (None, 0, 0)))(self.freqs[0], self.q, self.positions)
        expected = [one(self.freqs[0], self.q[i], self.positions[i]) for i in range(3)]
        self.equal(got, jax.tree.map(lambda *x: jnp.stack(x), *expected))
        reference = jax.grad(lambda freqs, q, positions: loss([mixed(q, positions, freqs)]), (0, 1))
        self.close(got, jax.vmap(reference, (None, 0, 0))(self.freqs[0], self.q, self.positions), 1e-4)


class Shards(Case):
    def test_shard_map(self):
        """Batches, and tokens with their positions, over four devices: values to the bit, gradients of what is on all
        devices summed over them."""
        kernel = compile("rope_mixed", heads=4, head_dim=16)
        mesh = jax.make_mesh((2, 2), ("data", "tokens"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
        P = jax.sharding.PartitionSpec
        q, positions, freqs = rows(4, 4, 8, 16), places(8, 2), rows(2, 4, 8, seed=5)

        def f(q, positions, freqs):
            return encode(kernel, q, positions=positions, operands=[freqs])

        by, at = P("data", None, "tokens"), P("tokens")
        sharded = jax.jit(jax.shard_map(f, mesh=mesh, in_specs=(by, at, P()), out_specs=by))
        self.equal(sharded(q, positions, freqs), f(q, positions, freqs))
        got = jax.grad(lambda *x: loss([sharded(*x)]), (0, 1, 2))(q, positions, freqs)
        expected = jax.grad(lambda *x: loss([f(*x)]), (0, 1, 2))(q, positions, freqs)
        self.equal(got[0], expected[0])
        self.close(got, expected, 1e-5)

    def test_heads(self):
        """Where operands differ from head to head, every device has those of its heads, and a kernel for as many."""
        whole, half = (compile("rope_mixed", heads=heads, head_dim=16) for heads in (4, 2))
        mesh = jax.make_mesh((2,), ("heads",), axis_types=(jax.sharding.AxisType.Auto,))
        P = jax.sharding.PartitionSpec
        q, positions, freqs = rows(2, 4, 8, 16), places(8, 2), rows(2, 4, 8, seed=5)
        sharded = jax.shard_map(
            lambda q, freqs: encode(half, q, positions=positions, operands=[freqs]), mesh=mesh,
            in_specs=(P(None, "heads"), P(None, "heads")), out_specs=P(None, "heads"))  # fmt: skip
        self.equal(jax.jit(sharded)(q, freqs), encode(whole, q, positions=positions, operands=[freqs]))


class Attention(Case):
    def test_values(self):
        alibi, linear = compile("alibi", heads=4), compile("lingeope", head_dim=48)
        for kernel, axes in ((alibi, 1), (linear, len(linear.axes))):
            q, k, v = (rows(2, h, 9, kernel.head_dim, seed=i) for i, h in enumerate((4, 2, 2)))
            positions = places(9, axes)
            for causal in (False, True):
                f = lambda q, k, v: attention(kernel, q, k, v, positions, causal=causal)  # noqa: B023,E731
                expected = kernel.attention(q, k, v, positions, causal=causal)
                self.equal(jax.jit(f)(q, k, v), expected)
                self.equal(jax.vmap(f)(*(jnp.stack([x, x]) for x in (q, k, v)))[1], expected)
            swap = lambda x: x.swapaxes(1, 2)  # noqa: E731
            out = attention(kernel, swap(q), swap(k), swap(v), positions, layout="BNHD", scale=0.5)
            self.equal(swap(out), kernel.attention(q, k, v, positions, scale=0.5))
            out, lse = attention(kernel, swap(q), swap(k), swap(v), positions, layout="BNHD", with_lse=True)
            self.equal((swap(out), lse), attention(kernel, q, k, v, positions, with_lse=True))

    def test_of_one_batch(self):
        """Rows [N,H,D], and positions [N] of one axis."""
        alibi, rope = compile("alibi", heads=4), compile("rope", head_dim=16)
        lift = lambda x: x.swapaxes(0, 1)[None]  # noqa: E731
        q, k, v = (rows(9, h, alibi.head_dim, seed=i) for i, h in enumerate((4, 2, 2)))
        at = jnp.arange(9.0)
        out, lse = jax.jit(lambda *x: attention(alibi, *x, at, with_lse=True))(q, k, v)
        right, right_lse = attention(alibi, *map(lift, (q, k, v)), at[:, None], with_lse=True)
        self.equal((out, lse), (right[0].swapaxes(0, 1), right_lse[0].T))
        self.equal(attention(alibi, q, k, v, at), out)
        x = rows(9, 4, 16)
        gradients = jax.grad(lambda x, at: (encode(rope, x, positions=at) ** 3).sum(), (0, 1))
        made, expected = gradients(x, at), gradients(lift(x), at[:, None])
        self.equal(made[1], expected[1][:, 0])
        self.assertEqual(made[0].shape, x.shape)
        self.equal(encode(rope, x, positions=at), encode(rope, lift(x), positions=at[:, None])[0].swapaxes(0, 1))


def biased(q, k, v, at, k_at, slope, gain):
    """tests/attention/slopes.lua in JAX: the output and the log-sum-exps."""
    k, v = (jnp.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    h, w = jnp.moveaxis(k_at[:, None, None] - at[:, None, :, None], -1, 0)
    bias = jnp.where(h**2 < 9, gain[1] * h, gain[0] * jnp.cos(w))
    bias = bias - jax.nn.softplus(slope)[:, None, None] * jnp.sqrt(h * h + w * w)
    scores = jnp.einsum("bhnd,bhmd->bhnm", q, k, precision="highest") / q.shape[-1] ** 0.5 + bias
    lse = jax.nn.logsumexp(scores, -1)
    return jnp.einsum("bhnm,bhmd->bhnd", jnp.exp(scores - lse[..., None]), v, precision="highest"), lse


class AttentionGradients(Case):
    """Gradients of q, k, v and of what a bias is a function of, beside the formula's."""

    def setUp(self):
        self.kernel = compile(SLOPES, ALL, heads=4)
        q, k, v = (rows(3, 2, h, 9, 64, seed=i) for i, h in enumerate((4, 2, 2)))
        self.many = (q, k, v, places(3, 2, 9, 2), places(3, 2, 9, 2, seed=4), rows(3, 4, seed=5), rows(3, 2, seed=6))
        self.given = tuple(x[0] for x in self.many)

    def run_kernel(self, q, k, v, at, k_at, slope, gain, **options):
        operands = {"slope": slope, "gain": gain}
        return attention(self.kernel, q, k, v, at, k_positions=k_at, operands=operands, **options)

    def loss(self, *x):
        return loss(self.run_kernel(*x, with_lse=True))

    def test_values(self):
        expected = dict(enumerate(jax.grad(lambda *x: loss(biased(*x)), range(7))(*self.given)))
        for wanted in [(0,), (2,), (1, 2), (5,), (0, 6), (3,), (4,), (3, 6), (0, 1, 2, 5, 6), tuple(range(7))]:
            with self.subTest(wanted):
                got = jax.jit(jax.grad(self.loss, wanted))(*self.given)
                self.close(got, [expected[i] for i in wanted], 5e-5)
        for i in (0, 1):  # a loss that looks at one of them, then a call for the output alone
            of = lambda f: jax.grad(lambda *x: loss([f(*x)[i]]), (0, 2, 5))(*self.given)  # noqa: B023,E731
            with self.subTest(of=("out", "lse")[i]):
                self.close(of(functools.partial(self.run_kernel, with_lse=True)), of(biased), 5e-5)
        alone = jax.grad(lambda *x: loss([self.run_kernel(*x)]), (0, 2, 5))(*self.given)
        self.close(alone, jax.grad(lambda *x: loss([biased(*x)[0]]), (0, 2, 5))(*self.given), 5e-5)

    def test_shapes_of_operands(self):
        """Swin's table as its authors have it, [(2H-1)(2W-1), heads]: the same bits, and a gradient of that shape."""
        swin = compile("relative_bias_table", ALL, heads=4, head_dim=16, window_h=3, window_w=3)
        q, k, v = (rows(1, 4, 9, 16, seed=i) for i in range(3))
        at, table = jnp.stack(jnp.indices((3, 3)), -1).reshape(9, 2), rows(5, 5, 4, seed=3)
        f = lambda x: loss([attention(swin, q, k, v, at, operands=[x])])  # noqa: E731
        whole, flat = (jax.jit(jax.value_and_grad(f))(x) for x in (table, table.reshape(25, 4)))
        self.assertEqual((whole[0], flat[1].shape), (flat[0], (25, 4)))
        self.assertTrue((whole[1].reshape(25, 4) == flat[1]).all() and flat[1].any())
        with self.assertRaisesRegex(pk.ArgumentError, "^operand 'relative_position_bias_table' has the shape"):
            f(table.reshape(4, 25))

    def test_polynomial(self):
        """PaPE's projection and its inputs."""
        kernel = compile("pape", head_dim=32, heads=2, role="pairwise", parabolas=3)
        rows_, at = [rows(1, 2, 7, 32, seed=i) for i in range(3)], places(7, 2)
        given = (*rows_, rows(1, 2, 7, 3, seed=4), rows(1, 2, 7, 3, seed=5), rows(2, 3, 2, seed=6))

        def f(q, k, v, a, b, w):
            return loss([attention(kernel, q, k, v, at, operands=[w], inputs=[a, b])])

        def formula(q, k, v, a, b, w):
            away = jnp.einsum("hmp,ijp->hijm", w, at[None] - at[:, None])
            bias = jnp.einsum("bhim,hijm->bhij", -jax.nn.softplus(a), away**2) + jnp.einsum(
                "bhim,hijm->bhij", b, away
            )
            scores = (jnp.einsum("bhid,bhjd->bhij", q, k) + bias) / 32**0.5
            return loss([jnp.einsum("bhij,bhjd->bhid", jax.nn.softmax(scores), v)])

        self.close(jax.jit(jax.grad(f, range(6)))(*given), jax.grad(formula, range(6))(*given), 1e-4)
        self.close(jax.grad(f, (3,))(*given), jax.grad(formula, (3,))(*given), 1e-4)

    def test_positions(self):
        """Positions that queries and keys share get the sum of both gradients, in an encoding without operands."""
        kernel, given = compile("lingeope", head_dim=16), [rows(1, 2, 7, 16, seed=i) for i in range(3)]
        at = places(7, 2)
        f = lambda x, y: loss([attention(kernel, *given, x, k_positions=y)])  # noqa: E731
        both = jax.grad(f, (0, 1))(at, at)
        once = jax.jit(jax.grad(lambda x: loss([attention(kernel, *given, x)])))(at)
        self.close([once], [both[0] + both[1]], 1e-5)
        self.assertGreater(jnp.abs(once).max(), 1e-3)

    def test_layout_and_types(self):
        swap = lambda x: x.swapaxes(1, 2)  # noqa: E731

        def f(q, k, v, *rest):
            out, lse = self.run_kernel(swap(q), swap(k), swap(v), *rest, layout="BNHD", with_lse=True)
            return loss([swap(out), lse])

        self.equal(jax.grad(f, (0, 1, 2, 5))(*self.given), jax.grad(self.loss, (0, 1, 2, 5))(*self.given))
        small = [x.astype("bfloat16") for x in self.given[:3]]
        got = jax.grad(self.loss, (0, 1, 2, 5))(*small, *self.given[3:])
        self.assertEqual([x.dtype.name for x in got], ["bfloat16"] * 3 + ["float32"])
        wide = [x.astype("float32") for x in small]
        right = jax.grad(lambda *x: loss(biased(*x)), (0, 1, 2, 5))(*wide, *self.given[3:])
        for x, y in zip(got, right):
            self.assertLess(jnp.linalg.norm(x.astype("float32") - y), 0.03 * jnp.linalg.norm(y))

    def test_samples(self):
        """Under vmap one for each sample, of what all share, too."""
        for axes in [(0,) * 7, (0, 0, 0, None, None, None, None), (None, 0, 0, 0, None, None, 0)]:
            at = [x if axis == 0 else x[0] for x, axis in zip(self.many, axes)]
            one = jax.grad(self.loss, tuple(range(7)))
            expected = [one(*(x[i] if axis == 0 else x for x, axis in zip(at, axes))) for i in range(3)]
            with self.subTest(axes):
                got = jax.jit(jax.vmap(one, axes))(*at)
                self.equal(got, jax.tree.map(lambda *x: jnp.stack(x), *expected))

    def test_threads(self):
        """XLA's threads share a call, and no bit depends on it."""
        kernel, q = compile("alibi", heads=4), rows(2, 4, 512, 64)
        f = jax.jit(jax.grad(lambda q, k: loss([attention(kernel, q, k, k, places(512, 1), causal=True)]), (0, 1)))
        first = f(q, q)
        for _ in range(3):
            self.equal(f(q, q), first)

    def test_shards(self):
        """Batches and heads over four devices; what all have gains the sum over them."""
        kernel = compile(SLOPES, heads=2)
        mesh = jax.make_mesh((2, 2), ("data", "heads"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
        P = jax.sharding.PartitionSpec

        def f(q, k, v, at, k_at, slope, gain):
            operands = {"slope": slope, "gain": gain}
            return attention(kernel, q, k, v, at, k_positions=k_at, operands=operands, with_lse=True)

        by = P("data", "heads")
        specs = (by, by, by, P("data"), P("data"), P("heads"), P())
        sharded = jax.jit(jax.shard_map(f, mesh=mesh, in_specs=specs, out_specs=(by, by)))
        self.equal(sharded(*self.given), self.run_kernel(*self.given, with_lse=True))
        got = jax.grad(lambda *x: loss(sharded(*x)), range(7))(*self.given)
        expected = jax.grad(self.loss, range(7))(*self.given)
        self.equal(got[:3], expected[:3])
        self.close(got, expected, 1e-5)

    def test_refused(self):
        turned = compile("gta", head_dim=16)
        q, at = rows(1, 2, 5, turned.head_dim), places(5, len(turned.axes))
        for words, call in [
            ("^positions require a gradient, which attention of gta does not have yet",
             lambda: jax.grad(lambda x: attention(turned, q, q, q, x).sum())(at)),
            ("slopes: attention has no gradients of gradients",
             lambda: jax.grad(lambda x: jax.grad(self.loss)(x, *self.given[1:]).sum())(self.given[0])),
        ]:  # fmt: skip
            with self.subTest(words):
                self.assertRaisesRegex(pk.ArgumentError, words, call)
                self.assertRaisesRegex(pk.ArgumentError, words, jax.jit(call))


class AttentionTangents(Case):
    """Forward mode of attention by q, k and v."""

    def setUp(self):
        self.kernel = compile(SLOPES, ALL, heads=4)
        shapes = (2, 4, 7, 64), (2, 2, 9, 64), (2, 2, 9, 64)
        self.given, self.to = ([rows(*shape, seed=i + at) for i, shape in enumerate(shapes)] for at in (0, 5))
        self.rest = places(7, 2), places(9, 2, seed=4), rows(4, seed=5), rows(2, seed=6)

    def f(self, q, k, v, at=None, k_at=None, slope=None, gain=None, **options):
        at, k_at, slope, gain = (x if y is None else y for x, y in zip(self.rest, (at, k_at, slope, gain)))
        operands, options = {"slope": slope, "gain": gain}, {"with_lse": True, **options}
        return attention(self.kernel, q, k, v, at, k_positions=k_at, operands=operands, **options)

    def expected(self, given, to):
        """The formula's tangents, in float64."""
        with jax.enable_x64(True):
            wide = lambda xs: tuple(jnp.asarray(numpy.asarray(x, "float64")) for x in xs)  # noqa: E731
            rest = [x[None] if x.ndim == 2 and x.shape[1] == 2 else x for x in wide(self.rest)]
            return jax.jvp(lambda *x: biased(*x, *rest), wide(given), wide(to))[1]

    def near(self, made, expected, tolerance=1e-5):
        for x, y in zip(made, expected, strict=True):
            x, y = numpy.asarray(x, "float64"), numpy.asarray(y)
            self.assertLess(numpy.abs(x - y).max(), tolerance * numpy.abs(y).max())

    def test_values(self):
        """Beside the formula, and by every way to ask for them to the bit."""
        primal, right = self.f(*self.given), self.expected(self.given, self.to)
        out, made = jax.jvp(self.f, self.given, self.to)
        self.near(made, right)
        self.equal(out, primal)
        for f in (self.f, jax.jit(self.f), jax.checkpoint(self.f)):
            self.equal(jax.jvp(f, self.given, self.to), (primal, made))
            self.equal(jax.linearize(f, *self.given)[1](*self.to), made)
            self.equal(jax.jit(lambda x, to: jax.jvp(f, x, to))(self.given, self.to), (primal, made))  # noqa: B023
        self.equal([jax.jvp(lambda *x: self.f(*x, with_lse=False), self.given, self.to)[1]], made[:1])
        back = jax.linear_transpose(jax.linearize(self.f, *self.given)[1], *self.to)
        self.equal(back(made), jax.vjp(self.f, *self.given)[1](made))

    def test_some(self):
        """Tangents of some of q, k and v."""
        for moved in ((0,), (1,), (2,), (0, 2)):
            to = [x if i in moved else 0 * x for i, x in enumerate(self.to)]
            of = lambda *x: self.f(*(dict(enumerate(self.given)) | dict(zip(moved, x))).values())  # noqa: B023,E731
            made = jax.jit(lambda x, to: jax.jvp(of, x, to)[1])(*([xs[i] for i in moved] for xs in (self.given, to)))
            with self.subTest(moved):
                self.near(made[: 1 + (moved != (2,))], self.expected(self.given, to)[: 1 + (moved != (2,))])

    def test_layouts_and_types(self):
        swap = lambda x: x.swapaxes(1, 2)  # noqa: E731
        made = jax.jvp(self.f, self.given, self.to)[1]
        swapped = [list(map(swap, x)) for x in (self.given, self.to)]
        out, lse = jax.jvp(lambda *x: self.f(*x, layout="BNHD"), *swapped)[1]
        self.equal((swap(out), lse), made)
        of_one = lambda xs: [swap(x)[0] for x in xs]  # noqa: E731
        out, lse = jax.jvp(self.f, of_one(self.given), of_one(self.to))[1]
        self.equal((out.swapaxes(0, 1), lse.T), [x[0] for x in made])
        small = [[x.astype("bfloat16") for x in xs] for xs in (self.given, self.to)]
        made = jax.jvp(self.f, *small)[1]
        self.assertEqual([x.dtype.name for x in made], ["bfloat16", "float32"])
        self.near(made, self.expected(*small), 2**-6)

    def test_samples(self):
        """Under vmap one for each sample, and along axes of a mesh."""
        many = [jnp.stack([x, 2 * x, x[::-1]]) for x in (*self.given, *self.to)]
        one = lambda *x: jax.jvp(self.f, x[:3], x[3:])[1]  # noqa: E731
        expected = [one(*(x[i] for x in many)) for i in range(3)]
        for way in (jax.vmap(one), jax.jit(jax.vmap(one))):
            self.equal(way(*many), jax.tree.map(lambda *x: jnp.stack(x), *expected))
        mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
        by = jax.sharding.PartitionSpec("data")
        of_q = lambda q, to: jax.jvp(lambda q: self.f(q, q[:, :2], q[:, 2:]), (q,), (to,))[1]  # noqa: E731
        self.rest = (self.rest[0], None, *self.rest[2:])
        sharded = jax.jit(jax.shard_map(of_q, mesh=mesh, in_specs=(by, by), out_specs=(by, by)))
        self.equal(sharded(self.given[0], self.to[0]), of_q(self.given[0], self.to[0]))

    def test_jacobians(self):
        """Forward and reverse mode give the same: causal, turned inside attention, with a sink, of sequences."""
        q, k, v = rows(1, 2, 4, 8), rows(1, 1, 4, 8, seed=2), rows(1, 1, 4, 8, seed=3)
        flat, ends = [x[0].swapaxes(0, 1) for x in (q, k, v)], jnp.asarray([0, 3, 4], "int32")
        for name, x, options, given in [
            ("alibi", (q, k, v), {"heads": 2}, {"causal": True}),
            ("alibi", flat, {"heads": 2}, {"cu_seqlens": ends}),
            ("lingeope", (q, q + 1, 2 - q), {}, {}),
            ("gpt_oss", (q, k, v), {"heads": 2}, {"causal": True, "operands": [rows(2, seed=7)]}),
        ]:
            kernel = compile(name, head_dim=8, **options)
            f = lambda *x: attention(kernel, *x, places(4, len(kernel.axes)), with_lse=True, **given)  # noqa: B023,E731
            with self.subTest(name, **options):
                self.close(jax.jacfwd(f, (0, 1, 2))(*x), jax.jit(jax.jacrev(f, (0, 1, 2)))(*x), 1e-5)

    def test_few_queries(self):
        """Where forward walks keys in chunks, whose workspace is no result."""
        kernel, k, at = compile("alibi", heads=4), rows(1, 4, 1500, 64), jnp.arange(1500.0)
        f = lambda q: attention(kernel, q, k, k, at[:1], k_positions=at, with_lse=True)  # noqa: E731
        q, to = rows(1, 4, 1, 64, seed=2), rows(1, 4, 1, 64, seed=3)
        (out, lse), made = jax.jvp(f, (q,), (to,))
        self.equal((out, lse), f(q))
        weights = rows(*out.shape, seed=4), rows(*lse.shape, seed=5)
        _, back = jax.vjp(f, q)
        self.close(sum((x * w).sum() for x, w in zip(made, weights)), (back(weights)[0] * to).sum(), 1e-5)

    def test_threads(self):
        """XLA's threads share a call, and no bit depends on it."""
        kernel, q, at = compile("alibi", heads=4), rows(2, 4, 512, 64), places(512, 1)
        f = jax.jit(lambda q, to: jax.jvp(lambda q: attention(kernel, q, q, q, at, causal=True), (q,), (to,))[1])
        first = f(q, q[::-1])
        for _ in range(3):
            self.equal(f(q, q[::-1]), first)

    def test_refused(self):
        """Tangents of what is no row, where they are computed, second derivatives, and GPUs."""
        given, at = (*self.given, *self.rest), (3, 4, 5, 6)
        words = "^attention of slopes at positions, operands or inputs has no forward-mode derivatives .*; expected rev"
        for i in at:
            f = lambda x: self.f(*given[:i], x, *given[i + 1 :])[0]  # noqa: B023,E731
            linear = jax.linearize(f, given[i])[1]
            for call in (
                lambda: jax.jvp(f, (given[i],), (given[i],)), lambda: linear(given[i]),  # noqa: B023
                lambda: jax.jvp(jax.jit(f), (given[i],), (given[i],)), lambda: jax.jacfwd(f)(given[i]),  # noqa: B023
                lambda: jax.jvp(lambda x: self.f(x[0], *given[1:i], x[1], *given[i + 1 :]),  # noqa: B023
                                ((given[0], given[i]),), ((given[0], given[i]),)),  # noqa: B023
            ):  # fmt: skip
                with self.subTest(i), self.assertRaisesRegex(pk.ArgumentError, words):
                    call()
        of_q = lambda q: self.f(q, *self.given[1:])[0].sum()  # noqa: E731
        for outer in (jax.jacfwd, jax.jacrev):
            for inner in (jax.jacfwd, jax.jacrev):
                with self.subTest((outer, inner)), self.assertRaisesRegex(
                    pk.ArgumentError, "^slopes: attention has no gradients of gradients"
                ):
                    outer(inner(of_q))(self.given[0])
        there = jax.jit(lambda q: jax.jvp(of_q, (q,), (q,))).trace(self.given[0])
        with self.assertRaisesRegex(pk.ArgumentError, "^attention of slopes on GPUs has no forward-mode derivatives"):
            there.lower(lowering_platforms=("cuda",))


class Refused(Case):
    def test_sentences(self):
        kernel, alibi = compile("rope", ALL, head_dim=16), compile("alibi", heads=4)
        q, at = rows(1, 2, 3, 16), places(3, 1)
        for words, call in [
            ("^kernel is a str; expected what", lambda: encode("rope", q, positions=at)),
            ("^q, k: neither was given", lambda: encode(kernel, positions=at)),
            ("^q has 2 dimensions; expected four, BHND", lambda: encode(kernel, q[0, 0], positions=at)),
            ("^q has 8 channels; expected 16", lambda: encode(kernel, q[..., :8], positions=at)),
            ("^positions are of 2 tokens; expected 3", lambda: encode(kernel, q, positions=at[:2])),
            ("^positions are missing", lambda: encode(kernel, q)),
            ("^positions are of type", lambda: encode(kernel, q, positions=at.astype("float16"))),
            ("^q is of type int32", lambda: encode(kernel, q.astype("int32"), positions=at)),
            ("^k is of type bfloat16, and q", lambda: encode(kernel, q, q.astype("bfloat16"), at)),
            ("^operands: 1 given; rope has 0", lambda: encode(kernel, q, positions=at, operands=[at])),
            ("^layout is 'NBHD'; expected", lambda: encode(kernel, q, positions=at, layout="NBHD")),
            ("has no entry 'encode'", lambda: encode(alibi, q, positions=at)),
            ("has no entry 'attention'", lambda: attention(kernel, q, q, q, at)),
            ("^q is a object; expected an array", lambda: encode(kernel, object(), positions=at)),
        ]:
            with self.subTest(words):
                self.assertRaisesRegex(pk.ArgumentError, words, call)
                self.assertRaisesRegex(pk.ArgumentError, words, jax.jit(call))
        self.equal(encode(kernel, q, positions=at), kernel.encode(q, positions=at))

    def test_strangers(self):
        """Programs with other roles, attributes or kernels than this package writes are refused by the handler."""
        kernel, q, at = compile("rope", head_dim=16), rows(1, 2, 3, 16), places(3, 1)
        encode(kernel, q, positions=at)
        from pegen_kernels.jax.calls import number_of

        def call(arguments=(0, 6), results=(3,), given=(q, at), **other):
            numbers = {"kernel": number_of(kernel), "entry": 0, "layout": 0, "flags": 0, "causal": 0} | other
            out = jax.ffi.ffi_call("pegen_kernels", [jax.ShapeDtypeStruct(q.shape, q.dtype)])(
                *given, scale=numpy.float64(0), arguments=numpy.array(arguments, "int64"),
                results=numpy.array(results, "int64"), **{k: numpy.int64(x) for k, x in numbers.items()},
            )  # fmt: skip
            return out[0].block_until_ready()

        self.equal(call(), kernel.encode(q, positions=at))
        for words, choices in [
            ("has not registered the kernel", {"kernel": 5}), ("no such entry", {"entry": 1}),
            *(("no such entry", {"entry": entry}) for entry in (3, 4, 77, -1)),
            ("the attributes that", {"arguments": (0,)}),
            ("a role that it cannot have", {"results": (0,)}), ("a role that it cannot have", {"arguments": (3, 6)}),
            ("a role that it cannot have", {"arguments": (0, 0)}), ("a role that there is not", {"arguments": (0, 99)}),
            ("a role", {"arguments": (0, 1 << 40)}), ("a role", {"arguments": (0, -1)}),
            ("without rows", {"arguments": (6, 6)}), ("too few", {"given": (jnp.ones((1, 1, *q.shape)), at[0])}),
            ("positions is NULL", {"arguments": (0, 256)}), ("too many", {"given": (jnp.ones((1,) * 10), at)}),
            ("a number type", {"given": (q, at > 0)}), ("rope.encode: the last dim", {"given": (q[..., :8], at)}),
        ]:  # fmt: skip
            with self.subTest(words, **choices), self.assertRaisesRegex(Exception, words):
                call(**choices)
        self.equal(call(), kernel.encode(q, positions=at))

    def test_workspace(self):
        """One that is too small is refused, be its size 0."""
        kernel, q, at = compile("rope_mixed", head_dim=16, heads=2), rows(1, 2, 3, 16), places(3, 2)
        freqs = jnp.ones(kernel.operands[0].shape, "float32")
        encode(kernel, q, positions=at, operands=[freqs])
        from pegen_kernels.jax.calls import number_of

        for size in (0, 8):
            made = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (q, freqs, numpy.empty(size, "uint8"))]
            call = jax.ffi.ffi_call("pegen_kernels", made)
            with self.subTest(size), self.assertRaisesRegex(Exception, "workspace"):
                out = call(q, q, at, freqs, kernel=numpy.int64(number_of(kernel)), entry=numpy.int64(2),
                           layout=numpy.int64(0), flags=numpy.int64(2), causal=numpy.int64(0), scale=numpy.float64(0),
                           arguments=numpy.array((8, 0, 6, 256), "int64"),
                           results=numpy.array((10, 768, 14), "int64"))  # fmt: skip
                jax.block_until_ready(out)

    @unittest.skipUnless(shutil.which("cc"), "no C compiler")
    def test_declarations(self):
        """Ours are those of jaxlib's header."""
        text = pathlib.Path(__file__).with_name("xla_abi.c")
        words = ["cc", "-std=c11", "-Wall", "-Werror", "-fsyntax-only", "-I", jax.ffi.include_dir(), text]
        done = subprocess.run(words, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
