"""Rotary layers of serving engines in kernels: of vLLM and SGLang where they are installed, and always of layers with
the same interface that are written here. vLLM's caches are tensors of the shapes and strides of its backends."""
import importlib.util
import itertools
import pathlib
import re
import sys
import types
import unittest
from unittest import mock

import torch
from torch import nn

import pegen_kernels as pk
from pegen_kernels.torch import engines

sys.path.append(str(pathlib.Path(__file__).parents[2] / "examples"))
import vllm_append

HEAD, LENGTH = 64, 4096


def turned(x, cos, sin, neox):
    a, b = x.chunk(2, -1) if neox else (x[..., ::2], x[..., 1::2])
    parts = (a * cos - b * sin, b * cos + a * sin)
    return torch.cat(parts, -1) if neox else torch.stack(parts, -1).flatten(-2)


class RotaryEmbeddingBase(nn.Module):
    """As both engines have it."""

    name = "rotary_embedding"

    def __new__(cls, *given, **named):
        return super().__new__(KNOWN.get(cls.__name__, cls))

    @classmethod
    def register_oot(cls, made):
        assert cls.__name__ not in KNOWN
        KNOWN[cls.__name__], made.name = made, cls.__name__

    def __init__(self, rotary_dim=HEAD, is_neox_style=True, dtype=torch.float32):
        super().__init__()
        self.head_size, self.rotary_dim, self.is_neox_style = HEAD, rotary_dim, is_neox_style
        self.register_buffer("cos_sin_cache", self._compute_cos_sin_cache().to(dtype), persistent=False)
        self.own = 0

    def forward(self, *given, **named):
        return self.forward_cpu(*given, **named)

    def _compute_inv_freq(self, base):
        return base ** -(torch.arange(0, self.rotary_dim, 2, dtype=torch.float) / self.rotary_dim)

    def _compute_cos_sin_cache(self):
        angles = torch.arange(LENGTH, dtype=torch.float)[:, None] * self._compute_inv_freq(1e4)
        return torch.cat([angles.cos(), angles.sin()], -1)

    def of_positions(self, positions, dtype):
        self.own += 1
        return self.cos_sin_cache.to(dtype)[positions].chunk(2, -1)

    def forward_native(self, positions, query, key=None, offsets=None):
        cos, sin = self.of_positions(positions if offsets is None else positions + offsets, query.dtype)
        rows = [x if x is None else x.reshape(len(cos), -1, self.head_size) for x in (query, key)]
        n = self.rotary_dim
        made = [
            x if x is None else torch.cat([turned(x[..., :n], cos[:, None], sin[:, None], self.is_neox_style),
                                           x[..., n:]], -1) for x in rows
        ]  # fmt: skip
        return tuple(x if x is None else x.reshape(like.shape) for x, like in zip(made, (query, key)))

    def forward_cpu(self, positions, query, key=None, offsets=None):
        return RotaryEmbeddingBase.forward_native(self, positions, query, key, offsets)


class RotaryEmbedding(RotaryEmbeddingBase):
    pass


class Amplified(RotaryEmbedding):
    mscale = 1.25

    def _compute_cos_sin_cache(self):
        return super()._compute_cos_sin_cache() * self.mscale


class Divided(RotaryEmbedding):
    def _compute_cos_sin_cache(self):
        angles = (torch.arange(LENGTH, dtype=torch.float) / 4)[:, None] * self._compute_inv_freq(1e4)
        return torch.cat([angles.cos(), angles.sin()], -1)


class Sections(RotaryEmbedding):
    mrope_section = (8, 12, 12)

    def of_positions(self, positions, dtype):
        cos, sin = super().of_positions(positions, dtype)
        if positions.ndim == 1:
            return cos, sin
        return tuple(torch.cat([part[i] for i, part in enumerate(x.split(self.mrope_section, -1))], -1)
                     for x in (cos, sin))  # fmt: skip


