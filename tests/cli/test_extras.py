"""Each extra does what it is for in an environment that has nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from extras import blocked, closure, run_with_extra
from repository import ROOT
from setwise.cli.installed import requirements
from setwise.experiments.saved_networks import save_network
from setwise.experiments.train import Training
from tiny_experiments import puzzle_config

COMMAND = """
from setwise.cli import main
sys.exit(main({words!r}.split()))
"""
IMPORTED = """
import importlib, pkgutil
import {package}
for module in pkgutil.walk_packages({package}.__path__, "{package}."):
    importlib.import_module(module.name)
"""
OWN = ROOT / "tests" / "extension" / "own_experiment.py"
USES = {
    "assign": "import torch, setwise\nfrom setwise.kernels import host_assignment\n"
    "assert host_assignment._lapx() is not None\nsetwise.assign(torch.rand(3, 4))\n",
    # It would measure for minutes; what it needs is imported by what measures and shows.
    "bench": "import matplotlib, setwise.bench.matrix, setwise.bench.show, setwise.cli.bench\n"
    "import setwise.report.heatmap\n",
    "data": "from setwise.data import SetLoader, write_sets\n"
    "write_sets('sets', [{'objects': [[1.0]]}])\nassert len(list(SetLoader('sets', 1))) == 1\n",
    "demo": IMPORTED.format(package="setwise.demo"),
    "experiments": COMMAND.format(words=f"train {OWN} --seeds 0 --losses H --tensorboard logs"),
    "metrics": "import setwise\nsetwise.metrics.SetSuccess()\n",
    "planning": COMMAND.format(words="plan puzzle --steps 1"),
    # A cluster takes long to start; what it needs is imported.
    "ray": "import setwise.executors.ray_cluster, setwise.experiments.run, setwise.cli.watch\n",
    "render": COMMAND.format(
        words="data blocksworld --blocks 2 --states 2 --width 48 --height 32 --samples 1 "
        "--workers 1"
    ),
    "report": COMMAND.format(words="report --output page.html"),
}
# The extra of the documents is for a program of its own, and that of development is everything.
OTHERS = {"docs", "dev"}


def test_every_extra_is_tried() -> None:
    assert USES.keys() | OTHERS == {one.extra for one in requirements() if one.extra}


def test_what_an_extra_brings() -> None:
    assert {"mitsuba", "drjit", "rich", "torch"} <= closure("render")
    assert "safetensors" not in closure("render")
    assert "safetensors" in blocked("render")
    assert not {"numpy", "PIL", "setwise"} & blocked("render")


# Slow: each starts PyTorch in a process of its own. test_architecture.py reads the imports instead.
@pytest.mark.slow
@pytest.mark.parametrize("extra", USES)
def test_an_extra_alone(extra: str, tmp_path: Path) -> None:
    if extra == "planning":  # a network that has learned nothing: its plan may well be wrong
        save_network(
            tmp_path / "runs" / "tiny" / "x.safetensors", Training([puzzle_config()], "cpu"), 0
        )
    if extra == "report":  # of one table
        (tmp_path / "results").mkdir()
        for path in (ROOT / "results").glob("table1.*"):
            shutil.copy(path, tmp_path / "results")
    ended = run_with_extra(extra, USES[extra], tmp_path)
    assert ended.returncode in ((0, 1) if extra == "planning" else (0,)), ended.stderr
    assert "Traceback" not in ended.stderr
    assert "this needs" not in ended.stderr
