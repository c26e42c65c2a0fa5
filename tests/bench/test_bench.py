"""The benchmark command at a tiny size, its arithmetic, and the documents made from its record."""

from __future__ import annotations

import copy
import json
import re
import runpy
import shutil
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import setwise as sw
from pictures import differing_pixels
from repository import ROOT
from setwise import cli
from setwise.bench import document, limits, losses, show, studies
from setwise.bench.contenders import Contender, available, dense
from setwise.environment import current_commit

RECORDS = ROOT / "benchmarks" / "records"
PAGE = ROOT / "docs" / "kernels.md"
PICTURE = ROOT / "docs" / "figures" / "kernels.png"
BLOCKS = re.findall(r"^<!-- (\w+): begin -->$", PAGE.read_text(), re.MULTILINE)


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
    arguments = ["bench", "losses", "--device", "cpu", "--commit", "abc"]
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
    assert cli.main(["bench", "losses", "--device", "cpu", "--output", str(record)]) == 130
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


def read(name: str) -> dict[str, Any]:
    """A committed record."""
    return dict(json.loads((RECORDS / name).read_text()))


def with_records(folder: Path, **changed: dict[str, Any]) -> Path:
    """A folder of the committed records but for those that are given."""
    shutil.copytree(RECORDS, folder, dirs_exist_ok=True)
    names = {
        "losses": document.LOSSES,
        "designs": document.DESIGNS,
        "skipping": document.SKIPPING,
        "profile": document.PROFILE,
    }
    for which, record in changed.items():
        (folder / names[which]).write_text(json.dumps(record))
    return folder


def test_the_documented_numbers_are_those_of_the_records() -> None:
    """`make docs` writes them."""
    assert document.update(PAGE, RECORDS) == PAGE.read_text()


@pytest.mark.parametrize("block", BLOCKS)
def test_a_number_edited_by_hand_is_noticed(block: str, tmp_path: Path) -> None:
    before, rest = PAGE.read_text().split(f"<!-- {block}: begin -->\n")
    numbers = list(re.finditer(r"\d", rest.split(f"<!-- {block}: end -->")[0]))
    assert numbers
    for found in (numbers[0], numbers[-1]):
        other = str((int(found[0]) + 1) % 10)
        edited = rest[: found.start()] + other + rest[found.end() :]
        page = tmp_path / "page.md"
        page.write_text(f"{before}<!-- {block}: begin -->\n{edited}")
        assert document.update(page, RECORDS) == PAGE.read_text() != page.read_text()


def test_a_page_without_a_block_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text().replace("<!-- host: begin -->\n", ""))
    with pytest.raises(ValueError, match="has blocks"):
        document.update(page, RECORDS)


def test_another_record_of_times_is_noticed(tmp_path: Path) -> None:
    """Whichever row of it is another."""
    record = read(document.LOSSES)
    for at, row in enumerate(record["rows"]):
        if "error" in row or row["shape"].startswith("sweep"):
            continue
        for what in ("total_ms", "graph_ms", "peak_mb"):
            if row[what] is None:
                continue
            other = copy.deepcopy(record)
            other["rows"][at][what] *= 1.5
            changed = document.update(PAGE, with_records(tmp_path, losses=other))
            assert changed != PAGE.read_text(), (row["shape"], row["impl"], what)


def test_another_host_is_noticed(tmp_path: Path) -> None:
    record = read(document.LOSSES)
    assert list(record["header"]["host_us"]) == list(document.HOST)
    for part, times in record["header"]["host_us"].items():
        for kind in times:
            other = copy.deepcopy(record)
            other["header"]["host_us"][part][kind] *= 2
            changed = document.update(PAGE, with_records(tmp_path, losses=other))
            assert changed != PAGE.read_text(), (part, kind)


def test_other_designs_are_noticed(tmp_path: Path) -> None:
    tried = read(document.DESIGNS)
    changes = [
        (i, what)
        for i, row in enumerate(tried["designs"])
        for what in ("dropped_time", "kept_time", "commit")
        if row[what] is not None
    ]
    for at, what in changes:
        other = copy.deepcopy(tried)
        other["designs"][at][what] *= 2
        changed = document.update(PAGE, with_records(tmp_path, designs=other))
        assert changed != PAGE.read_text(), (at, what)


