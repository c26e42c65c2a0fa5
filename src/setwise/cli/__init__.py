"""The command line: measure this machine, reproduce the tables of the paper, and print them."""

from __future__ import annotations

import argparse
import sys

from setwise.cli import bench, data, doctor, plan, reproduce, rules, tables
from setwise.cli.errors import CommandError

# Packages that come with an extra; each command says with which.
OPTIONAL = (
    *("PIL", "drjit", "kstar_planner", "matplotlib", "mitsuba", "rich", "safetensors", "sklearn"),
    "tensorboard",
)


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="setwise", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for command in (bench, data, doctor, plan, reproduce, rules, tables):
        command.register(commands)
    options = parser.parse_args(arguments)
    options.arguments = sys.argv[1:] if arguments is None else arguments
    try:
        return int(options.run(options))
    except CommandError as error:
        print(error, file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in OPTIONAL:
            raise
        said = f"this needs {package}: pip install 'setwise[{options.extra}]'"
        # Some parts of the library know better with which extra the package comes.
        print(error if "setwise[" in str(error) else said, file=sys.stderr)
        return 2
