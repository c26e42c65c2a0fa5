"""``setwise predict``: what a network that ``setwise train`` kept says of other rows."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from setwise.cli.errors import CommandError
from setwise.cli.options import require_file, require_place
from setwise.data.rows import Row, line_of, read_rows, write_rows

if TYPE_CHECKING:
    from setwise.experiments.answers import RowsNetwork


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser's."""
    parser = commands.add_parser(
        "predict",
        help="predict sets with a trained network",
        description="Reads rows and writes them as JSON Lines, each with its predicted set. Where "
        "the rows contain the true sets, it reports how many predictions are right.",
    )
    add = parser.add_argument
    add("network", type=Path, metavar="NETWORK", help="a .safetensors file from setwise train")
    add("rows", type=Path, metavar="DATA", help="rows with the input columns of its training data")
    add("--output", type=Path, metavar="FILE", help="default: the standard output")
    parser.set_defaults(run=_run, extra="experiments")


def _run(options: argparse.Namespace) -> int:
    from setwise.experiments.answers import RowsNetwork
    from setwise.outside import named

    require_file("NETWORK", options.network)
    require_file("DATA", options.rows)
    if options.output is not None:
        require_place("--output", options.output)
    try:
        network = RowsNetwork.load(options.network)
        rows = read_rows(options.rows)
        with named(options.rows):
            answers = network.answer(rows)
    except (OSError, ValueError) as error:
        raise CommandError(str(error)) from error
    target = network.data.target
    answered = [row | {target: answer} for row, answer in zip(rows, answers, strict=True)]
    if options.output is None:
        print("\n".join(map(line_of, answered)))
    else:
        write_rows(options.output, answered)
    if all(target in row for row in rows):
        print(_judged(network, rows), file=sys.stderr)
    return 0


def _judged(network: RowsNetwork, rows: Sequence[Row]) -> str:
    """How many sets are right; there may be some that no network of this kind could put out."""
    try:
        return f"{network.score(rows):.3f} of {len(rows)} sets are right"
    except ValueError as error:
        return f"not judged: {error}"
