"""Kernels: compiled, called, explained, checked, timed, saved."""
from __future__ import annotations

import ctypes
import json
import os
import pathlib
import secrets
import struct
import weakref
from typing import Any, Mapping, Sequence

from . import _native
from ._native import library
from .arrays import CPU, CUDA, View, contiguous, empty_like, give_back, has_room_beside, is_contiguous, view, zeros_like
from .calls import Call, cuda_workspace, entry_of, run
from .config import described
from .errors import ArgumentError, CheckFailed, CompileError
from .records import Gained, GradientTable, Input, Operand, Table
from .refusals import explain, refusal
from .request import Request, request_of, target_of, word_of

_MOST_CALLS = 256  # kept, by shapes
_ACCUMULATE, _FROM_INPUT = 1, 2  # PEGEN_GRAD_
_DTYPES = {0: "float32", 1: "bfloat16", 2: "float16"}


def _first(token: int) -> dict[str, int]:
    return {"first_token": int(token)} if token else {}


def compile(
    spec: str | os.PathLike[str] | None = None,
    *,
    config: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    layer_type: str | None = None,
    text_length: int | None = None,
    targets: str | Sequence[str] | None = None,
    dtypes: str | Sequence[str] | None = None,
    name: str | None = None,
    label: str | None = None,
    defines: Mapping[str, Any] | None = None,
    cache: str | os.PathLike[str] | None = None,
    trust_spec: bool = False,
    max_seconds: float = 0,
    max_memory: int = 0,
    max_cache: int = 0,
    **options: Any,
) -> Kernel:
    """Compiles a description, or finds what was compiled of it before.

    spec: the name of a stock description (`stock()`), a path, or Lua text (anything with a line's end in it).
    config: in place of a description, a model's `config.json` (or its fields) of transformers, of which the rotary ones
    are read; layer_type: of which layers ("full_attention"), where these turn differently; text_length: tokens of
    the longest text, which some rules depend on (longrope, dynamic).
    options: values of the description's own options: head_dim=128, heads=12, grid=(14, 14). Those whose names are
    parameters of this function go into `defines`.
    targets: processors and GPUs, ["x86-64-v4", "sm_90"]; default: the processors of this machine's kind and, when the
    kernel is first called there, the CUDA device that holds the arrays.
    dtypes: of q and k, ["float32", "bfloat16:f8e4m3"]; default: float32, bfloat16 and float16.
    name: what the kernel is called; label: what messages call a text. cache: a folder (~/.cache/pegen); "": none.
    trust_spec: run the description in the compiler's own process, where the system has no seccomp.
    max_seconds, max_memory (MiB): limits of a compilation; 0: 300 s, 4096 MiB.
    max_cache (MiB): of the cache's folder, where what was used least recently goes first; 0: 1024; -1: any.

    Raises CompileError with the file and line of a mistake.
    """
    made: dict[str, Any] = {}
    if (spec is None) == (config is None):
        raise CompileError(f"{'neither' if spec is None else 'both'} of a description and 'config'; one was expected")
    for word, value in (("layer_type", layer_type), ("text_length", text_length)):
        if config is None and value is not None:
            raise CompileError(f"{word} is of a 'config', and none was given")
    if config is not None:
        spec, made = described(config, layer_type, text_length)
    request = request_of(
        spec, {**made, **(defines or {}), **options}, targets, dtypes, label=label, name=name,
        cache=None if cache is None else os.fspath(cache), trust_spec=trust_spec, max_seconds=max_seconds,
        max_memory=max_memory, max_cache=max_cache,
    )  # fmt: skip
    return _compiled(request)


def _compiled(request: Request) -> Kernel:
    compiled = library.pegen_compile(request.native())
    if not compiled:
        raise MemoryError("pegen_compile")
    if compiled.contents.error:
        message = compiled.contents.error.decode(errors="replace")
        library.pegen_compiled_free(compiled)
        raise CompileError(message)
    content = compiled.contents
    data = ctypes.string_at(content.object, content.object_size)
    kernel = Kernel(content.kernel.contents, data, content.header.decode(), request, bool(content.from_cache))
    weakref.finalize(kernel, library.pegen_compiled_free, compiled).atexit = False
    return kernel


def _is_whole(data: bytes) -> bool:
    """Whether an ELF file has all that its program headers name: the loader maps what is missing and dies of it."""
    try:
        place, size, count = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)
        headers = [struct.unpack_from("<6Q", data, place + i * size + 8) for i in range(count)]
    except struct.error:
        return False
    return data[:6] == b"\x7fELF\2\1" and all(offset + in_file <= len(data) for offset, _, _, in_file, _, _ in headers)


