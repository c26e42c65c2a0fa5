"""Experiments, their sheets and references, and the records that are committed."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

import setwise.experiments
from recorded import RESULTS
from setwise.experiments import Experiment, Reference, Sheet, records, store
from setwise.experiments.config import Config, config_from
from setwise.experiments.networks import RuleLearner
from setwise.experiments.recipes import EXPERIMENTS, PLANNED
from setwise.experiments.tasks import BlocksData, PuzzleData, Task
from setwise.report.page.cells import said_of_cells
from tiny_recipe import EXPERIMENT

H, SH = "ordered_cross_entropy", "set_cross_entropy"
SHEETS = {name: experiment.sheet for name, experiment in EXPERIMENTS.items()} | PLANNED


class TestExperiment:
    def test_unknown_losses_are_refused_at_once(self) -> None:
        """Before anything is trained, with those that there are."""
        with pytest.raises(ValueError, match="loss: unknown 'SH'; known: ordered_cross_entropy, "):
            replace(EXPERIMENT, losses=("SH",))

    @pytest.mark.parametrize("name", ["", "a/b", "/a", "..", ".hidden", "cost"])
    def test_a_name_is_that_of_files(self, name: str) -> None:
        with pytest.raises(ValueError, match=r"name: (expected one that files can|cost\.jsonl)"):
            replace(EXPERIMENT, name=name)
        with pytest.raises(ValueError, match="experiment: expected one that files can have"):
            replace(EXPERIMENT.config("1", H, 0), experiment=f"../{name}")
        assert replace(EXPERIMENT, name="my own, v1.2").sheet.name == "my own, v1.2"

    def test_its_runs(self) -> None:
        every = EXPERIMENT.configs()
        assert len(every) == 2 * 4 * 2
        assert len(set(every)) == len(every)
        assert every[0] == EXPERIMENT.config("1", H, 0)
        some = EXPERIMENT.configs([7, 5], ["3"], [SH])
        assert some == [EXPERIMENT.config("3", SH, seed) for seed in (7, 5)]
        assert EXPERIMENT.configs(seeds=[]) == []

    def test_not_every_loss_in_every_scenario(self, tmp_path: Path) -> None:
        some = replace(EXPERIMENT, cells=[("1", SH), ("3", H)])
        for one in (some, replace(some, cells=[*reversed(some.cells)])):  # in their order
            runs = dict.fromkeys((run.scenario, run.loss) for run in one.configs())
            assert list(runs) == one.cells
        for wrong in ([], [["1", SH]], [("1", SH, 3)], [("1", SH), ("1", SH)]):
            with pytest.raises(ValueError, match=r"cells: expected different pairs \(scenario"):
                replace(EXPERIMENT, cells=wrong)
        assert [run.loss for run in some.configs(scenarios=["3"])] == [H, H]
        with pytest.raises(ValueError, match=f"none of these there; it has 1 with {SH}; 3 with"):
            some.configs(scenarios=["1"], losses=[H])
        with pytest.raises(ValueError, match=r"cells: \('9', .*unknown scenario; there are 1, 3"):
            replace(EXPERIMENT, cells=[("9", SH)])
        with pytest.raises(ValueError, match="unknown loss; there are"):
            replace(EXPERIMENT, cells=[("1", "assignment_cross_entropy")])
        some.sheet.write(tmp_path)
        assert Sheet.read(tmp_path / f"{some.name}.json") == some.sheet
        assert [some.sheet.compares("3", loss) for loss in (SH, H)] == [False, True]
        assert "0 of 2 recorded; 2 not recorded yet" in said_of_cells(
            replace(some.sheet, reference=None), []
        )

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"experiment": "table1"}, "experiment 'table1'; it must be 'table1-tiny'"),
            ({"scenario": "3"}, "scenario '3'; it must be '1'"),
            ({"loss": "hausdorff"}, f"loss 'hausdorff'; it must be '{H}'"),
            ({"seed": 7}, "seed 7; it must be 0"),
        ],
    )
    def test_a_run_is_the_one_that_was_asked_for(self, change: dict[str, Any], said: str) -> None:
        """Else it would be recorded, or kept, as another."""

        def config(scenario: str, loss: str, seed: int) -> Config:
            return replace(EXPERIMENT.config(scenario, loss, seed), **change)

        wrong = replace(EXPERIMENT, config=config)
        with pytest.raises(ValueError, match=rf"^table1-tiny: config\('1', '{H}', 0\) .*{said}$"):
            wrong.configs([0], ["1"], [H])

    @pytest.mark.parametrize("name", EXPERIMENTS)
    def test_those_of_the_library(self, name: str) -> None:
        experiment = EXPERIMENTS[name]
        assert experiment.name == name
        assert len(set(experiment.configs())) == (
            len(experiment.scenarios) * len(experiment.losses) * experiment.seeds
        )
        assert experiment.command.startswith("setwise reproduce table")

    def test_run(self, tmp_path: Path) -> None:
        """The function is what the package gives, whichever modules were imported before."""
        from setwise.experiments.run import train

        assert setwise.experiments.run.__module__ == train.__module__
        found = setwise.experiments.run(
            EXPERIMENT, "cpu", results=tmp_path, runs=None, seeds=[1], losses=[SH]
        )
        assert [(r["scenario"], r["loss"], r["seed"]) for r in found] == [
            ("1", SH, 1),
            ("3", SH, 1),
        ]
        assert Sheet.read(tmp_path / "table1-tiny.json") == EXPERIMENT.sheet
        assert records.read(tmp_path / "table1-tiny.jsonl") == found
        again = setwise.experiments.run(
            EXPERIMENT, "cpu", results=tmp_path, runs=None, seeds=[1], scenarios=["3"]
        )
        assert len(again) == 2 + 3
        assert again[:2] == found

    def test_a_name_of_the_library_is_not_for_another(self, tmp_path: Path) -> None:
        for name in ("table1", "table5"):
            with pytest.raises(
                ValueError, match=f"^name: '{name}' is an experiment of the library"
            ):
                setwise.experiments.run(replace(EXPERIMENT, name=name), "cpu", results=tmp_path)
        assert list(tmp_path.iterdir()) == []

    def test_runs_of_another_setting_are_not_added_to_a_cell(self, tmp_path: Path) -> None:
        """As by the command: nothing is trained, and what is there stays as it is."""
        what: dict[str, Any] = {"results": tmp_path, "runs": None, "losses": [SH]}
        setwise.experiments.run(EXPERIMENT, "cpu", seeds=[0], **what)
        before = {path: path.read_bytes() for path in tmp_path.iterdir()}

        def longer(scenario: str, loss: str, seed: int) -> Config:
            config = EXPERIMENT.config(scenario, loss, seed)
            return replace(config, schedule=replace(config.schedule, epochs=7))

        other = replace(EXPERIMENT, config=longer, title="Longer")
        with pytest.raises(
            ValueError, match=rf"runs of {SH} in scenario 1 differ in schedule\.epo"
        ):
            setwise.experiments.run(other, "cpu", seeds=[1], **what)
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before

    def test_networks_are_kept_in_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"^keep: .* got runs None; name a folder"):
            setwise.experiments.run(
                EXPERIMENT, "cpu", results=tmp_path, runs=None, keep=lambda results: ()
            )
        assert not (tmp_path / "table1-tiny.jsonl").exists()


class TestMetric:
    """The number that an experiment compares may be any that its runs have."""

    def run(self, metric: str, folder: Path, **options: Any) -> list[records.Record]:
        return setwise.experiments.run(
            replace(EXPERIMENT, metric=metric),
            "cpu",
            results=folder,
            runs=None,
            seeds=[0],
            scenarios=["3"],
            losses=[SH],
            **options,
        )

    @pytest.mark.parametrize("metric", ["success", "exact", "train", "heldout", "loss"])
    def test_it_has_curves_that_end_in_it(self, metric: str, tmp_path: Path) -> None:
        (record,) = self.run(metric, tmp_path)
        assert len(record["history"][metric]) == 6
        assert record["history"][metric][-1] == pytest.approx(record["metrics"][metric], abs=1e-5)

    def test_one_that_is_misspelt_is_told_before_anything_is_trained(self, tmp_path: Path) -> None:
        def never(*given: Any) -> None:
            raise AssertionError("it was trained")

        said = (
            "metric: table1-tiny has no 'exacct'; its runs have success, exact, loss, train, held"
        )
        with pytest.raises(ValueError, match=said):
            self.run("exacct", tmp_path, watch=never)
        assert not (tmp_path / "table1-tiny.jsonl").exists()


class TestSheet:
    @pytest.mark.parametrize("name", SHEETS)
    def test_it_comes_back_from_its_file(self, name: str, tmp_path: Path) -> None:
        SHEETS[name].write(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == [f"{name}.json"]
        assert Sheet.read(tmp_path / f"{name}.json") == SHEETS[name]

    def test_it_tells_what_the_experiment_is(self) -> None:
        sheet = EXPERIMENT.sheet
        for name in ("name", "title", "scenarios", "metric", "better", "command", "reference"):
            assert getattr(sheet, name) == getattr(EXPERIMENT, name)
        assert sheet.losses[SH].symbol == "SH"
        assert sheet.losses[SH].label == "set cross entropy"

    def test_a_file_that_says_the_same_is_left_alone(self, tmp_path: Path) -> None:
        EXPERIMENT.sheet.write(tmp_path)
        path = tmp_path / "table1-tiny.json"

        def written() -> tuple[int, ...]:  # not when it was read, which it may be
            found = path.stat()
            return found.st_ino, found.st_mtime_ns, found.st_ctime_ns

        before = written()
        EXPERIMENT.sheet.write(tmp_path)
        assert written() == before
        replace(EXPERIMENT.sheet, title="Another").write(tmp_path)
        assert Sheet.read(path).title == "Another"

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"better": "best"}, "better: expected one of higher, lower, got 'best'"),
            (
                {"losses": {SH: {"symbol": "SH", "label": "x", "colour": "red"}}},
                "expected one such",
            ),
            ({"losses": {SH: {"symbol": "SH"}}}, "missing 2 required positional arguments"),
            ({"reference": {}}, "missing 2 required positional arguments"),
            ({"losses": None}, "has no attribute 'items'"),
            ({"colour": "x"}, "unexpected keyword argument 'colour'"),
        ],
    )
    def test_what_is_none(self, change: dict[str, Any], said: str, tmp_path: Path) -> None:
        EXPERIMENT.sheet.write(tmp_path)
        path = tmp_path / "table1-tiny.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
        with pytest.raises(ValueError, match=f"^{path}: not the sheet of an experiment: .*{said}"):
            Sheet.read(path)

    def test_what_is_no_json(self, tmp_path: Path) -> None:
        path = tmp_path / "x.json"
        path.write_text("{")
        with pytest.raises(ValueError, match=r"x\.json: not the sheet of an experiment"):
            Sheet.read(path)

    def test_what_is_no_file(self, tmp_path: Path) -> None:
        path = tmp_path / "table1-tiny.json"
        os.mkfifo(path)
        with pytest.raises(ValueError, match=f"^{path}: not the sheet.*: expected a file, .* pipe"):
            Sheet.read(path)
        with pytest.raises(OSError, match=f"^{path}: expected the name of a file, it is a pipe"):
            EXPERIMENT.sheet.write(tmp_path)

    def test_numbers_of_a_reference(self) -> None:
        """One that fails there, or is on another scale, is nothing to reach."""
        reference = Reference("a book", {SH: {"1": 0.9, "3": 0.0}}, decimals=1)
        sheet = replace(EXPERIMENT.sheet, reference=reference)
        assert sheet.published(SH, "1") == 0.9
        assert sheet.published(H, "1") is sheet.published(SH, "2") is None
        assert [sheet.reaches(value, 0.9) for value in (0.84, 0.86, 1.0)] == [False, True, True]
        assert not sheet.reaches(1.0, 0.0)
        assert not sheet.reaches(1.0, None)
        errors = replace(sheet, better="lower")
        assert [errors.reaches(value, 0.9) for value in (0.94, 0.96)] == [True, False]
        assert errors.best_first([3.0, 1.0, 2.0]) == [1.0, 2.0, 3.0]
        scaled = replace(sheet, reference=replace(reference, other_scale="of another size"))
        assert not scaled.reaches(1.0, 0.9)
        assert not replace(sheet, reference=None).reaches(1.0, 0.9)
        assert replace(sheet, reference=None).published(SH, "1") is None
        assert (reference.format(0.25), sheet.format(0.25)) == ("0.2", "0.25")


COMMITTED = sorted(path.stem for path in RESULTS.glob("*.jsonl") if path.name != store.COSTS)


def test_every_table_is_committed() -> None:
    assert set(COMMITTED) >= {"table1", "table2", "table3", "table4", "table5", "networks5"}
    assert sorted(path.stem for path in RESULTS.glob("*.json")) == COMMITTED


# Those of studies, which come with the source alone, have a test of their own.
STUDIES = {name for name in COMMITTED if "studies/" in Sheet.read(RESULTS / f"{name}.json").command}


@pytest.mark.parametrize("name", sorted(set(COMMITTED) - STUDIES))
def test_committed_sheets_are_those_of_the_library(name: str) -> None:
    """``setwise reproduce`` writes them; a change of an experiment has to be written, too."""
    assert Sheet.read(RESULTS / f"{name}.json") == SHEETS[name]


@pytest.mark.parametrize("name", [name for name in COMMITTED if name in EXPERIMENTS])
def test_committed_records_are_runs_of_their_experiments(name: str) -> None:
    """With the very settings of today, whenever they were recorded: each seed of every cell."""
    experiment: Experiment = EXPERIMENTS[name]
    found = records.read(RESULTS / f"{name}.jsonl")
    assert {record["schema"] for record in found} == {2}
    configs = [config_from(record["config"]) for record in found]
    assert [config.loss for config in configs] == [record["loss"] for record in found]
    assert {unbound(config) for config in configs} == set(experiment.configs())
    assert len(configs) == len(experiment.configs())


def unbound(config: Config) -> Config:
    """Without the pictures that it was trained on."""
    if not isinstance(config.data, BlocksData):
        return config
    assert len(config.data.sha256) == 64
    return replace(config, data=replace(config.data, sha256=""))


def test_only_what_an_experiment_has_can_be_asked_of_it() -> None:
    table = EXPERIMENTS["table1"]
    with pytest.raises(ValueError, match="scenarios: table1 has no typo; it has 1, 2, 3, 4"):
        table.configs(scenarios=["typo"])
    with pytest.raises(ValueError, match="losses: table1 has no assignment_cross_entropy; it has"):
        table.configs(losses=["assignment_cross_entropy"])


def test_a_class_of_another_kind_is_refused() -> None:
    """It would be recorded, and built again, as the class that it derives from."""

    class Mine(PuzzleData):
        pass

    config = EXPERIMENTS["table1"].config("1", "set_cross_entropy", 0)
    with pytest.raises(ValueError, match="data: Mine has the kind 'puzzle' of another class"):
        replace(config, data=Mine())


def test_nested_tuples_come_back_from_a_record() -> None:
    @dataclass(frozen=True)
    class Nested(RuleLearner):
        kind: ClassVar[str] = "nested"
        widths: tuple[tuple[int, ...], ...] = ()

    config = EXPERIMENTS["table4"].configs([0])[0]
    config = replace(config, network=Nested(widths=((2, 3), (4,))))
    back = config_from(json.loads(json.dumps(config.as_dict())))
    assert back == config
    assert hash(back) == hash(config)


def test_inputs_that_look_like_sets_are_read_as_they_are() -> None:
    """Only a task whose inputs are its targets is one of reconstruction."""
    task = PuzzleData(width=2, height=2, states=24, train=20).load()
    other = Task(torch.rand(24, 1, 2), task.targets, 20, task.features)
    same = Task(task.targets, task.targets, 20, task.features)
    cpu = torch.device("cpu")
    assert [one.to(cpu).reconstructs for one in (task, other, same)] == [True, False, True]
