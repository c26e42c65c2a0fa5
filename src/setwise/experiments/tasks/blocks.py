"""Blocksworld states as sets of object vectors, out of the archive of their pictures.

Legend: S states, N blocks, F features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import torch

from setwise.data.blocksworld import Blocksworld
from setwise.data.blocksworld_archive import BlocksworldArchive, archive_name
from setwise.data.blocksworld_objects import BoxGrid
from setwise.experiments.tasks.drawn_blocks import DrawnBlocks
from setwise.experiments.tasks.patches import (
    PatchTraining,
    patch_autoencoder,
    require_autoencoder,
)
from setwise.experiments.tasks.picture_error import PictureError
from setwise.experiments.tasks.rules import fingerprint
from setwise.experiments.tasks.task import CPU, DATA, Task, require_split
from setwise.features import Bernoulli, Features
from setwise.features.family import Scoring
from setwise.worlds import PicturedBlocksworld, World


@dataclass(frozen=True)
class BlocksData(DrawnBlocks):
    """Pictures of Blocksworld states, each a set of blocks, out of the archive of these.

    A block is the features of its patch and the classes of its box: 1024 and 60 + 40 + 60 + 40. The
    patch autoencoder learns from the states to train on as well.
    """

    kind: ClassVar[str] = "blocks"
    # Boxes are discretised by so many pixels.
    cell: int = 5
    # The patch autoencoder and how it is trained, with Adam; a patch has 64 features a channel.
    patch_channels: int = 16
    patch_epochs: int = 150
    patch_batch: int = 125
    patch_rate: float = 1e-3
    patch_seed: int = 0
    scored_as: Scoring = "bernoulli"

    def archive(self, folder: Path = DATA) -> Path:
        """Where the archive is, below the folder of all data."""
        return self.place(folder) / archive_name(self.states)

    def preparation(self, folder: Path = DATA) -> str | None:
        path = self.archive(folder)
        return None if path.exists() else f"drawing {self.states} pictures into {path.parent}"

    def prepare(self, folder: Path, progress: Callable[[int, int], None]) -> None:
        """Draw the pictures that are not there yet; then write their archive.

        Where the renderer torch finds a GPU, there: the data are bound to the bytes of the archive,
        in which a GPU rounds otherwise than a CPU.
        """
        from setwise.render.archive import draw_archive

        place = self.archive(folder).parent
        on_gpu = self.renderer == "torch" and torch.cuda.is_available()
        device = "cuda" if on_gpu else "cpu"
        draw_archive(self.render_settings(), self.states, place, progress=progress, device=device)

    def unbound(self) -> BlocksData:
        return replace(self, sha256="")

    def bound(self, folder: Path = DATA) -> BlocksData:
        """The same data, bound to the archive that is there now.

        If it was drawn here, then as the data say; of one from elsewhere nothing is known.
        """
        path = self.require_there(self.archive(folder))
        self.require_drawn(path)
        return replace(self, sha256=fingerprint(path))

    def load(self, folder: Path = DATA, device: torch.device = CPU) -> Task:
        """Trains the patch autoencoder, on the device, unless that has been done before."""
        path = self.require_bound(self.archive(folder))
        archive = BlocksworldArchive.read(path)
        self._check(archive, path)
        patches = torch.from_numpy(archive.patches).movedim(-1, -3).float() / 255
        grid = BoxGrid(self.height, self.width, self.cell)
        seen = patches[: self.train].flatten(0, 1)
        model = patch_autoencoder(self.patch_training, seen, path.parent, device)
        measure = PictureError(model, grid)
        boxes = torch.from_numpy(archive.boxes.astype("int64"))
        parts = zip(patches.split(200), boxes.split(200), strict=True)
        sets = torch.cat([measure.elements(*part) for part in parts])
        features = Features(Bernoulli(model.features), *grid.features(self.scored_as))
        return Task(sets, sets, self.train, features, measure=measure)

    @property
    def world_kind(self) -> str | None:
        return PicturedBlocksworld.kind

    def world(self, task: Task, folder: Path = DATA) -> World:
        assert isinstance(task.measure, PictureError)
        return PicturedBlocksworld.of_archive(
            self.archive(folder),
            Blocksworld(self.blocks, self.stacks),
            task.targets,
            task.features,
            seed=self.seed,
            paste=task.measure.pictures,
            see=task.measure.elements,
        )

    def require_learned(self, folder: Path, learned: str | None) -> None:
        require_autoencoder(self.patch_training, self.archive(folder).parent, learned)

    @property
    def patch_training(self) -> PatchTraining:
        """All that decides the patch autoencoder."""
        return PatchTraining(
            channels=self.patch_channels,
            epochs=self.patch_epochs,
            batch=self.patch_batch,
            rate=self.patch_rate,
            seed=self.patch_seed,
            sha256=self.sha256,
            train=self.train,
        )

    def _check(self, archive: BlocksworldArchive, path: Path) -> None:
        """An archive may come from elsewhere, with anything in it."""
        states, blocks = archive.boxes.shape[:2]
        expected = (self.states, self.blocks, (self.height, self.width))
        if (states, blocks, archive.picture) != expected:
            raise ValueError(
                f"{path}: expected states, blocks and size {expected}, "
                f"got {(states, blocks, archive.picture)}"
            )
        require_split("data", self.train, self.states)
