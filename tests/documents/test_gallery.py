"""The gallery: its pictures are those of the records, which say what the pages claim."""

from __future__ import annotations

import re
import runpy
from functools import cache
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pytest
from tools import gallery

from pictures import differing_pixels
from repository import ROOT

FIGURES = ROOT / "docs" / "figures"
# Slow: eight pictures are drawn. That the examples do what is recorded is in test_examples.py.
pytestmark = pytest.mark.slow


@cache
def script() -> dict[str, Any]:
    """What the script of the pictures defines."""
    return runpy.run_path(str(FIGURES / "gallery.py"))


def recorded(name: str) -> Any:
    return script()["recorded"](name)


def test_each_record_names_the_commit_that_made_it() -> None:
    assert sorted(path.stem for path in gallery.RECORDS.iterdir()) == sorted(gallery.EXAMPLE)
    for name in gallery.EXAMPLE:
        assert re.fullmatch("[0-9a-f]{40}", recorded(name)["environment"]["commit"]), name


def test_nothing_is_recorded_that_has_no_commit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gallery, "_changed", lambda: " M examples/points.py")
    for names in (["points"], ["no_example"], []):
        with pytest.raises(SystemExit) as ended:
            gallery.main(names)
        assert ended.value.code == 2
    assert " M examples/points.py" in capsys.readouterr().err


def test_pictures_are_drawn_from_the_records(tmp_path: Path) -> None:
    script()["main"](tmp_path)
    page = (ROOT / "docs" / "gallery.md").read_text()
    drawn = sorted(path.name for path in tmp_path.iterdir())
    assert drawn == sorted(set(re.findall(r"figures/(gallery-[\w-]+\.png)", page)))
    for name in drawn:
        share = differing_pixels(tmp_path / name, FIGURES / name)
        assert share < 0.01, f"{name}: run python docs/figures/gallery.py"


@pytest.mark.parametrize("name", ["lightning", "accelerate"])
def test_curves_are_those_by_hand(name: str) -> None:
    by_hand, one, two = (
        recorded(run) for run in ("torchrun", f"{name}_training", f"{name}_on_two")
    )
    assert len(two["losses"]) == len(by_hand["losses"]) > 100
    assert one["losses"] == pytest.approx(by_hand["losses"], abs=1e-4)
    # Sums in another order differ by rounding, which grows from step to step.
    assert two["losses"][:64] == pytest.approx(by_hand["losses"][:64], abs=1e-4)
    assert min(one["right"], two["right"]) > 0.95


@pytest.mark.parametrize("name", ["torchrun", "lightning_training", "accelerate_training"])
def test_headers_have_the_line_that_was_recorded(name: str) -> None:
    text = (ROOT / "examples" / f"{name}.py").read_text()
    assert f"    {recorded(name)['printed']}\n" in text


def test_the_plan_presses_one_light_at_a_time() -> None:
    boards = recorded("lights_out")["boards"]
    assert recorded("lights_out")["valid"]
    assert len(boards) == 8  # seven steps apart
    press = runpy.run_path(str(ROOT / "examples" / "lights_out.py"))["PRESS"].tolist()
    for before, after in pairwise([list(chain(*board)) for board in boards]):
        assert [a ^ b for a, b in zip(before, after, strict=True)] in press


def test_bags_are_learned_best_by_the_two_losses_that_the_page_names() -> None:
    *_, second, first = script()["shares_of_bags"]()
    assert {first, second} == {"annealed_likelihood", "stable_matching_cross_entropy"}


def test_other_batches_agree_and_metrics_are_in_order() -> None:
    assert max(recorded("export")["differences"].values()) < 1e-5
    curves = recorded("metrics")["curves"]
    assert all(a >= b for a, b in zip(*curves.values(), strict=True))
