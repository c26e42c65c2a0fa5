"""``setwise plan`` where nothing was learned yet: it learns something small first, and once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from setwise import cli
from setwise.cli import starters
from setwise.data.blocksworld import Blocksworld
from setwise.data.blocksworld_archive import BlocksworldArchive
from setwise.experiments.recipes import table5
from setwise.experiments.saved_networks import save_network
from setwise.experiments.train import Training
from setwise.planning import LatentPlanner
from setwise.planning.seen_space import TRANSITIONS, SeenSpace, open_seen, symbols_file
from setwise.render.archive import draw_archive
from tiny_experiments import puzzle_config

Captured = pytest.CaptureFixture[str]
SMALL = replace(starters.BLOCKS, blocks=2, states=48, train=48, width=60, height=40, samples=1)


@pytest.fixture(autouse=True)
def _somewhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_puzzle_without_a_network(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tiny network stands for the quick one, which test_planning_cli.py plans with."""
    tiny = replace(
        table5.QUICK_NETWORKS,
        config=lambda scenario, loss, seed: replace(
            puzzle_config(scenario, "SH", seed), experiment=table5.QUICK_NETWORKS.name
        ),
    )
    monkeypatch.setattr(table5, "QUICK_NETWORKS", tiny)
    assert cli.main(["plan", "puzzle", "--steps", "2"]) in (0, 1)  # it has hardly learned
    said = capsys.readouterr()
    assert "runs holds no network of the puzzle: a small one is trained, once" in said.err
    [network] = Path("runs/networks5-quick").glob("*.safetensors")
    assert f"network    {network}" in said.out
    assert json.loads(Path("plans/plans.json").read_text())
    [record] = Path("runs/networks5-quick/networks5-quick.jsonl").read_text().splitlines()
    assert json.loads(record)["run"] == network.stem
    assert not Path("results").exists()
    before = network.stat().st_mtime_ns
    cli.main(["plan", "puzzle", "--steps", "2"])
    assert "trained" not in capsys.readouterr().err
    assert network.stat().st_mtime_ns == before


def test_the_network_of_the_demonstration_is_found(capsys: Captured) -> None:
    network = Path("demo/set_cross_entropy.safetensors")
    save_network(network, Training([puzzle_config()], "cpu"), 0)
    assert cli.main(["plan", "puzzle", "--steps", "1"]) in (0, 1)
    said = capsys.readouterr()
    assert f"network    {network}" in said.out
    assert said.err == ""


