"""Table 1: reconstruction of 8-puzzle states, with the order of input and target fixed or random.

The network and the data are those of the paper; what the paper does not say (optimiser, epochs,
batch, temperatures) is in `PAPER` and explained in docs/reproduction.md.
"""

from __future__ import annotations

from dataclasses import replace

from setwise.experiments.config import Autoencoder, Config, Loss, PuzzleData, Schedule

# Scenario: whether the input and the target come in random order.
SCENARIOS = {"1": (False, False), "2": (True, False), "3": (False, True), "4": (True, True)}

PAPER = Schedule(epochs=1500, cooldown=0.2, evaluations=30)
QUICK = Schedule(epochs=200, batch=100, learning_rate=2e-3, cooldown=0.2, evaluations=20)


def paper(scenario: str, loss: Loss, seed: int) -> Config:
    shuffle_input, shuffle_target = SCENARIOS[scenario]
    return Config(
        table="table1",
        scenario=scenario,
        loss=loss,
        seed=seed,
        shuffle_input=shuffle_input,
        shuffle_target=shuffle_target,
        data=PuzzleData(),
        network=Autoencoder(),
        schedule=PAPER,
    )


def quick(scenario: str, loss: Loss, seed: int) -> Config:
    """The 2x3 puzzle and a small network, too small for dropout: the same effect within minutes."""
    return replace(
        paper(scenario, loss, seed),
        table="table1-quick",
        data=PuzzleData(width=2, height=3, states=720, train=600),
        network=Autoencoder(
            element_widths=(128, 128), widths=(128,), latent=32, decoder_width=128, dropout=0.0
        ),
        schedule=QUICK,
    )
