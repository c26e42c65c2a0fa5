"""One of several processes: losses of sets that are spread over them, beside those of whole sets.

Every process draws the whole sets, and takes its own part of them. Told are the largest errors of
value and gradients, relative to the largest number.
"""

from __future__ import annotations

import sys
from itertools import product
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.utils._python_dispatch import TorchDispatchMode

import setwise as sw
from ranks import run_as_rank

# The device that all processes use, and the type that they compute in; arguments of the program.
DEVICE, TYPE = "cpu", torch.float64

FEATURES = {
    "bits": sw.Features(sw.Bernoulli(5)),
    "classes": sw.Features(sw.Categorical(4)),
    "points": sw.Features(sw.Gaussian(3, scale=0.3)),
    "counts": sw.Features(sw.Poisson(2)),
    "angles": sw.Features(sw.Angle(2)),
    "mixed": sw.Features(sw.Categorical(3), sw.Gaussian(2, weight=0.5), sw.Bernoulli(1)),
    "wide": sw.Features(sw.Gaussian(20)),
}
LOSSES: dict[str, tuple[Any, dict[str, Any]]] = {
    "set": (sw.set_cross_entropy, {}),
    "set, hot": (sw.set_cross_entropy, {"temperature": 3.0}),
    "set, chunked": (sw.set_cross_entropy, {"temperature": 0.2, "impl": "chunked"}),
    "average": (sw.set_average, {}),
    "average, both": (sw.set_average, {"directed": False}),
    "hausdorff": (sw.hausdorff, {}),
    "hausdorff, both": (sw.hausdorff, {"directed": False}),
}
# How many outputs and targets each rank has; none of a rank, too.
OUTPUTS, TARGETS = (5, 2, 0, 3), (1, 4, 3, 0)
BESIDE_OUTPUTS = ("input", "input_valid", "presence")
B = 3
# What is given beside outputs and targets.
CALLS = {
    "plain": (),
    "masked": ("input_valid", "target_valid", "weight"),
    "present": ("presence",),
    "masked, present": ("input_valid", "target_valid", "weight", "presence"),
}
# Of an option that one rank alone has wrong: the loss, its name and its value. The last is an
# engine that there is, for float32 alone.
WRONG: list[tuple[Any, str, Any]] = [
    (sw.set_cross_entropy, "temperature", -1.0),
    (sw.set_cross_entropy, "skip_negligible", None),
    (sw.set_cross_entropy, "impl", "dense"),
    (sw.set_average, "directed", 1),
    (sw.hausdorff, "impl", "dense"),
    (sw.hausdorff, "impl", "triton"),
]


