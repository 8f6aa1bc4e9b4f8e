"""Datasets: from paths to an index of their samples."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, final

from . import _arguments as arguments
from . import _log
from . import _uringload as native
from .errors import mistyped

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "flag": arguments.boolean,
    "size": arguments.size,
    "number": arguments.integer,
    "numbers": arguments.integers,
    "text": arguments.text,
    "texts": arguments.names,
    "path": lambda name, value: arguments.paths(name, value)[0],
}

#: What may be asked of files: the format, and the options of all formats, as these declare them.
_OPTIONS: dict[str, Callable[[str, Any], Any]] = {
    "format": arguments.text,
    **{name: _CHECKS[kind] for name, kind, *_ in native.format_options()},
}

#: Their names.
OPTIONS = tuple(_OPTIONS)

#: Which samples of them are wanted.
LISTS = ("only", "exclude")


@final
class Dataset:
    """Which samples there are and where they lie.

    ``paths`` is a folder, a file, a pattern (``data/train-{000..146}.tar``, ``**/*.jpg``) or a list of these, which
    together are one dataset. The format is told from the files unless ``format`` says it. Formats: folder (every file
    is a sample, folders of folders are labels), records, mds, litdata, beton, idx, npy, npz, safetensors, hdf5, tokens,
    tar, tfrecord, jsonl, csv, text, parquet, arrow. The formats that have an option stand behind it.

    Args:
        paths: folders, files, patterns.
        format: how files make samples.
{options}
        only: samples that are wanted, as lists in files (one number a line, or a quarantine file), or as numbers of
            samples in the order in which they are to be counted.
        exclude: quarantine files or lists of numbers: samples that are left out. With `only`, its numbers count what
            that leaves.
    """

    __slots__ = ("_native", "_paths", "_options", "_only", "_exclude", "_mixed", "__weakref__")

    def __init__(
        self,
        paths: Paths,
        *,
        only: Paths | Iterable[int] | None = None,
        exclude: Paths | None = None,
        **options: Any,
    ) -> None:
        for name in options:
            if name not in _OPTIONS:
                raise arguments.unknown(name, [*OPTIONS, *LISTS], "Dataset")
        self._paths = arguments.paths("paths", paths)
        self._only = None if only is None else _numbers_or_paths(only)
        self._exclude = [] if exclude is None else arguments.paths("exclude", exclude)
        self._mixed: tuple[list[Dataset], list[float], str] | None = None
        self._options = {name: _OPTIONS[name](name, value) for name, value in options.items() if value is not None}
        self._native = native.Dataset.open(self._paths, self._options)
        for remark in self._native.remarks:
            _log.warning("%s", remark)
        if self._only is not None:
            numbers, lists = self._only
            self._native = self._native.only(lists) if lists else self._native.subset(numbers)
        if self._exclude:
            self._native = self._native.without(self._exclude)

    def __len__(self) -> int:
        """Number of samples."""
        return len(self._native)

    @property
    def format(self) -> str:
        """Short name of the format."""
        return self._native.format

    @property
    def files(self) -> int:
        """Number of files."""
        return self._native.files

    @property
    def nbytes(self) -> int:
        """Bytes of all samples, as far as the index tells."""
        return self._native.nbytes

    @property
    def fingerprint(self) -> str:
        """What order and content of samples hang on: 16 digits."""
        return self._native.fingerprint

    @property
    def classes(self) -> list[str]:
        """Names of the classes, where folders make labels."""
        return self._native.classes

    @property
    def columns(self) -> dict[str, tuple[str, tuple[int, ...] | None]]:
        """Type and shape of each column; the shape is None where values differ in length."""
        return {
            name: (dtype, None if shape is None else tuple(shape)) for name, dtype, shape, *_ in self._native.columns
        }

    @property
    def text_columns(self) -> list[str]:
        """Columns whose values are text, as the format says."""
        return [name for name, dtype, shape, _, role in self._native.columns
                if dtype == "u8" and shape is None and role == "text"]

    @property
    def skipped(self) -> list[tuple[str, int, str]]:
        """What was left out: why, how often, and the first file that it happened to."""
        return self._native.skipped

    def key(self, index: int) -> str:
        """What names a sample to a person."""
        return os.fsdecode(self._native.key(arguments.integer("index", index)))

    def __reduce__(self) -> tuple[Any, ...]:
        if self._mixed is not None:
            return mix, self._mixed
        numbers, lists = ([], []) if self._only is None else self._only
        return _open, (self._paths, numbers or lists or None, self._exclude, self._options)

    def __repr__(self) -> str:
        if self._mixed is not None:
            return f"<uringload.Dataset {self.format}: a mixture of {len(self._mixed[0])}, {len(self)} samples in all>"
        shown = self._paths[0] if len(self._paths) == 1 else f"{len(self._paths)} paths"
        return f"<uringload.Dataset {self.format}: {len(self)} samples in {self.files} files of {shown}>"


def mix(datasets: Iterable[Dataset | Paths], weights: Iterable[float], stopping: str = "first_exhausted") -> Dataset:
    """Several datasets as one whose samples come in turn, by weight: what a loader of it gives is a mixture.

    Each dataset comes in the order that ``shuffle`` asks for, and may be a path. Columns must have the same names and
    types in all of them. Weights need not add up to 1, and may be changed where a run goes on from a state.

    Args:
        datasets: `Dataset`s or paths.
        weights: one number for each.
        stopping: when an epoch ends: "first_exhausted", "all_exhausted" (what is exhausted before starts over),
            "all_exhausted_without_replacement" (each sample once), or "after:N" samples.
    """
    if isinstance(datasets, (str, bytes, os.PathLike)) or not isinstance(datasets, Iterable):
        raise mistyped(f"datasets is a {type(datasets).__name__}", "give a list of Datasets or paths")
    parts = [part if isinstance(part, Dataset) else Dataset(part) for part in datasets]
    if isinstance(weights, (str, bytes)) or not isinstance(weights, Iterable):
        raise mistyped(f"weights is a {type(weights).__name__}", "give a list of numbers, one for each dataset")
    shares = [arguments.number(f"weights[{index}]", weight) for index, weight in enumerate(weights)]
    made: Dataset = Dataset.__new__(Dataset)
    made._native = native.Dataset.mix([part._native for part in parts], shares, arguments.text("stopping", stopping))
    made._paths = [path for part in parts for path in part._paths]
    made._only, made._exclude, made._options = None, [], {}
    made._mixed = (parts, shares, stopping)
    return made


def _open(paths: list[str], only: Any, exclude: list[str], options: dict[str, Any]) -> Dataset:
    return Dataset(paths, only=only, exclude=exclude or None, **options)


def _numbers_or_paths(only: Any) -> tuple[list[int], list[str]]:
    """Numbers of samples, or files that have such."""
    if isinstance(only, Iterable) and not isinstance(only, (str, bytes, os.PathLike)):
        only = list(only)
        if not any(isinstance(item, (str, bytes, os.PathLike)) for item in only):
            return arguments.integers("only", only), []
    return [], arguments.paths("only", only)


def _documented() -> str:
    """The lines of the class's documentation about the options of formats."""
    import textwrap

    lines = []
    for name, _, known, about, formats in native.format_options():
        words = f": one of {', '.join(known)}" if known else ""
        text = f"{name}: {about.rstrip('.')}{words} ({', '.join(formats)})."
        lines.append(textwrap.fill(text, 100, initial_indent=" " * 8, subsequent_indent=" " * 12))
    return "\n".join(lines)


Dataset.__doc__ = (Dataset.__doc__ or "").replace("{options}", _documented())
