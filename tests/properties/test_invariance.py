"""What must not change a set loss: the order of the elements, and how a set is padded."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from torch import Tensor

import setwise as sw
from strategies import Call, calls, families, seeds

SET_LOSSES = [
    sw.set_cross_entropy,
    sw.set_average,
    sw.hausdorff,
    sw.assignment_cross_entropy,
    sw.set_likelihood,
    sw.stable_matching_cross_entropy,
]
LOSSES = [*SET_LOSSES, sw.ordered_cross_entropy]
# Undirected variants and a temperature are losses of their own here.
VARIANTS = [
    *((loss, {}) for loss in SET_LOSSES),
    (sw.set_cross_entropy, {"temperature": 0.3}),
    (sw.set_average, {"directed": False}),
    (sw.hausdorff, {"directed": False}),
    (sw.set_likelihood, {"exclusivity": 0.6}),
    (sw.transport_cross_entropy, {"missing_cost": 2.0}),
]


def _name(variant: Any) -> str:
    return variant.__name__ if callable(variant) else str(variant)


def _permuted(call: Call, seed: int) -> Call:
    generator = torch.Generator().manual_seed(seed)
    outputs = torch.randperm(call.logits.shape[1], generator=generator)
    targets = torch.randperm(call.target.shape[1], generator=generator)

    def take(tensor: Tensor | None, order: Tensor) -> Tensor | None:
        return None if tensor is None else tensor[:, order]

    return Call(
        call.features,
        call.logits[:, outputs],
        call.target[:, targets],
        take(call.input_valid, outputs),
        take(call.target_valid, targets),
        take(call.weight, targets),
    )


@pytest.mark.parametrize(("loss", "options"), VARIANTS, ids=_name)
@given(call=calls(), seed=seeds)
def test_order_of_outputs_and_targets_does_not_matter(
    loss: Any, options: dict[str, Any], call: Call, seed: int
) -> None:
    expected, given_ = call.run(loss, **options), _permuted(call, seed).run(loss, **options)
    torch.testing.assert_close(given_, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("loss", "options"), VARIANTS, ids=_name)
@given(call=calls(masked=True))
def test_masked_sets_cost_what_the_bare_sets_cost(
    loss: Any, options: dict[str, Any], call: Call
) -> None:
    assert call.input_valid is not None
    assert call.target_valid is not None
    values = call.run(loss, **options)
    for b, value in enumerate(values):
        outputs, targets = call.input_valid[b], call.target_valid[b]
        bare = Call(
            call.features,
            call.logits[b : b + 1, outputs],
            call.target[b : b + 1, targets],
            None,
            None,
            None if call.weight is None else call.weight[b : b + 1, targets],
        )
        torch.testing.assert_close(bare.run(loss, **options)[0], value, rtol=1e-9, atol=1e-9)


@given(call=calls(same_size=True, masked=False))
def test_ordered_loss_with_lengths_is_the_loss_of_the_prefix(call: Call) -> None:
    size = call.target.shape[1]
    lengths = torch.full((call.target.shape[0],), size - 1)
    masked = Call(call.features, call.logits, call.target, lengths, lengths, call.weight)
    prefix = Call(
        call.features,
        call.logits[:, :-1],
        call.target[:, :-1],
        None,
        None,
        None if call.weight is None else call.weight[:, :-1],
    )
    torch.testing.assert_close(
        masked.run(sw.ordered_cross_entropy),
        prefix.run(sw.ordered_cross_entropy),
        rtol=1e-9,
        atol=1e-9,
    )


@pytest.mark.parametrize("loss", SET_LOSSES, ids=_name)
@given(block=families, seed=seeds)
def test_a_planted_permutation_has_the_lowest_loss(loss: Any, block: Any, seed: int) -> None:
    """Outputs that are the targets in some order cost less than outputs with one element off."""
    features = sw.Features(block, sw.Bernoulli(3))
    generator = torch.Generator().manual_seed(seed)
    target = features.random_targets((1, 4), generator).double()
    target[0, :, -3:] = torch.tensor([[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0]])
    confident = torch.where(target == 1, 12.0, -12.0)
    if isinstance(block, sw.Gaussian):
        confident[..., : block.width] = target[..., : block.width]
    planted = confident[:, torch.randperm(4, generator=generator)]
    damaged = planted.clone()
    wrong = int(torch.randint(4, (), generator=generator))
    damaged[0, wrong, -3:] = 12.0  # [1, 1, 1] is no target
    assert loss(planted, target, features) < loss(damaged, target, features)
    assert loss(planted, target, features).abs() < 0.01


@pytest.mark.parametrize("loss", LOSSES, ids=_name)
@given(call=calls(same_size=True, masked=False))
def test_leading_dimensions_only_reshape_the_result(loss: Any, call: Call) -> None:
    flat = call.run(loss)
    lifted = Call(
        call.features,
        call.logits.unsqueeze(1).unsqueeze(0),
        call.target.unsqueeze(1).unsqueeze(0),
        None,
        None,
        None if call.weight is None else call.weight.unsqueeze(1).unsqueeze(0),
    ).run(loss)
    assert lifted.shape == (1, flat.shape[0], 1)
    torch.testing.assert_close(lifted.flatten(), flat)
