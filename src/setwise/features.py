"""What an element of a set is: families of features and the one form they share.

Legend: M targets, N outputs, F features per element; ``*`` any leading dimensions.

Every family used here is an exponential family, so the negative cross entropy of a target
element ``x_i`` under an output element ``y_j`` is a biased dot product::

    -H(x_i, y_j) = T(x_i) . eta(y_j) - A(y_j) + h(x_i)

``T(x) = x`` for every family here. A family supplies ``eta``, ``A`` and, where it is not zero,
``h``; the pairwise engine needs to know nothing else about it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from setwise import values

# log(1 + e^z) equals z to the last bit of a double beyond this point.
_SOFTPLUS_IS_IDENTITY = 40.0


class DotProduct(NamedTuple):
    """The pairwise scores of two sets, in factors: ``-H = T . eta - A + h``."""

    statistic: Tensor  # T(x)    [*, M, F]
    natural: Tensor  # eta(y)  [*, N, F]
    log_partition: Tensor  # A(y)    [*, N]
    base: Tensor | None  # h(x)    [*, M]; None when zero for every family in use


@dataclass(frozen=True)
class Family(ABC):
    """``width`` features of one kind inside an element; ``weight`` scales their cost."""

    width: int = 1
    weight: float = 1.0

    # Whether targets are probabilities; a target outside [0, 1] is then an error.
    targets_are_probabilities = True
    # Whether the cost stays the same when outputs and targets are moved by the same amount.
    only_differences_matter = False

    def __post_init__(self) -> None:
        name = type(self).__name__
        if not isinstance(self.width, int) or isinstance(self.width, bool):
            raise TypeError(f"{name}: width must be an int, got {self.width!r}")
        if self.width < 1:
            raise ValueError(f"{name}: width must be at least 1, got {self.width}")
        _require_positive(name, "weight", self.weight)

    @abstractmethod
    def natural(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """``eta(y)`` of shape [*, N, width] and ``A(y)`` of shape [*, N]."""

    def base(self, target: Tensor) -> Tensor | None:
        """``h(x)`` of shape [*, M], or None where it is zero."""
        return None

    @abstractmethod
    def cost(self, logits: Tensor, target: Tensor) -> Tensor:
        """``H(x, y)`` of elements that are already paired: [*, width] twice -> [*].

        The same number as the dot product gives, without its cancellation of large terms.
        """

    @abstractmethod
    def discretise(self, logits: Tensor) -> Tensor:
        """The most likely element, in the space of the targets."""

    @abstractmethod
    def from_probs(self, probs: Tensor) -> Tensor:
        """Logits of given probabilities; exact 0 and 1 stay finite, in value and gradient."""

    @abstractmethod
    def random_targets(self, shape: Sequence[int], generator: torch.Generator | None) -> Tensor:
        """Targets of shape [*shape, width] as the family itself would produce them."""


@dataclass(frozen=True)
class Bernoulli(Family):
    """Independent binary features; outputs are logits, targets probabilities.

    >>> Bernoulli(2).discretise(torch.tensor([1.5, -0.2]))
    tensor([1., 0.])
    """

    def natural(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        return logits, _softplus(logits).sum(-1)

    def cost(self, logits: Tensor, target: Tensor) -> Tensor:
        return (target * _softplus(-logits) + (1 - target) * _softplus(logits)).sum(-1)

    def discretise(self, logits: Tensor) -> Tensor:
        return (logits > 0).to(logits.dtype)

    def from_probs(self, probs: Tensor) -> Tensor:
        return torch.logit(_inside_unit_interval(probs))

    def random_targets(self, shape: Sequence[int], generator: torch.Generator | None) -> Tensor:
        size = (*shape, self.width)
        return torch.randint(0, 2, size, generator=generator, device=_home(generator)).float()


@dataclass(frozen=True)
class Categorical(Family):
    """One choice among ``width`` classes; outputs are logits, targets one-hot or distributions
    (their sum is not checked).

    ``scored_as="categorical"`` is the ordinary softmax cross entropy. ``scored_as="bernoulli"``
    takes the softmax probabilities and scores each as an independent Bernoulli, which also
    charges for the mass on the wrong classes: ``-sum x log p + (1 - x) log(1 - p)``.

    >>> Categorical(3).discretise(torch.tensor([0.1, 2.0, -1.0]))
    tensor([0., 1., 0.])
    """

    scored_as: Literal["categorical", "bernoulli"] = "categorical"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width < 2:
            raise ValueError(f"Categorical: needs at least 2 classes, got {self.width}")
        if self.scored_as not in ("categorical", "bernoulli"):
            raise ValueError(
                f"Categorical: scored_as must be 'categorical' or 'bernoulli', "
                f"got {self.scored_as!r}"
            )

    def natural(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        log_p = F.log_softmax(logits, dim=-1)
        if self.scored_as == "categorical":
            return log_p, log_p.new_zeros(log_p.shape[:-1])
        log_not_p = _log_one_minus_softmax(logits)
        return log_p - log_not_p, -log_not_p.sum(-1)

    def cost(self, logits: Tensor, target: Tensor) -> Tensor:
        cost = -target * F.log_softmax(logits, dim=-1)
        if self.scored_as == "bernoulli":
            cost = cost - (1 - target) * _log_one_minus_softmax(logits)
        return cost.sum(-1)

    def discretise(self, logits: Tensor) -> Tensor:
        return _is_class(logits.argmax(-1, keepdim=True), self.width).to(logits.dtype)

    def from_probs(self, probs: Tensor) -> Tensor:
        return _inside_unit_interval(probs).log()

    def random_targets(self, shape: Sequence[int], generator: torch.Generator | None) -> Tensor:
        size, home = (*shape, 1), _home(generator)
        classes = torch.randint(0, self.width, size, generator=generator, device=home)
        return _is_class(classes, self.width).float()


@dataclass(frozen=True)
class Gaussian(Family):
    """Real features around a mean of fixed ``scale``; outputs are the means themselves.

    The constant ``width * log(scale * sqrt(2 pi))`` is left out, so that the cost is
    ``|x - y|^2 / (2 scale^2)`` and a perfect output costs nothing.
    """

    scale: float = 1.0

    targets_are_probabilities = False
    only_differences_matter = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_positive("Gaussian", "scale", self.scale)

    def natural(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        return logits / self.scale**2, logits.square().sum(-1) / (2 * self.scale**2)

    def cost(self, logits: Tensor, target: Tensor) -> Tensor:
        return (target - logits).square().sum(-1) / (2 * self.scale**2)

    def base(self, target: Tensor) -> Tensor:
        return -target.square().sum(-1) / (2 * self.scale**2)

    def discretise(self, logits: Tensor) -> Tensor:
        return logits

    def from_probs(self, probs: Tensor) -> Tensor:
        return probs

    def random_targets(self, shape: Sequence[int], generator: torch.Generator | None) -> Tensor:
        size = (*shape, self.width)
        return torch.randn(size, generator=generator, device=_home(generator)) * self.scale


class Features:
    """An element made of several families side by side, in the order given.

    >>> features = Features(Categorical(9), Categorical(3), Categorical(3))
    >>> features.width
    15
    """

    def __init__(self, *blocks: Family) -> None:
        if not blocks:
            raise ValueError("Features: needs at least one block, e.g. Features(Bernoulli(8))")
        for block in blocks:
            if not isinstance(block, Family):
                raise TypeError(
                    f"Features: every block must be Bernoulli, Categorical or Gaussian, "
                    f"got {type(block).__name__}"
                )
        self.blocks = blocks
        self.widths = [block.width for block in blocks]
        self.width = sum(self.widths)

    def __repr__(self) -> str:
        return f"Features({', '.join(map(repr, self.blocks))})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Features) and self.blocks == other.blocks

    def __hash__(self) -> int:
        return hash(self.blocks)

    def split(self, elements: Tensor) -> list[Tensor]:
        """The blocks of a [*, F] tensor, each [*, width]."""
        if elements.dim() == 0 or elements.shape[-1] != self.width:
            raise ValueError(
                f"elements: expected {self.width} features in the last dimension for {self}, "
                f"got shape {tuple(elements.shape)}"
            )
        if len(self.blocks) == 1:
            return [elements]
        return list(elements.split(self.widths, dim=-1))

    def discretise(self, logits: Tensor) -> Tensor:
        """Round, argmax or keep each block: the most likely element, in target space."""
        parts = zip(self.blocks, self.split(logits), strict=True)
        return torch.cat([block.discretise(part) for block, part in parts], dim=-1)

    def from_probs(self, probs: Tensor) -> Tensor:
        """Logits for outputs that are already probabilities (means, for Gaussian blocks).

        Probabilities nearer to 0 or 1 than the precision of their type are taken as that far
        away; the gradient there is the (large, finite) one of that nearest point, so an output
        that is confidently wrong can still recover.

        >>> Features(Bernoulli(3)).from_probs(torch.tensor([0.0, 0.5, 1.0]))
        tensor([-15.9424,   0.0000,  15.9424])
        """
        if not isinstance(probs, Tensor) or not probs.dtype.is_floating_point:
            given = probs.dtype if isinstance(probs, Tensor) else type(probs).__name__
            raise TypeError(f"probs: expected a floating-point tensor, got {given}")
        for block, part in zip(self.blocks, self.split(probs), strict=True):
            if block.targets_are_probabilities:
                values.require("probs", part, 0.0, 1.0, "must be probabilities in [0, 1]")
        parts = zip(self.blocks, self.split(probs), strict=True)
        return torch.cat([block.from_probs(part) for block, part in parts], dim=-1)

    def random_targets(
        self, shape: Sequence[int], generator: torch.Generator | None = None
    ) -> Tensor:
        """Random target elements [*shape, F], on the generator's device, for trials and tests."""
        return torch.cat([block.random_targets(shape, generator) for block in self.blocks], -1)

    def scored_as(self, scoring: Literal["categorical", "bernoulli"]) -> Features:
        blocks = [
            Categorical(b.width, scored_as=scoring) if isinstance(b, Categorical) else b
            for b in self.blocks
        ]
        return Features(*blocks)

    def cost(self, logits: Tensor, target: Tensor) -> Tensor:
        """``H(x, y)`` of elements that are already paired: [*, F] twice -> [*]."""
        parts = zip(self.blocks, self.split(logits), self.split(target), strict=True)
        costs = [_times(block.weight, block.cost(y, x)) for block, y, x in parts]
        return costs[0] if len(costs) == 1 else torch.stack(costs).sum(0)

    def dot_product(
        self, logits: Tensor, target: Tensor, target_valid: Tensor | None = None
    ) -> DotProduct:
        """The factors of every pairwise score between the elements of two sets.

        ``logits`` [*, N, F] and ``target`` [*, M, F] share type, device and leading dimensions;
        ``target_valid`` [*, M] tells which targets are real.
        """
        if len(self.blocks) == 1 and isinstance(self.blocks[0], Bernoulli):
            natural, log_partition = self.blocks[0].natural(logits)
            weight = self.blocks[0].weight
            return DotProduct(target, _times(weight, natural), _times(weight, log_partition), None)

        statistics, naturals, log_partitions, bases = [], [], [], []
        parts = zip(self.blocks, self.split(logits), self.split(target), strict=True)
        for block, y, x in parts:
            if block.only_differences_matter:
                # Far from the origin the squares of the dot-product form cancel badly in floating
                # point: move the origin among the targets.
                origin = _mean_element(x.detach(), target_valid)
                x, y = x - origin, y - origin
            base = block.base(x)
            if base is not None:
                bases.append(_times(block.weight, base))
            natural, log_partition = block.natural(y)
            statistics.append(x)
            naturals.append(_times(block.weight, natural))
            log_partitions.append(_times(block.weight, log_partition))
        return DotProduct(
            torch.cat(statistics, dim=-1),
            torch.cat(naturals, dim=-1),
            torch.stack(log_partitions).sum(0),
            torch.stack(bases).sum(0) if bases else None,
        )


