"""How many transitions an action model needs: measured, and told in docs/action-models.md.

    python -m tools.action_curves record    # writes results/actions/curves.jsonl; some minutes
    python -m tools.action_curves           # writes the figure and the tables of the page, that of
                                            # tools.seen_blocks too

Each measurement learns a model from random walks, draws problems that have nothing to do with
them, plans, and lets the world itself judge every plan. Those that are recorded are not repeated.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
import torch
from matplotlib import pyplot as plt
from torch import Tensor

from setwise.cli.actions import world_named
from setwise.environment import describe
from setwise.files import atomic_write_text
from setwise.planning import ActionModel, ActionPlan, random_problems
from setwise.planning.actions import record_walks, together
from setwise.worlds import PuzzleWorld, World
from tools import seen_blocks
from tools.markdown import markdown, with_blocks

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "results" / "actions" / "curves.jsonl"
PAGE = ROOT / "docs" / "action-models.md"
FIGURE = "action-curves.png"
SHUFFLED = 0  # in the place of the steps of a walk
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


def settings() -> list[Setting]:
    """All that is measured, worlds one after the other and what is most asked for first."""
    chosen = [
        Setting("puzzle-3x3", 500, walk=1, steps=SHUFFLED, problems=100),
        Setting("puzzle-3x3", 5000, 1, SHUFFLED, lift=False, absent=False, problems=100),
        Setting("puzzle-4x4", 2000, walk=1, steps=40),
        Setting("puzzle-4x4", 2000, walk=1, steps=SHUFFLED),
        Setting("puzzle-5x5", 2500, walk=1, steps=40),
        Setting("hanoi-4x3", 500, walk=20, steps=20),
        Setting("lights-4x4", 3000, walk=20, steps=8),
        Setting("pushing-6x6", 20000, walk=50, steps=12),
    ]
    few = {
        "puzzle-3x3": (20, 50, 100, 200),
        "puzzle-4x4": (100, 200, 500, 1000),
        "hanoi-4x3": (20, 50, 100, 200),
        "lights-4x4": (100, 300, 1000),
        "pushing-6x6": (500, 2000, 5000, 10000),
    }
    like = {one.world: one for one in chosen if one.lift}
    for world, counts in few.items():
        known = asdict(like[world]) | {"problems": 20}
        chosen += [Setting(**(known | {"transitions": count})) for count in counts]
    ground = asdict(chosen[1]) | {"problems": 20}
    return chosen + [Setting(**(ground | {"transitions": n})) for n in (200, 500, 1000, 2000)]


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
    for init, goal in _problems(world, setting):
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
    states = [world.configuration_of(state) for state in plan.states]
    legal = all(bool(world.is_legal_move(one, other)) for one, other in pairwise(states))
    return legal and states[0].equal(init) and states[-1].equal(goal)


def record() -> None:
    """Measure what is not recorded yet."""
    known = {json.dumps(one["setting"]) for one in read()}
    environment = describe(torch.device("cpu"))
    for setting in settings():
        if json.dumps(asdict(setting)) in known:
            continue
        found = {"setting": asdict(setting)} | measure(setting) | {"environment": environment}
        lines = [*map(json.dumps, read()), json.dumps(found)]
        atomic_write_text(RECORDS, "".join(f"{line}\n" for line in lines))
        print(f"{setting}: {found['solved']} solved, {found['valid']} valid", flush=True)


def read() -> list[dict[str, Any]]:
    """The records."""
    if not RECORDS.is_file():
        return []
    return [json.loads(line) for line in RECORDS.read_text().splitlines()]


def update(records: list[dict[str, Any]], page: str) -> str:
    """The text of the page with its tables made anew."""
    blocks = {"action-curves": table(records), "seen-blocks": seen_blocks.table(seen_blocks.read())}
    puzzle, hanoi = domain("puzzle-3x3", 500, walk=1), domain("hanoi-3x3", 600, walk=30)
    blocks["puzzle-pddl"] = f"```\n{puzzle}```\n"
    largest = hanoi[hanoi.index("  (:action change-peg-disk-2") :].removesuffix(")\n")
    blocks["hanoi-pddl"] = f"```\n{largest}```\n"
    return with_blocks(page, PAGE.name, blocks)


def domain(world: str, transitions: int, walk: int) -> str:
    """The PDDL that is learned of a world."""
    recording = record_walks(world_named(world), transitions, 0, walk)
    return ActionModel.learn(recording).domain.text()


def table(records: list[dict[str, Any]]) -> str:
    """A line for each measurement, the worlds as they first come, fewest transitions first."""
    titles = ["world", "learned", "transitions", "walks of", "problems", "solved", "valid"]
    titles += ["steps", "seconds"]
    lines = []
    for one in _ordered(records):
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
    made = sorted({f"{r['environment']['hardware']}, commit {_short(r)}" for r in records})
    return "\n".join(markdown(titles, lines)) + f"\n\nOn {'; '.join(made)}.\n"


def draw(records: list[dict[str, Any]], path: Path) -> None:
    """The share of problems solved, and of plans that are valid, by the number of transitions."""
    mpl.use("Agg")
    figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
    found_some = [one for one in records if one["solved"]]
    counts = [one["setting"]["transitions"] for one in found_some]
    valid = [one["valid"] / one["solved"] for one in found_some]
    axes.plot(counts, valid, "x", color="0.6", label="share of plans that are valid, all worlds")
    curves: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in _ordered(records):
        setting = one["setting"]
        if setting["world"] in CARRIED:
            continue
        if setting["world"] != "puzzle-4x4" or setting["steps"] == SHUFFLED:
            kind = "lifted" if setting["lift"] else "ground"
            curves.setdefault((setting["world"], kind), []).append(one)
    for (world, kind), found in curves.items():
        x = [one["setting"]["transitions"] for one in found]
        y = [one["solved"] / one["setting"]["problems"] for one in found]
        style = "-" if kind == "lifted" else ":"
        axes.plot(x, y, style, marker="o", markersize=3, label=f"{world}, {kind}")
    axes.set(xscale="log", xlabel="transitions", ylabel="share of problems solved")
    axes.set_ylim(-0.03, 1.03)
    axes.legend(fontsize=7)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Write the page, or measure."""
    if sys.argv[1:] == ["record"]:
        record()
        return
    records = read()
    atomic_write_text(PAGE, update(records, PAGE.read_text()))
    draw(records, PAGE.parent / "figures" / FIGURE)


def _problems(world: World, setting: Setting) -> list[tuple[Tensor, Tensor]]:
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


def _ordered(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    worlds = list(dict.fromkeys(one["setting"]["world"] for one in records))

    def place(one: dict[str, Any]) -> tuple[Any, ...]:
        setting = one["setting"]
        world = worlds.index(setting["world"])
        return world, not setting["lift"], setting["transitions"], setting["steps"]

    return sorted(records, key=place)


def _short(record: dict[str, Any]) -> str:
    commit = str(record["environment"]["commit"])
    return commit[:12] + commit[40:]


if __name__ == "__main__":
    main()
