"""Which calls are about clouds of points: large sets of elements with few features, all compared.

On a GPU these are sorted into blocks, and blocks that cannot matter are left out; see
`triton.boxes`. On a CPU see `trees`.
"""

from __future__ import annotations

from torch import Tensor

from setwise.kernels.trees import MOST_FEATURES

# Least B M N, and least M and N. Of fewer pairs, all are computed while the host still starts the
# kernels that sort.
FEWEST_PAIRS = 2**34
FEWEST_POINTS = 2**12


def large(queries: Tensor, keys: Tensor) -> bool:
    """Whether to sort elements pays if all of their features are compared: [B, M, F], [B, N, F]."""
    (B, M, F), N = queries.shape, keys.shape[1]
    return F <= MOST_FEATURES and min(M, N) >= FEWEST_POINTS and B * M * N >= FEWEST_PAIRS


def suit(queries: Tensor, keys: Tensor, sharpness: Tensor | None) -> bool:
    """Whether a call is about such clouds, as far as shapes tell; the device decides the rest."""
    compared = 0 if sharpness is None else sharpness.shape[-1]
    return compared == queries.shape[2] and large(queries, keys)
