"""The benchmark of matchings and points, and the tables that the guide to the kernels has of it."""

from __future__ import annotations

import copy
import json
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tools import kernels, solvers

from repository import ROOT
from setwise.kernels import host_assignment

RECORDS, GUIDE = ROOT / "benchmarks" / "records", ROOT / "docs" / "kernels.md"
# Stand for the libraries, and solve as they are asked to: with the result where theirs has it.
LIBRARIES = {
    "lap": """
from scipy.optimize import linear_sum_assignment


def lapjv(cost, extend_cost, return_cost):
    assert not return_cost and extend_cost == (cost.shape[0] != cost.shape[1])
    return linear_sum_assignment(cost)[1].astype("int32"), None


def lapjvr_batch(costs, extend_cost, return_cost, n_threads, precision="native"):
    assert not return_cost and n_threads > 0
    rows, columns = zip(*map(linear_sum_assignment, costs))
    return list(rows), list(columns)
""",
    "torch_linear_assignment": """
import torch
from scipy.optimize import linear_sum_assignment


def batch_linear_assignment(costs):
    return torch.stack([torch.from_numpy(linear_sum_assignment(one)[1]) for one in costs])
""",
}


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name, text in LIBRARIES.items():
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    host_assignment._lapx.cache_clear()
    yield
    host_assignment._lapx.cache_clear()
    for name in LIBRARIES:
        sys.modules.pop(name, None)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The benchmark, with sizes that take no time."""
    found: dict[str, Any] = runpy.run_path(str(ROOT / "benchmarks" / "solvers.py"))
    names: dict[str, Any] = found["records"].__globals__
    for name, instead in {
        "PROBLEMS": [(3, 2, 2), (2, 3, 5)],
        "CLOUDS": {"cpu": {40: (0.1, 0.2)}, "cuda": {30: (0.1,)}},
        "TURNS": 2,
    }.items():
        monkeypatch.setitem(names, name, instead)
    return names


@pytest.mark.usefixtures("libraries")
def test_the_benchmark_writes_a_record_that_the_guide_can_read(
    script: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    output = tmp_path / "record.json"
    arguments = ["--device", "cpu", "--commit", "c0ffee", "--output", str(output)]
    monkeypatch.setattr(sys, "argv", ["solvers.py", *arguments])
    script["main"]()
    record = json.loads(output.read_text())
    assert record["whole"]
    assert all(
        row["calls"] == 2 and 0 < row["min_ms"] <= row["median_ms"] for row in record["rows"]
    )
    table = solvers.matchings([record])
    assert "| problems | setwise | SciPy | lapx | lapx, its batches |" in table
    assert "| 2 of 3 x 5 | " in table
    assert "setwise 0, lapx 0, lapx, its batches 0." in " ".join(table.split())
    table = solvers.points([record])
    assert "commit c0ffee" in " ".join(table.split())
    steps = [line.split(" | ")[1] for line in table.splitlines() if line.startswith("| 40 ")]
    assert steps == ["SH, scale 0.1", "SH, scale 0.2", "A1H", "cKDTree"]
    assert "| times that of the tree |" in table


@pytest.mark.usefixtures("libraries")
def test_a_run_on_a_gpu_has_its_own_rivals_and_losses(
    script: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever they are computed on."""
    named = script["solvers"]("cuda")
    assert list(named) == ["setwise", "SciPy", "torch-linear-assignment"]
    costs = torch.rand(2, 3, 5)
    totals = [script["total"](costs, solve(costs)) for solve in named.values()]
    assert totals == [totals[0]] * 3
    on_cpu = script["surface"](30, "cpu")
    monkeypatch.setitem(script, "surface", lambda n, device: on_cpu)
    monkeypatch.setitem(script, "wait_for", lambda device: None)
    assert [row["what"] for row in script["points"]("cuda")] == ["SH, scale 0.1", "Chamfer"]


