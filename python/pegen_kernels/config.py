"""A configuration of transformers (`config.json`) as a stock description and its options.

Configurations say how fast pairs turn, and not which channels are a pair: config_models.py does.
"""
from __future__ import annotations

import json
import math
import os
from typing import Any, Mapping, Sequence

from . import config_models as models
from .errors import CompileError

# Fields of a rope type, as transformers' modeling_rope_utils.py names them, and the options that take them.
_TRAINED = {"original_max_position_embeddings": "original_max_position"}
_OPTIONS = {
    "default": {},
    "linear": {"factor": "factor"},
    "llama3": {name: name for name in ("factor", "low_freq_factor", "high_freq_factor")} | _TRAINED,
    "yarn": {name: name for name in ("factor", "beta_fast", "beta_slow", "truncate", "attention_factor")} | _TRAINED,
    "proportional": {},
    "dynamic": {},
    "longrope": {"attention_factor": "attention_factor"},
}
# Further fields that are read, from which options are computed.
_COMMON = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
_AXES = {"mrope_section", "xdrope_section", "mrope_interleaved"}  # of positions (t, h, w)
_COMPUTED = {
    "default": {"original_max_position_embeddings"},  # what is not stretched
    "yarn": {"mscale", "mscale_all_dim"},
    "proportional": {"factor"},
    "dynamic": {"factor", "alpha"},
    "longrope": {"factor", "short_factor", "long_factor", "original_max_position_embeddings"},
}
_IDLE = {"beta_fast", "beta_slow", "mscale", "mscale_all_dim"}  # beside alpha, which is the whole rule
_OLDER_KINDS = {"mrope": "default", "xdrope": "dynamic"}

# Other fields with rope or rotary in their names: rates and sizes under older names, and where nothing turns.
_BASES = ("rope_theta", "rotary_emb_base")
_SHARES = ("partial_rotary_factor", "rotary_pct")
_READ = {
    *_BASES, *_SHARES, "rope_parameters", "rope_scaling", "rotary_dim", "use_rope", "qk_rope_head_dim",
    "rope_local_base_freq", "global_rope_theta", "local_rope_theta", "compress_rope_theta",
}  # fmt: skip
_OF_LAYERS = {"no_rope_layers", "no_rope_layer_interval"}  # which layers turn: the caller's
_WITHOUT = "no_rope"  # the layer_type of the others


def _first(of: Mapping[str, Any], names: tuple[str, ...], otherwise: Any) -> Any:
    return next((of[name] for name in names if of.get(name) is not None), otherwise)


def _wrong(text: str) -> CompileError:
    return CompileError(f"config: {text}")


def _fields(config: Mapping[str, Any] | str | os.PathLike[str]) -> Mapping[str, Any]:
    """The configuration of a model's text, which models of images and sounds have as a part."""
    if not isinstance(config, Mapping):
        try:
            with open(config, encoding="utf-8") as file:
                config = json.load(file)
        except (OSError, ValueError) as e:
            raise _wrong(f"cannot read '{os.fspath(config)}': {e}") from e
    if not isinstance(config, Mapping):
        raise _wrong("an object of fields was expected")
    model, text = config.get("model_type"), config.get("text_config")
    if model in models.LAYOUT or model in models.IMAGES:
        return config
    if isinstance(text, Mapping):
        return _fields({"model_type": f"{model}_text", **text})
    if f"{model}_text" in models.LAYOUT:  # older files have no part for it
        return {**config, "model_type": f"{model}_text"}
    raise _wrong(f"model_type is {model!r}, whose pairs of channels are not known; 'rope' has options for them")


