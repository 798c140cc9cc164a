"""Layers by which Hugging Face's `kernels` replaces functions of models: `use_kernels=True` of transformers."""
from __future__ import annotations

import functools
import itertools
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import PegenError
from . import rotary

_PRODUCTS = ("rounded", "float32")  # ways in which models' own code rounds, as of specs/more/cos_sin.lua
_LAYOUTS = ("split", "interleaved")  # of pairs of channels, as there
_TYPES = (torch.float32, torch.bfloat16, torch.float16)


class RotaryPosEmb(nn.Module):
    """transformers' `rotary_pos_emb`: rows of q and k turned by the model's own cosines and sines, with gradients.

    Products are rounded as the function that it replaces rounds them: outputs are equal to the bit. A function that
    does anything else keeps its own code, and so do rows of other types or shapes.
    """

    has_backward = True
    can_torch_compile = True

    def forward(self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> tuple[Tensor, Tensor]:
        return _rotate(type(self), q, k, cos, sin, unsqueeze_dim)


def _rotate(of: type, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int) -> tuple[Tensor, Tensor]:
    """of: the class of the layer whose forward was replaced, which still has its own."""
    name, dim, numbers = "", unsqueeze_dim, (cos, sin)
    if dim == 0 and cos.ndim == 2:  # one image or sequence: cosines of its tokens
        dim, numbers = 1, (cos[None], sin[None])
    if _fits(q, k, *numbers, dim):
        name = _kernel_of(of, q.dtype, cos.dtype, q.shape[-1], cos.shape[-1])
    if not name:
        return _own(of)(q, k, cos, sin, unsqueeze_dim=unsqueeze_dim)
    rows = (q, k) if dim == 1 else (q.transpose(1, 2), k.transpose(1, 2))
    made = _turn(name, rows, *numbers)
    return (made[0], made[1]) if dim == 1 else (made[0].transpose(1, 2), made[1].transpose(1, 2))


def _fits(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int) -> bool:
    """Whether a kernel takes them: rows [B,H,N,D] or [B,N,H,D], cosines [B,N,D] or one for each pair."""
    if unsqueeze_dim not in (1, 2) or q.ndim != 4 or k.ndim != 4 or cos.ndim != 3 or cos.shape != sin.shape:
        return False
    tokens = 3 - unsqueeze_dim
    return (
        (q.dtype in _TYPES and k.dtype == q.dtype and cos.dtype in _TYPES and sin.dtype == cos.dtype)
        and (q.shape[-1] == k.shape[-1] and q.shape[-1] in (cos.shape[-1], 2 * cos.shape[-1]))
        and (q.shape[tokens] == k.shape[tokens] == cos.shape[1])
        and (q.shape[0] == k.shape[0] and cos.shape[0] in (1, q.shape[0]))
        and (q.device == k.device == cos.device == sin.device)
    )


def _turn(name: str, rows: tuple[Tensor, Tensor], cos: Tensor, sin: Tensor) -> Any:
    pairs = rows[0].shape[-1] // 2
    return rotary.turn(name, rows, cos[:, None, :, :pairs], sin[:, None, :, :pairs])


def _own(of: type) -> Any:
    """The function that the layer replaces; of the layer by itself, that of most models."""
    return _by_halves if of is RotaryPosEmb else functools.partial(of.forward, None)  # type: ignore[attr-defined]


def _by_halves(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> tuple[Tensor, Tensor]:
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    halves = [x.chunk(2, -1) for x in (q, k)]
    turned = [torch.cat((-second, first), -1) for first, second in halves]
    return q * cos + turned[0] * sin, k * cos + turned[1] * sin


@torch.compiler.assume_constant_result
def _kernel_of(of: type, dtype: torch.dtype, cos_dtype: torch.dtype, head_dim: int, width: int) -> str:
    return _found(of, dtype, cos_dtype, head_dim, width)


@functools.lru_cache(maxsize=None)
def _found(of: type, dtype: torch.dtype, cos_dtype: torch.dtype, head_dim: int, width: int) -> str:
    """The kernel that does to a few random rows what the function does to them, to the bit; "": none does.

    Both halves of the model's cosines are taken to be the same, as in all models whose function this replaces."""
    generator = torch.Generator().manual_seed(1)

    def draw(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, device="cpu") * 2 - 1

    rows = draw(1, 2, 5, head_dim).to(dtype), draw(1, 1, 5, head_dim).to(dtype)
    angles = 4 * draw(1, 5, head_dim // 2)
    angles = torch.cat((angles, angles), -1)[..., :width]
    numbers = angles.cos().to(cos_dtype), angles.sin().to(cos_dtype)
    with torch.no_grad():
        try:
            expected = _own(of)(*rows, *numbers)
        except Exception:  # it takes other arguments
            return ""
        for layout, products in itertools.product(_LAYOUTS, _PRODUCTS):
            try:
                name = rotary.given_kernel(head_dim, head_dim, layout, products)
                found = _turn(name, rows, *numbers)
            except PegenError:  # there is no such kernel here
                continue
            if all(x.dtype == y.dtype and torch.equal(x, y) for x, y in zip(expected, found)):
                return name
    return ""


class _Here:
    """A repository of `kernels`, whose layer is this package's."""

    layer_name = "RotaryPosEmb"

    def load(self) -> type[nn.Module]:
        return RotaryPosEmb

    def __str__(self) -> str:
        return f"`pegen_kernels`, layer `{self.layer_name}`"


def register_rotary() -> None:
    """Lets rotations of transformers' models run in kernels where these are loaded with `use_kernels=True`, or given
    to `kernels.kernelize`: on processors and CUDA devices, with gradients. Needs the package `kernels`, in a version
    that transformers takes."""
    from kernels import Mode, register_kernel_mapping

    mapping = {"rotary_pos_emb": {device: {Mode.FALLBACK: _Here()} for device in ("cpu", "cuda")}}
    register_kernel_mapping(mapping)
    try:
        from transformers.integrations.hub_kernels import get_kernel_mapping_transformers
    except ImportError:  # it takes no kernels of this version, or is not there
        return
    # transformers registers its own mapping for every model that it kernelizes.
    get_kernel_mapping_transformers().setdefault("rotary_pos_emb", {}).update(mapping["rotary_pos_emb"])
