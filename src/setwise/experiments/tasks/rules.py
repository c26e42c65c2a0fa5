"""Ground clauses of rules, from their heads to the sets of their bodies."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

from setwise.data import (
    KnowledgeBase,
    Rule,
    RuleEncoding,
    chain_rule,
    load_countries,
    split_clauses,
)
from setwise.experiments.randomness import random_order
from setwise.experiments.tasks.task import CPU, DATA, DataConfig, Task
from setwise.features.family import Scoring


class ClausesData(DataConfig):
    """What data sets of ground clauses share: a rule over a knowledge base, and a split."""

    train: int
    test: int
    scored_as: Scoring
    seed: int

    @abstractmethod
    def encoding(self) -> RuleEncoding:
        """The rule over its knowledge base."""

    @property
    @abstractmethod
    def predicate(self) -> str:
        """Of the heads."""

    @property
    def source(self) -> str | None:
        """The SHA-256 of the file of facts; None for facts that come with the package."""
        return None

    def load(self, folder: Path = DATA, device: torch.device = CPU) -> Task:
        """Bodies come in an order drawn once for each clause: a set has none of its own."""
        encoding = self.encoding()
        every = encoding.rule.ground(encoding.kb)
        parts = split_clauses(every, self.train, self.test, self.seed)
        clauses = torch.cat([torch.as_tensor(part) for part in parts]).numpy()
        bodies = encoding.bodies(clauses)
        order = random_order(bodies.shape[1], torch.tensor(self.seed), torch.arange(len(bodies)))
        bodies = bodies.gather(1, order.unsqueeze(-1).expand_as(bodies))
        return Task(encoding.heads(clauses), bodies, self.train, encoding.features(self.scored_as))


@dataclass(frozen=True)
class RulesData(ClausesData):
    """Ground clauses of neighbor-n over the neighbour relation of countries.

    >>> print(RulesData(n=2).encoding().rule)
    neighbor2(A,B,C) :- neighbor(A,B), neighbor(B,C).
    """

    kind: ClassVar[str] = "rules"
    n: int = 2
    train: int = 2250
    test: int = 250
    scored_as: Scoring = "bernoulli"
    seed: int = 0

    def encoding(self) -> RuleEncoding:
        return RuleEncoding(chain_rule("neighbor", self.n), load_countries())

    @property
    def predicate(self) -> str:
        return f"neighbor{self.n}"


@dataclass(frozen=True, kw_only=True)
class FactsData(ClausesData):
    """Ground clauses of any rule over a user's own file of facts; see `recipes.own_facts`."""

    kind: ClassVar[str] = "facts"
    # Where the file lies and what it holds; a file that has changed since is refused.
    file: str
    sha256: str
    # As Prolog writes it: grandparent(X,Z) :- parent(X,Y), parent(Y,Z).
    rule: str
    # Relations whose facts hold in both directions, though they may be stated in one.
    symmetric: tuple[str, ...] = ()
    train: int
    test: int
    scored_as: Scoring = "bernoulli"
    seed: int = 0

    def encoding(self) -> RuleEncoding:
        file = Path(self.file)
        if not file.is_file():
            raise ValueError(
                f"{file}: the file of facts is not there (its SHA-256 is {self.sha256})"
            )
        if fingerprint(file) != self.sha256:
            raise ValueError(
                f"{file}: not the facts that were trained on: their SHA-256 is {self.sha256}, "
                f"that of the file {fingerprint(file)}"
            )
        rule = Rule.parse(self.rule)
        return own_encoding(KnowledgeBase.read(file, symmetric=self.symmetric), rule)

    @property
    def predicate(self) -> str:
        return Rule.parse(self.rule).predicate

    @property
    def source(self) -> str | None:
        return self.sha256


def own_encoding(kb: KnowledgeBase, rule: Rule) -> RuleEncoding:
    """A rule over those facts that it speaks of; constants of other relations are left out."""
    return RuleEncoding(rule, kb.only(*(atom.relation for atom in rule.body)))


def fingerprint(file: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()
