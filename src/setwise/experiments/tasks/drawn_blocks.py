"""Pictures of Blocksworld states that a renderer draws into a folder: what decides them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from setwise.data.blocksworld import Blocksworld
from setwise.data.blocksworld_archive import folder_name
from setwise.experiments.tasks.rules import fingerprint
from setwise.experiments.tasks.task import DATA, DataConfig
from setwise.outside import read_json
from setwise.render.backends import RendererName

if TYPE_CHECKING:
    from setwise.render import Settings


@dataclass(frozen=True)
class DrawnBlocks(DataConfig):
    """What pictures of states show, and how they are drawn; see ``setwise data blocksworld``."""

    blocks: int = 5
    stacks: int = 3
    states: int = 2500
    seed: int = 0
    renderer: RendererName = "mitsuba"
    width: int = 300
    height: int = 200
    samples: int = 32
    # Of the file that the data are read from; another is refused. Empty while it is still to be
    # made.
    sha256: str = ""
    # The first `train` states are trained on, the others are held out.
    train: int = 2250

    def place(self, folder: Path = DATA) -> Path:
        """Where the pictures are, below the folder of all data."""
        return folder / folder_name(self.blocks, self.width, self.height)

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

    def require_there(self, path: Path) -> Path:
        """The file that the data are read from; an error says how to make it."""
        if not path.is_file():
            raise ValueError(
                f"{path}: there are no pictures; make them with setwise data blocksworld "
                f"--blocks {self.blocks} --stacks {self.stacks} --states {self.states} "
                f"--seed {self.seed} --renderer {self.renderer} --width {self.width} "
                f"--height {self.height} --samples {self.samples} --output {path.parent}"
            )
        return path

    def require_bound(self, path: Path) -> Path:
        """The file that the data are read from, which must be the one that they are bound to."""
        self.require_there(path)
        if fingerprint(path) != self.sha256:
            raise ValueError(
                f"{path}: not the pictures of this config: their SHA-256 is "
                f"{self.sha256 or f'not settled yet, see {type(self).__name__}.bound'}, that of "
                f"the file {fingerprint(path)}"
            )
        return path

    def require_drawn(self, path: Path) -> None:
        """The settings beside a file tell how it was drawn; without any, nothing is known of it."""
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
