"""Models of transformers and timm whose own rotations of q and k become kernels: `pegen_kernels.torch.patch(model)`.

The model's code stays. Modules that compute cosines and sines hand on angles (`angles.py`) in their place: positions
and frequencies, which refuse every operation but a rotation. The model's own function that rotates, a name in the
module of its code, is replaced by one that gives angles to pegen and everything else to the model's own. What a
rotation is (axes, layout, factor) is asked of the model's own code.

Then the model's own code runs once, on an example: a model that does anything else with its cosines is refused by the
angles, and both rotations are compared wherever it rotates.
"""
from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import math
import types
from typing import Any, Callable, Iterator, Mapping, Sequence, Tuple

import torch
from torch import Tensor, nn

from ..errors import ArgumentError
from . import rotary
from .angles import ROTATION_OF_IMAGES, Angles, How, Trial, stand_in
from .examples import examples_of

_ROTATIONS = (  # of transformers
    "apply_rotary_pos_emb",
    "apply_rotary_pos_emb_vision",
    "apply_rotary_pos_emb_interleave",
    "apply_rotary_emb",
)


def patch(model: nn.Module, *, example: Any = None, **options: Any) -> nn.Module:
    """Lets the rotary encodings of a model of transformers or timm run through pegen's kernels; returns the model.

    Values, parameters and what is saved stay as they are; gradients (of learned frequencies, too), caches, padding,
    grouped heads, hooks and a `forward` of a module's own go on working. example: arguments of one call of the model, a
    mapping by name or a sequence; where it is left out, what the model's parts are known to take is tried. The model
    runs on it twice, without gradients. options: targets, dtypes and cache, as of `pegen_kernels.compile`; precision:
    "float32 phases", which models have, or "exact phases"; like_model=True: cosines and sines are the model's own, and
    products are rounded as its own code does, so that outputs are the model's to the bit, in 16 bits, too.
    A model that was patched with the same options stays as it is; `unpatch(model)` undoes it. Raises ArgumentError, and
    changes nothing, where the model rotates in a way that the kernels would not reproduce.
    """
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"model is a {type(model).__name__}; expected a torch.nn.Module")
    if options.get("like_model") and "precision" in options:
        raise ArgumentError("precision: like_model=True takes the model's own cosines; expected one of them")
    options = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
    for _, change in _replaced(model):
        if change.options != options:
            raise ArgumentError("model: it has been patched before, with other options; unpatch(model) undoes that")
        return model
    if any(x.is_meta for x in model.parameters()):
        raise ArgumentError("model: it has parameters on the meta device; expected a model with its values")
    attentions = dict(_attentions(model))
    if not attentions:
        raise ArgumentError(
            f"model: {type(model).__name__} has no attention that patch knows; expected one of transformers that calls"
            f" {' or '.join(_ROTATIONS)}, or of timm that calls {ROTATION_OF_IMAGES}"
        )
    with torch.no_grad(), _as_it_was_on_error(model):
        trial = Trial()
        kinds = (_changes_of_language, _changes_of_tables, _changes_of_patches, _changes_of_images)
        changes: list[tuple[nn.Module, Any]] = [change for of in kinds for change in of(model, options, trial)]
        if not changes:
            raise ArgumentError(f"model: what makes the angles of {next(iter(attentions))} is not known")
        runs = _runs(model, [change.path for _, change in changes], example)
        functions = sorted(set(_functions(attentions.values())))
        for module, change in changes:
            change.rotate_by(functions)
            change.install(module)
        _run_patched(attentions, runs, trial)
        for _, change in changes:
            change.trial = change.probe = None
    return model


def unpatch(model: nn.Module) -> nn.Module:
    """Gives a patched model its own code back."""
    for module, change in list(_replaced(model)):
        change.remove(module)
    return model


def _replaced(model: nn.Module) -> Iterator[tuple[nn.Module, Any]]:
    for module in model.modules():
        for change in (*module._forward_hooks.values(), vars(module).get("get_embed")):
            if isinstance(change, _Change):
                yield module, change


@contextlib.contextmanager
def _as_it_was_on_error(model: nn.Module) -> Iterator[None]:
    """Leaves the model in the mode that it was in, and after an error with its own code."""
    modes = {module: module.training for module in model.modules()}
    try:
        yield
    except BaseException:
        unpatch(model)
        raise
    finally:
        for module, mode in modes.items():
            module.training = mode


