"""``setwise rules`` and ``setwise reproduce table4 --facts``, whole commands on a tiny budget."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from math import log
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from setwise import cli
from setwise.data import KnowledgeBase, Rule, RuleEncoding, chain_rule
from setwise.experiments import store
from setwise.experiments.ask import RuleNetwork
from setwise.experiments.config import Config, Schedule, config_from
from setwise.experiments.experiment import Sheet
from setwise.experiments.kept import kept_rule_learners
from setwise.experiments.networks import RuleLearner
from setwise.experiments.recipes import table4
from setwise.experiments.recipes.own_facts import OwnFacts, on_own_facts
from setwise.experiments.run import run
from setwise.experiments.tasks import FactsData, RulesData
from tiny_recipe import make_known

Captured = pytest.CaptureFixture[str]

# A ring of eight towns with two roads across it, and one town beside it.
ROADS = [(i, (i + 1) % 8) for i in range(8)] + [(0, 3), (2, 6), (5, 8)]
PROLOG = "% towns\n" + "".join(f"road(t{a},t{b}).\nroad(t{b},t{a}).\n" for a, b in ROADS)
TRIPLES = "# towns\n" + "".join(f"t{a}\troad\tt{b}\n" for a, b in ROADS)
OTHERS = "mayor(ann,t1).\nmayor(bob,t2).\n"


def tiny(scenario: str, loss: str, seed: int) -> Config:
    n, order = scenario.split("-")
    return Config(
        experiment="table4-quick",
        scenario=scenario,
        loss=loss,
        seed=seed,
        shuffle_input=False,
        shuffle_target=order == "random",
        data=RulesData(n=int(n[1:]), train=28, test=6),
        network=RuleLearner(width=64, hidden_layers=1, dropout=0.0),
        schedule=Schedule(epochs=40, batch=14, learning_rate=1e-2, cooldown=0.5, evaluations=2),
        precision="highest",
    )


@pytest.fixture(scope="module", autouse=True)
def tiny_recipe() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        scenarios = dict.fromkeys(("n2-fixed", "n2-random", "n3-random"), "a tiny one")
        make_known(patch, replace(table4.QUICK, config=tiny, scenarios=scenarios, seeds=1))
        yield


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train(*options: str) -> int:
    start = ["reproduce", "table4", "--preset", "quick", "--device", "cpu", "--losses", "SH"]
    return cli.main([*start, *options])


def fast(*options: str) -> int:
    return train("--scenarios", "road2-28-random", *options)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the facts and one network that learned them."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "towns.pl").write_text(PROLOG + OTHERS)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert fast("--facts", "towns.pl", "--relation", "road", "--keep", "best") == 0
    return folder


def network_in(folder: Path) -> Path:
    (path,) = folder.glob("runs/*/*.safetensors")
    return path


def roads_from(town: int) -> set[int]:
    return {b for a, b in ROADS if a == town} | {a for a, b in ROADS if b == town}


def paths_of_two() -> list[tuple[int, int, int]]:
    """Counted without the library."""
    return [(a, b, c) for b in range(9) for a in roads_from(b) for c in roads_from(b) if a != c]


# Training on one's own facts


def test_a_record_says_what_was_learned_from(trained: Path) -> None:
    (path,) = trained.glob("runs/records/*.jsonl")
    assert path.name == "table4-facts-towns-quick.jsonl"
    (record,) = store.read(path)
    assert record["experiment"] == "table4-facts-towns-quick"
    assert record["scenario"] == "road2-28-random"
    data = record["config"]["data"]
    assert data["file"] == "towns.pl"
    content = (trained / "towns.pl").read_bytes()
    assert data["sha256"] == hashlib.sha256(content).hexdigest()
    assert data["rule"] == "road2(A,B,C) :- road(A,B), road(B,C)."
    config = config_from(record["config"])
    assert isinstance(config.data, FactsData)
    assert config.identity == record["run"]
    assert config_from(json.loads(json.dumps(config.as_dict()))) == config


def test_both_formats_teach_the_same(trained: Path, folder: Path, capsys: Captured) -> None:
    (folder / "towns.tsv").write_text(TRIPLES)
    assert fast("--facts", "towns.tsv", "--symmetric", "road") == 0
    said = capsys.readouterr()
    assert "towns.tsv: 9 constants; road: 22 facts (11 stated, 0 repeated, 11 one-way" in said.err
    assert "table4-facts-towns-quick: epoch 40 of 40" in said.err
    assert "Rules over the facts of towns.tsv" in " ".join(said.out.split())
    assert "paper" not in said.out  # which knows nothing of towns
    name = "runs/records/table4-facts-towns-quick.jsonl"
    (ours,), (theirs,) = store.read(folder / name), store.read(trained / name)
    assert ours["config"]["data"]["symmetric"] == ["road"]
    assert ours["metrics"] == theirs["metrics"]
    assert ours["history"] == theirs["history"]


def test_facts_left_out_are_told(trained: Path, monkeypatch: pytest.MonkeyPatch,
                                 capsys: Captured) -> None:  # fmt: skip
    monkeypatch.chdir(trained)
    assert fast("--facts", "towns.pl", "--relation", "road") == 0
    said = capsys.readouterr().err
    assert "mayor: 2 facts (2 stated" in said
    assert "left out: mayor" in said
    assert "1 runs, 1 of them recorded" in said


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


def test_other_facts_under_the_same_name_are_not_mixed(trained: Path, capsys: Captured) -> None:
    changed = trained / "elsewhere" / "towns.pl"
    changed.parent.mkdir()
    changed.write_text(PROLOG)
    options = ["--relation", "road", "--results", str(trained / "runs" / "records"), "--seeds", "1"]
    assert fast("--facts", str(changed), *options) == 2
    assert "data.sha256" in capsys.readouterr().err
    network = str(network_in(trained))
    question = ["rules", "ask", "road2(t0,t1,t2)", "--facts", str(changed)]
    assert cli.main([*question, "--network", network]) == 2
    assert "not the facts that were trained on" in capsys.readouterr().err
    changed.write_text(PROLOG + OTHERS)  # the same again, in another place
    assert cli.main([*question, "--network", network]) == 0


# Asking


def test_every_answer_agrees_with_the_record(trained: Path) -> None:
    """The record comes from another code: set success over tensors."""
    (record,) = store.read(trained / "runs" / "records" / "table4-facts-towns-quick.jsonl")
    network = RuleNetwork.load(network_in(trained), trained / "towns.pl")
    correct: dict[str, list[bool]] = {"trained on": [], "held out": [], "in neither part": []}
    for a, b, c in paths_of_two():
        answer = network.ask(f"road2(t{a},t{b},t{c})")
        assert answer.bodies == ((f"road(t{a},t{b})", f"road(t{b},t{c})"),)
        terms = {term.text for term in answer.terms}
        assert answer.correct == (terms == set(answer.bodies[0]))
        for term in answer.terms:
            a_fact = re.fullmatch(r"road\(t(\d),t(\d)\)", term.text)
            assert term.fact == (
                a_fact is not None and int(a_fact[2]) in roads_from(int(a_fact[1]))
            )
        correct[answer.seen].append(answer.correct)
    assert [len(correct[part]) for part in ("trained on", "held out")] == [28, 6]
    heldout = sum(correct["held out"]) / 6
    assert heldout == pytest.approx(record["metrics"]["heldout"])
    both = sum(correct["trained on"]) + sum(correct["held out"])
    assert both / 34 == pytest.approx(record["metrics"]["success"])
    assert sum(correct["trained on"]) > 14  # it has learned something


def test_what_ask_prints(trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.chdir(trained)
    network = RuleNetwork.load(network_in(trained))
    answers = [network.ask(f"road2(t{a},t{b},t{c})") for a, b, c in paths_of_two()]
    right = next(a for a in answers if a.correct and a.seen == "trained on")
    for asked in (["--facts", "towns.pl"], ["--network", str(network_in(trained))]):
        assert cli.main(["rules", "ask", right.head, *asked]) == 0
        said = capsys.readouterr().out
        body = ", ".join(term.text for term in right.terms)
        assert said.startswith(f"{right.head} :- {body}.\n")
        assert f"{right.confidence:10.4f}  the whole body" in said
        assert "correct; the network was trained on this clause" in said
        assert "table4-facts-towns-quick, road2-28-random, SH, seed 0; " in said
        assert "of the held-out clauses right" in said

    assert cli.main(["rules", "ask", f" {right.head}. ", "--facts", "towns.pl", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["head"] == right.head
    assert found["correct"] is True
    assert found["clause"] == "trained on"
    assert [term["term"] for term in found["body"]] == [term.text for term in right.terms]
    assert all(term["fact"] for term in found["body"])
    assert found["confidence"] == pytest.approx(right.confidence)
    assert found["network"]["file"] == str(network_in(Path("runs").parent))

    # Still answered, though there is no such road.
    assert cli.main(["rules", "ask", "road2(t0,t1,t5)", "--facts", "towns.pl"]) == 1
    said = capsys.readouterr().out
    assert "no clause with this head: road(t1,t5) is no fact" in said
    assert said.startswith("road2(t0,t1,t5) :- ")
    assert cli.main(["rules", "ask", "road2(t0,t1,t0)", "--facts", "towns.pl"]) == 1
    assert "with this head: a clause names no constant twice" in capsys.readouterr().out


class Told(nn.Module):
    """Puts out what it was told, whatever it reads."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = logits

    def forward(self, input: Tensor) -> Tensor:
        return self.logits.expand(len(input), -1, -1)


