"""Sets whose elements lie on several processes: the shard of each goes once around all of them.

Legend: B sets, R processes (ranks), W numbers of an element that is on its way. A process holds
``[B, size, W]`` of them, its shard; sizes may differ.

A process works on what it holds while the next shard arrives, so that it never has more than two
beside its own; the order of sums depends on its rank alone, so the same call gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.distributed import ProcessGroup

from setwise.kernels import dispatch
from setwise.kernels.dispatch import Impl
from setwise.kernels.gather import scatter_add


class Ring:
    """Processes in a circle, each of which passes elements on to the next.

    ``sizes`` tells how many elements of each set every rank has.
    """

    def __init__(self, group: ProcessGroup, sizes: list[int]) -> None:
        self.group, self.sizes = group, sizes
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)

    def owners(self) -> list[int]:
        """All ranks in the order in which their shards come by, this process's own first."""
        return [(self.rank - step) % self.ranks for step in range(self.ranks)]

    def around(self, shard: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Every rank and its shard, this process's own first."""
        for owner in self.owners():
            last = self._before(owner) == self.rank
            arriving = None if last else self._pass_on(shard, self._before(owner))
            yield owner, shard
            if arriving is not None:
                shard = arriving()

    def collect(self, contributions: Iterable[tuple[int, Tensor]]) -> Tensor:
        """What all ranks have to add to this one's shard.

        Each gives its contributions [B, size, W] to every shard, in the order of `owners`; their
        sums go around as the shards do.
        """
        arriving: Callable[[], Tensor] | None = None
        for owner, total in contributions:
            if arriving is not None:
                total = total + arriving()
            arriving = self._pass_on(total, self._before(owner))
        assert arriving is not None
        return arriving()

    def _before(self, rank: int) -> int:
        return (rank - 1) % self.ranks

    def _pass_on(self, shard: Tensor, next_owner: int) -> Callable[[], Tensor]:
        """Send a shard to the next process; the result waits for that of the process before."""
        if self.ranks == 1:
            return lambda: shard
        # Gloo carries only what is in the memory of the host.
        by_host = shard.is_cuda and dist.get_backend(self.group) == "gloo"
        leaving = shard.cpu() if by_host else shard.contiguous()
        B, _, W = shard.shape
        arriving = leaving.new_empty(B, self.sizes[next_owner], W)
        peer = [
            dist.get_global_rank(self.group, rank % self.ranks)
            for rank in (self.rank + 1, self.rank - 1)
        ]
        sent = dist.P2POp(dist.isend, leaving, peer[0], self.group)
        received = dist.P2POp(dist.irecv, arriving, peer[1], self.group)
        # Two processes that both sent first could wait for each other.
        works = dist.batch_isend_irecv([sent, received])

        def arrived() -> Tensor:
            for work in works:
                work.wait()
            return arriving.to(shard.device)

        return arrived


def meet(group: ProcessGroup, told: list[int], device: torch.device) -> list[list[int]]:
    """What every rank has to tell, as many whole numbers each."""
    backend, on = dist.get_backend(group), device
    if backend == "gloo":
        on = torch.device("cpu")
    elif backend == "nccl" and device.type != "cuda":  # of a call that is wrong
        on = torch.device("cuda", torch.cuda.current_device())
    mine = torch.tensor(told, device=on)
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(every, mine, group=group)
    return [numbers.tolist() for numbers in every]


def logsumexp(
    ring: Ring,
    queries: Tensor,
    keys: Tensor,
    bias: Tensor,
    impl: Impl,
    skip_negligible: bool,
    sharpness: Tensor | None,
) -> Tensor:
    """`dispatch.logsumexp` of this process's queries [B, M, F] over the keys of all: [B, M].

    A bias of -inf bars a key; a query with no key at all gets -inf. The gradient to the keys is
    that of the queries of all processes.
    """
    result: Tensor = RingLogSumExp.apply(
        ring, impl, skip_negligible, queries, keys, bias, sharpness
    )
    return result


class RingLogSumExp(torch.autograd.Function):
    """Keys go around twice: with each shard comes a sum, and later goes a gradient.

    Of the forward pass only the largest logsumexp of a shard is kept, and the sum relative to it:
    where scores are large, their logarithm would round to the same number with one key or many.
    """

    @staticmethod
    def forward(
        ctx: Any,
        ring: Ring,
        impl: Impl,
        skip_negligible: bool,
        queries: Tensor,
        keys: Tensor,
        bias: Tensor,
        sharpness: Tensor | None,
    ) -> Tensor:
        ctx.options = ring, impl, skip_negligible
        top = queries.new_full(queries.shape[:2], -torch.inf)
        total = torch.zeros_like(top)
        for _, shard in ring.around(_packed(keys, bias)):
            lse, _ = _of_shard(queries, shard, impl, skip_negligible, sharpness)
            higher = torch.maximum(top, lse)
            anchor = _finite(higher)
            total = total * torch.exp(top - anchor) + torch.exp(lse - anchor)
            top = higher
        ctx.save_for_backward(queries, keys, bias, sharpness, top, total)
        return top + total.log()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        queries, keys, bias, sharpness, top, total = ctx.saved_tensors
        ring, impl, skip_negligible = ctx.options
        d_queries = torch.zeros_like(queries)
        d_sharpness = None if sharpness is None else torch.zeros_like(sharpness)
        share = grad / total.masked_fill(total == 0, 1.0)

        def contribution(shard: Tensor) -> Tensor:
            leaves = [queries.detach().requires_grad_(), shard.detach().requires_grad_()]
            if sharpness is not None:
                leaves.append(sharpness.detach().requires_grad_())
            with torch.enable_grad():
                lse, reachable = _of_shard(
                    leaves[0], leaves[1], impl, skip_negligible, *(leaves[2:] or [None])
                )
            incoming = share * torch.exp(lse.detach() - _finite(top))
            incoming = incoming.masked_fill(~reachable, 0.0)
            found = torch.autograd.grad(lse, leaves, incoming)
            d_queries.add_(found[0])
            if d_sharpness is not None:
                d_sharpness.add_(found[2])
            return found[1]

        shards = ring.around(_packed(keys, bias))
        d_shard = ring.collect((owner, contribution(shard)) for owner, shard in shards)
        return None, None, None, d_queries, d_shard[..., :-1], d_shard[..., -1], d_sharpness


def _packed(keys: Tensor, bias: Tensor) -> Tensor:
    return torch.cat([keys, bias.unsqueeze(-1)], dim=-1)


def _finite(lse: Tensor) -> Tensor:
    return lse.masked_fill(lse == -torch.inf, 0.0)


def _of_shard(
    queries: Tensor, shard: Tensor, impl: Impl, skip_negligible: bool, sharpness: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Logsumexp [B, M] over the keys of one shard, and where there are any: [B, 1]."""
    keys, bias = shard[..., :-1], shard[..., -1]
    reachable = (bias > -torch.inf).any(dim=-1, keepdim=True)
    # Engines want at least one key; those of a set without are taken, and their result dropped.
    bias = torch.where(reachable, bias, 0.0)
    lse = dispatch.logsumexp(queries, keys.contiguous(), bias, impl, skip_negligible, sharpness)
    return lse.masked_fill(~reachable, -torch.inf), reachable


def select(ring: Ring, elements: Tensor, owner: Tensor, index: Tensor, found: Tensor) -> Tensor:
    """``found`` [B, M, F], seen on their way around, as elements of their owners.

    Element i is ``index[b, i]`` of rank ``owner[b, i]``, which gets its gradient.
    """
    result: Tensor = Select.apply(ring, elements, owner, index, found)
    return result


class Select(torch.autograd.Function):
    """Elements of other processes: their gradients go home."""

    @staticmethod
    def forward(
        ctx: Any, ring: Ring, elements: Tensor, owner: Tensor, index: Tensor, found: Tensor
    ) -> Tensor:
        ctx.ring = ring
        ctx.save_for_backward(owner, index)
        return found.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        owner, index = ctx.saved_tensors

        def contribution(rank: int) -> Tensor:
            theirs = owner == rank
            places = index.masked_fill(~theirs, 0)
            return scatter_add(grad * theirs.unsqueeze(-1), places, ctx.ring.sizes[rank])

        home = ctx.ring.collect((rank, contribution(rank)) for rank in ctx.ring.owners())
        return None, home, None, None, None
