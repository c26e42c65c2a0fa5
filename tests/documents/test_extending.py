"""What the page on extending shows is cut from files that are run by tests/extension."""

from __future__ import annotations

import re

import pytest

from repository import ROOT

PAGE = (ROOT / "docs" / "extending.md").read_text()
SHOWN = re.findall(r'^```python title="(.*?)"\n(.*?)\n```$', PAGE, re.MULTILINE | re.DOTALL)
FILES = {
    path.name
    for path in (ROOT / "tests" / "extension").glob("*.py")
    if not path.name.startswith("test_")
}


def test_every_file_is_shown() -> None:
    assert {title for title, _ in SHOWN} == {f"tests/extension/{name}" for name in FILES}
    assert all(f"](../tests/extension/{name})" in PAGE for name in FILES)


def test_whatever_is_no_cutting_is_run_as_an_example() -> None:
    others = re.findall(r"^```python\n(.*?)$", PAGE, re.MULTILINE)
    assert len(others) + len(SHOWN) == PAGE.count("```") / 2
    assert all(first.startswith(">>> ") for first in others)


@pytest.mark.parametrize(("title", "text"), SHOWN, ids=[title for title, _ in SHOWN])
def test_it_is_what_the_file_says(title: str, text: str) -> None:
    assert f"\n{text}\n" in (ROOT / title).read_text()
