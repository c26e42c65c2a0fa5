"""The command line: see the library work, reproduce the paper, plan, and measure this machine."""

from __future__ import annotations

import sys

import setwise
from setwise.cli import (
    actions,
    bench,
    data,
    demo,
    doctor,
    new,
    plan,
    predict,
    report,
    reproduce,
    rules,
    streams,
    tables,
    train,
)
from setwise.cli.errors import CommandError
from setwise.cli.installed import extra_with, for_this_installation
from setwise.cli.interrupt import INTERRUPTED, all_like_ctrl_c
from setwise.cli.options import Parser

# Packages that come with an extra; each command says with which.
OPTIONAL = (
    *("PIL", "drjit", "jinja2", "kstar_planner", "markupsafe", "matplotlib", "mitsuba", "ray"),
    *("rich", "safetensors", "sklearn", "tensorboard"),
)


NOBODY_READS = 141  # as shells count a process that wrote to a closed pipe


def command_line() -> Parser:
    """All commands and their options."""
    parser = Parser(
        prog="setwise",
        description="Train and evaluate neural networks that predict sets, plan with them, and "
        "reproduce the tables of the Set Cross Entropy paper.",
        epilog="setwise COMMAND --help lists the options of a command. New here? Try setwise demo.",
    )
    parser.add_argument("--version", action="version", version=f"setwise {setwise.__version__}")
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", title="commands"
    )
    # In the order in which somebody new may want them.
    ordered = (
        *(demo, doctor, new, train, predict, report, tables, reproduce, plan, actions, rules),
        *(data, bench),
    )
    for command in ordered:
        command.register(commands)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    with streams.any_text_and_one_line_warnings():
        try:
            try:
                return _run(arguments)
            finally:
                streams.flush()
        except BrokenPipeError:
            # Whoever read the output, such as head, has seen enough.
            streams.silence()
            return NOBODY_READS
        except OSError as error:  # of the output itself: a full disk
            print(error, file=sys.stderr)
            streams.silence()
            return 2


def _run(arguments: list[str] | None) -> int:
    options = command_line().parse_args(arguments)
    options.arguments = sys.argv[1:] if arguments is None else arguments
    try:
        with all_like_ctrl_c():
            return int(options.run(options))
    except BrokenPipeError:
        raise
    except (CommandError, OSError) as error:
        print(streams.printable(for_this_installation(str(error))), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return INTERRUPTED
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in OPTIONAL:
            raise
        extra = extra_with(package, options.extra)
        said = f"this needs {package}: pip install 'setwise[{extra}]'"
        # Some parts of the library know better with which extra the package comes.
        told = str(error) if "setwise[" in str(error) else said
        print(for_this_installation(told), file=sys.stderr)
        return 2
