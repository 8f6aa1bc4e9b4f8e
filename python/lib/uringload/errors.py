"""Exceptions: one class for each kind of error that the library has, all of them `Error`."""

from __future__ import annotations

import os
from typing import Any

__all__ = [
    "ArgumentTypeError",
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
    "TruncatedError",
    "UnavailableError",
    "WrongFileTypeError",
]


class Error(RuntimeError):
    """An error of uringload. Its text is `FILE:OFFSET: WHAT: CAUSE`, and a line `help: REMEDY` if there is a remedy."""

    #: The kind, for programs: the name of the class without "Error", as the library spells it.
    kind: str = "Internal"
    #: The file or folder.
    file: str | None = None
    #: The byte offset in the file.
    offset: int | None = None
    #: What can be done about it.
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
    """An argument of another type than is wanted, or one that there is not."""


class NotFoundError(Error, FileNotFoundError):
    """A file or folder is not there (any more)."""

    kind = "NotFound"


class PermissionDeniedError(Error, PermissionError):
    """The system refuses to let this process read a file or folder."""

    kind = "PermissionDenied"


class EmptyError(Error, ValueError):
    """There is no sample where samples were expected."""

    kind = "Empty"


class WrongFileTypeError(Error, OSError):
    """A path that is neither a file nor a folder of the kind that is wanted."""

    kind = "WrongFileType"


class TruncatedError(Error, ValueError):
    """A file is shorter than its index says, or its last record is incomplete."""

    kind = "Truncated"


class CorruptError(Error, ValueError):
    """A file's content breaks its format."""

    kind = "Corrupt"


class MemoryLimitError(Error, MemoryError):
    """One batch cannot fit in the memory limit."""

    kind = "MemoryLimit"


class StarvedError(Error):
    """So many batches are held that no memory is left to read the next one into."""

    kind = "Starved"


class UnavailableError(Error):
    """What was asked for by name cannot be had here."""

    kind = "Unavailable"


class ReadTimeoutError(Error, TimeoutError):
    """A read, or what comes behind it, took longer than the timeout allows."""

    kind = "Timeout"


class TooManyFailuresError(Error):
    """More samples failed than `max_failures` allows."""

    kind = "TooManyFailures"


class StateMismatchError(Error, ValueError):
    """A saved state does not belong to this dataset or this order."""

    kind = "StateMismatch"


class IoError(Error, OSError):
    """The system failed to read: what the disk or the file system reported."""

    kind = "Io"


class InternalError(Error):
    """A bug of uringload."""

    kind = "Internal"


class IgnoredArgumentWarning(UserWarning):
    """An argument of PyTorch's DataLoader that means nothing here, and why."""


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
        MemoryLimitError,
        StarvedError,
        UnavailableError,
        ReadTimeoutError,
        TooManyFailuresError,
        StateMismatchError,
        IoError,
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
    """The exception for an error of the library. A kind that this version does not know is plain `Error`."""
    error = _CLASSES.get(kind, Error)(message)
    return _described(error, kind, None if file is None else os.fspath(file), offset, remedy)


def refused(what: str, remedy: str) -> InvalidArgumentError:
    """An argument that cannot work, and what to do about it."""
    error = InvalidArgumentError(f"{what}\nhelp: {remedy}")
    error.remedy = remedy
    return error


def mistyped(what: str, remedy: str) -> ArgumentTypeError:
    """An argument of another type than is wanted."""
    error = ArgumentTypeError(f"{what}\nhelp: {remedy}")
    error.remedy = remedy
    return error


def unavailable(what: str, remedy: str) -> UnavailableError:
    """Something that cannot be had here."""
    error = UnavailableError(f"{what}\nhelp: {remedy}")
    error.remedy = remedy
    return error


def _described(error: Error, kind: str, file: str | None, offset: int | None, remedy: str | None) -> Error:
    values: dict[str, Any] = {"kind": kind, "file": file, "offset": offset, "remedy": remedy}
    for name, value in values.items():
        setattr(error, name, value)
    return error