def load(path: str | os.PathLike[str]) -> Kernel:
    """A kernel that `save` wrote, or `pegen SPEC.lua -o NAME.so`. It is code: load none that you would not run. It can
    be called, but not explained, checked or timed, since its description is not with it."""
    path = os.path.abspath(path)
    if not os.path.isfile(path):
        raise CompileError(f"path: there is no file '{path}'")
    data = pathlib.Path(path).read_bytes()
    if not _is_whole(data):
        raise CompileError(f"path: '{path}' is no kernel: not a whole shared object")
    # The loader knows files by their names, and would give the old one where another was saved since. So what is
    # mapped is a copy, whose descriptor stays open, and its number taken, as long as that is mapped: for good.
    memory = os.memfd_create("pegen-kernel")
    with open(memory, "wb", closefd=False) as copy:
        copy.write(data)
    try:
        shared = ctypes.CDLL(f"/proc/self/fd/{memory}")
        info = _native.KernelInfo.in_dll(shared, "pegen_kernel_of_library")
    except (OSError, ValueError) as e:
        if isinstance(e, OSError):
            os.close(memory)
        raise CompileError(f"path: '{path}' is no kernel: {e}") from e
    if not library.pegen_kernel_supported(ctypes.addressof(info)):
        raise CompileError(f"path: '{path}' was made by a pegen of another version")
    return Kernel(info, data, "", None, True)


def in_order(kernel: str, what: str, infos: Sequence[Any], given: Any) -> list[Any]:
    """Operands or inputs of the kernel of that name in their order, from a mapping by name, a sequence, or the one
    array where there is one."""
    names = [info.name for info in infos]
    if given is None:
        given = {}
    if hasattr(given, "shape"):
        given = (given,)
    if not isinstance(given, Mapping):
        if not hasattr(given, "__len__"):
            raise ArgumentError(f"{what}s is a {type(given).__name__}; expected a mapping by name or a sequence")
        if len(given) > len(names):
            raise ArgumentError(f"{what}s: {len(given)} given; {kernel} has {len(names)}: {', '.join(names) or 'none'}")
        given = dict(zip(names, given))
    for name in given:
        if name not in names:
            raise ArgumentError(f"{what}s: {kernel} has no {what} '{name}'; it has: {', '.join(names) or 'none'}")
    for name in names:
        if name not in given:
            raise ArgumentError(f"{what}s: '{name}' is missing; {kernel} takes {', '.join(names)}")
    return [given[name] for name in names]


def _as_described(operand: Operand, seen: View) -> View:
    """Memory in the shape that the description has for it, where an array of another rank is that."""
    if len(seen.shape) == len(operand.shape) or not operand.is_shaped_as(seen.shape) or not is_contiguous(seen):
        return seen
    return seen._replace(key=(*seen.key[:4], operand.shape, contiguous(operand.shape)))


def _views(**given: Any) -> dict[str, View]:
    """Views of those tensors that are given, by their names."""
    return {name: view(name, x) for name, x in given.items() if x is not None}