def test_another_record_of_skipping_is_noticed(tmp_path: Path) -> None:
    record = read(document.SKIPPING)
    others = []
    for at, row in enumerate(record["rows"]):
        changes = {what: 1.5 * row[what] for what in ("on_ms", "off_ms")}
        changes |= {"equal": not row["equal"], "peak_on_mb": row["peak_on_mb"] + 50}
        for what, value in changes.items():
            others.append(copy.deepcopy(record))
            others[-1]["rows"][at][what] = value
        for walk in row["visited"]:
            others.append(copy.deepcopy(record))
            others[-1]["rows"][at]["visited"][walk] /= 2
    for what in ("hardware", "torch", "date", "commit", "how"):
        others.append(copy.deepcopy(record))
        others[-1]["header"][what] = "another"
    for other in others:
        changed = document.update(PAGE, with_records(tmp_path, skipping=other))
        assert changed != PAGE.read_text(), other


def test_another_profile_is_noticed(tmp_path: Path) -> None:
    record = read(document.PROFILE)
    others = []
    for at, row in enumerate(record["rows"]):
        most = max(row["stalls"], key=lambda reason: row["stalls"][reason])
        for what in ("us", "registers", "warps"):
            others.append(copy.deepcopy(record))
            others[-1]["rows"][at][what] *= 2
        for what in ("instructions", "exponentials", "products", "memory"):
            others.append(copy.deepcopy(record))
            others[-1]["rows"][at][what] += 10
        others.append(copy.deepcopy(record))
        others[-1]["rows"][at]["stalls"][most] *= 3
    assert all(studies.profile(other) != studies.profile(record) for other in others)
    changed = document.update(PAGE, with_records(tmp_path, profile=others[0]))
    assert changed != PAGE.read_text()


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
    assert set(row["stalls"]) == set(studies.WAITS)


@pytest.mark.parametrize(("ratio", "said"), [(4.0, "4.0x: **yes**"), (3.94, "3.9x: no")])
def test_a_goal_is_reached_or_not(ratio: float, said: str) -> None:
    record = read(document.LOSSES)
    cells = {(row["shape"], row["impl"]): row for row in record["rows"]}
    ours, compiled = cells["rules", "setwise-tf32"], cells["rules", "compiled"]
    ours["total_ms"], compiled["total_ms"] = 0.25, 0.25 * ratio
    line = next(line for line in document.bars(record).splitlines() if line.startswith("| rules"))
    assert said in line


def test_the_record_counts_its_limits_as_the_code_does() -> None:
    record = read(document.LOSSES)
    for row in record["rows"]:
        if "error" in row:
            continue
        itemsize = 2 if "bf16" in row["impl"] or row["impl"] == "cut-cross-entropy" else 4
        both = row["impl"] in ("setwise-bf16-both", "cut-cross-entropy")
        wide = row["impl"] in ("dense", "compiled", "pykeops")
        products = "matmul_flops" if wide else "matmul_bf16_flops"
        assert row["products"] == products
        shape = row["B"], row["N"], row["F"]
        _, least = limits.limit_ms(*shape, itemsize, both, products, record["header"]["ceilings"])
        assert row["limit_ms"] == pytest.approx(least)
        assert row["limit_fraction"] == pytest.approx(least / row["total_ms"])


def test_the_picture_is_current(tmp_path: Path) -> None:
    """Drawn from the rows of the record, which it names, by the code as it is."""
    record = read(document.LOSSES)
    assert PICTURE.stat().st_size < 300_000
    with Image.open(PICTURE) as picture:
        assert picture.info["Source"] == show.source(record["rows"])
    show.draw(record["header"], record["rows"], tmp_path / "again.png")
    assert differing_pixels(PICTURE, tmp_path / "again.png") < 0.01, "run make docs"
