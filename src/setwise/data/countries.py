"""The countries of the world and their land borders: the data of the paper's rule learning.

The table, countries.tsv, is our own: 163 countries and territories, as many as the paper has, each
with at least one neighbour, and 323 borders, thus 646 facts ``neighbor(a,b)``. The file tells
which territories are in it and which borders are matters of convention.

Ground clauses of neighbor-n are the paths of n borders that visit no country twice:

    n                  2        3        4        5
    here            2832    10888    39254   134988
    the paper       2858    11000    39878   137738
                  -0.91%   -1.02%   -1.56%   -2.00%

The counts differ as lists of borders do. The files of facts in common use are read the same way:
``KnowledgeBase.read("countries.nl", symmetric=["neighborOf"]).only("neighborOf")``.
"""

from __future__ import annotations

from importlib.resources import files

from setwise.data.knowledge import KnowledgeBase

# How many clauses of neighbor-n the paper has.
PAPER_CLAUSES = {2: 2858, 3: 11000, 4: 39878, 5: 137738}


def load_countries() -> KnowledgeBase:
    """The neighbour relation between 163 countries, in both directions.

    >>> kb = load_countries()
    >>> print(kb)
    163 constants; neighbor: 646 facts (323 stated, 0 repeated, 323 one-way, 323 added)
    >>> kb.holds("neighbor(austria,germany)"), kb.holds("neighbor(austria,belgium)")
    (True, False)
    >>> from setwise.data.rules import chain_rule
    >>> [len(chain_rule("neighbor", n).ground(kb)) for n in (2, 3, 4, 5)]
    [2832, 10888, 39254, 134988]
    """
    table = files("setwise.data").joinpath("countries.tsv").read_text(encoding="utf-8")
    return KnowledgeBase.parse(table, symmetric=["neighbor"], source="countries.tsv")
