"""Datasets: turns paths into an index of samples."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

from . import _arguments as arguments
from . import _dtypes, _log, _samples, _settings
from . import _uringload as native
from .errors import mistyped, refused

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._typed import FormatOptions

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

#: How to read the files: the format, and the options of all formats, as the formats declare them.
_OPTIONS: dict[str, Callable[[str, Any], Any]] = {
    "format": arguments.text,
    **{name: _CHECKS[kind] for name, kind, *_ in native.format_options()},
    "dtype": _dtypes.named,
    "token_dtype": _dtypes.named,
}

#: The names of these options.
OPTIONS = tuple(_OPTIONS)

#: Arguments that select samples.
LISTS = ("only", "exclude")


@final
class Dataset:
    """An index of samples: which there are, and where they are in the files.

    ``paths`` is a folder, a file, a pattern (``data/train-{000..146}.tar``, ``**/*.jpg``), a URL of an object store
    (``s3://bucket/train``) or a list of these; several make one dataset. The format is detected from the files unless
    ``format`` names it. Formats: folder (every file is a sample, class folders give labels), records, mds, litdata,
    beton, idx, npy, npz, safetensors, hdf5, tokens, tar, zip, array_record, tfrecord, jsonl, csv, text, parquet, arrow.
    Each option lists its formats in parentheses.

    Args:
        paths: folders, files, patterns or URLs.
        format: the name of the format.
{options}
        only: the samples to keep: files that list them (one number per line, or a quarantine file; kept in ascending
            order), or sample numbers, which also set the order of the dataset.
        exclude: the samples to leave out: quarantine files, or files with one number per line. With `only`, these
            numbers count the samples that `only` keeps.
        timeout: seconds that storage may take to answer one call while the files are looked at (60): then a
            `ReadTimeoutError` names the path.

    ``labels`` also takes what `label_file` does (rows of ``name,label``, annotations of COCO, labels of YOLO) or a
    dictionary of labels by name.

    A dataset has a length and samples: ``dataset[7]`` is a dictionary with a value for each column (torch tensors if
    torch is imported, else NumPy arrays), ``dataset[2:10]`` and ``dataset.select([3, 1])`` are datasets. So torch's
    ``Subset``, ``random_split`` and ``ConcatDataset`` work on it, and a `DataLoader` takes what they make.
    """

    __slots__ = (
        "_native", "_paths", "_options", "_only", "_exclude", "_mixed", "_recipe", "_prepare", "_samples", "__weakref__"
    )  # fmt: skip

    def __init__(
        self,
        paths: Paths,
        *,
        only: Paths | Iterable[int] | None = None,
        exclude: Paths | None = None,
        timeout: float | None = None,
        **options: Unpack[FormatOptions],
    ) -> None:
        for name in options:
            if name not in _OPTIONS:
                raise arguments.unknown(name, [*OPTIONS, *LISTS], "Dataset")
        self._paths = arguments.paths("paths", paths)
        self._only = None if only is None else _numbers_or_paths(only)
        self._exclude = [] if exclude is None else arguments.paths("exclude", exclude)
        self._plain()
        labels = options.get("labels")
        if labels is not None and not isinstance(labels, (bool, Mapping)):
            options["label_file"], options["labels"] = arguments.paths("labels", labels)[0], None
        by_name = labels if isinstance(labels, Mapping) else None
        if by_name is not None:
            options["labels"], unlabelled = False, options.pop("unlabelled", None) or "error"
        self._options = {name: _OPTIONS[name](name, value) for name, value in options.items() if value is not None}
        if seconds := _settings.timeout(timeout):
            self._options["timeout"] = seconds
        if by_name is not None and "pairs" in self._options:
            self._options.pop("labels")
        self._native = native.Dataset.open(self._paths, self._options)
        if by_name is not None:
            from . import _own

            self._native = _own.labelled(self._native, by_name, unlabelled)
            self._options.update(labels=by_name, unlabelled=unlabelled)
        for remark in self._native.remarks:
            _log.warning("%s", remark)
        if self._only is not None:
            numbers, lists = self._only
            self._native = self._native.only(lists) if lists else self._native.subset(numbers)
        if self._exclude:
            self._native = self._native.without(self._exclude)

    @classmethod
    def from_index(
        cls,
        files: Paths | tuple[Iterable[str | os.PathLike[str]], Sequence[int]],
        offsets: Sequence[int] | None = None,
        lengths: Sequence[int] | None = None,
        *,
        columns: Mapping[str, Any] | None = None,
        parse: Callable[[bytes], Any] | None = None,
        dtype: str = "u8",
    ) -> Dataset:
        """A dataset of ranges of bytes that you name: sample i is ``lengths[i]`` bytes at ``offsets[i]`` of its file.

        All ranges are compared with the sizes of their files here; the error of one that leads outside names the
        sample, the file and the offset.

        Args:
            files: one path for each sample; or a table of paths and the number of each sample's file in it, as a tuple
                of two.
            offsets, lengths: in bytes, one for each sample; both left out: every file is a sample as a whole.
            columns: more columns by name: an array with a value for each sample, or a list of numbers or texts.
            parse: a function of a sample's ``bytes``, whose result takes the place of ``data``. A `DataLoader` runs it
                in threads, before its ``transform``.
            dtype: the type of the elements of ``data``, if it is not parsed.
        """
        if parse is not None and not callable(parse):
            raise mistyped(f"parse is a {type(parse).__name__}", "give a function of bytes")
        from . import _own

        made = cls._of(
            _own.ranges(files, offsets, lengths, columns, dtype),
            (_from_index, (files, offsets, lengths, columns, parse, dtype)),
        )
        if parse is not None:
            made._prepare = _Parse(parse)
        return made

    def with_columns(self, columns: Mapping[str, Any]) -> Dataset:
        """This dataset with more columns, by name: an array with a value for each sample, or a list of numbers or
        texts.
        """
        from . import _own

        made = self._of(_own.with_columns(self._native, columns), (_with_columns, (self, dict(columns))), self._paths)
        made._prepare = self._prepare
        return made

    def select(self, indices: Iterable[int]) -> Dataset:
        """The samples with these numbers, in this order, as a dataset."""
        if self._mixed is not None:
            raise refused("a mixture has no samples by number", "select from the datasets that it is made of")
        numbers = _samples.numbers(indices, len(self))
        made = self._of(self._native.subset(numbers), (_select, (self, numbers)), self._paths)
        made._prepare = self._prepare
        return made

    @classmethod
    def _of(cls, opened: native.Dataset, recipe: tuple[Any, tuple[Any, ...]], paths: Sequence[str] = ()) -> Dataset:
        """A dataset that is open; `recipe`, a function and its arguments, opens it again in another process."""
        made: Dataset = cls.__new__(cls)
        made._native, made._paths, made._only, made._exclude, made._options = opened, list(paths), None, [], {}
        made._plain()
        made._recipe = recipe
        return made

    def _plain(self) -> None:
        self._mixed: tuple[list[Dataset], list[float], str] | None = None
        self._recipe: tuple[Any, tuple[Any, ...]] | None = None
        #: The function that a sample goes through before the user sees it.
        self._prepare: Callable[[dict[str, Any]], Any] | None = None
        self._samples: _samples.Samples | None = None

    def __getitem__(self, index: int | slice) -> Any:
        """A sample as a dictionary, or a slice of the dataset."""
        if isinstance(index, slice):
            return self.select(range(*index.indices(len(self))))
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Iterable[int]) -> list[Any]:
        """Several samples: what torch's DataLoader asks for."""
        wanted = _samples.numbers(indices, len(self))
        reader = self._samples
        if reader is None:
            binary = ("data",) if isinstance(self._prepare, _Parse) else ()
            reader = self._samples = _samples.Samples(self._native, _samples.default_output(), binary=binary)
        samples = reader.read(wanted)
        return samples if self._prepare is None else [self._prepare(sample) for sample in samples]

    def __len__(self) -> int:
        """Number of samples."""
        return len(self._native)

    @property
    def format(self) -> str:
        """The name of the format."""
        return self._native.format

    @property
    def files(self) -> int:
        """Number of files."""
        return self._native.files

    @property
    def nbytes(self) -> int:
        """Total bytes of all samples, by the index."""
        return self._native.nbytes

    @property
    def fingerprint(self) -> str:
        """A hash of everything that decides the content and order of samples, not of their bytes: 16 hex digits."""
        return self._native.fingerprint

    @property
    def classes(self) -> list[str]:
        """Class names, where folders give labels."""
        return self._native.classes

    @property
    def columns(self) -> dict[str, tuple[str, tuple[int, ...] | None]]:
        """Element type and shape of each column; the shape is None where values differ in length."""
        return {
            name: (dtype, None if shape is None else tuple(shape)) for name, dtype, shape, *_ in self._native.columns
        }

    @property
    def text_columns(self) -> list[str]:
        """Columns that the format declares as text."""
        return [name for name, dtype, shape, _, role in self._native.columns
                if dtype == "u8" and shape is None and role == "text"]

    @property
    def skipped(self) -> list[tuple[str, int, str]]:
        """What the index left out: the reason, how often, and the first file concerned."""
        return self._native.skipped

    def key(self, index: int) -> str:
        """The human-readable name of a sample; negative numbers count from the end."""
        if isinstance(index, int) and -len(self) <= index < 0:
            index += len(self)
        return os.fsdecode(self._native.key(arguments.integer("index", index)))

    def __reduce__(self) -> tuple[Any, ...]:
        if self._recipe is not None:
            return self._recipe
        only = None if self._only is None else self._only[1] or array("Q", self._only[0])
        return _open, (self._paths, only, self._exclude, self._options)

    def __repr__(self) -> str:
        if self._mixed is not None:
            return f"<uringload.Dataset {self.format}: a mixture of {len(self._mixed[0])}, {len(self)} samples in all>"
        shown = self._paths[0] if len(self._paths) == 1 else f"{len(self._paths)} paths"
        of = f" of {shown}" if self._paths else ""
        return f"<uringload.Dataset {self.format}: {len(self)} samples in {self.files} files{of}>"


@final
class _Parse:
    """Replaces a sample's bytes by the result of a function."""

    def __init__(self, parse: Callable[[bytes], Any]) -> None:
        self.parse = parse

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        return {**sample, "data": self.parse(sample["data"])}


def _from_index(files: Any, offsets: Any, lengths: Any, columns: Any, parse: Any, dtype: str) -> Dataset:
    return Dataset.from_index(files, offsets, lengths, columns=columns, parse=parse, dtype=dtype)


def _with_columns(dataset: Dataset, columns: Any) -> Dataset:
    return dataset.with_columns(columns)


def _select(dataset: Dataset, numbers: list[int]) -> Dataset:
    return dataset.select(numbers)


def mix(datasets: Iterable[Dataset | Paths], weights: Iterable[float], stopping: str = "first_exhausted") -> Dataset:
    """Mixes several datasets into one, whose samples come in turn by weight.

    ``shuffle`` orders the samples of each dataset. Columns must have the same names and types in all datasets. Weights
    need not add up to 1, and you may change them when you resume from a state.

    Args:
        datasets: `Dataset`s or paths.
        weights: one number per dataset.
        stopping: when an epoch ends: "first_exhausted", "all_exhausted" (a dataset that runs out starts over),
            "all_exhausted_without_replacement" (each sample once), or "after:N" samples.
    """
    if isinstance(datasets, (str, bytes, os.PathLike)) or not isinstance(datasets, Iterable):
        raise mistyped(f"datasets is a {type(datasets).__name__}", "give a list of Datasets or paths")
    parts = [part if isinstance(part, Dataset) else Dataset(part) for part in datasets]
    if isinstance(weights, (str, bytes)) or not isinstance(weights, Iterable):
        raise mistyped(f"weights is a {type(weights).__name__}", "give a list of numbers, one for each dataset")
    shares = [arguments.number(f"weights[{index}]", weight) for index, weight in enumerate(weights)]
    opened = native.Dataset.mix([part._native for part in parts], shares, arguments.text("stopping", stopping))
    mixed = (parts, shares, stopping)
    made = Dataset._of(opened, (mix, mixed), [path for part in parts for path in part._paths])
    made._mixed = mixed
    return made


def _open(paths: list[str], only: Any, exclude: list[str], options: dict[str, Any]) -> Dataset:
    return Dataset(paths, only=only, exclude=exclude or None, **options)


def _numbers_or_paths(only: Any) -> tuple[bytes, list[str]]:
    """Splits `only` into sample numbers and files that list them; one of the two is empty."""
    if isinstance(only, Iterable) and not isinstance(only, (str, bytes, os.PathLike)):
        only = only if isinstance(only, (list, range)) or hasattr(only, "dtype") else list(only)
        # Of arrays and ranges, one item tells what all are.
        items = only if isinstance(only, list) else only[:1]
        if not any(issubclass(kind, (str, bytes, os.PathLike)) for kind in set(map(type, items))):
            return arguments.ids("only", only), []
    return b"", arguments.paths("only", only)


def _documented() -> str:
    """The options of the formats, as lines for the class's docstring. (`textwrap` takes 2 ms to import.)"""
    lines = []
    for name, _, known, about, formats in native.format_options():
        of = f": one of {', '.join(known)}" if known else ""
        line = " " * 7
        for word in f"{name}: {about.rstrip('.')}{of} ({', '.join(formats)}).".split():
            if len(line) + 1 + len(word) > 100:
                lines.append(line)
                line = " " * 11
            line += " " + word
        lines.append(line)
    return "\n".join(lines)


Dataset.__doc__ = (Dataset.__doc__ or "").replace("{options}", _documented())
