"""The script ``uringload`` of the wheel: the whole command line, run in this process."""

from __future__ import annotations

import signal
import sys

from ._uringload import command


def main() -> int:
    """Runs the command line with this process's arguments and returns its exit code."""
    # Python's handler only sets a flag that it looks at between its own steps, and none follow: without this, Ctrl-C
    # would end no command that does not handle it itself.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return command(["uringload", *sys.argv[1:]])
