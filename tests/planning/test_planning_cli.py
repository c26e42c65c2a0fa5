"""``setwise reproduce table5 --preset quick`` and ``setwise plan``, from nothing to pictures.

The quick preset is run as it is: it trains two small networks on the 2 x 3 puzzle, which takes most
of the time of this file, plans with both and judges the plans.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from programs import program
from setwise import cli
from setwise.cli.installed import install_command
from setwise.experiments import checkpoint, store
from setwise.experiments.config import Config, Schedule
from setwise.experiments.recipes import EXPERIMENTS, table1, table2, table4, table5
from setwise.experiments.records import SCHEMA
from setwise.experiments.saved_networks import network_path
from setwise.experiments.train import build_network
from setwise.planning import write_problems
from setwise.planning.instances import Problem
from setwise.planning.learned import choose_network, open_space, plannable_networks
from setwise.worlds import PuzzleWorld

# Slow: they plan with networks that were trained until nothing is lost. In the first tier the same
# commands plan with those of test_planning_photographs.py, test_planning_reproduce.py and of
# tests/demo, and test_planning.py has every encoding without a network.
pytestmark = pytest.mark.slow

Captured = pytest.CaptureFixture[str]
SH, A1H = "set_cross_entropy", "set_average"
PUZZLE = PuzzleWorld(2, 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the quick preset has been run."""
    folder = tmp_path_factory.mktemp("quick")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # enough for networks so small, and no waiting where cores are busy
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            command = ["reproduce", "table5", "--preset", "quick", "--device", "cpu"]
            assert cli.main([*command, "--commit", "abc"]) == 0
            yield folder
    finally:
        torch.set_num_threads(threads)


def network(folder: Path) -> Path:
    return network_path(folder / "runs", table5.quick("4", SH, 0))


def test_the_quick_preset_solves_everything_with_set_cross_entropy(
    folder: Path, capsys: Captured
) -> None:
    """The set average may leave half of the states behind, as the machine rounds."""
    records = store.read(folder / "runs" / "records" / "table5-quick.jsonl")
    assert {(r["loss"], r["scenario"]) for r in records} == {
        (loss, f"puzzle-{steps}") for loss in (SH, A1H) for steps in (7, 14)
    }
    for record in records:
        assert record["environment"]["commit"] == "abc"
        assert record["metrics"]["problems"] == 5
        if record["loss"] == SH:
            assert record["health"]["colliding"] == 0
            assert record["metrics"] == {"solved": 5, "optimal": 5, "found": 5, "problems": 5}
    assert cli.main(["tables", "--json"]) == 0
    cells = json.loads(capsys.readouterr().out)["table5-quick"]
    assert [(c["loss"], c["scenario"], c["best"]) for c in cells][:2] == [
        (SH, "puzzle-7", 5),
        (SH, "puzzle-14", 5),
    ]


def test_nothing_is_done_twice(folder: Path, capsys: Captured) -> None:
    before = network(folder).stat().st_mtime_ns
    assert cli.main(["reproduce", "table5", "--preset", "quick"]) == 0
    said = capsys.readouterr()
    assert said.err == "already planned with networks of networks5-quick: SH 0, A1H 0\n"
    assert "epoch" not in said.err
    assert "valid plans" in said.out
    assert network(folder).stat().st_mtime_ns == before
    assert len(store.read(folder / "runs" / "records" / "table5-quick.jsonl")) == 4


def test_a_random_problem(folder: Path, tmp_path: Path, capsys: Captured) -> None:
    command = ["plan", "puzzle", "--steps", "7", "--seed", "3", "--output", str(tmp_path)]
    assert cli.main(command) == 0
    said = capsys.readouterr().out
    assert str(network(folder).name) in said  # SH is preferred
    assert "720 of 720 states; 0 states share one" in said
    assert "decoding   720 of 720 states come back" in said
    assert "steps      1680 between codes, as index" in said
    assert "goal       . 1 / 2 3 / 4 5" in said
    assert "outcome    solved: a plan of 7 steps" in said
    assert "        7  tile" in said
    assert "checked    optimal plan of 7 steps (a shortest has 7)" in said
    strip = tmp_path / "puzzle-2x3-7-seed3-strip.png"
    movie = tmp_path / "puzzle-2x3-7-seed3-animation.gif"
    assert f"strip      {strip}" in said
    assert f"animation  {movie}" in said
    with Image.open(strip) as image, Image.open(movie) as frames:
        assert image.width > 8 * 150
        assert frames.n_frames > 8
    [record] = json.loads((tmp_path / "plans.json").read_text())
    assert record["valid"]
    assert record["report"]["length"] == 7
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [strip.name, movie.name, "plans.json"]
    )


