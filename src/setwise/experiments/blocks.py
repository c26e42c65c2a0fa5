"""Blocksworld states as sets of object vectors, out of the archive of their pictures.

Legend: S states, N blocks, F features.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from setwise.data.blocksworld_archive import BlocksworldArchive, archive_name, folder_name
from setwise.data.blocksworld_objects import BoxGrid
from setwise.experiments.clauses import fingerprint
from setwise.experiments.config import BlocksData
from setwise.experiments.measures import PictureError
from setwise.experiments.patches import patch_autoencoder
from setwise.features import Bernoulli, Features


def archive_of(data: BlocksData, folder: Path) -> Path:
    """Where the archive is, below the folder of all data."""
    return folder / folder_name(data.blocks, data.width, data.height) / archive_name(data.states)


def with_archive(data: BlocksData, folder: Path) -> BlocksData:
    """The same data, bound to the archive that is there now.

    If it was drawn here, then as the data say; of one from elsewhere nothing is known.
    """
    path = _existing(data, folder)
    _check_drawn(data, path)
    return replace(data, sha256=fingerprint(path))


def object_sets(
    data: BlocksData, folder: Path, device: torch.device
) -> tuple[Tensor, Features, PictureError]:
    """The states as sets [S, N, F], what their features are, and how a reconstruction is judged.

    Trains the patch autoencoder, on the device, unless that has been done before.
    """
    path = _existing(data, folder)
    if fingerprint(path) != data.sha256:
        raise ValueError(
            f"{path}: not the pictures of this config: their SHA-256 is "
            f"{data.sha256 or 'not settled yet, see with_archive'}, that of the file "
            f"{fingerprint(path)}"
        )
    archive = BlocksworldArchive.read(path)
    _check(data, archive, path)
    patches = torch.from_numpy(archive.patches).movedim(-1, -3).float() / 255
    grid = BoxGrid(data.height, data.width, data.cell)
    model = patch_autoencoder(data, patches[: data.train].flatten(0, 1), path.parent, device)
    with torch.no_grad():
        seen = torch.cat([model.encode(some) for some in patches.split(200)])
    where = grid.one_hots(torch.from_numpy(archive.boxes.astype("int64")))
    features = Features(Bernoulli(model.features), *grid.features(data.scored_as))
    return torch.cat([seen, where], dim=-1), features, PictureError(model, grid)


def _existing(data: BlocksData, folder: Path) -> Path:
    path = archive_of(data, folder)
    if not path.is_file():
        raise ValueError(
            f"{path}: there are no pictures; make them with setwise data blocksworld "
            f"--blocks {data.blocks} --stacks {data.stacks} --states {data.states} "
            f"--seed {data.seed} --renderer {data.renderer} --width {data.width} "
            f"--height {data.height} --samples {data.samples} --output {path.parent}"
        )
    return path


def _check_drawn(data: BlocksData, path: Path) -> None:
    """An archive has no room for how it was drawn; the settings beside it tell."""
    settings = path.with_name("settings.json")
    if not settings.exists():
        return
    saved = json.loads(settings.read_text())
    drawn = saved | saved.get("environment", {}).get("world", {})
    different = [
        f"{name} {drawn.get(name)} instead of {getattr(data, name)}"
        for name in ("blocks", "stacks", "seed", "renderer", "width", "height", "samples")
        if drawn.get(name) != getattr(data, name)
    ]
    if different:
        raise ValueError(
            f"{path}: by {settings.name} beside it, drawn in another way than the config says "
            f"({'; '.join(different)}): use another folder of data, or remove this one"
        )


def _check(data: BlocksData, archive: BlocksworldArchive, path: Path) -> None:
    """An archive may come from elsewhere, with anything in it."""
    states, blocks = archive.boxes.shape[:2]
    expected = (data.states, data.blocks, (data.height, data.width))
    if (states, blocks, archive.picture) != expected:
        raise ValueError(
            f"{path}: expected states, blocks and size {expected}, "
            f"got {(states, blocks, archive.picture)}"
        )
    if not 0 < data.train <= data.states:
        raise ValueError(
            f"data: expected 0 < train <= states, got train {data.train}, states {data.states}"
        )
