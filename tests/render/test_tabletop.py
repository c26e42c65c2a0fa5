"""Scenes of objects that stand about: what is drawn, and the archives of it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from setwise import cli
from setwise.data.scenes import REACH, SCENE, WORDS, SceneArchive
from setwise.experiments.tasks import ScenesData
from setwise.render.environment import COLOURS, SIZES
from setwise.render.scenes import draw_scenes, read_clevr
from setwise.render.shapes import block_mesh, distance
from setwise.render.silhouette import visible_blocks
from setwise.render.tabletop import SceneSettings

TINY = SceneSettings(renderer="sketch", width=24, height=24, samples=1, least=2, most=4)


def test_words_are_those_of_the_renderers() -> None:
    assert WORDS["color"] == tuple(COLOURS)
    assert WORDS["size"] == tuple(SIZES)


def test_objects_stand_apart_and_can_be_seen() -> None:
    counts = set()
    for number, scene in enumerate(TINY.scenes(range(12))):
        assert scene == TINY.scene(number)  # alone, as among others
        counts.add(len(scene.blocks))
        owner = visible_blocks(scene, 24, 24)
        for one, placed in enumerate(scene.blocks):
            assert (owner == one).any()
            x, y, z = placed.location
            assert abs(x) <= REACH
            assert abs(y) <= REACH
            assert z == placed.block.half  # on the ground
            for other in scene.blocks[:one]:
                gap = math.dist(placed.location[:2], other.location[:2])
                assert gap >= SIZES[placed.block.size] + SIZES[other.block.size] + 0.25
    assert counts == {2, 3, 4}


def test_a_sphere_is_round() -> None:
    mesh = block_mesh("sphere", 0.7)
    assert np.abs(distance("sphere", 0.7, mesh.vertices)).max() < 1e-12
    assert np.allclose(mesh.vertices, 0.7 * mesh.normals)
    corners = mesh.vertices[mesh.faces]
    outwards = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    assert ((outwards * corners.mean(1)).sum(-1) > 0).all()


def test_an_archive_holds_what_was_drawn(tmp_path: Path) -> None:
    path, archive = draw_scenes(TINY, 3, tmp_path / "scenes", workers=1)
    again = SceneArchive.read(path)
    objects, valid = again.sets()
    for number in range(3):
        scene = TINY.scene(number)
        assert int(valid[number].sum()) == len(scene.blocks)
        for place, placed in enumerate(scene.blocks):
            *look, where = (part[number, place] for part in SCENE.split(objects))
            words = [
                names[int(part.argmax())] for names, part in zip(WORDS.values(), look, strict=True)
            ]
            block = placed.block
            assert words == [block.shape, block.colour, placed.material, block.size]
            assert torch.allclose(where * REACH, torch.tensor(placed.location), atol=1e-6)
    assert (again.pictures == archive.pictures).all()
    before = path.read_bytes()
    (tmp_path / "scenes" / "images" / "00000001.png").unlink()  # as if it was stopped there
    draw_scenes(TINY, 3, tmp_path / "scenes", workers=1)
    assert path.read_bytes() == before


def test_data_of_an_experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    size = ["--width", "24", "--height", "24", "--samples", "1", "--least", "2", "--most", "4"]
    drawn = ["--train", "2", "--heldout", "1", "--renderer", "sketch", "--workers", "1"]
    assert cli.main(["data", "scenes", *drawn, *size]) == 0
    data = ScenesData(3, 2, "sketch", width=24, height=24, samples=1, least=2, most=4)
    assert data.preparation() is None
    task = data.bound().load()
    assert task.inputs.shape == (3, 3, 24, 24)
    assert task.presence
    sure = torch.cat([30 * task.targets[..., :-4], task.targets[..., -4:-1]], dim=-1)
    outputs = torch.cat([sure, 60 * task.targets[..., -1:] - 30], dim=-1)[None]
    values = task.measure(outputs, torch.ones(1, 3, dtype=torch.bool), task.targets, task.features)
    assert list(values) == ["ap", "ap_1", "ap_0.5", "ap_0.25", "ap_0.125"]
    assert all((value == 1).all() for value in values.values())
    with pytest.raises(ValueError, match="not the pictures of this config"):
        data.load()
    with pytest.raises(ValueError, match="make them with setwise data clevr"):
        ScenesData(file="clevr.npz").bound()


def _clevr(folder: Path, **changed: Any) -> tuple[Path, Path]:
    described = {"shape": "sphere", "color": "red", "material": "rubber", "size": "large"}
    described |= {"3d_coords": [1.5, -3.0, 0.7]} | changed
    scene = {"image_filename": "CLEVR_val_000000.png", "objects": [described]}
    file = folder / "CLEVR_val_scenes.json"
    file.write_text(json.dumps({"info": {}, "scenes": [scene]}))
    picture = np.zeros((320, 480, 3), dtype=np.uint8)
    picture[:, 240:] = 200
    Image.fromarray(picture).save(folder / "CLEVR_val_000000.png")
    return folder, file


def test_files_of_clevr(tmp_path: Path) -> None:
    archive = read_clevr(*_clevr(tmp_path))
    objects, valid = archive.sets()
    assert valid.tolist() == [[True]]
    shape, colour, material, size, place = SCENE.split(objects[0, 0])
    found = [int(part.argmax()) for part in (shape, colour, material, size)]
    assert [words[one] for words, one in zip(WORDS.values(), found, strict=True)] == [
        *("sphere", "red", "rubber", "large")
    ]
    assert torch.allclose(place, torch.tensor([0.5, -1.0, 0.7 / 3]))
    assert archive.pictures.shape == (1, 128, 128, 3)
    assert (archive.pictures[0, :, 70:] == 200).all()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"shape": "cone"}, "shape: expected one of cube, cylinder, sphere, got 'cone'"),
        ({"3d_coords": [1.0, 2.0]}, "3d_coords: expected three numbers"),
        ({"3d_coords": [1.0, 2.0, math.inf]}, "3d_coords: expected three finite numbers"),
    ],
)
def test_what_is_no_scene(
    tmp_path: Path, changed: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    images, scenes = _clevr(tmp_path, **changed)
    output = tmp_path / "clevr.npz"
    assert cli.main(["data", "clevr", str(images), str(scenes), "--output", str(output)]) == 2
    assert message in capsys.readouterr().err
    assert not output.exists()


def test_settings_that_cannot_be() -> None:
    with pytest.raises(ValueError, match=r"most: must be in 3\.\.16"):
        SceneSettings(most=2)
    with pytest.raises(ValueError, match="expected sides of which none is more than twice"):
        SceneSettings(width=20, height=50)
    with pytest.raises(ValueError, match="width: must be at least 16"):
        SceneSettings(width=4, height=4)  # of which no end would be found
