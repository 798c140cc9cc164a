"""Attention of transformers' models by pegen: `attn_implementation="pegen"` after `register_attention()`.

A mask reaches the kernel as coordinates, of which no N × M tensor is made: each query has the first and the last place
that it sees and its document, each key its place and its document. Causal masks, sliding windows, chunks, packed
sequences, padding and caches are such masks. What is not (a mask of the caller's own, dropout) goes to transformers'
own `sdpa`, so that a model computes what it computes there.
"""
from __future__ import annotations

import functools
from typing import Any, Callable, NamedTuple

import torch
from torch import Tensor

from ..errors import ArgumentError
from .attention import attend
from .names import register

_TEXT = """
local pe = require "pegen"
local D = pe.option("head_dim", 64, "channels per head")
local Dv = pe.option("value_dim", 64, "channels of a value")
local cap = pe.option("softcap", 0.0, "bound of scores, by tanh; 0: none")
local masked = pe.option("masked", false, "queries have a first and a last place, and a document")
local sinks = pe.option("sinks", 0, "heads of q, which have a sink each; 0: none")
local sink = sinks > 0 and pe.learned { name = "sink", shape = { "heads" }, doc = "a score more in every row" }

local function seen(delta)
  local document = pe.where(pe.abs(delta.document), 0.5, 0, pe.masked)
  return pe.where(delta.last, 0.5, pe.where(-delta.first, 0.5, document, pe.masked), pe.masked)
end

return pe.encoding {
  name = "transformers_attention",
  doc = "attention as models of transformers ask for it",
  role = "pairwise",
  axes = masked and { "first", "last", "document" } or { "t" },
  head_dim = D,
  value_dim = Dv,
  heads = sinks > 0 and sinks or 1,
  sink = sink and function(head) return sink(head) end or nil,
  bias = masked and cap == 0 and seen or nil,
  score = cap > 0 and function(s, delta)
    local capped = cap * pe.tanh(s / cap)
    return masked and capped + seen(delta) or capped
  end or nil,
}
"""
_FAR = 2**23  # beyond all places; differences are exact in float32
_TYPES = (torch.float32, torch.bfloat16, torch.float16)
_LACKING = ("sinks", "block_indices")  # what some models give, neither ours nor `sdpa`
_options: dict[str, Any] = {}
_registered = functools.lru_cache(maxsize=None)(register)


def _kernel(head_dim: int, value_dim: int, softcap: float, masked: bool, sinks: int) -> str:
    sizes = {"head_dim": head_dim, "value_dim": value_dim, "softcap": softcap, "masked": masked, "sinks": sinks}
    return _registered(_TEXT, label="attention of transformers", **sizes, **_options)


# ---- masks ----


class _Seen(NamedTuple):
    """Which keys queries see, as coordinates; each [B or 1, tokens]."""

    q: Tensor  # places
    k: Tensor
    first: Tensor
    last: Tensor
    q_document: Tensor
    k_document: Tensor


def _cells(mask: Callable[..., Any]) -> tuple[str, dict[str, Any]]:
    """Which of transformers.masking_utils' functions made a mask, and what it was made of."""
    made = dict(zip(mask.__code__.co_freevars, (cell.cell_contents for cell in mask.__closure__ or ())))
    return mask.__qualname__.partition(".")[0], made


def _paired(of: _Seen, q: Tensor, k: Tensor) -> _Seen:
    """Documents are alike where those of `of` and q and k are both alike; q and k are not negative."""
    most = 1 + torch.maximum(q.amax(), k.amax())
    return of._replace(q_document=of.q_document * most + q, k_document=of.k_document * most + k)


