"""Measure what a step takes of every decoder with every loss of ``studies/detection.py``.

    python studies/detection_times.py results

Losses that were trained together are not told apart by their records. Here five networks of one
loss take some steps, as they would in training. Several processes may be started
beside each other, and make each other slower.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from setwise import environment
from setwise.cli.user_file import run_file
from setwise.experiments import Experiment, store
from setwise.experiments.train import Training
from setwise.files import alone
from setwise.report.step_times import file_of

STUDY = run_file("study", Path(__file__).with_name("detection.py"))
STEPS, REPEATS = 10, 3  # of an epoch, and how many of those are timed


def measure(experiment: Experiment, scenario: str, loss: str, results: Path) -> None:
    """Time a cell, unless it is recorded or another process is at it."""
    run, times = f"{experiment.name}/{scenario}/{loss}", file_of(results, experiment.name)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    configs = experiment.configs(scenarios=[scenario], losses=[loss])
    few = STEPS * configs[0].schedule.batch
    data: Any = configs[0].data
    data = replace(data, pictures=few, train=few)
    short = [replace(one, data=data) for one in configs]
    with alone(results / f".times-{run.replace('/', '-')}.lock", "timing the same steps"):
        if any(one["run"] == run for one in store.read(times)):
            return
        seconds = Training(short, device).seconds_per_epoch(REPEATS) / STEPS
        line: dict[str, Any] = {"run": run, "experiment": experiment.name, "scenario": scenario}
        line |= {"loss": loss, "members": len(short), "milliseconds": round(1e3 * seconds, 3)}
        line |= {"environment": environment.describe(device)}
        store.append(times, [line])
    print(line, flush=True)


def main(results: str) -> None:
    for experiment in (STUDY.RECIPES, STUDY.EXPERIMENT):
        for scenario in experiment.scenarios:
            for loss in experiment.losses:
                try:
                    measure(experiment, scenario, loss, Path(results))
                except BlockingIOError:
                    continue  # another process is at it


if __name__ == "__main__":
    main(*sys.argv[1:])
