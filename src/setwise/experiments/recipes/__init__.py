"""The configs behind each table of the paper: one file a table, one function a preset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from setwise.experiments.config import LOSSES, Config, Loss
from setwise.experiments.recipes import table1, table2, table3, table4


@dataclass(frozen=True)
class Recipe:
    """A preset of a table: its scenarios, how many seeds it has, and the config of each run."""

    config: Callable[[str, Loss, int], Config]
    scenarios: tuple[str, ...]
    seeds: int

    def configs(
        self,
        seeds: Sequence[int] | None = None,
        scenarios: Sequence[str] | None = None,
        losses: Sequence[Loss] = LOSSES,
    ) -> list[Config]:
        """All runs, or those with these seeds, scenarios and losses."""
        return [
            self.config(scenario, loss, seed)
            for scenario in (self.scenarios if scenarios is None else scenarios)
            for loss in losses
            for seed in (range(self.seeds) if seeds is None else seeds)
        ]


RECIPES: dict[str, dict[str, Recipe]] = {
    "table1": {
        "paper": Recipe(table1.paper, tuple(table1.SCENARIOS), seeds=10),
        "quick": Recipe(table1.quick, tuple(table1.SCENARIOS), seeds=1),
    },
    "table2": {
        "paper": Recipe(table2.paper, tuple(table2.SCENARIOS), seeds=10),
        "quick": Recipe(table2.quick, tuple(table2.SCENARIOS), seeds=1),
        "counted": Recipe(table2.counted, ("3",), seeds=10),
    },
    "table3": {
        "paper": Recipe(table3.paper, tuple(table3.SCENARIOS), seeds=10),
        "quick": Recipe(table3.quick, tuple(table3.SCENARIOS), seeds=1),
    },
    "table4": {
        "paper": Recipe(table4.paper, tuple(table4.SCENARIOS), seeds=10),
        "unannealed": Recipe(table4.unannealed, tuple(table4.SCENARIOS), seeds=10),
        "best": Recipe(table4.best, tuple(table4.SCENARIOS), seeds=10),
        "quick": Recipe(table4.quick, table4.QUICK_SCENARIOS, seeds=1),
    },
}
