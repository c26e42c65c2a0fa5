"""What ``setwise plan`` plans with where no network was trained: learned once, within minutes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from setwise.cli.errors import CommandError
from setwise.cli.options import require_file, require_folder
from setwise.cli.plans import trained
from setwise.cli.stages import stage
from setwise.data.blocksworld import Blocksworld
from setwise.data.checks import require_int
from setwise.experiments.recipes import table5
from setwise.experiments.recipes.paper import SH
from setwise.experiments.tasks import BlocksData
from setwise.outside import named
from setwise.worlds import PicturedBlocksworld

if TYPE_CHECKING:
    from setwise.planning.learned import LearnedSpace
    from setwise.planning.seen_space import SeenSpace

# All states of three blocks on three stacks, sketched.
BLOCKS = BlocksData(
    blocks=3, states=480, train=480, renderer="sketch", width=120, height=80, samples=4
)


def puzzle(options: argparse.Namespace) -> LearnedSpace:
    """A network of the 2 x 3 puzzle, that of ``setwise reproduce table5 --preset quick``."""
    from setwise.planning.learned import open_space

    require_folder("--runs", options.runs)
    print(
        f"{options.runs} holds no network of the puzzle: a small one is trained, once, for about a "
        f"minute",
        file=sys.stderr,
    )
    how = {
        **{"seeds": [0], "save_every": 300.0, "threads": 1, "commit": None, "keep": None},
        **{"device": "cpu", "on": "local", "together": None, "gpus": None},
    }
    as_there = argparse.Namespace(**(vars(options) | how))
    [(path, _)] = trained(table5.QUICK_NETWORKS, [SH], as_there)
    return open_space(path)


def blocksworld(options: argparse.Namespace) -> SeenSpace:
    """Symbols of three blocks, learned from steps between sketches of all their states.

    Networks of photographs take a GPU, or hours.
    """
    from rich.console import Console

    from setwise.cli.pictures import draw_archive
    from setwise.planning.seen_space import open_seen

    require_folder("--data", options.data)
    path = BLOCKS.archive(options.data)
    if not path.exists():
        print(
            f"{options.runs} holds no network of the blocksworld: {BLOCKS.states} pictures are "
            f"sketched, and symbols learned from them, once, for about a minute",
            file=sys.stderr,
        )
        settings = BLOCKS.render_settings()
        draw_archive(settings, BLOCKS.states, path.parent, Console(stderr=True))
    with stage(f"looking at the pictures in {path}") as told:
        return open_seen(path, _blocks(), BLOCKS.seed, told=told)


def of_archive(options: argparse.Namespace) -> Starter:
    """Symbols of any number of blocks, of whose states all have pictures in an archive.

    What the world is, and the order of its states, stand in the settings beside it.
    """
    from setwise.render import files

    path = options.archive
    if options.name != PicturedBlocksworld.kind:
        raise CommandError(f"--archive: holds pictures of blocks, and the world is {options.name}")
    require_file("--archive", path)
    settings = files.read_settings(path.parent)
    with named(path.with_name(files.SETTINGS)):
        try:
            world, seed = Blocksworld(**settings["environment"]["world"]), settings["seed"]
            require_int("seed", seed, 0)
        except (KeyError, TypeError) as error:
            raise ValueError("expected the world of its environment, and a seed") from error
        if world.blocks < 2:
            raise ValueError("expected at least 2 blocks, got 1")
    return Starter(
        lambda: PicturedBlocksworld.name_of(world), lambda options: _seen(options, world, seed)
    )


def _seen(options: argparse.Namespace, world: Blocksworld, seed: int) -> SeenSpace:
    """What is learned from an archive, and a word of it if it is too little."""
    from setwise.planning.seen_space import TRANSITIONS, open_seen

    wanted = options.transitions or TRANSITIONS
    with stage(f"looking at the pictures in {options.archive}") as told:
        space = open_seen(options.archive, world, seed, wanted, told=told)
    looks, kinds = space.symbols.looks.count, 2 * world.blocks
    if looks < kinds:
        more = f"learn from more, as by --transitions {4 * wanted}"
        if space.transitions < wanted:
            more = f"all {space.transitions} steps that there are were learned from"
        print(
            f"{looks} looks for {kinds} kinds, {world.blocks} blocks in two materials: some states "
            f"are taken for others; {more}",
            file=sys.stderr,
        )
    return space


def _puzzle_name() -> str:
    networks = table5.QUICK_NETWORKS
    data = networks.config(next(iter(networks.scenarios)), SH, 0).data
    return data.world(data.load()).name


def _blocks() -> Blocksworld:
    return Blocksworld(BLOCKS.blocks, BLOCKS.stacks)


@dataclass(frozen=True)
class Starter:
    """What is learned, and the name of its world, which is known before."""

    world_name: Callable[[], str]
    learn: Callable[[argparse.Namespace], LearnedSpace | SeenSpace]


STARTERS = {
    "puzzle": Starter(_puzzle_name, puzzle),
    "blocksworld": Starter(lambda: PicturedBlocksworld.name_of(_blocks()), blocksworld),
}
