"""The shipped table of borders is sane, and its paths are as many as the module says."""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import pytest

from setwise.data import KnowledgeBase, RuleEncoding, chain_rule, load_countries
from setwise.data.countries import PAPER_CLAUSES

# Clauses of neighbor-n: ours, as the module's text gives them, and the paper's.
CLAUSES = {2: (2832, 2858), 3: (10888, 11000), 4: (39254, 39878), 5: (134988, 137738)}


def listed_pairs() -> list[tuple[str, str]]:
    """The table, read without the library."""
    text = files("setwise.data").joinpath("countries.tsv").read_text(encoding="utf-8")
    rows = [line.split("\t") for line in text.splitlines() if not line.startswith("#")]
    assert all(len(row) == 3 and row[1] == "neighbor" for row in rows)
    return [(first, second) for first, _, second in rows]


def neighbours() -> dict[str, set[str]]:
    table: dict[str, set[str]] = {}
    for first, second in listed_pairs():
        table.setdefault(first, set()).add(second)
        table.setdefault(second, set()).add(first)
    return table


@pytest.fixture(scope="module")
def kb() -> KnowledgeBase:
    return load_countries()


def test_each_pair_is_listed_once() -> None:
    pairs = listed_pairs()
    assert len(pairs) == 323
    assert pairs == sorted(set(pairs))
    assert all(first < second for first, second in pairs)  # so no pair is there reversed
    assert all(
        name.replace("_", "").isalpha() and name.islower() for pair in pairs for name in pair
    )


def test_163_countries_with_a_symmetric_relation(kb: KnowledgeBase) -> None:
    pairs = {(int(a), int(b)) for a, b in kb.facts["neighbor"]}
    assert list(kb.facts) == ["neighbor"]
    assert len(kb.constants) == 163
    assert len(pairs) == 646
    assert pairs == {(b, a) for a, b in pairs}
    assert all(a != b for a, b in pairs)
    assert {a for a, _ in pairs} == set(range(163))  # every country has a neighbour
    assert {(kb.constants[a], kb.constants[b]) for a, b in pairs if a < b} == set(listed_pairs())


@pytest.mark.parametrize(
    ("country", "expected"),
    [
        ("austria", "czechia germany hungary italy liechtenstein slovakia slovenia switzerland"),
        ("dr_congo", "angola burundi central_african_republic republic_of_the_congo rwanda "
         "south_sudan tanzania uganda zambia"),
        ("brazil", "argentina bolivia colombia french_guiana guyana paraguay peru suriname uruguay "
         "venezuela"),
        ("turkey", "armenia azerbaijan bulgaria georgia greece iran iraq syria"),
        ("laos", "cambodia china myanmar thailand vietnam"),
        ("sudan", "central_african_republic chad egypt eritrea ethiopia libya south_sudan"),
        ("united_states", "canada mexico"),
        ("portugal", "spain"),
        ("sint_maarten", "saint_martin"),
    ],
)  # fmt: skip
def test_all_neighbours_of_some_countries(country: str, expected: str) -> None:
    assert neighbours()[country] == set(expected.split())


@pytest.mark.parametrize(
    ("country", "count"),
    [("china", 16), ("russia", 14), ("germany", 9), ("zambia", 8), ("serbia", 8), ("mali", 7),
     ("iran", 7), ("india", 6), ("indonesia", 3), ("denmark", 1), ("lesotho", 1)],
)  # fmt: skip
def test_number_of_neighbours(country: str, count: int) -> None:
    assert len(neighbours()[country]) == count


@pytest.mark.parametrize(
    "pair",
    [
        ("chile", "brazil"),
        ("ecuador", "brazil"),
        ("namibia", "zimbabwe"),
        ("chad", "south_sudan"),
        ("afghanistan", "india"),
        ("thailand", "vietnam"),
        ("france", "united_kingdom"),
        ("denmark", "sweden"),
        ("georgia", "iran"),
        ("bosnia_and_herzegovina", "slovenia"),
        ("austria", "belgium"),
    ],
)
def test_countries_that_only_look_like_neighbours(kb: KnowledgeBase, pair: tuple[str, str]) -> None:
    assert not kb.holds(f"neighbor({pair[0]},{pair[1]})")
    assert not kb.holds(f"neighbor({pair[1]},{pair[0]})")


@pytest.mark.parametrize("name", ["japan", "australia", "singapore", "madagascar", "gibraltar"])
def test_islands_and_what_was_left_out(kb: KnowledgeBase, name: str) -> None:
    assert name not in kb.constants


@pytest.mark.parametrize("n", CLAUSES)
def test_counts_of_clauses(kb: KnowledgeBase, n: int) -> None:
    """Counted again by walking the borders one by one."""
    table = neighbours()

    def paths(path: tuple[str, ...], steps: int) -> int:
        if steps == 0:
            return 1
        onwards = (there for there in table[path[-1]] if there not in path)
        return sum(paths((*path, there), steps - 1) for there in onwards)

    ours, papers = CLAUSES[n]
    assert sum(paths((start,), n) for start in table) == ours
    assert len(chain_rule("neighbor", n).ground(kb)) == ours
    assert papers == PAPER_CLAUSES[n]
    assert abs(ours / papers - 1) < 0.03


def test_the_vectors_have_the_papers_widths(kb: KnowledgeBase) -> None:
    for n in (2, 5):
        encoding = RuleEncoding(chain_rule("neighbor", n), kb)
        clauses = encoding.rule.ground(kb)[:7]
        assert encoding.heads(clauses).shape == (7, 2 + 163 * (n + 1))
        assert encoding.bodies(clauses).shape == (7, n, 328)


def test_the_papers_example(kb: KnowledgeBase) -> None:
    encoding = RuleEncoding(chain_rule("neighbor", 2), kb)
    clause = np.array([[kb.index(name) for name in ("austria", "germany", "belgium")]])
    assert clause.tolist()[0] in encoding.rule.ground(kb).tolist()
    body = encoding.read_body(encoding.bodies(clause)[0])
    assert body == ["neighbor(austria,germany)", "neighbor(germany,belgium)"]
    assert all(encoding.holds(atom) for atom in body)
    head = encoding.read_head("neighbor2(austria,germany,belgium)")
    assert head.equal(encoding.heads(clause)[0])
