"""Batches of sets from Parquet files, in an order that a seed decides, from any place on.

Legend: R processes (ranks), W workers of each.

In every epoch row groups are put into a new order, and their rows, one group after the other, are
cut into R W parts of equal size, to within a row: each worker of each process has one. A worker
reads some groups, shuffles their rows, and makes batches of them. The seed, the epoch and the
numbers of processes, workers and batches before decide everything, so that there is nothing else to
be remembered, and what was read before need not be read again to go on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from setwise.data.checks import require_int
from setwise.data.collate import require_free, valid_name
from setwise.data.parquet import Block, Columns, find_blocks, joined, read_block
from setwise.data.sets import masked


class Refusal(NamedTuple):
    """What a worker found wrong: its own error would come wrapped in that of a loader."""

    message: str


@dataclass(frozen=True)
class Order:
    """Which sets each worker gets, and when."""

    blocks: tuple[Block, ...]
    batch_size: int
    consumers: int  # workers of all processes
    shuffle: bool
    buffer: int
    seed: int

    @cached_property
    def rows(self) -> int:
        return sum(block.rows for block in self.blocks)

    @cached_property
    def batches(self) -> int:
        """Of each worker: as many of one as of another, so that no process waits for others."""
        most, least = -(-self.rows // self.consumers), self.rows // self.consumers
        return min(-(-most // self.batch_size), least)

    def part(self, consumer: int) -> range:
        """The rows of an epoch that are those of a worker."""
        return range(
            self.rows * consumer // self.consumers, self.rows * (consumer + 1) // self.consumers
        )

    def windows(self, epoch: int, consumer: int) -> list[list[tuple[Block, range]]]:
        """What a worker holds at a time: row groups, and which of their rows are its own."""
        order = range(len(self.blocks))
        if self.shuffle:
            order = self._random(epoch).permutation(len(self.blocks)).tolist()
        part = self.part(consumer)
        windows: list[list[tuple[Block, range]]] = []
        held = self.buffer
        start = 0
        for index in order:
            block = self.blocks[index]
            rows = range(max(part.start - start, 0), min(part.stop - start, block.rows))
            start += block.rows
            if len(rows) == 0:
                continue
            if held >= self.buffer:
                windows.append([])
                held = 0
            windows[-1].append((block, rows))
            held += len(rows)
        return windows

    def permutation(self, epoch: int, consumer: int, window: int, rows: int) -> NDArray[np.int64]:
        """The order of the rows of a window."""
        if not self.shuffle:
            return np.arange(rows)
        return self._random(epoch, consumer, window).permutation(rows)

    def _random(self, *place: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, *place])


class Part(IterableDataset[dict[str, Tensor] | Refusal]):
    """The batches of one process, for a loader without batches of its own."""

    def __init__(self, order: Order, rank: int, workers: int, epoch: int, done: int) -> None:
        self.order, self.rank, self.workers = order, rank, workers
        self.epoch, self.done = epoch, done

    def __iter__(self) -> Iterator[dict[str, Tensor] | Refusal]:
        info = get_worker_info()
        # Loaders ask their workers in turn: the first one is to be whoever would come next.
        worker = ((0 if info is None else info.id) + self.done) % self.workers
        consumer = self.rank * self.workers + worker
        made = self.done // self.workers + (worker < self.done % self.workers)
        try:
            yield from self._batches(consumer, made)
        except (ValueError, OSError) as error:
            yield Refusal(str(error))

    def _batches(self, consumer: int, made: int) -> Iterator[dict[str, Tensor]]:
        order, n = self.order, self.order.batches
        size = len(order.part(consumer))
        ends = iter([size * batch // n for batch in range(made + 1, n + 1)])
        end = next(ends, 0)
        at = size * made // n
        windows = order.windows(self.epoch, consumer)
        sizes = [sum(len(rows) for _, rows in window) for window in windows]
        parts: list[Columns] = []  # of the batch that comes next
        for number, stop in enumerate(accumulate(sizes)):
            if stop <= at:
                continue
            columns = joined([_rows_of(block, rows) for block, rows in windows[number]])
            shuffled = order.permutation(self.epoch, consumer, number, sizes[number])
            start = stop - sizes[number]
            while at < stop:
                taken = shuffled[at - start : end - start]
                parts.append({name: column.take(taken) for name, column in columns.items()})
                at += len(taken)
                if at == end:
                    yield _tensors(joined(parts))
                    end, parts = next(ends, 0), []


class SetLoader:
    """Batches of sets from Parquet files: more than fit into memory, over processes and workers.

    Every process gets other sets, and in each epoch all of them come exactly once, in a new order
    that the seed decides. All processes have as many batches as each other, so that none waits for
    one that another lacks: they hold ``batch_size`` sets or somewhat fewer, and differ in size by
    at most one. (Of batches of one set, some may then hold two.)

    A batch is a dictionary of tensors by the names of columns. Sets are filled up with zeros to the
    largest of the batch, [B, n, F], and ``NAME_valid`` [B, n] says which elements are real, as the
    losses want it; see :func:`setwise.collate_sets`, and `write_sets` for what files hold.

    An iteration that was broken off, or whose process was killed, goes on where it was: with
    `state_dict` and `load_state_dict`, no set of the epoch is lost, and none comes twice. The state
    is small, the same on all processes, and counts the batches that were handed out, whatever
    workers have prepared meanwhile.

    Args:
        source: a folder with files ``*.parquet``, or one such file.
        batch_size: sets in a batch, on each process.
        workers: processes that read; with 0, reading is done between batches.
        shuffle: whether the order is random; for evaluation, ``False``.
        buffer: at least so many sets are read and shuffled together, of row groups that are chosen
            at random. It is what a worker holds in memory.
        seed: of the order.
        rank: of this process; by default that of ``torch.distributed``, 0 where it is not in use.
        ranks: how many processes there are, by default as many as ``torch.distributed`` knows.
        pin_memory: as in ``torch.utils.data.DataLoader``.

    Example::

        loader = SetLoader("train", batch_size=64, workers=2)
        for epoch in range(loader.epoch, 10):
            for batch in loader:
                output = model(batch["picture"])
                loss = sw.set_cross_entropy(
                    output, batch["objects"], features, target_valid=batch["objects_valid"]
                )
    """

    def __init__(
        self,
        source: str | Path,
        batch_size: int,
        *,
        workers: int = 0,
        shuffle: bool = True,
        buffer: int = 8192,
        seed: int = 0,
        rank: int | None = None,
        ranks: int | None = None,
        pin_memory: bool = False,
    ) -> None:
        require_int("batch_size", batch_size, 1)
        require_int("workers", workers, 0)
        require_int("buffer", buffer, 1)
        require_int("seed", seed, 0)
        self.rank, self.ranks = _place(rank, ranks)
        self.workers, self.pin_memory = workers, pin_memory
        blocks, self.columns = find_blocks(Path(source))
        consumers = self.ranks * max(workers, 1)
        self.order = Order(tuple(blocks), batch_size, consumers, shuffle, buffer, seed)
        if self.order.rows < consumers:
            raise ValueError(
                f"{source}: {self.order.rows} sets are fewer than the {consumers} workers of "
                f"{self.ranks} processes; use fewer"
            )
        self.epoch = 0  # the one that is under way, or comes next
        self._done = 0  # batches of it that were handed out

    def __len__(self) -> int:
        """The batches of a whole epoch, on this process."""
        return self.order.batches * max(self.workers, 1)

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        part = Part(self.order, self.rank, max(self.workers, 1), self.epoch, self._done)
        batches: DataLoader[Any] = DataLoader(
            part, batch_size=None, num_workers=self.workers, pin_memory=self.pin_memory
        )
        for batch in batches:
            if isinstance(batch, Refusal):
                raise ValueError(batch.message)
            self._done += 1
            if self._done == len(self):
                self.epoch, self._done = self.epoch + 1, 0
            yield batch

    def state_dict(self) -> dict[str, Any]:
        """Where the iteration is: what to save with the weights of a step."""
        return {"epoch": self.epoch, "batches": self._done, "order": self._settings()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on after the last batch that was handed out before `state_dict`."""
        try:
            epoch, done, order = state["epoch"], state["batches"], dict(state["order"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError("state: expected what state_dict() gave") from error
        for name, ours in self._settings().items():
            if order.get(name) != ours:
                raise ValueError(
                    f"state: it is of {name} {order.get(name)!r}, this loader has {ours!r}; sets "
                    f"would be lost or come twice, so go on with what it was"
                )
        require_int("state: epoch", epoch, 0)
        require_int("state: batches", done, 0, len(self) - 1)
        self.epoch, self._done = epoch, done

    def _settings(self) -> dict[str, Any]:
        """What decides the order."""
        order = self.order
        files = [(block.path.name, block.group, block.rows) for block in order.blocks]
        return {
            "files": hashlib.sha256(repr((files, self.columns)).encode()).hexdigest()[:16],
            "batch_size": order.batch_size,
            "ranks": self.ranks,
            "workers": self.workers,
            "shuffle": order.shuffle,
            "buffer": order.buffer,
            "seed": order.seed,
        }


def _rows_of(block: Block, rows: range) -> Columns:
    columns = read_block(block)
    if len(rows) == block.rows:
        return columns
    these = np.arange(rows.start, rows.stop)
    return {name: column.take(these) for name, column in columns.items()}


def _tensors(columns: Columns) -> dict[str, Tensor]:
    batch = {}
    for name, (values, lengths) in columns.items():
        if lengths is None:
            batch[name] = torch.from_numpy(values)
        else:
            require_free(name, columns)
            batch[name], batch[valid_name(name)] = masked(
                torch.from_numpy(values), torch.from_numpy(lengths)
            )
    return batch


def _place(rank: int | None, ranks: int | None) -> tuple[int, int]:
    if (rank is None) != (ranks is None):
        raise ValueError(f"rank, ranks: expected both or none, got {rank} and {ranks}")
    if rank is None or ranks is None:
        distributed = torch.distributed
        if not (distributed.is_available() and distributed.is_initialized()):
            return 0, 1
        return distributed.get_rank(), distributed.get_world_size()
    require_int("ranks", ranks, 1)
    require_int("rank", rank, 0, ranks - 1)
    return rank, ranks
