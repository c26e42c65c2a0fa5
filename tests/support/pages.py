"""Folders of records for pages, and what is read from a page of them."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import Page

from recorded import A1H, PAPER, SH, SHEETS, make_records, write
from repository import ROOT
from setwise.experiments.config import Config
from setwise.experiments.experiment import LossStyle, Reference, Sheet
from setwise.experiments.reconstructions import Reconstructions
from setwise.planning.recorded import write_plan
from setwise.report.page.report import report
from tiny_experiments import puzzle_config

BENCHMARKS = ROOT / "benchmarks" / "records"
# Markup that would leave its traces if it came through as such, in text and in an attribute.
HOSTILE = "<img src=x onerror=\"document.title='broken'\"></script></style>'\"&" + "x" * 60
CAPTIONS = ["0: init", "1: tile 1 goes left", "2: tile 2 goes up, goal"]


def png(shade: int = 0) -> bytes:
    """A picture of one colour."""
    file = io.BytesIO()
    Image.new("RGB", (60, 60), (shade, 200, 90)).save(file, "PNG")
    return file.getvalue()


def add_plan(
    results: Path, name: str = "a-plan", captions: list[str] = CAPTIONS, **more: Any
) -> None:
    """A plan of the 2 x 2 puzzle, as `setwise plan --record` would write it."""
    about = {
        "domain": "puzzle-2x2",
        "verdict": "optimal plan of 2 steps (a shortest has 2)",
        "network": {
            "file": "n.safetensors",
            "experiment": "table1",
            "scenario": "4",
            "loss": SH,
            "seed": 3,
        },
        "command": "setwise plan puzzle --seed 7 --record results/plans",
        "finished": "2026-02-03T10:00:00+00:00",
        "environment": {"commit": "e" * 40, "torch": "2", "hardware": "a planner"},
    }
    states = np.stack([np.full((60, 60, 3), 80 * n, dtype=np.uint8) for n in range(len(captions))])
    write_plan(results / "plans" / name, states, captions, about | more)


def network_configs(*scenarios: str) -> list[Config]:
    """One of each loss of Table 3 in these scenarios."""
    return [
        replace(puzzle_config(), scenario=scenario, loss=loss)
        for scenario in scenarios
        for loss in SHEETS["table3"].losses
    ]


def add_reconstructions(results: Path, text: str | None = None) -> None:
    """Of two states, by networks that darken them; with ``text`` for every text that is shown."""
    scenarios = ["1", "4"] if text is None else ["4"]
    configs = network_configs(*scenarios)
    environment = {"commit": "d" * 40, "torch": "3", "hardware": "a painter"}
    if text is not None:
        configs = [replace(config, scenario=text) for config in configs]
        environment = dict.fromkeys(environment, text)
    inputs = np.zeros((2, 40, 60, 3), dtype=np.uint8)
    inputs[:, 10:20, 20:40] = 200
    outputs = np.stack([inputs // (n + 1) for n in range(len(configs))])
    day = text or "2026-03-04T10:00:00+00:00"
    made = Reconstructions(tuple(configs), (7, 8), inputs, outputs, environment, day)
    made.write(results / "table3-reconstructions.npz")


def add_cost(results: Path, **more: Any) -> None:
    """What training Table 1 together has saved, as `setwise reproduce --cost` would write it."""
    alone = {"plain": 30.0, "compiled": 6.0}
    cost = {"experiment": "table1", "networks": 10, "seconds": 20.0, "seconds_alone": alone} | more
    (results / "cost.jsonl").write_text(json.dumps(cost) + "\n")


def add_detections(results: Path, text: str, **more: Any) -> None:
    """Of one picture, with ``text`` for every text that is shown."""
    environment = dict.fromkeys(("commit", "torch", "hardware"), text)
    told = {"said": text, "captions": [text], "command": text, "environment": environment}
    folder = results / "detect"
    folder.mkdir(parents=True)
    (folder / "detections.json").write_text(json.dumps(told | more))
    (folder / "00.png").write_bytes(png())


def whole_page(folder: Path) -> Path:
    """A page with something of everything."""
    records = [
        *make_records(),
        *make_records("table4", scenarios=["n2-2250-fixed", "n5-9000-random"], losses=[SH, A1H]),
        *make_records("table1-quick", seeds=[0]),
    ]
    results = write(folder / "results", records, *PAPER)
    add_plan(results)
    add_reconstructions(results)
    add_cost(results)
    shutil.copytree(BENCHMARKS, folder / "benchmarks")
    return _page(folder)


def hostile_page(folder: Path) -> Path:
    """A page of records whose every text is markup."""
    results = write(folder / "results", make_records(seeds=[0], scenarios=["4"]), *PAPER)
    lines = [json.loads(line) for line in (results / "table1.jsonl").read_text().splitlines()]
    for line in lines:
        line["config"]["scenario"] = HOSTILE
    text = "".join(json.dumps(_hostile(line)) + "\n" for line in lines)
    (results / "table1.jsonl").write_text(text)
    add_hostile_experiment(results)
    add_plan(results, captions=[HOSTILE, HOSTILE])
    plan = results / "plans" / "a-plan" / "plan.json"
    plan.write_text(json.dumps(_hostile(json.loads(plan.read_text()), found_by=())))
    plan.parent.rename(plan.parent.with_name(HOSTILE.replace("/", "|")))
    add_reconstructions(results, HOSTILE)
    add_detections(results, HOSTILE)
    add_cost(results, finished=HOSTILE, environment={"hardware": HOSTILE, "commit": HOSTILE})
    (folder / "benchmarks").mkdir()
    record = json.loads((BENCHMARKS / "losses-h200.json").read_text())
    first = record["rows"][0] | {"shape": HOSTILE, "impl": HOSTILE}
    record["rows"][:0] = [first, first | {"impl": "dense", "error": HOSTILE}]
    record["header"] = _hostile(record["header"])
    (folder / "benchmarks" / "losses-h200.json").write_text(json.dumps(record))
    return _page(folder)


def add_hostile_experiment(results: Path) -> None:
    """One whose sheet is of markup as well: two losses, of which one is recorded."""
    other = f"another {HOSTILE}"
    reference = Reference(HOSTILE, {HOSTILE: {HOSTILE: 0.5}}, 2, HOSTILE, HOSTILE)
    sheet = Sheet(
        name="hostile",
        title=HOSTILE,
        scenarios={HOSTILE: HOSTILE},
        losses={
            HOSTILE: LossStyle(HOSTILE, HOSTILE, "#123456"),
            other: LossStyle(other, other, "#fedcba"),
        },
        metric="success",
        metric_label=HOSTILE,
        curves_of=HOSTILE,
        command=HOSTILE,
        reference=reference,
    )
    records = make_records(seeds=[0, 1], scenarios=["4"], losses=[SH])
    told = {"experiment": "hostile", "scenario": HOSTILE, "loss": HOSTILE}
    for record in records:
        record |= told
        record["config"] |= told
    write(results, records, sheet)


def read_cells(tab: Page, section: str) -> dict[tuple[str, str], str]:
    """The texts of the first table of a section, by row and loss."""
    grid = tab.locator(f"section#experiment-{section} table").first
    losses = [name.partition(":")[0] for name in grid.locator("thead th").all_inner_texts()[1:]]
    found = {}
    for row in grid.locator("tbody tr").all():
        name = row.locator("th").inner_text()
        for loss, cell in zip(losses, row.locator("td").all_inner_texts(), strict=True):
            found[name, loss] = " ".join(cell.split())
    return found


def _page(folder: Path) -> Path:
    page = folder / "report.html"
    page.write_text(report(folder / "results", folder / "benchmarks"))
    return page


RUN_IS_FOUND_BY = ("schema", "run", "experiment", "loss", "config", "history", "metrics")


def _hostile(value: Any, found_by: Sequence[str] = RUN_IS_FOUND_BY) -> Any:
    """Every text of a record replaced, but for the names that it is found by."""
    if isinstance(value, dict):
        return {k: v if k in found_by else _hostile(v, found_by) for k, v in value.items()}
    if isinstance(value, list):
        return [_hostile(one, found_by) for one in value]
    return HOSTILE if isinstance(value, str) else value
