#!/usr/bin/env python3
"""What an encoding adds to one step of a ViT, in one run: the authors' formula in eager PyTorch and under
torch.compile, and pegen's kernels in both.

    bench/vit.py [ENCODING ...] [--depth 12] [--batch 8] [--image 224] [--rounds 5] [--threads 1] [--no-compile]

timm's ViT-B/16 with random weights, float32, of as many layers as `depth`. A step of training is forward, cross
entropy, backward and AdamW; inference is forward under no_grad. Shares are of the time above the same model with
learned absolute positions, eager above eager and compiled above compiled: the median of the shares of rounds, in which
all take turns, and half the distance of their quartiles. (Least times would tell which of them met the machine at its
quietest.) Times are the processor's with one thread, the clock's with several. "in place" is encode_packed; "table" is
that with what `prepare` made of positions and operands. "projections" are those of tokens that an encoding reads
(PaPE's W_a and W_b), with no encoding. Memory is what tensors hold at most in an eager forward (and backward), above
that of the model with learned absolute positions, a layer; the size of q and k of a layer is printed beside it. Before
anything is timed, kernels and formulas are compared. Blocks are compiled one by one (they are alike). --lock: a file
that is locked for each round. Needs PyTorch, timm and the package.
"""
import argparse
import contextlib
import copy
import fcntl
import gc
import pathlib
import statistics
import sys
import time
import weakref

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "python"))
import vision  # noqa: E402, F401 (before timm)

import timm  # noqa: E402

import vit_formulas as formulas  # noqa: E402
from pegen_kernels import ArgumentError  # noqa: E402
from pegen_kernels.packed import encode_packed  # noqa: E402
from pegen_kernels.torch import Attention, Encoding  # noqa: E402


def small(shape):
    return 0.02 * torch.randn(shape)


class Row:
    """An encoding: its formula, its description with options, and where positions lie."""

    def __init__(self, formula, spec, scale=1.0, init=None, inputs=0, **options):
        self.formula, self.spec, self.scale, self.init, self.inputs = formula, spec, scale, init, inputs
        self.options = options
        self.hows = ("formula", "kernel", "in place")
        if inputs:
            self.hows = ("projections", "formula", "kernel")
        elif "block" in options:
            self.hows += ("table",)


_SKEW = {"generators": small}
ROWS = {
    "rope_mixed": Row(formulas.RoPEMixed, "rope_mixed", heads=12),
    "geope2d": Row(formulas.GeoPE, "geope2d"),
    "spherical": Row(formulas.Spherical, "spherical"),
    "quatro": Row(formulas.QuatRo, "quatro", heads=12),
    "care": Row(formulas.CARE, "care", heads=12),
    "comrope_ld": Row(formulas.ComRoPE, "comrope_ld", 1 / 14, {**_SKEW, "multiplier": torch.ones}, heads=12, block=8),
    "liere_8": Row(formulas.LieRE, "liere", 1 / 13, _SKEW, heads=12, block=8),
    "liere_64": Row(formulas.LieRE, "liere", 1 / 13, _SKEW, heads=12, block=64),
    "pape": Row(formulas.PaPE, "pape", 1 / 14, None, 2, heads=12, parabolas=50),
    "pape_ri": Row(formulas.PaPERI, "pape_ri", 1 / 14, None, 1, heads=12, axes=2),
}


class Layer(nn.Module):
    """timm's attention, with an encoding between the projection and the scores. how: "none", "formula", "kernel",
    "in place", "table", "projections"."""

    def __init__(self, original, row, how, positions):
        super().__init__()
        self.qkv, self.proj, self.heads, self.how = original.qkv, original.proj, original.num_heads, how
        self.positions, self.inputs, self.table = positions, row.inputs if row else 0, None
        if how == "none":
            return
        kind = Attention if row.inputs else Encoding
        options = {**row.options, **({"role": "pairwise"} if row.inputs else {})}
        torch.manual_seed(1)
        made = kind(row.spec, head_dim=original.head_dim, targets="native", dtypes="float32", init=row.init, **options)
        self.encoding = made if how in ("kernel", "in place", "table") else row.formula(made, positions)
        if row.inputs:
            self.terms = made.kernel.inputs[0].size or 1
            self.of_token = nn.Linear(original.qkv.in_features, row.inputs * self.heads * self.terms, bias=False)

    def _inputs(self, x):
        """W_a x, W_b x: [B,H,N,m] each, or [B,H,N]."""
        made = self.of_token(x).unflatten(-1, (self.inputs, self.heads, self.terms)).permute(2, 0, 3, 1, 4)
        return [y.squeeze(-1) if self.terms == 1 else y for y in made]

    def attend(self, x, qkv):
        if self.how == "in place":
            qkv = encode_packed(self.encoding, qkv, self.positions)
        q, k, v = (y.transpose(1, 2) for y in qkv.unbind(2))
        if self.how == "table":
            if self.table is None:
                self.table = self.encoding.kernel.prepare(self.positions, operands=list(self.encoding.parameters()))
            self.encoding.kernel.encode(q, k, table=self.table, in_place=True)
        scale = q.shape[-1] ** -0.5
        if self.inputs and self.how == "kernel":
            return self.encoding(q, k, v, self.positions, inputs=self._inputs(x))
        if self.how == "formula":
            q, k = self.encoding(q, k, *(self._inputs(x) if self.inputs else ()))
        elif self.how == "kernel":
            q, k = self.encoding(q, k, self.positions)
        made = nn.functional.scaled_dot_product_attention(q, k, v, scale=scale)
        return made + 0 * sum(y.sum() for y in self._inputs(x)) if self.how == "projections" else made

    def forward(self, x, attn_mask=None, is_causal=False):
        qkv = self.qkv(x).view(*x.shape[:2], 3, self.heads, -1)
        return self.proj(self.attend(x, qkv).transpose(1, 2).reshape(x.shape))


