"""A configuration of transformers (`config.json`) as a stock description and its options.

Configurations say how fast pairs turn, and not which channels are a pair: the table below does, by `model_type`, and
tests/python/config_test.py holds its rows against the models' own code.
"""
from __future__ import annotations

import json
import os
from typing import Any, Mapping, Sequence

from .errors import CompileError

_PAIRS = {
    "split": "afmoe apertus arcee bamba bitnet chameleon csm cwm diffllama doge dots1 eurobert evolla exaone4 "
    "exaone_moe falcon falcon_h1 flex_olmo gemma gemma2 gemma3_text glm4_moe gpt_neox gpt_oss granite "
    "granitemoe granitemoehybrid granitemoeshared hrm_text hunyuan_v1_dense hunyuan_v1_moe hy_v3 hyperclovax "
    "jais2 jina_embeddings_v3 kolibri1 lfm2 lfm2_moe llama mimi mimo_v2_flash minimax minimax_m2 ministral "
    "mistral mixtral modernbert nemotron nomic_bert olmo olmo2 olmo3 olmo_hybrid olmoe persimmon phi phi3 "
    "phimoe qwen2 qwen2_5_vl_text qwen2_moe qwen2_vl_text qwen3 qwen3_5_moe_text qwen3_5_text qwen3_moe "
    "qwen3_next qwen3_vl_text seed_oss smollm3 solar_open stablelm starcoder2 vaultgemma",
    "interleaved": "codegen cohere cohere2 cohere2_moe ernie4_5 ernie4_5_moe glm glm4 gptj helium",
}
_LAYOUT = {model: layout for layout, models in _PAIRS.items() for model in models.split()}

# Fields of a rope type, as transformers' modeling_rope_utils.py names them, and the options that take them.
_TRAINED = {"original_max_position_embeddings": "original_max_position"}
_OPTIONS = {
    "default": {},
    "linear": {"factor": "factor"},
    "llama3": {name: name for name in ("factor", "low_freq_factor", "high_freq_factor")} | _TRAINED,
    "yarn": {name: name for name in ("factor", "beta_fast", "beta_slow", "truncate", "attention_factor")} | _TRAINED,
}
_COMMON = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
_AXES = {"mrope_section", "mrope_interleaved"}  # of positions (t, h, w), which turn by the default rule

# Other fields with rope or rotary in their names: rates and sizes under older names, and where nothing turns.
_BASES = ("rope_theta", "rotary_emb_base")
_SHARES = ("partial_rotary_factor", "rotary_pct")
_READ = {*_BASES, *_SHARES, "rope_parameters", "rope_scaling", "rope_local_base_freq", "rotary_dim", "use_rope"}
_OF_LAYERS = {"no_rope_layers", "no_rope_layer_interval"}  # which layers turn: the caller's


def _first(of: Mapping[str, Any], names: tuple[str, ...], otherwise: Any) -> Any:
    return next((of[name] for name in names if of.get(name) is not None), otherwise)


def _wrong(text: str) -> CompileError:
    return CompileError(f"config: {text}")


def _fields(config: Mapping[str, Any] | str | os.PathLike[str]) -> Mapping[str, Any]:
    if not isinstance(config, Mapping):
        try:
            with open(config, encoding="utf-8") as file:
                config = json.load(file)
        except (OSError, ValueError) as e:
            raise _wrong(f"cannot read '{os.fspath(config)}': {e}") from e
    if not isinstance(config, Mapping):
        raise _wrong("an object of fields was expected")
    return config


def _rope(fields: Mapping[str, Any], layer_type: str | None) -> Mapping[str, Any]:
    """The rope parameters of layers of that type."""
    rope = fields.get("rope_parameters") or fields.get("rope_scaling") or {}
    local = fields.get("rope_local_base_freq")
    if local is not None and not fields.get("rope_parameters"):
        rope = {"full_attention": rope, "sliding_attention": {"rope_theta": local}}
    kinds = [name for name, value in rope.items() if isinstance(value, Mapping)]
    if layer_type is None and not kinds:
        return rope
    if layer_type not in kinds:
        expected = (
            f"one of {', '.join(kinds)} was expected" if kinds else "all layers turn alike, and none was expected"
        )
        raise _wrong(f"layer_type is {layer_type!r}; {expected}")
    return rope[layer_type]


