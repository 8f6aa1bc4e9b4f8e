"""Exceptions: one class per kind of error in the library, all of them subclasses of `Error`."""

from __future__ import annotations

import os
from typing import Any

__all__ = [
    "ArgumentTypeError",
    "ChangedError",
    "CorruptError",
    "EmptyError",
    "Error",
    "IgnoredArgumentWarning",
    "InternalError",
    "InvalidArgumentError",
    "IoError",
    "MemoryLimitError",
    "NotFoundError",
    "PermissionDeniedError",
    "ReadTimeoutError",
    "StarvedError",
    "StateMismatchError",
    "TooManyFailuresError",
    "TransformError",
    "TruncatedError",
    "UnavailableError",
    "WorkerError",
    "WrongFileTypeError",
]


class Error(RuntimeError):
    """An error of uringload. Its text is `FILE:OFFSET: WHAT: CAUSE`, and a line `help: REMEDY` if it has a remedy."""

    #: The kind, for programs: the name of the class without "Error", as the library spells it.
    kind: str = "Internal"
    #: The file or folder.
    file: str | None = None
    #: The byte offset in the file.
    offset: int | None = None
    #: What you can do about it.
    remedy: str | None = None

    def __init__(self, message: str = "") -> None:
        super().__init__(message)

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    @property
    def headline(self) -> str:
        """The text without the remedy: one line, for lists and logs."""
        return str(self).partition("\nhelp: ")[0]


class InvalidArgumentError(Error, ValueError):
    """An argument, or a combination of arguments, that cannot work."""

    kind = "InvalidArgument"


class ArgumentTypeError(InvalidArgumentError, TypeError):
    """An argument of the wrong type, or one that does not exist."""


class NotFoundError(Error, FileNotFoundError):
    """A file or folder does not exist, or no longer exists."""

    kind = "NotFound"


class PermissionDeniedError(Error, PermissionError):
    """The system refuses to let this process read a file or folder."""

    kind = "PermissionDenied"


class EmptyError(Error, ValueError):
    """No samples were found where some were expected."""

    kind = "Empty"


class WrongFileTypeError(Error, OSError):
    """A path is not the kind of file or folder that is needed."""

    kind = "WrongFileType"


class TruncatedError(Error, ValueError):
    """A file is shorter than its index says, or its last record is incomplete."""

    kind = "Truncated"


class CorruptError(Error, ValueError):
    """A file's content violates its format."""

    kind = "Corrupt"


class ChangedError(Error, ValueError):
    """A file is no longer the one that was indexed: it was replaced, or written to."""

    kind = "Changed"


class MemoryLimitError(Error, MemoryError):
    """One batch does not fit in the memory limit."""

    kind = "MemoryLimit"


class StarvedError(Error):
    """The program holds so many batches that no memory is left to read the next one into."""

    kind = "Starved"


class UnavailableError(Error):
    """Something that was requested by name is not available here."""

    kind = "Unavailable"


class ReadTimeoutError(Error, TimeoutError):
    """A read, or the work after it, took longer than the timeout allows."""

    kind = "Timeout"


class TooManyFailuresError(Error):
    """More samples failed than `max_failures` allows."""

    kind = "TooManyFailures"


class StateMismatchError(Error, ValueError):
    """A saved state does not belong to this dataset or this order."""

    kind = "StateMismatch"


class IoError(Error, OSError):
    """A read failed: the disk or the file system reported an error."""

    kind = "Io"


class TransformError(Error):
    """A transform could not use a sample: an entry of `Batch.failed`. What the transform raised is its cause."""

    kind = "Transform"


class WorkerError(Error):
    """A worker process ended while it made samples."""

    kind = "Worker"


class InternalError(Error):
    """A bug in uringload."""

    kind = "Internal"


class IgnoredArgumentWarning(UserWarning):
    """An argument of PyTorch's DataLoader has no meaning here and is ignored; the text says why."""


_CLASSES: dict[str, type[Error]] = {
    cls.kind: cls
    for cls in (
        InvalidArgumentError,
        NotFoundError,
        PermissionDeniedError,
        EmptyError,
        WrongFileTypeError,
        TruncatedError,
        CorruptError,
        ChangedError,
        MemoryLimitError,
        StarvedError,
        UnavailableError,
        ReadTimeoutError,
        TooManyFailuresError,
        StateMismatchError,
        IoError,
        TransformError,
        InternalError,
    )
}


def of_kind(
    message: str,
    kind: str,
    file: str | os.PathLike[str] | None = None,
    offset: int | None = None,
    remedy: str | None = None,
) -> Error:
    """The exception for an error of the library. A kind that this version does not know gives a plain `Error`."""
    error = _CLASSES.get(kind, Error)(message)
    return _described(error, kind, None if file is None else os.fspath(file), offset, remedy)


def refused(what: str, remedy: str) -> InvalidArgumentError:
    """The error for an argument that cannot work, with its remedy."""
    error = InvalidArgumentError(f"{what}\nhelp: {remedy}")
    error.remedy = remedy
    return error


def mismatched(what: str, remedy: str) -> StateMismatchError:
    """The error for a state that belongs to something else, with its remedy."""
    error = StateMismatchError(f"{what}\nhelp: {remedy}")
    error.remedy = remedy
    return error


def mistyped(what: str, remedy: str) -> ArgumentTypeError:
    """The error for an argument of the wrong type, with its remedy."""
    error = ArgumentTypeError(f"{what}\nhelp: {remedy}")
    error.remedy = remedy
    return error


def worker_died(what: str, remedy: str) -> WorkerError:
    """The error for a worker process that ended, with its remedy."""
    error = WorkerError(f"{what}\nhelp: {remedy}")
    error.remedy = remedy
    return error


def unavailable(what: str, remedy: str) -> UnavailableError:
    """The error for something that is not available here, with its remedy."""
    error = UnavailableError(f"{what}\nhelp: {remedy}")
    error.remedy = remedy
    return error


def _described(error: Error, kind: str, file: str | None, offset: int | None, remedy: str | None) -> Error:
    values: dict[str, Any] = {"kind": kind, "file": file, "offset": offset, "remedy": remedy}
    for name, value in values.items():
        setattr(error, name, value)
    return error
