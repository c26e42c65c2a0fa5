"""Compiles kernels as they are planned, for a device that need not be there; tells what came out.

A program of its own, because in a test without a GPU the kernels are made for the interpreter.
Arguments: compute capability, shared memory of the device, and a part of `PARTS`; without, all of
them. The last line is JSON.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from setwise.kernels.triton import (
    assignment,
    bethe,
    clouds,
    compared,
    fused_plans,
    plain_bethe,
    plans,
    points,
    rounds,
    small_matchings,
    subset_sums,
    tiles,
    tilting,
    transport,
)
from setwise.kernels.triton.bf16x6 import NO_FUSED_ADD, padded_features
from setwise.kernels.triton.element import describe

CPU = torch.device("cpu")
N = 4096
# What elements are multiplied as.
POINTERS = {"bf16x6": "*bf16", "float16": "*fp16", "tf32": "*fp32"}
# What arguments are; else arrays of float32 and, in small letters, integers.
TYPES = {"NOT_BF16": "*i8", "LIST": "*i32", "COUNT": "*i32", "VALID": "*u8", "INDEX": "*i64"}
TYPES |= {"factor": "fp32", "B": "i32", "M": "i32", "N": "i32"}
# And in some parts.
OF_PART: dict[str, dict[str, str]] = {
    "fused": {
        **{"TARGET_VALID": "*u8", "NEAREST": "*i64", "MATCHING": "*i64"},
        **dict.fromkeys(("t", "presence_weight"), "fp32"),
    },
    "clouds": {
        **dict.fromkeys(("START", "ORDER", "Q_ORDER", "K_ORDER", "CODE"), "*i64"),
        **{"KEPT": "*i32", "cut": "fp32"},
    },
    "assignment": {
        **{"SHORT": "*u8", "LONG": "*u8", "MATCHING": "*i64", "NUMBERS": "*fp64"},
        **{"STATE": "*i32", "S": "i32", "L": "i32"},
    },
    "matchings": {
        **dict.fromkeys(("ROWS", "COLUMNS", "SETTLED", "LEFT", "TARGET_VALID"), "*u8"),
        **dict.fromkeys(("ORDER", "START", "ARRIVED"), "*i32"),
        **dict.fromkeys(("quiet", "t", "share", "r", "certain"), "fp32"),
        "presence_weight": "fp32",
    },
}


class Planned:
    """Stands for a `launch.Launcher`."""

    def __init__(
        self,
        kernel: Any,
        constants: dict[str, Any],
        warps: int,
        stages: int,
        registers: int | None = None,
    ) -> None:
        self.kernel, self.constants = kernel, constants
        self.options = {"num_warps": warps, "num_stages": stages, "enable_fp_fusion": True}
        if registers is not None:
            self.options["maxnreg"] = registers

    def compiled(self, capability: int, elements: str, part: str) -> Any:
        """With elements, and weights, of that type."""
        types = TYPES | OF_PART.get(part, {})
        types |= dict.fromkeys(("A", "C", "C_T", "P", "Q", "K"), elements)
        names = self.kernel.arg_names
        given = [name for name in names if name not in self.constants]
        assert given == names[: len(given)]
        assert list(self.constants) == names[len(given) :]
        signature = {
            name: types.get(name, "*fp32" if name.isupper() else "i32") for name in given
        } | dict.fromkeys(self.constants, "constexpr")
        aligned = {
            (i,): [["tt.divisibility", 16]]
            for i, name in enumerate(given)
            if signature[name] != "fp32"
        }
        values = {(names.index(name),): value for name, value in self.constants.items()}
        source = ASTSource(self.kernel, signature, values, aligned)
        target = GPUTarget("cuda", capability, 32)
        return triton.compile(source, target=target, options=self.options)


def planned(plan: Any, *args: Any) -> Any:
    """Anew: what is remembered has a launcher of another kind."""
    return inspect.unwrap(plan)(*args)


def launches(
    precision: str, F: int, dtype: torch.dtype, rows_are_keys: bool, listed: bool
) -> Iterator[tuple[str, Planned]]:
    """The launches of a training step, to one side, and what each is for."""
    f_padded = padded_features(F) if F > points.MAX_FEATURES else F
    forward = planned(
        plans.logsumexp, CPU, 1, N, N, F, f_padded, dtype, precision,
        listed, True, False, precision != "tf32", dtype == torch.float16,
    )  # fmt: skip
    backward = planned(
        plans.gradients, CPU, 1, N, N, F, f_padded, dtype, precision,
        rows_are_keys, rows_are_keys, rows_are_keys, False, listed, dtype == torch.float16,
        rows_are_keys and F < 256,
    )  # fmt: skip
    yield "forward", forward.launch
    if backward.panels is None:
        for launch in getattr(backward.launch, "launchers", [backward.launch]):
            yield f"backward of {launch.constants.get('QUERIES', 'any')} queries", launch
    else:
        yield "weights", backward.panels.launch
        yield "backward", backward.launch


def comparing() -> Iterator[tuple[str, Planned]]:
    """The launches for elements that are compared, of few features and of more."""
    shape = (CPU, 1, N, N, 3, 3, torch.float32, "float32")
    off = (False,) * 5
    yield "points, forward", planned(plans.logsumexp, *shape, *off, True, 3).launch
    for to_keys in (True, False):
        options = (to_keys, False, True, True, *off[:3], True, 3)
        yield "points, backward", planned(plans.gradients, *shape, *options).launch
    yield "points, argmax", planned(plans.argmax, *shape, 3).launch
    constants = {"F": 200, "D": 40, "BLOCK_A": compared.ROWS, "BLOCK_C": compared.COLUMNS}
    for kernel in (compared._logsumexp, compared._argmax):
        yield "more features", Planned(kernel, constants, compared.WARPS, 2)
    constants = {"ROWS_ARE_KEYS": True, **constants, "BLOCK_D": compared.MAX_SUMS}
    yield "more features, backward", Planned(compared._gradients, constants, compared.WARPS, 2)


# Elements that have a block of each kind.
BLOCKS = (("bernoulli", 3, 1.0), ("categorical as bernoulli", 5, 1.0))
EACH_KIND = (("categorical", 80, 1.0), ("square", 4, 0.5), *BLOCKS)


def fused() -> Iterator[tuple[str, Planned]]:
    """Some launches of fused losses."""
    blocks, element = BLOCKS, describe(EACH_KIND)
    F, on, off = sum(element.widths), True, False
    plan = planned(fused_plans.small_loss, element, 8, 60, 60, F, "worst", *(on,) * 7)
    yield "small sets", plan.launch
    layout = (88, 4, off, off)  # width, features compared; neither points nor centred
    options = (*(on,) * 6, off)
    yield "prepared", planned(fused_plans.prepare, element, 8, 99, 99, F, *layout, *options).launch
    halves = describe((("categorical", 80, 1.0), *blocks))
    layout, options = (88, 0, off, off), (*(on,) * 5, off, off)
    plan = planned(fused_plans.prepare, halves, 8, 99, 99, 88, *layout, *options)
    yield "prepared, float16", plan.launch
    yield "nearest", planned(fused_plans.gather, 8, 99, F, "worst", *(on,) * 4).launch
    yield "nearest points", planned(fused_plans.gather, 8, 99, 3, "worst", *(on,) * 4).launch
    coordinates = describe((("square", 4, 0.5),))
    small = (coordinates, 8, 16, 9, 4)
    yield "costs", planned(fused_plans.matching_costs, *small, *(on,) * 4).launch
    yield "pulls", planned(fused_plans.matching_pull, *small).launch
    yield "stable", planned(fused_plans.stable_matching, *small, *(on,) * 4).launch
    yield "matched", planned(fused_plans.matched_loss, coordinates, 8, 9, 4, *(on,) * 6).launch
    shape = (CPU, 1, N, N, 88, 96, torch.float32, "float32")
    yield "forward, bf16x6", planned(plans.logsumexp, *shape, off, on, on, off, off, on, 4).launch


def searching() -> Iterator[tuple[str, Planned]]:
    """The launches for clouds of points, as they are started; each once."""
    started: dict[str, Planned] = {}

    def plan(kernel: Any, constants: dict[str, Any], warps: int, stages: int) -> Any:
        started[f"{kernel.__module__}.{kernel.__name__} {constants}"] = Planned(
            kernel, constants, warps, stages
        )
        return lambda *_: None

    clouds.launcher = plan
    x, bias, sharpness = torch.zeros(1, 99, 1), torch.zeros(1, 99), torch.ones(1, 1)
    clouds.argmax(x, x, bias, sharpness)
    lse, terms, orders = clouds.logsumexp(x, x, bias, sharpness)
    clouds.logsumexp_backward(lse, x, x, bias, sharpness, terms, orders, True, True)
    yield from started.items()


def assigning() -> Iterator[tuple[str, Planned]]:
    """The launches that solve assignment problems."""
    masked = {"SHORT_MASKED": True, "LONG_MASKED": False}
    constants = {**masked, "BLOCK": 64, "TILE": 2, "ROUNDS": assignment.ROUNDS}
    yield "bids", Planned(assignment._bid, constants, 2, 1)
    constants = {**masked, "BLOCK": 64, "TALL": False}
    yield "matches", Planned(assignment._match, constants, 2, 1)


def matching() -> Iterator[tuple[str, Planned]]:
    """Those for all matchings of a set, and for plans: by several programs each."""
    subset_sums.launcher = small_matchings.launcher = Planned
    element = describe(EACH_KIND)
    shape = (element, 8, 18, 60, sum(element.widths))
    yield "scores", planned(small_matchings.scores_plan, *shape, *(True,) * 4).launch
    yield "gradients", planned(small_matchings.gradients_plan, *shape, *(True,) * 5).launch
    yield "exact", planned(subset_sums._plan, 8, 9, True, True, True).launch
    for shared in (True, False):
        of_thread = bethe.MORE if shared else bethe.FEW
        grid = rounds.grid(1, 300, 300, 1, CPU, 1, of_thread)._replace(programs=10)
        constants = bethe.constants(grid, True, True, shared, not shared)
        yield f"Bethe, {shared=}", Planned(bethe.bethe_rounds, constants, grid.warps, 1)
    for N in (9, 300):
        grid = plain_bethe.grid(1, N, N, CPU)._replace(programs=1 if N == 9 else 11)
        constants = plain_bethe.constants(grid, N, True, True)
        kernel, registers = plain_bethe.plain_rounds, plain_bethe.REGISTERS
        yield f"Bethe in plain numbers, {N=}", Planned(kernel, constants, grid.warps, 1, registers)
    grid = rounds.grid(1, 300, 300, 1, CPU, 1, transport.OF_THREAD)._replace(programs=5)
    constants = transport.constants(grid, 300, True)
    yield "transport", Planned(transport.sinkhorn_rounds, constants, grid.warps, 1)
    yield "numbers", Planned(tilting.halve, {"BLOCK": tilting.MAX_BLOCK}, 4, 1)


# Elements and what they are multiplied as: features, gradients to keys, only tiles that are listed.
PRODUCTS = {
    "bf16x6": [(64, True, False), (256, False, True), (1000, True, True)],
    "float16": [(92, True, False), (92, False, True), (256, True, False), (1000, True, True)],
    "tf32": [(256, False, False), (1000, False, True), (4, True, False)],
}


def products(kind: str) -> Iterator[tuple[str, Planned, str]]:
    """The launches for elements of a kind that are multiplied, and what their arrays hold."""
    precision = "float32" if kind == "bf16x6" else "tf32"
    dtype = torch.float16 if kind == "float16" else torch.float32
    for F, rows_are_keys, listed in PRODUCTS[kind]:
        for name, launch in launches(precision, F, dtype, rows_are_keys, listed):
            yield f"{name}, {kind}, {F} features", launch, POINTERS[kind]


def others() -> Iterator[tuple[str, Planned, str]]:
    """Elements that are compared, and small sets."""
    for name, launch in comparing():
        yield f"compared, {name}", launch, "*fp32"
    for kind, precision in (("bf16x6", "float32"), ("float16", "tf32")):
        options = (True, True, True, True, precision)
        small = planned(plans.small_set_cross_entropy, 8, 64, 64, 128, *options)
        yield f"small sets, {kind}", small.launch, "*fp32"


def fused_losses() -> Iterator[tuple[str, Planned, str]]:
    for name, launch in fused():
        elements = next((POINTERS[kind] for kind in POINTERS if kind in name), POINTERS["tf32"])
        yield f"fused, {name}", launch, elements


def of_floats(
    part: str, launches: Callable[[], Iterator[tuple[str, Planned]]]
) -> Iterator[tuple[str, Planned, str]]:
    for name, launch in launches():
        yield f"{part}, {name}", launch, "*fp32"


PARTS: dict[str, Callable[[], Iterator[tuple[str, Planned, str]]]] = {
    **{kind: partial(products, kind) for kind in PRODUCTS},
    "others": others,
    "fused": fused_losses,
    "clouds": partial(of_floats, "clouds", searching),
    "assignment": partial(of_floats, "assignment", assigning),
    "matchings": partial(of_floats, "matchings", matching),
}


def main() -> None:
    capability, smem = map(int, sys.argv[1:3])
    plans.launcher = fused_plans.launcher = Planned
    plans.shared_memory = tiles.shared_memory = lambda device: smem
    results = []
    for part in sys.argv[3:] or PARTS:
        for name, launch, elements in PARTS[part]():
            results.append([name, *told(launch.compiled(capability, elements, part))])
    print(json.dumps(results))


def told(kernel: Any) -> tuple[int, list[str], int]:
    """Bytes of shared memory, products that nothing should be added to, maxima that keep NaN."""
    mark = f"maxNumImpreciseAcc = {NO_FUSED_ADD.value}"
    lines = [line for line in kernel.asm["ttgir"].splitlines() if mark in line]
    return kernel.metadata.shared, lines, kernel.asm["ptx"].count("max.NaN.f32")


if __name__ == "__main__":
    main()
