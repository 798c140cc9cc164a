"""Position encodings of q and k, and attentions, as kernels that pegen compiled: on processors and CUDA devices, with
gradients, through torch.compile.

    kernel = kernels.get_local_kernel(pathlib.Path("build-hub/pegen"))
    q, k = kernel.rope(q, k, positions)                          # [B,H,N,D], [B,Hkv,N,D], [N,P] or [B,N,P]
    q, k = kernel.rope_mixed(q, k, positions, freqs)             # operands in order, or by their names
    out = kernel.alibi(q, k, v, positions, causal=True)

`built` has the sizes that there are kernels for. scripts/hub of pegen's repository builds others.
"""
import json
import pathlib

from torch.compiler import assume_constant_result

from . import kernel as _kernel
from .errors import ArgumentError, CompileError
from .torch import layers
from .torch.attention import attend
from .torch.gradients import call
from .torch.names import register

_FOLDER = pathlib.Path(__file__).resolve().parent
built = json.loads((_FOLDER / "kernels.json").read_text())


def _compile(spec, *, targets=None, dtypes=None, **options):
    """Stands in place of the compiler, which is not here: finds what it made."""
    for made in built:
        if made["spec"] == spec and made["options"] == options:
            return _kernel.load(_FOLDER / "objects" / made["file"])
    raise CompileError(f"{spec}: no kernel with {options} is in this folder")


_kernel.compile = _compile


@assume_constant_result
def _name_of(spec, head_dim, heads):
    """The kernel for rows of such a size, as operators name it."""
    of_spec = [made["options"] for made in built if made["spec"] == spec]
    for options in of_spec:
        if options["head_dim"] == head_dim and options.get("heads", heads) == heads:
            return register(spec, **options)
    raise ArgumentError(f"q has {heads} heads of {head_dim} channels; {spec} is here for {of_spec}")


def _in_order(spec, names, given, named):
    """Operands and inputs, of which some are given by name."""
    taken = [*given, *(named.pop(name) for name in names[len(given) :] if name in named)]
    if named or len(taken) != len(names):
        raise ArgumentError(
            f"{spec} takes {', '.join(names) or 'q, k and positions alone'}; {len(taken)} of these and"
            f" {', '.join(named) or 'no others'} were given"
        )
    return taken


def _encoding(spec, names):
    def encode(q, k=None, positions=None, *given, **named):
        taken = _in_order(spec, names, given, named)
        name = _name_of(spec, q.shape[-1], q.shape[1])
        if k is None:
            return call("encode_one", (q,), positions, taken, name)
        return call("encode", (q, k), positions, taken, name)

    return encode


def _attention(spec, names, n_operands):
    def attention(q, k, v, positions=None, *given, k_positions=None, causal=False, scale=0.0, **named):
        taken = _in_order(spec, names, given, named)
        name = _name_of(spec, q.shape[-1], q.shape[1])
        return attend(
            "attention", q, k, v, positions, k_positions, taken[:n_operands], taken[n_operands:], causal, scale, name
        )

    return attention


def _functions():
    for made in built:
        names = [*made["operands"], *made["inputs"]]
        is_attention = "attention" in made["entries"]
        function = _attention(made["spec"], names, len(made["operands"])) if is_attention else (
            _encoding(made["spec"], names))  # fmt: skip
        function.__name__ = function.__qualname__ = made["spec"]
        function.__doc__ = (
            f"{made['doc']}. Positions: {', '.join(made['axes'])}. Takes {', '.join(names) or 'nothing else'}."
        )
        yield made["spec"], function


_public = dict(_functions())
globals().update(_public)
__all__ = ["ArgumentError", "built", "layers", *_public]
