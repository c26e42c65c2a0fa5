"""The examples run, at small size, and what they draw and measure is what they say."""

from __future__ import annotations

import ast
import io
import json
import math
import os
import re
import runpy
import subprocess
import sys
from contextlib import redirect_stdout
from functools import cache
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from repository import ROOT

EXAMPLES = ROOT / "examples"
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
# It and the exporter ask PyTorch for what is about to be renamed.
OF_LIGHTNING = pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")


def load(name: str) -> Any:
    """What a script defines."""
    return SimpleNamespace(**runpy.run_path(str(EXAMPLES / f"{name}.py")))


@cache
def quick(name: str) -> tuple[Any, str]:
    """What ``python examples/NAME.py --quick`` finds, and prints."""
    said = io.StringIO()
    with torch.random.fork_rng(), redirect_stdout(said):
        return load(name).main(["--quick"]), said.getvalue()


def names(lines: str) -> list[str]:
    """What is printed, without its numbers."""
    number = r"-?\d\.\d{2,4}|\d+ of \d+"
    return [re.sub(number, "#", line).strip() for line in lines.strip().splitlines()]


# Slow, here and below, because they train: the first tier runs parts of them.
@pytest.mark.slow
@OF_LIGHTNING
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_headers_show_what_the_script_prints(path: Path) -> None:
    """The small run has other numbers, but the same lines."""
    header = ast.get_docstring(ast.parse(path.read_text()))
    _, _, shown = str(header).partition("This is what it printed:")
    assert names(shown) == names(quick(path.stem)[1])


def on_two_processes(*command: str, output: Path) -> Any:
    words = [sys.executable, *command, "--quick", "--output", str(output)]
    subprocess.run(words, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True, timeout=240)
    return json.loads(output.read_text())


# Slow: each starts PyTorch in processes of its own. test_loops.py is about other loops.
@pytest.mark.slow
@OF_LIGHTNING
@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("torchrun", TORCHRUN, []),
        ("accelerate_training", TORCHRUN, []),
        ("lightning_training", [], ["--devices", "2"]),
    ],
)
def test_training_is_the_same_on_two_processes(
    name: str, before: list[str], after: list[str], tmp_path: Path
) -> None:
    one, _ = quick(name)
    script = str(EXAMPLES / f"{name}.py")
    two = on_two_processes(*before, script, *after, output=tmp_path / "two.json")
    assert two["losses"] == pytest.approx(one["losses"], rel=1e-5)
    assert two["right"] == one["right"]
    assert one["losses"][-1] < 0.8 * one["losses"][0]
    by_hand, _ = quick("torchrun")
    assert one["losses"] == pytest.approx(by_hand["losses"], rel=1e-5)


@pytest.mark.slow
def test_point_clouds_are_learned() -> None:
    errors, _ = quick("point_clouds")
    for loss in ("set cross entropy", "chamfer"):
        assert errors[loss] < 0.75 * errors["any other cloud"]


@pytest.mark.slow
def test_objects_are_learned_in_any_order() -> None:
    found, _ = quick("objects_in_an_image")
    learned = found["set cross entropy"]["error"]
    assert learned < 0.5 * found["another image's"]["error"]
    assert learned < 0.5 * found["ordinary cross entropy"]["error"]


@pytest.mark.slow
def test_weights_and_confidence_do_something() -> None:
    found, _ = quick("fine_control")
    trivial, plain, weighted = found.values()
    assert weighted["broad found"] > plain["broad found"] + 0.05
    assert plain["narrow found"] > trivial["narrow found"] + 0.05
    assert plain["invented"] < trivial["invented"] - 0.1


@pytest.mark.slow
def test_detection_sees_how_many_there_are_first() -> None:
    """Who does not look says 3 or 4, of one to six, and is 1.5 off, on 300 pictures by 0.06."""
    example = load("detect")
    with torch.random.fork_rng():
        model = example.train(150)
    pictures, _, valid = example.sprites(300, torch.Generator().manual_seed(1), **example.SCENES)
    with torch.no_grad():
        exists = model(pictures).presence > 0
    assert example.sw.metrics.cardinality_error(exists, valid) < 1.3


