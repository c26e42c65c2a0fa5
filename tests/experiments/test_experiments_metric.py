"""What is compared may be another number than the one that a task calls its own.

Legend: K members, s examples, N elements, F features.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from setwise.experiments.tasks import PuzzleData
from setwise.experiments.train import StoppedError, Training, TrainingProgress
from setwise.features import Features
from tiny_experiments import TASK, puzzle_config


class TwoNumbers:
    """Of every output the first is 0 and the second 1."""

    metric = "first"
    curve_examples = None
    learned = None

    def __call__(
        self, logits: Tensor, finite: Tensor, targets: Tensor, features: Features
    ) -> dict[str, Tensor]:
        return {"first": torch.zeros(finite.shape), "second": torch.ones(finite.shape)}

    def total(self, values: Tensor) -> Tensor:
        return values.mean(dim=-1)

    def to(self, device: torch.device) -> TwoNumbers:
        return self


@pytest.fixture(autouse=True)
def measured_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    task = replace(TASK, measure=TwoNumbers())
    monkeypatch.setattr(PuzzleData, "load", lambda *given: task)


@pytest.mark.parametrize(
    ("metric", "compared", "value"),
    [(None, "first", 0), ("first", "first", 0), ("second", "second", 1), ("heldout", "first", 0)],
)
def test_it_is_watched_and_held_out(metric: str | None, compared: str, value: float) -> None:
    seen: list[TrainingProgress] = []
    (result,) = Training([puzzle_config()], "cpu", metric=metric).run(seen.append)
    assert {progress.metric for progress in seen} == {compared}
    assert result.metrics["first"] == 0
    assert result.metrics["second"] == 1
    assert result.metrics["train"] == result.metrics["heldout"] == value
    assert result.history.keys() == {"epoch", "loss", compared, "heldout"}
    assert result.history[compared] == result.history["heldout"] == [value] * 4
    assert [progress.score for progress in seen] == [[value]] * 4


def test_who_watches_is_told_what_is_compared() -> None:
    progress = TrainingProgress(1, 2, 3.0, [4.0], [5.0], [6.0], "second")
    assert [progress.of(name) for name in ("second", "loss", "heldout")] == [[5.0], [4.0], [6.0]]


def test_an_unknown_one_lists_the_known_ones() -> None:
    with pytest.raises(
        ValueError, match=r"^metric: tiny has no 'third'; its runs have first, second"
    ):
        Training([puzzle_config()], "cpu", metric="third")


def test_a_run_goes_on_with_what_it_was_measured_by(tmp_path: Path) -> None:
    """Or the beginning of a curve would be missing."""
    path = tmp_path / "run.ckpt"
    with pytest.raises(StoppedError):
        Training([puzzle_config()], "cpu", path).run(stop=lambda: True)
    with pytest.raises(ValueError, match=r"run\.ckpt: began without second being measured"):
        Training([puzzle_config()], "cpu", path, metric="second").run()
    (result,) = Training([puzzle_config()], "cpu", path, metric="first").run()
    assert result.history["first"] == [0] * 4
