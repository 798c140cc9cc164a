"""The rotation of models that exist: planes that turn with frequencies which the model holds.

One description serves all of them: frequencies are an operand, so that they are the model's own to the last bit, may
change while it runs, and may be trained.
"""
from __future__ import annotations

from typing import Any, Callable, NamedTuple, Sequence

import torch
from torch import Tensor

from .gradients import call
from .names import register

_TEXT = """
local pe = require "pegen"
local D = pe.option("head_dim", 64, "channels per head")
local n = pe.option("rotary_dim", 64, "channels that turn, from the first")
local P = pe.option("axes", 1, "axes of a position", { 1, 2, 3 })
local heads = pe.option("heads", 1, "heads with frequencies of their own; 1: all heads share them")
local layout = pe.option("layout", "split", "pairs (j, j + n/2) or (2j, 2j+1)", { "split", "interleaved" })
local amplitude = pe.option("amplitude", 1.0, "factor of the encoded channels")
local precision = pe.option("precision", "float32 phases", "as models round them", { "exact phases", "float32 phases" })

return pe.encoding {
  name = "rotary",
  doc = "planes that turn at a model's own frequencies",
  axes = ({ { "t" }, { "h", "w" }, { "t", "h", "w" } })[P],
  head_dim = D,
  heads = heads,
  block = pe.plane(),
  span = { 0, n },
  layout = layout,
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = pe.learned {
    name = "freqs",
    shape = { "axes", "heads", "blocks" },
    doc = "frequency of a pair of channels on an axis",
    units = "radians per unit of position",
  },
  amplitude = amplitude,
  precision = precision,
}
"""


class Places(NamedTuple):
    """How a model hands over the positions of its tokens."""

    name: str
    axes: int
    ids: Callable[[int, int], tuple[int, ...]]  # shape of position ids, of batches and tokens
    cosines: Callable[[int, int], tuple[int, ...]]  # shape of the model's cosines, but for channels
    axis: int  # of ids, that counts the axes; of no ids if they have one
    positions: Callable[[Tensor], Tensor]  # ids as [N,P] or [B,N,P]

    def __reduce__(self) -> Any:
        """By its name: what is called has none."""
        return _places_of, (self.name,)


def _of_tokens(ids: Tensor) -> Tensor:
    ids = ids.reshape(-1, ids.shape[-1])
    return ids[0, :, None] if ids.shape[0] == 1 else ids[:, :, None]


# In the order in which they are tried.
PLACES = (
    Places("axes, batches, tokens", 3, lambda b, n: (3, b, n), lambda b, n: (b, n), 0, lambda i: i.permute(1, 2, 0)),
    Places("tokens, axes", 2, lambda b, n: (n, 2), lambda b, n: (n,), 1, lambda ids: ids),
    Places("batches, tokens", 1, lambda b, n: (b, n), lambda b, n: (b, n), 2, _of_tokens),
)  # fmt: skip


def _places_of(name: str) -> Places:
    return next(places for places in PLACES if places.name == name)


class Rule(NamedTuple):
    """What a model's rotation is: whose positions, which of its frequencies a pair has on an axis, how many channels
    turn. Which channels are a pair says the function that rotates."""

    places: Places
    index: Tensor  # [axes, pairs]: of a frequency, or one past the last: the pair does not listen
    amplitude: float
    has_prefix: bool = False  # the first tokens have no position, and stay

    def frequencies(self, inv_freq: Tensor) -> Tensor:
        """The operand: [axes, 1, pairs]."""
        padded = torch.cat([inv_freq.float(), inv_freq.new_zeros(1, dtype=torch.float32)])
        return padded[self.index.to(inv_freq.device)][:, None]

    @property
    def rotary_dim(self) -> int:
        return 2 * self.index.shape[-1]

    def kernel(self, head_dim: int, layout: str, **options: Any) -> str:
        return kernel(head_dim, self.rotary_dim, self.places.axes, 1, layout, self.amplitude, **options)


_kernels: dict[Any, str] = {}


def _known(spec: str, **options: Any) -> str:
    """The name under which the operators know a description with these options."""
    key = (spec, *options.items())  # in the order of the caller, which is always the same
    if key not in _kernels:
        _kernels[key] = register(spec, **options)
    return _kernels[key]


