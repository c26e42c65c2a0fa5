"""Problems that are given as two pictures, for ``setwise plan``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from setwise.cli.errors import CommandError
from setwise.cli.options import require_file
from setwise.files import require_name

if TYPE_CHECKING:
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


def problem_of_pictures(options: argparse.Namespace, world: World) -> Problem:
    """What a reader finds in the two pictures, as objects of the world."""
    from setwise.planning import Problem

    reader = _reader(options)
    if reader.data.reads != world.kind:
        raise CommandError(
            f"--reader: {reader.path} reads pictures of the {reader.data.reads}, not of the "
            f"{world.kind}"
        )
    print(f"reader     {reader.path}")
    ends = []
    for option, path in (("--init", options.init), ("--goal", options.goal)):
        try:
            ends.append(reader.objects(reader.picture(path), world))
        except ValueError as error:
            said = str(error)
            said = said if said.startswith(f"{path}:") else f"{path}: {said}"
            raise CommandError(f"{option}: {said}") from error
    name = require_name("names of the pictures", f"{options.init.stem}-to-{options.goal.stem}")
    return Problem(name, *ends)


def _reader(options: argparse.Namespace) -> Reader:
    from setwise.experiments.readers import choose_reader, open_reader

    if options.reader:
        require_file("--reader", options.reader)
        return open_reader(options.reader)
    reader = choose_reader(options.name, options.runs)
    if reader is None:
        told = f"; train one with {_TRAIN[options.name]}" if options.name in _TRAIN else ""
        raise CommandError(
            f"--reader: {options.runs} holds no network that reads pictures of the "
            f"{options.name}{told}"
        )
    return reader
