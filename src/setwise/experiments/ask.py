"""Asking a trained rule learner for the body of a head, and judging what it answers.

Legend: N outputs, F features of an output.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from setwise.data import RuleEncoding, split_clauses
from setwise.data.terms import constant, read_term, write_term
from setwise.experiments.config import Config
from setwise.experiments.saved_networks import load_network
from setwise.experiments.tasks.rules import ClausesData

Seen = Literal["trained on", "held out", "in neither part", "no clause"]


@dataclass(frozen=True)
class AnsweredTerm:
    """One output of the network, each of its blocks at its most probable class."""

    text: str
    # The probability of this term if each block is drawn from its softmax, independently.
    confidence: float
    fact: bool


@dataclass(frozen=True)
class Answer:
    """The outputs for a head, and what the knowledge base says of them."""

    head: str
    terms: tuple[AnsweredTerm, ...]
    # The bodies of all clauses with this head: none where the knowledge base does not imply it.
    bodies: tuple[tuple[str, ...], ...]
    seen: Seen
    # Why there is no clause with this head, where that can be said in a word.
    obstacle: str | None = None

    @property
    def confidence(self) -> float:
        """The probability of exactly these outputs: the product over the terms."""
        product = 1.0
        for term in self.terms:
            product *= term.confidence
        return product

    @property
    def correct(self) -> bool:
        """Whether the outputs, as a set, are the body of a clause with this head."""
        answered = {term.text for term in self.terms}
        return any(answered == set(body) for body in self.bodies)


@dataclass(frozen=True)
class RuleNetwork:
    """A trained network with the rule and the knowledge base that it learned from."""

    config: Config
    data: ClausesData
    encoding: RuleEncoding
    network: nn.Module

    @classmethod
    def load(cls, path: Path, facts: Path | None = None) -> RuleNetwork:
        """From a file that `save_network` wrote; see `load_network` for ``facts``."""
        config, network = load_network(path, facts)
        data = config.data
        if not isinstance(data, ClausesData):
            raise ValueError(f"{path}: a network of {config.experiment}, which learned no rule")
        return cls(config, data, data.encoding(), network)

    def ask(self, head: str) -> Answer:
        """The body for a head such as ``neighbor2(austria,germany,belgium)``."""
        encoding = self.encoding
        vector = encoding.read_head(head)
        features = encoding.features()
        with torch.no_grad():
            logits = self.network(vector.unsqueeze(0))[0].double()  # [N, F]
        blocks = [block.softmax(-1) for block in features.split(logits)]
        confidences = torch.stack([block.amax(-1) for block in blocks]).prod(0)
        texts = encoding.read_body(features.discretise(logits))
        terms = tuple(
            AnsweredTerm(text, confidence, encoding.holds(text))
            for text, confidence in zip(texts, confidences.tolist(), strict=True)
        )
        predicate, arguments = read_term(head)
        names = [constant(token) for token in arguments]
        bodies, seen = self._clauses([encoding.kb.index(name) for name in names])
        obstacle = None if bodies else self._obstacle(names)
        return Answer(write_term(predicate, names), terms, bodies, seen, obstacle)

    def _clauses(self, head: list[int]) -> tuple[tuple[tuple[str, ...], ...], Seen]:
        """The bodies of all clauses with this head, and whether one of them was learned from."""
        clauses = self.encoding.rule.ground(self.encoding.kb)
        train, test = split_clauses(clauses, self.data.train, self.data.test, self.data.seed)
        here, trained, held_out = (
            part[(part[:, : len(head)] == head).all(axis=1)] for part in (clauses, train, test)
        )
        read = self.encoding.read_body
        bodies = tuple(tuple(read(body)) for body in self.encoding.bodies(here))
        if len(trained):
            return bodies, "trained on"
        if len(held_out):
            return bodies, "held out"
        return bodies, "in neither part" if bodies else "no clause"

    def _obstacle(self, names: list[str]) -> str | None:
        rule = self.encoding.rule
        if len(set(names)) < len(names):
            return "a clause names no constant twice"
        if len(rule.variables) > len(rule.head):
            return None
        value = dict(zip(rule.head, names, strict=True))
        atoms = [write_term(r, (value[first], value[second])) for r, first, second in rule.body]
        missing = [atom for atom in atoms if not self.encoding.holds(atom)]
        return f"{', '.join(missing)} {'is no fact' if len(missing) == 1 else 'are no facts'}"
