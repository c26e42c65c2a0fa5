"""Symbols as files, whatever they hold, and recordings of files that are measured."""

from __future__ import annotations

import contextlib
import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import setwise as sw
from hostile import mutated
from lit_blocks import lit_archive
from setwise.cli import main
from setwise.experiments import checkpoint
from setwise.planning import ActionModel
from setwise.planning.actions import (
    MeasuredSymbols,
    PicturedSteps,
    SeenSymbols,
    UnknownSymbolError,
    fit_symbols,
    read_recording,
    together,
)
from setwise.planning.actions.looks import Looks
from setwise.planning.actions.places import Places
from setwise.planning.actions.quantiser import Quantiser
from setwise.planning.actions.symbols import Element

# Slow: clusters are looked for. The example of MeasuredSymbols breaks when these do.
pytestmark = pytest.mark.slow

SHAKING = 0.03
HOSTILE = 60


@dataclass(frozen=True)
class Own(sw.Gaussian):
    """A family of a user's."""


def drawn(count: int, seed: int) -> list[dict[str, Any]]:
    """Boats and a buoy at three places of a lake; a boat turns by a quarter, or sails away."""
    rng = random.Random(seed)
    places = [(0.0, 0.0), (0.0, 7.0), (5.0, 7.0)]

    def seen(things: dict[str, list[int]]) -> list[list[Any]]:
        found = []
        for name, (place, heading) in things.items():
            x, y = (one + 5 * SHAKING * rng.gauss(0, 1) for one in places[place])
            found.append([x, name, (heading + SHAKING * rng.gauss(0, 1)) * math.pi / 2, y])
        rng.shuffle(found)
        return found

    lines = []
    for _ in range(count):
        where = rng.sample(range(3), 2)
        things = {"red": [where[0], rng.randrange(4)], "blue": [where[1], rng.randrange(4)]}
        if rng.random() < 0.5:
            things["buoy"] = [3 - sum(where), 0]
        line: dict[str, Any] = {"before": seen(things)}
        boat = rng.choice(["red", "blue"])
        if "buoy" not in things and rng.random() < 0.5:
            things[boat][0] = 3 - sum(where)
            line["action"] = f"sail {boat}"
        else:
            things[boat][1] = (things[boat][1] + 1) % 4
            line["action"] = f"turn {boat}"
        lines.append(line | {"after": seen(things)})
    return lines


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("measured") / "steps.jsonl"
    lines = [{"features": ["x", "name", "heading", "y"]}, *drawn(300, seed=0)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture(scope="module")
def saved(file: Path) -> Path:
    """What the command keeps."""
    path = file.parent / "symbols.safetensors"
    options = ["--measured", "x,y", "--angles", "heading", "--symbols", str(path)]
    domain = str(file.parent / "domain.pddl")
    assert main(["actions", "learn", str(file), "-o", domain, *options]) == 0
    return path


def test_a_file_comes_back_with_words(saved: Path) -> None:
    symbols = MeasuredSymbols.load(saved)
    assert symbols.sizes == {"x-y": 3, "name": 3, "heading": 4}
    assert symbols.stable == 1.0
    assert [type(one).__name__ for one in symbols.features.blocks] == [
        *("Gaussian", "Categorical", "Angle")
    ]
    there = torch.tensor([[[0.1, 6.9, 0.0, 0.0, 1.0, 2 * math.pi - 0.05]]])
    [[element]] = symbols.encode(there)
    assert element[:2] == (1, "red")
    again = symbols.decode([element])
    assert again[0].tolist() == pytest.approx([0, 7, 0, 0, 1, 0], abs=0.2)
    other = saved.with_name("again.safetensors")
    symbols.save(other)
    assert other.read_bytes() == saved.read_bytes()


def test_plans_are_of_what_is_measured(
    file: Path, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sets differ in size, columns of one feature are apart, and classes are words."""
    init: list[list[Any]] = [[0.1, "red", 0.1, 0.2], [0.2, "blue", 3.2, 6.8]]
    goal: list[list[Any]] = [[5.1, "blue", 3.1, 7.1], [-0.1, "red", 1.6, -0.1]]
    problem = tmp_path / "problem.json"
    run = ["actions", "plan", str(file), str(problem), "--measured", "x,y", "--angles", "heading"]
    problem.write_text(json.dumps({"init": init, "goal": goal}))
    assert main([*run, "-o", str(tmp_path)]) == 0
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert len(plan["steps"]) == 2
    assert sorted(step[:4] for step in plan["steps"]) == ["sail", "turn"]
    for x, name, heading, y in plan["states"][-1]:
        [(x2, _, heading2, y2)] = [one for one in goal if one[1] == name]
        assert (x, heading, y) == (
            pytest.approx(x2, abs=0.3),
            pytest.approx(heading2, abs=0.2),
            pytest.approx(y2, abs=0.3),
        )
    recording = read_recording(file, measured=["x,y"], angles=["heading"])
    model = ActionModel.learn(recording)
    for name, place, said in (("x", 90.0, "x-y [90.0"), ("name", "green", "'green'")):
        strange = [list(init[0]), init[1]]
        strange[0]["xn".index(name[0])] = place
        plan = model.plan([tuple(one) for one in strange], [tuple(one) for one in goal])
        assert str(plan.outcome) == "unknown init"
        assert said in plan.reason
    with pytest.raises(ValueError, match=r"^init: .* y is measured: expected a number, got 'left'"):
        model.plan([(0.0, "red", 0.0, "left")], [])
    assert capsys.readouterr().out.startswith("symbols    x-y 3, name 3, heading 4; 100.00% of")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--measured", "z"], "no feature is called 'z'; there are x, name, heading, y"),
        (["--measured", "x", "x,y"], "expected every measured feature once, got x, x, y"),
        (["--measured", "x", "--angles", "x"], "expected every measured feature once"),
        (
            ["--measured", "x", "y", "name", "--angles", "heading"],
            "name is measured: expected a number, got '",
        ),
        (["--symbols", "a.safetensors"], "--symbols: nothing is learned of values without"),
        (["--measured", "x", "--symbols", "a.pddl"], "--symbols: expected another file than"),
        ([], "or let symbols of them be learned (fit_symbols, --measured)"),
    ],
)
def test_what_cannot_be_measured(
    file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["actions", "learn", str(file), "-o", "a.pddl", *options]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_masks_leave_out_what_is_padding() -> None:
    """Whatever stands there, and in models too: plans are from tensors to tensors."""
    generator = torch.Generator().manual_seed(0)
    where = torch.randint(3, (80, 2), generator=generator)
    later = where.clone()
    later[:, 0] = (where[:, 0] + 1) % 3

    def seen(places: Tensor) -> Tensor:
        shaken = places + 0.03 * torch.randn(places.shape, generator=generator)
        return torch.cat([torch.eye(2).expand(80, 2, 2), shaken.unsqueeze(-1)], dim=-1)

    features, before, after = sw.Features(sw.Categorical(2), Own(1)), seen(where), seen(later)
    plain = MeasuredSymbols.fit(before, after, features)
    wide = torch.cat([torch.full((80, 1, 3), math.nan), before], dim=1)
    valid = torch.tensor([False, True, True]).expand(80, 3)
    masked = MeasuredSymbols.fit(wide, after, features, before_valid=valid)
    assert masked.sizes == plain.sizes == {"feature0": 2, "feature1": 3}
    assert masked.encode(wide, valid) == plain.encode(before)
    model = ActionModel.learn(masked.recording(wide, after, before_valid=valid))
    plan = model.plan(before[0], after[0])
    assert plan.solved
    assert plan.states[-1].sort(0).values.allclose(after[0].sort(0).values, atol=0.2)
    with pytest.raises(ValueError, match=r"^valid: expected bool \[80, 3\]"):
        masked.encode(wide, valid[:, :2])
    with pytest.raises(ValueError, match=r"^words: expected those of features, feature0, feature1"):
        MeasuredSymbols.fit(before, after, features, words={"who": ["a", "b"]})
    with pytest.raises(ValueError, match=r"^words: expected 2 different ones, one a class"):
        MeasuredSymbols.fit(before, after, features, words={"feature0": ["a", "a"]})


def test_numbers_that_do_not_shake(tmp_path: Path) -> None:
    """And that come a different number of times: what was learned from is called something."""
    path = tmp_path / "steps.jsonl"
    lines = [{"before": [], "after": [[1.5, "a"]]}] * 5
    lines += [{"before": [[1.5, "a"], [2.5, "b"]], "after": [[1.5, "a"], [3.5, "b"]]}] * 10
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    recording = read_recording(path, measured=["feature0"])
    assert recording.symbols.values == ((0, 1, 2), ("a", "b"))
    with pytest.raises(UnknownSymbolError, match=r"^feature0 \[2.51\]: is like none of the 3"):
        recording.symbols.state([(2.51, "b")])
    with pytest.raises(ValueError, match="codes learned from one name other values"):
        together([recording, recording])


def test_features_of_one_name(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    lines: list[dict[str, Any]] = [{"features": ["x", "y", "x-y"]}]
    lines.append({"before": [[0, 0, "a"]], "after": [[1, 1, "a"]]})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(ValueError, match="two are called the same: x-y, x-y; rename one of them"):
        read_recording(path, measured=["x,y"])


def test_families_of_ones_own(tmp_path: Path) -> None:
    """And numbers that do not shake at all."""
    sets = torch.tensor([[[0.5], [0.75], [7.0]]]).expand(20, 3, 1)
    symbols, path = MeasuredSymbols.fit(sets, sets, sw.Features(Own(1))), tmp_path / "symbols"
    assert symbols.sizes == {"feature0": 3}
    assert symbols.encode(sets) == symbols.encode(sets[:1]) * 20 == [[(0,), (1,), (2,)]] * 20
    symbols.save(path)
    with pytest.raises(ValueError, match=r"the family 'Own', .* give it as families=\[Own\]$"):
        MeasuredSymbols.load(path)
    assert MeasuredSymbols.load(path, families=[Own]).features.blocks == (Own(1),)


@pytest.mark.parametrize("kind", [MeasuredSymbols, SeenSymbols])
def test_files_of_anybody(
    kind: type[MeasuredSymbols] | type[SeenSymbols], saved: Path, tmp_path: Path
) -> None:
    """Refused in one line, or symbols that can be used: never an error of something inside."""
    whole = tmp_path / "whole"
    use: Callable[[Any], list[list[Element]]]
    if kind is SeenSymbols:
        steps = PicturedSteps.draw(lit_archive(), 250, seed=0)
        fit_symbols(steps.before, steps.after).save(whole)
        sights = steps.sights[:3]
        use = lambda found: found.encode(sights)  # noqa: E731
    else:
        whole.write_bytes(saved.read_bytes())
        sets = torch.tensor([[[0.1, 6.9, 0.0, 0.0, 1.0, -0.05]]])
        use = lambda found: found.encode(sets)  # noqa: E731
    used = use(kind.load(whole))
    path, refused = tmp_path / "hostile", 0
    for seed in range(HOSTILE):
        rng = random.Random(seed)
        tensors, facts = checkpoint.read(whole)
        if seed % 2:
            facts = mutated(facts, rng)
        else:
            name = rng.choice(sorted(tensors))
            tensor = tensors.pop(name)
            changes = [tensor.double(), tensor.long(), tensor.half(), tensor * math.nan, tensor[:0]]
            changes += [tensor.unsqueeze(0), tensor.flatten()[:1], tensor[:1], tensor[..., :1]]
            tensors[rng.choice([name, name, "other"])] = rng.choice(changes).contiguous()
        checkpoint.write(path, tensors, facts)
        found, said = None, ""
        try:
            found = kind.load(path)
        except ValueError as error:
            said, refused = str(error), refused + 1
        if found is None:
            assert said.startswith(f"{path}: ")
            assert len(said.splitlines()) == 1
        else:
            elements: list[list[Element]] = []
            with contextlib.suppress(UnknownSymbolError):  # numbers that are none of those there
                elements = use(found)
            for one in elements:
                with contextlib.suppress(ValueError):  # of boxes that are none, or not there
                    found.decode(one)
    assert refused > HOSTILE / 2
    assert use(kind.load(whole)) == used


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("middles", [10**400], "int too large"),
        ("middles", [*range(27)], "expected 1 to 26 columns, got 27"),
        ("middles", [], "expected 1 to 26 columns, got 0"),
        ("boxes", [[2, "a1", [0, 0, 1, 1]]], "boxes of a look that there is not: 2"),
        ("boxes", [["red", "a1", [0, 0, 1, 1]]], "boxes of a look that there is not: 'red'"),
        ("boxes", [[0, "a1", [0, 0, 1]]], "expected four numbers for each box"),
    ],
)
def test_numbers_of_anybody(tmp_path: Path, name: str, value: Any, said: str) -> None:
    path = tmp_path / "seen"
    things, of_one = (
        Quantiser(torch.zeros(192), torch.ones(192, 1), torch.zeros(1, 1)) for _ in range(2)
    )
    looks = Looks(things, (of_one,), torch.zeros(1, 3, 8, 8), 1.0)
    SeenSymbols(looks, Places((1.0,), 1.0), {(0, "a1"): [0.0, 0.0, 1.0, 1.0]}).save(path)
    tensors, facts = checkpoint.read(path)
    assert SeenSymbols.load(path).boxes == {(0, "a1"): [0.0, 0.0, 1.0, 1.0]}
    checkpoint.write(path, tensors, facts | {name: value})
    with pytest.raises(ValueError, match=said) as refused:
        SeenSymbols.load(path)
    assert str(refused.value).startswith(f"{path}: ")
