"""How many scenes a GPU draws in a minute, straight into tensors.

Run ``python benchmarks/drawing.py`` on a CUDA device; it writes the record
``benchmarks/records/drawing-h200.json``, of which ``python -m tools.renderers write`` makes a
sentence of docs/renderers.md.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch

from setwise.environment import describe
from setwise.files import atomic_write_text
from setwise.render import SceneSettings, scene_pictures

RECORD = Path(__file__).parent / "records" / "drawing-h200.json"
WARM = 64  # pictures drawn before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=RECORD)
    parser.add_argument("--commit", help="recorded; default: asked of git")
    parser.add_argument("--pictures", type=int, default=4096)
    options = parser.parse_args()
    device = torch.device("cuda")
    settings = SceneSettings(renderer="torch")
    scene_pictures(settings, range(WARM), device)
    torch.cuda.synchronize()
    began = time.perf_counter()
    scene_pictures(settings, range(WARM, WARM + options.pictures), device)
    torch.cuda.synchronize()
    found = {
        "pictures": options.pictures,
        "width": settings.width,
        "height": settings.height,
        "samples": settings.samples,
        "seconds": round(time.perf_counter() - began, 2),
        "environment": describe(device, options.commit),
    }
    atomic_write_text(options.output, json.dumps(found, indent=1) + "\n")
    print(found)


if __name__ == "__main__":
    main()
