"""The loaders of this process that are open."""

from __future__ import annotations

import atexit
import itertools
import os
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._loader import DataLoader

_numbers = itertools.count()
_open_loaders: weakref.WeakSet[DataLoader] = weakref.WeakSet()


def next_number() -> int:
    """The number of a loader that is made."""
    return next(_numbers)


def add(loader: DataLoader) -> None:
    """Notes a loader, which has its number. It is closed at the end of the process at the latest."""
    _open_loaders.add(loader)
    if len(_open_loaders) == 1:
        atexit.unregister(_close_all)
        atexit.register(_close_all)


def discard(loader: DataLoader) -> None:
    """Forgets a loader that is closed."""
    _open_loaders.discard(loader)


def open_loaders() -> list[DataLoader]:
    """The loaders of this process that are open, in the order in which they were made."""
    found = [loader for loader in list(_open_loaders) if loader._process == os.getpid()]
    return sorted(found, key=lambda loader: loader._number)


def _close_all() -> None:
    for loader in list(_open_loaders):
        loader.close()
