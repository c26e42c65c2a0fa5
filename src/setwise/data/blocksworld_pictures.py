"""Pictures put together from patches and boxes: what a set of blocks looks like.

Legend: N blocks, P pixels along a patch; H, W height and width of the picture in pixels; ``*`` any
leading dimensions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from setwise.data.checks import integers, require_shape


def paste(patches: Tensor, boxes: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Patches [*, N, 3, P, P], stretched into boxes [*, N, 4] on black.

    Gives pictures [*, 3, H, W], and which of their pixels [*, H, W] are covered.

    A box (x1, y1, x2, y2) has x2 and y2 one past its last pixel; one that is empty shows nothing,
    and what lies outside of the picture is cut off. Where boxes overlap, the one that ends lower
    in the picture covers the other, then the one that begins lower, then the one that ends, or
    else begins, further to the right; of two patches in the same box the brighter is seen. So the
    order of the set does not matter.

    >>> white = torch.ones(1, 3, 32, 32)
    >>> picture, covered = paste(white, torch.tensor([[1, 0, 3, 1]]), height=2, width=4)
    >>> picture[0].tolist()
    [[0.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
    >>> int(covered.sum())
    2
    """
    require_shape("patches", patches, "*", "blocks", 3, "rows", "columns")
    boxes = integers("boxes", boxes)
    require_shape("boxes", boxes, "*", "blocks", 4)
    if patches.shape[:-3] != boxes.shape[:-1]:
        raise ValueError(
            f"patches {tuple(patches.shape)} and boxes {tuple(boxes.shape)}: "
            f"expected one box for each patch"
        )
    picture = patches.new_zeros(*boxes.shape[:-2], 3, height, width)
    covered = picture.new_zeros(*boxes.shape[:-2], height, width, dtype=torch.bool)
    order = _paste_order(patches, boxes)
    for place in order.unbind(-1):  # from the first to the last, all pictures at once
        own = place[..., None, None].expand(*place.shape, 1, 4)
        x1, y1, x2, y2 = boxes.gather(-2, own).squeeze(-2).unbind(-1)
        own = place[..., None, None, None, None].expand(*place.shape, 1, *patches.shape[-3:])
        patch = patches.gather(-4, own).squeeze(-4)
        columns, in_columns = _stretched(x1, x2, width, patches.shape[-1], patches.dtype)
        rows, in_rows = _stretched(y1, y2, height, patches.shape[-2], patches.dtype)
        stretched = rows.unsqueeze(-3) @ patch @ columns.mT.unsqueeze(-3)
        inside = in_rows[..., :, None] & in_columns[..., None, :]
        picture = torch.where(inside.unsqueeze(-3), stretched, picture)
        covered |= inside
    return picture, covered


def _paste_order(patches: Tensor, boxes: Tensor) -> Tensor:
    """The blocks [*, N] from the first to be pasted to the last."""
    order = patches.flatten(-3).sum(-1).argsort(-1)
    for edge in (0, 2, 1, 3):  # the least important first: each sort keeps the one before
        order = order.gather(-1, boxes[..., edge].gather(-1, order).argsort(dim=-1, stable=True))
    return order


def _stretched(
    start: Tensor, end: Tensor, size: int, pixels: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """How a row of ``pixels`` is stretched from start to end [*]: weights [*, size, pixels].

    Linear between the middles of pixels, as image libraries do. Also which of ``size`` places
    [*, size] are covered.
    """
    place = torch.arange(size, device=start.device)
    start, end = start.unsqueeze(-1), end.unsqueeze(-1)
    inside = (start <= place) & (place < end)
    scale = pixels / (end - start).clamp(min=1).to(dtype)
    source = ((place - start + 0.5) * scale - 0.5).clamp(0, pixels - 1)
    pixel = torch.arange(pixels, device=start.device)
    return (1 - (source.unsqueeze(-1) - pixel).abs()).clamp(min=0), inside
