"""Known answers: the definition written out, and the inequalities between the losses."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

import setwise as sw
from strategies import FLOATS, Call, calls, pairwise_costs

SLACK = 1e-9


def _restricted_costs(call: Call) -> list[Tensor]:
    """The cost matrix of each set with only its valid targets and outputs."""
    costs = pairwise_costs(call)
    rows = torch.ones(costs.shape[:2], dtype=torch.bool)
    columns = torch.ones(costs.shape[0], costs.shape[2], dtype=torch.bool)
    rows = rows if call.target_valid is None else call.target_valid
    columns = columns if call.input_valid is None else call.input_valid
    return [c[r][:, k] for c, r, k in zip(costs, rows, columns, strict=True)]


def _weights(call: Call, b: int, M: int) -> Tensor:
    if call.weight is None:
        return torch.ones(M, dtype=torch.float64)
    weight = call.weight[b].double()
    return weight if call.target_valid is None else weight[call.target_valid[b]]


def _by_definition(call: Call) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {"SH": [], "A1H": [], "H1H": [], "assignment": []}
    for b, costs in enumerate(_restricted_costs(call)):
        M, N = costs.shape
        w = _weights(call, b, M)
        nearest = costs.amin(1)
        values["SH"].append(float(-(w * torch.log(torch.exp(-costs).sum(1))).sum()))
        values["A1H"].append(float((w * nearest).sum() / w.sum()))
        values["H1H"].append(float((w * nearest).amax()))
        matchings = [
            float(sum(w[i] * costs[i, j] for i, j in enumerate(choice)))
            for choice in itertools.permutations(range(N), M)
        ]
        values["assignment"].append(min(matchings, default=math.inf))
    return values


@pytest.mark.parametrize("impl", ["reference", "chunked", "auto"])
@given(call=calls())
def test_losses_are_their_definition(impl: Any, call: Call) -> None:
    expected = _by_definition(call)
    got = {
        "SH": call.run(sw.set_cross_entropy, impl=impl),
        "A1H": call.run(sw.set_average, impl=impl),
        "H1H": call.run(sw.hausdorff, impl=impl),
        "assignment": call.run(sw.assignment_cross_entropy),
    }
    for name, values in got.items():
        reference = torch.tensor(expected[name], dtype=torch.float64)
        torch.testing.assert_close(values, reference, rtol=1e-9, atol=1e-9, msg=name)


@given(call=calls(same_size=True, masked=False, weighted=False, max_size=4))
def test_bounds_between_the_losses(call: Call) -> None:
    """SH <= -log perm(P) <= assignment <= H;  SH <= M A1H <= assignment;  A1H <= H1H."""
    M = call.target.shape[1]
    costs = pairwise_costs(call)
    orders = [
        torch.stack([costs[:, i, j] for i, j in enumerate(order)]).sum(0)
        for order in itertools.permutations(range(M))
    ]
    exact = -torch.stack(orders).neg().logsumexp(0)  # -log perm(P)
    SH, average = call.run(sw.set_cross_entropy), call.run(sw.set_average)
    assignment = call.run(sw.assignment_cross_entropy)
    ordered = call.run(sw.ordered_cross_entropy)
    assert (exact + SLACK >= SH).all()
    assert (exact <= assignment + SLACK).all()
    assert (assignment <= ordered + SLACK).all()
    assert (M * average + SLACK >= SH).all()
    assert (M * average <= assignment + SLACK).all()
    assert (average <= call.run(sw.hausdorff) + SLACK).all()


@given(call=calls(weighted=False))
def test_temperature_leads_from_set_cross_entropy_to_the_set_average(call: Call) -> None:
    """The soft minimum is below the hard one by at most t log N for each target."""
    N = call.logits.shape[1]
    count = torch.full((call.target.shape[0],), float(call.target.shape[1]), dtype=torch.float64)
    if call.target_valid is not None:
        count = call.target_valid.sum(-1).double()
    limit = count * call.run(sw.set_average)
    previous = call.run(sw.set_cross_entropy)
    for temperature in (0.5, 0.1, 0.01, 1e-4):
        value = call.run(sw.set_cross_entropy, temperature=temperature)
        assert (value >= previous - SLACK).all()
        assert (value <= limit + SLACK).all()
        assert (limit - value <= count * temperature * math.log(N) + SLACK).all()
        previous = value


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("impl", ["reference", "chunked"])
@settings(max_examples=25)
@given(call=calls())
def test_low_precision_inputs_are_computed_in_float32(
    impl: Any, dtype: torch.dtype, call: Call
) -> None:
    """The only error of a half-precision call is that of rounding its arguments."""
    rounded = Call(
        call.features,
        call.logits.to(dtype),
        call.target.to(dtype),
        call.input_valid,
        call.target_valid,
        None if call.weight is None else call.weight.to(dtype),
    )
    exact = Call(
        call.features,
        rounded.logits.double(),
        rounded.target.double(),
        call.input_valid,
        call.target_valid,
        None if rounded.weight is None else rounded.weight.double(),
    )
    for loss in (sw.set_cross_entropy, sw.set_average, sw.hausdorff):
        value = rounded.run(loss, impl=impl)
        assert value.dtype == torch.promote_types(dtype, torch.float32)
        torch.testing.assert_close(value.double(), exact.run(loss, impl=impl), rtol=2e-5, atol=2e-4)
