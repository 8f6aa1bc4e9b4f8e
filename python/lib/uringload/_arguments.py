"""Argument checks: what values each kind of argument takes, and the errors for the rest."""

from __future__ import annotations

import math
import operator
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from . import _uringload as native
from .errors import IgnoredArgumentWarning, mistyped, refused

#: Where the modules of this package are.
_FOLDER = os.path.join(os.path.dirname(__file__), "")

#: Arguments of PyTorch's DataLoader that have no meaning here, and why.
IGNORED = {
    "prefetch_factor": "how much is read ahead follows from memory_limit; there are no workers to prefetch for",
    "persistent_workers": "there are no worker processes: one thread reads, and lives as long as the loader",
    "multiprocessing_context": "there are no worker processes",
    "in_order": "batches always come in the order of the epoch",
}


def integer(name: str, value: Any, least: int = 0) -> int:
    """A whole number of at least `least`. NumPy integers are fine; True is not a number."""
    if not isinstance(value, bool):
        try:
            number = operator.index(value)
        except TypeError:
            pass
        else:
            if number < least or number >= 1 << 64:
                raise refused(f"{name} cannot be {number}", f"give a whole number from {least} on")
            return number
    raise mistyped(f"{name} is {_typed(value)}, not a whole number", f"give {name} as an int")


def boolean(name: str, value: Any) -> bool:
    """True or False."""
    if isinstance(value, bool):
        return value
    raise mistyped(f"{name} is {_typed(value)}, not True or False", f"give {name} as a bool")


def number(name: str, value: Any) -> float:
    """A finite number."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    raise mistyped(f"{name} is {_typed(value)}, not a number", f"give {name} as a float")


def share(name: str, value: Any) -> float:
    """A part of a whole, from 0 to 1."""
    part = number(name, value)
    if not 0 <= part <= 1:
        raise refused(f"{name} cannot be {value}", "give a share from 0 (none) to 1 (all)")
    return part


def text(name: str, value: Any, known: Sequence[str] = ()) -> str:
    """A string; if `known` is given, one of those."""
    if not isinstance(value, str):
        raise mistyped(f"{name} is {_typed(value)}, not a string", f"give {name} as a str")
    if known and value not in known:
        raise refused(f"{name} cannot be {value!r}", _suggestion(value, known) or f"it is one of {', '.join(known)}")
    return value


def names(name: str, value: Any) -> list[str]:
    """One string or several."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Iterable):
        items = list(value)
        if all(isinstance(item, str) for item in items):
            return items
    raise mistyped(f"{name} is {_typed(value)}, not a list of strings", f"give {name} as a list of str")


def integers(name: str, value: Any) -> list[int]:
    """Several whole numbers."""
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return [_item(name, index, item) for index, item in enumerate(value)]
    raise mistyped(f"{name} is {_typed(value)}, not a list of whole numbers", f"give {name} as a list of int")


def _item(name: str, index: int, item: Any) -> int:
    # The name of an item is only made up for an error: there may be millions of items.
    if type(item) is int and 0 <= item < 1 << 64:
        return item
    return integer(f"{name}[{index}]", item)


def ids(name: str, value: Any) -> bytes:
    """Sample numbers, packed, 8 bytes each: from a range, an array, a tensor or anything that is iterated over.

    Ten million take less than half a second.
    """
    from array import array

    if isinstance(value, array) and value.typecode == "Q":
        return value.tobytes()
    numpy = sys.modules.get("numpy")
    if hasattr(value, "detach"):
        # A tensor of torch, wherever it is.
        value = value.detach().cpu().numpy()
    if numpy is not None and isinstance(value, range):
        value = numpy.arange(value.start, value.stop, value.step)
    if numpy is not None and isinstance(value, numpy.ndarray) and value.ndim == 1 and value.dtype.kind in "iu":
        if not value.size or value.min() >= 0:
            packed: bytes = value.astype(numpy.uint64, copy=False).tobytes()
            return packed
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        items = value if isinstance(value, (list, range)) else list(value)
        if isinstance(items, range) or set(map(type, items)) <= {int}:
            try:
                return array("Q", items).tobytes()
            except OverflowError:
                # The error below says which.
                pass
        return array("Q", integers(name, items)).tobytes()
    raise mistyped(f"{name} is {_typed(value)}, not a list of whole numbers", f"give {name} as a list of int")


def paths(name: str, value: Any) -> list[str]:
    """One path or several."""
    items = [value] if isinstance(value, (str, bytes, os.PathLike)) else value
    if isinstance(items, Iterable):
        found = list(items)
        if found and all(isinstance(item, (str, bytes, os.PathLike)) for item in found):
            return [os.fsdecode(item) for item in found]
    raise mistyped(f"{name} is {_typed(value)}, not a path or a list of paths", "give folders, files or patterns")


def size(name: str, value: Any) -> int:
    """A size in bytes: a number, or a string such as "8GiB" or "512 MB"."""
    return native.size(name, value) if isinstance(value, str) else integer(name, value)


def choice(name: str, value: Any, known: Sequence[str]) -> str:
    """One of the `known` words."""
    return text(name, value, known)


def ignore(given: Mapping[str, Any]) -> dict[str, Any]:
    """Warns once of each argument that has no meaning here, and returns the others."""
    others = {}
    for name, value in given.items():
        # PyTorch's default: giving it changes nothing, so it earns no warning.
        default = True if name == "in_order" else False
        if name not in IGNORED:
            others[name] = value
        elif value is not None and value is not default:
            ignored(name, IGNORED[name])
    return others


def ignored(name: str, why: str) -> None:
    """Warns of an ignored argument, at the line of the user's that gave it."""
    import warnings

    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_FOLDER):
        level, frame = level + 1, frame.f_back
    warnings.warn(f"{name} is ignored: {why}", IgnoredArgumentWarning, stacklevel=level)


def unknown(name: str, known: Iterable[str], where: str) -> Exception:
    """The error for an argument that does not exist."""
    remedy = _suggestion(name, [*known]) or f"help(uringload.{where}) lists the arguments that it has"
    return mistyped(f"{where} has no argument {name!r}", remedy)


def _suggestion(name: str, known: Sequence[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else ""


def _typed(value: Any) -> str:
    shown = repr(value)
    if len(shown) > 60:
        shown = shown[:57] + "..."
    return f"{shown} (a {type(value).__name__})"
