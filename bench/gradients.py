#!/usr/bin/env python3
"""gradients.py PEGEN [--only NAME] [--turns N] [--no-compile]: gradients beside PyTorch's, one thread, float32.

Encodings with learned operands: NAME_encode_backward with the gradients of q, k and every operand, and its finish,
beside NAME_encode, and beside PyTorch's autograd through the formula as its paper has it (vit_formulas.py), eager and
by torch.compile: its backward pass alone, of a graph that forward has left. LieRE's formula is torch.matrix_exp.
Columns: the same of PaPE's q, k, inputs and projection. Ours are fewer than the paper's, so what comes in is what a
gradient of scores gives either, rows of which sum to 0: a constant added to a row of scores changes no softmax.
Tables: NAME_prepare_backward and its finish, beside NAME_prepare and beside PyTorch's autograd from all matrices to
generators.
Attention: NAME_attention_backward beside the backward of scaled_dot_product_attention; with learned slopes and with a
Swin table also beside its own without them.

All of a line take turns in one process; what is printed are ratios of the least processor times, with the goal of each
in brackets, the largest difference of the gradients relative to the largest one, and bytes beyond inputs and outputs.
Needs PyTorch; pegen writes the shared libraries.
"""
import argparse
import ctypes as c
import pathlib
import subprocess
import sys
import tempfile
import time

import torch
import torch._functorch.config
import vit_formulas as formulas
from interface import Args, DLTensor, GradArgs, Kernel, pointers
from torch import nn

SPECS = pathlib.Path(__file__).resolve().parent.parent / "specs"

LEARNED_GEOPE = """
local pe = require "pegen"
local heads = pe.option("heads", 1, "heads with phases of their own")
return pe.encoding {
  name = "geope_learned", axes = { "h", "w" }, head_dim = 64, heads = heads, block = pe.vector(3),
  generators = { h = pe.quaternion "j", w = pe.quaternion "k" }, combine = pe.mean,
  phase = pe.learned { name = "phase", shape = { "axes", "heads", "blocks" }, doc = "of each axis", units = "radians" },
}
"""
LEARNED_SLOPES = """
local pe = require "pegen"
local slope = pe.learned { name = "slope", shape = { "heads" }, doc = "of each head's penalty" }
return pe.encoding {
  name = "learned_slopes", axes = { "t" }, head_dim = 64, heads = 12,
  role = "pairwise", bias = function(delta, head) return -slope(head) * pe.norm(delta) end,
}
"""


class GeoPE(formulas.Quaternions):
    """Section 3.2, eq. 3-4, the phases learned."""

    def rotor(self):
        angle = torch.einsum("np,phg->phng", self.positions, self.phase) / 4
        return formulas.exponential(torch.stack([torch.zeros_like(angle[0]), angle[0], angle[1]], -1))


# ---- kernels ----


def tensor(of):
    sizes = c.c_int64 * of.dim()
    bits, code = of.element_size() * 8, 2 if of.is_floating_point() else 0
    return DLTensor(of.data_ptr(), 1, 0, of.dim(), code, bits, 1, sizes(*of.shape), sizes(*of.stride()), 0)


def pointer(of):
    return c.pointer(tensor(of))


