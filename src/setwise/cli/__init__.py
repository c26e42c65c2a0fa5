"""The command line: see the library work, reproduce the paper, plan, and measure this machine."""

from __future__ import annotations

import os
import sys

import setwise
from setwise.cli import (
    actions,
    bench,
    data,
    demo,
    doctor,
    plan,
    report,
    reproduce,
    rules,
    tables,
    train,
)
from setwise.cli.errors import CommandError
from setwise.cli.installed import for_this_installation
from setwise.cli.interrupt import INTERRUPTED
from setwise.cli.options import Parser

# Packages that come with an extra; each command says with which.
OPTIONAL = (
    *("PIL", "drjit", "jinja2", "kstar_planner", "markupsafe", "matplotlib", "mitsuba", "rich"),
    *("safetensors", "sklearn", "tensorboard"),
)


NOBODY_READS = 141  # as shells count a process that wrote to a closed pipe


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
    ordered = (demo, doctor, report, tables, reproduce, train, plan, actions, rules, data, bench)
    for command in ordered:
        command.register(commands)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    options = command_line().parse_args(arguments)
    options.arguments = sys.argv[1:] if arguments is None else arguments
    try:
        code = int(options.run(options))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # Whoever read the output, such as head, has seen enough. Python would complain of what is
        # left of it on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NOBODY_READS
    except (CommandError, OSError) as error:
        print(for_this_installation(str(error)), file=sys.stderr)
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
        told = str(error) if "setwise[" in str(error) else said
        print(for_this_installation(told), file=sys.stderr)
        return 2