def kernel(head_dim: int, rotary_dim: int, axes: int, heads: int, layout: str, amplitude: float, **options: Any) -> str:
    """The name under which the operators know the kernel. options: `precision`, targets and the like, of
    `pegen_kernels.compile`."""
    made = {"head_dim": head_dim, "rotary_dim": rotary_dim, "axes": axes, "heads": heads, "layout": layout}
    return _known(_TEXT, **made, amplitude=amplitude, **options)


def encode(name: str, q: Tensor, k: Tensor, positions: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """q: [B,H,N,D], k: [B,Hkv,N,D]."""
    return call("encode", (q, k), positions.contiguous(), [frequencies.contiguous()], name)


def encode_one(name: str, x: Tensor, positions: Tensor, frequencies: Tensor) -> Tensor:
    return call("encode_one", (x,), positions.contiguous(), [frequencies.contiguous()], name)


def given_kernel(head_dim: int, rotary_dim: int, layout: str, products: str, **options: Any) -> str:
    """As `kernel`, of cosines and sines that the model computes (specs/more/cos_sin.lua)."""
    return _known("cos_sin", head_dim=head_dim, rotary_dim=rotary_dim, layout=layout, products=products, **options)


def turn(name: str, rows: Sequence[Tensor], cosines: Tensor, sines: Tensor) -> Sequence[Tensor]:
    """rows: one or two of [B,H,N,D], each with heads of its own; cosines and sines: [B,H,N,pairs], B and H may be 1."""
    inputs = [cosines.float().contiguous(), sines.float().contiguous()]
    at = torch.zeros(rows[0].shape[2], 1, device=rows[0].device)  # no entry of a matrix reads it
    if len(rows) == 2 and rows[0].shape == rows[1].shape:
        return call("encode", tuple(rows), at, inputs, name)
    return [call("encode_one", (x,), at, inputs, name) for x in rows]


# ---- rules, found by asking the model's own code ----


def _asked(rotary: Any, places: Places, ids: Tensor) -> tuple[Tensor, Tensor] | None:
    """The model's cosines and sines in float64, where it takes such ids."""
    like = torch.zeros(1, dtype=torch.float32, device=ids.device)
    try:
        made = rotary(like, ids)
        cosines, sines = (made.real, made.imag) if isinstance(made, Tensor) else made
    except Exception:  # ids of another kind, or none at all
        return None
    batches, tokens = (2, 3)
    if tuple(cosines.shape[:-1]) != places.cosines(batches, tokens):
        return None
    return cosines.double().cpu().reshape(-1, cosines.shape[-1]), sines.double().cpu().reshape(-1, sines.shape[-1])


def rule_of(rotary: Any, inv_freq: Tensor) -> Rule | None:
    """The rule of a model's code from position ids to cosines and sines, or None: it is of another kind. rotary: of an
    empty tensor and ids."""
    for places in PLACES:
        ids = torch.zeros(places.ids(2, 3), dtype=torch.long, device=inv_freq.device)
        still = _asked(rotary, places, ids)
        if still is None:
            continue
        amplitude, half = float(still[0][0, 0]), still[0].shape[-1] // 2
        known = torch.cat([inv_freq.double().cpu(), torch.zeros(1, dtype=torch.float64)])
        angles = []
        for axis in range(places.axes):
            moved = ids.clone()
            (moved if places.axis > 1 else moved.select(places.axis, axis)).fill_(1)
            cosines, sines = _asked(rotary, places, moved)  # type: ignore[misc]
            angles.append(torch.atan2(sines[0], cosines[0]))
        turned = torch.stack(angles)  # [axes, channels], radians of one step along the axis
        index = (turned[..., None] - known).abs().argmin(-1)
        if (turned - known[index]).abs().max() > 1e-6 * float(known.max()):
            continue
        # Cosines come twice, in halves or one beside the other, or once for each pair.
        if torch.equal(index[:, :half], index[:, half:]):
            index = index[:, :half]
        elif torch.equal(index[:, ::2], index[:, 1::2]):
            index = index[:, ::2]
        return Rule(places, index.contiguous(), amplitude)
    return None
