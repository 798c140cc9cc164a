#!/usr/bin/env python3
"""FLUX of diffusers with its rotation by a pegen kernel; as a program: how far apart the two are, and what they take.

FLUX makes cosines and sines once a call, by which each block rotates queries and keys. Here the blocks get a function
in their place, which calls a kernel with the tokens' positions. Gradients go through it.
"""
import functools
import time

import torch
from diffusers.models.transformers import transformer_flux
from pegen_kernels.torch import Encoding


class Rotation(torch.nn.Module):  # in the place of FluxPosEmbed, with the same numbers
    def __init__(self, theirs, **options):
        super().__init__()
        sections = ",".join(str(channels // 2) for channels in theirs.axes_dim)
        self.encode = Encoding("rope_axial", axes=len(theirs.axes_dim), sections=sections, base=theirs.theta,
                               head_dim=sum(theirs.axes_dim), **options)  # fmt: skip

    def rotate(self, positions, rows):
        """rows: [batches, tokens, heads, channels], read where they lie. positions: [tokens, axes]."""
        return self.encode(rows.transpose(1, 2), positions=positions).transpose(1, 2)

    def forward(self, ids):
        return functools.partial(self.rotate, ids.float())


def _apply(theirs, rows, rotation, **options):
    return rotation(rows) if callable(rotation) else theirs(rows, rotation, **options)


def use_pegen(model, **options):
    """Makes one FluxTransformer2DModel rotate by a kernel. options: of `pegen_kernels.compile`."""
    if getattr(transformer_flux.apply_rotary_emb, "func", None) is not _apply:
        transformer_flux.apply_rotary_emb = functools.partial(_apply, transformer_flux.apply_rotary_emb)
    if not isinstance(model.pos_embed, Rotation):
        model.pos_embed = Rotation(model.pos_embed, **options)


def main():
    """Rotates queries of FLUX.1 at 1024 x 1024 pixels, 512 tokens of text before them."""
    theirs, rows = transformer_flux.FluxPosEmbed(10000, [16, 56, 56]), torch.randn(1, 4608, 24, 128)
    grid, results = torch.cartesian_prod(torch.zeros(1), torch.arange(64.0), torch.arange(64.0)), []
    ids = torch.cat([torch.zeros(512, 3), grid])
    for name, made in (("diffusers", theirs), ("pegen", Rotation(theirs))):
        times, rotation = [], made(ids)  # Once a call of the model.
        for _ in range(9):
            begin = time.perf_counter()
            rotated = _apply(transformer_flux.apply_rotary_emb, rows, rotation, sequence_dim=1)
            times.append(time.perf_counter() - begin)
        results.append(rotated)
        print(f"{name}: {1e3 * sorted(times)[4]:.1f} ms")
    print(f"apart by at most {(results[1] - results[0]).abs().max():.1e}")


if __name__ == "__main__":
    with torch.no_grad():
        main()
