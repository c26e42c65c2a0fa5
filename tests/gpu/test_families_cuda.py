"""Every family on a CUDA device, through the compiled kernels, beside float64 on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import setwise as sw

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

FEATURES = {
    "counts": sw.Features(sw.Poisson(3)),
    "angles": sw.Features(sw.Angle(3, concentration=2.0)),
    "mixed": sw.Features(sw.Angle(2), sw.Categorical(4), sw.Poisson(1, weight=0.5), sw.Gaussian(2)),
}
# The losses and their options; those with kernels beside those that have none.
PAIRWISE: list[tuple[Callable[..., Tensor], dict[str, Any]]] = [
    (sw.set_cross_entropy, {}),
    (sw.set_cross_entropy, {"temperature": 0.5}),
    (sw.set_average, {"directed": False}),
    (sw.hausdorff, {}),
]
OTHERS: list[tuple[Callable[..., Tensor], dict[str, Any]]] = [
    (sw.assignment_cross_entropy, {}),
    (sw.ordered_cross_entropy, {}),
]
each = pytest.mark.parametrize("features", FEATURES.values(), ids=FEATURES)


def draw(features: sw.Features) -> tuple[Tensor, Tensor]:
    """Logits and targets in float64, on the host."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(3, 40, features.width, generator=generator, dtype=torch.float64)
    return z, features.random_targets((3, 40), generator).double()


@each
@pytest.mark.parametrize("kernels", [True, False])
def test_losses(features: sw.Features, kernels: bool) -> None:
    z, x = draw(features)
    valid = torch.arange(40) < torch.tensor([[40], [17], [1]])
    places = (("cuda", torch.float32, "triton"), ("cpu", torch.float64, "reference"))
    for loss, options in PAIRWISE if kernels else OTHERS:
        found = []
        for device, kind, impl in places:
            leaf, mask = z.to(device, kind).requires_grad_(), valid.to(device)
            masks = {"input_valid": mask, "target_valid": mask}
            engine = {"impl": impl} if kernels else {}
            target = x.to(device, kind)
            value = loss(leaf, target, features, reduction="none", **masks, **options, **engine)
            (gradient,) = torch.autograd.grad(value.sum(), leaf)
            found.append((value.detach().double().cpu(), gradient.double().cpu()))
        for ours, exact in zip(*found, strict=True):
            torch.testing.assert_close(ours, exact, rtol=1e-4, atol=1e-4)


@each
def test_targets_dummies_and_metrics(features: sw.Features) -> None:
    generator = torch.Generator("cuda").manual_seed(0)
    x = features.random_targets((8, 5), generator)
    assert x.device.type == "cuda"
    z = features.from_probs(x.flip(1))
    for metric in (sw.metrics.set_success, sw.metrics.multiset_equality):
        assert metric(z, x, features, tolerance=1e-4) == 1.0
    assert sw.metrics.matched_error(z, x, features) < 1e-4
    padded = sw.pad_sets([x[0], x[1, :2]], 6, features)
    assert padded.device.type == "cuda"
    assert all(map(torch.equal, sw.unpad_sets(padded), [x[0], x[1, :2]]))
