"""Where a result comes from: versions, hardware, and the commit of the code."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import setwise


def describe(
    device: torch.device, commit: str | None = None, threads: int | None = None
) -> dict[str, Any]:
    """For records; ``commit`` is asked of git where it is not given, ``threads`` of PyTorch."""
    if device.type == "cuda":
        hardware = torch.cuda.get_device_name(device)
    else:
        hardware = f"{platform.machine()}, {threads or torch.get_num_threads()} threads"
    return {
        "commit": commit or current_commit(),
        "setwise": setwise.__version__,
        "torch": torch.__version__,
        "numpy": version("numpy"),
        "triton": _version("triton"),
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "system": platform.system(),
        "hardware": hardware,
    }


def current_commit() -> str | None:
    """The commit this file belongs to, marked if the package has changed since; None if to none.

    An installed package may lie inside the repository of somebody's project, which is not ours.
    What else lies in ours does not matter: records are written there while a command runs.
    """
    here = Path(__file__)
    if _git("ls-files", "--error-unmatch", here.name) is None:
        return None
    commit, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "--", ".")
    return commit if not changes else f"{commit}-dirty"


def _git(*arguments: str) -> str | None:
    try:
        found = subprocess.run(
            ["git", *arguments],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
