"""How many of several independent things happen: the Poisson binomial distribution.

Legend: B sets, N things, K frequencies.

The probability of a number that is far from the expected one is too small to be found by a sum over
frequencies. So the coins are tilted first: ``q_j = sigmoid(logit_j + tilt)`` with the tilt by which
the number asked for is the expected one, and so about the likeliest. For every tilt::

    P(count) = P_tilted(count) prod_j (1 - p_j) / (1 - q_j) exp(-tilt count)

The tilt cancels, so it has no gradient, and need not be found exactly. On a CPU coins are then
taken one after the other (`host_counting`). Elsewhere, and for other derivatives, the rest is the
inverse of the characteristic function, all things and frequencies at once (Hong, "On computing the
distribution function for the Poisson binomial distribution", 2013).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from setwise.kernels.dispatch import fused
from setwise.kernels.host_counting import CERTAIN, counted
from setwise.kernels.ready_loss import ReadyLoss
from setwise.kernels.reference import SOFTPLUS_IS_IDENTITY
from setwise.kernels.transforms import has_tangent, is_eager

# Where the tilt may lie is divided so often into so many parts, or else so often into halves: of
# logits up to 1e4 it is known to less than a hundredth.
_DIVIDED = 4
_PARTS = 63
_HALVES = 24


class Elsewhere(NamedTuple):
    """Of things that are spread over processes, of which each has some."""

    things: int  # in all
    total: Callable[[Tensor], Tensor]  # the sum over all processes
    largest: Callable[[Tensor], Tensor]  # the largest of all processes


def log_count_probability(
    logits: Tensor, valid: Tensor, count: Tensor, elsewhere: Elsewhere | None = None
) -> Tensor:
    """The log of the probability [B] that ``count`` [B] of the valid things [B, N] happen.

    ``logits`` [B, N] are those of each. Also what is very unlikely has its right value, and all
    derivatives. Of sets with less things than are counted it means nothing, and is finite. Where
    there are more things ``elsewhere``, all are counted; gradients are those of the own ones.
    """
    plain = elsewhere is None and logits.device.type == "cpu" and logits.numel() > 0
    if not plain or not is_eager() or has_tangent(logits):
        return _by_frequencies(logits, valid, count, elsewhere)

    def compute(gradient: bool) -> tuple[Tensor | None, ...]:
        return counted(logits, valid, count, gradient)

    def again(logits: Tensor) -> Tensor:
        return _by_frequencies(logits, valid, count)

    value: Tensor = ReadyLoss.apply(compute, again, torch.is_grad_enabled(), logits)
    return value


def _by_frequencies(
    logits: Tensor, valid: Tensor, count: Tensor, elsewhere: Elsewhere | None = None
) -> Tensor:
    N = logits.shape[1] if elsewhere is None else elsewhere.things
    if N == 0:
        return logits.new_zeros(len(logits))
    tilt = _tilt(logits.detach(), valid, count, elsewhere)
    tilted = logits + tilt
    gained = torch.where(valid, _softplus(tilted) - _softplus(logits), 0.0).sum(1)
    # An odd number of frequencies: at half a turn a fair coin would have a logarithm of 0.
    K = N + 1 + N % 2
    turn = 2 * math.pi * torch.arange(K // 2 + 1, device=logits.device, dtype=logits.dtype) / K
    q, at = torch.where(valid, tilted.sigmoid(), 0.0).unsqueeze(2), turn[None, None, :]
    log_square = torch.log1p(-4 * q * (1 - q) * (at / 2).sin().square())
    # Less what it is expected to be, so that small things add up.
    angle = torch.atan2(q * at.sin(), 1 - q + q * at.cos()) - q * at
    sums = log_square.sum(1), angle.sum(1), q.sum(1), gained.unsqueeze(1)
    if elsewhere is not None:
        sums = elsewhere.total(torch.cat(sums, 1)).split([s.shape[1] for s in sums], 1)
    log_squares, angles, expected, gained = sums
    waves = (log_squares / 2).exp() * (angles + (expected - count.unsqueeze(1)) * turn).cos()
    # All frequencies but the first come twice, once backwards.
    probability = (2 * waves.sum(1) - waves[:, 0]) / K
    tiny = torch.finfo(logits.dtype).tiny
    return probability.clamp(min=tiny).log() + gained.squeeze(1) - tilt.squeeze(1) * count


def _tilt(
    logits: Tensor, valid: Tensor, count: Tensor, elsewhere: Elsewhere | None = None
) -> Tensor:
    """What to add to all logits [B, 1] so that about ``count`` of the valid things happen."""
    kernels = fused("tilting", logits) if is_eager() and elsewhere is None else None
    if kernels is not None:
        return kernels.tilt(logits, valid, count, CERTAIN, _HALVES)
    nothing = logits.new_full((len(logits), 1), -math.inf)  # a process may have no thing at all
    highest = (
        torch.cat([torch.where(valid, end, -math.inf), nothing], 1).amax(1, keepdim=True)
        for end in (logits, -logits)
    )
    ends = torch.cat(list(highest), 1)
    if elsewhere is not None:
        ends = elsewhere.largest(ends)
    ends = torch.where(ends == -math.inf, -CERTAIN, ends) + CERTAIN
    low, high = -ends[:, :1], ends[:, 1:]
    steps = torch.linspace(0, 1, _PARTS + 1, device=logits.device, dtype=logits.dtype)
    for _ in range(_DIVIDED):
        tilts = low + (high - low) * steps
        chances = (logits.unsqueeze(2) + tilts.unsqueeze(1)).sigmoid()
        expected = torch.where(valid.unsqueeze(2), chances, 0.0).sum(1)
        if elsewhere is not None:
            expected = elsewhere.total(expected)
        too_low = (expected < count.unsqueeze(1)).sum(1, keepdim=True)
        low = tilts.gather(1, (too_low - 1).clamp(min=0))
        high = tilts.gather(1, too_low.clamp(max=_PARTS))
    return (low + high) / 2


def _softplus(values: Tensor) -> Tensor:
    return functional.softplus(values, threshold=SOFTPLUS_IS_IDENTITY)
