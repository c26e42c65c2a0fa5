"""Networks that read pictures: their data, what they are measured by, and their use afterwards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from setwise import cli
from setwise.cli import starters
from setwise.data.blocksworld import Blocksworld
from setwise.data.scenes import LOOK
from setwise.experiments.config import Config, Schedule
from setwise.experiments.networks import Predictor
from setwise.experiments.readers import Reader, choose_reader, open_reader
from setwise.experiments.saved_networks import network_path, save_network
from setwise.experiments.tasks import BlockPicturesData, DataConfig, PuzzleData, PuzzlePicturesData
from setwise.experiments.tasks.read_right import ReadRight
from setwise.experiments.train import Training
from setwise.features import Categorical, Features, Gaussian
from setwise.planning import LatentPlanner
from setwise.render import files
from setwise.worlds import PicturedBlocksworld, PuzzleWorld
from tiny_experiments import puzzle_config

Captured = pytest.CaptureFixture[str]
PUZZLE = PuzzlePicturesData(2, 2, states=24, train=20)
BLOCKS = BlockPicturesData(
    blocks=2, states=6, train=4, renderer="sketch", width=60, height=40, samples=1
)


def config(data: DataConfig, **schedule: Any) -> Config:
    return Config(
        experiment="reader",
        scenario="tiny",
        loss="set_likelihood",
        seed=0,
        shuffle_input=False,
        shuffle_target=True,
        data=data,
        network=Predictor("regions", width=16, convolutions=(8, 8, 8, 8)),
        schedule=Schedule(**({"epochs": 1, "batch": 4, "evaluations": 1} | schedule)),
    )


@pytest.fixture(autouse=True)
def _somewhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def kept(data: DataConfig) -> tuple[Training, Path]:
    """A reader that has learned nothing."""
    training = Training([config(data)], "cpu")
    path = network_path(Path("runs"), training.configs[0])
    save_network(path, training, 0)
    return training, path


def test_pictures_of_a_puzzle() -> None:
    task = PUZZLE.load()
    assert task.inputs.shape == (24, 3, 32, 32)
    assert task.targets[..., -1].all()
    blank = PUZZLE.blank()
    assert blank.inputs.shape[1:] == task.inputs.shape[1:]
    assert blank.targets.shape[1:] == task.targets.shape[1:]
    world = PuzzleWorld(2, 2)
    states = world.sample(24, 0)
    drawn = world.draw(world.objects(states[:1]))
    assert task.inputs[:1].equal(PUZZLE.inputs(drawn))  # of the first, nothing has moved
    assert not task.inputs[1:2].equal(PUZZLE.inputs(world.draw(world.objects(states[1:2]))))
    sure = torch.cat([40 * task.targets[..., :-1] - 20, task.targets[..., -1:]], dim=-1)[None]
    found = task.measure(sure, torch.ones(1, 24, dtype=torch.bool), task.targets, task.features)
    assert found["exact"].all()


def test_what_is_read_right() -> None:
    """Looks and places of as many outputs as there are objects, those that are likeliest there."""
    features = Features(Categorical(2), Gaussian(2))
    objects = torch.tensor([[[1.0, 0.0, 0.0, 0.0, 1.0], [0.0, 1.0, 0.5, 0.5, 1.0]]])
    right = torch.tensor([[5.0, -5.0, 0.05, 0.0, 3.0], [-5.0, 5.0, 0.5, 0.45, 4.0]])
    absent = torch.tensor([[5.0, -5.0, 0.9, 0.9, -3.0]])
    outputs = torch.cat([absent, right]).repeat(5, 1, 1)
    outputs[1, 1, 2] = 0.2  # too far
    outputs[2, 2, :2] = outputs[2, 1, :2].clone()  # another look
    outputs[3, 0, 4] = 9.0  # what is not there
    finite = torch.tensor([[True, True, True, True, False]])
    found = ReadRight((0.1, 0.1))(outputs[None], finite, objects.expand(5, 2, 5), features)
    assert found["read"].tolist() == [[1, 0, 0, 0, 0]]
    assert found["looks"].tolist() == [[1, 1, 0, 1, 0]]
    assert found["off"][0, 0].item() == pytest.approx(0.025)


def test_a_kept_reader_needs_no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    training, path = kept(PUZZLE)
    monkeypatch.setattr(PuzzlePicturesData, "load", lambda *given: pytest.fail("loaded"))
    reader = choose_reader("puzzle", Path("runs"))
    assert reader is not None
    assert reader.path == path
    assert choose_reader("blocksworld", Path("runs")) is None
    world = PuzzleWorld(2, 2)
    picture = world.draw(world.objects(world.goal())[None])[0]
    inputs = PUZZLE.inputs(picture[None])
    expected = training.ensemble(inputs[None], torch.tensor(1.0))[0, 0]
    assert torch.allclose(
        reader.outputs(picture), expected[expected[:, -1].argsort(descending=True), :-1]
    )
    with pytest.raises(ValueError, match="reads no legal state of puzzle-2x2 in it"):
        reader.objects(picture, world)


def test_pictures_on_the_command_line(capsys: Captured) -> None:
    """All of it is told before there is a network to plan with."""
    world = PuzzleWorld(2, 2)
    picture = Image.fromarray(world.draw(world.objects(world.goal())[None])[0])
    picture.save("a.png")
    picture.resize((20, 20)).save("small.png")
    Path("text.png").write_text("no picture")

    def said(*arguments: str) -> str:
        assert cli.main(["plan", "puzzle", *arguments]) == 2
        return capsys.readouterr().err

    a = ("--init", "a.png", "--goal")
    assert "runs holds no network that reads pictures of the puzzle; train one with setw" in said(
        *a, "a.png"
    )
    _, path = kept(PUZZLE)
    assert "--goal: a problem has two pictures" in said("--init", "a.png")
    assert "--goal: expected a file, b.png is not there" in said(*a, "b.png")
    assert "--reader: reads pictures" in said("--reader", str(path))
    assert "--problem: the problem is given by pictures" in said(*a, "a.png", "--problem", "x")
    assert "--goal: small.png: expected a picture of (150, 150) pixels" in said(*a, "small.png")
    assert "--goal: text.png: cannot identify image file" in said(*a, "text.png")
    assert "puzzle-2x2, and plans would be of puzzle-2x3" in said(*a, "a.png")  # nothing is trained
    network = Path("other.safetensors")
    wider = replace(puzzle_config(), data=PuzzleData(3, 2, states=20, train=20))
    save_network(network, Training([wider], "cpu"), 0)
    assert "reads pictures of puzzle-2x2, and plans would be of puzzle-3x2" in said(
        *a, "a.png", "--network", str(network)
    )
    assert "which reads no pictures of a world" in said(*a, "a.png", "--reader", str(network))


def _drawn() -> tuple[Reader, Path]:
    BLOCKS.prepare(Path("runs"), lambda there, wanted: None)
    data = BLOCKS.bound(Path("runs"))
    _, path = kept(data)
    return open_reader(path), data.place(Path("runs"))


def test_pictures_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("setwise.render.dataset._cores", lambda: 1)
    assert BLOCKS.preparation(Path("runs")) == "drawing 6 pictures into runs/blocksworld-2-60x40"
    reader, folder = _drawn()
    data = reader.data
    assert isinstance(data, BlockPicturesData)
    assert data.preparation(Path("runs")) is None
    task = data.load(Path("runs"))
    assert task.inputs.shape == (6, 3, 48, 64)
    blank = data.blank()
    assert blank.inputs.shape[1:] == task.inputs.shape[1:]
    # Boxes come back to the pixel, and what lies in them is cut out.
    seen = []
    world = object.__new__(PicturedBlocksworld)
    world.see = lambda patches, boxes: seen.append((patches, boxes)) or boxes.float()
    ranks = Blocksworld(2).rank(Blocksworld(2).sample(6, 0)).tolist()
    image, described = files.load(folder, ranks[0], (60, 40))
    data.objects(task.targets[0, :, :-1], np.array(image), world)
    [(patches, boxes)] = seen
    assert boxes[0].tolist() == [block["bbox"] for block in described["objects"]]
    x1, y1, x2, y2 = boxes[0, 0].tolist()
    cut = image.crop((x1, y1, x2, y2)).resize((32, 32), Image.Resampling.BILINEAR)
    assert (
        (255 * patches[0, 0]).round().equal(torch.from_numpy(np.array(cut)).movedim(-1, 0).float())
    )
    with pytest.raises(ValueError, match="not the pictures of this config"):
        replace(data, sha256="0" * 64).load(Path("runs"))


# Slow: it draws and plans. What it is made of is above, and plans are in test_starters.py.
@pytest.mark.slow
def test_a_plan_between_pictures(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what a reader would put out if it made no mistake, and one that makes one."""
    monkeypatch.setattr("setwise.render.dataset._cores", lambda: 1)
    small = replace(starters.BLOCKS, blocks=2, states=48, train=48, width=60, height=40, samples=1)
    monkeypatch.setattr(starters, "BLOCKS", small)
    reader, folder = _drawn()
    assert cli.main(["plan", "blocksworld", "--steps", "1"]) == 0  # draws all
    task = replace(BLOCKS, states=48, train=4).bound(Path("runs")).load(Path("runs"))
    states = Blocksworld(2).sample(48, 0)
    right = {
        files.load(folder, int(rank), (60, 40))[0].tobytes(): elements[:, :-1]
        for rank, elements in zip(Blocksworld(2).rank(states), task.targets, strict=True)
    }
    monkeypatch.setattr(Reader, "outputs", lambda self, picture: right[picture.tobytes()])
    a, b = (str(files.image_path(folder, int(Blocksworld(2).rank(states[n])))) for n in (5, 9))
    capsys.readouterr()
    assert cli.main(["plan", "blocksworld", "--init", a, "--goal", b]) == 0
    said = capsys.readouterr().out
    assert f"reader     {reader.path}" in said
    assert "checked    optimal plan" in said
    [strip] = Path("plans").glob(f"{Path(a).stem}-to-{Path(b).stem}-strip.png")
    assert strip.stat().st_size > 0
    shifted = {
        key: elements + torch.tensor([0.0] * 15 + [0.5, 0, 0.5, 0])
        for key, elements in right.items()
    }
    monkeypatch.setattr(Reader, "outputs", lambda self, picture: shifted[picture.tobytes()])
    assert cli.main(["plan", "blocksworld", "--init", a, "--goal", b]) == 2
    assert (
        f"--init: {a}: {reader.path} reads no legal state of blocks-2x3" in capsys.readouterr().err
    )


