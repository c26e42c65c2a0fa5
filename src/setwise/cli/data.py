"""``setwise data``: make the data sets that are files."""

from __future__ import annotations

import argparse
import hashlib
import shlex
import sys
from pathlib import Path

from setwise.cli.errors import CommandError
from setwise.cli.executors import add_on, executor_of
from setwise.cli.interrupt import INTERRUPTED
from setwise.cli.pictures import draw_archive, settings_of


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser's."""
    parser = commands.add_parser(
        "data", help="make data sets", description="Makes the data sets that are files."
    )
    subjects = parser.add_subparsers(dest="subject", required=True)
    blocks = subjects.add_parser(
        "blocksworld",
        help="pictures of Blocksworld states, and their blocks cut out",
        description="Draws states of the Blocksworld with a path tracer and cuts their blocks out. "
        "Stopped by Ctrl-C, the same command goes on.",
    )
    add = blocks.add_argument
    add("--blocks", type=int, default=5, help="default: 5")
    add("--stacks", type=int, default=3, help="default: 3")
    add("--states", type=number_of_states, default=2500, help="how many, or all; default: 2500")
    add("--seed", type=int, default=0, help="of the states, the look and the jitter; default: 0")
    add(
        "--renderer",
        choices=["mitsuba", "blender", "sketch"],
        default="mitsuba",
        help="sketch takes a moment instead of seconds for a picture, and looks like it; "
        "default: mitsuba",
    )
    add("--blender", type=Path, metavar="PATH", help="the program, if it is not on the PATH")
    add("--width", type=int, default=300, help="in pixels; default: 300")
    add("--height", type=int, default=200, help="in pixels; default: 200")
    add("--samples", type=int, default=32, help="rays for each pixel; default: 32")
    add("--workers", type=int, help="processes that draw; default: one for each core")
    add_on(blocks)
    add("--output", type=Path, metavar="DIR", help="default: runs/blocksworld-BLOCKS")
    blocks.set_defaults(run=_blocksworld, extra="render")


def number_of_states(text: str) -> int | None:
    """A number, or None for all of them.

    >>> number_of_states("2500"), number_of_states("all")
    (2500, None)
    """
    if text == "all":
        return None
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"expected a number of states or all, got {text!r}")
    return int(text)


def _blocksworld(options: argparse.Namespace) -> int:
    from rich.console import Console

    from setwise.data.blocksworld_archive import folder_name

    name = folder_name(options.blocks, options.width, options.height)
    folder = options.output or Path("runs") / name
    try:
        settings = settings_of(options)
    except ValueError as error:
        raise CommandError(str(error)) from error
    try:
        with executor_of(options) as executor:
            path, archive = draw_archive(
                settings,
                options.states,
                folder,
                Console(stderr=True),
                workers=options.workers,
                blender=options.blender,
                executor=executor if executor.spreads else None,
            )
    except KeyboardInterrupt:
        command = shlex.join(["setwise", *options.arguments])
        print(f"stopped; the pictures so far are kept, to go on: {command}", file=sys.stderr)
        return INTERRUPTED
    content = path.read_bytes()
    print(f"{len(archive.boxes)} pictures: {folder / 'images'}")
    print(f"what is in them: {folder / 'scenes'}")
    print(f"what they were made with: {folder / 'settings.json'}")
    print(f"their blocks and {len(archive.transitions)} transitions: {path}")
    print(f"  {len(content) / 1e6:.1f} MB, sha256 {hashlib.sha256(content).hexdigest()}")
    return 0
