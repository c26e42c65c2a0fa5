"""Draw the losses of a set of two elements, the worked example of Set Cross Entropy (Asai, 2018).

    python docs/figures/loss_surfaces.py

writes ``loss_surfaces.png`` beside this file. The targets are X = {[0, 1], [0, 0]}.

Legend: G points along each axis; one "batch" holds the G or G * G output sets of a panel.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.style
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure, SubFigure
from PIL import Image
from torch import Tensor

import setwise as sw

Loss = Callable[[Tensor, Tensor], Tensor]

PATH = Path(__file__).with_suffix(".png")
WIDTH, HEIGHT, DPI = 12.0, 10.0, 100  # inches, and pixels per inch: 1200 pixels wide
POINTS = 201
DARKEST, LEVELS, TICKS = (
    4.0,
    20,
    [0, 1, 2, 3, 4],
)  # losses above this are drawn in the one darkest colour

TARGETS = torch.tensor([[0.0, 1.0], [0.0, 0.0]])
# The same two elements with a third feature, which is the opposite of the second.
TARGETS_WITH_THIRD = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])

STYLE: dict[str, Any] = {
    "font.size": 13.5,
    "axes.titlesize": 14,
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.titlesize": 13.5,
    "figure.titleweight": "bold",
}
RED, BLUE, GRAY = "crimson", "tab:blue", "0.4"


def ordered(logits: Tensor, target: Tensor) -> Tensor:
    """H."""
    return sw.ordered_cross_entropy(logits, target, reduction="none")


def assignment(logits: Tensor, target: Tensor) -> Tensor:
    """The loss of the best one-to-one matching."""
    return sw.assignment_cross_entropy(logits, target, reduction="none")


def summed_set_average(logits: Tensor, target: Tensor) -> Tensor:
    """M A1H: a sum over the targets like the other losses, rather than a mean."""
    return target.shape[-2] * sw.set_average(logits, target, reduction="none")


def set_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """SH."""
    return sw.set_cross_entropy(logits, target, reduction="none")


def evaluate(loss: Loss, probs: Tensor, target: Tensor) -> Tensor:
    """The loss of each output set of probabilities [*, N, F] against one target set [M, F]."""
    logits = sw.Features(sw.Bernoulli(target.shape[-1])).from_probs(probs.double())
    return loss(logits, target.double().expand(*probs.shape[:-2], *target.shape))


def draw_surface(ax: Axes, loss: Loss, target: Tensor) -> ContourSet:
    """The loss over the second features p and q of the two outputs; their first is 0.1."""
    axis = torch.linspace(0, 1, POINTS)
    q, p = torch.meshgrid(axis, axis, indexing="ij")  # rows are q, as matplotlib wants them
    second = torch.stack([p, q], dim=-1).unsqueeze(-1)  # [G, G, 2 outputs, 1]
    features = [torch.full_like(second, 0.1), second, 1 - second][: target.shape[-1]]
    values = evaluate(loss, torch.cat(features, dim=-1), target)

    levels = torch.linspace(0, DARKEST, LEVELS + 1).tolist()
    surface = ax.contourf(axis, axis, values, levels=levels, cmap="viridis_r", extend="max")
    lines = levels[::2]
    ax.contour(axis, axis, values, levels=lines, colors="black", linewidths=0.5, alpha=0.35)
    mark_minima(ax, p, q, values)
    ax.set(aspect="equal", xlim=(-0.07, 1.07), ylim=(-0.07, 1.07))
    ax.set(xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
    ax.set(xlabel="$p$, in output 1", ylabel="$q$, in output 2")
    ax.tick_params(length=0, pad=1)
    ax.spines[:].set_visible(False)
    return surface


def mark_minima(ax: Axes, p: Tensor, q: Tensor, values: Tensor) -> None:
    """A star at every minimum, joined by a line where everything between is a minimum too."""
    least = values <= values.min() + 1e-6
    x, y = p[least], q[least]
    order = x.argsort()
    x, y = x[order], y[order]
    if len(x) > 2:
        ax.plot(x, y, color=RED, linewidth=5)
        x, y = x[[0, -1]], y[[0, -1]]
    ax.plot(x, y, "*", color=RED, markersize=25, markeredgecolor="white")


def draw_curves(ax: Axes) -> None:
    """The losses of Y(y) = {[0.1, 0.5], [y, 0.5]}: what the second output costs as it strays."""
    y = torch.cat([torch.linspace(0, 1, POINTS), torch.tensor([0.1, 0.9])])  # Y1 and Y2 last
    half = torch.full_like(y, 0.5)
    first = torch.stack([torch.full_like(y, 0.1), half], dim=-1)
    probs = torch.stack([first, torch.stack([y, half], dim=-1)], dim=-2)  # [G + 2, 2, 2]
    below, above = ("left", "top"), ("right", "bottom")  # where the number of a point stands
    curves: list[tuple[str, Loss, str, str, list[tuple[str, str]]]] = [
        ("$H$, and the best assignment (equal here)", ordered, GRAY, "--", []),
        ("$2\\,A_{1H}$: blind to the second output", summed_set_average, BLUE, "-", [below, above]),
        ("$SH$: grows as the second output strays", set_cross_entropy, RED, "-", [below, below]),
    ]
    for label, loss, colour, dashes, sides in curves:
        values = evaluate(loss, probs, TARGETS)
        ax.plot(y[:-2], values[:-2], dashes, color=colour, linewidth=3, label=label)
        for at, value, (ha, va) in zip(y[-2:].tolist(), values[-2:].tolist(), sides, strict=False):
            ax.plot(at, value, "o", color=colour, markersize=9)
            shift = (9 if ha == "left" else -9, 5 if va == "bottom" else -5)
            ax.annotate(
                f"{value:.4f}",
                (at, value),
                shift,
                color=colour,
                ha=ha,
                va=va,
                textcoords="offset points",
            )
    for at, name in ((0.1, "$Y_1$"), (0.9, "$Y_2$")):
        ax.axvline(at, color="black", linewidth=0.8, linestyle=":", zorder=0)
        ax.text(at, DARKEST, name, ha="center", va="bottom")
    ax.set(xlim=(0, 1), ylim=(-0.2, DARKEST), xticks=[0, 0.1, 0.5, 0.9, 1], yticks=TICKS)
    ax.set(xlabel="$y$, where both targets have 0", ylabel="loss")
    ax.legend(loc="upper left", bbox_to_anchor=(0.11, 1.0), frameon=False)


def draw_top(figure: SubFigure) -> None:
    """Three losses of the paper's example, over the second features of both outputs."""
    figure.suptitle("Targets {[0, 1], [0, 0]}, outputs {[0.1, $p$], [0.1, $q$]}")
    panels: list[tuple[str, Loss]] = [
        ("$H$ accepts one order only:\nthat of the targets", ordered),
        ("Assignment and $2\\,A_{1H}$ (equal\nhere) accept both orders", assignment),
        ("$SH$ accepts both orders, and\nmixtures of the two targets", set_cross_entropy),
    ]
    axes = figure.subplots(1, len(panels))
    for ax, (title, loss) in zip(axes, panels, strict=True):
        surface = draw_surface(ax, loss, TARGETS)
        ax.set_title(title)
    bar = figure.colorbar(surface, ax=axes, ticks=TICKS, shrink=0.85)
    bar.set_label("loss; the least in red")


