"""The sliding-tile puzzle, exactly: its states, its moves, and its states as sets of objects.

Legend: C cells and as many tiles, T transitions, B sets, M elements, F features, here
C + width + height; ``*`` any leading dimensions.

A configuration is an integer tensor [*, C]: the tile that lies on each cell, cells counted row by
row from the top left, so that cell ``c`` has x = ``c % width`` and y = ``c // width``. Tile 0 is
the blank. Random draws are read from the raw bits of NumPy's PCG64, which NumPy promises never to
change: a seed means the same data on every platform and in every version.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from setwise.data.checks import (
    integers,
    item,
    random_bits,
    require_int,
    require_shape,
    smaller_later,
)
from setwise.features import Categorical, Features

_STEPS = ((0, -1), (0, 1), (-1, 0), (1, 0))  # (x, y): up, down, left, right
_MOST_CELLS = 1024  # of much larger boards the number of states takes forever to write
_MOST_CELLS_RANKED = 20  # 20! is the largest factorial in 64 bits
_MOST_CELLS_LISTED = 10  # the next larger board, 4 x 3, has 479 million states


@dataclass(frozen=True)
class SlidingPuzzle:
    """The puzzle on a board of ``width`` x ``height`` cells; 3 x 3 is the 8-puzzle.

    >>> puzzle = SlidingPuzzle()
    >>> puzzle.number_of_states, puzzle.number_of_transitions
    (362880, 967680)
    """

    width: int = 3
    height: int = 3

    def __post_init__(self) -> None:
        require_int("width", self.width, 2)
        require_int("height", self.height, 2)
        if self.cells > _MOST_CELLS:
            raise ValueError(
                f"width, height: at most {_MOST_CELLS} cells, got {self.width} x {self.height}"
            )

    @property
    def cells(self) -> int:
        return self.width * self.height

    @property
    def tiles(self) -> int:
        """As many as cells: the blank counts as tile 0."""
        return self.cells

    @property
    def features(self) -> Features:
        """What an object is: a tile, its x and its y."""
        return Features(Categorical(self.tiles), Categorical(self.width), Categorical(self.height))

    @property
    def number_of_states(self) -> int:
        """C!, in two halves of which neither can be reached from the other."""
        return math.factorial(self.cells)

    @property
    def number_of_transitions(self) -> int:
        """The blank can take each directed edge of the grid in (C - 1)! states."""
        edges = self.width * (self.height - 1) + self.height * (self.width - 1)
        return 2 * edges * math.factorial(self.cells - 1)

    def goal(self) -> Tensor:
        """The configuration [C] with every tile on the cell of its number; its rank is 0."""
        return torch.arange(self.cells)

    def rank(self, configurations: Tensor) -> Tensor:
        """The place [*] of each configuration [*, C] among all of them in lexicographic order.

        >>> SlidingPuzzle(2, 2).rank(torch.tensor([[0, 1, 2, 3], [0, 1, 3, 2], [3, 2, 1, 0]]))
        tensor([ 0,  1, 23])
        """
        digits = smaller_later(self._checked("configurations", configurations))
        return (digits * self._place_values().to(digits.device)).sum(-1)

    def unrank(self, ranks: Tensor) -> Tensor:
        """The configurations [*, C] of given ranks [*].

        >>> SlidingPuzzle(2, 2).unrank(torch.tensor(23))
        tensor([3, 2, 1, 0])
        """
        ranks, last = integers("ranks", ranks), self.number_of_states - 1
        place_values = self._place_values().to(ranks.device)
        wrong = (ranks < 0) | (ranks > last)
        if wrong.any():
            raise ValueError(f"ranks: must lie in 0..{last} for {self}, got {ranks[wrong][0]}")
        bases = torch.arange(self.cells, 0, -1, device=ranks.device)
        tiles = ranks.unsqueeze(-1) // place_values % bases
        # A digit is the tile's place among those not used before; from the right, count them in.
        for cell in reversed(range(self.cells)):
            later = tiles[..., cell + 1 :]
            later += later >= tiles[..., cell, None]
        return tiles

    def states(self) -> Tensor:
        """All configurations [C!, C], each at the index of its rank."""
        if self.cells > _MOST_CELLS_LISTED:
            raise ValueError(
                f"{self}: too large to list all {self.number_of_states} configurations; "
                f"use sample or random_walk"
            )
        return self.unrank(torch.arange(self.number_of_states))

    def transitions(self) -> Tensor:
        """All legal moves [T, 2] as the ranks before and after, sorted by the rank before.

        >>> SlidingPuzzle(2, 2).transitions()[:4].tolist()
        [[0, 14], [0, 6], [1, 20], [1, 7]]
        """
        after, legal = self.successors(self.states())
        before = legal.nonzero()[:, 0]  # an index among all configurations is a rank
        return torch.stack([before, self.rank(after[legal])], dim=-1)

    def successors(self, configurations: Tensor) -> tuple[Tensor, Tensor]:
        """Where the moves of the blank up, down, left and right lead: [*, 4, C] and a mask [*, 4].

        The mask is True at legal moves; the others leave the configuration as it is.

        >>> after, legal = SlidingPuzzle(2, 2).successors(torch.tensor([0, 1, 2, 3]))
        >>> after[legal]
        tensor([[2, 1, 0, 3],
                [1, 0, 2, 3]])
        """
        before = self._checked("configurations", configurations)
        blank = _blank(before).unsqueeze(-1)
        to = self._neighbours().to(blank.device)[blank.squeeze(-1)]
        after = before.unsqueeze(-2).repeat_interleave(len(_STEPS), -2)
        moved = before.gather(-1, to).unsqueeze(-1)
        after.scatter_(-1, blank.unsqueeze(-2).expand_as(moved), moved)
        after.scatter_(-1, to.unsqueeze(-1), 0)
        return after, to != blank

    def is_legal_move(self, before: Tensor, after: Tensor) -> Tensor:
        """Whether one move of the blank leads from ``before`` to ``after``: [*, C] twice -> [*].

        >>> puzzle = SlidingPuzzle(2, 2)
        >>> puzzle.is_legal_move(puzzle.goal(), torch.tensor([[1, 0, 2, 3], [3, 1, 2, 0]]))
        tensor([ True, False])
        """
        before, after = self._checked_pair(before=before, after=after)
        reached, legal = self.successors(before)
        return ((reached == after.unsqueeze(-2)).all(-1) & legal).any(-1)

    def solvable(self, start: Tensor, end: Tensor) -> Tensor:
        """Whether any sequence of moves leads from ``start`` to ``end``: [*, C] twice -> [*].

        A move swaps two tiles and takes the blank one cell further, so the parity of the
        permutation plus that of the blank's x + y never changes; nothing else stands in the way.
        """
        start, end = self._checked_pair(start=start, end=end)
        return self._parity(start) == self._parity(end)

    def objects(self, configurations: Tensor) -> Tensor:
        """Configurations [*, C] as sets of objects, float32 [*, C, F], in the order of the tiles.

        An object is a tile, its x and its y, each one-hot: 9 x 15 numbers for the 8-puzzle.

        >>> SlidingPuzzle(2, 2).objects(torch.tensor([3, 0, 2, 1]))[1]
        tensor([0., 1., 0., 0., 0., 1., 0., 1.])
        """
        cell = self._checked("configurations", configurations).argsort(-1)  # of each tile
        number = torch.arange(self.tiles, device=cell.device)
        tile, x, y = number.expand_as(cell), cell % self.width, cell // self.width
        choices = zip((tile, x, y), self.features.widths, strict=True)
        one_hot = [choice.unsqueeze(-1) == number[:width] for choice, width in choices]
        return torch.cat(one_hot, dim=-1).float()

    def fill_cells(self, sets: Sequence[Tensor]) -> Tensor:
        """Fill sets of some of the objects [n, F] up, a dummy for each cell that is left empty.

        The result [B, C, F + 1] is in the order of the cells. Its last feature is 0 for objects and
        1 for dummies; the dummy of cell c has the x and y of c, and c in place of a tile. Which
        dummies there are follows from the objects, so that they add nothing to be learned, unlike
        those of `setwise.data.pad_sets`, of which a set has the first few.

        >>> puzzle = SlidingPuzzle(2, 2)
        >>> objects = puzzle.objects(torch.tensor([3, 0, 2, 1]))
        >>> puzzle.fill_cells([objects[1:]])[0, :2]  # tile 3 in cell 0, and cell 1 is empty
        tensor([[0., 0., 0., 1., 1., 0., 1., 0., 0.],
                [0., 1., 0., 0., 0., 1., 1., 0., 1.]])
        """
        size, width = self.cells, self.features.width
        number = torch.arange(size)
        dummies = self.objects(number)  # the configuration whose cell c has tile c
        filled = torch.cat([dummies, torch.ones(size, 1)], dim=-1).repeat(len(sets), 1, 1)
        for index, objects in enumerate(sets):
            require_shape(f"sets[{index}]", objects, "objects", width)
            _, x, y = (block.argmax(-1) for block in self.features.split(objects))
            cell = y * self.width + x
            if len(cell.unique()) < len(cell):
                raise ValueError(f"sets[{index}]: two objects are in one cell: {cell.tolist()}")
            filled[index, cell] = torch.cat([objects, torch.zeros(len(objects), 1)], dim=-1)
        return filled

    def configuration_of(self, objects: Tensor) -> Tensor:
        """The configurations [*, C] of sets of objects [*, C, F], whatever the order of each.

        Outputs of a network go through ``features.discretise`` first. Objects that do not form a
        configuration are an error, which says why.
        """
        require_shape("objects", objects, "*", self.cells, self.features.width)
        blocks = zip(("tile", "x", "y"), self.features.split(objects), strict=True)
        tile, x, y = (_hot_class(name, block) for name, block in blocks)
        cell = y * self.width + x
        _require_each_once("objects", "tile", tile)
        _require_each_once("objects", "cell (y * width + x)", cell)
        return torch.empty_like(cell).scatter_(-1, cell, tile)

    def sample(self, count: int, seed: int) -> Tensor:
        """Distinct configurations [count, C], drawn uniformly out of all C!, solvable or not.

        With the same seed a larger ``count`` continues the same list.
        """
        require_int("count", count, 0, self.number_of_states)
        bits = random_bits("sample", seed)
        if self.cells <= _MOST_CELLS_LISTED:
            order = bits.random_raw(self.number_of_states).argsort(kind="stable")
            return self.unrank(torch.from_numpy(order[:count]))
        # Too many to put in order, but so many that what was drawn hardly ever comes again.
        drawn = np.empty((0, self.cells), dtype=np.int64)
        while len(drawn) < count:
            more = bits.random_raw((count, self.cells)).argsort(-1, kind="stable")
            drawn = np.concatenate([drawn, more])
            first_occurrence = np.unique(drawn, axis=0, return_index=True)[1]
            drawn = drawn[np.sort(first_occurrence)]
        return torch.from_numpy(drawn[:count])

    def random_walk(self, steps: int, seed: int, start: Tensor | None = None) -> Tensor:
        """The configurations [steps + 1, C] of a random walk from ``start``, by default the goal.

        Every legal move of the blank is equally likely, also the one that undoes the last.
        """
        require_int("steps", steps, 0)
        start = self._checked("start", self.goal() if start is None else start)
        require_shape("start", start, self.cells)
        neighbours = self._neighbours().tolist()
        walk: list[list[int]] = [start.tolist()]
        for word in random_bits("walk", seed).random_raw(steps).tolist():
            tiles = walk[-1].copy()
            blank = tiles.index(0)
            options = [cell for cell in neighbours[blank] if cell != blank]
            to = options[word % len(options)]
            tiles[blank], tiles[to] = tiles[to], 0
            walk.append(tiles)
        return torch.tensor(walk, device=start.device)

    def _neighbours(self) -> Tensor:
        """The cell [C, 4] after each step from each cell: the same one where the board ends."""
        cell = torch.arange(self.cells)
        here = torch.stack([cell % self.width, cell // self.width], dim=-1).unsqueeze(1)
        there = here + torch.tensor(_STEPS)
        inside = (there >= 0) & (there < torch.tensor([self.width, self.height]))
        x, y = torch.where(inside.all(-1, keepdim=True), there, here).unbind(-1)
        return y * self.width + x

    def _parity(self, configurations: Tensor) -> Tensor:
        blank, inversions = _blank(configurations), smaller_later(configurations).sum(-1)
        return (inversions + blank % self.width + blank // self.width) % 2

    def _place_values(self) -> Tensor:
        """What the digits [C] of a rank are worth: (C - 1)!, ..., 2!, 1!, 0!."""
        if self.cells > _MOST_CELLS_RANKED:
            raise ValueError(
                f"{self}: ranks up to {self.cells}! do not fit in 64 bits; "
                f"boards of at most {_MOST_CELLS_RANKED} cells have ranks"
            )
        return torch.tensor([math.factorial(later) for later in reversed(range(self.cells))])

    def _checked(self, name: str, configurations: Tensor) -> Tensor:
        configurations = integers(name, configurations)
        require_shape(name, configurations, "*", self.cells)
        _require_each_once(name, "tile", configurations)
        return configurations

    def _checked_pair(self, **pair: Tensor) -> list[Tensor]:
        checked = [self._checked(name, tensor) for name, tensor in pair.items()]
        try:
            return list(torch.broadcast_tensors(*checked))
        except RuntimeError as error:
            given = " and ".join(f"{name} {tuple(one.shape)}" for name, one in pair.items())
            raise ValueError(f"expected shapes that broadcast, got {given}") from error


def drop_elements(objects: Tensor, seed: int, most: int = 5) -> list[Tensor]:
    """Take elements away at random: sets [B, M, F] of one size become sets of M - most to M.

    Half of the sets stay whole, a quarter lose one element, an eighth two, and so on; those left
    over in the end lose ``most``. For the 8-puzzle the sizes 9, 8, 7, 6, 5, 4 have probabilities
    1/2, 1/4, 1/8, 1/16, 1/32, 1/32. Each set is drawn by itself, all its elements are equally
    likely to go, and those that stay keep their order. `pad_sets` makes one tensor of the result.

    >>> [len(elements) for elements in drop_elements(torch.ones(10, 9, 15), seed=0)]
    [9, 9, 9, 9, 7, 9, 8, 7, 8, 9]
    """
    require_shape("objects", objects, "sets", "elements", "features")
    B, M, _ = objects.shape
    require_int("most", most, 0, M)
    words = random_bits("drop", seed).random_raw((B, 1 + M))
    # The bits of the first word are coins: an element goes for every head before the first tail.
    heads = words[:, :1] >> np.arange(most, dtype=np.uint64) & np.uint64(1)
    dropped = heads.cumprod(axis=1).sum(axis=1, keepdims=True)
    turn = words[:, 1:].argsort(axis=1, kind="stable").argsort(axis=1)
    kept = torch.from_numpy(turn >= dropped)
    return list(objects[kept.to(objects.device)].split(kept.sum(-1).tolist()))


def _blank(configurations: Tensor) -> Tensor:
    return (configurations == 0).int().argmax(-1)


def _hot_class(name: str, block: Tensor) -> Tensor:
    hot = block == 1
    wrong = (~(hot | (block == 0)).all(-1) | (hot.sum(-1) != 1)).nonzero()
    if len(wrong):
        place = wrong[0].tolist()
        raise ValueError(
            f"objects: the {name} of {item('objects', place)} is not one-hot: "
            f"{block[tuple(place)].tolist()}; outputs go through features.discretise first"
        )
    return hot.int().argmax(-1)


def _require_each_once(name: str, what: str, numbers: Tensor) -> None:
    """Every row of ``numbers`` [*, C] must hold 0 to C - 1, in any order."""
    count = numbers.shape[-1]
    every = torch.arange(count, device=numbers.device)
    wrong = (numbers.sort(-1).values != every).any(-1).nonzero()
    if len(wrong):
        place = wrong[0].tolist()
        raise ValueError(
            f"{name}: expected each {what} from 0 to {count - 1} once, "
            f"{item(name, place)} has {numbers[tuple(place)].tolist()}"
        )
