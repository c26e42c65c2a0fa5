"""Data: sets as tensors, and the data sets of the paper.

``SetLoader`` and ``write_sets``, for sets in Parquet files, are loaded when first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from setwise.data.blocksworld import Blocksworld
from setwise.data.countries import load_countries
from setwise.data.knowledge import KnowledgeBase
from setwise.data.puzzle import SlidingPuzzle, drop_elements
from setwise.data.rule_encoding import RuleEncoding
from setwise.data.rules import Rule, chain_rule, split_clauses

if TYPE_CHECKING:
    from setwise.data.shards import write_sets as write_sets
    from setwise.data.stream import SetLoader as SetLoader

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

_IN_PARQUET = {"SetLoader": "setwise.data.stream", "write_sets": "setwise.data.shards"}


def __dir__() -> list[str]:
    return [*__all__, *_IN_PARQUET]


def __getattr__(name: str) -> Any:
    if name not in _IN_PARQUET:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(_IN_PARQUET[name])
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        raise ModuleNotFoundError(
            f"setwise.data.{name} needs pyarrow; install it with pip install 'setwise[data]'",
            name=error.name,
        ) from error
    return getattr(module, name)
