"""``setwise reproduce``: train the runs behind a table of the paper, then print it."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from setwise.cli import plans
from setwise.cli.errors import CommandError
from setwise.cli.facts import add_clauses, add_facts, on_facts, require_clauses
from setwise.cli.interrupt import INTERRUPTED, interruptible
from setwise.cli.options import device_named, require_folder
from setwise.cli.pictures import with_pictures
from setwise.cli.tables import show, tables_console
from setwise.experiments.config import LOSSES, Config, config_from
from setwise.experiments.experiment import Sheet
from setwise.experiments.recipes import RECIPES
from setwise.report import tables

if TYPE_CHECKING:
    from rich.console import Console

    from setwise.cli.tensorboard import Logs
    from setwise.experiments.reproduce import Keep
    from setwise.experiments.train import Progress, Result, Training


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser's."""
    parser = commands.add_parser(
        "reproduce",
        help="train what a table of the paper shows",
        description="Trains the runs of a table that are not recorded yet, many networks at once, "
        "and prints the table. Stopped by Ctrl-C or SIGTERM, the same command goes on.",
    )
    parser.add_argument("table", choices=[*RECIPES, plans.TABLE], help="of the paper")
    presets = sorted({preset for recipes in RECIPES.values() for preset in recipes})
    parser.add_argument("--preset", default="paper", help=f"{', '.join(presets)}; default: paper")
    parser.add_argument(
        "--device",
        choices=["auto", "cpu", "cuda"],
        default="auto",
        help="default: cuda if there is one",
    )
    parser.add_argument("--seeds", type=seeds, help="0-9, 0,3,5 or 4; default: those of the preset")
    parser.add_argument("--scenarios", nargs="+", help="default: all of the preset")
    parser.add_argument("--losses", nargs="+", choices=LOSSES, default=LOSSES, help="default: all")
    add = parser.add_argument
    add("--results", type=Path, default=Path("results"), help="folder of records; default: results")
    add("--runs", type=Path, default=Path("runs"), help="folder of checkpoints; default: runs")
    add("--data", type=Path, default=Path("runs"), help="folder of pictures; default: runs")
    add("--save-every", type=float, default=300.0, metavar="S", help="seconds; default: 300")
    add("--commit", help="recorded with every run; default: asked of git")
    add(
        "--keep",
        choices=["none", "best", "all"],
        help="trained networks to keep in --runs: best is one a loss and scenario; default: none",
    )
    add(
        "--cost", action="store_true", help="then time one network alone, and record what was saved"
    )
    add("--tensorboard", type=Path, metavar="DIR", help="write logs for TensorBoard to this folder")
    add_facts(parser)
    add_clauses(parser)
    parser.set_defaults(run=_run, extra="experiments")


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
        found |= set(range(low, high + 1))
    return sorted(found)


def _run(options: argparse.Namespace) -> int:
    from rich.console import Console

    from setwise.cli.watch import Watcher
    from setwise.experiments.reproduce import ensembles, reproduce
    from setwise.experiments.train import StoppedError

    device = device_named(options.device)
    for name in ("results", "runs"):
        require_folder(f"--{name}", getattr(options, name))
    if options.table == plans.TABLE:
        try:
            return plans.run(options, device)
        except (StoppedError, KeyboardInterrupt) as stopped:
            trained = isinstance(stopped, StoppedError)
            how = "the training is saved" if trained else "what was planned is recorded"
            return _stopped(options, how)
    logs = _logs(options.tensorboard)
    console = Console(stderr=True)
    configs = _configs(options)
    try:
        configs = with_pictures(configs, options.data, console, _trained(configs, options.results))
    except KeyboardInterrupt:
        return _stopped(options, "the pictures so far are kept")
    table = configs[0].table
    missing = _missing(table, configs, options.results)
    groups = ensembles(missing)
    _announce(console, options, len(configs), groups, device)
    with interruptible() as interrupt:
        watcher = Watcher(console, table, len(groups), interrupt)

        def watch(training: Training, progress: Progress) -> None:
            watcher(training, progress)
            if logs:
                logs(training, progress)

        try:
            with watcher:
                reproduce(
                    missing,
                    device,
                    options.results,
                    options.runs,
                    commit=options.commit,
                    watch=watch,
                    keep=_keeper(options.keep, table, options.results),
                    stop=interrupt,
                    data=options.data,
                    save_every=options.save_every,
                )
        except (StoppedError, KeyboardInterrupt) as stopped:
            how = "saved" if isinstance(stopped, StoppedError) else "since the last checkpoint lost"
            return _stopped(options, how)
        except (OSError, ValueError) as error:
            raise CommandError(str(error)) from error
        finally:
            if logs:
                logs.close()
    if options.cost:
        try:
            _record_costs(console, groups, device, options)
        except KeyboardInterrupt:
            return _stopped(options, "what was trained is recorded, its cost is not")
    show(tables_console(), table, tables.read_tables(options.results)[table])
    return 0


