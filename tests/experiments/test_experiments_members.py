"""The engine: members of an ensemble are what they would be alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

import setwise as sw
from setwise.experiments import evaluate
from setwise.experiments.ensemble import Batch
from setwise.experiments.evaluate import measured
from setwise.experiments.tasks import DataConfig, PuzzleData, RulesData, Task
from setwise.experiments.train import Training, build_network
from tiny_experiments import (
    PUZZLE,
    SYMBOLS,
    TASK,
    assert_equals_alone,
    distance,
    everyone,
    puzzle_config,
    rules_config,
    trained,
)


@pytest.fixture
def in_double_precision(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for kind in (PuzzleData, RulesData):

        def load_double(data: DataConfig, *place: Any, load: Any = kind.load) -> Task:
            task = load(data, *place)
            elements = None if task.elements is None else task.elements.double()
            inputs, targets = task.inputs.double(), task.targets.double()
            return replace(task, inputs=inputs, targets=targets, elements=elements)

        monkeypatch.setattr(kind, "load", load_double)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


class TestMembers:
    """A member is trained as if it were alone, up to rounding.

    Products of matrices that are batched add up in another order. Of that, batch normalisation
    makes more where the activations of a unit hardly vary, and Adam where the gradient of a weight
    is nothing but rounding (that of a bias before a normalisation which subtracts it again): such
    a weight makes steps of full size in a random direction. Twenty such steps in float64 leave a
    relative 1e-6, four in float32 as much as 1e-2; another seed or order would make it 1.
    """

    @pytest.mark.slow  # seventeen trainings, as the next, which has more to go wrong
    @pytest.mark.usefixtures("in_double_precision")
    def test_a_member_learns_the_puzzle_as_if_alone(self) -> None:
        assert_equals_alone(everyone(puzzle_config, latent_temperature_start=1.0), 1e-4)

    @pytest.mark.usefixtures("in_double_precision")
    def test_with_noise_and_dropout_too(self) -> None:
        assert_equals_alone(everyone(puzzle_config, silent=False), 1e-4)

    @pytest.mark.slow  # seventeen longer trainings; the puzzle, above, has short ones
    @pytest.mark.usefixtures("in_double_precision")
    def test_a_member_learns_rules_as_if_alone(self) -> None:
        """Far enough to succeed on some of them."""
        assert_equals_alone(everyone(rules_config, epochs=10, learning_rate=2e-2), 1e-4)

    # Seventeen trainings each; the puzzle has them in double precision.
    @pytest.mark.parametrize(
        "config", [pytest.param(puzzle_config, marks=pytest.mark.slow), rules_config]
    )
    def test_in_single_precision_too(self, config: Any) -> None:
        configs = everyone(config, epochs=2, learning_rate=1e-3)
        assert_equals_alone(configs, 3e-2)

    @pytest.mark.usefixtures("in_double_precision")
    @pytest.mark.parametrize(
        ("config", "loss_temperature"),
        [
            (puzzle_config, 4.0),
            (rules_config, 1.0),
            pytest.param(puzzle_config, 1.0, marks=pytest.mark.slow),
            pytest.param(rules_config, 4.0, marks=pytest.mark.slow),
        ],
    )
    def test_a_member_equals_an_ordinary_training_loop(
        self, config: Any, loss_temperature: float
    ) -> None:
        together, results = trained(
            everyone(config, latent_temperature_start=1.0, loss_temperature=loss_temperature)
        )
        losses = {
            "ordered_cross_entropy": sw.ordered_cross_entropy,
            "set_cross_entropy": sw.set_cross_entropy,
            "set_average": sw.set_average,
            "hausdorff": sw.hausdorff,
        }
        for k in (0, 5, 10, 15):  # each loss once, with both seeds and scenarios
            own = together.configs[k]
            task, schedule = own.data.load(), own.schedule
            network = build_network(own, task)
            optimiser = torch.optim.Adam(network.parameters(), lr=schedule.learning_rate)
            batch = Batch([own], task)
            history = []
            for epoch in range(schedule.epochs):
                share = epoch / schedule.epochs
                temperature = 1.0 * (0.7 / 1.0) ** min(share / 0.7, 1.0)
                optimiser.param_groups[0]["lr"] = 1e-2 * min(1.0, (1 - share) / 0.5)
                batch.begin(epoch)
                history.append(0.0)
                for step in range(2):
                    batch.move(step)
                    (inputs,), (targets,) = batch.draw()
                    logits = network(inputs, torch.tensor(temperature))
                    options = {}
                    if own.loss == "set_cross_entropy":
                        options = {"temperature": loss_temperature ** max(0.0, 1 - share / 0.6)}
                    loss = losses[own.loss](logits, targets, task.features, **options)
                    optimiser.zero_grad()
                    loss.backward()
                    optimiser.step()
                    history[-1] += loss.item() / 2
            assert results[k].history["loss"] == pytest.approx(history, rel=1e-4)
            state, start = network.state_dict(), build_network(own, task).state_dict()
            assert distance(together.ensemble.member(k), state) < 1e-4 * distance(state, start)

    def test_a_diverged_member_does_not_disturb_the_others(self) -> None:
        configs = [puzzle_config("1", loss, silent=True) for loss in SYMBOLS]
        _, healthy = trained(configs)
        training = Training(configs, "cpu")
        sick = 2
        next(iter(training.ensemble.weights.values())).data[sick] = math.nan
        for k, result in enumerate(training.run()):
            if k != sick:
                assert result == healthy[k]
                continue
            assert math.isnan(result.metrics["loss"])
            assert all(math.isnan(loss) for loss in result.history["loss"])
            assert result.metrics["success"] == result.metrics["exact"] == 0.0


def test_networks_start_from_their_seed_alone() -> None:
    configs = [puzzle_config("1", "H", 3), puzzle_config("4", "SH", 3), puzzle_config("1", "H", 4)]
    one, same, other = (build_network(config, TASK).state_dict() for config in configs)
    assert distance(one, same) == 0.0
    assert distance(one, other) > 1.0
    stacked = Training(configs, "cpu")
    for k, config in enumerate(stacked.configs):
        expected = build_network(config, TASK).state_dict()
        assert distance(stacked.ensemble.member(k), expected) == 0.0


def test_results_are_measured_on_the_sets_in_the_order_of_the_scenario(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And the curves on what training reads: the same function of the same sets."""
    calls: list[Any] = []

    def spy(*given: Any, final: bool = True) -> Any:
        calls.append(final)
        return measured(*given, final=final)

    monkeypatch.setattr(evaluate, "measured", spy)
    trained([puzzle_config(seed=seed) for seed in (0, 1)])
    assert calls == [False, False, False, False, True]


