"""Random calls of a loss: families, sizes, masks, weights and types, as hypothesis draws them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

import setwise as sw

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

families: st.SearchStrategy[Any] = st.one_of(
    st.builds(sw.Bernoulli, st.integers(1, 4), st.sampled_from([1.0, 0.5])),
    st.builds(
        sw.Categorical,
        st.integers(2, 4),
        st.sampled_from([1.0, 2.0]),
        st.sampled_from(["categorical", "bernoulli"]),
    ),
    st.builds(
        sw.Gaussian, st.integers(1, 3), st.sampled_from([1.0, 0.5]), st.sampled_from([1.0, 0.3])
    ),
)
features = st.lists(families, min_size=1, max_size=3).map(lambda blocks: sw.Features(*blocks))
seeds = st.integers(0, 2**31 - 1)


@dataclass
class Call:
    """Arguments of a loss: logits [B, N, F], targets [B, M, F]; masks and weights may be None."""

    features: sw.Features
    logits: Tensor
    target: Tensor
    input_valid: Tensor | None
    target_valid: Tensor | None
    weight: Tensor | None

    def run(self, loss: Any, **options: Any) -> Tensor:
        """The loss of each set."""
        return loss(
            self.logits,
            self.target,
            self.features,
            input_valid=self.input_valid,
            target_valid=self.target_valid,
            weight=self.weight,
            reduction="none",
            **options,
        )


@st.composite
def calls(
    draw: st.DrawFn,
    *,
    dtype: torch.dtype = torch.float64,
    same_size: bool = False,
    masked: bool | None = None,
    weighted: bool | None = None,
    max_size: int = 5,
) -> Call:
    """A random valid call; ``None`` leaves the choice to hypothesis."""
    fs = draw(features)
    B, N = draw(st.integers(1, 3)), draw(st.integers(1, max_size))
    M = N if same_size else draw(st.integers(1, max_size))
    generator = torch.Generator().manual_seed(draw(seeds))

    def mask(size: int) -> Tensor:
        valid = torch.rand(B, size, generator=generator) < 0.7
        valid[:, 0] |= ~valid.any(-1)  # empty sets have tests of their own
        return valid

    has_masks = draw(st.booleans()) if masked is None else masked
    has_weights = draw(st.booleans()) if weighted is None else weighted
    return Call(
        features=fs,
        logits=(3 * torch.randn(B, N, fs.width, generator=generator)).to(dtype),
        target=fs.random_targets((B, M), generator).to(dtype),
        input_valid=mask(N) if has_masks else None,
        target_valid=mask(M) if has_masks else None,
        weight=torch.rand(B, M, generator=generator).to(dtype) + 0.1 if has_weights else None,
    )


def pairwise_costs(call: Call) -> Tensor:
    """H(x_i, y_j) [B, M, N] straight from the definition of each family, with nothing shared."""
    total = torch.zeros(())
    x, z = call.target.double().unsqueeze(2), call.logits.double().unsqueeze(1)
    start = 0
    for block in call.features.blocks:
        a, b = x[..., start : start + block.width], z[..., start : start + block.width]
        start += block.width
        if isinstance(block, sw.Gaussian):
            cost = (a - b).square().sum(-1) / (2 * block.scale**2)
        elif isinstance(block, sw.Categorical) and block.scored_as == "categorical":
            cost = -(a * torch.softmax(b, -1).log()).sum(-1)
        else:
            p = torch.softmax(b, -1) if isinstance(block, sw.Categorical) else torch.sigmoid(b)
            cost = -(a * p.log() + (1 - a) * (1 - p).log()).sum(-1)
        total = total + block.weight * cost
    return total
