"""How many of several independent things happen, on a CPU: coin after coin, in float64.

Legend: B sets, N things.

The coins are tilted as in `counting`, so the number asked for is about the likeliest, and what is
too small for a plain number has no part in it. All terms are positive. The chances without one of
the coins, of which the gradient is made, follow from those of all by taking the coin out again.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from setwise.kernels.arrays import Array, Numbers, sigmoid

# With a tilt so far beyond the logits, things are certain to happen, or not to.
CERTAIN = 30.0
# A number of coins that is expected so closely will do: the tilt cancels.
NEAR = 0.01
# Steps of Newton's method, or halvings where it leaves what is known; of logits up to 1e4.
MOST_STEPS = 40
# Chances that are less have no part in anything, and take processors long.
NEXT_TO_NOTHING = 1e-280


@np.errstate(all="ignore")
def counted(
    logits: Tensor, valid: Tensor, count: Tensor, gradient: bool
) -> tuple[Tensor, Tensor | None]:
    """`counting.log_count_probability`, and its gradient to the logits [B, N]."""
    z, there = logits.numpy(force=True).astype(np.float64), valid.numpy(force=True)
    # Of less things than are counted anything may be said.
    number = np.clip(count.numpy(force=True).astype(np.int64), 0, there.sum(axis=1))
    tilt = _tilt(z, there, number)
    q = sigmoid(z + tilt) * there
    chances = _chances(q)
    chance = np.maximum(np.take_along_axis(chances, number[None], axis=0)[0], NEXT_TO_NOTHING)
    gained = ((_softplus(z + tilt) - _softplus(z)) * there).sum(axis=1)
    logs = torch.from_numpy(np.log(chance) + gained - tilt[:, 0] * number).to(logits.dtype)
    if not gradient:
        return logs, None
    used = q * _chances_without(q, chances, number) / chance[:, None]
    return logs, torch.from_numpy(used - sigmoid(z) * there).to(logits.dtype)


def _tilt(z: Array, there: Array, number: Numbers) -> Array:
    """What to add to all logits [B, 1] so that about that number of the things happen."""
    ends = [np.where(there, end, -np.inf).max(axis=1, keepdims=True) for end in (z, -z)]
    low, high = (np.where(end == -np.inf, 0.0, end) + CERTAIN for end in ends)
    low, tilt, wanted = -low, (high - low) / 2, number[:, None]
    # All of them, or none: there is no better tilt than the last.
    tilt = np.where(wanted == there.sum(axis=1, keepdims=True), high, tilt)
    tilt = np.where(wanted == 0, low, tilt)
    for _ in range(MOST_STEPS):
        q = sigmoid(z + tilt) * there
        off = q.sum(axis=1, keepdims=True) - wanted
        if (np.abs(off) < NEAR).all():
            break
        low, high = np.where(off < 0, tilt, low), np.where(off < 0, high, tilt)
        newton = tilt - off / (q * (1 - q)).sum(axis=1, keepdims=True)
        inside = (newton > low) & (newton < high)  # neither if it is no number
        tilt = np.where(inside, newton, (low + high) / 2)
    return tilt


def _chances(q: Array) -> Array:
    """Of every number of heads of coins [B, N]: [N + 1, B]."""
    B, N = q.shape
    chances = np.zeros((N + 1, B))
    chances[0] = 1
    heads, tails = np.ascontiguousarray(q.T), np.ascontiguousarray(1 - q.T)
    for j in range(N):
        one_more = chances[: j + 1] * heads[j]
        chances[: j + 1] *= tails[j]
        chances[1 : j + 2] += one_more
    chances[chances < NEXT_TO_NOTHING] = 0
    return chances


def _chances_without(q: Array, chances: Array, number: Numbers) -> Array:
    """That one less than the number is there of the other coins, for each of them: [B, N].

    To take out heads that are less likely than tails begins with none of them, and nothing grows
    by it; others are counted by their tails.
    """
    N = q.shape[1]
    by_heads = _taken_out(np.minimum(q, 0.5), chances, number - 1)
    by_tails = _taken_out(np.minimum(1 - q, 0.5), chances[::-1], N - number)
    found: Array = np.where(q <= 0.5, by_heads, by_tails)
    return found


def _taken_out(q: Array, chances: Array, wanted: Numbers) -> Array:
    """The chance of the number that is wanted [B], without each of the coins: [B, N]."""
    share, without, found, term = 1 / (1 - q), np.zeros_like(q), np.zeros_like(q), np.empty_like(q)
    odds, ends = -q * share, set(wanted.tolist())
    for k in range(max(ends) + 1):
        without *= odds
        without += np.multiply(share, chances[k][:, None], out=term)
        if k in ends:
            here = wanted == k
            found[here] = without[here]
    return found


def _softplus(z: Array) -> Array:
    return np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z)))
