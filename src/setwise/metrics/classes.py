"""The metrics as torchmetrics classes: accumulated over batches, summed over processes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from setwise.features import Features
from setwise.metrics.cardinality import cardinality_error
from setwise.metrics.matching import matched_error, multiset_equality
from setwise.metrics.success import set_success


class MeanOverSets(Metric):
    """The mean of a number per set over all sets seen."""

    is_differentiable = False
    full_state_update = False
    total: Tensor
    count: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # Doubles: the sum stays exact over more sets than any data set holds.
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")

    def add(self, per_set: Tensor) -> None:
        """Take in one number for each set of a batch."""
        self.total += per_set.sum(dtype=self.total.dtype)
        self.count += per_set.numel()

    def compute(self) -> Tensor:
        """The mean so far; NaN before the first set."""
        return (self.total / self.count).float()


class SetSuccess(MeanOverSets):
    """See :func:`setwise.metrics.set_success`.

    >>> metric = SetSuccess()
    >>> target = torch.eye(3)
    >>> metric.update(9 * target.flip(0) - 4, target)
    >>> metric.compute()
    tensor(1.)
    """

    higher_is_better = True

    def __init__(
        self, features: Features | None = None, *, tolerance: float = 0.0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.features, self.tolerance = features, tolerance

    def update(self, preds: Tensor, target: Tensor, **rest: Any) -> None:
        """Take in logits [*, N, F] and targets [*, M, F]; masks and presence as in the function."""
        self.add(
            set_success(
                preds,
                target,
                self.features,
                tolerance=self.tolerance,
                reduction="none",
                **rest,
            )
        )


class MultisetEquality(MeanOverSets):
    """See :func:`setwise.metrics.multiset_equality`."""

    higher_is_better = True

    def __init__(
        self, features: Features | None = None, *, tolerance: float = 0.0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.features, self.tolerance = features, tolerance

    def update(self, preds: Tensor, target: Tensor, **rest: Any) -> None:
        """Take in logits [*, N, F] and targets [*, M, F]; masks and presence as in the function."""
        self.add(
            multiset_equality(
                preds,
                target,
                self.features,
                tolerance=self.tolerance,
                reduction="none",
                **rest,
            )
        )


class MatchedError(MeanOverSets):
    """See :func:`setwise.metrics.matched_error`."""

    higher_is_better = False

    def __init__(self, features: Features | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.features = features

    def update(self, preds: Tensor, target: Tensor, **rest: Any) -> None:
        """Take in logits [*, N, F] and targets [*, M, F]; masks and presence as in the function."""
        self.add(matched_error(preds, target, self.features, reduction="none", **rest))


class CardinalityError(MeanOverSets):
    """See :func:`setwise.metrics.cardinality_error`."""

    higher_is_better = False

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Take in masks of real outputs [*, N] and real targets [*, M]."""
        self.add(cardinality_error(preds, target, reduction="none"))
