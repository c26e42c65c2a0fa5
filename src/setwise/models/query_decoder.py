"""The decoder of DETR: queries that are learned read a memory, and become the elements of a set.

Legend: N = ``size`` outputs, T elements of the memory, D = ``inputs``; ``*`` any leading
dimensions.
"""

from __future__ import annotations

from torch import Tensor, nn

from setwise.models.attention import Attention, Reader, check_memory, learned_elements
from setwise.models.deep_sets import check_size
from setwise.models.initialise import glorot


class QueryDecoder(nn.Module):
    """Memories [*, T, D] -> elements [*, N, D] (Carion et al., 2020).

    N learned queries pass ``layers`` of attention to each other and to the memory. What stands in
    the memory has to say where it was: see `PictureEncoder`. The layers normalise before they read,
    and there is no dropout.

    >>> import torch
    >>> decoder = QueryDecoder(inputs=16, size=3, heads=2)
    >>> decoder(torch.rand(5, 7, 16)).shape
    torch.Size([5, 3, 16])
    """

    def __init__(self, inputs: int, size: int, layers: int = 2, heads: int = 4) -> None:
        super().__init__()
        for name, given in [("inputs", inputs), ("size", size), ("layers", layers)]:
            check_size(name, given)
        self.inputs, self.size, self.features = inputs, size, inputs
        self.queries = learned_elements(size, inputs)
        self.layers = nn.ModuleList(_Layer(inputs, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(inputs)
        glorot(self)

    def forward(self, memory: Tensor, valid: Tensor | None = None) -> Tensor:
        """Elements of the memory where ``valid`` [*, T] is False are not seen."""
        memory = check_memory(memory, valid, self.inputs)
        elements = self.queries.expand(*memory.shape[:-2], self.size, self.inputs)
        for layer in self.layers:
            elements = layer(elements, memory, valid)
        return self.norm(elements)


class _Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.among, self.reader = Attention(width, heads), Reader(width, heads)

    def forward(self, elements: Tensor, memory: Tensor, valid: Tensor | None) -> Tensor:
        return self.reader(self.among(elements, elements), memory, valid)
