"""Minimum-cost assignment for a batch of sets, with one trip to the host for the whole batch.

Legend: B sets, M targets, N outputs.

SciPy is imported where it is called, here as elsewhere: that takes a third as long as PyTorch does,
and most programs need none of it.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from setwise.kernels.operators import fold_mapped_dimension

UNMATCHED = -1


@torch.library.custom_op("setwise::assign", mutates_args=())
def assign(cost: Tensor, target_valid: Tensor, output_valid: Tensor) -> Tensor:
    """The output matched to each target so that the summed cost is least: [B, M] of indices.

    ``cost`` is [B, M, N]; only valid targets and outputs take part. Where a set has more targets
    than outputs, as many as there are outputs are matched and the rest are UNMATCHED.
    """
    from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]

    B, M, N = cost.shape
    everything = torch.cat(
        [cost.double().flatten(1), target_valid.double(), output_valid.double()], dim=1
    )
    host = everything.cpu().numpy()  # the one copy from the device
    costs, rows_valid, columns_valid = np.split(host, [M * N, M * N + M], axis=1)
    costs = costs.reshape(B, M, N)

    matching = np.full((B, M), UNMATCHED, dtype=np.int64)
    for b in range(B):
        rows, columns = np.flatnonzero(rows_valid[b]), np.flatnonzero(columns_valid[b])
        block = costs[b][np.ix_(rows, columns)]
        if not np.isfinite(block).all():
            raise ValueError(
                f"input: set {b} of the batch has a matching cost that is NaN or infinite, so it "
                f"has no best assignment; look for NaN or infinite logits or targets there"
            )
        matched_rows, matched_columns = linear_sum_assignment(block)
        matching[b, rows[matched_rows]] = columns[matched_columns]
    return torch.from_numpy(matching).to(cost.device)


@assign.register_fake
def _(cost: Tensor, target_valid: Tensor, output_valid: Tensor) -> Tensor:
    return cost.new_empty(cost.shape[:2], dtype=torch.long)


assign.register_vmap(fold_mapped_dimension(assign))
