"""What networks found in pictures, right and wrong, to be gone through one by one."""

from __future__ import annotations

from pathlib import Path

from setwise.outside import read_json
from setwise.report.page.pieces import (
    Markup,
    Section,
    joined,
    paragraph,
    steps,
    subheading,
)
from setwise.report.page.provenance import provenance, source_of
from setwise.report.records import Kinds, numbered_pictures, require

FILE = "detections.json"
_DETECTIONS: Kinds = {"captions": list, "environment": dict, "said": str, "command": str}


def detections_sections(results: Path) -> list[Section]:
    """A section of all folders of results that keep some; none where there are none."""
    found = sorted(path.parent for path in results.glob(f"[!.]*/{FILE}"))
    if not found:
        return []
    content = joined([_detections(folder) for folder in found])
    return [Section("detections", "Objects found in pictures", content, short="Pictures")]


def _detections(folder: Path) -> Markup:
    try:
        told = read_json(folder / FILE)
        require(told, _DETECTIONS)
        captions = [str(caption) for caption in told["captions"]]
        pictures = numbered_pictures(folder, len(captions))
        source = source_of(told, told["environment"], "the network and what it found")
        parts = [
            subheading(folder.name),
            paragraph(told["said"]),
            steps(f"{folder.name}, picture by picture", pictures, captions),
            provenance([told["command"]], [source], folder.name, level=4),
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{folder / FILE}: not a record of detections: {error!r}") from error
    return joined(parts)
