"""Models of transformers and timm whose own rotations of q and k become kernels: `pegen_kernels.torch.patch(model)`.

The model's code stays: of the methods that rotate q and k, copies are made in which the name of the model's function
is ours, and the modules that computed cosines and sines hand on positions and frequencies. What a rotation is (axes,
layout, factor) is asked of the model's own code, and before anything is changed both are run on the same rows: a model
that would compute something else is refused.
"""
from __future__ import annotations

import copy
import inspect
import types
from typing import Any, Callable, Iterator, Tuple

import torch
from torch import Tensor, nn

from ..errors import ArgumentError
from . import rotary

_ROTATIONS = ("apply_rotary_pos_emb", "apply_rotary_pos_emb_vision")  # of transformers
_ROTATION_OF_IMAGES = "apply_rot_embed_cat"  # of timm
Change = Tuple[nn.Module, str, Callable[..., Any]]  # a module, the name of its method, the method
_TOLERANCE = 2.0**-16  # of rows in [-1, 1] that both turned; angles of the model's own code are float32


def patch(model: nn.Module, **options: Any) -> nn.Module:
    """Lets the rotary encodings of a model of transformers or timm run through pegen's kernels; returns the model.

    Values, parameters and what is saved stay as they are; gradients (of learned frequencies, too), caches, padding and
    grouped heads go on working. options: targets, dtypes and cache, as of `pegen_kernels.compile`.
    `unpatch(model)` undoes it. Raises ArgumentError, and changes nothing, where the model rotates in a way that the
    kernels would not reproduce.
    """
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"model is a {type(model).__name__}; expected a torch.nn.Module")
    if any(True for _ in _replaced(model)):
        raise ArgumentError("model: it has been patched before")
    options = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
    changes = [*_changes_of_language(model, options), *_changes_of_images(model, options)]
    if not changes:
        raise ArgumentError(
            f"model: {type(model).__name__} has no attention that patch knows; expected one of transformers that calls"
            f" {' or '.join(_ROTATIONS)}, or of timm that calls {_ROTATION_OF_IMAGES}"
        )
    for module, method, function in changes:
        function._of_pegen = True  # type: ignore[attr-defined]
        setattr(module, method, types.MethodType(function, module))
    return model


def unpatch(model: nn.Module) -> nn.Module:
    """Gives a patched model its own code back."""
    for module, method in list(_replaced(model)):
        delattr(module, method)
    return model