def _narrowed(mask: Any, of: _Seen) -> _Seen | None:
    """`of` within a mask; None where the mask is not known."""
    kind, made = _cells(mask)
    if kind == "bidirectional_mask_function":
        return of
    if kind == "causal_mask_function":
        return of._replace(last=torch.minimum(of.last, of.q))
    if kind == "sliding_window_overlay":
        return of._replace(first=torch.maximum(of.first, of.q - made["sliding_window"] + 1))
    if kind == "sliding_window_bidirectional_overlay":
        ends = (of.q - made["sliding_window"], of.q + made["sliding_window"])
        return of._replace(first=torch.maximum(of.first, ends[0]), last=torch.minimum(of.last, ends[1]))
    if kind == "chunked_overlay":
        start = made["left_padding"][:, None]
        chunks = [torch.div(x - start, made["chunk_size"], rounding_mode="floor") for x in (of.q, of.k)]
        least = torch.minimum(chunks[0].amin(), chunks[1].amin())
        return _paired(of, chunks[0] - least, chunks[1] - least)
    if kind == "packed_sequence_mask_function":
        sequences = made["packed_sequence_mask"]
        return _paired(of, sequences, sequences)
    if kind == "remap_positions_for_packed_sequence":
        return _narrowed(made["mask_function"], of._replace(q=made["position_ids"], k=made["position_ids"]))
    if kind != "and_masks":
        return None
    for part in made["mask_functions"]:
        of = _narrowed(part, of) if of else None
    return of


def _is_plain(mask: Any, of_keys: Any, q_length: int, kv_length: int, q_offset: Any, kv_offset: int) -> bool:
    """Whether the argument `causal` of the call, or none, says the same."""
    if isinstance(q_offset, Tensor) or (of_keys is not None and not of_keys.all()):
        return False
    kind, made = _cells(mask)
    parts = [_cells(part) for part in made["mask_functions"]] if kind == "and_masks" else [(kind, made)]
    kinds = {kind for kind, _ in parts}
    if kinds == {"bidirectional_mask_function"}:
        return True
    windowed = {"causal_mask_function", "sliding_window_overlay"}
    fits = all(kv_length <= made.get("sliding_window", kv_length) for _, made in parts)
    return "causal_mask_function" in kinds <= windowed and fits and q_offset + q_length == kv_offset + kv_length


def _is_read(mask: Any, q_length: int, q_offset: Any) -> bool:
    """Whether a mask that may not be left out is for the model's own code. transformers forbids that itself, too: for
    packed sequences, and where a static cache decodes."""
    kind, made = _cells(mask)
    kinds = {kind, *(_cells(part)[0] for part in made.get("mask_functions", ()))}
    is_packed = kinds & {"packed_sequence_mask_function", "remap_positions_for_packed_sequence"}
    return not is_packed and not (q_length == 1 and isinstance(q_offset, Tensor))


def _mask(batch_size: int, q_length: int, kv_length: int, q_offset: Any = 0, kv_offset: int = 0,
          mask_function: Any = None, attention_mask: Tensor | None = None, allow_is_causal_skip: bool = True,
          allow_is_bidirectional_skip: bool = False, use_vmap: bool = False, device: Any = "cpu",
          **rest: Any) -> Tensor | None:  # fmt: skip
    """None: what `is_causal` of the layer says; int32 [B, 1, q_length + kv_length, 3]: coordinates of queries and then
    of keys; bool [B, 1, q_length, kv_length]: a mask that is not known, or that the model's own code reads. What has 4
    dimensions is not made twice."""
    from transformers import masking_utils as theirs

    mask_function = mask_function or theirs.causal_mask_function
    padding = theirs.prepare_padding_mask(attention_mask, kv_length, kv_offset)
    of_keys = None if padding is None else padding[:, kv_offset : kv_offset + kv_length].bool()
    sizes = (q_length, kv_length, q_offset, kv_offset)
    may_skip = allow_is_causal_skip or allow_is_bidirectional_skip
    if may_skip and not use_vmap and _is_plain(mask_function, of_keys, *sizes):
        return None
    q = (torch.arange(q_length, device=device) + q_offset)[None]
    k = (torch.arange(kv_length, device=device) + kv_offset)[None]
    none = [torch.zeros_like(x) for x in (q, k)]
    seen = _Seen(q, k, none[0] - _FAR, none[0] + _FAR, *none)
    is_dense = use_vmap or (not may_skip and _is_read(mask_function, q_length, q_offset))
    found = None if is_dense else _narrowed(mask_function, seen)
    if found is None:
        return theirs.sdpa_mask(
            batch_size, *sizes, mask_function, attention_mask, allow_is_causal_skip=False, use_vmap=use_vmap,
            device=device,
        )  # fmt: skip
    k_document = found.k_document if of_keys is None else torch.where(of_keys, found.k_document, -1)
    coordinates = [(found.first, found.last, found.q_document), (found.k, found.k, k_document)]
    stacked = [torch.stack(torch.broadcast_tensors(*x), -1).expand(batch_size, -1, -1) for x in coordinates]
    return torch.cat(stacked, 1)[:, None].to(torch.int32)


