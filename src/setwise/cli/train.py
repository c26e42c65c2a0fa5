"""``setwise train``: train an experiment that somebody wrote in a file of their own."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from setwise.cli import training
from setwise.cli.errors import CommandError
from setwise.cli.user_file import run_file

if TYPE_CHECKING:
    from setwise.experiments.experiment import Experiment


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser's."""
    parser = commands.add_parser(
        "train",
        help="train an experiment of your own",
        description="Runs a Python file that defines a setwise.experiments.Experiment, trains its "
        "runs that are not recorded yet, many networks at once, and prints the table. Stopped by "
        "Ctrl-C or SIGTERM, the same command goes on. setwise report shows the results.",
    )
    parser.add_argument("file", type=Path, metavar="FILE.py", help="that defines the experiment")
    parser.add_argument("--experiment", metavar="NAME", help="which, if the file defines several")
    training.add_options(parser)
    parser.set_defaults(run=_run, extra="experiments")


def _run(options: argparse.Namespace) -> int:
    from setwise.experiments.run import require_own_name

    options.results = training.records_of(options)
    experiment = _experiment(options.file, options.experiment)
    try:
        require_own_name(experiment)
    except ValueError as error:
        raise CommandError(f"{options.file}: {error}") from error
    if not experiment.command:
        words = ["setwise", "train", str(options.file)]
        words += ["--experiment", experiment.name] if options.experiment else []
        experiment = replace(experiment, command=shlex.join(words))
    return training.train_experiment(experiment, options)


def _experiment(file: Path, wanted: str | None) -> Experiment:
    from setwise.experiments.experiment import Experiment

    defined = vars(run_file("FILE.py", file)).values()
    found = {value.name: value for value in defined if isinstance(value, Experiment)}
    if not found:
        raise CommandError(
            f"{file}: defines no experiment; write one, as in EXPERIMENT = "
            f"setwise.experiments.Experiment(name=..., config=..., ...)"
        )
    if wanted is None and len(found) > 1:
        raise CommandError(
            f"{file}: defines {', '.join(found)}; choose one of them with --experiment"
        )
    if wanted is not None and wanted not in found:
        raise CommandError(f"--experiment: {file} defines no {wanted}, but {', '.join(found)}")
    return found[wanted] if wanted is not None else next(iter(found.values()))
