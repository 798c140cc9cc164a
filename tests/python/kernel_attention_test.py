"""pegen_kernels on NumPy: attention, in which order tensors lie, what is refused and in which words."""
import unittest

import numpy

import pegen_kernels as pk
from kernel_shared import FAST, rows


SCORE_INPUTS = """
local pe = require "pegen"
local own = pe.input { name = "own", shape = {}, doc = "a number of the query" }
local rows = pe.input { name = "rows", shape = { 3 }, of = "query", doc = "three numbers of the query" }
local of_key = pe.input { name = "of_key", shape = {}, of = "key", doc = "a number of the key" }
local key_rows = pe.input { name = "key_rows", shape = { 4 }, of = "key", doc = "four numbers of the key" }
local slope = pe.learned { name = "slope", shape = { "heads" }, doc = "how fast a head forgets" }
return pe.encoding {
  name = "score_inputs", axes = { "t" }, head_dim = 16, heads = 4, role = "pairwise",
  score = function(s, d, h)
    local far = pe.abs(d.t) * slope(h) * key_rows(1)
    return pe.where(key_rows(3) * own(), 2, s * pe.exp(rows(2)) - far + of_key() * rows(0), pe.masked)
  end,
}
"""


class Attention(unittest.TestCase):
    def test_alibi(self):
        kernel = pk.compile("alibi", head_dim=16, heads=4, **FAST)
        q, k, v, positions = (
            rows(2, 4, 6, 16),
            rows(2, 4, 6, 16, seed=2),
            rows(2, 4, 6, 16, seed=3),
            numpy.arange(6)[:, None],
        )
        out = kernel.attention(q, k, v, positions, causal=True)
        scores = q.astype(float) @ k.swapaxes(2, 3) / 4
        scores -= 2.0 ** (-2 * numpy.arange(1, 5))[:, None, None] * abs(positions - positions.T)
        scores[..., ~numpy.tri(6, dtype=bool)] = -numpy.inf
        weights = numpy.exp(scores - scores.max(-1, keepdims=True))
        self.assertLess(abs(out - weights / weights.sum(-1, keepdims=True) @ v).max(), 1e-5)
        with self.assertRaisesRegex(pk.ArgumentError, "^v has 3 dimensions"):
            kernel.attention(q, k, v[0], positions)

    def test_values(self):
        """Values that turn inside of attention, and outputs back: the numbers of encode calls around a plain one."""
        places, options = rows(9, 2, seed=4) * 5, {"head_dim": 16, **FAST}
        q, k, v = rows(2, 4, 9, 16), rows(2, 2, 9, 16, seed=2), rows(2, 2, 9, 16, seed=3)
        out = pk.compile("gta", **options).attention(q, k, v, places, causal=True)
        turn = pk.compile("gta", role="separable", **options)
        back = pk.compile("gta", role="separable", inverse=True, **options)
        plain = pk.compile("attention", **options)
        turned = plain.attention(*turn.encode(q, k, places), turn.encode(v, positions=places), causal=True)
        self.assertLess(abs(out - back.encode(turned, positions=places)).max(), 1e-6)
        self.assertGreater(abs(out - turned).max(), 0.1)

    def test_shapes(self):
        """Rows of one batch and positions of one axis, heads that share operands."""
        turn, pairs = pk.compile("rope", head_dim=16, **FAST), pk.compile("alibi", head_dim=16, heads=2, **FAST)
        q, k, v, places = rows(9, 2, 16), rows(9, 1, 16, seed=2), rows(9, 1, 16, seed=3), numpy.arange(9)
        batch = [x.swapaxes(0, 1)[None] for x in (q, k, v)]
        expected = [x[0].swapaxes(0, 1) for x in turn.encode(*batch[:2], places[:, None])]
        for at in (places, places[:, None], places[None]):
            self.assertTrue(all(map(numpy.array_equal, turn.encode(q, k, at), expected)))
        table = turn.prepare(places)
        self.assertTrue(numpy.array_equal(turn.encode(q, table=table), expected[0]))
        both = turn.encode(numpy.concatenate([batch[0]] * 2), positions=numpy.stack([places, places]))
        self.assertTrue(numpy.array_equal(both[1, :, 3], expected[0][3]))
        back = turn.encode_backward(*batch[:2], places[:, None])
        self.assertTrue(numpy.array_equal(turn.encode_backward(q, k, places)[1], back[1][0].swapaxes(0, 1)))
        out = pairs.attention(*batch, places[:, None], causal=True)
        self.assertTrue(numpy.array_equal(pairs.attention(q, k, v, places, causal=True), out[0].swapaxes(0, 1)))
        mixed, freqs = pk.compile("rope_mixed", head_dim=16, heads=2, **FAST), rows(2, 2, 8, seed=4)
        six, at = rows(1, 6, 9, 16, seed=5), rows(9, 2, seed=6)
        every = mixed.encode(six, positions=at, operands=[freqs])
        for i in range(3):
            one = mixed.encode(six[:, i::3], positions=at, operands=[freqs])
            self.assertTrue(numpy.array_equal(every[:, i::3], one))
        for words, call in [
            ("^k has 4 dimensions, and q 3", lambda: turn.encode(q, batch[1], places)),
            ("^v has 4 dimensions, and q 3", lambda: pairs.attention(q, k, batch[2], places)),
            ("^q has 2 dimensions", lambda: turn.encode(q[0], positions=places)),
            ("^positions are of 8 tokens; expected 9", lambda: turn.encode(q, positions=places[:8])),
            ("^q has 5 heads; expected 2 or a multiple", lambda: mixed.encode(six[:, :5], None, at, operands=[freqs])),
            ("^positions have the shape .9.; expected", lambda: mixed.encode(six, None, at[:, 0], operands=[freqs])),
        ]:
            with self.assertRaisesRegex(pk.ArgumentError, words):
                call()

    def test_sequences(self):
        kernel = pk.compile("alibi", head_dim=16, heads=2, **FAST)
        q, k, v, places = rows(9, 2, 16), rows(20, 1, 16, seed=2), rows(20, 1, 16, seed=3), numpy.arange(20)[:, None]
        bounds, k_bounds = numpy.array([0, 2, 9], "int32"), numpy.array([0, 11, 20], "int32")
        options = {"k_positions": places, "causal": True}
        out = kernel.attention(q, k, v, places[:9], cu_seqlens=bounds, k_cu_seqlens=k_bounds, threads=3, **options)
        for i in range(2):
            own, keys = slice(*bounds[i : i + 2]), slice(*k_bounds[i : i + 2])
            one = [x.swapaxes(0, 1)[None] for x in (q[own], k[keys], v[keys])]
            apart = kernel.attention(*one, places[:9][own], k_positions=places[keys], causal=True)
            self.assertTrue(numpy.array_equal(out[own], apart[0].swapaxes(0, 1)))
        turn = pk.compile("rope", head_dim=16, **FAST)
        sides = turn.encode(q, k, places[:9], k_positions=places, cu_seqlens=bounds, k_cu_seqlens=k_bounds)
        self.assertTrue(numpy.array_equal(sides[1], turn.encode(k, positions=places)))
        back = turn.encode_backward(*sides, places[:9], k_positions=places, cu_seqlens=bounds, k_cu_seqlens=k_bounds)
        self.assertTrue(numpy.allclose(back[0], q, atol=1e-5) and numpy.allclose(back[1], k, atol=1e-5))
        grid, twice = pk.compile("rope", head_dim=16, grid="9", **FAST), rows(18, 1, 16, seed=4)
        of_grid = grid.encode(twice, cu_seqlens=numpy.array([0, 9, 18], "int32"))
        for i in range(2):
            self.assertTrue(numpy.array_equal(of_grid[9 * i :][:9], grid.encode(twice[9 * i :][:9])))
        with self.assertRaisesRegex(pk.ArgumentError, "cu_seqlens"):
            turn.encode(q, positions=places[:9], cu_seqlens=bounds + 1)
        for words, wrong in [
            ("^cu_seqlens begins at 1; expected 0", {"cu_seqlens": bounds + 1, "k_cu_seqlens": k_bounds}),
            ("^cu_seqlens ends at 9; expected [0-9]+, the rows of k", {"cu_seqlens": bounds}),
            ("^cu_seqlens is of type int64; expected int32", {"cu_seqlens": bounds.astype("int64")}),
            ("^cu_seqlens has the shape .1, 3.; expected .sequences . 1.", {"cu_seqlens": bounds[None]}),
            ("^cu_seqlens is missing; expected it beside", {"k_cu_seqlens": k_bounds}),
            (
                "^cu_seqlens falls from 9 to 4 in sequence 1",
                {"cu_seqlens": numpy.array([0, 9, 4], "int32"), "k_cu_seqlens": k_bounds},
            ),
            (
                "^k_cu_seqlens is of 1 sequences; expected 2, as cu_seqlens",
                {"cu_seqlens": bounds, "k_cu_seqlens": k_bounds[::2].copy()},
            ),
            (
                "^cu_seqlens ends at [0-9]+; expected 9, the rows of q; rows behind the last sequence are one",
                {"cu_seqlens": bounds - numpy.array([0, 0, 1], "int32"), "k_cu_seqlens": k_bounds},
            ),
        ]:
            with self.assertRaisesRegex(pk.ArgumentError, words):
                kernel.attention(q, k, v, places[:9], **options, **wrong)

    def test_pages(self):
        kernel = pk.compile("alibi", head_dim=16, heads=2, **FAST)
        lengths, table = numpy.array([20, 600, 0], "int32"), numpy.zeros((3, 40), "int32")
        table[0, :2], table[1, :38] = [40, 3], numpy.arange(39, 1, -1)
        q, k, v = rows(3, 2, 1, 16), rows(41, 16, 1, 16, seed=2), rows(41, 16, 1, 16, seed=3)
        places = numpy.arange(640)[:, None]
        at = places[numpy.maximum(lengths, 1) - 1][:, None]
        options = {"k_positions": places, "causal": True, "lengths": lengths}
        for threads in (1, 3):
            out = kernel.attention(q, k, v, at, block_table=table, threads=threads, **options)
            for i, length in enumerate(lengths):
                gathered = [x[table[i]].reshape(1, -1, 1, 16)[:, :length].swapaxes(1, 2) for x in (k, v)]
                apart = kernel.attention(q[i : i + 1], *gathered, at[i], k_positions=places[:length], causal=True)
                self.assertTrue(numpy.allclose(out[i], apart[0], atol=1e-6))
        options["cu_seqlens"] = numpy.arange(4, dtype="int32")
        by_tokens = kernel.attention(q.squeeze(2), k, v, at[:, 0], block_table=table, **options)
        del options["cu_seqlens"]
        self.assertTrue(numpy.array_equal(by_tokens, out.squeeze(2)))
        longer = kernel.attention(q, k, v, at, block_table=table, threads=3, **(options | {"lengths": lengths + 12}))
        apart = kernel.attention(q, k, v, at, block_table=table, **(options | {"lengths": lengths + 12}))
        self.assertTrue(numpy.array_equal(longer, apart))
        for more in (500, 514, 530):  # the same shapes, and another workspace
            one = {"block_table": table[1:2], "lengths": numpy.array([more], "int32"), "k_positions": places}
            kernel.attention(q[1:2], k, v, at[1], **one)
        for words, wrong in [
            ("^block_table: .* page", {"block_table": table + 1}),
            ("^lengths: .* longer", {"block_table": table[:, :37]}),
            ("^block_table, lengths", {"block_table": table.astype("int64")}),
            ("^k_positions", {"block_table": table, "k_positions": places[:, :0]}),
        ]:
            with self.assertRaisesRegex(pk.ArgumentError, words):
                kernel.attention(q, k, v, at, **(options | wrong))

    def test_inputs_of_keys_in_pages(self):
        """They lie in the pages of the keys that they are of, of any strides, with a head for all or one for each."""
        kernel = pk.compile(SCORE_INPUTS, **FAST)
        lengths, table = numpy.array([37, 5, 0], "int32"), numpy.zeros((3, 3), "int32")
        table[0], table[1, 0] = [4, 0, 2], 3
        q, k, v = rows(3, 4, 1, 16), rows(5, 16, 2, 16, seed=2), rows(5, 16, 2, 16, seed=3)
        at = (numpy.maximum(lengths, 1) - 1)[:, None, None]
        of = {"own": rows(3, 4, 1, seed=4), "rows": rows(3, 4, 1, 3, seed=5)}
        slope = {"slope": numpy.array([0.1, 0.2, 0.3, 0.4], "float32")}
        self.assertEqual({x.name for x in kernel.inputs}, {"own", "rows", "of_key", "key_rows"})
        for info in kernel.inputs:
            tokens, last = "keys" if "key" in info.name else "tokens", {"rows": (3,), "key_rows": (4,)}.get(
                info.name, ()
            )
            self.assertEqual(info.shape, (None, None, None, *last))
            self.assertEqual(info.dimensions, ("batches", "heads", tokens, *map(str, last)))
        with self.assertRaisesRegex(pk.ArgumentError, "^encode: score_inputs has no such entry; it has: attention"):
            kernel.encode(q)  # whatever else it lacks
        for heads in (1, 4):
            paged = {"of_key": rows(5, heads, 16, seed=6).swapaxes(1, 2), "key_rows": rows(5, 16, heads, 4, seed=7)}

            def call(threads=1, **changed):
                options = {"block_table": table, "lengths": lengths, "k_positions": numpy.arange(48)[:, None]}
                return kernel.attention(
                    q, k, v, at, operands=slope, inputs=of | paged | changed, threads=threads, **options
                )

            out = call()
            self.assertTrue(numpy.array_equal(out, call(threads=3)))
            self.assertTrue((out[2] == 0).all())
            for i, length in enumerate(lengths[:2]):
                own = {name: x[i : i + 1] for name, x in of.items()}
                own |= {
                    n: x[table[i]].reshape(1, -1, *x.shape[2:])[:, :length].swapaxes(1, 2) for n, x in paged.items()
                }
                keys = [x[table[i]].reshape(1, -1, 2, 16)[:, :length].swapaxes(1, 2) for x in (k, v)]
                apart = kernel.attention(
                    q[i : i + 1],
                    *keys,
                    at[i],
                    operands=slope,
                    inputs=own,
                    k_positions=numpy.arange(length)[:, None],
                )
                self.assertTrue(numpy.allclose(out[i], apart[0], atol=1e-6))
            spoilt = paged["of_key"].copy()
            spoilt[4, 3] += 1  # of a key of the first sequence alone
            changed = call(of_key=spoilt)
            self.assertFalse(numpy.array_equal(changed[0], out[0]))
            self.assertTrue(numpy.array_equal(changed[1:], out[1:]))
            for words, wrong in [
                (r"has the shape \[4, 16, .*expected \[5, 16, 2\], in k's pages", paged["of_key"][:4]),
                (r".* expected \[5, 16, 2\], in k's pages", paged["of_key"][:, :15]),
                (r".* expected \[5, 16, 2\], in k's pages", rows(5, 16, 3)),
                (r"is of type float64; expected float32", paged["of_key"].astype("float64")),
            ]:
                with self.assertRaisesRegex(pk.ArgumentError, f"^input 'of_key' {words}"):
                    call(of_key=wrong)

    def test_slots(self):
        kernel = pk.compile("rope", head_dim=16, **FAST)
        q, k = rows(2, 4, 3, 16), rows(2, 1, 3, 16, seed=2)
        places, slots = numpy.arange(3)[:, None], numpy.array([[17, 18, -1], [0, 31, 32]])
        cache, encoded = numpy.full((3, 16, 1, 16), 7, "float32"), kernel.encode(q, k, places)
        out = kernel.encode(q, k, places, out=(numpy.empty_like(q), cache), slots=slots, threads=2)
        self.assertTrue(numpy.array_equal(out[0], encoded[0]))
        wanted = numpy.full((48, 16), 7, "float32")
        for slot, row in zip(slots.ravel(), encoded[1].reshape(6, 16)):
            if slot >= 0:
                wanted[slot] = row
        self.assertTrue(numpy.array_equal(cache.reshape(48, 16), wanted))
        for words, wrong in [
            ("^slots: given without", {"slots": slots}),
            ("^slots: a slot", {"slots": slots + 20, "out": cache}),
            ("^slots: .* int64", {"slots": slots.astype("int32"), "out": cache}),
            ("^out of k", {"slots": slots, "out": cache[:, :, :, :8]}),
        ]:
            with self.assertRaisesRegex(pk.ArgumentError, words):
                kernel.encode(k=k, positions=places, **wrong)

    def test_append(self):
        kernel = pk.compile("rope", head_dim=16, **FAST)
        q, k, v = rows(2, 4, 3, 16), rows(2, 1, 3, 16, seed=2), rows(2, 1, 3, 16, seed=3)
        places, slots = numpy.arange(3)[:, None], numpy.array([[17, 18, -1], [0, 31, 32]])
        cache, v_cache = numpy.full((3, 16, 1, 16), 7, "float32"), numpy.full((6, 8, 1, 16), 7, "float32")
        weights = numpy.linspace(-1, 2, 16)
        normal = [x * weights / numpy.sqrt((x.astype(float) ** 2).mean(-1, keepdims=True) + 0.5) for x in (q, k)]
        wanted = kernel.encode(*(x.astype("float32") for x in normal), places)
        given = {"cache": cache, "v_cache": v_cache, "slots": slots, "epsilon": 0.5}
        norms = {"q_norm": weights, "k_norm": weights}
        out = kernel.append(q, k, v, places, **given, **norms)
        self.assertLess(abs(out - wanted[0]).max(), 1e-6)
        self.assertTrue(numpy.array_equal(out, kernel.append(q, k, v, places, **given, **norms, threads=2)))
        for slot, of_k, of_v in zip(slots.ravel(), wanted[1].reshape(6, 16), v.reshape(6, 16)):
            if slot >= 0:
                self.assertLess(abs(cache.reshape(48, 16)[slot] - of_k).max(), 1e-6)
                self.assertTrue(numpy.array_equal(v_cache.reshape(48, 16)[slot], of_v))
        self.assertEqual(int((cache == 7).all(-1).sum()), 43)
        flat = [x[0].swapaxes(0, 1) for x in (q, k, v)]
        again = kernel.append(*flat, places, **given | {"slots": slots[0]}, **norms)
        self.assertTrue(numpy.array_equal(again, out[0].swapaxes(0, 1)))
        plain = kernel.append(q, k, positions=places, cache=cache, slots=slots)
        self.assertTrue(numpy.array_equal(plain, kernel.encode(q, positions=places)))
        self.assertIsNone(kernel.append(k=k, positions=places, cache=cache, slots=slots, k_norm=weights))
        self.assertIs(kernel.append(flat[0], *flat[1:], places, **given | {"slots": slots[0]}, in_place=True), flat[0])
        for words, wrong in [
            ("^k, v, v_cache: expected", {"v": None}),
            ("^q_norm, k_norm, epsilon: .* \\[head_dim\\]", {"q_norm": weights[:8]}),
            ("^q_norm, k_norm, epsilon: ", {"epsilon": -1}),
            ("^slots: a slot", {"slots": slots + 20}),
            ("^v is of type float64; expected float32", {"v": v.astype(float)}),
            ("^v_cache has 8 channels; expected 16", {"v_cache": v_cache[..., :8]}),
            ("overlap", {"v_cache": cache}),
            ("^k has 3 dimensions; expected .* as k|^q has 4 dimensions", {"k": k[0]}),
        ]:
            with self.assertRaisesRegex(pk.ArgumentError, words):
                kernel.append(**{"q": q, "k": k, "v": v, "positions": places} | given | wrong)
        with self.assertRaisesRegex(pk.ArgumentError, "^append: .* has no such entry"):
            pk.compile("attention", head_dim=16, **FAST).append(k=k, cache=cache, slots=slots)

    def test_threads_share_keys(self):
        kernel = pk.compile("attention", head_dim=16, **FAST)
        q, k, v = rows(1, 2, 1, 16), rows(1, 1, 1500, 16, seed=2), rows(1, 1, 1500, 16, seed=3)
        out, *others = (kernel.attention(q, k, v, threads=threads) for threads in (1, 2, 5))
        self.assertTrue(all(numpy.array_equal(out, other) for other in others))
        weights = numpy.exp(q.astype(float) @ k.swapaxes(2, 3) / 4)
        self.assertLess(abs(out - weights / weights.sum(-1, keepdims=True) @ v).max(), 1e-5)


if __name__ == "__main__":
    unittest.main()
