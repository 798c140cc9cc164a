"""The table of golden cases. A convention has a tuple of values: the first is asked for, the others are what engines do
instead. A value that WORDS does not name is a number or list."""
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
        return "attention" if "mask" in self.asked else "add" if self.spec == "sincos" else "encode"

    @property
    def settings(self) -> dict[str, Any]:
        """What is asked for."""
        return {name: values[0] for name, values in self.asked.items()}


# fmt: off
WORDS: dict[str, dict[Any, str]] = {
    # rotations
    "layout": {"interleaved": "pairs (2j, 2j+1)", "split": "halves (j, j + n/2)"},
    "partners": {"turning": "halves of the channels that turn", "head": "halves of the whole head"},
    "turning": {"first": "rotation of the first channels", "last": "rotation of the last channels"},
    "rotary_dim": {0: "rotation of all channels"},
    "exponents": {"turning": "exponents 2j / channels that turn", "head": "exponents 2j / channels of the head"},
    "inverse": {False: "rotation by +angle", True: "rotation by -angle"},
    "skipped": {0: "rotation of the prefix tokens", 1: "one prefix token that passes through",
                5: "five prefix tokens that pass through"},
    "positions": {"given": "the positions of the call", "counted": "positions counted from 0 in each call",
                  "next": "positions counted from 1", "shared": "the first sequence's positions for all",
                  "clamped": "positions clamped to the table's last row", "wrapped": "positions modulo the table",
                  "absolute": "positions without their sign", "floored": "positions as whole numbers",
                  "bfloat16": "positions rounded to bfloat16", "restart": "positions that restart in each sequence",
                  "none": "no rotation"},
    "scaling": {"dynamic": "dynamic NTK", "ntk": "NTK: base * factor^(n / (n - 2))", "base": "base * factor",
                "divided": "frequencies divided by factor^(n / (n - 2))",
                "linear": "linear scaling", "yarn": "YaRN", "none": "no scaling"},
    "attention_factor": {0.0: "the attention factor 0.1 ln(factor) + 1"},
    "truncate": {True: "YaRN's range rounded to whole pairs", False: "YaRN's range as it is"},
    "ramp": {"pairs": "YaRN's ramp over pairs", "channels": "YaRN's ramp over channels 2j"},
    "temperature": {"once": "the attention factor once", "twice": "the attention factor twice",
                    "query": "the attention factor squared, on queries alone"},
    "blend": {"frequency": "a blend by frequency", "wavelength": "a blend by wavelength"},
    "factors": {"long": "longrope's long factors", "short": "longrope's short factors", "none": "no longrope factors",
                "own": "factors by each sequence's length"},
    "rounding": {"none": "frequencies as given", "bfloat16": "frequencies rounded to bfloat16"},
    "precision": {"exact": "exact phases", "float32": "phases as float32 products"},
    "decay": {"falling": "keys that fall with the position", "growing": "keys that grow with the position",
              "none": "no decay"},
    "growth": {"steps": "queries that grow in steps", "smooth": "queries that grow smoothly", "none": "no growth"},
    "arrangement": {"sections": "pairs in sections", "woven": "pairs woven", "sequential": "axis by axis",
                    "alternating": "axes that alternate", "shared": "axis by axis, frequencies that alternate",
                    "axes": "axis by axis, sines then cosines", "functions": "all sines, then all cosines",
                    "mixed": "sine and cosine by turns"},
    "coordinates": {"given": "coordinates as given", "signed": "coordinates from -1 to 1",
                    "centres": "coordinates from 0 to 1", "resampled": "coordinates of the trained grid"},
    # sums
    "functions": {"sines": "sines first", "cosines": "cosines first"},
    "shift": {0: "exponents j / (n/2)", 1: "exponents j / (n/2 - 1)"},
    "input": {"given": "the embedding as it is", "scaled": "the embedding times sqrt(channels)"},
    # attention
    "mask": {"bottom-right": "causal from the bottom right (the last query sees all keys)",
             "top-left": "causal from the top left (query i sees keys up to i)", "none": "no causal mask",
             "last free": "causal from the top left, but for the last query, which sees all keys"},
    "window": {0: "no window"},
    "local": {"window": "a window that slides", "chunks": "chunks that do not slide"},
    "kept": {0: "first keys that leave the window"},
    "prefix": {0: "a prefix that is causal"},
    "unseen": {"zero": "zeros of queries that see no key", "mean": "the mean of values of queries that see no key"},
    "softcap": {0: "no softcap"},
    "capping": {"scaled": "softcap of scaled scores, before bias and mask", "unscaled": "softcap before the scale",
                "biased": "softcap behind the bias", "masked": "softcap of masked scores, which are seen then"},
    "scale": {"yarn": "scale (0.1 ln 40 + 1)^2 / sqrt(d)"},
    "sink": {"logit": "a sink as one more score", "scaled": "a sink that is scaled as scores are",
             "capped": "a sink within the softcap", "shared": "key heads' sinks", "zero": "a sink of score 0",
             "none": "no sink"},
    "groups": {"consecutive": "key head h // group", "strided": "key head h % key heads"},
    "places": {"behind": "queries at the cache's end", "first": "queries counted from 0"},
    "direction": {"key - query": "displacements key - query", "query - key": "displacements query - key",
                  "distance": "-slope |key - query|", "signed": "slope (key - query)", "keys": "slope key"},
    "bias": {"beside": "a bias that is not scaled", "scaled": "a bias that is scaled with q k",
             "grown": "a bias times sqrt(d)", "none": "no bias"},
    "slopes": {"paper": "slopes by powers of 2", "formula": "slopes 2^(-8h/heads) for any heads",
               "cut": "slopes of the next power of 2, cut", "zero": "slopes 2^(-8h/heads) with h from 0",
               "swapped": "slopes in the opposite order", "shared": "key heads' slopes"},
    "causal": {True: "buckets of one direction", False: "buckets of both directions"},
    "sequences": {"apart": "sequences apart", "together": "attention across sequences"},
    "pages": {"table": "pages of the block table", "ordered": "pages in the pool's order"},
    "lengths": {"each": "each sequence's length", "all": "rows behind a sequence's length"},
    "starts": {"each": "each sequence's first key", "all": "padding before a sequence"},
    "slots": {"given": "each sequence's slot", "ordered": "slots in order"},
}

