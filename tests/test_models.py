"""The networks: their sizes, what they are blind to, and what they do alone and in ensembles.

Legend: B sets, N elements, F features, L latent variables, U distinct elements, K members.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call, stack_module_state

import setwise as sw
from setwise.models import (
    BinaryConcrete,
    DeepSetsEncoder,
    EquivariantRuleLearner,
    GumbelSoftmax,
    SetAutoencoder,
    SetDecoder,
    annealed_temperature,
)

TIGHT = {"rtol": 1e-11, "atol": 1e-12}
Latent = GumbelSoftmax | BinaryConcrete


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def small_encoder(features: int = 4, outputs: int = 3) -> DeepSetsEncoder:
    torch.manual_seed(0)
    return DeepSetsEncoder(features, outputs, element_widths=(9, 7), widths=(8, 6)).double()


def small_autoencoder(
    latent: Latent | None = None, dropout: float = 0.5, seed: int = 0
) -> SetAutoencoder:
    torch.manual_seed(seed)
    latent = GumbelSoftmax(5) if latent is None else latent
    return SetAutoencoder(3, 4, latent, (9, 7), (8, 6), 10, 2, dropout).double()


def gradients(module: nn.Module, output: Tensor) -> list[Tensor]:
    weight = torch.randn(output.shape, generator=seeded(9), dtype=output.dtype)
    return list(torch.autograd.grad((output * weight).sum(), list(module.parameters())))


def state(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


# The paper's networks


def test_the_default_autoencoder_has_the_layers_of_the_paper() -> None:
    """9 x 15 in; two layers of 1000 per element, sum, two of 1000, 100 variables; two of 1000."""
    model = SetAutoencoder(size=9, features=15)
    layers = [
        (name.split(".")[0], part.in_features, part.out_features)
        for name, part in model.named_modules()
        if isinstance(part, nn.Linear)
    ]
    assert layers == [
        ("encoder", 15, 1000),
        ("encoder", 1000, 1000),
        ("encoder", 1000, 1000),
        ("encoder", 1000, 1000),
        ("encoder", 1000, 200),
        ("decoder", 200, 1000),
        ("decoder", 1000, 1000),
        ("decoder", 1000, 135),
    ]
    encoder = 16_000 + 3 * 1_001_000 + 200_200
    decoder = 201_000 + 1_001_000 + 2 * 2_000 + 135_135
    assert sum(p.numel() for p in model.encoder.parameters()) == encoder
    assert sum(p.numel() for p in model.decoder.parameters()) == decoder
    assert sum(p.numel() for p in model.parameters()) == encoder + decoder == 4_560_335
    assert isinstance(model.latent, GumbelSoftmax)
    assert (model.latent.variables, model.latent.categories) == (100, 2)
    assert model(torch.rand(2, 9, 15)).shape == (2, 9, 15)


def test_every_width_goes_to_its_layer() -> None:
    model = SetAutoencoder(3, 4, BinaryConcrete(5), (9, 7), (8, 6), 10, 3, dropout=0.2)
    widths = [part.out_features for part in model.modules() if isinstance(part, nn.Linear)]
    assert widths == [9, 7, 8, 6, 5, 10, 10, 10, 12]
    assert [part.p for part in model.modules() if isinstance(part, nn.Dropout)] == [0.2] * 3


def test_the_layers_stand_in_the_order_of_the_paper() -> None:
    decoder = SetDecoder(2 + 163 * 3, size=2, features=328, width=400)  # rule learning, n = 2
    block = [nn.Linear, nn.ReLU, nn.BatchNorm1d, nn.Dropout]
    assert [type(part) for part in decoder.hidden] == block * 2
    assert [part.p for part in decoder.hidden if isinstance(part, nn.Dropout)] == [0.5, 0.5]
    encoder = DeepSetsEncoder(15, 200)
    assert [type(part) for part in encoder.embed] == [nn.Linear, nn.ReLU] * 2
    assert [type(part) for part in encoder.dense] == [nn.Linear, nn.ReLU] * 2


def test_models_share_no_latent_by_default() -> None:
    assert SetAutoencoder(2, 2).latent is not SetAutoencoder(2, 2).latent


# The encoder


@pytest.mark.parametrize("lead", [(), (5,), (2, 3)])
def test_the_encoder_is_the_formula(lead: tuple[int, ...]) -> None:
    encoder, sets = small_encoder(), torch.randn(*lead, 6, 4, generator=seeded(1)).double()
    e, d = encoder.embed, encoder.dense
    summed = sum(e[2](e[0](sets[..., i, :]).relu()).relu() for i in range(6))
    expected = encoder.output(d[2](d[0](summed).relu()).relu())
    assert encoder(sets).shape == (*lead, 3)
    torch.testing.assert_close(encoder(sets), expected, **TIGHT)


def test_the_encoder_ignores_the_order() -> None:
    encoder, sets = small_encoder(), torch.randn(5, 6, 4, generator=seeded(1)).double()
    shuffled = sw.shuffle_sets(sets, seeded(2))
    torch.testing.assert_close(encoder(shuffled), encoder(sets), **TIGHT)
    for one, two in zip(
        gradients(encoder, encoder(shuffled)), gradients(encoder, encoder(sets)), strict=True
    ):
        torch.testing.assert_close(one, two, **TIGHT)
    # It does look at the elements, at all of their features, and at how many there are.
    other = sets.clone()
    other[:, 2, 3] += 0.1
    assert (encoder(other) - encoder(sets)).abs().amax(-1).gt(1e-4).all()
    assert (encoder(sets[:, :-1]) - encoder(sets)).abs().amax(-1).gt(1e-4).all()


@pytest.mark.parametrize("filling", [0.0, 7.0, math.nan, math.inf])
def test_a_masked_set_is_a_shorter_set(filling: float) -> None:
    encoder, sizes = small_encoder(), [3, 0, 6, 1]
    whole = torch.randn(4, 6, 4, generator=seeded(1)).double()
    valid = torch.arange(6) < torch.tensor(sizes).unsqueeze(-1)
    filled = whole.masked_fill(~valid.unsqueeze(-1), filling)
    masked = encoder(filled, valid)
    short = torch.stack([encoder(one[:n]) for one, n in zip(whole, sizes, strict=True)])
    torch.testing.assert_close(masked, short, **TIGHT)
    for one, two in zip(gradients(encoder, masked), gradients(encoder, short), strict=True):
        torch.testing.assert_close(one, two, **TIGHT)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64, torch.uint8])
def test_counts_of_a_table_are_the_same_sets(dtype: torch.dtype) -> None:
    encoder, table = small_encoder(), torch.randn(8, 4, generator=seeded(1)).double()
    table.requires_grad_()
    which = torch.randint(8, (2, 3, 10), generator=seeded(2))  # more draws than rows: some repeat
    counts = (which.unsqueeze(-1) == torch.arange(8)).sum(-2).to(dtype)
    assert counts.max() > 1
    from_sets, from_counts = encoder(table[which]), encoder.from_counts(counts, table)
    torch.testing.assert_close(from_counts, from_sets, **TIGHT)
    inputs = [table, *encoder.parameters()]
    weight = torch.randn(from_sets.shape, generator=seeded(3)).double()
    expected = torch.autograd.grad((from_sets * weight).sum(), inputs)
    given = torch.autograd.grad((from_counts * weight).sum(), inputs)
    for one, two in zip(given, expected, strict=True):
        assert two.abs().max() > 0
        torch.testing.assert_close(one, two, **TIGHT)


def test_an_encoder_without_hidden_layers_is_linear_in_the_sum() -> None:
    encoder = DeepSetsEncoder(4, 3, (), ()).double()
    sets = torch.randn(5, 6, 4, generator=seeded(1)).double()
    torch.testing.assert_close(encoder(sets), encoder.output(sets.sum(-2)), **TIGHT)


# The latent variables


@pytest.mark.parametrize("temperature", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("categories", [2, 5])
def test_gumbel_samples_choose_by_softmax(categories: int, temperature: float) -> None:
    torch.manual_seed(0)
    draws, latent = 40_000, GumbelSoftmax(3, categories)
    logits = torch.randn(3 * categories, generator=seeded(1))
    sample = latent(logits.expand(draws, -1), temperature).unflatten(-1, (3, categories))
    torch.testing.assert_close(sample.sum(-1), torch.ones(draws, 3))
    seen = nn.functional.one_hot(sample.argmax(-1), categories).double().mean(0)
    p = logits.unflatten(-1, (3, categories)).double().softmax(-1)
    assert ((seen - p).abs() < 5 * (p * (1 - p) / draws).sqrt()).all()


@pytest.mark.parametrize("temperature", [0.3, 1.0, 5.0])
def test_concrete_samples_choose_by_sigmoid(temperature: float) -> None:
    torch.manual_seed(0)
    draws, logits = 40_000, torch.tensor([-2.0, -0.3, 0.0, 1.0])
    sample = BinaryConcrete(4)(logits.expand(draws, -1), temperature)
    p = logits.double().sigmoid()
    seen = (sample > 0.5).double().mean(0)
    assert ((seen - p).abs() < 5 * (p * (1 - p) / draws).sqrt()).all()


def test_both_kinds_of_binary_variable_have_one_distribution() -> None:
    """Quantiles of the whole relaxed value, not only of the choice; equal logit differences."""
    torch.manual_seed(0)
    draws, logits = 200_000, torch.tensor([-1.0, 0.5])
    concrete = BinaryConcrete(2)(logits.expand(draws, -1), 0.8)
    pairs = torch.stack([torch.zeros(2), logits], -1).flatten()
    gumbel = GumbelSoftmax(2)(pairs.expand(draws, -1), 0.8)[:, 1::2]
    shares = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95])
    torch.testing.assert_close(
        concrete.quantile(shares, 0), gumbel.quantile(shares, 0), rtol=0, atol=0.01
    )


@pytest.mark.parametrize("latent", [GumbelSoftmax(6, 3), BinaryConcrete(18)], ids=repr)
def test_the_temperature_hardens_the_choice(latent: Latent) -> None:
    logits = torch.randn(500, latent.width, generator=seeded(0))

    def softness(temperature: float | Tensor) -> Tensor:
        torch.manual_seed(1)
        relaxed = latent(logits, temperature)
        return torch.minimum(relaxed, 1 - relaxed).mean()

    assert softness(1e-3) < 1e-3 < 0.05 < softness(1.0) < softness(5.0)
    assert softness(0.7) == softness(torch.tensor(0.7))


@pytest.mark.parametrize("latent", [GumbelSoftmax(6), BinaryConcrete(6)], ids=repr)
def test_evaluation_is_exact_and_codes_name_it(latent: Latent) -> None:
    logits = torch.randn(2, 50, latent.width, generator=seeded(0))
    logits[0, 0] = 0.0  # ties too
    assert not latent.train()(logits, 1.0).equal(latent(logits, 1.0))
    latent.eval()
    exact = latent(logits, 1.0)
    assert exact.equal(latent(logits, 0.1))
    assert exact.unique().tolist() == [0.0, 1.0]
    codes = latent.codes(logits)
    assert codes.shape == (2, 50, 6)
    assert codes.dtype == torch.bool
    assert latent.from_codes(codes).equal(exact)
    assert latent.train().codes(logits).equal(codes)
    # A code is what its own activation, read as logits, is chosen to be.
    assert latent.codes(latent.from_codes(codes) - 0.5).equal(codes)


def test_codes_follow_the_logits() -> None:
    assert BinaryConcrete(3).codes(torch.tensor([0.1, 0.0, -3.0])).tolist() == [True, False, False]
    pairs = torch.tensor([0.1, 0.2, 0.0, 0.0, 5.0, -3.0])
    assert GumbelSoftmax(3).codes(pairs).tolist() == [True, False, False]
    hard = GumbelSoftmax(2, 3).eval()(torch.tensor([0.1, 0.2, 0.3, 2.0, -1.0, 1.9]), 1.0)
    assert hard.tolist() == [0, 0, 1, 1, 0, 0]


def test_without_noise_the_relaxation_is_deterministic() -> None:
    logits = torch.randn(7, 6, generator=seeded(0))
    gumbel, concrete = GumbelSoftmax(2, 3, noise=False), BinaryConcrete(6, noise=False)
    expected = (logits.unflatten(-1, (2, 3)) / 0.5).softmax(-1).flatten(-2)
    torch.testing.assert_close(gumbel(logits, 0.5), expected)
    torch.testing.assert_close(concrete(logits, 0.5), (logits / 0.5).sigmoid())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("drawn", [0.0, 1.0])
@pytest.mark.parametrize("latent", [GumbelSoftmax(4), BinaryConcrete(8)], ids=repr)
def test_extreme_draws_and_logits_stay_finite(
    monkeypatch: pytest.MonkeyPatch, latent: Latent, drawn: float, dtype: torch.dtype
) -> None:
    def extreme(like: Tensor, **options: Any) -> Tensor:
        assert torch.finfo(options["dtype"]).bits >= 32  # 16-bit draws would be coarse
        return torch.full_like(like, drawn, **options)

    monkeypatch.setattr(torch, "rand_like", extreme)
    logits = torch.tensor([-6e4, 6e4, 0.0, 0.0, 1e-5, 40.0, 6e4, 6e4], dtype=dtype)
    logits.requires_grad_()
    relaxed = latent.train()(logits, 1.0)
    assert relaxed.dtype == dtype
    assert relaxed.isfinite().all()
    weight = torch.arange(8, dtype=dtype)
    (gradient,) = torch.autograd.grad((relaxed * weight).sum(), logits)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("latent", [GumbelSoftmax(500), BinaryConcrete(1000)], ids=repr)
def test_gradients_of_samples_are_finite_and_right(latent: Latent) -> None:
    torch.manual_seed(0)
    scales = torch.tensor([1e-30, 1.0, 1e4, 1e30]).unsqueeze(-1)
    logits = (torch.randn(4, 1000, generator=seeded(1)) * scales).requires_grad_()
    (gradient,) = torch.autograd.grad(latent(logits, 0.05).square().sum(), logits)
    assert gradient.isfinite().all()
    assert gradient[1].abs().max() > 0.1
    few = torch.randn(1, latent.width, generator=seeded(2)).double()[:, :1000].requires_grad_()

    def repeated(x: Tensor) -> Tensor:
        torch.manual_seed(3)
        return latent(x, 0.7).square().sum()

    assert torch.autograd.gradcheck(repeated, (few,), fast_mode=True)


def test_the_temperature_falls_exponentially_then_stays() -> None:
    assert annealed_temperature(0) == 5.0
    assert annealed_temperature(0.7) == pytest.approx(0.7)
    assert annealed_temperature(1.0) == annealed_temperature(0.7)
    steps = [annealed_temperature(0.07 * k) for k in range(11)]
    ratios = [after / before for before, after in pairwise(steps)]
    assert ratios == pytest.approx([(0.7 / 5.0) ** 0.1] * 10)
    assert annealed_temperature(0.25, start=8, end=2, until=0.5) == pytest.approx(4.0)


# The decoder


def test_the_decoder_in_evaluation_is_the_formula() -> None:
    torch.manual_seed(0)
    decoder = SetDecoder(5, size=3, features=4, width=8).double()
    input = torch.randn(2, 6, 5, generator=seeded(1)).double()
    first = decoder(input)  # moves the running statistics off their start
    assert not decoder(input).equal(first)
    decoder.eval()
    hidden = input
    for linear, norm in [(decoder.hidden[0], decoder.hidden[2]), decoder.hidden[4:7:2]]:
        assert norm.num_batches_tracked == 2
        hidden = linear(hidden).relu() - norm.running_mean
        hidden = hidden / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias
    expected = decoder.output(hidden).reshape(2, 6, 3, 4)
    torch.testing.assert_close(decoder(input), expected, **TIGHT)
    torch.testing.assert_close(decoder(input[0, 0]), expected[0, 0], **TIGHT)
    assert decoder(input[:0]).shape == (0, 6, 3, 4)


def test_the_decoder_in_training_normalises_over_the_batch() -> None:
    torch.manual_seed(0)
    decoder = SetDecoder(5, size=3, features=4, width=8, hidden_layers=1, dropout=0.0).double()
    input = torch.randn(64, 5, generator=seeded(1)).double()
    hidden = decoder.hidden[0](input).relu()
    centred = hidden - hidden.mean(0)
    normal = centred / (hidden.var(0, correction=0) + decoder.hidden[2].eps).sqrt()
    expected = decoder.output(normal).reshape(64, 3, 4)
    torch.testing.assert_close(decoder(input), expected, **TIGHT)
    torch.testing.assert_close(decoder.hidden[2].running_mean, 0.1 * hidden.mean(0), **TIGHT)
    torch.testing.assert_close(decoder(input.reshape(8, 8, 5)).flatten(0, 1), expected, **TIGHT)


def test_dropout_drops_the_share_asked_for() -> None:
    torch.manual_seed(0)
    decoder = SetDecoder(5, size=3, features=4, width=100, hidden_layers=1, dropout=0.3)
    zeros = decoder.hidden(torch.randn(1000, 5)).eq(0).double().mean().item()
    assert abs(zeros - 0.3) < 5 * (0.3 * 0.7 / 100_000) ** 0.5


# The autoencoder


@pytest.mark.parametrize("latent", [GumbelSoftmax(5), BinaryConcrete(5)], ids=repr)
@pytest.mark.parametrize("training", [True, False])
def test_encoding_and_decoding_work_as_in_evaluation(latent: Latent, training: bool) -> None:
    model = small_autoencoder(latent)
    sets = 20 * torch.randn(40, 3, 4, generator=seeded(1)).double()  # far apart: many codes
    for _ in range(3):
        model(sets)
    reference = model.eval()(sets)
    model.train(training)
    model.decoder.hidden[2].eval()  # a part in a mode of its own keeps it
    modes = [part.training for part in model.modules()]
    before = state(model)
    codes = model.encode(sets)
    assert codes.shape == (40, 5)
    assert len(codes.unique(dim=0)) > 1
    torch.testing.assert_close(model.decode(codes), reference, **TIGHT)
    assert model.decode(codes.reshape(2, 20, 5)).shape == (2, 20, 3, 4)
    assert [part.training for part in model.modules()] == modes
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())
    with pytest.raises(ValueError, match="codes"):
        model.decode(codes[:, :4])
    assert [part.training for part in model.modules()] == modes


def test_the_autoencoder_takes_masks_and_counts() -> None:
    model, table = small_autoencoder().eval(), torch.randn(6, 4, generator=seeded(1)).double()
    which = torch.randint(6, (30, 3), generator=seeded(2))
    sets, counts = table[which], (which.unsqueeze(-1) == torch.arange(6)).sum(-2)
    torch.testing.assert_close(model.forward_counts(counts, table, 0.5), model(sets), **TIGHT)
    assert model.encode_counts(counts, table).equal(model.encode(sets))
    longer = torch.cat([sets, torch.full_like(sets, 3.0)], dim=1)
    valid = torch.arange(6).expand(30, 6) < 3
    torch.testing.assert_close(model(longer, 1.0, valid), model(sets), **TIGHT)
    assert model.encode(longer, valid).equal(model.encode(sets))
    assert not model(longer).allclose(model(sets))
    model.train()
    torch.manual_seed(0)
    relaxed = model(sets, 0.5)
    torch.manual_seed(0)
    torch.testing.assert_close(model.forward_counts(counts, table, 0.5), relaxed, **TIGHT)
    torch.manual_seed(0)
    assert not model(sets, 2.0).allclose(relaxed)


def test_encoding_builds_no_graph() -> None:
    model, tracked = small_autoencoder(), []
    for part in model.encoder.modules():
        part.register_forward_hook(lambda _, __, output: tracked.append(output.requires_grad))
    model.encode(torch.ones(2, 3, 4).double())
    model.encode_counts(torch.ones(2, 5), torch.ones(5, 4).double())
    assert tracked
    assert not any(tracked)


def test_every_weight_matters_in_training() -> None:
    model = small_autoencoder()
    sets = torch.randn(40, 3, 4, generator=seeded(1)).double()
    for gradient in gradients(model, model(sets, torch.tensor(0.7))):
        assert gradient.isfinite().all()
        assert gradient.abs().max() > 0


@pytest.mark.parametrize("latent", [GumbelSoftmax(20), BinaryConcrete(20)], ids=repr)
def test_a_small_autoencoder_overfits(latent: Latent) -> None:
    """And its codes alone give the sets back, though training never saw an order twice."""
    torch.manual_seed(0)
    features = sw.Features(sw.Categorical(6), sw.Categorical(4))
    sets = features.random_targets((32, 3), seeded(1))
    model = SetAutoencoder(3, 10, latent, (64, 64), (64, 64), 64, dropout=0.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    orders, losses = seeded(2), []
    for step in range(600):
        output = model(sets, annealed_temperature(step / 600))
        loss = sw.set_cross_entropy(output, sw.shuffle_sets(sets, orders), features)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] > 5.0
    assert losses[-1] < 0.5
    decoded = model.decode(model.encode(sets)).detach()
    assert sw.set_cross_entropy(decoded, sets, features) < 0.5
    assert sw.metrics.set_success(decoded, sets, features) > 0.8


# Ensembles, and what a CUDA graph demands


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


# Errors


def bad_calls() -> dict[str, tuple[Callable[[], object], type[Exception], str]]:
    encoder = DeepSetsEncoder(4, 3, (5,), (5,))
    gumbel, triple, concrete = GumbelSoftmax(3), GumbelSoftmax(3, 3), BinaryConcrete(3)
    decoder = SetDecoder(5, 2, 3, width=4)
    sets, table = torch.rand(2, 3, 4), torch.rand(6, 4)
    tree: Any = "a tree"
    return {
        "features": (lambda: DeepSetsEncoder(0, 3), ValueError, "features: .* 1, got 0"),
        "outputs": (lambda: DeepSetsEncoder(4, 2.5), TypeError, "outputs: .*int, got 2.5"),
        "one width": (lambda: DeepSetsEncoder(4, 3, 7), TypeError, r"element_widths: .*got 7"),
        "widths": (lambda: DeepSetsEncoder(4, 3, (5,), (0,)), ValueError, "widths: .*got 0"),
        "no tensor": (lambda: encoder([1.0]), TypeError, "sets: .*Tensor, got list"),
        "integers": (lambda: encoder(sets.long()), TypeError, r"int64; use sets.float\(\)"),
        "wrong features": (lambda: encoder(sets[..., :2]), ValueError, r"4 in .*\(2, 3, 2\)"),
        "one element": (lambda: encoder(sets[0, 0]), ValueError, r"sets: .*got \(4,\)"),
        "float mask": (lambda: encoder(sets, torch.ones(2, 3)), TypeError, r"valid.bool\(\)"),
        "mask shape": (
            lambda: encoder(sets, torch.ones(3, dtype=torch.bool)),
            ValueError,
            r"valid: .*\(2, 3\), got \(3,\)",
        ),
        "counts": (
            lambda: encoder.from_counts(torch.ones(2, 5), table),
            ValueError,
            r"counts: .*6\].*\(2, 5\)",
        ),
        "count list": (lambda: encoder.from_counts([1] * 6, table), TypeError, "counts: .*list"),
        "table": (lambda: encoder.from_counts(torch.ones(3), sets), ValueError, "elements: .*one"),
        "variables": (lambda: GumbelSoftmax(0), ValueError, "variables: .*got 0"),
        "one category": (lambda: GumbelSoftmax(3, 1), ValueError, "categories: .*2, got 1"),
        "noise": (lambda: BinaryConcrete(3, noise=1), TypeError, "noise: .*got 1"),
        "logits": (lambda: gumbel(torch.rand(2, 3), 1.0), ValueError, r"logits: .*6 .*\(2, 3\)"),
        "cold": (lambda: concrete(torch.rand(3), 0.0), ValueError, "temperature: .*got 0.0"),
        "temperatures": (
            lambda: concrete(torch.rand(3), torch.ones(2)),
            ValueError,
            r"temperature: .*no dimensions, got shape \(2,\)",
        ),
        "no number": (lambda: concrete(torch.rand(3), "hot"), TypeError, "temperature: .*str"),
        "ternary": (
            lambda: triple.codes(torch.rand(9)),
            ValueError,
            "3 categories; .*categories=2",
        ),
        "ternary back": (
            lambda: triple.from_codes(torch.ones(3, dtype=torch.bool)),
            ValueError,
            "3 categories",
        ),
        "float codes": (lambda: gumbel.from_codes(torch.ones(3)), TypeError, r"codes.bool\(\)"),
        "codes": (
            lambda: concrete.from_codes(torch.ones(2, 4, dtype=torch.bool)),
            ValueError,
            r"codes: .*3\].*\(2, 4\)",
        ),
        "steps": (lambda: annealed_temperature(17), ValueError, "progress: .*17; divide"),
        "until": (lambda: annealed_temperature(0.5, until=0.0), ValueError, "until: .*0.0"),
        "start": (lambda: annealed_temperature(0.5, start=-1.0), ValueError, "start: .*-1.0"),
        "hidden": (lambda: SetDecoder(5, 2, 3, hidden_layers=0), ValueError, "hidden_layers: "),
        "dropout": (lambda: SetDecoder(5, 2, 3, dropout=1.5), ValueError, "dropout .*1.5"),
        "decoder": (lambda: decoder(torch.rand(2, 4)), ValueError, r"input: .*5 .*\(2, 4\)"),
        "latent": (lambda: SetAutoencoder(2, 3, tree), TypeError, "latent: .*'a tree'"),
    }


@pytest.mark.parametrize("case", bad_calls())
def test_bad_calls_say_what_was_expected(case: str) -> None:
    call, error, message = bad_calls()[case]
    with pytest.raises(error, match=message):
        call()


def test_features_may_stand_for_their_width() -> None:
    features = sw.Features(sw.Categorical(3), sw.Bernoulli(2))
    decoder = SetDecoder(4, 2, features, width=8)
    assert decoder(torch.rand(3, 4)).shape == (3, 2, features.width)
    encoder = DeepSetsEncoder(features, 6, (8,), (8,))
    assert encoder(torch.rand(3, 2, features.width)).shape == (3, 6)


def test_a_rule_learner_does_not_care_for_names() -> None:
    """Constants that are renamed in the head are renamed in the body, and nothing else changes."""
    torch.manual_seed(0)
    learner = EquivariantRuleLearner(
        constants=7, arguments=3, atoms=4, predicates=3, width=16
    ).double()
    head, order = torch.rand(5, 3 + 3 * 7).double(), torch.randperm(7)

    def renamed(blocks: Tensor, count: int) -> Tensor:
        rest = blocks[..., 3:].unflatten(-1, (count, 7))[..., order].flatten(-2)
        return torch.cat([blocks[..., :3], rest], dim=-1)

    body = learner(head)
    assert body.shape == (5, 4, 3 + 2 * 7)
    torch.testing.assert_close(learner(renamed(head, 3)), renamed(body, 2), **TIGHT)
    assert not learner(renamed(head, 3)).allclose(body)
    # Arguments that change places are another rule, and the predicate is read.
    swapped = torch.cat([head[:, :3], head[:, 10:17], head[:, 3:10], head[:, 17:]], dim=1)
    assert not learner(swapped).allclose(body)
    assert not learner(torch.cat([head[:, :3].flip(1), head[:, 3:]], dim=1)).allclose(body)


def test_a_rule_learner_learns_a_chain() -> None:
    """From 200 clauses over 12 constants, what holds of 100 others."""
    torch.manual_seed(0)
    paths = torch.rand(300, 12).argsort(dim=1)[:, :4]
    hot = nn.functional.one_hot(paths, 12).float()
    heads = torch.cat([torch.tensor([0.0, 1.0]).expand(300, 2), hot.flatten(1)], dim=1)
    neighbour = torch.tensor([1.0, 0.0]).expand(300, 3, 2)
    bodies = torch.cat([neighbour, hot[:, :-1], hot[:, 1:]], dim=-1)
    features = sw.Features(sw.Categorical(2), sw.Categorical(12), sw.Categorical(12))
    learner = EquivariantRuleLearner(constants=12, arguments=4, atoms=3, width=32)
    optimiser = torch.optim.Adam(learner.parameters(), lr=5e-3)
    for step in range(200):
        temperature = 10.0 ** max(0.0, 1 - step / 100)
        loss = sw.set_cross_entropy(
            learner(heads[:200]), bodies[:200], features, temperature=temperature
        )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert sw.metrics.set_success(learner(heads[200:]), bodies[200:], features) == 1
