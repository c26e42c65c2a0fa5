"""The table of losses: what training, the command line, tables and figures know of each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from setwise.losses.assignment import assignment_cross_entropy
from setwise.losses.hausdorff import hausdorff
from setwise.losses.ordered import ordered_cross_entropy
from setwise.losses.set_average import set_average
from setwise.losses.set_cross_entropy import set_cross_entropy
from setwise.registry import Registry


@dataclass(frozen=True)
class Loss:
    """One entry: a function of the signature of :func:`setwise.set_cross_entropy`.

    The function is called as ``function(input, target, features, reduction="none", **options)``
    and returns one number per set.
    """

    function: Callable[..., Any]
    symbol: str  # a few characters, for the heads of columns
    label: str  # a few words
    colour: str  # of its curves, as matplotlib and CSS read it: #rrggbb
    # Keyword arguments that a training may set, among them a temperature that falls.
    options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the function, by which records and configs know the loss."""
        return self.function.__name__


LOSSES: Registry[Loss] = Registry("loss")


def register_loss(
    function: Callable[..., Any],
    *,
    symbol: str | None = None,
    label: str | None = None,
    colour: str = "#7f7f7f",
    options: tuple[str, ...] = (),
) -> Loss:
    """Make a loss known by the name of its function, to be trained, tabled and drawn.

    >>> import setwise as sw
    >>> def twice(*args, **options):
    ...     return 2 * sw.set_cross_entropy(*args, **options)
    >>> register_loss(twice, symbol="2SH", colour="#8c564b").label
    'twice'
    """
    name = function.__name__
    entry = Loss(function, symbol or name, label or name.replace("_", " "), colour, options)
    LOSSES.add(name, entry)
    return entry


def find_loss(name: str) -> Loss:
    """The loss of a name or of a symbol, as a user may type either."""
    by_symbol = {loss.symbol: loss for loss in LOSSES.values()}
    return by_symbol[name] if name in by_symbol else LOSSES[name]


register_loss(ordered_cross_entropy, symbol="H", label="cross entropy", colour="#7f7f7f")
register_loss(
    set_cross_entropy,
    symbol="SH",
    label="set cross entropy",
    colour="#dc143c",
    options=("temperature",),
)
register_loss(set_average, symbol="A1H", label="set average", colour="#1f77b4")
register_loss(hausdorff, symbol="H1H", label="Hausdorff", colour="#ff7f0e")
register_loss(assignment_cross_entropy, symbol="AH", label="best assignment", colour="#2ca02c")
