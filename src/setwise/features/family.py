"""What every family of features has to say about itself.

Legend: M targets, N outputs, K dummies, w = ``width`` features, W numbers of the statistic; ``*``
any leading dimensions.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from setwise import values

Scoring = Literal["categorical", "bernoulli"]

# Of probability or rate, for what never occurs in a prototype: its logit stays finite.
RARE = 1e-3


@dataclass(frozen=True)
class Family(ABC):
    """Base class of all families: ``width`` features of one kind inside an element.

    A family is an exponential family: the negative cross entropy of a target ``x`` under an output
    ``y`` is a biased dot product, which is all that losses and kernels see of it::

        -H(x, y) = T(x) . eta(y) - A(y) + h(x)

    To write one, derive from this class and define

    - :meth:`natural`, which is ``eta`` and ``A``; also :meth:`statistic` where ``T(x)`` is not
      ``x`` itself, and :meth:`base` where ``h`` is not zero;
    - :meth:`mean`, what outputs stand for, and its inverse :meth:`from_mean`;
    - :meth:`random_targets`, for trials and tests;
    - ``target_range`` and ``target_rule``, unless targets may be any finite numbers;
    - :attr:`curvature`, if the cost is the square of a difference: it is then computed as one.

    Everything else has a default that suits real features and is there to be replaced: features
    that are discrete define :meth:`discretise`, :meth:`differ`, :meth:`distance` and
    :meth:`error`. Zero must be an allowed output, and ``blank`` an allowed target: elements that a
    mask hides hold them. A family with settings of its own is a frozen dataclass as well.

    Args:
        width: how many features.
        weight: multiplies their cost.

    Waiting times, for instance, that are exponentially distributed; an output is the log of their
    mean.

    >>> class Exponential(Family):
    ...     target_range = (0.0, math.inf)
    ...     target_rule = "must be waiting times, 0 or more"
    ...
    ...     def natural(self, logits):
    ...         return -torch.exp(-logits), logits.sum(-1)
    ...
    ...     def mean(self, logits):
    ...         return logits.exp()
    ...
    ...     def from_mean(self, mean):
    ...         return mean.clamp(min=1e-6).log()
    ...
    ...     def random_targets(self, shape, generator=None):
    ...         return torch.empty(*shape, self.width).exponential_(generator=generator)
    >>> import setwise as sw
    >>> outputs, waits = torch.zeros(1, 4, 2), torch.tensor([[[0.5, 2.0], [1.0, 0.0]]])
    >>> sw.set_average(outputs, waits, sw.Features(Exponential(2)))  # of 0.5 + 2 and of 1 + 0
    tensor(1.7500)
    """

    width: int = 1
    weight: float = 1.0

    #: The least and the greatest value of a target, and the words for it in an error.
    target_range: ClassVar[tuple[float, float]] = (-math.inf, math.inf)
    target_rule: ClassVar[str] = "must be finite"
    #: An allowed target: it stands where a mask says that there is no element.
    blank: ClassVar[float] = 0.0
    #: Whether the features are one choice among ``width`` classes.
    is_choice: ClassVar[bool] = False

    def __post_init__(self) -> None:
        name = type(self).__name__
        if not isinstance(self.width, int) or isinstance(self.width, bool):
            raise TypeError(f"{name}: width must be an int, got {self.width!r}")
        if self.width < 1:
            raise ValueError(f"{name}: width must be at least 1, got {self.width}")
        require_positive(name, "weight", self.weight)

    # How a target is scored under an output.

    def statistic(self, target: Tensor) -> Tensor:
        """``T(x)``: [*, M, w] -> [*, M, W]; by default the target itself."""
        return target

    @abstractmethod
    def natural(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """``eta(y)`` [*, N, W] and ``A(y)`` [*, N] of outputs [*, N, w], finite for any of them."""

    def base(self, target: Tensor) -> Tensor | None:
        """``h(x)``: [*, M, w] -> [*, M], or None where it is zero."""
        return None

    @property
    def curvature(self) -> float | None:
        """The number ``c`` if the cost is ``c |T(x) - m(y)|^2``, with `location` as ``m``; or None.

        Such a cost is computed from the differences: far from the origin, the terms of the dot
        product are large and cancel.
        """
        return None

    def location(self, logits: Tensor) -> Tensor:
        """``m(y)``: [*, N, w] -> [*, N, W], where there is a `curvature`; by default ``y``."""
        return logits

    @property
    def kernel(self) -> tuple[str, float] | None:
        """The name that fused kernels know the family by, and the number it has there.

        None for all families but those that they have been written for, and for their subclasses,
        which may have changed anything: `natural` and `location` serve these.
        """
        return None

    def cost(self, logits: Tensor, target: Tensor) -> Tensor:
        """``H(x, y)`` of elements that are already paired: [*, w] twice -> [*].

        To be replaced where it can be written without the large terms that cancel in the dot
        product.
        """
        natural, log_partition = self.natural(logits)
        cost = log_partition - (self.statistic(target) * natural).sum(-1)
        base = self.base(target)
        return cost if base is None else cost - base

    def with_scoring(self, scored_as: Scoring) -> Family:
        """The same features with choices scored in this way; see `Categorical`."""
        return self

    # What outputs stand for, in the space of the targets.

    @abstractmethod
    def mean(self, logits: Tensor) -> Tensor:
        """The expected target of each output: [*, w] -> [*, w]."""

    @abstractmethod
    def from_mean(self, mean: Tensor) -> Tensor:
        """The output of each expected target, the inverse of :meth:`mean`: [*, w] -> [*, w].

        Finite, in value and gradient, for every target that is allowed.
        """

    def discretise(self, logits: Tensor) -> Tensor:
        """The target that each output answers with: [*, w] -> [*, w]; by default the mean."""
        return self.mean(logits)

    def soft_logits(self, prototype: Tensor) -> Tensor:
        """Like :meth:`from_mean`, but what never occurs in the prototype is not ruled out."""
        return self.from_mean(prototype)

    # What is known of targets.

    def check_targets(self, name: str, target: Tensor) -> None:
        """Raise ValueError, naming the argument, if any target is not allowed."""
        if self.target_range == (-math.inf, math.inf):
            values.require_finite(name, target)
            return
        what = f"{type(self).__name__} features {self.target_rule}"
        values.require(name, target, *self.target_range, what)

    @abstractmethod
    def random_targets(
        self, shape: Sequence[int], generator: torch.Generator | None = None
    ) -> Tensor:
        """Targets [*shape, w] as the family itself would produce them, where the generator is."""

    def average(self, target: Tensor, dim: int) -> Tensor:
        """The average target over a dimension."""
        return target.mean(dim)

    # How far a target is from an answer; the answers have been discretised.

    def differ(self, target: Tensor, answer: Tensor, tolerance: float) -> Tensor:
        """Which are not the same: [*, M, w] and [*, N, w] -> bool [*, M, N].

        By default features may be ``tolerance`` apart; a NaN differs from everything.
        """
        apart = torch.cdist(target, answer, p=math.inf) > tolerance
        return apart | answer.isnan().any(-1).unsqueeze(-2)  # the greatest distance ignores NaN

    def distance(self, target: Tensor, answer: Tensor) -> Tensor:
        """How far apart they are, by Euclid's measure: [*, M, w], [*, N, w] -> [*, M, N].

        Zero for features to which `differ` grants no tolerance: they are right or wrong.
        """
        return torch.cdist(target, answer, compute_mode="donot_use_mm_for_euclid_dist")

    def error(self, target: Tensor, answer: Tensor) -> Tensor:
        """The sum of their errors over all `questions`: [*, M, w], [*, N, w] -> [*, M, N]."""
        return torch.cdist(target, answer, p=1.0)

    @property
    def questions(self) -> int:
        """How many questions the features answer, each of which may be wrong."""
        return self.width

    # How `pad_sets` spells the number of a dummy.

    @property
    def dummy_digits(self) -> tuple[int, ...]:
        """The base of each digit that the features can spell; by default they spell none."""
        return ()

    def dummies(self, digits: Tensor) -> Tensor:
        """Targets that spell the digits: integers [K, len(dummy_digits)] -> [K, w]."""
        return torch.full((len(digits), self.width), self.blank)


def no_distance(target: Tensor, answer: Tensor) -> Tensor:
    """`Family.distance` of discrete features: zeros [*, M, N]."""
    return target.new_zeros(*target.shape[:-1], answer.shape[-2])


def clamp_with_gradient(tensor: Tensor, low: float, high: float = math.inf) -> Tensor:
    """Clamp in value, leaving the gradient as if nothing had been clamped."""
    return tensor + (tensor.clamp(low, high) - tensor).detach()


def device_of(generator: torch.Generator | None) -> torch.device | None:
    """Where the generator draws; without one, wherever tensors are made."""
    return None if generator is None else generator.device


def require_positive(owner: str, name: str, value: float) -> None:
    """Refuse a setting that is not a positive number, or so extreme that squares overflow."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{owner}: {name} must be a number, got {value!r}")
    # Squares and quotients of what lies within these bounds stay finite in float32.
    if not (1e-15 <= value <= 1e15):
        raise ValueError(f"{owner}: {name} must lie between 1e-15 and 1e15, got {value!r}")
