"""What makes long commands short; each is called in the process of the command, before it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from setwise.experiments.config import Config
from setwise.experiments.networks import Autoencoder
from setwise.experiments.recipes import EXPERIMENTS, demo, table5
from setwise.experiments.tasks import PuzzleData
from tiny_recipe import EXPERIMENT


def _small(config: Config) -> Config:
    """The same on the 2 x 2 puzzle, with a network of a few units."""
    return replace(
        config,
        data=PuzzleData(width=2, height=2, states=24, train=24),
        network=Autoencoder(element_widths=(8,), widths=(8,), latent=6, decoder_width=8),
        schedule=replace(config.schedule, epochs=4, batch=24, evaluations=2),
    )


def small_demo() -> None:
    """Small networks, saved after every epoch."""
    whole = demo.config
    demo.config = lambda loss, seed: _small(whole(loss, seed))
    importlib.import_module("setwise.demo.learn").SAVE_EVERY = 0.0


def tiny_table() -> None:
    """A preset of Table 1 that takes a second."""
    EXPERIMENTS._entries[EXPERIMENT.name] = EXPERIMENT


def small_table5() -> None:
    """Its quick preset with a small network, and two problems instead of ten."""

    def config(scenario: str, loss: str, seed: int) -> Config:
        return _small(table5.quick(scenario, loss, seed))

    table5.QUICK_NETWORKS = replace(table5.QUICK_NETWORKS, config=config)
    table5.QUICK = {
        name: replace(scenario, steps=steps, problems=1)
        for (name, scenario), steps in zip(table5.QUICK.items(), (2, 4), strict=True)
    }


def painted() -> None:
    """A renderer that needs no time: numbers of the scene for colours."""
    from setwise.render import dataset

    @contextmanager
    def opened(name: str, *, width: int, height: int, **options: Any) -> Iterator[Any]:
        def draw(scene: Any) -> Any:
            numbers = np.array([block.location for block in scene.blocks]).ravel()
            return np.resize((numbers * 40).astype(np.uint8), (height, width, 3))

        yield draw

    dataset.open_renderer = opened
    dataset.renderer_version = lambda *call: "painted"
