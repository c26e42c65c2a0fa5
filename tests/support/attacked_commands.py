"""Every long command in a size that takes a moment, what it needs, and what it leaves behind."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from killed import Command, nothing
from lit_blocks import lit_archive
from made_small import painted, small_demo, small_table5, tiny_table
from recorded import SH, make_records, write
from setwise.cli.new import rectangles
from setwise.data.rows import write_rows
from setwise.experiments.config import Config
from setwise.experiments.recipes.own_rows import on_own_rows
from setwise.experiments.saved_networks import save_network
from setwise.experiments.tasks.rows import rows_data
from setwise.experiments.train import Training
from setwise.planning import problems_for
from setwise.planning.actions.files import write_problem, write_recording
from setwise.planning.actions.walks import record_walks
from setwise.worlds import PuzzleWorld
from tiny_experiments import puzzle_config
from tiny_recipe import OWN

# Names of what is put into the folder of a command.
NETWORK, ROWS, STEPS, PROBLEM, ARCHIVE = "net", "rooms.jsonl", "steps.jsonl", "ends.json", "all.npz"
_TRAINING = ("--device", "cpu", "--commit", "c", "--save-every", "1e-9")


@cache
def _network() -> bytes:
    """Of the 2 x 2 puzzle; it has learned nothing."""
    return _saved(puzzle_config())


@cache
def _archive() -> bytes:
    with tempfile.TemporaryDirectory() as name:
        lit_archive().write(Path(name) / ARCHIVE)
        return (Path(name) / ARCHIVE).read_bytes()


@cache
def _rows_network() -> bytes:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / ROWS
        write_rows(path, rectangles(16))
        [config] = on_own_rows(rows_data(path, "objects", None, 0.25), epochs=1).configs([0])
        return _saved(config)


def _saved(config: Config) -> bytes:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / NETWORK
        save_network(path, Training([config], "cpu"), 0)
        return path.read_bytes()


def _put_clevr(folder: Path) -> None:
    """Three pictures of noise, each with one object in the middle."""
    thing = {
        **{"shape": "cube", "color": "red", "material": "metal", "size": "large"},
        **{"3d_coords": [0.5, -1.0, 0.7], "pixel_coords": [240, 160, 9.0]},
    }
    noise = np.random.default_rng(0)
    (folder / "images").mkdir()
    scenes = []
    for number in range(3):
        picture = noise.integers(0, 256, (320, 480, 3), np.uint8)
        Image.fromarray(picture).save(folder / "images" / f"{number}.png")
        scenes.append({"image_filename": f"{number}.png", "objects": [thing]})
    (folder / "scenes.json").write_text(json.dumps({"scenes": scenes}))


def _put_steps(folder: Path) -> None:
    world = PuzzleWorld(2, 2)
    recording = record_walks(world, 40, 0, 10)
    write_recording(recording, folder / STEPS)
    [problem] = problems_for(world, 3, 1, 0)
    states = (recording.symbols.state(end) for end in (problem.init, problem.goal))
    write_problem(*map(recording.symbols.elements, states), folder / PROBLEM)


@dataclass(frozen=True)
class Attacked:
    """A command, and how to put into a folder what it needs."""

    command: Command
    put: Callable[[Path], object] = lambda folder: None

    def fresh(self, place: Path) -> Path:
        """A new folder for it."""
        folder = Path(tempfile.mkdtemp(dir=place))
        self.put(folder)
        return folder


def _typed(words: str, prepare: Callable[[], None] = nothing, *more: str) -> Command:
    return Command((*words.split(), *more), prepare)


# All that write more than a file, or take long to write it; `bench` is left out, whose files hold
# how long something took.
COMMANDS = {
    "train FILE.py": Attacked(
        _typed("train own.py --keep all", nothing, *_TRAINING),
        lambda folder: (folder / "own.py").write_text(OWN),
    ),
    "train ROWS": Attacked(
        _typed(f"train {ROWS} --target objects --epochs 3 --held-out 0.25", nothing, *_TRAINING),
        lambda folder: write_rows(folder / ROWS, rectangles(16)),
    ),
    "predict": Attacked(
        _typed(f"predict {NETWORK} {ROWS} --output sets.jsonl"),
        lambda folder: (
            (folder / NETWORK).write_bytes(_rows_network()),
            write_rows(folder / ROWS, rectangles(16)),
        ),
    ),
    "reproduce table1": Attacked(
        _typed("reproduce table1 --preset tiny --losses SH H --keep best", tiny_table, *_TRAINING)
    ),
    "reproduce table5": Attacked(
        _typed("reproduce table5 --preset quick", small_table5, *_TRAINING)
    ),
    "data blocksworld": Attacked(
        _typed(
            "data blocksworld --blocks 3 --states 5 --width 60 --height 40 --workers 1 "
            "--output pictures",
            painted,
        )
    ),
    "data scenes": Attacked(
        _typed(
            "data scenes --train 3 --heldout 1 --renderer sketch --samples 1 --width 48 "
            "--height 48 --workers 1 --output scenes"
        )
    ),
    "data clevr": Attacked(_typed("data clevr images scenes.json --output clevr.npz"), _put_clevr),
    "plan": Attacked(
        _typed(f"plan puzzle --network {NETWORK} --steps 4 --output out --record plans"),
        lambda folder: (folder / NETWORK).write_bytes(_network()),
    ),
    "demo": Attacked(_typed("demo --output demo", small_demo)),
    "report": Attacked(
        _typed("report --benchmarks results"),
        lambda folder: write(folder / "results", make_records(losses=[SH], scenarios=["4"])),
    ),
    "actions record": Attacked(
        _typed(
            f"actions record puzzle-2x2 -o {STEPS} --transitions 40 --problem {PROBLEM} --steps 3"
        )
    ),
    "actions see": Attacked(
        _typed(
            f"actions see {ARCHIVE} -o {STEPS} --transitions 60 --symbols symbols.safetensors "
            f"--problem {PROBLEM}"
        ),
        lambda folder: (folder / ARCHIVE).write_bytes(_archive()),
    ),
    "actions learn": Attacked(_typed(f"actions learn {STEPS} -o domain.pddl"), _put_steps),
    "actions plan": Attacked(_typed(f"actions plan {STEPS} {PROBLEM} -o out"), _put_steps),
    "new": Attacked(_typed("new project")),
}
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
