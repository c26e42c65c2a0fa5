"""Recordings as files: what is written is read again, and what is broken is told as such."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from setwise.cli import main
from setwise.planning import ActionModel, Recording
from setwise.planning.actions import (
    from_elements,
    read_problem,
    read_recording,
    record_walks,
    together,
    write_recording,
)
from setwise.worlds import Hanoi

LAMPS = from_elements(
    [[("red", "off")], [("red", "on"), ("blue", "on")]],
    [[("red", "on"), ("blue", "on")], []],
    ["lamp", "how"],
    ["light", "break"],
)


def sets(recording: Recording) -> list[list[list[tuple[object, ...]]]]:
    elements = recording.symbols.elements
    return [[elements(s) for s in side] for side in (recording.before, recording.after)]


@pytest.mark.parametrize("ending", ["jsonl", "npz"])
def test_a_recording_comes_back(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"steps.{ending}"
    for recording in (LAMPS, record_walks(Hanoi(3), 30, seed=0)):
        write_recording(recording, path)
        again = read_recording(path)
        assert again.symbols.names == recording.symbols.names
        assert again.actions == recording.actions
        assert sets(again) == sets(recording)


def test_recordings_of_different_boards_are_one() -> None:
    both = together([record_walks(Hanoi(disks), 10, seed=0, steps=10) for disks in (2, 3)])
    assert len(both) == 20
    assert both.symbols.values == ((0, 1, 2), (0, 1, 2))
    assert both.symbols.widths == (3, 3)  # tensors of the larger world are understood
    with pytest.raises(ValueError, match="expected recordings of the same features"):
        together([LAMPS, record_walks(Hanoi(3), 10, seed=0)])


GOOD = '{"before": [[1, 0]], "after": [[1, 1]]}'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no transition"),
        ('{"features": ["a", "b"]}\n', "holds no transition"),
        (f"{GOOD}\nnonsense\n", "line 2: not JSON"),
        (
            f"{GOOD}\n{GOOD[:20]}",
            "line 2: the file ends in the middle of a line; it was cut off aft",
        ),
        (f"{GOOD}\n[1, 2]\n", "line 2: expected"),
        (GOOD.replace("0", "1" * 401), "line 1: before: expected numbers or words, got 1"),
        (f"{GOOD}\n{GOOD.replace('0', '1' * 5000)}\n", "line 2: not JSON"),
        ('{"before": [[1]], "after": [[1]], "extra": 1}\n', "line 1: expected"),
        ('{"before": [1], "after": [[1]]}\n', "line 1: before: expected a list of elements"),
        ('{"before": [[null]], "after": [[1]]}\n', "line 1: before: expected numbers or words"),
        ('{"before": [[NaN]], "after": [[1]]}\n', "line 1: before: expected numbers or words"),
        (
            f'{GOOD}\n{{"before": [[1]], "after": []}}\n',
            r"transition 2: before: \(1,\) has 1 values",
        ),
        ('{"before": [], "after": []}\n', "all of its sets are empty"),
        (f'{{"features": ["a", "a"]}}\n{GOOD}\n', "expected different names"),
        (f'{{"features": "ab"}}\n{GOOD}\n', "expected a list of names"),
        (f'{GOOD[:-1]}, "action": "go"}}\n{GOOD}\n', "1 of 2 transitions name an action"),
        ('{"before": [[1], [1]], "after": [[1]]}\n', "is there twice before"),
    ],
)
def test_broken_lines(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_text(text)
    with pytest.raises(
        ValueError, match=rf"steps\.jsonl: (line 1: features: |transition 1: \(1,\) )?{said}"
    ):
        read_recording(path)


def test_what_arrays_cannot_hold_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "steps.npz"
    for values in (("red", 1), (2**60 + 1, 0.5), (2**70, 1)):
        recording = from_elements([[values]], [[(values[0], 2)]], ["what", "x"])
        with pytest.raises(ValueError, match=r"steps\.npz: an \.npz holds numbers or words"):
            write_recording(recording, path)
        assert not path.exists()


@pytest.mark.parametrize("ending", ["jsonl", "npz"])
def test_one_side_may_be_empty(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"steps.{ending}"
    recording = from_elements([[("a", "b")]] * 2, [[], []], ["what", "how"])
    write_recording(recording, path)
    assert sets(read_recording(path)) == sets(recording)


def test_letters_of_any_kind(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_text('{"before": [["a\u2028b"]], "after": [["c"]]}\r\n', encoding="utf-8")
    assert read_recording(path).symbols.values == (("a\u2028b", "c"),)
    path.write_bytes(b'{"before": [["\xe9"]], "after": [["\xe8"]]}\n')
    with pytest.raises(ValueError, match=r"steps\.jsonl: line 1: not UTF-8"):
        read_recording(path)


def test_broken_arrays(tmp_path: Path) -> None:
    path = tmp_path / "steps.npz"
    write_recording(LAMPS, path)
    path.write_bytes(path.read_bytes()[:400])
    with pytest.raises(ValueError, match=r"steps\.npz: damaged, or no archive at all"):
        read_recording(path)
    flat, full = np.zeros((3, 2)), np.zeros((3, 1, 2))
    for arrays, said in (
        ({"before": full}, "it has no after"),
        ({"before": flat, "after": full}, "before: expected numbers or words"),
        ({"before": full, "after": full[:2]}, "3 sets before, but 2 after"),
        ({"before": full, "after": full, "after_valid": flat}, "after_valid: expected bool"),
        ({"before": full, "after": full, "actions": np.array(["go"])}, "actions: expected 3"),
        ({"before": full.astype(object), "after": full}, "before: holds Python objects"),
    ):
        np.savez(path, **arrays)
        with pytest.raises(ValueError, match=said):
            read_recording(path)


class TestCommands:
    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.chdir(tmp_path)
        record = ["actions", "record", "hanoi-2x3", "-o", "steps.jsonl", "--transitions", "100"]
        assert main([*record, "--problem", "problem.json", "--steps", "4"]) == 0
        return tmp_path

    def test_from_a_recording_to_a_plan(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["actions", "learn", "steps.jsonl", "-o", "domain.pddl"]) == 0
        domain = (folder / "domain.pddl").read_text()
        assert "(:action change-peg-disk-0" in domain
        assert main(["actions", "plan", "steps.jsonl", "problem.json", "-o", "out"]) == 0
        assert "outcome    solved" in capsys.readouterr().out
        assert (folder / "out" / "domain.pddl").read_text() == domain
        plan = json.loads((folder / "out" / "plan.json").read_text())
        init, goal = read_problem(Path("problem.json"))
        assert [list(one) for one in init] == plan["states"][0]
        assert [list(one) for one in goal] == plan["states"][-1]
        assert len(plan["states"]) == len(plan["steps"]) + 1
        assert (folder / "out" / "problem.pddl").is_file()

    @pytest.mark.parametrize(
        ("problem", "code", "said"),
        [
            ({"init": [[0, 0], [1, 0]], "goal": [[0, 9], [1, 0]]}, 1, "unknown goal: goal: (0, 9)"),
            ({"init": [[7, 0], [1, 0]], "goal": [[0, 1], [1, 0]]}, 1, "unknown init: init: (7, 0)"),
            ({"init": [[0, 0], [1, 0]], "goal": [[0, 1]]}, 1, "unsolvable: init has 2 elements"),
            ({"init": [[0, 0], [1, 0]], "goal": [[0, 1], [0, 2]]}, 1, "unsolvable: the planner"),
            (
                {"init": [[0, 0], [0, 0]], "goal": [[0, 1], [1, 0]]},
                2,
                "init: (0, 0): is there twice",
            ),
            ({"init": [[0, 0, 0]], "goal": []}, 2, "init: (0, 0, 0): expected 2 values, disk, peg"),
            ({"init": []}, 2, 'problem.json: expected {"init": [...], "goal": [...]}'),
        ],
    )
    def test_each_outcome_has_words_of_its_own(
        self,
        folder: Path,
        capsys: pytest.CaptureFixture[str],
        problem: dict[str, object],
        code: int,
        said: str,
    ) -> None:
        (folder / "problem.json").write_text(json.dumps(problem))
        assert main(["actions", "plan", "steps.jsonl", "problem.json"]) == code
        shown = capsys.readouterr()
        assert said in (shown.out if code == 1 else shown.err)

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["record", "chess-8x8", "-o", "a.jsonl"], "WORLD: chess-8x8: world: unknown 'chess'"),
            (
                ["record", "blocksworld", "-o", "a.jsonl"],
                "a blocksworld is not made of these sizes",
            ),
            (["record", "hanoi-99x3", "-o", "a.jsonl"], "disks: must be in 1..10, got 99"),
            (["record", f"hanoi-{'9' * 5000}", "-o", "a.jsonl"], "WORLD: hanoi-999"),
            (["record", "pushing-6x6x1x1", "-o", "a.jsonl"], "walls: expected cells"),
            (
                ["record", "hanoi-2x3", "-o", "a.jsonl", "--problem", "./a.jsonl"],
                "--problem: expected another file than that of --output",
            ),
            (["record", "hanoi-2x3", "-o", "a.jsonl", "--problem", "."], "--problem: expected the"),
            (
                ["plan", "steps.jsonl", "problem.json", "--searcher", "nonsense"],
                "did not accept the task or the heuristic",
            ),
            (["learn", "nothing.jsonl", "-o", "a.pddl"], "TRANSITIONS: expected a file, nothing"),
            (["plan", "steps.jsonl", "nothing.json"], "PROBLEM: expected a file, nothing.json"),
            (["learn", "problem.json", "-o", "a.pddl"], "problem.json: line 1: expected"),
        ],
    )
    def test_what_cannot_be_done(
        self, folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
    ) -> None:
        assert main(["actions", *arguments]) == 2
        assert said in capsys.readouterr().err
        assert not (folder / "a.jsonl").exists()

    def test_a_small_room_has_the_walls_that_fit(self, folder: Path) -> None:
        assert main(["actions", "record", "pushing-4x4", "-o", "room.jsonl"]) == 0

    def test_the_domain_that_is_kept_is_the_one_that_was_planned_with(self, folder: Path) -> None:
        """Two of disk 0 were never seen, so that nothing about it follows from where one is."""
        two = {"init": [[0, 0], [0, 1], [1, 2]], "goal": [[0, 2], [0, 1], [1, 2]]}
        (folder / "problem.json").write_text(json.dumps(two))
        assert main(["actions", "plan", "steps.jsonl", "problem.json", "-o", "out"]) == 1
        model = ActionModel.learn(read_recording(Path("steps.jsonl")))
        assert (folder / "out" / "domain.pddl").read_text() == model.whole_domain.text()
        assert model.whole_domain.text() != model.domain.text()

    def test_no_problem_of_another_run_is_left(self, folder: Path) -> None:
        run = ["actions", "plan", "steps.jsonl", "problem.json", "-o", "out"]
        assert main(run) == 0
        kept = folder / "out" / "problem.pddl"
        old = kept.read_text()
        unsolvable = {"init": [[0, 0], [1, 0]], "goal": [[0, 1], [0, 2]]}
        (folder / "problem.json").write_text(json.dumps(unsolvable))
        assert main(run) == 1
        assert "(is disk-0 peg-2)" in kept.read_text() != old
        unknown = unsolvable | {"goal": [[0, 7], [1, 0]]}
        (folder / "problem.json").write_text(json.dumps(unknown))
        assert main(run) == 1
        assert not kept.exists()

    def test_contradictions_and_noise(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        lines = [GOOD[:-1] + ', "action": "go"}', GOOD.replace("[[1, 1]]", "[[1, 2]]")]
        lines[1] = lines[1][:-1] + ', "action": "go"}'
        (folder / "contradiction.jsonl").write_text("\n".join(lines) + "\n")
        assert main(["actions", "learn", "contradiction.jsonl", "-o", "a.pddl"]) == 2
        assert "transitions 1 and 2 contradict each other: 'go'" in capsys.readouterr().err
        with (folder / "steps.jsonl").open("a") as file:
            file.write('{"before": [[0, 0], [1, 0]], "after": [[0, 1], [1, 1]]}\n')
        assert main(["actions", "learn", "steps.jsonl", "-o", "a.pddl", "--support", "2"]) == 0
        assert "dropped, for want of support: 1 seen" in capsys.readouterr().out
        model = ActionModel.learn(read_recording(Path("steps.jsonl")), support=2)
        assert len(model.schemas) == 1
