"""Losses and their gradients by way of every Triton kernel, to the last bit.

A program of its own too, for Triton's interpreter as it is. The last line is JSON.
"""

from __future__ import annotations

import json
import warnings
from typing import Any

import torch

import setwise as sw


def losses_in_hex() -> dict[str, Any]:
    """Of sets in one launch, in tiles, in float16, of points, and of the hard losses."""
    warnings.simplefilter("ignore", RuntimeWarning)  # of NumPy, for log(0) of masked keys
    from triton.language.core import block_type, float32

    points = sw.Features(sw.Gaussian(3))
    found = {
        "small": _bits(sw.set_cross_entropy, 5, 7, 12),
        "tiles": _bits(sw.set_cross_entropy, 40, 70, 70),
        "float16": _bits(sw.set_cross_entropy, 40, 66, 20, torch.float16),
        "points": _bits(sw.set_cross_entropy, 40, 66, 3, features=points, temperature=0.5),
        "hard": _bits(sw.set_average, 40, 66, 20, directed=False),
    }
    once = block_type(float32, [4]) is block_type(float32, [4])
    return found | {"types are made once": once}


def _bits(
    loss: Any, M: int, N: int, F: int, dtype: torch.dtype = torch.float32, **options: Any
) -> str:
    generator = torch.Generator().manual_seed(M + N + F)
    z = torch.randn(2, N, F, generator=generator).to(dtype).requires_grad_()
    x = torch.rand(2, M, F, generator=generator).to(dtype)
    valid = torch.rand(2, N, generator=generator) < 0.7
    valid[:, 0] = True
    value = loss(z, x, input_valid=valid, impl="triton", **options)
    (gradient,) = torch.autograd.grad(value, [z])
    return "".join(t.detach().numpy().tobytes().hex() for t in (value, gradient))


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(losses_in_hex()))