def _record_costs(
    console: Console,
    groups: Sequence[Sequence[Config]],
    device: str,
    options: argparse.Namespace,
) -> None:
    from setwise.experiments.cost import record_cost

    if not groups:
        console.print("--cost: nothing was trained, so that there is no time to compare with")
    for group in groups:
        trained = {config.identity for config in group}
        records = tables.read_tables(options.results)[group[0].table]
        seconds = tables.seconds([record for record in records if record["run"] in trained])
        cost = record_cost(group, seconds, device, options.results, options.commit, options.data)
        console.print(tables.said_of_costs([cost]), highlight=False)


def _stopped(options: argparse.Namespace, how: str) -> int:
    command = shlex.join(["setwise", *options.arguments])
    print(f"stopped, {how}; to go on: {command}", file=sys.stderr)
    return INTERRUPTED


def _configs(options: argparse.Namespace) -> list[Config]:
    presets = RECIPES[options.table]
    if options.preset not in presets:
        raise CommandError(
            f"--preset: {options.table} has no {options.preset}; it has {', '.join(presets)}"
        )
    recipe, own = on_facts(options, presets[options.preset])
    unknown = [name for name in options.scenarios or () if name not in recipe.scenarios]
    if unknown:
        raise CommandError(
            f"--scenarios: {options.table} with preset {options.preset} has no "
            f"{', '.join(unknown)}; it has {', '.join(recipe.scenarios)}"
        )
    configs = recipe.configs(options.seeds, options.scenarios, options.losses)
    if own:
        require_clauses(own, configs)
    return configs


def _logs(folder: Path | None) -> Logs | None:
    """Made before anything is trained: a missing package is told now."""
    if folder is None:
        return None
    from setwise.cli.tensorboard import Logs

    return Logs(folder)


def _trained(configs: Sequence[Config], results: Path) -> set[Config]:
    """All that is recorded in the table of these configs."""
    try:
        records = tables.read_tables(results).get(configs[0].table, [])
        return {config_from(record["config"]) for record in records}
    except ValueError as error:
        raise CommandError(str(error)) from error


def _missing(table: str, configs: Sequence[Config], results: Path) -> list[Config]:
    """What is left to train; refused where the records are of another setting."""
    from setwise.experiments.reproduce import unfinished

    try:
        recorded = [record["config"] for record in tables.read_tables(results).get(table, [])]
        missing = unfinished(configs, results)
        tables.check_settings(table, recorded + [asdict(config) for config in missing])
    except ValueError as error:
        raise CommandError(str(error)) from error
    return missing


def _announce(
    console: Console,
    options: argparse.Namespace,
    runs: int,
    groups: Sequence[Sequence[Config]],
    device: str,
) -> None:
    """What is there, and what will be trained."""
    import torch

    from setwise.environment import describe
    from setwise.experiments.reproduce import checkpoint_of

    to_train = sum(map(len, groups))
    lines = [
        f"{options.table}, preset {options.preset}: {runs} runs, {runs - to_train} of them "
        f"recorded in {options.results}, {to_train} to train"
    ]
    kinds = Counter((len(group), group[0].schedule.epochs) for group in groups)
    for (members, epochs), times in kinds.items():
        often = "" if times == 1 else f", {times} times"
        lines.append(f"  {members} networks at once for {epochs} epochs{often}")
    if groups:
        lines.append(f"  on {describe(torch.device(device), options.commit)['hardware']}")
    for path in (checkpoint_of(group, options.runs) for group in groups):
        if path.exists():
            lines.append(f"  going on from {path}")
    console.print("\n".join(lines), soft_wrap=True, highlight=False, markup=False)


def _keeper(which: str | None, table: str, results: Path) -> Keep:
    """Which networks of an ensemble to keep: none, all, or those that are best of all recorded."""
    from setwise.experiments.reproduce import record_of

    def keep(found: Sequence[Result]) -> Collection[str]:
        records = [record_of(result) for result in found]
        if which == "best":
            recorded = tables.read_tables(results).get(table, [])
            return tables.best_runs(Sheet.read(results / f"{table}.json"), [*recorded, *records])
        return {record["run"] for record in records} if which == "all" else ()

    return keep
