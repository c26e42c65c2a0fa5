"""Table 3 on a tiny budget: archives, the patch autoencoder, training, records."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tools.blocksworld import collect_reconstructions
from torch import Tensor

from setwise.data.blocksworld_objects import BoxGrid
from setwise.experiments import checkpoint, store
from setwise.experiments.config import Config
from setwise.experiments.evaluate import _evenly
from setwise.experiments.kept import kept_rule_learners
from setwise.experiments.networks import Autoencoder
from setwise.experiments.recipes import EXPERIMENTS, table4
from setwise.experiments.reconstruct import reconstruct
from setwise.experiments.reconstructions import Reconstructions
from setwise.experiments.run import ensembles, train
from setwise.experiments.saved_networks import load_network
from setwise.experiments.tasks import BlocksData, patches, picture_error
from setwise.experiments.tasks.patches import fit, patch_autoencoder, weights_sha256
from setwise.experiments.tasks.picture_error import PictureError
from setwise.experiments.train import (
    StoppedError,
    Training,
    TrainingProgress,
    build_network,
)
from setwise.features import Bernoulli, Categorical
from setwise.models.prototypes import as_logits
from setwise.render import archive
from tiny_blocks import CPU, DATA, an_archive, config, some_patches


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of data with the archive in its place."""
    path = DATA.archive(tmp_path)
    path.parent.mkdir()
    an_archive().write(path)
    return tmp_path


