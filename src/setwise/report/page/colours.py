"""Colours that can be read on a page, light or dark, whichever the reader prefers."""

from __future__ import annotations

import colorsys

# What is behind them; see style.css.
LIGHT, DARK = "#fcfcfd", "#14171c"
LEAST = 4.6  # contrast, a little more than the 4.5 that WCAG 2 asks of text
# Of lines that have none of their own.
PALETTE = (
    *("#b80f3f", "#5a636e", "#1459ad", "#8f4d00"),
    *("#146b3a", "#6a3bab", "#0b6570", "#7c4a3a"),
)


def themed(colour: str) -> str:
    """A colour for CSS and SVG: the same hue, dark enough on a light page, light enough on a dark.

    >>> themed("#000080")
    'light-dark(#000080, #7676ff)'
    """
    return f"light-dark({_readable(colour, LIGHT)}, {_readable(colour, DARK)})"


def contrast(one: str, other: str) -> float:
    """Of two colours, by the formula of WCAG 2: from 1 to 21.

    >>> contrast("#ffffff", "#000000")
    21.0
    """
    low, high = sorted((_luminance(one), _luminance(other)))
    return round((high + 0.05) / (low + 0.05), 2)


def _readable(colour: str, behind: str) -> str:
    hue, lightness, saturation = colorsys.rgb_to_hls(*_parts(colour))
    step = -0.02 if _luminance(behind) > 0.5 else 0.02
    while contrast(colour, behind) < LEAST:
        lightness += step
        found = colorsys.hls_to_rgb(hue, min(max(lightness, 0.0), 1.0), saturation)
        colour = "#" + "".join(f"{round(255 * part):02x}" for part in found)
    return colour


def _luminance(colour: str) -> float:
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in _parts(colour)
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _parts(colour: str) -> tuple[float, float, float]:
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return red, green, blue
