"""Clauses are counted without being listed, by two ways that know nothing of each other."""

from __future__ import annotations

import random

import numpy as np
import pytest

from limits import failures, within_limits
from setwise.data import KnowledgeBase, Rule, chain_rule
from setwise.data.clause_counts import sum_clauses, summable
from setwise.data.joins import count_clauses, joins


def random_rule(rng: random.Random) -> tuple[Rule, KnowledgeBase]:
    """Any shape of body: with loops, cycles, parts that share nothing, an atom of one thing."""
    relations = ["r", "s", "t"][: rng.randint(1, 3)]
    names = [f"c{i}" for i in range(rng.randint(2, 8))]
    facts = [
        (rng.choice(relations), rng.choice(names), rng.choice(names))
        for _ in range(rng.randint(1, 40))
    ]
    variables = "ABCDEF"[: rng.randint(1, 6)]
    known = sorted({fact[0] for fact in facts})
    body = {
        f"{rng.choice(known)}({rng.choice(variables)},{rng.choice(variables)})"
        for _ in range(rng.randint(1, 6))
    }
    atoms = sorted(body)
    return Rule.parse(f"h({atoms[0][2]}) :- {', '.join(atoms)}"), KnowledgeBase.from_facts(facts)


@pytest.mark.parametrize("distinct", [True, False])
def test_both_ways_count_what_is_listed(distinct: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("setwise.data.joins._ROWS", 16)  # so that tables come in many parts
    rng = random.Random(0)
    counts = []
    for _ in range(150):
        rule, kb = random_rule(rng)
        listed = len(rule.ground(kb, distinct))
        assert count_clauses(joins(rule.body, kb), distinct, None) == listed, rule
        assert sum_clauses(rule.body, rule.variables, kb, distinct) == listed, rule
        assert rule.count(kb, distinct) == listed
        counts.append(listed)
    assert sum(count > 0 for count in counts) > 50
    assert max(counts) > 100


def test_counting_stops_where_it_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("setwise.data.joins._ROWS", 16)
    rule, kb = chain_rule("near", 3), large(facts=60, constants=12)
    steps = joins(rule.body, kb)
    every = count_clauses(steps, True, None)
    assert 100 < count_clauses(steps, True, 100) < every


def large(facts: int, constants: int) -> KnowledgeBase:
    """Facts of one relation, none of something and itself."""
    drawn = np.random.default_rng(0).permutation(constants * (constants - 1))[:facts]
    names = [f"c{i:02}" for i in range(constants)]
    pairs = [(first, second) for first in names for second in names if first != second]
    return KnowledgeBase.from_facts(("near", *pairs[i]) for i in drawn)


def count_of_many(n: int) -> int:
    return chain_rule("near", n).count(large(facts=2000, constants=100))


def stream_of_many(n: int) -> int:
    return count_clauses(joins(chain_rule("near", n).body, large(2000, 100)), True, None)


# Slow: children with limits. The first test here breaks as well if a count is wrong.
@pytest.mark.slow
def test_a_count_takes_little_memory() -> None:
    """A list of the chains of five facts among 2000 would take 13 GB."""
    found = within_limits(count_of_many, [2, 3, 4, 5], seconds=20, megabytes=400)
    assert not failures(found)
    assert [one.value for one in found][-1] == pytest.approx(100 * 20**5, rel=0.2)
    streamed = within_limits(stream_of_many, [2, 3, 4], seconds=60, megabytes=400)
    assert not failures(streamed)
    assert [one.value for one in streamed] == [one.value for one in found][:3]


def test_sums_are_exact_or_not_taken() -> None:
    kb = large(facts=100, constants=40)
    assert summable("ABCDEF", kb)
    assert not summable("ABCDEFGH", kb)  # more than Bell(7) = 877 sums
    chain = [("near", f"c{i:03}", f"c{i + 1:03}") for i in range(600)]
    assert not summable("AB", KnowledgeBase.from_facts(chain))  # of matrices that are too large
