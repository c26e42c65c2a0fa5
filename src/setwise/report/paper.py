"""What the paper reports (Asai, 2018, arXiv 1812.01217): the numbers of its Tables 1 to 5.

A table of ours is named after one of these, with the preset behind a hyphen unless it is the
paper's own setting: ``table1``, ``table1-quick``, ``table4-best``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

# How the tables name the losses (a) to (d).
LOSS_NAMES = {
    "H": "cross entropy",
    "SH": "set cross entropy",
    "A1H": "set average",
    "H1H": "Hausdorff",
}


@dataclass(frozen=True)
class PaperTable:
    """One table of the paper, and which metric of a run stands beside its numbers."""

    number: int
    title: str
    caption: str
    place: str
    # Short names, as in records, and what they say.
    scenarios: dict[str, str]
    # For each loss one number a scenario, to as many decimals as the paper prints.
    values: dict[str, tuple[float, ...]]
    decimals: int
    # The metric of a record that is the table's number, in words too, and which end of it is good.
    metric: str
    metric_name: str
    better: Literal["higher", "lower"] = "higher"
    # Decimals of our numbers beyond those of the paper, where ours would look alike otherwise.
    extra_decimals: int = 0
    # Why our numbers are on another scale than the paper's, in a sentence, if they are.
    other_scale: str = ""
    # On which examples curves are measured, if not on all.
    curves_of: str = ""

    @property
    def counts_plans(self) -> bool:
        """Whether its numbers are of valid plans; records then list all problems."""
        return self.metric == "solved"

    @property
    def our_decimals(self) -> int:
        return self.decimals + self.extra_decimals

    def value(self, loss: str, scenario: str) -> float | None:
        """The paper's number, if it has one there."""
        if loss not in self.values or scenario not in self.scenarios:
            return None
        return self.values[loss][list(self.scenarios).index(scenario)]

    def format_paper(self, value: float) -> str:
        """A number as the paper prints it."""
        return f"{value:.{self.decimals}f}"

    def format_ours(self, value: float) -> str:
        """A number of our own, as we print it; between two counts lies a half."""
        halfway = self.our_decimals == 0 and value != round(value)
        return f"{value:.{1 if halfway else self.our_decimals}f}"

    def label(self, scenario: str) -> str:
        """What a scenario says; its name where the paper has none such."""
        return self.scenarios.get(scenario, scenario)

    def best_first(self, values: list[float]) -> list[float]:
        return sorted(values, reverse=self.better == "higher")

    def fails(self, value: float) -> bool:
        """Whether a number, printed as the paper prints, is that of a loss that fails: a 0."""
        return self.better == "higher" and round(value, self.decimals) == 0

    def reaches(self, value: float, paper: float | None) -> bool:
        """Whether a value, printed as the paper prints, is not behind the paper's.

        This alone decides what is bold and what holds, wherever numbers are shown. Where the loss
        fails in the paper there is nothing to reach, and nothing can be said across scales.
        """
        if paper is None or self.fails(paper) or self.other_scale:
            return False
        rounded = round(value, self.decimals)
        return rounded >= paper if self.better == "higher" else rounded <= paper


_ORDERS = {
    "1": "(1) input fixed, target fixed",
    "2": "(2) input random, target fixed",
    "3": "(3) input fixed, target random",
    "4": "(4) input random, target random",
}
_CLAUSES = {
    f"n{n}-{train}-{order}": f"n = {n}, {train} clauses, {order} order"
    for n, train in ((2, 2250), (3, 2250), (4, 2250), (4, 9000), (5, 2250), (5, 9000))
    for order in ("fixed", "random")
}

