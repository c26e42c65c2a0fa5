"""``setwise doctor`` finds what is there, and what is not once it has been taken away."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

import setwise as sw
from setwise import cli
from setwise.cli import doctor, installed, probes
from setwise.cli.installed import Finding, Requirement
from setwise.planning.downward import EXECUTABLE_VARIABLE

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def no_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take seconds, and have tests of their own."""
    monkeypatch.setattr(probes, "try_all", lambda: iter(()))


def remove(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    """As if these packages had never been installed."""

    def found(name: str) -> str:
        if name in packages:
            raise PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(installed, "version", found)
    for name in packages:
        monkeypatch.setitem(sys.modules, installed.MODULES.get(name, name), None)


def try_(name: str) -> Finding:
    return probes.try_one(next(one for one in probes.BACKENDS if one.name == name))


def program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


# Slow: renderers, a browser and a planner start. Below each is tried with a program that is faster.
@pytest.mark.slow
def test_this_machine(capsys: Captured) -> None:
    """The whole command, with every backend in a process of its own."""
    assert cli.main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["healthy"] is True
    core = {one["name"]: one["state"] for one in found["core"]}
    assert set(core) == {"python", "torch", "numpy", "scipy", "losses"}
    assert set(core.values()) == {"works"}
    assert {one["name"] for one in found["extras"]} == set(PROJECT["optional-dependencies"])
    states = {one["name"]: one["state"] for one in found["backends"]}
    assert states == {
        "triton": "works" if torch.cuda.is_available() else "missing",
        "mitsuba": "works",
        "blender": "works" if shutil.which("blender") else "missing",
        "fast-downward": "works",
        "chromium": states["chromium"],  # under many names, or none
    }
    for one in [*found["extras"], *found["backends"]]:
        assert (one["remedy"] is None) == (one["state"] == "works"), one


def test_everything_has_a_purpose() -> None:
    backends = {one.name for one in probes.BACKENDS}
    assert set(doctor.PURPOSES) == backends | set(PROJECT["optional-dependencies"])


@pytest.mark.slow
@pytest.mark.usefixtures("no_backends")
def test_optional_packages_may_be_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """Rich among them: the command that says so must not need it."""
    remove(monkeypatch, "rich", "mitsuba", "torchmetrics")
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert cli.main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for extra, package in (("metrics", "torchmetrics"), ("render", "mitsuba"), ("bench", "rich")):
        place = next(i for i, line in enumerate(lines) if line.split()[1:2] == [extra])
        assert lines[place].startswith("  missing")
        assert f"{package}: not installed" in lines[place]
        assert lines[place + 1].endswith(f"[{extra}]'") or lines[place + 1].endswith(f"[{extra}]")
        assert "-m pip install" in lines[place + 1]
    assert lines[-1].startswith("The core works. Optional, and not working here: bench, demo, dev,")


def test_packages_may_be_old_or_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    old = installed.find_package(Requirement("rich", "999.1", "bench"))
    assert (old.state, old.detail) == ("missing", f"{version('rich')} is too old, 999.1 is needed")
    assert "'rich>=999.1'" in str(old.remedy)
    monkeypatch.setitem(sys.modules, "PIL", None)
    wanted = [Requirement("pillow", "10", "render"), Requirement("rich", "13", "render")]
    broken = installed.find_extra("render", wanted)
    assert broken.state == "broken"
    assert "rich" not in broken.detail
    assert "--force-reinstall --no-deps pillow==" in str(broken.remedy)


def test_a_package_that_lacks_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reinstalling it alone would not help."""
    (tmp_path / "rich").mkdir()
    (tmp_path / "rich" / "__init__.py").write_text("import a_module_that_is_not_there")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "rich", raising=False)
    found = installed.find_package(Requirement("rich", "13", "bench"))
    assert found.state == "broken"
    assert str(found.remedy).endswith(f"pip install rich=={version('rich')}")


# A process of its own; `test_optional_packages_may_be_missing` asks the same of this one.
@pytest.mark.slow
def test_the_command_line_starts_without_optional_packages() -> None:
    """Who has only the core must be able to ask what is missing."""
    modules = "PIL drjit kstar_planner matplotlib mitsuba rich safetensors sklearn tensorboard"
    code = f"""
import sys
sys.modules.update(dict.fromkeys({modules.split()!r}))
from setwise import cli
from setwise.cli import probes
probes.try_all = lambda: iter(())
sys.exit(cli.main(["doctor"]))
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "The core works." in ended.stdout


def test_the_planner_of_the_extra_is_not_imported() -> None:
    found = installed.find_package(Requirement("kstar-planner", "1.6", "planning"))
    assert found.state == "works"
    assert "kstar_planner" not in sys.modules


@pytest.mark.usefixtures("no_backends")
@pytest.mark.parametrize("fault", ["wrong", "raises"])
def test_a_broken_core_is_an_error(
    fault: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def broken(input: torch.Tensor, *_: object) -> torch.Tensor:
        if fault == "raises":
            raise RuntimeError("Numpy is not available")
        return 0.5 + 0 * input.sum()

    monkeypatch.setattr(sw, "set_cross_entropy", broken)
    assert cli.main(["doctor"]) == 1
    said = capsys.readouterr().out
    assert "  broken   losses" in said
    assert ("Numpy is not available" if fault == "raises" else "gives 0.5000") in said
    assert said.endswith("The core does not work: losses.\n")


@pytest.mark.usefixtures("no_backends")
def test_a_package_of_the_core_that_is_too_old(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(installed, "version", lambda name: "1.0" if name == "torch" else "999")
    assert cli.main(["doctor", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["healthy"] is False
    (torch_found,) = [one for one in found["core"] if one["name"] == "torch"]
    assert torch_found["state"] == "missing"
    assert "torch>=" in torch_found["remedy"]


@pytest.mark.parametrize(
    ("source", "ending"),
    [
        (None, "pip install 'setwise[render]'"),
        ('{"url": "https://example.org/setwise.whl"}', "pip install 'setwise[render]'"),
        ('{"url": "file:///my%20clone", "dir_info": {}}', "pip install '/my clone[render]'"),
        (
            '{"url": "file:///clone", "dir_info": {"editable": true}}',
            "pip install --editable '/clone[render]'",
        ),
    ],
)
def test_an_extra_is_added_where_the_library_came_from(
    source: str | None, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = SimpleNamespace(read_text=lambda _: source)
    monkeypatch.setattr(installed, "distribution", lambda _: package)
    assert installed.install_command("render").endswith(ending)


@pytest.mark.parametrize("name", ["blender", "chromium"])
def test_programs_may_be_missing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "apt-get", "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = try_(name)
    assert (found.state, found.remedy) == ("missing", f"sudo apt-get install {name}")


@pytest.mark.parametrize(
    ("script", "state"),
    [("echo '<body>42</body>'", "works"), ("echo nothing", "broken"), ("exit 3", "broken")],
)
def test_a_browser_has_to_show_a_page(
    script: str, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "google-chrome", script)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert try_("chromium").state == state


def test_a_blender_that_cannot_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "blender", "echo no display; exit 1")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = try_("blender")
    assert found.state == "broken"
    assert "no display" in found.detail


@pytest.mark.parametrize(("path", "state"), [("/nowhere", "missing"), ("/bin/false", "broken")])
def test_a_planner_of_ones_own(path: str, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EXECUTABLE_VARIABLE, path)
    found = try_("fast-downward")
    assert found.state == state
    assert path in found.detail
    assert EXECUTABLE_VARIABLE in str(found.remedy)


def test_mitsuba_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "setwise.render.mitsuba", raising=False)
    monkeypatch.setitem(sys.modules, "mitsuba", None)
    found = try_("mitsuba")
    assert found.state == "missing"
    assert "[render]" in str(found.remedy)


@pytest.mark.parametrize(
    ("cuda", "said"), [(None, "was built without CUDA"), ("12.8", "sees no CUDA device")]
)
def test_no_gpu(cuda: str | None, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    found = try_("triton")
    assert found.state == "missing"
    assert said in found.detail
    assert "NVIDIA GPU" in str(found.remedy)


# Processes of their own; the first tier has a Blender that cannot draw, in this one.
@pytest.mark.slow
def test_a_crash_and_a_hang_are_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = probes.Backend("unknown", lambda: "", lambda: "help")  # a child cannot know it
    monkeypatch.setattr(probes, "BACKENDS", (unknown,))
    (crash,) = probes.try_all()
    assert (crash.state, crash.remedy) == ("broken", "help")
    assert "it ended with code 1" in crash.detail
    (hang,) = probes.try_all(seconds=0.0)
    assert (hang.state, hang.detail) == ("broken", "no answer within 0 s")
    here = psutil.Process()
    assert not [one for one in here.children() if "setwise.cli.probes" in " ".join(one.cmdline())]
