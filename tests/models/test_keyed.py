"""Noise that is a function of a key: uniform, independent, and the same wherever it is drawn."""

from __future__ import annotations

import pytest
import torch
from scipy import stats  # type: ignore[import-untyped]
from torch import nn

from setwise.experiments.randomness import hashed
from setwise.models import GumbelSoftmax, SetAutoencoder
from setwise.models.keyed import (
    KeyedDropout,
    KeyedLayer,
    keyed_layers,
    keyed_uniform,
    with_keyed_dropout,
)

SOME = torch.Size([200_000])
# As members of an ensemble have them: seeds 0 and 1, epochs 0 and 1, two layers.
KEYS = tuple(
    hashed(torch.tensor(seed), epoch, 0, layer, -1).item()
    for seed in (0, 1)
    for epoch in (0, 1)
    for layer in (0, 1)
)


def draws(key: int, shape: torch.Size = SOME) -> torch.Tensor:
    return keyed_uniform(torch.tensor(key), shape)


@pytest.mark.parametrize("key", [*KEYS, 0, 1, 2**32, 2**63 - 1])
def test_draws_are_uniform_and_inside_the_unit_interval(key: int) -> None:
    found = draws(key)
    assert found.dtype == torch.float32
    assert 0 < found.min() < found.max() < 1
    assert found.log().isfinite().all()
    assert (1 - found).log().isfinite().all()
    assert stats.kstest(found.double().numpy(), "uniform").pvalue > 1e-3


@pytest.mark.parametrize("key", [*KEYS, 0, 1, 2**32, 2**63 - 1])
def test_draws_do_not_tell_their_neighbours(key: int) -> None:
    found = draws(key).double()
    for lag in (1, 2, 7, 256, 65536):
        pairs = torch.stack([found[:-lag], found[lag:]])
        assert torch.corrcoef(pairs)[0, 1].abs() < 5 / len(found) ** 0.5


def test_keys_do_not_tell_each_other() -> None:
    found = torch.stack([draws(key).double() for key in KEYS])
    between = torch.corrcoef(found) - torch.eye(len(KEYS), dtype=torch.float64)
    assert between.abs().max() < 5 / SOME.numel() ** 0.5
    # As many distinct ones as 1.6 million independent draws among 2^23 values have, 1.457 million.
    assert len(found.flatten().unique()) > 1.45e6


def test_the_extremes_are_inside() -> None:
    """The smallest and the largest of all 2^23 values, over many draws."""
    found = torch.cat([draws(key, torch.Size([2**23])) for key in (3, 4)])
    assert found.min() >= 2.0**-24
    assert found.max() <= 1 - 2.0**-24


def test_members_under_vmap_draw_what_they_draw_alone() -> None:
    keys = torch.tensor(KEYS)
    together = torch.vmap(lambda key: keyed_uniform(key, torch.Size([5, 7])))(keys)
    for key, found in zip(KEYS, together, strict=True):
        assert found.equal(draws(key, torch.Size([5, 7])))


# PyTorch's compiler warns of its own parts while it is imported.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("under_vmap", [False, True])
@pytest.mark.parametrize(
    "backend",
    # The compiler takes ten seconds; what it is handed is the same.
    ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)],
)
def test_a_compiled_step_draws_the_same(backend: str, under_vmap: bool) -> None:
    def draw(keys: torch.Tensor) -> torch.Tensor:
        one = lambda key: keyed_uniform(key, torch.Size([3, 50]))  # noqa: E731
        return torch.vmap(one)(keys) if under_vmap else one(keys[0])

    keys = torch.tensor(KEYS)
    assert torch.compile(draw, dynamic=False, backend=backend)(keys).equal(draw(keys))


class TestDropout:
    def test_it_drops_its_share_and_keeps_the_mean(self) -> None:
        layer = KeyedDropout(0.3)
        layer.key = torch.tensor(5)
        found = layer(torch.ones(SOME))
        assert found.unique().tolist() == [0.0, pytest.approx(1 / 0.7)]
        assert found.mean().item() == pytest.approx(1, abs=0.01)
        assert layer(torch.ones(SOME)).equal(found)
        layer.key = torch.tensor(6)
        assert not layer(torch.ones(SOME)).equal(found)

    @pytest.mark.parametrize("p", [0.0, 1.0])
    def test_nothing_or_everything(self, p: float) -> None:
        layer = KeyedDropout(p)
        layer.key = torch.tensor(5)
        assert layer(torch.ones(10)).equal(torch.full((10,), 1 - p))

    def test_without_a_key_and_in_evaluation_it_is_that_of_pytorch(self) -> None:
        layer, theirs = KeyedDropout(0.4), nn.Dropout(0.4)
        for module in (layer, theirs):
            torch.manual_seed(0)
            module.found = module(torch.ones(100))
        assert torch.equal(layer.found, theirs.found)  # type: ignore[arg-type]
        layer.key = torch.tensor(5)
        assert layer.eval()(torch.ones(100)).equal(torch.ones(100))

    def test_gradients_pass_where_activations_do(self) -> None:
        layer = KeyedDropout(0.5)
        layer.key = torch.tensor(5)
        x = torch.randn(100, requires_grad=True)
        output = layer(x)
        (grad,) = torch.autograd.grad(output.sum(), x)
        assert grad.equal(torch.where(output != 0, 2.0, 0.0))


def test_a_copy_draws_by_key_and_the_original_does_not() -> None:
    torch.manual_seed(0)
    model = SetAutoencoder(3, 4, GumbelSoftmax(5), (8,), (8,), 8)
    copy = with_keyed_dropout(model)
    assert list(keyed_layers(model)) == ["latent"]
    names = list(keyed_layers(copy))
    assert names == ["latent", "decoder.hidden.3", "decoder.hidden.7"]
    assert copy.state_dict().keys() == model.state_dict().keys()
    for number, layer in enumerate(keyed_layers(copy).values()):
        layer.key = torch.tensor(number)
    x = torch.rand(6, 3, 4)
    assert copy(x).equal(copy(x))
    assert not model(x).equal(model(x))
    copy.load_state_dict(model.state_dict())  # the running statistics have moved apart
    assert copy.eval()(x).equal(model.eval()(x))


def test_a_key_is_no_part_of_what_is_saved() -> None:
    layer = KeyedLayer()
    layer.key = torch.tensor(5)
    assert not layer.state_dict()