class Library:
    """The entries of a description, called with PyTorch's tensors."""

    def __init__(self, pegen, folder, spec, defines):
        text = {"geope_learned": LEARNED_GEOPE, "learned_slopes": LEARNED_SLOPES}.get(spec)
        path = SPECS / f"{spec}.lua"
        if text:
            path = folder / f"{spec}.lua"
            path.write_text(text)
        target = folder / (spec + "".join(defines) + ".so")
        options = [word for define in defines for word in ("-D", define)]
        subprocess.run([pegen, path, "-o", target, "--dtype", "f32", *options], check=True)
        self.name, self.library = spec, c.CDLL(str(target))

    def entry(self, word, args):
        function = getattr(self.library, f"{self.name}_{word}")

        def call():
            error = function(c.byref(args), 0, 1)
            if error:
                sys.exit(f"{self.name}_{word} refused: error {error}")

        return call

    def size(self, word, args):
        size = getattr(self.library, f"{self.name}_{word}")
        size.restype = c.c_size_t
        return size(c.byref(args))

    def with_workspace(self, word, args):
        """Backward and finish as one call; the bytes that they work on."""
        count = self.size(f"{word}_workspace", args)
        room = torch.empty(count // 8 + 1, dtype=torch.float64)
        args.workspace = room.data_ptr()
        args.workspace_bytes = count
        run, finish = self.entry(word, args), self.entry(word + "_finish", args)

        def call(room=room):  # which lives as long as the call
            run()
            finish()

        return call, count


def arguments(operands=(), inputs=(), **tensors):
    args = Args(struct_size=c.sizeof(Args), n_operands=len(operands), n_inputs=len(inputs))
    args.operands = pointers([tensor(operand) for operand in operands])
    args.inputs = pointers([tensor(of) for of in inputs])
    args.kept = [operands, inputs, tensors]  # whose memory lives as long as the call
    for name, of in tensors.items():
        setattr(args, name, pointer(of))
    return args


def gradients(args, operands=(), inputs=(), **tensors):
    grad = GradArgs(struct_size=c.sizeof(GradArgs))
    args.kept += [operands, inputs, tensors]
    if operands:
        grad.operands = pointers([tensor(operand) for operand in operands])
    if inputs:
        grad.inputs = pointers([tensor(of) for of in inputs])
    for name, of in tensors.items():
        setattr(grad, name, pointer(of))
    args.grad = c.pointer(grad)


# ---- turns ----


def least(contenders, turns):
    times = {name: float("inf") for name in contenders}
    for turn in range(turns):
        for name, work in contenders.items():
            if turn >= 3 and times[name] > 1 and name != "backward":  # seconds: three are enough
                continue
            start = time.thread_time()
            work()
            times[name] = min(times[name], time.thread_time() - start)
    return times


def far(mine, theirs):
    largest = max(t.abs().max().item() for t in theirs)
    return max((m - t).abs().max().item() for m, t in zip(mine, theirs)) / largest


def grid_positions(tokens):
    side = int(tokens**0.5)
    h = torch.arange(tokens) // side
    return torch.stack([h, torch.arange(tokens) - h * side], -1).float()


def backward_of(outputs, inputs, directions):
    return lambda: torch.autograd.grad(outputs, inputs, directions, retain_graph=True)


# ---- encodings ----

# Description, its options, formula, operands' shapes with P, H, G, sizes of first values and their names, goals.
ENCODINGS = [
    ("rope_mixed", [], formulas.RoPEMixed, {"freqs": (2, "H", 32)}, (1.7, 10, 4)),
    ("geope_learned", [], GeoPE, {"phase": (2, "H", 21)}, (1.7, 10, 4)),
    ("quatro", [], formulas.QuatRo, {"theta": (2, "H", 21, 3)}, (1.7, 10, 4)),
    ("care", [], formulas.CARE, {"axis": (2, "H", 8, 3), "freq": (2, "H", 8)}, (1.7, 10, 4)),
    ("liere", ["block=8"], formulas.LieRE, {"generators": (2, "H", 8, 8, 8)}, (None, 15, None)),
    ("liere", ["block=64"], formulas.LieRE, {"generators": (2, "H", 1, 64, 64)}, (None, 15, None)),
]
SHAPES = [(8, 196, 12, 64), (8, 4096, 12, 64)]


class Description(nn.Module):
    """What a formula asks of an encoding: its parameters and its kernel's head_dim."""

    def __init__(self, shapes, heads):
        super().__init__()
        self.kernel = type("Kernel", (), {"head_dim": 64})
        for name, shape in shapes.items():
            values = torch.randn([heads if size == "H" else size for size in shape]) * 0.1
            if name == "axis":
                values = nn.functional.normalize(values, dim=-1)
            self.register_parameter(name, nn.Parameter(values))


def encoding(options, folder, case, shape, heads):
    spec, defines, formula, shapes, goals = case
    batch, tokens, rows, channels = shape
    library = Library(options.pegen, folder, spec, [*defines, f"heads={heads}"])
    positions = grid_positions(tokens) * (0.05 if spec == "liere" else 1)
    described = Description(shapes, heads)
    parameters = [parameter for _, parameter in described.named_parameters()]
    model = formula(described, positions)
    q, k, g_q, g_k = (torch.randn(batch, tokens, rows, channels).transpose(1, 2) for _ in range(4))
    outs = [torch.empty_like(q) for _ in range(4)]
    operands = [parameter.detach() for parameter in parameters]
    gained = [torch.empty_like(operand) for operand in operands]
    forward = arguments(operands, q=q, k=k, q_out=outs[0], k_out=outs[1], positions=positions)
    args = arguments(operands, q=outs[0], k=outs[1], positions=positions)
    gradients(args, gained, q_out=g_q, k_out=g_k, q=outs[2], k=outs[3])
    backward, workspace = library.with_workspace("encode_backward", args)
    contenders = {"forward": library.entry("encode", forward), "backward": backward}
    contenders["forward"]()
    inputs = [q.requires_grad_(), k.requires_grad_(), *model.parameters()]
    contenders["eager"] = backward_of(model(q, k), inputs, (g_q, g_k))
    if options.compile and goals[2]:
        compiled = torch.compile(model)
        contenders["compiled"] = backward_of(compiled(q, k), inputs, (g_q, g_k))
    difference = far([*outs[2:], *gained], (backward(), contenders["eager"]())[1])
    times = least(contenders, options.turns)
    mine = times["backward"]
    name = f"{' '.join([spec, *defines])} {list(shape)}, {'heads of their own' if heads > 1 else 'shared heads'}"
    words = [f"{name}: {mine / times['forward']:.2f} times forward" + (f" [{goals[0]}]" if goals[0] else "")]
    words.append(f"eager / ours {times['eager'] / mine:.1f} [{goals[1]}]")
    if "compiled" in times:
        words.append(f"compiled / ours {times['compiled'] / mine:.1f} [{goals[2]}]")
    words.append(f"difference {difference:.0e}, {workspace} bytes of workspace")
    print("; ".join(words), flush=True)


# ---- columns ----


def columns(options, folder, shape, heads):
    batch, tokens, rows, channels = shape
    parabolas = 50
    library = Library(options.pegen, folder, "pape", ["role=separable", f"heads={heads}"])
    width = Kernel.in_dll(library.library, "pape_kernel").out_dim
    positions = grid_positions(tokens)
    described = Description({"projection": ("H", parabolas, 2)}, heads)
    model = formulas.PaPE(described, positions)
    operand = described.projection.detach()
    q, k = (torch.randn(batch, tokens, rows, channels).transpose(1, 2) for _ in range(2))
    a, b = (torch.randn(batch, tokens, rows, parabolas).transpose(1, 2) for _ in range(2))
    wide = [torch.empty(batch, tokens, rows, width).transpose(1, 2) for _ in range(2)]
    gained = [torch.empty_like(x) for x in (q, k, a, b, operand)]
    forward = arguments([operand], [a, b], q=q, k=k, q_out=wide[0], k_out=wide[1], positions=positions)
    contenders = {"forward": library.entry("encode", forward)}
    contenders["forward"]()
    scores = torch.randn(batch, rows, tokens, tokens) / tokens
    scores -= scores.mean(-1, keepdim=True)
    args = arguments([operand], [a, b], positions=positions)
    gradients(
        args, gained[4:], gained[2:4], q_out=scores @ wide[1], k_out=scores.mT @ wide[0], q=gained[0], k=gained[1]
    )
    contenders["backward"], workspace = library.with_workspace("encode_backward", args)
    inputs = [x.requires_grad_() for x in (q, k, a, b)] + [model.projection]
    encoded = model(q, k, a, b)
    directions = [x.detach() for x in (scores @ encoded[1], scores.mT @ encoded[0])]
    contenders["eager"] = backward_of(encoded, inputs, directions)
    if options.compile:
        contenders["compiled"] = backward_of(torch.compile(model)(q, k, a, b), inputs, directions)
    difference = far(gained, (contenders["backward"](), contenders["eager"]())[1])
    times = least(contenders, options.turns)
    mine = times["backward"]
    words = [f"pape, columns, {list(shape)}, {'heads of their own' if heads > 1 else 'shared heads'}"]
    words[0] += f": {mine / times['forward']:.2f} times forward"
    words += [f"{name} / ours {times[name] / mine:.1f}" for name in ("eager", "compiled") if name in times]
    words.append(f"difference {difference:.0e}, {workspace} bytes of workspace")
    print("; ".join(words), flush=True)


# ---- tables ----

TABLES = [("liere", ["block=8"], (8, 8)), ("liere", ["block=64"], (1, 64))]


def aligned(size):
    room = torch.empty(size // 8 + 9, dtype=torch.float64)
    skip = -room.data_ptr() % 64 // 8
    return room[skip : skip + (size + 7) // 8]


def table(options, folder, case, tokens, heads):
    """One row of q for each head and token, so that a matrix gains the product of ours and of what it rotated."""
    spec, defines, (blocks, size) = case
    library = Library(options.pegen, folder, spec, [*defines, f"heads={heads}"])
    positions = grid_positions(tokens) * 0.05
    generators = torch.randn(2, heads, blocks, size, size) * 0.1
    q, g = (torch.randn(1, heads, tokens, 64) for _ in range(2))
    out, turned, gained = torch.empty_like(q), torch.empty_like(q), torch.empty_like(generators)
    prepare = arguments([generators], positions=positions)
    encode = arguments([generators], positions=positions, q=q, q_out=out)
    tables = [aligned(library.size(word, prepare)) for word in ("table_bytes", "gradient_table_bytes")]
    for args in (prepare, encode):
        args.table, args.table_bytes = tables[0].data_ptr(), tables[0].numel() * 8
    contenders = {"forward": library.entry("prepare", prepare)}
    contenders["forward"]()
    library.entry("encode", encode)()
    rows, back = arguments([generators], positions=positions, q=out), arguments([generators], positions=positions)
    rows.table, rows.table_bytes = encode.table, encode.table_bytes
    gradients(rows, q_out=g, q=turned)
    gradients(back, [gained])
    for args in (rows, back):
        args.grad.contents.table, args.grad.contents.table_bytes = tables[1].data_ptr(), tables[1].numel() * 8
    library.entry("encode_backward", rows)()
    contenders["backward"], workspace = library.with_workspace("prepare_backward", back)
    described = Description({"generators": (2, "H", blocks, size, size)}, heads)
    model = formulas.LieRE(described, positions)
    with torch.no_grad():
        model.generators.copy_(generators)
    matrices = torch.matrix_exp(model.exponents())
    gains = torch.einsum("bhngi,bhngj->hngij", g.unflatten(-1, (blocks, size)), q.unflatten(-1, (blocks, size)))
    contenders["torch"] = backward_of(matrices, list(model.parameters()), gains.contiguous())
    difference = far([gained], (contenders["backward"](), contenders["torch"]())[1])
    times = least(contenders, options.turns)
    mine = times["backward"]
    words = [f"prepare_backward of {' '.join([spec, *defines])}, {tokens} tokens, {heads} heads"]
    words[0] += f": {mine / times['forward']:.2f} times prepare [4]"
    words.append(f"autograd from torch.matrix_exp / ours {times['torch'] / mine:.1f} [15]")
    words.append(f"difference {difference:.0e}, {tables[1].numel() * 8} bytes of table, {workspace} of workspace")
    print("; ".join(words), flush=True)


# ---- attention ----

ATTENTION = [("attention", []), ("learned_slopes", []), ("relative_bias_table", ["head_dim=64", "heads=12"])]


def bias_of(spec, positions, operand, windows):
    if spec == "learned_slopes":
        return -operand[:, None, None] * (positions - positions.T).abs()
    delta = (positions[None] - positions[:, None]).long()
    index = (windows - 1 - delta[..., 0]) * (2 * windows - 1) + windows - 1 - delta[..., 1]
    return operand.flatten(0, 1)[index].permute(2, 0, 1)


def attention(options, folder, batch, tokens):
    heads, channels, plain = 12, 64, None
    for spec, defines in ATTENTION:
        windows = int(tokens**0.5)
        if spec == "relative_bias_table":
            if windows * windows != tokens or windows > 14:
                continue
            defines = [*defines, f"window_h={windows}", f"window_w={windows}"]
        library = Library(options.pegen, folder, spec, [*defines, f"head_dim={channels}"] if not plain else defines)
        shapes = {"learned_slopes": (heads,), "relative_bias_table": (2 * windows - 1, 2 * windows - 1, heads)}
        operands = [torch.rand(shapes[spec])] if spec in shapes else []
        positions = grid_positions(tokens) if spec == "relative_bias_table" else torch.arange(tokens).float()[:, None]
        places = {"positions": positions} if operands else {}
        q, k, v, g_out = (torch.randn(batch, heads, tokens, channels) for _ in range(4))
        out, g_q, g_k, g_v = (torch.empty_like(q) for _ in range(4))
        lse = torch.empty(batch, heads, tokens)
        gained = [torch.empty_like(operand) for operand in operands]
        args = arguments(operands, q=q, k=k, v=v, out=out, lse=lse, **places)
        gradients(args, gained, out=g_out, q=g_q, k=g_k, v=g_v)
        library.entry("attention", args)()
        backward, workspace = library.with_workspace("attention_backward", args)
        inputs = [x.requires_grad_() for x in (q, k, v, *operands)]
        mask = bias_of(spec, positions, operands[0], windows) if operands else None
        theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        contenders = {"backward": backward, "torch": backward_of(theirs, inputs, g_out)}
        if plain:
            contenders["plain"] = plain
        difference = far([g_q, g_k, g_v, *gained], (backward(), contenders["torch"]())[1])
        times = least(contenders, options.turns)
        mine = times["backward"]
        words = [f"{spec} {[batch, heads, tokens, channels]}: PyTorch / ours {times['torch'] / mine:.2f} [1.15]"]
        if plain:
            words.append(f"{mine / times['plain']:.2f} times plain attention's [1.25]")
        else:
            flops = 2 * 5 * batch * heads * tokens * tokens * channels
            words.append(f"{flops / mine * 1e-9:.1f} Gflop/s of its five products")
        words.append(f"difference {difference:.0e}, {workspace} bytes of workspace")
        print("; ".join(words), flush=True)
        plain = plain or backward


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pegen")
    parser.add_argument("--only", help="a description's name, columns, tables or attention")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="leave out torch.compile")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    torch._functorch.config.donated_buffer = False  # a compiled graph's backward runs more than once
    with tempfile.TemporaryDirectory() as folder:
        for case in ENCODINGS:
            for shape in SHAPES:
                for heads in (12, 1):
                    if options.only not in (None, case[0]) or (case[0] == "liere" and shape[1] > 196):
                        continue
                    encoding(options, pathlib.Path(folder), case, shape, heads)
        for shape in ((1, 196, 12, 64), (8, 196, 12, 64)):
            for heads in (12, 1):
                if options.only in (None, "columns"):
                    columns(options, pathlib.Path(folder), shape, heads)
        for case in TABLES:
            for heads in (12, 1):
                if options.only in (None, "tables"):
                    table(options, pathlib.Path(folder), case, 196, heads)
        for batch, tokens in ((8, 196), (1, 1024)):
            if options.only in (None, "attention"):
                attention(options, pathlib.Path(folder), batch, tokens)


main()