TABLES = {
    "table1": PaperTable(
        number=1,
        title="reconstruction of 8-puzzle states",
        caption="The best reconstruction success ratio in the 10 runs of 16 training scenarios.",
        place="Section 4.1.1, 8 Puzzle",
        scenarios=_ORDERS,
        values={
            "H": (1.00, 1.00, 0.00, 0.00),
            "SH": (1.00, 1.00, 1.00, 1.00),
            "A1H": (1.00, 1.00, 1.00, 1.00),
            "H1H": (0.00, 0.00, 0.00, 0.00),
        },
        decimals=2,
        metric="success",
        metric_name="share of all states that are reconstructed",
    ),
    "table2": PaperTable(
        number=2,
        title="reconstruction of 8-puzzle states with missing objects",
        caption="The best reconstruction success ratio in the 10 runs of 16 training scenarios, "
        "where the size of the set randomly varies from 4 to 9 in the dataset.",
        place="Section 4.1.1, 8 Puzzle",
        scenarios=_ORDERS,
        values={
            "H": (0.76, 0.85, 0.12, 0.00),
            "SH": (0.60, 0.65, 0.62, 0.62),
            "A1H": (0.57, 0.56, 0.58, 0.56),
            "H1H": (0.00, 0.00, 0.00, 0.00),
        },
        decimals=2,
        metric="success",
        metric_name="share of all states that are reconstructed",
    ),
    "table3": PaperTable(
        number=3,
        title="reconstruction of rendered Blocksworld states",
        caption="RMSE between the visualized images, the best results of 10 runs.",
        place="Section 4.1.2, Blocksworld",
        scenarios=_ORDERS,
        values={
            "H": (0.10, 0.10, 0.15, 0.15),
            "SH": (0.08, 0.08, 0.07, 0.08),
            "A1H": (0.08, 0.10, 0.08, 0.08),
            "H1H": (0.14, 0.15, 0.16, 0.15),
        },
        decimals=2,
        metric="rmse",
        metric_name="root mean squared error of the pixels",
        better="lower",
        extra_decimals=2,
        other_scale="These errors grow with the part of a picture that blocks cover, which the "
        "paper does not say: its numbers and ours are on different scales, and only their order "
        "can be compared.",
        curves_of="every fifth state",
    ),
    "table4": PaperTable(
        number=4,
        title="bodies of Horn clauses from their heads",
        caption="The rate of correct answers on the test set, best results of 10 runs. "
        '"Random" indicates that the target output is shuffled.',
        place="Section 4.2, Rule Learning ILP Tasks",
        scenarios=_CLAUSES,
        values={
            "H": (0.32, 0.36, 0.10, 0.10, 0.02, 0.03, 0.04, 0.04, 0.00, 0.01, 0.01, 0.01),
            "SH": (0.96, 0.94, 0.72, 0.70, 0.38, 0.36, 0.87, 0.86, 0.17, 0.15, 0.65, 0.60),
            "A1H": (0.91, 0.94, 0.61, 0.60, 0.33, 0.34, 0.81, 0.79, 0.13, 0.13, 0.53, 0.56),
            "H1H": (0.87, 0.85, 0.55, 0.57, 0.22, 0.24, 0.50, 0.53, 0.06, 0.06, 0.20, 0.18),
        },
        decimals=2,
        metric="heldout",
        metric_name="share of the held-out clauses that are answered correctly",
    ),
    "table5": PaperTable(
        number=5,
        title="planning with learned states",
        caption="The number of instances solved by Latplan using a VAE trained by Set Cross "
        "Entropy (SH) and Set Average (A1H) of the cross entropy.",
        # The numbers of the puzzle stand in the text: all 40 problems were solved with both losses.
        place="Appendix, Example Application, 8 Puzzle and Blocksworld",
        scenarios={
            **{f"puzzle-{steps}": f"puzzle, {steps} random steps" for steps in (7, 14)},
            **{f"blocks-{steps}": f"Blocksworld, {steps} random steps" for steps in (3, 7, 14)},
        },
        values={"SH": (20, 20, 7, 5, 2), "A1H": (20, 20, 7, 3, 1)},
        decimals=0,
        metric="solved",
        metric_name="valid plans; the paper has 20 problems a cell in the puzzle, else 10",
    ),
}


def base_name(name: str) -> str:
    """A table's name without the preset.

    >>> base_name("table4-best")
    'table4'
    """
    return name.partition("-")[0]


def heading(name: str) -> str:
    """What to print above a table of ours."""
    table = paper_table(name)
    if name == base_name(name):
        return f"Table {table.number}: {table.title}"
    return f"{name}, not the paper's setting: {table.title}"


def paper_table(name: str) -> PaperTable:
    """The table of the paper behind a table of ours; a smaller task has none of its numbers."""
    if base_name(name) not in TABLES:
        raise ValueError(f"{name}: the paper has no such table; it has {', '.join(TABLES)}")
    table = TABLES[base_name(name)]
    return replace(table, values={}, other_scale="", curves_of="") if is_quick(name) else table


def is_quick(name: str) -> bool:
    """Whether a table is of a smaller task, made to be seen and not to be published."""
    return name.endswith("-quick")
