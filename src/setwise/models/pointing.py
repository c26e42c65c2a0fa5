"""A decoder that puts out one element after the other, and points at what it read for each.

Legend: N = ``size`` outputs, T elements of the memory, D = ``inputs``; ``*`` any leading
dimensions.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from setwise.models.attention import attend, check_memory
from setwise.models.deep_sets import check_size
from setwise.models.initialise import glorot


class PointingDecoder(nn.Module):
    """Memories [*, T, D] -> elements [*, N, D] (Vinyals et al., 2015 and 2016).

    An LSTM runs for N steps. At each it points at the memory, by a softmax over its elements, and
    puts out what it finds there together with its own state; what it found is its next input. So
    outputs know what has been put out before them, and the order of the memory is nothing to them.

    >>> decoder = PointingDecoder(inputs=16, size=3)
    >>> decoder(torch.rand(5, 7, 16)).shape
    torch.Size([5, 3, 16])
    """

    def __init__(self, inputs: int, size: int) -> None:
        super().__init__()
        check_size("inputs", inputs)
        check_size("size", size)
        self.inputs, self.size, self.features = inputs, size, inputs
        self.norm = nn.LayerNorm(inputs)
        self.start = nn.Linear(inputs, 2 * inputs)
        self.gates = nn.Linear(2 * inputs, 4 * inputs)
        self.query, self.key = nn.Linear(inputs, inputs), nn.Linear(inputs, inputs)
        self.output = nn.Linear(2 * inputs, inputs)
        glorot(self)

    def forward(self, memory: Tensor, valid: Tensor | None = None) -> Tensor:
        """Elements of the memory where ``valid`` [*, T] is False are not pointed at."""
        memory = self.norm(check_memory(memory, valid, self.inputs))
        key = self.key(memory)
        state = memory.new_zeros(*memory.shape[:-2], 1, self.inputs)
        # Every element alike at first: what the whole memory is about.
        found = _point(state, memory, memory, valid)
        state, cell = self.start(found).tanh().chunk(2, dim=-1)
        outputs = []
        for _ in range(self.size):
            gates = self.gates(torch.cat([found, state], dim=-1))
            enter, forget, new, leave = gates.chunk(4, dim=-1)
            cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
            state = leave.sigmoid() * cell.tanh()
            found = _point(self.query(state), key, memory, valid)
            outputs.append(self.output(torch.cat([state, found], dim=-1)))
        return torch.cat(outputs, dim=-2)


def _point(query: Tensor, key: Tensor, value: Tensor, valid: Tensor | None) -> Tensor:
    """Attention with one head, as a dimension of its own: ONNX knows no other."""
    seen = None if valid is None else valid.unsqueeze(-2)
    found = attend(query.unsqueeze(-3), key.unsqueeze(-3), value.unsqueeze(-3), seen)
    return found.squeeze(-3)
