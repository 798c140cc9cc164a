"""pegen_kernels.onnx: nodes RotaryEmbedding and Attention as kernels, and kernels as nodes, against ONNX's reference
and ONNX Runtime, where it is installed."""
import importlib.util
import unittest

import numpy
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import pegen_kernels as pk
from pegen_kernels.onnx import attention_node, described, rotary_node

FAST = {"targets": "native"}
TYPES = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "int64": TensorProto.INT64}
HAS_RUNTIME = importlib.util.find_spec("onnxruntime") is not None


def rows(*shape, seed=1, dtype="float32"):
    return numpy.random.default_rng(seed).standard_normal(shape).astype(dtype)


def made_by(node, given, opset, runtime=False):
    """The node's first output."""
    put = [helper.make_tensor_value_info(name, TYPES[x.dtype.name], x.shape) for name, x in given.items()]
    first = next(iter(given.values()))
    got = helper.make_tensor_value_info(node.output[0], TYPES[first.dtype.name], [None] * first.ndim)
    model = helper.make_model(helper.make_graph([node], "graph", put, [got]), ir_version=10,
                              opset_imports=[helper.make_opsetid("", opset)])  # fmt: skip
    onnx.checker.check_model(model)
    if not runtime:
        return ReferenceEvaluator(model).run(None, given)[0]
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, given)[0]


class Case(unittest.TestCase):
    def near(self, found, expected, bound=2.0**-19):
        found, expected = (x.astype("float64") for x in (found, expected))
        self.assertLess(abs(found - expected).max(), bound * max(1, abs(expected).max()))

    def near_both(self, found, node, given, opset, bound=2.0**-19):
        self.near(found, made_by(node, given, opset), bound)
        if HAS_RUNTIME and opset < 25:
            self.near(found, made_by(node, given, opset, runtime=True), bound)


class Rotations(Case):
    def test_nodes(self):
        """To the bit the reference's, with caches that are read at position ids, or are there for each token."""
        for dtype in ("float32", "float16"):
            for asked in ({}, {"interleaved": 1}, {"rotary_embedding_dim": 8}, {"interleaved": 1, "num_heads": 3},
                          {"rotary_embedding_dim": 8, "interleaved": 1}):  # fmt: skip
                q, pairs = rows(2, 3, 5, 16, dtype=dtype), asked.get("rotary_embedding_dim", 16) // 2
                angles = rows(40, pairs, seed=2)
                ids = numpy.random.default_rng(3).integers(0, 40, (2, 5))
                caches = {"cos": numpy.cos(angles).astype(dtype), "sin": numpy.sin(angles).astype(dtype)}
                spec, options = described(helper.make_node("RotaryEmbedding", [], [], **asked), head_dim=16)
                kernel = pk.compile(spec, **options, **FAST)
                inputs = {name: x[ids][:, None].astype("float32") for name, x in caches.items()}
                found = kernel.encode(q, positions=numpy.zeros((5, 1), "float32"), inputs=inputs)
                flat = lambda x: x.swapaxes(1, 2).reshape(2, 5, 48) if "num_heads" in asked else x  # noqa: B023,E731
                for how in ({**caches, "ids": ids}, {name: x[ids] for name, x in caches.items()}):
                    node = helper.make_node("RotaryEmbedding", ["X", *how], ["Y"], **asked)
                    with self.subTest(dtype=dtype, asked=asked, how=list(how)):
                        given = {"X": flat(q), **how}
                        self.assertTrue(numpy.array_equal(flat(found), made_by(node, given, 23)))
                        self.near_both(flat(found), node, given, 23, 2.0**-9 if dtype == "float16" else 2.0**-19)

    def test_kernels(self):
        """Descriptions that turn pairs become nodes, and nodes descriptions again; others are refused."""
        at = numpy.arange(50)
        grid = numpy.stack(numpy.meshgrid(at[:7], at[:7], indexing="ij"), -1).reshape(-1, 2)
        for spec, options, places in (
            ("rope", {}, at), ("rope", {"layout": "split", "rotary_dim": 16}, at),
            ("rope", {"scaling": "yarn", "factor": 4, "original_max_position": 64, "layout": "split"}, 1000 * at),
            ("rope_axial", {}, grid), ("rope_frequencies", {}, at),
        ):  # fmt: skip
            kernel = pk.compile(spec, head_dim=32, **options, **FAST)
            operands = [rows(*info.shape, seed=4) for info in kernel.operands]
            with self.subTest(spec, **options):
                node, cos, sin = rotary_node(kernel, places, operands=operands)
                q, ids = rows(2, 3, 6, 32), numpy.random.default_rng(5).integers(0, 49, (2, 6))
                found = kernel.encode(q, positions=places.reshape(len(places), -1)[ids].astype("float64"),
                                      operands=operands)  # fmt: skip
                given = {"X": q, "cos_cache": cos, "sin_cache": sin, "position_ids": ids}
                self.near_both(found, node, given, 23)
                name, again = described(node, 32)
                self.assertEqual((name, again["layout"], again["rotary_dim"]), (
                    "cos_sin", kernel_layout(kernel), options.get("rotary_dim", 0)))  # fmt: skip
        for spec, options, words in (
            ("rope_mixed", {"heads": 2}, "or heads, differently"), ("geope2d", {}, "does not turn pairs"),
            ("pape", {}, "is no rotation of q and k"), ("alibi", {"heads": 2}, "is no rotation of q and k"),
        ):  # fmt: skip
            kernel = pk.compile(spec, **options, **FAST)
            operands = [rows(*info.shape, seed=4) for info in kernel.operands]
            with self.subTest(spec), self.assertRaisesRegex(pk.ArgumentError, f"^kernel: {spec} .*{words}"):
                rotary_node(kernel, grid[:, : len(kernel.axes)], operands=operands)


