"""A decoder that is an optimisation: the set whose encoding is nearest to the vector given.

Legend: N = ``size`` outputs, F = ``features`` of each, T elements of the memory, D = ``inputs``,
L = ``latent``; ``*`` any leading dimensions.
"""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.linalg import vector_norm
from torch.nn import functional

from setwise.arguments import check_number
from setwise.models.attention import check_memory, learned_elements
from setwise.models.deep_sets import check_size
from setwise.models.initialise import glorot
from setwise.models.set_transformer import PooledReader

_MOMENTUM = 0.9
# The curvature is measured where the descent starts, in so many rounds of the power method. Later
# it may be so many times as high, and where it is higher still, steps of a set are no longer.
_ROUNDS, _MARGIN, _LONGEST = 8, 2.0, 10.0


class ImplicitDecoder(nn.Module):
    r"""Memories [*, T, D] -> elements [*, N, F]: iDSPN (Zhang et al., 2022).

    ``seeds`` that are learned read the memory, and what they have read is the vector z of
    ``latent`` numbers. The elements are those that minimise

    .. math:: \tfrac12 |g(Y) - z|^2 + \tfrac\lambda2 |Y - Y_0|^2

    g encodes a set: two layers for each element, then every feature is sorted over the set and
    added up with learned weights by rank (FSPool; Zhang et al., 2020), which tells equal elements
    apart. :math:`Y_0` is learned, and :math:`\lambda` is ``pull``. ``steps`` of gradient descent
    with momentum lead towards the minimum, at a rate that follows the curvature, and no graph is
    kept of them. Gradients are those of ``differentiated`` more steps from there, without momentum:
    one is the approximation of the paper, and more are as many terms of Neumann's series for the
    exact implicit derivative.

    All that is known of the elements is z, so ``latent`` (512 as in the paper) should exceed the
    numbers that they have together: few ``features`` will do, as another layer follows.
    While no ranks change, a change of z moves them by at most :math:`1 / (2 \sqrt\lambda)` of its
    length, so a stronger pull is steadier, and lets them say less.

    >>> decoder = ImplicitDecoder(inputs=16, size=3, features=5, latent=32, heads=2)
    >>> decoder(torch.rand(4, 7, 16)).shape
    torch.Size([4, 3, 5])
    """

    def __init__(
        self,
        inputs: int,
        size: int,
        features: int = 24,
        latent: int = 512,
        seeds: int = 16,
        steps: int = 20,
        differentiated: int = 4,
        pull: float = 0.4,
        heads: int = 4,
    ) -> None:
        super().__init__()
        for name, given in [
            ("inputs", inputs),
            ("size", size),
            ("features", features),
            ("latent", latent),
            ("seeds", seeds),
            ("differentiated", differentiated),
        ]:
            check_size(name, given)
        check_size("steps", steps, least=0)
        self.pull = check_number("pull", pull, 0.0, 1e6)
        self.inputs, self.size, self.features = inputs, size, features
        self.steps, self.differentiated = steps, differentiated
        self.pool = PooledReader(inputs, heads, seeds)
        # Of all seeds side by side: one alone would be an average over the memory.
        self.target = nn.Linear(seeds * inputs, latent)
        self.first = learned_elements(size, features)
        self.encoder = SortedEncoder(features, latent, size)
        glorot(self)

    def forward(self, memory: Tensor, valid: Tensor | None = None) -> Tensor:
        """Elements of the memory where ``valid`` [*, T] is False are not seen."""
        memory = check_memory(memory, valid, self.inputs)
        target = self.target(self.pool(memory, valid).flatten(-2))
        kind = target.device.type
        # Ranks change with the least error of an element, so 16 bits would lead elsewhere.
        autocast = torch.is_autocast_enabled(kind)
        with torch.autocast(kind, enabled=False) if autocast else nullcontext():
            return self._solve(_wide(target)).to(target.dtype)

    def _solve(self, target: Tensor) -> Tensor:
        """Vectors z [*, L] -> elements [*, N, F]."""
        first = _wide(self.first)
        elements = first.expand(*target.shape[:-1], *first.shape)
        with torch.no_grad():
            curvature = _MARGIN * self.encoder.curvature(first) + self.pull
            # Without pull, and where no unit is active at first, there is none at all.
            rate = 1 / curvature.clamp(min=torch.finfo(curvature.dtype).eps)
            velocity = torch.zeros_like(elements)
            for _ in range(self.steps):
                ahead = elements + _MOMENTUM * velocity
                velocity = _MOMENTUM * velocity - _shortened(rate * self.slope(ahead, target))
                elements = elements + velocity
        elements = elements.detach()
        for _ in range(self.differentiated):
            elements = elements - _shortened(rate * self.slope(elements, target))
        return elements

    def slope(self, elements: Tensor, target: Tensor) -> Tensor:
        """The gradient [*, N, F] of what is minimised; written out, so that it has gradients."""
        encoded, jacobian = self.encoder(elements)
        return jacobian.transposed(encoded - target) + self.pull * (elements - _wide(self.first))