class Kernel:
    """A compiled encoding. Safe from any thread.

    Arrays are NumPy's, PyTorch's, or anything with DLPack; they are used where they lie, with any strides (channels
    adjacent). Rows are [batches, heads, tokens, channels]; memory of [B,N,H,D] is the same array transposed. Without
    batches they are [tokens, heads, channels], all of a call alike. What is not named as an output is never written.
    """

    name: str
    doc: str
    digest: str  #: equal digests, equal mathematics
    options: dict[str, str]
    targets: list[str]  #: processors
    chip: str | None  #: the chip that its PTX is for, "sm_90"
    dtypes: list[str]
    head_dim: int
    out_dim: int  #: of encoded rows of its first number type: head_dim unless it appends columns; `width_of`
    axes: list[str]
    heads: int  #: heads that it is made for; 0: any
    scale: float  #: of q k^T in a call of `attention` that gives none; 0: there is no attention
    skip_tokens: int  #: tokens at the front that pass through
    needs_input: bool  #: channels are mapped, or multiplied by matrices: gradients take what `encode` was given
    has_origin: bool  #: appended columns count positions from the middle of a call's tokens, or from `origin`
    grid: tuple[int, ...] | None  #: sizes of the built-in grid: positions may be left out
    operands: list[Operand]
    inputs: list[Input]
    header: str  #: the C header
    from_cache: bool

    def __init__(self, info: Any, data: bytes, header: str, request: Request | None, from_cache: bool) -> None:
        text = lambda value: (value or b"").decode()  # noqa: E731
        self._info, self._data, self._request = info, data, request
        self.header, self.from_cache = header, from_cache
        self.name, self.doc, self.digest = text(info.name), text(info.doc), text(info.digest)
        self.options = dict(word.partition("=")[::2] for word in text(info.options).split(" ") if word)
        self.targets, self.chip = text(info.targets).split(), _native.chip_of(info)
        self.dtypes = [name for bit, name in _DTYPES.items() if info.dtypes >> bit & 1]
        self.head_dim, self.out_dim, self.heads = info.head_dim, info.out_dim, info.heads
        self.axes = [text(info.axes[i]) for i in range(info.n_axes)]
        self.skip_tokens = info.skip_tokens
        stated = _native.field(info, "scale")  # kernels of older versions do not say it
        self.scale = (info.head_dim**-0.5 if info.attention else 0.0) if stated is None else stated
        self.needs_input = bool(_native.field(info, "needs_input"))
        self.has_origin = bool(_native.field(info, "has_origin"))
        self.grid = tuple(info.grid[i] for i in range(info.n_axes)) if info.grid else None
        self.operands = [self._operand(info.operands[i]) for i in range(info.n_operands)]
        n_inputs = _native.field(info, "n_inputs") or 0
        given = (info.inputs[i] for i in range(n_inputs))
        of_keys = _native.field(info, "key_inputs") or 0
        self.inputs = [
            Input(text(x.name), text(x.doc), text(x.units), x.size, bool(of_keys >> i & 1)) for i, x in enumerate(given)
        ]
        fields = _native.KernelInfo._fields_
        self._entries = {name: entry_of(info, name) for name, kind in fields if kind is _native.Entry}
        self._sizes = {name: entry_of(info, name) for name, kind in fields if kind is _native.SizeEntry}
        self._calls: dict[Any, Call] = {}
        self._there: dict[str, Kernel] = {}
        self._explanation = b""

    def on_device(self, device: int) -> Kernel:
        """The kernel for a CUDA device: itself, where it has PTX, was compiled for targets that were named, or was
        loaded; else the same description compiled for the device's chip, when first asked for."""
        request = self._request
        if self.chip or request is None or request.targets is not None or not (target := target_of(device)):
            return self
        return self._again(target, targets=f"native,{target}")

    def with_tangents(self) -> Kernel:
        """The kernel with the entry of forward mode, `attention_tangent`: itself, or the same description compiled once
        more when first asked for."""
        if self._entries["attention_tangent"]:
            return self
        if self._request is None or not self._entries["attention"]:
            raise ArgumentError(
                f"{self.name} has no tangents; expected attention, by pegen --tangents where it is loaded"
            )
        return self._again("tangents", tangents=True)

    def _again(self, what: str, **changes: Any) -> Kernel:
        """Compiles the same description once more, with other options."""
        if what not in self._there:
            assert self._request is not None
            made = _compiled(self._request._replace(**changes))
            if made.digest != self.digest:
                raise CompileError(
                    f"{self.name}: its description has changed since it was compiled, without {what};"
                    " expected it as it was, or compile() anew"
                )
            self._there[what] = made
        return self._there[what]

    @staticmethod
    def _operand(info: Any) -> Operand:
        words = (info.name, info.doc, info.units, info.initializer)
        ranks = range(info.rank)
        return Operand(
            *((word or b"").decode() for word in words),
            tuple(info.shape[i] for i in ranks),
            tuple(info.dimension[i].decode() for i in ranks),
        )

    def __repr__(self) -> str:
        return f"<pegen kernel {self.name}: {self.doc} ({', '.join(self.targets)})>"

    # ---- calls ----

    def _parameters(self, given: Any) -> list[View]:
        """Operands in their order, from a mapping by name or a sequence."""
        arrays = in_order(self.name, "operand", self.operands, given)
        return [_as_described(info, view(f"operand '{info.name}'", x)) for info, x in zip(self.operands, arrays)]

    def _inputs(self, given: Any) -> list[View]:
        arrays = in_order(self.name, "input", self.inputs, given)
        return [view(f"input '{info.name}'", x) for info, x in zip(self.inputs, arrays)]

    def _entry(self, name: str) -> Any:
        entry = self._entries[name]
        if entry is None:
            raise ArgumentError(f"{name}: {self.name} has no such entry; it has: {', '.join(self.entries)}")
        return entry

    def _call(self, name: str, tensors: dict[str, View], operands: list[View], inputs: list[View],
              numbers: dict[str, Any], *, threads: int = 1, stream: int = 0, table: Table | None = None,
              gradients: GradientTable | None = None, flags: int = 0, workspace: str = "workspace",
              finish: str = "") -> None:  # fmt: skip
        entry = self._entry(name)
        if table is not None and not isinstance(table, Table):
            raise ArgumentError(f"table is a {type(table).__name__}; expected what prepare returned")
        if gradients is not None and not isinstance(gradients, GradientTable):
            raise ArgumentError(f"gradients is a {type(gradients).__name__}; expected what gradient_table returned")
        places = [(0, 0) if x is None else (x.address, x.size) for x in (table, gradients)]
        views = [*tensors.values(), *operands, *inputs]
        key = (name, tuple(tensors), tuple([seen.key for seen in views]), tuple(numbers.items()))
        device = views[0].key[0] if views else CPU
        if device == CUDA and (there := self.on_device(views[0].key[1])) is not self:
            return there._call(name, tensors, operands, inputs, numbers, threads=threads, stream=stream, table=table,
                               gradients=gradients, flags=flags, workspace=workspace, finish=finish)  # fmt: skip
        call = self._calls.pop(key, None)
        if call is None:
            size_of = cuda_workspace(self._info, name) if device == CUDA else self._sizes[workspace]
            call = Call(self._info, size_of, tensors, operands, inputs, numbers, (*places, flags))
        else:
            call.point(views)
            call.set_tables(*places, call.flags | flags)
        room = call.borrow(views)
        error = run(self._info, entry, name, call, device, threads, stream)
        if finish and not error:
            error = run(self._info, self._entries[finish], finish, call, device, threads, stream)
        del room
        if len(self._calls) >= _MOST_CALLS:
            self._calls.clear()
        if not {"lengths", "cu_seqlens"} & tensors.keys():  # whose numbers say how large the workspace is
            self._calls[key] = call
        if error:
            raise refusal(self._info, name, error, call.args)

    @property
    def entries(self) -> list[str]:
        """Names of what can be called: "encode", "attention", "prepare", "encode_backward"; and
        "encode_backward_finish", of encodings whose operands have gradients."""
        return [name for name, entry in self._entries.items() if entry]

    def width_of(self, dtype: Any) -> int:
        """Channels of an encoded row of a number type: an encoding that appends columns appends more to 16 bits."""
        return _native.width_of(self._info, str(dtype).removeprefix("torch."))

    @property
    def splits_keys(self) -> bool:
        """Whether attention of few queries may have its keys in chunks; kernels of older versions may not."""
        return bool(self._sizes["attention_workspace"])

    def _outputs(self, sources: dict[str, Any], out: Any, in_place: bool) -> dict[str, Any]:
        if in_place and out is not None:
            raise ArgumentError("out: given with in_place=True; expected one of them")
        if in_place:
            return dict(sources)
        if out is not None:
            given = out if isinstance(out, (tuple, list)) else (out,)
            if len(given) != len(sources):
                raise ArgumentError(f"out: {len(given)} arrays given; expected one for each of {', '.join(sources)}")
            return dict(zip(sources, given))
        return {name: empty_like(x, (*x.shape[:-1], self.width_of(view(name, x).dtype))) for name, x in sources.items()}

    def encode(self, q: Any = None, k: Any = None, positions: Any = None, *, operands: Any = None, inputs: Any = None,
               k_positions: Any = None, table: Table | None = None, out: Any = None, in_place: bool = False,
               slots: Any = None, cu_seqlens: Any = None, k_cu_seqlens: Any = None, origin: Any = None,
               first_token: int = 0, threads: int = 1, stream: int = 0) -> Any:  # fmt: skip
        """Encodes q and k by their positions.

        q: [B,H,N,head_dim], k: [B,Hkv,M,head_dim], float32, bfloat16 or float16; one of them may be left out.
        Where operands are of heads, q may have a multiple of their number: head h of q takes those of h // group.
        positions: [N,P] or [B,N,P] of float32, float64, int32 or int64, in the units of the description's phases; P is
        len(axes); of one axis also [N] or [B,N]. None where a grid is built in. k_positions: those of k where they are
        others.
        operands: by name, or in the order of `operands`; float32, float64, float16 or bfloat16. Contiguous ones may
        have neighbouring dimensions in one, or one as several: [(2H-1)(2W-1),heads] for [2H-1,2W-1,heads].
        inputs: of each query token, [B,H,N,size]; where rows turn by them, of the tokens of q and of k alike, float32,
        B and H may be 1. table: of `prepare`, in place of positions and operands.
        out: arrays to write to, [B,H,N,out_dim] each; in_place=True: q and k themselves. Without both, new ones.
        slots: [B,M] or [B M] int64: rows of k go to these rows of a cache [pages,page_size,Hkv,out_dim], the last of
        `out` (row s mod page_size of page s / page_size); -1: the token's row is left out. On processors.
        cu_seqlens, k_cu_seqlens: as in `attention`, of q [total,H,head_dim] and of k. On processors.
        origin: of kernels with `has_origin`, [P] or [B,P] of a position's type: where the columns of q and of k count
        from; None: the middle of the call's tokens. Whoever keeps k for later calls gives one to all of them, and q or
        k alone and slots are refused without.
        first_token: index of the first row in its sequence: row n passes through where first_token + n is below
        `skip_tokens`. With positions, on processors.
        threads: that share the call. stream: of CUDA, as a number, for arrays on a GPU.

        Returns (q, k) encoded, or one array where only one was given. Raises ArgumentError; nothing is written then.
        """
        self._entry("encode")
        sources = {name: x for name, x in (("q", q), ("k", k)) if x is not None}
        if not sources:
            raise ArgumentError("q, k: neither was given")
        tensors = {name: view(name, x) for name, x in sources.items()}
        for name, seen in tensors.items():
            if len(seen.shape) not in (3, 4):
                raise ArgumentError(
                    f"{name} has {len(seen.shape)} dimensions; expected [batches, heads, tokens, channels]"
                    " or [tokens, heads, channels]"
                )
        made = self._outputs(sources, out, in_place)
        tensors |= {f"{name}_out": view(name if in_place else f"out of {name}", x, True) for name, x in made.items()}
        if slots is not None:
            if k is None or out is None:
                raise ArgumentError("slots: given without k and a cache for it; expected k, and the cache last in out")
            tensors["slots"] = view("slots", slots)
        tensors |= _views(
            positions=positions, k_positions=k_positions, cu_seqlens=cu_seqlens, k_cu_seqlens=k_cu_seqlens,
            origin=origin,
        )  # fmt: skip
        parameters = [] if table is not None and operands is None else self._parameters(operands)
        self._call("encode", tensors, parameters, self._inputs(inputs), _first(first_token),
                   threads=threads, stream=stream, table=table)  # fmt: skip
        results = [give_back(sources[name], x) for name, x in made.items()]
        return results[0] if len(results) == 1 else tuple(results)

    def append(self, q: Any = None, k: Any = None, v: Any = None, positions: Any = None, *, cache: Any, slots: Any,
               v_cache: Any = None, q_norm: Any = None, k_norm: Any = None, epsilon: float = 1e-6, q_scale: Any = None,
               k_scale: Any = None, v_scale: Any = None, operands: Any = None, inputs: Any = None,
               k_positions: Any = None, table: Table | None = None, out: Any = None, in_place: bool = False,
               first_token: int = 0, threads: int = 1) -> Any:  # fmt: skip
        """What serves a token, in one call: RMS norms of q and k, where weights are given, `encode`, and k and v into
        their caches. On processors.

        q: [B,H,N,head_dim] or [tokens,H,head_dim], which may be left out; k: [B,Hkv,M,head_dim] or
        [tokens,Hkv,head_dim]; v: as k, or left out.
        cache, v_cache: [pages,page_size,Hkv,head_dim], any strides but of channels, of k's type or float8 that the
        kernel was compiled for; slots: [B,M] or [tokens] int64: the token's row of both (row s mod page_size of page
        s / page_size); -1: it is left out.
        q_norm, k_norm: weights [head_dim]: rows are normalised first, x w / sqrt(mean(x^2) + epsilon), and rounded to
        their type. k_scale, v_scale: one float32: what is stored in float8 is divided by it; q_scale: the same of q.
        out: an array for q; in_place=True: q itself. Without both, a new one. Other arguments as in `encode`.

        Returns q encoded, or None without q. Raises ArgumentError; nothing is written then.
        """
        self._entry("append")
        if k is None or (v is None) != (v_cache is None):
            raise ArgumentError("k, v, v_cache: expected k, and v together with v_cache")
        sources = {name: x for name, x in (("q", q), ("k", k), ("v", v)) if x is not None}
        tensors = {name: view(name, x) for name, x in sources.items()}
        for name, seen in tensors.items():
            if len(seen.shape) not in (3, 4) or len(seen.shape) != len(tensors["k"].shape):
                raise ArgumentError(
                    f"{name} has {len(seen.shape)} dimensions; expected [batches, heads, tokens, channels]"
                    " or [tokens, heads, channels], as k"
                )
        made = self._outputs({"q": q}, out, in_place)["q"] if q is not None else None
        if q is not None:
            tensors["q_out"] = view("q" if in_place else "out of q", made, True)
        elif out is not None:
            raise ArgumentError("out: given without q")
        tensors["k_out"] = view("cache", cache, True)
        if v is not None:
            tensors["v_out"] = view("v_cache", v_cache, True)
        given = {
            "slots": slots, "q_norm": q_norm, "k_norm": k_norm, "q_scale": q_scale, "k_scale": k_scale,
            "v_scale": v_scale,
        }  # fmt: skip
        tensors |= {name: view(name, x) for name, x in given.items() if x is not None}
        tensors |= _views(positions=positions, k_positions=k_positions)
        parameters = [] if table is not None and operands is None else self._parameters(operands)
        self._call("append", tensors, parameters, self._inputs(inputs),
                   {"norm_epsilon": float(epsilon)} | _first(first_token), threads=threads, table=table)  # fmt: skip
        return None if q is None else give_back(q, made)

    def encode_backward(self, grad_q: Any = None, grad_k: Any = None, positions: Any = None, *, operands: Any = None,
                        inputs: Any = None, k_positions: Any = None, table: Table | None = None, out: Any = None,
                        in_place: bool = False, threads: int = 1, gradients: GradientTable | None = None,
                        q: Any = None, k: Any = None, from_input: bool = False, cu_seqlens: Any = None,
                        k_cu_seqlens: Any = None, origin: Any = None,
                        first_token: int = 0) -> Any:  # fmt: skip
        """Gradients of q and k from those of what `encode` returned, of the same type and shapes (of q's and k's own
        where columns were appended, which are not written in place). Arguments otherwise as in `encode`. Returns
        (grad_q, grad_k), or one array where only one was given.

        gradients: of `gradient_table`, of a call with `table`: what the rows give the tokens of that table is added
        there, for `prepare_backward`. It takes q, k: what `encode` returned, or, with from_input=True, what it was
        given (exact in 16 bits, where what it returned is rounded); the same in all calls with these gradients. A
        kernel that maps channels before they turn (`needs_input`) takes what `encode` was given in every call."""
        sources = {name: x for name, x in (("q", grad_q), ("k", grad_k)) if x is not None}
        if not sources:
            raise ArgumentError("grad_q, grad_k: neither was given")
        tensors = {f"grad.{name}_out": view(f"grad_{name}", x) for name, x in sources.items()}
        tensors |= {name: view(name, x) for name, x in (("q", q), ("k", k)) if x is not None}
        if in_place and self.out_dim != self.head_dim:
            raise ArgumentError(f"in_place: {self.name} appends columns to q and k; expected in_place=False")
        if in_place or out is not None:
            made = self._outputs(sources, out, in_place)
        else:
            made = {name: empty_like(x, (*x.shape[:-1], self.head_dim)) for name, x in sources.items()}
        tensors |= {f"grad.{name}": view(f"grad_{name}", x, True) for name, x in made.items()}
        tensors |= _views(
            positions=positions, k_positions=k_positions, cu_seqlens=cu_seqlens, k_cu_seqlens=k_cu_seqlens,
            origin=origin,
        )  # fmt: skip
        parameters = [] if table is not None and operands is None else self._parameters(operands)
        of_k, widens = grad_q is None, self.out_dim != self.head_dim
        given = [] if of_k and widens else self._inputs(inputs)
        flags = _FROM_INPUT * self.needs_input
        if self.needs_input:
            for name in sources:
                if tensors.get(name) is None:
                    raise ArgumentError(f"{name}: {self.name} maps channels before they turn, and its gradients take "
                                        f"what encode was given; expected it beside grad_{name}")  # fmt: skip
        if gradients is not None:
            if table is None:
                raise ArgumentError("gradients: given without table; expected both")
            flags = _FROM_INPUT * (from_input or self.needs_input) | _ACCUMULATE * (
                isinstance(gradients, GradientTable) and gradients.is_begun
            )
        elif not self.needs_input and (q is not None or k is not None or from_input):
            raise ArgumentError("q, k: given without gradients, which alone need what encode read or wrote")
        self._call("encode_backward", tensors, parameters, given, _first(first_token), threads=threads, table=table,
                   gradients=gradients, flags=flags, workspace="encode_backward_workspace")  # fmt: skip
        if gradients is not None:
            gradients.is_begun = True
        results = [give_back(sources[name], x) for name, x in made.items()]
        return results[0] if len(results) == 1 else tuple(results)

    def attention(self, q: Any, k: Any, v: Any, positions: Any = None, *, operands: Any = None, inputs: Any = None,
                  k_positions: Any = None, causal: bool = False, scale: float = 0.0, out: Any = None,
                  cu_seqlens: Any = None, k_cu_seqlens: Any = None, block_table: Any = None, lengths: Any = None,
                  threads: int = 1, stream: int = 0) -> Any:  # fmt: skip
        """Attention with the encoding in it: softmax(scale q k^T + bias) v, scores never stored.

        q: [B,H,N,head_dim]; k: [B,Hkv,M,head_dim]; v: [B,Hkv,M,Dv]; H is a multiple of Hkv. positions: [N,P] or
        [B,N,P]; k_positions: [M,P] or [B,M,P], by default the same. causal: query i sees keys j <= i + M - N.
        scale: 0 is the kernel's own (`scale`, 1/sqrt(head_dim) unless its description states another). Returns
        [B,H,N,Dv]. Threads, or a GPU's blocks, share the keys where there are few queries, with the same results for
        any number of threads and in each call. Other arguments as in `encode`.

        cu_seqlens: [B+1] int32, sequences of different lengths whose rows follow each other: q [total,H,head_dim] has
        those of sequence b from cu_seqlens[b] to cu_seqlens[b+1], and so have k and v by k_cu_seqlens, which is
        cu_seqlens where it is left out. Positions are [total,P], inputs [total,H,size], and what is returned
        [total,H,Dv]. On processors.

        block_table: [B,most_pages] int32, and lengths: [B] int32: keys and values are a cache in pages, k
        [pages,page_size,Hkv,head_dim] and v [pages,page_size,Hkv,Dv], page_size a multiple of 16; sequence b has
        lengths[b] keys, in the pages that its row of block_table names. q is [B,H,N,head_dim], or has cu_seqlens.
        k_positions: [M,P] or [B,M,P] for the sequence's keys in their order, M no less than any length. Inputs of keys
        are in the same pages, [pages,page_size,Hkv,size] or [pages,page_size,Hkv]. On processors.
        """
        self._entry("attention")
        tensors = {"q": view("q", q), "k": view("k", k), "v": view("v", v)}
        for name, seen in tensors.items():
            expected = ["[tokens, heads, channels]", "[batches, heads, tokens, channels]"]
            expected = expected if cu_seqlens is None else expected[:1]
            if name != "q" and block_table is not None:
                expected = ["[pages, tokens of a page, heads, channels]"]
            if len(seen.shape) not in [words.count(",") + 1 for words in expected]:
                raise ArgumentError(f"{name} has {len(seen.shape)} dimensions; expected {' or '.join(expected)}")
        made = empty_like(q, (*tensors["q"].shape[:-1], tensors["v"].shape[-1])) if out is None else out
        tensors["out"] = view("out", made, True)
        tensors |= _views(block_table=block_table, lengths=lengths)
        tensors |= _views(
            positions=positions, k_positions=k_positions, cu_seqlens=cu_seqlens, k_cu_seqlens=k_cu_seqlens
        )
        numbers, more = {"causal": int(causal), "scale": float(scale)}, {}
        if self.splits_keys and (tensors["q"].key[0] == CPU or has_room_beside(tensors["q"])):
            numbers["split_keys"] = 1
            more = {"workspace": "attention_workspace", "finish": "attention_finish"}
        self._call("attention", tensors, self._parameters(operands),
                   self._inputs(inputs), numbers, threads=threads, stream=stream,
                   **more)  # fmt: skip
        return give_back(q, made)

    def prepare(
        self, positions: Any = None, *, operands: Any = None, k_positions: Any = None, threads: int = 1
    ) -> Table:
        """Computes once what `encode` needs of positions and operands. The table holds for every call with as many
        tokens, until positions or operands change."""
        tensors = _views(positions=positions, k_positions=k_positions)
        parameters = self._parameters(operands)
        table = Table(*self._table_room("prepare", "table_bytes", tensors, parameters))
        self._call("prepare", tensors, parameters, [], {}, threads=threads, table=table)
        return table

    def _table_room(
        self, entry: str, size: str, tensors: dict[str, View], operands: list[View]
    ) -> tuple[int, int, Any]:
        """Address, bytes and owner of a table's memory; 0 bytes where the arguments will be refused."""
        size_of = self._sizes[size]
        if not self._entries[entry] or not size_of:
            raise ArgumentError(f"{entry}: {self.name} has no such entry; it has: {', '.join(self.entries)}")
        asked = Call(self._info, None, tensors, operands, [], {})
        count = size_of(asked.reference)
        room = ctypes.create_string_buffer(count + 64)
        return (ctypes.addressof(room) + 63) & ~63, count, room

    def gradient_table(self, positions: Any = None, *, operands: Any = None, k_positions: Any = None) -> GradientTable:
        """Room for what the rows of many calls of `encode_backward` give the tokens of a table. Arguments as in
        `prepare`, of the same shapes."""
        parameters = self._parameters(operands)
        places = _views(positions=positions, k_positions=k_positions)
        address, size, room = self._table_room("prepare_backward", "gradient_table_bytes", places, parameters)
        if not size:
            asked = Call(self._info, None, places, parameters, [], {})
            reason = explain(self._info, "prepare_backward", asked.args)
            raise ArgumentError(
                reason or f"gradient_table: neither operands nor positions of {self.name} have gradients"
            )
        return GradientTable(address, size, room)

    def prepare_backward(self, gradients: GradientTable, positions: Any = None, *, operands: Any = None,
                         k_positions: Any = None, of_positions: bool = False, threads: int = 1) -> Gained:  # fmt: skip
        """Gradients of operands, and of positions where asked for, from what all calls of `encode_backward` have added
        to `gradients`: once for all of them. Arguments otherwise as in `prepare`. New arrays, float64 where what they
        are gradients of is float64, else float32; `gradients` stay as they are."""
        if isinstance(gradients, GradientTable) and not gradients.is_begun:
            raise ArgumentError("gradients: nothing was added; expected encode_backward with these gradients before")
        given, parameters = in_order(self.name, "operand", self.operands, operands), self._parameters(operands)
        places = _views(positions=positions, k_positions=k_positions)
        sources = {f"grad.operand.{i}": (x, seen) for i, (x, seen) in enumerate(zip(given, parameters))}
        if of_positions:
            sources |= {
                f"grad.{name}": (x, places[name])
                for name, x in (("positions", positions), ("k_positions", k_positions))
                if x is not None
            }
        if not sources:
            raise ArgumentError(f"operands: {self.name} has none, and of_positions is False; nothing has a gradient")
        made = {
            name: zeros_like(x, "float64" if seen.dtype == "float64" else "float32")
            for name, (x, seen) in sources.items()
        }
        outputs = {name: view(f"out of {name}", x, True) for name, x in made.items()}
        for i, info in enumerate(self.operands):
            outputs[f"grad.operand.{i}"] = _as_described(info, outputs[f"grad.operand.{i}"])
        finish = "prepare_backward_finish" if parameters else ""
        self._call("prepare_backward", outputs | places, parameters, [], {}, threads=threads, gradients=gradients,
                   workspace="prepare_backward_workspace", finish=finish)  # fmt: skip
        results = {name: give_back(sources[name][0], x) for name, x in made.items()}
        names = {info.name: results[f"grad.operand.{i}"] for i, info in enumerate(self.operands)}
        return Gained(names, results.get("grad.positions"), results.get("grad.k_positions"))

    # ---- what is known of it ----

    @property
    def object(self) -> bytes:
        """The shared object, as `save` writes it."""
        return self._data

    def _described(self) -> Request:
        if self._request is None:
            raise CompileError(f"{self.name} was loaded from a file, without its description")
        return self._request

    def explain(self) -> dict[str, Any]:
        """What holds of the description and how that is known: group, normal form, properties, cost per token; the
        members of `pegen explain --format=json`. The description is read in the first call alone."""
        if not self._explanation:
            compiled = library.pegen_explain(self._described().native())
            if not compiled:
                raise MemoryError("pegen_explain")
            try:
                if compiled.contents.error:
                    raise CompileError(compiled.contents.error.decode(errors="replace"))
                self._explanation = compiled.contents.explanation
            finally:
                library.pegen_compiled_free(compiled)
        return json.loads(self._explanation)

    def check(self) -> str:
        """Runs the kernel on every target of this machine beside a slow reference in long double; returns the report.
        Raises CheckFailed where an error is larger than it may be."""
        done = self._described().run("check", "--verbose")
        if done.returncode == 0:
            return done.stdout
        raise (CheckFailed if done.stdout else CompileError)((done.stdout + done.stderr).strip())

    def bench(
        self, shape: str | Sequence[int] | None = None, *, threads: int = 1, table: bool = False
    ) -> dict[str, Any]:
        """Times the kernel beside a loop that only moves the same bytes, in the same run; the members of
        `pegen bench --json`. shape: (B, N, H), or a name as "vit_b8"."""
        words = ["--json", "--threads", str(threads)] + ["--table"] * table
        if shape is not None:
            words += ["--shape", word_of(shape)]
        done = self._described().run("bench", *words)
        if done.returncode:
            raise CompileError((done.stderr or done.stdout).strip())
        return json.loads(done.stdout)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the shared object (for `load`, or dlopen), or to a path that ends in .h the C header. An old file
        stays until the new one is complete."""
        path = pathlib.Path(path)
        content = self.header.encode() if path.suffix == ".h" else self._data
        temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")  # of this call alone
        try:
            with open(temporary, "xb") as file:
                file.write(content)
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
