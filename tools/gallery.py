"""What the worked examples do, recorded for the pictures of docs/gallery.md.

    python -m tools.gallery points export      # run these at full size, and record what they give
    python docs/figures/gallery.py             # draw the pictures from the records

A record is results/gallery/NAME.json. It names the commit, and so what was run has to be committed.
"""

from __future__ import annotations

import argparse
import json
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

import setwise as sw
from setwise import environment
from setwise.files import atomic_write_text
from setwise.planning import LatentPlanner, PlanningResult

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
RECORDS = ROOT / "results" / "gallery"
CLOUDS = 4  # of rings, and as many others: the first of those that points.py reads
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


def points() -> dict[str, Any]:
    """Some clouds, and what came out for them."""
    clouds, outputs = _load("points")["main"]([])
    flat = (clouds[..., 2] == 0).all(-1)  # rings, which are easier
    shown = torch.cat([kind.nonzero().flatten()[:CLOUDS] for kind in (flat, ~flat)])
    return {"clouds": _rounded(clouds[shown]), "outputs": _rounded(outputs[shown])}


def lights_out() -> dict[str, Any]:
    """The states of the longest plan: which lights are on."""
    plans: list[PlanningResult] = []

    class Watched(LatentPlanner):
        """Remembers what it found."""

        def solve(self, *arguments: Any, **options: Any) -> PlanningResult:
            plans.append(super().solve(*arguments, **options))
            return plans[-1]

    main = _load("lights_out")["main"]
    main.__globals__["LatentPlanner"] = Watched
    main([])
    longest = max((plan.objects for plan in plans if plan.objects is not None), key=len)
    # Objects come out in any order: each light has its column and its row.
    boards = []
    for state in longest:
        x, y, on = state[:, :3].argmax(-1), state[:, 3:6].argmax(-1), state[:, 6] > 0.5
        boards.append([[0] * 3 for _ in range(3)])
        for column, row, light in zip(x.tolist(), y.tolist(), on.tolist(), strict=True):
            boards[-1][row][column] = int(light)
    return {"boards": boards, "valid": all(plan.valid for plan in plans)}


def export() -> dict[str, Any]:
    """How far ONNX Runtime is from PyTorch at most, for batches of each size."""
    found: dict[int, float] = _load("export")["main"]([])
    return {"differences": found}


def metrics() -> dict[str, Any]:
    """Two metrics of the network of torchrun.py, in a collection, after every epoch.

    Each epoch is a training of its own that goes on with the weights: Adam begins anew.
    """
    from torchmetrics import MetricCollection

    example = _load("torchrun")
    torch.manual_seed(0)
    model, features = example["network"](), example["FEATURES"]
    bags, unseen = example["Bags"](2048, 0), example["Bags"](301, 1)
    collection = MetricCollection(
        [sw.metrics.SetSuccess(features), sw.metrics.MultisetEquality(features)]
    )
    curves: dict[str, list[float]] = {}
    for _ in range(example["EPOCHS"]):
        example["train"](model, bags, 1, 0, 1)
        collection.reset()
        for counts, bag, valid in DataLoader(unseen, 64, collate_fn=sw.collate_sets):
            with torch.no_grad():
                elements, presence = model(counts)
            collection.update(elements, bag, presence=presence, target_valid=valid)
        for name, value in collection.compute().items():
            curves.setdefault(name, []).append(round(value.item(), 4))
    return {"curves": curves}


def torchrun() -> dict[str, Any]:
    """The losses of the training by hand, on one process."""
    return _trained("torchrun")


def lightning_training() -> dict[str, Any]:
    """Those of the same training in Lightning."""
    return _trained("lightning_training")


def lightning_on_two() -> dict[str, Any]:
    """And on two processes."""
    return _trained("lightning_training", after=("--devices", "2"))


def accelerate_training() -> dict[str, Any]:
    """Those of the same training in Accelerate."""
    return _trained("accelerate_training")


def accelerate_on_two() -> dict[str, Any]:
    """And on two processes."""
    return _trained("accelerate_training", before=TORCHRUN)


EXAMPLE: dict[str, Callable[[], dict[str, Any]]] = {
    function.__name__: function
    for function in (
        *(points, lights_out, export, metrics, torchrun, lightning_training, lightning_on_two),
        *(accelerate_training, accelerate_on_two),
    )
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", metavar="NAME", nargs="+", choices=EXAMPLE, help=", ".join(EXAMPLE)
    )
    options = parser.parse_args(arguments)
    if changed := _changed():
        parser.error(f"commit what is run, or the record names a commit without it:\n{changed}")
    for name in options.names:
        found = EXAMPLE[name]() | {"environment": environment.describe(torch.device("cpu"))}
        atomic_write_text(RECORDS / f"{name}.json", json.dumps(found) + "\n")


def _changed() -> str:
    """What is not committed as it is, of all that is run."""
    command = ["git", "status", "--porcelain", "--", "src", "examples", "tools"]
    found = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return found.stdout.rstrip()


def _load(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


def _rounded(points: torch.Tensor) -> list[Any]:
    return [[[round(x, 3) for x in point] for point in cloud] for cloud in points.tolist()]


def _trained(
    name: str, before: tuple[str, ...] = (), after: tuple[str, ...] = ()
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "found.json"
        script = str(EXAMPLES / f"{name}.py")
        command = [sys.executable, *before, script, *after, "--output", str(output)]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found = json.loads(output.read_text(encoding="utf-8"))
    losses = [round(loss, 5) for loss in found["losses"]]
    return {"printed": said.strip().splitlines()[-1], "losses": losses, "right": found["right"]}


if __name__ == "__main__":
    main()