def positions_of(side, scale):
    """The class token at (0, 0), where nothing turns, then the patches."""
    grid = torch.stack(torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij"), -1).reshape(-1, 2)
    return torch.cat([torch.zeros(1, 2), grid * scale])


class Bed:
    """One model, and variants of it that share its weights."""

    def __init__(self, given):
        self.given, self.side = given, given.image // 16
        torch.manual_seed(1)
        self.absolute = timm.create_model("vit_base_patch16_224", img_size=given.image, depth=given.depth)
        self.weights = list(self.absolute.parameters())
        torch.manual_seed(2)
        self.images = torch.randn(given.batch, 3, given.image, given.image)
        self.labels = torch.randint(0, 1000, (given.batch,))
        self.optimizer = torch.optim.AdamW(self.weights, lr=1e-7, fused=True)

    def variant(self, row, how, is_compiled=False):
        model = copy.deepcopy(self.absolute, {id(p): p for p in self.weights})
        if row is not None:
            model.pos_embed = None
        positions = positions_of(self.side, row.scale if row else 1.0)
        for block in model.blocks:
            block.attn = Layer(block.attn, row, how, positions)
            if is_compiled:
                block.compile(fullgraph=True)
        own = [p for p in model.parameters() if not any(p is w for w in self.weights)]
        optimizers = [self.optimizer] + ([torch.optim.AdamW(own, lr=1e-7)] if own else [])
        return model, optimizers

    def back(self, variant):
        variant[0].train()
        nn.functional.cross_entropy(variant[0](self.images), self.labels).backward()

    def train(self, variant):
        self.back(variant)
        for optimizer in variant[1]:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    @torch.no_grad()
    def infer(self, variant):
        return variant[0].eval()(self.images)

    def gradients(self, variant):
        variant[0].eval()
        nn.functional.cross_entropy(variant[0](self.images), self.labels).backward()
        made = {name: p.grad.clone() for name, p in variant[0].named_parameters() if p.grad is not None}
        variant[0].zero_grad(set_to_none=True)
        return made


class Memory(TorchDispatchMode):
    """The most that tensors held at once, of those that were made in it."""

    def __init__(self):
        super().__init__()
        self.seen, self.held, self.most = {}, 0, 0

    def _freed(self, key):
        self.held -= self.seen.pop(key)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for x in made if isinstance(made, (tuple, list)) else [made]:
            if isinstance(x, torch.Tensor) and x.device.type == "cpu":
                storage = x.untyped_storage()
                if storage._cdata not in self.seen:
                    self.seen[storage._cdata] = storage.nbytes()
                    self.held += storage.nbytes()
                    weakref.finalize(storage, self._freed, storage._cdata)
        self.most = max(self.most, self.held)
        return made


def most_of(step, variant):
    step(variant)
    variant[0].zero_grad(set_to_none=True)
    gc.collect()
    with Memory() as memory:
        step(variant)
    variant[0].zero_grad(set_to_none=True)
    return memory.most


@contextlib.contextmanager
def locked(path):
    if path is None:
        yield
        return
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def seconds(step, variant, clock):
    gc.collect()
    start = clock()
    step(variant)
    return clock() - start


def compare(bed, name, row, variants):
    """Ends where kernels and formula are of another opinion; returns whether the kernels have gradients, and for which
    operands not."""
    expected = bed.infer(variants["formula"])
    trains, without, bound = True, set(), 2.0**-12
    for how in [how for how in ("kernel", "in place", "table") if how in variants]:
        if row.inputs:  # the projections of tokens
            variants[how][0].load_state_dict(
                {key: value for key, value in variants["formula"][0].state_dict().items() if "of_token" in key}, False
            )
        error = (bed.infer(variants[how]) - expected).abs().max() / expected.abs().max()
        if not error < bound:
            raise SystemExit(f"{name}, {how}: outputs are off by {error:.1e} of the largest")
        if how == "table":
            continue
        try:
            found = bed.gradients(variants[how])
        except ArgumentError:
            trains = False
            continue
        for key, gradient in bed.gradients(variants["formula"]).items():
            if key not in found:
                without.add(key.rpartition(".")[2])
                continue
            error = (found[key] - gradient).abs().max() / gradient.abs().max().clamp(min=1e-12)
            if not error < 2.0**-8:
                raise SystemExit(f"{name}, {how}: the gradient of {key} is off by {error:.1e} of the largest")
    return trains, without


def measure(bed, given, step, variants, bases):
    """Times of rounds by name; what takes more than eight times as long as its base is run twice."""
    clock = time.process_time if given.threads == 1 else time.perf_counter
    every = {**{f"base {kind}": base for kind, base in bases.items()}, **variants}
    for name, variant in list(every.items()):
        try:
            step(variant)  # compiles
        except RuntimeError as error:  # as of a gradient of torch.matrix_exp in a compiled graph
            if "compiled formula" != name:
                raise
            del every[name], variants[name]
            print(f"  torch.compile of the formula fails: {str(error).splitlines()[0][:80]}", flush=True)
    times = {name: [] for name in every}
    for turn in range(given.rounds):
        with locked(given.lock):
            for name, variant in every.items():
                if turn < 2 or min(times[name]) < 8 * min(times["base eager"]):
                    times[name].append(seconds(step, variant, clock))
    return times


def share(times, base):
    """Percent above the base, and how far rounds are from agreeing."""
    shares = [100 * (x / y - 1) for x, y in zip(times, base)]
    low, middle, high = statistics.quantiles(shares, method="inclusive") if len(shares) > 1 else 3 * shares
    return middle, (high - low) / 2


def report(bed, given, what, times, variants, bases):
    step = bed.infer if what == "inference" else bed.back
    own = most_of(step, bases["eager"])
    for name, variant in variants.items():
        is_compiled = name.startswith("compiled ")
        base = times["base compiled" if is_compiled else "base eager"]
        line = f"  {what:9s} {'torch.compile' if is_compiled else 'eager':13s} {name.removeprefix('compiled '):11s}"
        line += "{:+8.1f} % (+- {:.1f})".format(*share(times[name], base))
        if not is_compiled:
            line += f" {(most_of(step, variant) - own) / given.depth / 2**20:+8.2f} MiB a layer"
        tables = [block.attn.table.size for block in variant[0].blocks if getattr(block.attn, "table", None)]
        print(line + (f", and a table of {tables[0] / 2**20:.2f}" if tables else ""), flush=True)


def run(bed, given, name, bases):
    row = ROWS[name]
    variants = {how: bed.variant(row, how) for how in row.hows}
    trains, fixed = compare(bed, name, row, variants)
    if given.compile:
        variants |= {f"compiled {how}": bed.variant(row, how, True) for how in ("formula", "kernel")}
    print(f"{name}:", flush=True)
    report(bed, given, "inference", measure(bed, given, bed.infer, variants, bases), variants, bases)
    without = ("table",) if trains else ("table", "kernel", "in place")
    variants = {key: value for key, value in variants.items() if key.removeprefix("compiled ") not in without}
    report(bed, given, "training", measure(bed, given, bed.train, variants, bases), variants, bases)
    if not trains:
        print("  training  the kernel has no gradients yet", flush=True)
    elif fixed:
        print(f"  training  the kernel has no gradients of {', '.join(sorted(fixed))} yet", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encodings", nargs="*", metavar="ENCODING", help=f"of {', '.join(ROWS)}; default: all")
    for name, value in (("depth", 12), ("batch", 8), ("image", 224), ("rounds", 5), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--lock")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch._dynamo.config.recompile_limit = 1000  # layers of all variants are one piece of code
    if unknown := [name for name in given.encodings if name not in ROWS]:
        parser.error(f"no encoding '{unknown[0]}'; there is: {', '.join(ROWS)}")
    bed = Bed(given)
    bases = {"eager": bed.variant(None, "none")}
    if given.compile:
        bases["compiled"] = bed.variant(None, "none", True)
    times = {
        "inference": measure(bed, given, bed.infer, {}, bases),
        "training": measure(bed, given, bed.train, {}, bases),
    }
    rows = 2 * given.batch * 12 * (bed.side**2 + 1) * 64 * 4 / 2**20
    size = f"{given.depth} layers, [{given.batch}, 3, {given.image}, {given.image}]"
    print(f"ViT-B/16, {size}, {given.threads} thread(s), "
          f"PyTorch {torch.__version__}; q and k of a layer: {rows:.2f} MiB")  # fmt: skip
    for what, of in times.items():
        print(f"learned absolute positions: {what} " + ", ".join(
            f"{key[5:]} {min(seen):.3f} s" for key, seen in of.items()), flush=True)  # fmt: skip
    for name in given.encodings or ROWS:
        run(bed, given, name, bases)


if __name__ == "__main__":
    main()
