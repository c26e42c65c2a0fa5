"""What is measured of a training, and on which examples.

Legend: K members, S examples, N elements, F features.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import setwise as sw
from setwise.experiments import evaluate
from setwise.experiments.evaluate import measured
from setwise.experiments.tasks import Task
from tiny_experiments import TASK, puzzle_config


class Echo:
    """In place of an ensemble: it answers with what a function makes of the sets it reads."""

    def __init__(self, members: int, answer: Callable[[Tensor], Tensor]) -> None:
        self.weights = {"weight": torch.zeros(members)}
        self.answer = answer
        self.read: list[Tensor] = []

    def __call__(self, inputs: Tensor, temperature: Tensor) -> Tensor:
        self.read.append(inputs)
        return self.answer(inputs)


class TestEvaluation:
    CONFIGS = tuple(puzzle_config(scenario, seed=1) for scenario in ("1", "2", "4"))

    def presented(self) -> Tensor:
        """The sets [K, S, N, F] that an ensemble reads; it answers with them and succeeds."""
        echo: Any = Echo(3, lambda sets: 9 * sets - 4)
        for values in measured(echo, TASK, self.CONFIGS).values():
            assert values.eq(torch.ones(3, 24)).all()
        return torch.cat(echo.read, dim=1)

    def test_sets_are_read_in_the_order_of_the_scenario(self) -> None:
        read = self.presented()
        assert read[0].equal(TASK.targets)
        place = read.unsqueeze(3).eq(TASK.targets.unsqueeze(1)).all(-1).int().argmax(-1)
        assert place.sort(-1).values.equal(torch.arange(4).expand(3, 24, 4))
        in_place = place.eq(torch.arange(4)).all(-1).sum(-1)
        assert (in_place[1:] < 8).all()  # 1 in 24 by chance
        assert len(set(map(tuple, place[1].tolist()))) > 8
        assert place[1].equal(place[2])  # the same seed

    def test_it_does_not_matter_how_many_are_evaluated_at_once(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        at_once = self.presented()
        for sets in (30, 1):
            monkeypatch.setattr(evaluate, "SETS_AT_ONCE", sets)
            assert self.presented().equal(at_once)
        monkeypatch.undo()
        monkeypatch.setattr(evaluate, "NUMBERS_AT_ONCE", 1)  # fewer than a set has
        assert self.presented().equal(at_once)

    def test_what_is_not_final_is_read_as_in_training(self) -> None:
        echo: Any = Echo(2, lambda counts: torch.zeros(2, 24, 4, 8))
        found = measured(echo, TASK, self.CONFIGS[:2], final=False)["success"]
        assert torch.cat(echo.read, 1).equal(TASK.inputs.expand(2, -1, -1))
        assert found.eq(0).all()

    def test_success_is_that_of_each_member_on_each_example(self) -> None:
        """One has an element twice in place of another, one an element that does not exist."""

        def answer(sets: Tensor) -> Tensor:
            logits = 9 * sets - 4
            logits[0, 5, 0] = logits[0, 5, 1]
            logits[2, 7, 2] = -logits[2, 7, 2]
            return logits

        echo: Any = Echo(3, answer)
        for values in measured(echo, TASK, self.CONFIGS).values():
            assert values.logical_not().nonzero().tolist() == [[0, 5], [2, 7]]

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    def test_what_is_not_finite_is_no_success(self, value: float) -> None:
        """Whatever the set, and though the rest of it be right."""
        targets = torch.tensor([[[0.0, 0.0]], [[1.0, 1.0]], [[1.0, 0.0]]])
        task = Task(torch.zeros(3, 1), targets, 3, sw.Features(sw.Bernoulli(2)))

        def answer(inputs: Tensor) -> Tensor:
            logits = (9 * targets - 4).expand(2, 3, 1, 2).clone()
            logits[1, :2, 0, 1] = value
            return logits

        echo: Any = Echo(2, answer)
        for values in measured(echo, task, self.CONFIGS[:2]).values():
            assert values.tolist() == [[1, 1, 1], [0, 0, 1]]

    def test_of_more_outputs_than_targets_only_the_strict_count_complains(self) -> None:
        doubled = replace(TASK, targets=torch.cat([TASK.targets, TASK.targets[:, :1]], dim=1))

        def answer(sets: Tensor) -> Tensor:
            logits = 9 * sets - 4
            logits[0, :, 4] = logits[0, :, 1]  # the second twice, where the first should be
            return logits

        echo: Any = Echo(1, answer)
        found = measured(echo, doubled, self.CONFIGS[:1])
        assert found["success"].eq(1).all()
        assert found["exact"].eq(0).all()
