"""The demonstration: the quick networks of Table 5, trained longer and with more care."""

from __future__ import annotations

from dataclasses import replace

from setwise.experiments.config import Config
from setwise.experiments.recipes import table5

# The loss of the paper, and the one that it is there to replace.
LOSSES = ("set_cross_entropy", "ordered_cross_entropy")


def config(loss: str, seed: int) -> Config:
    """All states of the 2 x 3 puzzle, inputs and targets in a new random order each time."""
    quick = table5.quick("4", loss, seed)
    return replace(
        quick,
        experiment="demo",
        # More steps than in the preset: whoever sees this for the first time has one network only.
        schedule=replace(quick.schedule, epochs=500, batch=120, cooldown=0.6, evaluations=50),
    )
