"""A recipe that is trained in a second, for whole commands."""

from __future__ import annotations

from dataclasses import replace

from setwise.experiments.config import Autoencoder, Config, Loss, PuzzleData, Schedule
from setwise.experiments.recipes import Recipe, table1

EPOCHS = 6


def tiny(scenario: str, loss: Loss, seed: int) -> Config:
    """The 2x2 puzzle and a network of a few units."""
    return replace(
        table1.paper(scenario, loss, seed),
        table="table1-tiny",
        data=PuzzleData(width=2, height=2, states=24, train=20),
        network=Autoencoder(element_widths=(8,), widths=(8,), latent=4, decoder_width=8),
        schedule=Schedule(epochs=EPOCHS, batch=10, evaluations=EPOCHS),
    )


RECIPE = Recipe(tiny, ("1", "3"), seeds=2)
