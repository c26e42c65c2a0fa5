"""The options of ``setwise train`` for a file of rows, and what it found in that file."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from setwise.cli.errors import CommandError
from setwise.cli.options import positive_whole, require_file
from setwise.data.rows import ENDINGS, read_rows
from setwise.losses.table import find_loss

if TYPE_CHECKING:
    from setwise.experiments.experiment import Experiment
    from setwise.experiments.tasks.rows import RowsData

_OPTIONS = ("target", "inputs", "held_out", "epochs")
HELD_OUT = 0.1


def add_options(parser: argparse.ArgumentParser) -> None:
    """What to learn from rows."""
    group = parser.add_argument_group("for a file of rows")
    add = group.add_argument
    add("--target", metavar="COLUMN", help="the column of sets, each a list of elements")
    add(
        "--inputs",
        nargs="*",
        metavar="COLUMN",
        help="input columns; default: all others; given without a name, the sets are reconstructed",
    )
    add(
        "--held-out",
        type=_share,
        metavar="SHARE",
        help=f"of the rows, for evaluation; default: {HELD_OUT}",
    )
    add("--epochs", type=positive_whole, help="default: enough for about 3,000 steps")


def holds_rows(file: Path) -> bool:
    """Whether a file is one of rows, by its name."""
    return file.suffix in ENDINGS


def refuse_options(options: argparse.Namespace) -> None:
    """Of a file that holds no rows."""
    for name in _OPTIONS:
        if getattr(options, name) is not None:
            raise CommandError(
                f"--{name.replace('_', '-')}: is for a file of rows ({', '.join(ENDINGS)}), not "
                f"{options.file}"
            )


def own_rows(options: argparse.Namespace) -> Experiment:
    """The experiment on the rows that were given, which are announced."""
    from setwise.experiments.recipes.own_rows import on_own_rows
    from setwise.experiments.tasks.rows import rows_data

    require_file("FILE", options.file)
    held_out = HELD_OUT if options.held_out is None else options.held_out
    try:
        if options.target is None:
            names = ", ".join(read_rows(options.file)[0])
            raise CommandError(f"--target: name the column of sets; {options.file} has {names}")
        data = rows_data(options.file, options.target, options.inputs, held_out)
        losses = [find_loss(name).name for name in options.losses or ()]
        command = shlex.join(["setwise", *options.arguments])
        experiment = on_own_rows(data, losses, epochs=options.epochs, command=command)
    except (OSError, ValueError) as error:
        raise CommandError(str(error)) from error
    records = options.results / f"{experiment.name}.jsonl"
    if records.exists() and records.samefile(options.file):
        raise CommandError(f"--results: {records} are the data themselves; choose another folder")
    print(summary(data), file=sys.stderr)
    return experiment


def summary(data: RowsData) -> str:
    """What was found in a file, and what is made of it."""
    held_out = data.rows - data.train
    lines = [
        f"{data.file}: {data.rows} rows, {data.train} to train on, {held_out} held out",
        f"  {data.target}: sets of up to {data.size} elements",
        *(f"    {column}" for column in data.elements.columns),
    ]
    if data.inputs is None:
        return "\n".join([*lines, "  reconstructed by an autoencoder"])
    return "\n".join([*lines, "  predicted from", *(f"    {c}" for c in data.inputs.columns)])


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if 0 < share < 1:
        return share
    raise argparse.ArgumentTypeError(f"expected a share between 0 and 1, got {text!r}")