GIVEN = {"inverse": (False, True), "positions": ("given", "counted", "next", "none")}
HALVES, PAIRS = ({"layout": both, **GIVEN} for both in (("split", "interleaved"), ("interleaved", "split")))
BOTH = (("halves", HALVES), ("pairs", PAIRS))
YARN = {"scaling": ("yarn", "linear", "ntk", "none"), "original_max_position": (4096, 131072),
        "ramp": ("pairs", "channels")}
LLAMA3 = {"scaling": ("llama3", "linear", "none"), "original_max_position": (8192, 131072), "base": (5e5, 1e4),
          "blend": ("frequency", "wavelength")}
DYNAMIC = {"scaling": ("dynamic", "ntk", "linear", "base"), "factor": (4.0,), "original_max_position": (512, 8192)}
LONG = {"head_dim": (96,), "attention_factor": (1.190238, 1.0), "temperature": ("once", "twice", "query")}
XPOS = {"decay": ("falling", "growing", "none"), "gamma": (0.4, 0.5), "scale_base": (512, 256)}
FAR = {"head_dim": (64,), "rounding": ("none", "bfloat16")}
CAUSAL, ENDS, LAST = (
    {"mask": ("bottom-right", *others)} for others in (("top-left", "none"), ("none",), ("top-left",))
)
ALL = {"mask": ("none", "bottom-right")}
CAP = {"softcap": (2.0, 0), "capping": ("scaled", "unscaled")}
GROUPS = {"groups": ("consecutive", "strided")}
WIDE, NARROW = ({"window": (w, w + 1, w - 1, 0)} for w in (16, 4))
CHUNKS = {"window": (5, 4, 0), "local": ("chunks", "window")}
SINK = {"sink": ("logit", "scaled", "zero", "none")}
ALIBI = {"bias": ("beside", "scaled", "none"), "slopes": ("paper", "swapped", "zero")}
ANY = {**ALIBI, "slopes": ("paper", "formula", "cut", "zero", "swapped")}
BEHIND = {"places": ("behind", "first")}
T5 = {"scale": ("1", "1/sqrt(d)"), "bias": ("beside", "none"), "direction": ("key - query", "query - key"),
      "heads": (4,)}
