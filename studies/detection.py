"""From pictures to sets: which loss, with which decoder and how many outputs.

Two experiments, each trained by ``setwise train studies/detection.py --experiment NAME``:

- ``pictures``: losses of the library, each with every decoder. All of them are asked for the
  presence of outputs, have the same features, and are trained at the same rate for as long.
- ``picture-recipes``: three recipes with the loss and the depth of their authors, on our pictures
  and behind our convolutions; and the same networks with other losses in the place of theirs.

How many epochs there are, and the rate of each decoder and recipe, which ``detection_rates.py``
looks for, stand in ``detection.json``. Other pictures may be put in the place of `DATA`: any data
of pictures and objects with presence.

Legend: B pictures, L layers, M places for objects, N outputs, F features.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

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

DATA: DataConfig = SpritesData(side=48, pictures=16_000, train=12_800, scale=0.2)
SETTINGS = Path(__file__).with_suffix(".json")


def plain_cross_entropy(*sets: Any, **options: Any) -> Tensor:
    return sw.set_cross_entropy(*sets, **options)


def cooled_cross_entropy(*sets: Any, temperature: float | Tensor = 1.0, **options: Any) -> Tensor:
    return sw.set_cross_entropy(*sets, temperature=temperature, **options)


def exact_likelihood(*sets: Any, **options: Any) -> Tensor:
    return sw.set_likelihood(*sets, method="exact", **options)


def bethe_likelihood(*sets: Any, **options: Any) -> Tensor:
    return sw.set_likelihood(*sets, method="bethe", **options)


def rising_likelihood(
    *sets: Any, exclusivity: float | Tensor | None = None, **options: Any
) -> Tensor:
    return sw.set_likelihood(*sets, exclusivity=exclusivity, **options)


def chamfer_cross_entropy(*sets: Any, **options: Any) -> Tensor:
    return sw.set_average(*sets, directed=False, **options)


def detr_loss(
    input: Tensor,
    target: Tensor,
    features: sw.Features,
    *,
    presence: Tensor,
    target_valid: Tensor,
    reduction: str,
) -> Tensor:
    """DETR's (Carion et al., 2020): matched by probabilities, and by places five times.

    The loss is the cross entropy of what is matched and five times the distance of places, in sides
    of a picture; an output without an object counts a tenth.
    """
    *logits, place = features.split(input)
    *classes, middle = features.split(target)
    pairs = list(zip(logits, classes, strict=True))
    likely = torch.stack([x @ z.softmax(-1).mT for z, x in pairs]).sum(0)  # [*, M, N]
    apart = torch.cdist(middle, place, p=1.0) / 2
    chosen = sw.assign(
        5 * apart - likely - presence.sigmoid().unsqueeze(-2), row_valid=target_valid
    ).clamp(min=0)
    own = chosen.unsqueeze(-1)
    costs = 5 * (place.gather(-2, own.expand_as(middle)) - middle).abs().sum(-1) / 2
    for z, x in pairs:
        costs = costs - (x * z.log_softmax(-1).gather(-2, own.expand_as(x))).sum(-1)
    there = torch.zeros_like(presence).scatter_add(-1, chosen, target_valid.to(presence.dtype))
    seen = there * functional.softplus(-presence) + 0.1 * (1 - there) * functional.softplus(
        presence
    )
    return _reduced((costs * target_valid).sum(-1) + seen.sum(-1), reduction)


def huber_loss(
    input: Tensor,
    target: Tensor,
    features: sw.Features,
    *,
    presence: Tensor,
    target_valid: Tensor,
    reduction: str,
) -> Tensor:
    """Slot Attention's (Locatello et al., 2020) and iDSPN's (Zhang et al., 2022): all alike.

    An element is a vector of probabilities, of a place from 0 to 1 and of its presence, and an
    absent one is zeros; vectors are matched by the sum of Huber's loss over their numbers. Of
    zeros it is all the same which is matched, so only objects are.
    """
    *logits, place = features.split(input)
    *classes, middle = features.split(target)
    soft = [z.softmax(-1) for z in logits]
    outputs = torch.cat([*soft, (place + 1) / 2, presence.sigmoid().unsqueeze(-1)], dim=-1)
    there = torch.ones_like(middle[..., :1])
    targets = torch.cat([*classes, (middle + 1) / 2, there], dim=-1)
    absent = _huber(outputs, torch.zeros_like(outputs))  # [*, N]
    more = _huber(*torch.broadcast_tensors(outputs.unsqueeze(-3), targets.unsqueeze(-2)))
    more = more - absent.unsqueeze(-2)  # [*, M, N]: what an object costs more than its absence
    chosen = sw.assign(more, row_valid=target_valid).clamp(min=0)
    found = more.gather(-1, chosen.unsqueeze(-1)).squeeze(-1) * target_valid
    return _reduced(found.sum(-1) + absent.sum(-1), reduction)


def _huber(outputs: Tensor, targets: Tensor) -> Tensor:
    """Huber's loss of vectors: [*, F] -> [*]."""
    return functional.smooth_l1_loss(outputs, targets, reduction="none").sum(-1)


def _reduced(per_set: Tensor, reduction: str) -> Tensor:
    """As trainings ask for it."""
    if reduction != "none":
        raise ValueError(f"reduction: expected 'none', got {reduction!r}")
    return per_set


