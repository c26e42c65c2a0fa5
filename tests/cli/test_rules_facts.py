"""``setwise reproduce table4 --facts`` on a tiny budget: what can be learned, and counted."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from setwise import cli
from setwise.data import KnowledgeBase, Rule
from setwise.experiments import store
from setwise.experiments.experiment import Sheet
from setwise.experiments.recipes import table4
from setwise.experiments.recipes.own_facts import OwnFacts, on_own_facts
from setwise.experiments.run import run
from town_roads import (
    OTHERS,
    PROLOG,
    TRIPLES,
    make_tiny_known,
    paths_of_two,
    roads_from,
    train,
)

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module", autouse=True)
def tiny_recipe() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        make_tiny_known(patch)
        yield


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_a_rule_as_text_with_a_variable_in_the_body_alone(folder: Path, capsys: Captured) -> None:
    generations = [[f"g{depth}p{i}" for i in range(2**depth)] for depth in range(6)]
    facts = [
        f"parent({parent},{child})."
        for older, younger in pairwise(generations)
        for i, parent in enumerate(older)
        for child in younger[2 * i : 2 * i + 2]
    ]
    (folder / "my family.pl").write_text("\n".join(facts))
    rule = "grandparent(X,Z) :- parent(X,Y), parent(Y,Z)"
    options = ["--facts", "my family.pl", "--rule", rule]
    assert cli.main(["rules", "count", *options, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row == {"rule": f"{rule}.", "clauses": 4 + 8 + 16 + 32, "paper": None}
    chosen = ["--scenarios", "grandparent-50-random"]
    assert train(*options, *chosen, "--clauses", "50", "5", "--keep", "best") == 0
    (record,) = store.read(folder / "runs" / "records" / "table4-facts-my_family-quick.jsonl")
    assert record["config"]["data"]["rule"] == f"{rule}."
    sheet = Sheet.read(folder / "runs" / "records" / "table4-facts-my_family-quick.json")
    _, *words = shlex.split(sheet.command)
    capsys.readouterr()
    assert cli.main([*words, *chosen, "--losses", "SH"]) == 0  # the command that the sheet names
    assert "1 runs, 1 of them recorded" in capsys.readouterr().err
    capsys.readouterr()
    head = "grandparent(g1p0,g3p1)"
    code = cli.main(["rules", "ask", head, "--facts", "my family.pl", "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert code == (0 if answer["correct"] else 1)
    assert answer["bodies"] == [["parent(g1p0,g2p0)", "parent(g2p0,g3p1)"]]
    assert cli.main(["rules", "ask", "grandparent(g1p0,g2p0)", "--facts", "my family.pl"]) == 1
    assert "has no clause with this head\n" in capsys.readouterr().out


MALFORMED = {
    "prolog": (PROLOG + "road(t1,t2)\nroad(t1).\n", [24, 25]),
    "triples": (TRIPLES + "t1\troad\nt1 road t2\n", [13, 14]),
}


@pytest.mark.parametrize("kind", MALFORMED)
@pytest.mark.parametrize("command", ["reproduce", "count"])
def test_malformed_lines_are_told_by_number(
    kind: str, command: str, folder: Path, capsys: Captured
) -> None:
    text, numbers = MALFORMED[kind]
    (folder / "towns").write_text(text)
    run = train if command == "reproduce" else lambda *o: cli.main(["rules", "count", *o])
    assert run("--facts", "towns") == 2
    said = capsys.readouterr().err
    assert f"towns: 2 of {numbers[-1]} lines are malformed" in said
    assert [int(n) for n in re.findall(r"^  line (\d+): ", said, re.MULTILINE)] == numbers
    assert not list(folder.glob("runs/records/*"))


def test_too_few_clauses_and_what_is_possible(folder: Path, capsys: Captured) -> None:
    (folder / "few.tsv").write_text("".join(f"t{i}\troad\tt{i + 1}\n" for i in range(14)))
    assert train("--facts", "few.tsv") == 2
    said = capsys.readouterr().err
    assert "  road2-28-fixed, road2-28-random: asks for 28 + 6 of the 13 there are" in said
    assert "road3-28-random: asks for 28 + 6 of the 12 there are" in said
    assert train("--facts", "few.tsv", "--scenarios", "road2-28-random") == 2
    said = capsys.readouterr().err
    possible = re.search(r"^possible: (--clauses 12 1), with scenarios such as (.*)$", said, re.M)
    assert possible is not None
    options = [*possible[1].split(), "--scenarios", possible[2]]
    assert train("--facts", "few.tsv", *options) == 0
    (record,) = store.read(folder / "runs" / "records" / "table4-facts-few-quick.jsonl")
    assert (record["config"]["data"]["train"], record["config"]["schedule"]["batch"]) == (12, 4)
    capsys.readouterr()
    (folder / "one.tsv").write_text("a\troad\tb\n")
    assert train("--facts", "one.tsv") == 2
    assert "no split of so few is possible" in capsys.readouterr().err


def test_scenarios_that_are_possible_are_named(folder: Path, capsys: Captured) -> None:
    """A star has many paths of two roads and none of three."""
    (folder / "star.tsv").write_text("".join(f"hub\troad\tt{i}\n" for i in range(9)))
    assert train("--facts", "star.tsv", "--symmetric", "road") == 2
    said = capsys.readouterr().err
    assert "road3-28-random: asks for 28 + 6 of the 0 there are" in said
    assert said.endswith("possible: --scenarios road2-28-fixed road2-28-random\n")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--relation", "road"], "--relation: is about facts of your own; give --facts"),
        (["--symmetric", "road"], "--symmetric: is about facts of your own"),
        (["--clauses", "5", "5"], "--clauses: is about facts of your own"),
        (["--facts", "nowhere.pl"], "No such file"),
        (["--facts", "towns.pl"], "towns.pl: holds facts of mayor, road; name one of them"),
        (["--facts", "towns.pl", "--relation", "raod"], "did you mean 'road'?"),
        (["--facts", "towns.pl", "--relation", "road", "--symmetric", "rod"], "no facts of 'rod'"),
        (["--facts", "towns.pl", "--rule", "p(X,Y)"], "expected ':-' after the head"),
        (["--facts", "towns.pl", "--rule", "p(X,Y) :- path(X,Y)"], "no relation 'path'"),
        (["--facts", "towns.pl", "--relation", "road", "--clauses", "1", "1"], "at least 2"),
        (["--epochs", "5"], "--epochs: is about facts of your own; give --facts FILE too"),
        (["--facts", "towns.pl", "--relation", "road", "--scenarios", "n2-random"],
         "it has road2-28-fixed, road2-28-random, road3-28-random"),
    ],
)  # fmt: skip
def test_wrong_options(options: list[str], said: str, folder: Path, capsys: Captured) -> None:
    (folder / "towns.pl").write_text(PROLOG + OTHERS)
    assert train(*options) == 2
    assert said in capsys.readouterr().err
    assert not list(folder.glob("runs/records/*"))


# Two couples with three children each, who have six each: 72 clauses of grandparents.
FAMILY = "".join(
    [f"parent({who}{c},c{c}{k}).\n" for c in range(2) for who in "fm" for k in range(3)]
    + [f"parent(c{c}{k},g{c}{k}{z}).\n" for c in range(2) for k in range(3) for z in range(6)]
)
GRANDPARENT = "grandparent(X,Z) :- parent(X,Y), parent(Y,Z)"


def test_fewer_clauses_are_gone_through_more_often() -> None:
    """No fewer steps than the preset makes, in batches of a part of them; or as one is told."""
    own = OwnFacts(Path("f.pl"), "", (), KnowledgeBase.parse(FAMILY), Rule.parse(GRANDPARENT), None)
    quick = table4.quick("n2-2250-random", "set_cross_entropy", 0).schedule
    steps = quick.epochs * (2250 // quick.batch)
    for epochs in (None, 7):
        experiment = on_own_facts(table4.QUICK, own, (64, 8), epochs)
        config = experiment.config("grandparent-64-random", "set_cross_entropy", 0)
        assert config.schedule.batch < 64
        passes = config.schedule.epochs
        if epochs is None:
            # As many as fit: what does not fill a batch is not a step.
            assert steps <= passes * (64 // config.schedule.batch) < 1.1 * steps
        else:
            assert passes == 7
            assert experiment.command.endswith("--clauses 64 8 --epochs 7")


def test_clauses_that_cannot_be_learned_are_told(folder: Path, capsys: Captured) -> None:
    """With one grandparent each, a grandchild that is held out is in no other clause."""
    (folder / "line.pl").write_text(FAMILY.replace("parent(m", "married(m"))
    options = ["--facts", "line.pl", "--rule", GRANDPARENT, "--clauses", "30", "6"]
    assert train(*options, "--epochs", "1", "--seeds", "0") == 0
    told = capsys.readouterr().err
    assert "grandparent-30-random: 6 of the 6 held-out clauses cannot be learned from the" in told
    assert re.search(r"never has (g\d\d\d, ){5}\.\.\. in the same place", told)


@pytest.mark.slow
def test_a_family_of_72_clauses_is_learned(folder: Path) -> None:
    """Of those that are trained on, whatever a preset for thousands of clauses has for epochs."""
    (folder / "family.pl").write_text(FAMILY)
    own = OwnFacts.read(folder / "family.pl", rule=GRANDPARENT)
    experiment = on_own_facts(table4.QUICK, own, (64, 8))
    for record in run(experiment, "cpu", losses=["set_cross_entropy"], seeds=[0]):
        assert record["metrics"]["train"] >= 0.9


def test_facts_are_for_rules(folder: Path, capsys: Captured) -> None:
    (folder / "towns.pl").write_text(PROLOG)
    assert cli.main(["reproduce", "table1", "--facts", "towns.pl"]) == 2
    assert "--facts: is for table4" in capsys.readouterr().err


# Counting


def test_counts_beside_the_papers(capsys: Captured) -> None:
    assert cli.main(["rules", "count"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^ +2832 +2858 +-0.91%  neighbor2\(A,B,C\) :-", said, re.MULTILINE)
    assert re.search(r"^ +134988 +137738 +-2.00%  neighbor5\(", said, re.MULTILINE)
    document = Path(__file__).parents[2] / "docs" / "rules.md"
    assert f"$ setwise rules count\n{said}```" in document.read_text()


def test_counts_of_own_facts(folder: Path, capsys: Captured) -> None:
    (folder / "towns.tsv").write_text(TRIPLES)
    options = ["--facts", "towns.tsv", "--symmetric", "road"]
    assert cli.main(["rules", "count", *options, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["paper"] for row in rows] == [None] * 4  # which counted other facts
    assert rows[0]["clauses"] == len(paths_of_two())
    assert rows[1]["clauses"] == sum(len(roads_from(c) - {a, b}) for a, b, c in paths_of_two())
    assert cli.main(["rules", "count", *options]) == 0
    said = capsys.readouterr().out
    assert "paper" not in said
    assert "%" not in said
    assert re.search(rf"^ +{len(paths_of_two())}  road2\(A,B,C\) :-", said, re.MULTILINE)
