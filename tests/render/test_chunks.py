"""How much the tracer does at once, by the memory there is: no byte of a picture depends on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from setwise.render import chunks
from setwise.render.bodies import Bodies, Rays
from setwise.render.tabletop import SceneSettings
from setwise.render.tracer import TorchRenderer, owners

TABLE = SceneSettings(renderer="torch", width=24, height=24, samples=2, least=2, most=5)
pytestmark = pytest.mark.slow


def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch, renderer: TorchRenderer, rays: int) -> None:
    """With the chunks of one on which so many rays are a quarter of what is free."""
    free = 4 * chunks._BYTES * rays
    monkeypatch.setattr(chunks, "_LEAST", 100)
    # A part of it is free for PyTorch alone.
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free - 5000, 2**40))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 2**33 + 5000)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 2**33)
    renderer.chunks = chunks.Chunks(torch.device("cuda"))
    assert (renderer.chunks.rays, renderer.chunks.pixels) == (rays, rays)


def test_pictures_are_the_same_bytes_however_much_memory_a_gpu_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Around the bounds at which all of a picture, or two, are too many."""
    drawn = [*TABLE.scenes(range(5)), *TABLE.scenes([0, 3])]
    renderer = TorchRenderer(24, 24, 5)
    expected = renderer.many(drawn)
    pixels = 24 * 24
    for rays in (pixels - 1, pixels, pixels + 1, 2 * pixels - 1, 2 * pixels):
        as_on_a_gpu(monkeypatch, renderer, rays)
        assert renderer.at_once == max(1, rays // pixels)
        assert np.array_equal(renderer.many(drawn), expected)


def test_where_memory_ends_the_same_bytes_are_drawn_in_smaller_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another took what was free when the size was chosen."""
    drawn = TABLE.scenes(range(4))
    expected = TorchRenderer(24, 24, 2).many(drawn)
    whose = owners(drawn, 24, 24, "cpu", grid=2)
    room, nearest = 300, Bodies.nearest
    tried: list[int] = []

    def bounded(bodies: Bodies, rays: Rays) -> Any:
        tried.append(len(rays.scene))
        if len(rays.scene) > room:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return nearest(bodies, rays)

    monkeypatch.setattr(Bodies, "nearest", bounded)
    renderer = TorchRenderer(24, 24, 2)
    as_on_a_gpu(monkeypatch, renderer, 4 * 24 * 24)
    assert renderer.at_once == 4
    assert np.array_equal(renderer.many(drawn), expected)
    assert max(tried) > room
    assert renderer.chunks.rays < 4 * 24 * 24
    tried.clear()
    assert np.array_equal(renderer.many(drawn), expected)
    assert max(tried) <= room  # it is not tried again
    assert owners(drawn, 24, 24, "cpu", grid=2).equal(whose)
    room = -1
    with pytest.raises(torch.cuda.OutOfMemoryError):
        renderer.many(drawn)


def test_memory_is_bounded_by_the_points_that_are_looked_at() -> None:
    few, many = (TorchRenderer(16, 16, samples).at_once for samples in (32, 320))
    assert few == 10 * many + few % 10
    assert TorchRenderer(999, 999, 9999).at_once == 1


def test_a_closed_renderer_gives_back_the_memory_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    given_back: list[str] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: given_back.append("all"))
    renderer = TorchRenderer(8, 8, 1)
    renderer.close()
    assert not given_back
    renderer.device = torch.device("cuda")
    renderer.close()
    assert given_back == ["all"]
