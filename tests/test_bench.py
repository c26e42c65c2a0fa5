"""The benchmark command at a tiny size, its arithmetic, and the documents made from its record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import setwise as sw
from setwise import cli
from setwise.bench import document, limits, losses
from setwise.bench.contenders import Contender, dense

ROOT = Path(__file__).parent.parent
RECORD = ROOT / "benchmarks" / "records" / "losses-h200.json"


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """One tiny shape, a constant for each rate, and no compiler."""
    rates = {"matmul_flops": 1e9, "matmul_bf16_flops": 1e9, "bytes": 1e9, "exps": 1e8}
    monkeypatch.setattr(losses, "SHAPES", {"tiny": (2, 5, 3)})
    monkeypatch.setattr(losses, "SWEEP", {"sweep-8": (1, 8, 2)})
    monkeypatch.setattr(losses, "ceilings", lambda device: rates)
    ours = [Contender("dense", dense), Contender("setwise", sw.set_cross_entropy)]
    monkeypatch.setattr(losses, "available", lambda device: ours)


@pytest.mark.usefixtures("tiny")
def test_the_command_measures_prints_records_and_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record, plot = tmp_path / "record.json", tmp_path / "plot.png"
    arguments = ["bench", "losses", "--device", "cpu", "--commit", "abc"]
    assert cli.main([*arguments, "--output", str(record), "--plot", str(plot)]) == 0
    written = json.loads(record.read_text())
    assert written["header"]["commit"] == "abc"
    measured = [(row["shape"], row["impl"]) for row in written["rows"]]
    assert measured == [(s, i) for s in ("tiny", "sweep-8") for i in ("dense", "setwise")]
    assert all(row["total_ms"] > 0 for row in written["rows"])
    assert "tiny (2, 5, 3)" in capsys.readouterr().out
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert not list(tmp_path.glob("*.unfinished"))


@pytest.mark.usefixtures("tiny")
def test_a_stopped_run_leaves_what_it_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured_before = losses._measure_one
    rows: list[Any] = []

    def stop_at_the_third(*args: Any) -> dict[str, Any]:
        if len(rows) == 2:
            raise KeyboardInterrupt
        rows.append(args)
        return measured_before(*args)

    monkeypatch.setattr(losses, "_measure_one", stop_at_the_third)
    record = tmp_path / "record.json"
    with pytest.raises(KeyboardInterrupt):
        cli.main(["bench", "losses", "--device", "cpu", "--output", str(record)])
    assert len(json.loads(record.read_text())["rows"]) == 2


def test_wrong_options_say_so_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "losses", "--shapes", "nonsense"]) == 2
    message = capsys.readouterr().err
    assert "nonsense" in message
    assert "puzzle" in message
    assert message.count("\n") == 1
    with pytest.raises(SystemExit) as exit_:
        cli.main(["bench", "everything"])
    assert exit_.value.code == 2


def test_the_limit_counts_every_pass() -> None:
    """One set of 10 by 10 pairs with 4 features: 800 operations and 100 exponentials a walk."""
    rates = {"matmul_flops": 1e3, "matmul_bf16_flops": 2e3, "exps": 1e3, "bytes": 1e12}
    forward, total = limits.limit_ms(1, 10, 4, 4, False, rates)
    assert forward == pytest.approx(800)
    assert total == pytest.approx(800 + 1600)
    assert limits.limit_ms(1, 10, 4, 4, True, rates)[1] == pytest.approx(800 + 2 * 1600)
    assert limits.limit_ms(1, 10, 4, 2, False, rates)[1] == pytest.approx(1200)
    slow_exps = rates | {"exps": 10.0}
    assert limits.limit_ms(1, 10, 4, 4, False, slow_exps) == pytest.approx((10_000, 20_000))


def test_the_documented_numbers_are_those_of_the_record() -> None:
    """`make docs` writes them; editing one by hand fails here."""
    page = ROOT / "docs" / "kernels.md"
    assert document.update(page, RECORD) == page.read_text()
