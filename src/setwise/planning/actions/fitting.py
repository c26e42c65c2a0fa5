"""Symbols of whatever sets are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from torch import Tensor

from setwise.features import Features
from setwise.planning.actions.measured import MeasuredSymbols
from setwise.planning.actions.seen import SeenSymbols, Sights


@overload
def fit_symbols(before: Sights, after: Sights) -> SeenSymbols: ...


@overload
def fit_symbols(
    before: Tensor, after: Tensor, features: Features, *, names: Sequence[str] | None = None
) -> MeasuredSymbols: ...


def fit_symbols(
    before: Sights | Tensor,
    after: Sights | Tensor,
    features: Features | None = None,
    *,
    names: Sequence[str] | None = None,
) -> SeenSymbols | MeasuredSymbols:
    """Learn what elements are called from steps between sets, ``before`` and ``after`` of each.

    Of pictures and boxes, `Sights`, these are looks and places (see `SeenSymbols.fit`); of tensors
    [T, N, F] the codes of each feature (see `MeasuredSymbols.fit`). Both have ``encode``,
    ``decode`` and ``recording``, from which `ActionModel.learn` goes on.
    """
    if isinstance(before, Sights) and isinstance(after, Sights):
        return SeenSymbols.fit(before, after)
    if not isinstance(before, Tensor) or not isinstance(after, Tensor):
        kinds = f"{type(before).__name__} and {type(after).__name__}"
        raise TypeError(f"before and after: expected Sights twice or tensors twice, got {kinds}")
    if features is None:
        raise TypeError("features: expected the Features of the elements; only Sights need none")
    return MeasuredSymbols.fit(before, after, features, names=names)
