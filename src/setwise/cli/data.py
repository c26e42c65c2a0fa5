"""``setwise data``: make the data sets that are files."""

from __future__ import annotations

import argparse
import hashlib
import shlex
import sys
from pathlib import Path

from setwise.cli.executors import add_on, executor_of, require_processes_here
from setwise.cli.interrupt import INTERRUPTED
from setwise.cli.options import positive_whole, require_file, require_place, whole
from setwise.cli.pictures import draw_archive, settings_of, shown, told


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
    add("--width", type=int, default=300, help="in pixels; default: 300")
    add("--height", type=int, default=200, help="in pixels; default: 200")
    _add_drawing(blocks, "blocksworld-BLOCKS")
    blocks.set_defaults(run=_blocksworld, extra="render")
    scenes = subjects.add_parser(
        "scenes",
        help="pictures of scenes of a few objects, and the sets that they show",
        description="Draws scenes of 3 to 10 objects: three shapes, eight colours, two materials, "
        "two sizes, anywhere on the ground. Stopped by Ctrl-C, the same command goes on.",
    )
    add = scenes.add_argument
    add("--train", type=positive_whole, default=20_000, help="pictures; default: 20000")
    add("--heldout", type=whole, default=2000, help="pictures more; default: 2000")
    add("--least", type=int, default=3, help="objects; default: 3")
    add("--most", type=int, default=10, help="objects; default: 10")
    add("--seed", type=int, default=0, help="of all that is drawn; default: 0")
    add("--width", type=int, default=128, help="in pixels; default: 128")
    add("--height", type=int, default=128, help="in pixels; default: 128")
    _add_drawing(scenes, "scenes, with renderer and size where they are others")
    scenes.set_defaults(run=_scenes, extra="render")
    clevr = subjects.add_parser(
        "clevr",
        help="the pictures of CLEVR as an archive of scenes",
        description="Reads pictures and descriptions of CLEVR_v1.0, which has to be there already, "
        "and writes them as setwise data scenes does, made smaller to 128 x 128 pixels.",
    )
    add = clevr.add_argument
    add("images", type=Path, metavar="IMAGES", help="a folder such as CLEVR_v1.0/images/val")
    add("scenes", type=Path, metavar="SCENES", help="its CLEVR_v1.0/scenes/CLEVR_val_scenes.json")
    add("--pictures", type=positive_whole, help="the first of them; default: all")
    add("--output", type=Path, metavar="FILE", help="default: runs/clevr.npz")
    clevr.set_defaults(run=_clevr, extra="render")


def _add_drawing(parser: argparse.ArgumentParser, folder: str) -> None:
    """How pictures are drawn, and where to."""
    add = parser.add_argument
    add(
        "--renderer",
        choices=["mitsuba", "blender", "torch", "sketch"],
        default="mitsuba",
        help="mitsuba and blender take seconds for a picture; torch takes a moment, or next to "
        "nothing on a GPU, and looks nearly the same; sketch is without shadows; default: mitsuba",
    )
    add("--device", default="cpu", help="where torch draws, such as cuda; default: cpu")
    add("--blender", type=Path, metavar="PATH", help="the program, if it is not on the PATH")
    add("--samples", type=int, default=32, help="rays for each pixel; default: 32")
    add(
        "--workers",
        type=int,
        help="processes here that draw, or on a GPU describe what it draws; default: one for each "
        "core",
    )
    add_on(parser)
    add("--output", type=Path, metavar="DIR", help=f"default: runs/{folder}")


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
    with told():
        settings = settings_of(options)
    try:
        with executor_of(options) as executor:
            require_processes_here(executor, options.workers)
            path, archive = draw_archive(
                settings,
                options.states,
                folder,
                Console(stderr=True),
                workers=options.workers,
                blender=options.blender,
                device=options.device,
                executor=executor if executor.spreads else None,
            )
    except KeyboardInterrupt:
        return _stopped(options)
    _say(folder, len(archive.boxes))
    print(f"their blocks and {len(archive.transitions)} transitions: {path}")
    _say_file(path)
    return 0


def _scenes(options: argparse.Namespace) -> int:
    from rich.console import Console

    from setwise.experiments.tasks import ScenesData
    from setwise.render.scenes import draw_scenes

    names = ("renderer", "seed", "width", "height", "samples", "least", "most")
    pictures = options.train + options.heldout
    data = ScenesData(
        pictures=pictures,
        train=options.train,
        **{name: getattr(options, name) for name in names},
    )
    folder = options.output or data.archive().parent
    try:
        with (
            executor_of(options) as executor,
            shown(Console(stderr=True)) as progress,
            told(),
        ):
            require_processes_here(executor, options.workers)
            path, archive = draw_scenes(
                data.render_settings(),
                pictures,
                folder,
                workers=options.workers,
                blender=options.blender,
                device=options.device,
                progress=progress,
                executor=executor if executor.spreads else None,
            )
    except KeyboardInterrupt:
        return _stopped(options)
    _say(folder, len(archive.pictures))
    print(f"with their sets, the first {options.train} to train on: {path}")
    _say_file(path)
    return 0


def _clevr(options: argparse.Namespace) -> int:
    from setwise.render.scenes import read_clevr

    path = options.output or Path("runs") / "clevr.npz"
    require_place("--output", path)
    require_file("SCENES", options.scenes)
    with told():
        archive = read_clevr(options.images, options.scenes, pictures=options.pictures)
    archive.write(path)
    print(f"{len(archive.pictures)} pictures with their sets: {path}")
    _say_file(path)
    return 0


def _stopped(options: argparse.Namespace) -> int:
    command = shlex.join(["setwise", *options.arguments])
    print(f"stopped; the pictures so far are kept, to go on: {command}", file=sys.stderr)
    return INTERRUPTED


def _say(folder: Path, pictures: int) -> None:
    print(f"{pictures} pictures: {folder / 'images'}")
    print(f"what is in them: {folder / 'scenes'}")
    print(f"what they were made with: {folder / 'settings.json'}")


def _say_file(path: Path) -> None:
    content = path.read_bytes()
    print(f"  {len(content) / 1e6:.1f} MB, sha256 {hashlib.sha256(content).hexdigest()}")
