"""The page about more than one process shows what was measured."""

from __future__ import annotations

import json

from tools import scaling


def test_the_page_is_what_the_records_say() -> None:
    text = scaling.PAGE.read_text()
    assert scaling.page(text) == text


def test_other_records_say_something_else() -> None:
    record = json.loads(scaling.EXECUTORS.read_text())
    slower = record | {"overhead": 0.25, "same_records": False}
    said = " ".join(scaling.cluster(slower).split())  # wherever lines end
    assert "25.0% more" in said
    assert "Their records are not the same" in said
