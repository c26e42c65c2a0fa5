"""What a user adds is one file outside of the package: nothing of ours is edited for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from setwise import cli
from setwise.cli.user_file import run_file
from setwise.experiments import records, run
from setwise.experiments.saved_networks import load_network

HERE = Path(__file__).parent
FILES = sorted(path for path in HERE.glob("*.py") if not path.name.startswith("test_"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_file_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) < 80


def train(file: str, folder: Path, *more: str) -> list[records.Record]:
    """By the command; the records of the one experiment that there is then."""
    places = ["--results", str(folder / "results"), "--runs", str(folder / "runs")]
    assert cli.main(["train", str(HERE / file), "--device", "cpu", *places, *more]) == 0
    (path,) = (folder / "results").glob("*.jsonl")
    return records.read(path)


def shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, list], str]:
    """The cells that ``setwise tables`` finds, and the page of ``setwise report``."""
    results = ["--results", str(folder / "results")]
    capsys.readouterr()
    assert cli.main(["tables", "--json", *results]) == 0
    cells = json.loads(capsys.readouterr().out)
    page = folder / "report.html"
    assert cli.main(["report", "--output", str(page), *results]) == 0
    return cells, page.read_text()


def test_a_loss_is_trained_tabled_and_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = train("own_loss.py", tmp_path)
    losses = {"set_cross_entropy", "halfway", "assignment_cross_entropy"}
    assert {record["loss"] for record in found} == losses
    assert len(found) == 2 * 3 * 2
    for record in found:
        assert record["history"]["loss"][-1] < record["history"]["loss"][0]
    assert "½H" in capsys.readouterr().out  # the table that the command prints
    cells, page = shown(tmp_path, capsys)
    assert {cell["loss"] for cell in cells["halfway"]} == losses
    assert "A loss between two others" in page
    assert "½H" in page
    assert "#8c564b" in page
    assert (
        cli.main(["tables", "--results", str(tmp_path / "results"), "--plot", str(tmp_path)]) == 0
    )
    assert (tmp_path / "halfway-curves.png").stat().st_size > 0


def test_an_experiment_without_the_paper_becomes_a_section_of_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = train("own_experiment.py", tmp_path, "--losses", "AH", "H", "--keep", "best")
    best = {
        loss: max(r["metrics"]["exact"] for r in found if r["loss"] == loss)
        for loss in ("ordered_cross_entropy", "assignment_cross_entropy")
    }
    assert best["assignment_cross_entropy"] > best["ordered_cross_entropy"] + 0.5
    cells, page = shown(tmp_path, capsys)
    assert len(cells["bags"]) == 2
    assert "Bags of digits from their counts" in page
    assert "share of the bags that come out exactly" in page
    assert "setwise train" in page
    # The same command has nothing left to do, and a network that was kept can be used.
    assert len(train("own_experiment.py", tmp_path)) == len(found)
    paths = sorted((tmp_path / "runs" / "bags").glob("*.safetensors"))
    assert len(paths) == 2
    for path in paths:
        config, network = load_network(path)
        task = config.data.load()
        assert network(task.inputs).shape == task.targets.shape


def test_a_network_is_trained(tmp_path: Path) -> None:
    found = train("own_network.py", tmp_path)
    assert [record["seed"] for record in found] == [0, 1]
    assert {record["config"]["network"]["kind"] for record in found} == {"recurrent learner"}


def test_from_python(tmp_path: Path) -> None:
    module = run_file("FILE", HERE / "own_experiment.py")
    found = run(
        module.EXPERIMENT,
        "cpu",
        results=tmp_path,
        runs=None,
        seeds=[0],
        losses=["assignment_cross_entropy"],
    )
    assert [record["experiment"] for record in found] == ["bags"]
    assert json.loads((tmp_path / "bags.json").read_text())["metric"] == "exact"


# Slow: a process that imports PyTorch. tests/executors has another one in this process.
@pytest.mark.slow
def test_an_executor_does_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_file("FILE.py", HERE / "own_executor.py")
    monkeypatch.syspath_prepend(HERE)  # where its processes find the function that they call
    options = ["--losses", "H", "--together", "1"]
    ours = train("own_experiment.py", tmp_path / "pool", *options, "--on", "pool://1")
    assert "on a pool of 1 processes" in capsys.readouterr().err
    here = train("own_experiment.py", tmp_path / "here", *options)
    by_run = {record["run"]: record["metrics"] for record in here}
    assert {record["run"]: record["metrics"] for record in ours} == by_run
