"""Datasets of other libraries: recognised ones are read natively, others by their own ``__getitem__``."""

from __future__ import annotations

import copy
import itertools
import operator
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import _arguments as arguments
from . import _compose
from . import _log
from . import _said
from . import _tables
from . import _uringload as native
from ._dataset import Dataset
from ._tail import Tail, words
from .errors import Error, InvalidArgumentError, mistyped, refused

WORKERS = ("threads", "processes")

#: Arguments that say how bytes are read, and not what a sample is.
_HOW = {"engine", "io", "queue_depth", "read_size", "io_threads", "coalesce_gap", "memory_limit", "num_threads",
        "timeout", "outage_timeout", "profile", "share_stats", "starved_after"}


class Source:
    """What a loader reads instead of the object that it was given, and how samples become the object's."""

    def __init__(
        self,
        dataset: Dataset,
        says: str,
        prepare: Callable[[dict[str, Any]], Any] | None = None,
        gather: Callable[[list[int]], Any] | None = None,
        binary: Sequence[str] = (),
        collates: bool = False,
        chain: tuple[str, str] | None = None,
        without: str = "",
        behind: Callable[[dict[str, Any]], Any] | None = None,
        table: _tables.Table | None = None,
        said: Callable[[], list[Any]] = list,
    ) -> None:
        #: The order's samples.
        self.dataset = dataset
        #: The object that is read.
        self.given: Any = dataset
        #: For the log: which way, and what it costs.
        self.says = says
        self._prepare = prepare
        #: Makes a whole batch of numbers, where that is cheaper than samples.
        self._gather = gather
        #: Columns that `prepare` wants as bytes.
        self.binary = list(binary)
        self._collates = collates
        #: A column and what the loader's own threads make of it, where that is what `prepare` begins with.
        self.chain = chain
        #: The rest of `prepare` after the chain, if there is one.
        self._behind = behind
        #: The columns of `datasets`, where that is what samples are.
        self.table = table
        #: For the log, where the chain is not used.
        self._without = without
        #: What the object says that decides all this, and what it said.
        self._says_now = said
        self._said = said()
        #: The object, where its own code makes the samples: none of it is in the loader's memory.
        self.item: Any = None
        self._workers: Any = None

    def has_changed(self) -> bool:
        """Whether the object says something else than it did."""
        return _said.differs(self._said, self._says_now())

    @property
    def works(self) -> bool:
        """Whether Python makes something else of samples that are read natively."""
        makes = self.table is not None and self._prepare is not None
        return bool(self.binary) or makes or (self._behind is not None and self._prepare is self._behind)

    @property
    def is_python(self) -> bool:
        """Whether samples are made by Python alone."""
        return self.item is not None or self._gather is not None

    def choose(self, is_alone: bool, is_auto: bool, is_plain: bool) -> None:
        """Settles what is left to Python. Samples are columns where no function works on samples (`is_alone`) and
        torch would collate them to the same, unless the loader's own ways are asked for (not `is_auto`). The chain does
        all only where no other function does anything (`is_plain`).
        """
        if self.table is not None and is_alone and not (is_auto and self.table.is_python and self.table.lists):
            self._prepare, self._collates = None, False
        if self.chain is None:
            return
        if self._behind is not None:
            self._prepare, self.binary = self._behind, []
        elif is_plain:
            self._prepare, self._collates, self.binary = None, False, []
        else:
            self.chain, self.says = None, self._without

    def many(self, transform: Any, on_error: str) -> Many | None:
        """What asks the object for the samples of a batch at once, where it can be asked so, as torch's loader does."""
        can = self.item is not None and self._workers is None and getattr(self.item, "__getitems__", None)
        return Many(self.item, transform is None, on_error == "raise") if can else None

    def functions(
        self, transform: Any, collate: Any, workers: str, threads: int, form: Any = "auto", timeout: float | None = None
    ) -> tuple[Callable[..., Any] | None, Callable[[list[Any]], Any] | None]:
        """The loader's transform and collate function: the source's work, and then the user's.

        With the form "list" or "tuple" samples are not collated as torch does, unless a function is given.
        """
        if collate is None and form == "auto" and (self._collates or self.item is not None):
            collate = default_collate()
        if workers == "processes":
            from ._processes import Workers
            from ._random import takes_generator

            if transform is not None and takes_generator(transform):
                raise refused("a transform in worker processes has no generator of its own",
                              'take one argument, the sample, or give workers="threads"')
            self._workers = Workers(Make(self.item, transform, collate), threads, described(self.item), timeout)
            return None, ByNumber(self._workers)
        if self._gather is not None and transform is None and collate is default_collate():
            return None, ByNumber(self._gather)
        prepare = Item(self.item) if self.item is not None else self._prepare
        if prepare is None:
            return transform, collate
        return prepare if transform is None else chained(prepare, transform), collate

    def select(self, indices: Sequence[int]) -> Source:
        """Some of its samples."""
        part = copy.copy(self)
        # Views keep the keys of the samples, so what goes by key needs no other number.
        part.dataset = self.dataset.select(indices)
        return part

    def close(self) -> None:
        """Ends the worker processes."""
        if self._workers is not None:
            self._workers.close()


