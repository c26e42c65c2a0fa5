"""Whole pictures of Blocksworld states that are drawn when they are asked for, and never kept.

Legend: S states, N blocks, V views of a state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

from setwise.data.blocksworld import Blocksworld
from setwise.data.checks import require_int
from setwise.experiments.tasks.block_pictures import BlockPicturesData
from setwise.experiments.tasks.reading import padded
from setwise.experiments.tasks.task import CPU, DATA, Task, require_split
from setwise.render import Environment
from setwise.render.backends import RendererName
from setwise.render.batches import block_pictures


@dataclass(frozen=True)
class TracedBlocksData(BlockPicturesData):
    """As `BlockPicturesData`, by the renderer torch: on a GPU thousands of pictures in seconds.

    Of each state to train on there are ``views`` pictures, with another jitter of camera and lamps
    in each; of those held out there is one, as ``setwise data blocksworld`` draws it.
    """

    kind: ClassVar[str] = "traced-blocks"
    renderer: RendererName = "torch"
    views: int = 1

    def preparation(self, folder: Path = DATA) -> str | None:
        return None

    def prepare(self, folder: Path, progress: Callable[[int, int], None]) -> None:
        """There are no files."""

    def bound(self, folder: Path = DATA) -> TracedBlocksData:
        return self

    def unbound(self) -> TracedBlocksData:
        return self

    def load(self, folder: Path = DATA, device: torch.device = CPU) -> Task:
        require_split("data", self.train, self.states)
        require_int("views", self.views, 1)
        if self.renderer != "torch":
            raise ValueError(f"renderer: only torch draws without files, not {self.renderer}")
        world = Blocksworld(self.blocks, self.stacks)
        states = world.sample(self.states, self.seed)
        known, others = states[: self.train], states[self.train :]
        seeds = [self.seed + view for view in range(self.views) for _ in known]
        pictures, looks, boxes = block_pictures(
            Environment.draw(world, self.seed),
            torch.cat([known.repeat(self.views, 1, 1), others]),
            [*seeds, *(self.seed for _ in others)],
            width=self.width,
            height=self.height,
            samples=self.samples,
            device=device,
        )
        targets = self.targets(looks.cpu(), boxes.cpu())
        inputs = padded(pictures.cpu().float() / 255)
        return self.task(inputs, targets, len(seeds))

    def numbers(self) -> int:
        pictures = self.train * (self.views - 1) + self.states
        return pictures * 3 * self.width * self.height