for _loss, _symbol, _label, _colour, _options in (
    (plain_cross_entropy, "SH, plain", "set cross entropy", "#dc143c", ()),
    (cooled_cross_entropy, "SH, cooled", "SH, temperature 5 to 1", "#f4a6b3", ("temperature",)),
    (exact_likelihood, "LH, exact", "set likelihood, exact", "#9467bd", ()),
    (bethe_likelihood, "LH, Bethe", "set likelihood, Bethe", "#5b3a8c", ()),
    (rising_likelihood, "LH, rising", "LH, exclusivity 0 to 1", "#c9b3de", ("exclusivity",)),
    (chamfer_cross_entropy, "Chamfer", "set average, both ways", "#1f77b4", ()),
    (detr_loss, "DETR", "DETR's loss", "#8c564b", ()),
    (huber_loss, "Huber", "matched by Huber's loss", "#17becf", ()),
):
    register_loss(
        _loss, symbol=_symbol, label=_label, colour=_colour, options=_options, capturable=True
    )


@dataclass(frozen=True)
class PublishedPredictor(NetworkConfig):
    """The decoder of a recipe at the depth of its authors, behind the same convolutions as ours."""

    kind: ClassVar[str] = "published predictor"
    recipe: str = "detr"
    outputs: int = 100
    width: int = 64
    convolutions: tuple[int, ...] = (32, 64, 64)
    blocks: int = field(default=0, metadata={"later": True})

    def build(self, task: Task, *, to_train: bool = True) -> nn.Module:
        encoder = PictureEncoder(self.width, self.convolutions, task.inputs.shape[1], self.blocks)
        decoder = DECODERS[self.recipe](self.width, self.outputs)
        return Detection(SetPredictor(encoder, decoder, task.features))

    def model(self, network: nn.Module) -> nn.Module:
        assert isinstance(network, Detection)
        return network.predictor


DECODERS: dict[str, Any] = {
    "detr": lambda width, size: QueryDecoder(width, size, layers=6, every_layer=True),
    "slot attention": lambda width, size: SlotAttention(width, size, rounds=3),
    "idspn": lambda width, size: ImplicitDecoder(width, size, steps=40),
}
# The decoder of a scenario, and the number of its outputs.
SCENARIOS: dict[str, tuple[Decoder, int]] = {
    "queries-10": ("queries", 10),
    "queries-20": ("queries", 20),
    "queries-100": ("queries", 100),
    "slots-20": ("slots", 20),
    "implicit-20": ("implicit", 20),
    "regions-36": ("regions", 36),
}
# The network of a recipe, and the share of training over which its rate rises.
PUBLISHED = {
    "detr": (PublishedPredictor("detr", 100), 0.05),
    "slot-attention": (PublishedPredictor("slot attention", 10), 0.1),
    "idspn": (PublishedPredictor("idspn", 10), 0.05),
}


def config(scenario: str, loss: str, seed: int) -> Config:
    """A loss of the library with one of its decoders."""
    decoder, outputs = SCENARIOS[scenario]
    network = Predictor(decoder, outputs)
    return _config("pictures", scenario, loss, seed, network, decoder, 0.05)


def published(scenario: str, loss: str, seed: int) -> Config:
    """A recipe, with its own loss or another."""
    network, warmup = PUBLISHED[scenario]
    return _config("picture-recipes", scenario, loss, seed, network, scenario, warmup)


def _config(
    experiment: str,
    scenario: str,
    loss: str,
    seed: int,
    network: NetworkConfig,
    rate_of: str,
    warmup: float,
) -> Config:
    chosen = json.loads(SETTINGS.read_text())
    return Config(
        experiment=experiment,
        scenario=scenario,
        loss=loss,
        seed=seed,
        shuffle_input=False,
        shuffle_target=True,
        data=DATA,
        network=network,
        # Only losses that say so have a temperature or an exclusivity, so all train together.
        schedule=Schedule(
            epochs=chosen["epochs"],
            batch=64,
            learning_rate=chosen["rates"][rate_of],
            cooldown=0.5,
            warmup=warmup,
            loss_temperature=5.0,
            exclusivity_until=0.7,
            evaluations=chosen["epochs"],
        ),
    )


COMPARED: dict[str, Any] = {
    "seeds": 5,
    "metric": "ap_0.1",
    "metric_label": "average precision within a distance of 0.1",
    "curves_of": "a thousand pictures, one in five of them held out",
    "level": 0.5,
}
EXPERIMENT = Experiment(
    name="pictures",
    title="Pictures to sets: losses and decoders",
    config=config,
    scenarios={name: f"{what}, {n} outputs" for name, (what, n) in SCENARIOS.items()},
    losses=(
        "plain_cross_entropy",
        "cooled_cross_entropy",
        "exact_likelihood",
        "bethe_likelihood",
        "rising_likelihood",
        "assignment_cross_entropy",
        "chamfer_cross_entropy",
    ),
    command="setwise train studies/detection.py --experiment pictures",
    **COMPARED,
)
RECIPES = Experiment(
    name="picture-recipes",
    title="Published recipes: from pictures to sets, and other losses in them",
    config=published,
    scenarios={
        "detr": "DETR, 100 outputs",
        "slot-attention": "Slot Attention, 10 outputs",
        "idspn": "iDSPN, 10 outputs",
    },
    losses=("detr_loss", "huber_loss", "bethe_likelihood", "assignment_cross_entropy"),
    command="setwise train studies/detection.py --experiment picture-recipes",
    **COMPARED,
)