class Item:
    """Asks an object for the sample with a number."""

    def __init__(self, item: Any) -> None:
        self._item = item

    def __call__(self, sample: Any) -> Any:
        return sample.value if type(sample) is Got else self._item[int(sample["key"])]


class Got:
    """A sample that the object has made."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Many:
    """Asks an object for the samples of a batch at once (`__getitems__`). What is no list with a value for each is the
    batch itself, for the collate function. Where an error is one sample's, the object is asked for each of them.
    """

    def __init__(self, item: Any, is_alone: bool, raises: bool) -> None:
        self._item, self._is_alone, self._raises = item, is_alone, raises

    def __call__(self, samples: list[Any]) -> Any:
        try:
            made = self._item.__getitems__([int(sample["key"]) for sample in samples])
        except Exception:
            if self._raises:
                raise
            return samples
        if isinstance(made, list) and len(made) == len(samples):
            return [Got(value) for value in made]
        if self._is_alone:
            return made
        raise refused(f"__getitems__ of {described(self._item)} gives no list of {len(samples)} samples, which a "
                      "transform would be called with", "leave out transform, or have it return a list of samples")


class ByNumber:
    """Makes a batch of the numbers of its samples."""

    def __init__(self, make: Callable[[list[int]], Any]) -> None:
        self._make = make

    def __call__(self, samples: list[Any]) -> Any:
        return self._make([int(sample["key"]) for sample in samples])


class Make:
    """Makes a batch in a worker process."""

    def __init__(self, item: Any, transform: Any, collate: Any) -> None:
        self._item, self._transform, self._collate = item, transform, collate

    def __call__(self, ids: list[int]) -> Any:
        many = getattr(self._item, "__getitems__", None)
        samples = many(ids) if many else [self._item[number] for number in ids]
        if self._transform is not None:
            samples = [self._transform(sample) for sample in samples]
        return samples if self._collate is None else self._collate(samples)


class Photo:
    """What torchvision's folders make of a file: a PIL image, transformed, and its label."""

    def __init__(self, folder: Any) -> None:
        self._folder = folder

    def __call__(self, sample: dict[str, Any]) -> Any:
        import io

        from PIL import Image

        transform, target_transform = self._folder.transform, self._folder.target_transform
        image: Any = Image.open(io.BytesIO(sample["data"])).convert("RGB")
        label = int(sample["label"])
        image = image if transform is None else transform(image)
        return image, label if target_transform is None else target_transform(label)


class Ready:
    """The same of a file that the loader's threads have begun to transform."""

    def __init__(self, tail: Tail) -> None:
        self._tail = tail

    def __call__(self, sample: dict[str, Any]) -> Any:
        return self._tail(sample["data"]), int(sample["label"])


