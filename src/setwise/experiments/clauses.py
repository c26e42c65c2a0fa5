"""The rule and the knowledge base that a config's data stands for."""

from __future__ import annotations

import hashlib
from pathlib import Path

from setwise.data import KnowledgeBase, Rule, RuleEncoding, chain_rule, load_countries
from setwise.experiments.config import FactsData, RulesData


def encoding_of(data: RulesData | FactsData) -> RuleEncoding:
    """The rule over its knowledge base.

    >>> print(encoding_of(RulesData(n=2)).rule)
    neighbor2(A,B,C) :- neighbor(A,B), neighbor(B,C).
    """
    if isinstance(data, RulesData):
        return RuleEncoding(chain_rule("neighbor", data.n), load_countries())
    file = Path(data.file)
    if not file.is_file():
        raise ValueError(f"{file}: the file of facts is not there (its SHA-256 is {data.sha256})")
    if fingerprint(file) != data.sha256:
        raise ValueError(
            f"{file}: not the facts that were trained on: their SHA-256 is {data.sha256}, "
            f"that of the file {fingerprint(file)}"
        )
    rule = Rule.parse(data.rule)
    return own_encoding(KnowledgeBase.read(file, symmetric=data.symmetric), rule)


def own_encoding(kb: KnowledgeBase, rule: Rule) -> RuleEncoding:
    """A rule over those facts that it speaks of; constants of other relations are left out."""
    return RuleEncoding(rule, kb.only(*(atom.relation for atom in rule.body)))


def fingerprint(file: Path) -> str:
    """What tells one content of a file from any other: its SHA-256."""
    return hashlib.sha256(file.read_bytes()).hexdigest()
