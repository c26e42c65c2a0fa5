"""``setwise doctor``: what is installed, what works here, and what adds the rest."""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from importlib.metadata import metadata, version

from setwise.cli import probes
from setwise.cli.installed import (
    Finding,
    Requirement,
    find_extra,
    find_package,
    pip,
    requirements,
)
from setwise.outside import one_line

_STYLES = {"works": "green", "missing": "yellow", "broken": "bold red"}
_HEADINGS = {
    "core": "The core",
    "extras": "Extras: optional, each brings packages for a part of the library",
    "backends": "Programs and devices: optional, each tried by a tiny call",
}
# What each extra and backend is there for.
PURPOSES = {
    "assign": "faster matchings on a CPU",
    "bench": "setwise bench",
    "data": "setwise.data.SetLoader, sets in Parquet files",
    "demo": "setwise demo",
    "dev": "tests and checks of the library itself",
    "docs": "the site and the figures of the documents",
    "experiments": "setwise reproduce, setwise rules ask",
    "metrics": "the torchmetrics classes",
    "planning": "setwise plan",
    "ray": "--on ray, trainings and pictures on a cluster",
    "render": "setwise data blocksworld, setwise data scenes",
    "report": "setwise tables, setwise report, figures",
    "triton": "fast losses on NVIDIA GPUs",
    "mitsuba": "pictures of blocks, the default renderer",
    "blender": "pictures of blocks, another renderer",
    "fast-downward": "the planner of setwise plan",
    "chromium": "tests that open pages",
}


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser's."""
    parser = commands.add_parser(
        "doctor",
        help="check the installation: what works, what is missing and how to add it",
        description="Checks the library, its extras and the programs it can use. The exit code is "
        "1 if something of the core is broken; what is optional may be missing.",
    )
    parser.add_argument("--json", action="store_true", help="the findings as JSON")
    parser.set_defaults(run=_run, extra="report")


def _run(options: argparse.Namespace) -> int:
    say = (lambda *words: None) if options.json else _printer()
    wanted = requirements()
    steps: dict[str, Callable[[], Iterable[Finding]]] = {
        "core": lambda: check_core(wanted),
        "extras": lambda: check_extras(wanted),
        "backends": probes.try_all,
    }
    found: dict[str, list[Finding]] = {}
    say(f"setwise {version('setwise')}, {platform.platform()}\n")
    for part, step in steps.items():
        say(_HEADINGS[part])
        found[part] = []
        for finding in step():
            found[part].append(finding)
            _show(finding, say)
        say("")
    healthy = all(finding.state == "works" for finding in found["core"])
    say(_verdict(found, healthy))
    if options.json:
        lists = {part: [asdict(one) for one in findings] for part, findings in found.items()}
        print(json.dumps({"healthy": healthy, **lists}, indent=1))
    return 0 if healthy else 1


def check_core(wanted: list[Requirement]) -> list[Finding]:
    """Python, the packages that the library cannot do without, and the library itself."""
    needed = metadata("setwise")["Requires-Python"]
    python = Finding("python", "works", f"{platform.python_version()} ({sys.executable})")
    if sys.version_info < tuple(int(part) for part in needed.removeprefix(">=").split(".")):
        advice = f"make a virtual environment with Python {needed}"
        python = Finding("python", "broken", f"{platform.python_version()} is too old", advice)
    packages = [find_package(one) for one in wanted if one.extra is None]
    return [python, *packages, _try_losses()]


def check_extras(wanted: list[Requirement]) -> list[Finding]:
    """Every extra, by name."""
    names = sorted({one.extra for one in wanted if one.extra})
    return [find_extra(name, [one for one in wanted if one.extra == name]) for name in names]


def _try_losses() -> Finding:
    """The example of the paper, a gradient and a matching: torch, numpy and scipy work together."""
    import torch

    import setwise as sw

    again = pip("--upgrade", "torch", "numpy", "scipy")
    try:
        target = torch.tensor([[0.0, 1.0], [0.0, 0.0]])
        probs = torch.tensor([[0.1, 0.5], [0.1, 0.5]], requires_grad=True)
        logits = sw.Features(sw.Bernoulli(2)).from_probs(probs)
        loss = sw.set_cross_entropy(logits, target)
        (gradient,) = torch.autograd.grad(loss, probs)
        _, matching = sw.assignment_cross_entropy(
            target.flip(0) - 0.5, target, return_matching=True
        )
    except Exception as error:  # whatever it is, it is the answer
        return Finding("losses", "broken", one_line(error), again)
    right = math.isclose(loss.item(), -math.log(0.81), rel_tol=1e-4) and matching.tolist() == [1, 0]
    if not right or not bool(gradient.isfinite().all()):
        detail = f"the example of the paper gives {loss.item():.4f}, expected 0.2107"
        return Finding("losses", "broken", detail, again)
    return Finding("losses", "works", "value, gradient and matching of an example are right")


def _show(finding: Finding, say: Callable[..., None]) -> None:
    purpose = PURPOSES.get(finding.name)
    detail = f"{purpose}: {finding.detail}" if purpose else finding.detail
    say(f"  {finding.state:<8}", f"{finding.name:<14} {detail}", _STYLES[finding.state])
    if finding.remedy:
        say(f"{'':<26}-> {finding.remedy}")


def _verdict(found: dict[str, list[Finding]], healthy: bool) -> str:
    if not healthy:
        ill = [finding.name for finding in found["core"] if finding.state != "works"]
        return f"The core does not work: {', '.join(ill)}."
    optional = [*found["extras"], *found["backends"]]
    if ill := [finding.name for finding in optional if finding.state != "works"]:
        return f"The core works. Optional, and not working here: {', '.join(ill)}."
    return "Everything works."


def _printer() -> Callable[..., None]:
    """Prints a line, its first word in colour where rich is installed; no command is wrapped."""
    try:
        from rich.console import Console
        from rich.text import Text
    except ImportError:
        return lambda first, rest="", style="": print(first, rest) if rest else print(first)
    console = Console()

    def say(first: str, rest: str = "", style: str = "") -> None:
        console.print(Text.assemble((first, style), f" {rest}" if rest else ""), soft_wrap=True)

    return say
