"""Table 5: planning with learned states, and the networks whose codes are planned with.

A network serves several scenarios of the table, so those that are trained for it make up an
experiment of their own. The 8-puzzle is planned with the networks of Table 1, scenario 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from setwise.experiments.config import Config
from setwise.experiments.experiment import Sheet
from setwise.experiments.networks import Autoencoder
from setwise.experiments.recipes import table1, table3
from setwise.experiments.recipes.paper import published
from setwise.experiments.tasks import BlocksData, PuzzleData

SEEDS = 10
QUICK_SEEDS = 1
LOSSES = ("set_cross_entropy", "set_average")
# All 5760 states of 4 blocks on 3 stacks have pictures, the first 1000 are trained on. So many take
# Mitsuba hours of a core; the renderer torch draws them on a GPU, too.
BLOCKS = BlocksData(blocks=4, stacks=3, states=5760, train=1000, renderer="torch")


@dataclass(frozen=True)
class Scenario:
    """So many problems by random walks of so many steps, in a kind of world."""

    name: str
    world: str
    steps: int
    problems: int

    def fits(self, config: Config) -> bool:
        """Whether a network was trained on states of such a world."""
        return config.data.world_kind == self.world


PUZZLE_PROBLEMS, BLOCKS_PROBLEMS = 20, 10  # as many as the paper has
PAPER = {
    scenario.name: scenario
    for scenario in (
        *(Scenario(f"puzzle-{steps}", "puzzle", steps, PUZZLE_PROBLEMS) for steps in (7, 14)),
        *(
            Scenario(f"blocks-{steps}", "blocksworld", steps, BLOCKS_PROBLEMS)
            for steps in (3, 7, 14)
        ),
    )
}
# Of the 2 x 3 puzzle, which has fewer states within so few steps.
QUICK = {name: replace(PAPER[name], problems=5) for name in ("puzzle-7", "puzzle-14")}
_WORLDS = {"puzzle": "puzzle", "blocksworld": "Blocksworld"}


def _labels(scenarios: Mapping[str, Scenario]) -> dict[str, str]:
    return {
        name: f"{_WORLDS[scenario.world]}, {scenario.steps} random steps"
        for name, scenario in scenarios.items()
    }


def blocks(scenario: str, loss: str, seed: int) -> Config:
    """The network of Table 3 on 1000 states of the smaller Blocksworld, in random orders.

    They show few of the combinations of materials and places, which the network would remember.
    Recombined, it sees ever new ones, and so needs no dropout, which blurs what it puts out.
    """
    return replace(
        table3.paper(scenario, loss, seed),
        experiment="networks5",
        data=BLOCKS,
        network=Autoencoder(start_at_prototypes=True, dropout=0.0),
        schedule=replace(table3.PAPER_SCHEDULE, epochs=5600, recombined=0.5),
    )


def quick(scenario: str, loss: str, seed: int) -> Config:
    """The 2 x 3 puzzle: all of its states are trained on, without dropout, until nothing is lost.

    A plan is only as good as the worst state on its way.
    """
    base = table1.quick(scenario, loss, seed)
    return replace(
        base,
        experiment="networks5-quick",
        data=PuzzleData(width=2, height=3, states=720, train=720),
        network=Autoencoder(
            element_widths=(192, 192), widths=(192,), latent=24, decoder_width=192, dropout=0.0
        ),
        schedule=replace(base.schedule, epochs=400, batch=180, cooldown=0.6, evaluations=10),
    )


NETWORKS = replace(
    table3.PAPER,
    name="networks5",
    title="Networks of Table 5: reconstruction of 4 rendered blocks",
    config=blocks,
    scenarios={"4": table1.SCENARIOS["4"]},
    losses=LOSSES,
    seeds=SEEDS,
    curves_of="every eleventh state",
    command="setwise reproduce table5",
    reference=None,
)
QUICK_NETWORKS = replace(
    table1.QUICK,
    name="networks5-quick",
    title="Networks of Table 5 at small size: states of the 2 x 3 puzzle",
    config=quick,
    scenarios={"4": table1.SCENARIOS["4"]},
    losses=LOSSES,
    seeds=QUICK_SEEDS,
    command="setwise reproduce table5 --preset quick",
)

SHEET = Sheet(
    name="table5",
    title="Table 5: planning with learned states",
    scenarios=_labels(PAPER),
    losses=NETWORKS.sheet.losses,
    metric="solved",
    metric_label=f"valid plans; the paper has {PUZZLE_PROBLEMS} problems a cell in the puzzle, "
    f"else {BLOCKS_PROBLEMS}",
    decimals=0,
    command="setwise reproduce table5",
    remark="Recombined sets are not the paper's. They were chosen by how well states come back "
    "that were not trained on, and the problems are about such states too (docs/planning.md, "
    "Recombined sets).",
    # The numbers of the puzzle stand in the text: all 40 problems were solved with both losses.
    reference=published(
        "The number of instances solved by Latplan using a VAE trained by Set Cross Entropy (SH) "
        "and Set Average (A1H) of the cross entropy. "
        "(Appendix, Example Application, 8 Puzzle and Blocksworld)",
        list(PAPER),
        {"set_cross_entropy": (20, 20, 7, 5, 2), "set_average": (20, 20, 7, 3, 1)},
        decimals=0,
    ),
)
QUICK_SHEET = replace(
    SHEET,
    name="table5-quick",
    title="Table 5 at small size: planning in the 2 x 3 puzzle",
    scenarios=_labels(QUICK),
    metric_label="valid plans",
    command="setwise reproduce table5 --preset quick",
    remark="",
    reference=None,
)
