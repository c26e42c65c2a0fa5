"""Sets of different sizes whose outputs say whether they exist, from the data to the numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import setwise as sw
from setwise.data import SlidingPuzzle, drop_elements
from setwise.experiments.config import Config
from setwise.experiments.measures import SetSuccess
from setwise.experiments.networks import Autoencoder, RuleLearner
from setwise.experiments.networks.autoencoder import Reconstruction
from setwise.experiments.presence import comparable, split_presence
from setwise.experiments.tasks import MultisetData, PuzzleData
from setwise.experiments.train import Training, build_network
from setwise.losses.table import LOSSES
from setwise.models.prototypes import as_logits
from tiny_experiments import puzzle_config

PUZZLE = PuzzleData(2, 3, states=40, train=30, variable=True, dummies="none")
TINY = Autoencoder((16,), (16,), latent=8, decoder_width=16, dropout=0.0)


def tiny(loss: str, **changes: int | float) -> Config:
    base = puzzle_config(epochs=2, evaluations=1)
    schedule = replace(base.schedule, batch=15, **changes)  # type: ignore[arg-type]
    return replace(base, loss=loss, data=PUZZLE, network=TINY, schedule=schedule)


class TestData:
    def test_what_is_missing_is_filling(self) -> None:
        puzzle = SlidingPuzzle(2, 3)
        left = drop_elements(puzzle.objects(puzzle.sample(40, 0)), 0)
        task = PUZZLE.load()
        elements, real = split_presence(task.targets, task.features.width)
        assert task.presence
        assert real is not None
        assert task.features == puzzle.features.scored_as("bernoulli")
        for ours, exists, expected in zip(elements, real, left, strict=True):
            assert ours[exists > 0].equal(expected)
        assert len({len(one) for one in left}) > 1

    def test_only_what_is_there_is_counted(self) -> None:
        task = PUZZLE.load()
        assert task.elements is not None
        elements, real = split_presence(task.targets, task.features.width)
        assert real is not None
        summed = (elements * real.unsqueeze(-1)).sum(1)
        assert torch.allclose(task.inputs @ task.elements, summed)

    def test_without_presence_nothing_is_split(self) -> None:
        sets = torch.rand(2, 3, 4)
        elements, exist = split_presence(sets, 4)
        assert elements.equal(sets)
        assert exist is None
        assert comparable(sets, sets, 4)[2] == {}


class TestNetworks:
    def test_sets_and_counts_are_read_alike(self) -> None:
        """Filling adds nothing."""
        task = PUZZLE.load()
        network = build_network(tiny("set_likelihood"), task).eval()
        now = torch.tensor(1.0)
        from_sets, from_counts = network(task.targets, now), network(task.inputs, now)
        assert torch.allclose(from_sets, from_counts, atol=1e-5)
        assert from_sets.shape == task.targets.shape

    @pytest.mark.parametrize("network", [replace(TINY, surplus=3), RuleLearner(8, surplus=3)])
    def test_outputs_beyond_the_largest_set(self, network: Autoencoder | RuleLearner) -> None:
        task = PUZZLE.load()
        built = network.build(task)
        said = built(task.inputs, torch.tensor(1.0))
        assert said.shape == (40, 6 + 3, task.features.width + 1)

    def test_have_no_surplus_without_presence(self) -> None:
        task = replace(PUZZLE, variable=False).load()
        with pytest.raises(ValueError, match=r"surplus: expected 0, or more where .*, got 2"):
            replace(TINY, surplus=2).build(task)
        with pytest.raises(ValueError, match=r"surplus: expected 0, or more where .*, got -1"):
            replace(TINY, surplus=-1).build(PUZZLE.load())

    def test_begin_at_prototypes_of_the_elements_that_exist(self) -> None:
        task = PUZZLE.load()
        network = replace(TINY, start_at_prototypes=True).build(task)
        assert isinstance(network, Reconstruction)
        bias = network.autoencoder.decoder.output.bias.unflatten(0, (6, -1))
        expected = as_logits(task.prototypes, task.features)
        assert torch.equal(bias[:, :-1], expected)
        exists = task.targets[: task.train, :, -1].mean()
        torch.testing.assert_close(bias[:, -1].sigmoid(), exists.expand(6))

    def test_have_no_prototypes_for_surplus_outputs(self) -> None:
        with pytest.raises(ValueError, match=r"start_at_prototypes: .*, got surplus 2"):
            replace(TINY, start_at_prototypes=True, surplus=2).build(PUZZLE.load())


class TestMeasure:
    def test_outputs_that_do_not_exist_do_not_count(self) -> None:
        """Right elements, in another order; one of them is then said not to exist."""
        task = PUZZLE.load()
        outputs = (8 * task.targets - 4).flip(1).unsqueeze(0)
        finite = torch.ones(1, 40, dtype=torch.bool)
        found = SetSuccess()(outputs, finite, task.targets, task.features)
        assert found["exact"].mean() == found["success"].mean() == 1
        there = (outputs[0, :, :, -1] > 0).int().argmax(-1)
        outputs[0, torch.arange(40), there, -1] = -1.0
        found = SetSuccess()(outputs, finite, task.targets, task.features)
        assert found["exact"].mean() == found["success"].mean() == 0


class TestTraining:
    @pytest.mark.parametrize("loss", LOSSES)
    def test_every_loss_trains(self, loss: str) -> None:
        (result,) = Training([tiny(loss)], "cpu").run()
        heldout = {"heldout", "heldout_exact"}
        assert result.metrics.keys() == {"success", "exact", "train", "loss", *heldout}
        assert result.metrics["loss"] < 1e3

    @pytest.mark.slow
    def test_bags_are_learned(self) -> None:
        """A few numbers, up to three of them: of no use but to see that it works."""
        data = MultisetData(values=3, most=3, states=20, train=20)
        base = tiny("set_likelihood")
        schedule = replace(base.schedule, epochs=150, batch=20, learning_rate=1e-2, cooldown=0.5)
        config = replace(
            base, data=data, network=RuleLearner(32, dropout=0.0, surplus=3), schedule=schedule
        )
        (result,) = Training([config], "cpu", metric="exact").run()
        assert result.metrics["exact"] == 1

    def test_exclusivity_rises(self) -> None:
        """In the first epoch outputs share, as in set cross entropy; in the last they do not."""
        fixed = replace(tiny("set_likelihood"), data=replace(PUZZLE, variable=False))
        slow = replace(fixed.schedule, epochs=1, learning_rate=0.0)
        shared = replace(fixed, schedule=replace(slow, exclusivity_until=1.0))
        losses = {
            name: Training([config], "cpu").run()[0].metrics["loss"]
            for name, config in {
                "shared": shared,
                "exact": replace(fixed, schedule=slow),
                "rows": replace(fixed, schedule=slow, loss="set_cross_entropy"),
            }.items()
        }
        assert losses["shared"] == pytest.approx(losses["rows"], abs=1e-3)
        assert losses["exact"] > losses["rows"] + 0.5

    @pytest.mark.parametrize("until", [-0.1, 1.1])
    def test_exclusivity_rises_over_a_share(self, until: float) -> None:
        with pytest.raises(ValueError, match="exclusivity_until: must be a share from 0 to 1"):
            tiny("set_likelihood", exclusivity_until=until)


def test_decoder_says_presence_last() -> None:
    """Its other numbers are those of a decoder without."""
    decoder = sw.models.SetDecoder(4, 3, 5, width=8, presence=True).eval()
    without = sw.models.SetDecoder(4, 3, 5, width=8).eval()
    without.hidden.load_state_dict(decoder.hidden.state_dict())
    rows = torch.arange(18).reshape(3, 6)[:, :5].flatten()
    with torch.no_grad():
        without.output.weight.copy_(decoder.output.weight[rows])
        without.output.bias.copy_(decoder.output.bias[rows])
    codes = torch.rand(7, 4)
    assert torch.allclose(decoder(codes)[..., :5], without(codes), atol=1e-6)
