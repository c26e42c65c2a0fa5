"""The engine on a CUDA device, where a step is compiled and replayed as a graph.

Nothing here needs more than PyTorch, Triton, safetensors and pytest (with `--noconftest`, if
hypothesis is missing). Most of the time goes into compiling, once for each kind of ensemble.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from setwise.experiments.config import Config, Schedule
from setwise.experiments.evaluate import measured
from setwise.experiments.networks import Autoencoder, Predictor, RuleLearner
from setwise.experiments.randomness import hashed, random_order
from setwise.experiments.recipes.paper import LOSSES
from setwise.experiments.tasks import PuzzleData, RulesData, SpritesData
from setwise.experiments.train import RunResult, Training, TrainingProgress, build_network

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    # torch.compile warns of itself.
    pytest.mark.filterwarnings("ignore"),
]

NOISY = Config(
    experiment="tiny",
    scenario="4",
    loss="set_cross_entropy",
    seed=0,
    shuffle_input=True,
    shuffle_target=True,
    data=PuzzleData(width=3, height=2, states=360, train=300),
    network=Autoencoder(element_widths=(32,), widths=(32,), latent=16, decoder_width=32),
    schedule=Schedule(
        epochs=4, batch=50, evaluations=4, latent_temperature_start=1.0, cooldown=0.5
    ),
    precision="highest",
)
SILENT = replace(NOISY, network=replace(NOISY.network, dropout=0.0, noise=False))
RULES = replace(
    NOISY,
    data=RulesData(n=2, train=300, test=60),
    network=RuleLearner(width=32, dropout=0.0),
    schedule=Schedule(epochs=4, batch=50, evaluations=4, learning_rate=1e-2),
)


def everyone(config: Config) -> list[Config]:
    """All four losses, with targets in a fixed and in a random order."""
    return [
        replace(config, loss=loss, shuffle_target=shuffled, seed=int(shuffled))
        for loss in LOSSES
        for shuffled in (False, True)
    ]


def trained(
    configs: Sequence[Config], device: str = "cuda", **options: Any
) -> tuple[Training, list[RunResult]]:
    training = Training(configs, device, **options)
    return training, training.run()


@cache
def noisy() -> tuple[Training, list[RunResult]]:
    return trained(everyone(NOISY))


def assert_same_bits(
    ours: tuple[Training, list[RunResult]], others: tuple[Training, list[RunResult]]
) -> None:
    assert ours[1] == others[1]
    tensors = others[0].ensemble.tensors()
    assert all(tensor.equal(tensors[name]) for name, tensor in ours[0].ensemble.tensors().items())


def distance(ours: dict[str, Tensor], others: dict[str, Tensor]) -> float:
    """Of floating-point numbers; the others count batches."""
    assert ours.keys() == others.keys()
    floats = [name for name, tensor in ours.items() if tensor.is_floating_point()]
    apart = (ours[name].cpu() - others[name].cpu() for name in floats)
    return math.sqrt(sum(t.square().sum().item() for t in apart))


def raise_at(epoch: int) -> Callable[[TrainingProgress], None]:
    def watch(progress: TrainingProgress) -> None:
        if progress.epoch == epoch:
            raise KeyboardInterrupt

    return watch


def test_orders_are_those_of_the_cpu() -> None:
    seeds, epochs = torch.arange(-5, 5)[:, None, None], torch.arange(20)[:, None] * 2**40
    rows = torch.arange(300)
    keys = (seeds, epochs, rows)
    on_cuda = tuple(key.cuda() for key in keys)
    assert hashed(*on_cuda).cpu().equal(hashed(*keys))
    assert random_order(9, *on_cuda).cpu().equal(random_order(9, *keys))
    long = random_order(5000, seeds[:, 0, 0].cuda(), epochs[:10, 0].cuda())
    assert long.cpu().equal(random_order(5000, seeds[:, 0, 0], epochs[:10, 0]))


@pytest.mark.parametrize("config", [SILENT, RULES], ids=["puzzle", "rules"])
def test_training_equals_that_on_the_cpu(config: Config) -> None:
    """With noise and dropout off, up to what Adam and batch normalisation make of rounding.

    Losses within a share of themselves, weights within a share of the way that they have come in
    six steps, of which the last three are replayed.
    """
    configs = everyone(replace(config, schedule=replace(config.schedule, epochs=1)))
    on_cuda, results = trained(configs)
    on_cpu, expected = trained(configs, "cpu")
    for k, (ours, right) in enumerate(zip(results, expected, strict=True)):
        assert ours.config == right.config
        assert ours.history["loss"] == pytest.approx(right.history["loss"], rel=1e-2)
        reached = on_cpu.ensemble.member(k)
        start = build_network(ours.config, ours.config.data.load()).state_dict()
        apart = distance(on_cuda.ensemble.member(k), reached)
        assert apart < 5e-2 * distance(reached, start)


@pytest.mark.parametrize(("rate", "tolerance"), [(0.0, 1e-4), (1e-3, 1e-3)])
def test_a_seed_draws_the_same_alone_and_among_others(rate: float, tolerance: float) -> None:
    """Orders, noise and dropout, also where a step is compiled and replayed.

    At a rate of 0 a loss is nothing but what was drawn, and the rounding of one pass; of the steps
    of an epoch at the other rate the last three are replayed. Another seed is 4e-3 away or more.
    """
    schedule = replace(NOISY.schedule, learning_rate=rate)
    if rate:
        schedule = replace(schedule, epochs=1, evaluations=1)
    together, results = trained(everyone(replace(NOISY, schedule=schedule)))
    for k in (1, 6):
        alone, (expected,) = trained([together.configs[k]])
        assert results[k].config == expected.config
        assert results[k].history["loss"] == pytest.approx(expected.history["loss"], rel=tolerance)
        keys = [
            training._batch.noise_keys(together.ensemble.noisy_layers)
            for training in (together, alone)
        ]
        assert keys[0][k].equal(keys[1][0])


def test_the_same_configs_give_the_same_bits() -> None:
    first = noisy()
    torch.manual_seed(7)
    assert_same_bits(trained(everyone(NOISY)[::-1]), first)
    assert len({tuple(result.history["loss"]) for result in first[1]}) == 8


@pytest.mark.parametrize("epoch", [3, 4])
def test_an_interrupted_run_goes_on_to_the_same_bits(tmp_path: Path, epoch: int) -> None:
    path = tmp_path / "state.ckpt"
    with pytest.raises(KeyboardInterrupt):
        Training(everyone(NOISY), "cuda", path, save_every=0).run(raise_at(epoch))
    seen: list[int] = []
    training = Training(everyone(NOISY), "cuda", path)
    results = training.run(lambda progress: seen.append(progress.epoch))
    assert seen == list(range(epoch, 5))
    assert_same_bits((training, results), noisy())


def test_success_is_that_of_the_cpu() -> None:
    """Of networks that succeed on some examples; an output that is a tie may fall either way."""
    schedule = replace(RULES.schedule, epochs=30)
    on_cuda, results = trained(everyone(replace(RULES, schedule=schedule)))
    on_cpu = Training(on_cuda.configs, "cpu")
    for kind in ("weights", "statistics"):
        for name, tensor in getattr(on_cpu.ensemble, kind).items():
            tensor.data.copy_(getattr(on_cuda.ensemble, kind)[name])
    ours = measured(on_cuda.ensemble, on_cuda.task, on_cuda.configs)
    right = measured(on_cpu.ensemble, on_cpu.task, on_cpu.configs)
    for name, values in ours.items():
        assert (values.cpu() != right[name]).float().mean() < 0.005
    success = ours["success"]
    assert 0.05 < success.mean() < 0.95
    assert [r.metrics["success"] for r in results] == pytest.approx(success.mean(1).tolist())


def test_a_diverged_member_does_not_disturb_the_others() -> None:
    configs = everyone(SILENT)
    _, healthy = trained(configs)
    training, sick = Training(configs, "cuda"), 3
    next(iter(training.ensemble.weights.values())).data[sick] = math.nan
    results = training.run()
    assert math.isnan(results[sick].metrics["loss"])
    assert results[sick].metrics["success"] == 0.0
    assert [r for k, r in enumerate(results) if k != sick] == healthy[:sick] + healthy[sick + 1 :]


@pytest.mark.parametrize("size", [1e3, 1e6, 1e9])
def test_a_compiled_step_takes_latent_logits_of_any_size(size: float) -> None:
    """Where codes tell nothing, encoders grow. At 1e9 a compiled softmax exceeded 1 by far."""
    results = []
    for plain in (False, True):
        schedule = replace(NOISY.schedule, learning_rate=1e-6, latent_temperature_end=0.7)
        training = Training([replace(NOISY, schedule=schedule)], "cuda", plain=plain)
        training.ensemble.weights["autoencoder.encoder.output.weight"].data *= size
        results += training.run()
    compiled, plainly = (result.history["loss"] for result in results)
    assert compiled == pytest.approx(plainly, rel=1e-3)


@pytest.mark.parametrize("loss", ["set_cross_entropy", "set_likelihood"])
def test_a_compiled_detector_is_a_plain_one(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With presence, and a scale of places that falls."""
    monkeypatch.setattr(Predictor, "compiled", True)
    detector = replace(
        NOISY,
        loss=loss,
        data=SpritesData(side=32, pictures=360, train=300),
        network=Predictor("queries", 20, width=32, convolutions=(8, 16), blocks=1),
        schedule=Schedule(epochs=6, batch=50, evaluations=6, learning_rate=1e-4, blur=4.0),
    )
    results = [Training([detector], "cuda", plain=plain).run() for plain in (False, True)]
    compiled, plainly = (result.history["loss"] for [result] in results)
    assert compiled == pytest.approx(plainly, rel=1e-3)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_random_numbers_of_the_caller_are_left_alone(device: str) -> None:
    """Those of the CPU and of the GPU, wherever the training takes place."""
    torch.manual_seed(5)
    torch.rand(3, device="cuda")
    before = [torch.get_rng_state(), torch.cuda.get_rng_state()]
    trained(everyone(NOISY), device)
    after = [torch.get_rng_state(), torch.cuda.get_rng_state()]
    assert all(one.equal(two) for one, two in zip(before, after, strict=True))
