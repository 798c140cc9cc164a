"""Forward-mode differentiation. Rows that are encoded are linear in rows (gradients.py), and attention has an operator
of its own (attention.py). Any other tangent is refused where a kernel would drop it."""
from __future__ import annotations

from typing import Any, Callable, Iterable

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..errors import ArgumentError
from .names import kernel_of


def no_tangent(what: str) -> ArgumentError:
    return ArgumentError(
        f"{what} has no forward-mode derivatives (torch.func.jvp, jacfwd, linearize, torch.autograd.forward_ad);"
        " expected reverse mode (torch.func.vjp, jacrev, backward)"
    )


def refuse_tangents(what: str, tensors: Iterable[Any]) -> None:
    """Raises where one of the tensors has a tangent, as in forward-mode differentiation: a kernel would drop it. what:
    who is differentiated, in the words of the message."""
    if have_tangents(tensors):
        raise no_tangent(what)


def have_tangents(tensors: Iterable[Any]) -> bool:
    return forward_ad._current_level >= 0 and any(isinstance(x, Tensor) and _has_tangent(x) for x in tensors)


def _has_tangent(x: Tensor) -> bool:
    try:
        return forward_ad.unpack_dual(x).tangent is not None
    except RuntimeError:  # one of vmap's, which is asked again when batches are one
        return False


def below_autograd(call: Any) -> Callable[..., Any]:
    """The operator without what autograd does at it."""

    def called(*given: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return call(*given)

    return called


def refusing(name: str, call: Any) -> Callable[..., Any]:
    """What autograd does at an operator that it does not see: graphs hold such operators, and may get tangents."""
    what, run = name.partition("_")[0], below_autograd(call)

    def refused(*given: Any) -> Any:
        if forward_ad._current_level >= 0:
            kernel = next(x for x in given if isinstance(x, str))
            tensors = (y for x in given for y in (x if isinstance(x, (list, tuple)) else (x,)))
            refuse_tangents(f"{what} of {kernel_of(kernel).name}", tensors)
        return run(*given)

    return refused