def draw_bottom_right(figure: SubFigure) -> None:
    """Set cross entropy again, where the targets differ in two features instead of one."""
    figure.suptitle(
        "Targets {[0, 1, 0], [0, 0, 1]},\noutputs {[0.1, $p$, 1-$p$], [0.1, $q$, 1-$q$]}"
    )
    ax = figure.subplots()
    draw_surface(ax, set_cross_entropy, TARGETS_WITH_THIRD)
    ax.set_title("$SH$, where targets differ in two\nfeatures: both orders, no mixture", pad=14)


def main(path: Path = PATH) -> None:
    """Write the figure to ``path``, as a PNG of 256 colours."""
    with mpl.style.context(["default", STYLE]):
        figure = Figure(figsize=(WIDTH, HEIGHT), dpi=DPI, layout="constrained")
        (top,), (bottom,) = figure.subfigures(
            2, 1, squeeze=False, height_ratios=[1, 1.15], hspace=0.04
        )
        columns = bottom.subfigures(1, 2, squeeze=False, width_ratios=[1.75, 1], wspace=0.05)
        left, right = columns[0]
        draw_top(top)
        left.suptitle("Targets {[0, 1], [0, 0]}, outputs {[0.1, 0.5], [$y$, 0.5]}")
        draw_curves(left.subplots())
        draw_bottom_right(right)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
    image = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    image.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main()
