"""Arrays of a case and what belongs out, in float64: rotors and biases of the compiler's long double reference."""
from __future__ import annotations

import functools
import os
import tempfile
import zlib
from typing import Any, Mapping

import numpy
from numpy import ndarray

from ..explore.facts import array_of, run_explain
from ..request import request_of
from .cases import HERE, Case

Arrays = Mapping[str, ndarray]


def arrays_of(case: Case) -> dict[str, ndarray]:
    """What an engine is given: rows that float32 holds, the same in each run."""
    heads, dim, axes = (case.settings.get(name, other) for name, other in (("heads", 2), ("head_dim", 32), ("axes", 1)))
    size = {"b": 2, "h": heads, "hkv": heads, "n": 12, "m": 12, "last": 2000, **case.sizes}
    b, h, hkv, n, m, last = (size[name] for name in ("b", "h", "hkv", "n", "m", "last"))
    draw = numpy.random.default_rng(zlib.crc32(case.name.encode()))
    rows = lambda *shape: draw.standard_normal(shape, "float32").astype(float)  # noqa: E731
    if case.kind == "encode":
        made = {"q": rows(b, h, n, dim), "k": rows(b, hkv, n, dim)}
        shape = (b,) * ("each" in size) + (n,) + (axes,) * (axes > 1)
        made["positions"] = draw.integers(last // 2, last + 1, shape)
        if case.spec == "rope_frequencies":
            made["inv_freq"] = (1e4 ** (-numpy.arange(0, dim, 2) / dim)).astype("float32").astype(float)
        if "factors" in case.asked:
            made |= {name: 1 + most * draw.random(dim // 2) for name, most in (("short", 1), ("long", 20))}
        return made
    if "pack" in size:
        bounds = numpy.cumsum([(0, 0), *size["pack"]], 0).astype("int32")
        made = {"cu_seqlens": bounds[:, 0].copy(), "k_cu_seqlens": bounds[:, 1].copy()}
        made["q"] = rows(bounds[-1, 0], h, dim)
        made |= {name: rows(bounds[-1, 1], hkv, dim) for name in ("k", "v")}
    elif "lengths" in size:
        lengths, page = numpy.array(size["lengths"], "int32"), size["page_size"]
        pages = len(lengths) * -(-int(lengths.max()) // page)
        made = {"q": rows(len(lengths), h, n, dim), "lengths": lengths}
        made |= {name: rows(pages, page, hkv, dim) for name in ("k", "v")}
        made["block_table"] = draw.permutation(pages).astype("int32").reshape(len(lengths), -1)
    else:
        made = {"q": rows(b, h, n, dim), "k": rows(b, hkv, m, dim), "v": rows(b, hkv, m, dim)}
    made |= {"sinks": rows(h)} if "sink" in case.asked else {}
    return made | ({"relative_attention_bias": rows(32, h)} if case.spec == "t5" else {})


@functools.lru_cache(maxsize=1024)
def _told(spec: str, options: tuple[Any, ...], words: tuple[str, ...], operands: tuple[Any, ...]) -> Any:
    """Numbers of `pegen explain`. operands: names, bytes of float64 and shapes."""
    with tempfile.TemporaryDirectory() as folder:
        for name, data, shape in operands:
            path = os.path.join(folder, f"{name}.npy")
            numpy.save(path, numpy.frombuffer(data).reshape(shape))
            words = (*words, "--operands", f"{name}={path}")
        return run_explain(request_of(spec, dict(options)), spec, words)[0]["numbers"]


_OF_SOME = ("original_max_position", "truncate", "attention_factor", "high_freq_factor")  # rules for longer contexts
_LOST = {"none": ("factor", *_OF_SOME), "linear": _OF_SOME, "ntk": _OF_SOME}


def _explained(case: Case, asked: Mapping[str, Any], *words: str, **operands: ndarray) -> Any:
    lost = {*HERE, *_LOST.get(asked.get("scaling", ""), ())}
    options = tuple((name, value) for name, value in asked.items() if name not in lost)
    return _told(case.spec, options, words, tuple((name, x.tobytes(), x.shape) for name, x in operands.items()))


def _encoded(case: Case, arrays: Arrays, asked: Mapping[str, Any]) -> dict[str, ndarray]:
    positions, operands = arrays["positions"], {}
    if asked.get("positions") == "counted":
        index = numpy.arange(arrays["q"].shape[2])
        positions = numpy.broadcast_to(index[:, None] if "axes" in asked else index, positions.shape)
    if "inv_freq" in arrays:
        found = arrays["inv_freq"] / arrays.get(asked.get("factors"), 1.0)
        bits = found.astype("float32").view("uint32") + numpy.uint32(0x8000)
        rounded = asked.get("rounding") == "bfloat16"
        operands["inv_freq"] = (bits & numpy.uint32(0xFFFF0000)).view("float32").astype(float) if rounded else found
    rows = positions.reshape(-1, asked.get("axes", 1))
    at = (f"--at={','.join(map(str, row))}" for row in rows)
    rotors = array_of(_explained(case, asked, *at, **operands)["rotors"])[:, 0]
    rotors = rotors.reshape(-1, 1, arrays["q"].shape[2], *rotors.shape[1:])  # [B or 1, 1, N, pairs, 2, 2]
    rotors = numpy.eye(2) + 0 * rotors if asked["positions"] == "none" else rotors
    return {name: _turned(arrays[name], rotors, asked) for name in "qk"}


def _turned(x: ndarray, rotors: ndarray, asked: Mapping[str, Any]) -> ndarray:
    count = 2 * rotors.shape[3]
    channels = numpy.arange(count) + (x.shape[-1] - count) * (asked.get("turning") == "last")
    channels = channels.reshape(2, -1).T if asked["layout"] == "split" else channels.reshape(-1, 2)
    first, y = asked.get("skipped", 0), x.copy()
    y[..., channels] = numpy.einsum("...ij,...j->...i", rotors, x[..., channels])
    y[..., :first, :] = x[..., :first, :]
    return y


class _Rows:
    """q, k and v of any call as [B,H,N,D], with a place and a sequence for each query and key; sequence -1: no key.
    offset: from a query's place in its call."""

    def __init__(self, arrays: Arrays, asked: Mapping[str, Any]) -> None:
        self.q, self.k, self.v = (arrays[name] for name in "qkv")
        if "cu_seqlens" in arrays:
            self.q, self.k, self.v = (x.swapaxes(0, 1)[None] for x in (self.q, self.k, self.v))
            bounds, k_bounds = (arrays[name][:: 1 if asked["sequences"] == "apart" else len(arrays[name]) - 1]
                                for name in ("cu_seqlens", "k_cu_seqlens"))  # fmt: skip
        else:
            if "block_table" in arrays:
                table = arrays["block_table"]
                table = numpy.sort(table, None).reshape(table.shape) if asked["pages"] == "ordered" else table
                of_pages = (x[table].reshape(len(table), -1, *x.shape[2:]) for x in (self.k, self.v))
                self.k, self.v = (x.swapaxes(1, 2) for x in of_pages)
            bounds, k_bounds = (numpy.array([0, x.shape[2]]) for x in (self.q, self.k))
        n, m = numpy.arange(bounds[-1]), numpy.arange(k_bounds[-1])
        of, k_of = numpy.searchsorted(bounds[1:], n, "right"), numpy.searchsorted(k_bounds[1:], m, "right")
        self.q_sequence, self.k_sequence = of[None], k_of[None]
        self.offset, self.k_place = (numpy.diff(k_bounds) - numpy.diff(bounds))[of][None], (m - k_bounds[k_of])[None]
        if asked.get("lengths") == "each":
            lengths = arrays["lengths"][:, None]
            self.offset, self.k_sequence = lengths - len(n), numpy.where(m < lengths, 0, -1)
        self.q_place = n - bounds[of] + self.offset


def _bias(case: Case, arrays: Arrays, asked: Mapping[str, Any], rows: _Rows) -> Any:
    """[B,H,N,M]"""
    if asked.get("bias", "none") == "none":
        return 0.0
    places = rows.q_place - rows.offset * (asked.get("places") == "first")
    apart = rows.k_place[:, None] - places[..., None]
    apart = -apart if asked.get("direction") == "query - key" else apart
    most = int(abs(apart).max()) + 1
    operands = {name: arrays[name] for name in ("relative_attention_bias",) if name in arrays}
    bias = array_of(_explained(case, asked, f"--grid={most}", **operands)["scores"]["bias"])
    if (slopes := asked.get("slopes", "paper")) != "paper":
        others = {"swapped": -bias[::-1, most], "formula": 2.0 ** (-8 * numpy.arange(1, len(bias) + 1) / len(bias))}
        bias = bias * (others[slopes] / -bias[:, most])[:, None]
    if asked.get("direction") == "signed":
        bias[:, most:] *= -1
    return bias[:, apart + most - 1].swapaxes(0, 1)


def _attended(case: Case, arrays: Arrays, asked: Mapping[str, Any]) -> dict[str, ndarray]:
    """Each query sees a key."""
    rows = _Rows(arrays, asked)
    heads, k_heads = rows.q.shape[1], rows.k.shape[1]
    of = numpy.arange(heads)
    of = of % k_heads if asked.get("groups") == "strided" else of // (heads // k_heads)
    scale = {"1": 1.0, "1/16": 1 / 16, "1/sqrt(d)": rows.q.shape[-1] ** -0.5}[asked["scale"]]
    cap, capping, mask = asked.get("softcap", 0), asked.get("capping"), asked["mask"]
    capped = lambda x: cap * numpy.tanh(x / cap) if cap else x  # noqa: E731
    s = rows.q @ rows.k[:, of].swapaxes(2, 3)
    bias = _bias(case, arrays, asked, rows) * (scale if asked.get("bias") == "scaled" else 1.0)
    if capping == "biased":
        s = capped(scale * s + bias)
    else:
        s = (scale * capped(s) if capping == "unscaled" else capped(scale * s)) + bias
    places = rows.q_place - rows.offset * (mask == "top-left")
    behind = places[..., None] - rows.k_place[:, None]
    seen = (rows.q_sequence[..., None] == rows.k_sequence[:, None]) & ((behind >= 0) | (mask == "none"))
    seen &= (abs(behind) if mask == "none" else behind) < (asked.get("window") or numpy.inf)
    s = numpy.where(seen[:, None], s, -cap if capping == "masked" else -numpy.inf)
    sink = numpy.full((1, heads, 1, 1), -numpy.inf)
    if (kind := asked.get("sink", "none")) != "none":
        sink = {"zero": 0.0, "logit": 1.0, "scaled": scale}[kind] * arrays["sinks"][None, :, None, None]
    most = numpy.maximum(s.max(-1, keepdims=True), sink)
    weights = numpy.exp(s - most)
    out = weights @ rows.v[:, of] / (weights.sum(-1, keepdims=True) + numpy.exp(sink - most))
    return {"out": out[0].swapaxes(0, 1) if "cu_seqlens" in arrays else out}


def outputs_of(case: Case, arrays: Arrays, changed: Mapping[str, Any] = {}) -> dict[str, ndarray]:
    """q and k encoded, or out, where some conventions are others than those asked for."""
    return (_encoded if case.kind == "encode" else _attended)(case, arrays, {**case.settings, **changed})
