"""ONNX's operators RotaryEmbedding and Attention (opset 23 and later) as descriptions, and rotations as nodes.

    spec, options = pegen_kernels.onnx.described(node, head_dim=64)
    kernel = pegen_kernels.compile(spec, **options)

RotaryEmbedding: `encode` takes inputs {"cos": cos_cache[position_ids][:, None], "sin": ...}; its results are those of
ONNX's reference to the bit. Attention: positions of keys are 0, 1, ..., and those of queries begin at the number of
keys before them: of past_key, or nonpad_kv_seqlen less the queries. Keys of the past and the call's are one tensor.

There are no operators for ONNX Runtime. Its operators in Python copy results an element at a time, which takes five
times as long as attention itself. The headers of its C interface are in no package of PyPI or Debian 12.
"""
from __future__ import annotations

from typing import Any, Mapping

import numpy
from onnx import NodeProto, helper

from .errors import ArgumentError
from .kernel import Kernel, compile

_ATTENTION = """
local pe = require "pegen"
local D = pe.option("head_dim", 64, "channels per head")
local Dv = pe.option("value_dim", 64, "channels of a value")
local scale = pe.option("scale", 0.0, "factor of q · k; 0: 1/sqrt(head_dim)")
local cap = pe.option("softcap", 0.0, "bound of scores, by tanh; 0: none")
local left = pe.option("left", -1, "keys that a query sees before its place; -1: all")
local right = pe.option("right", -1, "keys that a query sees behind its place; -1: all")

local function seen(delta)
  local behind = right < 0 and 0 or pe.where(delta.t, right + 0.5, 0, pe.masked)
  return left < 0 and behind or pe.where(-delta.t, left + 0.5, behind, pe.masked)
end
local masked = left >= 0 or right >= 0

return pe.encoding {
  name = "onnx_attention",
  doc = "attention as a node of ONNX asks for it",
  role = "pairwise",
  axes = { "t" },
  head_dim = D,
  value_dim = Dv,
  scale = scale > 0 and scale or nil,
  bias = masked and cap == 0 and seen or nil,
  score = cap > 0 and function(s, delta)
    local capped = cap * pe.tanh(s / cap)
    return masked and capped + seen(delta) or capped
  end or nil,
}
"""
_FLOAT = 1  # of onnx.TensorProto: what kernels sum weights in
_SAID: Mapping[str, frozenset[str]] = {
    "RotaryEmbedding": frozenset(["interleaved", "num_heads", "rotary_embedding_dim"]),
    "Attention": frozenset(["is_causal", "kv_num_heads", "left_window_size", "q_num_heads", "qk_matmul_output_mode",
                            "right_window_size", "scale", "softcap", "softmax_precision"]),
}  # fmt: skip


def _refused(what: str) -> ArgumentError:
    return ArgumentError(f"node: {what}")


def described(node: NodeProto, head_dim: int, value_dim: int | None = None) -> tuple[str, dict[str, Any]]:
    """What `pegen_kernels.compile` takes for a node: a description and its options. head_dim: channels of a head of q
    and k, of which a node does not say; value_dim: of v, by default as many. Raises ArgumentError, which names what
    the node asks for and no description says."""
    if node.domain not in ("", "ai.onnx") or node.op_type not in _SAID:
        name = f"{node.domain}.{node.op_type}".lstrip(".")
        raise _refused(f"it is {name}; expected RotaryEmbedding or Attention of ONNX's own domain")
    asked = {x.name: helper.get_attribute_value(x) for x in node.attribute}
    if strange := sorted(set(asked) - _SAID[node.op_type]):
        raise _refused(f"attribute '{strange[0]}' of {node.op_type} is not known")
    if node.op_type == "RotaryEmbedding":
        return _rotation(asked, head_dim)
    return _attention(node, asked, head_dim, value_dim)


def _rotation(asked: Mapping[str, Any], head_dim: int) -> tuple[str, dict[str, Any]]:
    layout = "interleaved" if asked.get("interleaved") else "split"
    return "cos_sin", {"head_dim": head_dim, "rotary_dim": asked.get("rotary_embedding_dim", 0), "layout": layout}


def _attention(
    node: NodeProto, asked: Mapping[str, Any], head_dim: int, value_dim: int | None
) -> tuple[str, dict[str, Any]]:
    given = dict(zip(("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen"), node.input))
    if given.get("attn_mask"):
        raise _refused("its attn_mask is a tensor of any values; expected is_causal and windows")
    if given.get("nonpad_kv_seqlen") and not asked.get("is_causal"):
        raise _refused("nonpad_kv_seqlen hides keys by their number; expected is_causal, by which places hide them")
    if len(node.output) > 3 and node.output[3]:
        raise _refused(f"output '{node.output[3]}' is qk_matmul_output, scores, which are never stored")
    if asked.get("softmax_precision", _FLOAT) != _FLOAT:
        raise _refused(f"softmax_precision is {asked['softmax_precision']}; expected {_FLOAT}, float32")
    if asked.get("scale", 1.0) <= 0:
        raise _refused(f"scale is {asked['scale']}; expected a positive number")
    right = 0 if asked.get("is_causal") else asked.get("right_window_size", -1)
    options = {"scale": asked.get("scale"), "softcap": asked.get("softcap") or None, "right": right,
               "left": asked.get("left_window_size", -1)}  # fmt: skip
    sizes = {"label": "Attention of ONNX", "head_dim": head_dim, "value_dim": value_dim or head_dim}
    return _ATTENTION, sizes | {name: value for name, value in options.items() if value not in (None, -1)}


