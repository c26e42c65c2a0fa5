"""``setwise reproduce table5``: train what is missing, then plan with every network, one by one."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from setwise.cli.errors import CommandError
from setwise.cli.interrupt import interruptible
from setwise.cli.pictures import with_pictures
from setwise.cli.tables import show, tables_console
from setwise.experiments.config import Config, Loss
from setwise.experiments.recipes import table1, table5
from setwise.report import tables

if TYPE_CHECKING:
    from setwise.experiments.train import Progress, Training
    from setwise.planning import PlanningResult
    from setwise.planning.table5 import Scenario

TABLE = "table5"
PRESETS = ("paper", "quick")
# Of ``setwise reproduce``, those that say nothing about this table.
FOREIGN = ("facts", "relation", "rule", "symmetric", "clauses", "keep", "cost", "tensorboard")


def run(options: argparse.Namespace, device: str) -> int:
    """The exit code is 0 once everything is recorded, whatever became of the problems."""
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
    table = TABLE if options.preset == "paper" else f"{TABLE}-{options.preset}"
    scenarios, settings = _scenarios(options), PlanningSettings()
    try:
        find_executable()
        found = tables.read_tables(options.results)
        done = finished(table, scenarios, options.results, settings)

        def require_alike(configs: Sequence[Config]) -> None:
            planned = [record["config"] for record in found.get(table, [])]
            planned += [
                described(table, config, scenario, settings)
                for config in configs
                for scenario in scenarios
                if scenario.fits(config)
            ]
            tables.check_settings(table, planned)

        networks = _networks(options, scenarios, device, done, require_alike)
    except (OSError, ValueError) as error:
        raise CommandError(str(error)) from error
    for path, config in networks:
        missing = unsolved(table, config, scenarios, options.results, settings)
        named = f"{config.loss}, seed {config.seed}"
        print(f"{named}: {len(missing)} scenarios to plan with {path}", file=sys.stderr)
        try:
            space = open_space(path, options.data, device)
        except (OSError, ValueError) as error:
            raise CommandError(str(error)) from error
        plan_network(
            table,
            space,
            missing,
            options.results,
            settings=settings,
            commit=options.commit,
            watch=lambda scenario, number, result, named=named: _say(  # type: ignore[misc]
                named, scenario, number, result
            ),
        )
    show(tables_console(), table, tables.read_tables(options.results)[table])
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
    if not _losses(options):
        raise CommandError(
            f"--losses: {TABLE} plans with SH and A1H, got only {', '.join(options.losses)}"
        )


def _losses(options: argparse.Namespace) -> list[Loss]:
    from setwise.planning.table5 import PLANNED_LOSSES

    return [loss for loss in PLANNED_LOSSES if loss in options.losses]


def _scenarios(options: argparse.Namespace) -> list[Scenario]:
    from setwise.planning.table5 import PAPER, QUICK

    known = PAPER if options.preset == "paper" else QUICK
    unknown = [name for name in options.scenarios or () if name not in known]
    if unknown:
        raise CommandError(
            f"--scenarios: {TABLE} with preset {options.preset} has no {', '.join(unknown)}; "
            f"it has {', '.join(known)}"
        )
    return [known[name] for name in options.scenarios or known]


def _networks(
    options: argparse.Namespace,
    scenarios: Sequence[Scenario],
    device: str,
    done: Collection[Config],
    require_alike: Callable[[Sequence[Config]], None],
) -> list[tuple[Path, Config]]:
    """Those of the preset that are not done yet.

    They are trained first where they are not there; of Table 1, those that are. Before, the records
    must be of the same setting, for else these and new ones would be no table.
    """
    losses = _losses(options)
    if options.preset == "quick":
        seeds = options.seeds or range(table5.QUICK_SEEDS)
        every = [table5.quick(loss, seed) for loss in losses for seed in seeds]
        return _trained(options, every, device, done, require_alike)
    seeds = options.seeds or range(table5.SEEDS)
    found: list[tuple[Path, Config]] = []
    if any(scenario.world == "puzzle" for scenario in scenarios):
        every = [table1.paper("4", loss, seed) for loss in losses for seed in seeds]
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
        every = [table5.blocks(loss, seed) for loss in losses for seed in seeds]
        found += _trained(options, every, device, done, require_alike)
    return found


def _left(configs: Sequence[Config], done: Collection[Config]) -> list[Config]:
    """Without those that are done, which are named."""
    ready = [f"{config.loss} {config.seed}" for config in configs if config in done]
    if ready:
        named = f"already planned with networks of {configs[0].table}: {', '.join(ready)}"
        print(named, file=sys.stderr)
    return [config for config in configs if config not in done]


def _kept(runs: Path, configs: Sequence[Config]) -> dict[Config, Path]:
    """Where the networks of these configs lie, for those that are kept."""
    from setwise.planning.learned import plannable_networks

    folders = [runs / table for table in sorted({config.table for config in configs})]
    return {config: path for path, config in plannable_networks(folders) if config in configs}


def _how_to_train(options: argparse.Namespace, missing: Sequence[Config]) -> list[tuple[str, str]]:
    """The networks of Table 1 that are not kept, and the commands that train these and no others.

    What is recorded is not trained again, hence records of their own where there are some.
    """
    from setwise.experiments.reproduce import unfinished

    together: dict[tuple[int, ...], list[Loss]] = {}
    for loss in dict.fromkeys(config.loss for config in missing):
        seeds = tuple(config.seed for config in missing if config.loss == loss)
        together.setdefault(seeds, []).append(loss)
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


def _trained(
    options: argparse.Namespace,
    configs: list[Config],
    device: str,
    done: Collection[Config],
    require_alike: Callable[[Sequence[Config]], None],
) -> list[tuple[Path, Config]]:
    """Train the networks that are neither done nor kept; their records lie beside them."""
    from rich.console import Console

    from setwise.experiments.reproduce import reproduce, unfinished

    configs = _left(with_pictures(configs, options.data, Console(stderr=True), done), done)
    if not configs:
        return []
    require_alike(configs)
    records = options.runs / configs[0].table
    kept = _kept(options.runs, configs)
    missing = [config for config in configs if config not in kept]
    untrained = unfinished(missing, records)
    gone = [f"{c.loss}, seed {c.seed}" for c in missing if c not in untrained]
    if gone:
        raise CommandError(
            f"--runs: {records / f'{configs[0].table}.jsonl'} says that networks were trained "
            f"whose files are gone from there: {'; '.join(gone)}. Put them back, remove their "
            f"lines to train them again, or name another folder by --runs"
        )

    def watch(training: Training, progress: Progress) -> None:
        pairs = zip(training.configs, progress.score, strict=True)
        scores = ", ".join(f"{config.loss} {config.seed}: {score:.3f}" for config, score in pairs)
        reached = f"epoch {progress.epoch} of {progress.epochs}"
        print(f"{configs[0].table}: {reached}, {progress.metric} {scores}", file=sys.stderr)

    with interruptible() as interrupt:
        reproduce(
            missing,
            device,
            records,
            options.runs,
            commit=options.commit,
            watch=watch,
            keep=lambda results: {result.config.identity for result in results},
            stop=interrupt,
            data=options.data,
            save_every=options.save_every,
        )
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
