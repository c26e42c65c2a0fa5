"""Pictures by Mitsuba and by Blender, which are oracles for each other.

Without Blender its tests are skipped and say so, unless SETWISE_TEST_EVERYTHING is set: then they
fail.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pictured_scenes import boxes_of, scenes
from programs import is_missing
from setwise.data import Blocksworld
from setwise.render import (
    Block,
    Environment,
    Scene,
    blender_script,
    boxes,
    open_renderer,
    scene_of,
    visible_blocks,
)
from setwise.render.blender import BlenderRenderer, describe, find_blender
from setwise.render.environment import COLOURS
from setwise.render.mitsuba import _mean_without_dots


@pytest.fixture(scope="module")
def small() -> Iterator[Callable[[Scene], NDArray[np.uint8]]]:
    with open_renderer("mitsuba", width=90, height=60, samples=8) as draw:
        yield draw


def test_a_scene_always_gives_the_same_picture(small: Callable[[Scene], NDArray[np.uint8]]) -> None:
    """Whatever the number of threads, by which Mitsuba would divide the picture if it could."""
    scene = scenes(1)[0]
    picture = small(scene)
    assert picture.shape == (60, 90, 3)
    assert picture.dtype == np.uint8
    assert np.array_equal(picture, small(scene))
    for threads in (1, 2, 16):
        with open_renderer(width=90, height=60, samples=8, threads=threads) as draw:
            assert np.array_equal(picture, draw(scene))
    noise = np.abs(picture.astype(float) - small(replace(scene, noise=1)))
    assert 0.5 < noise.mean() < 8


def test_pictures_are_as_bright_as_they_should_be(
    small: Callable[[Scene], NDArray[np.uint8]],
) -> None:
    means = [small(scene).mean() for scene in scenes(4)]
    assert 85 < min(means) < max(means) < 115


def test_metal_reflects_and_rubber_does_not(small: Callable[[Scene], NDArray[np.uint8]]) -> None:
    """Next to a block of another colour only metal looks different."""
    world = Blocksworld(blocks=2, stacks=2)
    change = {}
    for metal, material in enumerate(("rubber", "metal")):
        state, pictures = torch.tensor([[0, 0, metal], [1, 0, 0]]), []
        for neighbour in ("red", "cyan"):
            blocks = [Block("cylinder", "large", colour, 0.0) for colour in ("yellow", neighbour)]
            scene = scene_of(Environment(world, tuple(blocks), (-0.8, 0.8)), state, seed=0)
            assert scene.blocks[0].material == material
            x1, y1, x2, y2 = boxes(scene, 90, 60)[0]
            pictures.append(small(scene)[y1:y2, x1 : x2 - 1].astype(float))
        change[material] = np.quantile(np.abs(pictures[0] - pictures[1]), 0.95)
    assert change["metal"] > 2 * change["rubber"]


def test_every_colour_can_be_told(small: Callable[[Scene], NDArray[np.uint8]]) -> None:
    """The middle of a rubber block is nearest to its own colour's hue among all eight."""
    world = Blocksworld(blocks=1, stacks=2)
    seen = {}
    for colour in COLOURS:
        environment = Environment(world, (Block("cube", "large", colour, 0.0),), (0.0, 1.5))
        scene = scene_of(environment, world.unrank(torch.tensor(0)), seed=0)
        x1, y1, x2, y2 = boxes(scene, 90, 60)[0].astype(int)
        middle = small(scene)[y1 + 2 : y2 - 2, x1 + 2 : x2 - 2].reshape(-1, 3).mean(0)
        seen[colour] = middle
    apart = [np.abs(one - two).max() for one, two in combinations(seen.values(), 2)]
    assert min(apart) > 15


def test_dots_are_left_out_and_light_is_not() -> None:
    passes = np.full((2, 4, 4, 3), 0.2, dtype=np.float32)
    passes[1, 1, 1] = 50.0  # a chance of one pass
    passes[0, 2, 2], passes[1, 2, 2] = 30.0, 28.0  # a highlight in both
    mean = _mean_without_dots(passes)
    assert mean[1, 1] == pytest.approx(0.2)
    assert mean[2, 2] == pytest.approx(29.0)
    assert mean[0] == pytest.approx(0.2)


def test_samples_lower_the_noise() -> None:
    scene = scenes(1)[0]
    noise = []
    for samples in (8, 32):
        with open_renderer(width=60, height=40, samples=samples) as draw:
            one, two = (draw(replace(scene, noise=n)).astype(float) for n in (1, 101))
        noise.append((one - two).std())
    assert noise[1] < 0.7 * noise[0]


# Slow: Blender starts and draws. Mitsuba draws the same scenes above, and tests of folders have a
# program in the place of Blender.
runs_blender = pytest.mark.slow


@pytest.fixture(scope="module")
def blender() -> str:
    try:
        return find_blender()
    except FileNotFoundError as error:
        is_missing(str(error))


