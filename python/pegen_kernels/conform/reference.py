"""Arrays of a case and what belongs out: float64 by NumPy alone, from the papers' formulas."""
from __future__ import annotations

import zlib
from typing import Any, Mapping

import numpy
from numpy import ndarray

from .cases import Case

Arrays = Mapping[str, ndarray]
Asked = Mapping[str, Any]


def arrays_of(case: Case) -> dict[str, ndarray]:
    """What an engine is given: rows that float32 holds, the same in each run."""
    asked = case.settings
    heads, dim, axes = (asked.get(name, other) for name, other in (("heads", 2), ("head_dim", 32), ("axes", 1)))
    size = {"b": 2, "h": heads, "hkv": heads, "n": 12, "m": 12, "dv": dim, "last": 2000, **case.sizes}
    b, h, hkv, n, m, dv, last = (size[name] for name in ("b", "h", "hkv", "n", "m", "dv", "last"))
    draw = numpy.random.default_rng(zlib.crc32(case.name.encode()))
    rows = lambda *shape: draw.standard_normal(shape, "float32").astype(float)  # noqa: E731
    made: dict[str, ndarray] = {}
    if case.kind != "attention":
        if case.kind == "add":
            made["x"] = rows(b, n, asked["channels"])
        elif "pack" in size:
            made["cu_seqlens"] = numpy.cumsum([0, *size["pack"]]).astype("int32")
            return made | {name: rows(sum(size["pack"]), h, dim) for name in "qk"}
        else:
            made |= {"q": rows(b, h, n, dim), "k": rows(b, hkv, n, dim)}
        shape = (b,) * ("each" in size) + (n,) + (axes,) * (axes > 1)
        made["positions"] = draw.integers(last // 2, last + 1, shape)
        if "from" in size:
            made["positions"] = size["from"] + numpy.arange(n)
        if "short" in size:
            made["positions"][0] %= 64
        if "negative" in size:
            made["positions"] *= -1
        if "fractional" in size:
            made["positions"] = made["positions"] + draw.integers(1, 8, shape) / 8
        if case.spec == "rope_frequencies":
            pairs = asked.get("rotary_dim", dim) // 2
            made["inv_freq"] = (1e4 ** (-numpy.arange(pairs) / pairs)).astype("float32").astype(float)
            if "factors" in case.asked:
                made |= {name: 1 + most * draw.random(pairs) for name, most in (("short", 1), ("long", 20))}
        return made
    if "pack" in size:
        bounds = numpy.cumsum([(0, 0), *size["pack"]], 0).astype("int32")
        made = {"cu_seqlens": bounds[:, 0].copy(), "k_cu_seqlens": bounds[:, 1].copy()}
        made["q"] = rows(bounds[-1, 0], h, dim)
        made |= {"k": rows(bounds[-1, 1], hkv, dim), "v": rows(bounds[-1, 1], hkv, dv)}
    elif "pages" in asked:
        lengths, page = numpy.array(size["lengths"], "int32"), size["page_size"]
        pages = len(lengths) * -(-int(lengths.max()) // page)
        made = {"q": rows(len(lengths), h, n, dim), "lengths": lengths}
        made |= {"k": rows(pages, page, hkv, dim), "v": rows(pages, page, hkv, dv)}
        made["block_table"] = draw.permutation(pages).astype("int32").reshape(len(lengths), -1)
    else:
        made = {name: numpy.array(size[name], "int32") for name in ("lengths", "starts", "slots") if name in asked}
        b, m = (len(made["lengths"]), int(made["lengths"].max())) if "lengths" in made else (b, m)
        slots = 4 if "slots" in made else b
        made |= {"q": rows(b, h, n, dim), "k": rows(slots, hkv, m, dim), "v": rows(slots, hkv, m, dv)}
    made |= {"sinks": rows(h)} if "sink" in case.asked else {}
    buckets = asked.get("num_buckets", 32)
    return made | ({"relative_attention_bias": rows(buckets, h)} if case.spec == "t5" else {})


# ---- rotations and sums ----


def _to_bfloat16(x: ndarray) -> ndarray:
    bits = x.astype("float32").view("uint32") + numpy.uint32(0x8000)
    return (bits & numpy.uint32(0xFFFF0000)).view("float32").astype(float)


def _positions(arrays: Arrays, asked: Asked) -> ndarray:
    """[B or 1, N, axes]"""
    rule, axes = asked["positions"], asked.get("axes", 1)
    if "cu_seqlens" in arrays:
        index, bounds = numpy.arange(len(arrays["q"])), arrays["cu_seqlens"]
        starts = bounds[numpy.searchsorted(bounds[1:], index, "right")]
        return (index - starts * (rule == "restart") + (rule == "next")).astype(float)[None, :, None]
    p = arrays["positions"].astype(float)
    p = p.reshape(-1, p.shape[-1 - (axes > 1)], axes)
    table = asked.get("table", 1)
    rules = {"counted": lambda: 0 * p + numpy.arange(p.shape[1])[:, None], "next": lambda: p + 1,
             "shared": lambda: 0 * p + p[:1], "clamped": lambda: numpy.minimum(p, table - 1),
             "wrapped": lambda: p % table, "absolute": lambda: abs(p), "floored": lambda: numpy.floor(p),
             "bfloat16": lambda: _to_bfloat16(p)}  # fmt: skip
    p = rules.get(rule, lambda: p)()
    cells, kind = numpy.array(asked.get("cells", 1)), asked.get("coordinates", "given")
    if kind == "resampled":
        return p * numpy.array(asked["trained"]) / cells
    return {"given": p, "centres": (p + 0.5) / cells, "signed": 2 * (p + 0.5) / cells - 1}[kind]


def _given_frequencies(case: Case, arrays: Arrays, asked: Asked, p: ndarray) -> ndarray:
    f, kind = arrays["inv_freq"], asked.get("factors", "none")
    if kind == "own":
        is_long = p.max((1, 2))[:, None, None] >= case.more["original_max_position"]
        f = f / numpy.where(is_long, arrays["long"], arrays["short"])
    elif kind != "none":
        f = f / arrays[kind]
    return _to_bfloat16(f) if asked.get("rounding") == "bfloat16" else f


def _frequencies(asked: Asked, p: ndarray) -> ndarray:
    """Radians of a position, of each pair: RoPE, and its rules for longer contexts as in the papers."""
    dim = asked["head_dim"]
    n = asked.get("rotary_dim") or dim
    span = dim if asked.get("exponents") == "head" else n
    base, scaling, factor, trained = (
        asked.get(x, y)
        for x, y in zip(("base", "scaling", "factor", "original_max_position"), (1e4, "none", 1.0, 8192))
    )
    if scaling == "dynamic":
        scaling, factor = "ntk", max(factor * (p.max() + 1) / trained - (factor - 1), 1.0)
    base *= {"ntk": factor ** (span / (span - 2)), "base": factor}.get(scaling, 1.0)
    i = numpy.arange(n // 2)
    f = base ** (-2 * i / span)
    turns = trained * f / (2 * numpy.pi)  # of a pair in the trained context
    if scaling in ("linear", "divided"):
        f = f / factor ** (1 if scaling == "linear" else span / (span - 2))
    elif scaling == "yarn":
        pair = [span * numpy.log(trained / (x * 2 * numpy.pi)) / (2 * numpy.log(base))
                for x in (asked.get("beta_fast", 32.0), asked.get("beta_slow", 1.0))]  # fmt: skip
        pair = [numpy.floor(pair[0]), numpy.ceil(pair[1])] if asked.get("truncate", True) else pair
        first, last = max(pair[0], 0), min(pair[1], n - 1)
        i = 2 * i if asked["ramp"] == "channels" else i
        scaled = numpy.clip((i - first) / max(last - first, 1e-3), 0, 1)
        f = f * (scaled / factor + 1 - scaled)
    elif scaling == "llama3":
        low, high = asked.get("low_freq_factor", 1.0), asked.get("high_freq_factor", 4.0)
        share = (turns - low) / (high - low)
        if asked["blend"] == "wavelength":
            share = (1 / low - 1 / turns) / (1 / low - 1 / high)
        share = numpy.clip(share, 0, 1)
        f = f * ((1 - share) / factor + share)
    return f


def _axial(asked: Asked) -> tuple[ndarray, ndarray]:
    """Each pair's axis, and its radians."""
    axes, kind, base = asked["axes"], asked.get("arrangement", "sequential"), asked["base"]
    counts = numpy.array(asked.get("sections") or (asked["head_dim"] // (2 * axes),) * axes)
    total = int(counts.sum())
    i, axis = numpy.arange(total), numpy.repeat(numpy.arange(axes), counts)
    own, n = i - (numpy.cumsum(counts) - counts)[axis], counts[axis]
    if kind == "woven":
        axis = numpy.where(i < axes * counts[i % axes], i % axes, 0)
    if kind in ("sections", "woven"):
        f = base ** (-i / total)
    elif kind == "alternating":
        axis, f = i % axes, base ** (-(i // axes) * axes / total)
    elif kind == "shared":
        f = base ** (-(own * axes + axis) / total)
    else:
        stretch = numpy.array(asked.get("stretch", (1,) * axes), float)[axis]
        f = (base * stretch ** (n / (n - 1))) ** (-own / n)
    return numpy.array(asked["order"])[axis], f * asked.get("factor", 1.0)


def _turned(x: ndarray, angles: ndarray, amplitude: Any, asked: Asked) -> ndarray:
    pairs = angles.shape[-1]
    j, start = numpy.arange(pairs), (x.shape[-1] - 2 * pairs) * (asked.get("turning") == "last")
    apart = x.shape[-1] // 2 if asked.get("partners") == "head" else pairs
    a, b = (start + j, start + j + apart) if asked["layout"] == "split" else (start + 2 * j, start + 2 * j + 1)
    b = b % x.shape[-1]
    cos, sin, y = amplitude * numpy.cos(angles), amplitude * numpy.sin(angles), x.copy()
    y[..., a], y[..., b] = cos * x[..., a] - sin * x[..., b], sin * x[..., a] + cos * x[..., b]
    first = asked.get("skipped", 0)
    y[..., :first, :] = x[..., :first, :]
    return y


def _encoded(case: Case, arrays: Arrays, asked: Asked) -> dict[str, ndarray]:
    p = _positions(arrays, asked)
    if "axes" in asked:
        axis, f = _axial(asked)
        angles = p[..., axis] * f
    else:
        f = _given_frequencies(case, arrays, asked, p) if "inv_freq" in arrays else _frequencies(asked, p)
        angles = p * f
        if asked.get("precision") == "float32":
            angles = (p.astype("float32") * f.astype("float32")).astype(float)
    angles *= (asked["positions"] != "none") * (-1 if asked["inverse"] else 1)
    angles = angles[:, None]  # [B or 1, 1, N, pairs]
    amplitude = asked.get("attention_factor", 1.0) or 0.1 * numpy.log(asked["factor"]) + 1
    amplitude = 1.0 if asked.get("scaling", "yarn") != "yarn" else amplitude
    kind, found = asked.get("temperature", "once"), {}
    for name in "qk":
        x = arrays[name].swapaxes(0, 1)[None] if "cu_seqlens" in arrays else arrays[name]
        scale = amplitude ** {"once": 1, "twice": 2, "query": 2 * (name == "q")}[kind]
        if (decay := asked.get("decay", "none")) != "none":
            zeta = (numpy.arange(f.size) / f.size + asked["gamma"]) / (1 + asked["gamma"])
            sign = 1 if (name == "q") == (decay == "falling") else -1
            scale = scale * zeta ** (sign * (p[:, None] - asked["origin"]) / asked["scale_base"])
        x = _turned(x, angles, scale, asked)
        if name == "q" and (growth := asked.get("growth", "none")) != "none":
            steps = (p[:, None] + 1) / asked["floor_scale"]
            x = x * (1 + 0.1 * numpy.log1p(numpy.floor(steps) if growth == "steps" else steps))
        found[name] = x[0].swapaxes(0, 1) if "cu_seqlens" in arrays else x
    return found


def _added(arrays: Arrays, asked: Asked) -> dict[str, ndarray]:
    p, channels = _positions(arrays, asked)[..., list(asked.get("order", (0,)))], arrays["x"].shape[-1]
    half = channels // asked["axes"] // 2
    exponents = numpy.arange(half) / (half - asked.get("shift", 0))
    angles = p[..., None] * asked["base"] ** -exponents  # [1, N, axes, half]
    parts = numpy.stack([numpy.sin(angles), numpy.cos(angles)][:: 1 if asked["functions"] == "sines" else -1], -2)
    kind = asked.get("arrangement", "axes")
    parts = {"axes": parts, "functions": parts.swapaxes(2, 3), "mixed": parts.swapaxes(3, 4)}[kind]
    x = arrays["x"] * (channels**0.5 if asked["input"] == "scaled" else 1.0)
    return {"out": x + parts.reshape(1, -1, channels) * (asked["positions"] != "none")}


# ---- attention ----


class _Rows:
    """q, k and v of any call as [B,H,N,D], with a place and a sequence for each query and key; sequence -1: no key.
    offset: from a query's place in its call."""

    def __init__(self, arrays: Arrays, asked: Asked) -> None:
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
            if "slots" in arrays:
                slots = arrays["slots"] if asked["slots"] == "given" else numpy.arange(len(self.q))
                self.k, self.v = self.k[slots], self.v[slots]
            bounds, k_bounds = (numpy.array([0, x.shape[2]]) for x in (self.q, self.k))
        n, m = numpy.arange(bounds[-1]), numpy.arange(k_bounds[-1])
        of, k_of = numpy.searchsorted(bounds[1:], n, "right"), numpy.searchsorted(k_bounds[1:], m, "right")
        self.q_sequence, self.k_sequence = of[None], k_of[None]
        self.offset, self.k_place = (numpy.diff(k_bounds) - numpy.diff(bounds))[of][None], (m - k_bounds[k_of])[None]
        if asked.get("lengths") == "each":
            lengths = arrays["lengths"][:, None]
            self.offset, self.k_sequence = lengths - len(n), numpy.where(m < lengths, 0, -1)
        if asked.get("starts") == "each":
            self.k_sequence = numpy.where(m < arrays["starts"][:, None], -1, 0)
        self.q_place = n - bounds[of] + self.offset


def _slopes(kind: str, heads: int, of: ndarray) -> ndarray:
    power = 2 ** int(numpy.log2(heads))
    rule = lambda count, first=1: 2.0 ** (-8 * numpy.arange(first, count + first) / count)  # noqa: E731
    paper = numpy.concatenate([rule(power), rule(2 * power)[::2][: heads - power]])
    others = {"paper": paper, "swapped": paper[::-1], "formula": rule(heads), "zero": rule(heads, 0),
              "cut": rule(2 * power)[:heads], "shared": paper[of]}  # fmt: skip
    return others[kind]


def _buckets(apart: ndarray, asked: Asked) -> ndarray:
    """T5's buckets of displacements key - query."""
    causal, count = asked["causal"], asked.get("num_buckets", 32)
    each = count if causal else count // 2
    exact, farthest = each // 2, asked.get("max_distance", 128)
    n = numpy.maximum(-apart, 0) if causal else abs(apart)
    begins = exact * (farthest / exact) ** (numpy.arange(1, each - exact) / (each - exact))  # of buckets beyond exact
    far = exact + numpy.searchsorted(numpy.ceil(begins - 1e-9), n, "right")
    return numpy.where(n < exact, n, far) + (0 if causal else each * (apart > 0))


def _bias(case: Case, arrays: Arrays, asked: Asked, rows: _Rows, of: ndarray) -> Any:
    """[B,H,N,M]"""
    if asked.get("bias", "none") == "none":
        return 0.0
    places = rows.q_place - rows.offset * (asked.get("places") == "first")
    apart = rows.k_place[:, None] - places[..., None]
    kind = asked.get("direction", "distance")
    apart = -apart if kind == "query - key" else apart
    if case.spec == "t5":
        return numpy.moveaxis(arrays["relative_attention_bias"][_buckets(apart, asked)], -1, 1)
    form = {"signed": apart, "keys": rows.k_place[:, None] + 0 * apart, "distance": -abs(apart)}[kind]
    return _slopes(asked["slopes"], len(of), of)[:, None, None] * form[:, None]


def _attended(case: Case, arrays: Arrays, asked: Asked) -> dict[str, ndarray]:
    rows = _Rows(arrays, asked)
    heads, k_heads, dim = rows.q.shape[1], rows.k.shape[1], rows.q.shape[-1]
    of = numpy.arange(heads)
    of = of % k_heads if asked.get("groups") == "strided" else of // (heads // k_heads)
    scale = {"1": 1.0, "1/16": 1 / 16, "1/d": 1 / dim, "1/sqrt(d)": dim**-0.5, "1/sqrt(dv)": rows.v.shape[-1] ** -0.5,
             "yarn": (0.1 * numpy.log(40) + 1) ** 2 * dim**-0.5}[asked["scale"]]  # fmt: skip
    cap, capping, mask = asked.get("softcap", 0), asked.get("capping"), asked["mask"]
    capped = lambda x: cap * numpy.tanh(x / cap) if cap else x  # noqa: E731
    s = rows.q @ rows.k[:, of].swapaxes(2, 3)
    bias = _bias(case, arrays, asked, rows, of) * {"scaled": scale, "grown": dim**0.5}.get(asked.get("bias"), 1.0)
    if capping == "biased":
        s = capped(scale * s + bias)
    else:
        s = (scale * capped(s) if capping == "unscaled" else capped(scale * s)) + bias
    shifted = (mask == "top-left") | (mask == "last free") & (rows.q_place < rows.q_place.max())
    places, keys = (rows.q_place - rows.offset * shifted)[..., None], rows.k_place[:, None]
    behind, window = places - keys, asked.get("window") or numpy.inf
    seen = (behind >= 0) | (mask == "none") | (keys < asked.get("prefix", 0))
    if asked.get("local") == "chunks" and window < numpy.inf:
        seen &= places // window == keys // window
    else:
        seen &= ((abs(behind) if mask == "none" else behind) < window) | (keys < asked.get("kept", 0))
    seen = seen & (rows.q_sequence[..., None] == rows.k_sequence[:, None])
    s = numpy.where(
        seen[:, None], s, -cap if capping == "masked" else -1e300 if asked.get("unseen") == "mean" else -numpy.inf
    )
    sink = numpy.full((1, heads, 1, 1), -numpy.inf)
    if (kind := asked.get("sink", "none")) != "none":
        sinks = arrays["sinks"][of if kind == "shared" else slice(None)]
        sinks = {"zero": 0 * sinks, "scaled": scale * sinks, "capped": capped(sinks)}.get(kind, sinks)
        sink = sinks[None, :, None, None]
    most = numpy.maximum(numpy.maximum(s.max(-1, keepdims=True), sink), -1e300)
    weights = numpy.exp(s - most)
    total = weights.sum(-1, keepdims=True) + numpy.exp(sink - most)
    out = weights @ rows.v[:, of] / numpy.where(total > 0, total, 1.0)
    return {"out": out[0].swapaxes(0, 1) if "cu_seqlens" in arrays else out}


def outputs_of(case: Case, arrays: Arrays, changed: Asked = {}) -> dict[str, ndarray]:
    """q and k encoded, or out, where some conventions are others than those asked for."""
    asked = {**case.settings, **changed}
    if case.kind == "add":
        return _added(arrays, asked)
    return (_encoded if case.kind == "encode" else _attended)(case, arrays, asked)
