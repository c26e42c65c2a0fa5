"""``setwise demo`` from nothing to a page in a browser, on the 2 x 2 puzzle: it takes seconds."""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from playwright.sync_api import Browser
from rich.console import Console
from scipy.sparse import coo_array
from scipy.sparse.csgraph import shortest_path

from browser import SCHEMES, WIDTHS, Scheme, faint, opened, overflowing, unnamed
from setwise import cli
from setwise.cli import demo as command
from setwise.cli.installed import install_command
from setwise.cli.interrupt import Interrupt
from setwise.cli.watch import ScoresView, Watcher
from setwise.demo.solve import farthest
from setwise.experiments.recipes import demo
from setwise.experiments.tasks import PuzzleData
from setwise.experiments.train import TrainingProgress
from setwise.worlds import PuzzleWorld
from small_demo import THE_DEMO, Captured, Run, run, small

PUZZLE = PuzzleWorld(2, 2)
H, SH = "ordered_cross_entropy", "set_cross_entropy"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A demonstration that went well."""
    yield from _shared(tmp_path_factory, epochs=600)


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """One whose networks have not learned anything."""
    yield from _shared(tmp_path_factory, epochs=10)


def _shared(factory: pytest.TempPathFactory, epochs: int) -> Iterator[Run]:
    out, err = io.StringIO(), io.StringIO()
    folder = factory.mktemp("demo") / "made" / "here"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "config", small(epochs))
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        code = cli.main(["demo", "--output", str(folder)])
    yield Run(folder, code, out.getvalue(), err.getvalue())


# Ten seconds of learning are behind `finished`, here and below. The first tier goes through all of
# it with networks that have not learned, by `failed`.
@pytest.mark.slow
def test_it_says_what_happened_in_five_lines(finished: Run) -> None:
    assert finished.code == 0
    learned, codes, planned, checked, look = finished.out.splitlines()
    assert re.fullmatch(
        r"learned  of 24 states 24 with SH and 0 with H come back whole, after \d+ s", learned
    )
    assert codes == "codes    24 for 24 states, 24 bits each"
    assert planned.startswith("planned  from 3 2 / 1 . to . 1 / 2 3: solved, a plan of 6 steps in")
    assert checked == "checked  optimal plan of 6 steps (a shortest has 6)"
    assert look == f"look at  {finished.page.as_uri()}"


@pytest.mark.slow
def test_it_says_how_far_it_is(finished: Run) -> None:
    lines = finished.err.splitlines()
    assert [line[:6] for line in lines if line[0] != " "] == ["1 of 3", "2 of 3", "3 of 3"]
    epochs = [line for line in lines if line.startswith("  demo: epoch ")]
    assert len(epochs) == 10
    assert "epoch 600 of 600" in epochs[-1]
    assert epochs[-1].endswith(" | states right: H 0.00, SH 1.00")


@pytest.mark.slow
def test_what_is_left_behind(finished: Run, tmp_path: Path, capsys: Captured) -> None:
    """Nothing that is unfinished, and a network that can be planned with."""
    names = {path.name for path in finished.folder.iterdir()}
    assert names == {"index.html", f"{SH}.safetensors", f"{H}.safetensors"}
    network = ["--network", str(finished.folder / f"{SH}.safetensors")]
    assert cli.main(["plan", "puzzle", *network, "--output", str(tmp_path), "--steps", "4"]) == 0
    assert "optimal plan" in capsys.readouterr().out


@pytest.mark.browser
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page(finished: Run, chromium: Browser, width: int, scheme: Scheme) -> None:
    with opened(chromium, finished.page, width, scheme) as page:
        assert overflowing(page) == []
        assert faint(page) == []
        assert unnamed(page) == []
        texts = page.locator("svg").first.locator("text").all_text_contents()
        ends = [text for text in texts if "H " in text]
        assert ends == ["H 0.00", "SH 1.00"]
        rows = page.locator("tbody tr").all_inner_texts()
        assert "24 of 24" in rows[0]
        assert "0 of 24" in rows[1]
        captions = page.locator("#reconstructions figcaption").all_text_contents()
        assert captions == [f"State {n}: SH right, H wrong" for n in range(1, 7)]
        # What SH puts out is drawn as its input is, and nothing that H puts out is.
        sources = [image.get_attribute("src") for image in page.locator(".trio img").all()]
        assert sources[0::3] == sources[1::3]
        assert not set(sources[0::3]) & set(sources[2::3])


@pytest.mark.browser
def test_the_slider_moves_the_plan(finished: Run, chromium: Browser) -> None:
    """From picture to picture; the captions lead from the init to the goal by legal moves."""
    ways = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}
    state = farthest(PUZZLE, PUZZLE.goal()).tolist()
    with opened(chromium, finished.page) as page:
        plan = page.locator("figure.steps")
        slider = plan.locator("input")
        assert slider.get_attribute("max") == "6"
        seen = []
        for step in range(7):
            assert plan.locator("output").inner_text() == f"{step} of 6"
            assert plan.locator("li:visible").count() == 1
            seen.append(plan.locator("li:visible img").get_attribute("src"))
            said = plan.locator("li:visible p").inner_text()
            if step:
                moved = re.match(rf"{step}: tile (\d) goes (\w+)", said)
                assert moved, said
                tile, blank = state.index(int(moved[1])), state.index(0)
                x, y = ways[moved[2]]
                assert (tile % 2 + x, tile // 2 + y) == (blank % 2, blank // 2)
                state[blank], state[tile] = state[tile], 0
            slider.press("ArrowRight")
        assert len(set(seen)) == 7
    assert state == PUZZLE.goal().tolist()


def test_a_plan_that_is_not_valid(failed: Run) -> None:
    """The exit code says so, and what is to be typed tries another seed in the same folder."""
    assert failed.code == 1
    assert len(failed.out.splitlines()) == 5
    said, _, typed = failed.err.splitlines()[-1].partition(": ")
    assert said == "the plan is not valid; another network may do better"
    program, *words = shlex.split(typed)
    assert program == command.program()
    options = cli.command_line().parse_args(words)
    assert (options.command, options.output, options.seed) == ("demo", failed.folder, 1)


@pytest.mark.browser
def test_the_page_of_a_plan_that_is_not_valid(failed: Run, chromium: Browser) -> None:
    """It shows what there is."""
    for width in WIDTHS:
        with opened(chromium, failed.page, width) as page:
            assert overflowing(page) == []
            assert unnamed(page) == []
            said = page.locator("#plan").inner_text()
            assert "invalid plan of" in said or "There is no plan." in said


def test_a_page_is_whole_or_not_there(
    failed: Run, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was there stays if the new one cannot be written."""
    monkeypatch.setattr(demo, "config", small(2))
    before = tmp_path / "index.html"
    before.write_bytes(failed.page.read_bytes())

    def full(self: Path, text: str, encoding: str | None = None) -> int:
        with self.open("w") as file:
            file.write(text[:10])
        raise OSError("No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    ended = run(tmp_path, capsys)
    assert ended.code == 2
    assert ended.err.splitlines()[-1] == "No space left on device"
    assert before.read_bytes() == failed.page.read_bytes()
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("package", ["rich", "PIL", "safetensors", "sklearn", "kstar_planner"])
def test_a_missing_package_is_told_before_anything_is_done(
    package: str, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    if package == "kstar_planner":
        monkeypatch.setattr("setwise.planning.downward.find_spec", lambda name: None)
        monkeypatch.delenv("SETWISE_FAST_DOWNWARD", raising=False)
    else:
        monkeypatch.setitem(sys.modules, package, None)
    ended = run(tmp_path / "new", capsys)
    assert ended.code == 2
    assert ended.err.count("\n") == 1
    extra = "planning" if package == "kstar_planner" else "demo"
    assert install_command(extra) in ended.err
    assert not (tmp_path / "new").exists()


def test_the_recipe() -> None:
    """The networks differ in the loss and in nothing else, and no state is left out."""
    ours, usual = (THE_DEMO(loss, 0) for loss in demo.LOSSES)
    assert (ours.loss, usual.loss) == (SH, H)
    assert replace(usual, loss=SH) == ours
    assert ours.shuffle_input
    assert ours.shuffle_target
    assert isinstance(ours.data, PuzzleData)
    assert ours.data.train == PuzzleWorld(ours.data.width, ours.data.height).number_of_states


@pytest.mark.parametrize("puzzle", [PUZZLE, PuzzleWorld(2, 3), PuzzleWorld(3, 2)])
def test_no_state_is_farther(puzzle: PuzzleWorld) -> None:
    moves = puzzle.transitions().numpy()
    states = puzzle.number_of_states
    graph = coo_array((np.ones(len(moves)), tuple(moves.T)), shape=(states, states)).tocsr()
    steps = shortest_path(graph, unweighted=True, indices=int(puzzle.rank(puzzle.goal())))
    found = int(puzzle.rank(farthest(puzzle, puzzle.goal())))
    assert steps[found] == steps[np.isfinite(steps)].max()


def test_a_terminal_shows_bars() -> None:
    terminal = Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)
    interrupt = Interrupt()
    progress = TrainingProgress(100, 400, 15.0, [36.0, 0.5], [0.0, 0.75], [])
    with (
        Watcher(terminal, "demo", ScoresView(), interrupt) as watcher,
        terminal.capture() as captured,
    ):
        terminal.print(watcher._render())
        watcher([THE_DEMO(H, 0), THE_DEMO(SH, 0)], progress)
        interrupt.pressed = True
        terminal.print(watcher._render())
    shown = captured.get()
    assert "first epochs, 0:00 gone" in shown
    assert "epoch 100 of 400, 0:15 gone, 0:45 left" in shown
    assert re.search(r"SH, set cross entropy +[━╸╺ ]+ +0\.75 of the states right", shown)
    assert "stopping after this epoch; Ctrl-C again to stop at once" in shown


def test_one_thread_learns_and_then_there_are_as_many_as_before(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "config", small(2))
    seen = []
    monkeypatch.setattr(Watcher, "__call__", lambda *_: seen.append(torch.get_num_threads()))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        run(tmp_path, capsys)
        after = torch.get_num_threads()
    finally:
        torch.set_num_threads(before)
    assert set(seen) == {1}
    assert after == 2


def test_what_to_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After ``make demo`` the command is in .venv and not on the PATH."""
    monkeypatch.chdir(tmp_path)
    script = tmp_path / ".venv" / "bin" / "setwise"
    monkeypatch.setattr(command, "sys", SimpleNamespace(executable=str(script.with_name("python"))))
    monkeypatch.setenv("PATH", "")
    assert command.program() == "setwise"  # there is none at all
    script.parent.mkdir(parents=True)
    script.write_text("#!/bin/sh\n")
    assert command.program() == ".venv/bin/setwise"
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(script.parent))
    assert command.program() == "setwise"
    # That of another Python comes first.
    other = tmp_path / "other" / "setwise"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{other.parent}{os.pathsep}{script.parent}")
    assert command.program() == ".venv/bin/setwise"


def test_the_largest_seed(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the options let through, PyTorch takes."""
    monkeypatch.setattr(demo, "config", small(10))
    ended = run(tmp_path, capsys, "--seed", str(2**63 - 1))
    assert ended.code in (0, 1)
    assert ended.page.exists()
