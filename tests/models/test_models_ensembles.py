"""Ensembles of networks are their members, and what a CUDA graph demands.

Legend: B sets, N elements, F features, L latent variables, K members.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call, stack_module_state

from setwise.models import (
    BinaryConcrete,
    GumbelSoftmax,
    SetAutoencoder,
)
from small_models import TIGHT, Latent, seeded, small_autoencoder, state


class FromCounts(nn.Module):
    """`forward_counts` where ``functional_call`` looks for it."""

    def __init__(self, model: SetAutoencoder, table: Tensor) -> None:
        super().__init__()
        self.model = model
        self.table = table

    def forward(self, counts: Tensor, temperature: Tensor) -> Tensor:
        return self.model.forward_counts(counts, self.table, temperature)


def ensemble(
    members: list[nn.Module],
) -> tuple[dict[str, Tensor], dict[str, Tensor], Callable[..., Tensor]]:
    """Stacked parameters and buffers, and one call that runs every member."""
    parameters, buffers = stack_module_state(members)

    def one(parameters: Any, buffers: Any, inputs: Tensor, temperature: Tensor) -> Tensor:
        return functional_call(members[0], (parameters, buffers), (inputs, temperature))

    every = torch.vmap(one, in_dims=(0, 0, None, 0), randomness="different")
    return parameters, buffers, every


@pytest.mark.parametrize("kind", [GumbelSoftmax, BinaryConcrete])
@pytest.mark.parametrize("counted", [False, True], ids=["sets", "counts"])
def test_an_ensemble_is_its_members(counted: bool, kind: type[Latent]) -> None:
    """Outputs, gradients and running statistics, over two steps; each its own temperature."""
    members: list[nn.Module] = [
        small_autoencoder(kind(5, noise=False), dropout=0.0, seed=seed) for seed in range(3)
    ]
    inputs = torch.randn(8, 3, 4, generator=seeded(1)).double()
    if counted:
        table = torch.randn(7, 4, generator=seeded(1)).double()
        members = [FromCounts(model, table) for model in members]
        inputs = torch.randint(3, (8, 7), generator=seeded(2))
    temperatures = torch.tensor([0.5, 1.0, 2.0]).double()
    parameters, buffers, every = ensemble(members)
    weights = torch.randn(2, 3, 8, 3, 4, generator=seeded(3)).double()

    together = [every(parameters, buffers, inputs, temperatures) for _ in weights]
    loss = sum((output * weight).sum() for output, weight in zip(together, weights, strict=True))
    given = dict(zip(parameters, torch.autograd.grad(loss, list(parameters.values())), strict=True))
    for k, member in enumerate(members):
        started = state(member)
        alone = [member(inputs, temperatures[k]) for _ in weights]
        for step, output in enumerate(alone):
            torch.testing.assert_close(together[step][k], output, **TIGHT)
        cost = sum((o * w[k]).sum() for o, w in zip(alone, weights, strict=True))
        names = dict(member.named_parameters())
        for name, expected in zip(
            names, torch.autograd.grad(cost, list(names.values())), strict=True
        ):
            # Some of them are zero, the rest of large terms that cancel.
            torch.testing.assert_close(given[name][k], expected, rtol=1e-9, atol=1e-9)
        updated = dict(member.named_buffers())
        assert len(updated) == 6
        for name, expected in updated.items():
            assert not expected.equal(started[name])
            torch.testing.assert_close(buffers[name][k], expected, **TIGHT)


def test_an_ensemble_in_evaluation_is_its_members() -> None:
    members: list[nn.Module] = [small_autoencoder(seed=seed).eval() for seed in range(3)]
    sets = 20 * torch.randn(8, 3, 4, generator=seeded(1)).double()
    parameters, buffers, every = ensemble(members)
    together = every(parameters, buffers, sets, torch.ones(3))
    alone = torch.stack([member(sets) for member in members])
    torch.testing.assert_close(together, alone, **TIGHT)
    assert not together.allclose(together.mean(1, keepdim=True))


@pytest.mark.parametrize(
    ("latent", "dropout"), [(GumbelSoftmax(5), 0.0), (BinaryConcrete(5), 0.0), (None, 0.5)]
)
def test_members_draw_their_own_noise(latent: Latent | None, dropout: float) -> None:
    """Members of equal weights differ only by the noise of the latents, or by dropout."""
    latent = GumbelSoftmax(5, noise=False) if latent is None else latent
    members: list[nn.Module] = [small_autoencoder(latent, dropout) for _ in range(3)]
    sets = torch.randn(8, 3, 4, generator=seeded(1)).double()
    outputs = ensemble(members)[2](*stack_module_state(members), sets, torch.ones(3))
    for one, two in [(0, 1), (0, 2), (1, 2)]:
        assert not outputs[one].allclose(outputs[two])


@pytest.mark.parametrize("kind", [GumbelSoftmax, BinaryConcrete])
@pytest.mark.parametrize("training", [True, False])
def test_no_value_is_read(kind: type[Latent], training: bool) -> None:
    """Fake tensors hold none: whatever would make a GPU wait, or break its graph, raises here."""
    with FakeTensorMode():
        model = SetAutoencoder(3, 4, kind(5), (9,), (8,), 10).train(training)
        sets, valid = torch.rand(8, 3, 4), torch.ones(8, 3, dtype=torch.bool)
        temperature = torch.rand(())
        assert model(sets, temperature, valid).shape == (8, 3, 4)
        counts, table = torch.ones(8, 7, dtype=torch.int64), torch.rand(7, 4)
        assert model.forward_counts(counts, table, temperature).shape == (8, 3, 4)
        assert model.decode(model.encode(sets)).shape == (8, 3, 4)
        assert model.encode_counts(counts, table).shape == (8, 5)
