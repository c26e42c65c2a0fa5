"""Look for the rate of each network of ``studies/rendered_scenes.py``, and for the scale of places.

    python studies/rendered_rates.py results runs           # some short trainings each; wants a GPU
    python studies/rendered_rates.py results runs queries-fine    # of some networks only
    python studies/rendered_rates.py results --choose       # writes the best into the settings

The pictures that the study holds out are not looked at: the last of those to train on are held out
here, and the best average precision without a limit on distances decides, for every network. The
seed is none of the study. Published losses do not ask for a scale.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch

from setwise import environment
from setwise.cli.user_file import run_file
from setwise.experiments import Config, Task, store
from setwise.experiments.tasks import ScenesData
from setwise.experiments.tasks.task import CPU, DATA
from setwise.experiments.train import Training
from setwise.files import alone, atomic_write_text

STUDY = run_file("study", Path(__file__).with_name("rendered_scenes.py"))
TRIALS = Path("studies", "scene-rates.jsonl")
EPOCHS, SEED = 20, 100
# What is tried of each recipe: rates, and scales of places.
TRIED: dict[str, tuple[tuple[float, float], ...]] = {
    "queries": ((5e-4, 0.1), (1e-3, 0.1), (5e-4, 0.05), (2.5e-4, 0.1)),
    "slot-attention": ((5e-4, 0.05), (1e-3, 0.05), (2.5e-4, 0.05)),
    "idspn": ((1e-3, 0.05), (2e-3, 0.05), (4e-3, 0.05)),
}


@dataclass(frozen=True)
class TrainedScenes(ScenesData):
    """The pictures that the study trains on, a tenth of them held out."""

    kind: ClassVar[str] = "trained scenes"

    def load(self, folder: Path = DATA, device: torch.device = CPU) -> Task:
        task, known = super().load(folder, device), slice(self.train)
        return replace(
            task, inputs=task.inputs[known], targets=task.targets[known], train=self.train * 9 // 10
        )


def trial(name: str, rate: float, scale: float, folder: Path) -> Config:
    """The short run of a rate and a scale."""
    [config] = STUDY.EXPERIMENT.configs([SEED], [name])
    data = TrainedScenes(**vars(replace(STUDY.DATA.bound(folder), scale=scale)))
    recipe, _ = STUDY.SCENARIOS[name]
    schedule = replace(
        config.schedule,
        epochs=EPOCHS,
        learning_rate=rate,
        blur=STUDY.RECIPES[recipe].blur(scale),
        evaluations=1,
    )
    return replace(config, data=data, schedule=schedule)


def measure(name: str, rate: float, scale: float, results: Path, folder: Path) -> None:
    """Train, unless it is recorded or another process is at it, and record what came of it."""
    run = f"{name}/{rate}/{scale}"
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with alone(results / f".rates-{run.replace('/', '-')}.lock", "trying the same rate"):
        if any(one["run"] == run for one in store.read(results / TRIALS)):
            return
        config = trial(name, rate, scale, folder)
        [found] = Training([config], device, metric=STUDY.EXPERIMENT.metric, data=folder).run()
        line: dict[str, Any] = {"run": run, "name": name, "rate": rate, "scale": scale}
        line |= {key: found.metrics[key] for key in ("heldout_ap", "heldout")}
        line |= {"epochs": EPOCHS, "environment": environment.describe(torch.device(device))}
        store.append(results / TRIALS, [line])
    print(line, flush=True)


def best(results: Path) -> dict[str, Any]:
    """The settings with which each network was best; what was not tried stays as it is."""
    settings: dict[str, Any] = json.loads(STUDY.SETTINGS.read_text())
    for one in sorted(store.read(results / TRIALS), key=lambda one: one["heldout_ap"]):
        recipe, backbone = STUDY.SCENARIOS[one["name"]]
        settings[backbone]["rates"][recipe] = one["rate"]
        if STUDY.RECIPES[recipe].scaled:
            settings[backbone]["scale"] = one["scale"]
    return settings


def main(results: str, *options: str) -> None:
    if "--choose" in options:
        text = json.dumps(best(Path(results)), indent=1) + "\n"
        atomic_write_text(STUDY.SETTINGS, text)
        return
    runs, *names = options
    known = STUDY.SCENARIOS
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"networks: expected some of {', '.join(known)}, got {', '.join(unknown)}")
    folder = Path(runs)
    if (what := STUDY.DATA.preparation(folder)) is not None:
        print(what, flush=True)
        STUDY.DATA.prepare(folder, lambda there, wanted: None)
    for name in names or known:
        recipe, _ = known[name]
        for rate, scale in TRIED[recipe]:
            try:
                measure(name, rate, scale, Path(results), folder)
            except BlockingIOError:
                continue  # another process is at it


if __name__ == "__main__":
    main(*sys.argv[1:])
