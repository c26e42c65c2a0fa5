"""The decoder of DETR: queries that are learned read a memory, and become the elements of a set.

Legend: N = ``size`` outputs, T elements of the memory, D = ``inputs``; ``*`` any leading
dimensions.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from setwise.models.attention import Attention, Reader, check_memory, learned_elements
from setwise.models.deep_sets import check_size
from setwise.models.initialise import glorot


class QueryDecoder(nn.Module):
    """Memories [*, T, D] -> elements [*, N, D] (Carion et al., 2020).

    N learned queries pass ``layers`` of attention to each other and to the memory. What stands in
    the memory has to say where it was: see `PictureEncoder`. The layers normalise before they read,
    and there is no dropout. With ``every_layer`` training gives the elements that each layer ends
    with, [*, ``layers``, N, D], so that a loss can be asked of all of them, as DETR does.

    >>> import torch
    >>> decoder = QueryDecoder(inputs=16, size=3, heads=2)
    >>> decoder(torch.rand(5, 7, 16)).shape
    torch.Size([5, 3, 16])
    """

    def __init__(
        self, inputs: int, size: int, layers: int = 2, heads: int = 4, every_layer: bool = False
    ) -> None:
        super().__init__()
        for name, given in [("inputs", inputs), ("size", size), ("layers", layers)]:
            check_size(name, given)
        self.inputs, self.size, self.features = inputs, size, inputs
        self.every_layer = every_layer
        self.queries = learned_elements(size, inputs)
        self.layers = nn.ModuleList(_Layer(inputs, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(inputs)
        glorot(self)

    def forward(self, memory: Tensor, valid: Tensor | None = None) -> Tensor:
        """Elements of the memory where ``valid`` [*, T] is False are not seen."""
        memory = check_memory(memory, valid, self.inputs)
        elements = self.queries.expand(*memory.shape[:-2], self.size, self.inputs)
        passed = []
        for layer in self.layers:
            elements = layer(elements, memory, valid)
            passed.append(elements)
        if self.every_layer and self.training:
            elements = torch.stack(passed, dim=-3)
        return self.norm(elements)


class _Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.among, self.reader = Attention(width, heads), Reader(width, heads)

    def forward(self, elements: Tensor, memory: Tensor, valid: Tensor | None) -> Tensor:
        return self.reader(self.among(elements, elements), memory, valid)
