"""docs/which-loss.md and the advice of other documents are made from the records of the studies."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest
from tools import advice, failures, study

from recorded import RESULTS
from setwise.cli.user_file import run_file
from setwise.experiments import store
from setwise.experiments.experiment import LossStyle, Sheet
from setwise.report.tables import Recorded

SH, AH, LH = "set_cross_entropy", "assignment_cross_entropy", "set_likelihood"
SHEET = Sheet(
    name="losses",
    title="A small study",
    scenarios={"bags": "bags of digits", "clouds": "clouds", "later": "not trained yet"},
    losses={
        SH: LossStyle("SH", "set cross entropy", "#dc143c"),
        AH: LossStyle("AH", "best assignment", "#2ca02c"),
        LH: LossStyle("LH", "set likelihood", "#9467bd"),
    },
    metric="exact",
    metric_label="share of all sets",
)


def run(scenario: str, loss: str, seed: int, exact: float, seconds: float) -> dict[str, Any]:
    return {
        "run": f"{scenario}-{loss}-{seed}",
        "ensemble": f"{scenario}-{loss}",
        **{"scenario": scenario, "loss": loss, "seed": seed},
        **{"members": 2, "seconds": seconds, "metrics": {"exact": exact / 2, "heldout": exact}},
        "config": {"schedule": {"epochs": 10}},
        "environment": {"hardware": "a machine"},
    }


CELLS = {
    ("bags", SH): (0.02, 4.0),
    ("bags", AH): (0.985, 40.0),
    ("bags", LH): (0.99, 8.0),
    ("clouds", SH): (0.8, 4.0),
    ("clouds", LH): (0.5, 12.0),
}
SMALL = Recorded(
    SHEET,
    [
        run(scenario, loss, seed, exact + 0.001 * seed, seconds)
        for (scenario, loss), (exact, seconds) in CELLS.items()
        for seed in range(2)
    ],
    [],
)


STEPS = [
    {
        **{"loss": loss, "scenario": scenario, "milliseconds": taken, "networks": 2},
        "environment": {"hardware": "a machine"},
    }
    for loss, scenario, taken in (
        *((SH, "bags", 1.0), (AH, "bags", 10.0), (LH, "bags", 2.0)),
        *((SH, "clouds", 2.0), (LH, "clouds", 6.0)),
    )
]
BESIDE = advice.slowness(STEPS)


def test_the_committed_page_is_that_of_the_records() -> None:
    assert study.update(study.PAGE, RESULTS) == study.PAGE.read_text()


@pytest.mark.parametrize("page", study.ADVICE, ids=lambda page: page.stem)
def test_so_is_the_advice_of_others(page: Path) -> None:
    assert study.update_advice(page, RESULTS) == page.read_text()


def committed_medians(name: str = advice.STUDY) -> dict[str, dict[str, float]]:
    """What a committed study has of each task, by the symbol of the loss."""
    found = study.read(RESULTS)[name]
    losses = found.sheet.losses
    return {
        scenario: {losses[cell.loss].symbol: advice.score(cell) for cell in cells}
        for scenario, cells in advice.by_scenario(found).items()
    }


def surely(better: str, worse: str) -> set[str]:
    """The tasks of the committed study in which runs of one loss are better, not by chance."""
    found = study.read(RESULTS)[advice.STUDY]
    names = {style.symbol: loss for loss, style in found.sheet.losses.items()}
    runs: dict[tuple[str, str], list[float]] = defaultdict(list)
    for record in found.records:
        runs[record["loss"], record["scenario"]].append(advice.worth(found, record))
    pairs = {
        task: (runs[names[better], task], runs[names[worse], task])
        for task in found.sheet.scenarios
    }
    return {task for task, (a, b) in pairs.items() if median(a) > median(b) and advice.differ(a, b)}


SMALL_RANDOM = {f"random-8x{bits}" for bits in (2, 8, 32)}
LARGE_RANDOM = {f"random-32x{bits}" for bits in (2, 8, 32)}
MULTISETS = {"multisets-presence", "multisets-dummies", "bags"}


def test_the_words_say_what_the_numbers_do() -> None:
    """README.md, and in docs/ which-loss, choosing-a-loss, variable-sizes, losses, likelihood."""
    medians = committed_medians()
    by_loss = {loss: [of[loss] for of in medians.values()] for loss in medians["puzzle"]}
    # The likelihood is the first choice: best on average, and it fails nowhere.
    assert max(by_loss, key=lambda loss: fmean(by_loss[loss])) == "LH"
    unbroken = {loss for loss, values in by_loss.items() if min(values) >= advice.BROKEN}
    assert unbroken == {"GS", "LH", "LH, annealed"}
    # Hausdorff fails in most tasks.
    assert 2 * sum(value < advice.BROKEN for value in by_loss["H1H"]) > len(medians)
    # The rule is less behind the best than any loss.
    rule = {name: "LH" if name in study.LARGE else "LH, annealed" for name in medians}
    assert fmean(of[rule[name]] for name, of in medians.items()) > fmean(by_loss["LH"]) + 0.02
    # One to one beside rows, by the size of sets.
    one_to_one, by_rows = ("AH", "GS", "LH"), ("SH", "A1H", "H1H")
    for name in SMALL_RANDOM:
        assert min(medians[name][loss] for loss in one_to_one) >= 0.99
        assert max(medians[name][loss] for loss in by_rows) < 0.9
    for name in LARGE_RANDOM:
        assert min(medians[name][loss] for loss in one_to_one) > 0.6
        assert max(medians[name][loss] for loss in by_rows) < advice.BROKEN
    # Set cross entropy: as good as any where elements are few, distinct and scored as Bernoullis.
    puzzle, categorical = medians["puzzle"], medians["puzzle-categorical"]
    assert puzzle["SH"] == max(puzzle.values()) > max(categorical.values())
    assert sorted(categorical, key=lambda loss: -categorical[loss])[:2] == ["AH", "LH"]
    assert {"puzzle", "missing-placed", "lights"} <= set(medians) - surely("LH", "SH")


def test_the_words_on_annealing_do_too() -> None:
    assert surely("LH, annealed", "LH") == MULTISETS | {"missing-presence", "missing-counted"}
    worse = surely("LH", "LH, annealed")
    assert worse == {*study.LARGE, "puzzle-categorical", "random-8x32"}
    assert not surely("LH, annealed", "LH") & surely("LH", "SH")
    # A falling temperature helps where set cross entropy is stuck, and harms more often.
    helped = {"rules", "clouds", "random-8x8", "random-8x32", "random-2x32"}
    assert surely("SH, annealed", "SH") == helped
    assert len(surely("SH", "SH, annealed")) > 2 * len(helped)


def test_the_words_on_duplicates_sizes_and_points_do_too() -> None:
    medians = committed_medians()
    for name in MULTISETS:
        of = medians[name]
        assert max(of, key=lambda loss: of[loss]) in ("GS", "LH, annealed")
        assert of["GS"] > max(of["AH"], of["SH"]) > of["OT"]
    assert surely("LH", "AH") >= MULTISETS
    # Transport: ahead with few examples and points, blurred with few bits.
    for name in ("rules", "clouds", "random-32x32"):
        assert medians[name]["OT"] >= max(medians[name][loss] for loss in ("AH", "GS", "LH"))
    assert surely("LH", "OT") >= MULTISETS | {"random-8x2", "random-32x2", "random-32x8"}
    assert "clouds" in surely("AH", "GS")
    points = committed_medians(study.POINTS)
    best = max(medians["clouds"].values())
    assert min(of["A1H, both ways"] for of in points.values()) >= best - advice.LEVEL
    assert (
        max(points["0.05"]["SH"], points["0.8"]["SH"]) < advice.BROKEN < 0.5 < points["0.2"]["SH"]
    )
    # Time: about the same for small sets, many times as much for 64 points.
    taken = {
        (one["loss"], one["scenario"]): one["milliseconds"] for one in advice.read_steps(RESULTS)
    }
    one_to_one = (failures.PLAIN, "transport_cross_entropy", "stable_matching_cross_entropy")
    assert all(
        taken[loss, "puzzle-categorical"] < 2 * taken[SH, "puzzle-categorical"]
        for loss in one_to_one
    )
    assert all(taken[loss, "clouds"] > 5 * taken[SH, "clouds"] for loss in one_to_one)
    assert taken[SH, "clouds"] < taken[AH, "clouds"] < 5 * taken[SH, "clouds"]
    # At full length.
    full = committed_medians(study.FULL_LENGTH)
    slower = full.pop("categorical-slower")
    assert 0.1 < slower["SH"] < slower["LH"] - 0.3
    runs = defaultdict(list)
    for record in study.read(RESULTS)[study.FULL_LENGTH].records:
        runs[record["scenario"], record["loss"]].append(record["metrics"])
    left = [run["exact"] > 0.5 for run in runs["categorical-slower", SH]]
    assert len(left) / 2 < sum(left) < len(left)
    least = {
        name: min(run["exact"] for run in runs[name, LH])
        for name in ("categorical", "categorical-slower")
    }
    assert least["categorical"] < 0.5 < least["categorical-slower"]
    # Most of these had diverged, and trained again none did.
    assert max(run["exact"] for run in runs["categorical", SH]) < 0.01
    assert all(run["loss"] is not None for run in runs["categorical", SH])
    earlier = store.read(RESULTS / "older" / "likelihood.jsonl")
    assert sum(one["metrics"]["loss"] is None for one in earlier) > len(earlier) / 2
    assert all(of["LH"] > 0.95 for of in full.values())
    assert {name for name, of in full.items() if of["SH"] < 0.95} == {"categorical", "multisets"}
    # Sizes: presence, prototypes, and dummies of places.
    most = {name: max(medians[name].values()) for name in advice.SIZES}
    assert most["missing-presence"] > most["missing-placed"] > 2 * most["missing-counted"]
    assert most["multisets-dummies"] >= most["multisets-presence"]
    start, later = medians["missing-presence"], medians["missing-prototypes"]
    assert all(
        later[loss] > start[loss] + 0.25 for loss in start if loss not in ("H", "SH, annealed")
    )
    for of in (
        medians[name] for name in advice.SIZES if "presence" in name or "prototypes" in name
    ):
        assert max(of["A1H"], of["H1H"]) < min(of["SH"], of["LH"]) - 0.1
        assert of["SH"] >= of["AH"] - 0.05


def test_every_task_is_of_a_kind() -> None:
    tasks = run_file("experiment", study.ROOT / "studies" / "losses.py").EXPERIMENT.scenarios
    assert sorted(name for kind in advice.KINDS.values() for name in kind) == sorted(tasks)
    assert set(advice.SIZES) <= set(tasks)


def test_what_to_take_for_a_kind_of_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the mean over its tasks; of a loss that lacks a task nothing is said."""
    kinds = {"bags": ("bags",), "either": ("bags", "clouds"), "others": ("later",)}
    monkeypatch.setattr(advice, "KINDS", kinds)
    text = advice.by_kind(SMALL, BESIDE)
    both = "`set_likelihood` 0.99; `assignment_cross_entropy` 0.99"
    assert f"| bags | {both} | none | none | 1 |\n" in text
    either = "either (2 of 3 losses) | `set_likelihood` 0.75 | `set_cross_entropy` 0.41 | none | 0"
    assert either in text
    assert "| others" not in text
    assert text.endswith("\n\nNot trained yet: others.\n")
    untimed = advice.by_kind(SMALL, {})
    assert "| bags | `set_likelihood` 0.99; `assignment_cross_entropy` 0.99 |" in untimed


