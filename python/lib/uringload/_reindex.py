"""Datasets whose files change: found at an epoch's start, and indexed anew."""

from __future__ import annotations

from typing import Any, final

from . import _log
from . import _uringload as native
from ._dataset import Dataset
from .errors import Error


@final
class Reindex:
    """Knows which files a dataset's paths had, and checks whether they still do."""

    def __init__(self, dataset: Dataset) -> None:
        self._names = _names(dataset)

    def of(self, dataset: Dataset) -> Dataset | None:
        """The dataset, opened anew, if its files have changed, and what has in a line of the log; else None.

        Raises what opening it raises. The caller keeps the old one then, and the next pass tries again.
        """
        changed = dataset._native.changed()
        names = _names(dataset)
        if changed is None and names == self._names:
            return None
        made = _opened(dataset)
        self._names = names
        files = "files were added"
        if changed is not None:
            files = f"{changed[0]} of {dataset.files} files changed ({changed[1]})"
        _log.info("indexed anew, because %s: %d samples in %d files, before %d in %d", files, len(made), made.files,
                  len(dataset), dataset.files)
        return made


def _names(dataset: Dataset) -> int | None:
    """None where no path is named, or one cannot be listed: opening it says why."""
    try:
        return native.names(dataset._paths, dataset._options) if dataset._paths else None
    except Error:
        return None


def _opened(dataset: Dataset) -> Dataset:
    """The same dataset from its paths, and so all that it is made of."""
    function, given = dataset.__reduce__()
    made: Dataset = function(*map(_again, given))
    return made


def _again(value: Any) -> Any:
    if isinstance(value, Dataset):
        return _opened(value)
    return [_again(item) for item in value] if isinstance(value, list) and _has_datasets(value) else value


def _has_datasets(values: list[Any]) -> bool:
    return bool(values) and isinstance(values[0], Dataset)
