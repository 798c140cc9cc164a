"""The transformer: layers of PyTorch's modules, alike in every variant, with an encoding in each layer's attention.

What all variants share has the same first values for a seed: it is made first, from a seed of its own.
"""
from __future__ import annotations

from typing import Any, Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from ..errors import ArgumentError
from ..torch import Attention, Encoding
from .data import Data
from .study import Shape, Study, Variant


class Layer(nn.Module):
    """A layer that normalises before attention and before the perceptron."""

    def __init__(self, shape: Shape, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = shape.heads, causal
        self.of_attention, self.of_perceptron = nn.LayerNorm(shape.dim), nn.LayerNorm(shape.dim)
        self.qkv, self.out = nn.Linear(shape.dim, 3 * shape.dim), nn.Linear(shape.dim, shape.dim)
        wide = int(shape.widening * shape.dim)
        self.perceptron = nn.Sequential(nn.Linear(shape.dim, wide), nn.GELU(), nn.Linear(wide, shape.dim))
        self.encodings = nn.ModuleList()  # in the order in which they are applied; attention last
        self.of_token = nn.ModuleList()  # what each reads of a query's token

    def encode(self, encoding: Encoding | Attention) -> None:
        columns = self.heads * sum(given.size or 1 for given in encoding.kernel.inputs)
        self.encodings.append(encoding)
        self.of_token.append(nn.Linear(self.qkv.in_features, columns, bias=False) if columns else nn.Identity())

    def inputs(self, number: int, x: Tensor) -> list[Tensor]:
        sizes = [given.size for given in self.encodings[number].kernel.inputs]
        if not sizes:
            return []
        made = self.of_token[number](x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        parts = made.split([size or 1 for size in sizes], -1)
        return [part if size else part.squeeze(-1) for part, size in zip(parts, sizes)]

    @property
    def attention(self) -> Attention | None:
        """The kernel of attention itself, where an encoding is one."""
        return self.encodings[-1] if self.encodings and isinstance(self.encodings[-1], Attention) else None

    @property
    def scale(self) -> float:
        """By which products of queries and keys are multiplied."""
        kernel = self.attention
        return (self.qkv.in_features // self.heads) ** -0.5 if kernel is None else kernel.scale or kernel.kernel.scale

    def rows(self, x: Tensor, positions: Tensor, content: bool = True, encode: bool = True) -> tuple[Tensor, ...]:
        """Queries, keys and values as attention takes them. content: without it, queries are 0."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q = q if content else torch.zeros_like(q)
        for number, encoding in enumerate(self.encodings):
            if encode and isinstance(encoding, Encoding):
                q, k = encoding(q, k, positions, inputs=self.inputs(number, x))
        return q, k, v

    def attend(self, x: Tensor, positions: Tensor, values: Tensor | None = None, content: bool = True) -> Tensor:
        """values: in place of the layer's own."""
        q, k, v = self.rows(x, positions, content)
        v = v if values is None else values
        if self.attention is not None:
            return self.attention(q, k, v, positions, inputs=self.inputs(-1, x))
        return scaled_dot_product_attention(q, k, v, is_causal=self.causal, scale=self.scale)

    def weights(self, x: Tensor, positions: Tensor, content: bool = True) -> Tensor:
        """What attention gives each value, [B,H,N,N], read from outputs of values that are unit vectors. An encoding
        that rotates values mixes these, so that some are negative."""
        tokens, width = x.shape[1], self.qkv.in_features // self.heads
        units = torch.eye(tokens, device=x.device).split(width, -1)
        values = [nn.functional.pad(u, (0, width - u.shape[-1])).expand(len(x), self.heads, -1, -1) for u in units]
        made = [self.attend(x, positions, v.contiguous(), content) for v in values]
        return torch.cat(made, -1)[..., :tokens]

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        made = self.attend(self.of_attention(x), positions)
        x = x + self.out(made.transpose(1, 2).flatten(2))
        return x + self.perceptron(self.of_perceptron(x))


class Transformer(nn.Module):
    """Tokens and positions to scores of classes: of each sample by the mean of its tokens, or of each token."""

    def __init__(self, shape: Shape, data: Data, scale: float) -> None:
        super().__init__()
        self.of_tokens = data.causal
        self.register_buffer("scale", torch.tensor(scale), persistent=False)
        kind = nn.Linear if data.train.tokens.is_floating_point() else nn.Embedding
        self.embed = kind(data.features, shape.dim)
        self.layers = nn.ModuleList(Layer(shape, data.causal) for _ in range(shape.depth))
        self.norm, self.classes = nn.LayerNorm(shape.dim), nn.Linear(shape.dim, data.classes)
        self.added: Encoding | None = None  # what is added to the embedding

    def encodings(self) -> list[nn.Module]:
        added = [] if self.added is None else [self.added]
        return added + [encoding for layer in self.layers for encoding in layer.encodings]

    def begin(self, tokens: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """What the first layer is given."""
        x, positions = self.embed(tokens), positions * self.scale
        if self.added is not None:
            x = self.added(x[:, None], positions=positions)[:, 0]
        return x, positions

    def inside(self, tokens: Tensor, positions: Tensor) -> Iterator[tuple[Layer, Tensor, Tensor]]:
        """Layers, with what attention of each is given."""
        x, positions = self.begin(tokens, positions)
        for layer in self.layers:
            yield layer, layer.of_attention(x), positions
            x = layer(x, positions)

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        x, positions = self.begin(tokens, positions)
        for layer in self.layers:
            x = layer(x, positions)
        x = self.norm(x)
        return self.classes(x if self.of_tokens else x.mean(1))


def _own(variant: Variant, settings: dict[str, Any]) -> dict[str, Any]:
    """Options of a description: those of the study, and of the model's those that it has."""
    known = {name: value for name, value in settings.items() if name in variant.declared}
    return known | variant.options


def _made(variant: Variant, kind: type, settings: dict[str, Any], **more: Any) -> Any:
    try:
        return kind(variant.spec, init=variant.first_values(), targets="native", dtypes="float32",
                    defines=_own(variant, settings), **more)  # fmt: skip
    except ArgumentError as e:
        raise ArgumentError(f"[variants.{variant.name}]: {e}") from e


def _set_operands(variant: Variant, encodings: list[nn.Module]) -> None:
    """Those that are not trained, and those that all layers share."""
    for encoding in encodings:
        known = dict(encoding.named_parameters())
        for what, name in [("fixed", x) for x in variant.fixed] + [("shared", x) for x in variant.shared]:
            if name not in known:
                names = ", ".join(known) or "none"
                raise ArgumentError(f"[variants.{variant.name}]: {what}: no operand '{name}'; there are: {names}")
        for name in variant.fixed:
            known[name].requires_grad_(False)
        for name in variant.shared:
            setattr(encoding, name, getattr(encodings[0], name))


def _add(model: Transformer, study: Study, variant: Variant, data: Data) -> None:
    """One description of a variant, in every layer or before the first."""
    shape, where = study.model, f"[variants.{variant.name}]"
    width = shape.dim if variant.role == "additive" else shape.dim // shape.heads
    settings = {"head_dim": width, "channels": shape.dim, "heads": shape.heads, "axes": len(data.axes),
                "depth": shape.depth}  # fmt: skip
    made = []
    if variant.role == "additive":
        model.added = _made(variant, Encoding, settings)
        made.append(model.added)
    else:
        kind, more = (Attention, {"causal": data.causal}) if variant.role == "pairwise" else (Encoding, {})
        for i, layer in enumerate(model.layers):
            made.append(_made(variant, kind, settings | {"layer": i}, **more))
            layer.encode(made[-1])
    kernel = made[0].kernel
    if len(kernel.axes) != len(data.axes):
        raise ArgumentError(
            f"{where}: {kernel.name} has {len(kernel.axes)} axes ({', '.join(kernel.axes)}); [data] '{study.data_set}'"
            f" has {len(data.axes)} ({', '.join(data.axes)})"
        )
    if kernel.head_dim != width:
        raise ArgumentError(f"{where}: {kernel.name} is of {kernel.head_dim} channels; expected {width}")
    _set_operands(variant, made)


def build(study: Study, variant: Variant, data: Data, seed: int) -> Transformer:
    """Raises ArgumentError where an encoding does not fit the model or the data."""
    torch.manual_seed(seed)
    model = Transformer(study.model, data, variant.scale)
    torch.manual_seed(seed)
    for part in variant.parts():
        _add(model, study, part, data)
    return model.to(data.train.tokens.device)


def weights_of(model: Transformer) -> dict[str, Tensor]:
    """The model's own tensors by name. An encoding's have its description's name, wherever in a list that stands."""
    found = {}
    for name, value in model.state_dict().items():
        words = name.split(".")
        if words[0] == "added":
            words[0] += f" {model.added.kernel.name}"
        elif words[0] == "layers" and words[2] in ("encodings", "of_token"):
            words[3] = model.layers[int(words[1])].encodings[int(words[3])].kernel.name
        found[".".join(words)] = value
    return found


def begin(model: Transformer, weights: Mapping[str, Tensor], variant: Variant) -> None:
    """Takes over what both have. Where data differ, what reads tokens and what gives classes may be new."""
    own = weights_of(model)
    for name in sorted(own.keys() & weights.keys()):
        if own[name].shape == weights[name].shape:
            own[name].copy_(weights[name])
        elif not name.startswith(("embed.", "classes.")):
            sizes = " for ".join(" x ".join(map(str, x[name].shape)) for x in (weights, own))
            where = f"[variants.{variant.name}]: start '{variant.start}'"
            raise ArgumentError(f"{where}: {name} has other sizes there, {sizes}; expected the same")
