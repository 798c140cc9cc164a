"""PyTorch: encodings as modules, and as operators that compile, export, differentiate and batch.

    encoding = pegen_kernels.torch.Encoding("care", head_dim=64, heads=12)
    q, k = encoding(q, k, positions)

The operators (`torch.ops.pegen_kernels.encode`, `encode_one`, `encode_backward`, `attention`) name their kernel by a text: the
description, its options and the digest of both, so that an exported program that is loaded elsewhere compiles the same
kernel there, or says that it is another one. Gradients are those of q and k (not yet of operands and positions, and not
of attention): what would need others is refused when it is called, not when it is too late.
"""
from __future__ import annotations

import json
from typing import Any, Mapping, Sequence

import torch
from torch import Tensor, nn

from . import kernel as _kernels
from .arrays import raw_view
from .errors import ArgumentError, CompileError
from .initial import value_of
from .kernel import Kernel

__all__ = ["Attention", "Encoding", "kernel_of", "register"]

# ---- kernels by name ----

_registered: dict[str, Kernel] = {}


def register(spec: Any, **options: Any) -> str:
    """Compiles a description (arguments of `pegen_kernels.compile`) for the operators; returns its name there."""
    found = _kernels.compile(spec, **options)
    recipe = {"spec": str(spec), "options": options, "digest": found.digest}
    name = json.dumps(recipe, sort_keys=True, default=str)
    return name if _registered.setdefault(name, found) else name


def kernel_of(name: str) -> Kernel:
    """The kernel that `register` called so, in this process or another one."""
    found = _registered.get(name)
    if found is not None:
        return found
    try:
        recipe = json.loads(name)
        spec, options, digest = recipe["spec"], recipe["options"], recipe["digest"]
    except (ValueError, KeyError, TypeError) as e:
        raise ArgumentError(f"kernel: '{name[:80]}' is not what pegen_kernels.torch.register returned") from e
    made = _kernels.compile(spec, **options)
    if made.digest != digest:
        raise CompileError(
            f"{made.name}: the description here is not the one of the program that names it: its digest is {made.digest}"
            f", expected {digest}"
        )
    return _registered.setdefault(name, made)


# ---- operators ----

_library = torch.library.Library("pegen_kernels", "DEF")
_ROWS = "Tensor? positions, Tensor[] operands, str kernel"
for _schema in (
    f"encode(Tensor q, Tensor k, {_ROWS}) -> (Tensor, Tensor)",
    f"encode_one(Tensor x, {_ROWS}) -> Tensor",
    f"encode_backward(Tensor grad_q, Tensor grad_k, {_ROWS}) -> (Tensor, Tensor)",
    f"encode_one_backward(Tensor grad, {_ROWS}) -> Tensor",
    "attention(Tensor q, Tensor k, Tensor v, Tensor? positions, Tensor? k_positions, Tensor[] operands, Tensor[] inputs,"
    " bool causal, float scale, str kernel) -> Tensor",
):
    _library.define(_schema, tags=(torch.Tag.pt2_compliant_tag,))


