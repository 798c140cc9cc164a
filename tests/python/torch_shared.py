"""What tests of pegen_kernels.torch share."""
import functools

import torch

import pegen_kernels as pk


FAST = {"targets": "native", "dtypes": "float32"}
BOTH = {"targets": "native", "dtypes": ["float32", "bfloat16"]}


def rope(x, positions, base=10000.0):
    d = x.shape[-1]
    angle = positions[:, :1].double() * base ** (-2 * torch.arange(d // 2) / d)
    even, odd = x[..., 0::2].double(), x[..., 1::2].double()
    return torch.stack([angle.cos() * even - angle.sin() * odd, angle.sin() * even + angle.cos() * odd], -1).flatten(-2)


MANY = "alibi beit fire gpt_oss kerple relative_bias_table sandwich swin t5".split()  # by default, of heads


@functools.lru_cache(maxsize=None)
def small(spec):
    """A stock description's kernel with few channels and heads, and what it was compiled with."""
    options = {"block": 4, "head_dim": 8} if spec in ("liere", "comrope_ap", "comrope_ld") else {"head_dim": 16}
    options = {"channels": 8} if spec in ("learned_absolute", "sincos", "pope") else options
    options |= {"heads": 2} if spec in MANY else {"heads": 6} if spec == "lookhere" else {}
    return pk.compile(spec, **options, **FAST), options


def gradcheck(call, inputs, eps=1e-2, tolerance=2e-3):
    """torch.autograd.gradcheck by one random direction an input, with sums in float64."""
    return torch.autograd.gradcheck(
        call, tuple(inputs), eps=eps, atol=tolerance, rtol=tolerance, nondet_tol=0, check_undefined_grad=False
    )