def kernel_layout(kernel):
    """Whether the second channel is the first's partner."""
    x = numpy.zeros((1, max(kernel.heads, 1), 1, kernel.head_dim), "float32")
    x[..., 0] = 1
    y = kernel.encode(x, positions=numpy.ones((1, len(kernel.axes))),
                      operands=[rows(*info.shape, seed=4) for info in kernel.operands])  # fmt: skip
    return "interleaved" if y[0, 0, 0, 1] else "split"


class Attentions(Case):
    def test_nodes(self):
        """Causal with and without a past, windows, softcap, scale, grouped heads, other values' widths."""
        for asked, sizes, past, opset in (
            ({}, (4, 4, 9, 9), 0, 23), ({"is_causal": 1}, (4, 2, 9, 9), 0, 23), ({"is_causal": 1}, (4, 2, 5, 9), 4, 23),
            ({"is_causal": 1}, (4, 4, 5, 9), 0, 23), ({"softcap": 2.0, "scale": 0.3}, (4, 1, 6, 9), 0, 23),
            ({"softcap": 1.5, "is_causal": 1}, (4, 4, 9, 9), 0, 24), ({"scale": 1.0}, (2, 2, 1, 7), 6, 23),
            ({"left_window_size": 2, "right_window_size": 1}, (4, 2, 9, 9), 0, 25),
            ({"left_window_size": 3, "is_causal": 1, "softcap": 3.0}, (4, 2, 5, 9), 4, 25),
            ({"is_causal": 1, "q_num_heads": 4, "kv_num_heads": 2}, (4, 2, 9, 9), 0, 23),
        ):  # fmt: skip
            heads, kv_heads, tokens, keys = sizes
            q, k = rows(2, heads, tokens, 16), rows(2, kv_heads, keys, 16, seed=2)
            v = rows(2, kv_heads, keys, 24, seed=3)
            names = ["Q", "K", "V", *(["", "past_key", "past_value"] if past else [])]
            node = helper.make_node("Attention", names, ["Y", "new_k", "new_v"] if past else ["Y"], **asked)
            with self.subTest(asked=asked, sizes=sizes, past=past):
                spec, options = described(node, head_dim=16, value_dim=24)
                kernel = pk.compile(spec, **options, **FAST)
                at = numpy.arange(past, past + tokens, dtype="float32")[:, None]
                found = kernel.attention(q, k, v, at, k_positions=numpy.arange(keys, dtype="float32")[:, None])
                given = {"Q": q, "K": k[:, :, past:], "V": v[:, :, past:]}
                if past:
                    given |= {"past_key": k[:, :, :past], "past_value": v[:, :, :past]}
                if "q_num_heads" in asked:
                    flat = lambda x: x.swapaxes(1, 2).reshape(2, x.shape[2], -1)  # noqa: E731
                    given, found = {name: flat(x) for name, x in given.items()}, flat(found)
                self.near_both(found, node, given, opset, 2.0**-17)

    def test_kernels(self):
        """Descriptions of nodes, and attention without positions, become nodes again; others are refused."""
        q, k, v = (rows(2, 2, 9, 16, seed=seed) for seed in (1, 2, 3))
        at = numpy.arange(9, dtype="float32")[:, None]
        for asked in ({}, {"is_causal": 1}, {"softcap": 2.0, "scale": 0.5},
                      {"left_window_size": 2, "right_window_size": 1}, {"left_window_size": 0, "is_causal": 1},
                      {"q_num_heads": 4, "kv_num_heads": 2}):  # fmt: skip
            spec, options = described(helper.make_node("Attention", [], [], **asked), head_dim=16)
            heads = {name: x for name, x in asked.items() if name.endswith("num_heads")}
            with self.subTest(asked):
                kernel = pk.compile(spec, **options, **FAST)
                node = attention_node(kernel, **heads)
                self.assertEqual(described(node, 16)[1] | {"scale": 0}, {**options, "scale": 0})
                if not heads:
                    given = {"Q": q, "K": k, "V": v}
                    self.near(kernel.attention(q, k, v, at), made_by(node, given, 25), 2.0**-17)
        plain = pk.compile("attention", head_dim=16, value_dim=16, **FAST)
        node = attention_node(plain, causal=True)
        found = plain.attention(q, k, v, at, causal=True)
        self.near(found, made_by(node, {"Q": q, "K": k, "V": v}, 23), 2.0**-17)
        strange = "is no attention of q, k and v by"
        for spec, options, words in (
            ("alibi", {"heads": 2}, "does more to scores"), ("gpt_oss", {"heads": 2}, strange),
            ("rope", {}, strange), ("lingeope", {}, strange),
        ):  # fmt: skip
            kernel = pk.compile(spec, **options, **FAST)
            with self.subTest(spec), self.assertRaisesRegex(pk.ArgumentError, f"^kernel: {spec} .*{words}"):
                attention_node(kernel)

    def test_lengths(self):
        """Keys beyond a sequence's length are behind its last query."""
        q, k, v = rows(2, 2, 3, 16), rows(2, 2, 9, 16, seed=2), rows(2, 2, 9, 16, seed=3)
        node = helper.make_node("Attention", ["Q", "K", "V", "", "", "", "lengths"], ["Y"], is_causal=1)
        spec, options = described(node, head_dim=16)
        lengths = numpy.array([7, 4])
        at = (lengths[:, None] - 3 + numpy.arange(3))[..., None].astype("float32")
        found = pk.compile(spec, **options, **FAST).attention(
            q, k, v, at, k_positions=numpy.tile(numpy.arange(9, dtype="float32")[:, None], (2, 1, 1))
        )
        self.near(found, made_by(node, {"Q": q, "K": k, "V": v, "lengths": lengths}, 24), 2.0**-17)

    def test_refused(self):
        for words, op, given, results, asked in (
            ("it is com.microsoft.RotaryEmbedding", "RotaryEmbedding", [], ["Y"], {"domain": "com.microsoft"}),
            ("it is Softmax; expected RotaryEmbedding or Attention", "Softmax", ["X"], ["Y"], {}),
            ("attribute 'scaling' of RotaryEmbedding is not known", "RotaryEmbedding", [], ["Y"], {"scaling": 1}),
            ("its attn_mask is a tensor", "Attention", ["Q", "K", "V", "mask"], ["Y"], {}),
            ("nonpad_kv_seqlen hides keys", "Attention", ["Q", "K", "V", "", "", "", "n"], ["Y"], {}),
            ("output 's' is qk_matmul_output", "Attention", ["Q", "K", "V"], ["Y", "", "", "s"], {}),
            ("softmax_precision is 11; expected 1", "Attention", ["Q", "K", "V"], ["Y"], {"softmax_precision": 11}),
            ("scale is -1", "Attention", ["Q", "K", "V"], ["Y"], {"scale": -1.0}),
        ):  # fmt: skip
            node = helper.make_node(op, given, results, **asked)
            with self.subTest(words), self.assertRaisesRegex(pk.ArgumentError, f"^node: {words}"):
                described(node, head_dim=16)


if __name__ == "__main__":
    unittest.main()
