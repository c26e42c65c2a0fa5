"""Folders of pictures: what is in them, kill -9, settings, patches, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pictured_scenes import STATES, TALLEST, TINY, WIDE, WORLD
from repository import ROOT
from setwise.data import Blocksworld
from setwise.data.blocksworld_archive import BlocksworldArchive
from setwise.data.blocksworld_steps import state_from_json
from setwise.render import (
    Block,
    Environment,
    boxes,
    collect,
    open_renderer,
    render_states,
    scene_of,
)
from setwise.render.files import prepare
from setwise.render.patches import transitions_among


def content(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    render_states(TINY, STATES, folder, workers=1)
    return folder


def test_a_folder_holds_a_picture_and_a_description_of_each_state(undisturbed: Path) -> None:
    world = TINY.environment.world
    ranks = world.rank(STATES).tolist()
    expected = {f"images/{rank:08d}.png" for rank in ranks}
    expected |= {f"scenes/{rank:08d}.json" for rank in ranks}
    assert set(content(undisturbed)) == expected | {"settings.json"}
    for state, rank in zip(STATES, ranks, strict=True):
        described = json.loads((undisturbed / f"scenes/{rank:08d}.json").read_text())
        scene = scene_of(TINY.environment, state, TINY.seed)
        assert state_from_json(world, described["state"]).equal(state)
        assert described["image_filename"] == f"{rank:08d}.png"
        assert [o["bbox"] for o in described["objects"]] == boxes(scene, 48, 32).tolist()
        for placed, object in zip(scene.blocks, described["objects"], strict=True):
            assert set(object) == {
                *("shape", "size", "color", "material", "rotation", "location"),
                *("pixel_coords", "bbox"),
            }
            assert (object["shape"], object["size"]) == (placed.block.shape, placed.block.size)
            assert (object["color"], object["material"]) == (placed.block.colour, placed.material)
            assert object["location"] == list(placed.location)
        with Image.open(undisturbed / f"images/{rank:08d}.png") as image:
            assert image.size == (48, 32)
    with (
        open_renderer(width=48, height=32, samples=8) as draw,
        Image.open(undisturbed / f"images/{ranks[0]:08d}.png") as image,
    ):
        assert np.array_equal(
            np.array(image), draw(scene_of(TINY.environment, STATES[0], TINY.seed))
        )


@pytest.mark.parametrize("settings", [None, '{"width": 7}'])
def test_only_a_folder_of_pictures_is_cleaned(settings: str | None, tmp_path: Path) -> None:
    """Somebody else's may have something unfinished as well."""
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished" / "novel").write_text("theirs")
    if settings is not None:
        (tmp_path / "settings.json").write_text(settings)
    before = content(tmp_path)
    said = "not of pictures" if settings is None else "made with other settings"
    with pytest.raises(ValueError, match=said):
        prepare(tmp_path, {"width": 48})
    assert content(tmp_path) == before


CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, {support!r})
from pictured_scenes import STATES, TINY
from setwise.render import render_states

if __name__ == "__main__":
    render_states(TINY, STATES, {folder!r}, workers=2, progress=lambda *n: print(*n, flush=True))
