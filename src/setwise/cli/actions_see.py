"""``setwise actions see``: pictures before and after steps, as a recording of learned symbols."""

from __future__ import annotations

import argparse
from pathlib import Path

from setwise.cli.errors import CommandError
from setwise.cli.options import positive_whole, require_file, require_place, seed
from setwise.cli.stages import stage


def register(kinds: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add it to what ``setwise actions`` can do."""
    parser = kinds.add_parser(
        "see",
        help="symbols from pictures and boxes, as a file to learn from",
        description="Draws random transitions between the pictures of an archive that setwise data "
        "blocksworld made, learns what looks and places there are, and writes them as a recording. "
        "Learn from it with --only-present, since free places are elements, and --support 2.",
    )
    add = parser.add_argument
    add("archive", type=Path, metavar="ARCHIVE", help="such as runs/blocksworld-4/states-5760.npz")
    add("-o", "--output", type=Path, required=True, metavar="FILE", help=".jsonl")
    add("--transitions", type=positive_whole, default=2000, help="default: 2000")
    add("--seed", type=seed, default=0, help="default: 0")
    add("--symbols", type=Path, metavar="FILE", help="keep the symbols here, as safetensors")
    add("--problem", type=Path, metavar="FILE", help="write a problem as well, for actions plan")
    add("--steps", type=positive_whole, default=7, help="of the walk of a problem; default: 7")
    parser.set_defaults(run=_see, extra="planning")


def _see(options: argparse.Namespace) -> int:
    import torch

    from setwise.data.blocksworld_archive import BlocksworldArchive
    from setwise.planning.actions import PicturedSteps, fit_symbols, write_problem, write_recording

    require_file("ARCHIVE", options.archive)
    places = {
        "--output": options.output,
        "--symbols": options.symbols,
        "--problem": options.problem,
    }
    chosen = {option: path for option, path in places.items() if path}
    for option, path in chosen.items():
        require_place(option, path)
    if len({path.resolve() for path in chosen.values()}) < len(chosen):
        raise CommandError(f"{', '.join(chosen)}: expected different files")
    try:
        with stage(f"learning symbols from the pictures in {options.archive}"):
            archive = BlocksworldArchive.read(options.archive)
            steps = PicturedSteps.draw(archive, options.transitions, options.seed)
            problems = steps.problems(options.steps, 1, options.seed) if options.problem else []
            symbols = fit_symbols(steps.before, steps.after)
        looks = symbols.looks
        print(
            f"looks      {looks.count} of {looks.things.count} things; {looks.stable:.2%} of those "
            f"that a step left alone are called the same before and after"
        )
        print(f"places     {len(symbols.places.middles)} columns")
        write_recording(symbols.recording(steps.before, steps.after), options.output)
        print(f"recorded   {options.transitions} transitions in {options.output}")
        if options.symbols:
            symbols.save(options.symbols)
            print(f"symbols    {options.symbols}")
        for ends in problems:
            init, goal = symbols.encode(steps.sights[torch.tensor(ends)])
            write_problem(init, goal, options.problem)
            print(f"problem    {options.steps} random steps, in {options.problem}")
    except (ValueError, OSError) as error:
        raise CommandError(str(error)) from error
    return 0
