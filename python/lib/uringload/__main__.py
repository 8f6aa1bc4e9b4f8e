"""``python -m uringload``: the command line, as the script ``uringload``."""

import sys

from ._command import main

if __name__ == "__main__":
    sys.exit(main())