"""


# Slow: three processes load Mitsuba, and are waited for. The first tier looks at what one draws.
@pytest.mark.slow
def test_killed_and_started_again_it_ends_with_the_same_bytes(
    undisturbed: Path, tmp_path: Path
) -> None:
    """kill -9 after two pictures; workers find out and stop; the rest is drawn by one process."""
    folder = tmp_path / "pictures"
    script = tmp_path / "child.py"
    support = str(ROOT / "tests" / "support")
    script.write_text(CHILD.format(support=support, folder=str(folder)))
    child = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "1 12\n"
    assert child.stdout.readline() == "2 12\n"
    with pytest.raises(BlockingIOError, match=f"process {child.pid} on .* is drawing into it"):
        render_states(TINY, STATES, folder, workers=1)
    child.kill()
    child.stdout.close()
    child.wait()
    (folder / "unfinished").mkdir(exist_ok=True)
    (folder / "unfinished" / "1-00000001.png").write_bytes(b"half a pic")
    _wait_until_quiet(folder)
    there = len(list((folder / "scenes").iterdir()))
    assert 2 <= there < 12
    seen: list[tuple[int, int]] = []
    render_states(TINY, STATES, folder, workers=1, progress=lambda *n: seen.append(n))
    assert seen == [(n, 12) for n in range(there + 1, 13)]
    assert content(folder) == content(undisturbed)
    render_states(TINY, STATES, folder, workers=2, progress=lambda *n: seen.append(n))
    assert len(seen) == 12 - there  # nothing was left to do


def _wait_until_quiet(folder: Path) -> None:
    """Until the workers of the killed process have found out and no file appears any more."""
    before, since = -1, time.monotonic()
    while time.monotonic() - since < 1.5:
        files = len(content(folder))
        if files != before:
            before, since = files, time.monotonic()
        time.sleep(0.1)


def test_a_folder_keeps_to_its_settings(undisturbed: Path) -> None:
    before = content(undisturbed)
    for other, message in (
        (replace(TINY, seed=5), "seed 4 instead of 5"),
        (replace(TINY, samples=32), "samples 8 instead of 32"),
        (replace(TINY, environment=Environment.draw(Blocksworld(3, 3), 2)), "environment"),
    ):
        with pytest.raises(ValueError, match=f"other settings .*{message}.*use another folder"):
            render_states(other, STATES, undisturbed, workers=1)
    assert content(undisturbed) == before


# Slow: two processes start each time. The first tier has a program that fails in this one.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "message"),
    [
        ("exit 3", "(?s)a process that draws failed:.*ended with code 3: so sorry"),
        ("kill -9 $PPID", "a process that draws was killed.*start again to go on"),
    ],
)
def test_a_failing_worker_is_reported(ending: str, message: str, tmp_path: Path) -> None:
    """By a program that gives a version, as Blender does, and then ends or takes us along."""
    program = tmp_path / "program"
    program.write_text(
        "#!/bin/sh\nif [ $1 = --version ]; then echo Blender 9; exit; fi\n"
        f"echo so sorry\n{ending}\n"
    )
    program.chmod(0o755)
    settings = replace(TINY, renderer="blender")
    with pytest.raises(RuntimeError, match=message):
        render_states(settings, STATES[:2], tmp_path / "x", workers=2, blender=program)
    assert json.loads((tmp_path / "x" / "settings.json").read_text())["version"] == "blender 9"


def test_blocks_are_cut_out(undisturbed: Path, tmp_path: Path) -> None:
    world = TINY.environment.world
    archive = collect(world, STATES, undisturbed)
    assert archive.picture == (32, 48)
    assert archive.patches.shape == (12, 3, 32, 32, 3)
    rank = int(world.rank(STATES[3]))
    scene = scene_of(TINY.environment, STATES[3], TINY.seed)
    assert np.array_equal(archive.boxes[3], boxes(scene, 48, 32))
    with Image.open(undisturbed / f"images/{rank:08d}.png") as image:
        for patch, (x1, y1, x2, y2) in zip(
            archive.patches[3], archive.boxes[3].tolist(), strict=True
        ):
            part = np.array(image)[y1:y2, x1:x2].reshape(-1, 3)
            assert np.abs(patch.reshape(-1, 3).mean(0) - part.mean(0)).max() < 8
            assert (patch.reshape(-1, 3).max(0) <= part.max(0)).all()
            assert (patch.reshape(-1, 3).min(0) >= part.min(0)).all()
    archive.write(tmp_path / "blocks.npz")
    again = BlocksworldArchive.read(tmp_path / "blocks.npz")
    assert np.array_equal(again.patches, archive.patches)
    with pytest.raises(ValueError, match="not of Blocksworld"):
        collect(WORLD, WORLD.sample(1, 0), undisturbed)
    with pytest.raises(FileNotFoundError, match="has no picture of state"):
        collect(world, world.sample(13, seed=0), undisturbed)
    with pytest.raises(FileNotFoundError, match="no folder of pictures"):
        collect(world, STATES, tmp_path)


def test_transitions_among_some_states() -> None:
    world = Blocksworld(3, 3)
    states = world.sample(200, seed=0)
    legal = world.is_legal_action(states[:, None], states[None]).nonzero().tolist()
    assert len(legal) > 100
    assert sorted(transitions_among(world, states).tolist()) == legal
    assert transitions_among(world, states[:0]).shape == (0, 2)
    assert len(transitions_among(world, world.states())) == world.number_of_transitions


# A process of its own; in the first tier the doctor misses Mitsuba in this one.
@pytest.mark.slow
def test_missing_packages_name_the_extra() -> None:
    code = """
