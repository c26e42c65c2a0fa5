"""``setwise report`` as a command: where the page is, and one line for what cannot be shown."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pages import add_cost, add_detections, add_plan, add_reconstructions
from recorded import PAPER, SH, make_records, write
from setwise import cli

Captured = pytest.CaptureFixture[str]
RUNS, COSTS = Path("results/table1.jsonl"), Path("results/cost.jsonl")
PLAN, PICTURES = Path("results/plans/a-plan/plan.json"), "results/table3-reconstructions.npz"
BENCH = Path("benchmarks/records/losses-x.json")
FOUND = Path("results/detect/detections.json")
ROW = {"shape": "a", "impl": "setwise", "B": 1, "N": 2, "F": 3, "total_ms": 1.0, "peak_mb": None}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to be in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refusal(capsys: Captured) -> str:
    """The one line in which the command refuses."""
    assert cli.main(["report"]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert not Path("report.html").exists()
    return message


def test_it_says_where_to_look(folder: Path, capsys: Captured) -> None:
    """And makes a page of nothing, too: the paper's numbers and the commands."""
    write(folder / "results", [], *PAPER)
    assert cli.main(["report"]) == 0
    assert (folder / "report.html").as_uri() in capsys.readouterr().out
    text = Path("report.html").read_text()
    assert text.count("Not recorded yet") == 5
    assert "No plans are recorded yet" in text
    assert "No benchmark is recorded yet" in text
    assert {path.name for path in folder.iterdir()} == {"report.html", "results"}
    # What is not recorded is trained by the plain command.
    assert "runs/again" not in text


def test_a_page_of_nothing_at_all(folder: Path) -> None:
    assert cli.main(["report"]) == 0
    text = Path("report.html").read_text()
    assert "No experiment is recorded here yet." in text
    assert "setwise reproduce table1 --preset quick" in text
    assert [path.name for path in folder.iterdir()] == ["report.html"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--results", "nowhere"], "--results: there is no folder nowhere"),
        (["--benchmarks", "nowhere"], "--benchmarks: there is no folder nowhere"),
        (["--output", "results"], "results"),
    ],
)
def test_what_cannot_be_done_is_told_in_one_line(
    options: list[str], said: str, folder: Path, capsys: Captured
) -> None:
    (folder / "results").mkdir()
    assert cli.main(["report", *options]) == 2
    message = capsys.readouterr().err
    assert said in message
    assert message.count("\n") == 1
    assert list(folder.iterdir()) == [folder / "results"]


def without(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda record: record.pop(name)


def changed(*path: str, to: Any) -> Callable[[dict[str, Any]], object]:
    """A field somewhere in a record that is set to something else."""

    def change(record: dict[str, Any]) -> None:
        *above, name = path
        for part in above:
            record = record[part]
        record[name] = to

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        *((without(n), f"{n}: is missing") for n in ("environment", "history", "seconds", "run")),
        (changed("environment", to=None), "environment: expected an object, got None"),
        (changed("environment", to={}), "hardware: is missing"),
        (changed("metrics", to={}), "success: is missing"),
        (changed("metrics", "success", to=[]), "success: expected a number or null, got []"),
        (changed("metrics", "success", to=float("nan")), "NaN is no number of JSON"),
        (changed("metrics", "heldout", to="x"), "heldout: expected a number or null, got x"),
        (changed("members", to=0), "members: expected one or more, got 0"),
        (changed("history", "success", to=[1.0]), "expected columns of one length, got epoch 2"),
        (changed("history", "success", to=["x", 1.0]), "expected numbers, got 'x' in success"),
        (without("experiment"), "experiment: is missing"),
        (changed("experiment", to="table9"), "experiment: expected table1, got table9"),
        (changed("loss", to="mine"), "loss: table1.json has no mine; it has ordered_cross_entropy"),
        (changed("loss", to=[]), "loss: expected a text, got []"),
        (changed("config", to={}), "loss: is missing"),
        (changed("config", "schedule", to=3), "schedule: expected an object, got 3"),
        (changed("problems", to=[]), "trained: is missing"),
    ],
)
def test_a_record_that_lacks_something(
    change: Callable[[dict[str, Any]], object], said: str, capsys: Captured
) -> None:
    records = make_records(losses=[SH], scenarios=["4"])
    write(RUNS.parent, records)
    change(records[1])
    RUNS.write_text("".join(json.dumps(record) + "\n" for record in records))
    message = refusal(capsys)
    assert f"{RUNS}, line 2: not a record: " in message
    assert said in message


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (changed("config", "data", to={"kind": "other"}), 'data.kind ("puzzle" and "other")'),
        (changed("config", "schedule", to={}), "schedule.epochs (1500 and None)"),
    ],
)
def test_a_record_of_another_setting(
    change: Callable[[dict[str, Any]], object], said: str, capsys: Captured
) -> None:
    """Whether or not its data and its schedule are known here."""
    records = make_records(losses=[SH], scenarios=["4"])
    change(records[1])
    write(RUNS.parent, records)
    assert said in refusal(capsys)


def test_records_without_a_sheet(capsys: Captured) -> None:
    write(RUNS.parent, make_records(losses=[SH], scenarios=["4"]))
    RUNS.with_suffix(".json").unlink()
    message = refusal(capsys)
    assert f"{RUNS}: has records of runs, but their sheet table1.json is missing" in message


