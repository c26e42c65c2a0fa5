"""Entropic optimal transport between two sets, by Sinkhorn's rounds in logarithms.

Legend: B sets, M rows, N columns; ``t`` the temperature, ``r`` what missing mass costs.

Rows hold the masses ``a`` [B, M] and columns ``b`` [B, N], each summing to 1. The value of a plan P
is ``sum P C + t KL(P | a b)``, where P has these margins; or, if mass may be missing, each of its
margins costs ``r KL`` of it to what it should be. The potentials ``f`` and ``g`` of both sides
solve::

    f_i = -k t logsumexp_j(log b_j + (g_j - C_ij) / t)        k = 1, or r / (r + t)

and the same with the sides exchanged (Chizat et al., 2018). The value is stationary in them, so its
gradient by the costs is the plan, and no round is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from setwise.kernels.autocast import no_autocast
from setwise.kernels.dispatch import fused
from setwise.kernels.fixed_point import Judge, pull_back, settle
from setwise.kernels.host_sinkhorn import transport_on_host
from setwise.kernels.operators import fold_mapped_dimension
from setwise.kernels.permanent import NEVER
from setwise.kernels.transforms import apply, is_eager


class Masses(NamedTuple):
    """A problem, but for its costs [B, M, N]; potentials ``g`` are those of the columns [B, N]."""

    a: Tensor
    b: Tensor
    t: float
    r: float | None  # None where no mass may be missing

    def rows(self, costs: Tensor, g: Tensor) -> Tensor:
        """The potentials of the rows [B, M] that answer those of the columns."""
        return self._answer((_log(self.b) + g / self.t).unsqueeze(1) - costs / self.t, 2)

    def round(self, costs: Tensor, g: Tensor) -> Tensor:
        f = self.rows(costs, g)
        return self._answer((_log(self.a) + f / self.t).unsqueeze(2) - costs / self.t, 1)

    def _answer(self, asked: Tensor, dim: int) -> Tensor:
        share = 1.0 if self.r is None else self.r / (self.r + self.t)
        return -share * self.t * asked.logsumexp(dim)

    def plan(self, costs: Tensor, g: Tensor) -> Tensor:
        f = self.rows(costs, g)
        mass = _log(self.a).unsqueeze(2) + _log(self.b).unsqueeze(1)
        return (mass + (f.unsqueeze(2) + g.unsqueeze(1) - costs) / self.t).exp()

    def value(self, costs: Tensor, g: Tensor) -> Tensor:
        """The dual value [B], which is that of the plan where the potentials have settled."""
        f, moved = self.rows(costs, g), self.plan(costs, g).sum((1, 2))
        return self._earned(self.a, f) + self._earned(self.b, g) - self.t * (moved - 1)

    def _earned(self, mass: Tensor, potential: Tensor) -> Tensor:
        each = potential if self.r is None else -self.r * torch.expm1(-potential / self.r)
        # Where there is no mass, nothing holds the potential, which may be worth infinity.
        return torch.where(mass > 0, mass * each, 0.0).sum(1)

    def only(self, sets: Tensor) -> Masses:
        return Masses(self.a[sets], self.b[sets], self.t, self.r)


def _log(mass: Tensor) -> Tensor:
    return mass.log().clamp(min=NEVER)


def _transport(
    costs: Tensor, a: Tensor, b: Tensor, t: float, r: float | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Costs [B, M, N] -> value [B], plan [B, M, N], what settled [B], column potentials [B, N]."""
    with no_autocast(costs):
        kernels = fused("transport", costs)
        if kernels is not None:
            return kernels.transport(costs, a, b, t, r)
        on_host = costs.device.type == "cpu" and costs.numel() > 0
        if on_host and r is None and bool(costs.isfinite().all()):
            return transport_on_host(costs, a, b, t)
        return transport_by_logarithms(costs, a, b, t, r)


def transport_by_logarithms(
    costs: Tensor, a: Tensor, b: Tensor, t: float, r: float | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same on any device, whatever the costs."""
    masses = Masses(a, b, t, r)

    def rounds_of(sets: Tensor) -> tuple[Callable[[Tensor], Tensor], Judge]:
        own, own_costs = masses.only(sets), costs[sets]

        def judge(g: Tensor) -> tuple[Tensor, Tensor]:
            # The margins of the rows are exact after every round; those of the columns come to be.
            after = own.round(own_costs, g)
            change = own.plan(own_costs, after).sum(1) - own.plan(own_costs, g).sum(1)
            return own.value(own_costs, g), change.abs().sum(1)

        return lambda g: own.round(own_costs, g), judge

    g, settled = settle(rounds_of, b.new_zeros(b.shape))
    return masses.value(costs, g), masses.plan(costs, g), settled, g


transport = torch.library.custom_op("setwise::transport", _transport, mutates_args=())


@transport.register_fake
def _(
    costs: Tensor, a: Tensor, b: Tensor, t: float, r: float | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    value = costs.new_empty(len(costs))
    # Contiguous, as the real ones are, whatever the strides of what was given.
    return value, costs.new_empty(costs.shape), value.to(torch.bool), b.new_empty(b.shape)


transport.register_vmap(fold_mapped_dimension(transport))


class TransportValue(torch.autograd.Function):
    """The differentiable face of `transport`; see `setwise.kernels.matchings.LogSum`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        costs: Tensor, a: Tensor, b: Tensor, t: float, r: float | None
    ) -> tuple[Tensor, ...]:
        # An operator costs the host more than a kernel costs the device.
        return (_transport if is_eager() else transport)(costs, a, b, t, r)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        costs, a, b, ctx.t, ctx.r = inputs
        _, plan, settled, g = output
        ctx.save_for_backward(costs, a, b, plan, g)
        ctx.mark_non_differentiable(plan, settled, g)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 5
        d_costs = apply(Plan, grad, *ctx.saved_tensors, ctx.t, ctx.r)
        return d_costs, None, None, None, None


class Plan(torch.autograd.Function):
    """The plan times ``grad`` [B]: the backward pass, to be differentiated in turn."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        grad: Tensor,
        costs: Tensor,
        a: Tensor,
        b: Tensor,
        plan: Tensor,
        g: Tensor,
        t: float,
        r: float | None,
    ) -> Tensor:
        return grad[:, None, None] * plan

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        *tensors, ctx.t, ctx.r = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, u: Tensor) -> tuple[Tensor | None, ...]:
        grad, costs, a, b, plan, g = ctx.saved_tensors
        d_grad = (u * Plan.apply(torch.ones_like(grad), costs, a, b, plan, g, ctx.t, ctx.r)).sum(
            (1, 2)
        )
        masses = Masses(a, b, ctx.t, ctx.r)
        with no_autocast(costs):
            (d_costs,) = pull_back(
                lambda g, costs: masses.round(costs, g),
                lambda g, costs: (masses.plan(costs, g),),
                g,
                (costs,),
                (grad[:, None, None] * u,),
            )
        return d_grad, d_costs, *(None,) * 6
