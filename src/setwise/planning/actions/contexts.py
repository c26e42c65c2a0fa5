"""Contexts: steps that do the same under conditions of which no conjunction says all.

Legend: T steps, n of them that do the same, u states that a conjunction allows, L bits.

That a tile and the blank are in one column is no conjunction of bits that say which columns these
are in. It is one of three, each a conjunction: both in the first, both in the second, both in the
third. So steps of one effect are divided by a bit where that shows, and each part has conditions of
its own. It shows in states that were recorded: those of the whole fulfil a conjunction, which
allows other states too, in which something else was done. If the two conjunctions of the parts
together rule out so many of these that the action would have been done in some if it could have
been, they say more than the one did.

Where to divide is a guess from what was seen; that it is safe is not. Each part demands all that
the whole did, and what all of its own steps show besides: nothing is allowed that was not before.
"""

from __future__ import annotations

import torch
from torch import Tensor

# Steps that would have been seen in the states that are ruled out, if they could have been done.
_EVIDENCE = 12.0


def in_contexts(steps: Tensor, before: Tensor) -> list[Tensor]:
    """Divide steps [n], numbers of rows of ``before`` bool [T, L], into parts of one context."""
    return _divided(steps, before, before)


def _divided(steps: Tensor, before: Tensor, others: Tensor) -> list[Tensor]:
    """Likewise, given states [*, L] all of which the steps of a larger part allow."""
    if len(steps) <= _EVIDENCE:  # not even if all other states were ruled out
        return [steps]
    own = before[steps]
    allowed = others[_allows(own.all(0), ~own.any(0), others)]
    bit = _telling(own, allowed)
    if bit is None:
        return [steps]
    on = own[:, bit]
    return [part for side in (on, ~on) for part in _divided(steps[side], before, allowed)]


def _allows(always: Tensor, never: Tensor, states: Tensor) -> Tensor:
    """Whether states [u, L] have all bits that always were on, and none that never was: [u]."""
    return ~((always & ~states) | (never & states)).any(-1)


def _telling(own: Tensor, allowed: Tensor) -> int | None:
    """The bit whose parts of states [n, L] rule out most of those allowed, [u, L], if enough."""
    free = (own.any(0) & ~own.all(0)).nonzero()[:, 0]
    if not len(free):
        return None
    states, all_ = own.float(), allowed.float()
    left = torch.zeros(len(free))
    for side in (states, 1 - states):  # those with the bit, and those without
        count = side.sum(0)[free].unsqueeze(-1)
        together = side.mT[free] @ states  # [free, L]
        always, never = (together == count).float(), (together == 0).float()
        left += (((1 - all_) @ always.mT + all_ @ never.mT) == 0).sum(0)
    ruled_out, bit = (len(allowed) - left).max(0)
    seen = float(ruled_out) * len(own) / len(allowed)
    return int(free[bit]) if seen >= _EVIDENCE else None
