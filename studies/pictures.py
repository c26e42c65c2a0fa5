"""From pictures to sets: which loss, with which decoder and how many outputs.

``setwise train studies/pictures.py`` trains all of it on sprites, ``--losses`` and ``--scenarios``
a part. All losses are asked for the presence of outputs, with the same features, at the same rate
and for as many steps; beside them are three recipes as they were published, each with the loss,
the depth and the rate of its authors.

Legend: B pictures, N outputs, M places for objects, F features.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

import setwise as sw
from setwise.experiments import Config, DataConfig, Experiment, NetworkConfig, Schedule, Task
from setwise.experiments.networks import Predictor
from setwise.experiments.networks.predictor import Decoder, Detection
from setwise.experiments.tasks import SpritesData
from setwise.losses.table import register_loss
from setwise.models import (
    ImplicitDecoder,
    PictureEncoder,
    QueryDecoder,
    SetPredictor,
    SlotAttention,
)

Options = Any


def cooled_cross_entropy(
    input: Tensor,
    target: Tensor,
    features: sw.Features,
    *,
    temperature: float | Tensor = 1.0,
    **options: Any,
) -> Tensor:
    return sw.set_cross_entropy(input, target, features, temperature=temperature, **options)


def exact_likelihood(*sets: Any, **options: Any) -> Tensor:
    return sw.set_likelihood(*sets, method="exact", **options)


def bethe_likelihood(*sets: Any, **options: Any) -> Tensor:
    return sw.set_likelihood(*sets, method="bethe", **options)


def rising_likelihood(
    *sets: Any, exclusivity: float | Tensor | None = None, **options: Any
) -> Tensor:
    return sw.set_likelihood(*sets, method="bethe", exclusivity=exclusivity, **options)


def chamfer_cross_entropy(*sets: Any, **options: Any) -> Tensor:
    return sw.set_average(*sets, directed=False, **options)


def matched_cross_entropy(*sets: Any, **options: Any) -> Tensor:
    return sw.assignment_cross_entropy(*sets, **options)


def detr_loss(
    input: Tensor,
    target: Tensor,
    features: sw.Features,
    *,
    presence: Tensor,
    target_valid: Tensor,
    reduction: str,
) -> Tensor:
    """Carion et al., 2020: matched by probabilities and places, five times the places' distance.

    An output without an object counts a tenth, and places are those of pictures that span 1.
    """
    *logits, place = features.split(input)
    *classes, centre = features.split(target)
    likely = [x @ z.softmax(-1).mT for z, x in zip(logits, classes, strict=True)]  # [*, M, N]
    apart = torch.cdist(centre, place, p=1) / 2
    exists = presence.sigmoid().unsqueeze(-2)
    chosen = sw.assign(5 * apart - exists - sum(likely), row_valid=target_valid)
    found = target_valid
    own = chosen.clamp(min=0).unsqueeze(-1)
    costs = 5 * (place.gather(-2, own.expand_as(centre)) - centre).abs().sum(-1) / 2
    for z, x in zip(logits, classes, strict=True):
        costs = costs - (x * z.log_softmax(-1).gather(-2, own.expand_as(x))).sum(-1)
    matched = torch.zeros_like(presence).scatter_add(-1, chosen.clamp(min=0), found.to(input.dtype))
    there = matched * functional.softplus(-presence)
    absent = (1 - matched) * functional.softplus(presence)
    assert reduction == "none"
    return (costs * found).sum(-1) + there.sum(-1) + 0.1 * absent.sum(-1)


def huber_loss(
    input: Tensor,
    target: Tensor,
    features: sw.Features,
    *,
    presence: Tensor,
    target_valid: Tensor,
    reduction: str,
) -> Tensor:
    """Locatello et al., 2020, and Zhang et al., 2022: all numbers alike, by Huber's loss.

    An element is a vector of probabilities, places from 0 to 1 and its presence; absent ones are
    zeros, and matched as the others are. There are as many outputs as places for objects.
    """
    *logits, place = features.split(input)
    *classes, centre = features.split(target)
    outputs = torch.cat(
        [*(z.softmax(-1) for z in logits), (place + 1) / 2, presence.sigmoid().unsqueeze(-1)], -1
    )
    there = target_valid.unsqueeze(-1).to(input.dtype)
    targets = torch.cat([*classes, (centre + 1) / 2, torch.ones_like(there)], -1) * there
    pairs = outputs.unsqueeze(-3).expand(*targets.shape[:-1], *outputs.shape[-2:])
    costs = functional.smooth_l1_loss(
        pairs, targets.unsqueeze(-2).expand_as(pairs), reduction="none"
    ).sum(-1)
    chosen = sw.assign(costs)
    assert reduction == "none"
    return costs.gather(-1, chosen.unsqueeze(-1)).sum((-1, -2))


register_loss(
    cooled_cross_entropy,
    symbol="SH, cooled",
    label="set cross entropy, temperature from 5 to 1",
    colour="#f4a6b3",
    options=("temperature",),
    capturable=True,
)
register_loss(exact_likelihood, symbol="LH, exact", colour="#9467bd", capturable=True)
register_loss(bethe_likelihood, symbol="LH, Bethe", colour="#5b3a8c", capturable=True)
register_loss(
    rising_likelihood,
    symbol="LH, rising",
    label="set likelihood, exclusivity from 0 to 1",
    colour="#c9b3de",
    options=("exclusivity",),
    capturable=True,
)
register_loss(matched_cross_entropy, symbol="matched", colour="#2ca02c", capturable=True)
register_loss(chamfer_cross_entropy, symbol="Chamfer", colour="#1f77b4", capturable=True)
register_loss(detr_loss, symbol="DETR", colour="#8c564b", capturable=True)
register_loss(huber_loss, symbol="Huber", colour="#7f7f7f", capturable=True)
LOSSES = (
    "set_cross_entropy",
    "cooled_cross_entropy",
    "exact_likelihood",
    "bethe_likelihood",
    "rising_likelihood",
    "matched_cross_entropy",
    "chamfer_cross_entropy",
)

Recipe = Literal["detr", "slot-attention", "idspn"]


@dataclass(frozen=True)
class Published(NetworkConfig):
    """The decoder of a recipe with the depth of its authors, behind our convolutions."""

    kind: ClassVar[str] = "published predictor"
    recipe: Recipe = "detr"
    outputs: int = 10
    width: int = 64
    convolutions: tuple[int, ...] = (32, 64, 64)

    def build(self, task: Task, *, to_train: bool = True) -> nn.Module:
        encoder = PictureEncoder(self.width, self.convolutions, task.inputs.shape[1])
        decoder: nn.Module
        if self.recipe == "detr":
            decoder = QueryDecoder(self.width, self.outputs, layers=6, every_layer=True)
        elif self.recipe == "slot-attention":
            decoder = SlotAttention(self.width, self.outputs, rounds=3)
        else:
            decoder = ImplicitDecoder(self.width, self.outputs, steps=40)
        return Detection(SetPredictor(encoder, decoder, task.features))


DATA: DataConfig = SpritesData(pictures=16_000, train=12_800, scale=0.2)
SCHEDULE = Schedule(
    epochs=20, batch=128, learning_rate=1e-3, cooldown=0.5, warmup=0.05, evaluations=20
)
# What a scenario is called, its decoder and the number of its outputs.
SCENARIOS: dict[str, tuple[Decoder, int]] = {
    "queries-10": ("queries", 10),
    "queries-20": ("queries", 20),
    "queries-100": ("queries", 100),
    "slots-10": ("slots", 10),
    "slots-20": ("slots", 20),
    "implicit-10": ("implicit", 10),
    "implicit-20": ("implicit", 20),
    "regions-64": ("regions", 64),
}


def config(scenario: str, loss: str, seed: int) -> Config:
    decoder, outputs = SCENARIOS[scenario]
    schedule = SCHEDULE
    if loss == "cooled_cross_entropy":
        schedule = replace(schedule, loss_temperature=5.0)
    if loss == "rising_likelihood":
        schedule = replace(schedule, exclusivity_until=0.7)
    return Config(
        experiment="pictures",
        scenario=scenario,
        loss=loss,
        seed=seed,
        shuffle_input=False,
        shuffle_target=True,
        data=DATA,
        network=Predictor(decoder, outputs),
        schedule=schedule,
    )


EXPERIMENT = Experiment(
    name="pictures",
    title="From pictures to sets: losses, decoders and recipes",
    config=config,
    scenarios={name: f"{what}, {n} outputs" for name, (what, n) in SCENARIOS.items()},
    losses=LOSSES,
    seeds=5,
    metric="ap_0.1",
    metric_label="average precision within a distance of 0.1",
    command="setwise train studies/pictures.py",
)
