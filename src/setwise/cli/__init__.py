"""The command line: see the library work, reproduce the paper, plan, and measure this machine."""

from __future__ import annotations

import sys

import setwise
from setwise.cli import bench, data, demo, doctor, plan, report, reproduce, rules, tables
from setwise.cli.errors import CommandError
from setwise.cli.interrupt import INTERRUPTED
from setwise.cli.options import Parser

# Packages that come with an extra; each command says with which.
OPTIONAL = (
    *("PIL", "drjit", "kstar_planner", "matplotlib", "mitsuba", "rich", "safetensors", "sklearn"),
    "tensorboard",
)


def command_line() -> Parser:
    """All commands and their options."""
    parser = Parser(
        prog="setwise",
        description="Networks whose output is a set: see them learn, reproduce the tables of the "
        "paper, plan with what was learned.",
        epilog="setwise COMMAND --help says more. New here? setwise demo",
    )
    parser.add_argument("--version", action="version", version=f"setwise {setwise.__version__}")
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", title="commands"
    )
    # In the order in which somebody new may want them.
    for command in (demo, doctor, report, tables, reproduce, plan, rules, data, bench):
        command.register(commands)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    options = command_line().parse_args(arguments)
    options.arguments = sys.argv[1:] if arguments is None else arguments
    try:
        return int(options.run(options))
    except (CommandError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return INTERRUPTED
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in OPTIONAL:
            raise
        said = f"this needs {package}: pip install 'setwise[{options.extra}]'"
        # Some parts of the library know better with which extra the package comes.
        print(error if "setwise[" in str(error) else said, file=sys.stderr)
        return 2
