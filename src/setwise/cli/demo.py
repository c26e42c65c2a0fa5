"""``setwise demo``: networks learn sets, a planner uses one, and a page shows what happened."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from setwise.cli.errors import CommandError
from setwise.cli.interrupt import INTERRUPTED, interruptible
from setwise.cli.options import SEEDS, require_folder, seed
from setwise.experiments.recipes.demo import LOSSES
from setwise.experiments.recipes.paper import SH
from setwise.losses.table import LOSSES as KNOWN

if TYPE_CHECKING:
    from rich.console import Console

    from setwise.demo import Learned, Solved

FOLDER, PAGE = Path("demo"), "index.html"
_LINES = 10  # of progress, about so many where the output is no terminal


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser's."""
    parser = commands.add_parser(
        "demo",
        help="learn sets and plan with them, in a minute or two",
        description="Trains a set autoencoder with set cross entropy and, for comparison, one with "
        "the ordinary cross entropy, which depends on the order; plans in the latent space with "
        "Fast Downward, validates the plan, and writes an HTML page about it. If interrupted, the "
        "same command resumes. The exit code is 0 if the plan is valid, 1 if it is not, and 2 if "
        "the command could not be run.",
    )
    add = parser.add_argument
    add("--output", type=Path, default=FOLDER, metavar="DIR", help="folder; default: %(default)s")
    add("--seed", type=seed, default=0, metavar="N", help="random seed; default: %(default)s")
    parser.set_defaults(run=_run, extra="demo")


def _run(options: argparse.Namespace) -> int:
    # Found missing now, not after a minute of training.
    import PIL  # noqa: F401
    import rich  # noqa: F401
    import safetensors  # noqa: F401
    import sklearn  # type: ignore[import-untyped]  # noqa: F401
    from rich.console import Console

    from setwise.demo.learn import checkpoint_of
    from setwise.demo.page import write_page
    from setwise.demo.solve import solve
    from setwise.executors import StoppedError
    from setwise.files import alone
    from setwise.planning import find_executable
    from setwise.report.page.frame import require_page

    require_folder("--output", options.output)
    console, page = Console(stderr=True), options.output / PAGE
    saved = checkpoint_of(options.output, options.seed)
    again = shlex.join([program(), *options.arguments])
    try:
        find_executable()
        require_page(page)
        with alone(options.output / ".lock", "making this demonstration"):
            learned = _learn(console, options.output, options.seed, saved)
            _say(console, "2 of 3: Fast Downward plans in the codes of the network that SH trained")
            solved = solve(learned.spaces[SH])
            _say(console, "3 of 3: curves, states and the plan are drawn")
            write_page(page, learned, solved, program(), again)
            saved.unlink(missing_ok=True)  # not before: whatever fails above costs no training
    except (StoppedError, KeyboardInterrupt):
        if not saved.exists():  # Ctrl-C was pressed twice, or before the training
            raise
        print(f"stopped, the training is saved; to go on: {again}", file=sys.stderr)
        return INTERRUPTED
    except (OSError, ValueError) as error:
        raise CommandError(str(error)) from error
    print(summary(learned, solved, page))
    if solved.result.valid:
        return 0
    folder = [] if options.output == FOLDER else ["--output", str(options.output)]
    another = str((options.seed + 1) % SEEDS)
    retry = shlex.join([program(), "demo", *folder, "--seed", another])
    print(f"the plan is not valid; another network may do better: {retry}", file=sys.stderr)
    return 1


def _learn(console: Console, folder: Path, seed: int, saved: Path) -> Learned:
    from setwise.cli.watch import ScoresView, Watcher
    from setwise.demo.learn import learn

    _say(console, "1 of 3: two networks learn to put sets out again, one with each loss")
    if saved.exists():
        _say(console, f"going on from {saved}")
    with (
        interruptible() as interrupt,
        Watcher(console, "  demo", ScoresView(), interrupt, lines=_LINES) as watcher,
    ):
        return learn(folder, seed, watcher, interrupt)


def summary(learned: Learned, solved: Solved, page: Path) -> str:
    """What happened, in five lines."""
    health, result, puzzle = solved.health, solved.result, solved.puzzle
    rights = " and ".join(f"{learned.right(loss)} with {KNOWN[loss].symbol}" for loss in LOSSES)
    search = result.search
    effort = "" if search is None else f" in {search.seconds:.1f} s"
    ends = f"from {puzzle.describe(solved.init)} to {puzzle.describe(solved.goal)}"
    lines = {
        "learned": f"of {learned.states} states {rights} come back whole, "
        f"after {learned.seconds:.0f} s",
        "codes": f"{health.codes} for {health.states} states, {health.bits} bits each",
        "planned": f"{ends}: {result.outcome}, {result.reason}{effort}",
        "checked": str(result).partition("\n")[0],
        "look at": page.resolve().as_uri(),
    }
    return "\n".join(f"{name:<9}{said}" for name, said in lines.items())


def program() -> str:
    """What to type for this command: after ``make demo`` it is in no folder of the PATH.

    Another ``setwise`` may be there; it belongs to another Python.
    """
    script, found = Path(sys.executable).with_name("setwise"), shutil.which("setwise")
    if not script.exists() or (found and script.samefile(found)):
        return "setwise"
    return os.path.relpath(script)


def _say(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True, highlight=False, markup=False)
