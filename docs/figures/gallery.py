"""Draw pictures of docs/gallery.md from results/gallery, and from the study of the losses.

    python docs/figures/gallery.py

writes them beside this file. ``python -m tools.gallery NAME`` records anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import setwise as sw
from setwise.models import annealed_temperature

HERE = Path(__file__).parent
RESULTS = HERE.parent.parent / "results"
DPI = 100
RED, BLUE, GREEN, GREY = "#dc143c", "#1f77b4", "#2ca02c", "#9a9a9a"


def recorded(name: str) -> dict[str, Any]:
    """What is kept of an example."""
    found: dict[str, Any] = json.loads((RESULTS / "gallery" / f"{name}.json").read_text())
    return found


def points(figure: Figure) -> None:
    """Clouds above, and below what came out."""
    record = recorded("points")
    rows = (("input", record["clouds"], BLUE), ("output", record["outputs"], RED))
    for row, (label, clouds, colour) in enumerate(rows):
        for column, cloud in enumerate(clouds):
            number = 1 + row * len(clouds) + column
            axes: Any = figure.add_subplot(2, len(clouds), number, projection="3d")
            axes.scatter(*zip(*cloud, strict=True), color=colour, s=14, depthshade=False)
            axes.set(xlim=(-1.6, 1.6), ylim=(-1.6, 1.6), zlim=(-1.6, 1.6), box_aspect=(1, 1, 1))
            axes.tick_params(labelbottom=False, labelleft=False, labelright=False)
            if column == 0:
                axes.text2D(0.0, 0.95, label, transform=axes.transAxes, fontsize=15)


def shares_of_bags() -> dict[str, list[float]]:
    """The shares of bags of five digits that come out exactly, of each loss; the best is last."""
    shares: dict[str, list[float]] = {}
    for line in (RESULTS / "losses.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["scenario"] == "bags":
            shares.setdefault(record["loss"], []).append(record["metrics"]["heldout"])
    return dict(sorted(shares.items(), key=lambda pair: median(pair[1])))


def multisets(figure: Figure) -> None:
    """Those shares: a mark for each seed, and a bar to the median."""
    described = json.loads((RESULTS / "losses.json").read_text())["losses"]
    found = shares_of_bags()
    axes = _axes(figure)
    for place, (name, shares) in enumerate(found.items()):
        axes.barh(place, median(shares), color=described[name]["colour"], alpha=0.6)
        axes.plot(shares, [place] * len(shares), "|", color="black", markersize=8)
    axes.set_yticks(range(len(found)), [described[name]["label"] for name in found])
    axes.set(xlim=(-0.01, 1), xlabel="held-out bags that come out exactly")


def lights_out(figure: Figure) -> None:
    """The boards of a plan, from left to right."""
    boards = recorded("lights_out")["boards"]
    for number, board in enumerate(boards):
        axes = figure.add_subplot(1, len(boards), number + 1)
        axes.set(xlim=(-0.6, 2.6), ylim=(2.6, -0.6), aspect="equal", xticks=[], yticks=[])
        axes.set_title("start" if number == 0 else f"{number}", fontsize=11)
        for row, lights in enumerate(board):
            for column, on in enumerate(lights):
                colour = "#ffd23f" if on else "#3a3f4b"
                axes.plot(column, row, "o", color=colour, markeredgecolor="black", markersize=17)


def export(figure: Figure) -> None:
    """The largest difference of any output, beside what is allowed."""
    found = recorded("export")["differences"]
    axes = _axes(figure)
    axes.bar(list(found), list(found.values()), color=BLUE, width=0.5)
    axes.axhline(1e-5, color=GREY, linestyle="--")
    axes.text(len(found) - 0.5, 1.2e-5, "allowed, and 1e-4 of the value more", ha="right")
    axes.set_yscale("log")
    axes.set(ylim=(1e-9, 1e-4), xlabel="pictures in a batch", ylabel="largest difference")


def metrics(figure: Figure) -> None:
    """Two metrics of one network, over its training."""
    axes = _axes(figure)
    curves = recorded("metrics")["curves"]
    for (name, curve), colour in zip(curves.items(), (GREEN, RED), strict=True):
        axes.plot(range(1, len(curve) + 1), curve, color=colour, label=name, linewidth=2)
    axes.set(xlabel="epoch", ylabel="share of unseen bags", ylim=(0, 1), xticks=range(0, 21, 5))
    axes.legend(loc="lower right", frameon=False)


def lightning(figure: Figure) -> None:
    _curves(figure, "Lightning", "lightning_on_two")


def accelerate(figure: Figure) -> None:
    _curves(figure, "Accelerate", "accelerate_on_two")


def annealing(figure: Figure) -> None:
    """What a schedule sets in every step."""
    progress = [step / 200 for step in range(201)]
    schedules: dict[str, Callable[[float], float]] = {
        "exclusivity of set_likelihood": sw.rising_exclusivity,
        "temperature of set_cross_entropy": lambda done: 3.0 ** (1 - min(1, done / 0.75)),
        "temperature of discrete codes": annealed_temperature,
    }
    for number, ((name, schedule), colour) in enumerate(
        zip(schedules.items(), (RED, BLUE, GREEN), strict=True)
    ):
        axes = _axes(figure, 1, 3, number + 1)
        axes.plot(progress, [schedule(done) for done in progress], color=colour, linewidth=2)
        axes.set_title(name, fontsize=11)
        axes.set(xlabel="share of the training", ylim=(0, None), xlim=(0, 1))


def _curves(figure: Figure, name: str, record: str) -> None:
    """The losses of a training on two processes, over those of the loop by hand on one."""
    by_hand, other = recorded("torchrun")["losses"], recorded(record)["losses"]
    axes = _axes(figure)
    axes.plot(by_hand, color=GREY, linewidth=4, label="by hand, one process")
    axes.plot(other, color=RED, linewidth=1, label=f"{name}, two processes")
    axes.set(xlabel="step", ylabel="loss of the whole batch", xlim=(0, len(by_hand)))
    axes.legend(loc="upper right", frameon=False)


def _axes(figure: Figure, rows: int = 1, columns: int = 1, number: int = 1) -> Axes:
    axes: Axes = figure.add_subplot(rows, columns, number)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


# Name of the file, what draws it, and its size in inches.
PICTURES: dict[str, tuple[Callable[[Figure], None], tuple[float, float]]] = {
    "points": (points, (12, 3.4)),
    "multisets": (multisets, (9, 3.8)),
    "lights-out": (lights_out, (9, 1.5)),
    "export": (export, (7, 3)),
    "metrics": (metrics, (7, 3.2)),
    "lightning": (lightning, (7, 3.2)),
    "accelerate": (accelerate, (7, 3.2)),
    "annealing": (annealing, (11, 3)),
}


def main(folder: Path = HERE) -> None:
    """Write all of them."""
    for name, (draw, size) in PICTURES.items():
        figure = Figure(figsize=size, dpi=DPI, layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure)
        figure.savefig(folder / f"gallery-{name}.png", metadata={"Software": None})


if __name__ == "__main__":
    main()