class TestArchive:
    def test_where_it_is(self) -> None:
        assert BlocksData().archive(Path("runs")) == Path("runs/blocksworld-5/states-2500.npz")
        assert DATA.archive(Path("x")) == Path("x/blocksworld-3-60x40/states-24.npz")

    @pytest.mark.parametrize(
        ("renderer", "there", "device"),
        [("torch", True, "cuda"), ("torch", False, "cpu"), ("mitsuba", True, "cpu")],
    )
    def test_what_it_is_drawn_on(
        self, renderer: Any, there: bool, device: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[dict[str, Any]] = []
        monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
        monkeypatch.setattr(archive, "draw_archive", lambda *given, **how: asked.append(how))
        replace(DATA, renderer=renderer).prepare(Path("x"), lambda there, wanted: None)
        assert [how["device"] for how in asked] == [device]

    def test_object_vectors(self, folder: Path) -> None:
        data = DATA.bound(folder)
        task = data.load(folder)
        sets, features, measure = task.targets, task.features, task.measure
        assert isinstance(measure, PictureError)
        assert sets.shape == (24, 3, 64 + 12 + 8 + 12 + 8)
        assert features.blocks == (
            Bernoulli(64),
            *(Categorical(width, scored_as="bernoulli") for width in (12, 8, 12, 8)),
        )
        archive = an_archive()
        found = BoxGrid(40, 60).chosen(sets[..., 64:])
        assert found.equal(torch.from_numpy(archive.boxes.astype(np.int64)))  # on the grid already
        first = torch.from_numpy(archive.patches[7, 1]).permute(2, 0, 1) / 255
        assert measure.patches.encode(first).allclose(sets[7, 1, :64], atol=1e-6)
        assert not measure.patches.training

    def test_another_archive_is_refused(self, folder: Path) -> None:
        data = DATA.bound(folder)
        with pytest.raises(ValueError, match="SHA-256 is not settled yet"):
            DATA.load(folder)
        an_archive(seed=1).write(DATA.archive(folder))
        with pytest.raises(ValueError, match="not the pictures of this config"):
            data.load(folder)

    def test_one_that_is_not_there_or_of_something_else(self, folder: Path) -> None:
        with pytest.raises(ValueError, match=r"setwise data blocksworld --blocks 3 .*--states 99"):
            replace(DATA, states=99).bound(folder)
        an_archive(states=20).write(DATA.archive(folder))
        with pytest.raises(ValueError, match=r"expected states, blocks and size \(24, 3, .* \(20"):
            DATA.bound(folder).load(folder)
        an_archive().write(DATA.archive(folder))
        with pytest.raises(ValueError, match="expected 0 < train <= states, got train 25"):
            replace(DATA, train=25).bound(folder).load(folder)

    def test_one_drawn_in_another_way(self, folder: Path) -> None:
        """As far as the settings beside it tell."""
        drawn = {
            "environment": {"world": {"blocks": 3, "stacks": 3}, "blocks": []},
            **{"renderer": "mitsuba", "seed": 0, "width": 60, "height": 40, "samples": 32},
            "version": "any",
        }
        settings = DATA.archive(folder).with_name("settings.json")
        settings.write_text(json.dumps(drawn))
        assert DATA.bound(folder).sha256
        settings.write_text(json.dumps(drawn | {"renderer": "blender", "seed": 7}))
        said = r"\(seed 7 instead of 0; renderer blender instead of mitsuba\): use another folder"
        with pytest.raises(ValueError, match=said):
            DATA.bound(folder)
        settings.write_text(json.dumps(drawn | {"samples": 8}))
        with pytest.raises(ValueError, match="samples 8 instead of 32"):
            DATA.bound(folder)
        settings.write_text(json.dumps(drawn | {"environment": {"world": {"stacks": 4}}}))
        with pytest.raises(ValueError, match="blocks None instead of 3; stacks 4 instead of 3"):
            DATA.bound(folder)


class TestPatches:
    def test_the_seed_decides(self) -> None:
        seen = some_patches(15)
        torch.manual_seed(5)
        before = torch.get_rng_state()
        one, same = (
            fit(DATA.patch_training, seen, CPU).state_dict(),
            fit(DATA.patch_training, seen, CPU).state_dict(),
        )
        other = fit(replace(DATA, patch_seed=1).patch_training, seen, CPU).state_dict()
        assert torch.get_rng_state().equal(before)
        assert all(weight.equal(same[name]) for name, weight in one.items())
        assert not one["encoder.0.weight"].equal(other["encoder.0.weight"])

    # Slow: a training until it has learned. The tests beside it train for two epochs.
    @pytest.mark.slow
    def test_it_learns(self) -> None:
        seen = some_patches(15)
        data = replace(DATA, patch_channels=2, patch_epochs=150)
        model = fit(data.patch_training, seen, CPU).eval()
        with torch.no_grad():
            left = (model(seen) - seen).square().mean()
        assert left < 0.6 * (seen.mean(0) - seen).square().mean()

    def test_it_is_trained_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        seen = some_patches(15)
        data = replace(DATA, sha256="abc")
        first = patch_autoencoder(data.patch_training, seen, tmp_path, CPU)
        (kept,) = tmp_path.glob("patches-*.safetensors")
        assert checkpoint.read(kept)[1]["training"]["sha256"] == "abc"
        monkeypatch.setattr(patches, "fit", lambda *given: 1 / 0)
        other = replace(data, scored_as="categorical")
        again = patch_autoencoder(other.patch_training, seen, tmp_path, CPU)
        assert again.encode(seen).equal(first.encode(seen))
        assert not any(weight.requires_grad for weight in again.parameters())
        for change in ({"sha256": "d"}, {"train": 19}, {"patch_epochs": 3}, {"patch_seed": 1}):
            changed = replace(data, **change)  # type: ignore[arg-type]
            with pytest.raises(ZeroDivisionError):
                patch_autoencoder(changed.patch_training, seen, tmp_path, CPU)

    def test_too_few(self) -> None:
        with pytest.raises(ValueError, match="patch_batch: 15 patches are more than the 14"):
            fit(DATA.patch_training, some_patches(14), CPU)

    def test_weights_have_a_name(self) -> None:
        model = fit(DATA.patch_training, some_patches(15), CPU)
        name = weights_sha256(model)
        assert weights_sha256(fit(DATA.patch_training, some_patches(15), CPU)) == name
        with torch.no_grad():
            next(model.parameters()).view(-1)[0].add_(1e-6)
        assert weights_sha256(model) != name


def _identities(configs: list[Config]) -> set[str]:
    return {config.identity for config in configs}


class TestTraining:
    def test_records(self, folder: Path, tmp_path: Path) -> None:
        data = DATA.bound(folder)
        configs = [config(data, scenario, "SH", seed) for scenario in "14" for seed in (0, 1)]
        seen: list[TrainingProgress] = []
        train(
            configs,
            "cpu",
            tmp_path / "results",
            tmp_path / "networks",
            data=folder,
            watch=lambda training, progress: seen.append(progress),
            keep=lambda results: {configs[2].identity},
        )
        assert seen[-1].metric == "rmse"
        records = store.read(tmp_path / "results" / "table3-tiny.jsonl")
        assert len(records) == 4
        for record in records:
            assert record["config"]["data"]["sha256"] == data.sha256
            metrics, history = record["metrics"], record["history"]
            heldout = {"heldout", "heldout_covered"}
            assert metrics.keys() == {"rmse", "covered", "train", "loss", *heldout}
            whole = (20 * metrics["train"] ** 2 + 4 * metrics["heldout"] ** 2) / 24
            assert metrics["rmse"] ** 2 == pytest.approx(whole, rel=1e-4)
            assert history.keys() == {"epoch", "loss", "rmse", "heldout"}
            assert history["rmse"][-1] == pytest.approx(metrics["rmse"], abs=1e-4)

        # What was kept does what was recorded, read in any order.
        kept = tmp_path / "networks" / "table3-tiny" / f"{configs[2].identity}.safetensors"
        found, network = load_network(kept, data=folder)
        assert found == configs[2]
        task = found.data.load(folder)
        with torch.no_grad():
            logits = network(task.targets.flip(1)).unsqueeze(0)
        finite = torch.ones(1, 24, dtype=torch.bool)
        values = task.measure(logits, finite, task.targets, task.features)["rmse"]
        (recorded,) = (r["metrics"]["rmse"] for r in records if r["run"] == found.identity)
        assert task.measure.total(values).item() == pytest.approx(recorded, abs=1e-4)

    def test_reconstructions(self, folder: Path, tmp_path: Path) -> None:
        data = DATA.bound(folder)
        configs = [config(data, "4", loss) for loss in ("SH", "H")]
        train(configs, "cpu", tmp_path, tmp_path, data=folder, keep=lambda rs: _identities(configs))
        networks = sorted((tmp_path / "table3-tiny").glob("*.safetensors"))
        found = reconstruct(networks, [3, 22], folder)
        found.write(tmp_path / "x" / "pictures.npz")
        back = Reconstructions.read(tmp_path / "x" / "pictures.npz")
        assert back.configs == found.configs == (configs[1], configs[0])
        assert back.states == (3, 22)
        assert (back.environment, back.finished) == (found.environment, found.finished)
        assert back.environment["hardware"]
        assert datetime.fromisoformat(back.finished) <= datetime.now(UTC)
        assert (back.inputs == found.inputs).all()
        assert back.outputs.shape == (2, 2, 40, 60, 3)
        # As far apart as was measured.
        task = data.load(folder)
        path = tmp_path / "table3-tiny" / f"{configs[0].identity}.safetensors"
        with torch.no_grad():
            logits = load_network(path, data=folder)[1](task.targets[[3, 22]])
        values = task.measure(
            logits[None], torch.ones(1, 2, dtype=torch.bool), task.targets[[3, 22]], task.features
        )
        difference = (back.outputs[1] / 255.0 - back.inputs / 255.0).astype(np.float64)
        expected = (difference**2).mean((1, 2, 3)).tolist()
        assert values["rmse"][0].tolist() == pytest.approx(expected, rel=0.05)
        with pytest.raises(ValueError, match="--keep best"):
            reconstruct([], [0], folder)

    @pytest.mark.slow  # a training, as in the test of reconstructions above
    def test_reconstructions_for_the_documents(self, folder: Path) -> None:
        """The program of the figures collects what was kept in a folder of runs."""
        own = config(DATA.bound(folder), "4")
        train([own], "cpu", folder, folder, data=folder, keep=lambda rs: [own.identity])
        collect_reconstructions(folder / "table3-tiny", [22, 23], folder / "x.npz")
        found = Reconstructions.read(folder / "x.npz")
        assert found.configs == (own,)
        assert found.states == (22, 23)

    def test_a_network_keeps_to_its_patch_autoencoder(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Another one has other features, even if all of its settings are the same."""
        own = config(DATA.bound(folder))
        train([own], "cpu", folder, folder, data=folder, keep=lambda rs: [own.identity])
        path = folder / "table3-tiny" / f"{own.identity}.safetensors"
        (autoencoder,) = DATA.archive(folder).parent.glob("patches-*.safetensors")
        weights, facts = checkpoint.read(autoencoder)
        monkeypatch.setattr(patches, "fit", lambda *given: 1 / 0)
        load_network(path, data=folder)

        bias = weights["encoder.0.bias"]
        checkpoint.write(autoencoder, weights | {"encoder.0.bias": bias + 1e-3}, facts)
        with pytest.raises(ValueError, match=r"patches-.*: not the patch autoencoder that the net"):
            load_network(path, data=folder)
        autoencoder.unlink()
        for load in (load_network, lambda path, data: reconstruct([path], [0], data)):
            with pytest.raises(ValueError, match=r"patches-.*: .* is not there; copy it from"):
                load(path, data=folder)
        assert not autoencoder.exists()

    def test_a_training_keeps_to_its_patch_autoencoder(self, folder: Path) -> None:
        own, path = config(DATA.bound(folder)), folder / "x.ckpt"
        with pytest.raises(StoppedError):
            Training([own], "cpu", path, data=folder).run(stop=lambda: True)
        (autoencoder,) = DATA.archive(folder).parent.glob("patches-*.safetensors")
        weights, facts = checkpoint.read(autoencoder)
        other = weights | {"encoder.0.bias": weights["encoder.0.bias"] + 1e-3}
        checkpoint.write(autoencoder, other, facts)
        with pytest.raises(ValueError, match=r"x\.ckpt: began with data of which something else"):
            Training([own], "cpu", path, data=folder).run()
        checkpoint.write(autoencoder, weights, facts)
        assert len(Training([own], "cpu", path, data=folder).run()) == 1

    # Slow: a training until it has learned. test_records trains in the same way for two epochs.
    @pytest.mark.slow
    def test_pictures_come_closer(self, folder: Path) -> None:
        data = DATA.bound(folder)
        # Enough for any seed: after half of it, which had converged depended on the processor.
        schedule = {"epochs": 200, "learning_rate": 5e-3, "cooldown": 0.5}
        configs = [config(data, "1", loss, **schedule) for loss in ("H", "SH")]
        black = data.load(folder)
        assert isinstance(black.measure, PictureError)
        nothing = black.measure.pictures(black.targets).square().mean().sqrt().item()
        results = Training(configs, "cpu", data=folder).run()
        for result, limit in zip(results, (0.5, 0.8), strict=True):
            assert result.metrics["train"] < limit * nothing

    def test_curves_are_measured_on_some_examples(self, folder: Path) -> None:
        task = DATA.bound(folder).load(folder)
        measure = task.measure
        assert isinstance(measure, PictureError)
        assert measure.curve_examples == 500
        few = replace(task, measure=replace(measure, curve_examples=6))
        assert _evenly(few).tolist() == [0, 4, 8, 12, 16, 20]
        assert _evenly(task).tolist() == list(range(24))


def test_networks_begin_at_typical_blocks_of_the_states_trained_on(folder: Path) -> None:
    asked = config(DATA.bound(folder))
    assert isinstance(asked.network, Autoencoder)
    asked = replace(asked, network=replace(asked.network, start_at_prototypes=True))
    assert isinstance(asked.data, BlocksData)
    task = asked.data.load(folder)
    network = build_network(asked, task)
    expected = as_logits(task.prototypes, task.features).flatten()
    assert network.state_dict()["autoencoder.decoder.output.bias"].equal(expected)
    # Not where saved weights will be put in their place, which need no search.
    loaded = build_network(asked, task, to_train=False)
    assert loaded.state_dict()["autoencoder.decoder.output.bias"].eq(0).all()
    others = task.targets.clone()
    others[task.train :] = others[task.train :].flip(-1)
    assert replace(task, targets=others).prototypes.equal(task.prototypes)


def test_few_pictures_are_drawn_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many sets there are for a member; what is found is the same."""
    task = DATA.bound(folder).load(folder)
    logits = torch.randn(2, *task.targets.shape, generator=torch.Generator().manual_seed(0))
    finite = torch.ones(2, 24, dtype=torch.bool)
    at_once = task.measure(logits, finite, task.targets, task.features)
    drawn: list[int] = []

    def paste(seen: Tensor, *where: Any) -> tuple[Tensor, Tensor]:
        drawn.append(len(seen))
        return pasted(seen, *where)

    pasted = picture_error.paste
    monkeypatch.setattr(picture_error, "paste", paste)
    monkeypatch.setattr(picture_error, "PIXELS_AT_ONCE", 5 * 60 * 40 + 1)
    found = task.measure(logits, finite, task.targets, task.features)
    assert set(drawn) == {5, 4}
    assert sum(drawn) == 2 * 2 * 24
    for name, values in at_once.items():
        torch.testing.assert_close(found[name], values, atol=1e-7, rtol=1e-5)
    monkeypatch.setattr(picture_error, "PIXELS_AT_ONCE", 1)
    assert task.measure(logits, finite, task.targets, task.features)["rmse"].shape == (2, 24)


def test_a_damaged_network_of_rules_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And those that are whole are not read in full only to see what they are."""
    own = table4.quick("n2-2250-random", "set_cross_entropy", 0)
    runs = tmp_path / "table4-quick"
    for name in "ab":
        checkpoint.write(
            runs / f"{name}.safetensors",
            {"x": torch.ones(9)},
            {"schema": 2, "config": own.as_dict()},
        )
    (runs / "a.safetensors").write_bytes((runs / "b.safetensors").read_bytes()[:-5])
    monkeypatch.setattr(checkpoint, "read", lambda path: 1 / 0)
    with pytest.warns(UserWarning, match=r"left out: .*a\.safetensors: damaged"):
        (kept,) = kept_rule_learners(tmp_path, tmp_path)
    assert kept.path == runs / "b.safetensors"
    assert kept.config == own


def test_the_recipes() -> None:
    configs = EXPERIMENTS["table3"].configs()
    assert len({config.identity for config in configs}) == 160
    assert len(ensembles(configs)) == 1
    assert configs[0].data == BlocksData(states=2500, train=2250)
    quick = EXPERIMENTS["table3-quick"].configs()
    assert len(quick) == 16
