"""Data: sets as tensors, and the data sets of the paper."""

from setwise.data.blocksworld import Blocksworld
from setwise.data.countries import load_countries
from setwise.data.knowledge import KnowledgeBase
from setwise.data.puzzle import SlidingPuzzle, drop_elements
from setwise.data.rows import read_rows
from setwise.data.rule_encoding import RuleEncoding
from setwise.data.rules import Rule, chain_rule, split_clauses
from setwise.data.schema import Column, Schema

__all__ = [
    "Blocksworld",
    "Column",
    "KnowledgeBase",
    "Rule",
    "RuleEncoding",
    "Schema",
    "SlidingPuzzle",
    "chain_rule",
    "drop_elements",
    "load_countries",
    "read_rows",
    "split_clauses",
]
