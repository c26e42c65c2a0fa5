"""Every long command in a size that takes a moment, and what it leaves behind."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from killed import Command
from setwise.experiments.config import Config
from setwise.experiments.recipes import demo
from setwise.experiments.tasks import PuzzleData

# An experiment of one's own, to be put into ``own.py``.
OWN = """
from dataclasses import replace
from setwise.experiments import Experiment
from tiny_recipe import tiny


def config(scenario, loss, seed):
    return replace(tiny(scenario, loss, seed), experiment="own")


OWN = Experiment(
    name="own", title="Own", config=config, scenarios={"1": "", "3": ""},
    losses=("set_cross_entropy",), seeds=2,
)
"""


def small_demo() -> None:
    """The same networks on the 2 x 2 puzzle, saved after every epoch."""
    whole = demo.config

    def config(loss: str, seed: int) -> Config:
        found = whole(loss, seed)
        data = PuzzleData(width=2, height=2, states=24, train=24)
        schedule = replace(found.schedule, epochs=8, batch=24, evaluations=4)
        return replace(found, data=data, schedule=schedule)

    demo.config = config
    importlib.import_module("setwise.demo.learn").SAVE_EVERY = 0.0


def painted() -> None:
    """A renderer that needs no time: numbers of the scene for colours."""
    from setwise.render import dataset

    @contextmanager
    def opened(name: str, *, width: int, height: int, **options: Any) -> Iterator[Any]:
        def draw(scene: Any) -> Any:
            numbers = np.array([block.location for block in scene.blocks]).ravel()
            return np.resize((numbers * 40).astype(np.uint8), (height, width, 3))

        yield draw

    dataset.open_renderer = opened
    dataset.renderer_version = lambda *call: "painted"


TRAIN = Command(
    ("train", "own.py", "--device", "cpu", "--keep", "all", "--commit", "c", "--save-every", "1e-9")
)
DEMO = Command(("demo", "--output", "demo"), small_demo)
PLAN = Command(
    ("plan", "puzzle", "--network", "net", "--steps", "4", "--output", "out", "--record", "plans")
)
DATA = Command(
    (
        *("data", "blocksworld", "--blocks", "3", "--states", "5", "--width", "60"),
        *("--height", "40", "--workers", "1", "--output", "pictures"),
    ),
    painted,
)
REPORT = Command(("report", "--benchmarks", "results"))
# Of records and plans, what depends on the hour and on the machine.
VOLATILE = {"seconds", "finished", "environment"}


def content(folder: Path) -> dict[str, Any]:
    """All files of a folder: their bytes; of JSON, what is the same at any hour."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix in (".json", ".jsonl") and path.is_file():
            lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
            found[name] = [_settled(json.loads(line)) for line in lines]
        elif path.is_file() and path.name != "index.html":  # which tells how long it took
            found[name] = path.read_bytes()
        else:
            found[name] = "there"
    return found


def _settled(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _settled(v) for k, v in value.items() if k not in VOLATILE}
    return [_settled(one) for one in value] if isinstance(value, list) else value
