"""Bethe's messages on a CPU: plain numbers in float64, where logarithms take many times as long.

Legend: B sets, M targets, N outputs; b sets that are worked on together.

The messages are those of `setwise.kernels.bethe`, which says what they mean, and the weights those
of `setwise.kernels.host_weights`. What all others of a line add up to is a product of few terms, or
the total less the own one; only where one term outweighs the rest, of which a difference would
leave nothing, is the rest summed up anew. Sets in which a pair may count for something that weighs
less than the floor, a number becomes too large, or shared outputs have extreme odds, are left to
logarithms.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from setwise.kernels.bethe import Graph, bethe, graph
from setwise.kernels.fixed_point import ROUNDS_BETWEEN_LOOKS, has_settled, looks
from setwise.kernels.host_weights import FLOOR, Weights, weigh

# Pairs that each thread works on at once: what they need stays in a core's cache.
PAIRS_AT_ONCE = 2**15
# The largest belief in a pair that counts for nothing.
NOTHING = 1e-20
# Logarithms of odds of outputs that are shared, which are factors of their answers.
MOST_ODDS = 50.0
# Terms of a line up to which the rest is a product with a matrix of ones, but for its diagonal.
SHORT = 64
# The most of a total that one term may be, so that its rest is a difference: that has lost half of
# its digits then, but is next to nothing beside the term.
MOST = 1 - 1e-8
# What the rest is at least, for nothing is to be divided by zero.
TINY = 1e-140


class _Results(NamedTuple):
    value: Tensor  # [b]
    beliefs: Tensor  # [b, M, N]
    used: Tensor  # [b, N]
    settled: Tensor  # [b]
    answers: Tensor  # [b, M, N] in logarithms


class _Problem(NamedTuple):
    """Some sets. Answers are in units of the odds, unless outputs are shared."""

    weights: Tensor  # [b, M, N]; 0 where there is no pair
    missing: Tensor  # [b, M, 1] 1 for targets that are not valid, else 0
    unused: Tensor  # [b, 1, N] 0 for outputs of which none may be left over, else 1
    odds: Tensor | None  # [b, 1, N] of outputs that are shared
    exclusivity: Tensor | None  # [b, 1, 1]
    offset: Tensor  # [b] of the value

    def only(self, sets: Tensor) -> _Problem:
        return _Problem(*(t if t is None else t[sets] for t in self))  # type: ignore[arg-type]


class _Look(NamedTuple):
    """What some answers lead to."""

    value: Tensor  # [b]
    beliefs: Tensor  # [b, M, N]
    used: Tensor  # [b, N]
    apart: Tensor  # [b] by how much targets and outputs disagree on a pair
    next: Tensor  # [b, M, N] the answers of the next round


def bethe_on_host(
    scores: Tensor, odds: Tensor, exclusivity: Tensor | None, rows: Tensor, columns: Tensor
) -> _Results:
    """What `setwise.kernels.bethe.bethe` gives, of sets that are not empty, on the CPU."""
    B, M, N = scores.shape
    if exclusivity is not None and bool((exclusivity == 1).all()):
        exclusivity = None
    if exclusivity is None:  # what is impossible has no answer, and is not asked for one
        rows = rows & (rows.sum(-1) <= columns.sum(-1)).unsqueeze(1)
    at_once = max(1, PAIRS_AT_ONCE * torch.get_num_threads() // (M * N))

    def only(sets: slice | Tensor) -> tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor]:
        shared = None if exclusivity is None else exclusivity[sets]
        return scores[sets], odds[sets], shared, rows[sets], columns[sets]

    parts = [_of_some(*only(slice(b, b + at_once))) for b in range(0, B, at_once)]
    found, good = zip(*parts, strict=True)
    results = _Results(*(torch.cat(part) for part in zip(*found, strict=True)))
    left = (~torch.cat(good)).nonzero().squeeze(1)
    if len(left):
        for all_sets, some in zip(results, bethe(*only(left)), strict=True):
            all_sets[left] = some
    return results


def _of_some(
    scores: Tensor, odds: Tensor, exclusivity: Tensor | None, rows: Tensor, columns: Tensor
) -> tuple[_Results, Tensor]:
    """Results in the type of the scores, and for which sets [b] they are right."""
    dtype = scores.dtype
    g = graph(scores.double(), odds.double(), exclusivity, rows, columns)
    problem, weights = _problem(g, exclusivity, rows, columns)
    answers, look, settled = _settle(problem, dtype)
    good = look.value.isfinite()
    if exclusivity is not None:
        good &= g.odds.abs().amax((1, 2)) <= MOST_ODDS
    if weights.raised is not None:
        in_them = (look.beliefs * weights.raised).amax((1, 2))
        # Relative to the best matching nothing else can be wrong; relative to what targets would
        # rather have, messages may be on their way to such pairs.
        at_an_end = settled | (exclusivity is None) | ~weights.raised.any(2).any(1)
        good &= at_an_end & (in_them <= NOTHING)
    messages = answers.log_()
    if exclusivity is None:
        messages += g.odds - weights.prices
    messages = torch.where(g.pairs, messages.clamp_(-g.limit, g.limit), 0.0)
    value, beliefs, used = (t.to(dtype) for t in (look.value, look.beliefs, look.used))
    return _Results(value, beliefs, used, settled, messages.to(dtype)), good


def _problem(
    g: Graph, exclusivity: Tensor | None, rows: Tensor, columns: Tensor
) -> tuple[_Problem, Weights]:
    """The problem in plain numbers, and how its weights came about."""
    alone = exclusivity is None
    logs, least = (g.scores + g.odds, FLOOR) if alone else (g.scores, None)
    weights = weigh(logs, rows, columns, g.pairs, least)
    return _Problem(
        weights=weights.pairs,
        missing=(~rows).double().unsqueeze(2),
        unused=torch.where(columns.unsqueeze(1), (g.unused - weights.prices).exp(), 1.0),
        odds=None if alone else g.odds.exp(),
        exclusivity=None if exclusivity is None else exclusivity.double()[:, None, None],
        offset=weights.offset(),
    ), weights


def _settle(p: _Problem, dtype: torch.dtype) -> tuple[Tensor, _Look, Tensor]:
    """The last answers, what they lead to, and which have settled; see `fixed_point.settle`."""
    answers = torch.ones_like(p.weights)
    look = _look(p, answers)
    settled = torch.zeros(len(p.weights), dtype=torch.bool)
    last, last_look = answers.clone(), _Look(*(t.clone() for t in look))
    active = torch.arange(len(settled))
    for _ in looks(dtype):
        answers, before = look.next, look.value
        for _ in range(ROUNDS_BETWEEN_LOOKS - 1):
            answers = _answer(p, _ask(p, answers)[1])
        look = _look(p, answers)
        done = has_settled(look.value, before, look.apart, dtype)
        last[active], settled[active] = answers, done
        for all_sets, some in zip(last_look, look, strict=True):
            all_sets[active] = some
        over = done | ~look.value.isfinite()
        if bool(over.any()):
            go_on = ~over
            active, p = active[go_on], p.only(go_on)
            if len(active) == 0:
                break
            look = _Look(*(t[go_on] for t in look))
    return last, last_look, settled


def _look(p: _Problem, answers: Tensor) -> _Look:
    beliefs, asked = _ask(p, answers)
    after = _answer(p, asked)
    total = beliefs.sum(2, keepdim=True).add_(p.missing)
    unused, outputs = _outputs(p, asked)
    value = p.offset + total.log().sum((1, 2)) + outputs.sum((1, 2))
    value -= (asked * answers).add_(1).log_().sum((1, 2))
    beliefs /= total
    by_output = asked * after
    by_output /= by_output + 1
    apart = by_output.sub_(beliefs).abs_().amax((1, 2))
    used = beliefs.sum(1) if p.odds is None else -torch.expm1(unused - outputs).squeeze(1)
    return _Look(value, beliefs, used, apart, after)


def _ask(p: _Problem, answers: Tensor) -> tuple[Tensor, Tensor]:
    """What targets make of the answers, and what they ask in turn."""
    terms = p.weights * answers
    rest = _rest(terms, p.missing)
    return terms, torch.div(p.weights, rest, out=rest)


def _answer(p: _Problem, asked: Tensor) -> Tensor:
    """How free an output is for a target, by what the others have asked."""
    if p.odds is None or p.exclusivity is None:
        return _rest(asked.mT, p.unused.mT).reciprocal_().mT
    each = asked.log1p()
    each -= each.sum(1, keepdim=True)
    # The share of taking nobody else, were it not exclusive; the contrary with its sign changed.
    none, some = each.exp(), each.expm1_()
    lone, several = p.odds * p.exclusivity, p.odds * (1 - p.exclusivity)
    others = _rest(asked.mT, torch.zeros_like(p.unused).mT).mT
    return (lone * none + several) / (none * (1 + lone * others) - several * some)


def _outputs(p: _Problem, asked: Tensor) -> tuple[Tensor, Tensor]:
    """Logarithms [b, 1, N]: of what it counts that an output is left over, and of all it may do."""
    counted, unused = asked.sum(1, keepdim=True), p.unused.log()
    if p.odds is None or p.exclusivity is None:
        return unused, (counted + p.unused).log()
    each = asked.log1p().sum(1, keepdim=True)
    # Relative to all of them together, which may be too many for a plain number.
    none = torch.exp(-each)
    some = p.odds * (p.exclusivity * counted * none - (1 - p.exclusivity) * torch.expm1(-each))
    return unused, each + (none * p.unused + some).log()


def _rest(terms: Tensor, besides: Tensor) -> Tensor:
    """What the others of a line add up to, and what is there ``besides`` [b, lines, 1].

    Terms are [b, lines, size].
    """
    size = terms.shape[2]
    if size <= SHORT:
        return torch.matmul(terms, _all_others(size)).add_(besides + TINY)
    total = terms.sum(2, keepdim=True).add_(besides)
    rest = total - terms
    outweighed = terms.amax(2) > MOST * total.squeeze(2)
    if bool(outweighed.any()):
        sets, lines = outweighed.nonzero(as_tuple=True)
        some = terms[sets, lines]
        largest = some.argmax(1)
        others = some.scatter(1, largest.unsqueeze(1), 0.0).sum(1)
        rest[sets, lines, largest] = others + besides.expand_as(total)[sets, lines, 0] + TINY
    return rest


@cache
def _all_others(size: int) -> Tensor:
    return 1 - torch.eye(size, dtype=torch.float64)