def test_the_nearest_code_is_taken_where_asked() -> None:
    """A code that no state has: refused, or held against the objects that were given."""

    class Flipped:
        """Codes are one-hots of the rank; those of given objects have one bit more."""

        def encode(self, sets: torch.Tensor) -> torch.Tensor:
            ranks = torch.tensor([int(world.index(world.configuration_of(one))) for one in sets])
            codes = torch.nn.functional.one_hot(ranks, 24).repeat(1, 3).bool()
            if len(sets) == 2:
                codes[:, 0] ^= True
            return codes

        def decode(self, codes: torch.Tensor) -> torch.Tensor:
            return 40 * world.objects(world.states()[codes[:, 24:48].int().argmax(-1)]) - 20

    world = PuzzleWorld(2, 2)
    states = world.states()
    after, legal = world.successors(states[1])
    ends = world.objects(torch.stack([states[1], after[legal][0]]))
    with LatentPlanner(Flipped(), world) as planner:
        assert "differs in 1 bits" in planner.solve(*ends).reason
        result = planner.solve(*ends, nearest=True)
    assert result.bits_off == (1, 1)
    assert result.valid


def test_a_blurred_start_is_a_wider_scale() -> None:
    """Gradients are those of features with that scale; the network begins the same."""
    task = BLOCKS.blank()
    wide = replace(task, features=Features(*LOOK, Gaussian(4, scale=4 * BLOCKS.scale)))
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(4, *task.inputs.shape[1:], generator=generator)
    targets = wide.features.random_targets((4, 2), generator)
    targets = torch.cat([targets, torch.ones(4, 2, 1)], dim=-1)
    found = []
    for own, blur in ((task, 4.0), (wide, 1.0)):
        given = replace(own, inputs=inputs, targets=targets)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(BlockPicturesData, "load", lambda *_, given=given: given)
            training = Training([config(BLOCKS, epochs=4, blur=blur)], "cpu")
        training._run_epoch(0)
        found.append(training.ensemble.member(0))
    for name, weight in found[0].items():
        assert torch.allclose(weight, found[1][name], atol=1e-6), name
