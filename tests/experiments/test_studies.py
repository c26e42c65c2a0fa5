"""The studies that come with the source: files as users write them, and their configs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from setwise.cli.user_file import run_file
from setwise.experiments.config import config_from
from setwise.experiments.experiment import Sheet
from setwise.experiments.run import require_own_name
from setwise.losses.table import LOSSES

STUDIES = Path(__file__).parents[2] / "studies"


@pytest.fixture(params=["losses", "likelihood"])
def study(request: pytest.FixtureRequest) -> Any:
    return run_file("experiment", STUDIES / f"{request.param}.py")


def test_all_runs_have_configs_that_records_can_hold(study: Any) -> None:
    require_own_name(study.EXPERIMENT)
    for config in study.EXPERIMENT.configs(seeds=[3]):
        assert config_from(json.loads(json.dumps(config.as_dict()))) == config


def test_readers_have_configs_that_records_can_hold() -> None:
    study = run_file("experiment", STUDIES / "readers.py")
    for experiment in (study.BLOCKS, study.PUZZLE):
        require_own_name(experiment)
        for config in experiment.configs():
            assert config_from(json.loads(json.dumps(config.as_dict()))) == config


def test_the_committed_sheet_is_that_of_the_study() -> None:
    """Of those that have been trained."""
    study = run_file("experiment", STUDIES / "likelihood.py")
    assert Sheet.read(STUDIES.parent / "results/likelihood.json") == study.EXPERIMENT.sheet


@pytest.mark.slow
def test_a_step_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    timing = run_file("experiment", STUDIES / "step_times.py")
    study = run_file("experiment", STUDIES / "losses.py")
    monkeypatch.setattr(timing, "NETWORKS", 1)
    monkeypatch.setattr(timing, "EPOCHS", 1)
    assert set(timing.TASKS) <= set(study.EXPERIMENT.scenarios)
    found = timing.step_of(study, "random-2x2", "set_average", torch.device("cpu"))
    assert found["milliseconds"] > 0
    assert {"scenario": "random-2x2", "loss": "set_average", "networks": 1}.items() <= found.items()


def test_every_loss_of_the_library_is_studied() -> None:
    study = run_file("experiment", STUDIES / "losses.py")
    ours = {
        loss.name for loss in LOSSES.values() if loss.function.__module__.startswith("setwise.")
    }
    assert set(study.EXPERIMENT.losses) == ours | set(study.ANNEALED)


def test_only_annealed_losses_are_annealed() -> None:
    study = run_file("experiment", STUDIES / "losses.py")
    for config in study.EXPERIMENT.configs(seeds=[0]):
        schedule = config.schedule
        annealed = schedule.loss_temperature != 1 or schedule.exclusivity_until != 0
        assert annealed == (config.loss in study.ANNEALED)


def test_a_cloud_is_right_if_both_sides_are_near() -> None:
    """Points beside their targets; then one in five targets far off, one in five outputs."""
    study = run_file("experiment", STUDIES / "losses.py")
    task = study.CloudsData(points=20, states=3, train=2).load()
    finite = torch.ones(3, 3, dtype=torch.bool)
    beside = task.targets + 0.05
    strays = beside.clone()
    strays[:, :4] += 9.0
    crowd = beside.clone()
    crowd[:, :] = beside[:, :1]
    outputs = torch.stack([beside, strays, crowd])
    right = study.Near()(outputs, finite, task.targets, task.features)["exact"]
    assert right.tolist() == [[1.0] * 3, [0.0] * 3, [0.0] * 3]
    finite[0, 1] = False
    assert study.Near()(outputs, finite, task.targets, task.features)["exact"][0].tolist() == [
        1,
        0,
        1,
    ]
