"""``python -m setwise.cli``: the command ``setwise`` where no scripts are installed."""

import sys

from setwise.cli import main

if __name__ == "__main__":
    sys.exit(main())