def _home(generator: torch.Generator | None) -> torch.device | None:
    return None if generator is None else generator.device


def _times(weight: float, values: Tensor) -> Tensor:
    return values if weight == 1.0 else values * weight


def _softplus(logits: Tensor) -> Tensor:
    return F.softplus(logits, threshold=_SOFTPLUS_IS_IDENTITY)


def _mean_element(elements: Tensor, valid: Tensor | None) -> Tensor:
    if valid is None:
        return elements.mean(dim=-2, keepdim=True)
    count = valid.sum(dim=-1).clamp(min=1)[..., None, None]
    return (elements * valid.unsqueeze(-1)).sum(dim=-2, keepdim=True) / count


def _is_class(classes: Tensor, width: int) -> Tensor:
    return torch.arange(width, device=classes.device) == classes


def _log_one_minus_softmax(logits: Tensor) -> Tensor:
    """``log(1 - softmax(z))``, accurate and finite however saturated the softmax is.

    Every class but the largest has p <= 1/2, where log1p loses nothing; for the largest, 1 - p is
    the mass of all the others.
    """
    is_top = _is_class(logits.argmax(-1, keepdim=True), logits.shape[-1])
    log_total = torch.logsumexp(logits, dim=-1, keepdim=True)
    log_others = torch.logsumexp(logits.masked_fill(is_top, -math.inf), dim=-1, keepdim=True)
    p_not_top = (logits - log_total).masked_fill(is_top, -math.inf).exp()
    return torch.where(is_top, log_others - log_total, torch.log1p(-p_not_top))


def _inside_unit_interval(probs: Tensor) -> Tensor:
    """Clamp away from 0 and 1 in value, leaving the gradient as if nothing had been clamped."""
    tiny = torch.finfo(probs.dtype).eps
    return probs + (probs.clamp(tiny, 1 - tiny) - probs).detach()


def _require_positive(owner: str, name: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{owner}: {name} must be a number, got {value!r}")
    # Squares and quotients of what lies within these bounds stay finite in float32.
    if not (1e-15 <= value <= 1e15):
        raise ValueError(f"{owner}: {name} must lie between 1e-15 and 1e15, got {value!r}")
