"""Time a step of every loss of ``studies/losses.py``, ten networks at a time and nothing beside.

    python studies/step_times.py results/studies/steps.jsonl

Each line that is written has the milliseconds that a step of training takes with a loss in a task,
network and all, on the device that is there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

from setwise import environment
from setwise.cli.user_file import run_file
from setwise.experiments.train import Training
from setwise.files import atomic_write_text

STUDY = Path(__file__).with_name("losses.py")
# Sets of 6, of up to 6, of 32 and of 64 elements.
TASKS = ("puzzle-categorical", "multisets-presence", "random-32x8", "clouds")
NETWORKS, EPOCHS, TIMES = 10, 5, 3


def step_of(study: Any, scenario: str, loss: str, device: torch.device) -> dict[str, Any]:
    """What a step takes, as the least of several times."""
    configs = [study.config(scenario, loss, seed) for seed in range(NETWORKS)]
    training = Training(configs, device)
    steps = training.task.train // configs[0].schedule.batch
    seconds = min(training.seconds_per_epoch(EPOCHS) for _ in range(TIMES)) / steps
    return {
        "scenario": scenario,
        "loss": loss,
        "networks": NETWORKS,
        "milliseconds": round(1e3 * seconds, 4),
    }


def main(output: Path, commit: str | None = None) -> None:
    study = run_file("experiment", STUDY)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    where = environment.describe(device, commit)
    output.parent.mkdir(parents=True, exist_ok=True)
    found = []
    for scenario in TASKS:
        for loss in study.EXPERIMENT.losses:
            found.append(step_of(study, scenario, loss, device) | {"environment": where})
            print(found[-1], flush=True)
        atomic_write_text(output, "".join(json.dumps(one) + "\n" for one in found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
