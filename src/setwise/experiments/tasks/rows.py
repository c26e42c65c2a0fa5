"""A user's own rows: sets to be predicted from the other columns, or to be reconstructed.

Legend: S rows, N elements of the largest set, F features, I numbers of an input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from setwise.data.rows import Row, column, read_rows
from setwise.data.schema import Schema
from setwise.data.sets import mask_sets
from setwise.experiments.measures import SetSuccess
from setwise.experiments.tasks.rules import fingerprint
from setwise.experiments.tasks.task import (
    CPU,
    DATA,
    MOST_NUMBERS,
    DataConfig,
    Task,
    require_split,
)
from setwise.outside import named

# How far a number may be off to be right, where numbers have a spread of 1.
TOLERANCE = 0.25


@dataclass(frozen=True, kw_only=True)
class RowsData(DataConfig):
    """Rows of a file, of which one column holds sets; see `setwise.data.schema`.

    Everything that is needed to read other rows of the kind is here: a trained network answers
    without the file that it was trained on.
    """

    kind: ClassVar[str] = "rows"
    # Where the file lies and what it holds; a file that has changed since is refused.
    file: str
    sha256: str
    # The column of sets, what their elements are, and how many the largest set has.
    target: str
    elements: Schema
    size: int
    # The columns that sets are predicted from; None if they are to be reconstructed.
    inputs: Schema | None = None
    rows: int
    # So many rows, in an order that the seed decides, are trained on, the others are held out.
    train: int
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("elements", "inputs"):  # as JSON has them
            if isinstance(saved := getattr(self, name), dict):
                object.__setattr__(self, name, Schema.read(saved))
        require_split("data", self.train, self.rows)
        if self.size < 1:
            raise ValueError(f"size: expected at least 1, got {self.size}")

    def load(self, folder: Path = DATA, device: torch.device = CPU) -> Task:
        file = Path(self.file)
        if not file.is_file():
            raise ValueError(f"{file}: the rows are not there (their SHA-256 is {self.sha256})")
        if fingerprint(file) != self.sha256:
            raise ValueError(
                f"{file}: not the rows that were trained on, whose SHA-256 is {self.sha256}; move "
                f"the records of those away, or take another folder for these (--results)"
            )
        rows = read_rows(file)
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(self.seed))
        with named(file):
            return self.task([rows[place] for place in order.tolist()])

    def task(self, rows: Sequence[Row]) -> Task:
        """Rows as examples, in their order."""
        targets = self.encode_sets(column(rows, self.target))
        inputs = targets if self.inputs is None else self.encode_inputs(rows)
        measure = SetSuccess(metric="exact", tolerance=TOLERANCE)
        return Task(inputs, targets, self.train, self.elements.features, measure=measure)

    def blank(self) -> Task:
        """One example that holds nothing: a network is built for its shapes."""
        targets = torch.zeros(1, self.size, self.elements.width + 1)
        inputs = targets if self.inputs is None else torch.zeros(1, self.inputs.width)
        return Task(inputs, targets, 1, self.elements.features)

    def encode_inputs(self, rows: Sequence[Row]) -> Tensor:
        """What is read of rows: [S, I], or the sets themselves, [S, N, F + 1]."""
        if self.inputs is None:
            return self.encode_sets(column(rows, self.target))
        return self.inputs.encode(rows)

    def encode_sets(self, sets: Sequence[Any]) -> Tensor:
        """[S, N, F + 1], the last number for what is there."""
        encoded = [self.elements.encode(one) for one in checked_sets(self.target, sets)]
        if (largest := max(map(len, encoded))) > self.size:
            raise ValueError(
                f"{self.target}: a set of {largest}, but the largest was of {self.size} elements"
            )
        elements, valid = mask_sets(encoded, self.size)
        return torch.cat([elements, valid.unsqueeze(-1).to(elements)], dim=-1)

    @property
    def row_numbers(self) -> int:
        """How many numbers a row becomes."""
        inputs = 0 if self.inputs is None else self.inputs.width
        return self.size * (self.elements.width + 1) + inputs

    def numbers(self) -> int:
        return self.rows * self.row_numbers


def rows_data(
    file: Path,
    target: str,
    inputs: Sequence[str] | None = None,
    held_out: float = 0.1,
    seed: int = 0,
) -> RowsData:
    """What a file holds, inferred from its columns.

    ``inputs`` are the columns to predict the ``target`` from, by default all others; none at all,
    and the sets are to be reconstructed.
    """
    rows = read_rows(file)
    with named(file):
        sets = checked_sets(target, column(rows, target))
        elements = Schema.infer(target, [element for one in sets for element in one])
        names = [name for name in rows[0] if name != target] if inputs is None else inputs
        if target in names:
            raise ValueError(f"{target}: is what is predicted, and cannot be an input as well")
        for name in names:
            column(rows, name)  # complains about rows without it
        read = [{name: row[name] for name in names} for row in rows]
        train = len(rows) - max(1, round(held_out * len(rows)))
        if train < 2:
            raise ValueError(f"{len(rows)} rows are too few to train on some and hold some out")
        data = RowsData(
            file=str(file),
            sha256=fingerprint(file),
            target=target,
            elements=elements,
            size=max(map(len, sets)),
            inputs=Schema.infer("inputs", read, few_are_classes=False) if names else None,
            rows=len(rows),
            train=train,
            seed=seed,
        )
        if (numbers := data.numbers()) > MOST_NUMBERS:
            raise ValueError(f"{numbers} numbers, more than the {MOST_NUMBERS} allowed")
    return data


def checked_sets(target: str, sets: Sequence[Any]) -> list[list[Any]]:
    """The values of the column of sets, each of which must be a list."""
    for number, one in enumerate(sets, 1):
        if not isinstance(one, list):
            raise ValueError(
                f"{target}: expected a list of elements in every row, row {number} has {one!r:.60}"
            )
    return list(sets)
