#!/usr/bin/env python3
"""timm_vit: a ViT of timm whose queries and keys are encoded, in place of learned positions.

    python3 timm_vit.py [ENCODING]    geope2d, rope_mixed, quatro, care, liere, ...: steps of training, and their time

timm 1.0.31 has no argument for encodings of others: `pos_embed` is "learn" or "none", and `rope_type` names its own.
It normalises queries and keys before they meet, by modules of each block. The encoding is put behind these.
"""
import sys
import time

import timm
import torch
from pegen_kernels.torch import Encoding


class Encoded(torch.nn.Module):
    """A norm of timm's, and then the encoding of its rows [batches, heads, tokens, channels]."""

    def __init__(self, norm, encoding, places):
        super().__init__()
        self.norm, self.encoding = norm, encoding
        self.register_buffer("places", places, persistent=False)

    def forward(self, rows):
        return self.encoding(self.norm(rows), positions=self.places)


def use_pegen(model, name, **options):
    """Encodes queries and keys of a VisionTransformer that was made with pos_embed="none". Tokens before the patches
    stand at (0, 0). Each block has operands of its own. options: of the description and of `pegen_kernels.compile`."""
    grid = [torch.arange(float(n)) for n in model.patch_embed.grid_size]
    places = torch.cat([torch.zeros(model.num_prefix_tokens, 2), torch.cartesian_prod(*grid)])
    for block in model.blocks:
        attention = block.attn
        encoding = Encoding(name, head_dim=attention.head_dim, **options)
        attention.q_norm = Encoded(attention.q_norm, encoding, places)
        attention.k_norm = Encoded(attention.k_norm, encoding, places)
    return model


def main(name="geope2d"):
    torch.manual_seed(0)
    options = {} if name.startswith("geope") else {"heads": 6}
    model = timm.create_model("vit_small_patch16_224", pos_embed="none", num_classes=10)
    model = use_pegen(model, name, **options)
    images, labels = torch.randn(8, 3, 224, 224), torch.arange(8)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    for step in range(4):
        begin = time.perf_counter()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.3f}, {time.perf_counter() - begin:.2f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
