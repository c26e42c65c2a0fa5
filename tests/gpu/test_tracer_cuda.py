"""Pictures that a GPU traces, held against those of the CPU."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from setwise.render import SceneSettings, scene_pictures
from setwise.render.chunks import _BYTES
from setwise.render.scenes import draw_scenes
from setwise.render.tracer import TorchRenderer

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
SETTINGS = SceneSettings(renderer="torch", width=64, height=64, samples=8)


def test_a_gpu_draws_the_pictures_of_the_cpu() -> None:
    """The same scenes, and the same bytes but for a few: rounding is alike, libraries differ."""
    here = scene_pictures(SETTINGS, range(12))
    there = scene_pictures(SETTINGS, range(12), device="cuda")
    assert there.pictures.is_cuda
    assert there.objects.cpu().equal(here.objects)
    assert there.valid.cpu().equal(here.valid)
    assert (there.pictures.cpu() != here.pictures).float().mean() < 1e-3


def test_pictures_are_the_same_bytes_however_many_are_drawn_at_once() -> None:
    drawn = SETTINGS.scenes(range(6))
    renderer = TorchRenderer(64, 64, 8, "cuda")
    together = renderer.many(drawn)
    renderer.chunks.rays, renderer.chunks.pixels = 5000, 1
    assert np.array_equal(renderer.many(drawn), together)


def test_no_more_than_a_share_of_the_free_memory_is_taken() -> None:
    """By scenes with as many objects as there is room for."""
    crowded = SceneSettings(renderer="torch", least=12, most=16)
    renderer = TorchRenderer(128, 128, 32, "cuda")
    before, rays = torch.cuda.memory_allocated(), min(renderer.chunks.rays, 2**21)
    renderer.chunks.rays = renderer.chunks.pixels = rays  # in less time
    torch.cuda.reset_peak_memory_stats()
    renderer.draw(crowded.scenes(range(8), "cuda") * (renderer.at_once // 8))
    assert torch.cuda.max_memory_allocated() - before < _BYTES * rays


def test_memory_that_another_holds_is_done_without() -> None:
    """The size was chosen when it was still free."""
    drawn = SETTINGS.scenes(range(6), "cuda") * 16
    renderer = TorchRenderer(64, 64, 8, "cuda")
    expected = renderer.many(drawn)
    chosen = renderer.chunks.rays = renderer.chunks.pixels = 2**19
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    kept = torch.cuda.memory_reserved() + 2**28
    try:
        torch.cuda.set_per_process_memory_fraction(kept / total)
        assert np.array_equal(renderer.many(drawn), expected)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert renderer.chunks.rays < chosen


def test_files_are_the_same_however_many_processes_describe_them(tmp_path: Path) -> None:
    for workers in (1, 3):
        draw_scenes(SETTINGS, 9, tmp_path / str(workers), workers=workers, device="cuda")
    one, other = (
        {
            path.relative_to(tmp_path / name): path.read_bytes()
            for kind in ("png", "json", "npz")
            for path in (tmp_path / name).rglob(f"*.{kind}")
        }
        for name in "13"
    )
    assert len(one) == 9 + 9 + 2  # and the settings and the archive
    assert one == other
    described = [content for path, content in one.items() if path.parent.name == "scenes"]
    assert {json.loads(content)["device"] for content in described} == {"cuda"}
