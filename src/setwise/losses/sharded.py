"""The losses of sets whose elements are spread over the processes of a group.

Legend: B sets; of each, this process has N outputs and M targets, the others more of them.

Every process calls a loss with its own elements of the same B sets, and gets the loss of the whole
sets. Its gradients are those of its own elements, whatever the number of processes: nothing is to
be scaled or averaged. Outputs go around the ring of processes and are compared with the targets
where these are, so that none has more in memory than its own elements and those of two others.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from setwise.arguments import Sets, check_call, reduce_sets
from setwise.features import Features
from setwise.kernels import dispatch, replicated, ring
from setwise.kernels.autocast import no_autocast
from setwise.kernels.counting import Elsewhere
from setwise.kernels.dispatch import Impl
from setwise.kernels.gather import gather_elements
from setwise.kernels.ring import Ring
from setwise.losses.costs import cooled, target_weights, weighted, zero_unless
from setwise.losses.presence import Presence, read_presence

# In the order in which processes tell each other what they have.
_TYPES = (torch.float32, torch.float64)
# How many numbers a process tells the others, and where what has to be alike begins in them; all
# are 0 if its call was refused.
_TOLD, _ALIKE = 16, 11


class Shards:
    """The checked call of one process, and what the others have."""

    def __init__(
        self,
        sets: Sets,
        presence: Presence | None,
        alike: Mapping[str, object],
        group: ProcessGroup,
    ) -> None:
        B, N, F = sets.logits.shape
        M = sets.target.shape[1]
        kind, graded = _TYPES.index(sets.compute_dtype()), torch.is_grad_enabled()
        wanting = [
            tensor is not None and tensor.requires_grad
            for tensor in (sets.logits, sets.target, None if presence is None else presence.logits)
        ]
        told = [1, N, M, B, F, kind, graded, presence is not None, *wanting]
        every = _met(group, told, alike, sets.logits.device)
        self.sets, self.presence, self.group = sets.widened(), presence, group
        if graded:
            wanted = [any(told[place] for told in every) for place in (8, 9, 10)]
            logits = _taking_part(self.sets.logits, wanted[0])
            target = _taking_part(self.sets.target, wanted[1])
            self.sets = self.sets._replace(logits=logits, target=target)
            if presence is not None:
                exists = _taking_part(presence.logits, wanted[2])
                self.presence = presence._replace(logits=exists)
        self.outputs = Ring(group, [told[1] for told in every])
        self.targets = Ring(group, [told[2] for told in every])

    def counts(self) -> tuple[Tensor, Tensor]:
        """How many targets and how many outputs the sets have in all: [B] each."""
        targets, outputs = self.sets.masks()
        counts = torch.stack([targets.sum(-1), outputs.sum(-1)])
        targets, outputs = replicated.total(counts, self.group)
        return targets, outputs

    def finish(self, per_set: Tensor, reduction: str, *, both_ways: bool = False) -> Tensor:
        """Losses [B], infinite where elements have nothing to be compared with, and reduced."""
        targets, outputs = self.counts()
        if self.presence is not None:
            elsewhere = Elsewhere(
                sum(self.outputs.sizes),
                lambda tensor: replicated.total(tensor, self.group),
                lambda tensor: replicated.highest(tensor, self.group),
            )
            here = self.sets.masks()[1]
            per_set = per_set + self.presence.of_size(targets, here, elsewhere)
            impossible = targets > outputs
        else:
            impossible = (targets > 0) & (outputs == 0)
            if both_ways:
                impossible = impossible | (outputs > 0) & (targets == 0)
        per_set = per_set.masked_fill(impossible, math.inf)
        return reduce_sets(per_set, self.sets.lead, reduction)


@contextmanager
def refusals_told(group: object, input: object) -> Iterator[None]:
    """Check within what a call was given: if it is refused, the others learn so and do not wait.

    ``group`` may be anything, and is left to `read_shards` to refuse; of none, it is the input's.
    """
    try:
        yield
    except Exception:
        if group is None:
            group = _group_of(input)
        if isinstance(group, ProcessGroup):
            ring.meet(group, [0] * _TOLD, getattr(input, "device", torch.device("cpu")))
        raise


def read_shards(
    group: object,
    impl: Impl,
    presence: Tensor | None,
    presence_weight: float,
    input: Tensor,
    target: Tensor,
    features: Features | None,
    input_valid: Tensor | None,
    target_valid: Tensor | None,
    weight: Tensor | None,
    reduction: str,
    **options: object,
) -> Shards:
    """Check a call; where one process finds a mistake, the others learn of it and do not wait.

    ``options`` are the name of the loss and the option of its own, which the others need alike.
    """
    tensors: dict[str, Any] = {"input": input, "target": target, "weight": weight}
    tensors |= {"input_valid": input_valid, "target_valid": target_valid, "presence": presence}
    spread = group is None
    if spread:
        group = _group_of(input)
    if not isinstance(group, ProcessGroup):
        raise TypeError(
            f"group: expected a torch.distributed.ProcessGroup, got {type(group).__name__}; "
            f"torch.distributed.group.WORLD is that of all processes"
        )
    with refusals_told(group, input):
        if spread:
            tensors = {name: _local(name, t, input) for name, t in tensors.items()}
        presence = tensors.pop("presence")
        sets = check_call(**tensors, features=features, reduction=reduction)
        exists = read_presence(presence, presence_weight, tensors["input"], sets)
        if dist.get_backend(group) == "nccl" and not sets.logits.is_cuda:
            raise ValueError(
                f"input: on {sets.logits.device}, but the group is one of NCCL, which carries what "
                f"is on GPUs; use input.cuda(), or a group of Gloo"
            )
        dispatch.choose(impl, sets.target, sets.logits)  # refuses an engine that cannot serve
    alike = options | {
        "features": sets.features,
        "reduction": reduction,
        "presence_weight": None if exists is None else exists.weight,
    }
    return Shards(sets, exists, alike, group)


def _group_of(input: Any) -> ProcessGroup:
    """The processes over which a DTensor is spread."""
    mesh = input.device_mesh
    if mesh.ndim != 1:
        raise ValueError(
            f"input: a DTensor must be spread over a mesh of one dimension, got {mesh}; "
            f"use that of the dimension its elements are spread over, mesh['name']"
        )
    group: ProcessGroup = mesh.get_group()
    return group


def _local(name: str, tensor: Any, input: Any) -> Any:
    """This process's part of a DTensor, whose elements are what is spread."""
    if tensor is None:
        return None
    elements = input.ndim - 2
    placements = getattr(tensor, "placements", None)
    if placements is None or tensor.device_mesh != input.device_mesh:
        raise TypeError(f"{name}: input is a DTensor, so that {name} must be one of the same mesh")
    if not placements[0].is_shard(elements):
        raise ValueError(
            f"{name}: expected a DTensor with its elements spread, Shard({elements}), "
            f"got {placements[0]}"
        )
    return tensor.to_local()


