#!/usr/bin/env python3
"""tangents.py [--rounds N] [--tokens N]: forward mode of attention beside its forward pass and PyTorch's own.

A forward pass has two products of N x N x D, and its tangent five: scores again, q' k and q k', S' v and P v'. So 2.5
forward passes are the limit of what tangents can take beside one. PyTorch's is torch.func.jvp of softmax(q k^T) v,
which stores scores and their tangents. Times are of the thread's processor time, the least of so many rounds.
"""
import argparse
import time

import pegen_kernels as pk
import torch
from pegen_kernels.torch import Attention

torch.set_num_threads(1)


def plain(q, k, v):
    return torch.softmax(q.shape[-1] ** -0.5 * q @ k.mT, -1) @ v


def least(rounds, works):
    """Seconds of each piece of work, which take turns."""
    times = [[] for _ in works]
    for _ in range(rounds):
        for found, work in zip(times, works):
            begin = time.thread_time()
            work()
            found.append(time.thread_time() - begin)
    return list(map(min, times))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[2].partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=1024)
    given = parser.parse_args()
    jvp = torch.func.jvp
    print("| [1,12,N,64], N tokens | forward, ms | jvp, ms | tangent / forward | PyTorch's jvp, ms |")
    print("|---|---|---|---|---|")
    for dtype in (torch.float32, torch.bfloat16):
        attention = Attention(pk.compile("attention", head_dim=64, value_dim=64))
        rows, moves = (tuple(torch.randn(1, 12, given.tokens, 64, dtype=dtype) for _ in range(3)) for _ in range(2))
        forward, both, theirs = least(given.rounds, [lambda: attention(*rows), lambda: jvp(attention, rows, moves),
                                                     lambda: jvp(plain, rows, moves)])  # fmt: skip
        figures = [f"{1e3 * forward:.1f}", f"{1e3 * both:.1f}", f"{both / forward - 1:.2f}", f"{1e3 * theirs:.1f}"]
        print(f"| {given.tokens}, {str(dtype)[6:]} |", " | ".join(figures), "|", flush=True)


if __name__ == "__main__":
    main()
