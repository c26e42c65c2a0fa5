"""One step in the Blocksworld, in words: which actions there are, what they do, why one cannot be.

Legend: N blocks, K stacks. `Blocksworld` itself deals with many states at once; this is for plans,
their validators and files, which look at one state [N, 3] at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from setwise.data.blocksworld import MATERIALS, Blocksworld
from setwise.data.checks import require_int, require_shape


class Action(NamedTuple):
    """What is done to a block; ``stack`` says where a ``move`` puts it."""

    name: Literal["move", "polish", "unpolish"]
    block: int
    stack: int | None = None


def legal_actions(world: Blocksworld, state: Tensor) -> list[Action]:
    """What can be done in a state [N, 3], in the order of `Blocksworld.successors`.

    >>> world = Blocksworld(blocks=2, stacks=2)
    >>> legal_actions(world, world.unrank(torch.tensor(0)))
    [Action(name='polish', block=1, stack=None), Action(name='move', block=1, stack=1)]
    """
    rows = _rows(world, state, "state")
    found: list[Action] = []
    for source, stack in enumerate(_stacks(world, rows)):
        for target in range(world.stacks) if stack else ():
            if target != source:
                found.append(Action("move", stack[-1], target))
            else:
                found.append(Action("unpolish" if rows[stack[-1]][2] else "polish", stack[-1]))
    return found


def apply_action(world: Blocksworld, state: Tensor, action: Action) -> Tensor:
    """The state [N, 3] after an action; one that is not legal is an error, which says why.

    >>> world = Blocksworld(blocks=2, stacks=3)
    >>> apply_action(world, world.unrank(torch.tensor(0)), Action("move", 1, stack=2)).tolist()
    [[0, 0, 0], [2, 0, 0]]
    """
    rows = _rows(world, state, "state")
    name, block, target = action
    require_int("block", block, 0, world.blocks - 1)
    stack, level, metal = rows[block]
    stacks = _stacks(world, rows)
    if stacks[stack][-1] != block:
        above = stacks[stack][level + 1]
        raise ValueError(f"{action}: block {block} cannot be touched, block {above} lies on it")
    if name == "move":
        if target is None:
            raise ValueError(f"{action}: a move needs the stack to move to")
        require_int("stack", target, 0, world.stacks - 1)
        if target == stack:
            raise ValueError(f"{action}: block {block} is on stack {stack} already")
        rows[block] = [target, len(stacks[target]), metal]
    elif name in ("polish", "unpolish"):
        if target is not None:
            raise ValueError(f"{action}: only a move has a stack")
        if metal == (name == "polish"):
            raise ValueError(f"{action}: block {block} is {MATERIALS[metal]} already")
        rows[block][2] = 1 - metal
    else:
        raise ValueError(f"{action}: the actions are move, polish and unpolish")
    return torch.tensor(rows, device=state.device)


def action_between(world: Blocksworld, before: Tensor, after: Tensor) -> Action:
    """The action that leads from one state [N, 3] to another; an error if there is none."""
    start, end = _rows(world, before, "before"), _rows(world, after, "after")
    for action in legal_actions(world, before):
        if apply_action(world, before, action).tolist() == end:
            return action
    changed = [block for block, row in enumerate(start) if row != end[block]]
    raise ValueError(
        f"no single action changes blocks {changed} as asked: "
        f"{state_to_json(world, before)} -> {state_to_json(world, after)}"
        if changed
        else f"no action leaves everything as it is: {state_to_json(world, before)}"
    )


def state_to_json(world: Blocksworld, state: Tensor) -> dict[str, Any]:
    """A state [N, 3] in words: the blocks of each stack, bottom first, and all materials.

    >>> state_to_json(Blocksworld(blocks=2, stacks=2), torch.tensor([[1, 0, 1], [1, 1, 0]]))
    {'stacks': [[], [0, 1]], 'materials': ['metal', 'rubber']}
    """
    rows = _rows(world, state, "state")
    return {
        "stacks": _stacks(world, rows),
        "materials": [MATERIALS[metal] for _, _, metal in rows],
    }


def state_from_json(world: Blocksworld, value: Mapping[str, Any]) -> Tensor:
    """The state [N, 3] that `state_to_json` wrote."""
    stacks, materials = value.get("stacks", []), value.get("materials", [])
    blocks = [block for stack in stacks for block in stack]
    if len(stacks) != world.stacks or sorted(blocks) != list(range(world.blocks)):
        raise ValueError(
            f"stacks: expected {world.stacks} lists that hold each of the blocks 0 to "
            f"{world.blocks - 1} once, got {stacks}"
        )
    if len(materials) != world.blocks or not set(materials) <= set(MATERIALS):
        raise ValueError(
            f"materials: expected {world.blocks} times {' or '.join(MATERIALS)}, got {materials}"
        )
    place = {
        block: (number, level)
        for number, stack in enumerate(stacks)
        for level, block in enumerate(stack)
    }
    metal = [MATERIALS.index(material) for material in materials]
    return torch.tensor([[*place[block], metal[block]] for block in range(world.blocks)])


def _rows(world: Blocksworld, state: Tensor, name: str) -> list[list[int]]:
    """Stack, level and metal of each block of one state."""
    require_shape(name, state, world.blocks, 3)
    rows: list[list[int]] = world.check(state, name).tolist()
    return rows


def _stacks(world: Blocksworld, rows: list[list[int]]) -> list[list[int]]:
    """The blocks of each stack, bottom first."""
    stacks: list[list[int]] = [[] for _ in range(world.stacks)]
    for block in sorted(range(world.blocks), key=lambda block: rows[block][1]):
        stacks[rows[block][0]].append(block)
    return stacks
