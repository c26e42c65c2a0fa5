"""Plans between pictures: what readers see, and what a planner makes of it.

    python -m tools.readers read READER [SPACE] --data runs  # states it did not learn from
    python -m tools.readers plan READER SPACE --data runs    # problems as pairs of pictures
    python -m tools.readers write                            # the tables of docs/pictures.md

READER is kept by ``setwise train studies/readers.py --keep all``. SPACE is what is planned in: a
network that was kept, or an archive of pictures of all states of the Blocksworld, of which symbols
are learned (``setwise data blocksworld --blocks 4 --renderer torch --device cuda``). The records
are results/readers/<kind of world>-reading.json and -plans.json. A state is read right if the world
recognises in what was read the state that was drawn: every block or tile, its place and its
material. Problems lead between states that the reader did not learn from, and the world judges
plans by the states that the pictures show, whatever was read in them.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from setwise.data.blocksworld import Blocksworld
from setwise.environment import describe
from setwise.experiments.readers import Reader, open_reader
from setwise.experiments.tasks import BlockPicturesData, PuzzlePicturesData, TracedBlocksData
from setwise.files import atomic_write_text, scratch_folder
from setwise.planning import LatentPlanner, problems_for
from setwise.planning.failures import failure_of
from setwise.planning.instances import Problem
from setwise.planning.learned import LearnedSpace, open_space
from setwise.planning.seen_space import SeenSpace, open_seen
from setwise.planning.validate import validate
from setwise.render import Environment, block_pictures, files
from setwise.worlds import PicturedBlocksworld, PuzzleWorld, World
from tools.markdown import markdown, with_blocks

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "results" / "readers"
PAGE = ROOT / "docs" / "pictures.md"
# Of each world: how many problems by walks of how many steps.
PROBLEMS = {"blocksworld": {3: 10, 7: 10, 14: 10}, "puzzle": {7: 20, 14: 20}}
_STATES = 1000  # that are read, unless told otherwise
# Of an archive, that symbols of blocks are learned from. So many, since as many looks are then
# found as there are, one for each block in each material; docs/pictures.md says so.
_TRANSITIONS = 4000
_SEED = 1  # of problems: another than that of states, of which readers learned the first
_DRAWN = 20  # times as many problems as are wanted, to choose from
_KINDS = {"puzzle": "8-puzzle", "blocksworld": "Blocksworld, 4 blocks"}
_WHATS = ("reading", "plans")

# A picture file of a configuration [C]; None where there is none.
Pictures = Callable[[Tensor], Path | None]


def read(reader: Reader, world: World, pictures: Pictures, states: Tensor) -> dict[str, Any]:
    """How many of states [S, C] that have pictures are read right, and what is wrong in others."""
    mistakes: Counter[str] = Counter()
    read_right = total = 0
    for state in states:
        path = pictures(state)
        if path is None:
            continue
        total += 1
        seen = _seen(reader, world, path)
        if seen is not None and seen.equal(state):
            read_right += 1
        else:
            mistakes["no legal state" if seen is None else _difference(world, state, seen)] += 1
    return {"states": total, "right": read_right, "mistakes": dict(sorted(mistakes.items()))}


def _seen(reader: Reader, world: World, path: Path) -> Tensor | None:
    """The configuration that is read in a picture, if it is a legal one."""
    try:
        return world.configuration_of(reader.objects(reader.picture(path), world))
    except ValueError:
        return None


def _difference(world: World, state: Tensor, seen: Tensor) -> str:
    if not isinstance(world, PicturedBlocksworld):
        return "another state"
    moved = (state != seen).unflatten(-1, (-1, 3)).any(0)
    return "another material" if not moved[:2].any() else "another place"


def plan(
    reader: Reader, planner: LatentPlanner, pictures: Pictures, known: set[int]
) -> list[dict[str, Any]]:
    """What becomes of problems whose ends are pictures of states that are not ``known``."""
    world, found = planner.world, []
    for steps, count in PROBLEMS[world.kind].items():
        for problem in _unknown(world, steps, count, pictures, known):
            found.append({"steps": steps} | _solve(reader, planner, pictures, problem))
            print(json.dumps(found[-1]), flush=True)
    return found


def _unknown(
    world: World, steps: int, count: int, pictures: Pictures, known: set[int]
) -> list[Problem]:
    """The first problems with pictures of both ends, which are new to the reader.

    Problems that lead to a state that all have in common, as in the puzzle, begin at a new one.
    """
    drawn = (2 if world.start() is not None else _DRAWN) * count
    fitting = []
    for problem in problems_for(world, steps, drawn, seed=_SEED):
        ends = [world.configuration_of(objects) for objects in (problem.init, problem.goal)]
        new = ends[:1] if world.start() is not None else ends
        if any(int(world.index(end)) in known for end in new):
            continue
        if all(pictures(end) is not None for end in ends):
            fitting.append(problem)
        if len(fitting) == count:
            return fitting
    raise ValueError(f"{len(fitting)} problems of {steps} steps between new pictures, not {count}")


def _solve(
    reader: Reader, planner: LatentPlanner, pictures: Pictures, problem: Problem
) -> dict[str, Any]:
    world = planner.world
    given = {"init": problem.init, "goal": problem.goal}
    objects, misread = {}, []
    for end, truth in given.items():
        path = pictures(world.configuration_of(truth))
        assert path is not None
        seen = _seen(reader, world, path)
        if seen is None or not seen.equal(world.configuration_of(truth)):
            misread.append(end)
        if seen is not None:
            objects[end] = reader.objects(reader.picture(path), world)
    told: dict[str, Any] = {"name": problem.name, "misread": misread}
    if len(objects) < len(given):
        return told | {"valid": False, "failure": "misread"}
    result = planner.solve(objects["init"], objects["goal"], nearest=True)
    if result.objects is not None:  # judged by what the pictures show
        verdict = validate(world, result.objects, problem.init, problem.goal)
        result = replace(result, report=verdict)
    failure = "misread" if misread else failure_of(result)
    report = result.report
    return told | {
        "valid": result.valid,
        "failure": None if result.valid else str(failure),
        "bits_off": list(result.bits_off),
        "length": None if report is None else report.length,
        "optimum": None if report is None else report.optimum,
        "faults": [] if report is None else [str(fault) for fault in report.faults],
        "seconds": round(sum(result.seconds.values()), 2),
    }


@dataclass(frozen=True)
class Place:
    """Where the pictures of a reader's world are, and which of them it learned from."""

    pictures: Pictures
    known: set[int]  # by index
    states: Tensor  # [S, C], others that it can be asked for


