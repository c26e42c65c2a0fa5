"""The examples that a config asks for, and the network that learns them.

Legend: S examples, N elements, F features, U distinct elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from setwise.data import SlidingPuzzle, drop_elements, split_clauses
from setwise.data.sets import pad_sets
from setwise.experiments.blocks import object_sets
from setwise.experiments.clauses import encoding_of
from setwise.experiments.config import (
    Autoencoder,
    BlocksData,
    Config,
    Data,
    EquivariantLearner,
    FactsData,
    PuzzleData,
    RulesData,
    Scoring,
)
from setwise.experiments.measures import Measure, SetSuccess
from setwise.experiments.randomness import random_order
from setwise.features import Bernoulli, Categorical, Features
from setwise.models import (
    EquivariantRuleLearner,
    GumbelSoftmax,
    SetAutoencoder,
    SetDecoder,
    find_prototypes,
    start_at_prototypes,
)

# The folder of data sets that are files, unless told otherwise.
DATA = Path("runs")
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Task:
    """Sets to produce. The first ``train`` examples are trained on, the others held out."""

    inputs: Tensor  # [S, ...], what a network reads in training: vectors, sets, or counts
    targets: Tensor  # [S, N, F]
    train: int
    features: Features
    # If the inputs are counts [S, U] of known elements, those elements [U, F]: a network that adds
    # up its elements needs each of them once, and the targets are the sets that were counted.
    elements: Tensor | None = None
    # How outputs are judged.
    measure: Measure = SetSuccess()  # noqa: RUF009  it has no state

    @property
    def reconstructs(self) -> bool:
        """Whether a network reads the sets that it shall produce."""
        return self.elements is not None or self.inputs.dim() == 3

    @cached_property
    def prototypes(self) -> Tensor:
        """Typical elements [N, F] of the sets trained on; the same for all networks."""
        return find_prototypes(self.targets[: self.train], self.features)

    def to(self, device: torch.device) -> Task:
        elements = None if self.elements is None else self.elements.to(device)
        return replace(
            self,
            inputs=self.inputs.to(device),
            targets=self.targets.to(device),
            elements=elements,
            measure=self.measure.to(device),
        )


def load_task(data: Data, folder: Path = DATA, device: torch.device = _CPU) -> Task:
    """The examples, the same for every run with this data; on the CPU.

    Data that are files lie in the folder; what must be learned about them is learned on the device.
    """
    if isinstance(data, PuzzleData):
        return _puzzle(data)
    if isinstance(data, BlocksData):
        sets, features, measure = object_sets(data, folder, device)
        return Task(sets, sets, data.train, features, measure=measure)
    return _rules(data)


def _puzzle(data: PuzzleData) -> Task:
    puzzle = SlidingPuzzle(data.width, data.height)
    if not 0 < data.train <= data.states <= puzzle.number_of_states:
        raise ValueError(
            f"data: expected 0 < train <= states <= {puzzle.number_of_states}, "
            f"got train {data.train}, states {data.states}"
        )
    sets = puzzle.objects(puzzle.sample(data.states, data.seed))
    features = puzzle.features
    if data.variable:
        sets = _with_dummies(puzzle, drop_elements(sets, data.seed), data.dummies)
        features = Features(*features.blocks, Bernoulli(1))
    elements, which = sets.flatten(0, 1).unique(dim=0, return_inverse=True)
    which = which.unflatten(0, sets.shape[:2])
    counts = torch.zeros(len(sets), len(elements))
    counts.scatter_add_(1, which, torch.ones(which.shape))
    return Task(counts, sets, data.train, _scored(features, data.scored_as), elements)


def _with_dummies(puzzle: SlidingPuzzle, sets: Sequence[Tensor], dummies: str) -> Tensor:
    if dummies == "cells":
        return puzzle.fill_cells(sets)
    return pad_sets(sets, puzzle.cells, puzzle.features)


def _rules(data: RulesData | FactsData) -> Task:
    """Bodies come in an order drawn once for each clause: a set has none of its own."""
    encoding = encoding_of(data)
    every = encoding.rule.ground(encoding.kb)
    parts = split_clauses(every, data.train, data.test, data.seed)
    clauses = torch.cat([torch.as_tensor(part) for part in parts]).numpy()
    bodies = encoding.bodies(clauses)
    order = random_order(bodies.shape[1], torch.tensor(data.seed), torch.arange(len(bodies)))
    bodies = bodies.gather(1, order.unsqueeze(-1).expand_as(bodies))
    return Task(encoding.heads(clauses), bodies, data.train, encoding.features(data.scored_as))


def _scored(features: Features, scored_as: Scoring) -> Features:
    blocks: list[Any] = [
        Categorical(block.width, scored_as=scored_as) if isinstance(block, Categorical) else block
        for block in features.blocks
    ]
    return Features(*blocks)


class Reconstruction(nn.Module):
    """A set autoencoder that reads counts [B, U] of known elements, or sets [B, N, F]."""

    def __init__(self, autoencoder: SetAutoencoder, elements: Tensor | None) -> None:
        super().__init__()
        self.autoencoder = autoencoder
        self.register_buffer("elements", elements, persistent=False)
        self.elements: Tensor | None

    def forward(self, input: Tensor, temperature: Tensor) -> Tensor:
        if input.dim() == 2:
            assert self.elements is not None
            return self.autoencoder.forward_counts(input, self.elements, temperature)
        return self.autoencoder(input, temperature)


class Production(nn.Module):
    """A decoder from vectors [B, D] to sets; it has no latent variables and no temperature."""

    def __init__(self, decoder: SetDecoder | EquivariantRuleLearner) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, input: Tensor, temperature: Tensor) -> Tensor:
        return self.decoder(input)


def build_network(
    config: Config, task: Task, *, to_train: bool = True
) -> Reconstruction | Production:
    """The network of a config, its weights drawn from the config's seed.

    Not ``to_train`` means that other weights will take their place: no start is looked for.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.seed)  # and no GPU's, as manual_seed would
        network = config.network
        _, size, width = task.targets.shape
        if isinstance(network, EquivariantLearner):
            if not isinstance(config.data, RulesData | FactsData):
                raise ValueError(
                    "network: an equivariant learner needs rules, which this data lacks"
                )
            predicates, constants, _ = task.features.widths
            arguments = (task.inputs.shape[-1] - predicates) // constants
            return Production(
                EquivariantRuleLearner(
                    constants, arguments, size, predicates, network.width, network.hidden_layers
                )
            )
        if not isinstance(network, Autoencoder):
            return Production(
                SetDecoder(
                    task.inputs.shape[-1],
                    size,
                    width,
                    network.width,
                    network.hidden_layers,
                    network.dropout,
                )
            )
        if not task.reconstructs:
            raise ValueError("network: an autoencoder needs sets to read, which this data lacks")
        autoencoder = SetAutoencoder(
            size,
            width,
            GumbelSoftmax(network.latent, noise=network.noise),
            network.element_widths,
            network.widths,
            network.decoder_width,
            dropout=network.dropout,
        )
        if network.start_at_prototypes and to_train:
            seen = task.targets[: task.train]
            start_at_prototypes(autoencoder, seen, task.features, task.prototypes)
        elements = None if task.elements is None else task.elements.cpu()
        return Reconstruction(autoencoder, elements)
