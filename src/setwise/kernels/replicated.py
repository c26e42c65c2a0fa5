"""Numbers that all processes of a group have alike, and the gradients that go with that.

Each process goes on with the same numbers and computes the same loss from them. A gradient that
comes back is therefore the whole one already, and is not to be added up once more; that of what
all processes have put in alike is a part on each of them, and is.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.distributed import ProcessGroup


def total(tensor: Tensor, group: ProcessGroup) -> Tensor:
    """The sum over all ranks, which each of them goes on with: a gradient is that of the sum."""
    result: Tensor = Total.apply(tensor, group)
    return result


class Total(torch.autograd.Function):
    """Every rank computes the same from the sum, so each gradient is already the whole one."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: ProcessGroup) -> Tensor:
        tensor = tensor.clone()
        dist.all_reduce(tensor, group=group)
        return tensor

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


def shared(tensor: Tensor, group: ProcessGroup) -> Tensor:
    """What all ranks have alike, a temperature say: its gradient is the sum of theirs."""
    result: Tensor = Shared.apply(tensor, group)
    return result


class Shared(torch.autograd.Function):
    """The counterpart of `Total`."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: ProcessGroup) -> Tensor:
        ctx.group = group
        return tensor.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


def highest(tensor: Tensor, group: ProcessGroup) -> Tensor:
    """The largest number over all ranks in every place, without a gradient."""
    tensor = tensor.detach().clone()
    dist.all_reduce(tensor, dist.ReduceOp.MAX, group=group)
    return tensor


def largest(costs: Tensor, group: ProcessGroup) -> Tensor:
    """The largest of [B, M] over all ranks: [B]; equals share its gradient, as in PyTorch."""
    result: Tensor = Largest.apply(costs, group)
    return result


class Largest(torch.autograd.Function):
    """Only what is the largest of all has a gradient, on whatever rank it is."""

    @staticmethod
    def forward(ctx: Any, costs: Tensor, group: ProcessGroup) -> Tensor:
        value = highest(costs.amax(dim=-1), group)
        winners = costs == value.unsqueeze(-1)
        count = winners.sum(dim=-1)
        dist.all_reduce(count, group=group)
        ctx.save_for_backward(winners / count.unsqueeze(-1))
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (share,) = ctx.saved_tensors
        return grad.unsqueeze(-1) * share, None
