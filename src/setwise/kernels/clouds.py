"""Which calls are about clouds of points: large sets of elements with few features, all compared.

On a GPU these are sorted into blocks, and blocks that cannot matter are left out; see
`triton.boxes`. On a CPU see `trees`.
"""

from __future__ import annotations

from torch import Tensor

from setwise.kernels.trees import MOST_FEATURES

# Least B M N, and least M and N. Of fewer pairs, all are computed while the host still starts the
# kernels that sort.
FEWEST_PAIRS = 2**33
FEWEST_POINTS = 2**12


def suit(queries: Tensor, keys: Tensor, sharpness: Tensor | None) -> bool:
    """Whether to sort points pays, as far as shapes tell; the rest is decided on the device."""
    B, M, F = queries.shape
    N = keys.shape[1]
    return (
        sharpness is not None
        and sharpness.shape[-1] == F <= MOST_FEATURES
        and min(M, N) >= FEWEST_POINTS
        and B * M * N >= FEWEST_PAIRS
    )