class SortedEncoder(nn.Module):
    """``g``: sets [*, N, F] -> [*, L]; calling it gives this and its Jacobian there."""

    def __init__(self, features: int, latent: int, size: int) -> None:
        super().__init__()
        self.lower, self.upper = nn.Linear(features, latent), nn.Linear(latent, latent)
        self.by_rank = nn.Parameter(torch.randn(size, latent) * size**-0.5)

    def forward(self, elements: Tensor) -> tuple[Tensor, _Jacobian]:
        lower, upper = _wide(self.lower.weight), _wide(self.upper.weight)
        below = functional.linear(elements, lower, _wide(self.lower.bias))
        above = functional.linear(below.relu(), upper, _wide(self.upper.bias))  # [*, N, L]
        by_rank = _wide(self.by_rank).expand_as(above)
        weights = torch.zeros_like(by_rank).scatter(-2, above.argsort(dim=-2), by_rank)
        encoded = (weights * above).sum(dim=-2)
        return encoded, _Jacobian(lower, upper, below > 0, weights)

    def curvature(self, elements: Tensor) -> Tensor:
        """The largest of half the square of g at a set [N, F], or a little less: [1, 1].

        It is the largest eigenvalue of the Jacobian's transpose times the Jacobian, by the power
        method, which never gives too much. That starts from a direction that moves g.
        """
        encoded, jacobian = self(elements)
        along = jacobian.transposed(torch.ones_like(encoded))
        for _ in range(_ROUNDS):
            along = along / _length(along).clamp(min=torch.finfo(along.dtype).tiny)
            along = jacobian.transposed(jacobian(along))
        return _length(along)


class _Jacobian:
    """The derivative of an encoded set: changes [*, N, F] -> changes [*, L], and back."""

    def __init__(self, lower: Tensor, upper: Tensor, active: Tensor, weights: Tensor) -> None:
        self.lower, self.upper, self.active, self.weights = lower, upper, active, weights

    def __call__(self, change: Tensor) -> Tensor:
        above = ((change @ self.lower.mT) * self.active) @ self.upper.mT
        return (self.weights * above).sum(dim=-2)

    def transposed(self, change: Tensor) -> Tensor:
        below = ((self.weights * change.unsqueeze(-2)) @ self.upper) * self.active
        return below @ self.lower


def _wide(tensor: Tensor) -> Tensor:
    """Of at least 32 bits."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def _length(change: Tensor) -> Tensor:
    return vector_norm(change, dim=(-2, -1), keepdim=True)


def _shortened(step: Tensor) -> Tensor:
    """Steps [*, N, F], none of them so long that a set is thrown far away.

    By how much is a part of the rate, which has no gradient either.
    """
    return step * (_LONGEST / _length(step.detach()).clamp(min=_LONGEST))
