"""Coders of puzzle states that need no training: an exact one, and others that have a defect."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import shortest_path
from torch import Tensor

from setwise.worlds import PuzzleWorld

SMALL = PuzzleWorld(3, 2)
_ODD = 0x9E3779B1  # multiplying by an odd number modulo a power of two can be undone


class Oracle:
    """Codes that look random, one for each state, and their exact inverse.

    The rank of a state is scrambled within as many bits as it needs; the others are parities of
    some of these. The decoder answers in an order of its own.
    """

    def __init__(self, puzzle: PuzzleWorld, bits: int) -> None:
        self.puzzle, self.bits = puzzle, bits
        self.rank_bits = (puzzle.number_of_states - 1).bit_length()
        self.modulus = 2**self.rank_bits
        random = np.random.default_rng(0)
        masks = random.integers(1, self.modulus, bits - self.rank_bits)
        self.masks = torch.cat([2 ** torch.arange(self.rank_bits), torch.from_numpy(masks)])
        self.order = torch.from_numpy(random.permutation(bits))

    def encode(self, sets: Tensor) -> Tensor:
        return self.code(self.puzzle.rank(self.puzzle.configuration_of(sets)))

    def code(self, ranks: Tensor) -> Tensor:
        scrambled = ranks * _ODD % self.modulus
        picked = scrambled.unsqueeze(-1) & self.masks
        for shift in (16, 8, 4, 2, 1):
            picked = picked ^ picked >> shift
        return (picked & 1).bool()[..., self.order]

    def decode(self, codes: Tensor) -> Tensor:
        bits = codes[..., self.order.argsort()][..., : self.rank_bits]
        scrambled = (bits * self.masks[: self.rank_bits]).sum(-1)
        ranks = scrambled * pow(_ODD, -1, self.modulus) % self.modulus
        objects = self.puzzle.objects(self.puzzle.unrank(ranks % self.puzzle.number_of_states))
        return 9 * objects.flip(-2) - 4


class Forgetful(Oracle):
    """Does not look at one bit of the scrambled rank: pairs of states share a code."""

    def encode(self, sets: Tensor) -> Tensor:
        codes = super().encode(sets)
        codes[..., (self.order < self.rank_bits).nonzero()[0]] = False
        return codes


class Fickle(Oracle):
    """Lets the first object have a say in a bit that the decoder does not look at."""

    def encode(self, sets: Tensor) -> Tensor:
        codes = super().encode(sets)
        codes[..., (self.order >= self.rank_bits).nonzero()[0]] ^= sets[..., 0, :1].bool()
        return codes


class Blurred(Oracle):
    """Decodes one object twice in every state whose code begins with a 1."""

    def decode(self, codes: Tensor) -> Tensor:
        outputs = super().decode(codes)
        outputs[codes[..., 0], 1] = outputs[codes[..., 0], 0]
        return outputs


@cache
def distances(puzzle: PuzzleWorld) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """From the goal to every state, by SciPy; infinite where there is no way."""
    before, after = puzzle.transitions().numpy().T
    size = puzzle.number_of_states
    graph = coo_matrix((np.ones(len(before), np.int8), (before, after)), shape=(size, size))
    found: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = shortest_path(
        graph, unweighted=True, indices=0
    )
    return found
