"""Pictures, eight times as long: what the slow ones of ``detection.py`` reach.

    setwise train studies/longer.py

The recipes of Slot Attention and iDSPN, whose authors train them far longer than that comparison
does, and of ours the best decoder and the best loss for slots. All else is as it is there; rates
rise and fall over the whole of the longer time.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from setwise.cli.user_file import run_file
from setwise.experiments import Config, Experiment

STUDY = run_file("study", Path(__file__).with_name("detection.py"))
LONGER, EVALUATIONS = 8, 24
# In the order in which they are trained.
CELLS = (
    ("slot-attention", "huber_loss"),
    ("queries-20", "plain_cross_entropy"),
    ("slots-20", "cooled_cross_entropy"),
    ("idspn", "huber_loss"),
)


def config(scenario: str, loss: str, seed: int) -> Config:
    """As in the comparison, but longer."""
    of = STUDY.published if scenario in STUDY.PUBLISHED else STUDY.config
    short: Config = of(scenario, loss, seed)
    schedule = replace(
        short.schedule, epochs=LONGER * short.schedule.epochs, evaluations=EVALUATIONS
    )
    return replace(short, experiment="picture-longer", schedule=schedule)


_LABELS = STUDY.RECIPES.scenarios | STUDY.EXPERIMENT.scenarios
EXPERIMENT = Experiment(
    name="picture-longer",
    title="From pictures to sets: eight times as long",
    config=config,
    scenarios={scenario: _LABELS[scenario] for scenario, _ in CELLS},
    losses=tuple(dict.fromkeys(loss for _, loss in CELLS)),
    command="setwise train studies/longer.py",
    **STUDY.COMPARED,
    cells=CELLS,
)
