"""Objects of rendered scenes: what can be told of one, and the pictures and sets of many in a file.

Legend: S pictures, M places for objects, F features; H, W height and width in pixels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from setwise.data.blocksworld import MATERIALS
from setwise.features import Categorical, Features, Gaussian
from setwise.files import atomic_write
from setwise.outside import named, read_arrays

# The words of CLEVR (Johnson et al., 2017), in the order of the classes.
WORDS: dict[str, tuple[str, ...]] = {
    "shape": ("cube", "cylinder", "sphere"),
    "color": ("gray", "red", "blue", "green", "brown", "purple", "cyan", "yellow"),
    "material": MATERIALS,
    "size": ("large", "small"),
}
LOOK = tuple(Categorical(len(words)) for words in WORDS.values())
REACH = 3.0  # places are given from -REACH to REACH, and are -1 to 1 as features

# An object: its look, and where its middle is, x and y on the ground and z above it. The scale is
# wide, as that of `setwise.data.sprites.SPRITE`.
SCENE = Features(*LOOK, Gaussian(3, scale=0.4))


def classes_of(described: Mapping[str, Any]) -> list[int]:
    """The classes of an object by its words, as descriptions of scenes have them.

    >>> classes_of({"shape": "sphere", "color": "red", "material": "metal", "size": "small"})
    [2, 1, 1, 1]
    """
    found = []
    for name, words in WORDS.items():
        if (word := described.get(name)) not in words:
            raise ValueError(f"{name}: expected one of {', '.join(words)}, got {word!r:.60}")
        found.append(words.index(word))
    return found


def archive_name(pictures: int) -> str:
    """What ``setwise data scenes`` calls the archive of so many pictures.

    >>> archive_name(22000)
    'scenes-22000.npz'
    """
    return f"scenes-{pictures}.npz"


def one_hots(classes: Tensor) -> Tensor:
    """Classes [*, 4] as features of a look [*, 15]."""
    pairs = zip(classes.long().unbind(-1), WORDS.values(), strict=True)
    parts = [torch.nn.functional.one_hot(own, len(words)) for own, words in pairs]
    return torch.cat(parts, dim=-1).float()


@dataclass(frozen=True)
class SceneArchive:
    """Pictures of scenes, and the objects that each of them shows, the first ``counts`` of M.

    A file holds ``pictures`` uint8 [S, H, W, 3], ``classes`` uint8 [S, M, 4] in the order of
    `WORDS`, ``places`` float32 [S, M, 3] and ``counts`` [S].
    """

    pictures: NDArray[np.uint8]
    classes: NDArray[np.uint8]
    places: NDArray[np.float32]
    counts: NDArray[np.int64]

    def __post_init__(self) -> None:
        scenes, most = self.classes.shape[:2] if self.classes.ndim == 3 else (0, 0)
        expected = {
            "pictures": (np.uint8, 4, (scenes, *self.pictures.shape[1:3], 3)),
            "classes": (np.uint8, 3, (scenes, most, len(WORDS))),
            "places": (np.float32, 3, (scenes, most, 3)),
            "counts": (np.int64, 1, (scenes,)),
        }
        for name, (dtype, dimensions, shape) in expected.items():
            array = getattr(self, name)
            if array.dtype != dtype or array.ndim != dimensions or array.shape != shape:
                raise ValueError(
                    f"{name}: expected {dtype.__name__} {list(shape)}, got {array.dtype} "
                    f"{list(array.shape)}"
                )
        if ((self.counts < 0) | (self.counts > most)).any():
            raise ValueError(f"counts: expected 0 to {most} objects in each picture")
        sizes = np.array([len(words) for words in WORDS.values()])
        if (self.classes >= sizes).any():
            raise ValueError(f"classes: expected numbers below {sizes.tolist()}")
        if not np.isfinite(self.places).all():
            raise ValueError("places: expected finite numbers")

    @staticmethod
    def of(
        pictures: NDArray[np.uint8], scenes: Sequence[Sequence[Mapping[str, Any]]]
    ) -> SceneArchive:
        """Pictures [S, H, W, 3], and of each its objects in the words of CLEVR."""
        most = max((len(objects) for objects in scenes), default=0)
        classes = np.zeros((len(scenes), most, len(WORDS)), dtype=np.uint8)
        places = np.zeros((len(scenes), most, 3), dtype=np.float32)
        for number, objects in enumerate(scenes):
            for place, described in enumerate(objects):
                classes[number, place] = classes_of(described)
                places[number, place] = place_of(described)
        counts = np.array([len(objects) for objects in scenes], dtype=np.int64)
        return SceneArchive(pictures, classes, places, counts)

    def sets(self) -> tuple[Tensor, Tensor]:
        """The objects [S, M, F] as elements of `SCENE`, and which of them there are [S, M]."""
        looks = one_hots(torch.from_numpy(self.classes))
        places = torch.from_numpy(self.places) / REACH
        valid = torch.arange(self.classes.shape[1]) < torch.from_numpy(self.counts)[:, None]
        return torch.cat([looks, places], dim=-1), valid

    def write(self, path: Path) -> None:
        """Write the file in one step; the same scenes give the same bytes."""
        with atomic_write(path) as unfinished, unfinished.open("wb") as file:
            np.savez_compressed(
                file,
                pictures=self.pictures,
                classes=self.classes,
                places=self.places,
                counts=self.counts,
            )

    @staticmethod
    def read(path: Path) -> SceneArchive:
        """What `write` wrote."""
        arrays = read_arrays(path, ("pictures", "classes", "places", "counts"))
        with named(path, TypeError):
            return SceneArchive(**arrays)


def place_of(described: Mapping[str, Any]) -> list[float]:
    """Where an object is, as descriptions of scenes have it: x, y and z."""
    place = described.get("3d_coords")
    if not isinstance(place, list) or len(place) != 3:
        raise ValueError(f"3d_coords: expected three numbers, got {place!r:.60}")
    for number in place:
        if type(number) not in (int, float) or not math.isfinite(number):
            raise ValueError(f"3d_coords: expected three finite numbers, got {place!r:.60}")
    return [float(number) for number in place]
