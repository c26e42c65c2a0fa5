"""NumPy arrays of few numbers, and PyTorch for the same where they are many.

A step of NumPy starts in a fraction of the time that one of PyTorch takes, and NumPy multiplies
small matrices several times faster. PyTorch has threads and faster functions, and keeps memory that
NumPy would ask the system for in every call. Both read the same memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from setwise.kernels import powers
from setwise.kernels.autocast import no_autocast

Array = NDArray[Any]  # of float32 or float64
Numbers = NDArray[np.int64]

# From so many numbers on, PyTorch is as fast; its exponentials and comparisons are sooner.
MANY, MANY_POWERS, MANY_COMPARED = 2**14, 2**11, 2**12
# Products of a matrix up to which NumPy multiplies it where there are threads.
FEW_PRODUCTS = 2**16
# Of so many PyTorch tells the largest, and where it is, sooner than NumPy does; a row of so many
# columns it normalises at once.
FEW_ROWS, FEW_COLUMNS = 64, 16
# Factors from 1/2 to 1 whose product float32 can still hold.
FACTORS = 64


def empty(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    if math.prod(shape) < MANY:
        return np.empty(shape, dtype=dtype)
    kind = torch.float32 if dtype == np.float32 else torch.float64
    return torch.empty(*shape, dtype=kind, device="cpu").numpy()


def subtract(left: Array, right: Array) -> Array:
    """The right one may have fewer elements; NumPy goes over short rows one by one then."""
    if left.size < MANY:
        return np.subtract(left, right)
    return (torch.from_numpy(left) - torch.from_numpy(right)).numpy()


def add_(array: Array, other: Array) -> None:
    """In place; as of `subtract`."""
    if array.size < MANY:
        array += other
    else:
        torch.from_numpy(array).add_(torch.from_numpy(other))


def subtract_(array: Array, other: Array) -> None:
    """In place; as of `subtract`."""
    if array.size < MANY:
        array -= other
    else:
        torch.from_numpy(array).sub_(torch.from_numpy(other))


def beside(parts: Sequence[Array]) -> Array:
    """One after the other in the last dimension."""
    shape = *parts[0].shape[:-1], sum(part.shape[-1] for part in parts)
    return np.concatenate(parts, axis=-1, out=empty(shape, parts[0].dtype))


def exp_(array: Array) -> Array:
    """In place."""
    if array.size < MANY_POWERS:
        return np.exp(array, out=array)
    powers.exp_(torch.from_numpy(array))
    return array


def sigmoid(array: Array) -> Array:
    return torch.from_numpy(array).sigmoid().numpy()


def log_softmax(array: Array) -> tuple[Array, Array]:
    """Over the last dimension, and its exponentials."""
    given = torch.from_numpy(array)
    if array.shape[-1] >= FEW_COLUMNS or array.size < MANY_POWERS:
        logs = given.log_softmax(dim=-1)
        return logs.numpy(), powers.exp(logs).numpy()
    # PyTorch goes over short rows number by number.
    logs = given - given.amax(dim=-1, keepdim=True)
    shares = powers.exp(logs)
    sums = shares.sum(dim=-1, keepdim=True)
    return logs.sub_(sums.log()).numpy(), shares.mul_(sums.reciprocal_()).numpy()


def largest(array: Array, axis: int) -> Array:
    """Along that dimension, which is kept."""
    if array.size < MANY_COMPARED:
        return np.asarray(array.max(axis=axis, keepdims=True))
    return torch.from_numpy(array).amax(dim=axis, keepdim=True).numpy()


def total(array: Array, axis: int = -1, keepdims: bool = False) -> Array:
    if array.size < MANY:
        return np.asarray(array.sum(axis=axis, keepdims=keepdims))
    return torch.from_numpy(array).sum(dim=axis, keepdim=keepdims).numpy()


def dot(left: Array, right: Array) -> Array:
    """Over the last of three dimensions."""
    return np.einsum("bnf,bnf->bn", left, right)


def positive_part(array: Array) -> Array:
    if array.size < MANY:
        return np.maximum(array, 0)
    return torch.from_numpy(array).clamp(min=0).numpy()


def log_product(array: Array) -> Array:
    """The sum over the last dimension of logarithms of numbers from 1/2 to 1.

    A logarithm costs as much as many products, of which float32 can hold `FACTORS`.
    """
    if array.shape[-1] <= FACTORS:
        return np.log(_product(array))
    factors = 1
    while factors <= FACTORS // 4:
        half = array.shape[-1] // 2
        products = empty((*array.shape[:-1], half), array.dtype)
        np.multiply(array[..., :half], array[..., half : 2 * half], out=products)
        if array.shape[-1] % 2:
            products[..., 0] *= array[..., -1]
        array, factors = products, 2 * factors
    return total(np.log(array))


def _product(array: Array) -> Array:
    """Over the last dimension."""
    if array.size < MANY:
        return np.asarray(np.multiply.reduce(array, axis=-1))
    return torch.from_numpy(array).prod(dim=-1).numpy()


def subtract_product(array: Array, left: Array, right: Array) -> None:
    """``array -= left * right``"""
    if array.size < MANY:
        array -= left * right
    else:
        factors = torch.from_numpy(left), torch.from_numpy(right)
        torch.from_numpy(array).addcmul_(*factors, value=-1)


def matmul(left: Array, right: Array) -> Array:
    """Of batches of matrices."""
    few = left.shape[1] * left.shape[2] * right.shape[2] <= FEW_PRODUCTS
    if few or torch.get_num_threads() == 1:
        shape = *left.shape[:2], right.shape[2]
        found: Array = np.matmul(left, right, out=empty(shape, left.dtype))
        return found
    one, other = torch.from_numpy(left), torch.from_numpy(right)
    with no_autocast(one):
        # A copy takes a fraction of what PyTorch takes longer for what is transposed.
        return torch.bmm(one, other.contiguous()).numpy()


def best_columns(scores: Array) -> tuple[Numbers, Array]:
    """Of each row of [S, T, N] the first column with its largest number, and that: [S, T]."""
    S, T, N = scores.shape
    if N <= FEW_COLUMNS and scores.size >= MANY:
        largest, where = torch.from_numpy(scores).max(dim=2)
        return where.numpy(), largest.numpy()
    first: Numbers = scores.argmax(axis=2)
    return first, scores.take(first + np.arange(0, S * T * N, N).reshape(S, T))


def best_rows(scores: Array) -> tuple[Numbers, Array]:
    """Of each column of [S, T, N] the first row with its largest number, and that: [S, N]."""
    S, T, N = scores.shape
    if T <= FEW_ROWS and scores.size >= MANY_COMPARED:
        largest, where = torch.from_numpy(scores).max(dim=1)
        return where.numpy(), largest.numpy()
    # NumPy finds the largest at once, but transposes everything to tell where they are.
    tops = None if scores.size < MANY else scores.max(axis=1)
    if tops is None or np.isnan(tops).any():  # where terms overflow, none equals the largest
        first: Numbers = scores.argmax(axis=1)
        columns = np.arange(0, S * T * N, T * N)[:, None] + np.arange(N)
        return first, scores.take(first * N + columns)
    rows, columns = np.divmod(np.flatnonzero(scores == tops[:, None]), N)
    sets, rows = np.divmod(rows, T)
    first = np.empty((S, N), dtype=np.int64)
    # The first is written last; of copies, for NumPy may turn round what is stored backwards.
    sets, columns, rows = (index[::-1].copy() for index in (sets, columns, rows))
    first[sets, columns] = rows
    return first, tops


def add_rows(sums: Array, numbers: Numbers, rows: Array) -> None:
    """``sums[numbers[k]] += rows[k]`` for each k, in their order."""
    torch.from_numpy(sums).index_add_(0, torch.from_numpy(numbers), torch.from_numpy(rows))
