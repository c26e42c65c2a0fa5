"""Sums over the differences of elements: of few features one by one, else in double precision.

Legend: B sets, M queries, N keys, D features that are compared.

Near each other and far from the origin, two elements differ by much less than they are large. In
products of float32 the difference drowns; formed before it is squared it would not, at the price of
a pass over all pairs for every feature. Products of float64 have twice the digits, more than the
distance from the middle of the elements takes, at the speed of a matrix product. But for points
the passes are as fast, and exact however far away they are; and float64 has no type of twice the
digits. There each feature is compared before it is squared.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from setwise.kernels.transforms import has_tangent, is_eager

# Up to so many features, a pass for each takes no longer than a product of float64.
FEW = 4


def squares(x: Tensor, y: Tensor, sharpness: Tensor) -> Tensor:
    """``sum_f c_f (x_if - y_jf)^2``: [B, M, D], [B, N, D], [B, D] -> [B, M, N]."""
    if _go_one_by_one(x):
        if not is_eager() or has_tangent(x, y, sharpness):
            return _one_by_one(x, y, x, y, sharpness)  # plain steps, to be looked through
        found: Tensor = Squares.apply(x, y, sharpness)
        return found
    a, b = _from_their_middle(x, y)
    c = _widened(sharpness).unsqueeze(1)
    own_a, own_b = (_sum(c * t.square()) for t in (a, b))
    return _product([a, own_a, _ones(a)], [-2 * c * b, _ones(b), own_b]).to(x.dtype)


def products(x: Tensor, y: Tensor, u: Tensor, v: Tensor, factor: Tensor) -> Tensor:
    """``sum_f c_f (x_if - y_jf) (u_if - v_jf)``, shape [B, M, N]."""
    if _go_one_by_one(x):
        return _one_by_one(x, y, u, v, factor)
    a, b = _from_their_middle(x, y)
    s, t = _widened(u), _widened(v)
    c = _widened(factor).unsqueeze(1)
    left = [c * a, c * s, _sum(c * a * s), _ones(a)]
    right = [-t, -b, _ones(b), _sum(c * b * t)]
    return _product(left, right).to(x.dtype)


def pulls(p: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """``sum_j p_ij (x_i - y_j)``: [B, M, N], [B, M, D], [B, N, D] -> [B, M, D]."""
    a, b = _from_their_middle(x, y)
    sums = torch.bmm(_widened(p), torch.cat([b, _ones(b)], dim=-1))
    return (a * sums[..., -1:] - sums[..., :-1]).to(x.dtype)


def moments(p: Tensor, x: Tensor, y: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """``sum_ij p_ij (x_if - y_jf) (u_if - v_jf)``, shape [B, D]."""
    a, b = _from_their_middle(x, y)
    s, t = _widened(u), _widened(v)
    D = x.shape[-1]
    sums = torch.bmm(_widened(p), torch.cat([b, t, b * t, _ones(b)], dim=-1))
    of_b, of_t, of_both, total = sums.split([D, D, D, 1], dim=-1)
    return (a * s * total - a * of_t - s * of_b + of_both).sum(dim=1).to(x.dtype)


class Squares(torch.autograd.Function):
    """One feature after the other, in steps that keep no difference for the backward pass."""

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


def _go_one_by_one(x: Tensor) -> bool:
    return x.shape[2] <= FEW or x.dtype == torch.float64


def _one_by_one(x: Tensor, y: Tensor, u: Tensor, v: Tensor, factor: Tensor) -> Tensor:
    total = x.new_zeros(x.shape[0], x.shape[1], y.shape[1])
    for f in range(x.shape[2]):
        total = total + factor[:, f, None, None] * _apart(x, y, f) * _apart(u, v, f)
    return total


def _apart(x: Tensor, y: Tensor, f: int) -> Tensor:
    return x[..., f].unsqueeze(2) - y[..., f].unsqueeze(1)


def _from_their_middle(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """In double precision; where they are counted from is no variable, nor ever NaN."""
    x, y = _widened(x), _widened(y)
    middle = y.detach().nan_to_num(0.0, 0.0, 0.0).mean(dim=1, keepdim=True)
    return x - middle, y - middle


def _widened(elements: Tensor) -> Tensor:
    """To float64, where the device has it: Apple's has not."""
    return elements if elements.device.type == "mps" else elements.double()


def _product(left: list[Tensor], right: list[Tensor]) -> Tensor:
    return torch.bmm(torch.cat(left, dim=-1), torch.cat(right, dim=-1).transpose(1, 2))


def _sum(features: Tensor) -> Tensor:
    return features.sum(dim=-1, keepdim=True)


def _ones(elements: Tensor) -> Tensor:
    return torch.ones_like(elements[..., :1])
