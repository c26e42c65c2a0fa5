"""Networks from pictures to sets whose elements say whether they exist."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from setwise.experiments.networks.network import NetworkConfig
from setwise.experiments.tasks.task import Task
from setwise.models import (
    ImplicitDecoder,
    PictureEncoder,
    PointingDecoder,
    QueryDecoder,
    RegionDecoder,
    SetPredictor,
    SlotAttention,
)

Decoder = Literal["queries", "regions", "slots", "implicit", "pointing"]
# Each by its width and the number of outputs, which regions have of their own.
_DECODERS: dict[Decoder, Callable[[int, int], nn.Module]] = {
    "queries": QueryDecoder,
    "regions": lambda width, outputs: RegionDecoder(width),
    "slots": SlotAttention,
    "implicit": ImplicitDecoder,
    "pointing": PointingDecoder,
}


@dataclass(frozen=True)
class Predictor(NetworkConfig):
    """See `setwise.models.SetPredictor`; each decoder with its own defaults."""

    kind: ClassVar[str] = "predictor"
    decoder: Decoder = "queries"
    outputs: int = 10
    width: int = 64
    # Of the convolutions, each of which halves the sides of a picture.
    convolutions: tuple[int, ...] = (32, 64, 64)
    # Residual blocks after each of them.
    blocks: int = field(default=0, metadata={"later": True})

    def build(self, task: Task, *, to_train: bool = True) -> nn.Module:
        if not task.presence or task.inputs.dim() != 4:
            raise ValueError(
                "network: a predictor needs pictures and objects that may be absent, which this "
                "data lacks"
            )
        encoder = PictureEncoder(self.width, self.convolutions, task.inputs.shape[1], self.blocks)
        decoder = _DECODERS[self.decoder](self.width, self.outputs)
        return Detection(SetPredictor(encoder, decoder, task.features))

    def model(self, network: nn.Module) -> nn.Module:
        assert isinstance(network, Detection)
        return network.predictor


class Detection(nn.Module):
    """A predictor that puts what is present behind the features: [B, C, H, W] -> [B, N, F + 1]."""

    def __init__(self, predictor: SetPredictor) -> None:
        super().__init__()
        self.predictor = predictor

    def forward(self, input: Tensor, temperature: Tensor) -> Tensor:
        elements, presence = self.predictor(input)
        return torch.cat([elements, presence.unsqueeze(-1)], dim=-1)
