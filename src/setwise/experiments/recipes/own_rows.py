"""A network for a user's own rows of sets, without a line of code; see `RowsData`.

The experiment bears the name of the file. Sets of different sizes are the rule, so outputs say
whether they exist, and the loss is the one that `docs/choosing-a-loss.md` recommends for that.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import ceil
from pathlib import Path

from setwise.experiments.config import Config, Schedule
from setwise.experiments.experiment import Experiment
from setwise.experiments.networks import Perceptron
from setwise.experiments.tasks.rows import TOLERANCE, RowsData

BATCH, STEPS = 64, 3000
# Up to so many elements the likelihood of sets is quick; larger ones are matched one to one.
LIKELY = 32


def on_own_rows(
    data: RowsData,
    losses: Sequence[str] = (),
    *,
    epochs: int | None = None,
    command: str = "",
) -> Experiment:
    """A predictor, or an autoencoder where there is nothing to predict from.

    Without ``losses`` the recommended one is trained, without ``epochs`` as many as make about
    3,000 steps.
    """
    name = re.sub(r"[^\w-]+", "_", Path(data.file).stem).strip("_-") or "rows"
    recommended = "set_likelihood" if data.size <= LIKELY else "assignment_cross_entropy"
    batch = max(2, min(BATCH, data.train // 4))
    passes = epochs or ceil(STEPS / max(1, data.train // batch))
    scenario = "reconstructed" if data.inputs is None else "predicted"
    schedule = Schedule(
        epochs=passes,
        batch=batch,
        learning_rate=2e-3,
        cooldown=0.5,
        evaluations=min(20, passes),
    )

    def config(scenario: str, loss: str, seed: int) -> Config:
        return Config(
            experiment=name,
            scenario=scenario,
            loss=loss,
            seed=seed,
            shuffle_input=False,
            shuffle_target=False,
            data=data,
            network=Perceptron(),
            schedule=schedule,
        )

    return Experiment(
        name=name,
        title=f"{data.target} of {Path(data.file).name}",
        config=config,
        scenarios={scenario: f"{data.target}, {scenario}"},
        losses=tuple(losses) or (recommended,),
        seeds=1,
        metric="heldout",
        metric_label=f"share of the held-out sets that are right, numbers within {TOLERANCE:g} of "
        f"their spread",
        command=command,
    )