def test_what_helps_where_set_cross_entropy_is_behind() -> None:
    text = advice.remedies(SMALL)
    assert "| bags of digits | 0.02 | **0.99** | **0.99** |\n" in text
    assert "clouds" not in text


def test_a_row_names_what_is_level_with_the_best_the_fastest_first() -> None:
    text = study.rows(SMALL, BESIDE)
    assert "| bags of digits | LH 0.99; AH 0.99 | none | none | SH |\n" in text
    assert "| clouds | SH 0.80 | LH 0.50 | none | none |\n" in text  # of two runs each
    assert "| not trained yet" not in text
    assert "5 of 9 cells are trained so far, 10 runs in 68 s on a machine." in text
    assert "No runs yet: not trained yet." in text


def test_all_medians() -> None:
    text = study.medians(SMALL)
    assert "|  | SH | AH | LH |\n" in text
    assert "| bags of digits | 0.02 | **0.99** | **0.99** |\n" in text
    assert "| clouds | **0.80** |  | 0.50 |\n" in text


def test_losses_are_timed_beside_set_cross_entropy() -> None:
    text = study.losses(SMALL, STEPS)
    assert (
        "| SH: set cross entropy | 0 of 2 | 1 | 0.48 | bags of digits: 0.02, not 0.99 | 1.0x |\n"
        in text
    )
    assert "| AH: best assignment | 1 of 1 | 0 | 0.00 | nowhere | 10.0x |\n" in text
    assert (
        "| LH: set likelihood | 1 of 2 | 0 | 0.15 | clouds: 0.50, not 0.80 | 2.5x, at most 3.0x"
        in text
    )


