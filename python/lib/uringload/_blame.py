"""Whose fault an exception of the user's code is: the sample's or the batch's, named in notes of the exception."""

from __future__ import annotations

import os
from typing import TypeVar

from . import _uringload as native

E = TypeVar("E", bound=BaseException)

#: Where the modules of this package are.
_FOLDER = os.path.join(os.path.dirname(__file__), "")


def note(error: BaseException, text: str) -> None:
    """Adds a note, which a traceback shows from Python 3.11 on."""
    if hasattr(error, "add_note"):
        error.add_note(text)
        return
    try:
        error.__notes__ = [*getattr(error, "__notes__", []), text]
    except AttributeError:
        # An exception with slots: its text is all that there is.
        pass


def of_sample(error: Exception, dataset: native.Dataset, epoch: int, number: int) -> Exception:
    """The exception of a transform with a note that names the sample: number, key, file and offset."""
    place = dataset.place(number)
    where = "" if place is None else f", in {os.fspath(place[0])} at byte {place[1]}"
    key = os.fsdecode(dataset.key(number))
    error = _unless_stop(error, "a transform")
    note(error, f"in the transform of sample {number} (key {key!r}){where}, epoch {epoch}")
    return error


def of_batch(error: Exception, what: str, meta: native.Meta) -> Exception:
    """The exception of a function of batches with a note that names the batch."""
    ids = meta.ids
    shown = ", ".join(map(str, ids[:4])) + (f", ... {ids[-1]}" if len(ids) > 4 else "")
    error = _unless_stop(error, what)
    note(error, f"in {what} of the batch at position {meta.position} of epoch {meta.epoch} (samples {shown})")
    return error


def trimmed(error: E) -> E:
    """The exception without this package's own frames, where its traceback begins with them. They hold what the
    exception is in, which would be a circle: the memory of the batch would stay until the garbage collector comes.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_FOLDER):
        trace = trace.tb_next
    return error.with_traceback(trace)


def text(error: BaseException) -> str:
    """The exception in one line."""
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _unless_stop(error: Exception, what: str) -> Exception:
    """As with generators: StopIteration would end the pass silently."""
    if not isinstance(error, (StopIteration, StopAsyncIteration)):
        return error
    stopped = RuntimeError(f"{what} raised {type(error).__name__}")
    stopped.__cause__ = error
    return stopped