def set_cross_entropy(
    shards: Shards, temperature: float | Tensor, impl: Impl, reduction: str, skip_negligible: bool
) -> Tensor:
    sets = shards.sets
    if isinstance(temperature, Tensor):
        temperature = replicated.shared(temperature, shards.group)
    impl = _engine(sets, impl)
    with no_autocast(sets.logits):
        queries, keys, log_partition, base, sharpness = sets.features.factors(
            sets.logits, sets.target
        )
        keys, sharpness = cooled(keys, sharpness, temperature)
        bias = -log_partition
        if shards.presence is not None:
            bias = bias - shards.presence.choice()
        bias = _barred(bias / temperature, sets.output_valid)
        lse = ring.logsumexp(shards.outputs, queries, keys, bias, impl, skip_negligible, sharpness)
    # Before anything is multiplied: what is infinite has a gradient that is no number.
    scores = lse.masked_fill(lse == -math.inf, 0.0) * temperature
    if base is not None:
        scores = scores + base
    scores = zero_unless(sets.target_valid, scores)
    per_set = replicated.total(-weighted(sets, scores).sum(dim=-1), shards.group)
    return shards.finish(per_set, reduction)


def set_average(shards: Shards, directed: bool, impl: Impl, reduction: str) -> Tensor:
    sets, group = shards.sets, shards.group
    weights = target_weights(sets)
    costs = (weights * _nearest_output_costs(shards, impl)).sum(dim=-1)
    mass = replicated.total(weights.sum(dim=-1), group)
    per_set = replicated.total(costs, group) / mass.masked_fill(mass == 0, 1.0)
    if not directed:
        counted = sets.masks()[1].to(costs)
        if shards.presence is not None:
            counted = counted * shards.presence.probabilities()
        back = (counted * _nearest_target_costs(shards, impl)).sum(dim=-1)
        back, count = replicated.total(torch.stack([back, counted.sum(dim=-1)]), group)
        per_set = per_set + back / count.masked_fill(count == 0, 1.0)
    return shards.finish(per_set, reduction, both_ways=not directed)


