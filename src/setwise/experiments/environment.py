"""Where a run took place: versions, hardware, and the commit of the code."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

import setwise


def describe(device: torch.device, commit: str | None = None) -> dict[str, Any]:
    """For records; ``commit`` is asked of git where it is not given."""
    if device.type == "cuda":
        hardware = torch.cuda.get_device_name(device)
    else:
        hardware = f"{platform.machine()}, {torch.get_num_threads()} threads"
    return {
        "commit": commit or _commit(),
        "setwise": setwise.__version__,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "system": platform.system(),
        "hardware": hardware,
    }


def _commit() -> str | None:
    """The commit of the source tree this runs from, marked if files were changed since."""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip()
