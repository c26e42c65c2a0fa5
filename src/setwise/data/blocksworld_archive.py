"""Pictures of Blocksworld states as arrays in one file: the format in which they are exchanged.

Legend: S states, N blocks, T transitions; H, W height and width of the whole pictures.

A file holds ``images`` uint8 [S, N, 32, 32, 3], ``bboxes`` uint16 [S, N, 4], ``picsize`` [H, W] and
``transitions`` uint32 [2 T], pairs of states before and after as indices into the first axis. The
blocks of every state come in the same order; training shuffles them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from setwise.files import atomic_write
from setwise.outside import named, read_arrays

PATCH = 32  # pixels along each side


def archive_name(states: int) -> str:
    """What `setwise data` calls the archive of so many states.

    >>> archive_name(2500)
    'states-2500.npz'
    """
    return f"states-{states}.npz"


def folder_name(blocks: int, width: int = 300, height: int = 200) -> str:
    """What it calls a folder of pictures, unless told otherwise.

    >>> folder_name(5), folder_name(4, 150, 100)
    ('blocksworld-5', 'blocksworld-4-150x100')
    """
    size = "" if (width, height) == (300, 200) else f"-{width}x{height}"
    return f"blocksworld-{blocks}{size}"


@dataclass(frozen=True)
class BlocksworldArchive:
    """The blocks of each state, cut out of its picture, and where they were cut.

    A box is (x1, y1, x2, y2) in pixels from the top left, x2 and y2 not included.
    """

    patches: NDArray[np.uint8]  # [S, N, 32, 32, 3]
    boxes: NDArray[np.uint16]  # [S, N, 4]
    picture: tuple[int, int]  # H, W
    transitions: NDArray[np.int64]  # [T, 2]

    def __post_init__(self) -> None:
        _require("images", self.patches, np.uint8, (None, None, PATCH, PATCH, 3))
        _require("bboxes", self.boxes, np.uint16, (*self.patches.shape[:2], 4))
        _require("transitions", self.transitions, np.int64, (None, 2))
        height, width = self.picture
        x1, y1, x2, y2 = np.moveaxis(self.boxes, -1, 0)
        wrong = np.argwhere((x1 >= x2) | (y1 >= y2) | (x2 > width) | (y2 > height))
        if len(wrong):
            state, block = wrong[0].tolist()
            raise ValueError(
                f"bboxes: expected x1 < x2 <= {width} and y1 < y2 <= {height}, "
                f"block {block} of state {state} has {self.boxes[state, block].tolist()}"
            )
        states, pairs = len(self.patches), self.transitions
        if ((pairs < 0) | (pairs >= states)).any():
            raise ValueError(f"transitions: there are only {states} states")

    def write(self, path: str | Path) -> None:
        """Write the file in one step; the same data give the same bytes."""
        with atomic_write(Path(path)) as unfinished, unfinished.open("wb") as file:
            np.savez_compressed(
                file,
                images=self.patches,
                bboxes=self.boxes,
                picsize=np.array(self.picture),
                transitions=self.transitions.astype(np.uint32).ravel(),
            )

    @staticmethod
    def read(path: str | Path) -> BlocksworldArchive:
        """Read a file that `write` or the original generator of the data set made."""
        path = Path(path)
        arrays = read_arrays(path, ("images", "bboxes", "picsize", "transitions"))
        with named(path, TypeError):
            images, boxes, picture, transitions = arrays.values()
            for name in ("bboxes", "picsize", "transitions"):
                if arrays[name].dtype.kind not in "iu":
                    raise ValueError(f"{name}: expected whole numbers, got {arrays[name].dtype}")
            if transitions.size % 2:
                raise ValueError(f"transitions: expected pairs, got {transitions.size} numbers")
            if picture.ndim != 1 or len(picture) < 2 or picture[:2].min() < 1:
                raise ValueError(
                    f"picsize: expected height and width, got {picture.tolist()!s:.60}"
                )
            height, width = picture[:2].tolist()
            return BlocksworldArchive(
                images,
                boxes.astype(np.uint16, casting="same_kind"),
                (height, width),
                transitions.reshape(-1, 2).astype(np.int64),
            )


def _require(
    name: str, array: NDArray[Any], dtype: type[np.generic], shape: tuple[int | None, ...]
) -> None:
    fits = len(array.shape) == len(shape) and all(
        size in (None, given) for size, given in zip(shape, array.shape, strict=True)
    )
    if array.dtype != dtype or not fits:
        expected = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(
            f"{name}: expected {dtype.__name__} [{expected}], got {array.dtype} {array.shape}"
        )
