"""Block sizes and grids, chosen from the shape of a call. Found by measurement on an H200."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, lru_cache

import torch

from setwise.kernels.triton import matmul, points

# Splits of a loop at most: they are combined one after the other.
MAX_SPLITS = 128

# Features whose sums a program can keep; for more, weights are kept instead, see `panels`.
MAX_FEATURES_AT_ONCE = 256

# Bytes of shared memory that a program may have on the device the tiles were chosen on.
H200_SHARED_MEMORY = 232448


@dataclass(frozen=True)
class Tiles:
    """One launch: rows, columns, features per step, features per sum; warps and stages.

    A result has one or two such sums, its ``halves``. A multiprocessor (SM) should get ``per_sm``
    programs; ``min_split`` is the least number of columns that is worth a program of its own. See
    `choose_splits`.
    """

    a: int
    c: int
    f: int
    d: int
    warps: int
    stages: int
    per_sm: int = 2
    min_split: int = 64
    halves: int = 1


@lru_cache(maxsize=1024)
def forward_tiles(M: int, N: int, F: int, dtype: torch.dtype, precision: str, smem: int) -> Tiles:
    """For the loop of M queries over N keys; ``smem`` is as in `backward_tiles`."""
    if F <= points.MAX_FEATURES:
        return Tiles(a=16, c=_fit(N, 64), f=F, d=F, warps=1, stages=3, per_sm=20, min_split=256)
    if precision == "float32":
        return _fitting(_bf16x6_forward_tiles(M, N, F), F, smem)
    a, c = matmul_blocks(M, N, F)
    wide = dtype == torch.float32
    if c == 256:
        return Tiles(a=a, c=c, f=32 if wide else 64, d=0, warps=8, stages=3, per_sm=1)
    if F <= 64:
        f = _fit(F, 64)
    elif F <= 128:
        f = 128 if min(M, N) >= 512 and not wide else 32
    else:
        f = 32 if wide else 64
    return Tiles(a=a, c=c, f=f, d=0, warps=_warps(a * c), stages=2 if f == 64 else 3)


def argmax_tiles(M: int, N: int, F: int, dtype: torch.dtype, precision: str, smem: int) -> Tiles:
    """For the same loop, where a place has to be kept beside the best of each group."""
    if F <= points.MAX_FEATURES:
        return Tiles(a=8, c=_fit(N, 256), f=F, d=F, warps=2, stages=2)
    return forward_tiles(M, N, F, dtype, precision, smem)


def matmul_blocks(M: int, N: int, F: int) -> tuple[int, int]:
    """Queries and keys of a tile in that loop, for more than MAX_FEATURES features.

    Not cached: where ``torch.compile`` works out shapes, the sizes may be symbols.
    """
    if F > 128 and min(M, N) >= 512:
        return 128, 256
    return _fit(M, 64), _fit(N, 128)


@lru_cache(maxsize=1024)
def backward_tiles(
    n_a: int,
    n_c: int,
    F: int,
    dtype: torch.dtype,
    precision: str,
    smem: int,
) -> Tiles:
    """For the loop of n_a rows over n_c columns; all features of a row stay in registers.

    There are MAX_FEATURES_AT_ONCE at most.

    ``smem`` is the shared memory of the device: the largest tiles are for those that have as much
    as an H200.
    """
    if F <= points.MAX_FEATURES:
        return Tiles(a=8, c=_fit(n_c, 128), f=F, d=F, warps=1, stages=4, per_sm=8, min_split=256)
    assert F <= MAX_FEATURES_AT_ONCE
    if precision == "float32":
        return _fitting(_bf16x6_backward_tiles(n_a, n_c, F), F, smem)
    d = _fit(F, 256)
    if F == 256 and min(n_a, n_c) >= 256:
        wide = dtype == torch.float32
        c, stages = (16, 2) if wide else (64, 3)
        large = Tiles(a=128, c=c, f=256, d=256, warps=8, stages=stages, per_sm=1)
        if smem_bytes(large, dtype) <= smem:
            return large
    if d <= 64:
        a, c = _fit(n_a, 128), _fit(n_c, 64)
        return Tiles(a=a, c=c, f=d, d=d, warps=_warps(a * c), stages=3)
    a = _fit(n_a, 64)
    if d == 128 and dtype != torch.float32:
        # In between, steps of 128 would be to a good part padding.
        c, stages = (_fit(n_c, 128), 2) if n_c <= 128 or n_c >= 512 else (32, 3)
        whole = Tiles(a=a, c=c, f=d, d=d, warps=4, stages=stages)
        if smem_bytes(whole, dtype) <= smem:
            return whole
    return Tiles(a=a, c=_fit(n_c, 64), f=32, d=d, warps=4 if a * d <= 16384 else 8, stages=2)


def _bf16x6_forward_tiles(M: int, N: int, F: int) -> Tiles:
    """For `bf16x6`: a tile of sums has to be kept beside that of the product.

    Never less than 64 rows: then every pass has the same instructions, and so the same bits.
    """
    f = features_per_dot(F)
    if F > 64:
        return Tiles(a=64, c=_fit(N, 128), f=f, d=0, warps=4, stages=3)
    if F > 32 and min(M, N) >= 1024:
        return Tiles(a=128, c=64, f=f, d=0, warps=8, stages=2)
    # Two stages of 64 features, or a multiprocessor would have room for one program alone.
    return Tiles(a=64, c=_fit(N, 64), f=f, d=0, warps=4, stages=3 if f <= 32 else 2)


def _bf16x6_backward_tiles(n_a: int, n_c: int, F: int) -> Tiles:
    """The same; for that reason results of more than 128 features come in halves."""
    f, d = features_per_dot(F), _fit(F, 128)
    if F > 128:
        a, warps = (128, 8) if n_a > 64 else (64, 4)
        return Tiles(a, _fit(n_c, 64), f, d, warps, stages=3, per_sm=1, halves=2)
    long = d <= 32 or (d == 128 and n_c >= 512)
    c = _fit(n_c, 128 if long else 64)
    return Tiles(a=64, c=c, f=f, d=d, warps=4, stages=2 if d <= 32 else 3)


def features_per_dot(F: int) -> int:
    """Features that one product of `bf16x6` sums up, before it is added to others.

    The same in all passes: then the same score has the same bits, however it rounds, and the
    weights of a query add up to 1.
    """
    return _fit(F, 64) if F <= 64 else 32


def _fitting(tiles: Tiles, F: int, smem: int) -> Tiles:
    """These tiles of `bf16x6` or, where shared memory is scarce, some that take 50 KiB at most."""
    if bf16x6_smem_bytes(tiles, F) <= smem:
        return tiles
    a, c, f = min(tiles.a, 64), min(tiles.c, 32 if tiles.d else 64), min(tiles.f, 32)
    return replace(tiles, a=a, c=c, f=f, warps=4, stages=2)


def bf16x6_smem_bytes(tiles: Tiles, F: int) -> int:
    """Shared memory of such tiles, 6 bytes a number, and what sums across warps need.

    If a tile holds all features, rows stay and columns serve both products; else the operands of
    both products take turns. A Hopper, which has plenty, needs up to half as much again in the
    first case: in its forward pass, the loops of queries that are exact in bfloat16 and of others
    do not share their buffers.
    """
    if tiles.f >= F:
        numbers = (tiles.a + tiles.stages * tiles.c) * tiles.f
    else:
        first = tiles.stages * (tiles.a + tiles.c) * tiles.f
        numbers = max(first, tiles.c * tiles.d * tiles.halves)
    return 6 * numbers + 1024


def panel_tiles(
    device: torch.device,
    B: int,
    n_a: int,
    n_c: int,
    F: int,
    dtype: torch.dtype,
    precision: str,
) -> tuple[Tiles, Tiles, int]:
    """For more features: tiles of weights, tiles of their products, and rows in a panel.

    The weights take no more memory than the sets as they are multiplied, or a panel is one tile.
    """
    smem, exact = shared_memory(device), precision == "float32"
    size = 6 if exact else dtype.itemsize
    tiles = forward_tiles(n_a, n_c, F, dtype, precision, smem)
    width = blocks_in(n_c, tiles.c) * tiles.c
    most = (n_a + n_c) * F * dtype.itemsize // (width * size)
    panels = blocks_in(n_a, max(tiles.a, most // tiles.a * tiles.a))
    rows = blocks_in(blocks_in(n_a, panels), tiles.a) * tiles.a
    large = tiles.a == 128 and not exact
    # Wide sums read weights less often, if there are enough of them.
    programs = B * rows // tiles.a * blocks_in(F, 256)
    d = 256 if large and programs >= 2 * sm_count(device) else 128
    c = min(32 if dtype == torch.float32 else 64, tiles.c)
    loop = Tiles(tiles.a, c, f=0, d=d, warps=8 if large else 4, stages=3)
    while panel_smem_bytes(loop, size) > smem:
        loop = replace(loop, stages=loop.stages - 1)
    return tiles, loop, rows


def panel_smem_bytes(loop: Tiles, size: int) -> int:
    """Shared memory that products of weights of this size need: both operands in each stage."""
    return loop.stages * (loop.a + loop.d) * loop.c * size + 1024


def smem_bytes(large: Tiles, dtype: torch.dtype) -> int:
    """Shared memory of such tiles: the rows and, for each stage, the columns and their copy.

    Only what is of 32 bits is copied. There are also ones, which weights are multiplied with to add
    them up, and sums across warps, of which Triton's compiler told 1 KiB at most.
    """
    copy = 4 if dtype == torch.float32 else 0
    step = large.c * (dtype.itemsize * large.f + copy * large.d)
    ones = dtype.itemsize * large.c * matmul.MIN_COLUMNS.value
    return dtype.itemsize * large.a * large.f + large.stages * step + ones + 1024


def choose_splits(
    device: torch.device, programs: int, columns: int, tiles: Tiles, multiple: int = 1
) -> tuple[int, int]:
    """How often to split a loop so that the grid fills the device, and the length of a split.

    Rounded down: a few programs too many would be left to run alone at the end. The length is a
    ``multiple`` of that of a tile and of another power of two.
    """
    wanted = tiles.per_sm * sm_count(device) // programs
    most = min(columns // tiles.min_split, blocks_in(columns, tiles.c), MAX_SPLITS)
    splits = max(1, min(wanted, most))
    multiple = max(multiple, tiles.c)
    per_split = blocks_in(blocks_in(columns, splits), multiple) * multiple
    return blocks_in(columns, per_split), per_split


def blocks_in(size: int, block: int) -> int:
    """How many blocks it takes to cover a size."""
    return (size + block - 1) // block


def power_of_2(size: int) -> int:
    """The smallest power of two that is not less."""
    return 1 << (size - 1).bit_length()


def _fit(size: int, most: int) -> int:
    """The smallest block that a matrix product allows and that holds ``size``, up to ``most``."""
    return most if size > most // 2 else max(16, power_of_2(size))


def _warps(scores: int) -> int:
    return 1 if scores <= 1024 else 4 if scores <= 8192 else 8


@cache
def shared_memory(device: torch.device) -> int:
    """Bytes of shared memory that one program may have."""
    if device.type != "cuda":
        return H200_SHARED_MEMORY  # Triton's interpreter
    properties = torch.cuda.get_device_properties(device)
    # Older releases of PyTorch do not tell.
    return int(getattr(properties, "shared_memory_per_block_optin", H200_SHARED_MEMORY))


@cache
def sm_count(device: torch.device) -> int:
    if device.type != "cuda":
        return 1  # Triton's interpreter
    return torch.cuda.get_device_properties(device).multi_processor_count
