"""The matrix of losses: rivals that compute the same, rows that can be gone on with."""

from __future__ import annotations

import json
import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from setwise import cli
from setwise.bench import matrix
from setwise.bench.cells import FAMILIES, LOSSES, QUICK, SHAPES, Cell, cells
from setwise.bench.rivals import COMPILED, EAGER, Rival, rivals
from setwise.report import heatmap
from setwise.report.matrix import Compared, compared, read, summary

Captured = pytest.CaptureFixture[str]
RIVALRY = [
    (cell, rival.name) for cell in cells({"few": (3, 7, 5)}) for rival in rivals(cell, "cpu")
]


@pytest.mark.parametrize(
    ("cell", "name"), RIVALRY, ids=[f"{c.loss}-{c.family}-{n}" for c, n in RIVALRY]
)
def test_rivals_compute_the_same(cell: Cell, name: str) -> None:
    """In float64, the loss and its gradient."""
    logits, target = (t.detach().double() for t in cell.leaves("cpu"))
    [rival] = [one for one in rivals(cell, "cpu") if one.name == name]
    found = []
    for step in (cell.ours(), rival.step):
        leaf = logits.clone().requires_grad_()
        value = step(leaf, target)
        found.append((value.detach(), torch.autograd.grad(value, leaf)[0]))
    for ours, other in zip(*found, strict=True):
        torch.testing.assert_close(ours, other)


def test_every_loss_meets_every_family_somewhere() -> None:
    asked = list(cells(SHAPES))
    met = {(cell.loss, cell.family) for cell in asked}
    expected = {(loss, family) for loss in LOSSES for family in FAMILIES}
    assert met == expected - {("chamfer", f) for f in FAMILIES if f != "Gaussian"}
    # What walks over tiles meets every shape; solvers of matchings those they can take.
    assert {c.shape for c in asked if c.loss in ("SH", "A1H both", "H1H")} == set(SHAPES)
    assert {c.shape for c in asked if c.loss == "assignment"} == {"puzzle", "detr"}
    assert {c.shape for c in asked if c.loss == "likelihood, exact"} == {"puzzle"}
    assert len(asked) == 5 * 4 * 5 + 5 + 2 * 4 + 4 + 2 * 4
    assert len(list(cells(SHAPES, ["SH"], ["Gaussian"]))) == 5


def measured(*arguments: str) -> int:
    command = ["bench", "losses", "--quick", "--device", "cpu", "--commit", "abc"]
    some = ["--losses", "SH", "assignment", "--families", "Bernoulli", "--modes", "eager"]
    return cli.main([*command, *some, *arguments])


@pytest.fixture(autouse=True)
def few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "CALLS", 1)


