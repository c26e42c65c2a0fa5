"""Rules as data: ``neighbor2(A,B,C) :- neighbor(A,B), neighbor(B,C).`` and all their groundings.

Legend: C clauses, that is ground instances of a rule; V variables of the rule; K constants.

A rule has one head and a conjunction of binary atoms for a body. Its ground clauses are a table
[C, V] of constants by their indices in a knowledge base, one column for each variable.
"""

from __future__ import annotations

from dataclasses import dataclass
from string import ascii_uppercase

import numpy as np
from numpy.typing import NDArray

from setwise.data.checks import random_bits, require_int
from setwise.data.clause_counts import sum_clauses, summable
from setwise.data.joins import BodyAtom, count_clauses, joins
from setwise.data.knowledge import KnowledgeBase
from setwise.data.terms import is_variable, quoted, scan_term


@dataclass(frozen=True)
class Rule:
    """``predicate(head variables) :- body``.

    >>> rule = Rule.parse("uncle(A,C) :- brother(A,B), parent(B,C).")
    >>> rule.predicate, rule.head
    ('uncle', ('A', 'C'))
    >>> rule.variables
    ('A', 'C', 'B')
    >>> print(rule)
    uncle(A,C) :- brother(A,B), parent(B,C).
    """

    predicate: str
    head: tuple[str, ...]
    body: tuple[BodyAtom, ...]

    @classmethod
    def parse(cls, text: str) -> Rule:
        """Read a rule written as in Prolog, with or without the full stop."""
        if not isinstance(text, str):
            raise TypeError(f"rule: expected a text, got {type(text).__name__}")
        try:
            return cls._parse(text)
        except ValueError as error:
            raise ValueError(f"rule {text!r}: {error}") from None

    @classmethod
    def _parse(cls, text: str) -> Rule:
        head, end = scan_term(text)
        if not text.startswith(":-", end):
            raise ValueError("expected ':-' after the head")
        body, end = [], end + len(":-")
        while True:
            (relation, arguments), end = scan_term(text, end)
            if len(arguments) != 2:
                raise ValueError(f"{relation} needs 2 arguments in the body, got {len(arguments)}")
            body.append(BodyAtom(relation, *arguments))
            if text[end : end + 1] != ",":
                break
            end += 1
        if text[end:].strip() not in ("", "."):
            raise ValueError(f"expected a comma or the end, got {text[end:].strip()!r}")
        return cls(head.predicate, head.arguments, tuple(body))

    def __post_init__(self) -> None:
        in_body = {name for atom in self.body for name in (atom.first, atom.second)}
        if not self.head or not self.body:
            raise ValueError("a rule needs arguments in its head and atoms in its body")
        for name in (*self.head, *sorted(in_body)):
            if not is_variable(name) or name == "_":
                raise ValueError(
                    f"{name} is no variable: only names that start with a capital may be arguments"
                )
        if len(set(self.head)) < len(self.head):
            raise ValueError(f"the variables of the head must differ, got {', '.join(self.head)}")
        for name in self.head:
            if name not in in_body:
                raise ValueError(f"{name} stands in the head but in no atom of the body")
        if len(set(self.body)) < len(self.body):
            raise ValueError("the body is a set: no atom may stand in it twice")

    def __str__(self) -> str:
        atoms = [f"{quoted(atom.relation)}({atom.first},{atom.second})" for atom in self.body]
        return f"{quoted(self.predicate)}({','.join(self.head)}) :- {', '.join(atoms)}."

    @property
    def variables(self) -> tuple[str, ...]:
        """The head's variables in its order, then those of the body alone as they come."""
        in_body = (name for atom in self.body for name in (atom.first, atom.second))
        return tuple(dict.fromkeys([*self.head, *in_body]))

    def ground(self, kb: KnowledgeBase, distinct: bool = True) -> NDArray[np.int64]:
        """Every choice of constants that makes all atoms of the body true: [C, V], sorted by row.

        The columns are ``variables``. With ``distinct`` no constant stands for two variables, so
        that the groundings of a `chain_rule` are the simple paths of a graph.

        >>> kb = KnowledgeBase.parse("near(a,b).\\nnear(b,c).", symmetric=["near"])
        >>> chain_rule("near", 2).ground(kb)
        array([[0, 1, 2],
               [2, 1, 0]])
        >>> len(chain_rule("near", 2).ground(kb, distinct=False))
        6
        """
        table = np.zeros((1, 0), np.int64)  # one clause in which nothing is bound yet
        for step in joins(self.body, kb):
            table = step.extended(table, distinct)
        bound = step.bound_after
        table = table[:, [bound.index(variable) for variable in self.variables]]
        return table[np.lexsort(table.T[::-1])]

    def count(self, kb: KnowledgeBase, distinct: bool = True, most: int | None = None) -> int:
        """How many clauses `ground` gives, without listing them.

        Once there are more than ``most``, any number above it.

        >>> kb = KnowledgeBase.parse("near(a,b).\\nnear(b,c).", symmetric=["near"])
        >>> chain_rule("near", 2).count(kb), chain_rule("near", 9).count(kb, distinct=False)
        (2, 64)
        """
        steps = joins(self.body, kb)
        if summable(self.variables, kb):
            return sum_clauses(self.body, self.variables, kb, distinct)
        return count_clauses(steps, distinct, most)


def chain_rule(relation: str, n: int) -> Rule:
    """The rule of ``n`` steps along a relation: the paper's neighbor-n.

    The head is named after the relation, which loses an "Of" as in the paper.

    >>> print(chain_rule("neighborOf", 2))
    neighbor2(A,B,C) :- neighborOf(A,B), neighborOf(B,C).
    """
    if not isinstance(relation, str):
        raise TypeError(f"relation: expected a name, got {type(relation).__name__}")
    if isinstance(n, bool) or not isinstance(n, int):
        raise TypeError(f"n: expected an int, got {type(n).__name__}")
    if not 1 <= n < len(ascii_uppercase):
        raise ValueError(f"n: must lie between 1 and {len(ascii_uppercase) - 1}, got {n}")
    names = ascii_uppercase[: n + 1]
    body = tuple(BodyAtom(relation, names[i], names[i + 1]) for i in range(n))
    return Rule(f"{relation.removesuffix('Of')}{n}", tuple(names), body)


def split_clauses(
    clauses: NDArray[np.int64], train: int, test: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Two samples [train, V] and [test, V] of the clauses [C, V] that share none, by seed.

    >>> for part in split_clauses(np.arange(10).reshape(10, 1), train=6, test=2, seed=0):
    ...     print(part.shape)
    (6, 1)
    (2, 1)
    """
    for name, size in (("train", train), ("test", test)):
        require_int(name, size, 0)
    clauses = np.asarray(clauses)
    if train + test > len(clauses):
        raise ValueError(
            f"train, test: {train} + {test} clauses are asked for, but there are {len(clauses)}"
        )
    keys = random_bits("split", seed).random_raw(len(clauses))
    drawn = clauses[keys.argsort(kind="stable")[: train + test]]
    return drawn[:train], drawn[train:]
