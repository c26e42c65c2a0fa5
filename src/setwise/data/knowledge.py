"""A knowledge base of binary facts, such as ``neighbor(austria,germany)``, and how it is read.

Legend: K constants, each known by its place in their sorted list.

Files of facts are read whole or not at all: `facts` refuses a file with a malformed line, and what
was said twice or in one direction only is counted here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from setwise.data.facts import Fact, read_facts
from setwise.data.terms import constant, read_term, suggestion, write_term
from setwise.files import require_regular


class Tally(NamedTuple):
    """How the facts of one relation were stated: ``stated - repeated + added`` are held."""

    stated: int
    repeated: int  # those that only said again what had been said
    one_way: int  # those, each counted once, whose reverse was not stated
    added: int  # reverses added because the relation was declared symmetric


@dataclass(frozen=True, eq=False)
class KnowledgeBase:
    """Constants in sorted order and, for every relation, its facts as pairs of their indices.

    Two are equal when they hold the same constants and facts, however these were stated.

    >>> kb = KnowledgeBase.parse("parent(ann,bob). % a comment\\nparent(bob,'C. D.').")
    >>> kb.constants
    ('C. D.', 'ann', 'bob')
    >>> kb.facts["parent"]
    array([[1, 2],
           [2, 0]])
    >>> kb.holds("parent(ann,bob)"), kb.holds("parent(bob,ann)")
    (True, False)
    """

    constants: tuple[str, ...]
    facts: Mapping[str, NDArray[np.int64]]  # relation -> [facts, 2], sorted, none twice
    tallies: Mapping[str, Tally] = field(default_factory=dict)  # empty if not read from statements

    @classmethod
    def read(cls, path: str | Path, *, symmetric: Sequence[str] = ()) -> KnowledgeBase:
        """Read a file in UTF-8; see `parse` for what it may hold."""
        require_regular(Path(path))
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: expected a text file in UTF-8: {error}") from None
        return cls.parse(text, symmetric=symmetric, source=str(path))

    @classmethod
    def parse(
        cls, text: str, *, symmetric: Sequence[str] = (), source: str = "the text"
    ) -> KnowledgeBase:
        """Facts, one a line, of any number of relations, in one of the formats of `facts`.

        ``source`` names the text in messages. Every relation in ``symmetric`` is completed:
        the reverse of each of its facts is a fact too.

        >>> print(KnowledgeBase.parse("a\\tnear\\tb\\na\\tnear\\tb", symmetric=["near"]))
        2 constants; near: 2 facts (2 stated, 1 repeated, 1 one-way, 1 added)
        """
        return cls.from_facts(read_facts(text, source), symmetric=symmetric)

    @classmethod
    def from_facts(cls, facts: Iterable[Fact], *, symmetric: Sequence[str] = ()) -> KnowledgeBase:
        """The knowledge base of facts ``(relation, first, second)``, completed as in `parse`."""
        stated: dict[str, list[tuple[str, str]]] = {}
        for fact in facts:
            if len(fact) != 3 or not all(isinstance(name, str) and name for name in fact):
                raise ValueError(f"facts: expected names (relation, first, second), got {fact!r}")
            stated.setdefault(fact[0], []).append((fact[1], fact[2]))
        if isinstance(symmetric, str):
            raise TypeError(f"symmetric: expected several relations, as in ({symmetric!r},)")
        for relation in symmetric:
            if relation not in stated:
                raise ValueError(
                    f"symmetric: there are no facts of {relation!r}, only of "
                    f"{', '.join(sorted(stated))}{suggestion(relation, stated)}"
                )
        constants = sorted({name for pairs in stated.values() for pair in pairs for name in pair})
        index = {name: i for i, name in enumerate(constants)}
        held, tallies = {}, {}
        for relation, names in sorted(stated.items()):
            pairs = np.array([(index[first], index[second]) for first, second in names], np.int64)
            distinct = np.unique(pairs, axis=0)
            reverses = distinct[:, ::-1]
            missing = reverses[~_contains(distinct, reverses, len(constants))]
            added = missing if relation in symmetric else missing[:0]
            held[relation] = np.concatenate([distinct, added])
            repeated = len(pairs) - len(distinct)
            tallies[relation] = Tally(len(pairs), repeated, len(missing), len(added))
        return cls(tuple(constants), held, tallies)

    def __post_init__(self) -> None:
        if list(self.constants) != sorted(set(self.constants)):
            raise ValueError("constants: expected different names in sorted order")
        facts = {}
        for relation, pairs in self.facts.items():
            pairs = np.asarray(pairs)
            if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
                raise ValueError(
                    f"facts: expected integers of shape [facts, 2], got {pairs.dtype} of shape "
                    f"{pairs.shape} for {relation!r}"
                )
            if pairs.size and not 0 <= pairs.min() <= pairs.max() < len(self.constants):
                raise ValueError(
                    f"facts: indices must lie between 0 and {len(self.constants) - 1}, got "
                    f"{pairs.min()} to {pairs.max()} for {relation!r}"
                )
            facts[relation] = np.unique(pairs.astype(np.int64), axis=0)
            facts[relation].flags.writeable = False
        object.__setattr__(self, "constants", tuple(self.constants))
        object.__setattr__(self, "facts", facts)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, KnowledgeBase)
            and self.constants == other.constants
            and self.facts.keys() == other.facts.keys()
            and all(np.array_equal(pairs, other.facts[name]) for name, pairs in self.facts.items())
        )

    def __hash__(self) -> int:
        return hash((self.constants, tuple(sorted(self.facts))))

    def __str__(self) -> str:
        parts = [f"{len(self.constants)} constants"]
        for relation, pairs in self.facts.items():
            parts.append(f"{relation}: {len(pairs)} facts")
            if relation in self.tallies:
                stated, repeated, one_way, added = self.tallies[relation]
                parts[-1] += (
                    f" ({stated} stated, {repeated} repeated, {one_way} one-way, {added} added)"
                )
        return "; ".join(parts)

    def only(self, *relations: str) -> KnowledgeBase:
        """The facts of some relations and the constants that occur in them.

        >>> kb = KnowledgeBase.parse("near(a,b).\\nin(a,europe).")
        >>> kb.only("near").constants
        ('a', 'b')
        """
        facts = {relation: self.pairs(relation) for relation in relations}
        if not facts:
            raise ValueError("relations: expected at least one")
        used = np.unique(np.concatenate(list(facts.values())))
        return KnowledgeBase(
            tuple(self.constants[i] for i in used),
            {relation: np.searchsorted(used, pairs) for relation, pairs in facts.items()},
            {name: tally for name, tally in self.tallies.items() if name in facts},
        )

    def pairs(self, relation: str) -> NDArray[np.int64]:
        """The facts of a relation, [facts, 2]; an unknown relation is an error."""
        if relation not in self.facts:
            raise ValueError(
                f"the knowledge base has no relation {relation!r}, only "
                f"{', '.join(sorted(self.facts))}{suggestion(relation, self.facts)}"
            )
        return self.facts[relation]

    def index(self, name: str) -> int:
        """The place of a constant; an unknown one is an error."""
        place = bisect_left(self.constants, name)
        if self.constants[place : place + 1] != (name,):
            raise ValueError(
                f"{name!r} is none of the {len(self.constants)} constants of the knowledge base"
                f"{suggestion(name, self.constants)}"
            )
        return place

    def holds(self, atom: str) -> bool:
        """Whether an atom such as ``neighbor(austria,germany)`` is among the facts."""
        predicate, arguments = read_term(atom)
        if len(arguments) != 2:
            raise ValueError(f"{atom}: expected 2 arguments, got {len(arguments)}")
        pair = np.array([[self.index(constant(token)) for token in arguments]])
        return bool(_contains(self.pairs(predicate), pair, len(self.constants))[0])

    def atom(self, relation: str, first: int, second: int) -> str:
        """The text of an atom, from the indices of its constants; true or not."""
        return write_term(relation, (self.constants[first], self.constants[second]))


def _contains(pairs: NDArray[np.int64], asked: NDArray[np.int64], K: int) -> NDArray[np.bool_]:
    """Which of the asked pairs [asked, 2] are among the pairs [facts, 2] over K constants."""
    return np.isin(asked @ np.array([K, 1]), pairs @ np.array([K, 1]))
