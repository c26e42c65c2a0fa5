"""The losses as modules: each holds the settings of its function as attributes.

Settings can be read and set at any time, as those of PyTorch's own losses::

    loss = SetCrossEntropyLoss(temperature=10.0)
    loss.temperature = 1.0

A tensor among them (a temperature that changes between replays of a CUDA graph, say) is a buffer,
and moves with ``.to()``. It is not part of the ``state_dict``, as no setting is: a checkpoint does
not depend on how the loss was configured. A :class:`torch.nn.Parameter` is a parameter as usual,
which is learned and saved.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn

from setwise.arguments import Reduction
from setwise.features import Features
from setwise.kernels.dispatch import Impl
from setwise.losses.assignment import assignment_cross_entropy
from setwise.losses.hausdorff import hausdorff
from setwise.losses.ordered import ordered_cross_entropy
from setwise.losses.set_average import set_average
from setwise.losses.set_cross_entropy import set_cross_entropy
from setwise.losses.set_likelihood import Method, set_likelihood
from setwise.losses.stable_matching import stable_matching_cross_entropy
from setwise.losses.transport import transport_cross_entropy

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class SetLoss(nn.Module):
    """What the modules share: ``module(input, target, ...)`` is the function with its settings."""

    function: ClassVar[Callable[..., Any]]
    # The parameters of the function that are no arguments of a call.
    settings: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "function" in vars(cls):
            call = inspect.signature(cls.forward).parameters
            parameters = inspect.signature(cls.function).parameters
            named = [
                name
                for name, parameter in parameters.items()
                if name not in call and parameter.kind is not parameter.VAR_KEYWORD
            ]
            # These two belong to every loss, also to one that takes them as ``**options``.
            cls.settings = tuple(dict.fromkeys(["features", *named, "reduction"]))

    def __init__(self, features: Features | None = None, *, reduction: Reduction = "mean") -> None:
        super().__init__()
        self.features = features
        self.reduction = reduction

    def __setattr__(self, name: str, value: Any) -> None:
        """As usual, but a setting may change between a number, a tensor and a parameter."""
        if name not in self.settings:
            super().__setattr__(name, value)
            return
        if hasattr(self, name):
            delattr(self, name)
        if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
            self.register_buffer(name, value, persistent=False)
        else:
            super().__setattr__(name, value)

    def forward(
        self,
        input: Tensor,
        target: Tensor,
        *,
        input_valid: Tensor | None = None,
        target_valid: Tensor | None = None,
        weight: Tensor | None = None,
        presence: Tensor | None = None,
    ) -> Any:
        arguments = {"input_valid": input_valid, "target_valid": target_valid, "weight": weight}
        return self._call(input, target, **arguments, presence=presence)

    def _call(self, input: Tensor, target: Tensor, *, presence: Tensor | None, **rest: Any) -> Any:
        if presence is not None:  # of which a loss of one's own need not know
            rest["presence"] = presence
        settings = {name: getattr(self, name) for name in self.settings}
        return type(self).function(input, target, **rest, **settings)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self.settings)


class _PresenceLoss(SetLoss):
    """Losses of ours: what presence weighs is a setting of each."""

    def __init__(
        self,
        features: Features | None = None,
        *,
        presence_weight: float = 1.0,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(features, reduction=reduction)
        self.presence_weight = presence_weight


class OrderedCrossEntropyLoss(_PresenceLoss):
    """See :func:`setwise.ordered_cross_entropy`."""

    function: ClassVar[Callable[..., Any]] = staticmethod(ordered_cross_entropy)


class SetCrossEntropyLoss(_PresenceLoss):
    """See :func:`setwise.set_cross_entropy`.

    >>> SetCrossEntropyLoss(temperature=0.5)
    SetCrossEntropyLoss(features=None, temperature=0.5, presence_weight=1.0, reduction='mean',
    impl='auto', skip_negligible=True, group=None)
    """

    function: ClassVar[Callable[..., Any]] = staticmethod(set_cross_entropy)

    def __init__(
        self,
        features: Features | None = None,
        *,
        temperature: float | Tensor = 1.0,
        presence_weight: float = 1.0,
        reduction: Reduction = "mean",
        impl: Impl = "auto",
        skip_negligible: bool = True,
        group: ProcessGroup | None = None,
    ) -> None:
        super().__init__(features, presence_weight=presence_weight, reduction=reduction)
        self.temperature = temperature
        self.impl = impl
        self.skip_negligible = skip_negligible
        self.group = group


class _NearestLoss(_PresenceLoss):
    """What the losses of nearest outputs share: their settings."""

    def __init__(
        self,
        features: Features | None = None,
        *,
        directed: bool = True,
        presence_weight: float = 1.0,
        reduction: Reduction = "mean",
        impl: Impl = "auto",
        group: ProcessGroup | None = None,
    ) -> None:
        super().__init__(features, presence_weight=presence_weight, reduction=reduction)
        self.directed = directed
        self.impl = impl
        self.group = group


class SetAverageLoss(_NearestLoss):
    """See :func:`setwise.set_average`."""

    function: ClassVar[Callable[..., Any]] = staticmethod(set_average)


class HausdorffLoss(_NearestLoss):
    """See :func:`setwise.hausdorff`."""

    function: ClassVar[Callable[..., Any]] = staticmethod(hausdorff)


class AssignmentCrossEntropyLoss(_PresenceLoss):
    """See :func:`setwise.assignment_cross_entropy`."""

    function: ClassVar[Callable[..., Any]] = staticmethod(assignment_cross_entropy)

    def __init__(
        self,
        features: Features | None = None,
        *,
        return_matching: bool = False,
        presence_weight: float = 1.0,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(features, presence_weight=presence_weight, reduction=reduction)
        self.return_matching = return_matching

    def forward(
        self,
        input: Tensor,
        target: Tensor,
        *,
        input_valid: Tensor | None = None,
        target_valid: Tensor | None = None,
        weight: Tensor | None = None,
        presence: Tensor | None = None,
        matching_cost: Features | Tensor | None = None,
    ) -> Any:
        arguments = {"input_valid": input_valid, "target_valid": target_valid, "weight": weight}
        rest = {**arguments, "matching_cost": matching_cost}
        return self._call(input, target, **rest, presence=presence)


class SetLikelihoodLoss(_PresenceLoss):
    """See :func:`setwise.set_likelihood`."""

    function: ClassVar[Callable[..., Any]] = staticmethod(set_likelihood)

    def __init__(
        self,
        features: Features | None = None,
        *,
        method: Method = "auto",
        exclusivity: float | Tensor | None = None,
        return_settled: bool = False,
        presence_weight: float = 1.0,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(features, presence_weight=presence_weight, reduction=reduction)
        self.method = method
        self.exclusivity = exclusivity
        self.return_settled = return_settled


class TransportCrossEntropyLoss(_PresenceLoss):
    """See :func:`setwise.transport_cross_entropy`."""

    function: ClassVar[Callable[..., Any]] = staticmethod(transport_cross_entropy)

    def __init__(
        self,
        features: Features | None = None,
        *,
        temperature: float = 1.0,
        missing_cost: float | None = None,
        return_settled: bool = False,
        presence_weight: float = 1.0,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(features, presence_weight=presence_weight, reduction=reduction)
        self.temperature = temperature
        self.missing_cost = missing_cost
        self.return_settled = return_settled


class StableMatchingCrossEntropyLoss(_PresenceLoss):
    """See :func:`setwise.stable_matching_cross_entropy`."""

    function: ClassVar[Callable[..., Any]] = staticmethod(stable_matching_cross_entropy)
