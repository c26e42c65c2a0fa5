"""Which kernel serves a shape, with which tiles, on how large a grid: all but the arguments.

Legend: B sets, M queries, N keys, F features. A score is ``queries_i . keys_j + bias_j``. A program
keeps some rows of the score matrix and loops over its columns: n_a rows and n_c columns.

Working this out takes the host longer than many a kernel takes the device, so it is cached.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch

from setwise.kernels.triton import (
    bf16x6,
    combine,
    matmul,
    panels,
    points,
    preparation,
    rounding,
    search,
    small_sets,
)
from setwise.kernels.triton.bf16x6 import padded_features
from setwise.kernels.triton.launch import Launcher, LaunchSequence, launcher
from setwise.kernels.triton.skipping import peaks_shape
from setwise.kernels.triton.tiles import (
    MAX_FEATURES_AT_ONCE,
    Tiles,
    argmax_tiles,
    backward_tiles,
    blocks_in,
    choose_splits,
    forward_tiles,
    matmul_blocks,
    panel_tiles,
    power_of_2,
    shared_memory,
)

_cached = lru_cache(maxsize=1024)

# How many numbers a program takes where elements are for themselves: copies, sums over splits.
NUMBERS_AT_ONCE = 1024


class Plan(NamedTuple):
    """A launch, which arguments turn into ``plan.launch(plan.grid, tensors, numbers)``."""

    launch: Launcher
    grid: tuple[int, int, int]


class Panels(NamedTuple):
    """The launch for the weights of a panel of as many rows; see `panels`."""

    launch: Launcher
    grid: tuple[int, int, int]
    rows: int


class TiledPlan(NamedTuple):
    """A launch whose programs each loop over ``per_split`` columns, in as many splits.

    One launch or, of `matmul.gradients` in full precision, one for each kind of queries.
    """

    launch: Launcher | LaunchSequence
    grid: tuple[int, int, int]
    tiles: Tiles
    splits: int
    per_split: int
    # If there are, the launch is of one panel, and the tiles are those of its weights.
    panels: Panels | None = None


@_cached
def small_set_cross_entropy(
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
    few = max(M, N) <= small_sets.FEW_ELEMENTS
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
        kernel, warps = small_sets.few_elements, 1 if F <= 512 else 4
    else:
        few_scores = 1024 if precision == "float32" else 256
        kernel = small_sets.set_cross_entropy
        warps = 2 if block_m * block_n <= few_scores and F <= 512 else 4
        constants["PRECISION"] = precision
    return Plan(launcher(kernel, constants, warps, 2), (B, 1, 1))


@_cached
def store_bf16x3(n: int, m: int, F: int) -> Plan:
    """For the bfloat16 parts of n queries and of m keys; see `bf16x6.store_bf16x3`."""
    return _by_elements(bf16x6.store_bf16x3, max(n, m), F, padded_features(F))


@_cached
def round_and_pad(n: int, m: int, F: int, f_padded: int) -> Plan:
    """For copies of n and of m elements; see `rounding.round_and_pad`."""
    return _by_elements(rounding.round_and_pad, max(n, m), F, f_padded)


def _by_elements(kernel: Any, n: int, F: int, f_padded: int) -> Plan:
    """For n elements of F features, of which padded copies are written."""
    block_f = min(power_of_2(f_padded), 1024)
    block_a = NUMBERS_AT_ONCE // block_f
    constants = {"F": F, "F_PADDED": f_padded, "BLOCK_A": block_a, "BLOCK_F": block_f}
    return Plan(launcher(kernel, constants, 4, 1), (blocks_in(n, block_a), 1, 1))


@_cached
def prepare_points(B: int, M: int, N: int, F: int, masked: bool, targets_too: bool) -> Plan:
    """For what Bernoulli elements of few features want before a loop; see `points.prepare`."""
    blocks = blocks_in(max(M, N) if targets_too else N, 512)
    constants = {"MASKED": masked, "BOTH": targets_too, "F": F, "BLOCK": 512}
    return Plan(launcher(points.prepare, constants, 4, 1), (blocks * B, 1, 1))


@_cached
def prepare(n: int, m: int, F: int, f_padded: int, masked: bool, copied: bool) -> Plan:
    """The same of more features, for n logits and m targets; see `preparation.prepare`."""
    # Few steps, for each rounds at the size of the total.
    block_f = min(power_of_2(F), 2048)
    block_a = 2 * NUMBERS_AT_ONCE // block_f
    constants = {"MASKED": masked, "COPIED": copied, "F": F, "F_PADDED": f_padded}
    constants |= {"BLOCK_A": block_a, "BLOCK_F": block_f}
    blocks = blocks_in(max(n, m) if copied else n, block_a)
    return Plan(launcher(preparation.prepare, constants, 4, 1), (blocks, 1, 1))


@_cached
def centre(B: int, N: int) -> Plan:
    launch = launcher(preparation.centre, {"BLOCK": 1024}, 4, 1)
    return Plan(launch, (blocks_in(N, 1024) * B, 1, 1))


@_cached
def logsumexp(
    device: torch.device,
    B: int,
    M: int,
    N: int,
    F: int,
    f_padded: int,
    dtype: torch.dtype,
    precision: str,
    recorded: bool,
    summed: bool,
    weighted: bool,
    centred: bool,
    base_2: bool,
    termed: bool = False,
    compared: int = 0,
) -> TiledPlan:
    """For the loop of queries over keys; if it is split, a sum over queries is left to `combine`.

    Here and below, elements are multiplied in ``dtype``, and are padded to ``f_padded``.
    """
    tiles = forward_tiles(M, N, F, dtype, precision, shared_memory(device))
    programs = blocks_in(M, tiles.a)
    peak_keys = tiles.c
    # Also if nothing is recorded this time: that should not change the bits of a sum.
    if peaks_shape(B, M, N, F) is not None:
        _, peak_keys = matmul_blocks(M, N, F)
    splits, per_split = choose_splits(device, B * programs, N, tiles, peak_keys)
    summed = summed and splits == 1
    constants: dict[str, Any] = {"SUMMED": summed, "WEIGHTED": summed and weighted}
    blocks = {"BLOCK_A": tiles.a, "BLOCK_C": tiles.c}
    even = N % tiles.c == 0
    if F <= points.MAX_FEATURES:
        kernel = points.logsumexp
        constants |= {"TERMED": termed, "F": F, "D": compared, **blocks}
        constants |= {"STAGES": tiles.stages, "EVEN": even}
    else:
        kernel = matmul.logsumexp
        constants = {"RECORDED": recorded, **constants, "CENTRED": summed and centred}
        constants |= {"TERMED": termed, "F": f_padded, "D": compared, **blocks}
        constants |= {"BLOCK_F": tiles.f}
        constants |= {"PEAK_KEYS": peak_keys, "PRECISION": precision}
        constants |= {"EVEN": even, "BASE_2": base_2}
    launch = launcher(kernel, constants, tiles.warps, tiles.stages)
    return TiledPlan(launch, (programs * B, splits, 1), tiles, splits, per_split)


@_cached
def combine_logsumexp(
    B: int,
    M: int,
    summed: bool,
    weighted: bool,
    centred: bool,
    base_2: bool,
    termed: bool = False,
) -> Plan:
    constants: dict[str, Any] = {"SUMMED": summed, "WEIGHTED": summed and weighted}
    constants |= {"CENTRED": summed and centred, "TERMED": termed, "BASE_2": base_2, "BLOCK": 256}
    return Plan(launcher(combine.logsumexp, constants, 4, 1), (blocks_in(M, 256) * B, 1, 1))


@_cached
def combine_gradients(n: int, F: int, rows_are_keys: bool, sigmoid: bool, precision: str) -> Plan:
    """For n rows in all."""
    block_f = min(power_of_2(F), 128)
    block_a = NUMBERS_AT_ONCE // block_f
    divided = not rows_are_keys and F > points.MAX_FEATURES
    constants = {
        "WEIGHED": rows_are_keys or divided,
        "SIGMOID": sigmoid,
        "DIVIDED": divided,
        "ROUNDED": sigmoid and precision == "tf32" and F > points.MAX_FEATURES,
        "F": F,
        "BLOCK_A": block_a,
        "BLOCK_F": block_f,
    }
    grid = (blocks_in(n, block_a), blocks_in(F, block_f), 1)
    return Plan(launcher(combine.gradients, constants, 4, 1), grid)


@_cached
def argmax(
    device: torch.device,
    B: int,
    M: int,
    N: int,
    F: int,
    f_padded: int,
    dtype: torch.dtype,
    precision: str,
    compared: int = 0,
) -> Plan:
    tiles = argmax_tiles(M, N, F, dtype, precision, shared_memory(device))
    constants: dict[str, Any] = {"BLOCK_A": tiles.a, "BLOCK_C": tiles.c}
    if F <= points.MAX_FEATURES:
        kernel = points.argmax
        constants = {"F": F, "D": compared, **constants}
    else:
        kernel = search.argmax
        constants = {"F": f_padded, "D": compared, **constants}
        constants |= {"BLOCK_F": tiles.f, "PRECISION": precision}
    launch = launcher(kernel, constants, tiles.warps, tiles.stages)
    return Plan(launch, (blocks_in(M, tiles.a) * B, 1, 1))


@_cached
def gradients(
    device: torch.device,
    B: int,
    n_a: int,
    n_c: int,
    F: int,
    f_padded: int,
    dtype: torch.dtype,
    precision: str,
    rows_are_keys: bool,
    sigmoid: bool,
    unit: bool,
    weighted: bool,
    listed: bool,
    base_2: bool,
    totalled: bool,
    termed: bool = False,
    compared: int = 0,
) -> TiledPlan:
    """For the loop of n_a rows, which get a gradient, over n_c columns.

    It is ``totalled`` up to MAX_FEATURES_AT_ONCE alone.
    """
    if F > MAX_FEATURES_AT_ONCE:
        return _panels(
            device, B, n_a, n_c, F, f_padded, dtype, precision,
            rows_are_keys, sigmoid, unit, weighted, listed, base_2,
        )  # fmt: skip
    tiles = backward_tiles(n_a, n_c, F, dtype, precision, shared_memory(device))
    programs = blocks_in(n_a, tiles.a)
    splits, per_split = choose_splits(device, B * programs, n_c, tiles)
    constants: dict[str, Any] = {
        "ROWS_ARE_KEYS": rows_are_keys,
        "SIGMOID": sigmoid,
        "UNIT": unit,
        "WEIGHTED": weighted,
        "WHOLE": splits == 1,
        "TOTALLED": totalled,
    }
    launch: Launcher | LaunchSequence
    even = n_c % tiles.c == 0
    if F <= points.MAX_FEATURES:
        constants |= {"TERMED": termed, "F": F, "D": compared}
        constants |= {"BLOCK_A": tiles.a, "BLOCK_C": tiles.c}
        constants |= {"STAGES": tiles.stages, "EVEN": even}
        launch = launcher(points.gradients, constants, tiles.warps, tiles.stages)
    else:
        constants |= {
            "TRANSPOSED": transposed(n_c, dtype, precision),
            "SCALED": dtype == torch.float16,
            "LISTED": listed,
            "F": F,
            "D": compared,
            "BLOCK_A": tiles.a,
            "BLOCK_C": tiles.c,
            "BLOCK_F": tiles.f,
            "BLOCK_D": tiles.d,
            "HALVES": tiles.halves,
            "F_PADDED": f_padded,
            "PRECISION": precision,
            "EVEN": even,
            "BASE_2": base_2,
        }
        kinds = ("bf16", "float32") if precision == "float32" else ("any",)
        options = tiles.warps, tiles.stages
        launches = []
        for kind in kinds:
            # Once is enough. Keys keep their order, which is that of the arguments.
            own = constants | {"QUERIES": kind, "TOTALLED": totalled and kind != "float32"}
            launches.append(launcher(matmul.gradients, own, *options))
        launch = LaunchSequence(*launches) if len(launches) > 1 else launches[0]
    return TiledPlan(launch, (programs * B, splits, 1), tiles, splits, per_split)


def _panels(
    device: torch.device,
    B: int,
    n_a: int,
    n_c: int,
    F: int,
    f_padded: int,
    dtype: torch.dtype,
    precision: str,
    rows_are_keys: bool,
    sigmoid: bool,
    unit: bool,
    weighted: bool,
    listed: bool,
    base_2: bool,
) -> TiledPlan:
    """The same for more features than MAX_FEATURES_AT_ONCE."""
    tiles, loop, rows = panel_tiles(device, B, n_a, n_c, F, dtype, precision)
    chunks, programs = blocks_in(F, loop.d), B * blocks_in(rows, loop.a)
    splits, per_split = choose_splits(device, programs * chunks, n_c, loop, tiles.c)
    constants: dict[str, Any] = {
        "ROWS_ARE_KEYS": rows_are_keys,
        "WEIGHTED": weighted,
        "SCALED": dtype == torch.float16,
        "LISTED": listed,
        "F_PADDED": f_padded,
        "BLOCK_A": tiles.a,
        "BLOCK_C": tiles.c,
        "BLOCK_F": tiles.f,
        "PRECISION": precision,
        "BASE_2": base_2,
    }
    weights = launcher(panels.weights, constants, tiles.warps, tiles.stages)
    constants = {
        "ROWS_ARE_KEYS": rows_are_keys,
        "SIGMOID": sigmoid,
        "UNIT": unit,
        "WEIGHTED": weighted,
        "WHOLE": splits == 1,
        "TRANSPOSED": transposed(n_c, dtype, precision),
        "SCALED": dtype == torch.float16,
        "LISTED": listed,
        "F": F,
        "F_PADDED": f_padded,
        "BLOCK_A": loop.a,
        "TILE_C": tiles.c,
        "BLOCK_C": loop.c,
        "BLOCK_D": loop.d,
        "PRECISION": precision,
    }
    launch = launcher(panels.gradients, constants, loop.warps, loop.stages)
    kept = Panels(weights, (programs * blocks_in(n_c, tiles.c), 1, 1), rows)
    return TiledPlan(launch, (programs, splits * chunks, 1), tiles, splits, per_split, kept)


def transposed(n_c: int, dtype: torch.dtype, precision: str) -> bool:
    """Whether the second product, with n_c columns, wants them so; see `matmul.gradients`."""
    return dtype == torch.float32 and precision == "tf32" and n_c >= 64
