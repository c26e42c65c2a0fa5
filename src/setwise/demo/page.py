"""The page of the demonstration: learning curves, reconstructions, and the plan step by step.

Legend: C cells and objects, F features, H, W height and width of a picture.
"""

from __future__ import annotations

import io
import shlex
from datetime import UTC, datetime
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from setwise.demo.learn import Learned
from setwise.demo.solve import Solved
from setwise.experiments.recipes.demo import LOSSES
from setwise.files import atomic_write_text
from setwise.losses.table import find_loss
from setwise.planning import Coder
from setwise.planning.show import captions_of
from setwise.report.page.pieces import (
    Curve,
    Markup,
    Section,
    command,
    curves,
    gallery,
    joined,
    page,
    paragraph,
    steps,
    table,
    trio,
)
from setwise.report.page.provenance import provenance, source_of
from setwise.worlds.drawing import Pictures

TITLE = "A network that learned sets, and a planner that uses it"
INTRODUCTION = (
    "Two networks read states of a small sliding puzzle as sets of objects, squeeze each of them "
    "into a few bits, and put it out again. They are alike in all but the loss, and both see the "
    "objects in a new random order every time. The cross entropy that everybody knows, H, minds "
    "the order; set cross entropy, SH, does not."
)
# Set cross entropy, and the symbols of both losses.
OURS = LOSSES[0]
SYMBOLS = {loss: find_loss(loss).symbol for loss in LOSSES}
_SHOWN = 6  # states whose reconstructions are drawn


def write_page(path: Path, learned: Learned, solved: Solved, program: str, typed: str) -> None:
    """Make the page; it appears whole."""
    atomic_write_text(path, demo_page(learned, solved, program, typed))


def demo_page(learned: Learned, solved: Solved, program: str, typed: str) -> str:
    """The text of the page; ``program`` is what to type for setwise, ``typed`` what made this."""
    sections = [
        Section("learning", "Learning", _learning(learned)),
        Section("reconstructions", "What they put out", _reconstructions(learned, solved)),
        Section("plan", "Planning with what was learned", _plan(solved), short="The plan"),
        Section("on", "How to go on", _going_on(learned, program, typed)),
    ]
    return page(TITLE, INTRODUCTION, sections)


def _learning(learned: Learned) -> Markup:
    states = learned.states
    rows = [
        [
            f"{SYMBOLS[loss]}, {find_loss(loss).label}",
            "in any order" if loss == OURS else "in the order of the target",
            f"{learned.right(loss)} of {states}",
            f"{learned.results[loss].metrics['loss']:.2f}",
        ]
        for loss in LOSSES
    ]
    said = (
        "With H an output is held against the target at the same place. When the order means "
        "nothing, the best it can do is the average of all targets, and there it stays. SH asks "
        "for every target only that some output is near it."
    )
    return joined(
        [
            paragraph(said),
            gallery(
                [
                    curves(
                        "States that come back whole",
                        _history(learned, "success"),
                        "epoch",
                        "share of all states",
                        shares=True,
                    ),
                    curves(
                        "The loss that each minimises",
                        _history(learned, "loss"),
                        "epoch",
                        "nats a set",
                    ),
                ]
            ),
            table(
                f"After {learned.results[OURS].config.schedule.epochs} epochs",
                ["loss", "outputs are judged", "states that come back whole", "loss"],
                rows,
                cards=True,
            ),
        ]
    )


def _history(learned: Learned, metric: str) -> list[Curve]:
    """For each loss, the metric at every evaluation."""
    histories = {loss: learned.results[loss].history for loss in LOSSES}
    return [
        Curve(
            SYMBOLS[loss],
            find_loss(loss).colour,
            list(zip(history["epoch"], history[metric], strict=True)),
        )
        for loss, history in histories.items()
    ]


