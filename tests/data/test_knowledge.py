"""Knowledge bases, rules and their vectors: nothing is lost between text, tables and tensors."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from setwise import Categorical, Features
from setwise.data import KnowledgeBase, Rule, RuleEncoding, chain_rule, split_clauses
from setwise.data.knowledge import Tally
from setwise.data.terms import write_term

Facts = list[tuple[str, str, str]]

FAMILY = """
% Two relations in one file.
parent(ann, bob).      % with spaces and a comment
parent( bob ,'C. D.').
brother(eve-marie,ann).

brother('O''Neil',bob).
"""
FAMILY_TRIPLES = (
    "# Two relations in one file.\n"
    "ann\tparent\tbob\n\nbob\t parent \tC. D.\r\neve-marie\tbrother\tann\nO'Neil\tbrother\tbob"
)
UNCLE = Rule.parse("uncle(A,C) :- brother(A,B), parent(B,C).")

names = st.text(alphabet="aB é'\\-_.,(%#0", min_size=1, max_size=4).filter(
    lambda name: name == name.strip()
)
facts_of_any_name = st.lists(st.tuples(names, names, names), min_size=1, max_size=8)
facts_of_a_graph = st.lists(
    st.tuples(st.sampled_from("rs"), st.sampled_from("abcde"), st.sampled_from("abcde")),
    max_size=25,
)


@pytest.fixture
def family() -> KnowledgeBase:
    return KnowledgeBase.parse(FAMILY)


# Facts and files


def test_both_formats_hold_the_same(tmp_path: Path) -> None:
    prolog, triples = tmp_path / "family.pl", tmp_path / "family.tsv"
    prolog.write_text(FAMILY, encoding="utf-8")
    triples.write_text(FAMILY_TRIPLES, encoding="utf-8-sig")  # a byte order mark does no harm
    family = KnowledgeBase.read(prolog)
    assert family == KnowledgeBase.read(str(triples))
    assert family.constants == ("C. D.", "O'Neil", "ann", "bob", "eve-marie")
    assert {name: pairs.tolist() for name, pairs in family.facts.items()} == {
        "brother": [[1, 3], [4, 2]],
        "parent": [[2, 3], [3, 0]],
    }


@settings(max_examples=100, deadline=None, derandomize=True)
@example(facts=[("0", "%", "0")])
@given(facts=facts_of_any_name)
def test_any_name_survives_both_formats(facts: Facts) -> None:
    kb = KnowledgeBase.from_facts(facts)
    prolog = "\n".join(f"{write_term(relation, pair)}." for relation, *pair in facts)
    triples = "\n".join(f"{first}\t{relation}\t{second}" for relation, first, second in facts)
    assert KnowledgeBase.parse(prolog) == kb
    assert KnowledgeBase.parse(triples) == kb
    assert all(kb.holds(write_term(relation, pair)) for relation, *pair in facts)
    stated = {(r, kb.constants[a], kb.constants[b]) for r in kb.facts for a, b in kb.facts[r]}
    assert stated == set(facts)


def test_names_as_the_countries_files_write_them() -> None:
    kb = KnowledgeBase.parse("neighborOf(guinea-bissau,åland).\nlocatedIn(são_tomé,africa).")
    assert kb.constants == ("africa", "guinea-bissau", "são_tomé", "åland")
    neighbours = kb.only("neighborOf")
    assert neighbours == KnowledgeBase.parse("neighborOf(guinea-bissau,åland).")
    assert neighbours.tallies == {"neighborOf": Tally(1, 0, 1, 0)}


def test_knowledge_bases_differ_in_constants_relations_and_facts() -> None:
    bases = [
        KnowledgeBase.parse(text)
        for text in ("r(a,b).", "r(b,a).", "r(a,c).", "s(a,b).", "r(a,b).\ns(a,b).")
    ]
    assert all((one == two) == (i == j) for i, one in enumerate(bases)
               for j, two in enumerate(bases))  # fmt: skip
    assert bases[0] == KnowledgeBase.parse("r(a,b).\nr(a,b).")
    assert hash(bases[0]) == hash(KnowledgeBase.parse("r(a,b).\nr(a,b)."))


def test_repeated_and_one_way_facts_are_counted() -> None:
    text = "near(a,b).\nnear(b,a).\nnear(b,c).\nnear(b,c).\nnear(d,d).\nin(a,b)."
    as_stated = KnowledgeBase.parse(text)
    assert as_stated.tallies == {"in": Tally(1, 0, 1, 0), "near": Tally(5, 1, 1, 0)}
    assert as_stated.facts["near"].tolist() == [[0, 1], [1, 0], [1, 2], [3, 3]]
    completed = KnowledgeBase.parse(text, symmetric=("near",))
    assert completed.tallies == {"in": Tally(1, 0, 1, 0), "near": Tally(5, 1, 1, 1)}
    assert completed.facts["near"].tolist() == [[0, 1], [1, 0], [1, 2], [2, 1], [3, 3]]
    assert completed.facts["in"].tolist() == [[0, 1]]
    assert "near: 5 facts (5 stated, 1 repeated, 1 one-way, 1 added)" in str(completed)


MALFORMED_PROLOG = {
    "r(a,b)": "expected a full stop",
    "r(a,b). r(b,c).": "expected a full stop",
    "r(a).": "2 arguments, got 1",
    "r(a,b,c).": "2 arguments, got 3",
    "r(a,B).": "B is a variable",
    "R(a,b).": "R is a variable",
    "r(a,_).": "_ is a variable",
    "r(a b,c).": "expected predicate",
    "r('a,b).": "expected predicate",
    "r(a,).": "expected predicate",
    "r(a,'').": "expected predicate",
    ":- dynamic r/2.": "expected predicate",
    "# r(a,b).": "expected predicate",
    "a\tr\tb": "expected predicate",
}
MALFORMED_TRIPLES = {
    "a\tr": "got 2 fields",
    "a\tr\tb\tc": "got 4 fields",
    "a r b": "got 1 fields",
    "\tr\tb": "an empty field",
    "a\tr\t ": "an empty field",
    "r(a,b).": "got 1 fields",
    "% a": "got 1 fields",
}


@pytest.mark.parametrize(
    ("good", "malformed", "kind"),
    [("r(a,b).", MALFORMED_PROLOG, "Prolog"), ("a\tr\tb", MALFORMED_TRIPLES, "triples")],
    ids=["prolog", "triples"],
)
def test_all_malformed_lines_are_reported(
    tmp_path: Path, good: str, malformed: dict[str, str], kind: str
) -> None:
    path = tmp_path / "facts"
    many_good = [good] * (len(malformed) + 1)  # so that the format is beyond doubt
    path.write_text("\n".join([*many_good, "", *malformed]))
    with pytest.raises(ValueError, match="malformed") as raised:
        KnowledgeBase.read(path)
    first, *lines, last = str(raised.value).split("\n")
    total = len(many_good) + 1 + len(malformed)
    assert first.startswith(f"{path}: {len(malformed)} of {total} lines are malformed")
    assert kind in first
    assert "relation(a,b)." in last
    assert "a<TAB>relation<TAB>b" in last
    number = len(many_good) + 2
    for line, (text, reason) in zip(lines, malformed.items(), strict=True):
        assert line.startswith(f"  line {number}: {text!r}: ")
        assert reason in line
        number += 1


def test_the_report_of_malformed_lines_is_bounded() -> None:
    with pytest.raises(ValueError, match="30 of 31 lines") as raised:
        KnowledgeBase.parse("r(a,b).\n" + "x" * 500 + "\n" + "oops\n" * 29)
    lines = str(raised.value).split("\n")
    assert len(lines) == 1 + 20 + 1 + 1
    assert "x" * 77 + "..." in lines[1]
    assert len(lines[1]) < 150
    assert lines[-3].startswith("  line 21: 'oops'")
    assert lines[-2] == "  and 10 more"


# Rules and their groundings


def test_parsing_and_writing_a_rule() -> None:
    text = "neighbor2(A,B,C) :- neighbor(A,B), neighbor(B,C)."
    rule = Rule.parse(text)
    assert rule.predicate == "neighbor2"
    assert rule.head == rule.variables == ("A", "B", "C")
    assert rule.body == (("neighbor", "A", "B"), ("neighbor", "B", "C"))
    assert str(rule) == text
    assert rule == Rule.parse(" neighbor2( A,B ,C):-neighbor(A,B),neighbor( B,C )")
    assert rule == chain_rule("neighbor", 2)
    assert UNCLE.variables == ("A", "C", "B")
    strange = "'Has path'(From,_to) :- 'goes to'(From,_to)."
    assert str(Rule.parse(strange)) == strange


def test_chains() -> None:
    assert str(chain_rule("r", 1)) == "r1(A,B) :- r(A,B)."
    assert chain_rule("neighborOf", 4).predicate == "neighbor4"
    assert len(chain_rule("r", 25).variables) == 26


RULES = [
    chain_rule("r", 1),
    chain_rule("r", 3),
    Rule.parse("p(A,B) :- r(A,C), s(C,B)"),
    Rule.parse("triangle(A,B,C) :- r(A,B), r(B,C), r(C,A)"),
    Rule.parse("converging(C,A) :- r(A,B), s(C,B), r(A,D)"),
    Rule.parse("apart(A,D) :- r(A,B), s(C,D)"),
    Rule.parse("joined_late(A,D) :- r(A,B), s(C,D), r(B,C)"),
    Rule.parse("loop(A,B) :- r(A,A), s(B,A)"),
    Rule.parse("both(B,A) :- r(A,B), s(A,B), r(B,A)"),
]


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("distinct", [True, False])
@settings(max_examples=30, deadline=None, derandomize=True)
@given(facts=facts_of_a_graph)
def test_groundings_are_all_that_make_the_body_true(
    rule: Rule, distinct: bool, facts: Facts
) -> None:
    facts = [*facts, ("r", "a", "b"), ("s", "b", "b")]  # both relations must exist
    kb = KnowledgeBase.from_facts(facts)
    expected = []
    for choice in product(range(len(kb.constants)), repeat=len(rule.variables)):
        value = {v: kb.constants[i] for v, i in zip(rule.variables, choice, strict=True)}
        true = all((atom[0], value[atom[1]], value[atom[2]]) in facts for atom in rule.body)
        if true and not (distinct and len(set(choice)) < len(choice)):
            expected.append(list(choice))
    found = rule.ground(kb, distinct=distinct)
    assert found.shape == (len(expected), len(rule.variables))
    assert found.tolist() == expected  # in the order of the rows, as product gives them


def test_samples_are_disjoint_and_seeded() -> None:
    clauses = np.arange(300).reshape(100, 3)
    train, test = split_clauses(clauses, 70, 30, seed=1)
    assert (len(train), len(test)) == (70, 30)
    rows = [tuple(row) for row in np.concatenate([train, test])]
    assert sorted(rows) == [tuple(row) for row in clauses]
    assert rows != sorted(rows)
    again = split_clauses(clauses, 70, 30, seed=1)
    assert np.array_equal(again[0], train)
    assert np.array_equal(again[1], test)
    assert not np.array_equal(split_clauses(clauses, 70, 30, seed=2)[0], train)
    with pytest.raises(ValueError, match=r"70 \+ 31 clauses are asked for, but there are 100"):
        split_clauses(clauses, 70, 31, seed=1)


# Vectors


def bits(text: str) -> list[float]:
    return [float(bit) for bit in text.replace(" ", "")]


def test_vectors_by_hand() -> None:
    kb = KnowledgeBase.parse("near(a,b).\nnear(b,c).")
    encoding = RuleEncoding(chain_rule("near", 2), kb)
    clauses = encoding.rule.ground(kb)
    assert clauses.tolist() == [[0, 1, 2]]
    assert encoding.predicates == ("near", "near2")
    assert encoding.heads(clauses).tolist() == [bits("01 100 010 001")]
    assert encoding.bodies(clauses).tolist() == [[bits("10 100 010"), bits("10 010 001")]]
    assert encoding.features() == Features(Categorical(2), Categorical(3), Categorical(3))
    assert encoding.features("bernoulli").blocks[1] == Categorical(3, scored_as="bernoulli")


def test_a_rule_of_two_relations(family: KnowledgeBase) -> None:
    encoding = RuleEncoding(UNCLE, family)
    clauses = UNCLE.ground(family)
    named = [[family.constants[i] for i in row] for row in clauses]
    assert named == [["O'Neil", "C. D.", "bob"], ["eve-marie", "bob", "ann"]]
    assert encoding.predicates == ("brother", "parent", "uncle")
    heads, bodies = encoding.heads(clauses), encoding.bodies(clauses)
    assert heads.shape == (2, 3 + 2 * 5) == (2, encoding.head_width)
    assert bodies.shape == (2, 2, 3 + 2 * 5) == (2, 2, encoding.features().width)
    assert encoding.read_body(bodies[0]) == ["brother('O''Neil',bob)", "parent(bob,'C. D.')"]
    assert all(encoding.holds(atom) for body in bodies for atom in encoding.read_body(body))
    assert encoding.read_head("uncle('O''Neil','C. D.').").equal(heads[0])
    assert encoding.read_head(" uncle(eve-marie, bob) ").equal(heads[1])


@settings(max_examples=50, deadline=None, derandomize=True)
@given(facts=facts_of_a_graph, rule=st.sampled_from(RULES), seed=st.integers(0, 100))
def test_vectors_decode_back(facts: Facts, rule: Rule, seed: int) -> None:
    kb = KnowledgeBase.from_facts([*facts, ("r", "a", "b"), ("s", "b", "b")])
    encoding = RuleEncoding(rule, kb)
    clauses = rule.ground(kb, distinct=False)[:20]
    heads, bodies = encoding.heads(clauses), encoding.bodies(clauses)
    assert heads.shape == (len(clauses), encoding.head_width)
    noise = torch.rand(bodies.shape, generator=torch.Generator().manual_seed(seed))
    for row, head, body, logits in zip(clauses, heads, bodies, bodies + 0.9 * noise, strict=True):
        value = {v: kb.constants[i] for v, i in zip(rule.variables, row, strict=True)}
        atoms = [f"{relation}({value[a]},{value[b]})" for relation, a, b in rule.body]
        assert encoding.read_body(body) == atoms
        assert encoding.read_body(encoding.features().discretise(logits)) == atoms
        assert all(encoding.holds(atom) for atom in atoms)
        text = write_term(rule.predicate, [value[v] for v in rule.head])
        assert encoding.read_head(text).equal(head)


def test_atoms_that_do_not_hold() -> None:
    kb = KnowledgeBase.parse("near(a,b).\nnear(b,c).")
    encoding = RuleEncoding(chain_rule("near", 2), kb)
    element = torch.tensor([bits("01 100 010")])
    assert encoding.read_body(element) == ["near2(a,b)"]
    assert not encoding.holds("near2(a,b)")
    assert not encoding.holds("near(b,a)")
    assert encoding.holds("near(a,b)")


def test_a_recursive_rule_has_a_class_to_spare() -> None:
    kb = KnowledgeBase.parse("older(a,b).\nolder(b,c).")
    encoding = RuleEncoding(Rule.parse("older(A,C) :- older(A,B), older(B,C)"), kb)
    assert len(encoding.predicates) == 2
    spare = torch.tensor([bits("01 100 010")])
    (atom,) = encoding.read_body(spare)
    assert not encoding.holds(atom)
    assert encoding.heads(encoding.rule.ground(kb))[0, :2].tolist() == [1, 0]


# Wrong calls

KB = KnowledgeBase.parse("near(paris,rome).\nnear(rome,'Bad Tölz').")
ENCODING = RuleEncoding(chain_rule("near", 2), KB)
CLAUSES = ENCODING.rule.ground(KB)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ENCODING.read_head("near2(paris,roma,rome)"), ValueError, "mean 'rome'"),
        (lambda: ENCODING.read_head("near2(paris,rome)"), ValueError, "3 arguments.*with 2"),
        (lambda: ENCODING.read_head("near(paris,rome,rome)"), ValueError, "near2 .*got near "),
        (lambda: ENCODING.read_head("near2(paris,rome,rome"), ValueError, "expected predicate"),
        (lambda: ENCODING.read_head("near2(paris,rome,rome) x"), ValueError, "nothing after"),
        (lambda: ENCODING.read_head("near2(paris,rome,Bad)"), ValueError, "Bad is a variable"),
        (lambda: ENCODING.read_head(3), TypeError, "got int"),
        (lambda: ENCODING.read_body(torch.rand(2, 8)), ValueError, "one-hot"),
        (lambda: ENCODING.read_body(torch.zeros(2, 8)), ValueError, "one-hot"),
        (lambda: ENCODING.read_body(torch.zeros(2, 9)), ValueError, "expected 8 features"),
        (lambda: ENCODING.read_body(torch.zeros(1, 2, 8)), ValueError, "one body"),
        (lambda: ENCODING.read_body(CLAUSES), TypeError, "got ndarray"),
        (lambda: ENCODING.heads(CLAUSES[:, :2]), ValueError, r"\[clauses, 3\]"),
        (lambda: ENCODING.bodies(CLAUSES * 1.0), ValueError, "integers.*float64"),
        (lambda: ENCODING.bodies(CLAUSES + 2), ValueError, "between 0 and 2"),
        (lambda: ENCODING.holds("far(paris,rome)"), ValueError, "no relation 'far'"),
        (lambda: RuleEncoding(chain_rule("nera", 2), KB), ValueError, "mean 'near'"),
        (lambda: RuleEncoding(KB, KB), TypeError, "KnowledgeBase and KnowledgeBase"),
        (lambda: RuleEncoding(UNCLE, KnowledgeBase.parse("brother(a,a).\nparent(a,a).")),
         ValueError, "at least 2 constants"),
        (lambda: KB.holds("near(paris)"), ValueError, "2 arguments, got 1"),
        (lambda: KB.holds("near(paris,venice)"), ValueError, "'venice' is none of the 3"),
        (lambda: KB.only(), ValueError, "at least one"),
        (lambda: KB.only("nea"), ValueError, "did you mean 'near'"),
        (lambda: KnowledgeBase.parse("r(a,b).", symmetric=["q"]), ValueError, "no facts of 'q'"),
        (lambda: KnowledgeBase.parse("r(a,b).", symmetric="r"), TypeError, r"as in \('r',\)"),
        (lambda: KnowledgeBase.parse("% nothing\n"), ValueError, "holds no facts"),
        (lambda: KnowledgeBase.parse(b"r(a,b)."), TypeError, "got bytes"),
        (lambda: KnowledgeBase.from_facts([("r", "a")]), ValueError, "relation, first, second"),
        (lambda: KnowledgeBase(("b", "a"), {}), ValueError, "sorted"),
        (lambda: KnowledgeBase(("a", "b"), {"r": np.array([[0, 2]])}), ValueError, "0 and 1"),
        (lambda: KnowledgeBase(("a", "b"), {"r": np.array([0, 1])}), ValueError, r"\[facts, 2\]"),
        (lambda: UNCLE.ground(KB), ValueError, "no relation 'brother'"),
        (lambda: UNCLE.ground({}), TypeError, "got dict"),
        (lambda: chain_rule("near", 0), ValueError, "between 1 and 25"),
        (lambda: chain_rule("near", 2.0), TypeError, "got float"),
        (lambda: split_clauses(CLAUSES, -1, 1, 0), ValueError, "train: must be at least 0"),
        (lambda: split_clauses(CLAUSES, 1, 0.5, 0), TypeError, "test: expected an int"),
        (lambda: Rule.parse("p(A,B)"), ValueError, "':-'"),
        (lambda: Rule.parse("p(A,B) :-"), ValueError, "expected predicate"),
        (lambda: Rule.parse("p(A,B) :- r(A,B),"), ValueError, "expected predicate"),
        (lambda: Rule.parse("p(A,B) :- r(A,B); r(B,A)"), ValueError, "comma or the end"),
        (lambda: Rule.parse("p(A,B) :- r(A,B), r(A)"), ValueError, "2 arguments"),
        (lambda: Rule.parse("p(A,B) :- r(A,b), r(A,B)"), ValueError, "b is no variable"),
        (lambda: Rule.parse("p(A,B) :- r(A,_), r(A,B)"), ValueError, "_ is no variable"),
        (lambda: Rule.parse("p(A,A) :- r(A,B)"), ValueError, "must differ"),
        (lambda: Rule.parse("p(A,C) :- r(A,B)"), ValueError, "C stands in the head"),
        (lambda: Rule.parse("p(A,B) :- r(A,B), r(A,B)"), ValueError, "twice"),
        (lambda: Rule.parse(None), TypeError, "got NoneType"),
        (lambda: Rule("p", ("A",), ()), ValueError, "atoms in its body"),
    ],
)  # fmt: skip
def test_wrong_calls(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "facts.pl"
    path.write_bytes("near(köln,bonn).".encode("latin-1"))
    with pytest.raises(ValueError, match=r"facts\.pl: expected a text file in UTF-8"):
        KnowledgeBase.read(path)
