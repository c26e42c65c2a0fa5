"""Table 3 on CUDA: the same values as on the CPU, and training that lowers the error."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
from torch.nn.utils import parameters_to_vector

from setwise.experiments.evaluate import measured
from setwise.experiments.tasks import BlocksData, patches
from setwise.experiments.tasks.patches import fit
from setwise.experiments.train import Training
from setwise.models import PatchAutoencoder
from tiny_blocks import CPU, DATA, an_archive, config, some_patches

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    # What other packages warn of on a machine with a GPU is none of our business.
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture
def data(tmp_path: Path) -> BlocksData:
    path = DATA.archive(tmp_path)
    path.parent.mkdir()
    an_archive().write(path)
    return DATA.bound(tmp_path)


def test_errors_are_those_of_the_cpu(data: BlocksData, tmp_path: Path) -> None:
    configs = [config(data, "4", loss) for loss in ("H", "SH", "A1H", "H1H")]
    on_cuda, on_cpu = (Training(configs, device, data=tmp_path) for device in ("cuda", "cpu"))
    ours = measured(on_cuda.ensemble, on_cuda.task, on_cuda.configs)
    right = measured(on_cpu.ensemble, on_cpu.task, on_cpu.configs)
    for name, values in ours.items():
        torch.testing.assert_close(values.cpu(), right[name], atol=1e-3, rtol=1e-2)


def test_training_lowers_the_error(data: BlocksData, tmp_path: Path) -> None:
    configs = [
        config(data, "1", loss, epochs=100, learning_rate=5e-3, cooldown=0.5)
        for loss in ("H", "SH", "A1H", "H1H")
    ]
    training = Training(configs, "cuda", data=tmp_path)
    before = training.task.measure.total(
        measured(training.ensemble, training.task, training.configs, final=False)["rmse"]
    )
    results = training.run()
    losses = [result.config.loss for result in results]
    assert losses == ["hausdorff", "ordered_cross_entropy", "set_average", "set_cross_entropy"]
    assert results[1].metrics["train"] < 0.6 * before[1].item()


def test_patches_are_learned_as_on_the_cpu(
    data: BlocksData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the same start the weights move by as much, into the same direction."""
    # The noise of a GPU is another one.
    monkeypatch.setattr(patches, "PatchAutoencoder", partial(PatchAutoencoder, noise=0.0))
    torch.manual_seed(data.patch_seed)
    start = parameters_to_vector(PatchAutoencoder(data.patch_channels).parameters()).detach()
    moved = []
    for device in (torch.device("cuda"), CPU):
        weights = parameters_to_vector(
            fit(data.patch_training, some_patches(30), device).parameters()
        )
        moved.append(weights.detach().cpu() - start)
    ours, right = moved
    assert right.abs().median() > data.patch_rate
    assert ours.norm().item() == pytest.approx(right.norm().item(), rel=0.02)
    # Adam's first steps are as large for gradients that are nearly zero, whatever their sign.
    assert torch.cosine_similarity(ours, right, dim=0) > 0.95
