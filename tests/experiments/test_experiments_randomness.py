"""Noise, and the orders and batches of a training: all of it from seeds.

Legend: K members, b examples of a batch, S examples, N elements, F features.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from setwise.experiments import ensemble
from setwise.experiments.ensemble import Batch
from setwise.experiments.networks import Autoencoder
from setwise.experiments.tasks import Task
from setwise.experiments.train import Training
from setwise.models import keyed
from setwise.models.keyed import keyed_uniform
from tiny_experiments import (
    NETWORK,
    SILENT,
    TASK,
    WHOLE,
    assert_same_bits,
    puzzle_config,
    raise_at,
    rules_config,
    trained,
)


class TestNoise:
    """Noise and dropout depend on the recorded seeds alone."""

    CONFIGS = tuple(puzzle_config(loss=loss, seed=seed) for loss in ("SH", "H") for seed in (0, 1))

    def test_the_same_configs_give_the_same_bits(self) -> None:
        torch.manual_seed(1)
        first = trained(self.CONFIGS)
        torch.manual_seed(2)
        torch.rand(7)
        assert_same_bits(first, trained(self.CONFIGS))

    def test_the_order_of_the_configs_does_not_matter(self) -> None:
        alike = replace(self.CONFIGS[0], shuffle_input=False)  # differs in nothing else
        configs = [alike, *self.CONFIGS]
        first = trained(configs)
        assert_same_bits(first, trained(configs[::-1]))
        assert_same_bits(first, trained(configs[2:] + configs[:2]))

    def test_another_seed_gives_another_run(self) -> None:
        _, results = trained(self.CONFIGS)
        assert len({tuple(result.history["loss"]) for result in results}) == 4
        training, _ = trained([puzzle_config(seed=0), puzzle_config(seed=1)])
        for name, weights in training.ensemble.weights.items():
            assert not weights[0].equal(weights[1]), name

    def test_every_step_of_every_member_has_noise_of_its_own(self) -> None:
        """By the seed, the epoch, the step and the layer; nothing else."""
        keys = []
        batch = Batch(self.CONFIGS, TASK)
        for epoch in (0, 1, 2):
            batch.begin(epoch)
            for step in range(batch.steps):
                batch.move(step)
                keys.append(batch.noise_keys(3))
        by_seed = torch.stack(keys)[:, :2]  # the losses of a seed draw the same
        assert torch.stack(keys)[:, 2:].equal(by_seed)
        assert len(by_seed.flatten().unique()) == 3 * 2 * 2 * 3

    @pytest.mark.parametrize(("network", "different"), [(NETWORK, 4), (SILENT, 1)])
    def test_noise_is_drawn_anew(
        self, network: Autoencoder, different: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In every epoch: where all else is the same, the loss tells."""

        def in_order(length: int, *keys: Tensor) -> Tensor:
            shape = torch.broadcast_shapes(*(key.shape for key in keys))
            return torch.arange(length).expand(*shape, length)

        monkeypatch.setattr(ensemble, "random_order", in_order)
        still = puzzle_config(
            learning_rate=0.0, latent_temperature_start=1.0, latent_temperature_end=1.0
        )
        _, (result,) = trained([replace(still, network=network)])
        assert len({round(loss, 4) for loss in result.history["loss"]}) == different

    @pytest.mark.parametrize("config", [puzzle_config, rules_config])
    def test_the_same_seed_draws_the_same_alone_and_among_others(
        self, config: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Bit by bit: the noise that reaches each layer, whatever runs and names are beside it."""
        drawn: list[Tensor] = []

        def spy(key: Tensor, shape: torch.Size) -> Tensor:
            """Under vmap a tensor of one member stands for all of them."""
            noise = keyed_uniform(key, shape)
            drawn.append(torch._C._functorch.get_unwrapped(noise))
            return noise

        monkeypatch.setattr(keyed, "keyed_uniform", spy)
        # A high rate makes much of how sums over more networks are rounded.
        options = {"silent": False, "epochs": 2, "learning_rate": 1e-4}
        one = config("4", "SH", 1, **options)
        others = [config("4", "H", seed, **options) for seed in (0, 3)]
        _, (alone,) = trained([one])
        of_one = [noise[0] for noise in drawn]
        drawn.clear()
        training, results = trained([*others, replace(one, scenario="another name")])
        place = [c.loss for c in training.configs].index("set_cross_entropy")
        assert len(of_one) == len(drawn) > 0
        for ours, all_of_them in zip(of_one, drawn, strict=True):
            assert ours.equal(all_of_them[place])
            assert not ours.equal(all_of_them[place - 1])
        assert results[place].history["loss"] == pytest.approx(alone.history["loss"], rel=1e-4)

    def test_the_random_numbers_of_the_caller_are_left_alone(self) -> None:
        def states() -> list[bytes]:
            known = (torch.get_rng_state().tolist(), np.random.get_state(), random.getstate())  # noqa: NPY002
            return [repr(state).encode() for state in known]

        before = states()
        trained(self.CONFIGS)
        assert states() == before
        with pytest.raises(ZeroDivisionError):
            Training(self.CONFIGS, "cpu").run(raise_at(2, ZeroDivisionError))
        assert states() == before

    def test_the_precision_of_the_caller_comes_back(self) -> None:
        """Also after an error; while training it is that of the config."""
        config, seen = replace(puzzle_config(), precision="high"), []
        before = torch.get_float32_matmul_precision()
        try:
            torch.set_float32_matmul_precision("medium")
            training = Training([config], "cpu")
            training.run(lambda progress: seen.append(torch.get_float32_matmul_precision()))
            assert torch.get_float32_matmul_precision() == "medium"
            with pytest.raises(ZeroDivisionError):
                Training([config], "cpu").run(raise_at(1, ZeroDivisionError))
            assert torch.get_float32_matmul_precision() == "medium"
        finally:
            torch.set_float32_matmul_precision(before)
        assert seen == ["high"] * 4


class TestBatches:
    """What members see: examples in a random order, and targets in theirs."""

    CONFIGS = tuple(
        puzzle_config(scenario, loss, seed, batch=6)
        for scenario, loss, seed in [("1", "H", 0), ("3", "SH", 0), ("3", "H", 5), ("2", "H", 5)]
    )

    def epoch(self, number: int, task: Task = WHOLE) -> tuple[Tensor, Tensor]:
        """Which examples [K, S] an epoch shows, and their targets [K, S, N, F]."""
        batch = Batch(self.CONFIGS, task)
        batch.begin(number)
        inputs, targets = [], []
        for step in range(batch.steps):
            batch.move(step)
            for drawn, all_of_them in zip(batch.draw(), (inputs, targets), strict=True):
                all_of_them.append(drawn)
        same = torch.cat(inputs, 1).unsqueeze(2).eq(task.inputs).all(-1)  # [K, S, S]
        assert (same.sum(-1) == 1).all()
        return same.int().argmax(-1), torch.cat(targets, 1)

    @staticmethod
    def orders(rows: Tensor, targets: Tensor) -> Tensor:
        """Where each element [K, S, N] of the targets stands in the example."""
        same = targets.unsqueeze(3).eq(TASK.targets[rows].unsqueeze(2)).all(-1)
        assert (same.sum(-1) == 1).all()
        return same.int().argmax(-1)

    def test_every_example_is_dealt_once_an_epoch(self) -> None:
        dealt = [self.epoch(number)[0] for number in range(3)]
        for rows in dealt:
            assert rows.sort(-1).values.equal(torch.arange(24).expand(4, 24))
            assert rows[0].equal(rows[1])  # by the seed alone
            assert rows[2].equal(rows[3])
        different = {tuple(rows[k].tolist()) for rows in dealt for k in (0, 2)}
        assert len(different) == 6

    def test_what_does_not_fill_a_batch_sits_out_one_epoch(self) -> None:
        seen = Counter[int]()
        for number in range(30):
            rows, _ = self.epoch(number, replace(TASK, train=22))
            assert rows.shape == (4, 18)
            assert all(len(set(own.tolist())) == 18 for own in rows)
            seen.update(rows[0].tolist())
        assert set(seen) == set(range(22))  # held-out examples are never shown
        assert min(seen.values()) >= 15  # of 24.5 expected, with a deviation of 2.1

    def test_members_that_shuffle_see_permutations_of_their_targets(self) -> None:
        rows, targets = self.epoch(0)
        orders = self.orders(rows, targets)
        everything = torch.arange(4).expand_as(orders)
        assert orders.sort(-1).values.equal(everything)
        for k, config in enumerate(self.CONFIGS):
            in_place = orders[k].eq(everything[k]).all(-1).sum()
            assert in_place < 8 if config.shuffle_target else in_place == 24  # 1 in 24 by chance

    def test_orders_change_with_the_example_the_epoch_and_the_seed(self) -> None:
        by_example = []
        for number in range(2):
            rows, targets = self.epoch(number)
            orders = self.orders(rows, targets)
            back = rows.argsort(-1).unsqueeze(-1).expand_as(orders)
            by_example.append(orders.gather(1, back))
        first, second = by_example
        assert len(set(map(tuple, first[1].tolist()))) > 8
        for one, two in [(first[1], second[1]), (first[2], second[2]), (first[1], first[2])]:
            assert one.eq(two).all(-1).sum() < 8

    def test_an_epoch_looks_the_same_from_any_ensemble(self) -> None:
        rows, targets = self.epoch(3)
        for k, config in enumerate(self.CONFIGS):
            batch = Batch([config], WHOLE)
            batch.begin(3)
            batch.move(2)
            inputs, own = batch.draw()
            assert inputs[0].equal(TASK.inputs[rows[k, 12:18]])
            assert own[0].equal(targets[k, 12:18])
