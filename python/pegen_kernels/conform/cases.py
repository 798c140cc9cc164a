"""The table of golden cases. A convention has a tuple of values: the first is asked for, the others are what engines do
instead. One that WORDS does not name is a number or list of a description's option."""
from __future__ import annotations

from typing import Any, Mapping, NamedTuple


class Case(NamedTuple):
    """more: what else an engine is told. sizes: of q, k and v, and the largest position (`last`)."""

    name: str
    spec: str
    asked: Mapping[str, tuple[Any, ...]]
    more: Mapping[str, Any] = {}
    sizes: Mapping[str, Any] = {}

    @property
    def kind(self) -> str:
        return "attention" if "mask" in self.asked else "encode"

    @property
    def settings(self) -> dict[str, Any]:
        """What is asked for."""
        return {name: values[0] for name, values in self.asked.items()}


# fmt: off
# What reference.py computes, and what reports call its values.
HERE: dict[str, dict[Any, str]] = {
    "positions": {"given": "the positions of the call", "counted": "positions counted from 0 in each call",
                  "none": "no rotation"},
    "turning": {"first": "rotation of the first channels", "last": "rotation of the last channels"},
    "factors": {"long": "longrope's long factors", "short": "longrope's short factors", "none": "no longrope factors"},
    "rounding": {"none": "frequencies as given", "bfloat16": "frequencies rounded to bfloat16"},
    "skipped": {1: "a prefix token that passes through", 0: "rotation of the prefix token"},
    "mask": {"bottom-right": "causal from the bottom right (the last query sees all keys)",
             "top-left": "causal from the top left (query i sees keys up to i)", "none": "no causal mask"},
    "window": {0: "no window"},
    "softcap": {0: "no softcap"},
    "capping": {"scaled": "softcap of scaled scores, before bias and mask", "unscaled": "softcap before the scale",
                "biased": "softcap behind the bias", "masked": "softcap of masked scores, which are seen then"},
    "scale": {},
    "sink": {"logit": "a sink as one more score", "scaled": "a sink that is scaled as scores are",
             "zero": "a sink of score 0", "none": "no sink"},
    "groups": {"consecutive": "key head h // group", "strided": "key head h % key heads"},
    "places": {"behind": "queries at the cache's end", "first": "queries counted from 0"},
    "direction": {"key - query": "displacements key - query", "query - key": "displacements query - key",
                  "distance": "-slope |key - query|", "signed": "slope (key - query)"},
    "bias": {"beside": "a bias that is not scaled", "scaled": "a bias that is scaled with q k", "none": "no bias"},
    "slopes": {"paper": "slopes by powers of 2", "formula": "slopes 2^(-8h/heads) for any heads",
               "swapped": "slopes in the opposite order"},
    "sequences": {"apart": "sequences apart", "together": "attention across sequences"},
    "pages": {"table": "pages of the block table", "ordered": "pages in the pool's order"},
    "lengths": {"each": "each sequence's length", "all": "rows behind a sequence's length"},
}
_OPTIONS: dict[str, dict[Any, str]] = {
    "layout": {"interleaved": "pairs (2j, 2j+1)", "split": "halves (j, j + n/2)"},
    "inverse": {False: "rotation by +angle", True: "rotation by -angle"},
    "rotary_dim": {0: "rotation of all channels"},
    "precision": {"exact": "exact phases", "float32": "phases as float32 products"},
    "causal": {True: "buckets of one direction", False: "buckets of both directions"},
}

GIVEN = {"inverse": (False, True), "positions": ("given", "counted", "none")}
HALVES, PAIRS = ({"layout": both, **GIVEN} for both in (("split", "interleaved"), ("interleaved", "split")))
YARN = {"scaling": ("yarn", "linear", "ntk", "none"), "original_max_position": (4096,)}
LLAMA3 = {"scaling": ("llama3", "linear", "none"), "original_max_position": (8192,), "base": (5e5, 1e4)}
LONG = {"head_dim": (96,), **HALVES, "attention_factor": (1.190238, 1.0)}
FAR = {"head_dim": (64,), **HALVES, "rounding": ("none", "bfloat16")}
CAUSAL, ENDS, LAST = (
    {"mask": ("bottom-right", *others)} for others in (("top-left", "none"), ("none",), ("top-left",))
)
ALL = {"mask": ("none", "bottom-right")}
CAP = {"softcap": (2.0, 0), "capping": ("scaled", "unscaled")}
GROUPS = {"groups": ("consecutive", "strided")}
WIDE, NARROW = ({"window": (w, w + 1, w - 1, 0)} for w in (16, 4))
SINK = {"sink": ("logit", "scaled", "zero", "none")}
ALIBI = {"bias": ("beside", "scaled", "none"), "slopes": ("paper", "swapped")}
ANY = {**ALIBI, "slopes": ("paper", "formula", "swapped")}
BEHIND = {"places": ("behind", "first")}
T5 = {"scale": ("1", "1/sqrt(d)"), "bias": ("beside", "none"), "direction": ("key - query", "query - key"),
      "heads": (4,)}
