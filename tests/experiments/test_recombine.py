"""Elements look like others of their kind, stay where they are, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from recombination import (
    CONFIG,
    CPU,
    DONORS,
    FEATURES,
    KINDS,
    LOOK,
    ROWS,
    SETS,
    TASK,
    TRAIN,
    some_sets,
)
from setwise.experiments.config import Schedule
from setwise.experiments.ensemble import Batch
from setwise.experiments.networks import Autoencoder
from setwise.experiments.recombine import Recombination, nearest_sets
from setwise.experiments.tasks import PuzzleData, RulesData, Task
from setwise.experiments.train import StoppedError, Training
from setwise.features import Bernoulli, Categorical, Features


def recombined(share: float, seeds: Tensor, epoch: int = 0, rows: Tensor = ROWS) -> Tensor:
    return Recombination(TASK, share, DONORS, CPU)(rows, seeds, torch.tensor(epoch))


def test_looks_come_from_the_same_kind_and_places_stay() -> None:
    (found,) = recombined(1.0, torch.tensor([5]))
    before = SETS[:TRAIN]
    assert found[..., ~LOOK].equal(before[..., ~LOOK])
    kind, kind_before = found[..., :KINDS].argmax(-1), before[..., :KINDS].argmax(-1)
    assert kind.equal(kind_before)
    # Each look is that of one element, whole, of some set that is trained on.
    same = (found[:, :, None, LOOK] == before.flatten(0, 1)[:, LOOK]).all(-1)  # [S, N, S N]
    assert same.sum(-1).eq(1).all()
    source = same.long().argmax(-1) // KINDS
    assert (source != ROWS[0].unsqueeze(-1)).float().mean() > 0.9
    # The elements of a set get theirs from different sets.
    assert (source[:, 0] != source[:, 1]).float().mean() > 0.9


def test_looks_come_from_nearby() -> None:
    """Among 600 sets, more than enough have an element of the same kind at the very same place."""
    sets = some_sets(600)
    task = Task(sets, sets, 600, FEATURES)
    rows = torch.arange(600).unsqueeze(0)
    (found,) = Recombination(task, 1.0, DONORS, CPU)(rows, torch.tensor([5]), torch.tensor(0))
    # The last feature is a number of its own for every element.
    source = (found[..., -1, None] == sets[..., -1].flatten()).long().argmax(-1)
    assert sets.flatten(0, 1)[source][..., ~LOOK].equal(sets[..., ~LOOK])
    assert (source != torch.arange(1800).reshape(600, 3)).float().mean() > 0.9


def test_donors_are_the_nearest_in_all_coordinates_together() -> None:
    """Against all distances: as near as the nearest, though of equals others may be taken."""
    generator = torch.Generator().manual_seed(1)
    places = torch.randint(9, (60, 3, 2), generator=generator).float()
    of_kind = torch.rand(60, 3, generator=generator).argsort(-1)
    found = nearest_sets(places, of_kind, 7)
    assert found.shape == (60, 3, 7)
    for kind in range(3):
        own = places[torch.arange(60), of_kind[:, kind]]
        apart = (own[:, None] - own).abs().sum(-1)
        taken = apart.gather(1, found[:, kind])
        assert taken.equal(apart.sort(-1).values[:, :7])
        assert all(len(set(row)) == 7 for row in found[:, kind].tolist())
    assert nearest_sets(places[:5], of_kind[:5], 7).shape == (5, 3, 5)


def test_the_share() -> None:
    changed = []
    for epoch in range(50):
        (found,) = recombined(0.25, torch.tensor([0]), epoch)
        changed.append((found != SETS[:TRAIN]).any(-1))
    assert torch.stack(changed).float().mean().item() == pytest.approx(0.25, abs=0.02)
    assert torch.stack(changed).float().mean(0).max() < 0.6  # not always the same elements


def test_a_member_is_the_same_alone_and_among_others() -> None:
    together = recombined(0.5, torch.tensor([3, 4]), epoch=7, rows=ROWS.expand(2, -1))
    assert together[1].equal(recombined(0.5, torch.tensor([4]), epoch=7)[0])
    assert not together[0].equal(together[1])
    assert not together[0].equal(recombined(0.5, torch.tensor([3]), epoch=8)[0])


def test_a_batch_asks_for_what_it_shows() -> None:
    """Inputs and targets are the same sets, recombined, those of a target in its own order."""
    task, shuffled = TASK, replace(CONFIG, shuffle_target=True)
    batch = Batch([CONFIG, shuffled], task, Recombination(task, 0.5, DONORS, CPU))
    batch.begin(3)
    batch.move(1)
    inputs, targets = batch.draw()
    assert targets[0].equal(inputs[0])
    assert not targets[1].equal(inputs[1])
    assert targets.sort(dim=2).values.equal(inputs.sort(dim=2).values)
    plain = Batch([CONFIG, shuffled], task)
    plain.begin(3)
    plain.move(1)
    share = (inputs != plain.draw()[0]).any(-1).float().mean().item()
    assert share == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("data", [PuzzleData(states=20, train=10), RulesData(train=20, test=5)])
def test_data_without_looks_are_refused(data: PuzzleData | RulesData) -> None:
    with pytest.raises(ValueError, match=r"recombined 0.5 needs data whose inputs are the sets"):
        Recombination(data.load(), 0.5, DONORS, CPU)


@pytest.mark.parametrize(
    "features", [Features(Categorical(5), Categorical(6)), Features(Bernoulli(11))]
)
def test_elements_need_a_look_and_a_place(features: Features) -> None:
    with pytest.raises(ValueError, match=r"recombined 0\.5 does not go with these features: expec"):
        Recombination(replace(TASK, features=features), 0.5, DONORS, CPU)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_training_recombines(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(CONFIG.data), "load", lambda *_: TASK)
    network = Autoencoder(element_widths=(8,), widths=(8,), latent=4, decoder_width=8)
    schedule = replace(CONFIG.schedule, recombined=share)
    training = Training([replace(CONFIG, network=network, schedule=schedule)], "cpu")
    training._batch.begin(0)
    training._batch.move(0)
    shown, _ = training._batch.draw()
    known = (shown[0].unsqueeze(1) == SETS).all(-1).all(-1).any(-1)
    assert known.all() if share == 0 else known.float().mean() < 0.5
    assert training.run()[0].metrics["loss"] > 0


def test_a_stopped_training_goes_on_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(CONFIG.data), "load", lambda *_: TASK)
    network = Autoencoder(element_widths=(8,), widths=(8,), latent=4, decoder_width=8)
    schedule = replace(CONFIG.schedule, epochs=4, evaluations=4, recombined=0.5)
    config = replace(CONFIG, network=network, schedule=schedule)
    (whole,) = Training([config], "cpu").run()
    seen: list[int] = []
    with pytest.raises(StoppedError):
        Training([config], "cpu", tmp_path / "x.ckpt").run(
            lambda progress: seen.append(progress.epoch), lambda: len(seen) == 2
        )
    (resumed,) = Training([config], "cpu", tmp_path / "x.ckpt").run()
    assert resumed == whole


def test_a_schedule_says_how_many_donors_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """With two, an element has its own look or that of one other, in whatever epoch."""
    monkeypatch.setattr(type(CONFIG.data), "load", lambda *_: TASK)
    network = Autoencoder(element_widths=(8,), widths=(8,), latent=4, decoder_width=8)
    two = replace(CONFIG, network=network, schedule=Schedule(1, 20, recombined=1.0, donors=2))
    recombine = Training([two], "cpu")._batch._recombine
    assert recombine is not None
    looks: list[set[float]] = [set() for _ in range(KINDS)]
    for epoch in range(30):
        (found,) = recombine(ROWS[:, :1], torch.tensor([0]), torch.tensor(epoch))
        for element in range(KINDS):
            looks[element].add(found[0, element, -1].item())
    assert [len(seen) for seen in looks] == [2, 2, 2]
    assert replace(two, schedule=replace(two.schedule, donors=3)).identity != two.identity
    with pytest.raises(ValueError, match="donors: must be at least 2"):
        Schedule(1, 20, donors=1)