def test_a_blocksworld_without_a_network(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starters, "BLOCKS", SMALL)
    monkeypatch.setattr("setwise.render.dataset._cores", lambda: 1)
    assert cli.main(["plan", "blocksworld", "--steps", "3", "--seed", "1"]) == 0
    said = capsys.readouterr()
    assert "runs holds no network of the blocksworld: 48 pictures are sketched" in said.err
    archive = SMALL.archive(Path("runs"))
    assert f"symbols    {symbols_file(archive)}" in said.out
    assert "4 looks in 3 columns, and no network" in said.out
    assert "decoding   48 of 48 states come back" in said.out
    assert "checked    optimal plan" in said.out
    [record] = json.loads(Path("plans/plans.json").read_text())
    assert record["valid"]
    # Once: neither pictures nor symbols are made again, nor is their file taken for a network.
    assert cli.main(["plan", "blocksworld", "--steps", "3", "--seed", "2"]) == 0
    assert capsys.readouterr().err == ""
    assert cli.main(["plan", "blocksworld", "--record", "kept"]) == 2
    assert "--record: the page is about networks" in capsys.readouterr().err
    # Other pictures in their place have other symbols.
    there = BlocksworldArchive.read(archive)
    replace(there, patches=there.patches // 2).write(archive)
    assert cli.main(["plan", "blocksworld", "--steps", "1"]) == 0
    assert "symbols are learned from the pictures in" in capsys.readouterr().err


# Slow: it draws and learns. The test above plans over symbols of the same pictures.
@pytest.mark.slow
def test_an_archive_of_any_blocks(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("setwise.render.dataset._cores", lambda: 1)
    folder = Path("mine")
    path, _ = draw_archive(SMALL.render_settings(), None, folder)
    command = ["plan", "blocksworld", "--archive", str(path)]
    assert cli.main([*command, "--steps", "3", "--seed", "1"]) == 0
    said = capsys.readouterr()
    assert f"symbols    {symbols_file(path)}" in said.out
    assert "checked    optimal plan" in said.out
    assert said.err == f"symbols are learned from the pictures in {path}\n"
    with monkeypatch.context() as terminal:
        terminal.setenv("FORCE_COLOR", "1")
        cli.main(command)
    again = capsys.readouterr()
    shown = ["looking at the pictures", "encoding all states", "Fast Downward searches", "drawing"]
    assert all(text in again.err and text not in again.out for text in shown)
    assert "are learned" not in again.err  # once
    cli.main([*command, "--transitions", "100"])
    said = capsys.readouterr()
    assert "2 looks for 4 kinds, 2 blocks in two materials: some states are" in said.err
    assert "learn from more, as by --transitions 400\n" in said.err
    assert f"symbols    {symbols_file(path, 100)}" in said.out
    # Nothing but black: more steps would not help.
    there = BlocksworldArchive.read(path)
    replace(there, patches=there.patches * 0).write(path)
    cli.main(command)
    steps = len(there.transitions)
    assert f"all {steps} steps that there are were learned from\n" in capsys.readouterr().err


# Slow: it draws. Other archives that are refused are in test_planning_photographs.py.
@pytest.mark.slow
def test_an_archive_that_will_not_do(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("setwise.render.dataset._cores", lambda: 1)
    folder = Path("mine")
    path, _ = draw_archive(SMALL.render_settings(), None, folder)
    fewer, _ = draw_archive(SMALL.render_settings(), 20, folder)
    command = ["plan", "blocksworld", "--archive", str(path)]
    settings = folder / "settings.json"
    for words, message in (
        (["--network", "x"], "--archive: instead of a network, and --network names one"),
        (["--archive", "x"], "--archive: expected a file, x is not there"),
        (["--archive", str(settings)], f"{settings}: damaged, or no archive at all"),
        (["--archive", str(fewer)], f"{fewer}: planning needs pictures of all 48 states"),
    ):
        assert cli.main([*command, *words]) == 2
        assert capsys.readouterr().err.startswith(message)
    assert cli.main([*command[:2], "--network", str(path)]) == 2
    assert capsys.readouterr().err.endswith("is an archive of pictures; name it by --archive\n")
    assert cli.main(["plan", "puzzle", *command[2:]]) == 2
    assert capsys.readouterr().err.startswith("--archive: holds pictures of blocks, and the world")
    assert cli.main([*command[:2], "--transitions", "7"]) == 2
    assert capsys.readouterr().err.startswith("--transitions: those of pictures; name these by")
    with pytest.raises(SystemExit):
        cli.main(["plan", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert f"of --archive to learn from; default: {TRANSITIONS} " in said
    reader = SimpleNamespace(path="reader", data=SimpleNamespace(world_name="blocks-4x3"))
    pictures = SimpleNamespace(reader=reader)
    with monkeypatch.context() as patched:
        patched.setattr("setwise.cli.plan.given_pictures", lambda options: pictures)
        assert cli.main(command) == 2
    assert "pictures of blocks-4x3, and plans would be of blocks-2x3" in capsys.readouterr().err
    drawn = json.loads(settings.read_text())
    world = {"environment": drawn["environment"]}
    for told, message in (
        ({"seed": 0}, f"{settings}: expected the world of its environment, and a seed"),
        (world | {"seed": -1}, f"{settings}: seed: must be at least 0, got -1"),
        (_with_blocks(drawn, 1), f"{settings}: expected at least 2 blocks, got 1"),
        (_with_blocks(drawn, 3), f"{path}: expected 3 blocks, those of Blocksworld(blocks=3"),
    ):
        settings.write_text(json.dumps(told))
        assert cli.main(command) == 2
        assert capsys.readouterr().err.startswith(message)
    assert not list(folder.glob("symbols-*"))  # of what is refused, nothing is learned


def _with_blocks(drawn: dict[str, Any], blocks: int) -> dict[str, Any]:
    environment = drawn["environment"]
    return drawn | {
        "environment": environment | {"world": environment["world"] | {"blocks": blocks}}
    }


@pytest.mark.parametrize(("name", "option"), [("puzzle", "--runs"), ("blocksworld", "--data")])
def test_where_nothing_can_be_kept(name: str, option: str, capsys: Captured) -> None:
    Path("file").write_text("no folder")
    assert cli.main(["plan", name, option, "file"]) == 2
    assert capsys.readouterr().err == f"{option}: expected a folder, file is a file\n"


# Slow: it sketches 480 pictures. The test above does the same with a tenth of them.
@pytest.mark.slow
def test_three_blocks_as_they_are(capsys: Captured) -> None:
    """Every state comes back; so all plans are right."""
    assert cli.main(["plan", "blocksworld", "--steps", "14"]) == 0
    assert "checked    optimal plan" in capsys.readouterr().out
    world = Blocksworld(starters.BLOCKS.blocks, starters.BLOCKS.stacks)
    space = open_seen(starters.BLOCKS.archive(Path("runs")), world, starters.BLOCKS.seed)
    assert isinstance(space, SeenSpace)
    with LatentPlanner(space.model, space.world) as planner:
        health = planner.health()
    assert (health.states, health.codes, health.recovered) == (480, 480, 480)
