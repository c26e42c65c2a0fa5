"""The documents keep their promises: examples run, links lead somewhere, the figure is current.

The ``>>>`` examples are run by pytest itself; here is what it cannot see.
"""

from __future__ import annotations

import io
import re
import runpy
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from pictures import differing_pixels
from repository import ROOT

DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
FIRST_STEPS = ROOT / "docs" / "first-steps.md"
SCRIPT = ROOT / "docs" / "figures" / "loss_surfaces.py"

_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
_PUNCTUATION = re.compile(r"[^\w\- ]")


def example(name: str) -> str:
    """The Python block of the first steps that follows the comment ``<!-- example: name -->``."""
    pattern = rf"^<!-- example: {re.escape(name)} -->\n```python\n(.*?)^```$"
    blocks = re.findall(pattern, FIRST_STEPS.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1, f"{FIRST_STEPS.name} has {len(blocks)} examples named {name}"
    return str(blocks[0])


def prose(document: Path) -> str:
    return _FENCE.sub("", document.read_text())


def anchors(document: Path) -> set[str]:
    """The names GitHub gives to the headings of a document."""
    headings = _HEADING.findall(prose(document))
    return {_PUNCTUATION.sub("", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(document: Path) -> list[str]:
    broken = []
    for link in _LINK.findall(prose(document)):
        if re.match(r"[a-z]+:", link):  # the web is not ours to test
            continue
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        if not target.is_file() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    return broken


def script() -> dict[str, Any]:
    """What the script of the figure defines."""
    return runpy.run_path(str(SCRIPT))


# Two trainings. The first tier trains a smaller network, in features/test_families_in_use.py.
@pytest.mark.slow
def test_the_training_example_shows_what_it_says() -> None:
    printed = io.StringIO()
    with torch.random.fork_rng(), redirect_stdout(printed):
        exec(compile(example("training"), FIRST_STEPS.name, "exec"), {"__name__": "steps"})
    rates = {
        name: float(rate)
        for name, rate in re.findall(r"^(\w+): (\d\.\d+) ", printed.getvalue(), re.MULTILINE)
    }
    assert rates.keys() == {"set_cross_entropy", "ordered_cross_entropy"}
    assert rates["set_cross_entropy"] >= 0.99
    assert rates["ordered_cross_entropy"] == 0.0


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    assert broken_links(document) == []


def test_broken_links_are_noticed(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text(
        "# One, two\n[a](#one-two) [b](#three) [c](page.md#one-two) [d](no.md) ![e](no.png) "
        "[f](https://example.org/no)\n```python\nlist[int](7)\n```\n"
    )
    assert broken_links(document) == ["#three", "no.md", "no.png"]


@pytest.mark.slow  # drawn in two seconds; `test_the_figure_says_the_truth` evaluates what it shows
def test_the_figure_is_current(tmp_path: Path) -> None:
    committed = SCRIPT.with_suffix(".png")
    assert committed.stat().st_size < 250_000
    script()["main"](tmp_path / "again.png")
    assert differing_pixels(committed, tmp_path / "again.png") < 0.01, f"run python {SCRIPT.name}"


def test_a_figure_of_something_else_is_noticed(tmp_path: Path) -> None:
    image = np.asarray(Image.open(SCRIPT.with_suffix(".png")).convert("RGB"))
    for name, changed in {"flip": image[:, ::-1], "brighter": image // 2 + 120}.items():
        Image.fromarray(changed.astype(np.uint8)).save(tmp_path / f"{name}.png")
        assert differing_pixels(SCRIPT.with_suffix(".png"), tmp_path / f"{name}.png") > 0.05


def test_the_figure_says_the_truth() -> None:
    """What its titles claim: which losses are equal, and where their minima lie."""
    names = script()
    evaluate, X, third = names["evaluate"], names["TARGETS"], names["TARGETS_WITH_THIRD"]
    ordered, assignment = names["ordered"], names["assignment"]
    average, soft = names["summed_set_average"], names["set_cross_entropy"]

    axis = torch.linspace(0.01, 0.99, 50, dtype=torch.float64)
    p, q = torch.meshgrid(axis, axis, indexing="ij")
    second = torch.stack([p, q], dim=-1).unsqueeze(-1)
    Y = torch.cat([torch.full_like(second, 0.1), second], dim=-1)
    torch.testing.assert_close(evaluate(assignment, Y, X), evaluate(average, Y, X))
    torch.testing.assert_close(evaluate(soft, Y, X), -(0.81 * (p + q) * (2 - p - q)).log())

    # At the two orders, and between them, where only a mixture of two targets lies.
    ends = torch.tensor([[[0.1, 1.0], [0.1, 0.0]], [[0.1, 0.0], [0.1, 1.0]], [[0.1, 0.5]] * 2])
    least = torch.tensor(-2 * np.log(0.9))
    for loss, reaches_least in (
        (ordered, [True, False, False]),
        (assignment, [True, True, False]),
        (soft, [True, True, True]),
    ):
        assert (evaluate(loss, ends, X) < least + 1e-6).tolist() == reaches_least
    with_third = torch.cat([ends, 1 - ends[..., 1:]], dim=-1)
    assert (evaluate(soft, with_third, third) < least + 1e-6).tolist() == [True, True, False]

    y = torch.linspace(0, 1, 21)
    strays = torch.tensor([0.1, 0.5]).repeat(21, 2, 1)
    strays[:, 1, 0] = y
    torch.testing.assert_close(evaluate(ordered, strays, X), evaluate(assignment, strays, X))
    assert evaluate(average, strays, X)[y >= 0.1].std() < 1e-6
    assert bool((evaluate(soft, strays, X).diff() > 0).all())
