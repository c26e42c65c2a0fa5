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


def gather_elements(elements: Tensor, index: Tensor) -> Tensor:
    """``elements[b, index[b, i]]``: [B, N, F], [B, M] -> [B, M, F]; differentiable to any order."""
    # Indexing has every derivative, forward mode included; compilers cannot see through an operator
    # that ``torch.func`` differentiates.
    if not torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return elements[_batch(index), index]
    gathered: Tensor = Gather.apply(elements, index)
    return gathered


@torch.library.custom_op("setwise::gather", mutates_args=())
def gather(elements: Tensor, index: Tensor) -> Tensor:
    return elements[_batch(index), index]


@torch.library.custom_op("setwise::scatter_add", mutates_args=())
def scatter_add(gathered: Tensor, index: Tensor, size: int) -> Tensor:
    """The sum [B, size, F] of what was gathered from each element."""
    B, _, F = gathered.shape
    return gathered.new_zeros(B, size, F).index_put_(
        (_batch(index), index), gathered, accumulate=True
    )


def _batch(index: Tensor) -> Tensor:
    return torch.arange(index.shape[0], device=index.device).unsqueeze(-1).expand_as(index)


@gather.register_fake
def _(elements: Tensor, index: Tensor) -> Tensor:
    return elements.new_empty(*index.shape, elements.shape[-1])


@scatter_add.register_fake
def _(gathered: Tensor, index: Tensor, size: int) -> Tensor:
    return gathered.new_empty(gathered.shape[0], size, gathered.shape[-1])


for _op in (gather, scatter_add):
    _op.register_vmap(fold_mapped_dimension(_op))


class Gather(torch.autograd.Function):
    """The differentiable face of `gather`; see `setwise.kernels.operators.LogSumExp`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(elements: Tensor, index: Tensor) -> Tensor:
        return gather(elements, index)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        elements, index = inputs
        ctx.save_for_backward(index)
        ctx.size = elements.shape[1]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        return ScatterAdd.apply(grad, index, ctx.size), None


class ScatterAdd(torch.autograd.Function):
    """The differentiable face of `scatter_add`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(gathered: Tensor, index: Tensor, size: int) -> Tensor:
        return scatter_add(gathered, index, size)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (index,) = ctx.saved_tensors
        return Gather.apply(grad, index), None, None
