"""Weights of pairs as plain numbers, for solvers on a CPU that do without logarithms.

Legend: B sets, M targets, N outputs.

A matching takes one pair of every target and at most one of every output, so the weights of either
may be multiplied by anything that is accounted for afterwards. They are relative to the largest of
their target, or, where those are far apart, to what target and output are worth in the best
matching: its pairs then weigh 1, and no pair more, but for the precision of prices.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from setwise.kernels import host_assignment
from setwise.kernels.permanent import NEVER

# The least weight of a pair, in logarithms.
FLOOR = -300.0
# Prices of outputs need not be more exact, nor can they be, in relation to logarithms.
PENNY, PRECISION = 1e-6, 1e-14


class Weights(NamedTuple):
    """``exp(logs_ij - worth_i - prices_j)``, but no less than the floor; 0 where no pair is."""

    pairs: Tensor  # [B, M, N]
    worth: Tensor  # [B, M] of targets
    prices: Tensor  # [B, 1, N] of outputs
    raised: Tensor | None  # [B, M, N] 1 where a pair weighs more than it should, if any does

    def offset(self) -> Tensor:
        """What all of them have been divided by, in logarithms: [B]."""
        return self.worth.sum(1) + self.prices.sum((1, 2))


def weigh(
    logs: Tensor, rows: Tensor, columns: Tensor, valid: Tensor, least: float | None
) -> Weights:
    """Weights from their logarithms in float64, NEVER where no pair is ``valid``.

    Outputs have prices where any pair weighs less than the ``least``, in logarithms, but for them.
    """
    worth, prices = torch.where(rows, logs.amax(2), 0.0), torch.zeros_like(logs[:, :1])
    relative = logs - worth.unsqueeze(2)
    if least is not None and _falls_below(relative, valid, least) is not None:
        worth, prices = _in_best_matching(logs, rows, columns, valid)
        relative = logs - worth.unsqueeze(2) - prices
    raised = _falls_below(relative, valid, FLOOR)
    pairs = relative.clamp_(min=FLOOR).exp_().mul_(valid)
    return Weights(pairs, worth, prices, None if raised is None else raised.double())


def _falls_below(relative: Tensor, valid: Tensor, least: float) -> Tensor | None:
    below = (relative < least) & valid
    return below if bool(below.any()) else None


def _in_best_matching(
    logs: Tensor, rows: Tensor, columns: Tensor, valid: Tensor
) -> tuple[Tensor, Tensor]:
    """What targets and outputs are worth; outputs that are left over are worth nothing.

    Prices rise until nobody would rather have another output.
    """
    best = host_assignment.assign(-logs, rows, columns).clamp_(min=0)
    enough = PENNY + PRECISION * logs.masked_fill(~valid, 0.0).abs().amax()
    own = torch.where(rows, logs.gather(2, best.unsqueeze(2)).squeeze(2), 0.0)
    gained = torch.where(rows.unsqueeze(2), logs - own.unsqueeze(2), NEVER)
    prices = torch.zeros_like(logs[:, 0])
    for _ in range(logs.shape[1]):
        offered = (gained + prices.gather(1, best).unsqueeze(2)).amax(1)
        if bool((offered <= prices + enough).all()):
            break
        prices = torch.maximum(prices, offered)
    return own - torch.where(rows, prices.gather(1, best), 0.0), prices.unsqueeze(1)
