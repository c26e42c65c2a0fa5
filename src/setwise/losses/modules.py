"""The losses as modules: each stores the options of its function and forwards to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from setwise.arguments import Reduction
from setwise.features import Features
from setwise.kernels.dispatch import Impl
from setwise.losses.assignment import assignment_cross_entropy
from setwise.losses.hausdorff import hausdorff
from setwise.losses.ordered import ordered_cross_entropy
from setwise.losses.set_average import set_average
from setwise.losses.set_cross_entropy import set_cross_entropy


class SetLoss(nn.Module):
    """What the modules share: ``module(input, target, ...)`` is ``function(..., **options)``."""

    function: Callable[..., Any]

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(
        self,
        input: Tensor,
        target: Tensor,
        *,
        input_valid: Tensor | None = None,
        target_valid: Tensor | None = None,
        weight: Tensor | None = None,
    ) -> Any:
        return type(self).function(
            input,
            target,
            input_valid=input_valid,
            target_valid=target_valid,
            weight=weight,
            **self.options,
        )

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())


class OrderedCrossEntropyLoss(SetLoss):
    """See :func:`setwise.ordered_cross_entropy`."""

    function = staticmethod(ordered_cross_entropy)

    def __init__(self, features: Features | None = None, *, reduction: Reduction = "mean") -> None:
        super().__init__(features=features, reduction=reduction)


class SetCrossEntropyLoss(SetLoss):
    """See :func:`setwise.set_cross_entropy`.

    >>> SetCrossEntropyLoss(temperature=0.5)
    SetCrossEntropyLoss(features=None, temperature=0.5, reduction='mean', impl='auto',
    skip_negligible=True)
    """

    function = staticmethod(set_cross_entropy)

    def __init__(
        self,
        features: Features | None = None,
        *,
        temperature: float = 1.0,
        reduction: Reduction = "mean",
        impl: Impl = "auto",
        skip_negligible: bool = True,
    ) -> None:
        super().__init__(
            features=features,
            temperature=temperature,
            reduction=reduction,
            impl=impl,
            skip_negligible=skip_negligible,
        )


class SetAverageLoss(SetLoss):
    """See :func:`setwise.set_average`."""

    function = staticmethod(set_average)

    def __init__(
        self,
        features: Features | None = None,
        *,
        directed: bool = True,
        reduction: Reduction = "mean",
        impl: Impl = "auto",
    ) -> None:
        super().__init__(features=features, directed=directed, reduction=reduction, impl=impl)


class HausdorffLoss(SetLoss):
    """See :func:`setwise.hausdorff`."""

    function = staticmethod(hausdorff)

    def __init__(
        self,
        features: Features | None = None,
        *,
        directed: bool = True,
        reduction: Reduction = "mean",
        impl: Impl = "auto",
    ) -> None:
        super().__init__(features=features, directed=directed, reduction=reduction, impl=impl)


class AssignmentCrossEntropyLoss(SetLoss):
    """See :func:`setwise.assignment_cross_entropy`."""

    function = staticmethod(assignment_cross_entropy)

    def __init__(
        self,
        features: Features | None = None,
        *,
        return_matching: bool = False,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(features=features, return_matching=return_matching, reduction=reduction)
