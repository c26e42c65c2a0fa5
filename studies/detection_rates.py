"""Look for the rate of each decoder and recipe of ``studies/detection.py``.

    python studies/detection_rates.py results          # some short trainings each
    python studies/detection_rates.py results --choose # writes the best into detection.json

Decoders are tried with the best assignment, which our losses are compared with, and recipes with
their own loss; seeds are others than those of the study, and the least loss at the end decides,
which tells more than what is found after so few steps. Several processes may be started beside
each other: each takes trainings that no other is at.
"""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from setwise import environment
from setwise.cli.user_file import run_file
from setwise.experiments import Config, store
from setwise.experiments.train import Training
from setwise.files import alone, atomic_write_text

STUDY = run_file("study", Path(__file__).with_name("detection.py"))
RATES = Path("studies", "picture-rates.jsonl")
TRIED = (1e-3, 2e-3, 4e-3)
EPOCHS, SEEDS = 3, (100, 101)
# A config of each name in detection.json.
SETTINGS = {
    "queries": ("config", "queries-20", "assignment_cross_entropy"),
    "slots": ("config", "slots-20", "assignment_cross_entropy"),
    "implicit": ("config", "implicit-20", "assignment_cross_entropy"),
    "regions": ("config", "regions-36", "assignment_cross_entropy"),
    "detr": ("published", "detr", "detr_loss"),
    "slot-attention": ("published", "slot-attention", "huber_loss"),
    "idspn": ("published", "idspn", "huber_loss"),
}


def trial(name: str, rate: float) -> list[Config]:
    """The short runs of a rate."""
    kind, scenario, loss = SETTINGS[name]
    found = []
    for seed in SEEDS:
        config = getattr(STUDY, kind)(scenario, loss, seed)
        schedule = replace(
            config.schedule, epochs=EPOCHS, learning_rate=rate, cooldown=0.3, evaluations=1
        )
        found.append(replace(config, schedule=schedule))
    return found


def measure(name: str, rate: float, results: Path) -> None:
    """Train, unless it is recorded or another process is at it, and record what came of it."""
    run = f"{name}/{rate}"
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with alone(results / f".rates-{name}-{rate}.lock", "trying the same rate"):
        if any(one["run"] == run for one in store.read(results / RATES)):
            return
        training = Training(trial(name, rate), device, metric="ap_0.1")
        losses = [result.metrics["loss"] for result in training.run()]
        known = [loss if math.isfinite(loss) else None for loss in losses]
        line: dict[str, Any] = {"run": run, "name": name, "rate": rate, "losses": known}
        line |= {"epochs": EPOCHS, "environment": environment.describe(torch.device(device))}
        store.append(results / RATES, [line])
    print(line, flush=True)


def best(results: Path) -> dict[str, float]:
    """The rate of each name with the least loss; of one that was not tried, the first."""
    found: dict[str, dict[float, float]] = defaultdict(dict)
    for one in store.read(results / RATES):
        losses = [math.inf if loss is None else loss for loss in one["losses"]]
        found[one["name"]][one["rate"]] = mean(losses)
    return {
        name: min(found[name], key=lambda rate: found[name][rate]) if name in found else TRIED[0]
        for name in SETTINGS
    }


def choose(results: Path) -> None:
    """Write the best rates where the study reads them."""
    settings = json.loads(STUDY.SETTINGS.read_text()) | {"rates": best(results)}
    atomic_write_text(STUDY.SETTINGS, json.dumps(settings, indent=1) + "\n")


def main(results: str, *options: str) -> None:
    if "--choose" in options:
        choose(Path(results))
        return
    for rate in TRIED:
        for name in SETTINGS:
            try:
                measure(name, rate, Path(results))
            except BlockingIOError:
                continue  # another process is at it


if __name__ == "__main__":
    main(*sys.argv[1:])
