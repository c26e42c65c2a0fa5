"""Symbols of looks and places, held against what the pictures were made of."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from sklearn.cluster import KMeans  # type: ignore[import-untyped]

from lit_blocks import STATES, WORLD, lit_archive
from setwise.data.blocksworld_archive import BlocksworldArchive
from setwise.experiments import checkpoint
from setwise.planning import ActionModel, Outcome
from setwise.planning.actions import UnknownSymbolError, fit_symbols
from setwise.planning.actions.looks import Looks
from setwise.planning.actions.pictured import PicturedSteps
from setwise.planning.actions.places import Places
from setwise.planning.actions.seen import FREE, SeenSymbols, Sights, agreement

KINDS = 2 * torch.arange(WORLD.blocks) + STATES[..., 2]


@pytest.fixture(scope="module")
def archive() -> BlocksworldArchive:
    return lit_archive()


@pytest.fixture(scope="module")
def steps(archive: BlocksworldArchive) -> PicturedSteps:
    return PicturedSteps.draw(archive, 250, seed=0)


@pytest.fixture(scope="module")
def symbols(steps: PicturedSteps) -> SeenSymbols:
    return fit_symbols(steps.before, steps.after)


def true_place(stack: int, level: int) -> str:
    return f"{'abc'[stack]}{level + 1}"


class TestSymbols:
    def test_looks_are_what_the_pictures_were_made_of(
        self, steps: PicturedSteps, symbols: SeenSymbols
    ) -> None:
        """Of all states, recorded or not; how many looks there are was not said."""
        assert symbols.looks.count == 2 * WORLD.blocks
        codes = symbols.looks.encode(steps.sights.patches)
        assert agreement(codes.flatten(), KINDS.flatten()) == 1.0
        assert symbols.looks.stable == 1.0
        # The light is what makes it hard: pictures as they are fall into other heaps.
        pixels = steps.sights.patches.flatten(0, 1).flatten(1)[:, ::16].numpy()
        heaps = KMeans(symbols.looks.count, n_init=2, random_state=0).fit_predict(pixels)
        assert agreement(torch.from_numpy(heaps).long(), KINDS.flatten()) < 0.9

    def test_places_are_counted_whatever_lies_below(
        self, steps: PicturedSteps, symbols: SeenSymbols
    ) -> None:
        assert len(symbols.places.middles) == WORLD.stacks
        for boxes, rows in zip(steps.sights.boxes, STATES.tolist(), strict=True):
            places = symbols.places.encode(boxes)
            assert places == [true_place(stack, level) for stack, level, _ in rows]
            heights = [sum(row[0] == stack for row in rows) for stack in range(WORLD.stacks)]
            free = [true_place(stack, height) for stack, height in enumerate(heights)]
            assert symbols.places.free(places) == free

    def test_the_order_of_things_does_not_matter(
        self, steps: PicturedSteps, symbols: SeenSymbols
    ) -> None:
        some, order = steps.sights[:5], torch.tensor([2, 0, 1])
        turned = Sights(some.patches[:, order], some.boxes[:, order])
        there, again = symbols.encode(some), symbols.encode(turned)
        assert [set(one) for one in there] == [set(one) for one in again]
        assert there != again

    def test_what_is_decoded_looks_like_it_and_is_encoded_again(
        self, steps: PicturedSteps, symbols: SeenSymbols
    ) -> None:
        for elements in symbols.encode(steps.before[:10]):
            decoded = symbols.decode(elements)
            assert set(symbols.encode(decoded)[0]) == set(elements)
        with pytest.raises(ValueError, match=r"^elements: \(0, 'z9'\) was never seen"):
            symbols.decode([(0, "z9")])

    def test_a_file(self, tmp_path: Path, steps: PicturedSteps, symbols: SeenSymbols) -> None:
        path = tmp_path / "symbols.safetensors"
        symbols.save(path)
        loaded = SeenSymbols.load(path)
        assert loaded.encode(steps.after) == symbols.encode(steps.after)
        assert loaded.boxes == symbols.boxes
        assert loaded.looks.stable == symbols.looks.stable
        path.write_bytes(path.read_bytes()[:1000])
        with pytest.raises(ValueError, match=rf"^{path}: "):
            SeenSymbols.load(path)
        checkpoint.write(path, {"a": torch.zeros(1)}, {})
        with pytest.raises(ValueError, match=r"holds no symbols, or those of another version"):
            SeenSymbols.load(path)


class TestPlans:
    def test_plans_from_pictures_to_pictures_that_were_not_recorded(
        self, steps: PicturedSteps, symbols: SeenSymbols
    ) -> None:
        model = ActionModel.learn(symbols.recording(steps.before, steps.after), absent=False)
        assert len(model.schemas) == 2  # to move a block, and to change its material
        truth = {
            frozenset(elements): state
            for state, elements in enumerate(symbols.encode(steps.sights))
        }
        assert len(truth) == len(STATES)
        # Where the model can act, and where that leads, is allowed in the world.
        legal = set(map(tuple, steps.transitions.tolist()))
        led = 0
        for elements, state in truth.items():
            for reached in model.successors(model.symbols.state(elements)):
                assert (state, truth[frozenset(model.symbols.elements(reached))]) in legal
                led += 1
        assert led > 0.8 * len(legal)  # what was not seen is not allowed
        [(init, goal)] = steps.problems(7, 1, seed=0)
        plan = model.plan(*symbols.encode(steps.sights[torch.tensor([init, goal])]), searcher="ff")
        assert plan.outcome is Outcome.SOLVED
        way = [truth[frozenset(elements)] for elements in plan.sets]
        assert (way[0], way[-1]) == (init, goal)
        assert set(pairwise(way)) <= legal

    def test_problems_are_about_states_that_were_not_recorded(self, steps: PicturedSteps) -> None:
        known = set(steps.recorded.flatten().tolist())
        problems = steps.problems(3, 5, seed=1)
        assert len(set(problems)) == 5
        assert not known & {state for ends in problems for state in ends}
        assert problems == steps.problems(3, 5, seed=1) != steps.problems(3, 5, seed=2)


class TestRefused:
    def test_sights(self) -> None:
        patches, boxes = torch.zeros(2, 3, 3, 32, 32), torch.tensor([0, 0, 1, 1]).expand(2, 3, 4)
        Sights(patches, boxes)
        with pytest.raises(ValueError, match=r"^patches: expected numbers in"):
            Sights(patches.to(torch.uint8), boxes)
        with pytest.raises(ValueError, match=r"^boxes: expected \[2, 3, 4\], one for each patch"):
            Sights(patches, boxes[:, :2])
        with pytest.raises(ValueError, match=r"with x1 < x2 and y1 < y2 in each"):
            Sights(patches, boxes.flip(-1))

    def test_steps_that_move_nothing(self, steps: PicturedSteps) -> None:
        with pytest.raises(ValueError, match=r"^of 250 steps too few take one thing"):
            fit_symbols(steps.before, steps.before)
        with pytest.raises(ValueError, match=r"^250 sets before, but 10 after"):
            fit_symbols(steps.before, steps.after[:10])

    def test_a_box_in_no_column(self, symbols: SeenSymbols) -> None:
        with pytest.raises(UnknownSymbolError, match=r"^a box around x = 500 is in none"):
            symbols.places.encode(torch.tensor([[494, 0, 506, 9]]))
        far = torch.arange(30)[:, None] * torch.tensor([100, 0, 100, 0]) + torch.tensor(
            [0, 0, 5, 5]
        )
        with pytest.raises(
            ValueError, match=r"^boxes: expected things in at most 26 columns, got 30"
        ):
            Places.fit(far)

    def test_pictures_and_pairs(self, symbols: SeenSymbols) -> None:
        with pytest.raises(ValueError, match=r"^pictures: expected \[\*, 3, 32, 32\]"):
            symbols.looks.encode(torch.zeros(2, 3, 16, 16))
        pairs = torch.arange(8).reshape(4, 2)
        with pytest.raises(ValueError, match=r"^same_look: expected at least four pairs"):
            Looks.fit(torch.rand(9, 3, 32, 32), pairs, pairs[:1])

    def test_more_transitions_than_there_are(self, archive: BlocksworldArchive) -> None:
        with pytest.raises(ValueError, match=r"^transitions: the archive has 2592, got 9999"):
            PicturedSteps.draw(archive, 9999, seed=0)
        every = PicturedSteps.draw(archive, 2592, seed=0)
        with pytest.raises(ValueError, match=r"^every state of the archive was recorded"):
            every.problems(3, 1, seed=0)
        few = replace(every, recorded=every.recorded[:900])
        with pytest.raises(ValueError, match=r"problems of 3 steps between states that were not"):
            few.problems(3, 1000, seed=0)


def test_free_is_no_look_of_a_thing(steps: PicturedSteps, symbols: SeenSymbols) -> None:
    [elements] = symbols.encode(steps.sights[:1])
    assert [place for look, place in elements if look == FREE] == symbols.places.free(
        [str(place) for look, place in elements if look != FREE]
    )
