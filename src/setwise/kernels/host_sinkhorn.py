"""Sinkhorn's rounds on a CPU: products with matrices instead of logarithms.

Legend: B sets, M rows, N columns; b sets that are worked on together.

Between two looks the potentials of columns move by ``t log v``. With the plan ``a_i T_ij`` that
answered them at the last look, whose rows are a softmax, a round is::

    v_j = b_j / sum_i T_ij a_i / (T v)_i

At every look T is formed anew from the potentials. While a column is so far away that next to none
of its mass is in T, rounds are made in logarithms. Where mass may go missing, they have no such
form.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from setwise.kernels.fixed_point import ROUNDS_BETWEEN_LOOKS, has_settled, looks
from setwise.kernels.permanent import NEVER

# Pairs that each thread works on at once: what they need stays in a core's cache.
PAIRS_AT_ONCE = 2**15
# The least logarithm of a share; a smaller one takes long to compute, and counts for nothing.
LEAST = -300.0
# The part of its mass with which a column is in reach of the rows.
IN_REACH = 1e-100


class _Problem(NamedTuple):
    costs: Tensor  # [b, M, N] over the temperature
    a: Tensor  # [b, M]
    b: Tensor  # [b, N]
    log_a: Tensor  # [b, M]
    log_b: Tensor  # [b, N]

    def only(self, sets: Tensor) -> _Problem:
        return _Problem(*(t[sets] for t in self))


class _Look(NamedTuple):
    """What potentials of columns lead to."""

    value: Tensor  # [b] over the temperature
    of_rows: Tensor  # [b, M] potentials of rows over the temperature
    shares: Tensor  # [b, M, N] of the mass of each row
    moved: Tensor  # [b, 1, N] to the columns
    potentials: Tensor  # [b, N] over the temperature


def transport_on_host(
    costs: Tensor, a: Tensor, b: Tensor, t: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What `setwise.kernels.sinkhorn.transport` gives where no mass may be missing, on the CPU."""
    _, M, N = costs.shape
    at_once = max(1, PAIRS_AT_ONCE * torch.get_num_threads() // (M * N))
    split = costs.split(at_once), a.split(at_once), b.split(at_once)
    parts = [_of_some(*some, t) for some in zip(*split, strict=True)]
    value, plan, settled, potentials = (torch.cat(part) for part in zip(*parts, strict=True))
    return value, plan, settled, potentials


def _of_some(
    costs: Tensor, a: Tensor, b: Tensor, t: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dtype = costs.dtype
    a, b = a.double(), b.double()
    log_a, log_b = (mass.log().clamp_(min=NEVER) for mass in (a, b))
    p = _Problem(costs.double() / t, a, b, log_a, log_b)
    look = _look(p, torch.zeros_like(b))
    last = _Look(*(given.clone() for given in look))
    settled = torch.zeros(len(costs), dtype=torch.bool)
    active = torch.arange(len(costs))
    for _ in looks(dtype):
        before, look = look, _look(p, _some_rounds(p, look))
        after = _answer(p, look.moved)
        change = (after * _asked(p, look.shares, after) - look.moved).abs().sum((1, 2))
        done = has_settled(t * look.value, t * before.value, change, dtype)
        settled[active] = done
        for all_sets, some in zip(last, look, strict=True):
            all_sets[active] = some
        if bool(done.any()):
            active, p = active[~done], p.only(~done)
            if len(active) == 0:
                break
            look = _Look(*(given[~done] for given in look))
    plan = last.shares.mul_(a.unsqueeze(2))
    found = t * last.value, plan, t * last.potentials
    value, plan, potentials = (given.to(dtype) for given in found)
    return value, plan, settled, potentials


def _some_rounds(p: _Problem, look: _Look) -> Tensor:
    """Potentials of columns, rounds later."""
    if bool((look.moved.squeeze(1) < IN_REACH * p.b).any()):
        of_rows, of_columns = look.of_rows, look.potentials
        for k in range(ROUNDS_BETWEEN_LOOKS):
            if k > 0:
                of_rows = -((p.log_b + of_columns).unsqueeze(1) - p.costs).logsumexp(2)
            of_columns = -((p.log_a + of_rows).unsqueeze(2) - p.costs).logsumexp(1)
        return torch.where(p.b > 0, of_columns, 0.0)
    v = _answer(p, look.moved)
    for _ in range(ROUNDS_BETWEEN_LOOKS - 1):
        v = _answer(p, _asked(p, look.shares, v))
    return look.potentials + torch.where(p.b > 0, v.squeeze(1).log(), 0.0)


def _look(p: _Problem, potentials: Tensor) -> _Look:
    logs = (p.log_b + potentials).unsqueeze(1) - p.costs
    top = logs.amax(2, keepdim=True)
    shares = logs.sub_(top).clamp_(min=LEAST).exp_()
    total = shares.sum(2, keepdim=True)
    shares /= total
    of_rows = -(top + total.log_()).squeeze(2)
    value = (p.a * of_rows).sum(1) + (p.b * potentials).sum(1)
    return _Look(value, of_rows, shares, p.a.unsqueeze(1) @ shares, potentials)


def _answer(p: _Problem, asked: Tensor) -> Tensor:
    """By what columns [b, 1, N] are wanted too little: ``exp`` of a step of their potentials."""
    return p.b.unsqueeze(1) / asked


def _asked(p: _Problem, shares: Tensor, v: Tensor) -> Tensor:
    """What columns get from rows that answer them [b, 1, N], but for the factor v."""
    return (p.a.unsqueeze(1) / (v @ shares.mT)) @ shares
