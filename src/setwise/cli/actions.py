"""``setwise actions``: what can be done, learned from recorded steps between sets; and plans."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from setwise.cli import actions_see
from setwise.cli.errors import CommandError
from setwise.cli.options import (
    positive,
    positive_whole,
    require_file,
    require_folder,
    require_place,
    seed,
)
from setwise.cli.stages import stage
from setwise.cli.user_file import run_file
from setwise.files import atomic_write_text

if TYPE_CHECKING:
    from setwise.planning import ActionModel
    from setwise.worlds import World

_SHOWN = 30  # lines about a model


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser's."""
    parser = commands.add_parser(
        "actions",
        help="learn action models from recorded steps, and plan with them",
        description="Sets before and after each of many steps in, PDDL and plans out. See "
        "docs/action-models.md for the files.",
    )
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="WHAT", title="what to do")
    _register_record(kinds)
    actions_see.register(kinds)
    _register_learn(kinds)
    _register_plan(kinds)


def _register_record(kinds: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = kinds.add_parser(
        "record",
        help="random walks in a world, as a file to learn from",
        description="Writes what a recording of a world of your own would hold: sets before and "
        "after each step. Nothing of the rules is in it.",
    )
    add = parser.add_argument
    add("name", metavar="WORLD", help="such as puzzle-4x4, hanoi-4x3, lights-4x4 or pushing-6x6")
    add("-o", "--output", type=Path, required=True, metavar="FILE", help=".jsonl or .npz")
    add("--transitions", type=positive_whole, default=2000, help="default: 2000")
    add("--walk", type=positive_whole, default=20, metavar="STEPS", help="each; default: 20")
    add("--seed", type=seed, default=0, help="default: 0")
    add("--problem", type=Path, metavar="FILE", help="write a problem as well, for actions plan")
    add("--steps", type=positive_whole, default=30, help="of the walk of a problem; default: 30")
    add("--world", type=Path, metavar="FILE", help="a Python file that defines a world of yours")
    parser.set_defaults(run=_record, extra="planning")


def _register_learn(kinds: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = kinds.add_parser(
        "learn",
        help="a domain in PDDL from a recording",
        description="Says what was learned, and what was dropped for want of support.",
    )
    _add_learning(parser)
    add = parser.add_argument
    add("-o", "--output", type=Path, required=True, metavar="FILE", help="such as domain.pddl")
    add("--symbols", type=Path, metavar="FILE", help="keep what values are called, as safetensors")
    parser.set_defaults(run=_learn, extra="planning")


def _register_plan(kinds: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = kinds.add_parser(
        "plan",
        help="from one set to another, by what a recording shows",
        description="The exit code is 0 if there is a plan, 1 if there is none, and 2 if it could "
        "not be run.",
    )
    _add_learning(parser)
    add = parser.add_argument
    add("problem", type=Path, metavar="PROBLEM", help='JSON: {"init": [...], "goal": [...]}')
    add("--searcher", default="lmcut", help="ff or lama, or a heuristic for A*; default: lmcut")
    add("--part", action="store_true", help="the goal is any set that holds the elements given")
    add("--seconds", type=positive, default=300.0, help="for the planner; default: 300")
    add("--memory-mb", type=positive_whole, default=6000, help="for the planner; default: 6000")
    add("--downward", type=Path, metavar="PATH", help="Fast Downward, if not that of the extra")
    add("-o", "--output", type=Path, metavar="DIR", help="keep the PDDL and the plan here")
    parser.set_defaults(run=_plan, extra="planning")


def _add_learning(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("transitions", type=Path, metavar="TRANSITIONS", help="a recording, .jsonl or .npz")
    add("--ground", action="store_true", help="do not generalise over values")
    add("--only-present", action="store_true", help="nothing forbids an action by being there")
    add(
        "--support",
        type=positive_whole,
        default=1,
        metavar="TIMES",
        help="what was seen more rarely is noise; default: 1",
    )
    add(
        "--measured",
        nargs="+",
        default=[],
        metavar="FEATURE",
        help="numbers that shake, of which symbols are learned; x,y: both are one",
    )
    add("--angles", nargs="+", default=[], metavar="FEATURE", help="likewise, in radians")


def world_named(name: str) -> World:
    """A world by its kind and sizes, such as ``puzzle-4x4``."""
    from setwise.worlds import WORLDS

    kind, sizes = name, []
    try:
        if found := re.fullmatch(r"(.+)-(\d+(?:x\d+)*)", name):
            kind, sizes = found[1], [int(size) for size in found[2].split("x")]
        return WORLDS[kind](*sizes)
    except ValueError as error:
        raise CommandError(f"WORLD: {name:.60}: {error}") from error
    except TypeError as error:
        raise CommandError(f"WORLD: {name}: a {kind} is not made of these sizes") from error


def _record(options: argparse.Namespace) -> int:
    from setwise.planning import problems_for
    from setwise.planning.actions.files import write_problem, write_recording
    from setwise.planning.actions.walks import record_walks

    if options.world:
        run_file("--world", options.world)
    require_place("--output", options.output)
    if options.problem:
        require_place("--problem", options.problem)
        if options.problem.resolve() == options.output.resolve():
            raise CommandError("--problem: expected another file than that of --output")
    world = world_named(options.name)
    try:
        recording = record_walks(world, options.transitions, options.seed, options.walk)
        write_recording(recording, options.output)
        print(f"recorded   {len(recording)} transitions of {world.name} in {options.output}")
        if options.problem:
            [problem] = problems_for(world, options.steps, 1, options.seed)
            ends = [
                recording.symbols.elements(recording.symbols.state(end))
                for end in (problem.init, problem.goal)
            ]
            write_problem(ends[0], ends[1], options.problem)
            print(f"problem    {options.steps} random steps, in {options.problem}")
    except ValueError as error:
        raise CommandError(str(error)) from error
    return 0


def _learned(options: argparse.Namespace) -> ActionModel:
    from setwise.planning import ActionModel
    from setwise.planning.actions.files import read_recording
    from setwise.planning.actions.measured import MeasuredStates

    require_file("TRANSITIONS", options.transitions)
    try:
        with stage(f"reading {options.transitions}"):
            recording = read_recording(
                options.transitions, measured=options.measured, angles=options.angles
            )
        if isinstance(recording.symbols, MeasuredStates):
            symbols = recording.symbols.reader
            sizes = ", ".join(f"{name} {size}" for name, size in symbols.sizes.items())
            print(
                f"symbols    {sizes}; {symbols.stable:.2%} of what a step left alone is called "
                f"the same before and after"
            )
        with stage(f"learning actions from {len(recording)} transitions"):
            model = ActionModel.learn(
                recording,
                lift=not options.ground,
                absent=not options.only_present,
                support=options.support,
            )
    except ValueError as error:
        raise CommandError(str(error)) from error
    lines = str(model).splitlines()
    print("\n".join(lines[:_SHOWN]))
    if len(lines) > _SHOWN:
        print(f"and {len(lines) - _SHOWN} lines more of this kind")
    return model


def _learn(options: argparse.Namespace) -> int:
    from setwise.planning.actions.measured import MeasuredStates

    require_place("--output", options.output)
    if options.symbols:
        require_place("--symbols", options.symbols)
        if options.symbols.resolve() == options.output.resolve():
            raise CommandError("--symbols: expected another file than that of --output")
        if not options.measured and not options.angles:
            raise CommandError("--symbols: nothing is learned of values without --measured")
    model = _learned(options)
    atomic_write_text(options.output, model.domain.text())
    print(f"written    {options.output}")
    if isinstance(model.symbols, MeasuredStates) and options.symbols:
        model.symbols.reader.save(options.symbols)
        print(f"written    {options.symbols}")
    return 0


def _plan(options: argparse.Namespace) -> int:
    from setwise.planning import Outcome, find_executable
    from setwise.planning.actions import UnknownSymbolError
    from setwise.planning.actions.files import read_problem

    if options.output:
        require_folder("--output", options.output)
    require_file("PROBLEM", options.problem)
    try:
        find_executable(options.downward)
        init, goal = read_problem(options.problem)
        model = _learned(options)
        with stage("Fast Downward searches"):
            plan = model.plan(
                init,
                goal,
                exact=not options.part,
                searcher=options.searcher,
                seconds=options.seconds,
                memory_mb=options.memory_mb,
                executable=options.downward,
            )
    except (ValueError, OSError) as error:
        raise CommandError(str(error)) from error
    print(f"outcome    {plan.outcome}: {plan.reason}")
    for number, step in enumerate(plan.steps, start=1):
        print(f"{number:>9}  {step}")
    if options.output:
        domain = model.whole_domain if plan.whole else model.domain
        atomic_write_text(options.output / "domain.pddl", domain.text())
        try:
            ends = model.symbols.state(init), model.symbols.state(goal)
            text = domain.problem(*ends, exact=not options.part)
            atomic_write_text(options.output / "problem.pddl", text)
        except UnknownSymbolError:  # of which there is no problem, nor may an older one stay
            (options.output / "problem.pddl").unlink(missing_ok=True)
        kept = {"outcome": plan.outcome, "reason": plan.reason, "steps": plan.steps}
        text = json.dumps(kept | {"states": plan.sets}) + "\n"
        atomic_write_text(options.output / "plan.json", text)
        print(f"written    {options.output}")
    if plan.outcome is Outcome.ERROR:
        raise CommandError(plan.reason)
    return 0 if plan.solved else 1
