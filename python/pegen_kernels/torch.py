"""PyTorch: encodings as modules, and as operators that compile, export, differentiate and batch.

    encoding = pegen_kernels.torch.Encoding("care", head_dim=64, heads=12)
    q, k = encoding(q, k, positions)

The operators (`torch.ops.pegen_kernels.encode`, `encode_one`, `encode_backward`, `attention`) name their kernel by a
text: the description, its options and the digest of both, so that an exported program that is loaded elsewhere
compiles the same kernel there, or says that it is another one. Gradients are those of q, k, operands and positions,
of encodings whose kernels have them: what would need others (attention, dense blocks) is refused when it is called.
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


def _portable(options: dict[str, Any]) -> dict[str, Any]:
    """Without what is for each process to decide: no program that was loaded from a file runs a description with this
    process's rights, or chooses a folder of kernels."""
    return {key: value for key, value in options.items() if key not in ("trust_spec", "cache")}


def register(spec: Any, **options: Any) -> str:
    """Compiles a description (arguments of `pegen_kernels.compile`) for the operators; returns its name there."""
    found = _kernels.compile(spec, **options)
    recipe = {"spec": str(spec), "options": _portable(options), "digest": found.digest}
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
    made = _kernels.compile(spec, **_portable(options))
    if made.digest != digest:
        raise CompileError(
            f"{made.name}: the description here is not the one of the program that names it: its digest is"
            f" {made.digest}, expected {digest}"
        )
    return _registered.setdefault(name, made)


# ---- operators ----

