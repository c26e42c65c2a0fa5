"""The sum over all matchings by Bethe's approximation: messages between targets and outputs.

Legend: B sets, M targets, N outputs.

A target asks every output how much it is wanted elsewhere; an output answers with the odds that it
is free, by what the other targets have asked. At the fixed point the beliefs minimise Bethe's free
energy, which is convex (Vontobel, 2013), and the value is a lower bound of the exact sum (Gurvits,
2011; Straszak and Vishnoi, 2019).

What an output ``j`` allows, with odds ``o``, is a polynomial in the weights ``x`` of its targets::

    1 + o (e sum_i x_i + (1 - e) (prod_i (1 + x_i) - 1))

With exclusivity ``e = 1`` it serves nobody or one target: the matchings. With ``e = 0`` and
``o = 1`` it serves any number of them, and the answers are all 0: the sum is a product over targets
of sums over outputs, which is the set cross entropy. In between it is exclusive with probability
``e``. The polynomial falls with ``e``, and so does the value: its derivative by ``e`` is that of
these polynomials alone, for it is stationary in the messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from setwise.kernels.fixed_point import Judge, pull_back, settle
from setwise.kernels.permanent import NEVER
from setwise.kernels.reference import SOFTPLUS_IS_IDENTITY

# Messages within this of 0 tell beliefs of 0 and 1 apart from others in any type.
_CERTAIN = 100.0


class Graph(NamedTuple):
    """One problem: what stays the same from round to round."""

    scores: Tensor  # [B, M, N], NEVER where either is not valid
    odds: Tensor  # [B, 1, N] logarithms
    alone: Tensor  # [B, 1, 1] log e
    shared: Tensor | None  # [B, 1, 1] log(1 - e); None where e = 1 in all sets
    unused: Tensor  # [B, 1, N] the constant 1 in logarithms; NEVER where all must be used
    pairs: Tensor  # [B, M, N] of booleans
    limit: Tensor  # [B, 1, 1] of all messages

    def only(self, sets: Tensor) -> Graph:
        """The problem of some of the sets, by their numbers."""
        scores, odds, alone, unused, pairs, limit = (
            t[sets]
            for t in (self.scores, self.odds, self.alone, self.unused, self.pairs, self.limit)
        )
        shared = None if self.shared is None else self.shared[sets]
        return Graph(scores, odds, alone, shared, unused, pairs, limit)


def graph(
    scores: Tensor, odds: Tensor, exclusivity: Tensor | None, rows: Tensor, columns: Tensor
) -> Graph:
    """From scores [B, M, N], odds [B, N], exclusivity [B], and which elements are valid."""
    pairs = rows.unsqueeze(-1) & columns.unsqueeze(-2)
    e = odds.new_ones(len(odds)) if exclusivity is None else exclusivity
    e = e[:, None, None]
    # With as many targets as outputs none is left over: then no message should wait for that.
    full = (rows.sum(-1) == columns.sum(-1))[:, None, None] & (e == 1)
    # Answers have the size of odds, even if these are all alike.
    largest = torch.where(columns, odds.detach(), 0.0).abs().amax(1)
    spread = _spread(scores.detach(), pairs) + _spread(odds.detach(), columns) + largest
    return Graph(
        scores=torch.where(pairs, scores, NEVER),
        odds=torch.where(columns, odds, 0.0).unsqueeze(1),
        alone=e.log().clamp(min=NEVER),
        shared=None if exclusivity is None else torch.log1p(-e).clamp(min=NEVER),
        unused=torch.where(full, NEVER, 0.0).to(scores.dtype).expand(-1, 1, scores.shape[2]),
        pairs=pairs,
        limit=(_CERTAIN + 2 * scores.shape[1] * spread)[:, None, None],
    )


def _spread(values: Tensor, valid: Tensor) -> Tensor:
    """The distance of the largest valid value from the least [B]."""
    values, valid = values.flatten(1), valid.flatten(1)
    high = values.masked_fill(~valid, NEVER).amax(-1)
    low = values.masked_fill(~valid, -NEVER).amin(-1)
    return (high - low).clamp(min=0.0)


def bethe(
    scores: Tensor, odds: Tensor, exclusivity: Tensor | None, rows: Tensor, columns: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Value [B]; beliefs of pairs [B, M, N] and of use [B, N]; what settled [B]; answers."""
    g = graph(scores, odds, exclusivity, rows, columns)
    impossible = (rows.sum(-1) > columns.sum(-1)) & (g.alone == 0).flatten()

    def rounds_of(sets: Tensor) -> tuple[Callable[[Tensor], Tensor], Judge]:
        own = g.only(sets)
        hopeless = impossible[sets]

        def judge(answers: Tensor) -> tuple[Tensor, Tensor]:
            asked = _ask(own, answers)
            by_target = (asked + answers).sigmoid()
            by_output = (asked + _answer(own, asked)).sigmoid()
            apart = torch.where(own.pairs, by_target - by_output, 0.0).abs().amax((1, 2))
            return _value(own, answers, asked), apart.masked_fill(hopeless, 0.0)

        return lambda answers: _answer(own, _ask(own, answers)), judge

    answers, settled = settle(rounds_of, torch.zeros_like(g.scores))
    beliefs, used = _beliefs(g, answers)
    return _value(g, answers, _ask(g, answers)), beliefs, used, settled, answers