def test_confidences_by_hand() -> None:
    kb = KnowledgeBase.parse("road(a,b).\nroad(b,c).\nroad(c,a).")
    encoding = RuleEncoding(chain_rule("road", 2), kb)
    data = RulesData(n=2, train=2, test=1)

    def ask(*outputs: list[float]) -> Any:
        logits = torch.tensor([[log(p) + 3.0 for p in output] for output in outputs])
        network = RuleNetwork(
            tiny("n2-random", "set_cross_entropy", 0), data, encoding, Told(logits)
        )
        return network.ask("road2(a,b,c)")

    #             road  road2     a    b    c       a    b    c
    first = [0.9, 0.1,   0.8, 0.1, 0.1,  0.2, 0.7, 0.1]  # fmt: skip
    second = [0.6, 0.4,  0.3, 0.5, 0.2,  0.0001, 0.0001, 0.9998]  # fmt: skip
    answer = ask(second, first)
    assert [term.text for term in answer.terms] == ["road(b,c)", "road(a,b)"]
    confidences = [term.confidence for term in answer.terms]
    assert confidences == pytest.approx([0.6 * 0.5 * 0.9998, 0.9 * 0.8 * 0.7], rel=1e-5)
    assert answer.confidence == pytest.approx(confidences[0] * confidences[1])
    assert answer.correct
    twice = ask(first, first)
    assert not twice.correct
    assert all(term.fact for term in twice.terms)
    no_relation = ask([0.1, 0.9, *first[2:]], second)
    assert [term.text for term in no_relation.terms] == ["road2(a,b)", "road(b,c)"]
    assert [term.fact for term in no_relation.terms] == [False, True]
    assert not no_relation.correct


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("neighbor2(austria,germany", "expected predicate(argument, ...)"),
        ("neighbor2(austria,germny,belgium)", "did you mean 'germany'"),
        ("neighbor2(austria,germany)", "expected neighbor2 with 3 arguments"),
        ("neighbor2(austria,Germany,belgium)", "Germany is a variable"),
        ("neighbor9(austria,germany,belgium)", "neighbor2, neighbor3, neighbor4, neighbor5"),
        ("neighbour2(austria,germany,belgium)", "got neighbour2"),
    ],
)
def test_wrong_heads(head: str, said: str, folder: Path, capsys: Captured) -> None:
    assert cli.main(["rules", "ask", head]) == 2
    message = capsys.readouterr().err
    assert said in message
    assert message.count("\n") == 1


