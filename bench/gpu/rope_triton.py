"""RoPE in place as one Triton kernel, a program a token: what a kernel written by hand reaches."""
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _rotate(x, cos, sin, of_token, of_head, of_batch, tokens, heads, D: tl.constexpr, HEADS: tl.constexpr):
    program = tl.program_id(0)
    batch, token = program // tokens, program % tokens
    lane, head = tl.arange(0, D // 2), tl.arange(0, HEADS)
    c = tl.load(cos + token * D + lane)[None, :].to(tl.float32)
    s = tl.load(sin + token * D + lane)[None, :].to(tl.float32)
    at = x + batch * of_batch + token * of_token + head[:, None] * of_head + lane[None, :]
    inside = head[:, None] < heads
    first = tl.load(at, mask=inside).to(tl.float32)
    second = tl.load(at + D // 2, mask=inside).to(tl.float32)
    tl.store(at, first * c - second * s, mask=inside)
    tl.store(at + D // 2, second * c + first * s, mask=inside)


def rotate(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Rotates pairs (j, j + D/2) of rows [batches, heads, tokens, D]; cos and sin are [tokens, D], halves alike."""
    for x in (q, k):
        batches, heads, tokens, width = x.shape
        _rotate[(batches * tokens,)](
            x, cos, sin, x.stride(2), x.stride(1), x.stride(0), tokens, heads, D=width,
            HEADS=triton.next_power_of_2(heads),
        )  # fmt: skip
