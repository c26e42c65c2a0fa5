"""Launches of the kernels of fused losses: as in `plans`, all but the arguments, and kept."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from setwise.kernels.triton import elements, matched, nearest, points, small_losses
from setwise.kernels.triton.element import Element
from setwise.kernels.triton.launch import launcher
from setwise.kernels.triton.plans import Plan
from setwise.kernels.triton.tiles import blocks_in, power_of_2

_cached = lru_cache(maxsize=1024)


def _described(element: Element) -> dict[str, Any]:
    """What kernels are told of an element."""
    names = {"KINDS": element.kinds, "WIDTHS": element.widths, "STARTS": element.starts}
    return names | {"PADDED": element.padded}


def _placed(element: Element) -> dict[str, Any]:
    names = {"KINDS": element.kinds, "WIDTHS": element.widths, "STARTS": element.starts}
    return names | {"PLACES": element.places, "PADDED": element.padded}


def _rows(element: Element) -> int:
    """Elements of a program that holds a block of each in registers."""
    return max(1, min(128, 2048 // max(element.padded)))


def tile(element: Element, M: int, N: int, F: int) -> tuple[dict[str, Any], int]:
    """For a program that holds all pairs of a set in registers: its last constants, its warps."""
    block_m, block_n = max(2, power_of_2(M)), max(2, power_of_2(N))
    constants = _described(element) | {"F": F, "BLOCK_M": block_m, "BLOCK_N": block_n}
    pairs = block_m * block_n
    return constants, 1 if pairs <= 512 else 4 if pairs <= 2048 else 8


@_cached
def small_loss(
    element: Element,
    B: int,
    M: int,
    N: int,
    F: int,
    mode: str,
    both: bool,
    masked: bool,
    target_masked: bool,
    weighted: bool,
    shared: bool,
    on_device: bool,
    gradient: bool,
) -> Plan:
    constants = {"MODE": mode, "BOTH": both, "MASKED": masked, "TARGET_MASKED": target_masked}
    constants |= {"WEIGHTED": weighted, "SHARED": shared, "ON_DEVICE": on_device}
    rest, warps = tile(element, M, N, F)
    constants |= {"GRADIENT": gradient, **rest}
    return Plan(launcher(small_losses.small_loss, constants, warps, 2), (B, 1, 1))


@_cached
def prepare(
    element: Element,
    B: int,
    M: int,
    N: int,
    F: int,
    width: int,
    compared: int,
    are_points: bool,
    centred: bool,
    masked: bool,
    target_masked: bool,
    weighted: bool,
    on_device: bool,
    rounded: bool,
    across: bool,
    based: bool,
) -> Plan:
    rows = _rows(element)
    constants = _placed(element) | {"D": compared, "POINTS": are_points, "CENTRED": centred}
    constants |= {"MASKED": masked, "TARGET_MASKED": target_masked, "WEIGHTED": weighted}
    constants |= {"ON_DEVICE": on_device, "ROUNDED": rounded, "Q_ACROSS": across, "BASED": based}
    constants |= {"F": F, "WIDTH": width, "BLOCK": rows}
    blocks = blocks_in(max(M, N), rows)
    return Plan(launcher(elements.prepare, constants, 4, 1), (B * blocks, 1, 1))


@_cached
def finish(
    element: Element,
    n: int,
    F: int,
    width: int,
    compared: int,
    are_points: bool,
    centred: bool,
    on_device: bool,
    totalled: bool,
) -> Plan:
    """For n outputs in all."""
    rows = _rows(element)
    constants = _placed(element) | {"D": compared, "POINTS": are_points, "CENTRED": centred}
    constants |= {"ON_DEVICE": on_device, "TOTALLED": totalled, "F": F, "WIDTH": width}
    constants |= {"BLOCK": rows}
    return Plan(launcher(elements.finish, constants, 4, 1), (blocks_in(n, rows), 1, 1))


@_cached
def total(sums: int, on_device: bool) -> Plan:
    constants = {"ON_DEVICE": on_device, "BLOCK": 512}
    return Plan(launcher(elements.total, constants, 4, 1), (sums, 1, 1))


@_cached
def pairs(
    element: Element,
    B: int,
    M: int,
    N: int,
    F: int,
    mode: str,
    both: bool,
    weighted: bool,
    shared: bool,
    gradient: bool,
) -> Plan:
    rows = _rows(element)
    constants = {"MODE": mode, "BOTH": both, "WEIGHTED": weighted, "SHARED": shared}
    constants |= {"GRADIENT": gradient, **_described(element), "F": F, "BLOCK": rows}
    blocks = blocks_in(max(M, N) if both else M, rows)
    return Plan(launcher(nearest.pairs, constants, 4, 1), (B * blocks, 1, 1))


@_cached
def worst(B: int, both: bool) -> Plan:
    return Plan(launcher(nearest.worst, {"BOTH": both, "BLOCK": 512}, 4, 1), (B, 1, 1))


@_cached
def gather(
    B: int, N: int, F: int, mode: str, both: bool, weighted: bool, shared: bool, totalled: bool
) -> Plan:
    constants = {"MODE": mode, "BOTH": both, "WEIGHTED": weighted, "SHARED": shared}
    constants |= {"TOTALLED": totalled, "F": F}
    if F <= points.MAX_FEATURES:
        constants |= {"BLOCK_N": 8, "BLOCK_M": 64, "STAGES": 4}
        launch = launcher(nearest.gather_points, constants, 1, 4)
        return Plan(launch, (B * blocks_in(N, 8), 1, 1))
    block_f = min(max(16, power_of_2(F)), 128)
    constants |= {"BLOCK_N": 64, "BLOCK_M": 64, "BLOCK_F": block_f}
    grid = (B * blocks_in(N, 64), blocks_in(F, block_f), 1)
    return Plan(launcher(nearest.gather, constants, 4, 2), grid)


@_cached
def matching_costs(
    element: Element,
    B: int,
    M: int,
    N: int,
    F: int,
    root: bool,
    weighted: bool,
    present: bool,
    turned: bool,
) -> Plan:
    """Of small sets."""
    constants = {"ROOT": root, "WEIGHTED": weighted, "PRESENT": present, "TURNED": turned}
    rest, warps = tile(element, M, N, F)
    return Plan(launcher(matched.costs, constants | rest, warps, 2), (B, 1, 1))


@_cached
def matching_pull(element: Element, B: int, M: int, N: int, F: int) -> Plan:
    """Of small sets."""
    constants, warps = tile(element, M, N, F)
    return Plan(launcher(matched.pull, constants, warps, 2), (B, 1, 1))


@_cached
def stable_matching(
    element: Element,
    B: int,
    M: int,
    N: int,
    F: int,
    masked: bool,
    target_masked: bool,
    weighted: bool,
    present: bool,
) -> Plan:
    """Of small sets."""
    constants = {"MASKED": masked, "TARGET_MASKED": target_masked, "WEIGHTED": weighted}
    constants |= {"PRESENT": present}
    rest, warps = tile(element, M, N, F)
    return Plan(launcher(matched.stable, constants | rest, warps, 2), (B, 1, 1))


@_cached
def matched_loss(
    element: Element,
    B: int,
    N: int,
    F: int,
    root: bool,
    masked: bool,
    target_masked: bool,
    weighted: bool,
    present: bool,
    gradient: bool,
) -> Plan:
    rows = min(_rows(element), max(2, power_of_2(N)))
    constants: dict[str, Any] = {"ROOT": root, "MASKED": masked, "TARGET_MASKED": target_masked}
    constants |= {"WEIGHTED": weighted, "PRESENT": present, "GRADIENT": gradient}
    constants |= _described(element)
    constants |= {"F": F, "BLOCK": rows}
    warps = 1 if rows * max(element.padded) <= 512 else 4
    return Plan(launcher(matched.loss, constants, warps, 2), (B * blocks_in(N, rows), 1, 1))