def test_a_loss_that_was_not_timed_has_no_time() -> None:
    assert "0.50, not 0.80 |  |\n" in study.losses(SMALL, STEPS[:1])
    text = study.losses(SMALL, [])
    assert "0.50, not 0.80 |\n" in text
    assert "time beside SH" not in text


def test_milliseconds_of_a_step() -> None:
    text = study.step_times(SMALL, STEPS)
    assert "|  | bags of digits | clouds |\n" in text
    assert "| LH | 2.00 | 6.00 |\n" in text
    assert "Milliseconds of a step of 2 networks on a machine.\n" in text


def test_runs_in_full() -> None:
    text = study.full_length(SMALL)
    assert "| clouds | 0.40 / 0.40 / 0.40 (2), held out 0.80 |  | 0.25" in text


def test_where_nothing_is_held_out_all_sets_count() -> None:
    records = [record | {"metrics": {"exact": 0.75}} for record in SMALL.records]
    assert "| clouds | SH 0.75; LH 0.75 | none | none | none |\n" in study.rows(
        Recorded(SHEET, records, []), BESIDE
    )


def test_plans(tmp_path: Path) -> None:
    line = {"loss": LH, "seed": 3, "restored": 7, "states": 8, "solved": 19, "problems": 20}
    (tmp_path / "lights.jsonl").write_text(json.dumps(line) + "\n")
    assert "| LH | 3 | 7 of 8 | 19 of 20 |\n" in study.lights(tmp_path / "lights.jsonl")


