"""What every world has by default, against what the puzzle knows of itself."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import setwise as sw
from setwise.data import SlidingPuzzle
from setwise.planning import read_problems, shortest_length
from setwise.worlds import WORLDS, PicturedBlocksworld, PuzzleWorld, World
from setwise.worlds.drawing import draw_features
from setwise.worlds.rows import RowTable, row_keys


class PlainPuzzle(World):
    """A puzzle that says no more than it must."""

    name = "plain"

    def __init__(self, puzzle: SlidingPuzzle) -> None:
        self.puzzle = puzzle

    @property
    def features(self) -> sw.Features:
        return self.puzzle.features

    def states(self) -> Tensor:
        return self.puzzle.states()

    def successors(self, configurations: Tensor) -> tuple[Tensor, Tensor]:
        return self.puzzle.successors(configurations)

    def objects(self, configurations: Tensor) -> Tensor:
        return self.puzzle.objects(configurations)


KNOWING = PuzzleWorld(3, 2)
PLAIN = PlainPuzzle(KNOWING)


class TestDefaults:
    def test_transitions(self) -> None:
        ours, theirs = PLAIN.transitions(), KNOWING.transitions()
        assert len(ours) == len(theirs) == KNOWING.number_of_transitions
        assert ours.unique(dim=0).equal(theirs.unique(dim=0))

    def test_places_of_states(self) -> None:
        states = KNOWING.states()
        assert PLAIN.index(states).equal(torch.arange(720))
        assert PLAIN.index(states.int().reshape(2, 360, 6)).shape == (2, 360)
        assert PLAIN.index(states[7]).item() == 7

    def test_legal_moves_and_what_can_be_reached(self) -> None:
        states = KNOWING.sample(40, seed=0)
        for one in states:
            assert PLAIN.is_legal_move(one, states).equal(KNOWING.is_legal_move(one, states))
            assert PLAIN.solvable(one, states).equal(KNOWING.solvable(one, states))
        before, after = states[:1], KNOWING.successors(states[0])[0]
        assert (
            PLAIN.is_legal_move(before, after).sum() == KNOWING.is_legal_move(before, after).sum()
        )
        assert PLAIN.is_legal_move(before, after).any()
        goal = KNOWING.goal()
        for one in states:
            assert shortest_length(PLAIN, one, goal) == shortest_length(KNOWING, one, goal)

    def test_sets_in_any_order(self) -> None:
        states = KNOWING.sample(20, seed=1)
        objects = sw.shuffle_sets(KNOWING.objects(states))
        for state, found in zip(states, objects, strict=True):
            assert PLAIN.configuration_of(found).equal(state)
            assert PLAIN.configuration_of(found.double()).equal(state)
        outputs = 8 * objects - 5
        assert PLAIN.configuration_of(PLAIN.read(outputs)[3]).equal(states[3])
        assert PLAIN.recovers(outputs, states).all()
        assert not PLAIN.recovers(outputs, states.roll(1, 0)).any()
        outputs[3, 1] = outputs[3, 0]  # an object twice, another missing
        outputs[5, 2, 0] = torch.nan
        right = PLAIN.recovers(outputs, states)
        assert right.equal(KNOWING.recovers(outputs, states))
        assert (~right).nonzero()[:, 0].tolist() == [3, 5]

    def test_what_is_no_state_is_said(self) -> None:
        objects = KNOWING.objects(KNOWING.goal())
        with pytest.raises(ValueError, match=r"^objects: expected shape \[6, 11\], got \(5, 11\)"):
            PLAIN.configuration_of(objects[:5])
        with pytest.raises(ValueError, match="occur, but not together"):
            PLAIN.configuration_of(objects[[0, 0, 1, 2, 3, 4]])
        for wrong in (0.5, torch.nan):
            objects[4, 0] = wrong
            with pytest.raises(ValueError, match=r"^object 4 occurs in no state: "):
                PLAIN.configuration_of(objects)
        with pytest.raises(
            ValueError, match=r"^configurations\[1\]: no state of plain, got \[0, 0"
        ):
            PLAIN.index(torch.tensor([[0, 1, 2, 3, 4, 5], [0, 0, 2, 3, 4, 5]]))
        with pytest.raises(ValueError, match=r"^configurations: expected shape \[\*, 6\]"):
            PLAIN.index(torch.tensor([0, 1]))
        with pytest.raises(TypeError, match="expected a tensor of integers"):
            PLAIN.index(torch.zeros(6))

    def test_counts(self) -> None:
        states = KNOWING.sample(20, seed=2)
        elements, counts = PLAIN.elements(), PLAIN.counts(states.reshape(4, 5, 6))
        assert elements is not None
        assert len(elements) == len(elements.unique(dim=0)) == 36
        assert (counts.flatten(0, 1) @ elements).equal(KNOWING.objects(states).sum(1))

    def test_many_objects_are_not_counted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("setwise.worlds.world._FEW", 35)
        assert PLAIN.elements() is None

    def test_samples(self) -> None:
        drawn = PLAIN.sample(30, seed=0)
        assert len(drawn.unique(dim=0)) == 30
        assert drawn[:10].equal(PLAIN.sample(10, seed=0))
        assert not drawn.equal(PLAIN.sample(30, seed=1))
        assert PLAIN.sample(720, seed=3).unique(dim=0).equal(KNOWING.states().unique(dim=0))
        with pytest.raises(ValueError, match=r"^count: must be in 0\.\.720, got 721"):
            PLAIN.sample(721, seed=0)

    def test_words(self) -> None:
        one, two = torch.tensor([[0, 1, 2, 3, 4, 5], [1, 0, 2, 3, 4, 5]])
        assert PLAIN.describe(one) == "0 1 2 3 4 5"
        assert PLAIN.action(one, two) == "action 3"  # to the right
        assert PLAIN.explain(one, one) == "no action leads from 0 1 2 3 4 5 to 0 1 2 3 4 5"
        assert PLAIN.start() is None
        given = json.dumps({"init": {"tiles": 3}, "goal": one.tolist()})
        with pytest.raises(ValueError, match=r"init: no legal state of plain: .* no form in words"):
            read_problems(given, PLAIN)

    @given(st.lists(st.tuples(*map(st.integers, (0, 0, 0), (3, 1, 1))), min_size=4, max_size=4))
    def test_the_nearest_state(self, objects: list[tuple[int, int, int]]) -> None:
        tiny = PuzzleWorld(2, 2)
        rows = [
            torch.cat([torch.eye(width)[c] for c, width in zip(o, (4, 2, 2), strict=True)])
            for o in objects
        ]
        found, distance = PlainPuzzle(tiny).nearest(torch.stack(rows))
        # Two one-hot vectors that differ are 2 apart, where the puzzle counts 1.
        assert distance == 2 * tiny.nearest(torch.stack(rows))[1]
        assert (distance == 0) == (found.tolist() in tiny.states().tolist() and distance == 0)

    def test_nothing_is_near_to_some_state_too(self) -> None:
        found, distance = PLAIN.nearest(torch.full((6, 11), torch.nan))
        assert distance == 18  # three ones of each of the six objects are missing
        assert found.tolist() in KNOWING.states().tolist()


class TestBadWorlds:
    """What is wrong with a world is said when it is first used."""

    def test_an_action_that_cannot_be_undone(self) -> None:
        class OneWay(PlainPuzzle):
            def successors(self, configurations: Tensor) -> tuple[Tensor, Tensor]:
                after, legal = super().successors(configurations)
                return after, legal & torch.tensor([True, True, True, False])

        with pytest.raises(ValueError, match=r"^plain: an action leads from .* and none back"):
            OneWay(KNOWING).transitions()

    def test_an_action_that_leads_nowhere(self) -> None:
        class Outwards(PlainPuzzle):
            def successors(self, configurations: Tensor) -> tuple[Tensor, Tensor]:
                after, legal = super().successors(configurations)
                return after + 1, legal

        with pytest.raises(ValueError, match=r"no state of plain"):
            Outwards(KNOWING).transitions()

    def test_a_state_that_is_there_twice(self) -> None:
        class Twice(PlainPuzzle):
            def states(self) -> Tensor:
                return torch.cat([super().states(), super().states()[:2]])

        with pytest.raises(ValueError, match=r"^plain: 2 of its 722 states are there twice"):
            Twice(KNOWING).transitions()

    def test_states_that_cannot_be_told_apart(self) -> None:
        class Blind(PlainPuzzle):
            def objects(self, configurations: Tensor) -> Tensor:
                objects = super().objects(configurations)
                objects[..., :2, :2] = 1.0  # tiles 0 and 1 look the same
                return objects

        blind = Blind(KNOWING)
        objects = blind.objects(KNOWING.goal())
        with pytest.raises(ValueError, match=r"^plain: its 720 states have only 360 different"):
            blind.configuration_of(objects)

    def test_objects_of_another_width(self) -> None:
        class Narrow(PlainPuzzle):
            def objects(self, configurations: Tensor) -> Tensor:
                return super().objects(configurations)[..., :-1]

        with pytest.raises(ValueError, match=r"^objects: expected shape \[720, objects, 11\]"):
            Narrow(KNOWING).elements()

    def test_no_integers(self) -> None:
        class Real(PlainPuzzle):
            def states(self) -> Tensor:
                return super().states().float()

        with pytest.raises(TypeError, match=r"^states: expected a tensor of integers"):
            Real(KNOWING).transitions()

    def test_what_must_be_said_must_be_said(self) -> None:
        class Silent(World):
            pass

        with pytest.raises(TypeError, match="abstract"):
            Silent()  # type: ignore[abstract]


def test_worlds_are_found_by_their_kind() -> None:
    assert WORLDS["puzzle"] is PuzzleWorld
    assert WORLDS["blocksworld"] is PicturedBlocksworld
    with pytest.raises(ValueError, match=r"^world: unknown 'chess'; known: .*puzzle"):
        WORLDS["chess"]
    with pytest.raises(ValueError, match=r"^world: 'puzzle' is taken, by .*PuzzleWorld"):
        type("Other", (PlainPuzzle,), {"kind": "puzzle"})
    assert "kind" not in PlainPuzzle.__dict__  # and so it is not among them


def test_a_world_without_a_kind_is_named_after_its_class() -> None:
    class Nameless(PlainPuzzle):
        name = World.name

    world = Nameless(KNOWING)
    assert world.name == "Nameless"
    with pytest.raises(ValueError, match=r"^configurations: no state of Nameless, got"):
        world.index(torch.zeros(6, dtype=torch.long))
    assert PuzzleWorld.kind == "puzzle"
    assert "Nameless" not in WORLDS


def test_any_set_can_be_drawn() -> None:
    states = KNOWING.states()[:3]
    pictures = PLAIN.draw(KNOWING.objects(states))
    assert pictures.shape[0] == 3
    assert pictures.dtype == np.uint8
    assert set(np.unique(pictures)) == {0, 70, 255}
    assert not np.array_equal(pictures[0], pictures[1])
    shuffled = PLAIN.draw(sw.shuffle_sets(KNOWING.objects(states)))
    assert np.array_equal(pictures, shuffled)
    assert PLAIN.draw_move(*KNOWING.objects(states[:2])) is None
    broken = KNOWING.objects(states)
    broken[1, 2] = torch.nan
    red = (draw_features(broken) == (225, 30, 40)).all(-1)
    assert [bool(one.any()) for one in red] == [False, True, False]
    constant = draw_features(torch.full((1, 2, 3), 4.0))
    assert set(np.unique(constant)) == {0, 70}


@given(st.lists(st.tuples(st.integers(-2, 2), st.integers(-2, 2)), min_size=1, max_size=20))
def test_rows_are_found_by_their_values(rows: list[tuple[int, int]]) -> None:
    for given_rows in (torch.tensor(rows), torch.tensor(rows).float() * -0.5):
        table = RowTable(given_rows)
        assert len(table) == len(set(rows))
        assert given_rows[table.find(given_rows)].equal(given_rows)
        assert table.find(given_rows + 10).tolist() == [-1] * len(rows)


def test_zero_has_one_key() -> None:
    assert row_keys(torch.tensor([[0.0]])) == row_keys(torch.tensor([[-0.0]]))
