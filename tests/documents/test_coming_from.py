"""docs/coming-from.md: what a call of theirs gives, ours gives, too.

Where the peer cannot be installed everywhere (pytorch3d, DETR), what its documentation says it
computes is written out here.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from geomloss import SamplesLoss
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import directed_hausdorff
from torch import Tensor
from torch.nn import functional as F
from torchmetrics.classification import MultilabelExactMatch

import setwise as sw
from repository import ROOT

PAGE = ROOT / "docs" / "coming-from.md"
NEAR = {"rtol": 1e-5, "atol": 1e-5}


@pytest.fixture
def x() -> Tensor:
    return torch.randn(4, 30, 3, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def y() -> Tensor:
    return torch.randn(4, 40, 3, generator=torch.Generator().manual_seed(1))


def squared(x: Tensor, y: Tensor) -> Tensor:
    return (x.unsqueeze(-2) - y.unsqueeze(-3)).square().sum(-1)


def test_scipy_linear_sum_assignment(x: Tensor, y: Tensor) -> None:
    cost = squared(x, y)
    for one, columns in zip(cost, sw.assign(cost), strict=True):
        _, theirs = linear_sum_assignment(one.numpy())
        assert columns.tolist() == theirs.tolist()


def test_scipy_directed_hausdorff(x: Tensor, y: Tensor) -> None:
    points = sw.Features(sw.Gaussian(3, scale=math.sqrt(0.5)))
    theirs = [directed_hausdorff(a, b)[0] for a, b in zip(x.numpy(), y.numpy(), strict=True)]
    ours = sw.hausdorff(y, x, points, reduction="none").sqrt()
    torch.testing.assert_close(ours, torch.tensor(theirs, dtype=torch.float32), **NEAR)


def test_pytorch3d_chamfer_distance(x: Tensor, y: Tensor) -> None:
    """Means over points, then over clouds, of squared distances, both ways added."""
    pairs = squared(x, y)
    theirs = (pairs.amin(-1).mean(-1) + pairs.amin(-2).mean(-1)).mean()
    torch.testing.assert_close(sw.chamfer(x, y), theirs, **NEAR)


def test_pytorch3d_chamfer_distance_with_lengths(x: Tensor, y: Tensor) -> None:
    x_lengths, y_lengths = torch.tensor([30, 7, 1, 12]), torch.tensor([5, 40, 3, 9])
    found = []
    for one, other, a, b in zip(x, y, x_lengths, y_lengths, strict=True):
        pairs = squared(one[:a], other[:b])
        found.append(pairs.amin(-1).mean() + pairs.amin(-2).mean())
    ours = sw.chamfer(x, y, input_valid=x_lengths, target_valid=y_lengths)
    torch.testing.assert_close(ours, torch.stack(found).mean(), **NEAR)


def test_pytorch3d_single_directional(x: Tensor, y: Tensor) -> None:
    """From the points of the first cloud to the second alone."""
    theirs = squared(x, y).amin(-1).mean()
    torch.testing.assert_close(sw.chamfer(y, x, directed=True), theirs, **NEAR)


def test_pot_emd2(x: Tensor, y: Tensor, ot: Any) -> None:
    y = y[:, :30]
    theirs = [
        ot.emd2([], [], np.sqrt(squared(a, b).numpy().astype(np.float64)))
        for a, b in zip(x, y, strict=True)
    ]
    ours = sw.earth_movers(y, x, reduction="none")
    torch.testing.assert_close(ours, torch.tensor(theirs, dtype=torch.float32), **NEAR)


def test_pot_sinkhorn2(x: Tensor, y: Tensor, ot: Any) -> None:
    """POT's value is the cost of the plan; so is the gradient of ours by a scale of all costs."""
    points = sw.Features(sw.Gaussian(3))
    x, y, t = x.double(), y.double(), 0.5
    for one, other in zip(x, y, strict=True):
        cost = squared(one, other) / 2
        theirs = ot.sinkhorn2([], [], cost.numpy(), reg=t, numItermax=5000, stopThr=1e-12)
        weight = torch.ones(len(one), dtype=torch.float64, requires_grad=True)
        loss = sw.transport_cross_entropy(other, one, points, temperature=t, weight=weight)
        [ours] = torch.autograd.grad(loss, weight)
        torch.testing.assert_close(ours.mean().item(), float(theirs), **NEAR)