def place_of(
    reader: Reader, world: World, data: Path, scratch: Path, states: int = _STATES
) -> Place:
    """Pictures are those of a folder of data where the reader learned from these; else drawn."""
    config = reader.data
    assert isinstance(config, BlockPicturesData | PuzzlePicturesData)
    whole = world.world.number_of_states if isinstance(world, PicturedBlocksworld) else None
    wanted = config.train + states
    sample = world.sample(wanted if whole is None else min(whole, wanted), config.seed)
    known = set(world.index(sample[: config.train]).tolist())

    def drawn(state: Tensor) -> Path:
        path = scratch / f"{int(world.index(state)):08d}.png"
        if not path.exists():
            Image.fromarray(_drawing(config, world, state)).save(path)
        return path

    pictures: Pictures = drawn
    if isinstance(config, BlockPicturesData) and not isinstance(config, TracedBlocksData):
        pictures = partial(_there, config.place(data), world)
    return Place(pictures, known, sample[config.train :])


def _there(folder: Path, world: World, state: Tensor) -> Path | None:
    rank = int(world.index(state))
    return files.image_path(folder, rank) if files.finished(folder, rank) else None


def _drawing(
    config: BlockPicturesData | PuzzlePicturesData, world: World, state: Tensor
) -> NDArray[np.uint8]:
    """The picture [H, W, 3] of a state.

    Camera and lamps of blocks stand as in no picture that the reader, or symbols of an archive with
    the seed of its data, learned from.
    """
    if not isinstance(config, TracedBlocksData):
        return world.draw(world.objects(state)[None])[0]
    blocks = Blocksworld(config.blocks, config.stacks)
    pictures, *_ = block_pictures(
        Environment.draw(blocks, config.seed),
        state.reshape(1, -1, 3),
        [config.seed + config.views],
        width=config.width,
        height=config.height,
        samples=config.samples,
    )
    found: NDArray[np.uint8] = pictures[0].movedim(0, -1).numpy()
    return found


def measure(options: argparse.Namespace) -> None:
    """Read or plan, and write the record."""
    reader = open_reader(options.reader)
    with scratch_folder() as scratch:
        told: dict[str, Any] = {
            "reader": reader.config.as_dict(),
            "environment": describe(torch.device("cpu")),
        }
        if isinstance(reader.data, TracedBlocksData):
            told |= {"renderer": reader.data.renderer}
        elif isinstance(reader.data, BlockPicturesData):  # it may have learned from other ones
            told |= {"renderer": files.read_settings(reader.data.place(options.data))["renderer"]}
        if options.what == "read":
            world = _world_of(reader, options)
            place = place_of(reader, world, options.data, scratch, options.states)
            told |= read(reader, world, place.pictures, place.states)
        else:
            space, said = _space(reader, options.space, options.data)
            world = space.world
            if world.name != reader.data.world_name:
                raise SystemExit(f"{reader.path} reads {reader.data.world_name}, not {world.name}")
            place = place_of(reader, world, options.data, scratch)
            with LatentPlanner(space.model, world) as planner:
                found = plan(reader, planner, place.pictures, place.known)
            told |= {"space": said, "problems": found}
    name = "reading" if options.what == "read" else "plans"
    path = RECORDS / f"{world.kind}-{name}.json"
    atomic_write_text(path, json.dumps(told, indent=1) + "\n")
    print(path)


