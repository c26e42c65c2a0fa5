"""Metrics between a set of outputs and a set of targets.

Functions come first and need nothing but the library. The classes over them (``SetSuccess`` and
the rest) are torchmetrics metrics, which accumulate over batches and processes; they are loaded
when first asked for.
"""

from typing import TYPE_CHECKING, Any

from setwise.metrics.cardinality import cardinality_error
from setwise.metrics.matching import matched_error, multiset_equality
from setwise.metrics.precision import average_precision
from setwise.metrics.presence import expected_size, present
from setwise.metrics.success import set_success

if TYPE_CHECKING:
    from setwise.metrics.classes import AveragePrecision as AveragePrecision
    from setwise.metrics.classes import CardinalityError as CardinalityError
    from setwise.metrics.classes import MatchedError as MatchedError
    from setwise.metrics.classes import MultisetEquality as MultisetEquality
    from setwise.metrics.classes import SetSuccess as SetSuccess

__all__ = [
    "average_precision",
    "cardinality_error",
    "expected_size",
    "matched_error",
    "multiset_equality",
    "present",
    "set_success",
]

_CLASSES = (
    "AveragePrecision",
    "CardinalityError",
    "MatchedError",
    "MultisetEquality",
    "SetSuccess",
)


def __dir__() -> list[str]:
    return [*__all__, *_CLASSES]


def __getattr__(name: str) -> Any:
    if name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from setwise.metrics import classes
    except ModuleNotFoundError as error:
        if error.name != "torchmetrics":
            raise
        raise ModuleNotFoundError(
            f"setwise.metrics.{name} needs torchmetrics; install it with "
            f"pip install 'setwise[metrics]'",
            name=error.name,
        ) from error
    return getattr(classes, name)
