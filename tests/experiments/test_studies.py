"""The studies that come with the source: files as users write them, and their configs."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache, partial
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import torch

import setwise as sw
from setwise.cli.user_file import run_file
from setwise.data.sprites import SPRITE
from setwise.experiments import store
from setwise.experiments.config import config_from
from setwise.experiments.experiment import Sheet
from setwise.experiments.run import require_own_name, train
from setwise.experiments.tasks import ScenesData, SpritesData
from setwise.losses.table import LOSSES

STUDIES = Path(__file__).parents[2] / "studies"


@pytest.fixture(params=["losses", "points", "likelihood", "detection", "rendered_scenes"])
def study(request: pytest.FixtureRequest) -> Any:
    return run_file("experiment", STUDIES / f"{request.param}.py")


def test_all_runs_have_configs_that_records_can_hold(study: Any) -> None:
    require_own_name(study.EXPERIMENT)
    for config in study.EXPERIMENT.configs(seeds=[3]):
        assert config_from(json.loads(json.dumps(config.as_dict()))) == config


def test_readers_have_configs_that_records_can_hold() -> None:
    study = run_file("experiment", STUDIES / "readers.py")
    for experiment in (study.BLOCKS, study.PUZZLE, study.CODES):
        require_own_name(experiment)
        for config in experiment.configs():
            assert config_from(json.loads(json.dumps(config.as_dict()))) == config


def test_the_committed_sheet_is_that_of_the_study() -> None:
    """Of those that have been trained."""
    detection = run_file("experiment", STUDIES / "detection.py")
    others = [
        run_file("experiment", STUDIES / f"{name}.py").EXPERIMENT
        for name in ("losses", "points", "likelihood", "rendered_scenes", "longer")
    ]
    for experiment in (*others, detection.EXPERIMENT, detection.RECIPES):
        path = STUDIES.parent / "results" / f"{experiment.name}.json"
        assert not path.exists() or Sheet.read(path) == experiment.sheet


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
    ours = {name for name in LOSSES if name in sw.__all__}  # not those that other tests add
    assert set(study.EXPERIMENT.losses) == ours | set(study.ANNEALED)


def test_the_slower_rate_is_the_one_that_is_named() -> None:
    study = run_file("experiment", STUDIES / "likelihood.py")
    rates = [
        study.config(scenario, "set_cross_entropy", 0).schedule.learning_rate
        for scenario in ("categorical", "categorical-slower")
    ]
    named = f"{rates[1] / rates[0]:.2g} times the paper's learning rate"
    assert named in study.SCENARIOS["categorical-slower"]


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


def _detections() -> tuple[Any, Any, dict[str, Any]]:
    """Outputs for three objects of sprites and a place that is empty, in float64."""
    generator = torch.Generator().manual_seed(0)
    target = SPRITE.random_targets((2, 4), generator).double()
    output = torch.randn(2, 6, SPRITE.width, generator=generator).double()
    valid = torch.tensor([[True, True, True, False], [True, False, False, False]])
    presence = torch.randn(2, 6, generator=generator).double()
    return output, target, {"presence": presence, "target_valid": valid, "reduction": "none"}


def _by_brute_force(
    output: Any, target: Any, pair: Any, alone: Any, counts: list[int]
) -> list[tuple[float, float]]:
    """What the cheapest matching costs to find and as a loss: ``pair`` gives both."""
    pair, alone, found = cache(pair), cache(alone), []
    for b, count in enumerate(counts):
        ways = []
        for chosen in permutations(range(output.shape[1]), count):
            pairs = [pair(b, i, j) for i, j in enumerate(chosen)]
            rest = sum(alone(b, j) for j in set(range(output.shape[1])) - set(chosen))
            ways.append((sum(p[0] for p in pairs), sum(p[1] for p in pairs) + rest))
        found.append(min(ways))
    return found


def test_the_loss_of_detr() -> None:
    study = run_file("experiment", STUDIES / "detection.py")
    output, target, options = _detections()
    exists = options["presence"].sigmoid()

    def pair(b: int, i: int, j: int) -> tuple[float, float]:
        z, x = SPRITE.split(output[b, j]), SPRITE.split(target[b, i])
        apart = 5 * (z[-1] - x[-1]).abs().sum() / 2
        likely = [float((p.softmax(-1) * q).sum()) for p, q in zip(z[:-1], x[:-1], strict=True)]
        cost = apart - sum(likely) - exists[b, j]
        loss = apart - sum(map(math.log, likely)) - exists[b, j].log()
        return float(cost), float(loss)

    def alone(b: int, j: int) -> float:
        return float(-0.1 * (1 - exists[b, j]).log())

    expected = [loss for _, loss in _by_brute_force(output, target, pair, alone, [3, 1])]
    found = study.detr_loss(output, target, SPRITE, **options)
    torch.testing.assert_close(found, torch.tensor(expected).double())


def test_the_loss_of_slots() -> None:
    study = run_file("experiment", STUDIES / "detection.py")
    output, target, options = _detections()
    *classes, place = SPRITE.split(output)
    exists = options["presence"].sigmoid().unsqueeze(-1)
    vectors = torch.cat([*(z.softmax(-1) for z in classes), (place + 1) / 2, exists], -1)
    wanted = torch.cat([*SPRITE.split(target)[:-1], (target[..., -2:] + 1) / 2], -1)
    wanted = torch.cat([wanted, torch.ones(2, 4, 1)], -1) * options["target_valid"].unsqueeze(-1)

    def huber(x: Any) -> float:
        return sum(v * v / 2 if v < 1 else v - 0.5 for v in x.abs().tolist())

    def pair(b: int, i: int, j: int) -> tuple[float, float]:
        cost = huber(vectors[b, j] - wanted[b, i])
        return cost - huber(vectors[b, j]), cost

    def alone(b: int, j: int) -> float:
        return huber(vectors[b, j])

    expected = [loss for _, loss in _by_brute_force(output, target, pair, alone, [3, 1])]
    found = study.huber_loss(output, target, SPRITE, **options)
    torch.testing.assert_close(found, torch.tensor(expected).double())


def test_recipes_are_configs_too() -> None:
    study = run_file("experiment", STUDIES / "detection.py")
    require_own_name(study.RECIPES)
    data = SpritesData(side=16, most=4, pictures=8, train=8)
    for config in study.RECIPES.configs(seeds=[3]):
        assert config_from(json.loads(json.dumps(config.as_dict()))) == config
    for network, _ in study.PUBLISHED.values():
        small = replace(network, outputs=5, width=8, convolutions=(4, 4))
        built = small.build(data.load())
        layers = (6,) if network.recipe == "detr" else ()
        assert built(torch.rand(2, 3, 16, 16), torch.tensor(1.0)).shape == (2, *layers, 5, 16)
        assert small.model(built).eval()(torch.rand(2, 3, 16, 16)).presence.shape == (2, 5)


# Slow: trainings. What they are made of is in the first tier.
@pytest.mark.slow
def test_rates_are_tried_and_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = run_file("experiment", STUDIES / "detection_rates.py")
    _make_small(rates.STUDY, monkeypatch)
    settings = tmp_path / "chosen.json"
    settings.write_text(rates.STUDY.SETTINGS.read_text())
    monkeypatch.setattr(rates.STUDY, "SETTINGS", settings)
    monkeypatch.setattr(rates, "EPOCHS", 1)
    for rate in (1e-3, 1e-3, 2e-3):  # what is recorded is not tried again
        rates.measure("idspn", rate, tmp_path)
    found = store.read(tmp_path / rates.RATES)
    assert [one["rate"] for one in found] == [1e-3, 2e-3]
    found[1]["losses"] = [0.5, 0.6]
    (tmp_path / rates.RATES).write_text("".join(json.dumps(one) + "\n" for one in found))
    settings.write_text('{"epochs": 7, "rates": {}}')
    rates.choose(tmp_path)
    chosen = json.loads(settings.read_text())
    assert chosen == {"epochs": 7, "rates": dict.fromkeys(rates.SETTINGS, 1e-3) | {"idspn": 2e-3}}


@pytest.mark.slow
def test_steps_are_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = run_file("experiment", STUDIES / "detection_times.py")
    _make_small(times.STUDY, monkeypatch)
    monkeypatch.setattr(times, "STEPS", 1)
    experiment = replace(times.STUDY.RECIPES, seeds=2)
    for _ in range(2):
        times.measure(experiment, "slot-attention", "detr_loss", tmp_path)
    [timed] = store.read(times.file_of(tmp_path, experiment.name))
    assert timed["members"] == 2
    assert timed["milliseconds"] > 0


@pytest.mark.slow
def test_rendered_scenes_are_drawn_and_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = run_file("experiment", STUDIES / "rendered_scenes.py")
    _make_scenes_small(study, monkeypatch)
    results, runs = tmp_path / "results", tmp_path / "runs"
    study.DATA.prepare(runs, lambda there, wanted: None)
    configs = [
        replace(config, data=study.DATA.bound(runs))
        for config in study.EXPERIMENT.configs(scenarios=["queries-fine"])
    ]
    assert train(configs, "cpu", results, metric=study.EXPERIMENT.metric, data=runs) == 1
    [record] = store.read(results / "rendered-scenes.jsonl")
    assert {"heldout_ap", "heldout"} <= set(record["metrics"])
    assert record["config"]["data"]["sha256"]


def _make_scenes_small(study: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    size: dict[str, Any] = {"renderer": "torch", "width": 16, "height": 16, "samples": 1}
    monkeypatch.setattr(study, "DATA", ScenesData(pictures=66, train=64, most=4, **size))
    monkeypatch.setattr(study, "_WIDTH", 8)
    monkeypatch.setattr(study, "BACKBONES", {"coarse": ((4, 4, 4), 0), "fine": ((4, 4), 1)})
    cells = {cell: replace(chosen, epochs=1) for cell, chosen in study.CELLS.items()}
    monkeypatch.setattr(study, "CELLS", cells)
    monkeypatch.setattr(study, "EXPERIMENT", replace(study.EXPERIMENT, seeds=1))


def _make_small(study: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    published = {
        name: (replace(network, outputs=12, width=8, convolutions=(4,)), warmup)
        for name, (network, warmup) in study.PUBLISHED.items()
    }
    monkeypatch.setattr(study, "PUBLISHED", published)
    small = partial(study.ImplicitDecoder, features=4, latent=8, seeds=2, steps=2)
    monkeypatch.setitem(study.DECODERS, "idspn", small)
    monkeypatch.setattr(study, "DATA", SpritesData(side=8, pictures=80, train=64))


def test_rates_are_those_that_were_best() -> None:
    rates = run_file("experiment", STUDIES / "detection_rates.py")
    results = STUDIES.parent / "results"
    if (results / rates.RATES).exists():
        assert json.loads(rates.STUDY.SETTINGS.read_text())["rates"] == rates.best(results)