def test_a_record_is_written_drawn_and_gone_on_with(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, plot = tmp_path / "new" / "record.json", tmp_path / "plot.png"
    assert measured("--output", str(record), "--plot", str(plot)) == 0
    first = json.loads(record.read_text())
    assert [(row["loss"], row["impl"]) for row in first["rows"]] == [
        ("SH", "setwise"), ("SH", "dense"), ("assignment", "setwise"), ("assignment", "scipy"),
    ]  # fmt: skip
    for row in first["rows"]:
        assert (row["family"], row["shape"], row["mode"]) == ("Bernoulli", "tiny", "eager")
        assert row["total_ms"] > 0
        assert row["peak_mb"] is None  # which only a GPU tells
    assert first["header"]["commit"] == "abc"
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert "geometric mean of 2 cells" in capsys.readouterr().out
    # What is there is not measured again, and what is missing is.
    monkeypatch.setattr(matrix, "_measure_cell", lambda trials: pytest.fail("measured again"))
    assert measured("--output", str(record)) == 0
    monkeypatch.undo()
    first["rows"] = first["rows"][:2]
    record.write_text(json.dumps(first))
    assert measured("--output", str(record)) == 0
    again = json.loads(record.read_text())
    assert again["rows"][:2] == first["rows"]
    assert [row["loss"] for row in again["rows"][2:]] == ["assignment"] * 2


def test_a_record_of_other_code_is_not_gone_on_with(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "record.json"
    head = matrix.header("cpu", "def")
    path.write_text(json.dumps({"header": head, "rows": []}))
    assert measured("--output", str(path)) == 2
    said = capsys.readouterr().err
    assert said == (
        f"--output: {path} was measured with commit def, this is abc; name another file\n"
    )
    path.write_text("{}")
    assert measured("--output", str(path)) == 2
    said = capsys.readouterr().err
    assert said == f"--output: {path}: header: is missing; name another file\n"


def test_a_budget_ends_it_between_two_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(100))
    monkeypatch.setattr(matrix.time, "monotonic", lambda: next(clock))
    asked = list(cells(QUICK, ["SH", "A1H", "H1H"], ["Bernoulli"]))
    rows = list(matrix.measure("cpu", asked, [EAGER], budget=2))
    assert [[row["loss"] for row in cell] for cell in rows] == [["SH"] * 2, ["A1H"] * 2]


def test_a_signal_ends_it_between_two_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """Also one that comes where an exception would be lost: its cell is recorded before."""
    measure_cell = matrix._measure_cell

    def asked_to_end(trials: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return measure_cell(trials)

    monkeypatch.setattr(matrix, "_measure_cell", asked_to_end)
    record = tmp_path / "record.json"
    assert measured("--output", str(record)) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "stopped"
    assert {row["loss"] for row in json.loads(record.read_text())["rows"]} == {"SH"}


def test_what_fails_is_recorded_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_memory(*_: Any) -> Any:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    def broken(*_: Any) -> Any:
        raise RuntimeError("no\nsuch kernel")

    failing = [Rival("large", out_of_memory), Rival("broken", broken)]
    monkeypatch.setattr(matrix, "rivals", lambda cell, device: failing)
    [cell] = cells(QUICK, ["SH"], ["Gaussian"])
    [[ours, *others]] = matrix.measure("cpu", [cell], [EAGER])
    assert ours["total_ms"] > 0
    assert [row["error"] for row in others] == ["out of memory", "RuntimeError: no such kernel"]


def test_ours_is_compiled_as_a_user_would(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(torch, "compile", lambda step, **how: asked.append(how) or step)
    [cell] = cells(QUICK, ["A1H"], ["Gaussian"])
    [rows] = matrix.measure("cpu", [cell], [COMPILED])
    assert [(row["impl"], row["mode"]) for row in rows] == [
        ("setwise", "compiled"), ("dense", "compiled"),
    ]  # fmt: skip
    assert asked == [{"dynamic": False}] * 2
    assert torch.get_float32_matmul_precision() == "highest"  # as it was


def test_wrong_names_say_so_in_one_line(capsys: Captured) -> None:
    for option, known in [("losses", "chamfer"), ("families", "Gaussian"), ("modes", "graph")]:
        assert cli.main(["bench", "losses", f"--{option}", "nonsense"]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"--{option}: unknown nonsense; known: ")
        assert known in said
        assert said.count("\n") == 1


def row(impl: str, mode: str, ms: float | None, loss: str = "SH", **more: Any) -> dict[str, Any]:
    cell = {"loss": loss, "family": "Gaussian", "shape": "tiny", "sizes": [2, 5, 6]}
    outcome = {"error": "out of memory"} if ms is None else {"total_ms": ms, "peak_mb": 1.0}
    return {**cell, "impl": impl, "mode": mode, **outcome, **more}


def test_ours_is_held_against_the_fastest_of_its_kind() -> None:
    rows = [
        row("setwise", "eager", 2.0), row("setwise", "compiled", 1.0), row("setwise", "graph", 0.5),
        row("dense", "eager", 8.0), row("dense", "compiled", 4.0), row("dense", "graph", 3.0),
        row("dense", "compiled graph", 0.25),
        row("setwise", "eager", 2.0, "A1H"), row("dense", "eager", None, "A1H"),
        row("setwise", "eager", None, "H1H"), row("dense", "eager", 1.0, "H1H"),
        row("setwise", "eager", 3.0, "likelihood"),
    ]  # fmt: skip
    found = compared(rows)
    assert list(found) == ["eager", "compiled", "graph"]
    soft = ("SH", "Gaussian", "tiny")
    assert found["eager"][soft] == Compared(2.0, "dense (compiled)", 4.0)
    assert found["compiled"][soft].ratio == 4.0
    assert found["graph"][soft] == Compared(0.5, "dense (compiled graph)", 0.25)
    alone = found["eager"]["A1H", "Gaussian", "tiny"]
    assert alone == Compared(2.0, "dense: out of memory", None)
    texts = [heatmap.said(one) for one in found["eager"].values()]
    assert texts == ["2.0", "2.0 ms", "memory", "3.0 ms"]
    warm = [heatmap.warmth(one) for one in found["eager"].values()]
    assert warm == [pytest.approx(math.log(2, 16)), 1.0, None, None]
    assert summary(found["graph"]).startswith("0.50 times as fast as the fastest rival")
    assert "in 1 of them below 0.95" in summary(found["graph"])


@pytest.mark.parametrize(
    "wrong", [{"total_ms": -1.0}, {"total_ms": "1"}, {"loss": 3}, {"sizes": ["2"]}]
)
def test_what_is_no_record_is_refused(wrong: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "matrix-mine.json"
    path.write_text(json.dumps({"header": {}, "rows": [row("dense", "eager", 1.0) | wrong]}))
    with pytest.raises(ValueError, match=r"^.*matrix-mine\.json: .*(total_ms|loss|sizes)"):
        read(path)