def _replaced(model: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    for module in model.modules():
        for method in ("forward", "get_embed"):
            if hasattr(vars(module).get(method), "_of_pegen"):
                yield module, method


# ---- methods ----


def _names(module: nn.Module) -> tuple[str, ...]:
    """Names that the module's method of its class uses."""
    forward = inspect.unwrap(type(module).forward)
    return forward.__code__.co_names if isinstance(forward, types.FunctionType) else ()


def _with(forward: Callable[..., Any], name: str, value: Any) -> Callable[..., Any]:
    """The function, in which a name of its module means something else."""
    names = {**forward.__globals__, name: value}
    names.pop("__name__")  # torch.compile would look names up in the module that is called so
    made = types.FunctionType(forward.__code__, names, forward.__name__, forward.__defaults__, forward.__closure__)
    made.__kwdefaults__ = forward.__kwdefaults__
    return made


def _forward_with(module: nn.Module, name: str, value: Any) -> Change:
    return module, "forward", _with(inspect.unwrap(type(module).forward), name, value)


def _agree(path: str, expected: Any, found: Any) -> None:
    for mine, own in zip(found, expected):
        error = float((mine.double() - own.double()).abs().max()) if mine.shape == own.shape else float("inf")
        if not error <= _TOLERANCE:
            raise ArgumentError(f"model: {path} rotates q and k in a way that is not known (off by {error:.1e})")


# ---- transformers: cosines and sines for all layers, from position ids ----


def _places_of(original: nn.Module, rule: rotary.Rule) -> Callable[..., tuple[Tensor, Tensor]]:
    """A method that returns positions and frequencies in place of cosines and sines."""
    kind = getattr(original, "rope_type", "default")
    is_dynamic = "dynamic" in kind or kind == "longrope"

    def forward(self: Any, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        if is_dynamic:
            type(self).forward(self, x, position_ids)  # its frequencies follow the length that it has seen
        ids = position_ids
        if rule.places.axes == 3 and (ids.ndim == 2 or ids.shape[0] == 1):
            ids = ids.expand(3, -1, -1)
        return rule.places.positions(ids), rule.frequencies(self.inv_freq)

    return forward


def _rotated(name: str, q: Tensor, k: Tensor, positions: Tensor, frequencies: Tensor,
             unsqueeze_dim: int) -> tuple[Tensor, Tensor]:  # fmt: skip
    if q.ndim == 3:  # [N,H,D]
        q, k = rotary.encode(name, q.transpose(0, 1)[None], k.transpose(0, 1)[None], positions, frequencies)
        return q[0].transpose(0, 1), k[0].transpose(0, 1)
    if unsqueeze_dim == 2:  # [B,N,H,D]
        q, k = rotary.encode(name, q.transpose(1, 2), k.transpose(1, 2), positions, frequencies)
        return q.transpose(1, 2), k.transpose(1, 2)
    return rotary.encode(name, q, k, positions, frequencies)


def _rotation(rule: rotary.Rule, options: dict[str, Any]) -> Callable[..., Any]:
    def rotate(q: Tensor, k: Tensor, positions: Tensor, frequencies: Tensor, unsqueeze_dim: int = 1) -> Any:
        return _rotated(rule.kernel(q.shape[-1], **options), q, k, positions, frequencies, unsqueeze_dim)

    return rotate


def _rotaries(model: nn.Module) -> dict[str, list[str]]:
    """By the path of a module: names of its children that make cosines and sines."""
    found: dict[str, list[str]] = {}
    for path, module in model.named_modules():
        if isinstance(getattr(module, "inv_freq", None), Tensor):
            parent, _, name = path.rpartition(".")
            found.setdefault(parent, []).append(name)
    return found


def _nearest(path: str, rotaries: dict[str, list[str]]) -> str:
    """Path of the rotary module that an attention's cosines come from: that of the closest module."""
    parent = path
    while parent:
        parent = parent.rpartition(".")[0]
        names = rotaries.get(parent, [])
        if len(names) == 1:
            return f"{parent}.{names[0]}" if parent else names[0]
        if names:
            raise ArgumentError(f"model: {path} may have its angles from {' or '.join(names)}; expected one of them")
    raise ArgumentError(f"model: nothing above {path} makes its angles")


def _check_rotation(path: str, attention: nn.Module, name: str, probe: Any, rule: rotary.Rule, rotate: Any) -> None:
    """Both ways on the same rows."""
    own, places = inspect.unwrap(type(attention).forward).__globals__[name], rule.places
    device = probe.inv_freq.device
    ids = torch.randint(0, 50, places.ids(2, 3), generator=torch.Generator().manual_seed(1)).to(device)
    like = torch.zeros(1, device=device)
    angles, ours = probe(like, ids), _places_of(probe, rule)(probe, like, ids)
    for width in (getattr(attention, "head_dim", rule.rotary_dim), rule.rotary_dim):
        shapes = ((2, 4, 3, width), (2, 2, 3, width)) if len(angles[0].shape) == 3 else ((3, 4, width),) * 2
        q, k = (torch.rand(shape, device=device) * 2 - 1 for shape in shapes)
        try:
            expected = own(q, k, *angles)
        except RuntimeError:  # this one is given the channels that turn, and no others
            continue
        return _agree(path, expected, rotate(q, k, *ours))
    raise ArgumentError(f"model: {path} rotates q and k in a way that is not known")


class _Asked:
    """A module that makes angles, asked once what it does; a copy is, since some keep what they have seen."""

    def __init__(self, path: str, original: nn.Module, options: dict[str, Any]) -> None:
        self.original, self.probe = original, copy.deepcopy(original)
        rule = rotary.rule_of(self.probe, self.probe.inv_freq)
        if rule is None:
            raise ArgumentError(f"model: {path} makes angles in a way that is not known")
        self.rule, self.rotate, self.checked = rule, _rotation(rule, options), set()

    def check(self, path: str, attention: nn.Module, name: str) -> None:
        kind = (type(attention), getattr(attention, "head_dim", 0))
        if kind not in self.checked:
            _check_rotation(path, attention, name, self.probe, self.rule, self.rotate)
            self.checked.add(kind)


@torch.no_grad()
def _changes_of_language(model: nn.Module, options: dict[str, Any]) -> list[Change]:
    rotaries, asked, changes = _rotaries(model), {}, []
    for path, module in model.named_modules():
        name = next((name for name in _ROTATIONS if name in _names(module)), None)
        if name is None:
            continue
        where = _nearest(path, rotaries)
        if where not in asked:
            asked[where] = _Asked(where, model.get_submodule(where), options)
            changes.append((asked[where].original, "forward", _places_of(asked[where].original, asked[where].rule)))
        asked[where].check(path, module, name)
        changes.append(_forward_with(module, name, asked[where].rotate))
    return changes


# ---- timm: sines and cosines of a grid, of all layers or of each ----


def _embed_of(self: Any, shape: Any = None, dtype: Any = None) -> Any:
    """The method that returns positions [N,2] and frequencies in place of sines and cosines; of every layer, where
    layers have their own."""
    if hasattr(self, "freqs"):
        positions = _grid_of_mixed(self, shape)
        return [(positions, self.freqs[:, layer]) for layer in range(self.depth)]
    return _grid_of_bands(self, shape), _bands_of(self)


def _grid_of_bands(original: Any, shape: Any) -> Tensor:
    from timm.layers.pos_embed_sincos import build_fourier_pos_embed

    names = ("in_pixels", "ref_feat_shape", "grid_offset", "grid_indexing", "grid_type", "normalize_coords")
    given = {name: getattr(original, name) for name in names if hasattr(original, name)}
    shape = shape if original.feat_shape is None else original.feat_shape
    return build_fourier_pos_embed(shape, bands=original.bands, include_grid=True, **given)[0].flatten(0, -3)[..., 0]


def _grid_of_mixed(original: Any, shape: Any) -> Tensor:
    from timm.layers.pos_embed_sincos import get_mixed_grid

    if shape is None:
        return torch.stack([original.t_x, original.t_y], -1)
    return torch.stack(get_mixed_grid(shape, original.grid_indexing, original.freqs.device), -1)


def _bands_of(original: Any) -> Tensor:
    """[2, 1, pairs]: the pairs of the first axis, then those of the second."""
    bands = original.bands.float()
    still = torch.zeros_like(bands)
    return torch.stack([torch.cat([bands, still]), torch.cat([still, bands])])[:, None]


def _image_rotation(options: dict[str, Any]) -> Callable[..., Any]:
    def rotate(x: Tensor, embed: Any, half: bool = False) -> Tensor:
        if not isinstance(embed, tuple):
            raise ArgumentError("rope: sines and cosines; expected what get_embed returned")
        positions, frequencies = embed
        heads, layout = frequencies.shape[1], "split" if half else "interleaved"
        name = rotary.kernel(x.shape[-1], 2 * frequencies.shape[-1], 2, heads, layout, 1.0, **options)
        return rotary.encode_one(name, x, positions, frequencies)

    return rotate


def _attentions_of_images(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for path, module in model.named_modules():
        if _ROTATION_OF_IMAGES in _names(module) and not hasattr(module, "get_embed"):
            yield path, module


@torch.no_grad()
def _changes_of_images(model: nn.Module, options: dict[str, Any]) -> list[Change]:
    changes: list[Change] = []
    for holder_path, holder in model.named_modules():
        original = getattr(holder, "rope", None)
        attentions = list(_attentions_of_images(holder)) if isinstance(original, nn.Module) else []
        if not attentions:
            continue
        if not (hasattr(original, "bands") or hasattr(original, "freqs")) or getattr(original, "aug_active", False):
            raise ArgumentError(f"model: {holder_path or 'it'}.rope, a {type(original).__name__}, is of no kind that is"
                                " known (bands or mixed frequencies, coordinates as they are)")  # fmt: skip
        if getattr(holder, "patch_drop", None) is not None:
            raise ArgumentError(f"model: {holder_path or 'it'} drops patches, whose angles patch does not follow")
        rotate = _image_rotation(options)
        for layer, (path, attention) in enumerate(attentions):
            _check_image_rotation(path, attention, original, layer, rotate)
            changes.append(_forward_with(attention, _ROTATION_OF_IMAGES, rotate))
        changes.append((original, "get_embed", _embed_of))
    return changes


def _check_image_rotation(path: str, attention: Any, original: Any, layer: int, rotate: Any) -> None:
    own = inspect.unwrap(type(attention).forward).__globals__[_ROTATION_OF_IMAGES]
    shape = None if getattr(original, "feat_shape", None) is not None else (3, 4)
    angles, embed = original.get_embed(shape), _embed_of(original, shape)
    if isinstance(embed, list):
        angles, embed = angles[layer], embed[layer]
    half = getattr(attention, "rotate_half", False)
    x = torch.rand(2, attention.num_heads, len(embed[0]), attention.head_dim, device=angles.device) * 2 - 1
    _agree(path, [own(x, angles, half=half)], [rotate(x, embed, half=half)])
