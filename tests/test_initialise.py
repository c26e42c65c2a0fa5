"""What networks begin with."""

from __future__ import annotations

import torch

import setwise as sw
from setwise.models import GumbelSoftmax, SetAutoencoder, start_at_mean

FEATURES = sw.Features(sw.Bernoulli(3), sw.Categorical(4, scored_as="bernoulli"))


def a_model(sets: torch.Tensor) -> SetAutoencoder:
    torch.manual_seed(0)
    model = SetAutoencoder(
        size=sets.shape[-2],
        features=FEATURES,
        latent=GumbelSoftmax(5),
        encoder_element_widths=(16,),
        encoder_widths=(16,),
        decoder_width=16,
        dropout=0.0,
    )
    start_at_mean(model, sets, FEATURES)
    return model


def grey_sets() -> torch.Tensor:
    """Features near 0.4, and one class of four that never occurs."""
    generator = torch.Generator().manual_seed(1)
    grey = 0.4 + 0.01 * torch.rand(50, 2, 3, generator=generator)
    chosen = torch.randint(0, 3, (50, 2), generator=generator)
    return torch.cat([grey, torch.nn.functional.one_hot(chosen, 4)], dim=-1)


def test_the_average_element_is_put_out_by_the_bias_alone() -> None:
    sets = grey_sets()
    bias = a_model(sets).decoder.output.bias.unflatten(0, (2, 7))
    mean = sets.mean((0, 1)).expand(2, 7)
    torch.testing.assert_close(bias[:, :3].sigmoid(), mean[:, :3])
    # The class that never occurs gets a little, and its logit stays finite.
    torch.testing.assert_close(bias[:, 3:].softmax(-1), mean[:, 3:], atol=2e-3, rtol=0)


def test_the_average_element_is_taken_off_what_is_read() -> None:
    sets = grey_sets()
    first = a_model(sets).encoder.embed[0]
    torch.testing.assert_close(first(sets).mean((0, 1)), torch.zeros(16), atol=1e-6, rtol=0)


def test_outputs_of_a_set_differ_so_that_they_can_part() -> None:
    sets = grey_sets()
    first, second = a_model(sets)(sets, temperature=1.0).detach().unbind(-2)
    assert (first - second).abs().amax() > 1e-3