@pytest.mark.parametrize("block", ["study-rows", "study-medians", "full-length", "lights"])
def test_what_is_not_recorded_is_said(tmp_path: Path, block: str) -> None:
    text = study.update(study.PAGE, tmp_path)
    assert f"<!-- {block}: begin -->\n\n{advice.NOTHING}\n<!-- {block}: end -->" in text


def ten(scenario: str, loss: str, values: dict[str, float], risen: float) -> list[dict[str, Any]]:
    """Runs that differ by less than their losses do, and what they had on the way."""
    until = {"exclusivity_until": 0.5, "epochs": 10}
    return [
        run(scenario, loss, seed, 0.0, 1.0)
        | {"metrics": {name: value + 0.0001 * seed for name, value in values.items()}}
        | {"history": {"epoch": [5, 10], "exact": [risen, values["exact"]]}}
        | {"config": {"schedule": until}}
        for seed in range(10)
    ]


def several(*records: list[dict[str, Any]]) -> Recorded:
    style = LossStyle("LH, annealed", "annealed likelihood", "#c9b3de")
    sheet = replace(SHEET, losses=SHEET.losses | {failures.ANNEALED: style})
    return Recorded(sheet, [record for runs in records for record in runs], [])


def test_what_runs_tell_apart_is_behind() -> None:
    found = several(
        *(ten("bags", loss, {"exact": share}, 0.0) for loss, share in ((SH, 0.9), (LH, 0.88)))
    )
    assert advice.surely_behind(found, "bags") == {LH}
    assert "| bags of digits | SH 0.90 | none | LH 0.88 | none |\n" in study.rows(found, {})


def test_how_losses_fail() -> None:
    learned = {"train": 1.0, "exact": 0.97, "success": 0.98}
    counts = {"train": 0.5, "exact": 0.5, "success": 0.96}
    found = several(
        ten("bags", SH, learned | {"heldout": 0.7}, 0.0),
        ten("bags", LH, learned | {"heldout": 0.8}, 0.0),
        ten("bags", AH, counts | {"heldout": 0.1}, 0.0),
        ten("clouds", AH, {"train": 0.99, "exact": 0.9}, 0.0),
    )
    text = failures.failures(found)
    assert "| SH: set cross entropy | 0 | 1 | 0 |\n" in text
    assert "| AH: best assignment | 1 | 0 | 1 |\n" in text
    assert "| LH: set likelihood | 0 | 0 | 0 |\n" in text


def test_what_annealing_had_when_the_exclusivity_was_1() -> None:
    shares = {SH: 0.2, LH: 0.6, failures.ANNEALED: 0.4}
    found = several(
        *(ten("bags", loss, {"exact": share}, 0.1) for loss, share in shares.items()),
        *(ten("clouds", loss, {"exact": 0.5}, 0.1) for loss in shares),
    )
    text = failures.annealing(found)
    assert "| bags of digits | 0.20 | 0.60 | 0.10 | 0.40 | worse |\n" in text
    assert "clouds" not in text
