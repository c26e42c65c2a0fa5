"""The numbers of the pages on the kernels are those of the benchmark records, as are pictures."""

from __future__ import annotations

import copy
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from tools import kernel_studies, kernels

from pictures import differing_pixels
from repository import ROOT
from setwise import environment
from setwise.bench import limits, show
from setwise.report import heatmap

RECORDS = ROOT / "benchmarks" / "records"
PAGE, GUIDE = ROOT / "docs" / "lab-book.md", ROOT / "docs" / "kernels.md"
PICTURE, HEAT_MAP = (ROOT / "docs" / "figures" / name for name in ("kernels.png", "matrix.png"))
# Pictures, each with its record and what draws it.
DRAWN = [pytest.param(PICTURE, kernels.LOSSES, show.draw, id="kernels")]
if (RECORDS / kernels.MATRIX).exists():
    DRAWN.append(pytest.param(HEAT_MAP, kernels.MATRIX, heatmap.draw, id="matrix"))
BLOCKS = [
    (page, block)
    for page in (PAGE, GUIDE)
    for block in re.findall(r"^<!-- (\w+): begin -->$", page.read_text(), re.MULTILINE)
]


def read(name: str) -> dict[str, Any]:
    """A committed record."""
    return dict(json.loads((RECORDS / name).read_text()))


def with_records(folder: Path, **changed: dict[str, Any]) -> Path:
    """A folder of the committed records but for those that are given."""
    shutil.copytree(RECORDS, folder, dirs_exist_ok=True)
    names = {
        "losses": kernels.LOSSES,
        "designs": kernels.DESIGNS,
        "skipping": kernels.SKIPPING,
        "profile": kernels.PROFILE,
        "matrix": kernels.MATRIX,
        "likelihood": kernels.LIKELIHOOD,
    }
    for which, record in changed.items():
        (folder / names[which]).write_text(json.dumps(record))
    return folder


@pytest.mark.parametrize("page", [PAGE, GUIDE], ids=lambda page: page.stem)
def test_the_documented_numbers_are_those_of_the_records(page: Path) -> None:
    """`make docs` writes them."""
    assert kernels.update(page, RECORDS) == page.read_text()


@pytest.mark.parametrize(("whole", "block"), BLOCKS, ids=[block for _, block in BLOCKS])
def test_a_number_edited_by_hand_is_noticed(whole: Path, block: str, tmp_path: Path) -> None:
    before, rest = whole.read_text().split(f"<!-- {block}: begin -->\n")
    numbers = list(re.finditer(r"\d", rest.split(f"<!-- {block}: end -->")[0]))
    assert numbers
    for found in (numbers[0], numbers[-1]):
        other = str((int(found[0]) + 1) % 10)
        edited = rest[: found.start()] + other + rest[found.end() :]
        page = tmp_path / whole.name
        page.write_text(f"{before}<!-- {block}: begin -->\n{edited}")
        assert kernels.update(page, RECORDS) == whole.read_text() != page.read_text()


def test_a_page_without_a_block_is_refused(tmp_path: Path) -> None:
    page = tmp_path / PAGE.name
    page.write_text(PAGE.read_text().replace("<!-- host: begin -->\n", ""))
    with pytest.raises(ValueError, match="has blocks"):
        kernels.update(page, RECORDS)


@pytest.mark.slow  # a page for every number; the first tier compares the one that is committed
def test_another_record_of_times_is_noticed(tmp_path: Path) -> None:
    """Whichever row of it is another."""
    record = read(kernels.LOSSES)
    for at, row in enumerate(record["rows"]):
        if "error" in row or row["shape"].startswith("sweep"):
            continue
        for what in ("total_ms", "graph_ms", "peak_mb"):
            if row[what] is None:
                continue
            other = copy.deepcopy(record)
            other["rows"][at][what] *= 1.5
            changed = kernels.update(PAGE, with_records(tmp_path, losses=other))
            assert changed != PAGE.read_text(), (row["shape"], row["impl"], what)


def test_another_host_is_noticed(tmp_path: Path) -> None:
    record = read(kernels.LOSSES)
    assert list(record["header"]["host_us"]) == list(kernels.HOST)
    for part, times in record["header"]["host_us"].items():
        for kind in times:
            other = copy.deepcopy(record)
            other["header"]["host_us"][part][kind] *= 2
            changed = kernels.update(PAGE, with_records(tmp_path, losses=other))
            assert changed != PAGE.read_text(), (part, kind)


