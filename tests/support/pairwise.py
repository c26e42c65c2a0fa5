"""The engine on its own: a logsumexp over pairs, beside dense float64."""

from __future__ import annotations

import torch
from torch import Tensor

from setwise.kernels import dispatch


def agree(leaves: list[Tensor]) -> Tensor:
    """Compare with dense float64, where a score of 300 rounds by 3e-5; return the logsumexp."""
    found = []
    for impl, kind in (("triton", torch.float32), ("reference", torch.float64)):
        given = [t.detach().to(kind).requires_grad_() for t in leaves]
        value = dispatch.logsumexp(*given, impl, skip_negligible=True)
        found.append([value.detach(), *torch.autograd.grad(value.sum(), given)])
    for ours, exact in zip(*found, strict=True):
        torch.testing.assert_close(ours.double(), exact, rtol=1e-4, atol=1e-4)
    return found[0][0]
