"""``setwise report``: the page in a real browser, its cells, its slider, and hostile records."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Locator, Page

from browser import SCHEMES, WIDTHS, Scheme, faint, opened, overflowing, unnamed
from setwise import cli
from setwise.experiments.recipes import RECIPES
from setwise.experiments.reconstructions import Reconstructions
from setwise.planning.recorded import write_plan
from setwise.report import headline, tables
from setwise.report.page.cells import verdict
from setwise.report.page.html import Html, element, joined
from setwise.report.page.pieces import Section, bars, curves, page, picture, steps, table
from setwise.report.page.report import report
from setwise.report.page.scales import Scale, fitted
from setwise.report.paper import TABLES
from test_report import COMMITTED, RESULTS, ROOT, make_records, write

BENCHMARKS = ROOT / "benchmarks" / "records"
# Markup that would leave its traces if it came through as such, in text and in an attribute.
HOSTILE = "<img src=x onerror=\"document.title='broken'\"></script></style>'\"&" + "x" * 60
CAPTIONS = ["0: init", "1: tile 1 goes left", "2: tile 2 goes up, goal"]

Captured = pytest.CaptureFixture[str]


def png(shade: int = 0) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (60, 60), (shade, 200, 90)).save(file, "PNG")
    return file.getvalue()


def add_plan(
    results: Path, name: str = "a-plan", captions: list[str] = CAPTIONS, **more: Any
) -> None:
    about = {
        "domain": "puzzle-2x2",
        "verdict": "optimal plan of 2 steps (a shortest has 2)",
        "network": {
            "file": "n.safetensors",
            "table": "table1",
            "scenario": "4",
            "loss": "SH",
            "seed": 3,
        },
        "command": "setwise plan puzzle --seed 7 --record results/plans",
        "finished": "2026-02-03T10:00:00+00:00",
        "environment": {"commit": "e" * 40, "torch": "2", "hardware": "a planner"},
    }
    states = np.stack([np.full((60, 60, 3), 80 * n, dtype=np.uint8) for n in range(len(captions))])
    write_plan(results / "plans" / name, states, captions, about | more)


def add_reconstructions(results: Path) -> None:
    configs = RECIPES["table3"]["paper"].configs(seeds=[0], scenarios=["1", "4"])
    inputs = np.zeros((2, 40, 60, 3), dtype=np.uint8)
    inputs[:, 10:20, 20:40] = 200
    outputs = np.stack([inputs // (n + 1) for n in range(len(configs))])
    Reconstructions(tuple(configs), (7, 8), inputs, outputs).write(
        results / "table3-reconstructions.npz"
    )


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the repository's own records."""
    path = tmp_path_factory.mktemp("committed") / "report.html"
    command = ["report", "--results", str(RESULTS), "--benchmarks", str(BENCHMARKS)]
    assert cli.main([*command, "--output", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with something of everything."""
    folder = tmp_path_factory.mktemp("whole")
    some = {"scenarios": ["n2-2250-fixed", "n5-9000-random"], "losses": ["SH", "A1H"]}
    records = [
        *make_records(),
        *make_records("table4", **some),
        *make_records(preset="quick", seeds=[0]),
    ]
    write(folder / "results", records)
    add_plan(folder / "results")
    add_reconstructions(folder / "results")
    shutil.copytree(BENCHMARKS, folder / "benchmarks")
    (folder / "report.html").write_text(report(folder / "results", folder / "benchmarks"))
    return folder / "report.html"


def hostile_copy(value: Any) -> Any:
    """Every text of a record replaced, but for the names that it is found by."""
    if isinstance(value, dict):
        known = ("run", "table", "loss", "config", "history", "metrics")
        return {k: v if k in known else hostile_copy(v) for k, v in value.items()}
    if isinstance(value, list):
        return [hostile_copy(one) for one in value]
    return HOSTILE if isinstance(value, str) else value


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of records whose every text is markup."""
    folder = tmp_path_factory.mktemp("hostile")
    results = write(folder / "results", make_records(seeds=[0], scenarios=["4"]))
    lines = [json.loads(line) for line in (results / "table1.jsonl").read_text().splitlines()]
    for line in lines:
        line["config"]["scenario"] = HOSTILE
    text = "".join(json.dumps(hostile_copy(line)) + "\n" for line in lines)
    (results / "table1.jsonl").write_text(text)
    add_plan(results, captions=[HOSTILE, HOSTILE])
    plan = results / "plans" / "a-plan" / "plan.json"
    plan.write_text(json.dumps(hostile_copy(json.loads(plan.read_text()))))
    plan.parent.rename(plan.parent.with_name(HOSTILE.replace("/", "|")))
    (folder / "benchmarks").mkdir()
    record = json.loads((BENCHMARKS / "losses-h200.json").read_text())
    record["rows"][:0] = [row | {"shape": HOSTILE, "impl": HOSTILE} for row in record["rows"][:1]]
    record["header"] = hostile_copy(record["header"])
    (folder / "benchmarks" / "losses-h200.json").write_text(json.dumps(record))
    (folder / "report.html").write_text(report(results, folder / "benchmarks"))
    return folder / "report.html"


@pytest.fixture
def plan(chromium: Browser, whole: Path) -> Iterator[Locator]:
    with opened(chromium, whole) as tab:
        yield tab.locator("figure.steps")


def shown(plan: Locator) -> list[str]:
    """Captions of the steps that are to be seen."""
    return [step.inner_text() for step in plan.locator("li").all() if step.is_visible()]


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
            back = tab.evaluate("getComputedStyle(document.body).backgroundColor")
            brightness = sum(map(int, re.findall(r"\d+", back)[:3]))
            assert brightness > 600 if scheme == "light" else brightness < 150

    def test_what_is_wrong_with_a_page_is_found(self, chromium: Browser, tmp_path: Path) -> None:
        """The checks above can fail."""
        path = tmp_path / "bad.html"
        path.write_text(
            "<p style='color: #999'>faint</p><svg width=9><text fill='#ddd'>pale</text></svg>"
            "<h3>deep</h3><img src='data:,'><input><div style='width: 2000px'>wide</div>"
        )
        with opened(chromium, path) as tab:
            assert [line.split()[1] for line in faint(tab)] == ["faint", "pale"]
            assert overflowing(tab) == ["the page", "DIV wide"]
            wrong = unnamed(tab)
            assert {"h1", "img without alt", "svg without a label", "input"} <= set(wrong)
        path.write_text("<script>console.log('hallo')</script>")
        with pytest.raises(AssertionError, match="hallo"), opened(chromium, path):
            pass
        path.write_text("<img src='http://127.0.0.1:9/x.png' alt=x>")
        with pytest.raises(AssertionError, match="fetched http"), opened(chromium, path):
            pass

    @pytest.mark.parametrize("name", [name for name in COMMITTED if name in TABLES])
    def test_cells_are_those_of_the_records(
        self, chromium: Browser, committed: Path, name: str
    ) -> None:
        paper = TABLES[name]
        with opened(chromium, committed) as tab:
            found = read_cells(tab, name)

        def digits(value: float) -> str:
            return f"{value:.{paper.decimals}f}"

        for cell in tables.cells(paper, COMMITTED[name]):
            told = [digits(cell.best)]
            told += [] if cell.paper is None else [f"paper {digits(cell.paper)}"]
            told.append(f"median {digits(cell.median)}, worst {digits(cell.worst)}")
            if cell.heldout_best is not None and paper.metric != "heldout":
                assert cell.heldout_median is not None
                told.append(f"held out {digits(cell.heldout_best)}, {digits(cell.heldout_median)}")
            told += [verdict(paper, cell), f"{cell.runs} run{'s' if cell.runs > 1 else ''}"]
            assert found.pop((paper.label(cell.scenario), cell.loss)) == " ".join(told)
        assert all("not recorded yet" in rest for rest in found.values())

    def test_what_is_not_recorded_is_said(self, chromium: Browser, whole: Path) -> None:
        with opened(chromium, whole) as tab:
            section = tab.locator("section#table3")
            assert "Not recorded yet" in section.inner_text()
            assert "setwise reproduce table3 --preset paper" in section.inner_text()
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
            for part in ("section#table1", "section#plans", "section#kernels"):
                assert HOSTILE in tab.locator(part).inner_text(), part
            assert told.count("<img") > 10

    def test_no_script_but_ours_may_run(self, chromium: Browser, tmp_path: Path) -> None:
        """Even if markup came through, the policy of the page would not let it act."""
        body = Html("<img src='data:,' alt=x onerror=\"document.title = 'broken'\">")
        pages = {"kept": page("kept", "", [Section("one", "One", body)]), "broken": body}
        for title, text in pages.items():
            (tmp_path / "x.html").write_text(text)
            tab = chromium.new_page()
            tab.goto((tmp_path / "x.html").as_uri())
            tab.wait_for_timeout(100)
            assert tab.title() == title
            tab.close()


class TestSteps:
    pytestmark = pytest.mark.browser

    def test_one_is_seen_at_a_time(self, plan: Locator) -> None:
        assert shown(plan) == CAPTIONS[:1]
        assert plan.locator("output").inner_text() == "0 of 2"
        assert plan.locator("input").get_attribute("aria-valuetext") == CAPTIONS[0]

    def test_the_mouse_on_the_slider(self, plan: Locator) -> None:
        slider = plan.locator("input")
        slider.scroll_into_view_if_needed()
        box = slider.bounding_box()
        assert box is not None
        middle = box["y"] + box["height"] / 2
        plan.page.mouse.click(box["x"] + box["width"] / 2, middle)
        assert shown(plan) == CAPTIONS[1:2]
        plan.page.mouse.down()
        plan.page.mouse.move(box["x"] + box["width"] - 2, middle)
        plan.page.mouse.up()
        assert shown(plan) == CAPTIONS[2:]
        assert slider.get_attribute("aria-valuetext") == CAPTIONS[2]

    def test_keys(self, plan: Locator) -> None:
        plan.locator("input").focus()
        for key, step in (
            ("ArrowRight", 1),
            ("End", 2),
            ("ArrowRight", 2),
            ("ArrowLeft", 1),
            ("Home", 0),
        ):
            plan.page.keyboard.press(key)
            assert shown(plan) == [CAPTIONS[step]], key
        for name in ("previous", "play", "next"):
            plan.page.keyboard.press("Tab")
            assert plan.page.evaluate("document.activeElement.className") == name

    def test_buttons(self, plan: Locator) -> None:
        previous, onwards = plan.locator(".previous"), plan.locator(".next")
        assert previous.get_attribute("aria-disabled") == "true"
        previous.click(force=True)
        assert shown(plan) == CAPTIONS[:1]
        onwards.click()
        assert shown(plan) == CAPTIONS[1:2]
        onwards.focus()
        plan.page.keyboard.press("Enter")
        assert shown(plan) == CAPTIONS[2:]
        assert onwards.get_attribute("aria-disabled") == "true"
        previous.click()
        assert shown(plan) == CAPTIONS[1:2]

    def test_it_plays_to_the_end_and_stops(self, chromium: Browser, whole: Path) -> None:
        with opened(chromium, whole) as tab:
            tab.clock.install()
            tab.reload()
            plan = tab.locator("figure.steps")
            play = plan.locator(".play")
            play.click()
            assert play.inner_text() == "Pause"
            tab.clock.run_for(1000)
            assert shown(plan) == CAPTIONS[1:2]
            play.click()
            tab.clock.run_for(5000)
            assert shown(plan) == CAPTIONS[1:2]
            play.click()
            tab.clock.run_for(5000)
            assert shown(plan) == CAPTIONS[2:]
            assert play.inner_text() == "Play"
            play.click()  # from the beginning again
            assert shown(plan) == CAPTIONS[:1]

    def test_without_scripts_all_are_seen(self, chromium: Browser, whole: Path) -> None:
        with opened(chromium, whole, java_script_enabled=False) as tab:
            plan = tab.locator("figure.steps")
            assert shown(plan) == CAPTIONS
            assert not plan.locator(".controls").is_visible()


def read_cells(tab: Page, section: str) -> dict[tuple[str, str], str]:
    """The texts of the first table of a section, by row and loss."""
    grid = tab.locator(f"section#{section} table").first
    losses = [name.partition(":")[0] for name in grid.locator("thead th").all_inner_texts()[1:]]
    found = {}
    for row in grid.locator("tbody tr").all():
        name = row.locator("th").inner_text()
        for loss, cell in zip(losses, row.locator("td").all_inner_texts(), strict=True):
            found[name, loss] = " ".join(cell.split())
    return found


class TestTheText:
    def test_everything_says_where_it_comes_from(self, whole: Path) -> None:
        text = whole.read_text()
        for said in (
            "setwise reproduce table4 --preset paper",
            "setwise reproduce table1 --preset quick",
            "setwise plan puzzle --seed 7 --record results/plans",
            "setwise bench losses --output benchmarks/records/losses-h200.json",
            "python benchmarks/losses_cpu.py",
            "48 runs in 24 s",
            "a planner",
            "eeeeeeeeeeee",
            "2026-02-03",
            "NVIDIA H200",
        ):
            assert said in text, said

    def test_curves_reach_the_median(self, committed: Path) -> None:
        """The label of every panel says the last value of the middle run."""
        text = committed.read_text()
        records = tables.read_tables(RESULTS)["table2"]
        for scenario in "1234":
            label = TABLES["table2"].label(scenario)
            for cell in tables.cells(TABLES["table2"], records):
                if cell.scenario == scenario:
                    assert re.search(
                        rf'aria-label="{re.escape(label)}: [^"]*'
                        rf"\b{cell.loss} ends at {cell.median:.2f}",
                        text,
                    ), (scenario, cell.loss)

    def test_reconstructions_of_the_hardest_scenario(self, whole: Path) -> None:
        text = whole.read_text()
        assert text.count("data:image/jpeg;base64") == 4 * 2 * 3
        assert "scenario (4) input random, target random" in text
        # The first network of scenario 4 divides by five: the inputs are 200/255 where not black.
        share = (10 * 20) / (40 * 60)
        rmse = (200 - 200 // 5) / 255 * share**0.5
        assert f"H: cross entropy, rmse {rmse:.3f} on these" in text

    def test_verdicts(self) -> None:
        two, three = TABLES["table2"], TABLES["table3"]

        def cell(paper: float | None, best: float) -> tables.Cell:
            return tables.Cell("SH", "1", paper, best, best, best, 1)

        assert verdict(two, cell(0.6, 0.6)) == "holds"
        assert verdict(two, cell(0.6, 0.5)) == "behind the paper"
        assert verdict(two, cell(0.0, 0.004)) == "fails in both"
        assert verdict(two, cell(0.0, 0.3)) == "holds"
        assert verdict(three, cell(0.08, 0.09)) == "behind the paper"
        assert verdict(three, cell(0.08, 0.07)) == "holds"
        assert verdict(two, cell(None, 0.5)) == "the paper has none"
        assert verdict(two, None) == "not recorded yet"


class TestTheCommand:
    def test_it_says_where_to_look(
        self, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """And makes a page of nothing, too: the paper's numbers and the commands."""
        monkeypatch.chdir(tmp_path)
        Path("results").mkdir()
        assert cli.main(["report"]) == 0
        assert (tmp_path / "report.html").as_uri() in capsys.readouterr().out
        text = Path("report.html").read_text()
        assert text.count("Not recorded yet") == 5
        assert "No plans are recorded yet" in text
        assert "No benchmark is recorded yet" in text
        assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["report.html"]

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (["--results", "nowhere"], "--results: there is no folder nowhere"),
            (["--benchmarks", "nowhere"], "--benchmarks: there is no folder nowhere"),
            (["--output", "results"], "results"),
        ],
    )
    def test_what_cannot_be_done_is_told_in_one_line(
        self,
        options: list[str],
        said: str,
        tmp_path: Path,
        capsys: Captured,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "results").mkdir()
        assert cli.main(["report", *options]) == 2
        message = capsys.readouterr().err
        assert said in message
        assert message.count("\n") == 1
        assert list(tmp_path.iterdir()) == [tmp_path / "results"]

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("results/table1.jsonl", "{\n"),
            ("results/plans/x/plan.json", "{}"),
            ("results/table3-reconstructions.npz", "nothing"),
            ("benchmarks/records/losses-x.json", '{"rows": []}'),
        ],
    )
    def test_files_that_are_no_records(
        self,
        name: str,
        text: str,
        tmp_path: Path,
        capsys: Captured,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "results").mkdir()
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
        assert cli.main(["report"]) == 2
        message = capsys.readouterr().err
        assert name in message
        assert message.count("\n") == 1