_library = torch.library.Library("pegen_kernels", "DEF")
_FROM_INPUT = 2  # PEGEN_GRAD_FROM_INPUT
_FORWARD = ("encode", "encode_one")
_ROWS = "Tensor? positions, Tensor[] operands, str kernel"
for _schema in (
    f"encode(Tensor q, Tensor k, {_ROWS}) -> (Tensor, Tensor)",
    f"encode_one(Tensor x, {_ROWS}) -> Tensor",
    f"encode_backward(Tensor grad_q, Tensor grad_k, {_ROWS}) -> (Tensor, Tensor)",
    f"encode_one_backward(Tensor grad, {_ROWS}) -> Tensor",
    "encode_all_backward(Tensor[] gradients, Tensor[] kept, Tensor? positions, Tensor[] operands, bool from_input,"
    " bool with_operands, bool with_positions, str kernel) -> Tensor[]",
    "attention(Tensor q, Tensor k, Tensor v, Tensor? positions, Tensor? k_positions, Tensor[] operands,"
    " Tensor[] inputs, bool causal, float scale, str kernel) -> Tensor",
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


def _gradient_of(x: Tensor) -> Tensor:
    """What a gradient of an operand or of positions is written to."""
    return torch.empty(x.shape, dtype=torch.float64 if x.dtype == torch.float64 else torch.float32, device=x.device)


def _results_of_all(gradients: Sequence[Tensor], positions: Tensor | None, operands: Sequence[Tensor],
                    with_operands: bool, with_positions: bool, kernel: str) -> dict[str, Tensor]:  # fmt: skip
    width = kernel_of(kernel).head_dim
    made = {f"grad.{field}": _result(_adjacent(x), width) for field, x in zip("qk", gradients)}
    if with_operands:
        made |= {f"grad.operand.{i}": _gradient_of(x) for i, x in enumerate(operands)}
    if with_positions and positions is not None:
        made["grad.positions"] = _gradient_of(positions)
    return made


def _encode_all_backward(gradients: Sequence[Tensor], kept: Sequence[Tensor], positions: Tensor | None,
                         operands: Sequence[Tensor], from_input: bool, with_operands: bool, with_positions: bool,
                         kernel: str) -> list[Tensor]:  # fmt: skip
    """Gradients of rows, then of all operands, then of positions, in one pass over the rows. kept: what encode wrote,
    or what it read."""
    found = kernel_of(kernel)
    made = _results_of_all(gradients, positions, operands, with_operands, with_positions, kernel)
    given = {f"grad.{field}_out": _adjacent(x) for field, x in zip("qk", gradients)}
    given |= {field: _adjacent(x) for field, x in zip("qk", kept)}
    views = {field: raw_view(field, x) for field, x in {**given, **made}.items()}
    if positions is not None:
        views["positions"] = raw_view("positions", positions)
    parameters = [raw_view(f"operand '{info.name}'", x) for info, x in zip(found.operands, operands)]
    found._call("encode_backward", views, parameters, [], {"flags": _FROM_INPUT if from_input else 0},
                workspace="encode_backward_workspace", finish="encode_backward_finish")  # fmt: skip
    return list(made.values())


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


def _fake_encode_all_backward(gradients: Any, kept: Any, positions: Any, operands: Any, from_input: bool,
                              with_operands: bool, with_positions: bool, kernel: str) -> list[Tensor]:  # fmt: skip
    return list(_results_of_all(gradients, positions, operands, with_operands, with_positions, kernel).values())


def _fake_attention(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Tensor:
    return _result(_adjacent(q), v.shape[-1])


for _name, _function, _fake in (
    ("encode", _encode, _fake_encode),
    ("encode_one", _encode_one, _fake_encode_one),
    ("encode_backward", _encode_backward, _fake_encode_backward),
    ("encode_one_backward", _encode_one_backward, _fake_encode_one_backward),
    ("encode_all_backward", _encode_all_backward, _fake_encode_all_backward),
    ("attention", _attention, _fake_attention),
):
    for _device in ("CPU", "CUDA"):
        _library.impl(_name, _function, _device)
    torch.library.register_fake(f"pegen_kernels::{_name}", _fake, lib=_library)

# ---- gradients ----


def _keep(ctx: Any, rows: Sequence[Tensor], output: Any, positions: Tensor | None, operands: Sequence[Tensor],
          kernel: str, is_forward: bool) -> None:  # fmt: skip
    found = kernel_of(kernel)
    ctx.with_positions = positions is not None and positions.requires_grad
    ctx.with_operands = any(x.requires_grad for x in operands)
    wanted = [info.name for info, x in zip(found.operands, operands) if x.requires_grad]
    what = f"operand '{wanted[0]}' requires a gradient" if wanted else "positions require a gradient"
    kept: Sequence[Tensor] = ()
    if "encode_backward" not in found.entries:
        raise ArgumentError(f"{what if wanted else 'q and k require gradients'}, which {found.name} does not have yet; "
                            "expected torch.no_grad()")  # fmt: skip
    if ctx.with_positions or ctx.with_operands:
        if "encode_backward_finish" not in found.entries:
            raise ArgumentError(f"{what}, which {found.name} does not have yet; expected it detached")
        if not is_forward:
            raise ArgumentError(f"{what} of a gradient: {found.name} has second derivatives of q and k alone")
        # What encode wrote is kept by the attention that follows in any case; rounded to 16 bits it is too coarse.
        ctx.from_input = found.out_dim != found.head_dim or rows[0].dtype != torch.float32
        kept = rows if ctx.from_input else output if isinstance(output, (tuple, list)) else (output,)
    ctx.has_positions = positions is not None
    ctx.save_for_backward(*kept, *([positions] if ctx.has_positions else []), *operands)
    ctx.kernel, ctx.n_kept, ctx.n_operands = kernel, len(kept), len(operands)


def _gradients(backward: str, ctx: Any, gradients: Sequence[Tensor]) -> tuple[Any, Any, list[Any]]:
    """Of rows, of positions, and of operands."""
    saved = list(ctx.saved_tensors)
    kept, rest = saved[: ctx.n_kept], saved[ctx.n_kept :]
    positions, operands = (rest[0], rest[1:]) if ctx.has_positions else (None, rest)
    none = [None] * ctx.n_operands
    if not kept:
        made = call(backward, gradients, positions, operands, ctx.kernel)
        return made if len(gradients) == 2 else (made,), None, none
    choices = (ctx.from_input, ctx.with_operands, ctx.with_positions, ctx.kernel)
    if _is_transformed():
        made = list(_AllBackward.apply(len(gradients), choices, positions, *gradients, *kept, *operands))
    else:
        made = torch.ops.pegen_kernels.encode_all_backward(gradients, kept, positions, operands, *choices)
    of_positions = made.pop().to(positions.dtype) if ctx.with_positions else None
    of_operands = made[len(gradients) :] if ctx.with_operands else none
    return tuple(made[: len(gradients)]), of_positions, [
        x if x is None else x.to(operand.dtype) for x, operand in zip(of_operands, operands)
    ]  # fmt: skip


def _register_gradient(forward: str, backward: str, n: int) -> None:
    """Encoding is linear in the rows, so each of a pair of operators is the other one's gradient."""

    def set_up(ctx: Any, inputs: Any, output: Any) -> None:
        _keep(ctx, inputs[:n], output, *inputs[n:], forward in _FORWARD)

    def back(ctx: Any, *gradients: Tensor) -> Any:
        rows, positions, operands = _gradients(backward, ctx, gradients)
        return (*rows, positions, operands, None)

    torch.library.register_autograd(f"pegen_kernels::{forward}", back, setup_context=set_up, lib=_library)


def _no_second(ctx: Any, inputs: Any, output: Any) -> None:
    raise ArgumentError(f"{kernel_of(inputs[-1]).name}: gradients of gradients are there for q and k alone")


def _no_back(ctx: Any, *gradients: Tensor) -> Any:
    raise AssertionError("refused when it was called")


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


def _each(size: int, positions: Any, tensors: Sequence[Any], dims: Sequence[Any], n: int, choices: Any) -> list[Tensor]:
    """encode_all_backward under vmap: gradients of what all samples share differ from sample to sample. tensors: n
    gradients, as many kept ones, operands; dims: those of positions, then of the tensors."""
    made = []
    for i in range(size):
        place, *xs = (x if d is None else x.select(d, i) for x, d in zip((positions, *tensors), dims))
        made.append(torch.ops.pegen_kernels.encode_all_backward(xs[:n], xs[n : 2 * n], place, xs[2 * n :], *choices))
    return [torch.stack(xs) for xs in zip(*made)]


def _each_operator(info: Any, dims: Any, *given: Any) -> Any:
    gradients, kept, positions, operands, *choices = given
    flat = [*gradients, *kept, *operands]
    out = _each(info.batch_size, positions, flat, [dims[2], *dims[0], *dims[1], *dims[3]], len(gradients), choices)
    return out, [0] * len(out)


torch.library.register_vmap("pegen_kernels::encode_all_backward", _each_operator, lib=_library)


class _AllBackward(torch.autograd.Function):
    """encode_all_backward inside torch.func's transforms, which cannot look into operators."""

    @staticmethod
    def forward(n: int, choices: Any, positions: Any, *tensors: Tensor) -> Any:
        operator = torch.ops.pegen_kernels.encode_all_backward
        return tuple(operator(tensors[:n], tensors[n : 2 * n], positions, tensors[2 * n :], *choices))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.kernel = inputs[1][-1]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        raise ArgumentError(f"{kernel_of(ctx.kernel).name}: gradients of gradients are there for q and k alone")

    @staticmethod
    def vmap(info: Any, dims: Any, n: int, choices: Any, positions: Any, *tensors: Tensor) -> Any:
        out = tuple(_each(info.batch_size, positions, tensors, dims[2:], n, choices))
        return out, (0,) * len(out)


def _is_transformed() -> bool:
    return not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()


def _function(forward: str, backward: str, n: int) -> Any:
    """The operator as torch.func.grad takes it, which cannot look into operators: rows, positions, kernel, operands."""

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(*given: Any) -> Any:
            return getattr(torch.ops.pegen_kernels, forward)(*given[: n + 1], list(given[n + 2 :]), given[n + 1])

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            _keep(ctx, inputs[:n], output, inputs[n], inputs[n + 2 :], inputs[n + 1], forward in _FORWARD)

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Any:
            rows, positions, operands = _gradients(backward, ctx, gradients)
            return (*rows, positions, None, *operands)

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
    _register_gradient(_forward, _back, _n)
    _register_batch(_forward, _n)
    _functions[_forward] = _function(_forward, _back, _n)
for _name, _refuse in (("attention", _no_gradient), ("encode_all_backward", _no_second)):
    torch.library.register_autograd(f"pegen_kernels::{_name}", _no_back, setup_context=_refuse, lib=_library)


def call(name: str, rows: Sequence[Tensor], positions: Tensor | None, operands: Sequence[Tensor], kernel: str) -> Any:
    """The operator, or what stands for it inside torch.func's transforms."""
    if _is_transformed():
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
            learns = "encode_backward_finish" in found.entries
            value = nn.Parameter(value_of(info, found, init.get(info.name)), requires_grad=learns)
            self.register_parameter(info.name, value)

    @property
    def kernel(self) -> Kernel:
        """The kernel, with what it says of itself."""
        return kernel_of(self.kernel_name)

    def _operands(self) -> list[Tensor]:
        return [getattr(self, name) for name in self._names]

    def extra_repr(self) -> str:
        return f"{self.kernel.name}: {', '.join(f'{k}={v}' for k, v in self.kernel.options.items())}"


class Encoding(_Module):
    """An encoding of q and k by their positions.

    spec, options: as of `pegen_kernels.compile`. init: first values of operands by name, tensors or functions from a
    shape to a tensor; what is not named begins as the description says, where it says so. Operands are parameters by
    their names.
    """

    def __init__(self, spec: Any, *, init: Mapping[str, Any] | None = None, **options: Any) -> None:
        super().__init__(spec, init, options)
        if "encode" not in self.kernel.entries:
            raise ArgumentError(
                f"spec: {self.kernel.name} does not encode q and k; expected pegen_kernels.torch.Attention"
            )

    def forward(self, q: Tensor, k: Tensor | None = None, positions: Tensor | None = None) -> Any:
        """q: [B,H,N,D], k: [B,Hkv,N,D] (or None), of float32, bfloat16 or float16; positions: [N,P] or [B,N,P] of
        float32, float64, int32 or int64, in the units of the description; None where a grid is built in. Returns q and
        k encoded, or q alone."""
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