def hausdorff(shards: Shards, directed: bool, impl: Impl, reduction: str) -> Tensor:
    costs = weighted(shards.sets, _nearest_output_costs(shards, impl))
    per_set = replicated.largest(costs, shards.group)
    if not directed:
        back = _nearest_target_costs(shards, impl)
        if shards.presence is not None:
            back = back * shards.presence.probabilities()
        per_set = per_set.maximum(replicated.largest(back, shards.group))
    return shards.finish(per_set, reduction, both_ways=not directed)


def _nearest_output_costs(shards: Shards, impl: Impl) -> Tensor:
    """``min_j H_ij`` of this process's targets over the outputs of all: [B, M].

    With presence, what it costs to choose an output goes around with it.
    """
    sets, presence = shards.sets, shards.presence
    impl = _engine(sets, impl)
    F = sets.features.width
    outputs = sets.logits
    if presence is not None:
        outputs = torch.cat([outputs, presence.choice().unsqueeze(-1)], dim=-1)

    def search(outputs: Tensor, valid: Tensor) -> Tensor:
        factors = sets.features.factors(outputs[..., :F].contiguous(), sets.target)
        choice = outputs[..., F:].sum(dim=-1)
        bias = _barred(-factors.log_partition - choice, valid)
        return dispatch.argmax(factors.queries, factors.keys, bias, impl, factors.sharpness)

    def cost(outputs: Tensor) -> Tensor:
        return sets.features.cost(outputs[..., :F], sets.target) + outputs[..., F:].sum(dim=-1)

    costs = _costs_of_nearest(shards.outputs, outputs, sets.output_valid, search, cost)
    return zero_unless(sets.target_valid, costs)


def _nearest_target_costs(shards: Shards, impl: Impl) -> Tensor:
    """``min_i H_ij`` of this process's outputs over the targets of all: [B, N]."""
    sets = shards.sets
    impl = _engine(sets, impl)

    def search(targets: Tensor, valid: Tensor) -> Tensor:
        factors = sets.features.factors(sets.logits, targets)
        base = factors.queries.new_zeros(()) if factors.base is None else factors.base
        bias = _barred(base.expand(targets.shape[:2]), valid)
        return dispatch.argmax(factors.keys, factors.queries, bias, impl, factors.sharpness)

    def cost(targets: Tensor) -> Tensor:
        return sets.features.cost(sets.logits, targets)

    costs = _costs_of_nearest(shards.targets, sets.target, sets.target_valid, search, cost)
    return zero_unless(sets.output_valid, costs)


