"""The decoder, and the whole autoencoder.

Legend: B sets, N elements, F features, L latent variables, U distinct elements.
"""

from __future__ import annotations

import pytest
import torch

import setwise as sw
from setwise.models import (
    BinaryConcrete,
    GumbelSoftmax,
    SetAutoencoder,
    SetDecoder,
    annealed_temperature,
)
from small_models import TIGHT, Latent, gradients, seeded, small_autoencoder, state


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


# Slow: a training each. test_models_latents.py has both kinds of latents by themselves.
# Hundreds of steps. The first tier has a few, in features/test_families_in_use.py.
@pytest.mark.slow
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