def _by_layers(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The rope parameters, also of older files, in one form: by type of layer where these turn differently."""
    rope = fields.get("rope_parameters") or fields.get("rope_scaling") or {}
    model = fields["model_type"]
    if any(isinstance(value, Mapping) for value in rope.values()):
        return rope
    if model in models.LAST:
        own = {"attention_factor": 1.0} if rope.get("rope_type", rope.get("type")) == "yarn" else {}
        compressed = _first(fields, ("compress_rope_theta",), 160000.0)
        return {
            "main": {"rope_theta": _first(fields, ("rope_theta",), 10000.0)},
            "compress": {**own, **rope, "rope_theta": compressed},
        }
    if model in models.TWO_RATES:
        *rates, stretched = models.TWO_RATES[model]
        return {
            kind: {**(rope if kind in stretched else {}), "rope_theta": _first(fields, (field,), otherwise)}
            for kind, (field, otherwise) in zip(("full_attention", "sliding_attention"), rates)
        }
    return rope


def _rope(fields: Mapping[str, Any], layer_type: str | None) -> Mapping[str, Any]:
    """The rope parameters of layers of that type."""
    rope = _by_layers(fields)
    kinds = [name for name, value in rope.items() if isinstance(value, Mapping)]
    if layer_type is None and not kinds:
        return rope
    if layer_type not in kinds:
        if layer_type is not None and layer_type in rope:
            raise _wrong(f"layers of {layer_type!r} do not turn")
        expected = (
            f"one of {', '.join(kinds)} was expected" if kinds else "all layers turn alike, and none was expected"
        )
        raise _wrong(f"layer_type is {layer_type!r}; {expected}")
    return rope[layer_type]


def _needed(of: Mapping[str, Any], name: str, kind: str) -> Any:
    if of.get(name) is None:
        raise _wrong(f"'{name}' of rope type '{kind}' is missing")
    return of[name]


def _size(fields: Mapping[str, Any], layer_type: str | None) -> int:
    """Channels of a head in layers of that type; of latent attention, those of the part that turns."""
    model = fields["model_type"]
    if model in models.LATENT:
        if not fields.get("qk_rope_head_dim"):
            raise _wrong("'qk_rope_head_dim' was expected")
        return int(fields["qk_rope_head_dim"])
    types, own = fields.get("layer_types"), fields.get("per_layer_config")
    if layer_type is not None and types and own:
        layers = [words for layer, words in own.items() if types[int(layer)] == layer_type]
        sizes = {words["head_dim"] for words in layers if "head_dim" in words}
        if len(sizes) > 1:
            raise _wrong(f"layers of {layer_type!r} have heads of {', '.join(map(str, sorted(sizes)))} channels")
        if sizes:
            return int(sizes.pop())
    if layer_type == "full_attention" and model in models.SIZES_OF_GLOBAL_LAYERS and not own:
        return int(_first(fields, ("global_head_dim",), models.SIZES_OF_GLOBAL_LAYERS[model]))
    size = _first(fields, ("head_dim",), models.SIZES.get(model))
    if size:
        return int(size)
    width = _first(fields, ("hidden_size", "n_embd"), None)
    heads = _first(fields, ("num_attention_heads", "n_head"), None)
    if not width or not heads:
        raise _wrong("'head_dim', or 'hidden_size' and 'num_attention_heads' were expected")
    return int(width // heads)


def _refuse_unread(fields: Mapping[str, Any], rope: Mapping[str, Any], kind: str) -> None:
    if kind not in _OPTIONS:
        raise _wrong(f"rope_type is {kind!r}; {', '.join(_OPTIONS)} were expected: "
                     "'rope_frequencies' takes the model's inv_freq")  # fmt: skip
    read = _COMMON | set(_OPTIONS[kind]) | _COMPUTED.get(kind, set())
    if kind == "default" or fields["model_type"] in models.TWO_ANGLES:
        read |= _AXES
    if rope.get("alpha"):
        read |= _IDLE
    if fields["model_type"] in models.SAYS:
        read.add("rope_interleave")
    unknown = {name for name, value in rope.items() if value is not None} - read
    for name, value in fields.items():
        of_rows = "rope" in name or "rotary" in name
        if of_rows and name not in _READ | _OF_LAYERS | read and value is not None:
            unknown.add(name)
    if unknown:
        raise _wrong(f"'{min(unknown)}' of rope type '{kind}' is not read")
    if fields.get("use_rope") is False:
        raise _wrong("'use_rope' is false: no channels turn")


def _stretched(fields, rope, kind: str, turning: int, length: int | None) -> dict[str, Any]:
    """The options of 'rope' that a rule of frequencies for longer contexts has."""
    options = {name: rope[field] for field, name in _OPTIONS[kind].items() if rope.get(field) is not None}
    trained = fields.get("max_position_embeddings")
    if kind in ("linear", "llama3", "yarn"):
        options["scaling"] = kind
    if kind == "proportional" and _first(rope, ("factor",), 1.0) != 1:
        options |= {"scaling": "linear", "factor": rope["factor"]}
    if "original_max_position_embeddings" in _OPTIONS[kind] or kind == "longrope":
        trained = _first(fields, ("original_max_position_embeddings",),
                         _first(rope, ("original_max_position_embeddings",), trained))  # fmt: skip
        if trained is None:
            raise _wrong("'original_max_position_embeddings' was expected")
    if kind in ("llama3", "yarn"):
        options["original_max_position"] = trained
    if kind in ("yarn", "longrope") and rope.get("factor") is None:
        rope = {**rope, "factor": _needed(fields, "max_position_embeddings", kind) / trained}
    if kind == "yarn":
        options["factor"] = factor = rope["factor"]
        parts = rope.get("mscale"), rope.get("mscale_all_dim")
        if all(parts) and "attention_factor" not in options:
            above, below = (0.1 * part * math.log(factor) + 1 if factor > 1 else 1.0 for part in parts)
            options["attention_factor"] = above / below
    if kind == "dynamic" and rope.get("alpha"):
        options |= {"scaling": "ntk", "factor": rope["alpha"]}
    elif kind in ("dynamic", "longrope"):
        if trained is None:
            raise _wrong("'max_position_embeddings' was expected")
        if length is None:
            raise _wrong(f"texts of more than {trained} tokens turn at other rates (rope type '{kind}'): 'text_length' "
                         "(--length), the tokens of the longest text, was expected")  # fmt: skip
        if kind == "dynamic" and length > trained:
            factor = _needed(rope, "factor", kind)
            options |= {"scaling": "ntk", "factor": factor * length / trained - (factor - 1)}
        if kind == "longrope":
            options["factors"] = _needed(rope, "long_factor" if length > trained else "short_factor", kind)
            if len(options["factors"]) != turning // 2:
                raise _wrong(f"longrope has {len(options['factors'])} factors; {turning // 2} pairs of channels turn")
            factor = rope["factor"]
            found = math.sqrt(1 + math.log(factor) / math.log(trained)) if factor > 1 else 1.0
            options.setdefault("attention_factor", found)
    return options


def _of_axes(options: dict[str, Any], rope, sections: Sequence[int], model: str) -> tuple[str, dict[str, Any]]:
    """Text beside images: a position is (t, h, w), or has an axis more."""
    woven = rope.get("mrope_interleaved") or model in models.WOVEN
    made = {
        "axes": len(sections),
        "arrangement": "woven" if woven else "sections",
        "sections": list(map(int, sections)),
    }
    return "rope_axial", options | made


def _of_image(fields: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """DINOv3: whole turns of coordinates from -1 to 1, behind the class token and the registers."""
    pair = lambda value: list(value) if isinstance(value, (list, tuple)) else [value, value]  # noqa: E731
    image, patch = fields.get("image_size"), fields.get("patch_size")
    if not image or not patch:
        raise _wrong("'image_size' and 'patch_size' were expected")
    cells = [size // side for size, side in zip(pair(image), pair(patch))]
    return "rope_axial", {
        "layout": "split", "head_dim": _size(fields, None), "base": float(_first(fields, ("rope_theta",), 100.0)),
        "factor": 2 * math.pi, "coordinates": "signed", "cells": cells, "grid": cells,
        "skip_tokens": 1 + int(_first(fields, ("num_register_tokens",), 0)),
    }  # fmt: skip


def _without_rotation(fields: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Layers where nothing turns, and the length of queries tells their position (Llama 4)."""
    if not any(fields.get(name) for name in _OF_LAYERS):
        raise _wrong(f"layer_type is {_WITHOUT!r}, and 'no_rope_layers' is missing")
    if not fields.get("attn_temperature_tuning"):
        raise _wrong(
            "layers without rope have no 'attn_temperature_tuning': attention without positions is 'attention'"
        )
    words = {name: float(fields[name]) for name in ("attn_scale", "floor_scale") if fields.get(name) is not None}
    return "position_temperature", {"head_dim": _size(fields, None), **words}


def described(
    config: Mapping[str, Any] | str | os.PathLike[str], layer_type: str | None = None, length: int | None = None
) -> tuple[str, dict[str, Any]]:
    """A stock description's name and its options. A field that says more of rotations than is read is refused.

    length: tokens of the longest text, for rules that depend on it."""
    fields = _fields(config)
    model = fields["model_type"]
    if model in models.IMAGES:
        _rope({"model_type": model}, layer_type)  # which refuses any
        return _of_image(fields)
    if layer_type == _WITHOUT:
        return _without_rotation(fields)
    rope = _rope(fields, layer_type)
    kind = rope.get("rope_type", rope.get("type", "default"))
    kind = models.OLDER_KINDS.get(model, {}).get(kind, _OLDER_KINDS.get(kind, kind))
    _refuse_unread(fields, rope, kind)
    size = _size(fields, layer_type)
    share = _first(rope, _SHARES[:1], _first(fields, _SHARES, models.SHARES.get(model, 1.0)))
    if model in models.LATENT:
        share = 1.0
    if model in models.LAST and fields.get("qk_rope_head_dim"):
        share = fields["qk_rope_head_dim"] / size
    turning = int(_first(fields, ("rotary_dim",), int(size * share)))
    if kind == "proportional":
        turning = 2 * int(size * share // 2)
    base = rope.get("rope_theta", _first(fields, _BASES, models.RATES.get(model, 10000.0)))
    layout = models.LAYOUT[model]
    if model in models.SAYS and fields.get("rope_interleave") is False:
        layout = "split"
    options = {"layout": layout, "head_dim": size, "base": float(base)}
    sections = _first(rope, ("mrope_section", "xdrope_section"), models.SECTIONS.get(model))
    if model in models.TWO_ANGLES and not sections:
        raise _wrong("'mrope_section' was expected")
    if sections:
        if 2 * sum(sections) != turning:
            raise _wrong(f"'mrope_section' has {sum(sections)} pairs of channels; {turning // 2} turn")
        if model in models.TWO_ANGLES:
            del options["layout"]
            alpha = {"alpha": float(_needed(rope, "alpha", kind))} if kind == "dynamic" else {}
            return "xdrope", options | {"sections": list(map(int, sections)), **alpha}
        return _of_axes(options, rope, sections, model)
    options |= _stretched(fields, rope, kind, turning, length)
    if turning != size:
        options["rotary_dim"] = turning
        if model in models.LAST:
            options["rotary_from"] = size - turning
        if kind == "proportional":
            options["proportional"] = True
    return "rope", options


def main(words: Sequence[str]) -> int:
    """`pegen specs --config FILE`: prints the command of a configuration."""
    import argparse  # of the command alone: every program that imports the package reads this file

    parser = argparse.ArgumentParser("pegen specs --config", description=main.__doc__)
    parser.add_argument("file", metavar="FILE", help="config.json of a model of transformers")
    parser.add_argument(
        "--layer-type",
        metavar="TYPE",
        help="of the layers, where angles differ: full_attention, ...; no_rope: where nothing turns",
    )
    parser.add_argument("--length", metavar="N", type=int, help="tokens of the longest text (longrope, dynamic)")
    given = parser.parse_args(words)
    try:
        spec, options = described(given.file, given.layer_type, given.length)
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