def test_runs_that_were_measured_at_other_epochs(capsys: Captured) -> None:
    """They have no median on the way."""
    records = make_records(losses=[SH], scenarios=["4"])
    records[2]["history"] = {name: values[:1] for name, values in records[2]["history"].items()}
    write(RUNS.parent, records)
    message = refusal(capsys)
    assert f"{RUNS}: the history of run {records[2]['run']} has other epochs" in message


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (RUNS, "{\n", "line 1: not a record"),
        (RUNS, "{}\n", "line 1: not a record: run: is missing"),
        (RUNS, "[]\n", "line 1: not a record: expected an object with fields, got '[]'"),
        (COSTS, "{}\n", "line 1: not a record: experiment: is missing"),
        (PLAN, "{}", "captions: is missing"),
        (PLAN, "[]", "expected an object of JSON, got list"),
        (PLAN, "{", "not a plan"),
        (FOUND, "{}", "not a record of detections: ValueError('captions: is missing')"),
        (BENCH, "[]", "expected an object of JSON, got list"),
        (BENCH, '{"rows": []}', "header: is missing"),
        (BENCH, '{"header": [], "rows": []}', "header: expected an object, got []"),
        (BENCH, '{"header": {}, "rows": [3]}', "not a record of the losses"),
        (BENCH, '{"header": {}, "rows": [{"shape": null}]}', "shape: expected a text, got None"),
        (BENCH, '{"header": {"device": "x", "shapes": null}, "rows": []}', "shapes: expected"),
    ],
)
def test_files_that_are_no_records(name: Path, text: str, said: str, capsys: Captured) -> None:
    write(RUNS.parent, [], "table1")
    name.parent.mkdir(parents=True, exist_ok=True)
    name.write_text(text)
    message = refusal(capsys)
    assert str(name) in message
    assert said in message


def test_bytes_that_are_no_text(capsys: Captured) -> None:
    write(RUNS.parent, [], "table1")
    RUNS.write_bytes(b"\xff\xfe\n")
    assert f"{RUNS}: not a file of records" in refusal(capsys)


@pytest.mark.parametrize("keep", [0, 4, 100, 1000, -10])
def test_reconstructions_that_are_cut_off(keep: int, capsys: Captured) -> None:
    write(Path("results"), [], "table3")
    add_reconstructions(Path("results"))
    whole = Path(PICTURES).read_bytes()
    Path(PICTURES).write_bytes(whole[:keep])
    assert f"{PICTURES}: not a file of reconstructions: " in refusal(capsys)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"environment": None}, "environment: expected an object, got None"),
        ({"network": {}}, "not a plan: KeyError('loss')"),
        ({"command": ["a"]}, "command: expected a text"),
    ],
)
def test_a_plan_that_lacks_something(more: dict[str, Any], said: str, capsys: Captured) -> None:
    add_plan(Path("results"), **more)
    message = refusal(capsys)
    assert str(PLAN) in message
    assert said in message


def test_a_picture_of_a_plan_that_is_none(capsys: Captured) -> None:
    add_plan(Path("results"))
    picture = PLAN.with_name("01.png")
    picture.unlink()
    os.mkfifo(picture)
    assert f"{picture}: expected a file, it is a pipe" in refusal(capsys)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"environment": None}, "environment: expected an object, got None"),
        ({"captions": []}, "expected as many captions as pictures, and some"),
        ({"captions": ["one", "two"]}, "01.png"),
    ],
)
def test_detections_that_lack_something(more: dict[str, Any], said: str, capsys: Captured) -> None:
    add_detections(FOUND.parent.parent, "found", **more)
    assert said in refusal(capsys)


def test_a_plan_that_lacks_a_picture(capsys: Captured) -> None:
    add_plan(Path("results"))
    PLAN.with_name("01.png").unlink()
    assert str(PLAN.with_name("01.png")) in refusal(capsys)


@pytest.mark.parametrize(
    "more", [{"seconds": None}, {"seconds": 0}, {"seconds_alone": {}}, {"networks": "x"}]
)
def test_a_cost_that_lacks_something(more: dict[str, Any], capsys: Captured) -> None:
    write(RUNS.parent, make_records(losses=[SH], scenarios=["4"]))
    add_cost(RUNS.parent, **more)
    assert f"{COSTS}, line 1: not a record: " in refusal(capsys)


def test_a_benchmark_of_the_cpu_is_shown() -> None:
    """Which has no memory, and may have nothing to compare with."""
    BENCH.parent.mkdir(parents=True)
    rows = [ROW, ROW | {"shape": "sweep-2"}, ROW | {"shape": "b", "impl": "dense", "error": "no"}]
    BENCH.write_text(json.dumps({"header": {"device": "x86"}, "rows": rows}))
    assert cli.main(["report"]) == 0
    text = Path("report.html").read_text()
    assert "Time over the size of one set" in text
    assert "Memory over" not in text
    assert "How many times" not in text


def test_another_file_stays(capsys: Captured) -> None:
    """Only a page of ours is written over; a link is never followed."""
    write(RUNS.parent, make_records(losses=[SH], scenarios=["4"]))
    for other in (RUNS, Path("notes.html")):
        if not other.exists():
            other.write_text("<!doctype html>\n<html lang='en'>")
        before = other.read_bytes()
        assert cli.main(["report", "--output", str(other)]) == 2
        said = f"{other}: is there already and is no page of setwise; choose another name, or"
        assert capsys.readouterr().err.startswith(said)
        assert other.read_bytes() == before
    page, link = Path("page.html"), Path("link.html")
    assert cli.main(["report", "--output", str(page)]) == 0
    page.write_bytes(page.read_bytes() + b"kept")
    link.symlink_to(page)
    assert cli.main(["report", "--output", str(link)]) == 0
    assert not link.is_symlink()
    assert page.read_bytes().endswith(b"kept")
    os.mkfifo("pipe.html")
    assert cli.main(["report", "--output", "pipe.html"]) == 2
    assert capsys.readouterr().err == "pipe.html: expected a file, it is a pipe\n"
