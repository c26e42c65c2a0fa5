"""The table of losses: what training, the command line, tables and figures know of each of them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from setwise.losses.assignment import assignment_cross_entropy
from setwise.losses.hausdorff import hausdorff
from setwise.losses.ordered import ordered_cross_entropy
from setwise.losses.set_average import set_average
from setwise.losses.set_cross_entropy import set_cross_entropy
from setwise.losses.set_likelihood import set_likelihood
from setwise.losses.stable_matching import stable_matching_cross_entropy
from setwise.losses.transport import transport_cross_entropy
from setwise.registry import Registry

# As matplotlib and CSS read it: #rrggbb.
COLOUR = re.compile(r"#[0-9a-fA-F]{6}")


@dataclass(frozen=True)
class Loss:
    """One entry: a function of the signature of :func:`setwise.set_cross_entropy`.

    The function is called as ``function(input, target, features, reduction="none", **options)``
    and returns one number per set.
    """

    function: Callable[..., Any]
    symbol: str  # a few characters, for the heads of columns
    label: str  # a few words
    colour: str  # of its curves, see `COLOUR`
    # Keyword arguments that a schedule of training sets: ``temperature``, ``exclusivity``, or none.
    options: tuple[str, ...] = ()
    # Whether a CUDA graph can hold it: it never waits for the device, nor looks at a value.
    capturable: bool = False

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
    capturable: bool = False,
) -> Loss:
    """Make a loss known by the name of its function, to be trained, tabled and drawn.

    Args:
        function: takes ``(input, target, features, *, reduction, **options)``, as
            :func:`setwise.set_cross_entropy` does, and has a name of its own.
        symbol: a few characters, for the heads of columns; by default the name. No two losses have
            the same.
        label: a few words; by default the name.
        colour: of its curves, ``#rrggbb``.
        options: keyword arguments of the function that a schedule of training sets. There are two
            such: ``"temperature"``, which may fall while the loss is trained, and
            ``"exclusivity"``, which may rise.
        capturable: whether a CUDA graph can hold it: it never waits for the device.

    >>> import setwise as sw
    >>> def twice(*args, **options):
    ...     return 2 * sw.set_cross_entropy(*args, **options)
    >>> register_loss(twice, symbol="2SH", colour="#8c564b").label
    'twice'
    """
    name = getattr(function, "__name__", None)
    if not callable(function) or not isinstance(name, str) or not name.isidentifier():
        raise TypeError(
            f"loss: expected a function with a name, got {function!r}; define it by def"
        )
    if not COLOUR.fullmatch(colour):
        raise ValueError(f"loss: {name!r}: expected a colour as #rrggbb, got {colour!r}")
    unknown = [option for option in options if not _takes(function, option)]
    if isinstance(options, str) or unknown:
        raise ValueError(
            f"loss: {name!r}: expected options that are keyword arguments of the function, got "
            f"{options!r}"
        )
    label = label or name.replace("_", " ")
    entry = Loss(function, symbol or name, label, colour, options, capturable)
    for other in LOSSES.values():
        if other.name != name and {entry.symbol, name} & {other.symbol, other.name}:
            raise ValueError(
                f"loss: {name!r}: the symbol {entry.symbol!r} is taken, by {other.name}; give it "
                f"another: register_loss(..., symbol=...)"
            )
    LOSSES.add(name, entry)
    return entry


def find_loss(name: str) -> Loss:
    """The loss of a name or of a symbol, as a user may type either.

    >>> find_loss("SH").name
    'set_cross_entropy'
    """
    by_symbol = {loss.symbol: loss for loss in LOSSES.values()}
    return by_symbol[name] if name in by_symbol else LOSSES[name]


def _takes(function: Callable[..., Any], option: str) -> bool:
    parameters = inspect.signature(function).parameters
    any_keyword = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return option in parameters or any_keyword


for _function, _symbol, _label, _colour, _options, _capturable in (
    (ordered_cross_entropy, "H", "cross entropy", "#7f7f7f", (), True),
    (set_cross_entropy, "SH", "set cross entropy", "#dc143c", ("temperature",), True),
    (set_average, "A1H", "set average", "#1f77b4", (), True),
    (hausdorff, "H1H", "Hausdorff", "#ff7f0e", (), True),
    (assignment_cross_entropy, "AH", "best assignment", "#2ca02c", (), True),
    (stable_matching_cross_entropy, "GS", "stable matching", "#e377c2", (), False),
    (transport_cross_entropy, "OT", "optimal transport", "#17becf", (), False),
    (set_likelihood, "LH", "set likelihood", "#9467bd", ("exclusivity",), False),
):
    register_loss(
        _function,
        symbol=_symbol,
        label=_label,
        colour=_colour,
        options=_options,
        capturable=_capturable,
    )
