"""``setwise plan blocksworld``: from an archive of patches to a network, a plan and its pictures.

The photographs are painted; see `painted_blocks`. The network is trained for a moment only; that
plans over pictures can be right is shown in test_planning_blocks.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from painted_blocks import DATA, WORLD, painted
from setwise import cli
from setwise.data.blocksworld_archive import BlocksworldArchive
from setwise.experiments import checkpoint
from setwise.experiments.config import Config, Schedule
from setwise.experiments.networks import Autoencoder
from setwise.experiments.recipes import table5
from setwise.experiments.run import train
from setwise.experiments.saved_networks import network_path
from setwise.experiments.tasks import BlocksData
from setwise.experiments.train import RunResult
from setwise.planning import problems_for
from setwise.planning.learned import choose_network, open_space
from setwise.planning.table5 import PlanningSettings, plan_network
from setwise.worlds import PicturedBlocksworld

pytestmark = pytest.mark.slow  # one training serves them all


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of runs with the archive and a network that learned from it."""
    folder = tmp_path_factory.mktemp("photographs")
    path = DATA.archive(folder)
    path.parent.mkdir()
    painted().write(path)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        train([config(folder)], "cpu", folder, folder, keep=everything, data=folder)
        yield folder
    finally:
        torch.set_num_threads(threads)


def config(folder: Path, data: BlocksData | None = None) -> Config:
    return replace(
        table5.blocks("4", "set_cross_entropy", 0),
        data=data or DATA.bound(folder),
        network=Autoencoder(
            element_widths=(64, 64), widths=(64,), latent=16, decoder_width=64, dropout=0.0
        ),
        schedule=Schedule(epochs=5, batch=24, evaluations=1),
    )


def everything(found: Sequence[RunResult]) -> list[str]:
    return [result.config.identity for result in found]


def network(folder: Path) -> Path:
    return network_path(folder, config(folder))


def test_the_network_knows_all_states(folder: Path) -> None:
    assert choose_network("blocksworld", folder) == network(folder)
    space = open_space(network(folder), folder)
    assert isinstance(space.world, PicturedBlocksworld)
    assert space.world.world == WORLD
    # Vectors come in the order of the archive and lie in that of the ranks.
    states = space.world.states()
    assert space.world._recogniser.nearest(space.world.objects(states))[0].equal(torch.arange(48))
    # What is drawn is the archive's own picture, as far as so short a training goes.
    assert space.world.paste is not None
    drawn = space.world.paste(space.world.objects(states[:1]))
    assert drawn.shape == (1, 3, DATA.height, DATA.width)


