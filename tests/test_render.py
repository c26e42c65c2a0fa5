"""Scenes and pictures of the Blocksworld: geometry, boxes, both renderers, and folders of pictures.

Renderers are oracles for each other and for the boxes. Without Blender its tests are skipped and
say so, unless SETWISE_TEST_EVERYTHING is set: then they fail.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from programs import is_missing
from setwise.data import Blocksworld
from setwise.data.blocksworld_archive import BlocksworldArchive
from setwise.data.blocksworld_steps import state_from_json
from setwise.render import (
    Block,
    Environment,
    Scene,
    Settings,
    blender_script,
    boxes,
    collect,
    open_renderer,
    render_states,
    scene_of,
    visible_blocks,
)
from setwise.render import scene as looks
from setwise.render.blender import BlenderRenderer, describe, find_blender
from setwise.render.environment import COLOURS, SHAPES, SIZES
from setwise.render.mitsuba import MitsubaRenderer, _mean_without_dots, bodies
from setwise.render.patches import transitions_among
from setwise.render.shapes import backdrop, block_mesh, distance
from setwise.render.silhouette import project, require_in_frame

WORLD = Blocksworld(blocks=5, stacks=3)
# The largest blocks there are, as far apart and as close together as stacks can be.
TALLEST = tuple(Block("cylinder", "large", colour, 0.0) for colour in list(COLOURS)[:5])
WIDE = Environment(WORLD, TALLEST, (-2.0, 0.0, 2.0))
CLOSE = Environment(WORLD, TALLEST, (-1.5, 0.0, 1.5))


def scenes(count: int) -> list[Scene]:
    """States of several environments, and the extreme ones."""
    environments = [Environment.draw(WORLD, seed) for seed in range(count)] + [WIDE, CLOSE]
    found = [scene_of(e, WORLD.sample(1, n)[0], seed=n) for n, e in enumerate(environments)]
    tower = WORLD.unrank(torch.tensor(31))  # all on the first stack, all metal
    return [*found, scene_of(WIDE, tower, seed=0), scene_of(CLOSE, tower, seed=1)]


# Bodies.


@pytest.mark.parametrize("half", SIZES.values())
@pytest.mark.parametrize("shape", SHAPES)
def test_blocks_are_closed_rounded_bodies(shape: Any, half: float) -> None:
    mesh = block_mesh(shape, half)
    assert mesh.vertices.min(0) == pytest.approx([-half] * 3)
    assert mesh.vertices.max(0) == pytest.approx([half] * 3)
    assert np.abs(distance(shape, half, mesh.vertices)).max() < 1e-12
    assert np.linalg.norm(mesh.normals, axis=1) == pytest.approx(1)
    # The normal is the direction in which the distance grows.
    away = distance(shape, half, mesh.vertices + 0.01 * mesh.normals)
    assert away == pytest.approx(0.01)
    corners = mesh.vertices[mesh.faces]
    across = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    assert ((across * mesh.normals[mesh.faces].mean(1)).sum(-1) > 0).all()
    # Closed: the faces, as vectors, cancel out. The volume is a little less than with sharp edges.
    assert np.abs(across.sum(0)).max() < 1e-12
    volume = (corners[:, 0] * across).sum() / 6
    sharp = 8 * half**3 * (1 if shape == "cube" else math.pi / 4)
    assert 0.97 * sharp < volume < 0.995 * sharp


def test_distance_outside_and_inside() -> None:
    points = np.array([[0.0, 0, 0], [1.0, 0, 0], [0, 0, -2.0], [0.9, 1.3, 0]])
    assert distance("cube", 0.5, points) == pytest.approx(
        [-0.5, 0.5, 1.5, math.hypot(0.46, 0.86) - 0.06]
    )
    assert distance("cylinder", 0.5, points)[:3] == pytest.approx([-0.5, 0.5, 1.5])
    assert distance("cylinder", 0.5, points)[3] == pytest.approx(math.hypot(0.9, 1.3) - 0.5)


def test_the_ground_is_flat_under_the_blocks_and_sweeps_up_behind() -> None:
    mesh = backdrop()
    assert mesh.vertices.max(0) == pytest.approx([60, 38, 23])
    assert (mesh.vertices[mesh.vertices[:, 1] <= 15.0, 2] == 0).all()
    corners = mesh.vertices[mesh.faces]
    across = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    assert ((across * mesh.normals[mesh.faces].mean(1)).sum(-1) > 0).all()


# Scenes.


def test_blocks_rest_on_the_ground_or_on_each_other() -> None:
    for seed in range(20):
        environment = Environment.draw(WORLD, seed)
        state = WORLD.sample(1, seed)[0]
        scene = scene_of(environment, state, seed)
        rows = state.tolist()
        for number, ((stack, level, metal), placed) in enumerate(
            zip(rows, scene.blocks, strict=True)
        ):
            assert placed.block == environment.blocks[number]
            assert placed.material == ("metal" if metal else "rubber")
            x, y, z = placed.location
            assert (x, y) == (environment.stack_x[stack], 0.0)
            below = [
                b
                for b, row in zip(scene.blocks, rows, strict=True)
                if row[:2] == [stack, level - 1]
            ]
            floor = below[0].location[2] + below[0].block.half if below else 0.0
            assert len(below) == (level > 0)
            assert z - placed.block.half == pytest.approx(floor)


def test_no_block_is_inside_another() -> None:
    for scene in scenes(6):
        for one, other in combinations(scene.blocks, 2):
            mesh = block_mesh(one.block.shape, one.block.half).placed(
                one.block.rotation, one.location
            )
            seen_from_other = mesh.vertices - other.location
            angle = -math.radians(other.block.rotation)
            turned = seen_from_other.copy()
            turned[:, 0] = (
                math.cos(angle) * seen_from_other[:, 0] - math.sin(angle) * seen_from_other[:, 1]
            )
            turned[:, 1] = (
                math.sin(angle) * seen_from_other[:, 0] + math.cos(angle) * seen_from_other[:, 1]
            )
            assert distance(other.block.shape, other.block.half, turned).min() > -1e-9


def test_environments_are_drawn_from_the_seed() -> None:
    drawn = [Environment.draw(WORLD, seed) for seed in range(200)]
    assert drawn[7] == Environment.draw(WORLD, 7)
    assert len(set(drawn)) == 200
    blocks = [block for environment in drawn for block in environment.blocks]
    assert {(b.shape, b.size) for b in blocks} == {(a, b) for a in SHAPES for b in SIZES}
    assert {block.colour for block in blocks} == set(COLOURS)
    assert all(len({block.colour for block in e.blocks}) == 5 for e in drawn)
    assert 0 <= min(b.rotation for b in blocks) < 10 < 350 < max(b.rotation for b in blocks) < 360
    gaps = np.diff([environment.stack_x for environment in drawn])
    assert 1.5 <= gaps.min() < 1.51 < 1.99 < gaps.max() <= 2.0
    assert np.abs([e.stack_x[0] + e.stack_x[-1] for e in drawn]).max() < 1e-3


def test_jitter_comes_from_seed_and_state_and_stays_within_bounds() -> None:
    environment = Environment.draw(WORLD, 0)
    states = WORLD.sample(300, seed=0)
    drawn = [scene_of(environment, state, seed=1) for state in states]
    assert drawn[5] == scene_of(environment, states[5], seed=1)
    assert drawn[5].camera != scene_of(environment, states[5], seed=2).camera
    assert len({scene.noise for scene in drawn}) == len({scene.camera for scene in drawn}) == 300
    camera = np.array([scene.camera for scene in drawn]) - [0, -16, 6]
    assert 0.48 < np.abs(camera).max() <= 0.5
    assert np.abs(camera.mean(0)).max() < 5 * 0.5 / math.sqrt(3 * 300)
    lamps = np.array([[lamp.position for lamp in scene.lamps] for scene in drawn])
    lamps -= [lamp.position for lamp in looks.LAMPS]
    assert 0.98 < np.abs(lamps).max() <= 1.0
    assert np.abs(lamps.mean(0)).max() < 5 * 1.0 / math.sqrt(3 * 300)
    together = np.concatenate([camera, lamps.reshape(300, -1)], axis=1)
    correlation = np.corrcoef(together.T) - np.eye(12)
    assert np.abs(correlation).max() < 5 / math.sqrt(300)


def test_draws_never_change() -> None:
    """Published pictures rest on these seeds."""
    environment = Environment.draw(WORLD, 0)
    assert environment.blocks[0] == Block("cylinder", "small", "brown", 103.619)
    assert environment.stack_x == (-1.7859, -0.0169, 1.7859)
    scene = scene_of(environment, WORLD.unrank(torch.tensor(1234)), seed=0)
    assert scene.camera == pytest.approx((0.110536605, -15.81823479, 6.350207337))
    assert scene.noise == 597488579


# Boxes.


def owners_by_mitsuba(scene: Scene, width: int, height: int) -> NDArray[np.int64]:
    """The block [H, W] at one random point of each pixel, -1 for none, by Mitsuba's own rays."""
    import mitsuba as mi

    sensor = MitsubaRenderer(width, height, samples=1)._sensor(scene)
    integrator = {"type": "aov", "aovs": "id:shape_index"}
    with mi.util.variant_context("scalar_rgb"):
        whole = mi.load_dict(
            {"type": "scene", "integrator": integrator, "sensor": sensor, **bodies(scene)}
        )
        index = np.array(mi.render(whole, spp=1))[..., 0].astype(np.int64)
        names = ["nothing", *(shape.id() for shape in whole.shapes())]
    numbers = [int(name[5:]) if name.startswith("block") else -1 for name in names]
    return np.array(numbers)[index]