# Runs inside Blender: the block that Blender itself finds at the middle of each point.
RAYS = """
import importlib.util, json, sys
import bpy
from mathutils import Vector

spec = importlib.util.spec_from_file_location("script", {script!r})
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)
answers = []
for job in json.load(open({jobs!r})):
    script.build(job)
    scene, camera = bpy.context.scene, bpy.context.scene.camera
    scene.render.resolution_x, scene.render.resolution_y = job["width"], job["height"]
    bpy.context.view_layer.update()
    graph = bpy.context.evaluated_depsgraph_get()
    corners = camera.data.view_frame(scene=scene)  # right top, right bottom, left bottom, left top
    right, down = corners[0] - corners[3], corners[2] - corners[3]
    rows = []
    for y in range(job["height"]):
        row = []
        for x in range(job["width"]):
            across, below = (x + 0.5) / job["width"], (y + 0.5) / job["height"]
            point = corners[3] + right * across + down * below
            way = camera.matrix_world @ point - camera.matrix_world.translation
            hit = scene.ray_cast(graph, camera.matrix_world.translation, way.normalized())
            name = hit[4].name if hit[0] else "ground"
            row.append(int(name[5:]) if name.startswith("block") else -1)
        rows.append(row)
    answers.append(rows)
json.dump(answers, open({output!r}, "w"))
"""


@runs_blender
def test_blender_sees_the_same_blocks_at_the_same_places(blender: str, tmp_path: Path) -> None:
    """Blender's camera and geometry, not ours: boxes within a pixel, points equal."""
    chosen = scenes(1)[::2]
    jobs = [describe(scene) | {"width": 4 * 75, "height": 4 * 50} for scene in chosen]
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    names = {"script": blender_script.__file__, "jobs": str(tmp_path / "jobs.json")}
    (tmp_path / "rays.py").write_text(RAYS.format(**names, output=str(tmp_path / "owners.json")))
    options = ["--background", "--factory-startup", "--python-exit-code", "1", "--python"]
    subprocess.run([blender, *options, str(tmp_path / "rays.py")], check=True, capture_output=True)
    for scene, rows in zip(chosen, json.loads((tmp_path / "owners.json").read_text()), strict=True):
        owner, found = np.array(rows), visible_blocks(scene, 75, 50)
        assert (owner != found).mean() < 0.001
        assert np.abs(boxes_of(owner, 5, fine=4) - boxes(scene, 75, 50).astype(int)).max() <= 1


@runs_blender
def test_blender_and_mitsuba_draw_the_same_picture(blender: str) -> None:
    chosen = scenes(2)[:2]
    size: dict[str, Any] = {"width": 90, "height": 60}
    with open_renderer("blender", **size, samples=64, blender=blender) as draw:
        by_blender = [draw(scene) for scene in chosen]
        assert np.array_equal(draw(chosen[0]), by_blender[0])
    with open_renderer("mitsuba", **size, samples=72) as draw:
        by_mitsuba = [draw(scene) for scene in chosen]
    for scene, one, two in zip(chosen, by_blender, by_mitsuba, strict=True):
        assert one.shape == two.shape == (60, 90, 3)
        difference = one.astype(float) - two
        assert np.abs(difference).mean() < 4
        assert abs(difference.mean()) < 2
        for x1, y1, x2, y2 in boxes(scene, 90, 60).astype(int):
            window = np.s_[y1 - 2 : y2 + 2, x1 - 2 : x2 + 2]
            shifts = {
                (dx, dy): np.abs(
                    np.roll(one, (dy, dx), (0, 1))[window].astype(float) - two[window]
                ).mean()
                for dx in (-2, -1, 0, 1, 2)
                for dy in (-2, -1, 0, 1, 2)
            }
            assert min(shifts, key=lambda shift: shifts[shift]) == (0, 0)


@runs_blender
def test_blender_says_what_went_wrong(blender: str) -> None:
    renderer = BlenderRenderer(30, 20, 1, program=blender)
    scene = scenes(1)[0]
    dark = replace(scene.lamps[0], colour=(0.0, 0.0, 0.0))
    with pytest.raises(RuntimeError, match="could not draw a scene: ZeroDivisionError"):
        renderer(replace(scene, lamps=(dark,)))
    assert renderer(scene).shape == (20, 30, 3)  # it goes on
    os.kill(renderer._blender.pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="ended with code -9"):
        renderer(scene)


def test_without_blender() -> None:
    """These need no Blender."""
    with pytest.raises(FileNotFoundError, match=r"/no/such is no program .* the path of Blender"):
        find_blender("/no/such")
    with pytest.raises(RuntimeError, match="ended with code"):
        BlenderRenderer(30, 20, 1, program="true")


def test_a_path_without_blender(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        pytest.raises(FileNotFoundError, match=r"no Blender on the PATH: install it .*apt-get"),
        open_renderer("blender"),
    ):
        pass