import sys
sys.modules["mitsuba"] = sys.modules["drjit"] = sys.modules["PIL"] = None
import setwise.render

def message(call):
    try:
        call()
    except ModuleNotFoundError as error:
        return str(error)
    raise SystemExit("expected an error")

def use(name):
    with setwise.render.open_renderer(name):
        pass

remedy = "; install it with pip install 'setwise[render]'"
said = message(lambda: use("mitsuba"))
assert said == "the renderer mitsuba needs mitsuba" + remedy, said
said = message(lambda: use("blender"))
assert said == "the renderer blender needs pillow" + remedy, said
said = message(lambda: setwise.render.render_states)
assert said == "setwise.render.render_states needs pillow" + remedy, said
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def opened(*arguments: Any, **options: Any) -> None:
    with open_renderer(*arguments, **options):
        pass


BAD_CALLS: list[tuple[Callable[[], object], type[Exception], str]] = [
    (
        lambda: opened("povray"),
        ValueError,
        "^renderer: expected one of mitsuba, blender, torch, sketch, got",
    ),
    (lambda: opened(width=0), ValueError, "^width: must be at least 1, got 0"),
    (lambda: opened(height=2.5), TypeError, "^height: expected an int, got float"),
    (lambda: opened(samples=0), ValueError, "^samples: must be at least 1, got 0"),
    (lambda: opened(threads=0), ValueError, "^threads: must be at least 1, got 0"),
    (
        lambda: Block("cone", "large", "red", 0.0),
        ValueError,
        "^shape: .* cube, cylinder, sphere, got",
    ),  # type: ignore[arg-type]
    (lambda: Block("cube", "huge", "red", 0.0), ValueError, "^size: .* large, small, got 'huge'"),
    (lambda: Block("cube", "large", "pink", 0.0), ValueError, "^colour: expected one of gray, "),
    (
        lambda: replace(WIDE, blocks=TALLEST[:4]),
        ValueError,
        "expected 5 blocks and 3 stacks, got 4",
    ),
    (lambda: replace(WIDE, stack_x=(0.0, 2.0)), ValueError, "5 blocks and 3 stacks, got 5 and 2"),
    (lambda: Environment.draw(Blocksworld(9), 0), ValueError, "there are 8 colours"),
    (lambda: Environment.draw(WORLD, -1), ValueError, "^seed: must be at least 0"),
    (lambda: scene_of(WIDE, WORLD.sample(1, 0), 0), ValueError, r"^state: .* \[5, 3\], got"),
    (lambda: scene_of(WIDE, WORLD.sample(1, 0)[0], -1), ValueError, "^seed: must be at least 0"),
    (lambda: replace(TINY, seed=-1), ValueError, "^seed: must be at least 0"),
    (lambda: replace(TINY, samples=0), ValueError, "^samples: must be at least 1"),
    (lambda: replace(TINY, renderer="povray"), ValueError, "^renderer: expected one"),  # type: ignore[arg-type]
    (lambda: render_states(TINY, STATES, "x", workers=0), ValueError, "^workers: must be at least"),
    (lambda: render_states(TINY, STATES + 1, "x"), ValueError, "^states: expected for each"),
]


@pytest.mark.parametrize(("call", "error", "message"), BAD_CALLS)
def test_bad_calls_are_refused_by_name(
    call: Callable[[], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call()
