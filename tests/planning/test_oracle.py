"""The coder that tests of planning trust, and the puzzle they solve."""

from __future__ import annotations

import numpy as np
import torch

import setwise as sw
from oracle import SMALL, Oracle, distances
from setwise.worlds import PuzzleWorld


def test_the_oracle_is_exact() -> None:
    for puzzle, bits in ((SMALL, 16), (SMALL, 40), (PuzzleWorld(3, 3), 100)):
        oracle = Oracle(puzzle, bits)
        configurations = puzzle.sample(500, seed=0)
        shuffled = sw.shuffle_sets(puzzle.objects(configurations))
        codes = oracle.encode(shuffled)
        assert codes.shape == (500, bits)
        assert codes.dtype == torch.bool
        assert len(codes.unique(dim=0)) == 500
        assert puzzle.recovers(oracle.decode(codes), configurations).all()


def test_no_state_of_the_small_puzzle_is_far() -> None:
    reached = distances(SMALL)[np.isfinite(distances(SMALL))]
    assert len(reached) == 360
    assert reached.max() == 21