def _costs_of_nearest(
    around: Ring,
    elements: Tensor,
    valid: Tensor | None,
    search: Callable[[Tensor, Tensor], Tensor],
    cost: Callable[[Tensor], Tensor],
) -> Tensor:
    """The costs of the nearest of all elements that go around, 0 where there are none.

    ``search(shard, valid)`` finds the nearest of a shard, ``cost(found)`` tells what they cost. Of
    equals the first counts, in the order of the ranks.
    """
    real = torch.ones_like(elements[..., 0]) if valid is None else valid.to(elements)
    nearest: list[Tensor] = []
    with torch.no_grad(), no_autocast(elements):
        for rank, shard in around.around(torch.cat([elements, real.unsqueeze(-1)], dim=-1)):
            theirs, there = shard[..., :-1].contiguous(), shard[..., -1] > 0
            index = search(theirs, there)
            found = gather_elements(theirs, index)
            costs = cost(found).masked_fill(~there.any(dim=-1, keepdim=True), math.inf)
            owner = torch.full_like(index, rank)
            if nearest:
                better = (costs < nearest[0]) | (costs == nearest[0]) & (owner < nearest[1])
                new = costs, owner, index
                kept = zip(new, nearest, strict=False)
                wide = better.unsqueeze(-1)
                nearest = [
                    *(torch.where(better, ours, before) for ours, before in kept),
                    torch.where(wide, found, nearest[3]),
                ]
            else:
                nearest = [costs, owner, index, found]
    least, owner, index, found = nearest
    with no_autocast(elements):
        costs = cost(ring.select(around, elements, owner, index, found))
    return costs.masked_fill(least == math.inf, 0.0)


def _engine(sets: Sets, impl: Impl) -> Impl:
    """Shards have no centre in common, so that locations are compared, by an engine that can."""
    if dispatch.compares(impl, sets.target, sets.logits, sets.features.comparable):
        return impl
    return "chunked"


def _barred(bias: Tensor, valid: Tensor | None) -> Tensor:
    """The bias, -inf where an element is not valid: if none is here, others may have some."""
    return bias if valid is None else bias.masked_fill(~valid, -math.inf)


def _taking_part(tensor: Tensor, needed: bool) -> Tensor:
    """Gradients of one process come by way of all, so that those without any pass them on."""
    if tensor.requires_grad or not needed:
        return tensor
    return tensor.detach().requires_grad_()


def _met(
    group: ProcessGroup, told: list[int], alike: Mapping[str, object], device: torch.device
) -> list[list[int]]:
    """What all processes tell; a ValueError on each of them if they cannot go on together."""
    every = ring.meet(group, [*told, *map(_digest, alike.values())], device)
    failed = [rank for rank, (fine, *_) in enumerate(every) if not fine]
    if failed:
        raise ValueError(f"group: the call of rank {failed[0]} was refused there")
    for place, what in ((3, "sets"), (4, "features"), (5, "type"), (6, "mode of gradients")):
        if len({numbers[place] for numbers in every}) > 1:
            given = [_TYPES[n[place]] if what == "type" else n[place] for n in every]
            raise ValueError(f"group: all ranks need the same {what}, but they have {given}")
    if len({numbers[7] for numbers in every}) > 1:
        ranks = [rank for rank, numbers in enumerate(every) if not numbers[7]]
        raise ValueError(f"presence: all ranks need to give it, or none, but {ranks} did not")
    for place, (name, value) in enumerate(alike.items(), start=_ALIKE):
        others = [rank for rank, numbers in enumerate(every) if numbers[place] != every[0][place]]
        if others:
            raise ValueError(
                f"{name}: all ranks need the same, but ranks {others} have another than rank "
                f"0; here it is {value!r}"
            )
    return every


def _digest(value: object) -> int:
    """A number that is another for another value. Tensors are learned, and may differ a little."""
    if isinstance(value, Tensor):
        value = Tensor
    return int.from_bytes(hashlib.sha256(repr(value).encode()).digest()[:7])
