"""How many transitions an action model needs: measured, for docs/action-models.md.

`tools.actions` runs it and writes the page. Each measurement learns a model from random walks,
draws problems that have nothing to do with them, plans, and lets the world itself judge every plan.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt
from torch import Tensor

from setwise.cli.actions import world_named
from setwise.planning import ActionModel, ActionPlan, random_problems
from setwise.planning.actions import record_walks, together
from setwise.worlds import PuzzleWorld, World
from tools import action_records
from tools.markdown import markdown

RECORDS = action_records.FOLDER / "curves.jsonl"
SHUFFLED = 0  # in the place of the steps of a walk
SEEDS = 5
# Worlds that nothing was recorded of: what was, and how much.
CARRIED = {"puzzle-5x5": {"puzzle-3x3": 500, "puzzle-4x4": 2000}}
_SECONDS = 60.0  # for each plan


@dataclass(frozen=True)
class Setting:
    """What is learned from, and what is asked."""

    world: str
    transitions: int
    walk: int  # steps of each walk that is recorded
    steps: int  # of the walks of problems, or SHUFFLED
    searcher: str = "ff"
    lift: bool = True
    absent: bool = True
    problems: int = 40
    seed: int = 0


def promised() -> list[Setting]:
    """The largest recording of each world, and as many problems as make a number of it."""
    return [
        Setting("puzzle-3x3", 500, walk=1, steps=SHUFFLED, problems=100),
        Setting("puzzle-3x3", 5000, 1, SHUFFLED, lift=False, absent=False, problems=100),
        Setting("puzzle-4x4", 2000, walk=1, steps=40),
        Setting("puzzle-4x4", 2000, walk=1, steps=SHUFFLED),
        Setting("puzzle-5x5", 2500, walk=1, steps=40),
        Setting("hanoi-4x3", 500, walk=20, steps=20),
        Setting("lights-4x4", 3000, walk=20, steps=8),
        Setting("pushing-6x6", 20000, walk=50, steps=12),
    ]


def curves() -> list[Setting]:
    """Smaller recordings, several of each size, a few problems each."""
    lifted = {
        "hanoi-4x3": (50, 100, 200, 500),
        "puzzle-3x3": (100, 200, 500),
        "puzzle-4x4": (500, 1000, 2000),
        "lights-4x4": (100, 300, 1000),
        "pushing-6x6": (2000, 5000, 20000),
    }
    like = {one.world: one for one in promised() if one.lift}
    sizes = [(like[world], counts) for world, counts in lifted.items()]
    sizes += [(one, (500, 1000, 2000)) for one in promised() if not one.lift]
    return [
        replace(one, transitions=count, problems=5, seed=seed)
        for seed in range(SEEDS)
        for one, counts in sizes
        for count in counts
    ]


def measure(setting: Setting) -> dict[str, Any]:
    """Learn, plan and judge."""
    world = world_named(setting.world)
    recordings = [
        record_walks(world_named(name), count, setting.seed, setting.walk)
        for name, count in CARRIED.get(setting.world, {setting.world: setting.transitions}).items()
    ]
    start = time.monotonic()
    model = ActionModel.learn(together(recordings), lift=setting.lift, absent=setting.absent)
    if setting.world in CARRIED:
        names, widths = model.symbols.names, world.features.widths
        model = model.carried({n: range(w) for n, w in zip(names, widths, strict=True)})
    actions = len(model.domain.written)
    learning = time.monotonic() - start
    plans, valid = [], 0
    for init, goal in problems_of(world, setting):
        plan = model.plan(
            world.objects(init), world.objects(goal), searcher=setting.searcher, seconds=_SECONDS
        )
        plans.append(plan)
        valid += plan.solved and is_valid(world, plan, init, goal)
    solved = [plan for plan in plans if plan.solved]
    return {
        "schemas": len(model.schemas),
        "pddl_actions": actions,
        "learning_seconds": learning,
        "solved": len(solved),
        "valid": valid,
        "outcomes": {
            str(o): sum(p.outcome is o for p in plans) for o in {p.outcome for p in plans}
        },
        "steps": [len(plan.steps) for plan in solved],
        "seconds": [round(plan.seconds, 3) for plan in solved],
    }


def is_valid(world: World, plan: ActionPlan, init: Tensor, goal: Tensor) -> bool:
    """Whether every step is legal in the world, from the one configuration to the other."""
    return are_legal(world, plan.states, init, goal)


def are_legal(world: World, sets: Sequence[Tensor], init: Tensor, goal: Tensor) -> bool:
    """The same of the sets along a plan; what is no state of the world is not legal either."""
    try:
        states = [world.configuration_of(one) for one in sets]
    except ValueError:
        return False
    legal = all(bool(world.is_legal_move(one, other)) for one, other in pairwise(states))
    return legal and states[0].equal(init) and states[-1].equal(goal)


def record() -> None:
    """Measure what is not recorded yet."""
    action_records.record(RECORDS, promised() + curves(), measure)


def table(records: Sequence[dict[str, Any]]) -> str:
    """A line for each of the largest recordings."""
    titles = ["world", "learned", "transitions", "walks of", "problems", "solved", "valid"]
    titles += ["steps", "seconds"]
    lines = []
    for one in _chosen(records, promised()):
        setting = one["setting"]
        steps, seconds = one["steps"], one["seconds"]
        lines.append(
            [
                setting["world"],
                _learned(setting),
                f"{setting['transitions']:,}",
                str(setting["walk"]),
                _asked(setting),
                f"{one['solved']} of {setting['problems']}",
                f"{one['valid']} of {one['solved']}",
                f"{min(steps)} to {max(steps)}" if steps else "",
                f"{statistics.median(seconds):.1f}, at most {max(seconds):.1f}" if steps else "",
            ]
        )
    return "\n".join(markdown(titles, lines)) + "\n"


def curve_table(records: Sequence[dict[str, Any]]) -> str:
    """A line for each size of a recording, all seeds together."""
    titles = ["world", "learned", "transitions", "recordings", "solved", "least and most", "valid"]
    lines = []
    for found in _points(records):
        setting = found[0]["setting"]
        solved = [one["solved"] for one in found]
        problems = setting["problems"]
        lines.append(
            [
                setting["world"],
                _learned(setting),
                f"{setting['transitions']:,}",
                str(len(found)),
                f"{sum(solved)} of {problems * len(found)}",
                f"{min(solved)} and {max(solved)} of {problems}",
                f"{sum(one['valid'] for one in found)} of {sum(solved)}",
            ]
        )
    made = action_records.made_on(records)
    return "\n".join(markdown(titles, lines)) + f"\n\n{made}"


def draw(records: Sequence[dict[str, Any]], path: Path) -> None:
    """The share of problems solved, and of plans that are valid, by the number of transitions."""
    mpl.use("Agg")
    figure, axes = plt.subplots(figsize=(7.6, 4), layout="constrained")
    worlds: dict[tuple[str, bool], list[list[dict[str, Any]]]] = {}
    for found in _points(records):
        setting = found[0]["setting"]
        worlds.setdefault((setting["world"], setting["lift"]), []).append(found)
    for (world, lift), points in worlds.items():
        x = [found[0]["setting"]["transitions"] for found in points]
        shares = [[one["solved"] / one["setting"]["problems"] for one in f] for f in points]
        label = f"{world}, {'lifted' if lift else 'ground'}"
        y = [statistics.mean(share) for share in shares]
        [line] = axes.plot(x, y, "-" if lift else ":", marker="o", markersize=3, label=label)
        low, high = [min(share) for share in shares], [max(share) for share in shares]
        axes.fill_between(x, low, high, color=line.get_color(), alpha=0.12, linewidth=0)
    some = [one for found in _points(records) for one in found if one["solved"]]
    counts = [one["setting"]["transitions"] for one in some]
    valid = [one["valid"] / one["solved"] for one in some]
    axes.plot(counts, valid, "x", color="0.4", label="plans that are valid, of those found")
    axes.set(xscale="log", xlabel="transitions", ylabel="share of problems solved")
    axes.set_ylim(-0.03, 1.04)
    figure.legend(loc="outside right upper", fontsize=7)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def problems_of(world: World, setting: Setting) -> list[tuple[Tensor, Tensor]]:
    """Configurations to lead from and to; none of their draws is that of the recording."""
    seed = setting.seed + 1
    if setting.steps == SHUFFLED:
        assert isinstance(world, PuzzleWorld)
        goal = world.goal()
        drawn = world.sample(4 * setting.problems, seed)
        return [(one, goal) for one in drawn if bool(world.solvable(one, goal))][: setting.problems]
    problems = random_problems(world, setting.steps, setting.problems, seed, start_is="init")
    read = world.configuration_of
    return [(read(problem.init), read(problem.goal)) for problem in problems]


def _asked(setting: dict[str, Any]) -> str:
    if setting["steps"] == SHUFFLED:
        return "shuffled"
    return f"{setting['steps']} random steps"


def _learned(setting: dict[str, Any]) -> str:
    if setting["world"] in CARRIED:
        return f"carried over from {' and '.join(CARRIED[setting['world']])}"
    kind = "lifted" if setting["lift"] else "ground"
    return kind if setting["absent"] else f"{kind}, `absent=False`"


def _chosen(records: Sequence[dict[str, Any]], settings: Iterable[Setting]) -> list[dict[str, Any]]:
    """The records of settings, in their order, as far as there are any."""
    wanted = [asdict(setting) for setting in settings]
    return [one for setting in wanted for one in records if one["setting"] == setting]


def _points(records: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The records of the curves, those together that differ in their seeds alone."""
    points: dict[Setting, list[dict[str, Any]]] = {}
    for one in _chosen(records, curves()):
        points.setdefault(replace(Setting(**one["setting"]), seed=0), []).append(one)
    return list(points.values())