# ---- the example ----

_Run = Tuple[nn.Module, str, Sequence[Any], Mapping[str, Any]]  # a module, its path, arguments


def _attentions(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for path, module in model.named_modules():
        if _rotations(module)[1] and not hasattr(module, "get_embed"):
            yield path, module


def _rotations(module: nn.Module) -> tuple[str, set[str]]:
    """The module of Python's in which the forward of a module's class was written, and names of functions there that
    rotate and that it uses."""
    forward = inspect.unwrap(type(module).forward)
    if not isinstance(forward, types.FunctionType):
        return "", set()
    names = {*_ROTATIONS, ROTATION_OF_IMAGES} & {*forward.__code__.co_names} & {*forward.__globals__}
    return forward.__globals__["__name__"], names


def _functions(attentions: Any) -> Iterator[tuple[str, str]]:
    for attention in attentions:
        module, names = _rotations(attention)
        for name in names:
            yield module, name


def _holders(model: nn.Module, path: str) -> Iterator[tuple[str, nn.Module]]:
    """The modules around one, from the closest on, which may be those that call it."""
    while path:
        path = path.rpartition(".")[0]
        module = model.get_submodule(path)
        if not isinstance(module, (nn.ModuleList, nn.ModuleDict, nn.Sequential)):
            yield path, module


def _called(run: _Run) -> None:
    module, _, given, named = run
    devices = {x.device for x in module.parameters() if x.is_cuda}
    with torch.random.fork_rng(devices=sorted(devices, key=str)):
        module.eval()(*given, **named)


def _runs(model: nn.Module, paths: Sequence[str], example: Any) -> list[_Run]:
    """Calls that the model's own code takes, of the modules around those at the paths."""
    if example is not None:
        is_named = isinstance(example, Mapping)
        given: _Run = (model, "", () if is_named else example, example if is_named else {})
        try:
            _called(given)
        except Exception as error:
            raise ArgumentError(f"example: {type(model).__name__} does not take it: {error}") from error
        return [given]
    runs: dict[str, _Run] = {}
    for path in paths:
        errors: list[Exception] = []
        found = next(_runs_of(model, path, runs, errors), None)
        if found is None:
            tried = f" (tried: {type(errors[-1]).__name__}: {errors[-1]})" if errors else ""
            raise ArgumentError(
                f"example: patch runs the model once, and does not know what the module around {path} takes{tried};"
                " expected arguments of the model"
            )
        runs[found[1]] = found
    return list(runs.values())


def _runs_of(model: nn.Module, path: str, before: Mapping[str, _Run], errors: list[Exception]) -> Iterator[_Run]:
    for where, holder in _holders(model, path):
        if where in before:
            yield before[where]
        for given, named in examples_of(holder):
            run = (holder, where, given, named)
            try:
                _called(run)
            except Exception as error:  # this is not what it takes
                errors.append(error)
                continue
            yield run


def _run_patched(attentions: Mapping[str, nn.Module], runs: Sequence[_Run], trial: Trial) -> None:
    """Every attention is reached, and what reaches it are angles, if anything."""
    reached = set()

    def note(path: str) -> Any:
        def hook(*_: Any) -> None:
            trial.path = path
            reached.add(path)

        return hook

    hooks = [module.register_forward_pre_hook(note(path)) for path, module in attentions.items()]
    try:
        for run in runs:
            trial.path = run[1] or type(run[0]).__name__
            with trial:
                _called(run)
    except ArgumentError as error:
        raise ArgumentError(f"model: {trial.path} would not be reproduced: {error}") from error
    except Exception as error:
        raise ArgumentError(f"model: {trial.path} does not run with angles: {type(error).__name__}: {error}") from error
    finally:
        for hook in hooks:
            hook.remove()
    missed = [path for path in attentions if path not in reached]
    if missed:
        raise ArgumentError(f"example: {missed[0]} did not run; expected arguments of the model with which it does")


# ---- what is changed ----


class _Change:
    """What one module hands on in place of cosines and sines. It is saved with a model that is saved whole."""

    def __init__(self, path: str, options: dict[str, Any], trial: Trial) -> None:
        self.path, self.options = path, options
        self.trial: Trial | None = trial
        self.functions: list[tuple[str, str]] = []
        self.layouts: dict[Any, tuple[Any, int, How]] = {}  # of functions, as the trial finds them
        self.probe: Any = None  # of the trial: a copy of the module, which computes the model's own

    @property
    def is_like_model(self) -> bool:
        """Whether cosines and sines are the model's own, and products are rounded as by its code."""
        return bool(self.options.get("like_model"))

    @property
    def gives_numbers(self) -> bool:
        """Whether angles are cosines and sines, and not positions and frequencies."""
        return self.is_like_model

    @property
    def kernel_options(self) -> dict[str, Any]:
        return {name: value for name, value in self.options.items() if name != "like_model"}

    def rotate_by(self, functions: list[tuple[str, str]]) -> None:
        """The model's functions that are given the angles."""
        self.functions = functions
        for function in functions:
            stand_in(*function)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.rotate_by(self.functions)


class _Hook(_Change):
    """A hook of a module, which puts angles in place of what its code made."""

    def install(self, module: nn.Module) -> None:
        module.register_forward_hook(self, with_kwargs=True)

    def remove(self, module: nn.Module) -> None:
        for key in [key for key, hook in module._forward_hooks.items() if hook is self]:
            del module._forward_hooks[key], module._forward_hooks_with_kwargs[key]


# ---- transformers: cosines and sines for all layers, from position ids ----


class _Rotary(_Hook):
    """A hook of a module that makes cosines and sines, which puts angles in their place. The module's own code has run
    before it: frequencies that follow the length of what was seen have followed it."""

    def __init__(self, path: str, original: nn.Module, options: dict[str, Any], trial: Trial) -> None:
        super().__init__(path, options, trial)
        self.probe = copy.deepcopy(original)  # some keep what they have seen
        named = {name: (getattr(original, name), _of_type(self.probe, name)) for name in _frequencies(original)}
        rules = {name: rotary.rule_of(code, inv_freq) for name, (inv_freq, code) in named.items()}
        self.rules = {name: rule for name, rule in rules.items() if rule}

    def __call__(self, module: nn.Module, given: Any, named: Any, made: Any) -> Any:
        named = {**dict(zip(("x", "position_ids", "layer_type"), given)), **named}
        ids, layer_type = named.pop("position_ids", None), named.pop("layer_type", None)
        if len(given) > 3 or set(named) - {"x"} or ids is None:
            raise ArgumentError(f"{self.path} was called with other arguments than x, position_ids and layer_type")
        name = f"{layer_type}_inv_freq" if layer_type else "inv_freq"
        rule = self.rules.get(name)
        if rule is None:
            return made
        if self.is_like_model:
            own = made if self.trial else None
            numbers = (made.real, made.imag) if isinstance(made, Tensor) else tuple(made)
            return _angles(self, made, numbers, own, rule)
        own, of = None, module
        if self.trial:
            ids = torch.randint(0, 50, ids.shape, generator=torch.Generator().manual_seed(1)).to(ids.device)
            of, own = self.probe, _of_type(self.probe, name)(torch.zeros(1, device=ids.device), ids)
        if rule.places.axes == 3 and (ids.ndim == 2 or ids.shape[0] == 1):
            ids = ids.expand(3, -1, -1)
        return _angles(self, made, (rule.places.positions(ids), rule.frequencies(getattr(of, name))), own, rule)


def _angles(of: _Rotary, made: Any, places: tuple[Any, Any], own: Any, rule: rotary.Rule) -> Any:
    """In place of what the module made: complex numbers, or cosines and sines."""
    if isinstance(made, Tensor):
        return Angles(of, "complex numbers", places, own, rule)
    cosines, sines = (None, None) if own is None else own
    return Angles(of, "cosines", places, cosines, rule), Angles(of, "sines", places, sines, rule)


def _frequencies(module: nn.Module) -> list[str]:
    """Names of a module's frequencies: one, or one for each type of layer."""
    held = {**vars(module), **module._buffers, **module._parameters}
    named = [name for name, value in held.items() if isinstance(value, Tensor)]
    return [x for x in named if f"_{x}".endswith("_inv_freq") and not x.endswith("original_inv_freq")]


def _of_type(module: nn.Module, name: str) -> Callable[..., Any]:
    """The module's code, for the layers whose frequencies have this name."""
    return functools.partial(module, layer_type=name[: -len("_inv_freq")]) if name != "inv_freq" else module


def _changes_of_language(model: nn.Module, options: dict[str, Any], trial: Trial) -> list[tuple[nn.Module, _Rotary]]:
    """What has frequencies and another rule keeps its own cosines: if an attention that is patched turns by them, its
    trial ends there."""
    named = [(path, x) for path, x in model.named_modules() if _frequencies(x)]
    changes = [(module, _Rotary(path, module, options, trial)) for path, module in named]
    return [(module, change) for module, change in changes if change.rules]


# ---- transformers: cosines and sines that a table has for every position ----


class _Table(_Hook):
    """A hook of a module that looks cosines and sines up (GPT-J, CodeGen): these are its own. parts: in which order it
    returns them."""

    gives_numbers = True

    def __init__(self, path: str, parts: Sequence[str], options: dict[str, Any], trial: Trial) -> None:
        super().__init__(path, options, trial)
        if "precision" in options:
            raise ArgumentError(f"precision: {path} looks cosines up, and they are as they are; expected it left out")
        self.parts = tuple(parts)

    def __call__(self, module: nn.Module, given: Any, named: Any, made: Any) -> Any:
        numbers = dict(zip(self.parts, made))
        pairs = made[0].shape[-1]
        rule = rotary.Rule(rotary.PLACES[-1], torch.arange(pairs)[None], 1.0)
        places = numbers["cosines"], numbers["sines"]
        return tuple(Angles(self, part, places, x if self.trial else None, rule) for part, x in numbers.items())


def _changes_of_tables(model: nn.Module, options: dict[str, Any], trial: Trial) -> list[tuple[nn.Module, _Table]]:
    """Cosines of position 0 are ones, and its sines zeros."""
    changes = []
    for path, module in model.named_modules():
        table = getattr(module, "embed_positions", None)
        if not isinstance(table, Tensor) or [*inspect.signature(module.forward).parameters] != ["x", "position_ids"]:
            continue
        ids = torch.zeros(1, 1, dtype=torch.long, device=table.device)
        first = [float(x.mean()) for x in module(table.new_zeros(1), ids)]
        if sorted(first) == [0, 1]:
            parts = ["cosines" if x else "sines" for x in first]
            changes.append((module, _Table(path, parts, options, trial)))
    return changes


# ---- transformers: cosines and sines of the patches of an image ----


class _Patches(_Hook):
    """A hook of a module that makes cosines and sines of patches' centres, in [-1,1], from pixel values (DINOv3)."""

    def __init__(self, path: str, original: Any, options: dict[str, Any], trial: Trial) -> None:
        super().__init__(path, options, trial)
        n = original.inv_freq.shape[0]
        each, none = torch.arange(n), torch.full((n,), n)
        index = torch.stack([torch.cat([each, none]), torch.cat([none, each])])
        self.rule = rotary.Rule(rotary.PLACES[1], index, 1.0, has_prefix=True)

    def __call__(self, module: Any, given: Any, named: Any, made: Any) -> Any:
        moved = ("pos_embed_shift", "pos_embed_jitter", "pos_embed_rescale")
        if module.training and any(getattr(module.config, name, None) for name in moved):
            return made  # coordinates of training are others each time
        places = tuple(made)
        if self.trial or not self.is_like_model:
            centres = _centres(module, *given, **named)
            frequencies = self.rule.frequencies(2 * math.pi * module.inv_freq)
        if self.trial:
            angles = torch.einsum("na,ahj->nj", centres, frequencies)
            own = torch.cat([angles, angles], -1)
            if made[0].shape != own.shape or (made[0] - own.cos()).abs().max() > _SAME_COSINES:
                raise ArgumentError(f"{self.path}, a {type(module).__name__}, makes cosines that are not known")
        if not self.is_like_model:
            places = (centres, frequencies)
        owns = made if self.trial else (None, None)
        return tuple(Angles(self, part, places, own, self.rule) for part, own in zip(("cosines", "sines"), owns))


_SAME_COSINES = 2.0**-6  # of models in bfloat16


def _centres(module: Any, pixel_values: Tensor) -> Tensor:
    """Where patches have their centres, [N,2], from -1 to 1."""
    size = module.config.patch_size
    sizes = (size, size) if isinstance(size, int) else size
    counts = [n // of for n, of in zip(pixel_values.shape[-2:], sizes)]
    at = [(2 * torch.arange(n, device=pixel_values.device, dtype=torch.float32) + 1) / n - 1 for n in counts]
    return torch.stack(torch.meshgrid(*at, indexing="ij"), -1).flatten(0, 1)


def _changes_of_patches(model: nn.Module, options: dict[str, Any], trial: Trial) -> list[tuple[nn.Module, _Patches]]:
    return [
        (module, _Patches(path, module, options, trial))
        for path, module in model.named_modules()
        if _frequencies(module) == ["inv_freq"]
        and [*inspect.signature(module.forward).parameters] == ["pixel_values"]
        and hasattr(getattr(module, "config", None), "patch_size")
    ]


# ---- timm: sines and cosines of a grid, of all layers or of each ----


class _Embed(_Change):
    """In place of the method `get_embed` of a module: angles at positions [N,2]; a list of those of every layer, where
    layers have their own."""

    def __init__(self, path: str, original: nn.Module, options: dict[str, Any], trial: Trial) -> None:
        super().__init__(path, options, trial)
        self.original = original
        self.own = vars(original).get("get_embed")
        known = any(hasattr(original, name) for name in ("bands", "freqs", "periods", "mrope_section"))
        if not known or getattr(original, "aug_active", False):
            raise ArgumentError(
                f"model: {path}, a {type(original).__name__}, is of no kind that is known (bands, periods, sections"
                " or mixed frequencies, coordinates as they are)"
            )

    def install(self, module: nn.Module) -> None:
        module.get_embed = self  # type: ignore[assignment]

    def remove(self, module: nn.Module) -> None:
        del module.get_embed
        if self.own is not None:
            module.get_embed = self.own

    def __call__(self, shape: Any = None, *rest: Any, **named: Any) -> Any:
        of, own = self.original, None
        has_layers = hasattr(of, "freqs")
        if self.trial or self.is_like_model:
            own = (self.own or type(of).get_embed.__get__(of))(shape, *rest, **named)
        if self.is_like_model:
            made = [Angles(self, "angles", (x,), x if self.trial else None) for x in (own if has_layers else [own])]
            return made if has_layers else made[0]
        if has_layers:
            positions = _grid_of_mixed(of, shape)
            layers = range(of.depth)
            return [Angles(self, "angles", (positions, of.freqs[:, i]), own if own is None else own[i]) for i in layers]
        if hasattr(of, "mrope_section"):
            sections = torch.stack([of.inv_freq.float() * (of.axis == axis) for axis in (1, 2)])[:, None]
            return Angles(self, "angles", (_grid_of_sections(of, shape), sections), own)
        if hasattr(of, "periods"):
            return Angles(self, "angles", (_grid_of_periods(of, shape), _by_axis(2 * math.pi / of.periods)), own)
        return Angles(self, "angles", (_grid_of_bands(of, shape), _by_axis(of.bands)), own)


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


def _grid_of_sections(original: Any, shape: Any) -> Tensor:
    """Rows and columns; time, the first section's, stands still."""
    from timm.layers.pos_embed_sincos import _build_grid

    return _build_grid(shape, grid_indexing=original.grid_indexing, ndim=2).flatten(0, -2).to(original.inv_freq.device)


def _grid_of_periods(original: Any, shape: Any) -> Tensor:
    from timm.layers.pos_embed_sincos import _build_grid

    names = ("grid_offset", "grid_indexing", "normalize_coords")
    given = {name: getattr(original, name) for name in names}
    shape = original.feat_shape if shape is None else shape
    return _build_grid(shape, grid_type="centered", ndim=2, **given).flatten(0, -2).to(original.periods.device)


def _by_axis(frequencies: Tensor) -> Tensor:
    """[2, 1, pairs]: the pairs of the first axis, then those of the second."""
    still = torch.zeros_like(frequencies, dtype=torch.float32)
    moved = frequencies.float()
    return torch.stack([torch.cat([moved, still]), torch.cat([still, moved])])[:, None]


def _changes_of_images(model: nn.Module, options: dict[str, Any], trial: Trial) -> list[tuple[nn.Module, _Embed]]:
    changes = {}
    for path, holder in model.named_modules():
        original = getattr(holder, "rope", None)
        if not isinstance(original, nn.Module) or not hasattr(original, "get_embed"):
            continue
        if getattr(holder, "patch_drop", None) is not None:
            raise ArgumentError(f"model: {path or 'it'} drops patches, whose angles patch does not follow")
        changes[original] = _Embed(f"{path}.rope".lstrip("."), original, options, trial)
    return list(changes.items())
