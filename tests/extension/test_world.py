"""A world from outside the package, in one file: learned, planned in, judged and drawn."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor

from lights_out import EXPERIMENT, PRESS, LightsOut
from setwise import cli
from setwise.experiments import records
from setwise.experiments.saved_networks import network_path
from setwise.planning import LatentPlanner, Problem, problems_for, validate
from setwise.planning.learned import choose_network, open_space
from setwise.worlds import WORLDS

FILE = Path(__file__).with_name("lights_out.py")
WORLD = LightsOut()
STATES = WORLD.states()


class Exact:
    """A code is which lights are on, whatever the order of the objects."""

    def encode(self, sets: Tensor) -> Tensor:
        x, y, on = WORLD.features.split(sets)
        cells = (y.unsqueeze(-1) * x.unsqueeze(-2)).flatten(-2)  # [B, 9 objects, 9 cells]
        return (cells * on).sum(-2).bool()

    def decode(self, codes: Tensor) -> Tensor:
        return 9 * WORLD.objects(codes.long()).flip(-2) - 4


def presses(state: Tensor) -> int:
    """How many lights must be pressed to turn all out: of all 512 ways, the one that does."""
    left = (state + STATES @ PRESS) % 2
    [way] = STATES[(left == 0).all(-1)]
    return int(way.sum())


def solved(planner: LatentPlanner, problems: list[Problem]) -> int:
    """How many plans are valid, and as short as can be."""
    results = [planner.solve(problem.init, problem.goal) for problem in problems]
    assert all(
        result.report is not None and result.report.optimum == presses(state)
        for result, state in zip(results, inits(problems), strict=True)
    )
    return sum(result.report is not None and result.report.optimal for result in results)


def inits(problems: list[Problem]) -> list[Tensor]:
    return [WORLD.configuration_of(problem.init) for problem in problems]


PROBLEMS = problems_for(WORLD, steps=7, count=20, seed=0)


def test_it_is_one_short_file() -> None:
    assert len(FILE.read_text().splitlines()) < 80
    assert WORLDS["lights-out"] is LightsOut


def test_the_page_on_planning_shows_it() -> None:
    text, page = FILE.read_text(), Path(__file__).parents[2] / "docs" / "planning.md"
    for first, after in (("SIZE = ", "    def describe"), ("def config", None)):
        end = None if after is None else text.index(after)
        shown = text[text.index(first) : end].rstrip()
        assert f"\n{shown}\n```\n" in page.read_text()


def test_the_world() -> None:
    assert len(STATES.unique(dim=0)) == 512
    assert len(WORLD.transitions()) == 512 * 9
    assert WORLD.solvable(STATES, STATES[0]).all()
    dark = STATES[0]
    assert WORLD.describe(WORLD.successors(dark)[0][4]) == ".*. / *** / .*."
    assert WORLD.describe(WORLD.successors(dark)[0][0]) == "**. / *.. / ..."
    elements = WORLD.elements()
    assert elements is not None
    assert len(elements) == 18
    goals = [WORLD.configuration_of(problem.goal) for problem in PROBLEMS]
    assert all(goal.equal(dark) for goal in goals)
    assert len({tuple(state.tolist()) for state in inits(PROBLEMS)}) == 20


def test_plans_over_exact_codes() -> None:
    with LatentPlanner(Exact(), WORLD) as planner:
        assert planner.health().healthy
        assert len(planner.graph.edges) == 512 * 9
        assert solved(planner, PROBLEMS) == 20


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder where ``setwise train lights_out.py --keep all`` has been run."""
    folder = tmp_path_factory.mktemp("lights-out")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert cli.main(["train", str(FILE), "--keep", "all", "--device", "cpu"]) == 0
    return folder


# Networks are trained for ten seconds. The first tier plans with exact codes, above, and trains
# networks of others, in test_own_files.py.
@pytest.mark.slow
@pytest.mark.parametrize("loss", EXPERIMENT.losses)
def test_plans_over_learned_codes(loss: str, learned: Path) -> None:
    """Every light is brought back: the states that plans lead through are all of them."""
    [config] = EXPERIMENT.configs(losses=[loss])
    [record] = (r for r in records.read(learned / "results/lights-out.jsonl") if r["loss"] == loss)
    assert record["config"] == json.loads(json.dumps(config.as_dict()))
    assert record["metrics"]["success"] == 1
    space = open_space(network_path(learned / "runs", config))
    assert isinstance(space.world, LightsOut)
    with LatentPlanner(space.model, space.world) as planner:
        assert planner.health().healthy, str(planner.health())
        assert solved(planner, PROBLEMS) == 20


