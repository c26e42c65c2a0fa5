"""The exact likelihood against programs of others: Pyro's matchings and The Walrus' permanents."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

import setwise as sw

# Slow: these packages take long to import, and one compiles what it computes with. Every matching,
# one by one, is what test_set_likelihood.py compares with.
pytestmark = pytest.mark.slow


def _classes(sets: int, outputs: int, targets: int) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs and targets of five classes, and the log probabilities [B, M, N] of all pairs."""
    generator = torch.Generator().manual_seed(outputs)
    logits = 2 * torch.randn(sets, outputs, 5, generator=generator, dtype=torch.float64)
    target = torch.randint(0, 5, (sets, targets), generator=generator)
    scores = logits.log_softmax(-1).mT.gather(1, target.unsqueeze(-1).expand(-1, -1, outputs))
    return logits, target, scores


FIVE = sw.Features(sw.Categorical(5))


def test_pyro() -> None:
    from pyro.distributions import OneOneMatching

    logits, target, scores = _classes(4, 6, 6)
    losses = sw.set_likelihood(logits, target, FIVE, method="exact", reduction="none")
    marginals = sw.matching_marginals(logits, target, FIVE, method="exact")
    for loss, pairs, own in zip(losses, marginals, scores, strict=True):
        leaf = own.clone().requires_grad_()
        total = OneOneMatching(leaf).log_partition_function
        torch.testing.assert_close(-loss, total.detach(), rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(pairs, torch.autograd.grad(total, leaf)[0])


@pytest.mark.parametrize(("outputs", "targets"), [(9, 9), (8, 5)])
def test_the_walrus(outputs: int, targets: int) -> None:
    """Outputs that are left over are made rows of ones, which may come in any order."""
    from thewalrus import perm

    logits, target, scores = _classes(3, outputs, targets)
    losses = sw.set_likelihood(logits, target, FIVE, method="exact", reduction="none")
    spare = outputs - targets
    for loss, own in zip(losses.tolist(), scores, strict=True):
        matrix = np.concatenate([own.exp().numpy(), np.ones((spare, outputs))])
        expected = math.log(perm(matrix, method="ryser") / math.factorial(spare))
        assert -loss == pytest.approx(expected, rel=1e-8)
