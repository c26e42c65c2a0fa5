"""Data: sets as tensors, and the data sets of the paper."""

from setwise.data.blocksworld import Blocksworld
from setwise.data.countries import load_countries
from setwise.data.knowledge import KnowledgeBase
from setwise.data.puzzle import SlidingPuzzle, drop_elements
from setwise.data.rule_encoding import RuleEncoding
from setwise.data.rules import Rule, chain_rule, split_clauses

__all__ = [
    "Blocksworld",
    "KnowledgeBase",
    "Rule",
    "RuleEncoding",
    "SlidingPuzzle",
    "chain_rule",
    "drop_elements",
    "load_countries",
    "split_clauses",
]