@pytest.mark.slow  # a training each
@pytest.mark.parametrize("recorded", [False, True])
def test_the_command_that_is_named_trains_a_network(
    recorded: bool, folder: Path, capsys: Captured
) -> None:
    """Also where the run is recorded already, but its network was not kept."""
    question = ["rules", "ask", "neighbor2(austria,germany,belgium)"]
    if recorded:
        assert train("--scenarios", "n2-random") == 0
        capsys.readouterr()
    assert cli.main(question) == 2
    said = capsys.readouterr().err
    assert said.startswith("no network for neighbor2 is kept in runs; this trains one: setwise ")
    assert said.count("\n") == 1
    assert cli.main(shlex.split(said.partition("this trains one: setwise ")[2])) == 0
    capsys.readouterr()
    (folder / "towns.pl").write_text(PROLOG)
    others = ["--network", str(network_in(folder)), "--facts", "towns.pl"]
    assert cli.main([*question, *others]) == 2
    assert "was not trained on a file of facts" in capsys.readouterr().err
    code = cli.main([*question, "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert code == (0 if answer["correct"] else 1)
    assert answer["bodies"] == [["neighbor(austria,germany)", "neighbor(germany,belgium)"]]
    assert answer["network"]["heldout"] is not None
    assert cli.main(["rules", "ask", "neighbor3(austria,germany,belgium,france)"]) == 2
    assert (
        "no network for neighbor3 is kept in runs (only for neighbor2)" in capsys.readouterr().err
    )


def test_the_command_for_own_facts(folder: Path, capsys: Captured) -> None:
    (folder / "towns.pl").write_text(PROLOG)
    question = ["rules", "ask", "road2(t0,t1,t2)", "--facts", "towns.pl"]
    assert cli.main(question) == 2
    said = capsys.readouterr().err
    assert cli.main(shlex.split(said.partition("this trains one: setwise ")[2])) == 0
    assert cli.main(question) == 0
    capsys.readouterr()
    assert cli.main(["rules", "ask", "uncle(t0,t1)", "--facts", "towns.pl"]) == 2
    said = capsys.readouterr().err
    assert "no network for uncle is kept in runs (only for road2)" in said
    assert "--rule 'uncle(...) :- ...'" in said


def test_the_best_network_is_asked(folder: Path, capsys: Captured) -> None:
    assert train("--scenarios", "n2-random", "--seeds", "0-2", "--keep", "all") == 0
    path = folder / "runs" / "records" / "table4-quick.jsonl"
    records = store.read(path)
    rates = [0.25, 0.75, 0.5]
    path.unlink()
    store.append(
        path,
        [
            record | {"metrics": record["metrics"] | {"heldout": rate}}
            for record, rate in zip(records, rates, strict=True)
        ],
    )
    capsys.readouterr()
    code = cli.main(["rules", "ask", "neighbor2(austria,germany,belgium)", "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert code == (0 if answer["correct"] else 1)
    assert (answer["network"]["file"], answer["network"]["heldout"]) == (
        f"runs/table4-quick/{records[1]['run']}.safetensors",
        0.75,
    )


def test_of_equals_one_of_the_set_cross_entropy_is_asked(folder: Path) -> None:
    assert train("--scenarios", "n2-random", "--losses", "H", "SH", "A1H", "--keep", "all") == 0
    path = folder / "runs" / "records" / "table4-quick.jsonl"
    records = store.read(path)
    path.unlink()
    alike = [record | {"metrics": record["metrics"] | {"heldout": 0.5}} for record in records]
    store.append(path, alike)
    first, *others = kept_rule_learners(folder / "runs", folder / "runs" / "records")
    assert first.config.loss == "set_cross_entropy"
    assert len(others) == 2


@pytest.mark.parametrize("wrong", ["missing", "damaged", "without its facts"])
def test_wrong_networks(wrong: str, trained: Path, folder: Path, capsys: Captured) -> None:
    path = folder / "network.safetensors"
    if wrong == "damaged":
        path.write_bytes(b"nothing")
    elif wrong == "without its facts":
        path.write_bytes(network_in(trained).read_bytes())
    assert cli.main(["rules", "ask", "road2(t0,t1,t2)", "--network", str(path)]) == 2
    said = capsys.readouterr().err
    expected = {
        "missing": "network.safetensors",
        "damaged": "damaged, or no checkpoint at all",
        "without its facts": "towns.pl: the file of facts is not there",
    }
    assert expected[wrong] in said


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
