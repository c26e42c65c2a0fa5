"""How loops of the Triton engine are split, and which tiles they visit."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from torch import Tensor


def watch_visits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Tensor, int]]:
    """Tiles visited, on the device, and all there are, of each loop from now on that has a list."""
    from setwise.kernels.triton import engine, tiles

    honest, seen = engine.tiles_to_visit, []

    def watched(
        kept: Tensor, M: int, N: int, F: int, loop: tiles.Tiles, rows_are_keys: bool, per_split: int
    ) -> tuple[Tensor, Tensor]:
        listed, count = honest(kept, M, N, F, loop, rows_are_keys, per_split)
        rows, columns = (N, M) if rows_are_keys else (M, N)
        everything = len(kept) * tiles.blocks_in(rows, loop.a) * tiles.blocks_in(columns, loop.c)
        seen.append((count.sum(), everything))
        return listed, count

    monkeypatch.setattr(engine, "tiles_to_visit", watched)
    return seen


def watch_splits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of splits of each loop that is planned from now on."""
    from setwise.kernels.triton import plans

    honest, counts = plans.choose_splits, []

    def watched(*args: Any) -> tuple[int, int]:
        splits = honest(*args)
        counts.append(splits[0])
        return splits

    monkeypatch.setattr(plans, "choose_splits", watched)
    return counts


def set_sm_count(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Take the device to have as many multiprocessors; how loops are split follows from it."""
    from setwise.kernels.triton import plans, tiles

    monkeypatch.setattr(tiles, "sm_count", lambda device: count)
    for plan in ("logsumexp", "gradients"):  # those that are remembered are of another device
        monkeypatch.setattr(plans, plan, inspect.unwrap(getattr(plans, plan)))
