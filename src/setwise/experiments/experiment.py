"""An experiment: what is compared, and what a reader of its records needs to know.

An `Experiment` makes the configs of its runs. Its `Sheet` is the part that needs no code, and lies
as ``<name>.json`` beside the records ``<name>.jsonl``: tables, figures and pages are made from the
two files alone, also where whoever wrote the experiment is not at hand.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, get_args

from setwise.experiments.config import Config
from setwise.experiments.store import COSTS
from setwise.files import atomic_write_text, require_name
from setwise.losses.table import COLOUR, LOSSES
from setwise.outside import one_line, read_json

Better = Literal["higher", "lower"]


@dataclass(frozen=True)
class Reference:
    """Published numbers, to stand beside ours."""

    source: str  # as in "the paper"
    # For each loss, by name, a number for each scenario that has one.
    values: Mapping[str, Mapping[str, float]]
    decimals: int = 2  # as published
    caption: str = ""
    # Why our numbers are on another scale than the published ones, if they are.
    other_scale: str = ""

    def format(self, value: float) -> str:
        """A number as it was published."""
        return f"{value:.{self.decimals}f}"


@dataclass(frozen=True)
class LossStyle:
    """How a loss is shown."""

    symbol: str
    label: str
    colour: str  # #rrggbb
    # Whether it has a temperature, which a schedule may let fall.
    tempered: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.tempered, bool):
            raise ValueError(f"tempered: expected true or false, got {self.tempered!r}")
        if not COLOUR.fullmatch(self.colour):
            raise ValueError(f"colour: expected one such as #dc143c, got {self.colour!r}")


@dataclass(frozen=True)
class Sheet:
    """What tables, figures and pages show of an experiment."""

    name: str
    title: str
    scenarios: Mapping[str, str]  # names, as in records, and what they mean
    losses: Mapping[str, LossStyle]  # by name, in the order in which they are shown
    metric: str  # the one of a record's metrics that is compared
    metric_label: str
    better: Better = "higher"
    decimals: int = 2
    # On which examples learning curves are measured, if not on all.
    curves_of: str = ""
    # The command that trains its runs.
    command: str = ""
    # What must be said beside its numbers.
    remark: str = ""
    reference: Reference | None = None
    # Of the metric: if there is one, how many steps it takes to get there is shown, and which loss
    # is best at equal steps and at equal time.
    level: float | None = None
    # The scenarios and losses that are compared, if not every loss in every scenario.
    cells: Sequence[tuple[str, str]] | None = None

    def __post_init__(self) -> None:
        _check_cells(self.cells, self.scenarios, self.losses)
        if self.better not in get_args(Better):
            known = ", ".join(get_args(Better))
            raise ValueError(f"better: expected one of {known}, got {self.better!r}")
        if self.level is not None:
            number = isinstance(self.level, int | float) and not isinstance(self.level, bool)
            if not number or not 0 < self.level < math.inf or self.better != "higher":
                raise ValueError(
                    f"level: expected a positive number, of what is better the higher it is, got "
                    f"{self.level!r:.60} of what is better {self.better}"
                )
        symbols = [style.symbol for style in self.losses.values()]
        if len(set(symbols)) < len(symbols):
            raise ValueError(f"losses: symbols must differ, got {', '.join(symbols)}")

    def label(self, scenario: str) -> str:
        """What a scenario means; its name where the sheet does not tell."""
        return self.scenarios.get(scenario, scenario)

    def compares(self, scenario: str, loss: str) -> bool:
        """Whether there is to be such a cell."""
        return self.cells is None or (scenario, loss) in self.cells

    @property
    def worst(self) -> float:
        """What a run is worth that has diverged, so that there is no number of it."""
        return -math.inf if self.better == "higher" else math.inf

    def format(self, value: float) -> str:
        """A number of ours, as it is shown; between two counts lies a half."""
        if not math.isfinite(value):
            return "diverged"
        halfway = self.decimals == 0 and value != round(value)
        return f"{value:.{1 if halfway else self.decimals}f}"

    def best_first(self, values: Iterable[float]) -> list[float]:
        return sorted(values, reverse=self.better == "higher")

    def published(self, loss: str, scenario: str) -> float | None:
        """The number of the reference, if it has one there."""
        if self.reference is None:
            return None
        return self.reference.values.get(loss, {}).get(scenario)

    def fails(self, value: float) -> bool:
        """Whether a number, printed as the reference prints, is that of a loss that fails: a 0."""
        assert self.reference is not None
        return self.better == "higher" and round(value, self.reference.decimals) == 0

    def reaches(self, value: float, published: float | None) -> bool:
        """Whether a value, printed as the reference prints, is not behind the published one.

        This alone decides what is bold and what holds, wherever numbers are shown. Where the loss
        fails in the reference there is nothing to reach, and nothing can be said across scales.
        """
        if self.reference is None or published is None:
            return False
        if self.fails(published) or self.reference.other_scale:
            return False
        rounded = round(value, self.reference.decimals)
        return rounded >= published if self.better == "higher" else rounded <= published

    def write(self, results: Path) -> None:
        """Put it beside the records; a file that says the same is left alone."""
        text = json.dumps(asdict(self), indent=1) + "\n"
        path = results / f"{self.name}.json"
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            atomic_write_text(path, text)

    @staticmethod
    def read(path: Path) -> Sheet:
        """What `write` wrote; a ValueError says what is wrong with the file."""
        try:
            saved = read_json(path)
            saved["losses"] = {name: LossStyle(**how) for name, how in saved["losses"].items()}
            if saved["reference"] is not None:
                saved["reference"] = Reference(**saved["reference"])
            if saved.get("cells") is not None:
                saved["cells"] = tuple((scenario, loss) for scenario, loss in saved["cells"])
            return Sheet(**saved)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            said = one_line(error).removeprefix(f"{path}: ")
            raise ValueError(f"{path}: not the sheet of an experiment: {said}") from error


def _check_cells(
    cells: Sequence[tuple[str, str]] | None, scenarios: Iterable[str], losses: Iterable[str]
) -> None:
    if cells is None:
        return
    pairs = [cell for cell in cells if isinstance(cell, tuple) and len(cell) == 2]
    if not pairs or len(pairs) < len(cells) or len(set(pairs)) < len(pairs):
        raise ValueError(
            f"cells: expected different pairs (scenario, loss), or None for every loss in every "
            f"scenario, got {str(cells)[:60]}"
        )
    for scenario, loss in pairs:
        for what, name, known in (("scenario", scenario, scenarios), ("loss", loss, losses)):
            if name not in known:
                raise ValueError(
                    f"cells: ({scenario!r}, {loss!r}) has an unknown {what}; there are "
                    f"{', '.join(known)}"
                )


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Losses compared in scenarios, over seeds.

    ``config(scenario, loss, seed)`` gives the run of a cell; ``experiment``, ``scenario``, ``loss``
    and ``seed`` of the config must be those asked for.
    """

    name: str
    title: str
    config: Callable[[str, str, int], Config]
    scenarios: Mapping[str, str]
    losses: Sequence[str]  # names in `setwise.losses.table`
    seeds: int = 10
    metric: str = "success"
    metric_label: str = "share of the examples that are right"
    better: Better = "higher"
    decimals: int = 2
    curves_of: str = ""
    command: str = ""
    remark: str = ""
    reference: Reference | None = None
    level: float | None = None
    # Scenarios and losses, if not all in all, in the order in which they are trained.
    cells: Sequence[tuple[str, str]] | None = None
    # Losses are looked up now, so that a wrong name is told before anything is trained.
    styles: Mapping[str, LossStyle] = field(init=False)

    def __post_init__(self) -> None:
        require_name("name", self.name)
        if f"{self.name}.jsonl" == COSTS:
            raise ValueError(f"name: {COSTS} holds what training costs; choose another name")
        styles = {}
        for name in self.losses:
            loss = LOSSES[name]
            tempered = "temperature" in loss.options
            styles[name] = LossStyle(loss.symbol, loss.label, loss.colour, tempered)
        object.__setattr__(self, "styles", styles)
        _check_cells(self.cells, self.scenarios, self.losses)

    @property
    def sheet(self) -> Sheet:
        return Sheet(
            name=self.name,
            title=self.title,
            scenarios=dict(self.scenarios),
            losses=dict(self.styles),
            metric=self.metric,
            metric_label=self.metric_label,
            better=self.better,
            decimals=self.decimals,
            curves_of=self.curves_of,
            command=self.command,
            remark=self.remark,
            reference=self.reference,
            level=self.level,
            cells=None if self.cells is None else tuple(self.cells),
        )

    def configs(
        self,
        seeds: Sequence[int] | None = None,
        scenarios: Sequence[str] | None = None,
        losses: Sequence[str] | None = None,
    ) -> list[Config]:
        """All runs, or those of these seeds, scenarios and losses."""
        for what, given, known in (
            ("scenarios", scenarios or (), self.scenarios),
            ("losses", losses or (), self.losses),
        ):
            if unknown := [name for name in given if name not in known]:
                raise ValueError(
                    f"{what}: {self.name} has no {', '.join(unknown)}; it has {', '.join(known)}"
                )
        cells = [
            (scenario, loss)
            for scenario in (self.scenarios if scenarios is None else scenarios)
            for loss in (self.losses if losses is None else losses)
        ]
        if self.cells is not None:
            cells = [cell for cell in self.cells if cell in cells]
            if not cells:
                known = "; ".join(f"{scenario} with {loss}" for scenario, loss in self.cells)
                raise ValueError(f"losses: {self.name} has none of these there; it has {known}")
        return [
            self._run(scenario, loss, seed)
            for scenario, loss in cells
            for seed in (range(self.seeds) if seeds is None else seeds)
        ]

    def _run(self, scenario: str, loss: str, seed: int) -> Config:
        """Recorded under another name, it would be taken for a run of something else."""
        config = self.config(scenario, loss, seed)
        asked = {"experiment": self.name, "scenario": scenario, "loss": loss, "seed": seed}
        for name, value in asked.items():
            if getattr(config, name) != value:
                raise ValueError(
                    f"{self.name}: config({scenario!r}, {loss!r}, {seed}) gives a run with {name} "
                    f"{getattr(config, name)!r}; it must be {value!r}"
                )
        return config