class Rows:
    """Rows of tensors, a batch at a time."""

    def __init__(self, tensors: Sequence[Any]) -> None:
        self._tensors = tensors

    def __call__(self, ids: list[int]) -> list[Any]:
        return [tensor[ids] for tensor in self._tensors]


def find(given: Any, workers: str) -> Source | None:
    """How an object that is no path is read; None for paths, and for datasets of ours that need nothing more."""
    arguments.text("workers", workers, WORKERS)
    if isinstance(given, Mapping):
        raise mistyped(f"{described(given)} is a dictionary, which has no samples by number",
                       f"give what is in it under one of its keys: {', '.join(map(repr, [*given][:4]))}")
    if _is_paths(given) or (isinstance(given, Dataset) and given._prepare is None):
        if workers == "processes":
            raise refused('workers="processes" is for datasets in Python, and this is read natively',
                          "leave it out; a transform runs in threads")
        return None
    found = _native(given) if workers == "threads" else ""
    source = found if isinstance(found, Source) else _slow(given, workers, found)
    source.given = given
    return source


def log(source: Source) -> None:
    """Logs which way was taken."""
    _log.info("%s", source.says)


def described(item: Any) -> str:
    """The type of an object, in words."""
    kind = type(item)
    return f"a {kind.__module__}.{kind.__qualname__}"


def chained(first: Callable[[Any], Any], then: Callable[..., Any]) -> Callable[..., Any]:
    """`then` of what `first` makes, with the signature of `then`."""
    import functools

    @functools.wraps(then, updated=())
    def both(sample: Any, *more: Any, **named: Any) -> Any:
        return then(first(sample), *more, **named)

    return both


def default_collate() -> Callable[[list[Any]], Any] | None:
    """torch's, if torch is there."""
    data = sys.modules.get("torch.utils.data")
    return None if data is None else data.default_collate


def _is_paths(given: Any) -> bool:
    if isinstance(given, (str, bytes, os.PathLike)):
        return True
    if isinstance(given, (list, tuple)):
        return all(isinstance(item, (str, bytes, os.PathLike)) for item in given)
    # What is neither is refused as the path that it is not.
    return not hasattr(type(given), "__getitem__")


def _native(given: Any) -> Source | str:
    """How an object is read natively; or why it is not, if it might have been."""
    if isinstance(given, Dataset):
        binary = () if given._prepare is None else ("data",)
        return Source(given, f"{given!r} is read natively", given._prepare, binary=binary)
    for module, name, recognised in _KNOWN:
        kind = getattr(sys.modules.get(module), name, None)
        if kind is not None and isinstance(given, kind):
            return recognised(given, kind)
    return ""


def _slow(given: Any, workers: str, why: str = "") -> Source:
    what = described(given)
    stream = getattr(sys.modules.get("torch.utils.data"), "IterableDataset", None)
    if stream is not None and isinstance(given, stream):
        raise mistyped(f"{what} is a stream: it has no samples by number",
                       "give torch's DataLoader the stream, or this one a dataset with __len__ and __getitem__")
    try:
        count = len(given)
    except (TypeError, NotImplementedError):
        raise mistyped(f"{what} has no __len__, so its samples have no order",
                       "give it a __len__; a stream is read by torch's DataLoader") from None
    except (OverflowError, ValueError) as error:
        raise refused(f"the __len__ of {what} is of no use: {error}", "return the number of samples") from None
    dataset = Dataset._of(native.numbers(count, what), (_again, (given,)))
    asked = "a batch at a time" if getattr(given, "__getitems__", None) else "sample by sample"
    because = f", because {why}" if why else ""
    ways = {
        "threads": f"{what} is asked {asked}{because}, in threads that share one interpreter: code that holds its lock "
                   'runs on one core (workers="processes" has one interpreter each)',
        "processes": f"{what} is asked {asked}, in worker processes: each has a copy of it, and results come in shared "
                     "memory",
    }  # fmt: skip
    # What else it is, it is asked.
    source = Source(dataset, ways[workers], said=lambda: [len(given)])
    source.item = given
    return source


