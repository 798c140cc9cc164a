"""Modules: an encoding, attention."""
from __future__ import annotations

from typing import Any, Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from ..errors import ArgumentError
from ..kernel import Kernel, in_order
from .attention import attend, gaining
from .gradients import call
from .initial import Given, values_of
from .names import kernel_of, register


_NARROW = (torch.float16, torch.bfloat16)
_OPERAND_TYPES = (torch.float32, torch.float64, *_NARROW)


class _Module(nn.Module):
    """Operands as parameters. Their number type is their own: `.bfloat16()`, `.half()` and `.to(dtype)` of a model move
    them and do not round them, since at a position of 4000 nothing of an angle is left in 8 bits. `cast_operands` casts
    them."""

    def _learned(self) -> int:
        """Bits: the operands that have gradients."""
        return -1 if "encode_backward_finish" in self.kernel.entries else 0

    def __init__(self, spec: Any, init: Mapping[str, Any] | None, options: dict[str, Any]) -> None:
        super().__init__()
        self.kernel_name = register(spec, **options)
        found = self.kernel
        self._names = [info.name for info in found.operands]
        self._ranks = [len(info.shape) for info in found.operands]
        self._n_inputs = len(found.inputs)
        self._init = {name: Given(value) for name, value in (init or {}).items()}
        learned = self._learned()
        for i, (name, value) in enumerate(values_of(found, self._init).items()):
            self.register_parameter(name, nn.Parameter(value, requires_grad=bool(learned >> i & 1)))

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Writes first values into the operands, those of `init` and of the description: after `to_empty`, say."""
        for name, value in values_of(self.kernel, self._init).items():
            getattr(self, name).copy_(value)

    def cast_operands(self, dtype: torch.dtype) -> Any:
        """Casts the operands, which `.to(dtype)` leaves in the type that they have (first float32); returns the module.
        Kernels read 16-bit operands as float32, of values that are rounded."""
        if dtype not in _OPERAND_TYPES:
            raise ArgumentError(f"dtype is {dtype}; expected {', '.join(map(str, _OPERAND_TYPES))}")
        kept = list(self._kept())
        return super()._apply(lambda x: x.to(dtype) if any(x is y for y in kept) else x)

    def _kept(self) -> Iterator[Tensor]:
        """Operands and their gradients. A parametrized operand is what its parametrization holds."""
        of = getattr(self, "parametrizations", {})
        for name in self._names:
            for x in of[name].parameters() if name in of else (self._parameters[name],):
                yield x
                if x.grad is not None:
                    yield x.grad

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        kept = list(self._kept())  # held, so that no other tensor has the same identity

        def move(x: Tensor) -> Tensor:
            made = fn(x)
            return x.to(made.device) if made.dtype != x.dtype and any(x is y for y in kept) else made

        return super()._apply(move, recurse)

    @property
    def kernel(self) -> Kernel:
        """The kernel, with what it says of itself."""
        return kernel_of(self.kernel_name)

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Reads checkpoints that have an operand's numbers in another shape, too."""
        for info in self.kernel.operands:
            found, own = state.get(prefix + info.name), getattr(self, info.name)
            if isinstance(found, Tensor) and own.shape == info.shape and info.is_shaped_as(found.shape):
                state[prefix + info.name] = found.reshape(info.shape)
        super()._load_from_state_dict(state, prefix, *rest)

    def _operands(self) -> list[Tensor]:
        """Operands as kernels take them: those of 16 bits in float32, as a table of displacements has to be. What a
        caller put in a parameter's place may have another shape of its numbers."""
        own = self._parameters  # where one that is parametrized is not
        given = [own[name] if name in own else getattr(self, name) for name in self._names]
        for i, (x, rank) in enumerate(zip(given, self._ranks)):
            if x.ndim != rank and (info := self.kernel.operands[i]).is_shaped_as(x.shape):
                given[i] = x.reshape(info.shape)
        return [x.float() if x.dtype in _NARROW else x for x in given]

    def _in_order(self, inputs: Any) -> Sequence[Tensor]:
        if isinstance(inputs, (list, tuple)) and len(inputs) == self._n_inputs:
            return inputs
        return in_order(self.kernel.name, "input", self.kernel.inputs, inputs)

    def extra_repr(self) -> str:
        return f"{self.kernel.name}: {', '.join(f'{k}={v}' for k, v in self.kernel.options.items())}"


