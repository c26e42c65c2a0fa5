"""Symbols of pictured blocks: which looks the states of an archive are known by."""

from __future__ import annotations

import torch
from torch.nn.functional import one_hot

from setwise.planning.seen_space import _with_looks_of_their_own


def looks_of(seen: list[list[int]], materials: list[list[int]], looks: int) -> list[list[int]]:
    """The looks of blocks [S, N] afterwards; places stay as they are."""
    places = torch.rand(len(seen), len(seen[0]), 2)
    states = torch.zeros(*places.shape[:2], 3, dtype=torch.long)
    states[..., 2] = torch.tensor(materials)
    objects = torch.cat([one_hot(torch.tensor(seen), looks).float(), places], dim=-1)
    found = _with_looks_of_their_own(objects, states, looks)
    assert found[..., looks:].equal(places)
    assert (found[..., :looks].sum(-1) == 1).all()
    back: list[list[int]] = found[..., :looks].argmax(-1).tolist()
    return back


def test_a_look_that_another_kind_has_more_often_is_replaced() -> None:
    """The last metal picture is taken for rubber; the same look of another block is its own."""
    materials = [[0], [0], [0], [1], [1], [1]]
    assert looks_of([[0], [0], [0], [1], [1], [0]], materials, 2) == [[0]] * 3 + [[1]] * 3
    blocks = [[0, 1], [0, 1], [0, 1], [0, 0]]
    assert looks_of(blocks, [[0, 0]] * 4, 2) == [[0, 1]] * 4


def test_several_looks_of_one_kind_stay() -> None:
    seen, materials = [[0], [0], [2], [1]], [[0], [0], [0], [1]]
    assert looks_of(seen, materials, 3) == seen


def test_the_look_in_its_place_is_no_foreign_one_either() -> None:
    """Most metal pictures are taken for rubber, of which there are more."""
    materials = [[0]] * 4 + [[1]] * 5
    seen = [[0]] * 4 + [[0], [0], [0], [1], [1]]
    assert looks_of(seen, materials, 2) == [[0]] * 4 + [[1]] * 5


def test_kinds_that_look_alike_stay_alike() -> None:
    """Metal has no look of its own, nor one that as many have: the commonest of it is left."""
    assert looks_of([[0]] * 5, [[0], [0], [0], [1], [1]], 2) == [[0]] * 5
    assert looks_of([[0]] * 4, [[0], [0], [1], [1]], 1) == [[0]] * 4
    seen = [[0, 1], [0, 1], [0, 1], [0, 1], [0, 1], [1, 1]]
    materials = [[0, 0], [0, 0], [0, 0], [1, 0], [1, 0], [1, 0]]
    assert looks_of(seen, materials, 2) == [[0, 1]] * 6
