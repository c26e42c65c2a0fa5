"""``setwise rules`` and ``setwise reproduce table4 --facts``, whole commands on a tiny budget."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Iterator
from math import log
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from setwise import cli
from setwise.data import KnowledgeBase, RuleEncoding, chain_rule
from setwise.experiments import store
from setwise.experiments.ask import RuleNetwork
from setwise.experiments.config import config_from
from setwise.experiments.kept import kept_rule_learners
from setwise.experiments.tasks import FactsData, RulesData
from town_roads import (
    OTHERS,
    PROLOG,
    TRIPLES,
    make_tiny_known,
    paths_of_two,
    roads_from,
    tiny,
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