def rotary_node(
    kernel: Kernel, positions: Any, *, operands: Any = None, num_heads: int = 0
) -> tuple[NodeProto, Any, Any]:
    """A node RotaryEmbedding that does to X what a kernel does to q and k, and its caches of cosines and sines: their
    row i is of position i of `positions`, [tokens] or [tokens, axes], and position_ids are such numbers. num_heads: of
    an X [batches, tokens, channels]. Raises ArgumentError where the kernel does more than to turn pairs."""
    n = kernel.head_dim
    if "encode" not in kernel.entries or kernel.out_dim != n or kernel.inputs:
        raise ArgumentError(f"kernel: {kernel.name} is no rotation of q and k by their positions alone")
    places = numpy.asarray(positions, numpy.float64).reshape(len(positions), -1)
    some = places[numpy.unique(numpy.linspace(0, len(places) - 1, 8).astype(int))]
    unit = numpy.tile(numpy.eye(n, dtype=numpy.float32)[:, None, None], (1, max(kernel.heads, 1), len(some), 1))
    made, of_k = kernel.encode(unit, unit, some, operands=operands)
    if not (numpy.array_equal(made, of_k) and numpy.array_equal(made, numpy.broadcast_to(made[:, :1], made.shape))):
        raise ArgumentError(f"kernel: {kernel.name} encodes q and k, or heads, differently; RotaryEmbedding does not")
    matrices = made[:, 0].transpose(1, 0, 2)  # of each place: [channel of q, channel that it goes to]
    moved = numpy.flatnonzero((matrices != numpy.eye(n)).any((0, 2)))
    turned = int(moved[-1] + 2) // 2 * 2 if len(moved) else 2
    for interleaved in (0, 1):
        pairs = numpy.arange(turned).reshape(-1, 2) if interleaved else numpy.arange(turned).reshape(2, -1).T
        a, b = pairs.T
        expected = numpy.tile(numpy.eye(n, dtype=numpy.float32), (len(some), 1, 1))
        expected[:, a, a] = expected[:, b, b] = matrices[:, a, a]
        expected[:, a, b], expected[:, b, a] = matrices[:, a, b], -matrices[:, a, b]
        if numpy.array_equal(matrices, expected):
            break
    else:
        raise ArgumentError(f"kernel: {kernel.name} does not turn pairs of its first channels alike")
    row = numpy.zeros((1, max(kernel.heads, 1), len(places), n), numpy.float32)
    row[..., a] = 1
    row = kernel.encode(row, positions=places, operands=operands)[0, 0]
    asked = {"interleaved": interleaved, "rotary_embedding_dim": turned % n, "num_heads": num_heads}
    names = ["X", "cos_cache", "sin_cache", "position_ids"]
    node = helper.make_node("RotaryEmbedding", names, ["Y"], **{name: x for name, x in asked.items() if x})
    return node, row[:, a].copy(), row[:, b].copy()


def attention_node(kernel: Kernel, *, causal: bool = False, q_num_heads: int = 0, kv_num_heads: int = 0) -> NodeProto:
    """A node Attention of Q, K and V that gives what a kernel's attention does at positions 0, 1, ...: the way back of
    `described`. causal: as in the kernel's call; q_num_heads, kv_num_heads: of rows [batches, tokens, channels].
    Windows need opset 25. Raises ArgumentError where a node has no attribute for what the kernel does to scores."""
    said, n = kernel.options, kernel.head_dim
    if "attention" not in kernel.entries or kernel.operands or kernel.inputs or len(kernel.axes) > 1:
        raise ArgumentError(f"kernel: {kernel.name} is no attention of q, k and v by their numbers alone")
    left, right = (int(said.get(name, -1)) for name in ("left", "right"))
    asked: dict[str, Any] = {"scale": kernel.scale, "softcap": float(said.get("softcap", 0)),
                             "is_causal": int(causal or right == 0), "q_num_heads": q_num_heads,
                             "kv_num_heads": kv_num_heads}  # fmt: skip
    windows = {"left_window_size": left, "right_window_size": -1 if asked["is_causal"] else right}
    asked = {name: x for name, x in asked.items() if x} | {name: x for name, x in windows.items() if x >= 0}
    node = helper.make_node("Attention", ["Q", "K", "V"], ["Y"], **asked)
    width = int(said.get("value_dim", 0)) or n
    spec, options = described(node, n, width)
    random = numpy.random.default_rng(1)
    rows = [random.standard_normal((1, max(kernel.heads, 1), 40, size), numpy.float32) for size in (n, n, width)]
    at = numpy.arange(40, dtype=numpy.float32)[:, None]
    expected = compile(spec, **options, targets=kernel.targets, dtypes="f32").attention(*rows, at)
    if not numpy.allclose(kernel.attention(*rows, at, causal=causal), expected, atol=1e-5):
        raise ArgumentError(f"kernel: {kernel.name} does more to scores than a node Attention says")
    return node