def _size(fields: Mapping[str, Any]) -> int:
    if fields.get("head_dim"):
        return int(fields["head_dim"])
    width = _first(fields, ("hidden_size", "n_embd"), None)
    heads = _first(fields, ("num_attention_heads", "n_head"), None)
    if not width or not heads:
        raise _wrong("'head_dim', or 'hidden_size' and 'num_attention_heads' were expected")
    return int(width // heads)


def described(
    config: Mapping[str, Any] | str | os.PathLike[str], layer_type: str | None = None
) -> tuple[str, dict[str, Any]]:
    """A stock description's name and its options. A field that says more of rotations than is read is refused."""
    fields = _fields(config)
    model = fields.get("model_type")
    if model not in _LAYOUT:
        raise _wrong(f"model_type is {model!r}, whose pairs of channels are not known; one of "
                     f"{', '.join(sorted(_LAYOUT))} was expected, or options of 'rope'")  # fmt: skip
    rope = _rope(fields, layer_type)
    kind = rope.get("rope_type", rope.get("type", "default"))
    sections = rope.get("mrope_section")
    if kind == "mrope" and sections:  # an older name
        kind = "default"
    if kind not in _OPTIONS:
        raise _wrong(f"rope_type is {kind!r}; {', '.join(_OPTIONS)} were expected: "
                     "'rope_frequencies' takes the model's inv_freq")  # fmt: skip
    unknown = {name for name, value in rope.items() if value is not None} - _COMMON - set(_OPTIONS[kind])
    if kind == "default":
        unknown -= _AXES
    for name, value in fields.items():
        of_rows = "rope" in name or "rotary" in name
        if of_rows and name not in _READ | _OF_LAYERS and value is not None:
            unknown.add(name)
    if kind == "default":
        unknown.discard("original_max_position_embeddings")  # what is not stretched
    if unknown:
        raise _wrong(f"'{min(unknown)}' of rope type '{kind}' is not read")
    size = _size(fields)
    share = _first(rope, _SHARES[:1], _first(fields, _SHARES, 1.0))
    turning = int(_first(fields, ("rotary_dim",), int(size * share)))
    base = rope.get("rope_theta", _first(fields, _BASES, 10000.0))
    options = {"layout": _LAYOUT[model], "head_dim": size, "base": float(base)}
    if sections:
        if 2 * sum(sections) != turning:
            raise _wrong(f"'mrope_section' has {sum(sections)} pairs of channels; {turning // 2} turn")
        arrangement = "woven" if rope.get("mrope_interleaved") else "sections"
        return "rope_axial", options | {"axes": len(sections), "arrangement": arrangement, "sections": sections}
    options |= {name: rope[field] for field, name in _OPTIONS[kind].items() if rope.get(field) is not None}
    if kind != "default":
        options["scaling"] = kind
    if "original_max_position_embeddings" in _OPTIONS[kind] and "original_max_position" not in options:
        options["original_max_position"] = fields.get("max_position_embeddings")
    return "rope", options | ({} if turning == size else {"rotary_dim": turning})


def main(words: Sequence[str]) -> int:
    """`pegen specs --config FILE`: prints the command of a configuration."""
    import argparse  # of the command alone: every program that imports the package reads this file

    parser = argparse.ArgumentParser("pegen specs --config", description=main.__doc__)
    parser.add_argument("file", metavar="FILE", help="config.json of a model of transformers")
    parser.add_argument("--layer-type", metavar="TYPE", help="of the layers, where angles differ: full_attention, ...")
    given = parser.parse_args(words)
    try:
        spec, options = described(given.file, given.layer_type)
    except CompileError as e:
        parser.exit(1, f"pegen: error: {e}\n")
    print("pegen", spec, *(f"-D {name}={_text(value)}" for name, value in options.items()), f"-o {spec}.o")
    return 0


def _text(value: Any) -> str:
    """An option's value as -D takes it."""
    if isinstance(value, (list, tuple)):
        return ",".join(map(_text, value))
    if isinstance(value, float):
        return f"{value:.17g}"
    return str(value).lower() if isinstance(value, bool) else str(value)
