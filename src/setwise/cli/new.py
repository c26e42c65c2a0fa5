"""``setwise new``: a small project of one's own, which trains as it is."""

from __future__ import annotations

import argparse
import random
import shlex
from importlib import resources
from pathlib import Path
from typing import Any

from setwise.cli.errors import CommandError
from setwise.cli.options import require_folder
from setwise.data.rows import write_rows
from setwise.files import atomic_write_text, require_name, unfinished

ROWS = 600
FILES = ("README.md", "config.toml", "train.py")
# The templates of train.py, and what each is written in.
PLAIN = ("train.py", "plain PyTorch")
LIGHTNING = ("train_lightning.py", "Lightning")


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser's."""
    parser = commands.add_parser(
        "new",
        help="begin a project of your own",
        description="Writes a folder with data (JSON Lines, a set in each row), a config and a "
        "training script in plain PyTorch or Lightning. It trains as it is: then put in your own "
        "data.",
    )
    parser.add_argument("name", metavar="NAME", type=Path, help="of the folder, which is made")
    parser.add_argument(
        "--lightning", action="store_true", help="a training script in Lightning (default: PyTorch)"
    )
    parser.set_defaults(run=_run, extra="experiments")


def _run(options: argparse.Namespace) -> int:
    folder: Path = options.name
    try:
        require_name("NAME", folder.name)
    except ValueError as error:
        raise CommandError(str(error)) from error
    if folder.exists() or folder.is_symlink():
        raise CommandError(f"NAME: {folder} is there already; choose another name")
    require_folder("NAME", folder)
    templates = resources.files("setwise.cli") / "project"
    script, written_in = LIGHTNING if options.lightning else PLAIN
    # Whole or not there: half a project would be in the way of the same command.
    with unfinished(folder, folder=True) as place:
        write_rows(place / "data.jsonl", rectangles(ROWS))
        for name in FILES:
            template = templates / (script if name == "train.py" else name)
            text = template.read_text(encoding="utf-8")
            text = text.replace("{name}", folder.name).replace("{written in}", written_in)
            atomic_write_text(place / name, text)
        place.rename(folder)
    print(f"{folder}: data.jsonl, {', '.join(FILES)}; go on with")
    print(f"  cd {shlex.quote(str(folder))}")
    if options.lightning:
        print("  pip install lightning")
    print("  python train.py")
    print("  setwise train data.jsonl --target objects")
    return 0


def rectangles(number: int, seed: int = 0) -> list[dict[str, Any]]:
    """Rows with a rectangle, and the set of its corners and, if it is marked, its centre."""
    draw = random.Random(seed)
    rows = []
    for _ in range(number):
        x, y = (round(draw.uniform(-10, 10), 2) for _ in range(2))
        width, height = (round(draw.uniform(2, 12), 2) for _ in range(2))
        marked = draw.random() < 0.5
        ends = [(x, y), (x + width, y), (x, y + height), (x + width, y + height)]
        objects: list[dict[str, Any]] = [_point("corner", *end) for end in ends]
        if marked:
            objects.append(_point("centre", x + width / 2, y + height / 2))
        draw.shuffle(objects)
        rectangle = {"x": x, "y": y, "width": width, "height": height, "marked": marked}
        rows.append({**rectangle, "objects": objects})
    return rows


def _point(kind: str, x: float, y: float) -> dict[str, Any]:
    return {"kind": kind, "x": round(x, 3), "y": round(y, 3)}
