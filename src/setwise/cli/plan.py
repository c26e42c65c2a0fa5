"""``setwise plan``: from one set of objects to another, by a planner over a network's codes."""

from __future__ import annotations

import argparse
import json
import shlex
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from setwise.cli.errors import CommandError
from setwise.cli.options import positive, positive_whole, require_file, require_folder, seed
from setwise.cli.picture_problems import (
    GivenPictures,
    given_pictures,
    problem_of_pictures,
    require_pair,
    require_pictures_of,
)
from setwise.cli.plans import StoppedTrainingError
from setwise.cli.stages import stage
from setwise.cli.starters import STARTERS, Starter, of_archive
from setwise.cli.training import stopped
from setwise.cli.user_file import run_file
from setwise.files import atomic_write_text, file_in, require_name

if TYPE_CHECKING:
    from setwise.planning import LatentPlanner, PlanningResult, Problem
    from setwise.planning.learned import LearnedSpace
    from setwise.planning.seen_space import SeenSpace

    Space = LearnedSpace | SeenSpace


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser's."""
    parser = commands.add_parser(
        "plan",
        help="solve problems in the latent space of a network",
        description="Encodes all states of a world with a trained network, lets Fast Downward "
        "search between two codes, decodes the plan, validates and draws it. Without a saved "
        "network of the puzzle or the blocksworld, a small model is learned first, once, in about "
        "a minute. The exit code is 0 if every problem has a valid plan, 1 if one has not, and 2 "
        "if it could not be run.",
    )
    parser.add_argument(
        "name", metavar="NAME", help="the kind of world: puzzle, blocksworld, or that of --world"
    )
    _add_options(parser)
    parser.set_defaults(run=_run, extra="planning")


def _add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--world", type=Path, metavar="FILE", help="a Python file that defines a world of yours")
    add(
        "--steps",
        type=int,
        default=7,
        help="length of the random walk that makes a problem; default: 7",
    )
    add("--seed", type=seed, default=0, help="random seed of the walk; default: 0")
    add("--problem", type=Path, metavar="FILE", help="problems in JSON, instead of a random one")
    add("--init", type=Path, metavar="PNG", help="a picture of the initial state; with --goal")
    add("--goal", type=Path, metavar="PNG", help="a picture of the goal; with --init")
    add(
        "--reader",
        type=Path,
        metavar="FILE",
        help="network that reads pictures; default: one in --runs",
    )
    add("--network", type=Path, metavar="FILE", help="trained network; default: one in --runs")
    add(
        "--archive",
        type=Path,
        metavar="FILE",
        help="pictures of all states of blocks, by setwise data blocksworld --states all: symbols "
        "are learned from them, instead of a network",
    )
    add(
        "--transitions",
        type=positive_whole,
        metavar="N",
        help="steps between pictures of --archive to learn from; default: 400",
    )
    add("--runs", type=Path, default=Path("runs"), help="folder of trained networks; default: runs")
    add("--data", type=Path, default=Path("runs"), help="folder of pictures; default: runs")
    add(
        "--encoding",
        choices=["index", "bits", "full"],
        default="index",
        help="of codes as SAS+ variables; default: index",
    )
    add("--heuristic", default="blind", help="heuristic of Fast Downward; default: blind")
    add("--seconds", type=positive, default=300.0, help="time limit of a search; default: 300")
    add(
        "--memory-mb",
        type=positive_whole,
        default=6000,
        help="memory limit of a search; default: 6000",
    )
    add("--downward", type=Path, metavar="PATH", help="Fast Downward; default: that of the extra")
    add("--output", type=Path, default=Path("plans"), metavar="DIR", help="folder; default: plans")
    add(
        "--record",
        type=Path,
        metavar="DIR",
        help="also save the plan for setwise report, which looks in results/plans",
    )


def _run(options: argparse.Namespace) -> int:
    import PIL  # noqa: F401  found missing now, not after a minute of encoding

    from setwise.planning import LatentPlanner, find_executable
    from setwise.planning.recorded import check_place
    from setwise.worlds import WORLDS

    require_pair(options)
    if options.archive and options.network:
        raise CommandError("--archive: instead of a network, and --network names one")
    if options.transitions and not options.archive:
        raise CommandError("--transitions: those of pictures; name these by --archive")
    if options.world:
        run_file("--world", options.world)
    require_folder("--output", options.output)
    if options.record:
        require_folder("--record", options.record)
    if not options.heuristic.strip():
        raise CommandError("--heuristic: expected a name such as blind, got nothing")
    try:
        WORLDS[options.name]  # an error lists those that there are
        find_executable(options.downward)
        pictures = given_pictures(options)
        space = _space(options, pictures)
        problems = _problems(options, space, pictures)
        space.world.draw(problems[0].init.unsqueeze(0))  # it may need a package as well
        if options.record:
            space.as_dict()  # there may be nothing to keep
            for problem in problems:
                check_place(file_in(options.record, problem.name))
    except (ValueError, OSError) as error:
        raise CommandError(str(error)) from error
    except StoppedTrainingError as how:
        return stopped(options, str(how))
    print(f"{space.kind:<11}{space.path}")
    print(f"           {space.said}")
    with ExitStack() as stack:
        with stage(f"encoding all states of {space.world.name}"):
            planner = stack.enter_context(
                LatentPlanner(space.model, space.world, encoding=options.encoding)
            )
            health = planner.health()
        print(health)
        print(f"steps      {len(planner.graph.edges)} between codes, as {options.encoding}")
        results = [_solve(options, planner, problem) for problem in problems]
    _write(options.output / "plans.json", problems, results)
    if options.record:
        _record(options, space, problems, results)
    return 0 if all(result.valid for result in results) else 1


