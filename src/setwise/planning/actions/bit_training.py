"""Training of bits and actions.

Legend: T transitions, N elements, F features, E distinct elements, L bits, A actions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from setwise.losses import set_cross_entropy
from setwise.models.latent import annealed_temperature
from setwise.models.prototypes import find_prototypes, start_outputs_at
from setwise.planning.actions.bit_network import BitNetwork

BATCH = 100
_LEARNING_RATE = 1e-2
_STATES = 0.25  # the share of steps that learns states alone
_RAMP = 0.2  # and that in which what actions cost comes to its weight
_FIXED = 0.7  # from here on bits are what they will be
_SETTLED = 0.95  # and from here on no action begins anew
_EVERY = 25  # steps, some actions do
_SAMPLE = 2000  # transitions that are looked at for that
_COOLING = 0.3  # the share of steps in which the learning rate falls
_ACTIONS = 0.1  # the weight of what actions cost
_SPARSE = 0.002  # that of bits being on
_ON = 0.1  # the share of bits that are, all else being equal (Asai and Kajino, 2019)
_TEMPERATURES = 1.0, 0.3
_FOR_PROTOTYPES = 300  # sets
_NOT = 1e6  # a cost above all others


def train_bits(
    network: BitNetwork, before: Tensor, after: Tensor, *, steps: int, seed: int
) -> None:
    """Train on sets before and after each transition, [T, N, F] twice, elements in any order.

    The loss is the set cross entropy of both sets, given their bits; a little of that of the bits
    after the step, given those before and summed over actions; and what bits cost that are on.
    States come first. Then actions begin at steps that were seen, and one that explains none
    begins at another that nothing explains yet. In the end bits are fixed, and actions alone learn.
    """
    generator = torch.Generator().manual_seed(seed)
    features, sets = network.features, torch.cat([before, after])
    prototypes = find_prototypes(_some(sets, _FOR_PROTOTYPES, generator), features, seed=seed)
    start_outputs_at(network.decoder, prototypes, features)
    elements, which = sets.flatten(0, 1).unique(dim=0, return_inverse=True)
    members = which.reshape(2, len(before), -1)  # [2, T, N]
    optimiser = torch.optim.Adam(network.parameters(), lr=_LEARNING_RATE)
    network.train()
    for step in range(steps):
        progress = step / steps
        if _STATES <= progress < _SETTLED and step % _EVERY == 0:
            _begin_anew(network, elements, members, generator)
        for group in optimiser.param_groups:
            group["lr"] = _LEARNING_RATE * min(1.0, (1 - progress) / _COOLING)
        chosen = torch.randint(len(before), (BATCH,), generator=generator)
        logits = network.logits_of(elements, members[:, chosen])  # [2, BATCH, L]
        if progress < _FIXED:
            bits = network.latent(logits, annealed_temperature(progress, *_TEMPERATURES, _FIXED))
        else:
            bits = (logits > 0).to(logits)
        target = torch.stack([before[chosen], after[chosen]])
        loss = set_cross_entropy(network.decoder(bits), target, features)
        loss = loss + _SPARSE * _divergence(logits.sigmoid()).sum(-1).mean() * (progress < _FIXED)
        if progress >= _STATES:
            weight = _ACTIONS * min(1.0, (progress - _STATES) / _RAMP)
            loss = loss - weight * torch.logsumexp(-network.costs(*bits), dim=-1).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    network.eval()


@torch.no_grad()
def _begin_anew(
    network: BitNetwork, elements: Tensor, members: Tensor, generator: torch.Generator
) -> None:
    """Give actions that explain no step to steps that no action explains."""
    some = torch.randperm(members.shape[1], generator=generator)[:_SAMPLE]
    before, after = (network.logits_of(elements, members[:, some]) > 0).float()
    action, explained = explain(network, before, after)
    idle = (action[explained].bincount(minlength=len(network.frequency)) == 0).nonzero()[:, 0]
    open_ = (~explained).nonzero()[:, 0]
    open_ = open_[torch.randperm(len(open_), generator=generator)[: len(idle)]]
    network.begin_at(idle[: len(open_)], before[open_], after[open_])


@torch.no_grad()
def explain(network: BitNetwork, before: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
    """An action [T] for each step between bits [T, L], and whether it does just that.

    Of those that do it is the likeliest.
    """
    wrong = network.wrong(before, after)
    least, action = (network.costs(before, after) + _NOT * (wrong > 0)).min(-1)
    return action, least < _NOT


def _divergence(on: Tensor) -> Tensor:
    """Of a bit that is on with some probability from one that seldom is."""
    on = on.clamp(1e-6, 1 - 1e-6)
    return on * (on / _ON).log() + (1 - on) * ((1 - on) / (1 - _ON)).log()


def _some(sets: Tensor, count: int, generator: torch.Generator) -> Tensor:
    return sets[torch.randperm(len(sets), generator=generator)[:count]]
