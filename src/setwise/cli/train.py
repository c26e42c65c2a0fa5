"""``setwise train``: train an experiment that somebody wrote, or a network for rows of theirs."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from setwise.cli import rows, training
from setwise.cli.errors import CommandError
from setwise.cli.user_file import run_file

if TYPE_CHECKING:
    from setwise.experiments.experiment import Experiment


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser's."""
    parser = commands.add_parser(
        "train",
        help="train on your own data, or run an experiment",
        description="Trains a network that predicts the sets in a data file, or reconstructs them: "
        "the types of the columns are inferred, the network is saved for setwise predict. Or runs "
        "a Python file that defines a setwise.experiments.Experiment, and trains its runs that are "
        "not recorded yet, many networks at once. After Ctrl-C or SIGTERM the same command "
        "resumes. setwise report shows the results.",
    )
    parser.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help="data (.jsonl, .parquet), or a .py that defines an experiment",
    )
    parser.add_argument(
        "--experiment", metavar="NAME", help="which one, if the file defines several"
    )
    rows.add_options(parser)
    training.add_options(parser)
    parser.set_defaults(run=_run, extra="experiments")


def _run(options: argparse.Namespace) -> int:
    options.results = training.records_of(options)
    if rows.holds_rows(options.file):
        return _run_rows(options)
    rows.refuse_options(options)
    experiment = _experiment(options.file, options.experiment)
    _require_own_name(options.file, experiment)
    if not experiment.command:
        words = ["setwise", "train", str(options.file)]
        words += ["--experiment", experiment.name] if options.experiment else []
        experiment = replace(experiment, command=shlex.join(words))
    return training.train_experiment(experiment, options)


def _run_rows(options: argparse.Namespace) -> int:
    from setwise.experiments.saved_networks import network_path

    if options.experiment is not None:
        raise CommandError(f"--experiment: is for a file that defines some, not {options.file}")
    experiment = rows.own_rows(options)
    _require_own_name(options.file, experiment)
    options.keep = options.keep or "best"
    code = training.train_experiment(experiment, options)
    for config in experiment.configs(options.seeds):
        if code == 0 and (kept := network_path(options.runs, config)).is_file():
            print(f"kept; to use it: setwise predict {shlex.quote(str(kept))} DATA")
    return code


def _require_own_name(file: Path, experiment: Experiment) -> None:
    from setwise.experiments.run import require_own_name

    try:
        require_own_name(experiment)
    except ValueError as error:
        raise CommandError(f"{file}: {error}") from error


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
