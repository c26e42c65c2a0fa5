"""``setwise demo`` on the 2 x 2 puzzle, which takes seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from setwise import cli
from setwise.experiments.config import Config
from setwise.experiments.recipes import demo
from setwise.experiments.tasks import PuzzleData

Captured = pytest.CaptureFixture[str]
THE_DEMO = demo.config


def small(epochs: int) -> Callable[[str, int], Config]:
    """The same networks on the 2 x 2 puzzle; 600 epochs are enough for every seed tried."""

    def config(loss: str, seed: int) -> Config:
        whole = THE_DEMO(loss, seed)
        return replace(
            whole,
            data=PuzzleData(width=2, height=2, states=24, train=24),
            schedule=replace(whole.schedule, epochs=epochs, batch=24, evaluations=10),
        )

    return config


@dataclass(frozen=True)
class Run:
    """What a command left behind."""

    folder: Path
    code: int
    out: str
    err: str

    @property
    def page(self) -> Path:
        return self.folder / "index.html"


def run(folder: Path, capsys: Captured, *options: str) -> Run:
    code = cli.main(["demo", "--output", str(folder), *options])
    said = capsys.readouterr()
    return Run(folder, code, said.out, said.err)
