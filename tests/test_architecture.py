"""The import direction, read from the source: a room may only import from rooms below it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "setwise"

# Each room and the rooms it may import from, besides itself.
BELOW: dict[str, set[str]] = {
    "files": set(),
    "outside": {"files"},
    "registry": set(),
    "values": set(),
    "features": {"values"},
    "kernels": set(),
    "arguments": {"features", "values"},
    "losses": {"features", "kernels", "arguments", "registry", "values"},
    "metrics": {"features", "kernels", "arguments"},
    "data": {"features", "files", "outside"},
    "models": {"features", "arguments", "values"},
    "worlds": {"data", "features", "outside", "registry"},
    "environment": {"the public names"},
    "executors": {"the public names", "outside", "registry"},
    "experiments": {
        *("the public names", "environment", "features", "files", "losses", "metrics", "models"),
        *("data", "executors", "outside", "registry", "render", "worlds"),
    },
    "render": {"data", "executors", "files", "outside"},
    "planning": {
        *("data", "environment", "experiments", "features", "files", "losses", "metrics"),
        *("models", "outside", "worlds"),
    },
    "bench": {"the public names", "arguments", "environment", "kernels"},
    "report": {"experiments", "files", "outside"},
    "demo": {"environment", "experiments", "files", "losses", "planning", "report", "worlds"},
    "cli": {
        *("the public names", "bench", "data", "demo", "environment", "executors", "experiments"),
        *("files", "losses", "outside", "planning", "render", "report", "worlds"),
    },
}
CORE_PACKAGES = {"torch", "numpy", "scipy", "setwise"} | sys.stdlib_module_names
# Files that need an optional package; everything else reaches them by a lazy import alone.
OPTIONAL = {
    Path("cli/bench.py"): {"matplotlib"},
    Path("cli/data.py"): {"rich"},
    Path("cli/demo.py"): {"PIL", "rich", "safetensors", "sklearn"},
    Path("cli/doctor.py"): {"rich"},
    Path("cli/matrix.py"): {"matplotlib"},
    Path("cli/pictures.py"): {"rich"},
    Path("cli/plan.py"): {"PIL"},
    Path("cli/project/train.py"): {"safetensors"},
    Path("cli/project/train_lightning.py"): {"lightning", "safetensors"},
    Path("cli/plans.py"): {"rich"},
    Path("cli/stages.py"): {"rich"},
    Path("cli/starters.py"): {"rich"},
    Path("cli/tables.py"): {"rich"},
    Path("cli/training.py"): {"rich"},
    Path("cli/watch.py"): {"rich"},
    Path("bench/contenders.py"): {"cut_cross_entropy", "pykeops"},
    Path("bench/exponentials.py"): {"triton"},
    Path("bench/limits.py"): {"triton"},
    Path("bench/losses.py"): {"triton"},
    Path("bench/rivals.py"): {"torch_linear_assignment"},
    Path("data/rows.py"): {"pyarrow"},
    Path("demo/page.py"): {"PIL"},
    Path("data/parquet.py"): {"pyarrow"},
    Path("data/shards.py"): {"pyarrow"},
    Path("executors/ray_cluster.py"): {"ray"},
    Path("experiments/checkpoint.py"): {"safetensors"},
    Path("bench/show.py"): {"rich", "matplotlib"},
    Path("metrics/classes.py"): {"torchmetrics"},
    Path("planning/actions/quantiser.py"): {"sklearn"},
    Path("planning/pictures.py"): {"PIL"},
    Path("planning/recorded.py"): {"PIL"},
    Path("render/blender.py"): {"PIL"},
    # Run by Blender's own Python.
    Path("render/blender_script.py"): {"bpy", "mathutils"},
    Path("render/files.py"): {"PIL"},
    Path("render/mitsuba.py"): {"drjit", "mitsuba"},
    Path("render/patches.py"): {"PIL"},
    Path("render/scenes.py"): {"PIL"},
    Path("report/figures.py"): {"matplotlib", "PIL"},
    Path("report/heatmap.py"): {"matplotlib", "rich"},
    Path("report/reconstructions.py"): {"PIL"},
    Path("worlds/photographs.py"): {"PIL"},
    Path("worlds/tiles.py"): {"PIL", "sklearn"},
    Path("report/page/charts.py"): {"markupsafe", "matplotlib"},
    Path("report/page/frame.py"): {"markupsafe"},
    Path("report/page/markup.py"): {"jinja2", "markupsafe"},
    Path("report/page/pieces.py"): {"markupsafe"},
    **{path.relative_to(SOURCE): {"triton"} for path in (SOURCE / "kernels/triton").glob("*.py")},
}


def _room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def _imports(path: Path) -> set[str]:
    """The modules a file imports, dotted."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            assert node.module is not None
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def test_every_room_has_a_place() -> None:
    assert {_room(path) for path in FILES} == set(BELOW)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_downwards(path: Path) -> None:
    room = _room(path)
    for name in _imports(path):
        package, *rest = name.split(".")
        allowed = CORE_PACKAGES | OPTIONAL.get(path.relative_to(SOURCE), set())
        assert package in allowed, f"{path.name} imports {package}, which is no core dependency"
        if package == "setwise":
            below = rest[0] if rest else "the public names"
            assert below in BELOW[room] | {room}, f"{room} must not import {below}"


def test_planning_itself_needs_no_experiments() -> None:
    """Any coder will do; only what opens trained networks and counts problems knows of them."""
    knowing = {
        path.name
        for path in (SOURCE / "planning").glob("*.py")
        if any(name.startswith("setwise.experiments") for name in _imports(path))
    }
    assert knowing == {"learned.py", "table5.py"}


def test_reports_never_train() -> None:
    """They know of experiments what a record holds, and no more."""
    names = {name for path in (SOURCE / "report").rglob("*.py") for name in _imports(path)}
    known = {name.split(".")[2] for name in names if name.startswith("setwise.experiments.")}
    assert known == {"experiment", "reconstructions", "records", "settings", "store"}


def test_the_library_imports_without_optional_packages() -> None:
    """And says which extra is missing when a class that needs one is asked for."""
    code = """
import sys
sys.modules["torchmetrics"] = sys.modules["triton"] = None
import setwise
assert not any(name.startswith("setwise.kernels.triton") for name in sys.modules)
assert not {"scipy", "torch._dynamo"} & sys.modules.keys()  # slow, and not needed by all
try:
    setwise.metrics.SetSuccess
except ModuleNotFoundError as error:
    assert "setwise[metrics]" in str(error), error
else:
    raise SystemExit("expected an error")
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_tests_share_what_lies_in_support_alone() -> None:
    """A test that imports another one depends on which folders are asked for."""
    here = Path(__file__).parent
    # Words of a line: to parse all tests would take seconds.
    imported = re.compile(r"^ *(?:from|import) +(test_\w+)", re.MULTILINE)
    assert not {
        f"{path.relative_to(here)} imports {name}"
        for path in here.rglob("*.py")
        for name in imported.findall(path.read_text())
    }


def test_no_file_is_too_long() -> None:
    long = {path.name: n for path in FILES if (n := len(path.read_text().splitlines())) > 400}
    assert not long
