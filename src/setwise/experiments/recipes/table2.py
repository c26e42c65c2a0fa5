"""Table 2: as Table 1, with objects missing from half of the states and dummies in their place."""

from __future__ import annotations

from dataclasses import replace

from setwise.experiments.config import Config, Loss, PuzzleData, Schedule
from setwise.experiments.recipes import table1

SCENARIOS = table1.SCENARIOS

PAPER = Schedule(epochs=1000, cooldown=0.2, evaluations=25)


def paper(scenario: str, loss: Loss, seed: int) -> Config:
    """Dummies fill the empty cells, each with its own."""
    base = table1.paper(scenario, loss, seed)
    return replace(base, table="table2", data=PuzzleData(variable=True), schedule=PAPER)


def counted(scenario: str, loss: Loss, seed: int) -> Config:
    """Dummies that say how many objects are missing and not where: a much harder task."""
    base = paper(scenario, loss, seed)
    return replace(base, table="table2-counted", data=PuzzleData(variable=True, dummies="counted"))


def quick(scenario: str, loss: Loss, seed: int) -> Config:
    base = table1.quick(scenario, loss, seed)
    assert isinstance(base.data, PuzzleData)
    return replace(base, table="table2-quick", data=replace(base.data, variable=True))