def test_the_curves_end_in_the_results() -> None:
    """Of a network that knows some clauses by heart, which does not help with the others."""
    _, (result,) = trained([rules_config("1", "H", 0, epochs=20, learning_rate=2e-2)])
    found, curves = result.metrics, result.history
    assert found["train"] > found["heldout"] + 0.2
    assert found["success"] == pytest.approx((20 * found["train"] + 10 * found["heldout"]) / 30)
    for name in ("success", "heldout", "loss"):
        assert curves[name][-1] == found[name]
    assert curves["epoch"] == [5, 10, 15, 20]
    assert curves["loss"] == sorted(curves["loss"], reverse=True)


def test_without_held_out_examples_there_is_no_success_on_them() -> None:
    config = puzzle_config(epochs=1)
    _, (result,) = trained([replace(config, data=replace(PUZZLE, train=24))])
    assert "heldout" not in result.metrics
    assert result.metrics["train"] == result.metrics["success"]


def test_only_runs_of_one_kind_are_trained_together() -> None:
    config = puzzle_config()
    for other in (replace(config, precision="high"), puzzle_config(epochs=5)):
        with pytest.raises(ValueError, match=r"may differ in scenario, .* only"):
            Training([config, other], "cpu")
    with pytest.raises(ValueError, match="at least one"):
        Training([], "cpu")
    with pytest.raises(ValueError, match="a batch of 21 is more than the 20 examples"):
        Training([puzzle_config(batch=21)], "cpu")