@pytest.mark.slow  # likewise
def test_other_designs_are_noticed(tmp_path: Path) -> None:
    tried = read(kernels.DESIGNS)
    changes = [
        (i, what)
        for i, row in enumerate(tried["designs"])
        for what in ("dropped_time", "kept_time", "commit")
        if row[what] is not None
    ]
    for at, what in changes:
        other = copy.deepcopy(tried)
        other["designs"][at][what] *= 2
        changed = kernels.update(PAGE, with_records(tmp_path, designs=other))
        assert changed != PAGE.read_text(), (at, what)


def test_another_record_of_skipping_is_noticed(tmp_path: Path) -> None:
    record = read(kernels.SKIPPING)
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
        changed = kernels.update(PAGE, with_records(tmp_path, skipping=other))
        assert changed != PAGE.read_text(), other


def test_another_profile_is_noticed(tmp_path: Path) -> None:
    record = read(kernels.PROFILE)
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
    assert all(kernel_studies.profile(other) != kernel_studies.profile(record) for other in others)
    changed = kernels.update(PAGE, with_records(tmp_path, profile=others[0]))
    assert changed != PAGE.read_text()


def a_matrix() -> dict[str, Any]:
    """Two cells, as they may come out."""
    header = {"hardware": "a card", "torch": "2.11", "triton": "3.6", "commit": "abcdef"}
    rows = []
    for family, ours, dense in [("Bernoulli", 1.0, 3.0), ("Gaussian", 2.0, 1.0)]:
        for impl, ms in [("setwise", ours), ("dense", dense)]:
            cell = {"loss": "SH", "family": family, "shape": "few", "sizes": [2, 1000, 3]}
            rows.append({**cell, "impl": impl, "mode": "eager", "total_ms": ms, "peak_mb": 1.0})
    return {"header": header, "rows": rows}


def test_a_matrix_is_written_and_another_is_noticed(tmp_path: Path) -> None:
    """Whichever time, and whatever it was measured on."""
    record = a_matrix()
    text = kernels.update(GUIDE, with_records(tmp_path, matrix=record))
    assert "| SH | Bernoulli | 3.0 (1.00) |" in text
    assert "| SH | Gaussian | 0.50 (2.00) |" in text
    assert "1.22 times as fast" in text
    assert "in 1 of them below 0.95" in text
    assert "figures/matrix.png" in text
    others = [copy.deepcopy(record) for _ in record["rows"]]
    for row, other in enumerate(others):
        other["rows"][row]["total_ms"] *= 1.5
    for what in ("hardware", "torch", "triton", "commit"):
        others.append(copy.deepcopy(record))
        others[-1]["header"][what] = "another"
    for other in others:
        assert kernels.update(GUIDE, with_records(tmp_path, matrix=other)) != text


def test_a_matrix_that_is_not_recorded_is_missed(tmp_path: Path) -> None:
    with_records(tmp_path)
    (tmp_path / kernels.MATRIX).unlink(missing_ok=True)
    text = kernels.update(GUIDE, tmp_path)
    assert "The matrix is not recorded yet." in text
    assert "figures/matrix.png" not in text
    assert HEAT_MAP.exists() == (RECORDS / kernels.MATRIX).exists()


@pytest.mark.parametrize(("ratio", "said"), [(4.0, "4.0x: **yes**"), (3.94, "3.9x: no")])
def test_a_goal_is_reached_or_not(ratio: float, said: str) -> None:
    record = read(kernels.LOSSES)
    cells = {(row["shape"], row["impl"]): row for row in record["rows"]}
    ours, compiled = cells["rules", "setwise-tf32"], cells["rules", "compiled"]
    ours["total_ms"], compiled["total_ms"] = 0.25, 0.25 * ratio
    line = next(line for line in kernels.bars(record).splitlines() if line.startswith("| rules"))
    assert said in line


def test_the_record_counts_its_limits_as_the_code_does() -> None:
    record = read(kernels.LOSSES)
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


