"""Programs and devices that parts of the library can use, each tried by a tiny call.

A renderer or a driver that is not well may crash or hang instead of raising an error. So each one
is tried in a process of its own, all of them at once.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from setwise.cli.installed import Finding, install_command, pip
from setwise.outside import one_line

if TYPE_CHECKING:
    from setwise.render.backends import RendererName

_SECONDS = 120.0  # for all of them together; they need a few, on a busy machine some more
_CHROMIUM = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
# One variable, one operator that changes it from 0 to 1, and 1 as the goal.
_TASK = """begin_version\n3\nend_version\nbegin_metric\n0\nend_metric\n1
begin_variable\nlamp\n-1\n2\nAtom off()\nAtom on()\nend_variable\n0
begin_state\n0\nend_state\nbegin_goal\n1\n0 1\nend_goal\n1
begin_operator\nswitch\n0\n1\n0 0 0 1\n1\nend_operator\n0\n"""


class MissingError(Exception):
    """Something is not there; says what."""


@dataclass(frozen=True)
class Backend:
    """Something to try, and what helps where it is missing or broken."""

    name: str
    probe: Callable[[], str]  # says what it found, or raises
    remedy: Callable[[], str]


def triton() -> str:
    """The fused kernels against the dense computation, on the first GPU."""
    import torch

    import setwise as sw

    if not torch.cuda.is_available():
        built = "sees no CUDA device" if torch.version.cuda else "was built without CUDA"
        raise MissingError(f"PyTorch {torch.__version__} {built}; losses use the CPU engines")
    generator = torch.Generator("cuda").manual_seed(0)
    for size, width in ((5, 20), (200, 40), (200, 3)):  # one for each family of kernels
        logits = torch.randn(2, size, width, generator=generator, device="cuda")
        target = torch.rand(2, size, width, generator=generator, device="cuda")
        try:
            ours = sw.set_cross_entropy(logits, target, impl="triton")
        except ValueError as error:
            raise MissingError(one_line(error)) from error
        exact = sw.set_cross_entropy(logits.double(), target.double(), impl="reference")
        if not torch.allclose(ours.double(), exact, rtol=1e-2):
            raise RuntimeError(f"set cross entropy is {ours.item()}, expected {exact.item()}")
    return f"{torch.cuda.get_device_name()}: the kernels agree with float64"


def mitsuba() -> str:
    """A picture of two blocks, by path tracing."""
    return _draw("mitsuba")


def blender() -> str:
    """The same scene by Blender."""
    return _draw("blender")


def fast_downward() -> str:
    """A plan of one step."""
    from setwise.planning import Outcome, find_executable, search

    program = find_executable()
    with tempfile.TemporaryDirectory(prefix="setwise-") as folder:
        task = Path(folder) / "lamp.sas"
        task.write_text(_TASK)
        found = search(task, seconds=_SECONDS)
    if found.outcome is not Outcome.SOLVED or found.plan != ("switch",):
        raise RuntimeError(f"{program}: {found.reason}, expected a plan of one step")
    return f"{program} found a plan"


def chromium() -> str:
    """A page with a script, without a window."""
    program = next(filter(None, map(shutil.which, _CHROMIUM)), None)
    if program is None:
        raise MissingError(f"no program {', '.join(_CHROMIUM)} on the PATH")
    page = "data:text/html,<script>document.write(6*7)</script>"
    # A user who is root has to do without its sandbox.
    options = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory(prefix="setwise-", ignore_cleanup_errors=True) as profile:
        options += ["--headless", "--disable-gpu", f"--user-data-dir={profile}", "--dump-dom"]
        shown = _said(program, *options, page)
    if "42" not in shown:
        raise RuntimeError(f"{program} showed {shown[:80]!r}, expected a page with 42")
    return _said(program, "--version").strip()


def help_for_triton() -> str:
    """What is between this machine and the fused kernels."""
    import torch

    if torch.cuda.is_available():
        return pip("--upgrade", "triton")
    if torch.version.cuda:
        return "it needs an NVIDIA GPU and its driver; nvidia-smi lists those that are usable"
    return f"with an NVIDIA GPU: {pip('--force-reinstall', 'torch', 'triton')}"


def help_for_blender() -> str:
    """Blender itself, or what reads the pictures it has drawn."""
    if shutil.which("blender") is None:
        return system_install("blender")
    return install_command("render")


def help_for_planner() -> str:
    """The planner of the extra, unless another one is asked for."""
    from setwise.planning.downward import EXECUTABLE_VARIABLE

    if os.environ.get(EXECUTABLE_VARIABLE):
        return f"let {EXECUTABLE_VARIABLE} name a Fast Downward that runs, or unset it"
    return install_command("planning")


def system_install(program: str) -> str:
    """How this system adds a program that pip does not have."""
    if shutil.which("apt-get"):
        return f"sudo apt-get install {program}"
    if shutil.which("brew"):
        return f"brew install --cask {program}"
    return f"install {program} with the package manager of this system"


BACKENDS = (
    Backend("triton", triton, help_for_triton),
    Backend("mitsuba", mitsuba, lambda: install_command("render")),
    Backend("blender", blender, help_for_blender),
    Backend("fast-downward", fast_downward, help_for_planner),
    Backend("chromium", chromium, lambda: system_install("chromium")),
)


def try_all(seconds: float = _SECONDS) -> Iterator[Finding]:
    """Try every backend in a process of its own; nothing is left running at the end."""
    deadline = time.monotonic() + seconds
    with ExitStack() as stack:
        running = [stack.enter_context(_child(backend)) for backend in BACKENDS]
        for backend, process in zip(BACKENDS, running, strict=True):
            try:
                said, complained = process.communicate(timeout=max(0, deadline - time.monotonic()))
                yield Finding(**json.loads(said.splitlines()[-1]))
            except subprocess.TimeoutExpired:
                detail = f"no answer within {seconds:g} s"
                yield Finding(backend.name, "broken", detail, backend.remedy())
            except (IndexError, ValueError):
                last = complained.strip().splitlines()[-1:]
                detail = ": ".join([f"it ended with code {process.returncode}", *last])
                yield Finding(backend.name, "broken", detail, backend.remedy())


def main(name: str) -> None:
    """What a child runs: prints the finding as JSON."""
    print(json.dumps(asdict(try_one(next(one for one in BACKENDS if one.name == name)))))


def try_one(backend: Backend) -> Finding:
    """Try a backend in this process."""
    try:
        return Finding(backend.name, "works", backend.probe())
    except (MissingError, ModuleNotFoundError, FileNotFoundError) as error:
        return Finding(backend.name, "missing", one_line(error), backend.remedy())
    except Exception as error:  # whatever it is, it is the answer
        return Finding(backend.name, "broken", one_line(error), backend.remedy())


@contextmanager
def _child(backend: Backend) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", f"from {__name__} import main; main({backend.name!r})"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError, PermissionError):  # nothing is left of the group
                os.killpg(process.pid, signal.SIGKILL)


def _draw(name: RendererName) -> str:
    from setwise.data import Blocksworld
    from setwise.render import Environment, open_renderer, scene_of
    from setwise.render.backends import renderer_version

    world = Blocksworld(blocks=2)
    scene = scene_of(Environment.draw(world, seed=0), world.sample(1, seed=0)[0], seed=0)
    with open_renderer(name, width=48, height=32, samples=8) as draw:
        picture = draw(scene)
    if picture.std() < 1:
        raise RuntimeError(f"{name} drew a picture without anything in it")
    return f"{renderer_version(name)} drew a picture"


def _said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
