"""Photo-realistic pictures of the Blocksworld: one scene description, several renderers.

An `Environment` is a world with a look, `scene_of` gives the picture of a state in numbers, and
`open_renderer` something that draws it. `scene_pictures` and `block_pictures` draw many into
tensors. ``render_states`` draws many into a folder, as ``Settings`` say, and ``collect`` cuts the
blocks out; these need Pillow and are loaded when first asked for.
"""

from typing import TYPE_CHECKING, Any

from setwise.render.backends import Renderer, open_renderer
from setwise.render.batches import Pictures, block_pictures, scene_pictures
from setwise.render.environment import Block, Environment
from setwise.render.scene import Scene, scene_of
from setwise.render.silhouette import boxes, visible_blocks
from setwise.render.tabletop import SceneSettings

if TYPE_CHECKING:
    from setwise.render.dataset import Settings as Settings
    from setwise.render.dataset import render_states as render_states
    from setwise.render.patches import collect as collect

__all__ = [
    "Block",
    "Environment",
    "Pictures",
    "Renderer",
    "Scene",
    "SceneSettings",
    "block_pictures",
    "boxes",
    "open_renderer",
    "scene_of",
    "scene_pictures",
    "visible_blocks",
]

_LAZY = ("Settings", "collect", "render_states")


def __dir__() -> list[str]:
    return [*__all__, *_LAZY]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from setwise.render import dataset, patches
    except ModuleNotFoundError as error:
        if error.name != "PIL":
            raise
        raise ModuleNotFoundError(
            f"setwise.render.{name} needs pillow; install it with pip install 'setwise[render]'",
            name=error.name,
        ) from error
    return getattr(patches if name == "collect" else dataset, name)
