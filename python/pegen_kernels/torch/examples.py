"""Arguments with which a model's part runs, by what it says of itself: parameters of its forward, its configuration."""
from __future__ import annotations

import inspect
from typing import Any, Iterator

import torch
from torch import nn

_TOKENS = 5


def _place_of(module: nn.Module) -> dict[str, Any]:
    """Device and type of its first parameter."""
    first = next(module.parameters(), torch.zeros(1))
    return {"device": first.device, "dtype": first.dtype if first.is_floating_point() else torch.float32}


def _sizes(of: Any) -> tuple[int, int]:
    return (of, of) if isinstance(of, int) else (int(of[0]), int(of[1]))


def _of(config: Any, *names: str, default: Any = None) -> Any:
    return next((getattr(config, name) for name in names if getattr(config, name, None) is not None), default)


def _patches(module: nn.Module, config: Any, first: str) -> dict[str, Any]:
    """Two images, of patches that follow each other."""
    merge, channels = _of(config, "spatial_merge_size", default=2), _of(config, "in_channels", "in_chans", default=3)
    if not isinstance(config.patch_size, int):
        channels *= config.patch_size[0] * config.patch_size[1]
    else:
        channels *= config.patch_size**2
    grid = [[1, 2 * merge, 4 * merge], [1, 6 * merge, 2 * merge]]
    rows = sum(t * h * w for t, h, w in grid)
    place = _place_of(module)
    pixels = torch.randn(rows, channels * _of(config, "temporal_patch_size", default=1), **place)
    return {first: pixels, "grid_thw": torch.tensor(grid, device=place["device"])}


def _words(module: nn.Module, named: dict[str, Any]) -> Iterator[dict[str, Any]]:
    embedding = module.get_input_embeddings() if hasattr(module, "get_input_embeddings") else None
    if not isinstance(embedding, nn.Embedding):
        return
    place = _place_of(embedding)
    ids = torch.arange(3, 3 + _TOKENS, device=place["device"])[None] % embedding.num_embeddings
    yield {"input_ids": ids, **named}
    yield {"inputs_embeds": torch.randn(1, _TOKENS, embedding.embedding_dim, **place), **named}


def examples_of(module: nn.Module) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Positional and named arguments, which the module may refuse: the next ones are tried then."""
    config = getattr(module, "config", None)
    names = list(inspect.signature(module.forward).parameters)
    grid = _of(getattr(module, "patch_embed", None), "img_size")
    if config is None and grid is not None:  # timm
        yield (torch.randn(2, _of(module.patch_embed.proj, "in_channels"), *_sizes(grid), **_place_of(module)),), {}
    if config is None:
        return
    if "grid_thw" in names and _of(config, "patch_size") is not None:
        yield (), _patches(module, config, names[0])
    if "pixel_values" in names and _of(config, "image_size") is not None:
        sizes = _sizes(config.image_size)
        yield (), {"pixel_values": torch.randn(2, _of(config, "num_channels", default=3), *sizes, **_place_of(module))}
    if "input_ids" in names:
        for example in _words(module, {"use_cache": False} if "use_cache" in names else {}):
            yield (), example