BACK = {**T5, "bias": ("beside",)}  # where the other direction has one bucket, and so no bias
PACKED, PAGED = {"sequences": ("apart", "together")}, {"pages": ("table", "ordered"), "lengths": ("each", "all")}
CACHE, DECODE = {"n": 5, "m": 40}, {"n": 1, "m": 40}
PACK, PAGES = {"pack": ((5, 5), (9, 9), (3, 3))}, {"n": 3, "lengths": (37, 20, 48), "page_size": 16}


def _rope(name: str, dim: int, pairs: Mapping[str, Any], sizes: Mapping[str, Any] = {}, **asked: Any) -> Case:
    return Case(name, "rope", {"head_dim": (dim,), **pairs, **asked}, {}, sizes)


def _partial(name: str, dim: int, turns: int, pairs: Mapping[str, Any], base: float) -> Case:
    """The other base gives the channels that turn the frequencies of all channels' first pairs."""
    return _rope(name, dim, pairs, rotary_dim=(turns, 0), turning=("first", "last"), base=(base, base ** (turns / dim)))


def _axial(name: str, dim: int, axes: int, pairs: Mapping[str, Any], **asked: Any) -> Case:
    order = tuple(range(axes))
    asked = {"order": (order, (*order[:-2], order[-1], order[-2])), **asked}
    return Case(name, "rope_axial", {"head_dim": (dim,), "axes": (axes,), **pairs, **asked}, {}, {"last": 40})


def _attend(name: str, *asked: Mapping[str, Any], sizes: Mapping[str, Any] = {}, spec: str = "", **more: Any) -> Case:
    merged = {"scale": ("1/sqrt(d)", "1")}
    for part in (*asked, more):
        merged |= part
    return Case(name, spec, merged, {}, sizes)


