"""Whole pictures of Blocksworld states, and the sets of blocks that they show.

Legend: S states, N blocks, F features; H, W height and width of a picture in pixels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from setwise.data.blocksworld import Blocksworld
from setwise.data.scenes import LOOK, classes_of, one_hots
from setwise.experiments.tasks.drawn_blocks import DrawnBlocks
from setwise.experiments.tasks.read_right import ReadRight
from setwise.experiments.tasks.reading import ReadingData, padded
from setwise.experiments.tasks.rules import fingerprint
from setwise.experiments.tasks.task import CPU, DATA, Task, require_split
from setwise.features import Features, Gaussian
from setwise.worlds import PicturedBlocksworld, World

# A box is right if no edge is further off than the grid of `BlocksData` has pixels.
_PIXELS = 5.0


@dataclass(frozen=True)
class BlockPicturesData(DrawnBlocks, ReadingData):
    """Pictures of states, and of each block its look and its box.

    They are read from the folder of pictures, and bound to its settings, which decide every byte.
    A look is shape, colour, material and size; a box the x and y of its edges, from -1 to 1.
    """

    kind: ClassVar[str] = "block-pictures"
    blocks: int = 4
    # Of edges; see `setwise.data.scenes.SCENE`.
    scale: float = 0.05

    @property
    def reads(self) -> str:
        return PicturedBlocksworld.kind

    @property
    def world_name(self) -> str:
        return PicturedBlocksworld.name_of(Blocksworld(self.blocks, self.stacks))

    @property
    def size(self) -> tuple[int, int]:
        return self.width, self.height

    def preparation(self, folder: Path = DATA) -> str | None:
        from setwise.render import files

        place = self.place(folder)
        missing = sum(not files.finished(place, rank) for rank in self._ranks())
        return f"drawing {missing} pictures into {place}" if missing else None

    def prepare(self, folder: Path, progress: Callable[[int, int], None]) -> None:
        """Draw the pictures that are not there yet."""
        from setwise.render import render_states

        render_states(self.render_settings(), self._states(), self.place(folder), progress=progress)

    def unbound(self) -> BlockPicturesData:
        return replace(self, sha256="")

    def bound(self, folder: Path = DATA) -> BlockPicturesData:
        """The same data, bound to the settings of the pictures that are there now."""
        path = self.require_there(self.place(folder) / "settings.json")
        self.require_drawn(path)
        return replace(self, sha256=fingerprint(path))

    def load(self, folder: Path = DATA, device: torch.device = CPU) -> Task:
        require_split("data", self.train, self.states)
        path = self.require_bound(self.place(folder) / "settings.json")
        from setwise.render.patches import read_pictures

        pictures, described = read_pictures(path.parent, self._ranks(), self.blocks, self.size)
        looks = [[classes_of(block) for block in objects] for objects in described]
        boxes = [[block["bbox"] for block in objects] for objects in described]
        targets = self.targets(torch.tensor(looks), torch.tensor(boxes))
        return self.task(self.inputs(pictures), targets, self.train)

    def blank(self) -> Task:
        inputs = self.inputs(np.zeros((0, self.height, self.width, 3), dtype=np.uint8))
        return self.task(inputs, torch.zeros(0, self.blocks, self._features.width + 1), self.train)

    def inputs(self, pictures: NDArray[np.uint8]) -> Tensor:
        return padded(torch.from_numpy(pictures).movedim(-1, -3).float() / 255)

    def objects(self, elements: Tensor, picture: NDArray[np.uint8], world: World) -> Tensor:
        """What lies in the boxes that were found; of these the network tells more than is asked."""
        from setwise.render.patches import cut_array

        if not isinstance(world, PicturedBlocksworld) or world.see is None:
            raise ValueError(f"{world.name}: its objects are not made of parts of pictures")
        boxes = self._boxes(self._features.split(elements)[-1])
        patches = torch.from_numpy(cut_array(picture, boxes.numpy()))
        return world.see(patches.movedim(-1, -3).float().unsqueeze(0) / 255, boxes[None])[0]

    @property
    def _features(self) -> Features:
        return Features(*LOOK, Gaussian(4, scale=self.scale))

    def task(self, inputs: Tensor, targets: Tensor, train: int) -> Task:
        """Of inputs and targets, the first of them to train on."""
        within = tuple(2 * _PIXELS / side for side in 2 * self.size)
        measure = ReadRight(within)
        return Task(inputs, targets, train, self._features, measure=measure)

    def targets(self, looks: Tensor, boxes: Tensor) -> Tensor:
        """Blocks by the classes of their looks [S, N, 4] and their boxes [S, N, 4]; all exist."""
        edges = 2 * boxes.float() / torch.tensor(2 * self.size) - 1
        return torch.cat([one_hots(looks), edges, torch.ones(*edges.shape[:-1], 1)], dim=-1)

    def _boxes(self, edges: Tensor) -> Tensor:
        """Edges [N, 4] from -1 to 1 in whole pixels, at least one of them in every box."""
        sides = torch.tensor(2 * self.size)
        found = ((edges.nan_to_num() + 1) / 2 * sides).round().long()
        first = found[..., :2].clamp(min=0).minimum(sides[:2] - 1)
        last = found[..., 2:].maximum(first + 1).minimum(sides[2:])
        return torch.cat([first, last], dim=-1)

    def _states(self) -> Tensor:
        return Blocksworld(self.blocks, self.stacks).sample(self.states, self.seed)

    def _ranks(self) -> list[int]:
        ranks: list[int] = Blocksworld(self.blocks, self.stacks).rank(self._states()).tolist()
        return ranks
