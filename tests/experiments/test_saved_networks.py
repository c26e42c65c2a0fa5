"""Files of networks that anybody may have written: fit, or refused before anything is built."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

from setwise.experiments import checkpoint
from setwise.experiments.config import Config
from setwise.experiments.networks import Predictor, RuleLearner
from setwise.experiments.networks.rule_learner import Production
from setwise.experiments.saved_networks import (
    first_that_opens,
    load_network,
    networks_among,
    read_config,
    save_network,
)
from setwise.experiments.tasks import SpritesData, Task, WorldData
from setwise.experiments.train import Training
from setwise.models import SetDecoder
from setwise.planning.learned import choose_space
from tiny_experiments import puzzle_config, rules_config

PUZZLE, RULES = puzzle_config(), rules_config("4", "SH", 0)


def saved(path: Path, config: Config = PUZZLE) -> Path:
    save_network(path, Training([config], "cpu"), 0)
    return path


def rewritten(
    path: Path, change: Callable[[dict[str, Any], dict[str, torch.Tensor]], None]
) -> Path:
    """The file with other contents, in a whole file: nobody would see it by its digest."""
    tensors, facts = checkpoint.read(path)
    change(facts, tensors)
    checkpoint.write(path, tensors, facts)
    return path


def changed(part: str, **fields: Any) -> Callable[[dict[str, Any], Any], None]:
    return lambda facts, _: facts["config"][part].update(fields)


@pytest.mark.parametrize(
    ("config", "change", "said"),
    [
        (PUZZLE, changed("network", decoder_width=10**12), "more weights than are in the file"),
        (PUZZLE, changed("network", element_widths=[8] * 10**5), "more weights than are in the"),
        (RULES, changed("network", hidden_layers=10**9), "more weights than are in the file"),
        (RULES, changed("network", width=2**62), "more weights|overflow|too large|not the weights"),
        (PUZZLE, changed("network", latent=9), "not the weights of its network: .* expected "),
        (PUZZLE, changed("network", latent=-1), "variables: must be at least 1, got -1"),
        (PUZZLE, changed("network", latent="8"), "network: latent: expected int, got '8'"),
        (PUZZLE, changed("network", dropout=float("nan")), "dropout: expected float, got nan"),
        (PUZZLE, changed("data", width=4, height=4, states=10**12, train=1), "numbers, more than"),
        (PUZZLE, changed("data", width=10**9), "at most 1024 cells"),
        (RULES, changed("data", test=10**12), "numbers, more than the"),
        pytest.param(
            *(RULES, changed("data", n=25), "numbers, more than the"), marks=pytest.mark.slow
        ),
        (PUZZLE, changed("schedule", epochs=None), "schedule: epochs: expected int, got None"),
        (PUZZLE, lambda facts, _: facts.update(config=[]), "config: expected an object"),
        (PUZZLE, lambda facts, _: facts["config"].pop("data"), "data: expected an object"),
        (PUZZLE, lambda facts, _: facts["config"].update(scenario="\x1b[2J"), "must be printable"),
        (
            PUZZLE,
            lambda facts, _: facts["config"].update(experiment="../x"),
            "experiment: expected",
        ),
    ],
)
def test_sizes_are_refused_before_anything_is_built(
    config: Config, change: Any, said: str, tmp_path: Path
) -> None:
    path = rewritten(saved(tmp_path / "it.safetensors", config), change)
    with pytest.raises(ValueError, match=rf"^{path}: .*({said})") as refused:
        load_network(path)
    assert "\n" not in str(refused.value)
    assert "alloc" not in str(refused.value)  # not by the system


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors: tensors.update(x=torch.zeros(1)),
        lambda tensors: tensors.pop("autoencoder.decoder.output.bias"),
        lambda tensors: tensors.update(
            {"autoencoder.decoder.output.bias": torch.zeros(32, dtype=torch.float64)}
        ),
    ],
    ids=["too many", "missing", "another type"],
)
def test_weights_of_another_network(change: Any, tmp_path: Path) -> None:
    path = rewritten(saved(tmp_path / "it.safetensors"), lambda _, tensors: change(tensors))
    with pytest.raises(ValueError, match=rf"{path}: not the weights of its network: "):
        load_network(path)


def test_what_a_user_has_to_define_is_told_apart_from_damage(tmp_path: Path) -> None:
    path = rewritten(saved(tmp_path / "it.safetensors"), changed("network", kind="of mine"))
    with pytest.raises(ValueError, match="written with network of kind 'of mine', which is not"):
        read_config(path)


def test_one_bad_file_does_not_keep_the_good_one_from_being_used(tmp_path: Path) -> None:
    """Nor what is no file, though it is called like one."""
    runs = tmp_path / "tiny"
    world = replace(PUZZLE, data=WorldData(of="puzzle", size=(2, 2), states=24, train=20))
    good = saved(runs / "good.safetensors", world)
    (runs / "empty.safetensors").touch()
    (runs / "folder.safetensors").mkdir()
    (runs / "link.safetensors").symlink_to("nowhere")
    os.mkfifo(runs / "pipe.safetensors")
    # Its config is sound, and it is the first to be tried, for it claims to know the most states.
    larger = changed("data", states=24, train=24)
    rewritten(saved(runs / "a.safetensors", world), larger)
    rewritten(runs / "a.safetensors", lambda _, tensors: tensors.update(x=torch.zeros(1)))
    with pytest.warns(UserWarning, match="left out: ") as told:
        found = choose_space("puzzle", tmp_path)
    assert found is not None
    assert found.path == good
    texts = [str(one.message) for one in told]
    for name in ("a", "empty", "folder", "link", "pipe"):
        assert sum(f"{name}.safetensors" in text for text in texts) == 1
    assert not any("\n" in text for text in texts)


def test_the_error_of_the_best_if_none_can_be_opened(tmp_path: Path) -> None:
    paths = [tmp_path / "first", tmp_path / "second"]
    with pytest.raises(OSError, match="first"):
        first_that_opens(paths, load_network)
    assert first_that_opens([], load_network) is None


def test_networks_among_files(tmp_path: Path) -> None:
    path = saved(tmp_path / "it.safetensors")
    assert list(networks_among([path])) == [(path, PUZZLE)]


@dataclass(frozen=True)
class Counting(RuleLearner):
    """A user's network that looks at values while it is built, and so cannot be without any."""

    kind: ClassVar[str] = "counting"

    def build(self, task: Task, *, to_train: bool = True) -> nn.Module:
        inputs, (_, size, width) = task.inputs.shape[-1], task.targets.shape
        widths = torch.linspace(8, 9, 2).tolist()
        return Production(SetDecoder(inputs, size, width, int(widths[0]), 1, self.dropout))


