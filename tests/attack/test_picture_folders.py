"""Folders of pictures from anywhere: their blocks are cut out, or one line names what is wrong."""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from hostile import flipped, mutated, shortened
from limits import failures, within_limits
from setwise.data.blocksworld import Blocksworld
from setwise.render import Environment, files, scene_of
from setwise.render.dataset import Settings
from setwise.render.patches import collect

# Slow: a child process. tests/render/test_render_folders.py has one of each kind.
pytestmark = pytest.mark.slow
CASES = 240
WORLD = Blocksworld(blocks=2, stacks=3)
STATES = WORLD.sample(3, seed=0)
SETTINGS = Settings(Environment.draw(WORLD, seed=0), width=48, height=32)


@cache
def original() -> Path:
    """Pictures of noise, with the boxes of what should be there."""
    folder = Path(tempfile.mkdtemp())
    files.prepare(folder, as_dict())
    noise = np.random.default_rng(0)
    for state in STATES:
        scene = scene_of(SETTINGS.environment, state, SETTINGS.seed)
        described = files.describe(WORLD, state, scene, SETTINGS.width, SETTINGS.height)
        picture = noise.integers(0, 256, (SETTINGS.height, SETTINGS.width, 3), np.uint8)
        files.save(folder, int(WORLD.rank(state)), files.encode(picture), described)
    return folder


def as_dict() -> dict[str, Any]:
    return asdict(SETTINGS) | {"version": "none"}


def damage(folder: Path, rng: random.Random) -> None:
    """One of the files, in one way."""
    rank = int(WORLD.rank(rng.choice(list(STATES))))
    path = rng.choice(
        [folder / files.SETTINGS, files.scene_path(folder, rank), files.image_path(folder, rank)]
    )
    content = path.read_bytes()
    how = rng.choice(["cut", "flip", "special", "tree", "tree", "text", "picture"])
    if how == "cut":
        path.write_bytes(shortened(content, rng))
    elif how == "flip":
        path.write_bytes(flipped(content, rng))
    elif how == "tree" and path.suffix == ".json":
        path.write_text(json.dumps(mutated(json.loads(content), rng)))
    elif how == "text":
        texts = ["", "null", "[]", "{}", "[" * 10**5, '{"objects": 3}', "\udcff", "9" * 10**4]
        path.write_bytes(rng.choice(texts).encode(errors="surrogateescape"))
    elif how == "picture":
        size, mode = rng.choice([(1, 1), (32, 48), (2000, 2000), (48, 32)]), rng.choice("LP1")
        path.unlink()
        Image.new(mode, size).save(path, format=rng.choice(["PNG", "GIF", "BMP"]))
    else:
        path.unlink()
        kind = rng.choice(["pipe", "folder", "link", "nothing"])
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        elif kind == "link":
            path.symlink_to(rng.choice(["nowhere", "/dev/zero", str(path)]))


def attempt(case: int) -> str:
    folder = Path(tempfile.mkdtemp()) / "pictures"
    shutil.copytree(original(), folder)
    damage(folder, random.Random(case))
    texts = []
    for use in (lambda: collect(WORLD, STATES, folder), lambda: files.prepare(folder, as_dict())):
        try:
            use()
        except (ValueError, FileNotFoundError) as error:
            texts.append(str(error))
    shutil.rmtree(folder)
    for said in texts:
        assert str(folder) in said, said
        assert "\n" not in said
    return texts[0] if texts else ""


def test_every_folder_is_read_or_refused_in_one_line() -> None:
    found = within_limits(attempt, range(CASES), seconds=60, megabytes=1000)
    assert not failures(found)
    assert CASES // 2 < sum(1 for one in found if one.value) < CASES
