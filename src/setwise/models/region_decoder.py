"""A decoder in which every element of the memory becomes one of the set: dense prediction.

Legend: T elements of the memory and outputs, D = ``inputs``; ``*`` any leading dimensions.
"""

from __future__ import annotations

from torch import Tensor, nn

from setwise.models.attention import Reader, check_memory
from setwise.models.deep_sets import check_size
from setwise.models.initialise import glorot


class RegionDecoder(nn.Module):
    """Memories [*, T, D] -> elements [*, T, D], in the order of the memory.

    Each region of a picture puts out one element, which may be absent, after ``layers`` in which
    regions read each other, so that one object is not put out twice: dense prediction trained
    one-to-one (Sun et al., 2021). It learns much faster than queries that have to find the regions
    first, but needs a region for each object. Nothing is put out by elements where ``valid`` is
    False; leave their outputs out by ``input_valid=valid``.

    >>> import torch
    >>> decoder = RegionDecoder(inputs=16)
    >>> decoder(torch.rand(5, 7, 16)).shape
    torch.Size([5, 7, 16])
    """

    def __init__(self, inputs: int, layers: int = 1, heads: int = 4) -> None:
        super().__init__()
        check_size("inputs", inputs)
        check_size("layers", layers, least=0)
        self.inputs, self.features = inputs, inputs
        self.layers = nn.ModuleList(Reader(inputs, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(inputs)
        glorot(self)

    def forward(self, memory: Tensor, valid: Tensor | None = None) -> Tensor:
        """Elements of the memory where ``valid`` [*, T] is False are not seen."""
        elements = check_memory(memory, valid, self.inputs)
        for layer in self.layers:
            elements = layer(elements, elements, valid)
        return self.norm(elements)