BACK = {**T5, "bias": ("beside",)}  # where the other direction has one bucket, and so no bias
PACKED, PAGED = {"sequences": ("apart", "together")}, {"pages": ("table", "ordered"), "lengths": ("each", "all")}
EACH = {"lengths": ("each", "all")}
CACHE, DECODE = {"n": 5, "m": 40}, {"n": 1, "m": 40}
PACK, PAGES = {"pack": ((5, 5), (9, 9), (3, 3))}, {"n": 3, "lengths": (37, 20, 48), "page_size": 16}
CACHES = {"pack": ((2, 7), (1, 12), (5, 5))}
CELLS = {"cells": ((24, 24),)}


def _rope(name: str, dim: int, pairs: Mapping[str, Any], sizes: Mapping[str, Any] = {}, spec: str = "rope",
          **asked: Any) -> Case:
    return Case(name, spec, {"head_dim": (dim,), "base": (1e4,), **pairs, **asked}, {}, sizes)


def _partial(name: str, dim: int, turns: int, pairs: Mapping[str, Any], turning: tuple[str, str] = ("first", "last"),
             **asked: Any) -> Case:
    partners = {"partners": ("turning", "head")} if pairs is HALVES else {}
    other = {"rotary_dim": (turns, 0), "turning": turning, "exponents": ("turning", "head"), **partners}
    return _rope(name, dim, pairs, **{**other, **asked})


def _axial(name: str, dim: int, axes: int, pairs: Mapping[str, Any], sizes: Mapping[str, Any] = {},
           **asked: Any) -> Case:
    order = tuple(range(axes))
    asked = {"order": (order, (*order[:-2], order[-1], order[-2])), **asked}
    return _rope(name, dim, pairs, {"last": 40, **sizes}, "rope_axial", axes=(axes,), **asked)


def _sum(name: str, axes: int = 1, **asked: Any) -> Case:
    order = tuple(range(axes))
    asked |= {"functions": ("sines", "cosines")} | ({"order": (order, order[::-1])} if axes > 1 else {}) | asked
    return Case(name, "sincos", {"channels": (64,), "axes": (axes,), "positions": ("given", "next", "counted", "none"),
                                 "base": (1e4, 1e3), "input": ("given", "scaled"), **asked}, {}, {"last": 300})


def _attend(name: str, *asked: Mapping[str, Any], sizes: Mapping[str, Any] = {}, spec: str = "", **more: Any) -> Case:
    merged = {"scale": ("1/sqrt(d)", "1", "1/d")}
    for part in (*asked, more):
        merged |= part
    return Case(name, spec, merged, {}, sizes)


def _alibi(name: str, heads: int, *asked: Mapping[str, Any], **more: Any) -> Case:
    slopes = ALIBI if heads & (heads - 1) == 0 else ANY
    return _attend(name, slopes, *asked, spec="alibi", heads=(heads,), **more)


