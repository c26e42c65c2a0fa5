"""The benchmark command at a tiny size, and its arithmetic."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
import torch
from tools import kernel_studies

import setwise as sw
from repository import ROOT
from setwise import cli
from setwise.bench import limits, losses
from setwise.bench.contenders import Contender, available, dense
from setwise.environment import current_commit


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
    record, plot = tmp_path / "new" / "record.json", tmp_path / "other" / "plot.png"
    arguments = ["bench", "kernels", "--device", "cpu", "--commit", "abc"]
    assert cli.main([*arguments, "--output", str(record), "--plot", str(plot)]) == 0
    written = json.loads(record.read_text())
    assert written["header"]["commit"] == "abc"
    assert date.fromisoformat(written["header"]["date"]) <= datetime.now(UTC).date()
    measured = [(row["shape"], row["impl"]) for row in written["rows"]]
    assert measured == [(s, i) for s in ("tiny", "sweep-8") for i in ("dense", "setwise")]
    assert all(row["total_ms"] > 0 for row in written["rows"])
    assert "tiny (2, 5, 3)" in capsys.readouterr().out
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert list(record.parent.iterdir()) == [record]


def test_the_benchmark_of_the_cpu_says_when_and_with_what() -> None:
    header = runpy.run_path(str(ROOT / "benchmarks" / "losses_cpu.py"))["header"]()
    assert date.fromisoformat(header["date"]) <= datetime.now(UTC).date()
    assert header["commit"] == current_commit()


def test_ours_compute_every_pair_as_the_peers_do(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(sw, "set_cross_entropy", lambda z, x, **options: asked.append(options))
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    ours = [one for one in available("cuda") if one.name.startswith("setwise")]
    for contender in ours:
        contender.loss(torch.zeros(1, 2, 3), torch.zeros(1, 2, 3))
    assert asked == [{"skip_negligible": False}] * 3


@pytest.mark.usefixtures("tiny")
def test_a_stopped_run_leaves_what_it_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = losses._measure_shape
    shapes: list[Any] = []

    def stop_at_the_second(contenders: Any, shape: Any, *rest: Any) -> list[dict[str, Any]]:
        if shapes:
            raise KeyboardInterrupt
        shapes.append(shape)
        return honest(contenders, shape, *rest)

    monkeypatch.setattr(losses, "_measure_shape", stop_at_the_second)
    record = tmp_path / "record.json"
    assert cli.main(["bench", "kernels", "--device", "cpu", "--output", str(record)]) == 130
    assert len(json.loads(record.read_text())["rows"]) == 2


def test_contenders_take_turns_while_steps_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a slow phase of the host is shared; what is long is timed once."""
    turns: list[str] = []

    def loss_of(name: str) -> Any:
        def loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            turns.append(name)
            return logits.sum()

        return loss

    def given_ms(function: Any, device: str) -> float:
        function()
        return {"short": [4.0, 2.0, 9.0], "long": [6.0]}[turns[-1]][turns.count(turns[-1]) // 3 - 1]

    monkeypatch.setattr(losses, "ROUNDS", 3)
    monkeypatch.setattr(losses, "seconds", lambda *args: given_ms(*args) / 1e3)
    rates = {"matmul_flops": 1e9, "matmul_bf16_flops": 1e9, "bytes": 1e9, "exps": 1e8}
    contenders = [Contender(name, loss_of(name)) for name in ("short", "long")]
    short, long = losses._measure_shape(contenders, (2, 5, 3), "cpu", rates)
    # A round is a step to warm up, a forward pass and a step.
    assert turns == ["short"] * 3 + ["long"] * 3 + ["short"] * 6
    assert short["total_ms_rounds"] == pytest.approx([4.0, 2.0, 9.0])
    assert short["total_ms"] == pytest.approx(4.0)
    assert long["total_ms_rounds"] == pytest.approx([6.0])


def test_wrong_options_say_so_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "kernels", "--shapes", "nonsense"]) == 2
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
    forward, total = limits.limit_ms(1, 10, 4, 4, False, "matmul_flops", rates)
    assert forward == pytest.approx(800)
    assert total == pytest.approx(800 + 1600)
    both = limits.limit_ms(1, 10, 4, 4, True, "matmul_flops", rates)
    assert both[1] == pytest.approx(800 + 2 * 1600)
    half = limits.limit_ms(1, 10, 4, 4, False, "matmul_bf16_flops", rates)
    assert half[1] == pytest.approx(1200)
    slow_exps = rates | {"exps": 10.0}
    slow = limits.limit_ms(1, 10, 4, 4, False, "matmul_flops", slow_exps)
    assert slow == pytest.approx((10_000, 20_000))


# Slow: a process that imports the compiler of PyTorch. The next test runs the same script.
@pytest.mark.slow
def test_a_measurement_starts() -> None:
    """As a program: its folder is where Python looks for modules first, for all that are in it."""
    command = [sys.executable, str(ROOT / "benchmarks" / "counters.py"), "--help"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "--output" in run.stdout


def test_what_the_profiler_prints_is_read() -> None:
    """With lines of its own around the table, as many digits as it likes, and other units."""
    script = runpy.run_path(str(ROOT / "benchmarks" / "counters.py"))
    counters, stall = script["COUNTERS"], script["STALL"]
    names = ["Kernel Name", *counters.values(), *map(stall.format, script["STALLS"])]
    units = ["", "nsecond", *[""] * (len(names) - 2)]
    ours = ["logsumexp", "66,530", "122", "13.25", "44.9", "55.8", "27.0", "1.5"]
    ours += [str(n / 4) for n in range(len(script["STALLS"]))]
    lines = [names, units, ours]
    printed = "\n".join(",".join(f'"{cell}"' for cell in line) for line in lines)
    found = list(script["kernels"](f"==PROF== Connected\n{printed}\n==PROF== Disconnected\n"))
    assert [row["kernel"] for row in found] == ["logsumexp"]
    row = found[0]
    assert row["us"] == pytest.approx(66.53)
    told = {"registers": 122, "warps": 13.25, "exponentials": 55.8, "memory": 1.5}
    assert {what: row[what] for what in told} == told
    assert row["stalls"] == {reason: n / 4 for n, reason in enumerate(script["STALLS"])}
    assert set(row["stalls"]) == set(kernel_studies.WAITS)
