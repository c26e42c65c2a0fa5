"""The Set Transformer's encoder: elements that read each other, then one vector or several.

Legend: N elements, F features, D = ``width``, I inducing points, S seeds; ``*`` any leading
dimensions.
"""

from __future__ import annotations

from torch import Tensor, nn

from setwise.features import Features
from setwise.models.attention import Reader, check_heads, hide, learned_elements
from setwise.models.deep_sets import check_floats, check_size, width_of
from setwise.models.initialise import glorot


class SetTransformerEncoder(nn.Module):
    """Sets [*, N, F] -> [*, outputs], whatever the order of the elements (Lee et al., 2019).

    It takes the place of a `DeepSetsEncoder` where elements have to be seen together. Elements read
    each other by way of ``inducing`` learned points, ``layers`` times (ISAB), which takes time in
    proportion to N; then a learned seed reads them all (PMA). With ``seeds`` there are several of
    these and the result is [*, seeds, outputs], a memory that decoders read. Unlike in the paper,
    layers normalise before they read.

    >>> import torch
    >>> encoder = SetTransformerEncoder(features=4, outputs=3, width=16, heads=2)
    >>> encoder(torch.rand(5, 7, 4)).shape
    torch.Size([5, 3])
    """

    def __init__(
        self,
        features: int | Features,
        outputs: int,
        width: int = 64,
        layers: int = 2,
        heads: int = 4,
        inducing: int = 16,
        seeds: int | None = None,
    ) -> None:
        super().__init__()
        features = width_of(features)
        check_size("outputs", outputs)
        check_size("layers", layers, least=0)
        check_heads(width, heads)
        check_size("inducing", inducing)
        if seeds is not None:
            check_size("seeds", seeds)
        self.features, self.seeds = features, seeds
        self.embed = nn.Linear(features, width)
        self.blocks = nn.ModuleList(InducedReader(width, heads, inducing) for _ in range(layers))
        self.pool = PooledReader(width, heads, 1 if seeds is None else seeds)
        self.output = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, outputs))
        glorot(self)

    def forward(self, sets: Tensor, valid: Tensor | None = None) -> Tensor:
        """Elements where ``valid`` [*, N] is False are not seen."""
        check_floats("sets", sets, "[*, elements, features]", 2, self.features)
        elements = self.embed(sets if valid is None else hide("sets", sets, valid))
        for block in self.blocks:
            elements = block(elements, valid)
        pooled = self.output(self.pool(elements, valid))
        return pooled.squeeze(-2) if self.seeds is None else pooled


class InducedReader(nn.Module):
    """ISAB: elements [*, N, D] read learned points that have read all of them."""

    def __init__(self, width: int, heads: int, inducing: int) -> None:
        super().__init__()
        self.points = learned_elements(inducing, width)
        self.collect, self.spread = Reader(width, heads), Reader(width, heads)

    def forward(self, elements: Tensor, valid: Tensor | None = None) -> Tensor:
        points = self.points.expand(*elements.shape[:-2], *self.points.shape)
        return self.spread(elements, self.collect(points, elements, valid))


class PooledReader(nn.Module):
    """PMA: learned seeds [*, S, D] that have read all elements [*, N, D]."""

    def __init__(self, width: int, heads: int, seeds: int) -> None:
        super().__init__()
        self.seeds, self.reader = learned_elements(seeds, width), Reader(width, heads)

    def forward(self, elements: Tensor, valid: Tensor | None = None) -> Tensor:
        seeds = self.seeds.expand(*elements.shape[:-2], *self.seeds.shape)
        return self.reader(seeds, elements, valid)
