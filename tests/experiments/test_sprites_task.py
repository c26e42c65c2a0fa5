"""Sprites as an experiment: presence in losses and measures, and every decoder trains."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
import torch

import setwise as sw
from setwise.data.sprites import sprites
from setwise.experiments.config import Config, Schedule
from setwise.experiments.ensemble import member_losses
from setwise.experiments.networks import Predictor
from setwise.experiments.networks.predictor import Decoder
from setwise.experiments.tasks import SpritesData
from setwise.experiments.tasks.sprites import LIMITS
from setwise.experiments.train import Training, build_network

DATA = SpritesData(side=16, most=4, least=0, pictures=24, train=16)


def config(decoder: Decoder, loss: str, seed: int = 0) -> Config:
    return Config(
        experiment="sprites",
        scenario="few",
        loss=loss,
        seed=seed,
        shuffle_input=False,
        shuffle_target=True,
        data=DATA,
        network=Predictor(decoder, outputs=5, width=8, convolutions=(4, 4)),
        schedule=Schedule(epochs=2, batch=8, learning_rate=1e-2, evaluations=1),
    )


def test_targets_say_which_objects_there_are() -> None:
    task = DATA.load()
    generator = torch.Generator().manual_seed(0)
    pictures, objects, valid = sprites(24, generator, side=16, least=0, most=4)
    assert task.inputs.equal(pictures)
    assert task.targets[..., :-1].equal(objects)
    assert task.targets[..., -1].equal(valid.float())
    assert DATA.numbers() == task.inputs.numel() + task.targets.numel()
    with pytest.raises(ValueError, match="train 30, states 24"):
        SpritesData(pictures=24, train=30).load()


def test_losses_and_measures_know_what_is_present() -> None:
    task = DATA.load()
    logits = torch.randn(2, 24, 5, 16, generator=torch.Generator().manual_seed(1))
    targets = task.targets.expand(2, *task.targets.shape)
    names = ["assignment_cross_entropy", "set_cross_entropy"]
    found = member_losses(names, logits, targets, task.features)
    call = {"target_valid": targets[0, ..., -1] == 1}
    for k, loss in enumerate((sw.assignment_cross_entropy, sw.set_cross_entropy)):
        elements, presence = logits[k, ..., :-1], logits[k, ..., -1]
        expected = loss(elements, targets[k, ..., :-1], task.features, presence=presence, **call)
        torch.testing.assert_close(found[k], expected)
    finite = torch.ones(2, 24, dtype=torch.bool)
    finite[1, 3] = False
    near = torch.cat([task.features.from_probs(task.targets[..., :-1]), logits[0, :, :4, -1:]], -1)
    values = task.measure(near.expand(2, *near.shape), finite, task.targets, task.features)
    assert list(values) == list(LIMITS)
    for name, limit in LIMITS.items():
        expected = sw.metrics.average_precision(
            near[..., :-1],
            task.targets[..., :-1],
            task.features,
            presence=near[..., -1],
            within=limit,
            definition="picture",
            **call,
        )
        assert values[name][0].isnan().equal(~call["target_valid"].any(-1))
        torch.testing.assert_close(task.measure.total(values[name])[0], expected)
        assert values[name][1, 3] == 0
    assert call["target_valid"].any(-1)[3]
    assert not call["target_valid"].any(-1).all()
    assert 0.2 < task.measure.total(values["ap"])[0] < 1


def test_ensembles_of_predictors_train() -> None:
    losses = ("assignment_cross_entropy", "set_likelihood")
    configs = [config("queries", loss, seed) for loss in losses for seed in (0, 1)]
    results = Training(configs, "cpu", threads=1).run()
    assert [result.config.loss for result in results] == sorted(2 * losses)
    for result in results:
        assert result.metrics.keys() >= {*LIMITS, "heldout", "train", "loss"}
        assert 0 < result.metrics["loss"] < 1e4
    alone = Training([configs[1]], "cpu", threads=1).run()[0]
    together = next(result for result in results if result.config == configs[1])
    assert alone.metrics["loss"] == pytest.approx(together.metrics["loss"], rel=1e-3)


# Slow: a training each. The first tier trains queries, above, and has each decoder by itself.
@pytest.mark.slow
@pytest.mark.parametrize("decoder", [d for d in get_args(Decoder) if d != "queries"])
def test_every_decoder_trains(decoder: Decoder) -> None:
    configs = [config(decoder, "assignment_cross_entropy", seed) for seed in (0, 1)]
    for result in Training(configs, "cpu", threads=1).run():
        assert 0 < result.metrics["loss"] < 1e4


def test_networks_are_for_data_that_suit_them() -> None:
    network = build_network(config("queries", "set_likelihood"), DATA.load())
    model = Predictor().model(network)
    assert model(torch.rand(2, 3, 16, 16)).presence.shape == (2, 5)
    task = DATA.load()
    with pytest.raises(ValueError, match="a predictor needs pictures"):
        Predictor().build(replace(task, targets=task.targets[..., :-1]))


def test_the_loss_of_every_layer_counts() -> None:
    task = DATA.load()
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(2, 24, 3, 5, 16, generator=generator)
    targets = task.targets.expand(2, *task.targets.shape)
    names = ["assignment_cross_entropy", "set_likelihood"]
    layers = [member_losses(names, layer, targets, task.features) for layer in logits.unbind(2)]
    found = member_losses(names, logits, targets, task.features)
    torch.testing.assert_close(found, torch.stack(layers).sum(0))
    logits[1, 3, 0, 0, 0] = torch.nan
    found = member_losses(names, logits, targets, task.features)
    assert found.isnan().tolist() == [False, True]


def test_places_count_as_much_as_their_scale_says() -> None:
    wide, narrow = (replace(DATA, scale=scale).load() for scale in (0.4, 0.1))
    assert wide.targets.equal(narrow.targets)
    assert [task.features.blocks[-1] for task in (wide, narrow)] == [
        sw.Gaussian(2, scale=0.4),
        sw.Gaussian(2, scale=0.1),
    ]


@pytest.mark.parametrize("warmup", [0.75, 0.7])  # ends with a step, and between two of them
def test_the_rate_rises_step_by_step_over_the_warm_up(
    warmup: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = Schedule(epochs=2, batch=4, learning_rate=0.8, warmup=warmup, cooldown=0.25)
    training = Training([replace(config("queries", "set_likelihood"), schedule=schedule)], "cpu")
    rates = []
    monkeypatch.setattr(training, "_step", lambda: rates.append(training.ensemble.rate.item()))
    training.run()
    assert rates == pytest.approx([0.8 * min(1, step / (8 * warmup)) for step in range(1, 9)])
    with pytest.raises(ValueError, match=r"warmup: must be a share from 0 to 1, got 1\.5"):
        Schedule(epochs=2, warmup=1.5)