class TestPieces:
    def test_text_is_escaped_wherever_it_enters(self) -> None:
        """Unless it is markup already; which it no longer is once it was added to."""
        assert element("p", "<b>", title='"x"') == '<p title="&quot;x&quot;">&lt;b&gt;</p>'
        assert element("p", element("b", "x") + "<i>") == "<p>&lt;b&gt;x&lt;/b&gt;&lt;i&gt;</p>"
        assert joined(["<", Html("<br>")], " & ") == "&lt; &amp; <br>"
        with pytest.raises(ValueError, match="must not contain </script"):
            element("script", "'</SCRIPT>'")
        with pytest.raises(ValueError, match="img: has no content"):
            element("img", "x")

    def test_what_does_not_fit_together_is_refused(self) -> None:
        with pytest.raises(ValueError, match="expected 2 cells in a row"):
            table("t", ["", "a"], [["x"]])
        with pytest.raises(ValueError, match="got 1 pictures and 2 captions"):
            steps("s", [png()], ["a", "b"])
        with pytest.raises(ValueError, match="expected a PNG, JPEG or GIF"):
            picture(b"<svg>", "x")
        one = Section("one", "One", Html(""))
        with pytest.raises(ValueError, match="anchors must differ"):
            page("t", "", [one, one])

    def test_curves_of_nothing_and_of_what_is_no_number(self) -> None:
        """Runs that diverged have no value; a drawing is made all the same."""
        nan = float("nan")
        drawn = curves("t", {"SH": [(1, nan), (2, None), (3, 0.5)], "H": []}, "x", "y")
        assert "SH ends at 0.50" in drawn
        assert "H ends" not in drawn.replace("SH ends", "")
        assert "nan" not in drawn
        assert "<svg" in curves("t", {}, "x", "y", log=True)
        assert "<svg" in bars("t", {}, "x")

    def test_scales(self) -> None:
        assert Scale(0, 1, 10, 20).ticks() == [0, 0.25, 0.5, 0.75, 1]
        assert Scale(1024, 65536, 0, 1, log=True).ticks() == [1024, 4096, 16384, 65536]
        assert Scale(0.001, 5e6, 0, 1, log=True).ticks() == [0.001, 1, 1000, 1000000]
        same = fitted([3.0, 3.0], 0, 100)
        assert same(3.0) == 50.0
        assert fitted([0.0, 1.0, 100.0], 0, 100, log=True)(10.0) == 50.0


