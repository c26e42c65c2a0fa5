"""The sum over subsets on a CPU: plain numbers in float64 instead of logarithms.

Legend: B sets, M targets, N outputs, M <= N here.

All terms of the sum are positive, and weights are relative to what the best matching has, see
`setwise.kernels.host_weights`: so the sum is neither too large nor too small for a plain number,
and what is too small to be one counts for nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from setwise.kernels.host_weights import weigh
from setwise.kernels.permanent import (
    NEVER,
    STORED,
    Arithmetic,
    all_ways,
    by_output,
    probabilities,
    without_missing,
)

# Terms of the sums that are worked on together: to read long rows saves more than a cache does.
AT_ONCE = 2**21
# The least that a sum may be without prices of outputs, in logarithms.
LEAST_SUM = -500.0


def _total(parts: list[Tensor]) -> Tensor:
    return (
        torch.stack([part.sum(1) for part in parts]).sum(0) if len(parts) > 1 else parts[0].sum(1)
    )


PLAIN = Arithmetic(
    one=1.0,
    times=Tensor.mul_,
    over=torch.div,
    total=_total,
    chances=lambda terms, share: terms.sum(1).mul_(share),
)


def log_permanent_on_host(
    scores: Tensor, rows: Tensor, columns: Tensor, record: bool
) -> tuple[Tensor, Tensor]:
    """What `setwise.kernels.permanent.log_permanent` gives, of tensors on the CPU."""
    _, M, N = scores.shape
    # What is impossible has no answer, and is not asked for one.
    rows = rows & (rows.sum(-1) <= columns.sum(-1)).unsqueeze(1)
    at_once = max(1, min(AT_ONCE // (M * 2 ** (M - 1)), STORED // (2 * (max(M, N) - M + 1) * 2**M)))
    split = scores.split(at_once), rows.split(at_once), columns.split(at_once)
    parts = [_of_some(s, r, c, record) for s, r, c in zip(*split, strict=True)]
    values, marginals = zip(*parts, strict=True)
    return torch.cat(values), torch.cat(marginals)


def _of_some(scores: Tensor, rows: Tensor, columns: Tensor, record: bool) -> tuple[Tensor, Tensor]:
    (_, M, N), dtype = scores.shape, scores.dtype
    valid = rows.unsqueeze(-1) & columns.unsqueeze(-2)
    logs = torch.where(valid, scores.double(), NEVER)
    weights = weigh(logs, rows, columns, valid, LEAST_SUM / M)
    # Targets that are not valid fit every output, and so do those that are there for them alone.
    left = functional.pad(weights.prices.neg().exp(), (0, max(M, N) - N), value=1.0)
    padded = functional.pad(weights.pairs, (0, max(M, N) - N))
    outputs = by_output(torch.where(rows.unsqueeze(2), padded, left))
    unused = left.squeeze(1).T.contiguous().unbind(0) if bool(weights.prices.any()) else None
    ways = all_ways(outputs, PLAIN, unused)
    total = ways[-1][M].squeeze(0).log()
    value = without_missing(total + weights.offset(), rows, len(outputs)).to(dtype)
    if not record:
        return value, scores[:, :0]
    found = probabilities(outputs, ways, PLAIN, unused)[:, :, :N]
    return value, torch.where(valid, found, 0.0).to(dtype)
