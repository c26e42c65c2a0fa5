"""The Blocksworld, exactly: blocks on stacks, rubber or metal, and what may be done to them.

Legend: N blocks, K stacks, A actions, here K * K, T transitions; ``*`` any leading dimensions.

A state is an integer tensor [*, N, 3]: for each block its stack, its level in that stack, 0 at the
bottom, and whether it is metal, 1, or rubber, 0. Stacks are places on the table and may be empty,
so that the same blocks one place further to the right are another state. Only the block on top of
a stack can be touched: ``move`` puts it on another stack, ``polish`` makes it metal and
``unpolish`` rubber. Every action can be undone by another, and with three stacks or more any state
can be reached from any; with two, the order of the blocks in both together never changes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

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

Material = Literal["rubber", "metal"]
MATERIALS: tuple[Material, ...] = ("rubber", "metal")
_MOST_BLOCKS, _MOST_STACKS = 20, 1000  # 21! does not fit in 64 bits
_MOST_STATES_LISTED = 2_000_000  # 6 blocks on 3 stacks have 1,290,240


@dataclass(frozen=True)
class Blocksworld:
    """``blocks`` different blocks on ``stacks`` stacks.

    >>> world = Blocksworld(blocks=4, stacks=3)
    >>> world.number_of_states, world.number_of_transitions
    (5760, 34560)
    >>> Blocksworld(blocks=5).number_of_states
    80640
    """

    blocks: int = 5
    stacks: int = 3

    def __post_init__(self) -> None:
        require_int("blocks", self.blocks, 1)
        require_int("stacks", self.stacks, 2)
        if self.stacks > _MOST_STACKS:
            raise ValueError(f"stacks: must be at most {_MOST_STACKS}, got {self.stacks}")
        if self.blocks > _MOST_BLOCKS or self.number_of_states >= 2**63:
            raise ValueError(f"{self}: the numbers of its states do not fit in 64 bits")

    @property
    def number_of_states(self) -> int:
        """Any order of the blocks, any heights of the stacks, any materials."""
        return math.factorial(self.blocks) * self._number_of_heights() * 2**self.blocks

    @property
    def number_of_transitions(self) -> int:
        """K actions for each stack that is not empty: onto each other one, or the material.

        A stack is not empty in as many states as there are with one block fewer to divide among
        the stacks, but in any order.
        """
        filled = math.comb(self.blocks + self.stacks - 2, self.stacks - 1)
        return self.stacks**2 * math.factorial(self.blocks) * filled * 2**self.blocks

    def check(self, states: Tensor, name: str = "states") -> Tensor:
        """States [*, N, 3] as 64-bit integers; what is no state is an error under this name."""
        states = integers(name, states)
        require_shape(name, states, "*", self.blocks, 3)
        stack, level, metal = states.unbind(-1)
        # Read in order, the levels must count up from 0 in every stack: no gaps, no two in one.
        order, heights = _reading_order(states), self._heights(states)
        place = torch.arange(self.blocks, device=states.device)
        in_order = stack.gather(-1, order).clamp(0, self.stacks - 1)
        bottom = (heights.cumsum(-1) - heights).gather(-1, in_order)
        wrong = (level.gather(-1, order) != place - bottom) | (stack < 0) | (stack >= self.stacks)
        wrong = (wrong | (metal < 0) | (metal > 1)).any(-1).nonzero()
        if len(wrong):
            at = wrong[0].tolist()
            raise ValueError(
                f"{name}: expected for each block (stack below {self.stacks}, level counted from "
                f"0 without gaps, metal 0 or 1), {item(name, at)} has {states[tuple(at)].tolist()}"
            )
        return states

    def rank(self, states: Tensor) -> Tensor:
        """The number [*] of each state [*, N, 3], from 0 to ``number_of_states`` - 1.

        Its digits are the order of the blocks, read from stack to stack and from bottom to top,
        then the heights of the stacks, then the materials.
        """
        states = self.check(states)
        place_values = self._place_values().to(states.device)
        order = (smaller_later(_reading_order(states)) * place_values).sum(-1)
        # Bars between the stacks, from the last to the first, stand among N blocks in a row: the
        # sum of C(place, number) over the bars counts the choices of smaller places.
        number = torch.arange(self.stacks - 1, device=states.device)
        bars = self._heights(states).flip(-1).cumsum(-1)[..., :-1] + number
        heights = self._binomials().to(states.device)[number, bars].sum(-1)
        metal = (states[..., 2] << torch.arange(self.blocks, device=states.device)).sum(-1)
        return (order * self._number_of_heights() + heights) * 2**self.blocks + metal

    def unrank(self, ranks: Tensor) -> Tensor:
        """The states [*, N, 3] of given numbers [*]; that of 0 has all blocks on one stack.

        >>> Blocksworld(blocks=2, stacks=3).unrank(torch.tensor(0)).tolist()
        [[0, 0, 0], [0, 1, 0]]
        """
        ranks, last = integers("ranks", ranks), self.number_of_states - 1
        wrong = (ranks < 0) | (ranks > last)
        if wrong.any():
            raise ValueError(f"ranks: must lie in 0..{last} for {self}, got {ranks[wrong][0]}")
        number = torch.arange(self.blocks, device=ranks.device)
        rest, metal = ranks >> self.blocks, ranks.unsqueeze(-1) >> number & 1
        heights = self._heights_of_rank(rest % self._number_of_heights())
        digits = (rest // self._number_of_heights()).unsqueeze(-1)
        order = digits // self._place_values().to(ranks.device) % (self.blocks - number)
        # A digit is the block's place among those not used before; from the right, count them in.
        for place in reversed(range(self.blocks)):
            later = order[..., place + 1 :]
            later += later >= order[..., place, None]
        top = heights.cumsum(-1)
        stack = (number.unsqueeze(-1) >= top.unsqueeze(-2)).sum(-1)  # of each place in the order
        level = number - (top - heights).gather(-1, stack)
        place_of = order.argsort(-1)
        return torch.stack([stack.gather(-1, place_of), level.gather(-1, place_of), metal], dim=-1)

    def states(self) -> Tensor:
        """All states [number_of_states, N, 3], each at the index of its rank."""
        if self.number_of_states > _MOST_STATES_LISTED:
            raise ValueError(
                f"{self}: too large to list all {self.number_of_states} states; "
                f"use sample or random_walk"
            )
        return self.unrank(torch.arange(self.number_of_states))

    def transitions(self) -> Tensor:
        """All legal steps [T, 2] as the ranks before and after, sorted by the rank before."""
        after, legal = self.successors(self.states())
        before = legal.nonzero()[:, 0]  # an index among all states is a rank
        return torch.stack([before, self.rank(after[legal])], dim=-1)

    def successors(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Where each action leads: [*, N, 3] -> [*, A, N, 3] and a mask [*, A] of legal actions.

        Action ``s * K + t`` moves the top of stack s onto stack t; with s = t it changes the
        material of that block. It is legal unless stack s is empty, which leaves the state as is.
        """
        before = self.check(states)
        heights, number = self._heights(before), torch.arange(self.stacks, device=before.device)
        stack, level, metal = (column[..., None, None, :] for column in before.unbind(-1))
        source, target = number[:, None, None], number[:, None]  # next to [*, K, K, N]
        top = (stack == source) & (level == heights[..., None, None] - 1)
        moved, changed = top & (source != target), top & (source == target)
        after = torch.stack(
            [
                torch.where(moved, target, stack),
                torch.where(moved, heights[..., None, :, None], level),
                torch.where(changed, 1 - metal, metal),
            ],
            dim=-1,
        )
        legal = (heights > 0).repeat_interleave(self.stacks, -1)
        return after.flatten(-4, -3), legal

    def is_legal_action(self, before: Tensor, after: Tensor) -> Tensor:
        """Whether one action leads from ``before`` to ``after``: [*, N, 3] twice -> [*]."""
        before, after = self.check(before, "before"), self.check(after, "after")
        try:
            before, after = torch.broadcast_tensors(before, after)
        except RuntimeError as error:
            given = f"before {tuple(before.shape)} and after {tuple(after.shape)}"
            raise ValueError(f"expected shapes that broadcast, got {given}") from error
        reached, legal = self.successors(before)
        return ((reached == after.unsqueeze(-3)).flatten(-2).all(-1) & legal).any(-1)

    def sample(self, count: int, seed: int) -> Tensor:
        """Distinct states [count, N, 3], drawn uniformly out of all.

        With the same seed a larger ``count`` continues the same list.
        """
        require_int("count", count, 0, self.number_of_states)
        bits, drawn = random_bits("blocks", seed), np.empty(0, dtype=np.uint64)
        # The remainder favours small ranks by less than number_of_states / 2**64.
        while len(drawn) < count:
            more = bits.random_raw(count) % np.uint64(self.number_of_states)
            drawn = np.concatenate([drawn, more])
            drawn = drawn[np.sort(np.unique(drawn, return_index=True)[1])]
        return self.unrank(torch.from_numpy(drawn[:count].astype(np.int64)))

    def random_walk(self, steps: int, seed: int, start: Tensor | None = None) -> Tensor:
        """The states [steps + 1, N, 3] of a random walk from ``start``, by default rank 0.

        Every legal action is equally likely, also the one that undoes the last.
        """
        require_int("steps", steps, 0)
        start = self.unrank(torch.tensor(0)) if start is None else start
        require_shape("start", start, self.blocks, 3)
        walk = [self.check(start, "start")]
        for word in random_bits("block walk", seed).random_raw(steps).tolist():
            after, legal = self.successors(walk[-1])
            options = after[legal]
            walk.append(options[word % len(options)])
        return torch.stack(walk)

    def _heights(self, states: Tensor) -> Tensor:
        """How many blocks [*, K] lie on each stack."""
        number = torch.arange(self.stacks, device=states.device)
        return (states[..., 0, None] == number).sum(-2)

    def _heights_of_rank(self, ranks: Tensor) -> Tensor:
        """The heights [*, K] of given number [*]: each bar at the last place that fits."""
        bars = torch.empty(*ranks.shape, self.stacks, dtype=torch.int64, device=ranks.device)
        bars[..., -1] = self.blocks + self.stacks - 1
        table = self._binomials().to(ranks.device)
        for number in reversed(range(self.stacks - 1)):
            bars[..., number] = torch.searchsorted(table[number], ranks, right=True) - 1
            ranks = ranks - table[number][bars[..., number]]
        edge = torch.full_like(bars[..., :1], -1)
        return (bars.diff(dim=-1, prepend=edge) - 1).flip(-1)

    def _binomials(self) -> Tensor:
        """C(place, number + 1) [K - 1, N + K - 1] for each bar and each place it can have."""
        places = range(self.blocks + self.stacks - 1)
        rows = [[math.comb(place, bar + 1) for place in places] for bar in range(self.stacks - 1)]
        return torch.tensor(rows)

    def _number_of_heights(self) -> int:
        return math.comb(self.blocks + self.stacks - 1, self.stacks - 1)

    def _place_values(self) -> Tensor:
        return torch.tensor([math.factorial(later) for later in reversed(range(self.blocks))])


def _reading_order(states: Tensor) -> Tensor:
    """The blocks [*, N] of states [*, N, 3] from stack to stack, each from bottom to top."""
    return (states[..., 0] * states.shape[-2] + states[..., 1]).argsort(-1)
