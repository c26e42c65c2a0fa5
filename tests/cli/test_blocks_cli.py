"""``setwise data blocksworld`` and ``setwise reproduce table3``, whole, on a tiny budget."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from setwise import cli
from setwise.cli.installed import install_command
from setwise.data import Blocksworld
from setwise.data.blocksworld_archive import BlocksworldArchive
from setwise.experiments import store
from setwise.experiments.config import Config, Schedule
from setwise.experiments.experiment import Experiment
from setwise.experiments.networks import Autoencoder
from setwise.experiments.recipes import table3
from setwise.experiments.tasks import BlocksData
from setwise.render import Environment, Settings, collect, render_states
from tiny_recipe import make_known

SMALL = ["--blocks", "2", "--stacks", "2", "--width", "60", "--height", "40", "--samples", "8"]
COMMAND = ["data", "blocksworld", *SMALL, "--states", "5", "--seed", "3"]
Captured = pytest.CaptureFixture[str]
# What a script starts in the background does not hear Ctrl-C, and tests may be run there.
HEARS_CTRL_C = """
import signal
import sys
from setwise import cli
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_pictures_and_their_archive(tmp_path: Path, capsys: Captured) -> None:
    assert cli.main([*COMMAND, "--workers", "1"]) == 0
    said = capsys.readouterr()
    folder = Path("runs/blocksworld-2-60x40")
    archive = folder / "states-5.npz"
    assert f"5 pictures: {folder / 'images'}\n" in said.out
    assert f"transitions: {archive}\n" in said.out
    assert f"sha256 {hashlib.sha256(archive.read_bytes()).hexdigest()}" in said.out
    assert "5 of 5 pictures" in said.err
    assert "a minute, 0:00 left" in said.err

    # The same as by hand.
    world = Blocksworld(2, 2)
    settings = Settings(Environment.draw(world, 3), seed=3, width=60, height=40, samples=8)
    render_states(settings, world.sample(5, 3), tmp_path / "own", workers=1)
    own = collect(world, world.sample(5, 3), tmp_path / "own")
    found = BlocksworldArchive.read(archive)
    assert (found.patches == own.patches).all()
    assert (found.boxes == own.boxes).all()
    assert found.transitions.tolist() == own.transitions.tolist()

    # Again: nothing is drawn, and nothing changes.
    before = archive.read_bytes()
    assert cli.main(COMMAND) == 0
    assert "5 of 5" not in capsys.readouterr().err
    assert archive.read_bytes() == before


def test_all_states(capsys: Captured) -> None:
    """The same as their number: in the order of the seed, under the name that training expects."""
    tiny = [*SMALL[4:], "--blocks", "1", "--stacks", "2", "--output", "x", "--workers", "1"]
    assert cli.main(["data", "blocksworld", *tiny, "--states", "all"]) == 0
    assert "4 pictures: x/images\n" in capsys.readouterr().out
    assert [path.name for path in Path("x").glob("*.npz")] == ["states-4.npz"]
    content = Path("x/states-4.npz").read_bytes()
    found, world = BlocksworldArchive.read("x/states-4.npz"), Blocksworld(1, 2)
    ranks = world.rank(world.sample(4, seed=0))
    assert ranks.tolist() != sorted(ranks.tolist())
    pairs = ranks[torch.from_numpy(found.transitions)].tolist()
    assert sorted(pairs) == sorted(world.transitions().tolist())
    assert cli.main(["data", "blocksworld", *tiny, "--states", "4"]) == 0
    assert Path("x/states-4.npz").read_bytes() == content


def test_more_states_than_can_be_listed(capsys: Captured) -> None:
    size = ["--width", "300", "--height", "200"]
    assert cli.main([*COMMAND, *size, "--blocks", "7", "--states", "all"]) == 2
    assert "too large to list all" in capsys.readouterr().err


# Slow: three processes load Mitsuba. test_cli.py interrupts a training, and the test above draws.
@pytest.mark.slow
def test_ctrl_c_is_one_line_and_the_same_command_goes_on(tmp_path: Path, capsys: Captured) -> None:
    command = ["data", "blocksworld", *SMALL, "--states", "all", "--workers", "2"]
    process = subprocess.Popen(
        [sys.executable, "-c", HEARS_CTRL_C, *command],
        cwd=tmp_path,
        env=dict(os.environ, OMP_NUM_THREADS="1"),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if " of 24 pictures" in line:
                os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes
                break
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, said
    lines = [line for line in said.splitlines() if " of 24 pictures" not in line]
    command_line = " ".join(command)
    assert lines == [f"stopped; the pictures so far are kept, to go on: setwise {command_line}"]
    there = list((tmp_path / "runs/blocksworld-2-60x40/images").iterdir())
    assert 0 < len(there) < 24
    assert cli.main([*command[:-1], "1"]) == 0
    assert "24 of 24 pictures" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--states", "9999"], "count: must be in 0..24"),
        (["--blocks", "0"], "blocks: must be at least 1"),
        (["--height", "10"], "would cut off states"),
        (["--workers", "0"], "workers: must be at least 1"),
        (["--renderer", "blender", "--blender", "/nowhere"], "/nowhere is no program"),
    ],
)
def test_wrong_options_are_told_in_a_line(wrong: list[str], said: str, capsys: Captured) -> None:
    assert cli.main([*COMMAND, *wrong]) == 2
    message = capsys.readouterr().err
    assert said in message
    assert message.count("\n") == 1