def boxes_of(owner: NDArray[Any], blocks: int, fine: int) -> NDArray[np.int64]:
    """Boxes [N, 4] in pixels of a map with ``fine`` points along each side of a pixel."""
    found = []
    for number in range(blocks):
        y, x = (owner == number).nonzero()
        edges = (x.min() // fine, y.min() // fine, x.max() // fine + 1, y.max() // fine + 1)
        found.append(edges)
    return np.array(found)


def test_boxes_are_those_of_mitsuba() -> None:
    """Within a pixel of what it sees at random points, four by four in each, and mostly equal."""
    same = []
    for scene in scenes(1):
        expected = boxes_of(owners_by_mitsuba(scene, 4 * 75, 4 * 50), 5, fine=4)
        found = boxes(scene, 75, 50).astype(int)
        assert np.abs(found - expected).max() <= 1
        same.append((found == expected).mean())
    assert np.mean(same) > 0.8


def test_points_belong_to_the_block_in_front() -> None:
    """At the very same points but for the jitter within each: only outlines may differ."""
    for scene in scenes(2):
        found = visible_blocks(scene, 75, 50)
        expected = owners_by_mitsuba(scene, 4 * 75, 4 * 50)
        assert (found != expected).mean() < 0.01
        inside = np.ones_like(found, dtype=bool)
        for axis in (0, 1):
            for step in (-1, 1):
                inside &= found == np.roll(found, step, axis)
        assert (found == expected)[inside].mean() > 0.999


def test_boxes_follow_the_true_outline() -> None:
    """A cube on edge is wider than the box of the same cube that was never turned."""
    world = Blocksworld(blocks=1, stacks=2)
    widths = []
    for rotation in (0.0, 45.0):
        block = Block("cube", "large", "red", rotation)
        environment = Environment(world, (block,), (0.0, 1.5))
        x1, _, x2, _ = boxes(scene_of(environment, world.unrank(torch.tensor(0)), 0), 300, 200)[
            0
        ].tolist()
        widths.append(x2 - x1)
    flat, on_edge = widths
    assert on_edge > 1.2 * flat


def test_a_hidden_block_gets_no_box_of_its_own() -> None:
    """Boxes are of what is seen: a block moved behind another one shrinks, or is an error."""
    scene = scene_of(WIDE, WORLD.unrank(torch.tensor(0)), seed=0)
    front, behind = scene.blocks[0], scene.blocks[1]
    x = front.location[0]
    hidden = replace(behind, block=replace(behind.block, size="small"), location=(x, 1.5, 0.45))
    with pytest.raises(ValueError, match="block 1 cannot be seen in a picture of 300 x 200"):
        boxes(replace(scene, blocks=(front, hidden)), 300, 200)
    peeping = replace(hidden, location=(x + 0.8, 1.5, 0.45))
    one, two = boxes(replace(scene, blocks=(front, peeping)), 300, 200).astype(int)
    assert one[2] - 3 <= two[0] < one[2] < two[2]  # only the right of it shows


def test_nothing_is_cut_off() -> None:
    require_in_frame(WIDE, 300, 200)
    require_in_frame(WIDE, 60, 40)
    for scene in scenes(8):
        found = boxes(scene, 300, 200)
        assert found.min() > 0
        assert (found[:, 2:] < [300, 200]).all()
    with pytest.raises(ValueError, match=r"300 x 100 would cut off states of .* 7\.0 high"):
        require_in_frame(WIDE, 300, 100)
    with pytest.raises(ValueError, match="100 x 200 would cut off"):
        Settings(replace(WIDE, stack_x=(-8.0, 0.0, 8.0)), width=100, height=200)


def test_middles_are_inside_their_boxes() -> None:
    for scene in scenes(3):
        middles = project(scene.camera, np.array([b.location for b in scene.blocks]), 300, 200)
        found = boxes(scene, 300, 200)
        assert (found[:, :2] < middles[:, :2]).all()
        assert (middles[:, :2] < found[:, 2:]).all()
        assert (np.abs(middles[:, 2] - 16) < 2).all()


# Mitsuba.


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


# Blender.


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


# Folders of pictures.

TINY = Settings(Environment.draw(Blocksworld(3, 3), 1), seed=4, width=48, height=32, samples=8)
STATES = Blocksworld(3, 3).sample(12, seed=0)


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


CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_render import STATES, TINY
from setwise.render import render_states

if __name__ == "__main__":
    render_states(TINY, STATES, {folder!r}, workers=2, progress=lambda *n: print(*n, flush=True))
"""


def test_killed_and_started_again_it_ends_with_the_same_bytes(
    undisturbed: Path, tmp_path: Path
) -> None:
    """kill -9 after two pictures; workers find out and stop; the rest is drawn by one process."""
    folder = tmp_path / "pictures"
    script = tmp_path / "child.py"
    script.write_text(CHILD.format(tests=str(Path(__file__).parent), folder=str(folder)))
    child = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "1 12\n"
    assert child.stdout.readline() == "2 12\n"
    with pytest.raises(RuntimeError, match="another process is drawing into"):
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
        f"#!/bin/sh\nif [ $1 = --version ]; then echo 9; exit; fi\necho so sorry\n{ending}\n"
    )
    program.chmod(0o755)
    settings = replace(TINY, renderer="blender")
    with pytest.raises(RuntimeError, match=message):
        render_states(settings, STATES[:2], tmp_path / "x", workers=2, blender=program)
    assert json.loads((tmp_path / "x" / "settings.json").read_text())["version"] == "9"


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


# What is refused.


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
    (lambda: opened("povray"), ValueError, "^renderer: expected one of mitsuba, blender, got"),
    (lambda: opened(width=0), ValueError, "^width: must be at least 1, got 0"),
    (lambda: opened(height=2.5), TypeError, "^height: expected an int, got float"),
    (lambda: opened(samples=0), ValueError, "^samples: must be at least 1, got 0"),
    (lambda: opened(threads=0), ValueError, "^threads: must be at least 1, got 0"),
    (lambda: Block("cone", "large", "red", 0.0), ValueError, "^shape: .* cube, cylinder, got"),  # type: ignore[arg-type]
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