def _positions(both: str, pairs: Mapping[str, Any]) -> tuple[Case, ...]:
    """Rules of positions."""
    rule = lambda *values: {"positions": values}  # noqa: E731
    return (
        *(_rope(f"{both}, positions from 0{more}", 64, pairs, {"from": 0}, **rule("given", "next", "none"), base=base)
          for more, base in (("", (1e4, 5e5)), (", base 500000", (5e5, 1e4)))),
        _rope(f"{both}, positions from 100", 64, pairs, {"from": 100}),
        _rope(f"{both}, decode", 64, pairs, {"n": 1}, **rule("given", "counted", "next")),
        _rope(f"{both}, positions by sequence", 64, pairs, {"each": True},
              **rule("given", "shared", "counted", "next", "none")),
        _rope(f"{both}, decode of sequences", 64, pairs, {"each": True, "n": 1}, **rule("given", "shared", "counted")),
        _rope(f"{both}, beyond a table of 1024", 64, pairs, table=(1024,), **rule("given", "clamped", "wrapped")),
        _rope(f"{both}, negative positions", 64, pairs, {"negative": True}, inverse=(False,),
              **rule("given", "absolute", "counted")),
        _rope(f"{both}, fractional positions", 64, pairs, {"fractional": True, "last": 40},
              **rule("given", "floored", "counted")),
        _rope(f"{both}, far", 64, pairs, {"last": 30000}, **rule("given", "bfloat16", "counted")),
        _rope(f"{both}, packed", 64, pairs, {"pack": (5, 9, 3)}, **rule("restart", "counted", "next", "none")),
        _rope(f"{both}, turned back", 64, pairs, inverse=(True, False)),
        _rope(f"{both}, prefix token", 64, pairs, skipped=(1, 0)),
        _rope(f"{both}, prefix of 5 tokens", 64, pairs, skipped=(5, 1, 0)),
    )