def _again(given: Any) -> Dataset:
    return _slow(given, "threads").dataset


def _subset(given: Any, kind: Any) -> Source | str:
    why = _said.unlike(given, kind, ("__getitem__", "__getitems__", "__len__"))
    if why is not None:
        return why
    whole = _native(given.dataset)
    if isinstance(whole, str):
        return whole

    def said() -> list[Any]:
        return [given.dataset, whole._says_now(), [operator.index(number) for number in given.indices]]

    try:
        part = whole.select(said()[-1])
    except (Error, IndexError, TypeError) as error:
        # It has its own word on that, for the samples that it is about.
        return f"its indices are not numbers of samples ({error})"
    part._says_now, part._said = said, said()
    return part


def _concat(given: Any, kind: Any) -> Source | str:
    why = _said.unlike(given, kind, ("__getitem__", "__len__"))
    if why is not None:
        return why
    parts = []
    for one in given.datasets:
        part = _native(one)
        # Work that differs from part to part is left to the parts.
        if isinstance(part, str) or part._prepare is not None or part.is_python or part.table is not None:
            return "Python makes the samples of its parts"
        parts.append(part)
    if [*given.cumulative_sizes] != [*itertools.accumulate(map(len, given.datasets))]:
        return "it counts its parts otherwise"
    datasets = [part.dataset for part in parts]
    is_alike = all(dataset.columns == datasets[0].columns for dataset in datasets)
    try:
        opened = native.concat([part._native for part in datasets])
    except InvalidArgumentError:
        return "its parts have other columns"
    # Columns that differ in their group alone (`demo_0/x`, `demo_1/x`) are one, which torch could not collate.
    if not is_alike and not any("*" in name for name, *_ in opened.columns):
        return "its parts have other columns"
    whole = Dataset._of(opened, (_concatenated, (datasets,)), [path for part in datasets for path in part._paths])

    def said() -> list[Any]:
        return [[*given.cumulative_sizes], *given.datasets, *(part._says_now() for part in parts)]

    return Source(whole, f"{len(datasets)} datasets end to end are read natively", said=said)


def _concatenated(datasets: list[Dataset]) -> Dataset:
    return Dataset._of(native.concat([part._native for part in datasets]), (_concatenated, (datasets,)))


def _ours(given: Any, kind: Any) -> Source | str:
    why = _said.unlike(given, kind, ("__getitem__", "__getitems__", "__len__"))
    if why is not None:
        return why
    prepare, transform = given.dataset._prepare, given._transform
    output, wishes = given._wishes
    told = wishes.keys() - _HOW - (set() if prepare is None else {"binary"})
    if output != "torch" or told:
        return f"it was made with {', '.join(sorted(told)) or 'output'}"
    if prepare is not None and transform is not None:
        transform = chained(prepare, transform)
    binary = () if prepare is None else ("data",)
    return Source(given.dataset, f"{given.dataset!r} is read natively", transform or prepare, binary=binary,
                  said=lambda: [given.dataset, given._transform])


