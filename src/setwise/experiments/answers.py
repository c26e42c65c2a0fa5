"""What a network that was trained on rows says of others.

Legend: S rows, N outputs, F features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from setwise.data.rows import Row
from setwise.experiments.config import Config
from setwise.experiments.presence import split_presence
from setwise.experiments.saved_networks import read_config
from setwise.experiments.tasks.rows import RowsData
from setwise.experiments.tasks.task import MOST_NUMBERS
from setwise.experiments.train import build_network
from setwise.experiments.weights import load_weights

_AT_ONCE = 4096


@dataclass(frozen=True)
class RowsNetwork:
    """A network from rows to sets; the data that it was trained on are not needed."""

    config: Config
    network: nn.Module

    @staticmethod
    def load(path: Path) -> RowsNetwork:
        """From a file that ``setwise train`` has kept."""
        config = read_config(path)
        if not isinstance(config.data, RowsData):
            raise ValueError(
                f"{path}: a network of {config.experiment}, trained on {config.data.kind} data; "
                f"expected one that was trained on rows"
            )
        if (numbers := config.data.row_numbers) > MOST_NUMBERS:
            raise ValueError(f"{path}: {numbers} numbers a row, more than {MOST_NUMBERS} allowed")
        task = config.data.blank()
        return RowsNetwork(config, load_weights(path, lambda: build_network(config, task)))

    @property
    def data(self) -> RowsData:
        assert isinstance(self.config.data, RowsData)
        return self.config.data

    @torch.no_grad()
    def outputs(self, rows: Sequence[Row]) -> Tensor:
        """Logits [S, N, F + 1], the last of existence."""
        parts = self.data.encode_inputs(rows).split(_AT_ONCE)
        return torch.cat([self.network(part, torch.ones(())) for part in parts])

    def answer(self, rows: Sequence[Row]) -> list[list[Any]]:
        """The set that the network takes each row to have: outputs more likely there than not."""
        schema = self.data.elements
        logits, exists = split_presence(self.outputs(rows), schema.width)
        assert exists is not None
        elements = schema.features.discretise(logits)
        return [schema.decode(one[there]) for one, there in zip(elements, exists > 0, strict=True)]

    def score(self, rows: Sequence[Row]) -> float:
        """The share of rows whose set is right; they must have theirs."""
        task = self.data.task(rows)
        outputs = self.outputs(rows).unsqueeze(0)
        finite = outputs.isfinite().all(dim=-1).all(dim=-1)
        found = task.measure(outputs, finite, task.targets, task.features)
        return float(task.measure.total(found[task.measure.metric]).item())
