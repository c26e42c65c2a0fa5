"""Where a block is, as features: its box on a grid, one choice among classes for each edge.

Legend: N blocks; H, W height and width of a picture in pixels; ``*`` any leading dimensions.

A box is (x1, y1, x2, y2) with x2 and y2 one past the last pixel, so that its edges lie on lines
between pixels. Each moves to the nearest line of the grid. A left edge is never the last line and
a right edge never the first, which makes as many classes as there are cells: 60 and 40 for cells
of 5 pixels in a picture of 300 x 200.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from setwise.data.checks import integers, require_int, require_shape
from setwise.features import Categorical


@dataclass(frozen=True)
class BoxGrid:
    """A picture of ``height`` x ``width`` pixels in cells of ``cell`` pixels.

    >>> grid = BoxGrid(height=200, width=300)
    >>> grid.widths
    (60, 40, 60, 40)
    >>> grid.classes(torch.tensor([296, 103, 300, 117])).tolist()
    [59, 21, 59, 22]
    >>> grid.boxes(torch.tensor([59, 21, 59, 22])).tolist()
    [295, 105, 300, 115]
    """

    height: int
    width: int
    cell: int = 5

    def __post_init__(self) -> None:
        require_int("cell", self.cell, 1)
        for name in ("height", "width"):
            require_int(name, getattr(self, name), 2 * self.cell)
            if getattr(self, name) % self.cell:
                raise ValueError(
                    f"{name}: expected a multiple of the cell, {self.cell} pixels, "
                    f"got {getattr(self, name)}"
                )

    @property
    def widths(self) -> tuple[int, int, int, int]:
        """How many classes x1, y1, x2 and y2 have."""
        across, down = self.width // self.cell, self.height // self.cell
        return across, down, across, down

    def features(self, scored_as: str = "categorical") -> list[Categorical]:
        """The four choices as blocks of a `setwise.Features`."""
        return [Categorical(width, scored_as=scored_as) for width in self.widths]  # type: ignore[arg-type]

    def classes(self, boxes: Tensor) -> Tensor:
        """The class of each edge: boxes [*, 4] in pixels -> [*, 4]."""
        boxes = integers("boxes", boxes)
        require_shape("boxes", boxes, "*", 4)
        x1, y1, x2, y2 = boxes.unbind(-1)
        inside = (x1 >= 0) & (y1 >= 0) & (x2 <= self.width) & (y2 <= self.height)
        wrong = ~(inside & (x1 < x2) & (y1 < y2))
        if wrong.any():
            raise ValueError(
                f"boxes: expected 0 <= x1 < x2 <= {self.width} and 0 <= y1 < y2 <= {self.height}, "
                f"got {boxes[wrong][0].tolist()}"
            )
        line = (boxes + self.cell // 2) // self.cell
        last = torch.tensor(self.widths[:2], device=boxes.device) - 1
        first = line[..., :2].minimum(last)
        # A box thinner than half a cell still has one cell.
        return torch.cat([first, (line[..., 2:] - 1).maximum(first)], dim=-1)

    def boxes(self, classes: Tensor) -> Tensor:
        """Boxes [*, 4] in pixels of classes [*, 4]; empty where their edges contradict each other.

        Those of `classes` never do; those that a network chooses independently may.
        """
        require_shape("classes", classes, "*", 4)
        ends = torch.tensor([0, 0, 1, 1], device=classes.device)
        return (integers("classes", classes) + ends) * self.cell

    def one_hots(self, boxes: Tensor) -> Tensor:
        """The classes of boxes [*, 4] in pixels, one after the other: [*, sum of widths]."""
        parts = zip(self.classes(boxes).unbind(-1), self.widths, strict=True)
        return torch.cat([torch.nn.functional.one_hot(c, w) for c, w in parts], dim=-1).float()

    def chosen(self, features: Tensor) -> Tensor:
        """The boxes [*, 4] of one-hots, probabilities or logits [*, sum of widths]."""
        require_shape("features", features, "*", sum(self.widths))
        parts = features.split(self.widths, dim=-1)
        return self.boxes(torch.stack([part.argmax(-1) for part in parts], dim=-1))