def test_a_problem(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--runs", str(folder), "--data", str(folder), "--output", str(tmp_path)]
    code = cli.main(["plan", "blocksworld", "--steps", "3", "--seed", "1", *options])
    said = capsys.readouterr().out
    assert "of 48 states come back" in said
    assert "init       [1] [0] []\ngoal       [1*] [] [0]" in said
    assert "outcome    solved" in said
    [record] = json.loads((tmp_path / "plans.json").read_text())
    assert code == (0 if record["valid"] else 1)
    length = record["report"]["length"]
    with Image.open(tmp_path / "blocks-2x3-3-seed1-strip.png") as strip:
        assert strip.width >= (length + 1) * DATA.width
    with Image.open(tmp_path / "blocks-2x3-3-seed1-animation.png") as movie:
        assert movie.n_frames > length


def test_names_that_end_like_a_picture_take_no_other_problems_pictures(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = {"stacks": [[0, 1], [], []], "materials": ["rubber", "metal"]}
    names = ("a", "a-animation", "a-strip")
    problems = [{"name": name, "init": state, "goal": state} for name in names]
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(problems))
    options = ["--runs", str(folder), "--data", str(folder), "--output", str(tmp_path / "out")]
    cli.main(["plan", "blocksworld", "--problem", str(file), *options])
    assert {path.name for path in (tmp_path / "out").glob("*.png")} == {
        f"{name}-{kind}.png" for name in names for kind in ("strip", "animation")
    }
    assert capsys.readouterr().out.count("\nstrip ") == 3


def test_a_diverged_network(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It solves nothing, and that is said, drawn and written like any other failure."""
    tensors, facts = checkpoint.read(network(folder))
    broken = {n: t * torch.nan if t.is_floating_point() else t for n, t in tensors.items()}
    file = tmp_path / "x.safetensors"
    checkpoint.write(file, broken, facts)
    options = ["--network", str(file), "--data", str(folder), "--output", str(tmp_path)]
    assert cli.main(["plan", "blocksworld", "--steps", "3", *options]) == 1
    said = capsys.readouterr().out
    assert "decoding   0 of 48 states come back" in said
    assert "has values that are no finite numbers" in said
    text = (tmp_path / "plans.json").read_text()
    [record] = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert record["valid"] is False
    assert (tmp_path / "blocks-2x3-3-seed0-strip.png").exists()


def test_the_table(folder: Path, tmp_path: Path) -> None:
    """The scenarios of the Blocksworld start anywhere; every problem gets its class."""
    scenario = replace(table5.PAPER["blocks-3"], problems=3)
    space = open_space(network(folder), folder)
    [record] = plan_network("table5", space, [scenario], tmp_path, settings=PlanningSettings())
    assert record["scenario"] == "blocks-3"
    assert len(record["problems"]) == 3
    for problem in record["problems"]:
        assert problem["valid"] == (problem["failure"] is None)
    inits = [
        one.init for one in problems_for(space.world, scenario.steps, scenario.problems, seed=0)
    ]
    assert not inits[0].equal(inits[1])


def trained_on(archive: BlocksworldArchive, data: BlocksData, folder: Path) -> Path:
    """A network that has just begun to learn from other pictures."""
    path = data.archive(folder)
    path.parent.mkdir()
    archive.write(path)
    data = replace(data.bound(folder), patch_epochs=1)
    other = replace(
        config(folder, data), schedule=Schedule(epochs=1, batch=data.train // 2, evaluations=1)
    )
    train([other], "cpu", folder, folder, keep=everything, data=folder)
    return network_path(folder, other)


@pytest.mark.slow  # a training; the first tier has another archive that is refused, below
def test_not_all_states_are_there(tmp_path: Path) -> None:
    archive, fewer = painted(), replace(DATA, states=40, train=40)
    some = replace(
        archive,
        patches=archive.patches[:40],
        boxes=archive.boxes[:40],
        transitions=archive.transitions[(archive.transitions < 40).all(-1)],
    )
    file = trained_on(some, fewer, tmp_path)
    with pytest.raises(
        ValueError, match=r"states-40\.npz: planning needs pictures of all 48 states"
    ):
        open_space(file, tmp_path)


# Slow: a training each, and all are found by the same comparison.
@pytest.mark.parametrize(
    "kind",
    [
        "other order",
        pytest.param("no transitions", marks=pytest.mark.slow),
        pytest.param("one missing", marks=pytest.mark.slow),
    ],
)
def test_pictures_of_which_it_is_not_known_what_they_show(kind: str, tmp_path: Path) -> None:
    """Taken for those of the usual order, every plan would be about other states."""
    archive = painted(seed=7) if kind == "other order" else painted()
    left_out = {"other order": 0, "no transitions": len(archive.transitions), "one missing": 1}
    pairs = archive.transitions[left_out[kind] :]
    file = trained_on(replace(archive, transitions=pairs), DATA, tmp_path)
    with pytest.raises(ValueError, match=r"states-48\.npz: its transitions are not those of"):
        open_space(file, tmp_path)


def test_a_damaged_file_is_left_out(folder: Path, tmp_path: Path) -> None:
    runs = tmp_path / "networks5"
    runs.mkdir()
    whole = network(folder).read_bytes()
    (runs / "a.safetensors").write_bytes(whole[: len(whole) // 2])
    (runs / "b.safetensors").write_bytes(whole)
    with pytest.warns(UserWarning, match=r"left out: .*a\.safetensors: damaged"):
        assert choose_network("blocksworld", tmp_path) == runs / "b.safetensors"
