"""Rendered scenes, and the sets of objects that they show.

Legend: S pictures, M places for objects, F features.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import torch

from setwise.data.scenes import LOOK, REACH, SceneArchive, archive_name
from setwise.experiments.tasks.rules import fingerprint
from setwise.experiments.tasks.sprites import PicturePrecision
from setwise.experiments.tasks.task import CPU, DATA, DataConfig, Task, require_split
from setwise.experiments.tasks.varied_scenes import varied_scenes
from setwise.features import Features, Gaussian
from setwise.render.backends import RendererName

if TYPE_CHECKING:
    from setwise.render.tabletop import SceneSettings

# Within which distance an object is found, in the units of scenes: those of the papers on CLEVR.
LIMITS = {"ap": math.inf, "ap_1": 1.0, "ap_0.5": 0.5, "ap_0.25": 0.25, "ap_0.125": 0.125}


@dataclass(frozen=True)
class ScenesData(DataConfig):
    """Pictures of ``least`` to ``most`` objects; networks say which of their outputs exist."""

    kind: ClassVar[str] = "scenes"
    pictures: int = 22_000
    # The first `train` pictures are trained on, the others are held out.
    train: int = 20_000
    renderer: RendererName = "mitsuba"
    seed: int = 0
    width: int = 128
    height: int = 128
    samples: int = 32
    least: int = 3
    most: int = 10
    # Of places, in the loss: what a distance costs is 1 / (2 scale^2) times its square.
    scale: float = 0.2
    # An archive in the folder of data to take instead, such as one by ``setwise data clevr``.
    file: str = ""
    # Of the archive; another is refused. Empty while it is still to be made.
    sha256: str = ""
    # Whether pictures are mirrored and lit otherwise each time that they are trained on; see
    # `setwise.experiments.tasks.varied_scenes`.
    varied: bool = field(default=False, metadata={"later": True})

    def __post_init__(self) -> None:
        if self.varied and self.file:
            raise ValueError(
                f"varied: expected pictures by our own renderers, whose camera looks along y, so "
                f"that mirrored ones show another x; got the archive {self.file!r}, leave varied "
                f"at False"
            )

    def archive(self, folder: Path = DATA) -> Path:
        """Where the archive is, below the folder of all data."""
        if self.file:
            return folder / self.file
        return folder / self.folder_name / archive_name(self.pictures)

    @property
    def folder_name(self) -> str:
        """What ``setwise data scenes`` calls the folder of pictures.

        >>> ScenesData().folder_name, ScenesData(renderer="sketch", width=64).folder_name
        ('scenes', 'scenes-sketch-64x128')
        """
        size = "" if (self.width, self.height) == (128, 128) else f"-{self.width}x{self.height}"
        return f"scenes{'' if self.renderer == 'mitsuba' else f'-{self.renderer}'}{size}"

    def preparation(self, folder: Path = DATA) -> str | None:
        path = self.archive(folder)
        if self.file or path.exists():
            return None
        return f"drawing {self.pictures} pictures into {path.parent}"

    def prepare(self, folder: Path, progress: Callable[[int, int], None]) -> None:
        """Draw the pictures that are not there yet; then write their archive.

        Where the renderer torch finds a GPU nothing else is written: so few minutes can be lost.
        """
        path, settings = self.archive(folder), self.render_settings()
        if self.renderer == "torch" and torch.cuda.is_available():
            from setwise.render.batches import scene_archive

            scene_archive(settings, self.pictures, "cuda", progress).write(path)
        else:
            from setwise.render.scenes import draw_scenes

            draw_scenes(settings, self.pictures, path.parent, progress=progress)

    def render_settings(self) -> SceneSettings:
        """What the pictures are drawn with."""
        from setwise.render.tabletop import SceneSettings

        names = ("renderer", "seed", "width", "height", "samples", "least", "most")
        return SceneSettings(**{name: getattr(self, name) for name in names})

    def unbound(self) -> ScenesData:
        return replace(self, sha256="")

    def bound(self, folder: Path = DATA) -> ScenesData:
        return replace(self, sha256=fingerprint(self._existing(folder)))

    def load(self, folder: Path = DATA, device: torch.device = CPU) -> Task:
        require_split("data", self.train, self.pictures)
        path = self._existing(folder)
        if fingerprint(path) != self.sha256:
            raise ValueError(
                f"{path}: not the pictures of this config: their SHA-256 is "
                f"{self.sha256 or 'not settled yet, see ScenesData.bound'}, that of the file "
                f"{fingerprint(path)}"
            )
        archive = SceneArchive.read(path)
        if len(archive.pictures) != self.pictures:
            raise ValueError(
                f"{path}: expected {self.pictures} pictures, it has {len(archive.pictures)}"
            )
        objects, valid = archive.sets()
        targets = torch.cat([objects, valid.unsqueeze(-1).float()], dim=-1)
        pictures = torch.from_numpy(archive.pictures).movedim(-1, -3).float() / 255
        limits = tuple((name, limit / REACH) for name, limit in LIMITS.items())
        features = Features(*LOOK, Gaussian(3, scale=self.scale))
        return Task(
            *(pictures, targets, self.train, features),
            measure=PicturePrecision(limits),
            vary=varied_scenes if self.varied else None,
        )

    def _existing(self, folder: Path) -> Path:
        path = self.archive(folder)
        if not path.is_file():
            how = "setwise data clevr" if self.file else "setwise data scenes"
            raise ValueError(f"{path}: there are no pictures; make them with {how}")
        return path