def bethe_second(
    answers: Tensor,
    inputs: tuple[Tensor, Tensor],
    cotangents: tuple[Tensor, Tensor],
    exclusivity: Tensor | None,
    rows: Tensor,
    columns: Tensor,
) -> tuple[Tensor, ...]:
    """The gradients to the inputs, scores and odds, of the beliefs of pairs and of use."""

    def own(scores: Tensor, odds: Tensor) -> Graph:
        return graph(scores, odds, exclusivity, rows, columns)

    def step(answers: Tensor, *inputs: Tensor) -> Tensor:
        g = own(*inputs)
        return _answer(g, _ask(g, answers))

    def read(answers: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
        return _beliefs(own(*inputs), answers)

    return pull_back(step, read, answers, inputs, cotangents)


def _ask(g: Graph, answers: Tensor) -> Tensor:
    """The odds that a target takes an output, but for what that output answers: [B, M, N]."""
    asked = g.scores - _logsumexp_of_others(g.scores + answers, dim=2)
    return torch.where(g.pairs, asked.clamp(-g.limit, g.limit), NEVER)


def _answer(g: Graph, asked: Tensor) -> Tensor:
    """The odds that an output has room for a target, but for what that target asks."""
    single = g.odds + g.alone
    everything = torch.cat([asked, g.unused - single], dim=1)
    not_mine = _logsumexp_of_others(everything, dim=1)[:, :-1] + single
    mine = single
    if g.shared is not None:
        each = _softplus(asked)
        others = each.sum(1, keepdim=True) - each
        mine = g.odds + torch.logaddexp(g.alone, g.shared + others)
        not_mine = torch.logaddexp(not_mine, g.odds + g.shared + _log_expm1(others))
    return torch.where(g.pairs, (mine - not_mine).clamp(-g.limit, g.limit), 0.0)


def _value(g: Graph, answers: Tensor, asked: Tensor) -> Tensor:
    """Bethe's approximation of the log of the sum, stationary in the messages: [B]."""
    by_target = (g.scores + answers).logsumexp(2)
    by_pair = _softplus(torch.where(g.pairs, asked + answers, NEVER))
    rows, columns = g.pairs.any(2), g.pairs.any(1)
    return (
        torch.where(rows, by_target, 0.0).sum(1)
        + torch.where(columns, _log_polynomial(g, asked), 0.0).sum(1)
        - by_pair.sum((1, 2))
    )


def _log_polynomial(g: Graph, asked: Tensor) -> Tensor:
    """What each output allows [B, N]."""
    single = g.odds + g.alone
    total = torch.cat([asked + single, g.unused], dim=1).logsumexp(1)
    if g.shared is None:
        return total
    several = g.odds + g.shared + _log_expm1(_softplus(asked).sum(1, keepdim=True))
    return torch.logaddexp(total, several.squeeze(1))


def _beliefs(g: Graph, answers: Tensor) -> tuple[Tensor, Tensor]:
    """The probabilities of pairs [B, M, N], and that an output is used [B, N]."""
    beliefs = torch.where(g.pairs, (g.scores + answers).softmax(2), 0.0)
    if g.shared is None:
        return beliefs, beliefs.sum(1)
    unused = g.unused.squeeze(1) - _log_polynomial(g, _ask(g, answers))
    return beliefs, torch.where(g.pairs.any(1), -torch.expm1(unused), 0.0)


def _logsumexp_of_others(values: Tensor, dim: int) -> Tensor:
    """For each value the logsumexp of all others along a dimension, also of the largest one."""
    total = values.logsumexp(dim, keepdim=True)
    places = torch.arange(values.shape[dim], device=values.device)
    places = places.view(-1, *(1 for _ in range(values.dim() - 1 - dim)))
    is_largest = places == values.argmax(dim, keepdim=True)
    next_to_it = values.masked_fill(is_largest, NEVER).logsumexp(dim, keepdim=True)
    # The share of any other is at most a half: nothing is lost in 1 - share.
    share = (values - total).masked_fill(is_largest, NEVER).exp()
    return torch.where(is_largest, next_to_it, total + torch.log1p(-share))


def _softplus(values: Tensor) -> Tensor:
    return functional.softplus(values, threshold=SOFTPLUS_IS_IDENTITY)


def _log_expm1(values: Tensor) -> Tensor:
    """``log(exp(v) - 1)`` of numbers from 0 on, finite at 0."""
    values = values.clamp(min=torch.finfo(values.dtype).tiny)
    return values + torch.log(-torch.expm1(-values))