CASES = {case.name: case for case in (
    *(_rope(both, 64, pairs, base=(1e4, 5e5)) for both, pairs in BOTH),
    *(_rope(f"{both}, base 500000", 128, pairs, base=(5e5, 1e4)) for both, pairs in BOTH),
    *(case for both, pairs in BOTH for case in _positions(both, pairs)),
    _partial("halves, 32 of 80 channels", 80, 32, HALVES),
    _partial("halves, 64 of 256 channels", 256, 64, HALVES, base=(1e7, 1e4)),
    _partial("halves, the last 64 of 192 channels", 192, 64, HALVES, ("last", "first")),
    _partial("halves, 128 of 512 channels, of all", 512, 128, HALVES, exponents=("head", "turning"),
             partners=("head", "turning"), base=(1e6, 1e4)),
    _partial("pairs, 64 of 128 channels", 128, 64, PAIRS),
    _partial("pairs, 64 of 256 channels", 256, 64, PAIRS, base=(1e6, 1e4)),
    _partial("pairs, the last 64 of 192 channels", 192, 64, PAIRS, ("last", "first")),
    _partial("pairs, 32 of 128 channels, of all", 128, 32, PAIRS, exponents=("head", "turning")),
    *(_rope(name, 64, pairs, scaling=("linear", "ntk", "none"), factor=(8.0, 2.0))
      for name, pairs in (("linear", HALVES), ("linear, pairs", PAIRS))),
    _rope("linear, base 1000000", 128, HALVES, scaling=("linear", "ntk", "none"), factor=(8.0, 2.0), base=(1e6, 1e4)),
    _partial("linear, 32 of 80 channels", 80, 32, HALVES, scaling=("linear", "ntk", "none"), factor=(2.0, 8.0)),
    *(_rope(name, 64, pairs, scaling=("ntk", "linear", "base", "divided", "none"), factor=(4.0, 2.0))
      for name, pairs in (("NTK", HALVES), ("NTK, pairs", PAIRS))),
    _partial("NTK, 32 of 128 channels", 128, 32, HALVES, scaling=("ntk", "linear", "base", "none"), factor=(4.0, 2.0)),
    _rope("base times factor", 64, HALVES, scaling=("base", "ntk", "none"), factor=(16.0, 8.0)),
    *(_rope(name, 64, pairs, **DYNAMIC) for name, pairs in (("dynamic NTK", HALVES), ("dynamic NTK, pairs", PAIRS))),
    _rope("dynamic NTK, decode", 64, HALVES, {"n": 1}, **DYNAMIC, positions=("given", "counted", "next")),
    _rope("dynamic NTK, within the trained length", 64, HALVES, {"last": 500},
          **{**DYNAMIC, "original_max_position": (512, 256)}),
    _rope("YaRN", 64, HALVES, **YARN, factor=(32.0, 8.0), base=(15e4, 1e4), truncate=(False, True),
          attention_factor=(0.0, 1.0), temperature=("once", "twice", "query")),
    _rope("YaRN, whole pairs", 128, HALVES, **YARN, factor=(4.0, 8.0), attention_factor=(0.0, 1.0)),
    _rope("YaRN, pairs, temperature 1", 64, PAIRS, **YARN, factor=(40.0, 4.0), attention_factor=(1.0, 0.0)),
    _rope("YaRN, pairs", 64, PAIRS, **YARN, factor=(16.0, 4.0), attention_factor=(0.0, 1.0),
          temperature=("once", "twice")),
    _rope("YaRN, turns 64 and 2", 128, HALVES, **YARN, factor=(8.0, 4.0), attention_factor=(0.0, 1.0),
          beta_fast=(64.0, 32.0), beta_slow=(2.0, 1.0)),
    _rope("YaRN, temperature 1.26", 64, HALVES, **YARN, factor=(40.0, 4.0), attention_factor=(1.26, 0.0, 1.0)),
    _partial("YaRN, 64 of 128 channels", 128, 64, HALVES, **YARN, factor=(8.0, 4.0), attention_factor=(0.0, 1.0)),
    _rope("llama3", 128, HALVES, **LLAMA3, factor=(8.0, 32.0)),
    _rope("llama3, factor 32", 64, HALVES, **LLAMA3, factor=(32.0, 8.0)),
    _rope("llama3, pairs", 128, PAIRS, **LLAMA3, factor=(16.0, 8.0), high_freq_factor=(1.5, 4.0)),
    _rope("llama3, factors 2 and 8", 128, HALVES, **LLAMA3, factor=(8.0, 4.0), low_freq_factor=(2.0, 1.0),
          high_freq_factor=(8.0, 4.0)),
    *(Case(f"longrope, beyond the trained length{more}", "rope_frequencies",
           {**LONG, **pairs, **some, "factors": ("long", "short", "none")}, {"original_max_position": 64})
      for more, pairs, some in (("", HALVES, {}), (", pairs", PAIRS, {}),
                                (", 96 of 128 channels", HALVES, {"head_dim": (128,), "rotary_dim": (96,),
                                                                  "partners": ("turning", "head")}))),
    Case("longrope, within the trained length", "rope_frequencies",
         {**LONG, **HALVES, "factors": ("short", "long", "none")}, {"original_max_position": 64}, {"last": 63}),
    Case("longrope, a short and a long sequence", "rope_frequencies",
         {**LONG, **HALVES, "factors": ("long", "own", "short"), "positions": ("given", "shared", "counted")},
         {"original_max_position": 64}, {"each": True, "short": True}),
    *(Case(f"{one} phases at {length}{more}", "rope_frequencies",
           {**FAR, **pairs, "precision": (one, other)}, {}, {"last": last})
      for one, other in (("exact", "float32"), ("float32", "exact"))
      for length, more, pairs, last in (("a million", "", HALVES, 10**6),
                                        ("half a million", ", pairs", PAIRS, 5 * 10**5))),
    *(_rope(f"xPos, {both}", 64, pairs, {"last": 400}, "xpos", origin=(0, 200), **XPOS) for both, pairs in BOTH),
    _rope("xPos, origin 56, positions from 100", 64, PAIRS, {"from": 100}, "xpos", origin=(56, 0), **XPOS),
    _rope("xPos, positions from 0", 64, PAIRS, {"from": 0, "n": 80}, "xpos", origin=(0, 40), **XPOS,
          positions=("given", "next", "none")),
    _rope("growth in steps", 64, HALVES, {"last": 100}, growth=("steps", "smooth", "none"), floor_scale=(16, 8)),
    _axial("M-RoPE", 128, 3, HALVES, arrangement=("sections", "woven"), sections=((16, 24, 24),), base=(1e6, 1e4)),
    _axial("M-RoPE, decode", 128, 3, HALVES, {"n": 1}, arrangement=("sections", "woven"), sections=((16, 24, 24),),
           base=(1e6, 1e4), positions=("given", "counted", "next")),
    _axial("M-RoPE, positions by sequence", 128, 3, HALVES, {"each": True}, arrangement=("sections", "woven"),
           sections=((16, 24, 24),), base=(1e6, 1e4), positions=("given", "shared", "counted", "next")),
    _axial("M-RoPE, pairs, 64 of 128 channels", 128, 3, PAIRS, arrangement=("sections", "woven"),
           sections=((8, 12, 12),), base=(1e4, 1e6)),
    _axial("M-RoPE, woven", 128, 3, HALVES, arrangement=("woven", "sections"), sections=((24, 20, 20),),
           base=(5e6, 1e6)),
    _axial("M-RoPE, woven, 64 of 256 channels", 256, 3, HALVES, arrangement=("woven", "sections"),
           sections=((11, 11, 10),), base=(1e7, 5e6)),
    *(_axial(name, dim, 3, PAIRS, sections=(sections, sections[::-1]), base=base) for name, dim, sections, base in (
        ("video", 128, (16, 24, 24), (1e4, 256.0)), ("video, base 256", 128, (8, 28, 28), (256.0, 1e4)),
        ("video, 44, 42 and 42 channels", 128, (22, 21, 21), (1e4, 256.0)),
        ("video, 64 channels", 64, (8, 12, 12), (1e4, 256.0)))),
    _axial("video, halves, stretched", 128, 3, HALVES, sections=((22, 21, 21),), stretch=((2, 1, 1), (1, 1, 1)),
           base=(1e4, 256.0)),
    _axial("four axes", 128, 4, PAIRS, base=(2000.0, 1e4)),
    _axial("image", 64, 2, PAIRS, arrangement=("sequential", "alternating", "shared"), base=(100.0, 1e4)),
    _axial("image, columns first", 64, 2, PAIRS, order=((1, 0), (0, 1)), base=(1e4, 100.0)),
    _axial("image, halves", 80, 2, HALVES, arrangement=("sequential", "alternating", "shared"), base=(1e4, 100.0)),
    _axial("image, alternating", 64, 2, PAIRS, arrangement=("alternating", "sequential"), base=(1e4, 100.0)),
    *(_axial(f"image, {both}, frequencies that alternate", 64, 2, pairs, base=(1e4, 100.0),
             arrangement=("shared", "sequential", "alternating")) for both, pairs in BOTH),
    _axial("image, signed coordinates", 64, 2, HALVES, {"last": 23}, **CELLS, base=(100.0, 1e4),
           factor=(6.283185307179586, 1.0), coordinates=("signed", "centres", "given")),
    _axial("image, another grid", 64, 2, PAIRS, {"last": 23}, **CELLS, trained=((16, 16),), base=(1e4, 100.0),
           coordinates=("resampled", "given")),
    _axial("image, coordinates from 1", 64, 2, PAIRS, positions=("next", "given", "none"), order=((1, 0), (0, 1)),
           base=(1e4, 100.0)),
    _axial("image, prefix of 5 tokens", 64, 2, HALVES, base=(100.0, 1e4), skipped=(5, 1, 0)),
    _axial("image, prefix token", 64, 2, PAIRS, base=(1e4, 100.0), skipped=(1, 0)),
    _sum("sums", arrangement=("axes", "mixed"), shift=(0, 1)),
    _sum("sums, sine and cosine by turns", arrangement=("mixed", "axes")),
    _sum("sums, cosines first", functions=("cosines", "sines"), shift=(0, 1)),
    _sum("sums, exponents to 1", shift=(1, 0)),
    _sum("sums, scaled input", input=("scaled", "given")),
    _sum("sums, positions from 1", positions=("next", "given", "none"), shift=(1, 0)),
    _sum("sums, image", 2, arrangement=("axes", "functions", "mixed")),
    _sum("sums, image, columns first", 2, arrangement=("axes", "functions"), order=((1, 0), (0, 1))),
    _sum("sums, image, all sines first", 2, arrangement=("functions", "axes")),
    _attend("attention", ALL),
    _attend("causal", ENDS),
    _attend("causal, cache", CAUSAL, mask=("bottom-right", "top-left", "last free", "none"), sizes=CACHE),
    _attend("causal, decode", LAST, sizes=DECODE),
    _attend("causal, scale 1/16", ENDS, scale=("1/16", "1/sqrt(d)", "1")),
    _attend("causal, values of 64 channels", ENDS, scale=("1/sqrt(d)", "1/sqrt(dv)", "1"), sizes={"dv": 64}),
    _attend("causal, YaRN's scale", ENDS, scale=("yarn", "1/sqrt(d)", "1")),
    _attend("causal, more queries than keys", CAUSAL, sizes={"m": 5}, unseen=("zero", "mean")),
    _attend("causal, prefix that all see", ENDS, prefix=(4, 0)),
    _attend("causal, prefix, cache", CAUSAL, prefix=(38, 0), sizes=CACHE),
    _attend("groups of heads", ENDS, GROUPS, sizes={"h": 8, "hkv": 2}),
    _attend("groups of heads, cache", CAUSAL, GROUPS, sizes={**CACHE, "h": 6, "hkv": 2}),
    _attend("groups of heads, decode", LAST, GROUPS, sizes={**DECODE, "h": 8, "hkv": 4}),
    _attend("window", ENDS, NARROW),
    _attend("window, cache", CAUSAL, WIDE, sizes=CACHE),
    _attend("window, decode", LAST, WIDE, sizes=DECODE),
    _attend("window of both directions", ALL, NARROW),
    _attend("window, first keys kept", ENDS, NARROW, kept=(2, 0, 1)),
    _attend("window, first keys kept, decode", LAST, WIDE, kept=(4, 0, 1), sizes=DECODE),
    _attend("chunks", ENDS, CHUNKS),
    _attend("chunks, cache", CAUSAL, CHUNKS, sizes={"n": 5, "m": 38}),
    _attend("chunks, decode", LAST, CHUNKS, sizes={"n": 1, "m": 39}),
    _attend("softcap", ALL, CAP),
    _attend("softcap, causal", ENDS, CAP, capping=("scaled", "unscaled", "masked")),
    _attend("softcap, decode", LAST, CAP, sizes=DECODE),
    _attend("softcap, window, cache", CAUSAL, CAP, WIDE, sizes=CACHE),
    _attend("softcap, scale 1/16", ENDS, CAP, scale=("1/16", "1/sqrt(d)", "1"), softcap=(0.5, 0)),
    _attend("softcap, unscaled", ENDS, CAP, capping=("unscaled", "scaled")),
    _attend("softcap, sink", ENDS, CAP, softcap=(0.5, 0), sink=("logit", "capped", "zero", "none")),
    _alibi("softcap, ALiBi", 4, ENDS, CAP, capping=("scaled", "biased", "unscaled")),
    _attend("softcap, T5", ALL, T5, spec="t5", softcap=(4.0, 0), capping=("scaled", "biased"), causal=(False, True)),
    _attend("sink", ENDS, SINK),
    _attend("sink, all keys", ALL, SINK),
    _attend("sink, decode", LAST, SINK, sizes={"n": 1, "m": 9}),
    _attend("sink, groups of heads", ENDS, sink=("logit", "scaled", "shared", "none"), sizes={"h": 8, "hkv": 2}),
    _attend("sink, window, cache", CAUSAL, SINK, WIDE, sizes=CACHE),
    _attend("softmax plus 1", ENDS, sink=("zero", "none")),
    _alibi("sink, ALiBi", 4, ENDS, SINK, direction=("distance", "keys")),
    *(_alibi(f"ALiBi, {heads} heads", heads, ENDS, sizes={"b": 1}) for heads in (3, 4, 5, 6, 8, 12, 20, 40, 71)),
    _alibi("ALiBi, 6 heads, cache", 6, CAUSAL, BEHIND, sizes=CACHE),
    _alibi("ALiBi, 12 heads, decode", 12, LAST, BEHIND, sizes=DECODE),
    _alibi("ALiBi, all keys", 8, ALL, direction=("distance", "signed")),
    _alibi("ALiBi, all keys, 6 heads", 6, ALL, direction=("distance", "signed")),
    _alibi("ALiBi, window", 8, ENDS, NARROW),
    _alibi("ALiBi, groups of heads", 8, ENDS, GROUPS, sizes={"hkv": 2}, slopes=("paper", "shared", "swapped")),
    _attend("T5, encoder", ALL, T5, spec="t5", causal=(False, True), max_distance=(128, 64),
            sizes={"n": 100, "m": 100}),
    _attend("T5, encoder, 64 buckets", ALL, T5, spec="t5", causal=(False, True), num_buckets=(64, 32),
            max_distance=(256, 128), sizes={"n": 140, "m": 140, "b": 1}),
    _attend("T5, encoder, scaled scores", ALL, T5, spec="t5", scale=("1/sqrt(d)", "1"), causal=(False, True),
            bias=("beside", "scaled", "grown", "none"), sizes={"n": 40, "m": 40}),
    _attend("T5, decoder", ENDS, BACK, spec="t5", causal=(True, False), sizes={"n": 60, "m": 60}),
    _attend("T5, cache", CAUSAL, BACK, BEHIND, spec="t5", causal=(True, False), max_distance=(128, 64),
            sizes={"n": 3, "m": 150}),
    _attend("T5, decode", LAST, BACK, BEHIND, spec="t5", causal=(True, False), max_distance=(128, 64),
            direction=("key - query",), sizes={"n": 1, "m": 150}),
    _attend("packed", ALL, PACKED, sizes=PACK),
    _attend("packed, causal", ENDS, PACKED, sizes=PACK),
    _attend("packed, causal, caches", CAUSAL, PACKED, sizes=CACHES),
    _attend("packed, decode", LAST, PACKED, sizes={"pack": ((1, 7), (1, 12), (1, 5))}),
    _attend("packed, window", ENDS, PACKED, NARROW, sizes=PACK),
    _attend("packed, groups of heads", ENDS, PACKED, GROUPS, sizes={**PACK, "h": 4, "hkv": 2}),
    _attend("packed, softcap", ENDS, PACKED, CAP, sizes=PACK),
    _attend("packed, sink", ENDS, PACKED, SINK, sizes=PACK),
    _alibi("packed, ALiBi, caches", 6, CAUSAL, PACKED, BEHIND, sizes=CACHES),
    _attend("packed, T5", ALL, PACKED, T5, spec="t5", causal=(False, True), sizes=PACK),
    _attend("paged, causal", CAUSAL, PAGED, sizes=PAGES),
    _attend("paged, decode", LAST, PAGED, GROUPS, sizes={**PAGES, "n": 1, "h": 4, "hkv": 2}),
    _attend("paged, pages of one row", LAST, PAGED, sizes={**PAGES, "n": 1, "page_size": 1}),
    _attend("paged, window", CAUSAL, PAGED, WIDE, sizes=PAGES),
    _attend("paged, softcap", CAUSAL, PAGED, CAP, sizes=PAGES),
    _attend("paged, sink", CAUSAL, PAGED, SINK, sizes=PAGES),
    _alibi("paged, ALiBi", 6, CAUSAL, PAGED, BEHIND, sizes=PAGES),
    _attend("paged, T5", CAUSAL, PAGED, BACK, BEHIND, spec="t5", causal=(True, False), sizes=PAGES),
    _attend("lengths", ALL, EACH, sizes=PAGES),
    _attend("lengths, causal", CAUSAL, EACH, sizes=PAGES),
    _attend("lengths, decode", LAST, EACH, GROUPS, sizes={**PAGES, "n": 1, "h": 4, "hkv": 2}),
    _attend("lengths, window", CAUSAL, EACH, WIDE, sizes=PAGES),
    _alibi("lengths, ALiBi", 4, CAUSAL, EACH, BEHIND, sizes=PAGES),
    _attend("padding before", CAUSAL, starts=("each", "all"), sizes={"n": 3, "m": 20, "starts": (5, 0)}),
    _attend("padding before, decode", LAST, starts=("each", "all"), sizes={"n": 1, "m": 20, "starts": (0, 9)}),
    _attend("slots", CAUSAL, slots=("given", "ordered"), sizes={"n": 3, "m": 20, "slots": (3, 1)}),
    _attend("slots, decode", LAST, slots=("given", "ordered"), sizes={"n": 1, "m": 20, "slots": (2, 0)}),
)}
# fmt: on


def words(name: str, value: Any) -> str:
    return WORDS.get(name, {}).get(value) or f"{name} {value}"