# ---- attention ----


def _coordinates(mask: Tensor | None, q_length: int) -> tuple[Tensor | None, Tensor | None]:
    """Coordinates of queries and of keys, [B,N,3] and [B,M,3]; None where the mask is none of `_mask`'s."""
    if mask is None or mask.dtype != torch.int32:
        return None, None
    return mask[:, 0, :q_length], mask[:, 0, q_length:]


def _attention(module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
               dropout: float = 0.0, scaling: float | None = None, is_causal: bool | None = None,
               softcap: float | None = None, s_aux: Tensor | None = None, **rest: Any) -> Any:  # fmt: skip
    """query: [B,H,N,D]; key, value: [B,Hkv,M,D]; attention_mask: of `_mask`; s_aux: [H], a logit of each head beside
    those of the keys (a sink); indices in rest: [B,N,any], the keys that a query sees of those of a bool mask. Returns
    [B,N,H,Dv] and no weights."""
    if (indices := rest.pop("indices", None)) is not None:
        chosen = torch.zeros_like(attention_mask[:, 0], dtype=torch.bool).scatter(-1, indices.long(), True)
        attention_mask = attention_mask & chosen[:, None]
    places, k_places = _coordinates(attention_mask, query.shape[2])
    is_ours = attention_mask is None or places is not None
    is_ours = is_ours and not any(rest.get(name) is not None for name in ("position_bias", *_LACKING))
    if not is_ours or dropout > 0 or query.dtype not in _TYPES:
        return _theirs(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling,
                       is_causal=is_causal, softcap=softcap, s_aux=s_aux, **rest)  # fmt: skip
    sinks = [] if s_aux is None else [s_aux]
    heads = query.shape[1] if sinks else 0
    kernel = _kernel(query.shape[-1], value.shape[-1], float(softcap or 0), places is not None, heads)
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    given = (places, k_places, sinks, [], places is None and bool(causal), float(scaling or 0), kernel)
    return attend("attention", query, key, value, *given).transpose(1, 2).contiguous(), None


def _theirs(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **named: Any) -> Any:
    """transformers' own. What it lacks is refused, since it would be left out without a word."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if refused := [name for name in ("softcap", "s_aux", *_LACKING) if named.pop(name, None) is not None]:
        beside = "" if refused[0] in _LACKING else f" beside a mask of the model's own, dropout or {query.dtype}"
        raise ArgumentError(f"{refused[0]}: given{beside}; expected attn_implementation='eager' for models with it")
    q, k = _coordinates(mask, query.shape[2])
    if q is not None:
        (first, last, own), (place, _, document) = q[:, None, :, None].unbind(-1), k[:, None, None].unbind(-1)
        mask = (place >= first) & (place <= last) & (document == own)
    return sdpa_attention_forward(module, query, key, value, mask, **named)


def register_attention(name: str = "pegen", **options: Any) -> None:
    """Registers pegen's attention with transformers, by this name of `attn_implementation`. options: as of
    `pegen_kernels.compile`."""
    from transformers import AttentionInterface, AttentionMaskInterface

    _options.update(options)
    torch.compiler.assume_constant_result(_kernel)  # Marked here: it imports the compiler, 2 s that others do not need.
    AttentionInterface.register(name, _attention)
    AttentionMaskInterface.register(name, _mask)