def test_a_plan_is_kept_for_the_report(folder: Path, tmp_path: Path, capsys: Captured) -> None:
    """With a picture of each state and the command; nothing that is no plan is written over."""
    from setwise.report.page.plans import plans_section

    records = tmp_path / "results" / "plans"
    options = ["--seed", "3", "--output", str(tmp_path / "out"), "--record", str(records)]
    assert cli.main(["plan", "puzzle", *options]) == 0
    [kept] = records.iterdir()
    assert f"recorded   {kept}" in capsys.readouterr().out
    plan = json.loads((kept / "plan.json").read_text())
    assert plan["verdict"] == "optimal plan of 7 steps (a shortest has 7)"
    # For readers elsewhere: folders of this machine by their last names.
    assert plan["command"] == "setwise plan puzzle --seed 3 --output out --record plans"
    assert plan["network"]["file"] == network(folder).name
    assert len(plan["captions"]) == len(list(kept.glob("*.png"))) == 8
    page = plans_section(tmp_path / "results").body
    assert all(caption in page for caption in plan["captions"])
    assert page.count("data:image/png;base64,") == 8
    (kept / "plan.json").unlink()
    assert cli.main(["plan", "puzzle", *options]) == 2
    said = capsys.readouterr()
    assert "is there already and is no plan" in said.err
    assert not said.out  # known before anything is done


