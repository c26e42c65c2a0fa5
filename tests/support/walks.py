"""How walks of the Triton engine are split, and which tiles they visit."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from torch import Tensor


def watch_walks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Tensor, int]]:
    """Tiles visited, on the device, and all there are, of each walk from now on that has a list."""
    from setwise.kernels.triton import engine, tiles

    honest, seen = engine.tiles_to_visit, []

    def watched(
        kept: Tensor, M: int, N: int, F: int, walk: tiles.Tiles, owns_keys: bool, piece: int
    ) -> tuple[Tensor, Tensor]:
        listed, count = honest(kept, M, N, F, walk, owns_keys, piece)
        owners, others = (N, M) if owns_keys else (M, N)
        everything = len(kept) * tiles.blocks_in(owners, walk.a) * tiles.blocks_in(others, walk.c)
        seen.append((count.sum(), everything))
        return listed, count

    monkeypatch.setattr(engine, "tiles_to_visit", watched)
    return seen


def watch_splits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Pieces of each walk that is planned from now on."""
    from setwise.kernels.triton import plans

    honest, pieces = plans.split_walk, []

    def watched(*args: Any) -> tuple[int, int]:
        splits = honest(*args)
        pieces.append(splits[0])
        return splits

    monkeypatch.setattr(plans, "split_walk", watched)
    return pieces


def set_processors(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Take the device to have as many multiprocessors; how walks are split follows from it."""
    from setwise.kernels.triton import plans, tiles

    monkeypatch.setattr(tiles, "_processors", lambda device: count)
    for plan in ("logsumexp", "gradients"):  # those that are remembered are of another device
        monkeypatch.setattr(plans, plan, inspect.unwrap(getattr(plans, plan)))
