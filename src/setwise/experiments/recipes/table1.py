"""Table 1: reconstruction of 8-puzzle states, with the order of input and target fixed or random.

The network and the data are those of the paper; what the paper does not say (optimiser, epochs,
batch, temperatures) is in `PAPER_SCHEDULE` and explained in docs/reproduction.md.
"""

from __future__ import annotations

from dataclasses import replace

from setwise.experiments.config import Config, Schedule
from setwise.experiments.experiment import Experiment
from setwise.experiments.networks import Autoencoder
from setwise.experiments.recipes.paper import LOSSES, published
from setwise.experiments.tasks import PuzzleData

SCENARIOS = {
    "1": "(1) input fixed, target fixed",
    "2": "(2) input random, target fixed",
    "3": "(3) input fixed, target random",
    "4": "(4) input random, target random",
}
METRIC_LABEL = "share of all states that are reconstructed"

PAPER_SCHEDULE = Schedule(epochs=1500, cooldown=0.2, evaluations=30)
QUICK_SCHEDULE = Schedule(epochs=200, batch=100, learning_rate=2e-3, cooldown=0.2, evaluations=20)


def paper(scenario: str, loss: str, seed: int) -> Config:
    return Config(
        experiment="table1",
        scenario=scenario,
        loss=loss,
        seed=seed,
        shuffle_input=scenario in ("2", "4"),
        shuffle_target=scenario in ("3", "4"),
        data=PuzzleData(),
        network=Autoencoder(),
        schedule=PAPER_SCHEDULE,
    )


def quick(scenario: str, loss: str, seed: int) -> Config:
    """The 2x3 puzzle and a small network, too small for dropout: the same effect within minutes."""
    return replace(
        paper(scenario, loss, seed),
        experiment="table1-quick",
        data=PuzzleData(width=2, height=3, states=720, train=600),
        network=Autoencoder(
            element_widths=(128, 128), widths=(128,), latent=32, decoder_width=128, dropout=0.0
        ),
        schedule=QUICK_SCHEDULE,
    )


PAPER = Experiment(
    name="table1",
    title="Table 1: reconstruction of 8-puzzle states",
    config=paper,
    scenarios=SCENARIOS,
    losses=LOSSES,
    metric_label=METRIC_LABEL,
    command="setwise reproduce table1",
    reference=published(
        "The best reconstruction success ratio in the 10 runs of 16 training scenarios. "
        "(Section 4.1.1, 8 Puzzle)",
        list(SCENARIOS),
        {
            "ordered_cross_entropy": (1.00, 1.00, 0.00, 0.00),
            "set_cross_entropy": (1.00, 1.00, 1.00, 1.00),
            "set_average": (1.00, 1.00, 1.00, 1.00),
            "hausdorff": (0.00, 0.00, 0.00, 0.00),
        },
    ),
)
QUICK = replace(
    PAPER,
    name="table1-quick",
    title="Table 1 at small size: reconstruction of states of the 2 x 3 puzzle",
    config=quick,
    seeds=1,
    command="setwise reproduce table1 --preset quick",
    reference=None,
)