def test_what_cannot_be_kept_is_found_all_the_same(
    folder: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("setwise.planning.show.record_plan", full)
    options = ["--output", str(tmp_path), "--record", str(tmp_path / "records")]
    assert cli.main(["plan", "puzzle", *options]) == 2
    assert capsys.readouterr().err == "--record: No space left on device\n"
    [found] = json.loads((tmp_path / "plans.json").read_text())
    assert found["valid"]


@pytest.mark.parametrize("encoding", ["bits", "full"])
def test_encodings_and_heuristics_agree(
    encoding: str, folder: Path, tmp_path: Path, capsys: Captured
) -> None:
    options = ["--network", str(network(folder)), "--output", str(tmp_path), "--steps", "14"]
    command = ["plan", "puzzle", *options, "--encoding", encoding, "--heuristic", "hmax"]
    assert cli.main(command) == 0
    assert "optimal plan of" in capsys.readouterr().out


def problem_file(path: Path, **problems: tuple[Any, Any]) -> Path:
    data = [{"name": name, "init": a, "goal": b} for name, (a, b) in problems.items()]
    path.write_text(json.dumps({"problems": data}))
    return path


def test_problems_of_a_user(folder: Path, tmp_path: Path, capsys: Captured) -> None:
    """States and objects in any order; one that cannot be solved does not stop the others."""
    near, goal = [1, 0, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]
    objects = PUZZLE.objects(torch.tensor(near)).flip(0).int().tolist()
    other_half = [0, 1, 2, 3, 5, 4]
    file = problem_file(
        tmp_path / "mine.json", easy=(objects, goal), none=(other_half, goal), same=(goal, goal)
    )
    assert cli.main(["plan", "puzzle", "--problem", str(file), "--output", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "problem    easy" in said
    assert "        1  tile 1 goes right, goal" in said
    assert "outcome    unsolvable: " in said
    assert "optimal plan of 0 steps" in said
    assert {path.stem for path in tmp_path.glob("*.png")} == {"easy-strip", "same-strip"}
    assert [one["outcome"] for one in json.loads((tmp_path / "plans.json").read_text())] == [
        "solved",
        "unsolvable",
        "solved",
    ]


def test_an_end_without_a_known_code_is_said_to_be_unknown(
    folder: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the encoder saw something else in the user's objects than in the states."""
    from setwise.models import SetAutoencoder

    encode = SetAutoencoder.encode
    monkeypatch.setattr(SetAutoencoder, "encode", lambda model, sets: ~encode(model, sets))
    assert cli.main(["plan", "puzzle", "--output", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "outcome    unknown init: no known state has its code" in said
    assert not list(tmp_path.glob("*.png"))


def test_a_planner_of_the_user(folder: Path, tmp_path: Path, capsys: Captured) -> None:
    slow = program(tmp_path / "slow", "#!/bin/sh\nsleep 100\n")
    limits = ["--downward", str(slow), "--seconds", "0.3", "--output", str(tmp_path / "out")]
    assert cli.main(["plan", "puzzle", *limits]) == 1
    assert "outcome    out of time: stopped after 0.3 s" in capsys.readouterr().out
    assert cli.main(["plan", "puzzle", "--downward", str(tmp_path / "none")]) == 2
    assert "none is no program that can be run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["puzzle", "--network", "no.safetensors"], "no.safetensors"),
        (["puzzle", "--problem", "no.json"], "--problem: expected a file, no.json is not there"),
        (["puzzle", "--steps", "-1"], "steps: expected a whole number, at least 0, got -1"),
    ],
)
def test_what_cannot_be_done_is_told_in_one_line(
    options: list[str], said: str, folder: Path, capsys: Captured
) -> None:
    assert cli.main(["plan", *options]) == 2
    message = capsys.readouterr().err
    assert said in message
    assert message.count("\n") == 1


def test_files_that_are_no_problems(folder: Path, tmp_path: Path, capsys: Captured) -> None:
    eight = PuzzleWorld()
    state = eight.objects(eight.goal())
    file = tmp_path / "eight.json"
    file.write_text(write_problems([Problem("x", state, state)], eight))
    assert cli.main(["plan", "puzzle", "--problem", str(file)]) == 2
    assert "domain: expected 'puzzle-2x3', got 'puzzle-3x3'" in capsys.readouterr().err
    twice = problem_file(tmp_path / "twice.json", x=([0, 1, 2, 3, 4, 4], [0, 1, 2, 3, 4, 5]))
    assert cli.main(["plan", "puzzle", "--problem", str(twice)]) == 2
    assert "problem 0: init: no legal state" in capsys.readouterr().err
    blocks = ["plan", "blocksworld", "--network", str(network(folder))]
    assert cli.main(blocks) == 2
    assert "is a network of puzzle-2x3" in capsys.readouterr().err


@pytest.mark.parametrize("package", ["kstar_planner", "PIL", "sklearn"])
def test_a_missing_extra_is_named(
    package: str, folder: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    if package == "kstar_planner":
        monkeypatch.setattr("setwise.planning.downward.find_spec", lambda name: None)
        monkeypatch.delenv("SETWISE_FAST_DOWNWARD", raising=False)
    else:
        from setwise.worlds import tiles

        tiles._digit.cache_clear()
        monkeypatch.setitem(sys.modules, package, None)
        monkeypatch.setitem(sys.modules, f"{package}.datasets", None)
    assert cli.main(["plan", "puzzle", "--output", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert install_command("planning") in said
    assert said.count("\n") == 1


class TestReproduce:
    def test_wrong_options(self, folder: Path, capsys: Captured) -> None:
        for options, said in (
            (["--preset", "huge"], "table5 has no huge; it has paper, quick"),
            (["--preset", "quick", "--scenarios", "blocks-3"], "has no blocks-3; it has puzzle-7"),
            (["--scenarios", "puzzle-9"], "has no puzzle-9; it has puzzle-7, puzzle-14, blocks-3"),
            (["--scenarios", "puzzle-7"], "train them with setwise reproduce table1"),
            (["--losses", "H", "H1H"], "--losses: the experiment has no H; it has SH, A1H"),
            (["--losses", "SH", "H1H"], "--losses: the experiment has no H1H; it has SH, A1H"),
            (["--preset", "quick", "--losses", "H"], "the experiment has no H; it has SH, A1H"),
            (["--losses", "H9"], "--losses: loss: unknown 'H9'; known: "),
        ):
            assert cli.main(["reproduce", "table5", *options]) == 2
            assert said in capsys.readouterr().err

    def test_a_network_that_is_recorded_but_gone(
        self, folder: Path, tmp_path: Path, capsys: Captured
    ) -> None:
        runs = tmp_path / "runs"
        shutil.copytree(folder / "runs", runs)
        file = runs / "networks5-quick" / network(folder).name
        command = ["reproduce", "table5", "--preset", "quick", "--runs", str(runs)]
        command += ["--results", str(tmp_path / "results")]
        other = file.rename(file.with_name("other.safetensors"))
        assert cli.main(command) == 0
        assert str(other) in capsys.readouterr().err  # whatever the file is called
        other.unlink()
        assert cli.main(command) == 0  # all is planned
        capsys.readouterr()
        command[-1] = str(tmp_path / "other")
        assert cli.main(command) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert f"{runs / 'networks5-quick' / 'networks5-quick.jsonl'} says" in said
        assert "gone from there: SH, seed 0. Put them back" in said

    def test_what_goes_wrong_is_told_in_one_line(
        self, folder: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        command = ["reproduce", "table5", "--preset", "quick", "--results", str(tmp_path)]
        with monkeypatch.context() as patch:
            patch.setenv("SETWISE_FAST_DOWNWARD", "nowhere")
            assert cli.main(command) == 2
        said = capsys.readouterr().err
        assert said.startswith("SETWISE_FAST_DOWNWARD: ")
        assert said.count("\n") == 1

        def refuse(*arguments: Any) -> None:
            raise ValueError("data: other pictures")

        with monkeypatch.context() as patch:
            patch.setattr("setwise.planning.learned.open_space", refuse)
            assert cli.main(command) == 2
        assert capsys.readouterr().err.endswith("\ndata: other pictures\n")

        # The other tables as well: here a batch that is larger than the data.
        def big(scenario: str, loss: str, seed: int) -> Config:
            config = table5.quick(scenario, loss, seed)
            return replace(config, experiment="table1-quick", schedule=Schedule(1, batch=721))

        experiment = replace(table1.QUICK, config=big)
        monkeypatch.setitem(EXPERIMENTS._entries, "table1-quick", experiment)
        command = ["reproduce", "table1", "--preset", "quick", "--device", "cpu"]
        assert cli.main([*command, "--results", str(tmp_path), "--runs", str(tmp_path)]) == 2
        assert "a batch of 721 is more than the 720" in capsys.readouterr().err

    def test_ctrl_c(
        self, folder: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What is done is recorded, and the rest is done by the same command."""
        from setwise.planning import latplan

        solve, left = latplan.LatentPlanner.solve, iter(range(7))

        def interrupted(*arguments: Any, **options: Any) -> Any:
            if next(left, None) is None:
                raise KeyboardInterrupt
            return solve(*arguments, **options)

        command = ["reproduce", "table5", "--preset", "quick", "--results", str(tmp_path)]
        with monkeypatch.context() as patch:
            patch.setattr(latplan.LatentPlanner, "solve", interrupted)
            assert cli.main([*command, "--losses", "SH"]) == 130
        assert "stopped, what was planned is recorded; to go on: setwise" in capsys.readouterr().err
        assert len(store.read(tmp_path / "table5-quick.jsonl")) == 1
        assert cli.main([*command, "--losses", "SH"]) == 0
        assert "1 scenarios to plan" in capsys.readouterr().err
        assert len(store.read(tmp_path / "table5-quick.jsonl")) == 2


class TestNetworks:
    def test_those_that_can_be_planned_with(self, folder: Path) -> None:
        found = plannable_networks([folder / "runs" / "networks5-quick"])
        assert {config.loss for _, config in found} == {SH, A1H}
        assert choose_network("puzzle", folder / "runs") == network(folder)
        assert choose_network("blocksworld", folder / "runs") is None

    def test_a_network_is_opened_with_its_domain(self, folder: Path) -> None:
        space = open_space(network(folder))
        assert space.world == PUZZLE
        assert space.config == table5.quick("4", SH, 0)
        assert not space.model.training

    def test_others_are_refused(self, folder: Path, tmp_path: Path) -> None:
        configs = {
            "missing objects": table2.quick("4", SH, 0),
            "no codes of states": table4.quick("n2-2250-random", SH, 0),
        }
        for said, config in configs.items():
            path = tmp_path / "one" / f"{config.identity}.safetensors"
            weights = build_network(config, config.data.load()).state_dict()
            checkpoint.write(path, weights, {"schema": SCHEMA, "config": config.as_dict()})
            with pytest.raises(ValueError, match=said):
                open_space(path)
        assert plannable_networks([tmp_path / "one"]) == []
        unfinished = tmp_path / "two" / "x.safetensors"
        checkpoint.write(unfinished, {"x": torch.zeros(1)}, {"runs": []})
        assert plannable_networks([tmp_path / "two"]) == []
