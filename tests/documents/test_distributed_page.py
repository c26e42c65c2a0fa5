"""The page about training on many machines shows what was measured, and that was what it should."""

from __future__ import annotations

import json

from tools import distributed


def test_the_page_is_what_the_records_say() -> None:
    text = distributed.PAGE.read_text()
    assert distributed.page(text) == text


def test_every_set_came_once_and_in_order() -> None:
    epochs = json.loads(distributed.STREAMING.read_text())["epochs"]
    assert epochs["seen once"] == epochs["sets"] == 1_000_000
    assert (epochs["ranks"], epochs["workers"]) == (2, 2)
    assert 0 < epochs["sets before the kill"] < epochs["sets"]
    assert epochs["same order again"]
    assert epochs["same order after the kill"]


def test_memory_falls_with_the_number_of_processes() -> None:
    rows = json.loads(distributed.SHARDED.read_text())["rows"]
    largest = max(row["elements"] for row in rows)
    peaks = {row["ranks"]: row["peak_mb"] for row in rows if row["elements"] == largest}
    assert peaks[4] < 0.75 * peaks[2] < 0.75**2 * peaks[1]


def test_other_records_say_something_else() -> None:
    record = json.loads(distributed.STREAMING.read_text())
    worse = {"seen once": 999_990, "same order again": False, "same order after the kill": False}
    said = distributed.streaming(record | {"epochs": record["epochs"] | worse})
    assert "10 did not come exactly once" in said
    assert "had not the same order" in " ".join(said.split())
    assert "ended differently" in " ".join(said.split())