CASES = {case.name: case for case in (
    _rope("halves", 64, HALVES, base=(1e4, 5e5)),
    _rope("halves, base 500000", 128, HALVES, base=(5e5, 1e4)),
    _rope("halves, decode", 64, HALVES, {"n": 1}, positions=("given", "counted")),
    _rope("halves, positions by sequence", 64, HALVES, {"each": True}),
    _rope("halves, prefix token", 64, HALVES, skipped=(1, 0)),
    _rope("pairs", 64, PAIRS, base=(1e4, 5e5)),
    _rope("pairs, base 500000", 128, PAIRS, base=(5e5, 1e4)),
    _rope("pairs, decode", 64, PAIRS, {"n": 1}, positions=("given", "counted")),
    _partial("halves, 32 of 80 channels", 80, 32, HALVES, 1e4),
    _partial("halves, 64 of 256 channels", 256, 64, HALVES, 1e7),
    _partial("pairs, 64 of 128 channels", 128, 64, PAIRS, 1e4),
    _rope("linear", 64, HALVES, scaling=("linear", "ntk", "none"), factor=(8.0, 2.0)),
    _rope("NTK", 64, HALVES, scaling=("ntk", "linear", "none"), factor=(4.0, 2.0)),
    _rope("dynamic NTK, 4 at 4 times the length", 64, HALVES, scaling=("ntk", "linear", "none"), factor=(13.0, 4.0)),
    _rope("YaRN", 64, HALVES, **YARN, factor=(32.0, 8.0), base=(15e4, 1e4), truncate=(False, True),
          attention_factor=(0.0, 1.0)),
    _rope("YaRN, whole pairs", 128, HALVES, **YARN, factor=(4.0, 8.0), attention_factor=(0.0, 1.0)),
    _rope("YaRN, pairs, temperature 1", 64, PAIRS, **YARN, factor=(40.0, 4.0), attention_factor=(1.0, 0.0)),
    _rope("llama3", 128, HALVES, **LLAMA3, factor=(8.0, 32.0)),
    _rope("llama3, pairs", 128, PAIRS, **LLAMA3, factor=(16.0, 8.0), high_freq_factor=(1.0, 4.0)),
    Case("longrope, beyond the trained length", "rope_frequencies", {**LONG, "factors": ("long", "short", "none")},
         {"original_max_position": 64}),
    Case("longrope, within the trained length", "rope_frequencies", {**LONG, "factors": ("short", "long", "none")},
         {"original_max_position": 64}, {"last": 63}),
    Case("exact phases at a million", "rope_frequencies", {**FAR, "precision": ("exact", "float32")}, {},
         {"last": 10**6}),
    Case("float32 phases at a million", "rope_frequencies", {**FAR, "precision": ("float32", "exact")}, {},
         {"last": 10**6}),
    _axial("M-RoPE", 128, 3, HALVES, arrangement=("sections", "woven"), sections=((16, 24, 24),), base=(1e6, 1e4)),
    _axial("M-RoPE, woven", 128, 3, HALVES, arrangement=("woven", "sections"), sections=((24, 20, 20),),
           base=(5e6, 1e6)),
    _axial("M-RoPE, woven, 64 of 256 channels", 256, 3, HALVES, arrangement=("woven", "sections"),
           sections=((11, 11, 10),), base=(1e7, 5e6)),
    _axial("video", 128, 3, PAIRS, sections=((16, 24, 24), (24, 24, 16)), base=(1e4, 256.0)),
    _axial("image", 64, 2, PAIRS, arrangement=("sequential", "alternating"), base=(100.0, 1e4)),
    _axial("image, columns first", 64, 2, PAIRS, order=((1, 0), (0, 1)), base=(1e4, 100.0)),
    _axial("image, halves", 80, 2, HALVES, base=(1e4, 100.0)),
    _axial("image, alternating", 64, 2, PAIRS, arrangement=("alternating", "sequential"), base=(1e4, 100.0)),
    _attend("attention", ALL),
    _attend("causal", ENDS),
    _attend("causal, cache", CAUSAL, sizes=CACHE),
    _attend("causal, decode", LAST, sizes=DECODE),
    _attend("causal, scale 1/16", ENDS, scale=("1/16", "1/sqrt(d)", "1")),
    _attend("groups of heads", ENDS, GROUPS, sizes={"h": 8, "hkv": 2}),
    _attend("groups of heads, decode", LAST, GROUPS, sizes={**DECODE, "h": 8, "hkv": 4}),
    _attend("window", ENDS, NARROW),
    _attend("window, cache", CAUSAL, WIDE, sizes=CACHE),
    _attend("window, decode", LAST, WIDE, sizes=DECODE),
    _attend("window of both directions", ALL, NARROW),
    _attend("softcap", ALL, CAP),
    _attend("softcap, causal", ENDS, CAP, capping=("scaled", "unscaled", "masked")),
    _attend("softcap, window, cache", CAUSAL, CAP, WIDE, sizes=CACHE),
    _attend("softcap, ALiBi", ENDS, ALIBI, CAP, capping=("scaled", "biased", "unscaled"), spec="alibi", heads=(4,)),
    _attend("sink", ENDS, SINK),
    _attend("sink, window, cache", CAUSAL, SINK, WIDE, sizes=CACHE),
    *(_attend(f"ALiBi, {heads} heads", ENDS, ALIBI, spec="alibi", heads=(heads,)) for heads in (4, 8)),
    *(_attend(f"ALiBi, {heads} heads", ENDS, ANY, spec="alibi", heads=(heads,)) for heads in (6, 12, 20)),
    _attend("ALiBi, 6 heads, cache", CAUSAL, ANY, BEHIND, spec="alibi", heads=(6,), sizes=CACHE),
    _attend("ALiBi, all keys", ALL, ALIBI, spec="alibi", heads=(8,), direction=("distance", "signed")),
    _attend("T5, encoder", ALL, T5, spec="t5", causal=(False, True), max_distance=(128, 64),
            sizes={"n": 100, "m": 100}),
    _attend("T5, decoder", ENDS, BACK, spec="t5", causal=(True, False), sizes={"n": 60, "m": 60}),
    _attend("T5, cache", CAUSAL, BACK, BEHIND, spec="t5", causal=(True, False), max_distance=(128, 64),
            sizes={"n": 3, "m": 150}),
    _attend("packed", ALL, PACKED, sizes=PACK),
    _attend("packed, causal", ENDS, PACKED, sizes=PACK),
    _attend("packed, causal, caches", CAUSAL, PACKED, sizes={"pack": ((2, 7), (1, 12), (5, 5))}),
    _attend("packed, window", ENDS, PACKED, NARROW, sizes=PACK),
    _attend("paged, causal", CAUSAL, PAGED, sizes=PAGES),
    _attend("paged, decode", LAST, PAGED, GROUPS, sizes={**PAGES, "n": 1, "h": 4, "hkv": 2}),
    _attend("paged, window", CAUSAL, PAGED, WIDE, sizes=PAGES),
)}
# fmt: on


def words(name: str, value: Any) -> str:
    return {**HERE, **_OPTIONS}.get(name, {}).get(value) or f"{name} {value}"
