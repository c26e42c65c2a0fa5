"""``setwise new``, ``train DATA`` and ``predict``: from rows of one's own to sets for others."""

from __future__ import annotations

import errno
import json
import re
import runpy
from collections.abc import Iterable
from contextlib import chdir
from functools import partial
from pathlib import Path

import pytest
import torch

from setwise import cli
from setwise.cli.new import rectangles
from setwise.data import read_rows
from setwise.data.rows import write_rows
from setwise.executors import EXECUTORS, Ended, LocalExecutor, Stop, Told, Work
from setwise.experiments import checkpoint
from setwise.experiments.answers import RowsNetwork

Captured = pytest.CaptureFixture[str]
FEW = ("--epochs", "2", "--held-out", "0.25")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_rows(Path("rooms.jsonl"), rectangles(16))
    return tmp_path


def train(*options: str) -> int:
    return cli.main(["train", "rooms.jsonl", "--target", "objects", *options])


def kept() -> Path:
    (network,) = Path("runs/rooms").glob("*.safetensors")
    return network


def test_columns_are_shown_a_network_is_kept_and_answers(folder: Path, capsys: Captured) -> None:
    assert train(*FEW) == 0
    said = capsys.readouterr()
    assert "rooms.jsonl: 16 rows, 12 to train on, 4 held out" in said.err
    assert "    kind: 2 classes (centre, corner)\n" in said.err
    assert "    marked: true or false\n" in said.err
    assert f"setwise predict {kept()} DATA" in said.out
    (record,) = read_rows(Path("results/rooms.jsonl"))
    assert {"heldout", "train", "exact"} <= record["metrics"].keys()

    # The file that was trained on is not needed, nor are the sets.
    rows = read_rows(Path("rooms.jsonl"))
    unknown = [{name: row[name] for name in row if name != "objects"} for row in rows]
    write_rows(Path("unknown.jsonl"), unknown)
    Path("rooms.jsonl").unlink()
    assert cli.main(["predict", str(kept()), "unknown.jsonl", "--output", "a.jsonl"]) == 0
    answers = read_rows(Path("a.jsonl"))
    network = RowsNetwork.load(kept())
    assert [row["objects"] for row in answers] == network.answer(rows)
    there = network.outputs(rows)[..., -1] > 0
    assert [len(row["objects"]) for row in answers] == there.sum(-1).tolist()
    for given, answered in zip(unknown, answers, strict=True):
        assert given.items() <= answered.items()
        for element in answered["objects"]:
            assert element.keys() == {"kind", "x", "y"}
            assert element["kind"] in ("corner", "centre")
    # Where they are known, it says how many are right, and the rows go to the standard output.
    write_rows(Path("known.jsonl"), rows)
    capsys.readouterr()
    assert cli.main(["predict", str(kept()), "known.jsonl"]) == 0
    said = capsys.readouterr()
    assert [json.loads(line) for line in said.out.splitlines()] == answers
    assert said.err.endswith(" of 16 sets are right\n")
    # A set that it could never put out is no reason not to answer.
    larger = rows[0] | {"objects": 2 * rows[0]["objects"]}
    write_rows(Path("known.jsonl"), [larger, *rows[1:]])
    assert cli.main(["predict", str(kept()), "known.jsonl"]) == 0
    told = capsys.readouterr()
    assert told.out == said.out
    assert re.search(r"^not judged: objects: a set of \d+, but the largest was of 5", told.err)


def test_what_is_recorded_and_not_kept_is_told(folder: Path, capsys: Captured) -> None:
    assert train(*FEW, "--keep", "none") == 0
    assert "setwise predict" not in capsys.readouterr().out
    assert train(*FEW) == 0
    assert "runs holds none of these networks" in capsys.readouterr().err