def _space(options: argparse.Namespace, pictures: GivenPictures | None) -> Space:
    from setwise.cli.demo import FOLDER
    from setwise.planning.learned import choose_space, open_space

    if options.archive:
        return _learned(of_archive(options), options, pictures)
    if options.network:
        require_file("--network", options.network)
        if options.network.suffix == ".npz":
            raise CommandError(
                f"--network: expected a trained network, {options.network} is an archive of "
                f"pictures; name it by --archive"
            )
        with stage(f"opening {options.network}"):
            return open_space(options.network, options.data)
    with stage(f"looking for a network in {options.runs}"):
        space = choose_space(options.name, options.runs, options.data, also=[FOLDER])
    if space is not None:
        return space
    if options.name not in STARTERS:
        raise CommandError(
            f"--network: {options.runs} holds none of the {options.name}; train one with setwise "
            f"train FILE.py --keep all, an experiment over its states"
        )
    return _learned(STARTERS[options.name], options, pictures)


def _learned(
    starter: Starter, options: argparse.Namespace, pictures: GivenPictures | None
) -> Space:
    if pictures is not None:  # known to be of another world before anything is learned
        require_pictures_of(pictures, starter.world_name())
    return starter.learn(options)


def _problems(
    options: argparse.Namespace, space: Space, pictures: GivenPictures | None
) -> list[Problem]:
    from setwise.planning import problems_for, read_problems

    world = space.world
    if world.kind != options.name:
        raise CommandError(f"--network: {space.path} is a network of {world.name}")
    if pictures is not None:
        return [problem_of_pictures(options, pictures, world)]
    if options.problem:
        require_file("--problem", options.problem)
        return read_problems(options.problem.read_text(), world, str(options.problem))
    [problem] = problems_for(world, options.steps, 1, options.seed)
    name = require_name("name of the world", f"{world.name}-{options.steps}-seed{options.seed}")
    return [replace(problem, name=name)]


def _solve(options: argparse.Namespace, planner: LatentPlanner, problem: Problem) -> PlanningResult:
    world = planner.world
    print(f"\nproblem    {problem.name}")
    for end, objects in (("init", problem.init), ("goal", problem.goal)):
        print(f"{end:<11}{world.describe(world.configuration_of(objects))}")
    with stage("Fast Downward searches"):
        result = planner.solve(
            problem.init,
            problem.goal,
            heuristic=options.heuristic,
            seconds=options.seconds,
            memory_mb=options.memory_mb,
            executable=options.downward,
            nearest=bool(options.init),
        )
    print(f"outcome    {result.outcome}: {result.reason}{_effort(result)}")
    if result.report is not None and result.objects is not None:
        from setwise.planning.show import captions_of, write_pictures

        for caption in captions_of(world, result.report)[0][1:]:
            number, _, said = caption.partition(": ")
            print(f"{number:>9}  {said}")
        print(f"checked    {result}")
        with stage("drawing the plan"):
            pictures = write_pictures(
                world, result.objects, result.report, options.output, problem.name
            )
        for what, path in zip(("strip", "animation"), pictures, strict=True):
            print(f"{what:<11}{path}")
    times = ", ".join(f"{name} {seconds:.1f}" for name, seconds in result.seconds.items())
    print(f"seconds    {sum(result.seconds.values()):.1f}: {times}")
    return result


def _effort(result: PlanningResult) -> str:
    search = result.search
    if search is None or search.expanded is None:
        return ""
    memory = "" if search.peak_mb is None else f", {search.peak_mb:.0f} MB"
    return f" ({search.expanded} states expanded{memory})"


def _record(
    options: argparse.Namespace,
    space: Space,
    problems: list[Problem],
    results: list[PlanningResult],
) -> None:
    """Last, and apart from the searches: what they found is written, whatever happens here."""
    from setwise.planning.show import record_plan

    command = shlex.join(["setwise", *map(_portable, options.arguments)])
    for problem, result in zip(problems, results, strict=True):
        if result.report is None or result.objects is None:
            continue
        folder = file_in(options.record, problem.name)
        try:
            record_plan(space, result.objects, result.report, folder, command)
        except (ValueError, OSError) as error:
            raise CommandError(f"--record: {error}") from error
        print(f"recorded   {folder}")


def _portable(word: str) -> str:
    """A word of a command, for readers elsewhere: paths from here on, or the last name of others.

    >>> _portable("--output=/home/someone/plans"), _portable("runs/network.safetensors")
    ('--output=plans', 'runs/network.safetensors')
    >>> _portable("/home/someone/rate=1/network.safetensors")
    'network.safetensors'
    """
    before, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
    path, here = Path(value), Path.cwd()
    if not (path.is_absolute() and path.name):
        return word
    short = path.relative_to(here) if path.is_relative_to(here) else path.name
    return f"{before}{equals}{short}"


def _write(path: Path, problems: list[Problem], results: list[PlanningResult]) -> None:
    """The results in one step: whole or not there."""
    found: list[dict[str, Any]] = [
        {"name": problem.name} | result.as_dict()
        for problem, result in zip(problems, results, strict=True)
    ]
    atomic_write_text(path, json.dumps(found, indent=1) + "\n")
