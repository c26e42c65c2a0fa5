"""The examples that a config asks for, and the network that learns them.

Legend: S examples, N elements, F features, U distinct elements.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from setwise.data import SlidingPuzzle, drop_elements
from setwise.data.sets import pad_sets
from setwise.experiments.config import Config, PuzzleData
from setwise.features import Bernoulli, Categorical, Features
from setwise.models import GumbelSoftmax, SetAutoencoder


@dataclass(frozen=True)
class Task:
    """Sets to reconstruct. The first ``train`` examples are trained on, the others held out."""

    sets: Tensor  # [S, N, F]
    train: int
    features: Features
    # The same sets as counts [S, U] of the rows of a table [U, F]: what training reads, since the
    # encoder adds up its elements and few distinct ones exist.
    counts: Tensor
    elements: Tensor

    def to(self, device: torch.device) -> Task:
        moved = (t.to(device) for t in (self.sets, self.counts, self.elements))
        sets, counts, elements = moved
        return Task(sets, self.train, self.features, counts, elements)


def load_task(data: PuzzleData) -> Task:
    puzzle = SlidingPuzzle(data.width, data.height)
    if not 0 < data.train <= data.states <= puzzle.number_of_states:
        raise ValueError(
            f"data: expected 0 < train <= states <= {puzzle.number_of_states}, "
            f"got train {data.train}, states {data.states}"
        )
    sets = puzzle.objects(puzzle.sample(data.states, data.seed))
    blocks = puzzle.features.blocks
    if data.variable:
        sets = pad_sets(drop_elements(sets, data.seed), puzzle.cells, puzzle.features)
        blocks = (*blocks, Bernoulli(1))
    features = Features(
        *(
            Categorical(block.width, scored_as=data.scored_as)
            if isinstance(block, Categorical)
            else block
            for block in blocks
        )
    )
    elements, which = sets.flatten(0, 1).unique(dim=0, return_inverse=True)
    counts = torch.zeros(len(sets), len(elements))
    which = which.unflatten(0, sets.shape[:2])
    counts.scatter_add_(1, which, torch.ones(which.shape))
    return Task(sets, data.train, features, counts, elements)


class Reconstruction(nn.Module):
    """A set autoencoder that reads counts [B, U] of known elements, or sets [B, N, F]."""

    def __init__(self, autoencoder: SetAutoencoder, elements: Tensor) -> None:
        super().__init__()
        self.autoencoder = autoencoder
        self.register_buffer("elements", elements, persistent=False)
        self.elements: Tensor

    def forward(self, input: Tensor, temperature: Tensor) -> Tensor:
        if input.dim() == 2:
            return self.autoencoder.forward_counts(input, self.elements, temperature)
        return self.autoencoder(input, temperature)


def build_network(config: Config, task: Task) -> Reconstruction:
    """The network of a config, its weights drawn from the config's seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        network = config.network
        _, size, width = task.sets.shape
        autoencoder = SetAutoencoder(
            size,
            width,
            GumbelSoftmax(network.latent, noise=network.noise),
            network.element_widths,
            network.widths,
            network.decoder_width,
            dropout=network.dropout,
        )
    return Reconstruction(autoencoder, task.elements.cpu())
