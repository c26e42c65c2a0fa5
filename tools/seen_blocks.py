"""Plans from pictures: action models over learned symbols, measured in the Blocksworld.

`tools.actions` runs it with an archive of pictures, that of ``setwise data blocksworld --blocks 4``
with all states or some. Symbols and actions are learned from random transitions between its
pictures. Problems lead between states that were not recorded, given by their pictures alone, and
the world judges every plan. Of a part of the states, the archive has transitions between these
alone; the problems are walks in the world, whose ends are among them.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from setwise.data.blocksworld import Blocksworld
from setwise.data.blocksworld_archive import BlocksworldArchive
from setwise.experiments.tasks.rules import fingerprint
from setwise.outside import read_json
from setwise.planning import ActionModel, ActionPlan
from setwise.planning.actions.pictured import PicturedSteps
from setwise.planning.actions.seen import FREE, SeenSymbols, agreement
from setwise.planning.actions.symbols import Element
from setwise.report.tables import read_experiments
from tools import action_records
from tools.markdown import markdown

ROOT = Path(__file__).parent.parent
RECORDS = action_records.FOLDER / "seen.jsonl"
STEPS = (3, 7, 14)
PROBLEMS = 10  # of each
LARGEST, DRAWS = 2000, 3  # transitions, so many times
FEWER = 200, 500, 1000
SUPPORT = 2  # times; what was seen once is taken for noise
_SECONDS = 60.0  # for each plan
_WALKS = 100_000  # to look for problems; a part of the states is rarely where one ends


@dataclass(frozen=True)
class Setting:
    """What is learned from."""

    transitions: int
    states: int  # that there are pictures of
    renderer: str
    samples: int  # rays for each pixel
    blocks: int
    stacks: int
    support: int
    seed: int = 0  # of the transitions and problems
    drawn_by: int = 0  # the seed of the states of the archive


def settings(path: Path) -> list[Setting]:
    """Those of an archive; how it was drawn is in the file beside it."""
    drawn = read_json(path.parent / "settings.json")
    world = drawn["environment"]["world"]
    first = Setting(
        LARGEST,
        len(BlocksworldArchive.read(path).boxes),
        drawn["renderer"],
        drawn["samples"],
        world["blocks"],
        world["stacks"],
        SUPPORT,
        drawn_by=drawn["seed"],
    )
    fewer = [replace(first, transitions=count) for count in FEWER]
    return [*(replace(first, seed=seed) for seed in range(DRAWS)), *reversed(fewer)]


def problems(
    world: Blocksworld, states: Tensor, known: set[int], steps: int, count: int, seed: int
) -> list[tuple[int, int]]:
    """States [S, N, 3] to lead from and to, by number: neither is among those that are known.

    Walks in the world that visit no state twice; on the way they may visit any.
    """
    number = {rank: place for place, rank in enumerate(world.rank(states).tolist())}
    left = sorted(set(range(len(states))) - known)
    generator = random.Random(f"{steps} steps, seed {seed}")
    found: list[tuple[int, int]] = []
    tries = iter(range(_WALKS if left else 0))
    while len(found) < count:
        if next(tries, None) is None:
            raise ValueError(
                f"found {len(found)} of {count} problems of {steps} steps between the {len(left)} "
                f"states that were not recorded; draw more states, or record fewer transitions"
            )
        start = generator.choice(left)
        state, visited = states[start], {int(world.rank(states[start]))}
        while len(visited) <= steps:
            after, legal = world.successors(state)
            new = [one for one in after[legal] if int(world.rank(one)) not in visited]
            if not new:
                break
            state = generator.choice(new)
            visited.add(int(world.rank(state)))
        end = number.get(int(world.rank(state)))
        if len(visited) > steps and end is not None and end not in known:
            found += [(start, end)] if (start, end) not in found else []
    return found


def measure(setting: Setting, archive: BlocksworldArchive) -> dict[str, Any]:
    """Learn symbols and actions, plan and judge."""
    world = Blocksworld(setting.blocks, setting.stacks)
    states = world.sample(len(archive.boxes), setting.drawn_by)  # what the pictures show
    steps = PicturedSteps.draw(archive, setting.transitions, setting.seed)
    start = time.monotonic()
    symbols = SeenSymbols.fit(steps.before, steps.after)
    looking = time.monotonic() - start
    recording = symbols.recording(steps.before, steps.after)
    model = ActionModel.learn(recording, absent=False, support=setting.support)
    learning = time.monotonic() - start - looking
    codes = symbols.looks.encode(steps.sights.patches)
    kinds = 2 * torch.arange(world.blocks) + states[..., 2]
    known = torch.zeros(len(states), dtype=torch.bool)
    known[steps.recorded.flatten()] = True
    meaning = {
        int(code): int(kinds[codes == code].mode().values) for code in codes.unique().tolist()
    }
    ends, plans, valid = [], [], []
    recorded = set(known.nonzero()[:, 0].tolist())
    for length in STEPS:
        for init, goal in problems(world, states, recorded, length, PROBLEMS, setting.seed):
            given = symbols.encode(steps.sights[torch.tensor([init, goal])])
            plan = model.plan(*given, searcher="ff", seconds=_SECONDS)
            ends.append(length)
            plans.append(plan)
            wanted = states[init], states[goal]
            valid.append(plan.solved and is_valid(world, plan, symbols, meaning, wanted))
    return {
        "looks": symbols.looks.count,
        "stable": symbols.looks.stable,
        "agreement": agreement(codes[known].flatten(), kinds[known].flatten()),
        "agreement_elsewhere": agreement(codes[~known].flatten(), kinds[~known].flatten()),
        "states_recorded": int(known.sum()),
        "schemas": len(model.schemas),
        "looking_seconds": round(looking, 2),
        "learning_seconds": round(learning, 2),
        "outcomes": [
            {
                "steps": length,
                "outcome": str(plan.outcome),
                "valid": bool(good),
                "length": len(plan.steps),
                "seconds": round(plan.seconds, 2),
            }
            for length, plan, good in zip(ends, plans, valid, strict=True)
        ],
    }


def is_valid(
    world: Blocksworld,
    plan: ActionPlan,
    symbols: SeenSymbols,
    meaning: dict[int, int],
    ends: tuple[Tensor, Tensor],
) -> bool:
    """Whether every step is legal in the world, from the one state to the other."""
    try:
        states = [state_of(world, elements, symbols, meaning) for elements in plan.sets]
        legal = all(bool(world.is_legal_action(*step)) for step in pairwise(states))
    except ValueError:  # of what is no state
        return False
    return legal and states[0].equal(ends[0]) and states[-1].equal(ends[1])


def state_of(
    world: Blocksworld, elements: Sequence[Element], symbols: SeenSymbols, meaning: dict[int, int]
) -> Tensor:
    """The state [N, 3] that elements describe; ``meaning`` is the kind of each look."""
    things = [(meaning[int(look)], str(place)) for look, place in elements if look != FREE]
    if sorted(kind // 2 for kind, _ in things) != list(range(world.blocks)):
        raise ValueError("a block is missing, or there twice")
    letters = symbols.places.letters
    rows = {k // 2: [letters.index(place[0]), int(place[1:]) - 1, k % 2] for k, place in things}
    return world.check(torch.tensor([rows[block] for block in range(world.blocks)]))


def record(path: Path) -> None:
    """Measure what is not recorded yet."""
    archive = BlocksworldArchive.read(path)
    drawn = {"sha256": fingerprint(path)}
    action_records.record(
        RECORDS, settings(path), lambda setting: drawn | measure(setting, archive)
    )


def table(records: Sequence[dict[str, Any]]) -> str:
    """A line for each measurement, and the networks of Table 5 beside them."""
    titles = ["learned from", "draw", "looks", "named rightly", "of states not recorded"]
    titles += [f"{steps} steps" for steps in STEPS] + ["valid, of plans found", "seconds"]
    lines = []
    for one in sorted(records, key=_place):
        plans = one["outcomes"]
        good = [sum(p["valid"] for p in plans if p["steps"] == steps) for steps in STEPS]
        found = [p for p in plans if p["outcome"] == "solved"]
        seconds = [p["seconds"] for p in found]
        lines.append(
            [
                f"{one['setting']['transitions']:,} transitions",
                str(1 + one["setting"]["seed"]),
                str(one["looks"]),
                f"{100 * one['agreement']:.2f}%",
                f"{100 * one['agreement_elsewhere']:.2f}%",
                *(f"{number} of {PROBLEMS}" for number in good),
                f"{sum(good)} of {len(found)}",
                f"{statistics.median(seconds):.1f}" if found else "",
            ]
        )
    lines.append(["all 34,560, by a network", "", "", "", "", *_of_table5(), "", ""])
    archives = {
        f"{one['setting']['states']:,} pictures by {one['setting']['renderer']}, "
        f"{one['setting']['samples']} rays a pixel"
        for one in records
    }
    said = f"{'; '.join(sorted(archives))}. {action_records.made_on(records)}"
    return "\n".join(markdown(titles, lines)) + f"\n\n{said}"


def _place(record: dict[str, Any]) -> tuple[int, int]:
    return record["setting"]["transitions"], record["setting"]["seed"]


def _of_table5() -> list[str]:
    """What networks of set cross entropy solve, as median and best."""
    recorded = read_experiments(ROOT / "results")["table5"].records
    said = []
    for steps in STEPS:
        solved = [
            int(one["metrics"]["solved"])
            for one in recorded
            if (one["scenario"], one["loss"]) == (f"blocks-{steps}", "set_cross_entropy")
        ]
        said.append(f"{statistics.median(solved):g} of {PROBLEMS}, at best {max(solved)}")
    return said
