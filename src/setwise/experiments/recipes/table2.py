"""Table 2: as Table 1, with objects missing from half of the states and dummies in their place."""

from __future__ import annotations

from dataclasses import replace

from setwise.experiments.config import Config, Schedule
from setwise.experiments.recipes import table1
from setwise.experiments.recipes.paper import published
from setwise.experiments.tasks import PuzzleData

PAPER_SCHEDULE = Schedule(epochs=1000, cooldown=0.2, evaluations=25)


def paper(scenario: str, loss: str, seed: int) -> Config:
    """Dummies fill the empty cells, each with its own."""
    return replace(
        table1.paper(scenario, loss, seed),
        experiment="table2",
        data=PuzzleData(variable=True),
        schedule=PAPER_SCHEDULE,
    )


def counted(scenario: str, loss: str, seed: int) -> Config:
    """Dummies that say how many objects are missing and not where: a much harder task."""
    return replace(
        paper(scenario, loss, seed),
        experiment="table2-counted",
        data=PuzzleData(variable=True, dummies="counted"),
    )


def quick(scenario: str, loss: str, seed: int) -> Config:
    return replace(
        table1.quick(scenario, loss, seed),
        experiment="table2-quick",
        data=PuzzleData(width=2, height=3, states=720, train=600, variable=True),
    )


PAPER = replace(
    table1.PAPER,
    name="table2",
    title="Table 2: reconstruction of 8-puzzle states with missing objects",
    config=paper,
    command="setwise reproduce table2",
    reference=published(
        "The best reconstruction success ratio in the 10 runs of 16 training scenarios, where the "
        "size of the set randomly varies from 4 to 9 in the dataset. (Section 4.1.1, 8 Puzzle)",
        list(table1.SCENARIOS),
        {
            "ordered_cross_entropy": (0.76, 0.85, 0.12, 0.00),
            "set_cross_entropy": (0.60, 0.65, 0.62, 0.62),
            "set_average": (0.57, 0.56, 0.58, 0.56),
            "hausdorff": (0.00, 0.00, 0.00, 0.00),
        },
    ),
)
COUNTED = replace(
    PAPER,
    name="table2-counted",
    title="Table 2 with counted dummies: which say how many objects are missing, not where",
    config=counted,
    scenarios={"3": table1.SCENARIOS["3"]},
    command="setwise reproduce table2 --preset counted",
    reference=None,
)
QUICK = replace(
    PAPER,
    name="table2-quick",
    title="Table 2 at small size: states of the 2 x 3 puzzle with missing objects",
    config=quick,
    seeds=1,
    command="setwise reproduce table2 --preset quick",
    reference=None,
)