def test_work_elsewhere_finds_the_file_of_the_command(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Elsewhere(LocalExecutor):
        """As the machines of a cluster, whose processes were started in some other folder."""

        spreads = True

        def run(self, works: Iterable[Work], *, told: Told, stop: Stop) -> Ended:
            for work in works:
                with chdir("/"):
                    result = work.function(*work.arguments, tell=partial(told, work), stop=stop)
                yield work, result

    monkeypatch.setitem(EXECUTORS._entries, "elsewhere", lambda place: Elsewhere())
    assert train(*FEW, "--on", "elsewhere") == 0
    assert kept().is_file()
    # Whatever a file of a network says, it is refused before it takes memory.
    tensors, facts = checkpoint.read(kept())
    facts["config"]["data"]["size"] = 10**12
    checkpoint.write(Path("huge.safetensors"), tensors, facts)
    with pytest.raises(ValueError, match=r"huge.safetensors: \d+ numbers a row, more than"):
        RowsNetwork.load(Path("huge.safetensors"))


# Trains once more; what it shares with a predictor is tested above.
@pytest.mark.slow
def test_without_inputs_sets_are_reconstructed(folder: Path, capsys: Captured) -> None:
    assert train(*FEW, "--inputs", "--losses", "assignment_cross_entropy") == 0
    assert "  reconstructed by an autoencoder" in capsys.readouterr().err
    rows = read_rows(Path("rooms.jsonl"))
    network = RowsNetwork.load(kept())
    answers = network.answer(rows)
    shuffled = [row | {"objects": row["objects"][::-1]} for row in rows]
    torch.testing.assert_close(network.outputs(shuffled), network.outputs(rows))
    assert all(len(answer) <= 5 for answer in answers)


# Trains for some seconds; test_columns_are_shown_a_network_is_kept_and_answers is quick.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")  # that Lightning asks for
@pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers:UserWarning")
@pytest.mark.filterwarnings("ignore:GPU available but not used:UserWarning")
@pytest.mark.parametrize(
    ("options", "written_in"), [([], "plain PyTorch"), (["--lightning"], "Lightning")]
)
def test_a_new_project_trains_as_it_is(
    folder: Path, capsys: Captured, options: list[str], written_in: str
) -> None:
    assert cli.main(["new", "shop", *options]) == 0
    assert ("pip install lightning\n" in capsys.readouterr().out) == bool(options)
    assert sorted(path.name for path in Path("shop").iterdir()) == [
        *("README.md", "config.toml", "data.jsonl", "train.py")
    ]
    assert Path("shop/README.md").read_text().startswith("# shop\n")
    for name in ("README.md", "train.py"):
        assert f"{written_in}, to be changed" in Path("shop", name).read_text()
    config = Path("shop/config.toml")
    config.write_text(config.read_text().replace("steps = 1000", "steps = 300"))
    with torch.random.fork_rng():
        project = runpy.run_path("shop/train.py")
        assert project["main"]() >= 0.6
    assert sorted(path.name for path in Path("shop").iterdir()) == [
        *("README.md", "config.toml", "data.jsonl", "network.safetensors", "train.py")
    ]
    assert "of 100 held-out sets are right" in capsys.readouterr().out
    assert cli.main(["new", "shop"]) == 2
    assert capsys.readouterr().err.startswith("NAME: shop is there already")


# Slow only because the first tier is full.
@pytest.mark.slow
def test_half_a_project_is_none(
    folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patched:
        patched.setattr("setwise.cli.new.atomic_write_text", full)
        assert cli.main(["new", "shop"]) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["rooms.jsonl"]
    assert cli.main(["new", "shop"]) == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["train", "rooms.jsonl"], "--target: name the column of sets; rooms.jsonl has x, y, "),
        (["train", "rooms.jsonl", "--target", "z"], "row 1 has no column 'z'; it has x, y, "),
        (["train", "rooms.jsonl", "--target", "x"], "x: expected a list of elements in every row"),
        (
            ["train", "rooms.jsonl", "--target", "objects", "--inputs", "objects"],
            "objects: is what is predicted, and cannot be an input as well",
        ),
        (["train", "rooms.jsonl", "--target", "objects", "--losses", "L1"], "L1"),
        (["train", "rooms.jsonl", "--target", "objects", "--experiment", "a"], "--experiment: is"),
        (
            ["train", "rooms.jsonl", "--target", "objects", "--results", "."],
            "--results: rooms.jsonl are the data themselves",
        ),
        (["train", "mine.py", "--target", "objects"], "--target: is for a file of rows"),
        (["train", "none.jsonl", "--target", "a"], "FILE: expected a file, none.jsonl is not the"),
        (["predict", "rooms.jsonl", "rooms.jsonl"], "rooms.jsonl: damaged, or no checkpoint at"),
        (["predict", "none.safetensors", "rooms.jsonl"], "NETWORK: expected a file"),
        (["new", ".."], "NAME: expected one that files can have"),
    ],
)
def test_mistakes_are_told(folder: Path, capsys: Captured, options: list[str], said: str) -> None:
    assert cli.main(options) == 2
    told = capsys.readouterr().err
    assert said in told
    assert "Traceback" not in told
    assert not Path("results").exists()