@pytest.mark.slow  # thousands of rounds, for five digits; POT's transport is beside it
def test_geomloss_sinkhorn(x: Tensor, y: Tensor) -> None:
    points, blur = sw.Features(sw.Gaussian(3)), 0.7
    theirs = SamplesLoss("sinkhorn", p=2, blur=blur, debias=False, scaling=0.999)(
        x.double(), y.double()
    )
    ours = sw.transport_cross_entropy(
        y.double(), x.double(), points, temperature=blur**2, reduction="none"
    )
    torch.testing.assert_close(ours / x.shape[-2], theirs.flatten(), **NEAR)


@pytest.fixture
def detections() -> tuple[Tensor, Tensor]:
    """Logits [B, N, K + 1] of DETR, the last for no object, and classes [B, M]."""
    generator = torch.Generator().manual_seed(2)
    logits = 2 * torch.randn(3, 10, 6, generator=generator)
    return logits, torch.randint(5, (3, 4), generator=generator)


def test_detr_matcher(detections: tuple[Tensor, Tensor]) -> None:
    logits, classes = detections
    cost = -logits.softmax(-1)[..., :-1].gather(-1, classes.unsqueeze(1).expand(-1, 10, -1)).mT
    for one, columns in zip(cost, sw.assign(cost), strict=True):
        rows, theirs = linear_sum_assignment(one.numpy())
        assert one[rows, columns].sum() == pytest.approx(one[rows, theirs].sum().item(), abs=1e-6)


def test_detr_loss_of_classes(detections: tuple[Tensor, Tensor]) -> None:
    """Cross entropy of all queries, those without an object against the class for none.

    A query exists with the probability of any class, hence its logit of presence.
    """
    logits, classes = detections
    cost = -logits.softmax(-1)[..., :-1].gather(-1, classes.unsqueeze(1).expand(-1, 10, -1)).mT
    matching = sw.assign(cost)
    wanted = torch.full((3, 10), 5).scatter(1, matching, classes)
    theirs = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="sum") / 3
    presence = logits[..., :-1].logsumexp(-1) - logits[..., -1]
    objects = sw.Features(sw.Categorical(5))
    ours = sw.assignment_cross_entropy(
        logits[..., :-1],
        objects.from_classes(classes.unsqueeze(-1)),
        objects,
        presence=presence,
        matching_cost=cost,
    )
    torch.testing.assert_close(ours, theirs, **NEAR)


def test_torch_cross_entropies_in_a_fixed_order(detections: tuple[Tensor, Tensor]) -> None:
    logits, _ = detections
    classes = torch.randint(6, (3, 10), generator=torch.Generator().manual_seed(3))
    objects = sw.Features(sw.Categorical(6))
    ours = sw.ordered_cross_entropy(logits, objects.from_classes(classes.unsqueeze(-1)), objects)
    theirs = F.cross_entropy(logits.flatten(0, 1), classes.flatten(), reduction="sum") / 3
    torch.testing.assert_close(ours, theirs, **NEAR)
    target = F.one_hot(classes, 6).float()
    binary = F.binary_cross_entropy_with_logits(logits, target, reduction="sum") / 3
    torch.testing.assert_close(sw.ordered_cross_entropy(logits, target), binary, **NEAR)


def test_torchmetrics_exact_match(detections: tuple[Tensor, Tensor]) -> None:
    """A set is right if all labels of it are; of ours, in any order."""
    logits, _ = detections
    target = (logits > 0).float()
    target[0, 0, 0] = 1 - target[0, 0, 0]
    theirs = MultilabelExactMatch(num_labels=60)(logits.flatten(1).sigmoid(), target.flatten(1))
    shuffled = target[:, torch.randperm(10, generator=torch.Generator().manual_seed(4))]
    torch.testing.assert_close(sw.metrics.set_success(logits, shuffled), theirs, **NEAR)


def test_every_test_has_a_row_on_the_page() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    tests = [name for name in globals() if name.startswith("test_") and "page" not in name]
    assert len(rows) >= len(tests)
