"""The programs of examples/executorch.cpp: rows turned by positions, as a node of our own and as PyTorch's formula.

python3 executorch_graph.py 1024 32 rope.pte         tokens, heads of 64 channels
"""
import sys

import torch
from executorch.exir import to_edge

# The operator has a name and a shape here and a kernel in executorch.cpp; ExecuTorch asks for both ways of writing it.
library = torch.library.Library("pegen", "DEF")
library.define("rope(Tensor rows, Tensor positions) -> Tensor")
library.define("rope.out(Tensor rows, Tensor positions, *, Tensor(a!) out) -> Tensor(a!)")
for name in ("rope", "rope.out"):
    library.impl(name, lambda rows, positions, out=None: torch.empty_like(rows), "CompositeExplicitAutograd")
    torch.library.register_fake(f"pegen::{name}", lambda rows, positions, out=None: torch.empty_like(rows))


class Ours(torch.nn.Module):
    def forward(self, rows, positions):
        return torch.ops.pegen.rope(rows, positions)


class Theirs(torch.nn.Module):
    """As in ExecuTorch's own Llama: pairs side by side, cosines and sines of all positions stored in the program."""

    def __init__(self, tokens):
        super().__init__()
        angles = torch.arange(tokens).double()[:, None] * 10000.0 ** (-torch.arange(0, 64, 2).double() / 64)
        self.register_buffer("cos", angles.cos().float()[:, None])
        self.register_buffer("sin", angles.sin().float()[:, None])

    def forward(self, rows, positions):
        cos, sin = self.cos[positions], self.sin[positions]
        even, odd = rows.unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(3)


def main():
    tokens, heads, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    given = torch.randn(1, tokens, heads, 64), torch.arange(tokens)
    programs = {"ours": Ours(), "theirs": Theirs(tokens)}
    programs = {name: torch.export.export(module, given) for name, module in programs.items()}
    with open(path, "wb") as file:
        file.write(to_edge(programs).to_executorch().buffer)


if __name__ == "__main__":
    main()
