"""Bits of states and effects of actions, trained together.

Legend: B sets, N elements, F features, E distinct elements, L bits, A actions.

As in Cube-Space AE (Asai and Muise, 2020; Asai et al., 2022), a state is a code of bits and an
action sets some bits, clears some and leaves the others, whatever the state: its effects depend on
the action alone. Here states are sets, and two things differ. A bit is a property of elements, on
if any element of the set has it, so that it changes with what leaves and comes and with nothing
else. And the action of a step is not drawn: the likelihood of the bits after a step is summed over
all actions, as set cross entropy sums over all outputs.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from setwise.features import Features
from setwise.models.decoder import SetDecoder
from setwise.models.deep_sets import check_size
from setwise.models.initialise import glorot
from setwise.models.latent import BinaryConcrete


class BitNetwork(nn.Module):
    """Sets [*, N, F] -> bits [*, L] -> logits [*, N, F], and A actions on the bits.

    >>> import setwise as sw
    >>> network = BitNetwork(3, sw.Features(sw.Categorical(4)), bits=5, actions=2, width=8).eval()
    >>> code = network.encode(torch.eye(4)[:3])
    >>> code.shape, network.decode(code).shape
    (torch.Size([5]), torch.Size([3, 4]))
    """

    def __init__(
        self, size: int, features: Features, bits: int, actions: int, width: int = 128
    ) -> None:
        super().__init__()
        check_size("bits", bits)
        check_size("actions", actions)
        check_size("width", width)
        self.features = features
        self.embed = nn.Sequential(
            nn.Linear(features.width, width), nn.ReLU(), nn.Linear(width, bits)
        )
        glorot(self)
        self.latent = BinaryConcrete(bits)
        self.decoder = SetDecoder(bits, size, features, 2 * width, hidden_layers=1, dropout=0.0)
        # A bit that was on is on after the action if `stay` + `change` is positive, and one that
        # was off if `change` - `stay` is: an action turns bits on or off, and never over.
        self.change = nn.Parameter(torch.zeros(actions, bits))
        self.stay_logits = nn.Parameter(torch.full((bits,), 2.0))
        self.condition = nn.Parameter(torch.zeros(actions, bits))  # logits that bits were on
        self.frequency = nn.Parameter(torch.zeros(actions))  # logits, too

    def logits(self, sets: Tensor) -> Tensor:
        """Of the bits: [*, N, F] -> [*, L], of each the most that any element says."""
        return self.embed(sets).amax(-2)

    def logits_of(self, elements: Tensor, which: Tensor) -> Tensor:
        """The same of sets [*, N] of rows of ``elements`` [E, F], each row read once."""
        rows, place = which.unique(return_inverse=True)
        return self.embed(elements[rows])[place].amax(-2)

    @torch.no_grad()
    def encode(self, sets: Tensor) -> Tensor:
        """[*, N, F] -> bool [*, L]."""
        return self.latent.codes(self.logits(sets))

    @torch.no_grad()
    def decode(self, codes: Tensor) -> Tensor:
        """Bool [*, L] -> logits [*, N, F]; in evaluation, as after `train_bits`."""
        return self.decoder(self.latent.from_codes(codes))

    def costs(self, before: Tensor, after: Tensor) -> Tensor:
        r"""The cost of a step as each action: bits [B, L] twice, in [0, 1] -> [B, A].

        .. math:: -\log P(a) - \sum_l \log P(z_l \mid a) - \sum_l \log P(z'_l \mid z_l, a)

        With the bits before the step in it, steps that do the same under different conditions are
        different actions, each of whose conditions is a conjunction.
        """
        stay = functional.softplus(self.stay_logits)
        on, off = self.change + stay, self.change - stay  # [A, L]
        was_on, was_off = (functional.softplus(c) for c in (-self.condition, self.condition))
        on_on, on_off, off_on, off_off = (functional.softplus(c) for c in (-on, on, -off, off))
        table = [was_on + on_on, was_on + on_off, was_off + off_on, was_off + off_off]
        return _kinds(before, after) @ torch.cat(table, dim=-1).mT - self.frequency.log_softmax(0)

    @torch.no_grad()
    def wrong(self, before: Tensor, after: Tensor) -> Tensor:
        """How many bits each action leaves otherwise than a step did: [B, L] twice -> [B, A]."""
        sets, clears = (effect.to(before) for effect in self.effects())
        return _kinds(before, after) @ torch.cat([clears, 1 - clears, 1 - sets, sets], dim=-1).mT

    @torch.no_grad()
    def effects(self) -> tuple[Tensor, Tensor]:
        """The bits that each action sets, and those that it clears: bool [A, L] twice."""
        stay = functional.softplus(self.stay_logits)
        return self.change > stay, self.change < -stay

    @torch.no_grad()
    def begin_at(self, actions: Tensor, before: Tensor, after: Tensor) -> None:
        """Let actions [n] do what steps between bits [n, L] did."""
        stay = functional.softplus(self.stay_logits)
        self.change[actions] = (after - before) * (stay + 2.0)
        self.condition[actions] = 2 * before - 1
        self.frequency[actions] = self.frequency.mean()


def _kinds(before: Tensor, after: Tensor) -> Tensor:
    """Which bits stay on, go off, go on and stay off: [B, L] twice -> [B, 4 L]."""
    kinds = [before * after, before * (1 - after), (1 - before) * after]
    return torch.cat([*kinds, (1 - before) * (1 - after)], dim=-1)
