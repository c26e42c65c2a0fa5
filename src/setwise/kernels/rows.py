"""Elements by their number, with a gradient that adds up in a fixed order.

Legend: B sets, N elements, M of them asked for, F features.

Where several targets share their nearest output, its gradient is a sum. PyTorch's backward of
indexing sorts before it adds, on CUDA too, but ``torch.compile`` makes atomic additions of it,
which come in any order. As operators, which it keeps whole, these two stay what they are.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from setwise.kernels.operators import fold_mapped_dimension


def rows(elements: Tensor, index: Tensor) -> Tensor:
    """``elements[b, index[b, i]]``: [B, N, F], [B, M] -> [B, M, F]; differentiable to any order."""
    if not torch.compiler.is_compiling():
        return elements[_batch(index), index]  # which has every derivative, forward mode included
    taken: Tensor = Take.apply(elements, index)
    return taken


@torch.library.custom_op("setwise::take", mutates_args=())
def take(elements: Tensor, index: Tensor) -> Tensor:
    return elements[_batch(index), index]


@torch.library.custom_op("setwise::put", mutates_args=())
def put(taken: Tensor, index: Tensor, size: int) -> Tensor:
    """The sum [B, size, F] of what was taken from each element."""
    B, _, F = taken.shape
    return taken.new_zeros(B, size, F).index_put_((_batch(index), index), taken, accumulate=True)


def _batch(index: Tensor) -> Tensor:
    return torch.arange(index.shape[0], device=index.device).unsqueeze(-1).expand_as(index)


@take.register_fake
def _(elements: Tensor, index: Tensor) -> Tensor:
    return elements.new_empty(*index.shape, elements.shape[-1])


@put.register_fake
def _(taken: Tensor, index: Tensor, size: int) -> Tensor:
    return taken.new_empty(taken.shape[0], size, taken.shape[-1])


for _op in (take, put):
    _op.register_vmap(fold_mapped_dimension(_op))


class Take(torch.autograd.Function):
    """The differentiable face of `take`; see `setwise.kernels.operators.LogSumExp`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(elements: Tensor, index: Tensor) -> Tensor:
        return take(elements, index)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        elements, index = inputs
        ctx.save_for_backward(index)
        ctx.size = elements.shape[1]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        return Put.apply(grad, index, ctx.size), None


class Put(torch.autograd.Function):
    """The differentiable face of `put`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(taken: Tensor, index: Tensor, size: int) -> Tensor:
        return put(taken, index, size)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (index,) = ctx.saved_tensors
        return Take.apply(grad, index), None, None
