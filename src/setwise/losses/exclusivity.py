"""How the exclusivity of outputs may rise in training."""

from __future__ import annotations

from setwise.arguments import check_number

# What 1 - exclusivity has come down to where the schedule ends.
_LEAST_SHARE = 1e-3


def rising_exclusivity(progress: float, until: float = 0.7) -> float:
    """An `exclusivity` for :func:`set_likelihood`: from 0, at the start of training, to 1.

    ``progress`` is the part of the training that is over, from 0 to 1. What an output still shares,
    ``1 - exclusivity``, falls geometrically, because the loss depends on its logarithm: evenly,
    most of the way would lie in the last step. From ``until`` on the exclusivity is 1.

    >>> [round(rising_exclusivity(share), 3) for share in (0.0, 0.1, 0.35, 0.6, 0.7, 1.0)]
    [0.0, 0.627, 0.968, 0.997, 1.0, 1.0]
    """
    progress = check_number("progress", progress, 0.0, 1.0)
    until = check_number("until", until, 0.0, 1.0)
    return 1.0 if progress >= until else 1.0 - _LEAST_SHARE ** (progress / until)