def test_a_wrong_matching_shows(script: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    ours = script["sw"].assign
    monkeypatch.setattr(script["sw"], "assign", lambda costs: ours(-costs))
    errors = {row["impl"]: row["cost_error"] for row in script["matchings"]("cpu")}
    assert errors["setwise"] > 0.1
    assert errors["SciPy"] == 0


def test_a_long_call_is_made_once(script: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(script, "TURNS", 5)
    clock = iter([0.0, 9.0, 9.0, 9.001] + [10.0 + i / 1000 for i in range(8)])
    monkeypatch.setattr(script["time"], "perf_counter", lambda: next(clock))
    rows, found = script["timed"]({"long": lambda: 1, "short": lambda: 2}, "cpu")
    assert [rows[name]["calls"] for name in ("long", "short")] == [1, 5]
    assert rows["long"]["median_ms"] == 9000.0
    assert rows["short"]["min_ms"] == pytest.approx(1.0)
    assert found == {"long": 1, "short": 2}


def a_record(hardware: str, tree: bool) -> dict[str, Any]:
    """As one may come out: of one problem SciPy is faster."""
    header: dict[str, Any] = {"hardware": hardware, "torch": "2.11", "commit": "abcdef"}
    header |= {"date": "2026-01-01", "versions": {"scipy": "1.17", "lapx": None}}
    rows: list[dict[str, Any]] = [
        {"part": "matchings", "sizes": sizes, "impl": impl, "median_ms": ms, "cost_error": error}
        | {"calls": 1 if ms > 1000 else 100}
        for sizes, times in (([1000, 9, 9], (4.0, 3.0)), ([1, 4096, 4096], (1.0, 2500.0)))
        for impl, ms, error in (("setwise", times[0], -2e-8), ("SciPy", times[1], 0.0))
    ]
    steps = {"SH, scale 0.01": 30.0} | ({"cKDTree": 20.0} if tree else {})
    rows += [
        {"part": "points", "points": 50_000, "what": what, "median_ms": ms}
        for what, ms in steps.items()
    ]
    return {"header": header, "rows": rows, "whole": True}


def test_tables_are_of_whichever_records_there_are(tmp_path: Path) -> None:
    """And every number of them is noticed."""
    for kept in RECORDS.iterdir():
        if kept.name not in kernels.SOLVERS:
            (tmp_path / kept.name).write_bytes(kept.read_bytes())
    on_gpu, on_cpu = a_record("a card", tree=False), a_record("a processor", tree=True)
    names = dict(zip(kernels.SOLVERS, (on_gpu, on_cpu), strict=True))
    texts = []
    for name, record in names.items():
        (tmp_path / name).write_text(json.dumps(record))
        texts.append(kernels.update(GUIDE, tmp_path))
    alone, both = texts
    assert "a card, torch 2.11, scipy 1.17, 2026-01-01, commit abcdef." in alone
    assert "a processor" not in alone
    assert "| 50,000 | SH, scale 0.01 | 30.0 |\n" in alone
    assert "a processor" in both
    assert "| 50,000 | SH, scale 0.01 | 30.0 | 1.5x |" in both
    assert "| 1 of 4,096 x 4,096 | 1.00 | 2500 (2500.0x)* |" in both
    assert "* Called once." in " ".join(both.split())
    assert "is faster than `sw.assign` for 1,000 of 9 x 9 (SciPy)." in " ".join(both.split())
    assert "off by, at most: setwise 2e-08." in " ".join(both.split())
    for name, record in names.items():
        others = [copy.deepcopy(record) for _ in record["rows"]]
        for at, other in enumerate(others):
            other["rows"][at]["median_ms"] *= 1.5
        others.append(record | {"whole": False})
        others.append(copy.deepcopy(record))
        others[-1]["rows"][0]["cost_error"] = 1e-3
        others.append(copy.deepcopy(record))
        others[-1]["rows"][1]["calls"] = 1
        for other in others:
            (tmp_path / name).write_text(json.dumps(other))
            assert kernels.update(GUIDE, tmp_path) != both
        (tmp_path / name).write_text(json.dumps(record))


@pytest.mark.parametrize(
    ("ours", "said"),
    [(2.9, "for none of these"), (3.1, "for 1,000 of 9 x 9 (SciPy)")],
    ids=["ahead", "behind"],
)
def test_a_rival_is_called_faster_where_it_is(ours: float, said: str) -> None:
    record = a_record("a card", tree=False)
    record["rows"][0]["median_ms"] = ours
    assert f"is faster than `sw.assign` {said}." in " ".join(solvers.matchings([record]).split())
