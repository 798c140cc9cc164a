"""Rotary layers of serving engines in kernels, and vLLM's step from a projection's rows to its cache. vLLM and SGLang
load `register_vllm` and `register_sglang` by themselves where this package is installed beside them (their groups of
entry points in pyproject.toml).

A layer of both holds cosines and sines of each position, and rotates rows of q and k `[tokens, heads * head_size]`.
What it rotates by is measured once, when it is made: its own `forward_native` turns the first channel of each pair at
position 1 of each axis. The kernel is then compared with it at positions of its whole range. A layer that does anything
else keeps its own code, and the log says why.
"""
from __future__ import annotations

import functools
import importlib
import logging
from typing import Any, Callable

import torch
from torch import Tensor

from ..errors import ArgumentError
from . import rotary
from .names import kernel_of

_log = logging.getLogger("pegen_kernels")
_WHOLE = 2.0**-18  # a difference of float32 rows that is theirs, not of another rotation
_OF_ANGLES = 2.0**-22  # and what each radian of an angle adds, which engines round to float32


def _pairs(layer: Any) -> tuple[Tensor, Tensor]:
    """The first and the second channel of each pair."""
    n = torch.arange(layer.rotary_dim // 2)
    return (n, n + len(n)) if layer.is_neox_style else (2 * n, 2 * n + 1)


def _axes(layer: Any) -> int:
    return 3 if getattr(layer, "mrope_section", None) else 1


def _in_float32(layer: Any, run: Callable[[Tensor], Any]) -> Any:
    """What `run` gives of the layer's own frequencies [pairs], while the layer's cosines are float32 and on the
    processor."""
    kept, found, own = layer.cos_sin_cache, [], layer._compute_inv_freq
    layer.__dict__["_compute_inv_freq"] = lambda *given: found.append(own(*given)) or found[-1]
    try:
        layer.cos_sin_cache = layer._compute_cos_sin_cache().to("cpu", torch.float32)
        return run(found[-1].to("cpu", torch.float32) if found else torch.zeros(0, dtype=torch.float32))
    finally:
        del layer.__dict__["_compute_inv_freq"]
        layer.cos_sin_cache = kept


def _measured(layer: Any, own: Tensor) -> tuple[float, Tensor]:
    """Amplitude and frequencies [axes, 1, pairs]. own: those that the layer computes, which are taken, to the bit,
    where they are what was measured."""
    axes, (first, second) = _axes(layer), _pairs(layer)
    rows = torch.zeros(axes, 1, layer.head_size, dtype=torch.float32)
    rows[..., first] = 1
    at = torch.eye(axes, dtype=torch.long) if axes > 1 else torch.ones(1, dtype=torch.long)
    turned = layer.forward_native(at, rows, rows.clone())[0].reshape(axes, layer.head_size).double()
    cos, sin = turned[:, first], turned[:, second]
    amplitudes = torch.hypot(cos, sin)
    amplitude = float(amplitudes.mean())
    if not amplitudes.sub(amplitude).abs().lt(_WHOLE).all():
        raise ArgumentError("factors that differ by channel")
    stated = [x for x in (1.0, getattr(layer, "mscale", 1.0)) if abs(x - amplitude) < _WHOLE]
    frequencies = torch.atan2(sin, cos).float()
    if own.shape == frequencies.shape[-1:]:
        own = own / (own.max() / frequencies.max()).round().clamp(min=1)  # positions of linear scaling are divided
        frequencies = torch.where((frequencies - own).abs() < _WHOLE * own.abs(), own, frequencies)
    return [*stated, amplitude][0], frequencies[:, None]


def _check(layer: Any, kernel: str, frequencies: Tensor) -> None:
    """Raises ArgumentError where the kernel rotates otherwise than the layer does."""
    draw, last = torch.Generator().manual_seed(0), len(layer.cos_sin_cache) - 1
    axes, reach = len(frequencies), torch.tensor([last, last, last // 2, 4096, 64, 3]).clamp(max=last)
    at = (torch.rand(axes, 64, generator=draw, dtype=torch.float64) * reach.repeat(11)[:64]).long()
    at = at if axes > 1 else at[0]
    q, k = (torch.randn(64, heads, layer.head_size, generator=draw, dtype=torch.float32) for heads in (2, 1))
    expected = layer.forward_native(at, q.clone(), k.clone())
    angles = at.reshape(axes, 64).T.abs().amax(-1) * frequencies.abs().amax()
    for made, true in zip(_rotated(kernel, frequencies, layer.head_size, at, q, k), expected):
        most = (_WHOLE + _OF_ANGLES * angles)[:, None, None] * true.abs().amax()
        if not (made - true).abs().le(most).all():
            raise ArgumentError("a rotation that frequencies alone do not give")


def _kernel_of(layer: Any) -> tuple[str, Tensor]:
    def measured(own: Tensor) -> tuple[str, Tensor]:
        amplitude, frequencies = _measured(layer, own)
        layout = "split" if layer.is_neox_style else "interleaved"
        kernel = rotary.kernel(layer.head_size, layer.rotary_dim, len(frequencies), 1, layout, amplitude)
        _check(layer, kernel, frequencies)
        return kernel, frequencies

    with torch.no_grad(), torch.device("cpu"):
        return _in_float32(layer, measured)


def _rotated(kernel: str, frequencies: Tensor, head_size: int, positions: Tensor, query: Tensor,
             key: Tensor | None) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """positions: [tokens], or [3, tokens] of layers with sections; query, key: [tokens, heads * head_size] or
    [tokens, heads, head_size]."""
    axes = frequencies.shape[0]
    if axes > 1:
        at = positions.T if positions.ndim == 2 else positions[:, None].expand(-1, axes)
    else:
        at = positions.reshape(-1, 1)
    q = query.reshape(at.shape[0], -1, head_size)
    if key is None:
        return rotary.encode_one(kernel, q, at, frequencies).reshape(query.shape), None
    k = key.reshape(at.shape[0], -1, head_size)
    q, k = rotary.encode(kernel, q, k, at, frequencies)
    return q.reshape(query.shape), k.reshape(key.shape)


def start(layer: Any) -> bool:
    """Gives a new layer its kernel, `pegen_kernel`: "" where it keeps its own code. Returns whether it has one."""
    layer.pegen_kernel = ""
    try:
        layer.pegen_kernel, frequencies = _kernel_of(layer)
    except Exception as error:  # of code that is not ours
        _log.info("%s keeps its own rotation: %s", type(layer).__name__, error)
        return False
    layer.register_buffer("pegen_frequencies", frequencies.to(layer.cos_sin_cache.device), persistent=False)
    return True


def _forward(own: Callable[..., Any], everywhere: bool) -> Callable[..., Any]:
    """A method in place of one of a layer's own, which goes on doing what kernels do not. everywhere: on GPUs, too."""

    def rotated(layer: Any, positions: Tensor, query: Tensor, key: Tensor | None = None, *rest: Any,
                **named: Any) -> Any:  # fmt: skip
        if not (everywhere or query.is_cpu) or any(x is not None for x in (*rest, *named.values())):
            return None
        return _rotated(layer.pegen_kernel, layer.pegen_frequencies, layer.head_size, positions, query, key)

    def forward(self: Any, *given: Any, **named: Any) -> Any:
        made = rotated(self, *given, **named) if self.pegen_kernel else None
        return own(self, *given, **named) if made is None else made

    return forward


@functools.cache
def in_kernels(base: type) -> type:
    """A class of the same name, whose layers rotate in kernels. base: a class of rotary layers of vLLM or SGLang. On a
    GPU the native form stays as it is, since compilers of graphs fuse it with what is around."""

    def made(self: Any, *given: Any, **named: Any) -> None:
        base.__init__(self, *given, **named)
        start(self)

    ways = {"forward_cpu": True, "forward_cuda": True, "forward_native": False}
    methods = {way: _forward(getattr(base, way), anywhere) for way, anywhere in ways.items() if hasattr(base, way)}
    return type(base.__name__, (base,), {"__init__": made, "__module__": __name__, **methods})


def register_vllm() -> None:
    """What vLLM calls when it loads its plugins. On GPUs layers run in kernels where vLLM's option `custom_ops` has
    `+rotary_embedding`, or all; else its compiler makes code of their native form."""
    layers = importlib.import_module("vllm.model_executor.layers.rotary_embedding")
    known = importlib.import_module("vllm.model_executor.custom_op").op_registry_oot
    for base in list(vars(layers).values()):
        if not isinstance(base, type) or not issubclass(base, layers.base.RotaryEmbeddingBase):
            continue
        if base.__name__ not in known:
            made, option = in_kernels(base), base.name
            base.register_oot(made)
            made.name = option  # which register_oot has made the name of the class


def pages(kv_cache: Tensor, head_size: int) -> tuple[Tensor, Tensor]:
    """Keys and values [blocks, tokens of a block, heads, head_size] of vLLM's cache of a layer, as GPUs' backends see
    it: [blocks, heads, tokens of a block, 2 head_size], or [2, blocks, tokens of a block, heads, head_size]."""
    if kv_cache.ndim == 4 and kv_cache.shape[-1] == 2 * head_size:
        keys, values = kv_cache.transpose(1, 2).split(head_size, -1)
    elif kv_cache.ndim == 5 and (kv_cache.shape[0], kv_cache.shape[-1]) == (2, head_size):
        keys, values = kv_cache.unbind(0)
    else:
        raise ArgumentError(
            f"kv_cache has the shape {list(kv_cache.shape)}; expected [blocks, heads, tokens of a block,"
            f" {2 * head_size}] or [2, blocks, tokens of a block, heads, {head_size}]"
        )
    return keys, values


def qk_norm_rope_kvcache_update(qkv: Tensor, q_out: Tensor, positions: Tensor, q_weight: Tensor, k_weight: Tensor,
                                rms_norm_eps: float, cos_sin_cache: Tensor, is_neox: bool, kv_cache: Tensor,
                                slot_mapping: Tensor, threads: int = 1) -> None:  # fmt: skip
    """vLLM's `do_qk_norm_rope_kvcache_update` on a processor, by one call of `append`: norms of q and k, their
    rotation, k and v into the cache. Everything is computed in float32 and rounded once.

    qkv: [tokens, (H + 2 Hkv) D]; q_out: [tokens, H, D]; positions: [tokens]; q_weight, k_weight: [D]; cos_sin_cache:
    [positions, rotary_dim], cosines and then sines; kv_cache: as of `pages`; slot_mapping: [tokens] int64, -1: the
    token stays out of the cache. It may be shorter than qkv: what is behind it is padding. Keys are written to the
    cache alone: there is no k_out, which attention that reads the cache has no use for.
    """
    if q_out.ndim != 3:
        raise ArgumentError(f"q_out has {q_out.ndim} dimensions; expected [tokens, heads, head_size]")
    tokens, (heads, size) = len(slot_mapping), q_out.shape[1:]
    keys, values = pages(kv_cache, size)
    width = (heads + 2 * keys.shape[2]) * size
    if qkv.ndim != 2 or qkv.shape[1] != width:
        raise ArgumentError(f"qkv has the shape {list(qkv.shape)}; expected [tokens, {width}], of all heads")
    if positions.ndim != 1:  # of a rotation by sections
        raise ArgumentError(f"positions has {positions.ndim} dimensions; expected [tokens]")
    q, k, v = qkv[:tokens].unflatten(-1, (-1, size)).split([heads, keys.shape[2], keys.shape[2]], 1)
    numbers = cos_sin_cache[positions[:tokens]].float()[:, None].chunk(2, -1)
    layout = "split" if is_neox else "interleaved"
    kernel = kernel_of(rotary.given_kernel(size, cos_sin_cache.shape[1], layout, "fused"))
    kernel.append(
        q, k, v, torch.zeros(tokens, 1), inputs=numbers, cache=keys, v_cache=values, slots=slot_mapping,
        q_norm=q_weight, k_norm=k_weight, epsilon=rms_norm_eps, out=q_out[:tokens], threads=threads,
    )  # fmt: skip


def register_sglang() -> None:
    """What SGLang calls when it loads its plugins: layers that its get_rope makes are given kernels."""
    hooks = importlib.import_module("sglang.srt.plugins.hook_registry")

    def adopt(layer: Any, *given: Any, **named: Any) -> None:
        if not hasattr(layer, "pegen_kernel") and start(layer):
            layer.__class__ = in_kernels(type(layer))

    hooks.HookRegistry.register(
        "sglang.srt.layers.rotary_embedding.factory.get_rope", adopt, hooks.HookType.AFTER
    )  # fmt: skip