def _adjacent(x: Tensor) -> Tensor:
    """x with channels side by side."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _result(x: Tensor, width: int) -> Tensor:
    """What an operator writes for the rows x: in the same order of memory."""
    return torch.empty_like(x) if x.shape[-1] == width else x.new_empty((*x.shape[:-1], width))


def _stream(x: Tensor) -> int:
    return torch.cuda.current_stream(x.device).cuda_stream if x.is_cuda else 0


def _run(entry: str, name: str, rows: dict[str, Tensor], results: dict[str, Tensor], positions: Tensor | None,
         operands: Sequence[Tensor], width: int, workspace: str = "workspace") -> None:  # fmt: skip
    found = kernel_of(name)
    views = {field: raw_view(field, x) for field, x in {**rows, **results}.items()}
    for field, x in rows.items():
        if x.ndim != 4:
            raise ArgumentError(f"{field} has {x.ndim} dimensions; expected [batches, heads, tokens, channels]")
        if x.shape[-1] != width:
            raise ArgumentError(f"{field} has {x.shape[-1]} channels; expected {width}")
    if positions is not None:
        views["positions"] = raw_view("positions", positions)
    if len(operands) != len(found.operands):
        raise ArgumentError(f"operands: {len(operands)} given; {found.name} takes {len(found.operands)}")
    parameters = [raw_view(f"operand '{info.name}'", x) for info, x in zip(found.operands, operands)]
    found._call(entry, views, parameters, [], {}, stream=_stream(next(iter(rows.values()))), workspace=workspace)


def _encode(q: Tensor, k: Tensor, positions: Tensor | None, operands: Sequence[Tensor], kernel: str) -> Any:
    found, rows = kernel_of(kernel), {"q": _adjacent(q), "k": _adjacent(k)}
    out = {f"{field}_out": _result(x, found.out_dim) for field, x in rows.items()}
    _run("encode", kernel, rows, out, positions, operands, found.head_dim)
    return tuple(out.values())


def _encode_one(x: Tensor, positions: Tensor | None, operands: Sequence[Tensor], kernel: str) -> Tensor:
    found, x = kernel_of(kernel), _adjacent(x)
    out = _result(x, found.out_dim)
    _run("encode", kernel, {"q": x}, {"q_out": out}, positions, operands, found.head_dim)
    return out


def _backward(gradients: dict[str, Tensor], positions: Tensor | None, operands: Sequence[Tensor], kernel: str) -> Any:
    found = kernel_of(kernel)
    rows = {f"grad.{field}_out": _adjacent(x) for field, x in gradients.items()}
    out = {field[:-4]: _result(x, found.head_dim) for field, x in rows.items()}
    _run("encode_backward", kernel, rows, out, positions, operands, found.out_dim, "encode_backward_workspace")
    return tuple(out.values())


def _encode_backward(grad_q: Tensor, grad_k: Tensor, positions: Tensor | None, operands: Sequence[Tensor],
                     kernel: str) -> Any:  # fmt: skip
    return _backward({"q": grad_q, "k": grad_k}, positions, operands, kernel)


def _encode_one_backward(grad: Tensor, positions: Tensor | None, operands: Sequence[Tensor], kernel: str) -> Tensor:
    return _backward({"q": grad}, positions, operands, kernel)[0]


def _attention(q: Tensor, k: Tensor, v: Tensor, positions: Tensor | None, k_positions: Tensor | None,
               operands: Sequence[Tensor], inputs: Sequence[Tensor], causal: bool, scale: float,
               kernel: str) -> Tensor:  # fmt: skip
    found = kernel_of(kernel)
    rows = {"q": _adjacent(q), "k": _adjacent(k), "v": _adjacent(v)}
    out = _result(rows["q"], v.shape[-1])
    views = {field: raw_view(field, x) for field, x in {**rows, "out": out}.items()}
    views |= {name: raw_view(name, x) for name, x in (("positions", positions), ("k_positions", k_positions))
              if x is not None}  # fmt: skip
    if len(operands) != len(found.operands) or len(inputs) != len(found.inputs):
        raise ArgumentError(f"{found.name} takes {len(found.operands)} operands and {len(found.inputs)} inputs")
    found._call("attention", views, [raw_view("operand", x) for x in operands],
                [raw_view("input", x) for x in inputs], {"causal": int(causal), "scale": scale},
                stream=_stream(q))  # fmt: skip
    return out


def _fake_encode(q: Tensor, k: Tensor, positions: Any, operands: Any, kernel: str) -> Any:
    width = kernel_of(kernel).out_dim
    return _result(_adjacent(q), width), _result(_adjacent(k), width)


def _fake_encode_one(x: Tensor, positions: Any, operands: Any, kernel: str) -> Tensor:
    return _result(_adjacent(x), kernel_of(kernel).out_dim)


def _fake_encode_backward(grad_q: Tensor, grad_k: Tensor, positions: Any, operands: Any, kernel: str) -> Any:
    width = kernel_of(kernel).head_dim
    return _result(_adjacent(grad_q), width), _result(_adjacent(grad_k), width)


def _fake_encode_one_backward(grad: Tensor, positions: Any, operands: Any, kernel: str) -> Tensor:
    return _result(_adjacent(grad), kernel_of(kernel).head_dim)


def _fake_attention(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Tensor:
    return _result(_adjacent(q), v.shape[-1])


for _name, _function, _fake in (
    ("encode", _encode, _fake_encode),
    ("encode_one", _encode_one, _fake_encode_one),
    ("encode_backward", _encode_backward, _fake_encode_backward),
    ("encode_one_backward", _encode_one_backward, _fake_encode_one_backward),
    ("attention", _attention, _fake_attention),
):
    for _device in ("CPU", "CUDA"):
        _library.impl(_name, _function, _device)
    torch.library.register_fake(f"pegen_kernels::{_name}", _fake, lib=_library)

# ---- gradients ----


def _keep(ctx: Any, positions: Tensor | None, operands: Sequence[Tensor], kernel: str) -> None:
    found = kernel_of(kernel)
    if positions is not None and positions.requires_grad:
        raise ArgumentError(
            f"positions require a gradient, which {found.name} does not have; expected positions.detach()"
        )
    for info, x in zip(found.operands, operands):
        if x.requires_grad:
            raise ArgumentError(
                f"operand '{info.name}' requires a gradient, which {found.name} does not have yet; expected "
                f"requires_grad_(False)"
            )
    if "encode_backward" not in found.entries:
        raise ArgumentError(
            f"q and k require gradients, which {found.name} does not have yet; expected torch.no_grad()"
        )
    ctx.has_positions = positions is not None
    ctx.save_for_backward(*([positions] if ctx.has_positions else []), *operands)
    ctx.kernel, ctx.n_operands = kernel, len(operands)


def _kept(ctx: Any) -> tuple[Tensor | None, list[Tensor], str]:
    saved = list(ctx.saved_tensors)
    return saved.pop(0) if ctx.has_positions else None, saved, ctx.kernel


def _gradients(backward: str, ctx: Any, gradients: Sequence[Tensor]) -> tuple[Tensor, ...]:
    made = call(backward, gradients, *_kept(ctx))
    return made if len(gradients) == 2 else (made,)


def _register_gradient(forward: str, backward: str) -> None:
    """Encoding is linear in the rows, so each of a pair of operators is the other one's gradient."""

    def set_up(ctx: Any, inputs: Any, output: Any) -> None:
        _keep(ctx, *inputs[-3:])

    def back(ctx: Any, *gradients: Tensor) -> Any:
        return (*_gradients(backward, ctx, gradients), None, [None] * ctx.n_operands, None)

    torch.library.register_autograd(f"pegen_kernels::{forward}", back, setup_context=set_up, lib=_library)