class TestPlans:
    def test_a_plan_is_replaced_whole(self, tmp_path: Path) -> None:
        add_plan(tmp_path)
        add_plan(tmp_path, captions=CAPTIONS[:2])
        folder = tmp_path / "plans" / "a-plan"
        assert sorted(path.name for path in folder.iterdir()) == ["00.png", "01.png", "plan.json"]
        assert list(folder.parent.iterdir()) == [folder]

    @pytest.mark.parametrize("name", [".", "..", "other"])
    def test_nothing_else_is(self, name: str, tmp_path: Path) -> None:
        """A name that leads elsewhere must not cost a folder."""
        (tmp_path / "plans" / "other").mkdir(parents=True)
        (tmp_path / "plans" / "other" / "mine.txt").touch()
        with pytest.raises(ValueError, match="is no plan; choose another"):
            add_plan(tmp_path, name=name)
        assert (tmp_path / "plans" / "other" / "mine.txt").exists()


class TestTheReadme:
    def test_its_numbers_are_those_of_the_records(self) -> None:
        """`make docs` writes them."""
        readme = ROOT / "README.md"
        assert headline.update(readme, RESULTS) == readme.read_text(), "run make docs"

    def test_a_number_that_was_edited_is_noticed(self, tmp_path: Path) -> None:
        text = (ROOT / "README.md").read_text()
        copy = tmp_path / "README.md"
        copy.write_text(re.sub(r"0\.62: \*\*\d\.\d\d", "0.62: **0.12", text))
        assert copy.read_text() != text
        assert headline.update(copy, RESULTS) == text

    def test_a_row_says_the_paper_then_ours(self, tmp_path: Path) -> None:
        some = {"scenarios": ["n5-9000-random"], "losses": ["SH"]}
        write(tmp_path, [*make_records(scenarios=["4"]), *make_records("table4", **some)])
        lines = headline.headline(tmp_path).splitlines()
        assert lines[2] == (
            "| Table 1: reconstruction of 8-puzzle states | 0.00: 0.00 / 0.00 | "
            "1.00: **1.00** / 0.90 | 1.00: **1.00** / 0.90 | 0.00: 0.00 / 0.00 |"
        )
        assert lines[3].startswith(
            "| Table 4: bodies of Horn clauses from their heads (n = 5, 9000"
        )
        assert lines[3].endswith("|  | 0.60: 0.55 / 0.45 |  |  |")
        assert lines[-1] == "Tables that are not or not wholly recorded yet: 1, 2, 3, 4, 5."

    def test_a_readme_without_markers_is_refused(self, tmp_path: Path) -> None:
        copy = tmp_path / "README.md"
        copy.write_text("# setwise\n")
        with pytest.raises(ValueError, match=r"README.md: expected one pair of markers"):
            headline.update(copy, RESULTS)