class Encoding(_Module):
    """An encoding of q and k by their positions.

    spec, options: as of `pegen_kernels.compile`; spec may be a Kernel, too, as `pegen_kernels.load` returns it. init:
    first values of operands by name, tensors or functions from a shape to a tensor; what is not named begins as the
    description says, where it says so (a loaded kernel has no description). Operands are parameters by their names.
    """

    def __init__(self, spec: Any, *, init: Mapping[str, Any] | None = None, **options: Any) -> None:
        super().__init__(spec, init, options)
        if "encode" not in self.kernel.entries:
            raise ArgumentError(
                f"spec: {self.kernel.name} does not encode q and k; expected pegen_kernels.torch.Attention"
            )

    def forward(self, q: Tensor, k: Tensor | None = None, positions: Tensor | None = None,
                inputs: Sequence[Tensor] | Mapping[str, Tensor] | Tensor = ()) -> Any:  # fmt: skip
        """q: [B,H,N,D], k: [B,Hkv,N,D] (or None), of float32, bfloat16 or float16; positions: [N,P] or [B,N,P] of
        float32, float64, int32 or int64, in the units of the description; None where a grid is built in; inputs: of
        each query (where rows turn by them: of q's tokens and of k's alike), [B,H,N,size], by name, in the
        order of `kernel.inputs`, or the one that there is. Returns q and k encoded, or q alone.
        """
        given = [*self._operands(), *self._in_order(inputs)]
        if k is None:
            return call("encode_one", (q,), positions, given, self.kernel_name)
        return call("encode", (q, k), positions, given, self.kernel_name)


class Attention(_Module):
    """Attention with a pairwise encoding or a bias in it, whose scores are never stored.

    spec, init, options: as of Encoding; what is learned (slopes, a table of displacements) has gradients, and so have
    inputs and positions where the kernel has them. causal: query i sees keys j <= i + M - N. scale: of q k^T; 0:
    the kernel's own (`kernel.scale`: 1/sqrt(head_dim) unless its description states another).
    """

    def __init__(self, spec: Any, *, causal: bool = False, scale: float = 0.0, init: Mapping[str, Any] | None = None,
                 **options: Any) -> None:  # fmt: skip
        super().__init__(spec, init, options)
        self.causal, self.scale = causal, float(scale)
        if "attention" not in self.kernel.entries:
            raise ArgumentError(f"spec: {self.kernel.name} has no attention; expected pegen_kernels.torch.Encoding")

    def _learned(self) -> int:
        return max(gaining(self.kernel_name), 0)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, positions: Tensor | None = None,
                k_positions: Tensor | None = None, inputs: Sequence[Tensor] | Mapping[str, Tensor] | Tensor = (),
                with_lse: bool = False, cu_seqlens: Tensor | None = None,
                k_cu_seqlens: Tensor | None = None) -> Any:  # fmt: skip
        """q: [B,H,N,D], k: [B,Hkv,M,D], v: [B,Hkv,M,Dv]; positions [N,P] or [B,N,P]; k_positions: [M,P] or [B,M,P], by
        default the same; inputs: of each query, as of Encoding. Returns [B,H,N,Dv]; with_lse: and the logarithms
        of the sums of exponentials of each query's scores, [B,H,N] in float32, by which outputs over different keys can
        be merged.

        cu_seqlens: [B+1] int32, sequences of different lengths whose rows follow each other: q is [total,H,D], k and v
        [keys,Hkv,D] by k_cu_seqlens (by default the same), positions [total,P], lse [total,H]. On processors."""
        return attend(
            "attention_with_lse" if with_lse else "attention", q, k, v, positions, k_positions, self._operands(),
            list(self._in_order(inputs)), self.causal, self.scale, self.kernel_name, cu_seqlens, k_cu_seqlens,
        )  # fmt: skip
