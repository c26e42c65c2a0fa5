"""Train ``studies/pictures.py`` cell by cell, so that the time of a step is that of one loss.

    python studies/pictures_cells.py results

Several processes may be started beside each other: each takes cells that no other is training.
Records are those of ``setwise train``; the time of a step goes to
``results/studies/picture-steps.jsonl``, measured while training, from the first evaluation on, when
all is compiled and recorded.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from setwise import environment
from setwise.cli.user_file import run_file
from setwise.experiments import Experiment, run, store
from setwise.experiments.run import left_to_train
from setwise.experiments.train import Training, TrainingProgress

HERE = Path(__file__).parent
STEPS = Path("studies", "picture-steps.jsonl")


def cells(experiments: list[Experiment]) -> list[tuple[Experiment, str, str]]:
    """What is trained, one after the other: an experiment, a scenario and a loss."""
    return [
        (experiment, scenario, loss)
        for experiment in experiments
        for scenario in experiment.scenarios
        for loss in experiment.losses
    ]


def train_cell(experiment: Experiment, scenario: str, loss: str, results: Path, runs: Path) -> None:
    """Train the seeds of a cell together; nothing is done where they have their records."""
    seen: list[tuple[int, float]] = []
    trainings: list[Training] = []

    def watch(training: Training, progress: TrainingProgress) -> None:
        trainings[:] = [training]
        seen.append((progress.epoch, progress.seconds))

    chosen: dict[str, Any] = {"scenarios": [scenario], "losses": [loss]}
    run(experiment, results=results, runs=runs, watch=watch, **chosen)
    if len(seen) > 1:
        store.append(results / STEPS, [_time_of(experiment, scenario, loss, trainings[0], seen)])


def _time_of(
    experiment: Experiment,
    scenario: str,
    loss: str,
    training: Training,
    seen: list[tuple[int, float]],
) -> dict[str, Any]:
    """Milliseconds of a step of all members, the median of what evaluations are apart."""
    schedule = training.configs[0].schedule
    steps = training.task.train // schedule.batch
    each = [
        (later[1] - before[1]) / (later[0] - before[0]) / steps for before, later in pairwise(seen)
    ]
    return {
        "run": f"{experiment.name}/{scenario}/{loss}",
        "experiment": experiment.name,
        "scenario": scenario,
        "loss": loss,
        "members": len(training.configs),
        "milliseconds": round(1e3 * median(each), 3),
        "environment": environment.describe(training.task.targets.device),
    }


def main(results: Path, runs: Path = Path("runs")) -> None:
    study = run_file("study", HERE / "pictures.py")
    for experiment, scenario, loss in cells([study.RECIPES, study.EXPERIMENT]):
        configs = experiment.configs(scenarios=[scenario], losses=[loss])
        if not left_to_train(experiment.name, configs, results):
            continue
        try:
            train_cell(experiment, scenario, loss, results, runs)
        except BlockingIOError:
            continue  # another process is at it
        print(f"{experiment.name}: {scenario}, {loss}", flush=True)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