@pytest.mark.parametrize(("picture", "record", "draw"), DRAWN)
def test_the_pictures_are_of_the_records(picture: Path, record: str, draw: Any) -> None:
    assert picture.stat().st_size < 300_000
    with Image.open(picture) as drawn:
        assert drawn.info["Source"] == show.source(read(record)["rows"])


@pytest.mark.slow  # drawn in two seconds each; the first tier looks at what they were drawn from
@pytest.mark.parametrize(("picture", "record", "draw"), DRAWN)
def test_the_pictures_are_current(picture: Path, record: str, draw: Any, tmp_path: Path) -> None:
    """Drawn from the rows of the record by the code as it is."""
    found = read(record)
    draw(found["header"], found["rows"], tmp_path / "again.png")
    assert differing_pixels(picture, tmp_path / "again.png") < 0.01, "run make docs"


def test_messages_and_transport_are_as_the_page_says() -> None:
    rows, text = read(kernels.LIKELIHOOD)["rows"], " ".join(PAGE.read_text().split())
    ms = {row["impl"]: row for row in rows if row["part"] == "messages"}
    rivals = "compiled", "compiled, with looks and beliefs"
    kinds = "median_ms", "min_ms"
    faster = all(ms["setwise"][kind] < ms[rival][kind] for kind in kinds for rival in rivals)
    assert ("one launch is faster than the same messages by PyTorch" in text) == faster
    assert ms["setwise"]["apart"] < 1e-5
    plans = {(row["impl"], row["temperature"]): row for row in rows if row["part"] == "transport"}
    assert "hence its errors above" in text
    assert "Transport is ahead of both libraries" in text
    for (peer, t), row in plans.items():
        ours = plans["setwise", t]
        if peer != "setwise":
            assert row["value_error"] > ours["value_error"]
            assert row["median_ms"] > ours["median_ms"]
            assert row["min_ms"] > ours["min_ms"]


@pytest.mark.slow  # what is committed is compared in the first tier
def test_likelihoods_are_written_and_others_are_noticed(tmp_path: Path) -> None:
    """With what could not be captured, and a library that failed."""
    times = {"median_ms": 0.4, "min_ms": 0.3, "graph_ms": 0.2}
    rows: list[dict[str, Any]] = [
        {"part": "losses", "shape": "puzzle", "family": "Gaussian", "loss": loss, **times}
        for loss in ("SH", "likelihood, exact", "likelihood, Bethe")
    ]
    rows[1] |= {"value_error": 1e-7, "gradient_error": 2e-6}
    rows[2]["graph_ms"] = None
    transport = {"part": "transport", "temperature": 10.0}
    rows += [{**transport, "impl": "setwise", "median_ms": 2.0, "min_ms": 1.5}]
    rows += [{**transport, "impl": "geomloss", "error": "ValueError: too many"}]
    for impl, ms in (
        ("setwise", 2.0),
        ("compiled", 6.0),
        ("compiled, with looks and beliefs", 8.0),
    ):
        rows.append({"part": "messages", "rounds": 21, "impl": impl, "median_ms": ms})
        rows[-1]["min_ms"] = ms / 2
    header = environment.describe(torch.device("cpu"), "0123456789abcdef")
    record: dict[str, Any] = {"header": header, "rows": rows}
    page = kernels.update(PAGE, with_records(tmp_path, likelihood=record))
    assert header["hardware"] in " ".join(page.split())
    assert "| puzzle | likelihood, exact | Gaussian | 0.400 / 0.400: 1.0x |" in page
    assert "off float64 by 2e-06 at most" in page
    sent = " ".join(page.split())
    assert "take 2.00 ms (least 1.00) in one launch" in sent
    assert "the rounds alone take 6.00 ms (least 3.00), 3.0 times as long" in sent
    assert "the same looks and probabilities 8.00 ms (least 4.00), 4.0 times as long" in sent
    assert "| geomloss | ValueError: too many |" in page
    assert page != PAGE.read_text()
    for at, row in enumerate(rows):
        for what in ("median_ms", "min_ms", "graph_ms", "gradient_error"):
            if row.get(what) is not None:
                other = copy.deepcopy(record)
                other["rows"][at][what] *= 2
                changed = kernels.update(PAGE, with_records(tmp_path, likelihood=other))
                assert changed != page, (at, what)
