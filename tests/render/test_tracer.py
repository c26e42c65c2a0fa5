"""Pictures by PyTorch, held against the true outlines, against formulas, and against Mitsuba."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pictured_scenes import boxes_of, scenes
from setwise import cli
from setwise.data.scenes import SceneArchive
from setwise.executors import ExecutorError, LocalExecutor, Work
from setwise.executors.executor import Ended, Stop, Told
from setwise.experiments.tasks import (
    BlockPicturesData,
    BlocksData,
    ScenesData,
    TracedBlocksData,
)
from setwise.render import (
    Block,
    Scene,
    boxes,
    open_renderer,
    render_states,
    visible_blocks,
)
from setwise.render import scene as looks
from setwise.render.batches import block_pictures, scene_archive, scene_pictures
from setwise.render.bodies import GROUND, Bodies, Rays, ground, ground_normals
from setwise.render.light import display
from setwise.render.scene import PlacedBlock
from setwise.render.scenes import draw_scenes
from setwise.render.shapes import block_mesh, distance, rotation_about_z
from setwise.render.silhouette import rays_of
from setwise.render.tabletop import SceneSettings
from setwise.render.tracer import TorchRenderer, display_steps, owners

CPU = torch.device("cpu")
TABLE = SceneSettings(renderer="torch", width=24, height=24, samples=2, least=2, most=5)
# The first tier sees by the same rays which objects of a scene are hidden, in test_tabletop.py.
pytestmark = pytest.mark.slow


def lone(shape: Any, place: looks.Vector = (0.3, -0.2, 0.7), colour: str = "red") -> Scene:
    """A rubber block that stands on the ground by itself."""
    placed = PlacedBlock(Block(shape, "large", colour, 25.0), "rubber", place)
    return looks.jittered((placed,), 0, 0)


def light_of(scene: Scene, samples: int = 16) -> NDArray[np.float64]:
    """A picture in linear light, from 0 to 1."""
    bytes_of = TorchRenderer(48, 32, samples)(scene) / 255
    return np.where(bytes_of <= 0.04045, bytes_of / 12.92, ((bytes_of + 0.055) / 1.055) ** 2.4)


@pytest.mark.parametrize("shape", ["cube", "cylinder", "sphere"])
def test_points_that_rays_meet(shape: Any) -> None:
    """They lie on the block, nothing of it is before them, and what misses it is never near."""
    scene = lone(shape)
    placed = scene.blocks[0]
    generator = torch.Generator().manual_seed(0)
    start = 4 * torch.nn.functional.normalize(torch.randn(3, 400, generator=generator), dim=0)
    aim = 0.9 * torch.randn(3, 400, generator=generator)
    middle = torch.tensor(placed.location)[:, None]
    start[2] = start[2].abs()  # from above the ground
    way = torch.nn.functional.normalize(aim - start, dim=0)
    rays = Rays(start + middle, way, torch.zeros(400, dtype=torch.long))
    bodies = Bodies([scene], CPU)
    far, owner = bodies.nearest(rays)
    turn = rotation_about_z(placed.block.rotation)

    def gap(along: Any) -> NDArray[np.float64]:
        points = (rays.at(torch.as_tensor(along)) - middle).T.double().numpy()
        return distance(shape, placed.block.half, points @ turn)

    met = owner.numpy() == 0
    assert 50 < met.sum() < 350
    far = far.clamp(max=8.0)
    assert np.abs(gap(far)[met]).max() < 1.1e-3
    for part in torch.linspace(0, 0.99, 60):
        assert (gap(part * far) > 0).all()  # the ground ends a ray as well
    mesh = block_mesh(shape, placed.block.half).placed(placed.block.rotation, placed.location)
    points = torch.tensor(mesh.vertices.T[:, ::50], dtype=torch.float32)
    none = torch.zeros(points.shape[1], dtype=torch.long)
    found = bodies.normals(points, none, none).T.numpy()
    assert np.abs(found - mesh.normals[::50]).max() < 2e-3


def test_the_ground_is_met_where_it_is() -> None:
    """Flat below, a quarter circle behind, and nothing beyond its edges."""
    ways = [[0.0, 0, -1], [0, 1, 0], [0, 0.6, -0.8], [0, 1, 0.3], [0, 0, 1], [1, 0, -0.01]]
    way = torch.nn.functional.normalize(torch.tensor(ways), dim=-1).T
    start = torch.tensor([0.0, 0.0, 6.0])[:, None].expand_as(way)
    rays = Rays(start, way, torch.zeros(6, dtype=torch.long))
    far = ground(rays)
    assert far[0] == 6
    assert far[2] == pytest.approx(7.5)
    assert far[1] == pytest.approx(15 + math.sqrt(23**2 - 17**2), rel=1e-5)
    assert far[4:].isinf().all()
    points = rays.at(far)[:, :4]
    off = points[:, [1, 3]] - torch.tensor([[0.0], [15.0], [23.0]])
    assert torch.hypot(off[1], off[2]).numpy() == pytest.approx(23, rel=1e-5)
    normals = ground_normals(points)
    assert normals[:, 0].tolist() == [0, 0, 1]
    assert torch.allclose(normals[:, [1, 3]], -off / 23, atol=1e-5)


def test_bytes_are_those_of_the_display_curve() -> None:
    light = torch.rand(20000, generator=torch.Generator().manual_seed(0)) ** 2 * 1.2
    assert np.array_equal(
        torch.bucketize(light, display_steps(), right=True).numpy(), display(light.double().numpy())
    )


def test_outlines_are_the_true_ones() -> None:
    """As marching along the rays finds them, point by point; boxes to the pixel."""
    table = SceneSettings(width=40, height=40)
    for drawn, width, height in ((scenes(1)[::2], 60, 40), (table.scenes(range(2)), 40, 40)):
        found = owners(drawn, width, height, "cpu", grid=4).numpy()
        for scene, owner in zip(drawn, found, strict=True):
            true = visible_blocks(scene, width, height)
            assert (owner != true).mean() < 0.001
            around = boxes_of(owner, len(scene.blocks), fine=4)
            assert np.abs(around - boxes(scene, width, height).astype(int)).max() <= 1


def test_pictures_are_the_same_bytes_however_many_are_drawn_at_once() -> None:
    drawn = [*TABLE.scenes(range(5)), *TABLE.scenes([0, 3])]
    renderer = TorchRenderer(24, 24, 5)
    alone = np.stack([renderer(scene) for scene in drawn])
    assert np.array_equal(alone[0], alone[5])
    assert np.array_equal(renderer.many(drawn), alone)
    assert np.array_equal(renderer.many(drawn[::-1]), alone[::-1])
    renderer.chunks.rays = 333
    assert np.array_equal(renderer.many(drawn), alone)
    threads = torch.get_num_threads()
    with open_renderer("torch", width=24, height=24, samples=5, threads=1) as draw:
        assert torch.get_num_threads() == 1
        assert np.array_equal(draw(drawn[0]), alone[0])
    assert torch.get_num_threads() == threads
    other = renderer(replace(drawn[0], noise=drawn[0].noise + 1))
    assert 0 < np.abs(other.astype(int) - alone[0]).mean() < 8  # other shadows' edges, no more
    assert renderer.draw([]).shape == (0, 3, 24, 24)


def test_open_ground_is_as_bright_as_the_lamps_make_it() -> None:
    """By summing over a fine grid of points of every lamp, in float64."""
    scene = replace(
        lone("sphere", (30.0, -30.0, 0.7)), camera=(0.0, -10.0, 7.0), aim=(0.0, 0.0, 0.0)
    )
    found = light_of(scene, samples=64)[16, 24]
    point = np.array(_seen_at(scene, 24, 16, 48, 32))
    expected = np.full(3, 0.8 * -scene.sun.direction[2] * scene.sun.irradiance / math.pi)
    expected /= np.linalg.norm(scene.sun.direction)
    steps = (np.arange(40) + 0.5) / 40 - 0.5
    for lamp in scene.lamps:
        ahead = np.array(scene.aim) - lamp.position
        ahead /= np.linalg.norm(ahead)
        right = np.cross(ahead, [0, 0, 1])
        right /= np.linalg.norm(right)
        up = np.cross(right, ahead)
        spots = lamp.position + lamp.side * (
            steps[:, None, None] * right + steps[None, :, None] * up
        )
        across = spots - point
        far = np.linalg.norm(across, axis=-1)
        cosines = (across[..., 2] / far) * np.maximum(-(across @ ahead) / far, 0)
        irradiance = (cosines / far**2).mean() * lamp.side**2
        expected += 0.8 * irradiance * np.array(lamp.radiance) / math.pi
    assert found == pytest.approx(expected + 0.8 * 0.004, rel=0.02)  # and what goes to and fro


def _seen_at(scene: Scene, x: int, y: int, width: int, height: int) -> tuple[float, float, float]:
    """Where the middle of a pixel is on flat ground."""
    way = rays_of(scene, width, height, grid=1)[y, x]
    at = np.array(scene.camera) - scene.camera[2] / way[2] * way
    return float(at[0]), float(at[1]), float(at[2])


def test_a_block_throws_a_shadow_away_from_the_lamp_and_no_light_comes_from_nothing() -> None:
    scene = replace(lone("cube", (0.0, 0.0, 0.49)), camera=(0.0, -8.0, 9.0), aim=(0.0, 0.0, 0.0))
    key = replace(scene.lamps[0], position=(5.0, 0.0, 4.0))
    scene = replace(scene, lamps=(key,), sun=replace(scene.sun, irradiance=0.0))
    lit = light_of(scene)
    gone = light_of(
        replace(scene, blocks=(replace(scene.blocks[0], location=(30.0, -30.0, 0.49)),))
    )
    share = lit.mean(-1) / gone.mean(-1)
    block = visible_blocks(scene, 48, 32).reshape(32, 4, 48, 4).max((1, 3)) >= 0
    y, x = (int(side.mean()) for side in block.nonzero())
    left = x - int(block[y].sum() / 2) - 2
    assert share[y, left] < 0.3
    assert share[y, x + int(block[y].sum() / 2) + 3] > 0.95
    # A surface gives back at most its own part of what falls on it.
    assert (share[~block] < 1.35).all()
    dark = replace(scene, lamps=(replace(key, strength=0.0),))
    assert light_of(dark).max() < 0.01


def test_it_is_like_mitsubas_picture_of_the_same_scene() -> None:
    """Closer than sketches are, on the whole no brighter or darker, and of no other scene."""
    drawn = [scenes(1)[0], *SceneSettings(width=60, height=40).scenes(range(2))]
    with open_renderer("mitsuba", width=60, height=40, samples=32) as draw:
        true = np.stack([draw(scene) for scene in drawn]).astype(float)
    traced = TorchRenderer(60, 40, 32).many(drawn).astype(float)
    apart = ((true[:, None] - traced) ** 2).mean((2, 3, 4))
    noise = 10 * np.log10(255**2 / apart)
    assert noise.diagonal().min() > 29
    assert noise[~np.eye(3, dtype=bool)].max() < 27
    assert np.abs((traced - true).mean((1, 2, 3))).max() < 2


def test_pictures_straight_into_tensors_are_those_of_the_files(tmp_path: Path) -> None:
    path, archive = draw_scenes(TABLE, 3, tmp_path / "scenes", workers=1)
    pictures, objects, valid = scene_pictures(TABLE, range(3))
    assert np.array_equal(pictures.movedim(1, -1).numpy(), archive.pictures)
    expected, there = archive.sets()
    most = expected.shape[1]
    assert valid[:, :most].equal(there)
    assert not valid[:, most:].any()
    assert (objects[:, :most] * there[..., None]).equal(expected * there[..., None])
    told: list[tuple[int, int]] = []
    scene_archive(TABLE, 3, progress=lambda *n: told.append(n)).write(tmp_path / "own.npz")
    assert (tmp_path / "own.npz").read_bytes() == path.read_bytes()
    assert told[-1] == (3, 3)
    described = [
        json.loads(path.read_text()) for path in (tmp_path / "scenes" / "scenes").iterdir()
    ]
    assert [one["device"] for one in described] == ["cpu"] * 3  # another one rounds otherwise
    # Drawn again where something is missing, in any number of processes.
    (tmp_path / "scenes" / "images" / "00000001.png").unlink()
    draw_scenes(TABLE, 3, tmp_path / "scenes", workers=1)
    assert np.array_equal(SceneArchive.read(path).pictures, archive.pictures)
    assert scene_pictures(TABLE, []).pictures.shape == (0, 3, 24, 24)


def test_blocks_straight_into_tensors_are_those_of_the_files(tmp_path: Path) -> None:
    size: dict[str, Any] = {"width": 48, "height": 32, "samples": 2}
    of = {"blocks": 3, "states": 6, "train": 4} | size
    filed = BlockPicturesData(renderer="torch", **of)
    states = filed.render_settings().environment.world.sample(6, 0)
    render_states(filed.render_settings(), states, filed.place(tmp_path), workers=1)
    expected = filed.bound(tmp_path).load(tmp_path)
    traced = TracedBlocksData(views=2, **of)
    assert traced.preparation(tmp_path) is None
    task = traced.bound(tmp_path).load(tmp_path)
    assert task.train == 8
    assert task.inputs[:4].equal(expected.inputs[:4])
    assert task.inputs[8:].equal(expected.inputs[4:])
    assert task.targets[8:].equal(expected.targets[4:])
    assert not task.inputs[4:8].equal(task.inputs[:4])  # the camera is elsewhere
    assert task.targets[4:8, :, :15].equal(task.targets[:4, :, :15])
    with pytest.raises(ValueError, match="seeds: expected one for each of 6 states, got 1"):
        block_pictures(filed.render_settings().environment, states, [0], **size)
    for name in size:
        with pytest.raises(ValueError, match=f"^{name}: must be at least 1, got 0"):
            block_pictures(
                traced.render_settings().environment, states, [0] * 6, **size | {name: 0}
            )
    with pytest.raises(ValueError, match="only torch draws without files, not mitsuba"):
        replace(traced, renderer="mitsuba").load()


def test_blocks_to_train_on_are_drawn_on_a_gpu_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def drawn(*_: Any, device: str, **options: Any) -> None:
        asked.append(device)

    monkeypatch.setattr("setwise.render.archive.draw_archive", drawn)
    for there in (False, True):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        for data in (BlocksData(renderer="torch"), BlocksData(renderer="sketch")):
            data.prepare(tmp_path, lambda done, of: None)
    assert asked == ["cpu", "cpu", "cuda", "cpu"]


def test_scenes_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    size = ["--width", "16", "--height", "16", "--samples", "1", "--least", "1", "--most", "2"]
    drawn = ["--train", "1", "--heldout", "1", "--renderer", "torch", "--workers", "1"]
    assert cli.main(["data", "scenes", *drawn, *size]) == 0
    data = ScenesData(2, 1, "torch", width=16, height=16, samples=1, least=1, most=2)
    assert SceneArchive.read(data.archive()).pictures.shape == (2, 16, 16, 3)


def test_devices_that_cannot_be(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name in ("gpu", "meta", "mps"):
        with pytest.raises(ValueError, match=f"device: expected cpu or cuda, got '{name}'"):
            TorchRenderer(8, 8, 1, name)
    with pytest.raises(ValueError, match=r"device: cuda:99 is not here \(PyTorch finds "):
        TorchRenderer(8, 8, 1, "cuda:99")
    with (
        pytest.raises(ValueError, match="device: mitsuba draws on the cpu, not on cuda"),
        open_renderer("mitsuba", device="cuda"),
    ):
        pass
    with pytest.raises(ValueError, match="only torch draws into tensors, not sketch"):
        scene_pictures(replace(TABLE, renderer="sketch"), [0])
    place = ["--workers", "1", "--output", str(tmp_path / "x")]
    for renderer, device, said in (
        ("sketch", "cuda", "sketch draws on the cpu, not on cuda; use the renderer torch"),
        ("torch", "gpu", "device: expected cpu or cuda, got 'gpu'"),
        ("torch", "cuda:99", "cuda:99 is not here (PyTorch finds "),
    ):
        drawing = ["--renderer", renderer, "--device", device]
        assert cli.main(["data", "scenes", *drawing, *place]) == 2
        assert said in capsys.readouterr().err
        assert not (tmp_path / "x").exists()  # or other settings would be refused there


def test_machines_of_a_cluster_draw_on_gpus_of_their_own(tmp_path: Path) -> None:
    """Which those have that ask for one; of machines elsewhere nobody here knows any."""
    asked: list[float] = []

    class Cluster(LocalExecutor):
        spreads = True

        def run(self, works: Iterable[Work], *, told: Told, stop: Stop) -> Ended:
            asked.extend(work.gpus for work in works)
            yield from ()

    for device in ("cpu", "cuda"):
        with pytest.raises(ExecutorError, match="none came back"):
            draw_scenes(TABLE, 1, tmp_path, executor=Cluster(1), device=device)
    assert asked == [0.0, 1.0]
    with pytest.raises(ValueError, match="device: expected cpu or cuda, got 'gpu'"):
        draw_scenes(TABLE, 1, tmp_path, executor=Cluster(1), device="gpu")


def test_a_scene_without_blocks_is_drawn() -> None:
    empty = replace(lone("cube"), blocks=())
    assert TorchRenderer(8, 6, 1)(empty).shape == (6, 8, 3)
    sky = replace(lone("cube"), aim=(0.0, 0.0, 40.0))
    assert not TorchRenderer(8, 6, 1)(sky)[:2].any()  # there is nothing, and it is black
    rays = Rays(torch.zeros(3, 2), torch.ones(3, 2), torch.zeros(2, dtype=torch.long))
    assert Bodies([empty], CPU).nearest(rays)[1].tolist() == [GROUND, GROUND]
