"""Powers on a CPU, of which those that are next to nothing are 0."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from setwise.kernels import powers, reference


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dear", [False, True])
def test_powers(dear: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are held in full precision are as ever, and others 0 where they would be dear."""
    monkeypatch.setattr(powers, "ARE_DEAR", dear)
    exponents = torch.cat([torch.linspace(0, -1000, 5001), torch.tensor([-math.inf, 3.0])])
    exponents = exponents.to(dtype)
    for power, plain, limit in (
        (powers.exp_, torch.exp, powers.LEAST[dtype]),
        (lambda t: powers.exp2_above_(t, -60.0), torch.exp2, -60.0),
    ):
        found, exact = power(exponents.clone()), plain(exponents)
        held, small = exponents > limit + 0.1, exponents < limit - 0.1
        assert_close(found[held], exact[held], rtol=1e-6, atol=0)
        assert torch.equal(found[small], torch.zeros_like(exact)[small] if dear else exact[small])
        nan = power(torch.tensor([math.nan, -2000.0], dtype=dtype)).isnan()
        assert nan.tolist() == [True, False]
        assert power(torch.empty(0, dtype=dtype)).shape == (0,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dear", [False, True])
def test_a_logsumexp_of_weights_next_to_nothing(
    dear: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And of none at all, where every key is barred."""
    monkeypatch.setattr(powers, "ARE_DEAR", dear)
    scores = torch.linspace(-2000, 0, 300, dtype=dtype).expand(3, -1).clone()
    scores[1, ::2] = -math.inf
    scores[2] = -math.inf
    keys = torch.zeros(3, 300, 1, dtype=dtype)
    bias = scores.clone().requires_grad_()
    found = reference.logsumexp(torch.ones(3, 1, 1, dtype=dtype), keys, bias)
    expected = scores.double().logsumexp(-1, keepdim=True)
    assert_close(found.double(), expected, rtol=1e-6, atol=1e-6)
    (gradient,) = torch.autograd.grad(found[:2].sum(), bias)
    weights = scores[:2].double().softmax(dim=-1)
    assert_close(gradient[:2].double(), weights, rtol=1e-5, atol=1e-25)
    assert (gradient[1, ::2] == 0).all()
