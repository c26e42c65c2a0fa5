"""The experiments that come with the library: the tables of the paper, one file a table.

A preset of a table is an experiment of its own, named ``table1-quick`` where the table is
``table1``.
"""

from __future__ import annotations

from setwise.experiments.experiment import Experiment, Sheet
from setwise.experiments.recipes import table1, table2, table3, table4, table5
from setwise.registry import Registry

EXPERIMENTS: Registry[Experiment] = Registry("experiment")
for _experiment in (
    *(table1.PAPER, table1.QUICK),
    *(table2.PAPER, table2.QUICK, table2.COUNTED),
    *(table3.PAPER, table3.QUICK),
    *(table4.PAPER, table4.UNANNEALED, table4.BEST, table4.QUICK),
    *(table5.NETWORKS, table5.QUICK_NETWORKS),
):
    EXPERIMENTS.add(_experiment.name, _experiment)

# What is measured with networks of several experiments, by planning.
PLANNED: dict[str, Sheet] = {sheet.name: sheet for sheet in (table5.SHEET, table5.QUICK_SHEET)}
