"""A plan to look at: its states side by side in one picture, or one after the other in time.

Legend: P states of a plan, k pictures between two of them, H, W height and width of a picture.

Nothing here knows of a world: pictures [P, H, W, 3] of the states come ready, with a line of text
for each.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from setwise.files import atomic_write
from setwise.worlds.drawing import Pictures

# From the number of a step to the pictures [k, H, W, 3] between the state before and that after.
Between = Callable[[int], Pictures]

_PAPER, _INK, _WRONG = (250, 250, 248), (40, 40, 40), (190, 20, 30)
_GAP, _TEXT, _LINE = 14, 14, 18  # pixels: between pictures, of a letter, of a line of text
_WIDE = 1400  # pixels of a strip, about; longer plans have several rows
_LETTER = 7.2  # pixels that a letter takes on average
_HOLD, _LAST, _MOVE = 900, 1800, 45  # milliseconds: a state, the last one, a picture in between
_FADES = 8


def write_strip(
    path: Path,
    pictures: Pictures,
    captions: Sequence[str],
    *,
    wrong: Collection[int] = (),
    columns: int | None = None,
) -> None:
    """All states in one PNG, left to right and top to bottom, each with its caption below.

    Those whose number is in ``wrong`` have a red frame.
    """
    _check(pictures, captions)
    count, height, width = pictures.shape[:3]
    columns = columns or _columns(count, width)
    texts = [_wrapped(caption, width) for caption in captions]
    lines = max(len(text) for text in texts)
    across, down = width + _GAP, height + lines * _LINE + _GAP + 6
    rows = -(-count // columns)
    sheet = Image.new("RGB", (_GAP + min(columns, count) * across, _GAP + rows * down), _PAPER)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(_TEXT)
    for number, (picture, text) in enumerate(zip(pictures, texts, strict=True)):
        x, y = _GAP + number % columns * across, _GAP + number // columns * down
        if number in wrong:
            draw.rectangle((x - 4, y - 4, x + width + 3, y + height + 3), fill=_WRONG)
        sheet.paste(Image.fromarray(picture), (x, y))
        colour = _WRONG if number in wrong else _INK
        for line, words in enumerate(text):
            draw.text((x, y + height + 5 + line * _LINE), words, fill=colour, font=font)
    _save(sheet, path, "PNG", optimize=True)


def write_animation(
    path: Path,
    pictures: Pictures,
    captions: Sequence[str],
    *,
    wrong: Collection[int] = (),
    between: Between | None = None,
) -> None:
    """The states one after the other, for ever: a GIF, or a PNG where the path ends in ``.png``.

    A GIF has 256 colours, which is enough for drawings and little for photographs; an animated PNG
    has all of them. ``between`` gives the pictures from one state to the next; by default one
    fades into the other.
    """
    _check(pictures, captions)
    if path.suffix.lower() not in (".gif", ".png"):
        raise ValueError(f"path: expected a name that ends in .gif or .png, got {path.name}")
    between = between or (lambda step: crossfade(pictures[step - 1], pictures[step]))
    texts = [_wrapped(caption, pictures.shape[2] - 16) for caption in captions]
    lines = max(len(text) for text in texts)
    frames, durations = [], []
    for number, picture in enumerate(pictures):
        if number > 0:
            for moving in between(number):
                frames.append(_frame(moving, texts[number], lines, number in wrong))
                durations.append(_MOVE)
        frames.append(_frame(picture, texts[number], lines, number in wrong))
        durations.append(_HOLD if number < len(pictures) - 1 else _LAST)
    kind = "GIF" if path.suffix.lower() == ".gif" else "PNG"
    if kind == "GIF":  # one palette for all, or colours would flicker
        colours = _palette(pictures, bool(wrong))
        frames = [frame.quantize(palette=colours, dither=Image.Dither.NONE) for frame in frames]
    rest = {"save_all": True, "append_images": frames[1:], "duration": durations, "loop": 0}
    _save(frames[0], path, kind, **rest)


def crossfade(before: Pictures, after: Pictures) -> Pictures:
    """Pictures [k, H, W, 3] that lead smoothly from one [H, W, 3] to another, ends left out."""
    share = np.linspace(0, 1, _FADES + 2)[1:-1, None, None, None]
    mixed: Pictures = ((1 - share) * before + share * after).round().astype(np.uint8)
    return mixed


def _frame(picture: Pictures, text: Sequence[str], lines: int, wrong: bool) -> Image.Image:
    height, width = picture.shape[:2]
    frame = Image.new("RGB", (width + 16, height + 16 + lines * _LINE + 4), _PAPER)
    draw, font = ImageDraw.Draw(frame), ImageFont.load_default(_TEXT)
    if wrong:
        draw.rectangle((4, 4, width + 11, height + 11), fill=_WRONG)
    frame.paste(Image.fromarray(picture), (8, 8))
    for line, words in enumerate(text):
        at = (8, height + 14 + line * _LINE)
        draw.text(at, words, fill=_WRONG if wrong else _INK, font=font)
    return frame


def _palette(pictures: Pictures, wrong: bool) -> Image.Image:
    """The colours of all states, and those of paper and text."""
    rows = pictures[:: max(1, len(pictures) // 8)]
    height, width = pictures.shape[1:3]
    text = _frame(pictures[0], ["0123456789 abcdefghijklmnopqrstuvwxyz"], 1, wrong)
    sheet = Image.new("RGB", (max(width, text.width), height * len(rows) + text.height), _PAPER)
    for number, picture in enumerate(rows):
        sheet.paste(Image.fromarray(picture), (0, height * number))
    sheet.paste(text, (0, height * len(rows)))
    return sheet.quantize(256, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)


def _columns(count: int, width: int) -> int:
    """As many as fit, but so that all rows are about equally full."""
    rows = -(-count // max(1, _WIDE // (width + _GAP)))
    return -(-count // rows)


def _wrapped(caption: str, width: int) -> list[str]:
    return textwrap.wrap(caption, max(8, int(width / _LETTER))) or [""]


def _check(pictures: Pictures, captions: Sequence[str]) -> None:
    shape = pictures.shape
    if pictures.dtype != np.uint8 or len(shape) != 4 or shape[3] != 3 or 0 in shape:
        raise ValueError(
            f"pictures: expected uint8 [states, height, width, 3], got {pictures.dtype} {shape}"
        )
    if len(captions) != len(pictures):
        raise ValueError(f"captions: expected one for each of {len(pictures)} pictures")


def _save(image: Image.Image, path: Path, kind: str, **options: Any) -> None:
    with atomic_write(path) as unfinished:
        image.save(unfinished, format=kind, **options)
