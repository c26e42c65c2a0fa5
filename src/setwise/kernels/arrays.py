"""NumPy arrays of few numbers, and PyTorch for the same where they are many.

A step of NumPy starts in a fraction of the time that one of PyTorch takes, and NumPy multiplies
small matrices several times faster. PyTorch has threads and faster functions. Both read the same
memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[Any]  # of float32 or float64
Numbers = NDArray[np.int64]

# From so many numbers on, PyTorch is as fast; its exponentials are sooner.
MANY, MANY_POWERS = 2**14, 2**11
# Products of a matrix up to which NumPy multiplies it, and in one thread.
FEW_PRODUCTS = 2**16


def exp_(array: Array) -> Array:
    """In place."""
    if array.size < MANY_POWERS:
        return np.exp(array, out=array)
    torch.from_numpy(array).exp_()
    return array


def log(array: Array) -> Array:
    return np.log(array) if array.size < MANY else torch.from_numpy(array).log().numpy()


def log_softmax(array: Array) -> Array:
    """Over the last dimension: one step of PyTorch, where NumPy needs six."""
    return torch.from_numpy(array).log_softmax(dim=-1).numpy()


def total(array: Array, axis: int = -1, keepdims: bool = False) -> Array:
    if array.size < MANY:
        return np.add.reduce(array, axis=axis, keepdims=keepdims)
    return torch.from_numpy(array).sum(dim=axis, keepdim=keepdims).numpy()


def product(array: Array) -> Array:
    """Over the last dimension."""
    if array.size < MANY:
        return np.multiply.reduce(array, axis=-1)
    return torch.from_numpy(array).prod(dim=-1).numpy()


def matmul(left: Array, right: Array) -> Array:
    """Of batches of matrices."""
    if left.shape[1] * left.shape[2] * right.shape[2] <= FEW_PRODUCTS:
        return np.matmul(left, right)
    # A copy takes a fraction of what PyTorch takes longer for what is transposed.
    return torch.bmm(torch.from_numpy(left), torch.from_numpy(right).contiguous()).numpy()


def add_rows(sums: Array, numbers: Numbers, rows: Array) -> None:
    """``sums[numbers[k]] += rows[k]`` for each k, in their order."""
    torch.from_numpy(sums).index_add_(0, torch.from_numpy(numbers), torch.from_numpy(rows))
