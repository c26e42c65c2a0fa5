"""Blocks as object vectors, and back as pictures: boxes on a grid, patches, pasting, errors."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from setwise.data.blocksworld_objects import BoxGrid
from setwise.data.blocksworld_pictures import paste
from setwise.experiments.measures import SetSuccess
from setwise.experiments.tasks.picture_error import PictureError
from setwise.features import Bernoulli, Features
from setwise.models import PatchAutoencoder

GRID = BoxGrid(height=40, width=60)


def box(draw: Any, width: int, height: int) -> list[int]:
    x1, y1 = draw(st.integers(0, width - 1)), draw(st.integers(0, height - 1))
    return [x1, y1, draw(st.integers(x1 + 1, width)), draw(st.integers(y1 + 1, height))]


boxes_in_frame = st.composite(lambda draw: box(draw, GRID.width, GRID.height))()


class TestGrid:
    def test_the_paper_has_60_and_40_classes(self) -> None:
        grid = BoxGrid(height=200, width=300)
        assert grid.widths == (60, 40, 60, 40)
        assert [block.width for block in grid.features("bernoulli")] == [60, 40, 60, 40]
        assert {block.scored_as for block in grid.features("bernoulli")} == {"bernoulli"}

    @given(boxes_in_frame)
    def test_edges_move_by_half_a_cell_at_most(self, box: list[int]) -> None:
        """Unless the box would vanish; then it keeps one cell."""
        found = GRID.boxes(GRID.classes(torch.tensor(box))).tolist()
        x1, y1, x2, y2 = found
        assert 0 <= x1 < x2 <= GRID.width
        assert 0 <= y1 < y2 <= GRID.height
        for first, last in ((0, 2), (1, 3)):
            moved = max(abs(found[edge] - box[edge]) for edge in (first, last))
            assert moved <= 2 or found[last] - found[first] == 5

    @pytest.mark.parametrize(
        ("box", "classes"),
        [
            ([0, 0, 60, 40], [0, 0, 11, 7]),  # the whole picture
            ([55, 35, 60, 40], [11, 7, 11, 7]),  # its last cell
            ([58, 38, 60, 40], [11, 7, 11, 7]),  # a left edge is never the last line
            ([0, 0, 1, 2], [0, 0, 0, 0]),  # a right edge never the first
            ([2, 3, 12, 13], [0, 1, 1, 2]),
        ],
    )
    def test_classes_by_hand(self, box: list[int], classes: list[int]) -> None:
        assert GRID.classes(torch.tensor(box)).tolist() == classes

    def test_one_hots_and_back(self) -> None:
        boxes = torch.tensor([[[5, 10, 30, 40], [0, 0, 60, 5]], [[55, 35, 60, 40], [0, 5, 5, 10]]])
        hots = GRID.one_hots(boxes)
        assert hots.shape == (2, 2, 40)
        assert all(part.sum(-1).eq(1).all() for part in hots.split(GRID.widths, dim=-1))
        assert GRID.chosen(hots).equal(boxes)
        assert GRID.chosen(hots * 3 - 7).equal(boxes)  # logits do as well

    @pytest.mark.parametrize(
        ("box", "size"),
        [([5, 5, 5, 10], None), ([0, 0, 61, 5], None), ([-1, 0, 5, 5], None), (None, (41, 60))],
    )
    def test_bad_calls(self, box: list[int] | None, size: tuple[int, int] | None) -> None:
        if box is not None:
            with pytest.raises(ValueError, match=r"x1 < x2 <= 60 .* got \["):
                GRID.classes(torch.tensor(box))
        if size is not None:
            with pytest.raises(ValueError, match="height: expected a multiple of the cell"):
                BoxGrid(*size)


def pillow_paste(patches: Tensor, boxes: Tensor, height: int, width: int) -> Tensor:
    """One after the other with Pillow, channel by channel in floating point."""
    channels = []
    for channel in range(3):
        canvas = Image.new("F", (width, height))
        for patch, box in zip(patches[:, channel], boxes.tolist(), strict=True):
            size = (box[2] - box[0], box[3] - box[1])
            # Pillow smooths when it shrinks, the pasting here only reads between pixels.
            stretched = torch.nn.functional.interpolate(
                patch[None, None], size=size[::-1], mode="bilinear", align_corners=False
            )
            canvas.paste(Image.fromarray(stretched[0, 0].numpy()), tuple(box[:2]))
        channels.append(np.asarray(canvas))
    return torch.from_numpy(np.stack(channels))


class TestPaste:
    def test_as_others_stretch_and_paste(self) -> None:
        patches = torch.rand(3, 3, 32, 32)
        boxes = torch.tensor([[5, 0, 45, 10], [10, 5, 25, 20], [0, 15, 60, 40]])  # ends lower
        picture, covered = paste(patches, boxes, 40, 60)
        expected = pillow_paste(patches, boxes, 40, 60)
        torch.testing.assert_close(picture, expected, atol=1e-5, rtol=0)
        white, _ = paste(torch.ones_like(patches), boxes, 40, 60)
        assert covered.equal(white[0] > 0.5)

    def test_the_order_of_the_set_does_not_matter(self) -> None:
        patches = torch.rand(4, 3, 32, 32)
        boxes = torch.tensor([[0, 0, 30, 30], [5, 5, 30, 30], [0, 0, 25, 30], [0, 0, 30, 30]])
        expected, _ = paste(patches, boxes, 40, 60)
        for order in permutations(range(4)):
            found, _ = paste(patches[list(order)], boxes[list(order)], 40, 60)
            assert found.equal(expected)

    @pytest.mark.parametrize(
        ("below", "above"),
        [
            ([0, 0, 30, 20], [0, 0, 30, 25]),  # ends lower
            ([0, 0, 30, 25], [0, 5, 30, 25]),  # begins lower
            ([0, 5, 25, 25], [0, 5, 30, 25]),  # ends further right
            ([0, 5, 30, 25], [5, 5, 30, 25]),  # begins further right
        ],
    )
    def test_which_covers_which(self, below: list[int], above: list[int]) -> None:
        patches = torch.stack([torch.full((3, 32, 32), shade) for shade in (0.9, 0.1)])
        picture, _ = paste(patches, torch.tensor([below, above]), 40, 60)
        assert picture[:, 10, 10].tolist() == pytest.approx([0.1] * 3)

    def test_many_at_once(self) -> None:
        patches = torch.rand(2, 3, 4, 3, 32, 32)
        corner = torch.randint(0, 30, (2, 3, 4, 2))
        boxes = torch.cat([corner, corner + torch.randint(-3, 10, (2, 3, 4, 2))], dim=-1)
        pictures, covered = paste(patches, boxes, 40, 60)
        for i in range(2):
            for j in range(3):
                picture, cover = paste(patches[i, j], boxes[i, j], 40, 60)
                torch.testing.assert_close(pictures[i, j], picture)
                assert covered[i, j].equal(cover)

    def test_empty_boxes_show_nothing_and_others_are_cut_off(self) -> None:
        patches = torch.ones(3, 3, 32, 32)
        boxes = torch.tensor([[20, 20, 20, 30], [40, 30, 30, 35], [50, 30, 70, 50]])
        picture, covered = paste(patches, boxes, 40, 60)
        assert picture[0].nonzero().amin(0).tolist() == [30, 50]
        assert covered.sum() == 100

    def test_bad_calls(self) -> None:
        with pytest.raises(ValueError, match="one box for each patch"):
            paste(torch.rand(2, 3, 32, 32), torch.zeros(3, 4, dtype=torch.long), 40, 60)
        with pytest.raises(TypeError, match="boxes: expected a tensor of integers"):
            paste(torch.rand(2, 3, 32, 32), torch.zeros(2, 4), 40, 60)


class TestPatchAutoencoder:
    def test_the_network_of_the_paper(self) -> None:
        model = PatchAutoencoder()
        assert model.features == 1024
        shapes = [tuple(p.shape) for p in model.parameters() if p.dim() > 1]
        across = (16, 16, 3, 3)
        assert shapes == [(16, 3, 3, 3), *[across] * 5, (3072, 16384)]
        kinds = [type(layer).__name__ for layer in model.encoder]
        middle = ["Conv2d", "ReLU", "MaxPool2d"]
        assert kinds == [*middle, *middle, "Conv2d", "Sigmoid"]

    def test_shapes_ranges_and_noise(self) -> None:
        model = PatchAutoencoder(channels=2)
        patches = torch.rand(3, 4, 3, 32, 32)
        assert not model.encode(patches).equal(model.encode(patches))  # noise in training
        model.eval()
        features = model.encode(patches)
        assert features.equal(model.encode(patches))
        assert features.shape == (3, 4, 128)
        again = model(patches)
        assert again.shape == patches.shape
        for values in (features, again):
            assert 0 <= values.min() <= values.max() <= 1
        assert model.encode(patches[1, 2]).allclose(features[1, 2], atol=1e-6)

    def test_bad_calls(self) -> None:
        model = PatchAutoencoder(channels=1)
        with pytest.raises(ValueError, match=r"patches: expected shape \[\*, 3, 32, 32\]"):
            model.encode(torch.rand(2, 32, 32, 32))
        with pytest.raises(ValueError, match="64 in the last dimension"):
            model.decode(torch.rand(2, 65))
        with pytest.raises(ValueError, match="noise: expected"):
            PatchAutoencoder(noise=-1)


MODEL = PatchAutoencoder(channels=1).eval().requires_grad_(False)
FEATURES = Features(Bernoulli(64), *GRID.features())


def some_sets(count: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    seen = torch.rand(count, 3, 64, generator=generator)
    corner = torch.randint(0, 25, (count, 3, 2), generator=generator)
    size = torch.randint(5, 15, (count, 3, 2), generator=generator)
    return torch.cat([seen, GRID.one_hots(torch.cat([corner, corner + size], dim=-1))], dim=-1)


class TestPictureError:
    MEASURE = PictureError(MODEL, GRID)
    FINITE = torch.ones(2, 5, dtype=torch.bool)

    def logits(self, sets: Tensor) -> Tensor:
        return FEATURES.from_probs(sets.clamp(1e-6, 1 - 1e-6))

    def test_is_that_of_whole_pictures(self) -> None:
        """Drawn on the whole canvas, and averaged over the data set under the root."""
        targets, others = some_sets(5), some_sets(5, seed=1)
        logits = torch.stack([self.logits(others), self.logits(targets.flip(1))])
        found = self.MEASURE(logits, self.FINITE, targets, FEATURES)
        ours, theirs = self.MEASURE.pictures(others), self.MEASURE.pictures(targets)
        assert ours.shape == (5, 3, 40, 60)
        error = (ours - theirs).square()
        expected = error.mean().sqrt().item()
        assert self.MEASURE.total(found["rmse"])[0].item() == pytest.approx(expected, abs=1e-5)
        drawn = (ours > 0).any(1) | (theirs > 0).any(1)
        inside = torch.stack([e[:, d].mean() for e, d in zip(error, drawn, strict=True)])
        assert found["covered"][0].tolist() == pytest.approx(inside.tolist(), abs=1e-5)
        assert expected > 0.05
        # The same set in another order is the same picture.
        assert found["rmse"][1].abs().max() < 1e-8

    def test_boxes_that_contradict_themselves_show_nothing(self) -> None:
        targets = some_sets(5)
        logits = self.logits(targets).expand(2, -1, -1, -1).clone()
        x1, _, x2, _ = logits[1, ..., 64:].split(GRID.widths, dim=-1)
        x1[..., -1], x2[..., 0] = 99, 99  # views: the box ends before it begins
        found = self.MEASURE(logits, self.FINITE, targets, FEATURES)
        black = self.MEASURE.pictures(targets).square().mean().sqrt().item()
        assert self.MEASURE.total(found["rmse"]).tolist() == pytest.approx([0, black], abs=1e-5)

    def test_what_is_no_number_is_as_wrong_as_can_be(self) -> None:
        targets, finite = some_sets(5), self.FINITE.clone()
        finite[1] = False
        logits = self.logits(targets).expand(2, -1, -1, -1)
        for values in self.MEASURE(logits, finite, targets, FEATURES).values():
            assert self.MEASURE.total(values).tolist() == pytest.approx([0, 1], abs=1e-4)

    def test_moves_to_a_device_and_leaves_the_model(self) -> None:
        moved = self.MEASURE.to(torch.device("cpu"))
        assert moved.patches is not MODEL
        targets = some_sets(5)
        assert moved.pictures(targets).equal(self.MEASURE.pictures(targets))


def test_success_is_a_measure_like_any_other() -> None:
    targets = FEATURES.discretise(some_sets(5) - 0.5)
    logits = torch.stack([9 * targets - 4, 4 - 9 * targets])
    finite = torch.ones(2, 5, dtype=torch.bool)
    measure = SetSuccess()
    found = measure(logits, finite, targets, FEATURES)
    assert list(found) == ["success", "exact"]
    assert measure.total(found[measure.metric]).tolist() == [1.0, 0.0]