def test_a_network_that_has_learned_nothing_detects_nothing() -> None:
    example = load("detect")
    parts = (example.PictureEncoder(64), example.RegionDecoder(64), example.SPRITE)
    assert example.judge(example.SetPredictor(*parts))["anywhere"] < 2 / 48


def test_points_lie_on_their_surfaces() -> None:
    points = load("point_clouds").sample(3, 500, torch.Generator().manual_seed(0)).double()
    sphere, cube, torus, cone = points.unbind(1)
    close = {"rtol": 0.0, "atol": 1e-5}
    torch.testing.assert_close(sphere.norm(dim=-1), torch.ones(3, 500).double(), **close)
    torch.testing.assert_close(cube.abs().amax(-1), torch.ones(3, 500).double(), **close)
    from_circle = torch.hypot(torus[..., :2].norm(dim=-1) - 1, torus[..., 2])
    torch.testing.assert_close(from_circle, torch.full((3, 500), 0.4).double(), **close)
    torch.testing.assert_close(cone[..., :2].norm(dim=-1), (1 - cone[..., 2]) / 2, **close)
    # As many on either half of a sphere; on a cone, a quarter of the area is the upper half.
    assert (sphere[..., 2] > 0).double().mean() == pytest.approx(0.5, abs=0.05)
    assert (cone[..., 2] > 0).double().mean() == pytest.approx(0.25, abs=0.05)


def test_the_earth_movers_distance_is_least_over_all_orders() -> None:
    clouds = torch.randn(2, 3, 5, 3, generator=torch.Generator().manual_seed(0))
    least = sum(
        min(
            sum(math.dist(x[i], y[j]) for i, j in enumerate(order)) / 5
            for order in permutations(range(5))
        )
        for x, y in zip(*clouds.tolist(), strict=True)
    )
    distance = load("point_clouds").earth_movers_distance(*clouds)
    assert distance == pytest.approx(least / 3, rel=1e-5)


def test_images_show_their_objects() -> None:
    """A disc of colour 2, not filled, in the upper left; the second object is not real."""
    example = load("objects_in_an_image")
    one = torch.tensor([0.0, 1, 0, 0, 0, 1, 0, -0.5, -0.5])
    image = example.draw(torch.stack([one, 1 - one])[None], torch.tensor([[True, False]]))
    assert image.shape == (1, 3, 24, 24)
    assert image[0, :2].sum() == 0
    blue = image[0, 2]
    assert set(blue.unique().tolist()) == {0.0, 1.0}
    assert blue[12:].sum() == blue[:, 12:].sum() == 0
    assert blue[5:7, 5:7].sum() == 0  # hollow
    assert blue.equal(blue.T)
    assert blue.sum() == pytest.approx(math.pi * 144 * (0.34**2 - 0.2**2) / 0.9**2, rel=0.1)


def test_a_perfect_answer_is_right() -> None:
    example = load("objects_in_an_image")
    _, sets, real = example.scenes(50, torch.Generator().manual_seed(0))
    found = example.judge(example.OUTPUT.from_probs(sets.flip(1)), sets, real)
    assert found == {"right": 1.0, "miscounted": 0.0, "error": 0.0}


def test_signals_have_their_peaks() -> None:
    example = load("fine_control")
    signal, peaks, real = example.signals(500, torch.Generator().manual_seed(0))
    heights = signal.gather(1, (peaks[..., 0] * 63).round().long())
    assert heights[real].mean() == pytest.approx(1.0, abs=0.1)
    assert heights[~real].mean() == pytest.approx(0.0, abs=0.1)
    found = example.judge(peaks, peaks, real, real)
    assert found == {"narrow found": 1.0, "broad found": 1.0, "invented": 0.0}