def _reconstructions(learned: Learned, solved: Solved) -> Markup:
    puzzle = solved.puzzle
    configurations = puzzle.sample(_SHOWN, seed=0)
    objects = puzzle.objects(configurations)
    outputs = {loss: _outputs(learned.spaces[loss].model, objects) for loss in LOSSES}
    figures = []
    for number, configuration in enumerate(configurations):
        alt = f"input, {puzzle.describe(configuration)}"
        row = [(_drawn(solved, puzzle.objects(configuration)), alt)]
        verdicts = []
        for loss in LOSSES:
            output = outputs[loss][number]
            right = bool(puzzle.recovers(output[None], configuration[None]))
            verdict = "right" if right else "wrong"
            verdicts.append(f"{SYMBOLS[loss]} {verdict}")
            alt = f"output of {SYMBOLS[loss]}, {verdict}"
            row.append((_drawn(solved, puzzle.read(output)), alt))
        caption = f"State {number + 1}: {', '.join(verdicts)}"
        names = ["input", *(f"output of {symbol}" for symbol in SYMBOLS.values())]
        figures.append(trio(caption, names, [row]))
    drawn = (
        "Outputs are drawn as they are: objects on the same cell share its room, an object that "
        "occurs twice has a red edge, and a cell that no object claims is hatched."
    )
    different = ", ".join(
        f"{SYMBOLS[loss]} {len(puzzle.read(outputs[loss]).unique(dim=0))}" for loss in LOSSES
    )
    counted = f"Different outputs for these {len(figures)} states: {different}."
    return joined([paragraph(drawn), paragraph(counted), gallery(figures)])


def _plan(solved: Solved) -> Markup:
    puzzle, result, health = solved.puzzle, solved.result, solved.health
    said = (
        f"The network trained with SH turns each of the {health.states} states into "
        f"{health.bits} bits; {health.codes} codes are distinct, and {health.recovered} are "
        f"decoded into their state again. Fast Downward, a planner that knows nothing of "
        f"puzzles, looks for a shortest way between two codes, and the codes on it are decoded. "
        f"The problem is the hardest of this puzzle: no state that can reach the goal is farther "
        f"from it."
    )
    parts = [paragraph(said)]
    if result.report is None or result.objects is None:
        failed = f"There is no plan. {result.outcome}: {result.reason}."
        return joined([*parts, paragraph(failed)])
    captions, _ = captions_of(puzzle, result.report)
    pictures = [_png(picture, enlarged=2) for picture in puzzle.draw(result.objects)]
    name = f"The plan, {result.report.length} steps"
    checked = "Checked by the rules of the puzzle alone, which know of no network: "
    verdict, *faults = str(result).splitlines()
    parts.append(paragraph(f"{checked}{verdict}."))
    parts += [paragraph(fault.strip()) for fault in faults]
    parts.append(steps(name, pictures, captions))
    return joined(parts)


def _going_on(learned: Learned, program: str, typed: str) -> Markup:
    network = shlex.quote(str(learned.spaces[OURS].path))
    commands = {
        "Other problems for the same network:": f"plan puzzle --network {network} --steps 14",
        "The first table of the paper at small size, all four losses:": "reproduce table1 "
        "--preset quick",
        "Everything that is recorded, as a page:": "report",
        "What else works on this machine, and what adds the rest:": "doctor",
    }
    record = {"finished": datetime.now(UTC).isoformat(timespec="seconds")}
    what = f"two networks trained in {learned.seconds:.0f} s"
    source = source_of(record, learned.environment, what)
    shown = [command(f"{program} {words}", said) for said, words in commands.items()]
    return joined([*shown, provenance([typed], [source])])


def _outputs(model: Coder, sets: Tensor) -> Tensor:
    with torch.no_grad():
        return model.decode(model.encode(sets))


def _drawn(solved: Solved, objects: Tensor) -> bytes:
    """One set of objects [C, F]."""
    return _png(solved.puzzle.draw(objects[None])[0])


def _png(picture: Pictures, enlarged: int = 1) -> bytes:
    """A picture [H, W, 3] in few colours: a third of the bytes, and no difference to be seen."""
    file, image = io.BytesIO(), Image.fromarray(picture)
    size = (enlarged * image.width, enlarged * image.height)
    few = image.resize(size, Image.Resampling.LANCZOS).quantize(64, dither=Image.Dither.NONE)
    few.save(file, format="PNG", optimize=True)
    return file.getvalue()
