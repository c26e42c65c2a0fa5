"""``setwise report`` in a real browser: readable for all, the cells of the records, no markup."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from statistics import median

import pytest
from playwright.sync_api import Browser

from browser import (
    SCHEMES,
    WIDTHS,
    Scheme,
    badly_drawn,
    faint,
    opened,
    overflowing,
    scrolling,
    unnamed,
)
from pages import BENCHMARKS, HOSTILE, hostile_page, read_cells, whole_page
from recorded import (
    A1H,
    H1H,
    PAPER,
    RESULTS,
    SH,
    SHEETS,
    H,
    committed_results,
    make_records,
    write,
)
from setwise import cli
from setwise.experiments.records import Record
from setwise.report import tables
from setwise.report.page.cells import verdict
from setwise.report.page.heat import MOST_IN_FULL
from setwise.report.page.pieces import Markup, Section, page, table
from setwise.report.page.report import report

SYMBOLS = {H: "H", SH: "SH", A1H: "A1H", H1H: "H1H", "set_likelihood": "LH"}
# The others have a heat map; see test_heat_map.py.
IN_FULL = [
    name for name, one in committed_results().items() if len(one.sheet.losses) <= MOST_IN_FULL
]


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the repository's own records."""
    path = tmp_path_factory.mktemp("committed") / "report.html"
    command = ["report", "--results", str(RESULTS), "--benchmarks", str(BENCHMARKS)]
    assert cli.main([*command, "--output", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return whole_page(tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile_page(tmp_path_factory.mktemp("hostile"))


class TestInTheBrowser:
    pytestmark = pytest.mark.browser

    @pytest.mark.parametrize("scheme", SCHEMES)
    @pytest.mark.parametrize("width", WIDTHS)
    @pytest.mark.parametrize("name", ["committed", "whole", "hostile"])
    def test_it_is_whole_and_readable(
        self,
        chromium: Browser,
        name: str,
        width: int,
        scheme: Scheme,
        request: pytest.FixtureRequest,
    ) -> None:
        path: Path = request.getfixturevalue(name)
        with opened(chromium, path, width, scheme) as tab:
            assert tab.title() == tab.locator("h1").inner_text()
            assert overflowing(tab) == []
            assert faint(tab) == []
            assert unnamed(tab) == []
            assert badly_drawn(tab) == []
            if width >= 1440 and name != "hostile":  # whose words are longer than a column
                assert scrolling(tab) == []
            back = tab.evaluate("getComputedStyle(document.body).backgroundColor")
            brightness = sum(map(int, re.findall(r"\d+", back)[:3]))
            assert brightness > 600 if scheme == "light" else brightness < 150

    @pytest.mark.parametrize("width", [800, 920, 1150, 1190])
    def test_tables_fit_between_a_phone_and_a_desk(
        self, chromium: Browser, committed: Path, width: int
    ) -> None:
        with opened(chromium, committed, width) as tab:
            assert scrolling(tab) == []
            assert tab.locator(".scroll[tabindex], .scroll[role]").count() == 0

    def test_keys_reach_a_table_only_while_it_does_not_fit(
        self, chromium: Browser, tmp_path: Path
    ) -> None:
        wide = table("Wide", ["", *map(str, range(14))], [["row", *["1234"] * 14]])
        path = tmp_path / "wide.html"
        path.write_text(page("t", "", [Section("one", "One", wide)]))
        with opened(chromium, path, 375) as tab:
            tab.wait_for_selector(".scroll[tabindex]")
            assert scrolling(tab) == ["0 Wide"]
            tab.set_viewport_size({"width": 1440, "height": 900})
            tab.wait_for_selector(".scroll:not([tabindex])")

    def test_what_is_wrong_with_a_page_is_found(self, chromium: Browser, tmp_path: Path) -> None:
        """The checks above can fail."""
        path = tmp_path / "bad.html"
        path.write_text(
            "<p style='color: #999'>faint</p><svg width=9><text y=20 fill='#ddd'>pale</text></svg>"
            "<svg width=90 viewBox='0 0 180 40' aria-hidden=true><text y=20>tiny</text></svg>"
            "<h3>deep</h3><img src='data:,'><input><div style='width: 2000px'>wide</div>"
            "<table><caption>same</table><table><caption>same</table>"
            "<div class=scroll style='width: 9px; overflow: auto'>scrolled</div>"
        )
        with opened(chromium, path) as tab:
            assert [line.split()[1] for line in faint(tab)] == ["faint", "pale"]
            assert overflowing(tab) == ["the page", "DIV wide"]
            wrong = unnamed(tab)
            assert {"h1", "img without alt", "svg without a label", "input"} <= set(wrong)
            assert "a caption twice" in wrong
            assert badly_drawn(tab) == ["cut pale", "small tiny"]
            assert scrolling(tab) == ["-1 null"]
        path.write_text("<script>console.log('hallo')</script>")
        with pytest.raises(AssertionError, match="hallo"), opened(chromium, path):
            pass
        path.write_text("<img src='http://127.0.0.1:9/x.png' alt=x>")
        with pytest.raises(AssertionError, match="fetched http"), opened(chromium, path):
            pass

    @pytest.mark.parametrize("name", IN_FULL)
    def test_cells_are_those_of_the_records(
        self, chromium: Browser, committed: Path, name: str
    ) -> None:
        sheet = SHEETS[name]
        with opened(chromium, committed) as tab:
            found = read_cells(tab, name)

        def digits(value: float) -> str:
            return f"{value:g}" if name == "table5" else f"{value:.{sheet.decimals}f}"

        for cell in tables.cells(sheet, committed_results()[name].records):
            told = [digits(cell.best)]
            if sheet.reference is not None and cell.reference is not None:
                told.append(f"paper {cell.reference:.{sheet.reference.decimals}f}")
            told.append(f"median {digits(cell.median)}, worst {digits(cell.worst)}")
            if cell.heldout_best is not None and sheet.metric != "heldout":
                assert cell.heldout_median is not None
                told.append(f"held out {digits(cell.heldout_best)}, {digits(cell.heldout_median)}")
            told += [verdict(sheet, cell).format(source="the paper")] if sheet.reference else []
            told.append(f"{cell.runs} run{'s' if cell.runs > 1 else ''}")
            assert found.pop(
                (sheet.label(cell.scenario), sheet.losses[cell.loss].symbol)
            ) == " ".join(told)
        for scenario, label in sheet.scenarios.items():
            for loss, style in sheet.losses.items():
                if (rest := found.pop((label, style.symbol), None)) is not None:
                    lacking = "not recorded yet" in rest
                    assert lacking if sheet.compares(scenario, loss) else rest == ""
        assert not found

    def test_what_is_not_recorded_is_said(self, chromium: Browser, whole: Path) -> None:
        with opened(chromium, whole) as tab:
            section = tab.locator("section#experiment-table3")
            assert "Not recorded yet" in section.inner_text()
            assert "setwise reproduce table3" in section.inner_text()
            rows = [row.inner_text().split("\t") for row in section.locator("tbody tr").all()]
            assert rows[2] == ["(3) input fixed, target random", "0.15", "0.07", "0.08", "0.16"]
            four = read_cells(tab, "table4")
        assert four["n = 3, 2250 clauses, fixed order", "SH"] == "paper 0.72 not recorded yet"
        assert four["n = 2, 2250 clauses, fixed order", "SH"].startswith("0.91 paper 0.96 median")

    def test_hostile_records_are_text(self, chromium: Browser, hostile: Path) -> None:
        with opened(chromium, hostile) as tab:
            tab.wait_for_timeout(100)
            assert tab.title() != "broken"
            assert tab.locator("img[src=x]").count() == 0
            told = tab.locator("body").inner_text()
            assert told.count("<img") > 10
            for part, said in {
                "#experiment-table1 tbody th": HOSTILE,
                "#experiment-table1 dd": HOSTILE,
                "#experiment-hostile h2": HOSTILE,
                "#detections p": HOSTILE,
                "#detections li": HOSTILE,
                "#experiment-hostile blockquote": HOSTILE,
                "#experiment-hostile caption": f"{HOSTILE}: {HOSTILE}",
                "#experiment-hostile thead th": f"{HOSTILE}: {HOSTILE}",
                "#experiment-hostile tbody th": HOSTILE,
                "#experiment-hostile pre": HOSTILE,
                "#experiment-hostile figcaption": HOSTILE,
                "#plans": f"trained with {HOSTILE}, seed 3, in scenario {HOSTILE} of {HOSTILE}.",
                "#experiment-table3 p": f"Held-out states of scenario {HOSTILE}, as the networks",
                "#experiment-table3 dd": HOSTILE,
                "#kernels thead th": HOSTILE,
                "#kernels td": HOSTILE,
                "#kernels dd": HOSTILE,
            }.items():
                assert said in "\n".join(tab.locator(part).all_inner_texts()), part
            assert "10 networks together took 20 s" in told

    def test_no_script_but_ours_may_run(self, chromium: Browser, tmp_path: Path) -> None:
        """Even if markup came through, the policy of the page would not let it act."""
        body = Markup("<img src='data:,' alt=x onerror=\"document.title = 'broken'\">")
        pages = {"kept": page("kept", "", [Section("one", "One", body)]), "broken": body}
        for title, text in pages.items():
            (tmp_path / "x.html").write_text(text)
            tab = chromium.new_page()
            tab.goto((tmp_path / "x.html").as_uri())
            tab.wait_for_timeout(100)
            assert tab.title() == title
            tab.close()

    def test_cells_of_records_made_by_hand(self, chromium: Browser, tmp_path: Path) -> None:
        """The numbers and the words of each kind of cell, written down here."""
        two = {
            (H, "3"): [0.05, 0.30, 0.10],
            (SH, "3"): [0.5, 0.6151, 0.4],
            (A1H, "3"): [0.57],
            (H1H, "3"): [0.0, 0.004],
            (H, "4"): [0.2, 0.01],
            (SH, "5"): [0.25],
        }
        three = {(SH, "3"): [0.09, 0.074, 0.2], (H, "3"): [0.1551], (A1H, "3"): [0.0]}
        records = [*by_hand("table2", "success", two), *by_hand("table3", "rmse", three)]
        path = tmp_path / "report.html"
        path.write_text(report(write(tmp_path / "results", records), tmp_path))
        with opened(chromium, path) as tab:
            cells = {name: read_cells(tab, name) for name in ("table2", "table3")}
            told = {
                name: tab.locator(f"#experiment-{name} strong").first.inner_text() for name in cells
            }
        label = "(3) input fixed, target random"
        assert cells["table2"][label, "H"] == (
            "0.30 paper 0.12 median 0.10, worst 0.05 held out 0.15, 0.05 holds 3 runs"
        )
        assert cells["table2"][label, "SH"] == (
            "0.62 paper 0.62 median 0.50, worst 0.40 held out 0.31, 0.25 holds 3 runs"
        )
        assert cells["table2"][label, "A1H"] == (
            "0.57 paper 0.58 median 0.57, worst 0.57 held out 0.28, 0.28 behind the paper 1 run"
        )
        assert cells["table2"][label, "H1H"] == (
            "0.00 paper 0.00 median 0.00, worst 0.00 held out 0.00, 0.00 fails in both 2 runs"
        )
        assert cells["table2"]["(4) input random, target random", "H"] == (
            "0.20 paper 0.00 median 0.11, worst 0.01 held out 0.10, 0.05 above the paper's 0 2 runs"
        )
        assert cells["table2"]["5", "SH"] == (
            "0.25 median 0.25, worst 0.25 held out 0.12, 0.12 the paper has none 1 run"
        )
        assert cells["table2"]["(1) input fixed, target fixed", "SH"] == (
            "paper 0.60 not recorded yet"
        )
        assert cells["table3"][label, "SH"] == (
            "0.0740 paper 0.07 median 0.0900, worst 0.2000 held out 0.0370, 0.0450 "
            "on another scale 3 runs"
        )
        # Of 20 cells, a row of our own among them, 14 have no runs.
        assert told["table2"] == (
            "Cells: 2 of 20 hold; 1 fail in both; 1 above the paper's 0; 1 behind the paper; "
            "14 not recorded yet; 1 not in the paper."
        )
        assert told["table3"] == ("Cells: 13 not recorded yet; 3 on another scale than the paper.")

    def test_each_number_says_where_it_comes_from(self, chromium: Browser, whole: Path) -> None:
        """Every list for itself, with the heading and the command above it."""
        with opened(chromium, whole) as tab:
            found = tab.evaluate(PROVENANCE)
        again = "--results runs/again"
        h200, cpu = "setwise 0.1.0, torch 2.11.0+cu130, python 3.12.3", "2.13.0+cpu, python 3.11.7"
        machine = ["a machine", "torch 2", "f" * 12, "2026-01-02"]
        header = json.loads((BENCHMARKS / "losses-h200.json").read_text())["header"]
        measured = header["commit"][:12], header["date"]
        matrices = []
        for name in ("matrix-cpu-threads", "matrix-cpu", "matrix-h200"):
            record = json.loads((BENCHMARKS / f"{name}.json").read_text())
            own = record["header"]
            versions = {key: own[key] for key in ("setwise", "torch", "triton", "python")}
            matrices += [
                [
                    *("H4", name, f"setwise bench losses --output benchmarks/records/{name}.json"),
                    *(f"{len(record['rows'])} measurements", own["hardware"]),
                    ", ".join(f"{key} {value}" for key, value in versions.items()),
                    *(own["commit"][:12], "not recorded"),
                ]
            ]
        assert found == [
            [
                *("H3", "Table 1", f"setwise reproduce table1 {again}"),
                *("48 runs in 24 s", *machine),
            ],
            [
                *("H4", "the comparison", "setwise reproduce table3 --keep best"),
                "2 states, put out again by 4 networks",
                *("a painter", "torch 3", "d" * 12, "2026-03-04"),
            ],
            [
                *("H3", "Table 4", f"setwise reproduce table4 {again}"),
                *("12 runs in 6 s", *machine),
            ],
            [
                *("H3", "Table 1 at small size"),
                f"setwise reproduce table1 --preset quick {again}",
                *("16 runs in 8 s", *machine),
            ],
            [
                *("H4", "a-plan", "setwise plan puzzle --seed 7 --record results/plans"),
                "a plan over the codes of n.safetensors",
                *("a planner", "torch 2", "e" * 12, "2026-02-03"),
            ],
            *matrices,
            [
                *("H4", "losses-h200"),
                "setwise bench kernels --output benchmarks/records/losses-h200.json",
                *("96 measurements", "NVIDIA H200", h200, *measured),
            ],
            [
                *("H4", "losses-cpu", "python benchmarks/losses_cpu.py", "10 measurements"),
                *("x86_64, 2 threads", f"setwise 0.1.0, torch {cpu}"),
                *("not recorded", "not recorded"),
            ],
        ]

    def test_a_smaller_task_is_not_held_against_the_paper(
        self, chromium: Browser, whole: Path
    ) -> None:
        with opened(chromium, whole) as tab:
            told = tab.locator("#experiment-table1-quick").inner_text()
            others = [section.get_attribute("id") for section in tab.locator("section").all()]
        assert "Cells: 16 of 16 recorded." in told
        assert "paper" not in told
        # What has a reference comes first.
        assert others[1:7] == [f"experiment-{name}" for name in (*PAPER, "table1-quick")]


# For each list: the level of the heading before it, its subject, the first command, all values.
PROVENANCE = """() => [...document.querySelectorAll("dl.provenance")].map((list) => {
  let heading = list, command = "";
  while (!heading.matches("h3, h4")) {
    heading = heading.previousElementSibling;
    if (heading.matches("pre")) command = heading.textContent.split("\\n")[0];
  }
  const subject = heading.textContent.match(/^Where (.*) comes from$/)[1];
  const values = [...list.querySelectorAll("dd")].map((value) => value.textContent);
  return [heading.tagName, subject, command, ...values];
})"""


def by_hand(table: str, metric: str, cells: dict[tuple[str, str], list[float]]) -> list[Record]:
    """Records of these numbers; half of a number is what was reached on what was held out."""
    records = []
    for (loss, scenario), values in cells.items():
        known = scenario if scenario in "1234" else "4"
        made = make_records(table, seeds=range(len(values)), losses=[loss], scenarios=[known])
        for record, value in zip(made, values, strict=True):
            config = record["config"] | {"scenario": scenario}
            metrics = {metric: value, "heldout": value / 2}
            run = f"{loss}-{scenario}-{record['seed']}"
            records.append(
                record | {"run": run, "scenario": scenario, "config": config, "metrics": metrics}
            )
    return records


class TestTheText:
    # The page of all records; the first tier has smaller ones, and curves in test_page_pieces.py.
    @pytest.mark.slow
    @pytest.mark.parametrize(("name", "decimals"), [("table2", 2), ("table3", 4)])
    def test_curves_reach_the_median(self, committed: Path, name: str, decimals: int) -> None:
        """The label of every panel says the last value of the middle run."""
        text, sheet = committed.read_text(), SHEETS[name]
        ends: dict[tuple[str, str], list[float]] = defaultdict(list)
        for record in committed_results()[name].records:
            place = record["scenario"], SYMBOLS[record["loss"]]
            ends[place].append(record["history"][sheet.metric][-1])
        assert len(ends) == 16
        for (scenario, loss), values in ends.items():
            label, end = re.escape(sheet.label(scenario)), f"{median(values):.{decimals}f}"
            found = rf'aria-label="{label}: [^"]*\b{loss} ends at {end}(?!\d)'
            assert re.search(found, text), (scenario, loss, end)
