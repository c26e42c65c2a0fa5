"""The tables of plans between pictures in docs/pictures.md, and the tool that writes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tools import readers

from setwise.experiments.readers import Reader
from setwise.experiments.tasks import PuzzlePicturesData
from setwise.planning import LatentPlanner
from setwise.worlds import PuzzleWorld


def test_the_page_is_that_of_the_records() -> None:
    text = readers.PAGE.read_text(encoding="utf-8")
    assert readers.written(text) == text, "run python -m tools.readers write"


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
    monkeypatch.setattr(readers, "_STATES", 6)
    reader = Reader(Path("reader"), None, data, torch.nn.Identity())  # type: ignore[arg-type]
    place = readers.place_of(reader, world, tmp_path, tmp_path)
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
    told = {"problems": [*plans, {"steps": 2} | misread]}
    (tmp_path / "puzzle-plans.json").write_text(json.dumps(told))
    lacking = "8-puzzle (reading); Blocksworld, 4 blocks (reading, plans)"
    assert readers.tables().endswith(f"\n\nNot recorded yet: {lacking}.\n")
    assert "| 8-puzzle | 1 of 2 over 2 steps | 1 | 1 misread |" in readers.tables()
