"""Slot Attention: slots that compete for the elements of a memory, and become those of a set.

Legend: N = ``size`` slots, T elements of the memory, D = ``inputs``; ``*`` any leading dimensions.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from setwise.models.attention import FeedForward, check_memory
from setwise.models.deep_sets import check_size
from setwise.models.initialise import glorot
from setwise.models.keyed import KeyedLayer

# Added to the weights, so that a slot that nobody wants divides by something.
_LEAST = 1e-8


class SlotAttention(nn.Module):
    """Memories [*, T, D] -> slots [*, N, D] (Locatello et al., 2020).

    ``rounds`` times, each element of the memory is shared out among the slots, by a softmax over
    the slots, and each slot is updated by the average of what it got. All slots have the same
    weights and begin at random, drawn around a learned mean; they differ in nothing else. In
    evaluation the draws are the same ones every time, so that results are.

    >>> decoder = SlotAttention(inputs=16, size=3)
    >>> decoder(torch.rand(5, 7, 16)).shape
    torch.Size([5, 3, 16])
    """

    def __init__(self, inputs: int, size: int, rounds: int = 3) -> None:
        super().__init__()
        for name, given in [("inputs", inputs), ("size", size), ("rounds", rounds)]:
            check_size(name, given)
        self.inputs, self.size, self.features, self.rounds = inputs, size, inputs, rounds
        self.start = SlotStart(size, inputs)
        self.memory_norm, self.slot_norm = nn.LayerNorm(inputs), nn.LayerNorm(inputs)
        self.query = nn.Linear(inputs, inputs, bias=False)
        self.key_value = nn.Linear(inputs, 2 * inputs, bias=False)
        self.update, self.feed_forward = GatedUpdate(inputs), FeedForward(inputs)
        glorot(self)

    def forward(self, memory: Tensor, valid: Tensor | None = None) -> Tensor:
        """Elements of the memory where ``valid`` [*, T] is False are not seen."""
        memory = self.memory_norm(check_memory(memory, valid, self.inputs))
        key, value = self.key_value(memory).chunk(2, dim=-1)
        slots = self.start(memory)
        for _ in range(self.rounds):
            query = self.query(self.slot_norm(slots))
            scores = query @ key.mT * self.inputs**-0.5  # [*, N, T]
            # In 16 bits the least would be nothing.
            wide = torch.promote_types(scores.dtype, torch.float32)
            shares = scores.softmax(dim=-2, dtype=wide) + _LEAST
            if valid is not None:
                shares = shares * valid.unsqueeze(-2)
            average = shares / shares.sum(dim=-1, keepdim=True).clamp(min=_LEAST)
            slots = self.feed_forward(self.update(average.to(value.dtype) @ value, slots))
        return slots


class SlotStart(KeyedLayer):
    """``mean + deviation * noise`` [*, N, D], for a memory of these leading dimensions."""

    noise: Tensor

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.randn(width) * width**-0.5)
        self.log_deviation = nn.Parameter(torch.zeros(width))
        # Part of the network: it is saved with the weights.
        self.register_buffer("noise", torch.randn(size, width))

    def forward(self, memory: Tensor) -> Tensor:
        noise = self.noise.expand(*memory.shape[:-2], *self.noise.shape)
        if self.training:
            noise = torch.special.ndtri(self.uniform(noise)).to(noise.dtype)
        return self.mean + self.log_deviation.exp() * noise


class GatedUpdate(nn.Module):
    """A gated recurrent unit (Cho et al., 2014): ``nn.GRUCell``, of any leading dimensions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.from_input, self.from_state = nn.Linear(width, 3 * width), nn.Linear(width, 3 * width)

    def forward(self, input: Tensor, state: Tensor) -> Tensor:
        reset_x, keep_x, new_x = self.from_input(input).chunk(3, dim=-1)
        reset_h, keep_h, new_h = self.from_state(state).chunk(3, dim=-1)
        new = torch.tanh(new_x + torch.sigmoid(reset_x + reset_h) * new_h)
        # Not ``lerp``: under autocast the state is wider than what is new.
        return new + torch.sigmoid(keep_x + keep_h) * (state - new)
