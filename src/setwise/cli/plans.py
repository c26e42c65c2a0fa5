"""``setwise reproduce table5``: train what is missing, then plan with every network, one by one."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from setwise.cli import training
from setwise.cli.errors import CommandError
from setwise.cli.executors import device_on, executor_of
from setwise.cli.options import device_named
from setwise.cli.pictures import with_pictures
from setwise.cli.tables import show, tables_console
from setwise.experiments.config import Config
from setwise.experiments.recipes import PLANNED, table1, table5
from setwise.experiments.settings import check_settings
from setwise.files import alone, remove_scratch
from setwise.losses.table import LOSSES
from setwise.report import tables

if TYPE_CHECKING:
    from setwise.experiments.experiment import Experiment
    from setwise.experiments.recipes.table5 import Scenario
    from setwise.planning import PlanningResult

TABLE = "table5"
PRESETS = ("paper", "quick")
# Of ``setwise reproduce``, those that say nothing about this table.
FOREIGN = (
    *("facts", "relation", "rule", "symmetric", "clauses", "epochs"),
    *("keep", "cost", "tensorboard"),
)


def run(options: argparse.Namespace) -> int:
    """The exit code is 0 once everything is recorded, whatever became of the problems."""
    device = device_named(options.device)
    training.require_folders(options)
    try:
        return _run(options, device)
    except StoppedTrainingError as how:
        return training.stopped(options, str(how))
    except KeyboardInterrupt:
        return training.stopped(options, "what was planned is recorded")


class StoppedTrainingError(Exception):
    """A training was stopped; the text says what is left of it."""


def _run(options: argparse.Namespace, device: str) -> int:
    from setwise.planning import find_executable
    from setwise.planning.learned import open_space
    from setwise.planning.table5 import (
        PlanningSettings,
        described,
        finished,
        plan_network,
        unsolved,
    )

    _refuse(options)
    sheet = PLANNED[TABLE if options.preset == "paper" else f"{TABLE}-{options.preset}"]
    table, scenarios, settings = sheet.name, _scenarios(options), PlanningSettings()
    try:
        find_executable()
        remove_scratch()
        sheet.write(options.results)
        recorded = tables.read_experiments(options.results)[table].records
        done = finished(table, scenarios, options.results, settings)

        def require_alike(configs: Sequence[Config]) -> None:
            planned = [record["config"] for record in recorded]
            planned += [
                described(table, config, scenario, settings)
                for config in configs
                for scenario in scenarios
                if scenario.fits(config)
            ]
            check_settings(table, planned)

        networks = _networks(options, scenarios, done, require_alike)
        with alone(options.results / f".{table}.lock", f"planning for {table}"):
            for path, config in networks:
                missing = unsolved(table, config, scenarios, options.results, settings)
                named = f"{LOSSES[config.loss].symbol}, seed {config.seed}"
                print(f"{named}: {len(missing)} scenarios to plan with {path}", file=sys.stderr)
                plan_network(
                    table,
                    open_space(path, options.data, device),
                    missing,
                    options.results,
                    settings=settings,
                    commit=options.commit,
                    watch=partial(_say, named),
                )
    except (OSError, ValueError) as error:
        raise CommandError(str(error)) from error
    show(tables_console(), tables.read_experiments(options.results)[table])
    return 0


def _refuse(options: argparse.Namespace) -> None:
    """What cannot be done, before anything is."""
    if options.preset not in PRESETS:
        raise CommandError(
            f"--preset: {TABLE} has no {options.preset}; it has {', '.join(PRESETS)}"
        )
    foreign = [f"--{name}" for name in FOREIGN if getattr(options, name)]
    if foreign:
        raise CommandError(
            f"{', '.join(foreign)}: not for {TABLE}, which plans with networks of the puzzle and "
            f"the Blocksworld, and keeps those that it trains"
        )


def _scenarios(options: argparse.Namespace) -> list[Scenario]:
    known = table5.PAPER if options.preset == "paper" else table5.QUICK
    return [known[name] for name in training.chosen_scenarios(options, TABLE, known)]


def _networks(
    options: argparse.Namespace,
    scenarios: Sequence[Scenario],
    done: Collection[Config],
    require_alike: Callable[[Sequence[Config]], None],
) -> list[tuple[Path, Config]]:
    """Those of the preset that are not done yet.

    They are trained first where they are not there; of Table 1, those that are. Before, the records
    must be of the same setting, for else these and new ones would be no table.
    """
    losses = training.chosen_losses(options, table5.LOSSES)
    if options.preset == "quick":
        return trained(table5.QUICK_NETWORKS, losses, options, done, require_alike)
    found: list[tuple[Path, Config]] = []
    if any(scenario.world == "puzzle" for scenario in scenarios):
        seeds = options.seeds or range(table5.SEEDS)
        every = table1.PAPER.configs(seeds, ["4"], losses)
        wanted = _left(every, done)
        require_alike(wanted)
        kept = _kept(options.runs, wanted)
        found += [(kept[config], config) for config in wanted if config in kept]
        missing = [config for config in wanted if config not in kept]
        told = _how_to_train(options, missing)
        if not found and wanted == every:  # nothing done, and nothing to do it with
            raise CommandError(
                f"--runs: {options.runs / 'table1'} holds no network to plan in the puzzle with; "
                f"train them with {told[0][1]}"
            )
        for which, command in told:
            print(f"left out, not kept: {which}; train with {command}", file=sys.stderr)
    if any(scenario.world == "blocksworld" for scenario in scenarios):
        found += trained(table5.NETWORKS, losses, options, done, require_alike)
    return found


def _left(configs: Sequence[Config], done: Collection[Config]) -> list[Config]:
    """Without those that are done, which are named."""
    ready = [f"{LOSSES[config.loss].symbol} {config.seed}" for config in configs if config in done]
    if ready:
        named = f"already planned with networks of {configs[0].experiment}: {', '.join(ready)}"
        print(named, file=sys.stderr)
    return [config for config in configs if config not in done]


def _kept(runs: Path, configs: Sequence[Config]) -> dict[Config, Path]:
    """Where the networks of these configs lie, for those that are kept."""
    from setwise.planning.learned import plannable_networks

    folders = [runs / name for name in sorted({config.experiment for config in configs})]
    return {config: path for path, config in plannable_networks(folders) if config in configs}


def _how_to_train(options: argparse.Namespace, missing: Sequence[Config]) -> list[tuple[str, str]]:
    """The networks of Table 1 that are not kept, and the commands that train these and no others.

    What is recorded is not trained again, hence records of their own where there are some.
    """
    from setwise.experiments.run import unfinished

    together: dict[tuple[int, ...], list[str]] = {}
    for loss in dict.fromkeys(config.loss for config in missing):
        seeds = tuple(config.seed for config in missing if config.loss == loss)
        together.setdefault(seeds, []).append(LOSSES[loss].symbol)
    rest = ["--runs", str(options.runs)] if options.runs != Path("runs") else []
    if len(unfinished(missing, options.results)) < len(missing):
        rest += ["--results", str(options.runs / "records")]
    elif options.results != Path("results"):
        rest += ["--results", str(options.results)]
    told = []
    for numbers, losses in together.items():
        seeds_text = ",".join(map(str, numbers))
        command = ["setwise", "reproduce", "table1", "--scenarios", "4", "--losses", *losses]
        command += ["--seeds", seeds_text, "--keep", "all", *rest]
        told.append((f"{' and '.join(losses)}, seeds {seeds_text}", shlex.join(command)))
    return told


def trained(
    networks: Experiment,
    losses: Sequence[str],
    options: argparse.Namespace,
    done: Collection[Config] = (),
    require_alike: Callable[[Sequence[Config]], None] = lambda configs: None,
) -> list[tuple[Path, Config]]:
    """Train the networks that are neither done nor recorded; their records lie beside them."""
    from rich.console import Console

    from setwise.experiments.run import unfinished

    console = Console(stderr=True)
    every = networks.configs(options.seeds, losses=losses)
    configs = _left(with_pictures(every, options.data, console, done), done)
    if not configs:
        return []
    require_alike(configs)
    records = options.runs / networks.name
    # Not those without a file: if only some of an ensemble were saved before it was killed, the
    # others would be trained alone, and become other networks.
    untrained = unfinished(configs, records)
    kept = _kept(options.runs, configs)
    gone = [
        f"{LOSSES[config.loss].symbol}, seed {config.seed}"
        for config in configs
        if config not in untrained and config not in kept
    ]
    if gone:
        raise CommandError(
            f"--runs: {records / f'{networks.name}.jsonl'} says that networks were trained "
            f"whose files are gone from there: {'; '.join(gone)}. Put them back, remove their "
            f"lines to train them again, or name another folder by --runs"
        )
    beside = argparse.Namespace(**(vars(options) | {"results": records}))
    with executor_of(options) as executor:
        found = training.train_missing(
            networks.sheet,
            untrained,
            beside,
            device_on(executor, options.device, options.gpus),
            console,
            executor,
            keep=training.every_network,
        )
    if isinstance(found, str):
        raise StoppedTrainingError(f"the training is {found}")
    kept = _kept(options.runs, configs)
    return [(kept[config], config) for config in configs]


def _say(named: str, scenario: Scenario, number: int, result: PlanningResult) -> None:
    from setwise.planning.failures import failure_of

    failure = failure_of(result)
    verdict = str(result).splitlines()[0]
    why = "" if failure is None else f"; {failure}"
    took = f"{sum(result.seconds.values()):.1f} s"
    place = f"{scenario.name} {number} of {scenario.problems}"
    print(f"{named}, {place}: {verdict}{why}; {took}", file=sys.stderr)
