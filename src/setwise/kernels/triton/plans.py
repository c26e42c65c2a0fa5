"""Which kernel serves a shape, with which tiles, on how large a grid: all but the arguments.

Legend: B sets, M queries, N keys, F features. A score is ``queries_i . keys_j + bias_j``.

Working this out takes the host longer than many a kernel takes the device, so it is remembered.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch

from setwise.kernels.triton import (
    pieces,
    points,
    preparation,
    products,
    rounding,
    small,
    strips,
    thirds,
)
from setwise.kernels.triton.launch import InTurn, Launcher, launcher
from setwise.kernels.triton.skipping import peaks_shape
from setwise.kernels.triton.thirds import row_length
from setwise.kernels.triton.tiles import (
    MOST_FEATURES_AT_ONCE,
    Tiles,
    argmax_tiles,
    backward_tiles,
    blocks_in,
    forward_tiles,
    power_of_2,
    product_blocks,
    shared_memory,
    split_walk,
    strip_tiles,
)

_remembered = lru_cache(maxsize=1024)


class Plan(NamedTuple):
    """A launch, which arguments turn into ``plan.start(plan.grid, tensors, numbers)``."""

    start: Launcher
    grid: tuple[int, int, int]


class Strips(NamedTuple):
    """The launch for the weights of a strip of as many owners; see `strips`."""

    start: Launcher
    grid: tuple[int, int, int]
    owners: int


class Walk(NamedTuple):
    """Programs that each walk over a piece of the other side, in as many splits.

    One launch or, of `products.gradients` in full precision, one for each kind of queries.
    """

    start: Launcher | InTurn
    grid: tuple[int, int, int]
    tiles: Tiles
    splits: int
    per_split: int
    # If there are, this is the walk of one strip, and the tiles are those of its weights.
    strips: Strips | None = None


@_remembered
def small_sets(
    B: int,
    M: int,
    N: int,
    F: int,
    masked: bool,
    weighted: bool,
    terms: bool,
    gradient: bool,
    precision: str,
) -> Plan:
    few = max(M, N) <= small.FEW_ELEMENTS
    least = 2 if few else 16  # the least that a product of tiles takes
    block_m, block_n = max(least, power_of_2(M)), max(least, power_of_2(N))
    constants: dict[str, Any] = {
        "MASKED": masked,
        "WEIGHTED": weighted,
        "TERMS": terms,
        "GRADIENT": gradient,
        "F": F,
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "BLOCK_F": min(max(16, power_of_2(F)), 64 if F <= 512 else 128),
    }
    if few:
        kernel, warps = small.few_elements, 1 if F <= 512 else 4
    else:
        few_scores = 1024 if precision == "float32" else 256
        kernel = small.set_cross_entropy
        warps = 2 if block_m * block_n <= few_scores and F <= 512 else 4
        constants["PRECISION"] = precision
    return Plan(launcher(kernel, constants, warps, 2), (B, 1, 1))


@_remembered
def split(n: int, m: int, F: int) -> Plan:
    """For the thirds of n and of m rows; see `thirds.split`."""
    return _by_rows(thirds.split, max(n, m), F, row_length(F))


@_remembered
def rows(n: int, m: int, F: int, row: int) -> Plan:
    """For copies of n and of m rows; see `rounding.rows`."""
    return _by_rows(rounding.rows, max(n, m), F, row)


def _by_rows(kernel: Any, n: int, F: int, row: int) -> Plan:
    """For n rows of F features, and what is written to rows of that length."""
    block_f = min(power_of_2(row), 1024)
    block_a = 1024 // block_f
    constants = {"F": F, "ROW": row, "BLOCK_A": block_a, "BLOCK_F": block_f}
    return Plan(launcher(kernel, constants, 4, 1), (blocks_in(n, block_a), 1, 1))


@_remembered
def prepare_points(B: int, M: int, N: int, F: int, masked: bool, targets_too: bool) -> Plan:
    """For what Bernoulli elements of few features want before a walk; see `points.prepare`."""
    blocks = blocks_in(max(M, N) if targets_too else N, 512)
    constants = {"MASKED": masked, "BOTH": targets_too, "F": F, "BLOCK": 512}
    return Plan(launcher(points.prepare, constants, 4, 1), (blocks * B, 1, 1))


@_remembered
def prepare(n: int, m: int, F: int, row: int, masked: bool, copied: bool) -> Plan:
    """The same of more features, for n logits and m targets; see `preparation.prepare`."""
    # Few steps, for each rounds at the size of the total.
    block_f = min(power_of_2(F), 2048)
    block_a = 2048 // block_f
    constants = {"MASKED": masked, "COPIED": copied, "F": F, "ROW": row}
    constants |= {"BLOCK_A": block_a, "BLOCK_F": block_f}
    blocks = blocks_in(max(n, m) if copied else n, block_a)
    return Plan(launcher(preparation.prepare, constants, 4, 1), (blocks, 1, 1))


@_remembered
def centre(B: int, N: int) -> Plan:
    start = launcher(preparation.centre, {"BLOCK": 1024}, 4, 1)
    return Plan(start, (blocks_in(N, 1024) * B, 1, 1))


@_remembered
def logsumexp(
    device: torch.device,
    B: int,
    M: int,
    N: int,
    F: int,
    row: int,
    dtype: torch.dtype,
    precision: str,
    recorded: bool,
    summed: bool,
    weighted: bool,
    centred: bool,
    base_2: bool,
) -> Walk:
    """For the walk of queries over keys; if it is split, a sum over queries is left to others.

    Here and below, elements are multiplied in ``dtype``, and have rows of length ``row``.
    """
    tiles = forward_tiles(M, N, F, dtype, precision, shared_memory(device))
    programs = blocks_in(M, tiles.a)
    peak_keys = tiles.c
    # Also if nothing is recorded this time: that should not change the bits of a sum.
    if peaks_shape(B, M, N, F) is not None:
        _, peak_keys = product_blocks(M, N, F)
    splits, per_split = split_walk(device, B * programs, N, tiles, peak_keys)
    summed = summed and splits == 1
    constants: dict[str, Any] = {"SUMMED": summed, "WEIGHTED": summed and weighted}
    blocks = {"BLOCK_A": tiles.a, "BLOCK_C": tiles.c}
    even = N % tiles.c == 0
    if F <= points.MAX_FEATURES:
        kernel = points.logsumexp
        constants |= {"F": F, **blocks, "STAGES": tiles.stages, "EVEN": even}
    else:
        kernel = products.logsumexp
        constants = {"RECORDED": recorded, **constants, "CENTRED": summed and centred}
        constants |= {"F": row, **blocks, "BLOCK_F": tiles.f}
        constants |= {"PEAK_KEYS": peak_keys, "PRECISION": precision}
        constants |= {"EVEN": even, "BASE_2": base_2}
    start = launcher(kernel, constants, tiles.warps, tiles.stages)
    return Walk(start, (programs * B, splits, 1), tiles, splits, per_split)


@_remembered
def logsumexp_of_pieces(
    B: int, M: int, summed: bool, weighted: bool, centred: bool, base_2: bool
) -> Plan:
    constants: dict[str, Any] = {"SUMMED": summed, "WEIGHTED": summed and weighted}
    constants |= {"CENTRED": summed and centred, "BASE_2": base_2, "BLOCK": 256}
    return Plan(launcher(pieces.logsumexp, constants, 4, 1), (blocks_in(M, 256) * B, 1, 1))


@_remembered
def gradients_of_pieces(n: int, F: int, owns_keys: bool, sigmoid: bool, precision: str) -> Plan:
    """For n owners in all."""
    block_f = min(power_of_2(F), 128)
    divided = not owns_keys and F > points.MAX_FEATURES
    constants = {
        "WEIGHED": owns_keys or divided,
        "SIGMOID": sigmoid,
        "DIVIDED": divided,
        "ROUNDED": sigmoid and precision == "tf32" and F > points.MAX_FEATURES,
        "F": F,
        "BLOCK_A": 1024 // block_f,
        "BLOCK_F": block_f,
    }
    grid = (blocks_in(n, 1024 // block_f), blocks_in(F, block_f), 1)
    return Plan(launcher(pieces.gradients, constants, 4, 1), grid)


@_remembered
def argmax(
    device: torch.device,
    B: int,
    M: int,
    N: int,
    F: int,
    row: int,
    dtype: torch.dtype,
    precision: str,
) -> Plan:
    tiles = argmax_tiles(M, N, F, dtype, precision, shared_memory(device))
    constants: dict[str, Any] = {"F": F, "BLOCK_A": tiles.a, "BLOCK_C": tiles.c}
    kernel = points.argmax
    if F > points.MAX_FEATURES:
        kernel = products.argmax
        constants |= {"F": row, "BLOCK_F": tiles.f, "PRECISION": precision}
    start = launcher(kernel, constants, tiles.warps, tiles.stages)
    return Plan(start, (blocks_in(M, tiles.a) * B, 1, 1))


@_remembered
def gradients(
    device: torch.device,
    B: int,
    n_a: int,
    n_c: int,
    F: int,
    row: int,
    dtype: torch.dtype,
    precision: str,
    owns_keys: bool,
    sigmoid: bool,
    unit: bool,
    weighted: bool,
    listed: bool,
    base_2: bool,
    totalled: bool,
) -> Walk:
    """For the walk of n_a owners, which get a gradient, over n_c others.

    It is ``totalled`` up to MOST_FEATURES_AT_ONCE alone.
    """
    if F > MOST_FEATURES_AT_ONCE:
        return _strips(
            device, B, n_a, n_c, F, row, dtype, precision,
            owns_keys, sigmoid, unit, weighted, listed, base_2,
        )  # fmt: skip
    tiles = backward_tiles(n_a, n_c, F, dtype, precision, shared_memory(device))
    programs = blocks_in(n_a, tiles.a)
    splits, per_split = split_walk(device, B * programs, n_c, tiles)
    constants: dict[str, Any] = {
        "OWNS_KEYS": owns_keys,
        "SIGMOID": sigmoid,
        "UNIT": unit,
        "WEIGHTED": weighted,
        "WHOLE": splits == 1,
        "TOTALLED": totalled,
    }
    start: Launcher | InTurn
    even = n_c % tiles.c == 0
    if F <= points.MAX_FEATURES:
        constants |= {"F": F, "BLOCK_A": tiles.a, "BLOCK_C": tiles.c}
        constants |= {"STAGES": tiles.stages, "EVEN": even}
        start = launcher(points.gradients, constants, tiles.warps, tiles.stages)
    else:
        constants |= {
            "TRANSPOSED": transposed(n_c, dtype, precision),
            "SCALED": dtype == torch.float16,
            "LISTED": listed,
            "F": F,
            "BLOCK_A": tiles.a,
            "BLOCK_C": tiles.c,
            "BLOCK_F": tiles.f,
            "BLOCK_D": tiles.d,
            "HALVES": tiles.halves,
            "ROW": row,
            "PRECISION": precision,
            "EVEN": even,
            "BASE_2": base_2,
        }
        kinds = ("short", "long") if precision == "float32" else ("any",)
        options = tiles.warps, tiles.stages
        starts = []
        for kind in kinds:
            # Once is enough. Keys keep their order, which is that of the arguments.
            own = constants | {"QUERIES": kind, "TOTALLED": totalled and kind != "long"}
            starts.append(launcher(products.gradients, own, *options))
        start = InTurn(*starts) if len(starts) > 1 else starts[0]
    return Walk(start, (programs * B, splits, 1), tiles, splits, per_split)


def _strips(
    device: torch.device,
    B: int,
    n_a: int,
    n_c: int,
    F: int,
    row: int,
    dtype: torch.dtype,
    precision: str,
    owns_keys: bool,
    sigmoid: bool,
    unit: bool,
    weighted: bool,
    listed: bool,
    base_2: bool,
) -> Walk:
    """The same for more features than MOST_FEATURES_AT_ONCE."""
    tiles, walk, owners = strip_tiles(device, B, n_a, n_c, F, dtype, precision)
    chunks, programs = blocks_in(F, walk.d), B * blocks_in(owners, walk.a)
    splits, per_split = split_walk(device, programs * chunks, n_c, walk, tiles.c)
    constants: dict[str, Any] = {
        "OWNS_KEYS": owns_keys,
        "WEIGHTED": weighted,
        "SCALED": dtype == torch.float16,
        "LISTED": listed,
        "ROW": row,
        "BLOCK_A": tiles.a,
        "BLOCK_C": tiles.c,
        "BLOCK_F": tiles.f,
        "PRECISION": precision,
        "BASE_2": base_2,
    }
    weights = launcher(strips.weights, constants, tiles.warps, tiles.stages)
    constants = {
        "OWNS_KEYS": owns_keys,
        "SIGMOID": sigmoid,
        "UNIT": unit,
        "WEIGHTED": weighted,
        "WHOLE": splits == 1,
        "TRANSPOSED": transposed(n_c, dtype, precision),
        "SCALED": dtype == torch.float16,
        "LISTED": listed,
        "F": F,
        "ROW": row,
        "BLOCK_A": walk.a,
        "TILE_C": tiles.c,
        "BLOCK_C": walk.c,
        "BLOCK_D": walk.d,
        "PRECISION": precision,
    }
    start = launcher(strips.gradients, constants, walk.warps, walk.stages)
    kept = Strips(weights, (programs * blocks_in(n_c, tiles.c), 1, 1), owners)
    return Walk(start, (programs, splits * chunks, 1), tiles, splits, per_split, kept)


def transposed(n_c: int, dtype: torch.dtype, precision: str) -> bool:
    """Whether the second product, with n_c others, wants them so; see `products.gradients`."""
    return dtype == torch.float32 and precision == "tf32" and n_c >= 64