class LargestTensor(TorchDispatchMode):
    """How many numbers the largest tensor holds that is made within."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        found = result if isinstance(result, (tuple, list)) else [result]
        sizes = [t.numel() for t in found if isinstance(t, Tensor)]
        self.numbers = max([self.numbers, *sizes])
        return result


def drawn(features: sw.Features, N: int, M: int, seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    call = {
        "input": torch.randn(B, N, features.width, generator=generator).to(TYPE),
        "target": features.random_targets((B, M), generator).to(TYPE),
        "input_valid": torch.rand(B, N, generator=generator) < 0.7,
        "target_valid": torch.rand(B, M, generator=generator) < 0.7,
        "weight": torch.rand(B, M, generator=generator).to(TYPE),
        "presence": 2 * torch.randn(B, N, generator=generator).to(TYPE),
    }
    return {name: tensor.to(DEVICE) for name, tensor in call.items()}


def part(call: dict[str, Tensor], rank: int, ranks: int) -> dict[str, Tensor]:
    own = {}
    for name, tensor in call.items():
        sizes = (OUTPUTS if name in BESIDE_OUTPUTS else TARGETS)[:ranks]
        own[name] = tensor.split(sizes, dim=1)[rank]
    return own


def loss_and_gradients(
    loss: Any, call: dict[str, Tensor], **options: Any
) -> tuple[Tensor, list[Tensor]]:
    leaves = {name: call[name].clone().requires_grad_() for name in graded(call)}
    value = loss(**call | leaves, **options)
    coefficients = torch.arange(1.0, 1 + value.numel()).to(value)
    finite = value.isfinite()
    total = (value.masked_fill(~finite, 0.0) * coefficients.reshape(value.shape)).sum()
    return value.detach(), list(torch.autograd.grad(total, list(leaves.values())))


def graded(call: dict[str, Tensor]) -> list[str]:
    return [name for name in ("input", "target", "presence") if name in call]


def error(got: Tensor, expected: Tensor) -> float:
    if not torch.equal(got.isfinite(), expected.isfinite()):
        return float("inf")
    if not got.numel():
        return 0.0
    apart = (got - expected).masked_fill(~expected.isfinite(), 0.0).abs()
    scale = expected.masked_fill(~expected.isfinite(), 0.0).abs().amax().clamp(min=1e-3)
    return float(apart.amax() / scale)


def agreement(rank: int, ranks: int, group: Any) -> dict[str, float]:
    errors = {}
    kinds = FEATURES if ranks in (2, 4) else {kind: FEATURES[kind] for kind in ("points", "mixed")}
    for (kind, features), (name, (loss, own)), (given, beside) in product(
        kinds.items(), LOSSES.items(), CALLS.items()
    ):
        if "presence" in beside and kind != "mixed":  # it is the same beside any elements
            continue
        whole = drawn(features, sum(OUTPUTS[:ranks]), sum(TARGETS[:ranks]), seed=features.width)
        call = {name: whole[name] for name in ("input", "target", *beside)}
        options = own | {"features": features, "reduction": "none"}
        if "presence" in beside:
            options["presence_weight"] = 0.7
        value, gradients = loss_and_gradients(loss, call, **options)
        mine = part(call, rank, ranks)
        ours, own_gradients = loss_and_gradients(loss, mine, **options, group=group)
        worst = error(ours, value)
        for which, got, every in zip(graded(call), own_gradients, gradients, strict=True):
            scale = every.abs().amax().clamp(min=1e-3)
            expected = part({which: every}, rank, ranks)[which]
            worst = max(worst, float((got - expected).abs().sum() / scale))
        errors[f"{kind}, {name}, {given}"] = worst
    return errors


def learned_temperature(rank: int, ranks: int, group: Any) -> float:
    call = drawn(FEATURES["points"], sum(OUTPUTS[:ranks]), sum(TARGETS[:ranks]), seed=1)
    found = []
    for these, options in ((call, {}), (part(call, rank, ranks), {"group": group})):
        temperature = torch.tensor(0.7, dtype=TYPE, device=DEVICE, requires_grad=True)
        options |= {"features": FEATURES["points"], "temperature": temperature}
        sw.set_cross_entropy(**these, **options).backward()
        found.append(temperature.grad)
    return error(found[1], found[0])


def of_dtensors(rank: int, ranks: int) -> float:
    """The elements of a tensor that PyTorch has spread itself, over all ranks."""
    mesh = init_device_mesh(DEVICE, (ranks,))
    features = FEATURES["mixed"]
    call = drawn(features, 7, 6, seed=2)
    call["target_valid"] &= torch.arange(6) < 2  # no more than outputs: all losses are finite
    value, gradients = loss_and_gradients(sw.set_cross_entropy, call, features=features)
    leaves = {name: distribute_tensor(t, mesh, [Shard(1)]) for name, t in call.items()}
    for name in graded(leaves):
        leaves[name].requires_grad_()
    loss = sw.set_cross_entropy(**leaves, features=features)
    loss.backward()
    found = [leaves[name].grad.full_tensor() for name in graded(leaves)]
    pairs = zip([loss.detach(), *found], [value, *gradients], strict=True)
    return max(error(got, expected) for got, expected in pairs)


def refused_dtensors(rank: int, ranks: int) -> list[str]:
    """Where only some of a call is spread, or a group is named too, or no loss could take it.

    Of the last two, the second rank alone has an option wrong, and a tensor spread otherwise.
    """
    ones, mesh = torch.ones(2, 8, 4), init_device_mesh(DEVICE, (ranks,))
    spread = distribute_tensor(ones, mesh, [Shard(1)])
    otherwise = DTensor.from_local(ones, mesh, [Shard(0 if rank == 1 else 1)])
    calls: list[tuple[Any, dict[str, Any]]] = [
        (sw.set_cross_entropy, {"input": ones, "target": spread}),
        (sw.set_cross_entropy, {"input": spread, "target": ones}),
        (sw.set_average, {"input": spread, "target": spread, "group": dist.group.WORLD}),
        (sw.hausdorff, {"input": ones, "target": spread, "group": dist.group.WORLD}),
        (sw.assignment_cross_entropy, {"input": spread, "target": spread}),
        (sw.hausdorff, {"input": spread, "target": spread, "impl": "" if rank == 1 else "auto"}),
        (sw.set_average, {"input": spread, "target": otherwise}),
    ]
    told = []
    for loss, call in calls:
        try:
            loss(**call)
            told.append("")
        except (TypeError, ValueError) as mistake:
            told.append(str(mistake))
    return told


def one_rank_wants_gradients(rank: int, ranks: int, group: Any) -> float:
    """Outputs of the first rank, targets of the last, or presence of the first alone.

    All others only pass gradients on.
    """
    drawn_call = drawn(FEATURES["mixed"], sum(OUTPUTS[:ranks]), sum(TARGETS[:ranks]), seed=3)
    worst = 0.0
    for (loss, own), present in product(LOSSES.values(), (False, True)):
        names = ("input", "target", "presence") if present else ("input", "target")
        call = {name: drawn_call[name] for name in names}
        options = own | {"features": FEATURES["mixed"], "reduction": "none"}
        _, gradients = loss_and_gradients(loss, call, **options)
        mine = part(call, rank, ranks)
        wanting = {"input": rank == 0 and not present, "target": rank == ranks - 1 and not present}
        if present:
            wanting["presence"] = rank == 0
        for name, wanted in wanting.items():
            mine[name] = mine[name].clone().requires_grad_(wanted)
        value = loss(**mine, **options, group=group)
        value = value.masked_fill(value.isinf(), 0.0)
        (value * torch.arange(1.0, 1 + B).to(value)).sum().backward()
        for (name, wanted), whole in zip(wanting.items(), gradients, strict=True):
            got, expected = mine[name].grad, part({name: whole}, rank, ranks)[name]
            assert (got is not None) == wanted
            if got is not None:
                worst = max(worst, error(got, expected))
    return worst


def ties_weigh_one(rank: int, ranks: int, group: Any) -> float:
    """Where scores are so large that the logarithm of the number of equals is lost in them."""
    target = torch.ones(1, 1 if rank == 0 else 0, 32, device=DEVICE)
    output = torch.zeros(1, rank + 1, 32, device=DEVICE, requires_grad=True)
    features = sw.Features(sw.Gaussian(32))
    sw.SetCrossEntropyLoss(features, temperature=1e-6, group=group)(output, target).backward()
    assert output.grad is not None
    sums = output.grad.sum(dim=1)
    dist.all_reduce(sums, group=group)
    return float((sums + 1.0).abs().amax())


def numbers_at_once(rank: int, ranks: int, group: Any) -> int:
    """The largest tensor of a step; 4096 outputs and targets in all, of which scores are tiles."""
    size = 4096 // ranks
    generator = torch.Generator().manual_seed(rank)
    z, x = (torch.randn(1, size, 100, generator=generator) for _ in range(2))
    features = sw.Features(sw.Bernoulli(100))
    with LargestTensor() as largest:
        z.requires_grad_()
        loss = sw.set_cross_entropy(z, x.sigmoid(), features, group=group, impl="chunked")
        loss.backward()
    return largest.numbers


def refused_options(rank: int, group: Any) -> list[str]:
    """Options that no loss has, given by the second rank alone: what each is told."""
    ones = torch.ones(2, 3, 4, dtype=torch.float64)
    told = []
    for loss, name, value in WRONG:
        try:
            loss(ones, ones, group=group, **({name: value} if rank == 1 else {}))
            told.append("")
        except (TypeError, ValueError) as mistake:
            told.append(str(mistake))
    return told


def refusals(rank: int, ranks: int, group: Any) -> list[str]:
    """A mistake of one rank, and ranks that do not fit together: what each is told."""
    ones = torch.ones(2, 3, 4)
    fine = {"input": ones, "target": ones}
    present = fine | {"presence": ones[..., 0]}
    calls: list[tuple[Any, dict[str, Any]]] = [
        (sw.set_cross_entropy, {"input": ones, "target": 7 * ones if rank == 1 else ones}),
        (sw.set_cross_entropy, dict.fromkeys(fine, ones[: 1 + rank % 2])),
        (sw.set_cross_entropy, fine | {"input": ones.double() if rank == 0 else ones}),
        (sw.set_cross_entropy, present if rank == 0 else fine),
        (sw.set_cross_entropy, fine),
        (sw.set_cross_entropy, present | {"presence_weight": 1.0 if rank == 1 else 0.5}),
        (sw.set_cross_entropy, fine | {"temperature": 2 if rank == 1 else 2.5}),
        (sw.set_average, fine | {"directed": rank == 1}),
        (sw.hausdorff, fine | {"reduction": "sum" if rank == 1 else "mean"}),
        (
            sw.set_average,
            fine | {"features": sw.Features(sw.Categorical(4) if rank == 1 else sw.Bernoulli(4))},
        ),
        (sw.hausdorff if rank == 1 else sw.set_average, fine),
    ]
    told = []
    for number, (loss, call) in enumerate(calls):
        try:
            with torch.set_grad_enabled(number != 4 or rank == 0):
                loss(**call, group=group)
            told.append("")
        except ValueError as mistake:
            told.append(str(mistake))
    return told


def work(rank: int, ranks: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for size in range(1, ranks + 1):
        group = dist.new_group(list(range(size)))
        if rank < size:
            found[str(size)] = {
                "errors": agreement(rank, size, group),
                "temperature": learned_temperature(rank, size, group),
                "one": one_rank_wants_gradients(rank, size, group),
                "ties": ties_weigh_one(rank, size, group),
                "numbers": numbers_at_once(rank, size, group),
                "refusals": refusals(rank, size, group) if size > 1 else [],
                "options": refused_options(rank, group) if size > 1 else [],
            }
    if DEVICE == "cpu":  # Gloo does not spread tensors that are on a GPU
        found["dtensors"] = of_dtensors(rank, ranks)
        found["refused dtensors"] = refused_dtensors(rank, ranks)
    return found


if __name__ == "__main__":
    DEVICE, TYPE = sys.argv[1], getattr(torch, sys.argv[2])
    run_as_rank(work)
