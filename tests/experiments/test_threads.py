"""The number of threads of a training: its own, recorded, and the same when it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from setwise.experiments import records
from setwise.experiments.cost import record_cost
from setwise.experiments.run import train
from setwise.experiments.train import Training
from tiny_experiments import puzzle_config, raise_at

CONFIGS = [puzzle_config(loss="set_cross_entropy", seed=0, epochs=5, evaluations=5)]


@pytest.fixture(autouse=True)
def many_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(before + 2)
    yield
    assert torch.get_num_threads() == before + 2  # a training leaves it as it was
    torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [None, 2])
def test_a_training_has_its_own_number(threads: int | None) -> None:
    options = {} if threads is None else {"threads": threads}
    training = Training(CONFIGS, "cpu", **options)
    seen = []
    training.run(lambda progress: seen.append(torch.get_num_threads()))
    assert set(seen) == {training.threads} == {threads or 1}


def test_a_training_is_resumed_with_as_many(tmp_path: Path) -> None:
    path = tmp_path / "state.ckpt"
    with pytest.raises(KeyboardInterrupt):
        Training(CONFIGS, "cpu", path, save_every=0, threads=2).run(raise_at(3))
    with pytest.raises(ValueError, match=r"state\.ckpt: began with 2 threads, and would .* 1;"):
        Training(CONFIGS, "cpu", path).run()
    results = Training(CONFIGS, "cpu", path, threads=2).run()
    assert results[0].history["epoch"][-1] == 5


def test_a_record_says_how_many(tmp_path: Path) -> None:
    train(CONFIGS, "cpu", tmp_path, threads=2)
    (record,) = records.read(tmp_path / f"{CONFIGS[0].experiment}.jsonl")
    assert record["environment"]["hardware"].endswith(", 2 threads")


@pytest.mark.parametrize("threads", [0, -1, 1.5, True, "2", None])
def test_what_is_no_number_of_threads(threads: Any) -> None:
    with pytest.raises(ValueError, match="threads: expected a whole number, at least 1, got"):
        Training(CONFIGS, "cpu", threads=threads)


@pytest.mark.parametrize(("threads", "said"), [(None, "a GPU"), (2, "a CPU")])
def test_a_training_is_resumed_where_it_began(
    threads: int | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.ckpt"
    monkeypatch.setattr(Training, "_counted_threads", lambda training: threads)
    with pytest.raises(KeyboardInterrupt):
        Training(CONFIGS, "cpu", path, save_every=0).run(raise_at(3))
    there = 2 if threads is None else None
    monkeypatch.setattr(Training, "_counted_threads", lambda training: there)
    with pytest.raises(ValueError, match=rf"state\.ckpt: began on {said}, and would end in other"):
        Training(CONFIGS, "cpu", path).run()


def test_what_one_takes_alone_is_timed_with_as_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def timed(training: Training, epochs: int) -> float:
        seen.append(training.threads)
        return 1.0

    monkeypatch.setattr(Training, "seconds_per_epoch", timed)
    cost = record_cost(CONFIGS, 1.0, "cpu", tmp_path, threads=3)
    assert seen == [3, 3]
    assert cost["environment"]["hardware"].endswith(", 3 threads")