def _no_gradient(ctx: Any, inputs: Any, output: Any) -> None:
    raise ArgumentError(f"attention of {kernel_of(inputs[-1]).name} has no gradients yet; expected torch.no_grad()")


# ---- batches of vmap ----


def _folded(size: int, x: Tensor, dim: int | None) -> Tensor:
    """[V, B, ...] as [V B, ...]; what has no V is repeated."""
    x = x.unsqueeze(0).expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
    return x.flatten(0, 1)


def _folded_positions(size: int, batches: int, x: Tensor | None, dim: int | None) -> Tensor | None:
    if x is None or (dim is None and x.ndim == 2):
        return x
    x = x.unsqueeze(0).expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
    if x.ndim == 3:  # [V, N, P]
        x = x.unsqueeze(1).expand(size, batches, *x.shape[1:])
    return x.flatten(0, 1)


def _batch(name: str, size: int, rows: Sequence[Tensor], row_dims: Sequence[Any], positions: Any, positions_dim: Any,
           operands: Sequence[Tensor], operand_dims: Sequence[Any], kernel: str) -> Any:  # fmt: skip
    """The operator on all of vmap's batches at once, and the dimension that they have in what it returns."""
    if any(dim is not None for dim in operand_dims):
        raise ArgumentError("operands are of different values along vmap; expected the same for all of it")
    folded = [_folded(size, x, dim) for x, dim in zip(rows, row_dims)]
    places = _folded_positions(size, folded[0].shape[0] // size, positions, positions_dim)
    made = call(name, folded, places, operands, kernel)
    if len(rows) == 1:
        return made.unflatten(0, (size, -1)), 0
    return tuple(x.unflatten(0, (size, -1)) for x in made), (0,) * len(rows)


def _register_batch(name: str, n: int) -> None:
    def batch(info: Any, dims: Any, *given: Any) -> Any:
        *rows, positions, operands, kernel = given
        return _batch(name, info.batch_size, rows, dims[:n], positions, dims[n], operands, dims[n + 1], kernel)

    torch.library.register_vmap(f"pegen_kernels::{name}", batch, lib=_library)


# ---- torch.func ----


def _function(forward: str, backward: str, n: int) -> Any:
    """The operator as torch.func.grad takes it, which cannot look into operators: rows, positions, kernel, operands."""

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(*given: Any) -> Any:
            return getattr(torch.ops.pegen_kernels, forward)(*given[: n + 1], list(given[n + 2 :]), given[n + 1])

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            _keep(ctx, inputs[n], inputs[n + 2 :], inputs[n + 1])

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Any:
            return (*_gradients(backward, ctx, gradients), None, None, *[None] * ctx.n_operands)

        @staticmethod
        def vmap(info: Any, dims: Any, *given: Any) -> Any:
            rows, positions, kernel, operands = given[:n], given[n], given[n + 1], given[n + 2 :]
            return _batch(forward, info.batch_size, rows, dims[:n], positions, dims[n], operands, dims[n + 2 :], kernel)

    return Function


_functions: dict[str, Any] = {}
for _forward, _back, _n in (
    ("encode", "encode_backward", 2), ("encode_backward", "encode", 2),
    ("encode_one", "encode_one_backward", 1), ("encode_one_backward", "encode_one", 1),
):  # fmt: skip
    _register_gradient(_forward, _back)
    _register_batch(_forward, _n)
    _functions[_forward] = _function(_forward, _back, _n)
torch.library.register_autograd("pegen_kernels::attention", _gradients, setup_context=_no_gradient, lib=_library)


def call(name: str, rows: Sequence[Tensor], positions: Tensor | None, operands: Sequence[Tensor], kernel: str) -> Any:
    """The operator, or what stands for it inside torch.func's transforms."""
    if not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():
        return _functions[name].apply(*rows, positions, kernel, *operands)
    return getattr(torch.ops.pegen_kernels, name)(*rows, positions, operands, kernel)


# ---- modules ----


class _Module(nn.Module):
    def __init__(self, spec: Any, init: Mapping[str, Any] | None, options: dict[str, Any]) -> None:
        super().__init__()
        self.kernel_name = register(spec, **options)
        found, init = self.kernel, dict(init or {})
        self._names = [info.name for info in found.operands]
        if unknown := set(init) - set(self._names):
            raise ArgumentError(
                f"init: {found.name} has no operand '{min(unknown)}'; it has: {', '.join(self._names) or 'none'}"
            )
        for info in found.operands:
            # Parameters without a gradient, until kernels have them.
            value = nn.Parameter(value_of(info, found, init.get(info.name)), requires_grad=False)
            self.register_parameter(info.name, value)

    @property
    def kernel(self) -> Kernel:
        """The kernel, with what it says of itself."""
        return kernel_of(self.kernel_name)

    def _operands(self) -> list[Tensor]:
        return [self.get_parameter(name) for name in self._names]

    def extra_repr(self) -> str:
        return f"{self.kernel.name}: {', '.join(f'{k}={v}' for k, v in self.kernel.options.items())}"


class Encoding(_Module):
    """An encoding of q and k by their positions.

    spec, options: as of `pegen_kernels.compile`. init: first values of operands by name, tensors or functions from a shape to
    a tensor; what is not named begins as the description says, where it says so. Operands are parameters by their names.
    """

    def __init__(self, spec: Any, *, init: Mapping[str, Any] | None = None, **options: Any) -> None:
        super().__init__(spec, init, options)
        if "encode" not in self.kernel.entries:
            raise ArgumentError(
                f"spec: {self.kernel.name} does not encode q and k; expected pegen_kernels.torch.Attention"
            )

    def forward(self, q: Tensor, k: Tensor | None = None, positions: Tensor | None = None) -> Any:
        """q: [B,H,N,D], k: [B,Hkv,N,D] (or None), of float32, bfloat16 or float16; positions: [N,P] or [B,N,P] of float32,
        float64, int32 or int64, in the units of the description; None where a grid is built in. Returns q and k encoded,
        or q alone."""
        if k is None:
            return call("encode_one", (q,), positions, self._operands(), self.kernel_name)
        return call("encode", (q, k), positions, self._operands(), self.kernel_name)


class Attention(_Module):
    """Attention with a pairwise encoding or a bias in it; for inference.

    spec, init, options: as of Encoding. causal: query i sees keys j <= i + M - N. scale: of q k^T; 0: 1/sqrt(head_dim).
    """

    def __init__(self, spec: Any, *, causal: bool = False, scale: float = 0.0, init: Mapping[str, Any] | None = None,
                 **options: Any) -> None:  # fmt: skip
        super().__init__(spec, init, options)
        self.causal, self.scale = causal, scale
        if "attention" not in self.kernel.entries:
            raise ArgumentError(f"spec: {self.kernel.name} has no attention; expected pegen_kernels.torch.Encoding")

    def forward(self, q: Tensor, k: Tensor, v: Tensor, positions: Tensor | None = None,
                k_positions: Tensor | None = None, inputs: Sequence[Tensor] = ()) -> Tensor:  # fmt: skip
        """q: [B,H,N,D], k: [B,Hkv,M,D], v: [B,Hkv,M,Dv]; positions [N,P] or [B,N,P]; k_positions: [M,P] or [B,M,P], by
        default the same; inputs: of each query, in the order of `kernel.inputs`. Returns [B,H,N,Dv]."""
        return torch.ops.pegen_kernels.attention(
            q, k, v, positions, k_positions, self._operands(), list(inputs), self.causal, self.scale, self.kernel_name
        )
