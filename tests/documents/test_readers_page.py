"""The tables of plans between pictures in docs/pictures.md, and the tool that writes them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tools import readers

from setwise.cli.user_file import run_file
from setwise.data.blocksworld import Blocksworld
from setwise.data.blocksworld_archive import BlocksworldArchive
from setwise.experiments.readers import Reader
from setwise.experiments.tasks import PuzzlePicturesData, TracedBlocksData
from setwise.planning import LatentPlanner
from setwise.render import Environment, block_pictures
from setwise.render.patches import cut_array, transitions_among
from setwise.worlds import PuzzleWorld


def test_the_page_is_that_of_the_records() -> None:
    text = readers.PAGE.read_text(encoding="utf-8")
    assert readers.written(text) == text, "run python -m tools.readers write"


def test_what_is_recorded_is_enough_to_plan_with() -> None:
    for kind, least in (("puzzle", 1.0), ("blocksworld", 0.8)):
        told = {
            what: json.loads((readers.RECORDS / f"{kind}-{what}.json").read_text())
            for what in ("reading", "plans")
        }
        assert told["reading"]["right"] >= 0.95 * told["reading"]["states"]
        problems = told["plans"]["problems"]
        assert len(problems) == sum(readers.PROBLEMS[kind].values())
        assert sum(one["valid"] for one in problems) >= least * len(problems)


class Codes:
    """The rank of a state in bits: nothing is lost."""

    def __init__(self, world: PuzzleWorld) -> None:
        self.world, self.bits = world, 2 ** torch.arange(5)

    def encode(self, sets: torch.Tensor) -> torch.Tensor:
        states = torch.stack([self.world.configuration_of(one) for one in sets])
        return (self.world.index(states)[:, None] & self.bits) > 0

    def decode(self, codes: torch.Tensor) -> torch.Tensor:
        states = self.world.states()[(codes * self.bits).sum(-1)]
        return 40 * self.world.objects(states) - 20


def test_a_measurement(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By a reader that takes one state for another."""
    data, world = PuzzlePicturesData(2, 2, states=8, train=2), PuzzleWorld(2, 2)
    states, wrong = world.states(), 7
    drawn = {world.draw(world.objects(one)[None])[0].tobytes(): one for one in states}

    def outputs(self: Reader, picture: torch.Tensor) -> torch.Tensor:
        state = drawn[picture.tobytes()]  # type: ignore[attr-defined]
        return world.objects(states[0] if state.equal(states[wrong]) else state)

    monkeypatch.setattr(Reader, "outputs", outputs)
    monkeypatch.setattr(readers, "RECORDS", tmp_path)
    monkeypatch.setattr(readers, "PROBLEMS", {"puzzle": {2: 1}})
    reader = Reader(Path("reader"), None, data, torch.nn.Identity())  # type: ignore[arg-type]
    place = readers.place_of(reader, world, tmp_path, tmp_path, states=6)
    assert len(place.known) == 2
    found = readers.read(reader, world, place.pictures, states)
    assert found == {"states": 24, "right": 23, "mistakes": {"another state": 1}}
    with LatentPlanner(Codes(world), world) as planner:
        plans = readers.plan(reader, planner, place.pictures, place.known)
        problem = readers.Problem("x", world.objects(states[wrong]), world.objects(states[4]))
        misread = readers._solve(reader, planner, place.pictures, problem)
    assert [one["valid"] for one in plans] == [True]
    assert (misread["misread"], misread["valid"], misread["failure"]) == (
        ["init"],
        False,
        "misread",
    )
    told = {"space": {"data": {"train": 2400}}, "problems": [*plans, {"steps": 2} | misread]}
    (tmp_path / "puzzle-plans.json").write_text(json.dumps(told))
    lacking = "8-puzzle (reading); Blocksworld, 4 blocks (reading, plans)"
    assert readers.tables().endswith(f"\n\nNot recorded yet: {lacking}.\n")
    over = "codes of a network learned from 2,400 states"
    assert f"| 8-puzzle | {over} | 1 of 2 over 2 steps | 1 | 1 misread |" in readers.tables()


@pytest.mark.slow
def test_blocks_are_planned_with_in_symbols(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Symbols are learned from an archive of all states; problems have pictures of their own."""
    data = TracedBlocksData(blocks=2, states=12, train=6, width=90, height=60, samples=2, views=2)
    blocks = Blocksworld(2, 3)
    states = blocks.sample(48, 0)
    drawn = {
        seed: block_pictures(
            Environment.draw(blocks, 0), states, [seed] * 48, width=90, height=60, samples=2
        )
        for seed in (0, data.views)
    }
    pictures, looks, boxes = drawn[0]
    cuts = zip(pictures.movedim(1, -1).numpy(), boxes.numpy(), strict=True)
    patches = np.stack([cut_array(picture, own) for picture, own in cuts])
    archive = BlocksworldArchive(
        patches, boxes.numpy().astype(np.uint16), (60, 90), transitions_among(blocks, states)
    )
    archive.write(tmp_path / "states-48.npz")
    pictures, looks, boxes = drawn[data.views]  # the reader learned from the seeds before
    shown = pictures.movedim(1, -1).numpy()
    truth = data.targets(looks, boxes)[..., :-1]
    known = {picture.tobytes(): own for picture, own in zip(shown, truth, strict=True)}

    def outputs(self: Reader, picture: torch.Tensor) -> torch.Tensor:
        return known[picture.tobytes()]  # type: ignore[attr-defined]

    monkeypatch.setattr(Reader, "outputs", outputs)
    monkeypatch.setattr(readers, "RECORDS", tmp_path)
    monkeypatch.setattr(readers, "PROBLEMS", {"blocksworld": {2: 2}})
    study = run_file("experiment", readers.ROOT / "studies" / "readers.py")
    config = replace(study.block_config("queries", study.LOSS, 0), data=data)
    reader = Reader(Path("reader"), config, data, torch.nn.Identity())
    monkeypatch.setattr(readers, "open_reader", lambda path: reader)
    readers.main(["plan", "reader", str(tmp_path / "states-48.npz")])
    readers.main(["read", "reader", str(tmp_path / "states-48.npz"), "--states", "9"])
    told = json.loads((tmp_path / "blocksworld-plans.json").read_text())
    assert told["renderer"] == "torch"
    assert told["space"]["kind"] == "symbols"
    assert told["space"]["transitions"] == len(archive.transitions)
    assert [one["valid"] for one in told["problems"]] == [True, True]
    told = json.loads((tmp_path / "blocksworld-reading.json").read_text())
    # On so few pixels the materials of one block look alike.
    assert told["mistakes"] == {"another material": told["states"] - told["right"]}
    assert (told["states"], told["right"]) == (9, 7)
