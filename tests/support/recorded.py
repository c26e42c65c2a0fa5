"""Experiments for tests: sheets, records as training writes them, and folders of both."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from repository import ROOT
from setwise.experiments.experiment import Sheet
from setwise.experiments.records import Record
from setwise.report.records import read_sheet
from setwise.report.tables import Recorded, read_experiments

RESULTS = ROOT / "results"
H, SH, A1H, H1H = "ordered_cross_entropy", "set_cross_entropy", "set_average", "hausdorff"
PAPER = ("table1", "table2", "table3", "table4", "table5")
SHEETS = {path.stem: read_sheet(path) for path in sorted(RESULTS.glob("*.json"))}
SHEETS["table1-quick"] = replace(
    SHEETS["table1"],
    name="table1-quick",
    title="Table 1 at small size: reconstruction of puzzle states",
    command="setwise reproduce table1 --preset quick",
    reference=None,
)


@cache
def committed_results() -> dict[str, Recorded]:
    """Those of this repository, which take a second: not wherever this module is imported."""
    return read_experiments(RESULTS)


def without_scale(sheet: Sheet) -> Sheet:
    """The same with numbers that can be compared."""
    assert sheet.reference is not None
    return replace(sheet, reference=replace(sheet.reference, other_scale=""))


def make_records(
    experiment: str = "table1",
    seeds: Sequence[int] = (0, 1, 2),
    scenarios: Sequence[str] | None = None,
    losses: Sequence[str] | None = None,
    temperature: float = 1.0,
) -> list[Record]:
    """As training would write them; seed k is 0.1 k behind the paper, held out 0.05 more."""
    sheet = SHEETS[experiment]
    paper = SHEETS[experiment.partition("-")[0]]
    records = []
    for scenario in scenarios or sheet.scenarios:
        for loss in losses or sheet.losses:
            for seed in seeds:
                published = paper.published(loss, scenario)
                assert published is not None
                end = max(0.0, published - 0.1 * seed)
                named = {"experiment": experiment, "scenario": scenario, "loss": loss, "seed": seed}
                records.append(
                    {
                        "schema": 2,
                        "run": "-".join(map(str, named.values())),
                        **named,
                        "metrics": {"success": end, "heldout": max(0.0, end - 0.05), "loss": 1.0},
                        "history": {
                            **{"epoch": [750, 1500], "loss": [2.0, 1.0]},
                            **{"success": [end / 2, end], "heldout": [0.0, end]},
                        },
                        "config": {
                            **named,
                            "data": {"kind": "puzzle", "width": 3},
                            "network": {"kind": "autoencoder", "widths": [1000, 1000]},
                            "schedule": {"epochs": 1500, "loss_temperature": temperature},
                        },
                        "members": 12,
                        "seconds": 6.0,
                        "finished": "2026-01-02T10:00:00+00:00",
                        "environment": {"commit": "f" * 40, "torch": "2", "hardware": "a machine"},
                    }
                )
    return records


def recorded(records: Sequence[Record], costs: Sequence[Record] = ()) -> Recorded:
    """What would be read of the records of one experiment."""
    (name,) = {record["experiment"] for record in records}
    return Recorded(SHEETS[name], list(records), list(costs))


def write(folder: Path, records: Sequence[Record], *sheets: str | Sheet) -> Path:
    """A folder of these records with their sheets, and of other sheets or those of other names."""
    folder.mkdir(exist_ok=True)
    for name in {record["experiment"] for record in records}:
        lines = [json.dumps(record) for record in records if record["experiment"] == name]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
        if not any(isinstance(sheet, Sheet) and sheet.name == name for sheet in sheets):
            SHEETS[name].write(folder)
    for sheet in sheets:
        (sheet if isinstance(sheet, Sheet) else SHEETS[sheet]).write(folder)
    return folder
