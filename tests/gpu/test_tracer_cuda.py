"""Pictures that a GPU traces, held against those of the CPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from setwise.render import SceneSettings, scene_pictures
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


def test_pictures_are_the_same_bytes_however_many_are_drawn_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn = SETTINGS.scenes(range(6))
    renderer = TorchRenderer(64, 64, 8, "cuda")
    together = renderer.many(drawn)
    monkeypatch.setattr("setwise.render.tracer._AT_ONCE", {"cuda": 5000})
    monkeypatch.setattr("setwise.render.tracer._PIXELS", {"cuda": 1})
    assert np.array_equal(renderer.many(drawn), together)