def _photos(given: Any, kind: Any) -> Source | str:
    attributes = ("samples", "loader", "transform", "target_transform")
    why = _said.unlike(given, kind, ("__getitem__", "__len__"), attributes)
    if why is not None:
        return why
    if not _opens_by_pillow(given.loader):
        return "its loader does not open images by Pillow as it stands"
    if not all(type(pair) is tuple and [*map(type, pair)] == [str, int] for pair in given.samples):
        return "its samples are not paths with whole numbers"

    def said() -> list[Any]:
        split = _compose.split(given.transform)
        chain = [] if split is None else [split.chain, split.is_tensor, split.is_sized, *split.rest]
        return [given.transform, given.target_transform, given.loader, _opens_by_pillow(given.loader),
                [*given.samples], chain]

    labels = [label for _, label in given.samples]
    dataset = Dataset.from_index([path for path, _ in given.samples], columns={"label": labels})
    reads = f"{described(given)} is read natively: its files by one thread"
    says = f"{reads}, decoded by PIL and transformed in threads"
    prepare = Photo(given)
    split = _compose.split(given.transform)
    if split is None or given.target_transform is not None:
        return Source(dataset, says, prepare, binary=["data"], collates=True, said=said)
    if split.is_partial:
        ours = words(f"{reads}; its transform", split)
        return Source(dataset, ours, prepare, binary=["data"], collates=True, said=said, chain=("data", split.chain),
                      without=says, behind=Ready(Tail(given.transform, split, orient=False)))
    if not split.is_whole or not split.is_tensor:
        why = split.why() or "it makes no tensor"
        return Source(dataset, f"{says} ({why})", prepare, binary=["data"], collates=True, said=said)
    ours = f"{reads}, decoded and transformed in the loader's threads ({_compose.names(split.done)})"
    return Source(dataset, ours, prepare, binary=["data"], collates=True, said=said, chain=("data", split.chain),
                  without=says)


def _opens_by_pillow(loader: Any) -> bool:
    """Whether torchvision's folders open their files by Pillow, and Pillow refuses what is cut off."""
    folder, backend = sys.modules["torchvision.datasets.folder"], sys.modules["torchvision"].get_image_backend()
    known = [function for function in (folder.default_loader, folder.pil_loader)
             if getattr(function, "__globals__", None) is vars(folder)]
    file = sys.modules.get("PIL.ImageFile")
    refuses = not getattr(file, "LOAD_TRUNCATED_IMAGES", False)
    return loader in known and len(known) == 2 and backend == "PIL" and refuses


def _tensors(given: Any, kind: Any) -> Source | str:
    torch = sys.modules["torch"]
    why = _said.unlike(given, kind, ("__getitem__", "__len__"))
    if why is not None:
        return why
    if not all(type(one) is torch.Tensor and one.layout is torch.strided for one in given.tensors):
        return "it has something else than plain tensors"
    what = described(given)
    dataset = Dataset._of(native.numbers(len(given), what), (_again, (given,)))
    says = f"{what} is gathered a batch at a time, in threads: pages of mapped files are read when they are touched"
    return Source(dataset, says, Item(given), Rows(given.tensors), collates=True, said=lambda: [*given.tensors])


def _arrow(given: Any, kind: Any) -> Source | str:
    """Hugging Face's dataset, where its table is its files, plain columns, in an order of its own at most."""
    if type(given) is not kind:
        return "its class is derived from that of datasets"
    why = _said.unlike(given, kind, ("__getitem__", "__getitems__", "__len__", "_getitem"))
    if why is not None:
        return why
    table = _tables.plain(given)
    if isinstance(table, str):
        return table
    try:
        dataset = Dataset(table.files, format="arrow", columns=table.columns)
    except Error as error:
        return f"its files cannot be read: {error.headline}"
    if len(dataset) != given._data.num_rows or [*dataset.columns] != table.columns:
        return "its files have other rows or columns"
    if table.rows is not None:
        dataset = dataset.select(table.rows)

    def said() -> list[Any]:
        form = given.format
        return [given._data, given._indices, form["type"], [*form["columns"]], form["output_all_columns"],
                {**form["format_kwargs"]}]

    says = f"{described(given)} is read natively from its {len(table.files)} Arrow files"
    return Source(dataset, says, _tables.of_python if table.is_python else None, collates=True, table=table, said=said)


#: Modules, classes and what recognises their objects; nothing here imports any of them.
_KNOWN: list[tuple[str, str, Callable[[Any, Any], Source | str]]] = [
    ("uringload.torch", "Dataset", _ours),
    ("torch.utils.data", "Subset", _subset),
    ("torch.utils.data", "ConcatDataset", _concat),
    ("torch.utils.data", "TensorDataset", _tensors),
    ("torchvision.datasets.folder", "DatasetFolder", _photos),
    ("datasets.arrow_dataset", "Dataset", _arrow),
]
