"""kill -9 at many moments of every long command: the same command then comes to the same bits."""

from __future__ import annotations

import importlib
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from killed import Command, kill_often, run
from recorded import SH, make_records, write
from setwise.experiments.config import Config
from setwise.experiments.recipes import demo
from setwise.experiments.tasks import PuzzleData

# Slow: over a hundred processes. In the first tier tests/experiments and tests/test_files.py have
# the worst moments of a training and of a writer.
pytestmark = pytest.mark.slow
KILLS = 20

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
        schedule = replace(found.schedule, epochs=8, batch=24, evaluations=4)
        return replace(
            found, data=PuzzleData(width=2, height=2, states=24, train=24), schedule=schedule
        )

    demo.config = config
    importlib.import_module("setwise.demo.learn").SAVE_EVERY = 0.0


def painted() -> None:
    """A renderer that needs no time: the blocks as points on a plain."""
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
VOLATILE = {"seconds", "finished", "environment"}


@pytest.fixture
def fresh(tmp_path: Path) -> Callable[..., Path]:
    """Makes a new folder with these files in it."""

    def make(**files: str) -> Path:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        for name, text in files.items():
            (folder / name.replace("_", ".")).write_text(text)
        return folder

    return make


def content(folder: Path) -> dict[str, Any]:
    """All files of a folder: their bytes; of JSON, what does not depend on the hour."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix in (".json", ".jsonl") and path.is_file():
            lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
            found[name] = [_settled(json.loads(line)) for line in lines]
        elif path.is_file() and path.name != "index.html":
            found[name] = path.read_bytes()
        else:
            found[name] = "there"
    return found


def _settled(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _settled(v) for k, v in value.items() if k not in VOLATILE}
    return [_settled(one) for one in value] if isinstance(value, list) else value


def test_train(fresh: Callable[..., Path]) -> None:
    undisturbed = fresh(own_py=OWN)
    assert run(TRAIN, undisturbed).code == 0
    expected = content(undisturbed)
    assert len(expected["results/own.jsonl"]) == 4
    assert len([name for name in expected if name.endswith(".safetensors")]) == 4
    for folder in kill_often(TRAIN, lambda: fresh(own_py=OWN), KILLS, seed=1):
        assert content(folder) == expected


def test_demo_and_plan(fresh: Callable[..., Path]) -> None:
    """A network of the demonstration is planned with."""
    undisturbed = fresh()
    assert run(DEMO, undisturbed).code in (0, 1)
    expected = content(undisturbed)
    networks = {f"demo/{loss}.safetensors" for loss in demo.LOSSES}
    assert expected.keys() == {"tmp", "demo", "demo/index.html", *networks}
    for folder in kill_often(DEMO, fresh, KILLS, seed=2):
        assert content(folder) == expected

    def with_network() -> Path:
        folder = fresh()
        (folder / "net").write_bytes(expected[f"demo/{SH}.safetensors"])
        return folder

    undisturbed = with_network()
    assert run(PLAN, undisturbed).code in (0, 1)
    expected = content(undisturbed)
    assert {Path(name).name for name in expected} >= {"plans.json", "plan.json", "00.png"}
    assert not [name for name in expected if name.startswith("tmp/")]
    for folder in kill_often(PLAN, with_network, KILLS, seed=3):
        assert content(folder) == expected


def test_data(fresh: Callable[..., Path]) -> None:
    undisturbed = fresh()
    end = run(DATA, undisturbed)
    assert end.code == 0, end.said
    expected = content(undisturbed)
    assert len([name for name in expected if name.endswith(".png")]) == 5
    for folder in kill_often(DATA, fresh, KILLS, seed=4):
        assert content(folder) == expected


def test_report(fresh: Callable[..., Path]) -> None:
    def with_records() -> Path:
        folder = fresh()
        write(folder / "results", make_records(losses=[SH], scenarios=["4"]))
        return folder

    undisturbed = with_records()
    end = run(REPORT, undisturbed)
    assert end.code == 0, end.said
    expected = content(undisturbed)
    assert len(expected["report.html"]) > 10_000
    for folder in kill_often(REPORT, with_records, KILLS, seed=5):
        assert content(folder) == expected