def _space(
    reader: Reader, path: Path, data: Path
) -> tuple[LearnedSpace | SeenSpace, dict[str, Any]]:
    """What is planned in, and what the record says of it."""
    if path.suffix != ".npz":
        space = open_space(path, data)
        return space, space.config.as_dict()
    if not isinstance(reader.data, BlockPicturesData):
        raise SystemExit(
            f"{path}: an archive of blocks, and {reader.path} reads none; name a network"
        )
    blocks = Blocksworld(reader.data.blocks, reader.data.stacks)
    seen = open_seen(path, blocks, reader.data.seed, _TRANSITIONS)
    return seen, {"kind": seen.kind, "said": seen.said, "transitions": seen.transitions}


def _world_of(reader: Reader, options: argparse.Namespace) -> World:
    """That of a puzzle needs no network; blocks are known by the features of their patches."""
    if isinstance(reader.data, PuzzlePicturesData):
        return PuzzleWorld(reader.data.width, reader.data.height)
    if options.space is None:
        raise SystemExit("SPACE: needed to know blocks by")
    return _space(reader, options.space, options.data)[0].world


def tables() -> str:
    """What was read and planned, a line for each world that has records, and what is lacking."""
    reading: list[list[str]] = []
    planned: list[list[str]] = []
    lacking = []
    for kind, name in _KINDS.items():
        if missing := [what for what in _WHATS if not any(_record(kind, what))]:
            lacking.append(f"{name} ({', '.join(missing)})")
        for told in _record(kind, "reading"):
            mistakes = ", ".join(f"{count} {what}" for what, count in told["mistakes"].items())
            right, total = told["right"], told["states"]
            data = told["reader"]["data"]
            shown = f"{name}, by {told['renderer']}" if "renderer" in told else name
            reading.append(
                [shown, f"{data['train']:,}", f"{right:,} of {total:,}", mistakes or "none"]
            )
        for told in _record(kind, "plans"):
            problems = told["problems"]
            by_steps = [_solved(problems, steps) for steps in PROBLEMS[kind]]
            failures = Counter(one["failure"] for one in problems if not one["valid"])
            said = ", ".join(f"{count} {what}" for what, count in sorted(failures.items()))
            best = sum(one["valid"] and one["length"] == one["optimum"] for one in problems)
            over = _over(told["space"])
            planned.append([name, over, "; ".join(by_steps), str(best), said or "none"])
    titles = ["world", "states learned from", "others read right", "mistakes in the rest"]
    parts = [markdown(titles, reading)] if reading else []
    if planned:
        titles = ["world", "planned over", "valid plans", "of them shortest", "failures"]
        parts.append(markdown(titles, planned))
    if lacking:
        parts.append([f"Not recorded yet: {'; '.join(lacking)}."])
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _over(space: dict[str, Any]) -> str:
    if space.get("kind") == SeenSpace.kind:
        return f"{space['said']}; learned from {space['transitions']:,} transitions"
    return f"codes of a network learned from {space['data']['train']:,} states"


def _solved(problems: Sequence[dict[str, Any]], steps: int) -> str:
    own = [one["valid"] for one in problems if one["steps"] == steps]
    return f"{sum(own)} of {len(own)} over {steps} steps"


def _record(kind: str, name: str) -> Iterator[dict[str, Any]]:
    path = RECORDS / f"{kind}-{name}.json"
    if path.is_file():
        yield json.loads(path.read_text(encoding="utf-8"))


def written(text: str) -> str:
    """The page with the tables of the records."""
    return with_blocks(text, PAGE.name, {"readers": tables()})


def main(arguments: Sequence[str] | None = None) -> None:
    """See above."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    whats = parser.add_subparsers(dest="what", required=True)
    for what, optional in (("read", "?"), ("plan", None)):
        command = whats.add_parser(what)
        command.add_argument("reader", type=Path)
        command.add_argument("space", type=Path, nargs=optional, help="what is planned in")
        command.add_argument("--data", type=Path, default=Path("runs"))
        if what == "read":
            command.add_argument("--states", type=int, default=_STATES, help="to read, at most")
        command.set_defaults(run=measure)
    whats.add_parser("write").set_defaults(run=_write)
    options = parser.parse_args(arguments)
    options.run(options)


def _write(options: argparse.Namespace) -> None:
    atomic_write_text(PAGE, written(PAGE.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
