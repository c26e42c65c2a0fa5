"""The metrics as torchmetrics classes: accumulated over batches, summed over processes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from setwise.arguments import check_choice
from setwise.features import Features
from setwise.metrics.cardinality import cardinality_error
from setwise.metrics.elements import prepare
from setwise.metrics.matching import matched_error, multiset_equality
from setwise.metrics.precision import (
    DEFINITIONS,
    Definition,
    Limits,
    area,
    check_limits,
    precision_of_sets,
    rank,
    shaped,
)
from setwise.metrics.success import set_success


class MeanOverSets(Metric):
    """The mean of a number per set over all sets seen."""

    is_differentiable = False
    full_state_update = False

    def __init__(self, *settings: object, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._total, self._count = own_names(self, settings, "total", "count")
        # Doubles: the sum stays exact over more sets than any data set holds.
        self.add_state(self._total, torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state(self._count, torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")

    def add(self, per_set: Tensor) -> None:
        """Take in one number for each set of a batch."""
        total, count = getattr(self, self._total), getattr(self, self._count)
        setattr(self, self._total, total + per_set.sum(dtype=total.dtype))
        setattr(self, self._count, count + per_set.numel())

    def compute(self) -> Tensor:
        """The mean so far; NaN before the first set."""
        return (getattr(self, self._total) / getattr(self, self._count)).float()


def own_names(metric: Metric, settings: tuple[object, ...], *states: str) -> list[str]:
    """Names of states that no metric of another class, or with other settings, has.

    A collection of metrics takes two of them for one, and computes only the first from then on, if
    states of the same names have the same values after the first batch: as they do where all sets
    are right, or none is.
    """
    told = repr((type(metric).__name__, settings)).encode()
    own = hashlib.sha256(told).hexdigest()[:16]
    return [f"{state}_{own}" for state in states]


class ShareOfSets(MeanOverSets):
    """The share of sets that are right, to a tolerance, by ``_per_set``."""

    higher_is_better = True
    _per_set: ClassVar[Callable[..., Tensor]]

    def __init__(
        self, features: Features | None = None, *, tolerance: float = 0.0, **kwargs: Any
    ) -> None:
        super().__init__(features, tolerance, **kwargs)
        self.features = features
        self.tolerance = tolerance

    def update(self, preds: Tensor, target: Tensor, **rest: Any) -> None:
        """Take in logits [*, N, F] and targets [*, M, F]; masks and presence as in the function."""
        sets = (preds, target, self.features)
        self.add(self._per_set(*sets, tolerance=self.tolerance, reduction="none", **rest))


class SetSuccess(ShareOfSets):
    """See :func:`setwise.metrics.set_success`.

    >>> metric = SetSuccess()
    >>> target = torch.eye(3)
    >>> metric.update(9 * target.flip(0) - 4, target)
    >>> metric.compute()
    tensor(1.)
    """

    _per_set = staticmethod(set_success)


class MultisetEquality(ShareOfSets):
    """See :func:`setwise.metrics.multiset_equality`."""

    _per_set = staticmethod(multiset_equality)


class MatchedError(MeanOverSets):
    """See :func:`setwise.metrics.matched_error`."""

    higher_is_better = False

    def __init__(self, features: Features | None = None, **kwargs: Any) -> None:
        super().__init__(features, **kwargs)
        self.features = features

    def update(self, preds: Tensor, target: Tensor, **rest: Any) -> None:
        """Take in logits [*, N, F] and targets [*, M, F]; masks and presence as in the function."""
        self.add(matched_error(preds, target, self.features, reduction="none", **rest))


class CardinalityError(MeanOverSets):
    """See :func:`setwise.metrics.cardinality_error`.

    >>> metric = CardinalityError()
    >>> metric.update(torch.zeros(3, 2), torch.ones(2, 2), presence=torch.tensor([2.0, -1.0, -3.0]))
    >>> metric.compute()
    tensor(1.)
    """

    higher_is_better = False

    def __init__(self, features: Features | None = None, **kwargs: Any) -> None:
        super().__init__(features, **kwargs)
        self.features = features

    def update(
        self,
        preds: Tensor,
        target: Tensor,
        *,
        presence: Tensor | None = None,
        threshold: float = 0.5,
        input_valid: Tensor | None = None,
        target_valid: Tensor | None = None,
    ) -> None:
        """Take in what the other metrics do, or masks of real outputs [*, N] and targets [*, M]."""
        if isinstance(preds, Tensor) and preds.dtype == torch.bool:
            if not (presence is None and input_valid is None and target_valid is None):
                raise TypeError(
                    "preds: booleans say which outputs are real, and presence, input_valid and "
                    "target_valid do so too; give logits with these, or booleans alone"
                )
            self.add(cardinality_error(preds, target, reduction="none"))
            return
        call = (preds, target, self.features, input_valid, target_valid, "none")
        elements = prepare(*call, presence, threshold)
        masks = (elements.output_valid, elements.target_valid)
        self.add(cardinality_error(*masks, reduction="none"))


class AveragePrecision(Metric):
    """See :func:`setwise.metrics.average_precision`; one ranking over all batches and processes.

    With ``definition="picture"`` it is the mean over all pictures.

    >>> metric = AveragePrecision()
    >>> for presence in (torch.tensor([2.0, 1.0]), torch.tensor([4.0, 3.0])):
    ...     metric.update(torch.tensor([[9.0], [9.0]]), torch.ones(1, 1), presence=presence)
    >>> metric.compute()  # right, wrong, right, wrong
    tensor(0.8333)
    """

    is_differentiable = False
    full_state_update = False
    higher_is_better = True

    def __init__(
        self,
        features: Features | None = None,
        *,
        within: Limits = math.inf,
        definition: Definition = "dataset",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.features = features
        self.within: Limits = within
        self.definition: Definition = definition
        self._limits = check_limits(within)
        check_choice("definition", definition, DEFINITIONS)
        settings = (features, self._limits, definition)
        names = own_names(self, settings, "confidence", "hit", "total", "count")
        self._confidence, self._hit, self._total, self._count = names
        zeros = torch.zeros(len(self._limits), dtype=torch.float64)
        if definition == "dataset":
            self.add_state(self._confidence, [], dist_reduce_fx="cat")
            self.add_state(self._hit, [], dist_reduce_fx="cat")
        else:
            self.add_state(self._total, zeros, dist_reduce_fx="sum")
        self.add_state(self._count, torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")

    def update(
        self,
        preds: Tensor,
        target: Tensor,
        *,
        presence: Tensor,
        input_valid: Tensor | None = None,
        target_valid: Tensor | None = None,
    ) -> None:
        """Take in logits [*, N, F], targets [*, M, F] and presence [*, N]."""
        options = (presence, self._limits, self.definition, input_valid, target_valid)
        ranked = rank(preds, target, self.features, *options)
        count = getattr(self, self._count)
        if self.definition == "dataset":
            getattr(self, self._confidence).append(ranked.confidence[ranked.valid])
            getattr(self, self._hit).append(ranked.hit[ranked.valid])
            setattr(self, self._count, count + ranked.targets.sum())
        else:
            found, counts = precision_of_sets(ranked)
            setattr(self, self._total, getattr(self, self._total) + found.sum(dim=0))
            setattr(self, self._count, count + counts.sum())

    def compute(self) -> Tensor:
        """A number, or one for each of several limits; NaN before the first target."""
        count = getattr(self, self._count)
        if self.definition == "picture":
            found = getattr(self, self._total) / count
        elif count == 0:
            found = torch.full((len(self._limits),), math.nan, device=count.device)
        else:
            confidence = dim_zero_cat(getattr(self, self._confidence))
            found = area(confidence, dim_zero_cat(getattr(self, self._hit)), count)
        return shaped(found, self.within)