def test_a_network_that_looks_at_values_is_loaded_as_well(tmp_path: Path) -> None:
    config = replace(RULES, network=Counting())
    path = saved(tmp_path / "it.safetensors", config)
    found, network = load_network(path)
    assert found == config
    assert not network.training


def test_a_network_is_found_for_facts_that_were_moved(tmp_path: Path) -> None:
    path = saved(tmp_path / "it.safetensors", RULES)
    with pytest.raises(ValueError, match=f"{path}: was not trained on a file of facts"):
        load_network(path, tmp_path / "facts")


# Slow because exporting is; test_predictor.py exports networks that were built, some in the first
# tier.
@pytest.mark.slow
def test_a_predictor_that_was_kept_is_exported(tmp_path: Path) -> None:
    """It was trained, written and read; batches of any size give what it gives."""
    config = replace(
        PUZZLE,
        experiment="sprites",
        loss="set_likelihood",
        data=SpritesData(side=16, most=3, pictures=12, train=8),
        network=Predictor("regions", width=8, convolutions=(4, 4)),
        schedule=replace(PUZZLE.schedule, epochs=2, batch=4, evaluations=1),
    )
    training = Training([config], "cpu")
    training.run()
    save_network(tmp_path / "network", training, 0)
    found, network = load_network(tmp_path / "network")
    assert found == config
    pictures = torch.rand(5, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    batch = torch.export.Dim("batch")
    program = torch.export.export(network, (pictures[:2],), dynamic_shapes=({0: batch},))
    torch.export.save(program, tmp_path / "predictor.pt2")
    loaded = torch.export.load(tmp_path / "predictor.pt2").module()
    for size in (1, 5):
        torch.testing.assert_close(loaded(pictures[:size]), network(pictures[:size]))
