"""An experiment with many losses on the page: a number and a colour for each cell."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from browser import badly_drawn, faint, opened, overflowing, unnamed
from setwise import cli
from setwise.experiments.experiment import LossStyle, Sheet
from setwise.report.page.heat import MOST_IN_FULL, STEPS, heat_map, step_of

# The last is not recorded.
SHARES = (0.0, 0.3, 0.5, 0.7, 1.0, 0.95, None)
LOSSES = {f"loss{k}": LossStyle(f"L{k}", f"loss {k}", "#1f77b4") for k in range(len(SHARES))}
SHEET = Sheet(
    name="many",
    title="Many losses",
    scenarios={"bags": "bags & more", "clouds": "clouds"},
    losses=LOSSES,
    metric="exact",
    metric_label="share of all sets",
)


def record(loss: str, seed: int, share: float) -> dict[str, Any]:
    told = {"experiment": SHEET.name, "scenario": "bags", "loss": loss, "seed": seed}
    kinds = {part: {"kind": part} for part in ("data", "network", "schedule")}
    return {
        "schema": 2,
        "run": f"{loss}-{seed}",
        **told,
        "metrics": {"exact": share},
        "history": {"epoch": [1], "exact": [share]},
        "config": told | kinds,
        "members": 1,
        "seconds": 3.0,
        "environment": {"hardware": "my machine", "torch": "2"},
    }


@pytest.fixture
def page(tmp_path: Path) -> Path:
    SHEET.write(tmp_path)
    runs = [
        record(loss, seed, max(0.0, min(1.0, share + (seed - 1) / 10)))
        for loss, share in zip(LOSSES, SHARES, strict=True)
        if share is not None
        for seed in range(3)
    ]
    (tmp_path / "many.jsonl").write_text("".join(json.dumps(run) + "\n" for run in runs))
    path = tmp_path / "page" / "report.html"
    folders = ["--results", str(tmp_path), "--benchmarks", str(tmp_path)]
    assert cli.main(["report", *folders, "--output", str(path)]) == 0
    return path


def test_each_cell_has_its_median_its_ends_its_time_and_its_colour(page: Path) -> None:
    (row,) = re.findall(
        r'<tr><th scope="row">bags &amp; more</th>(.*?)</tr>', page.read_text(), re.S
    )
    said = re.sub(r"</?(?:strong|span).*?>", "|", row)
    cells = re.findall(r'<td class="heat-(\w+)">\|(.*?)\|(?:\|(.*?)\|\|(.*?)\|)?</td>', said)
    assert cells == [
        ("0", "0.00", "0.00 to 0.10", "3 s"),
        ("1", "0.30", "0.20 to 0.40", "3 s"),
        ("2", "0.50", "0.40 to 0.60", "3 s"),
        ("3", "0.70", "0.60 to 0.80", "3 s"),
        ("4", "1.00", "0.90 to 1.00", "3 s"),
        ("4", "0.95", "0.85 to 1.00", "3 s"),
        ("none", "", "", ""),
    ]


def test_what_was_never_trained_has_no_colour(page: Path) -> None:
    (row,) = re.findall(r'<tr><th scope="row">clouds</th>(.*?)</tr>', page.read_text(), re.S)
    assert row.count('class="heat-none"') == len(LOSSES)


def test_few_losses_say_everything(page: Path) -> None:
    few = dict(list(LOSSES.items())[:MOST_IN_FULL])
    Sheet(**vars(SHEET) | {"losses": few}).write(page.parent.parent)
    folder = str(page.parent.parent)
    command = ["report", "--results", folder, "--benchmarks", folder, "--output", str(page)]
    assert cli.main(command) == 0
    assert 'class="heat-map"' not in page.read_text()


def test_where_less_is_better_colours_turn_round() -> None:
    values = (1.0, 2.0, 3.0, float("inf"))
    assert [step_of(value, (1.0, 3.0), False) for value in values] == [STEPS - 1, 2, 0, 0]
    assert step_of(1.0, (1.0, 1.0), True) == STEPS - 1


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read(chromium: Browser, page: Path, scheme: Any) -> None:
    with opened(chromium, page, scheme=scheme) as tab:
        assert [*overflowing(tab), *faint(tab), *unnamed(tab), *badly_drawn(tab)] == []


def test_losses_trained_together_have_no_time_of_their_own() -> None:
    shown = {"exact": 0.9, "heldout": 0.25}
    runs = [
        record(loss, seed, 0.9) | {"metrics": shown, "ensemble": ensemble}
        for loss, ensemble in (("loss0", "first"), ("loss1", "first"), ("loss2", "second"))
        for seed in range(2)
    ]
    text = heat_map("Many", SHEET, runs)
    assert text.count("held out 0.25") == 3
    assert text.count("3 s") == 1
    assert "from the worst to the best, what was held out, what one took to train" in text
    assert "took to train" not in heat_map("Many", SHEET, runs[:4])