def test_wrong_words(capsys: Captured) -> None:
    for wrong in (["--states", "some"], ["--states", "0"], ["--renderer", "povray"]):
        with pytest.raises(SystemExit):
            cli.main(["data", "blocksworld", *wrong])
    assert "expected a number of states or all, got 'some'" in capsys.readouterr().err


def test_other_settings_in_the_same_folder(capsys: Captured) -> None:
    assert cli.main([*COMMAND, "--workers", "1"]) == 0
    assert cli.main([*COMMAND, "--seed", "4"]) == 2
    assert "other settings" in capsys.readouterr().err


# Slow: two processes. tests/render/test_render_folders.py has the same message in one, and
# test_cli.py that a command tells of a missing package.
@pytest.mark.slow
def test_without_the_renderer() -> None:
    """Also where training asks for pictures: the extra is the one of the renderer."""
    code = (
        "import sys; sys.modules['mitsuba'] = None; from setwise import cli; sys.exit(cli.main())"
    )
    for command in (COMMAND, ["reproduce", "table3", "--preset", "quick"]):
        process = subprocess.run(
            [sys.executable, "-c", code, *command], check=False, capture_output=True, text=True
        )
        assert process.returncode == 2, process.stderr
        said = f"needs mitsuba; install it with {install_command('render')}"
        assert said in process.stderr.splitlines()[-1]


def tiny(scenario: str, loss: str, seed: int) -> Config:
    return replace(
        table3.paper(scenario, loss, seed),
        experiment="table3-tiny",
        data=BlocksData(
            blocks=2,
            stacks=2,
            states=8,
            width=60,
            height=40,
            samples=8,
            train=6,
            patch_channels=1,
            patch_epochs=1,
            patch_batch=6,
        ),
        network=Autoencoder(
            element_widths=(8,), widths=(8,), latent=4, decoder_width=8, start_at_prototypes=True
        ),
        schedule=Schedule(epochs=2, batch=3, evaluations=2),
    )


def experiment(*scenarios: str) -> Experiment:
    named = dict.fromkeys(scenarios, "a tiny one")
    return replace(table3.QUICK, name="table3-tiny", config=tiny, scenarios=named)


# Slow: processes load Mitsuba, and eight networks train. test_cli.py reproduces a table whole, and
# tests/experiments/test_blocks_experiments.py trains on blocks.
@pytest.mark.slow
def test_from_nothing_to_table_3(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """One command draws, trains the patch autoencoder and the networks, and shows the table."""
    make_known(monkeypatch, experiment("1", "3"))
    command = ["reproduce", "table3", "--preset", "tiny", "--device", "cpu", "--data", "pictures"]
    assert cli.main(command) == 0
    said = capsys.readouterr()
    assert "drawing 8 pictures into pictures/blocksworld-2-60x40" in said.err
    assert "table3-tiny: epoch 2 of 2" in said.err
    records = store.read(Path("results/table3-tiny.jsonl"))
    archive = Path("pictures/blocksworld-2-60x40/states-8.npz")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert {record["config"]["data"]["sha256"] for record in records} == {digest}
    assert len(records) == 8

    # Nothing is done twice.
    assert cli.main(command) == 0
    said = capsys.readouterr()
    assert "drawing" not in said.err
    assert "8 of them recorded in results, 0 to train" in said.err

    assert cli.main(["tables", "--json"]) == 0
    cells = json.loads(capsys.readouterr().out)["table3-tiny"]
    by_loss = {(c["loss"], c["scenario"]): c for c in cells}
    assert len(by_loss) == 8
    ours = "set_cross_entropy", "1"
    assert by_loss[ours]["best"] == pytest.approx(
        min(r["metrics"]["rmse"] for r in records if (r["loss"], r["scenario"]) == ours), abs=1e-6
    )
    assert torch.tensor([c["best"] for c in cells]).gt(0).all()

    # With the records alone, as others get them: nothing is drawn only to find that all is done.
    shutil.rmtree("pictures")
    assert cli.main(command) == 0
    assert "8 of them recorded in results, 0 to train" in capsys.readouterr().err
    assert not Path("pictures").exists()


def test_pictures_drawn_in_another_way(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """They would be recorded as what they are not."""
    make_known(monkeypatch, experiment("1"))
    drawn = ["data", "blocksworld", *SMALL, "--states", "8", "--seed", "7", "--workers", "1"]
    assert cli.main(drawn) == 0
    capsys.readouterr()
    assert cli.main(["reproduce", "table3", "--preset", "tiny", "--device", "cpu"]) == 2
    said = capsys.readouterr().err
    assert "(seed 7 instead of 0)" in said
    assert said.count("\n") == 1
    assert not Path("results").exists()
