"""The page of the first hour: its table is that of the record; what pages show is in scripts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools import examples

from repository import ROOT

PAGE = examples.PAGE.read_text()
# Of all pages that show lines of an example.
SHOWN = [
    shown
    for page in sorted((ROOT / "docs").glob("*.md"))
    for shown in re.findall(
        r'^```python title="(examples/.*?)"\n(.*?)\n```$',
        page.read_text(),
        re.MULTILINE | re.DOTALL,
    )
]


def test_the_table_is_that_of_the_record() -> None:
    assert examples.page(PAGE) == PAGE, "run python -m tools.examples"


@pytest.mark.parametrize("name", examples.EXAMPLES)
def test_examples_are_short_and_say_what_was_recorded(name: str) -> None:
    text = (ROOT / "examples" / f"{name}.py").read_text()
    assert len(text.splitlines()) <= 60
    assert examples.header(name, text) == text, "run python -m tools.examples"
    assert examples.PRINTED in text


def test_what_is_shown_is_what_the_script_says() -> None:
    assert {"export", "points", "multisets", "lightning_training", "accelerate_training"} <= {
        Path(title).stem for title, _ in SHOWN
    }
    for title, text in SHOWN:
        assert f"\n{text}\n" in (ROOT / title).read_text()


def test_the_tasks_of_a_newcomer_are_solved() -> None:
    """At full size, as recorded."""
    printed = {name: examples.recorded(name)["printed"] for name in examples.EXAMPLES}
    numbers = {name: list(map(float, re.findall(r"\d+\.?\d*", printed[name]))) for name in printed}
    assert numbers["multisets"][0] >= 0.99
    assert numbers["own_facts"][0] >= 0.9
    assert printed["lights_out"].endswith("problems solved: 20 of 20")
    assert printed["export"].endswith("True")
    near, other = numbers["points"]
    assert near < 0.6 * other