class TwoLengths(RotaryEmbedding):
    """Positions of the second half turn by other frequencies."""

    def _compute_cos_sin_cache(self):
        return torch.cat([super()._compute_cos_sin_cache()[: LENGTH // 2]] * 2)


class Uneven(RotaryEmbedding):
    def _compute_cos_sin_cache(self):
        return super()._compute_cos_sin_cache() * torch.linspace(1, 2, self.rotary_dim)


class RowsAlone(RotaryEmbeddingBase):
    """Takes no positions."""

    def forward_native(self, query, key):
        return query + 1, key + 1

    def forward_cpu(self, query, key):
        return self.forward_native(query, key)


KNOWN = {}
ROTATING = (RotaryEmbedding, Amplified, Divided, Sections)
OTHERS = (TwoLengths, Uneven)


def modules_of_vllm():
    """What register_vllm imports."""
    layers = types.ModuleType("vllm.model_executor.layers.rotary_embedding")
    layers.base = types.SimpleNamespace(RotaryEmbeddingBase=RotaryEmbeddingBase)
    vars(layers).update({kind.__name__: kind for kind in (*ROTATING, *OTHERS, RowsAlone)})
    ops = types.ModuleType("vllm.model_executor.custom_op")
    ops.op_registry_oot = KNOWN
    return {layers.__name__: layers, ops.__name__: ops}


def rows(tokens, dtype=torch.float32):
    """q and k, as a projection wrote them side by side."""
    wide = torch.randn(tokens, 7 * HEAD, generator=torch.Generator().manual_seed(tokens)).to(dtype)
    return wide[:, : 4 * HEAD], wide[:, 4 * HEAD : 6 * HEAD]


def places(layer, tokens, one=False):
    generator = torch.Generator().manual_seed(1)
    many = hasattr(layer, "mrope_section") and not one
    return torch.randint(0, LENGTH, (3, tokens) if many else (tokens,), generator=generator)


class VLLM(unittest.TestCase):
    def setUp(self):
        KNOWN.clear()
        with mock.patch.dict(sys.modules, modules_of_vllm()):
            engines.register_vllm()
            engines.register_vllm()  # plugins may be loaded more than once

    def agree(self, layer, positions, q, k, most):
        """The layer's rows are those of its own native form, and came from the kernel."""
        kept = [x if x is None else x.clone() for x in (q, k)]
        before = layer.own
        made = layer(positions, q, k)
        self.assertEqual(layer.own, before)
        for x, given in zip((q, k), kept):
            self.assertTrue(x is None or torch.equal(x, given))
        true = RotaryEmbeddingBase.forward_native(layer, positions, q, k)
        for x, y in zip(made, true):
            if y is None:
                self.assertIsNone(x)
                continue
            self.assertEqual((x.shape, x.dtype), (y.shape, y.dtype))
            self.assertLess((x.double() - y.double()).abs().max().item(), most)

    def test_rows(self):
        for kind in ROTATING:
            for rotary_dim, neox in ((HEAD, True), (HEAD, False), (HEAD // 2, True), (HEAD // 2, False)):
                if kind is Sections and rotary_dim != HEAD:
                    continue
                layer = kind(rotary_dim, neox)
                self.assertTrue(layer.pegen_kernel, kind)
                self.assertIsInstance(layer, kind)
                self.assertEqual((type(layer).__name__, type(layer).name), (kind.__name__, "rotary_embedding"))
                for tokens in (1, 37):
                    self.agree(layer, places(layer, tokens), *rows(tokens), 2e-6)

    def test_calls(self):
        layer, q, k = RotaryEmbedding(), *rows(9)
        at = places(layer, 9)
        self.agree(layer, at, q, None, 2e-6)
        self.agree(layer, at, q.reshape(9, -1, HEAD), k.reshape(9, -1, HEAD), 2e-6)
        self.agree(layer, at.int(), q, k, 2e-6)
        self.agree(layer, at, *rows(9, torch.bfloat16), 0.1)  # whose cosines are rounded, too
        self.agree(Sections(), places(layer, 9, one=True), q, k, 2e-6)  # of text alone
        before = layer.own
        made = layer(at, q, k, offsets=torch.ones(9, dtype=torch.long) - at.clamp(max=1))
        self.assertEqual(layer.own, before + 1)  # what kernels do not do
        self.assertEqual(made[0].shape, q.shape)

    def test_what_is_left(self):
        for kind in OTHERS:
            with self.assertLogs("pegen_kernels", "INFO") as log:
                layer = kind()
            self.assertIn(f"{kind.__name__} keeps its own rotation: ", log.output[0])
            self.assertEqual(layer.pegen_kernel, "")
            at, (q, k) = places(layer, 9), rows(9)
            for x, y in zip(layer(at, q, k), RotaryEmbeddingBase.forward_native(layer, at, q, k)):
                self.assertTrue(torch.equal(x, y))
        q, k = rows(3)
        self.assertTrue(torch.equal(RowsAlone()(q, k)[0], q + 1))

    def test_models_are_made_in_their_type(self):
        """Under a default type of rows, frequencies and cosines stay float32."""
        torch.set_default_dtype(torch.bfloat16)
        try:
            layer = RotaryEmbedding(dtype=torch.bfloat16)
        finally:
            torch.set_default_dtype(torch.float32)
        self.assertEqual(layer.cos_sin_cache.dtype, torch.bfloat16)
        self.assertTrue(torch.equal(layer.pegen_frequencies.flatten(), layer._compute_inv_freq(1e4)))
        self.assertNotIn("pegen_frequencies", layer.state_dict())

    def test_graph(self):
        layer, (q, k) = RotaryEmbedding(), rows(9)
        at = places(layer, 9)
        compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="eager")
        for x, y in zip(compiled(at, q, k), layer(at, q, k)):
            self.assertTrue(torch.equal(x, y))


def caches(blocks, heads, page, dtype):
    """vLLM 0.33 allocates a layer's in one of two orders, of heads and tokens in a page; earlier ones in another."""
    yield torch.full((blocks, heads, page, 2 * HEAD), torch.nan, dtype=dtype)
    yield torch.full((blocks, page, heads, 2 * HEAD), torch.nan, dtype=dtype).transpose(1, 2)
    yield torch.full((2, blocks, page, heads, HEAD), torch.nan, dtype=dtype)


class Layer:
    """A layer with norms of q and k, and what its steps are in exact arithmetic."""

    num_heads, num_kv_heads, head_size, eps = 6, 2, HEAD, 1e-3

    def __init__(self, dtype, rotary_dim=HEAD, is_neox=True):
        draw = torch.Generator().manual_seed(1)
        self.q_weight, self.k_weight = ((1 + torch.randn(HEAD, generator=draw)).to(dtype) for _ in range(2))
        self.cos_sin_cache, self.is_neox = RotaryEmbedding(rotary_dim, is_neox).cos_sin_cache.to(dtype), is_neox

    def rows(self, tokens, dtype):
        width = (self.num_heads + 2 * self.num_kv_heads) * HEAD
        return torch.randn(tokens, width, generator=torch.Generator().manual_seed(tokens)).to(dtype)

    def exact(self, qkv, positions):
        *rows, v = qkv.double().unflatten(-1, (-1, HEAD)).split([self.num_heads, *[self.num_kv_heads] * 2], 1)
        cos, sin = self.cos_sin_cache.double()[positions][:, None].chunk(2, -1)
        made, n = [], self.cos_sin_cache.shape[1]
        for x, weight in zip(rows, (self.q_weight, self.k_weight)):
            x = x * weight.double() / (x.square().mean(-1, keepdim=True) + self.eps).sqrt()
            made.append(torch.cat([turned(x[..., :n], cos, sin, self.is_neox), x[..., n:]], -1))
        return (*made, v)


class Append(unittest.TestCase):
    def near(self, found, exact):
        if found.dtype == torch.float32:
            self.assertLess((found - exact).abs().max().item(), 1e-5)
        else:  # rounded once
            self.assertTrue((found.double() - exact).abs().le(2.0**-8 * exact.abs() + 1e-6).all())

    def test_rows(self):
        slots = torch.tensor([17, 18, -1, 0, 63, 40])
        positions = torch.tensor([5, 6, 7, 0, LENGTH - 1, 300, 1, 1])  # the last two are padding
        for dtype, n, neox in itertools.product((torch.float32, torch.bfloat16), (HEAD, HEAD // 2), (True, False)):
            layer = Layer(dtype, n, neox)
            qkv = layer.rows(8, dtype)
            kept, (q, k, v) = qkv.clone(), layer.exact(qkv, positions)
            for cache in caches(4, layer.num_kv_heads, 16, dtype):
                out = torch.full((8, layer.num_heads, HEAD), 7, dtype=dtype)
                with torch.inference_mode():
                    engines.qk_norm_rope_kvcache_update(
                        qkv, out, positions, layer.q_weight, layer.k_weight, layer.eps, layer.cos_sin_cache, neox,
                        cache, slots, threads=2,
                    )  # fmt: skip
                self.near(out[:6], q[:6])
                self.assertTrue(out[6:].eq(7).all() and torch.equal(qkv, kept))
                seen = slots >= 0
                for part, rows in zip(engines.pages(cache, HEAD), (k, v)):
                    self.near(part[slots[seen] // 16, slots[seen] % 16], rows[:6][seen])
                    self.assertEqual(int(part.isnan().all(-1).sum()), (4 * 16 - 5) * layer.num_kv_heads)

    def test_layer(self):
        """Prompts of three sequences, then tokens one by one, of pages in any order: the cache is read as written."""
        for dtype, most in ((torch.float32, 1e-5), (torch.bfloat16, 0.04)):
            layer = Layer(dtype)
            kernel = pk.compile("attention", head_dim=HEAD, targets="native", dtypes=["float32", "bfloat16"])
            table = torch.tensor([[7, 2, 9], [0, 5, 1], [3, 8, 6]], dtype=torch.int32)
            for cache in caches(10, layer.num_kv_heads, 16, dtype):
                lengths, history = [0, 0, 0], [[], [], []]
                for new in ((20, 5, 31), (1, 1, 1), (1, 1, 1), (3, 0, 1)):
                    at = [torch.arange(length, length + n) for length, n in zip(lengths, new)]
                    lengths = [length + n for length, n in zip(lengths, new)]
                    positions, begins = torch.cat(at), torch.tensor([0, *new]).cumsum(0)
                    slots = torch.cat([16 * pages.long()[t // 16] + t % 16 for pages, t in zip(table, at)])
                    of = types.SimpleNamespace(
                        positions=positions, slot_mapping=slots, query_start_loc=begins.int(), block_table=table,
                        seq_lens=torch.tensor(lengths, dtype=torch.int32))  # fmt: skip
                    qkv = layer.rows(len(positions), dtype)
                    found, exact = vllm_append.forward(kernel, layer, of, qkv, cache), layer.exact(qkv, positions)
                    for one, begin, end in zip(history, begins, begins[1:]):
                        one.append([x[begin:end] for x in exact])
                        q, k, v = (torch.cat(x).transpose(0, 1) for x in zip(*one))
                        mask = torch.ones(len(k[0]), len(k[0]), dtype=torch.bool).tril()
                        all_rows = nn.functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)
                        rows = all_rows[:, len(k[0]) - int(end - begin) :].transpose(0, 1)
                        if len(rows):
                            self.assertLess((found[begin:end] - rows).abs().max().item(), most)

    def test_operators(self):
        """The example's steps in PyTorch's operators are the same."""
        layer, positions, slots = Layer(torch.float32), torch.tensor([3, 900]), torch.tensor([20, 3])
        qkv, made = layer.rows(2, torch.float32), []
        for call in (engines.qk_norm_rope_kvcache_update, vllm_append.operators):
            q, cache = torch.empty(2, layer.num_heads, HEAD), torch.zeros(2, layer.num_kv_heads, 16, 2 * HEAD)
            call(qkv, q, positions, layer.q_weight, layer.k_weight, layer.eps, layer.cos_sin_cache, True, cache, slots)
            made.append((q, cache))
        for x, y in zip(*made):
            self.near(x, y)

    def test_refused(self):
        layer, cache = Layer(torch.float32), torch.zeros(2, 2, 16, 2 * HEAD)
        names = ("qkv", "q_out", "positions", "q_weight", "k_weight", "rms_norm_eps", "cos_sin_cache", "is_neox",
                 "kv_cache", "slot_mapping")  # fmt: skip
        given = dict(zip(names, (
            layer.rows(2, torch.float32), torch.zeros(2, layer.num_heads, HEAD), torch.tensor([3, 4]), layer.q_weight,
            layer.k_weight, layer.eps, layer.cos_sin_cache, True, cache, torch.tensor([20, 3]))))  # fmt: skip
        by_channel = torch.zeros(2, 2, 2 * HEAD, 16).transpose(2, 3)  # as vLLM's backend for processors keeps keys
        for words, wrong in (
            (r"^kv_cache has the shape \[2, 2, 128, 16\]; expected \[blocks", {"kv_cache": cache.transpose(2, 3)}),
            (r"^kv_cache has the shape \[3, 2, 16, 2, 64\]", {"kv_cache": torch.zeros(3, 2, 16, 2, HEAD)}),
            (r"^qkv has the shape \[2, 576\]; expected \[tokens, 640\]", {"qkv": given["qkv"][:, HEAD:]}),
            ("^positions has 2 dimensions", {"positions": torch.zeros(3, 2, dtype=torch.long)}),
            ("^slots: a slot", {"slot_mapping": torch.tensor([32, 3])}),
            ("^q_out has 2 dimensions", {"q_out": torch.zeros(2, 6 * HEAD)}),
            ("^out of k has channels that are not adjacent", {"kv_cache": by_channel}),
        ):  # fmt: skip
            with self.assertRaisesRegex(pk.ArgumentError, words):
                engines.qk_norm_rope_kvcache_update(**{**given, **wrong})
        self.assertFalse(cache.any())


class SGLang(unittest.TestCase):
    def test_hook(self):
        hooks, given = types.ModuleType("sglang.srt.plugins.hook_registry"), []
        hooks.HookType = types.SimpleNamespace(AFTER="after")
        hooks.HookRegistry = types.SimpleNamespace(register=lambda *words: given.append(words))
        KNOWN.clear()
        with mock.patch.dict(sys.modules, {hooks.__name__: hooks}):
            engines.register_sglang()
        ((target, after, when),) = given
        self.assertEqual((target.split(".")[-1], when), ("get_rope", "after"))
        layer, other, q, k = RotaryEmbedding(), TwoLengths(), *rows(9)
        for _ in range(2):  # get_rope hands out a layer again
            self.assertIsNone(after(layer, HEAD, HEAD))
            self.assertIsNone(after(other, HEAD, HEAD))
        self.assertEqual([type(x).__mro__[1] for x in (layer, other)], [RotaryEmbedding, RotaryEmbedding])
        VLLM.agree(self, layer, places(layer, 9), q, k, 2e-6)


SCALINGS = (
    {"rope_type": "default"}, {"rope_type": "linear", "factor": 4.0}, {"rope_type": "dynamic", "factor": 4.0},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 2048},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096},
    {"rope_type": "default", "mrope_section": [8, 12, 12]},
    {"rope_type": "default", "mrope_section": [12, 10, 10], "mrope_interleaved": True},
)  # fmt: skip


class Installed(unittest.TestCase):
    """The engines' own layers, where their packages are."""

    def compare(self, make, cached):
        """make(scaling, neox): a layer; cached: the layers that were made."""
        kinds = [(scaling, neox) for scaling in SCALINGS for neox in (True, False)]
        own = [make(dict(scaling), neox) for scaling, neox in kinds]
        cached.clear()
        yield
        for (scaling, neox), theirs in zip(kinds, own):
            layer, (q, k) = make(dict(scaling), neox), rows(50)
            self.assertTrue(layer.pegen_kernel, scaling)
            at = torch.randint(0, LENGTH, (3, 50) if "mrope_section" in scaling else (50,))
            for x, y in zip(layer(at, q, k), theirs.forward_native(at, q.clone(), k.clone())):
                self.assertLess((x - y).abs().max().item(), 2e-6, scaling)

    @unittest.skipUnless(importlib.util.find_spec("vllm"), "vLLM is not installed")
    def test_vllm(self):
        from vllm.config import CompilationConfig, VllmConfig, set_current_vllm_config
        from vllm.model_executor.layers import rotary_embedding as layers

        with set_current_vllm_config(VllmConfig(compilation_config=CompilationConfig(custom_ops=["all"]))):

            def make(scaling, neox):
                return layers.get_rope(HEAD, LENGTH, neox, {**scaling, "rope_theta": 1e4}, torch.float32)

            steps = self.compare(make, layers._ROPE_DICT)
            next(steps)
            engines.register_vllm()
            self.assertIsNone(next(steps, None))

    @unittest.skipUnless(importlib.util.find_spec("sglang"), "SGLang is not installed")
    def test_sglang(self):
        from sglang.srt.layers import rotary_embedding as layers
        from sglang.srt.layers.rotary_embedding import factory
        from sglang.srt.plugins.hook_registry import HookRegistry

        steps = self.compare(
            lambda scaling, neox: layers.get_rope(HEAD, HEAD, LENGTH, 10000, neox, scaling, torch.float32),
            factory._ROPE_DICT,
        )  # fmt: skip
        next(steps)
        engines.register_sglang()
        HookRegistry.apply_hooks()
        self.assertIsNone(next(steps, None))


class EntryPoints(unittest.TestCase):
    def test_names(self):
        """The groups that both engines read name functions that are there."""
        text = (pathlib.Path(__file__).parents[2] / "pyproject.toml").read_text()
        for group in ("vllm.general_plugins", "sglang.srt.plugins"):
            found = re.search(rf'entry-points\."{re.escape(group)}"\]\npegen = "([\w.]+):(\w+)"', text)
            self.assertTrue(callable(getattr(sys.modules[found[1]], found[2])))


if __name__ == "__main__":
    unittest.main()
