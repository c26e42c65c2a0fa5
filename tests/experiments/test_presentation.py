"""What networks read, and in which order, while they learn and when they are judged.

Legend: K members, b examples, N elements, F features.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from setwise.experiments.ensemble import Batch
from setwise.experiments.networks import NetworkConfig
from setwise.experiments.presentation import Presentation
from setwise.experiments.tasks import Task
from tiny_experiments import TASK, puzzle_config, trained

# The same sets, to be read element by element.
SETS = Task(TASK.targets, TASK.targets, TASK.train, TASK.features)


@dataclass(frozen=True)
class Flat(NetworkConfig):
    """Reads its input as one vector, so that an order is something to it, and knows no other."""

    kind: ClassVar[str] = "flat, for a test"

    def build(self, task: Task, *, to_train: bool = True) -> nn.Module:
        return Perceptron(task.inputs[0].numel(), task.targets.shape[1:])


class Perceptron(nn.Module):
    """[B, ...] -> [B, N, F]."""

    def __init__(self, inputs: int, shape: Any) -> None:
        super().__init__()
        self.layer, self.shape = nn.Linear(inputs, shape.numel()), shape

    def forward(self, input: Tensor, temperature: Tensor) -> Tensor:
        logits: Tensor = self.layer(input.flatten(1)).unflatten(-1, self.shape)
        return logits


# In the order of the data; inputs shuffled; both shuffled.
FLAT = [replace(puzzle_config(scenario, seed=3), network=Flat()) for scenario in ("1", "2", "4")]
ORDER_FREE = [puzzle_config(scenario, seed=3) for scenario in ("1", "2", "4")]


def places(read: Tensor, sets: Tensor) -> Tensor:
    """Where the elements of what is read [K, b, N, F] stand in the sets: [K, b, N]."""
    found = read.unsqueeze(3).eq(sets.unsqueeze(-3)).all(-1).int().argmax(-1)
    assert found.sort(-1).values.equal(torch.arange(4).expand_as(found))
    return found


def drawn(configs: Any, task: Task, epoch: int) -> tuple[Tensor, Tensor]:
    """Where the elements of inputs and targets [K, b, N] of a first batch stand in their sets."""
    batch = Batch(configs, task)
    batch.begin(epoch)
    batch.move(0)
    inputs, targets = batch.draw()
    own = task.targets[batch._rows]
    return places(inputs, own), places(targets, own)


def in_place(order: Tensor) -> list[int]:
    """How many of each member's sets [K, b, N] are in their own order; 1 in 24 is, by chance."""
    return order.eq(torch.arange(order.shape[-1])).all(-1).sum(-1).tolist()


class TestAnOrderThatMatters:
    def test_it_is_new_in_every_epoch_of_training(self) -> None:
        inputs, targets = drawn(FLAT, SETS, epoch=0)
        plain, *shuffled = in_place(inputs)
        assert plain == 10
        assert max(shuffled) < 5
        assert inputs[1].equal(inputs[2])  # the seed decides, whatever else is shuffled
        assert not inputs[2].equal(targets[2])  # a set does not come out as it went in
        later, _ = drawn(FLAT, SETS, epoch=1)
        assert not later[1].equal(inputs[1])

    @pytest.mark.parametrize("final", [False, True])
    def test_it_is_always_the_same_in_evaluation(self, final: bool) -> None:
        """For learning curves as for what is recorded in the end."""
        rows = torch.arange(24)
        read = Presentation(FLAT, SETS).in_evaluation(rows, final=final)
        plain, *shuffled = in_place(places(read, SETS.targets))
        assert plain == 24
        assert max(shuffled) < 8
        some = Presentation(FLAT[1:2], SETS).in_evaluation(rows[5:9], final=not final)
        assert some[0].equal(read[1, 5:9])


class TestAnOrderThatDoesNot:
    def test_none_is_drawn_in_training(self) -> None:
        inputs, _ = drawn(ORDER_FREE, SETS, epoch=0)
        assert in_place(inputs) == [10, 10, 10]

    def test_counts_do_until_the_end(self) -> None:
        """Then the sets themselves are read, in the order of the scenario."""
        rows = torch.arange(24)
        presentation = Presentation(ORDER_FREE, TASK)
        quick = presentation.in_evaluation(rows, final=False)
        assert quick.equal(TASK.inputs.expand(3, -1, -1))
        read = presentation.in_evaluation(rows, final=True)
        plain, *shuffled = in_place(places(read, TASK.targets))
        assert plain == 24
        assert max(shuffled) < 8


def test_a_network_that_reads_counts_is_given_no_sets() -> None:
    """It knows no other input, and its training would be lost at the last moment."""
    rows = torch.arange(24)
    for final in (False, True):
        read = Presentation(FLAT, TASK).in_evaluation(rows, final=final)
        assert read.equal(TASK.inputs.expand(3, -1, -1))
    _, results = trained(FLAT)
    assert len(results) == 3


def test_what_is_no_set_is_read_as_it_is() -> None:
    other = Task(torch.rand(24, 4, 8), TASK.targets, 20, TASK.features)
    read = Presentation(FLAT, other).in_evaluation(torch.arange(24), final=True)
    assert read.equal(other.inputs.expand(3, -1, -1, -1))
    batch = Batch(FLAT, other)
    batch.begin(0)
    batch.move(0)
    assert batch.draw()[0].equal(other.inputs[batch._rows])
