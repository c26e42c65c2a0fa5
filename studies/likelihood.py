"""Tasks that the likelihood of a set is meant for, at full length, beside set cross entropy.

``setwise train studies/likelihood.py`` trains them; ``lights_plans.py`` beside this file plans with
what was learned of Lights Out.
"""

from __future__ import annotations

from dataclasses import replace

from setwise.experiments import Config, Experiment, Schedule
from setwise.experiments.networks import Autoencoder, RuleLearner
from setwise.experiments.recipes import table1, table2
from setwise.experiments.tasks import MultisetData, PuzzleData, WorldData

SCENARIOS = {
    "categorical": "8-puzzle in random order, outputs scored as categorical",
    "categorical-slower": "the same at 0.3 times the paper's learning rate",
    "presence": "8-puzzle with missing objects, and outputs that say whether they exist",
    "multisets": "multisets of up to 12 of 10 numbers",
    "lights": "the 512 states of Lights Out, 3 x 3, in 24 bits",
}


def config(scenario: str, loss: str, seed: int) -> Config:
    base = replace(
        table1.paper("4", loss, seed),
        experiment="likelihood",
        scenario=scenario,
        data=PuzzleData(scored_as="categorical"),
    )
    if scenario == "categorical-slower":
        # Whether SH stays on its plateau because of the task, or because of the rate.
        return replace(base, schedule=replace(base.schedule, learning_rate=3e-4))
    if scenario == "presence":
        return replace(
            base,
            data=PuzzleData(variable=True, dummies="none"),
            # From outputs that begin alike, one seed in three learned to read states anew.
            network=Autoencoder(dropout=0.3, start_at_prototypes=True),
            schedule=table2.PAPER_SCHEDULE,
        )
    if scenario == "multisets":
        return replace(
            base,
            data=MultisetData(states=100_000, train=96_000),
            network=RuleLearner(width=1000, hidden_layers=3, dropout=0.0, surplus=4),
            schedule=Schedule(epochs=40, batch=250, cooldown=0.7, evaluations=10),
        )
    if scenario == "lights":
        return replace(
            base,
            data=WorldData(of="lights", size=(3, 3), states=512, train=512),
            network=Autoencoder((128, 128), (128,), 24, 128, dropout=0.0, start_at_prototypes=True),
            schedule=Schedule(epochs=150, batch=64, learning_rate=3e-3, cooldown=0.5),
        )
    return base


EXPERIMENT = Experiment(
    name="likelihood",
    title="Tasks for the likelihood of a set",
    config=config,
    scenarios=SCENARIOS,
    losses=("set_cross_entropy", "set_likelihood"),
    metric="exact",
    metric_label="share of all sets that come out exactly",
    decimals=3,
    command="setwise train studies/likelihood.py",
)
