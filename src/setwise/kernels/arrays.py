"""NumPy arrays of few numbers, and PyTorch for the same where they are many.

A step of NumPy starts in a fraction of the time that one of PyTorch takes, and NumPy multiplies
small matrices several times faster. PyTorch has threads and faster functions, and keeps memory that
NumPy would ask the system for in every call. Both read the same memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from setwise.kernels import matmul_precision, powers
from setwise.kernels.autocast import no_autocast

Array = NDArray[Any]  # of float32 or float64
Numbers = NDArray[np.int64]

# From so many numbers on, PyTorch is as fast; its exponentials and comparisons are sooner.
MANY, MANY_POWERS, MANY_COMPARED = 2**14, 2**11, 2**12
# From so many on NumPy finds the extremes of an array in half the time.
MANY_SOUGHT = 2**15
# Products of a matrix up to which NumPy multiplies it where there are threads, and from which its
# library would start threads of its own. With Intel's MKL, which takes less long for small ones,
# the latter are those of a batch that PyTorch multiplies; and the sizes of matrices that it
# multiplies sooner in one thread, too.
HAS_MKL = torch.backends.mkl.is_available()
FEW_PRODUCTS, MANY_PRODUCTS = 2**16, 2**18
FEW_ROWS_MULTIPLIED, LARGE_MATRIX = 8, 64
# Of so many PyTorch tells the largest, and where it is, sooner than NumPy does; a row of so many
# columns it normalises at once.
FEW_ROWS, FEW_COLUMNS = 64, 16
# Equal numbers for each largest one that NumPy lists no later than PyTorch finds the first.
MANY_HITS = 2
# Factors from 1/2 to 1 whose product, and one more, float32 can still hold.
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


def exp_(array: Array, near: bool = False) -> Array:
    """In place; of ``near`` exponents none is so small that its power is next to nothing."""
    if array.size < MANY_POWERS:
        return np.exp(array, out=array)
    given = torch.from_numpy(array)
    if near:
        given.exp_()
    else:
        powers.exp_(given)
    return array


def extremes(array: Array) -> tuple[float, float]:
    """The least and the greatest; both NaN if any is."""
    if array.size >= MANY_SOUGHT:
        return array.min().item(), array.max().item()
    least, most = torch.from_numpy(array).aminmax()
    return least.item(), most.item()


def sigmoid(array: Array) -> Array:
    return torch.from_numpy(array).sigmoid().numpy()


def log_softmax(array: Array) -> tuple[Array, Array | None]:
    """Over the last dimension, and its exponentials where those come with it."""
    given = torch.from_numpy(array)
    if array.shape[-1] >= FEW_COLUMNS or array.size < MANY_POWERS:
        return given.log_softmax(dim=-1).numpy(), None
    # PyTorch goes over short rows number by number.
    logs = given - given.amax(dim=-1, keepdim=True)
    shares = powers.exp(logs)
    sums = shares.sum(dim=-1, keepdim=True)
    return logs.sub_(sums.log()).numpy(), shares.mul_(sums.reciprocal_()).numpy()


def exp(array: Array) -> Array:
    return powers.exp(torch.from_numpy(array)).numpy()


def through_log_softmax(gradient: Array, logs: Array, shares: Array | None) -> Array:
    """What pulls at the results of `log_softmax`, turned to what it was given; in place or not."""
    given = torch.from_numpy(logs)
    if shares is None and not powers.any_lost(given):
        back = torch.from_numpy(gradient)
        return torch._log_softmax_backward_data(back, given, -1, given.dtype).numpy()
    shares = exp(logs) if shares is None else shares
    subtract_product(gradient, shares, total(gradient, keepdims=True))
    return gradient


def largest(array: Array, axis: int) -> Array:
    """Along that dimension, which is kept."""
    if array.size < MANY_COMPARED:
        return np.asarray(array.max(axis=axis, keepdims=True))
    return torch.from_numpy(array).amax(dim=axis, keepdim=True).numpy()


def total(array: Array, axis: int = -1, keepdims: bool = False) -> Array:
    """Over the last of the dimensions, or the second of three.

    Up to some size as a product with ones: a library for matrices adds up several times faster than
    what reduces an array by short rows.
    """
    sums: Array
    if array.size >= MANY_PRODUCTS:
        return torch.from_numpy(array).sum(dim=axis, keepdim=keepdims).numpy()
    if axis == 1:
        sums = np.matmul(_ones(array.shape[1], array.dtype), array)
        return sums[:, None] if keepdims else sums
    if array.flags.c_contiguous:
        rows = array.reshape(-1, array.shape[-1])
        sums = rows.dot(_ones(array.shape[-1], array.dtype)).reshape(array.shape[:-1])
    else:
        sums = np.matmul(array, _ones(array.shape[-1], array.dtype))
    return sums[..., None] if keepdims else sums


@lru_cache(maxsize=64)  # of less than `MANY_PRODUCTS` each
def _ones(size: int, dtype: np.dtype[Any]) -> Array:
    ones = np.ones(size, dtype=dtype)
    ones.setflags(write=False)
    return ones


def dot(left: Array, right: Array) -> Array:
    """Over the last of three dimensions."""
    if left.shape[2] <= FACTORS:
        return total(np.multiply(left, right))
    return np.einsum("bnf,bnf->bn", left, right)


def positive_part(array: Array) -> Array:
    if array.size < MANY:
        return np.maximum(array, 0)
    return torch.from_numpy(array).clamp(min=0).numpy()


def likelier(probabilities: Array) -> Array:
    """Of each and of its opposite."""
    if probabilities.size < MANY:
        return np.maximum(1 - probabilities, probabilities)
    given = torch.from_numpy(probabilities)
    found = 1 - given
    return torch.maximum(found, given, out=found).numpy()


def log_product(array: Array) -> Array:
    """The sum over the last dimension of logarithms of numbers from 1/2 to 1.

    A logarithm costs as much as many products, of which float32 can hold `FACTORS`.
    """
    width = array.shape[-1]
    if width <= FACTORS:
        return np.log(_product(array))
    factors, parts = torch.from_numpy(array), math.ceil(width / FACTORS)
    whole = width - width % parts
    logs = factors[..., :whole].unflatten(-1, (parts, whole // parts)).prod(dim=-1)
    if whole < width:
        logs[..., : width - whole] *= factors[..., whole:]
    return logs.log_().sum(dim=-1).numpy()


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
    """Of batches of matrices: in full precision, however PyTorch may form its products."""
    if not _is_for_torch(left, right) or matmul_precision.rounds_on_cpu():
        return _matmul(left, right)
    one, other = torch.from_numpy(left), torch.from_numpy(right)
    if not HAS_MKL:  # what is transposed takes others longer than a copy of it
        other = other.contiguous()
    with no_autocast(one):
        return torch.bmm(one, other).numpy()


def _matmul(left: Array, right: Array) -> Array:
    """By NumPy; where PyTorch has threads, in parts for which NumPy's library starts none.

    Those wait for each other, and PyTorch's then for them.
    """
    (B, rows, inner), columns = left.shape, right.shape[2]
    found = empty((B, rows, columns), left.dtype)
    several = torch.get_num_threads() > 1
    at_once = max(1, MANY_PRODUCTS // max(1, inner * columns)) if several else max(1, rows)
    for i in range(0, rows, at_once):
        np.matmul(left[:, i : i + at_once], right, out=found[:, i : i + at_once])
    return found


def _is_for_torch(left: Array, right: Array) -> bool:
    B, rows, inner, columns = *left.shape, right.shape[2]
    several = torch.get_num_threads() > 1
    if not HAS_MKL:
        return several and rows * inner * columns > FEW_PRODUCTS
    if B * rows * inner * columns < MANY_PRODUCTS:
        return False
    # In one thread, what NumPy has to copy first, and what is large whichever way one looks at it.
    transposed = rows >= FEW_ROWS_MULTIPLIED and not right.flags.c_contiguous
    return several or transposed or min(rows, inner, columns) >= LARGE_MATRIX


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
    if scores.size < MANY_COMPARED:
        return _first_rows(scores)
    if T <= FEW_ROWS or (scores.size >= MANY and torch.get_num_threads() > 1):
        return _first_rows_by_torch(scores)
    # NumPy finds the largest at once, but transposes everything to tell where they are.
    tops = scores.max(axis=1)
    if np.isnan(tops).any():  # where terms overflow, none equals the largest
        return _first_rows(scores)
    hits = scores == tops[:, None]
    if np.count_nonzero(hits) > MANY_HITS * tops.size:
        return _first_rows_by_torch(scores)
    rows, columns = np.divmod(np.flatnonzero(hits), N)
    sets, rows = np.divmod(rows, T)
    first = np.empty((S, N), dtype=np.int64)
    # The first is written last; of copies, for NumPy may turn round what is stored backwards.
    sets, columns, rows = (index[::-1].copy() for index in (sets, columns, rows))
    first[sets, columns] = rows
    return first, tops


def _first_rows(scores: Array) -> tuple[Numbers, Array]:
    S, T, N = scores.shape
    first: Numbers = scores.argmax(axis=1)
    columns = np.arange(0, S * T * N, T * N)[:, None] + np.arange(N)
    return first, scores.take(first * N + columns)


def _first_rows_by_torch(scores: Array) -> tuple[Numbers, Array]:
    largest, where = torch.from_numpy(scores).max(dim=1)
    return where.numpy(), largest.numpy()


def add_rows(sums: Array, numbers: Numbers, rows: Array) -> None:
    """``sums[numbers[k]] += rows[k]`` for each k, in their order."""
    torch.from_numpy(sums).index_add_(0, torch.from_numpy(numbers), torch.from_numpy(rows))
