"""Examples that differ each time they are trained on: by whom, when, and how scenes do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from setwise.cli.user_file import run_file
from setwise.data.scenes import SceneArchive
from setwise.experiments import records
from setwise.experiments.config import Config, Schedule, config_from
from setwise.experiments.ensemble import Batch
from setwise.experiments.networks import Predictor
from setwise.experiments.randomness import Chances
from setwise.experiments.tasks import ScenesData, Task
from setwise.experiments.tasks.varied_scenes import (
    BRIGHTNESS,
    CONTRAST,
    NOISE,
    TINT,
    mirrored_objects,
    varied_scenes,
)
from setwise.experiments.train import StoppedError, Training
from setwise.features import Features, Gaussian
from setwise.render import Scene, SceneSettings
from setwise.render.environment import COLOURS
from setwise.render.sketch import SketchRenderer

SETTINGS = SceneSettings(renderer="sketch", width=16, height=16, samples=1, least=2, most=4)
DATA = ScenesData(12, 8, "sketch", width=16, height=16, samples=1, least=2, most=4, varied=True)
ROOT = Path(__file__).parents[2]

# Slow: scenes are drawn, and some are trained on. What chances and variations are is seen in the
# first tier, and how batches are drawn in test_recombine.py.
draws_scenes = pytest.mark.slow


def drawn(scenes: Sequence[Scene], side: int = 16) -> SceneArchive:
    pictures = np.stack([SketchRenderer(side, side, 1)(scene) for scene in scenes])
    objects = [SETTINGS.describe(0, scene)["objects"] for scene in scenes]
    return SceneArchive.of(pictures, objects)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scenes")
    drawn(SETTINGS.scenes(range(DATA.pictures))).write(DATA.archive(folder))
    return folder


def config(folder: Path | None, seed: int, epochs: int = 1) -> Config:
    """On the scenes of a folder; without one nothing can be loaded."""
    return Config(
        *("varied", "a", "set_cross_entropy", seed, False, True),
        data=DATA.bound(folder) if folder else DATA,
        network=Predictor("queries", 5, 8, (4, 4), blocks=1),
        schedule=Schedule(epochs=epochs, batch=4, evaluations=epochs),
    )


def shown(
    task: Task, configs: list[Config], epoch: int = 3, step: int = 1
) -> tuple[Tensor, Tensor]:
    batch = Batch(configs, task)
    batch.begin(epoch)
    batch.move(step)
    return batch.draw()


def test_chances_are_even_and_each_its_own() -> None:
    seeds, rows = torch.tensor([0, 1]), torch.arange(40).expand(2, -1)
    chances = Chances(seeds, torch.tensor(0), rows)
    first, second = chances.uniform(5, 4), chances.uniform(5, 4)
    assert first.shape == (2, 40, 5, 4)
    assert chances.uniform().shape == (2, 40)
    found = torch.stack([first, second, Chances(seeds, torch.tensor(1), rows).uniform(5, 4)])
    assert found.unique().numel() > 0.999 * found.numel()
    assert (found.flatten().histc(10, 0, 1) / found.numel() - 0.1).abs().max() < 0.02
    assert found.min() >= 0
    assert found.max() < 1


@draws_scenes
def test_a_member_sees_the_same_alone_and_among_others(folder: Path) -> None:
    task = DATA.bound(folder).load(folder)
    configs = [config(folder, seed) for seed in range(3)]
    together = shown(task, configs)
    for number, one in enumerate(configs):
        for whole, alone in zip(together, shown(task, [one]), strict=True):
            assert whole[number].equal(alone[0])
    assert not together[0][0].equal(together[0][1])
    again, later = shown(task, configs[:1]), shown(task, configs[:1], epoch=4)
    assert again[0].equal(together[0][:1])
    assert not again[0].sort(dim=1).values.equal(later[0].sort(dim=1).values)


@draws_scenes
def test_what_is_not_varied_is_as_it_was(folder: Path) -> None:
    """And what is varied keeps its objects, but for x, in an order that is no other."""
    plain = replace(DATA, varied=False).bound(folder).load(folder)
    assert plain.vary is None
    one = [config(folder, 0)]
    pictures, targets = shown(plain, one)
    known = (pictures[0].unsqueeze(1) == plain.inputs).flatten(2).all(-1)
    assert known.any(-1).all()
    _, varied = shown(DATA.bound(folder).load(folder), one)
    others = [index for index in range(varied.shape[-1]) if index != varied.shape[-1] - 4]
    assert varied[..., others].equal(targets[..., others])
    assert varied[..., -4].abs().equal(targets[..., -4].abs())


@draws_scenes
def test_a_stopped_training_goes_on_to_the_same_bits(folder: Path, tmp_path: Path) -> None:
    configs = [config(folder, seed, epochs=3) for seed in range(2)]
    whole = Training(configs, "cpu", data=folder).run()
    seen: list[int] = []
    with pytest.raises(StoppedError):
        Training(configs, "cpu", tmp_path / "x.ckpt", data=folder).run(
            lambda progress: seen.append(progress.epoch), lambda: len(seen) == 2
        )
    assert Training(configs, "cpu", tmp_path / "x.ckpt", data=folder).run() == whole


def mirrored_scene(scene: Scene) -> Scene:
    """All that is at x is at -x, rotations are the other way round."""

    def turned(at: tuple[float, float, float]) -> tuple[float, float, float]:
        return -at[0], at[1], at[2]

    return replace(
        scene,
        blocks=tuple(
            replace(
                placed,
                block=replace(placed.block, rotation=-placed.block.rotation),
                location=turned(placed.location),
            )
            for placed in scene.blocks
        ),
        camera=turned(scene.camera),
        aim=turned(scene.aim),
        lamps=tuple(replace(lamp, position=turned(lamp.position)) for lamp in scene.lamps),
        sun=replace(scene.sun, direction=turned(scene.sun.direction)),
    )


@draws_scenes
def test_a_mirror_image_is_the_picture_of_a_mirrored_scene() -> None:
    """Drawn by a renderer, which knows nothing of it, and with the objects that it describes."""
    scenes = SETTINGS.scenes(range(4))
    there, mirrored = drawn(scenes, 32), drawn([mirrored_scene(scene) for scene in scenes], 32)
    apart = np.abs(there.pictures[:, :, ::-1].astype(int) - mirrored.pictures)
    assert (apart > 1).mean() < 0.003  # rays that meet an outline may fall to either side
    for archive, other in ((there, mirrored), (mirrored, there)):
        objects, valid = (
            torch.cat([found, valid.unsqueeze(-1).float()], dim=-1)
            for found, valid in (archive.sets(), other.sets())
        )
        assert torch.allclose(mirrored_objects(objects), valid, atol=1e-6)
        assert mirrored_objects(mirrored_objects(objects)).equal(objects)


def test_half_of_the_pictures_are_mirrored_and_none_is_moved() -> None:
    """A bright column at the left is at the left or, where x is turned, at the right."""
    pictures = torch.full((1, 400, 3, 8, 8), 0.5)
    pictures[..., 1] = 0.8
    targets = torch.ones(1, 400, 2, 5)
    chances = Chances(torch.tensor([0]), torch.tensor(0), torch.arange(400).unsqueeze(0))
    found, objects = varied_scenes(pictures, targets, chances)
    mirrored = objects[..., 0, -4] < 0
    assert abs(int(mirrored.sum()) - 200) < 40
    assert found.mean((2, 3)).argmax(-1).equal(torch.where(mirrored, 6, 1))
    assert found.std(1).min() > 0.01  # each is lit otherwise
    assert pictures[0, 0, 0, 0].tolist() == pytest.approx([0.5, 0.8, *[0.5] * 6])  # not in place
    assert (targets == 1).all()


@pytest.mark.parametrize(
    ("vary", "got"),
    [
        (lambda inputs, targets, chances: None, "NoneType"),
        (lambda inputs, targets, chances: (inputs[:, :1], targets), r"\(1, 1, 2\) and \(1, 4, 3"),
        (lambda inputs, targets, chances: (inputs, targets, 1), r".*\(1, 4, 3, 5\) and int"),
    ],
)
def test_variations_keep_shapes(vary: Any, got: str) -> None:
    task = Task(torch.zeros(8, 2), torch.zeros(8, 3, 5), 8, Features(Gaussian(5)), vary=vary)
    expected = r"two tensors, of the shapes \(1, 4, 2\) and \(1, 4, 3, 5\) .*, got "
    with pytest.raises(ValueError, match=f"vary: expected {expected}{got}"):
        shown(task, [config(None, 0)])


def test_colours_stay_what_they_are() -> None:
    """In whatever light, each is much nearer to itself than to any other."""
    colours = torch.tensor(list(COLOURS.values())) / 255
    for signs in product((-1, 1), repeat=5):
        contrast, tint = 1 + CONTRAST * signs[0], 1 + TINT * torch.tensor(signs[1:4])
        lit = (colours * contrast * tint + (BRIGHTNESS + NOISE) * signs[4]).clamp(0, 1)
        apart = torch.cdist(lit, colours)
        own = apart.diagonal().clone()
        assert (own < 0.8 * apart.fill_diagonal_(torch.inf).min(-1).values).all()


def test_archives_of_others_are_not_mirrored() -> None:
    """The camera of CLEVR looks along neither axis."""
    with pytest.raises(
        ValueError, match=r"varied: expected pictures by our own renderers, .*clevr"
    ):
        ScenesData(file="clevr.npz", varied=True)


def test_runs_that_were_recorded_before_keep_their_names() -> None:
    run_file("study", ROOT / "studies" / "detection.py")  # which defines their networks
    for record in records.read(ROOT / "results" / "rendered-scenes.jsonl"):
        found = config_from(record["config"])
        assert found.identity == record["run"]
        data = replace(found.data, varied=not found.data.varied)
        network = replace(found.network, blocks=found.network.blocks + 1)
        others = [replace(found, data=data), replace(found, network=network)]
        assert len({one.identity for one in (found, *others)}) == 3
        assert [config_from(one.as_dict()) for one in others] == others
        for one in (found, *others):
            told = one.as_dict()
            assert ("varied" in told["data"]) == one.data.varied
            assert ("blocks" in told["network"]) == (one.network.blocks > 0)
