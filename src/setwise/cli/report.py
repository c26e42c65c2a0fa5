"""``setwise report``: everything that is recorded, as one HTML page."""

from __future__ import annotations

import argparse
from pathlib import Path

from setwise.cli.errors import CommandError

RESULTS, QUICK, BENCHMARKS = Path("results"), Path("runs/records"), Path("benchmarks/records")


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser's."""
    parser = commands.add_parser(
        "report",
        help="write one HTML page with all recorded results",
        description="Writes a self-contained HTML page, which needs no server and no other file. "
        "An earlier page is overwritten, and no other file.",
    )
    add = parser.add_argument
    add(
        "--output",
        type=Path,
        default=Path("report.html"),
        metavar="FILE",
        help="the page; default: %(default)s",
    )
    add(
        "--results",
        type=Path,
        metavar="DIR",
        help=f"experiments, reconstructions and plans; default: {RESULTS}, and the experiments of "
        f"quick presets in {QUICK}",
    )
    add(
        "--benchmarks",
        type=Path,
        metavar="DIR",
        help=f"records of measured losses; default: {BENCHMARKS}",
    )
    parser.set_defaults(run=_run, extra="report")


def _run(options: argparse.Namespace) -> int:
    from setwise.report.page.frame import require_page
    from setwise.report.page.report import write

    for name in ("results", "benchmarks"):
        folder = getattr(options, name)
        if folder is not None and not folder.is_dir():
            raise CommandError(
                f"--{name}: there is no folder {folder}; records come with a clone of the "
                f"repository, and some are made by setwise reproduce table1 --preset quick"
            )
    if options.output.is_dir():
        raise CommandError(f"--output: expected the name of a file, {options.output} is a folder")
    try:
        require_page(options.output)
        also = [] if options.results else [QUICK]
        write(options.output, options.results or RESULTS, options.benchmarks or BENCHMARKS, also)
    except (ValueError, OSError) as error:
        raise CommandError(str(error)) from error
    print(f"written    {options.output}, {options.output.stat().st_size / 1e6:.1f} MB")
    print(f"open it    {options.output.resolve().as_uri()}")
    return 0
