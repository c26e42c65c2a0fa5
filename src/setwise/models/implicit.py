"""A decoder that is an optimisation: the set whose encoding is nearest to the vector given.

Legend: N = ``size`` outputs, T elements of the memory, D = ``inputs``, H hidden numbers; ``*`` any
leading dimensions.
"""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import Tensor, nn

from setwise.arguments import check_number
from setwise.models.attention import check_memory, learned_elements
from setwise.models.deep_sets import check_size
from setwise.models.initialise import glorot
from setwise.models.set_transformer import PooledReader

_MOMENTUM = 0.9


class ImplicitDecoder(nn.Module):
    r"""Memories [*, T, D] -> elements [*, N, D]: iDSPN (Zhang et al., 2022).

    The memory is read into a vector z, and the elements are those that minimise

    .. math:: \tfrac12 |g(Y) - z|^2 + \tfrac\lambda2 |Y - Y_0|^2

    g encodes a set: two layers for each element, then every feature is sorted over the set and
    added up with learned weights by rank (FSPool; Zhang et al., 2020), which tells equal elements
    apart. :math:`Y_0` is learned, and :math:`\lambda` is ``pull``. ``steps`` of gradient descent
    with momentum find the minimum, and no graph is kept of them. Gradients are those of
    ``differentiated`` more steps from there, without momentum: one is the approximation of the
    paper, and more are as many terms of Neumann's series for the exact implicit derivative.

    >>> decoder = ImplicitDecoder(inputs=16, size=3, heads=2)
    >>> decoder(torch.rand(5, 7, 16)).shape
    torch.Size([5, 3, 16])
    """

    def __init__(
        self,
        inputs: int,
        size: int,
        steps: int = 20,
        differentiated: int = 1,
        pull: float = 0.1,
        heads: int = 4,
    ) -> None:
        super().__init__()
        for name, given in [("inputs", inputs), ("size", size), ("differentiated", differentiated)]:
            check_size(name, given)
        check_size("steps", steps, least=0)
        self.pull = check_number("pull", pull, 0.0, 1e6)
        self.inputs, self.size, self.features = inputs, size, inputs
        self.steps, self.differentiated = steps, differentiated
        self.pool = PooledReader(inputs, heads, seeds=1)
        self.target = nn.Linear(inputs, 2 * inputs)
        self.first = learned_elements(size, inputs)
        self.encoder = SortedEncoder(inputs, 2 * inputs, size)
        glorot(self)

    def forward(self, memory: Tensor, valid: Tensor | None = None) -> Tensor:
        """Elements of the memory where ``valid`` [*, T] is False are not seen."""
        memory = check_memory(memory, valid, self.inputs)
        target = self.target(self.pool(memory, valid)).squeeze(-2)
        elements = self.first.expand(*target.shape[:-1], self.size, self.inputs)
        with torch.no_grad():
            rate = 1 / (self.encoder.steepness() + self.pull)
            velocity = torch.zeros_like(elements)
            for _ in range(self.steps):
                ahead = elements + _MOMENTUM * velocity
                velocity = _MOMENTUM * velocity - rate * self.slope(ahead, target)
                elements = elements + velocity
        elements = elements.detach()
        for _ in range(self.differentiated):
            elements = elements - rate * self.slope(elements, target)
        return elements

    def slope(self, elements: Tensor, target: Tensor) -> Tensor:
        """The gradient [*, N, D] of what is minimised; written out, so that it has gradients."""
        encoded, pull_back = self.encoder(elements)
        return pull_back(encoded - target) + self.pull * (elements - self.first)


class SortedEncoder(nn.Module):
    """``g``: sets [*, N, D] -> [*, H]; calling it gives this and how a change of it pulls back."""

    def __init__(self, width: int, hidden: int, size: int) -> None:
        super().__init__()
        self.lower, self.upper = nn.Linear(width, hidden), nn.Linear(hidden, hidden)
        self.by_rank = nn.Parameter(torch.randn(size, hidden) * size**-0.5)

    def forward(self, elements: Tensor) -> tuple[Tensor, _PullBack]:
        below = self.lower(elements)
        above = self.upper(below.relu())  # [*, N, H]
        ranks = above.argsort(dim=-2).argsort(dim=-2)
        weights = self.by_rank.expand_as(above).gather(-2, ranks)
        encoded = (weights * above).sum(dim=-2)
        return encoded, _PullBack(self, below > 0, weights)

    def steepness(self) -> Tensor:
        """An upper bound of the curvature of half the square of g, so that no step is too long."""
        kind = self.by_rank.device.type
        autocast = torch.is_autocast_enabled(kind)
        with torch.autocast(kind, enabled=False) if autocast else nullcontext():
            by_rank = _wide(self.by_rank).square().sum(dim=0).max()
            return by_rank * _largest(self.lower.weight) * _largest(self.upper.weight)


class _PullBack:
    """The transposed Jacobian of an encoded set: changes [*, H] -> changes [*, N, D]."""

    def __init__(self, encoder: SortedEncoder, active: Tensor, weights: Tensor) -> None:
        self.encoder, self.active, self.weights = encoder, active, weights

    def __call__(self, change: Tensor) -> Tensor:
        above = self.weights * change.unsqueeze(-2)
        below = (above @ self.encoder.upper.weight) * self.active
        return below @ self.encoder.lower.weight


def _largest(weight: Tensor) -> Tensor:
    """The square of the largest singular value, or little more: by less than H^(1/8).

    ``trace((W' W)^8)^(1/8)`` is a sum over all singular values, in which the largest outdo the
    others; scaled so that no power leaves the range of its type, which 16 bits are too few for.
    """
    weight = _wide(weight)
    gram = weight.mT @ weight
    trace = gram.diagonal(dim1=-2, dim2=-1).sum(-1).clamp(min=torch.finfo(weight.dtype).tiny)
    power = gram / trace
    for _ in range(3):
        power = power @ power
    return trace * power.diagonal(dim1=-2, dim2=-1).sum(-1) ** (1 / 8)


def _wide(weight: Tensor) -> Tensor:
    return weight.to(torch.promote_types(weight.dtype, torch.float32))
