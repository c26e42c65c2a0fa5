"""Training the runs of an experiment by a command: options, progress, and going on after a stop."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from setwise.cli.errors import CommandError
from setwise.cli.executors import add_on, device_on, executor_of
from setwise.cli.interrupt import INTERRUPTED, interruptible
from setwise.cli.options import SEEDS, not_negative, positive_whole, require_folder, share
from setwise.cli.pictures import with_pictures
from setwise.cli.tables import show, tables_console
from setwise.experiments.config import Config, config_from
from setwise.losses.table import find_loss
from setwise.report import tables

if TYPE_CHECKING:
    from rich.console import Console

    from setwise.cli.tensorboard import Logs
    from setwise.executors import Executor
    from setwise.experiments.evaluate import RunResult, TrainingProgress
    from setwise.experiments.experiment import Experiment, Sheet
    from setwise.experiments.trained import Keep

RESULTS = Path("results")
QUICK_RECORDS = "records"  # in the folder of runs
MOST_SEEDS = 10_000  # at once; an experiment of the paper has ten


def add_options(parser: argparse.ArgumentParser) -> None:
    """Which runs, where, and what to keep of them."""
    add = parser.add_argument
    add(
        "--device",
        choices=["auto", "cpu", "cuda"],
        default="auto",
        help="default: cuda if available",
    )
    add("--seeds", type=seeds, help="such as 0-9, 0,3,5 or 4; default: those of the experiment")
    add("--scenarios", nargs="+", help="default: all scenarios")
    add("--losses", nargs="+", metavar="LOSS", help="names or symbols; default: all")
    add(
        "--results",
        type=Path,
        help=f"folder of records; default: {RESULTS}, or RUNS/records for quick presets",
    )
    add("--runs", type=Path, default=Path("runs"), help="folder of checkpoints; default: runs")
    add("--data", type=Path, default=Path("runs"), help="folder of pictures; default: runs")
    add("--save-every", type=not_negative, default=300.0, metavar="S", help="seconds; default: 300")
    add(
        "--threads",
        type=positive_whole,
        default=1,
        metavar="N",
        help="CPU threads, on which the results of a CPU training depend; default: 1",
    )
    add_on(parser)
    add(
        "--together",
        type=positive_whole,
        metavar="N",
        help="networks trained together, at most; default: as many as can be, 10 on a cluster",
    )
    add(
        "--gpus",
        type=share,
        metavar="SHARE",
        help="of a GPU for each training on a cluster; default: 1",
    )
    add("--commit", help="git commit to record with every run; default: that of the working copy")
    add(
        "--keep",
        choices=["none", "best", "all"],
        help="trained networks to save in --runs; best: one per loss and scenario; default: none",
    )
    add(
        "--cost", action="store_true", help="then time one network alone, and record what was saved"
    )
    add("--tensorboard", type=Path, metavar="DIR", help="write logs for TensorBoard to this folder")


def records_of(options: argparse.Namespace, *, quick: bool = False) -> Path:
    """Where records are kept: those of a quick try are not for publishing."""
    if options.results is not None:
        return Path(options.results)
    return options.runs / QUICK_RECORDS if quick else RESULTS


def seeds(text: str) -> list[int]:
    """Seeds as they are given: single ones and ranges, separated by commas.

    >>> seeds("0-3,7")
    [0, 1, 2, 3, 7]
    """
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not dash)):
            raise argparse.ArgumentTypeError(f"expected 0-9, 0,3,5 or 4, got {text!r}")
        low, high = int(first), int(last or first)
        if high < low:
            raise argparse.ArgumentTypeError(f"a range goes upwards: {high}-{low}, not {part}")
        if high >= SEEDS:
            raise argparse.ArgumentTypeError(f"expected seeds below 2**63, got {part}")
        if high - low >= MOST_SEEDS:
            raise argparse.ArgumentTypeError(f"expected at most {MOST_SEEDS} seeds, got {part}")
        found |= set(range(low, high + 1))
    return sorted(found)


def require_folders(options: argparse.Namespace) -> None:
    """Places to write to must be there or be possible."""
    for name in ("results", "runs"):
        require_folder(f"--{name}", getattr(options, name))


def chosen_losses(options: argparse.Namespace, known: Sequence[str]) -> list[str]:
    """The names of the losses asked for, which must be among those known here; else all."""
    found = []
    for given in options.losses or known:
        try:
            name = find_loss(given).name
        except ValueError as error:
            raise CommandError(f"--losses: {error}") from error
        if name not in known:
            there = ", ".join(find_loss(one).symbol for one in known)
            raise CommandError(f"--losses: the experiment has no {given}; it has {there}")
        found.append(name)
    return found


def chosen_scenarios(options: argparse.Namespace, name: str, known: Collection[str]) -> list[str]:
    """Likewise of the scenarios."""
    unknown = [given for given in options.scenarios or () if given not in known]
    if unknown:
        raise CommandError(
            f"--scenarios: {name} has no {', '.join(unknown)}; it has {', '.join(known)}"
        )
    return list(options.scenarios or known)


def train_experiment(
    experiment: Experiment,
    options: argparse.Namespace,
    check: Callable[[Sequence[Config]], None] = lambda configs: None,
) -> int:
    """Train what is not recorded yet, then print the table; the exit code.

    ``check`` may refuse the configs before anything is done.
    """
    require_folders(options)
    with executor_of(options) as executor:
        return _train_on(executor, experiment, options, check)


def _train_on(
    executor: Executor,
    experiment: Experiment,
    options: argparse.Namespace,
    check: Callable[[Sequence[Config]], None],
) -> int:
    from rich.console import Console

    device = device_on(executor, options.device, options.gpus)
    if options.cost and executor.spreads:
        raise CommandError("--cost: times a network on this machine; take --on local")
    logs = _logs(options.tensorboard)
    console = Console(stderr=True)
    scenarios = chosen_scenarios(options, experiment.name, experiment.scenarios)
    losses = chosen_losses(options, experiment.losses)
    try:
        configs = experiment.configs(options.seeds, scenarios, losses)
    except ValueError as error:
        raise CommandError(str(error)) from error
    check(configs)
    sheet = experiment.sheet
    try:
        configs = with_pictures(configs, options.data, console, _trained(sheet, options.results))
    except KeyboardInterrupt:
        return stopped(options, "the pictures so far are kept")
    groups = train_missing(sheet, configs, options, device, console, executor, logs)
    if isinstance(groups, str):
        return stopped(options, groups)
    if options.cost:
        try:
            _record_costs(console, sheet, groups, device, options)
        except KeyboardInterrupt:
            return stopped(options, "what was trained is recorded, its cost is not")
    show(tables_console(), tables.read_experiments(options.results)[sheet.name])
    if options.keep in ("best", "all") and not groups:
        _say_what_is_kept(console, configs, options)
    return 0


def train_missing(
    sheet: Sheet,
    configs: Sequence[Config],
    options: argparse.Namespace,
    device: str,
    console: Console,
    executor: Executor,
    logs: Logs | None = None,
    keep: Keep | None = None,
) -> list[list[Config]] | str:
    """Train the configs that have no record, and return those trained together.

    The sheet is written beside the records, unless these are of another setting and stay as they
    are. A text instead says what is left after the training was stopped.
    """
    from setwise.cli.watch import CellsView, Watcher
    from setwise.executors import StoppedError
    from setwise.experiments.run import TOGETHER, ensembles, train

    missing = _missing(sheet, configs, options.results)
    sheet.write(options.results)
    together = options.together or (TOGETHER if executor.spreads else None)
    groups = ensembles(missing, together)
    _announce(console, sheet, options, len(configs), groups, device, executor)
    with interruptible() as interrupt:
        watcher = Watcher(console, sheet.name, CellsView(sheet), interrupt, ensembles=len(groups))

        def watch(runs: Sequence[Config], progress: TrainingProgress) -> None:
            watcher(runs, progress)
            if logs:
                logs(runs, progress)

        try:
            with watcher:
                train(
                    configs,  # of those that are done, what a kill left behind is removed
                    device,
                    options.results,
                    options.runs,
                    metric=sheet.metric,
                    commit=options.commit,
                    watch=watch,
                    keep=keep or _keeper(options.keep, sheet, options.results),
                    stop=interrupt,
                    data=options.data,
                    save_every=options.save_every,
                    threads=options.threads,
                    executor=executor,
                    together=together,
                    gpus=options.gpus or 1.0,
                )
        except (StoppedError, KeyboardInterrupt) as how:
            saved = isinstance(how, StoppedError)
            return "saved" if saved else "since the last checkpoint lost"
        except (OSError, ValueError) as error:
            raise CommandError(str(error)) from error
        finally:
            if logs:
                logs.close()
    return groups


def stopped(options: argparse.Namespace, how: str) -> int:
    """Say how to go on; the exit code of a command that was interrupted."""
    command = shlex.join(["setwise", *options.arguments])
    print(f"stopped, {how}; to go on: {command}", file=sys.stderr)
    return INTERRUPTED


def _record_costs(
    console: Console,
    sheet: Sheet,
    groups: Sequence[Sequence[Config]],
    device: str,
    options: argparse.Namespace,
) -> None:
    from setwise.experiments.cost import record_cost
    from setwise.report.remarks import said_of_costs

    if not groups:
        console.print("--cost: nothing was trained, so that there is no time to compare with")
    for group in groups:
        trained = {config.identity for config in group}
        records = tables.read_experiments(options.results)[sheet.name].records
        seconds = tables.seconds([record for record in records if record["run"] in trained])
        told = (options.results, options.commit, options.data, options.threads)
        cost = record_cost(group, seconds, device, *told)
        console.print(said_of_costs([cost]), highlight=False)


def _say_what_is_kept(
    console: Console, configs: Sequence[Config], options: argparse.Namespace
) -> None:
    """Where all is recorded and nothing was trained, networks are there from before, or not."""
    from setwise.experiments.saved_networks import network_path

    if not any(network_path(options.runs, config).is_file() for config in configs):
        console.print(
            f"{options.runs} holds none of these networks, and what is recorded is not trained "
            f"again; to train anew, name another folder by --results",
            highlight=False,
        )


def _logs(folder: Path | None) -> Logs | None:
    """Made before anything is trained: a missing package is told now."""
    if folder is None:
        return None
    from setwise.cli.tensorboard import Logs

    return Logs(folder)


def _recorded(sheet: Sheet, results: Path) -> list[tables.Record]:
    try:
        return tables.read_records(sheet, results)
    except ValueError as error:
        raise CommandError(str(error)) from error


def _trained(sheet: Sheet, results: Path) -> set[Config]:
    """All that is recorded of an experiment."""
    from setwise.experiments.records import read_as

    _recorded(sheet, results)  # refused where they are no table
    try:
        return read_as(results / f"{sheet.name}.jsonl", config_from)
    except ValueError as error:
        raise CommandError(str(error)) from error


def _missing(sheet: Sheet, configs: Sequence[Config], results: Path) -> list[Config]:
    """What is left to train; refused where the records are of another setting."""
    from setwise.experiments.run import left_to_train

    _recorded(sheet, results)  # complains about what is no record
    try:
        return left_to_train(sheet.name, configs, results)
    except ValueError as error:
        raise CommandError(str(error)) from error


def _announce(
    console: Console,
    sheet: Sheet,
    options: argparse.Namespace,
    runs: int,
    groups: Sequence[Sequence[Config]],
    device: str,
    executor: Executor,
) -> None:
    """What is there, and what will be trained."""
    import torch

    from setwise.environment import describe
    from setwise.experiments.run import checkpoint_of

    to_train = sum(map(len, groups))
    lines = [
        f"{sheet.name}: {runs} runs, {runs - to_train} of them recorded in {options.results}, "
        f"{to_train} to train"
    ]
    kinds = Counter((len(group), group[0].schedule.epochs) for group in groups)
    for (members, epochs), times in kinds.items():
        often = "" if times == 1 else f", {times} times"
        lines.append(f"  {members} networks at once for {epochs} epochs{often}")
    if groups and executor.spreads:  # perhaps to GPUs, which this machine may lack
        lines.append(f"  on {executor}")
    elif groups:
        here = describe(torch.device(device), options.commit, options.threads)["hardware"]
        lines.append(f"  on {here}")
    for path in (checkpoint_of(group, options.runs) for group in groups):
        if path.exists():
            lines.append(f"  going on from {path}")
    console.print("\n".join(lines), soft_wrap=True, highlight=False, markup=False)


def _keeper(which: str | None, sheet: Sheet, results: Path) -> Keep | None:
    """Which networks of an ensemble to keep: none, all, or those that are best of all recorded."""
    if which == "best":
        return partial(_best, sheet, results.absolute())  # asked where another folder is current
    return every_network if which == "all" else None


def every_network(found: Sequence[RunResult]) -> Collection[str]:
    """All of an ensemble."""
    return {result.config.identity for result in found}


def _best(sheet: Sheet, results: Path, found: Sequence[RunResult]) -> Collection[str]:
    from setwise.experiments.records import record_of

    new = [record_of(result.config, result.metrics, result.history) for result in found]
    return tables.best_runs(sheet, [*_recorded(sheet, results), *new])
