"""What a command cannot do, told in one line instead of a traceback."""


class CommandError(Exception):
    """Printed as it is; the exit code is 2."""
