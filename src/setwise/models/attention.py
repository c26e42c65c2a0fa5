"""Attention, in the pieces that set encoders and decoders are made of.

Legend: N queries, T elements of the memory, D = ``width``; ``*`` any leading dimensions.

Each piece adds to what it is given, which is normalised before it is read (Xiong et al., 2020). The
attention itself is PyTorch's. Nothing here knows an order: results follow the queries, and do not
depend on the order of the memory.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from setwise.models.deep_sets import check_booleans, check_floats, check_size


class Attention(nn.Module):
    """``queries + attention(norm(queries), norm(memory))``: [*, N, D] -> [*, N, D].

    Elements of the memory where ``valid`` [*, T] is False are not seen; where all are, what is
    added is the same whatever they hold, as long as they are zeros.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        check_heads(width, heads)
        self.heads = heads
        self.query_norm, self.memory_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key_value = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.output = nn.Linear(width, width)

    def forward(self, queries: Tensor, memory: Tensor, valid: Tensor | None = None) -> Tensor:
        query = self._split(self.query(self.query_norm(queries)))
        key, value = map(self._split, self.key_value(self.memory_norm(memory)).chunk(2, dim=-1))
        read = attend(query, key, value, None if valid is None else valid.unsqueeze(-2))
        return queries + self.output(read.transpose(-3, -2).flatten(-2))

    def _split(self, elements: Tensor) -> Tensor:
        """[*, N, D] -> [*, heads, N, D / heads]."""
        return elements.unflatten(-1, (self.heads, -1)).transpose(-3, -2)


def attend(query: Tensor, key: Tensor, value: Tensor, valid: Tensor | None) -> Tensor:
    """PyTorch's attention of queries [*, N, D] to T elements; ``valid`` [*, T] may be broadcast."""
    # Where all are hidden, all are seen, as zeros by then: not every kernel can look at nothing.
    seen = None if valid is None else (valid | ~valid.any(-1, keepdim=True)).unsqueeze(-2)
    if torch._C._are_functorch_transforms_active():
        # Fused kernels cannot be mapped over an ensemble: the CPU's not at all, and that of a GPU
        # has no gradients then ("LSE is not correctly aligned").
        with sdpa_kernel(SDPBackend.MATH):
            return functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)


class FeedForward(nn.Module):
    """``x + layers(norm(x))``, each element alone: [*, D] -> [*, D]."""

    def __init__(self, width: int, factor: int = 2) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, factor * width),
            nn.ReLU(),
            nn.Linear(factor * width, width),
        )

    def forward(self, elements: Tensor) -> Tensor:
        return elements + self.layers(elements)


class Reader(nn.Module):
    """Attention and what is made of it: queries [*, N, D] that have read a memory [*, T, D]."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention, self.feed_forward = Attention(width, heads), FeedForward(width)

    def forward(self, queries: Tensor, memory: Tensor, valid: Tensor | None = None) -> Tensor:
        return self.feed_forward(self.attention(queries, memory, valid))


def learned_elements(size: int, width: int) -> nn.Parameter:
    """[N, D] that differ from the start, as a symmetry between them would never be broken."""
    return nn.Parameter(torch.randn(size, width))


def check_heads(width: int, heads: int) -> None:
    """Each head gets an equal share of the width."""
    check_size("width", width)
    check_size("heads", heads)
    if width % heads:
        raise ValueError(f"heads: {heads} of them cannot share a width of {width}; it must divide")


def check_memory(memory: Tensor, valid: Tensor | None, width: int) -> Tensor:
    """A memory [*, T, D] in which hidden elements are zeros: a NaN there would reach gradients."""
    check_floats("memory", memory, "[*, elements, width]", 2, width)
    return memory if valid is None else hide("memory", memory, valid)


def hide(name: str, elements: Tensor, valid: Tensor) -> Tensor:
    """Elements [*, N, F] with zeros where ``valid`` [*, N] is False."""
    check_booleans("valid", valid)
    if valid.shape != elements.shape[:-1]:
        raise ValueError(
            f"valid: expected one flag per element of {name}, shape {tuple(elements.shape[:-1])}, "
            f"got {tuple(valid.shape)}"
        )
    return elements.masked_fill(~valid.unsqueeze(-1), 0.0)
