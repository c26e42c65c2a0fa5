"""Problems that are given as two pictures, for ``setwise plan``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from setwise.cli.errors import CommandError
from setwise.cli.options import require_file
from setwise.files import require_name
from setwise.outside import named

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from setwise.experiments.readers import Reader
    from setwise.planning import Problem
    from setwise.worlds import World

_TRAIN = {
    "blocksworld": "setwise train studies/readers.py --experiment block-reader --keep all",
    "puzzle": "setwise train studies/readers.py --experiment puzzle-reader --keep all",
}


def require_pair(options: argparse.Namespace) -> None:
    """Refuse one picture without the other, and what would contradict both."""
    if bool(options.init) != bool(options.goal):
        given, missing = ("--init", "--goal") if options.init else ("--goal", "--init")
        raise CommandError(f"{missing}: a problem has two pictures, and {given} is one of them")
    if options.reader and not options.init:
        raise CommandError("--reader: reads pictures; give them by --init and --goal")
    if options.init and options.problem:
        raise CommandError("--problem: the problem is given by pictures already")
    for option, path in (("--init", options.init), ("--goal", options.goal)):
        if path:
            require_file(option, path)


@dataclass(frozen=True)
class GivenPictures:
    """Two pictures [H, W, 3] and the network that reads them."""

    reader: Reader
    init: NDArray[np.uint8]
    goal: NDArray[np.uint8]


def given_pictures(options: argparse.Namespace) -> GivenPictures | None:
    """What ``--init`` and ``--goal`` show, known before anything is learned; None without them."""
    if not options.init:
        return None
    reader = _reader(options)
    ends = []
    for option, path in (("--init", options.init), ("--goal", options.goal)):
        with _said_of(option, path):
            ends.append(reader.picture(path))
    return GivenPictures(reader, *ends)


def require_pictures_of(given: GivenPictures, world_name: str) -> None:
    """Refuse pictures of another world than the one to plan in."""
    reader = given.reader
    if reader.data.world_name != world_name:
        raise CommandError(
            f"--reader: {reader.path} reads pictures of {reader.data.world_name}, and plans would "
            f"be of {world_name}; name another reader, or another network by --network"
        )


def problem_of_pictures(options: argparse.Namespace, given: GivenPictures, world: World) -> Problem:
    """What the reader finds in the two pictures, as objects of the world."""
    from setwise.planning import Problem

    require_pictures_of(given, world.name)
    reader = given.reader
    print(f"reader     {reader.path}")
    with _said_of("--init", options.init):
        init = reader.objects(given.init, world)
    with _said_of("--goal", options.goal):
        goal = reader.objects(given.goal, world)
    name = require_name("names of the pictures", f"{options.init.stem}-to-{options.goal.stem}")
    return Problem(name, init, goal)


@contextmanager
def _said_of(option: str, path: Path) -> Iterator[None]:
    try:
        with named(path):
            yield
    except ValueError as error:
        raise CommandError(f"{option}: {error}") from error


def _reader(options: argparse.Namespace) -> Reader:
    from setwise.experiments.readers import choose_reader, open_reader

    if options.reader:
        require_file("--reader", options.reader)
        reader = open_reader(options.reader)
        if reader.data.reads != options.name:
            raise CommandError(
                f"--reader: {reader.path} reads pictures of {reader.data.world_name}, which is no "
                f"{options.name}"
            )
        return reader
    found = choose_reader(options.name, options.runs)
    if found is None:
        told = f"; train one with {_TRAIN[options.name]}" if options.name in _TRAIN else ""
        raise CommandError(
            f"--reader: {options.runs} holds no network that reads pictures of the "
            f"{options.name}{told}"
        )
    return found
