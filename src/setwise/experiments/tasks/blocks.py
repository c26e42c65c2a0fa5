"""Blocksworld states as sets of object vectors, out of the archive of their pictures.

Legend: S states, N blocks, F features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import torch

from setwise.data.blocksworld import Blocksworld
from setwise.data.blocksworld_archive import BlocksworldArchive, archive_name, folder_name
from setwise.data.blocksworld_objects import BoxGrid
from setwise.experiments.tasks.patches import (
    PatchTraining,
    patch_autoencoder,
    require_autoencoder,
)
from setwise.experiments.tasks.picture_error import PictureError
from setwise.experiments.tasks.rules import fingerprint
from setwise.experiments.tasks.task import CPU, DATA, DataConfig, Task, require_split
from setwise.features import Bernoulli, Features
from setwise.features.family import Scoring
from setwise.outside import read_json
from setwise.worlds import PicturedBlocksworld, World

if TYPE_CHECKING:
    from setwise.render import Settings


@dataclass(frozen=True)
class BlocksData(DataConfig):
    """Pictures of Blocksworld states, each a set of blocks; see ``setwise data blocksworld``.

    A block is the features of its patch and the classes of its box: 1024 and 60 + 40 + 60 + 40.
    """

    kind: ClassVar[str] = "blocks"
    # What the pictures show, and how they are drawn.
    blocks: int = 5
    stacks: int = 3
    states: int = 2500
    seed: int = 0
    renderer: Literal["mitsuba", "blender", "sketch"] = "mitsuba"
    width: int = 300
    height: int = 200
    samples: int = 32
    # Of the archive that holds them; another is refused. Empty while it is still to be made.
    sha256: str = ""
    # The first `train` states are trained on, by the patch autoencoder too.
    train: int = 2250
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
        return (
            folder / folder_name(self.blocks, self.width, self.height) / archive_name(self.states)
        )

    def preparation(self, folder: Path = DATA) -> str | None:
        path = self.archive(folder)
        return None if path.exists() else f"drawing {self.states} pictures into {path.parent}"

    def prepare(self, folder: Path, progress: Callable[[int, int], None]) -> None:
        """Draw the pictures that are not there yet; then write their archive."""
        from setwise.render.archive import draw_archive

        place = self.archive(folder).parent
        draw_archive(self.render_settings(), self.states, place, progress=progress)

    def render_settings(self) -> Settings:
        """What the pictures are drawn with."""
        from setwise.render import Environment, Settings

        return Settings(
            Environment.draw(Blocksworld(self.blocks, self.stacks), self.seed),
            renderer=self.renderer,
            seed=self.seed,
            width=self.width,
            height=self.height,
            samples=self.samples,
        )

    def unbound(self) -> BlocksData:
        return replace(self, sha256="")

    def bound(self, folder: Path = DATA) -> BlocksData:
        """The same data, bound to the archive that is there now.

        If it was drawn here, then as the data say; of one from elsewhere nothing is known.
        """
        path = self._existing(folder)
        self._check_drawn(path)
        return replace(self, sha256=fingerprint(path))

    def load(self, folder: Path = DATA, device: torch.device = CPU) -> Task:
        """Trains the patch autoencoder, on the device, unless that has been done before."""
        path = self._existing(folder)
        if fingerprint(path) != self.sha256:
            raise ValueError(
                f"{path}: not the pictures of this config: their SHA-256 is "
                f"{self.sha256 or 'not settled yet, see BlocksData.bound'}, that of the file "
                f"{fingerprint(path)}"
            )
        archive = BlocksworldArchive.read(path)
        self._check(archive, path)
        patches = torch.from_numpy(archive.patches).movedim(-1, -3).float() / 255
        grid = BoxGrid(self.height, self.width, self.cell)
        seen = patches[: self.train].flatten(0, 1)
        model = patch_autoencoder(self.patch_training, seen, path.parent, device)
        with torch.no_grad():
            looks = torch.cat([model.encode(some) for some in patches.split(200)])
        boxes = grid.one_hots(torch.from_numpy(archive.boxes.astype("int64")))
        features = Features(Bernoulli(model.features), *grid.features(self.scored_as))
        sets = torch.cat([looks, boxes], dim=-1)
        return Task(sets, sets, self.train, features, measure=PictureError(model, grid))

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

    def _existing(self, folder: Path) -> Path:
        path = self.archive(folder)
        if not path.is_file():
            raise ValueError(
                f"{path}: there are no pictures; make them with setwise data blocksworld "
                f"--blocks {self.blocks} --stacks {self.stacks} --states {self.states} "
                f"--seed {self.seed} --renderer {self.renderer} --width {self.width} "
                f"--height {self.height} --samples {self.samples} --output {path.parent}"
            )
        return path

    def _check_drawn(self, path: Path) -> None:
        """An archive has no room for how it was drawn; the settings beside it tell."""
        settings = path.with_name("settings.json")
        if not settings.exists():
            return
        drawn = read_json(settings)
        for part in ("environment", "world"):
            inner = drawn.get(part)
            drawn |= inner if isinstance(inner, dict) else {}
        different = [
            f"{name} {drawn.get(name)} instead of {getattr(self, name)}"
            for name in ("blocks", "stacks", "seed", "renderer", "width", "height", "samples")
            if drawn.get(name) != getattr(self, name)
        ]
        if different:
            raise ValueError(
                f"{path}: by {settings.name} beside it, drawn in another way than the config says "
                f"({'; '.join(different)}): use another folder of data, or remove this one"
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