def test_the_judge_knows_the_rules() -> None:
    dark, pressed = STATES[0], WORLD.successors(STATES[0])[0][4]
    one_light = torch.eye(9, dtype=torch.int64)[0]
    plan = WORLD.objects(torch.stack([pressed, one_light, dark]))
    faults = validate(WORLD, plan, plan[0], plan[2]).faults
    assert [(str(fault.kind), fault.at) for fault in faults] == [
        ("illegal step", 1),
        ("illegal step", 2),
    ]
    assert faults[1].reason == "no action leads from *.. / ... / ... to ... / ... / ..."
    plan[1, 0, :3] = torch.tensor([0.0, 1.0, 0.0])  # two lights at one place, and none at another
    [fault] = validate(WORLD, plan, plan[0], plan[2]).faults
    assert str(fault.kind) == "illegal state"
    assert fault.reason == "these objects occur, but not together in one state"
    assert fault.nearest == one_light.tolist()
    assert fault.distance == 2


class TestCommand:
    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.delitem(sys.modules, "mine", raising=False)

    @pytest.mark.slow  # as above
    def test_a_plan(self, learned: Path, capsys: pytest.CaptureFixture[str]) -> None:
        options = ["--runs", str(learned / "runs"), "--record", "kept", "--steps", "5"]
        assert cli.main(["plan", "--world", str(FILE), "lights-out", *options]) == 0
        said = capsys.readouterr().out
        network = choose_network("lights-out", learned / "runs")
        assert f"network    {network}\n" in said
        assert "           SH, seed 0, scenario all of lights-out\n" in said
        assert "decoding   512 of 512 states come back" in said
        assert "goal       ... / ... / ..." in said
        assert "        1  action " in said
        assert "checked    optimal plan of" in said
        [record] = json.loads(Path("plans/plans.json").read_text())
        length = record["report"]["length"]
        for file in ("strip.png", "animation.gif"):
            with Image.open(f"plans/lights-out-3x3-5-seed0-{file}") as picture:
                assert picture.width > 7 * 14
        kept = json.loads(Path("kept/lights-out-3x3-5-seed0/plan.json").read_text())
        assert len(kept["captions"]) == length + 1
        assert kept["network"]["experiment"] == "lights-out"
        assert kept["network"]["loss"] == "set_cross_entropy"

    def test_no_network(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["plan", "--world", str(FILE), "lights-out"]) == 2
        said = capsys.readouterr().err
        assert said.startswith("--network: runs holds none of the lights-out; train one with ")
        assert said.count("\n") == 1

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            (None, "--world: expected a file, mine.py is not there"),
            ("import nothing_like_it", "--world: mine.py, line 1: ModuleNotFoundError: No module"),
            ("class X(", "--world: mine.py: SyntaxError: "),
            (
                "from lights_out import LightsOut\nclass X(LightsOut): kind = 'puzzle'",
                "--world: mine.py, line 2: ValueError: world: 'puzzle' is taken, by setwise.",
            ),
            ("", "world: unknown 'mine'; known: blocksworld, "),
        ],
    )
    def test_files_that_define_no_world(
        self, text: str | None, said: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        if text is not None:
            Path("mine.py").write_text(text)
        assert cli.main(["plan", "--world", "mine.py", "mine"]) == 2
        message = capsys.readouterr().err
        assert message.startswith(said)
        assert message.count("\n") == 1

    def test_names_that_are_taken(self, capsys: pytest.CaptureFixture[str]) -> None:
        Path("json.py").write_text("")
        assert cli.main(["plan", "--world", "json.py", "mine"]) == 2
        assert "a module json is there already; rename it" in capsys.readouterr().err
        Path("lights_out.py").write_text("")
        assert cli.main(["plan", "--world", "lights_out.py", "mine"]) == 2
        assert "a module lights_out is there already" in capsys.readouterr().err
