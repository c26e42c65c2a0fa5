"""Sums over the differences of elements: coordinates are compared before anything is squared.

Legend: B sets, M queries, N keys, D features that are compared.

Near each other and far from the origin, two elements differ exactly: their coordinates do not round
when they are subtracted. Squares and products taken before that do, by as much as the elements are
far away. So squares are formed feature by feature; a matrix product of float32 would lose them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def squares(x: Tensor, y: Tensor, sharpness: Tensor) -> Tensor:
    """``sum_f c_f (x_if - y_jf)^2``: [B, M, D], [B, N, D], [B, D] -> [B, M, N]; differentiable."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return products(x, y, x, y, sharpness)  # plain steps, for whoever looks through them
    found: Tensor = Squares.apply(x, y, sharpness)
    return found


class Squares(torch.autograd.Function):
    """In few steps, which keep no difference for the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, sharpness: Tensor) -> Tensor:
        ctx.save_for_backward(x, y, sharpness)
        total = x.new_zeros(x.shape[0], x.shape[1], y.shape[1])
        x, y = (t.mT.contiguous().mT for t in (x, y))  # neighbours are then loaded together
        for f in range(x.shape[2]):
            total.addcmul_(_apart(x, y, f).square_(), sharpness[:, f, None, None])
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, y, sharpness = ctx.saved_tensors
        need_x, need_y, need_sharpness = ctx.needs_input_grad
        slope = 2 * sharpness.unsqueeze(1)
        return (
            slope * pulls(grad, x, y) if need_x else None,
            slope * pulls(grad.mT, y, x) if need_y else None,
            moments(grad, x, y, x, y) if need_sharpness else None,
        )


def products(x: Tensor, y: Tensor, u: Tensor, v: Tensor, factor: Tensor) -> Tensor:
    """``sum_f c_f (x_if - y_jf) (u_if - v_jf)``, shape [B, M, N]."""
    total = x.new_zeros(x.shape[0], x.shape[1], y.shape[1])
    for f in range(x.shape[2]):
        total = total + factor[:, f, None, None] * _apart(x, y, f) * _apart(u, v, f)
    return total


def pulls(p: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """``sum_j p_ij (x_i - y_j)``: [B, M, N], [B, M, D], [B, N, D] -> [B, M, D].

    As a matrix product, for it is linear, and of twice the bits: what cancels there is below the
    rounding of float32 unless the elements are a hundred million times further away than apart.
    """
    dtype = p.dtype
    p, x, y, origin = (t.double() for t in (p, x, y, y[:, :1].detach()))
    ones = y.new_ones(1, 1, 1).expand(y.shape[0], 1, y.shape[1])
    # Few rows by many columns, not the other way round, which takes longer.
    sums = torch.bmm(torch.cat([(y - origin).mT, ones], dim=1), p.mT).mT
    return (sums[..., -1:] * (x - origin) - sums[..., :-1]).to(dtype)


def moments(p: Tensor, x: Tensor, y: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """``sum_ij p_ij (x_if - y_jf) (u_if - v_jf)``, shape [B, D]."""
    features = range(x.shape[2])
    sums = [(p * _apart(x, y, f) * _apart(u, v, f)).sum(dim=(1, 2)) for f in features]
    return torch.stack(sums, dim=-1)


def _apart(x: Tensor, y: Tensor, f: int) -> Tensor:
    return x[..., f].unsqueeze(2) - y[..., f].unsqueeze(1)
