"""Datasets of other libraries: recognised ones are read natively, others by their own ``__getitem__``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import _arguments as arguments
from . import _compose
from . import _log
from . import _uringload as native
from ._dataset import Dataset
from ._tail import Tail, words
from .errors import Error, mistyped, refused

WORKERS = ("threads", "processes")


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
    ) -> None:
        #: The order's samples.
        self.dataset = dataset
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
        #: What is left of `prepare` behind the chain, if something is.
        self._behind = behind
        #: For the log, where the chain is not used.
        self._without = without
        #: The object, where its own code makes the samples: nothing of it lies in the loader's memory.
        self.item: Any = None
        self._workers: Any = None

    @property
    def works(self) -> bool:
        """Whether Python makes something else of samples that are read natively."""
        return bool(self.binary) or (self._behind is not None and self._prepare is self._behind)

    @property
    def is_python(self) -> bool:
        """Whether samples are made by Python alone."""
        return self.item is not None or self._gather is not None

    def choose(self, is_plain: bool) -> None:
        """Settles whether the chain is used: one that does all, only where nobody else works on samples."""
        if self.chain is None:
            return
        if self._behind is not None:
            self._prepare, self.binary = self._behind, []
        elif is_plain:
            self._prepare, self._collates, self.binary = None, False, []
        else:
            self.chain, self.says = None, self._without

    def functions(
        self, transform: Any, collate: Any, workers: str, threads: int, form: Any = "auto", timeout: float | None = None
    ) -> tuple[Callable[..., Any] | None, Callable[[list[Any]], Any] | None]:
        """The loader's transform and collate function: the source's work, and the user's behind it.

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

    def select(self, indices: Sequence[int]) -> Source | None:
        """Some of its samples; None where the object of the subset must be asked itself."""
        if self.item is not None:
            return None
        # Views keep the keys of the samples, so what goes by key needs no other number.
        part = self.dataset.select(indices)
        collates, chain, without, behind = self._collates, self.chain, self._without, self._behind
        return Source(part, self.says, self._prepare, self._gather, self.binary, collates, chain, without, behind)

    def close(self) -> None:
        """Ends the worker processes."""
        if self._workers is not None:
            self._workers.close()


class Item:
    """Asks an object for the sample with a number."""

    def __init__(self, item: Any) -> None:
        self._item = item

    def __call__(self, sample: dict[str, Any]) -> Any:
        return self._item[int(sample["key"])]


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
        samples = list(many(ids)) if callable(many) else [self._item[number] for number in ids]
        if self._transform is not None:
            samples = [self._transform(sample) for sample in samples]
        return samples if self._collate is None else self._collate(samples)


class Photo:
    """What torchvision's folders make of a file: a PIL image, transformed, and its label."""

    def __init__(self, transform: Any, target_transform: Any) -> None:
        self._transform, self._target_transform = transform, target_transform

    def __call__(self, sample: dict[str, Any]) -> Any:
        import io

        from PIL import Image

        image: Any = Image.open(io.BytesIO(sample["data"])).convert("RGB")
        label = int(sample["label"])
        image = image if self._transform is None else self._transform(image)
        return image, label if self._target_transform is None else self._target_transform(label)


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
    if _is_paths(given) or (isinstance(given, Dataset) and given._prepare is None):
        if workers == "processes":
            raise refused('workers="processes" is for datasets in Python, and this is read natively',
                          "leave it out; a transform runs in threads")
        return None
    if workers == "threads":
        source = _native(given)
        if source is not None:
            return source
    return _slow(given, workers)


def log(source: Source) -> None:
    """Tells which way was taken."""
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
    # A dictionary has no samples by number. What is neither is refused as the path that it is not.
    return isinstance(given, Mapping) or not hasattr(type(given), "__getitem__")


def _native(given: Any) -> Source | None:
    if isinstance(given, Dataset):
        binary = () if given._prepare is None else ("data",)
        return Source(given, f"{given!r} is read natively", given._prepare, binary=binary)
    for module, name, recognised in _KNOWN:
        kind = getattr(sys.modules.get(module), name, None)
        if kind is not None and isinstance(given, kind):
            source = recognised(given, kind)
            if source is not None:
                return source
    return None


def _slow(given: Any, workers: str) -> Source:
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
    ways = {
        "threads": f"{what} is asked sample by sample, in threads that share one interpreter: code that holds its lock "
                   'runs on one core (workers="processes" has one interpreter each)',
        "processes": f"{what} is asked sample by sample, in worker processes: each has a copy of it, and results come "
                     "in shared memory",
    }  # fmt: skip
    source = Source(dataset, ways[workers])
    source.item = given
    return source


def _again(given: Any) -> Dataset:
    return _slow(given, "threads").dataset


def _subset(given: Any, kind: Any) -> Source | None:
    if type(given) is not kind:
        return None
    whole = _native(given.dataset)
    return None if whole is None else whole.select(list(given.indices))


def _concat(given: Any, kind: Any) -> Source | None:
    if type(given) is not kind:
        return None
    parts = [_native(part) for part in given.datasets]
    # Work that differs from part to part is left to the parts.
    if any(part is None or part._prepare is not None or part._gather is not None for part in parts):
        return None
    datasets = [part.dataset for part in parts if part is not None]
    opened = native.concat([part._native for part in datasets])
    whole = Dataset._of(opened, (_concatenated, (datasets,)), [path for part in datasets for path in part._paths])
    return Source(whole, f"{len(datasets)} datasets end to end are read natively")


def _concatenated(datasets: list[Dataset]) -> Dataset:
    return Dataset._of(native.concat([part._native for part in datasets]), (_concatenated, (datasets,)))


def _ours(given: Any, kind: Any) -> Source | None:
    if type(given) is not kind:
        return None
    prepare, transform = given.dataset._prepare, given._transform
    if prepare is not None and transform is not None:
        transform = chained(prepare, transform)
    binary = () if prepare is None else ("data",)
    return Source(given.dataset, f"{given.dataset!r} is read natively", transform or prepare, binary=binary)


def _photos(given: Any, kind: Any) -> Source | None:
    folder = sys.modules["torchvision.datasets.folder"]
    base = folder.DatasetFolder
    loaders = (folder.default_loader, folder.pil_loader)
    backend = sys.modules["torchvision"].get_image_backend()
    if type(given).__getitem__ is not base.__getitem__ or given.loader not in loaders or backend != "PIL":
        return None
    labels = [label for _, label in given.samples]
    if not all(type(label) is int for label in labels):
        return None
    dataset = Dataset.from_index([path for path, _ in given.samples], columns={"label": labels})
    reads = f"{described(given)} is read natively: its files by one thread"
    says = f"{reads}, decoded by PIL and transformed in threads"
    prepare = Photo(given.transform, given.target_transform)
    split = _compose.split(given.transform)
    if split is None or given.target_transform is not None:
        return Source(dataset, says, prepare, binary=["data"], collates=True)
    if split.is_partial:
        ours = words(f"{reads}; its transform", split)
        return Source(dataset, ours, prepare, binary=["data"], collates=True, chain=("data", split.chain), without=says,
                      behind=Ready(Tail(given.transform, split, orient=False)))
    if not split.is_whole or not split.is_tensor:
        why = split.why() or "it makes no tensor"
        return Source(dataset, f"{says} ({why})", prepare, binary=["data"], collates=True)
    ours = f"{reads}, decoded and transformed in the loader's threads ({_compose.names(split.done)})"
    return Source(dataset, ours, prepare, binary=["data"], collates=True, chain=("data", split.chain), without=says)


def _tensors(given: Any, kind: Any) -> Source | None:
    if type(given) is not kind:
        return None
    what = described(given)
    dataset = Dataset._of(native.numbers(len(given), what), (_again, (given,)))
    says = f"{what} is gathered a batch at a time, in threads: pages of mapped files are read when they are touched"
    return Source(dataset, says, Item(given), Rows(given.tensors), collates=True)


def _arrow(given: Any, kind: Any) -> Source | None:
    """Hugging Face's dataset, where its table is its files, plain columns, in an order of its own at most."""
    # Those of its order are among its files, too.
    files = list(sys.modules["datasets.table"].list_table_cache_files(given._data))
    features = {type(feature).__name__ for feature in (given.features or {}).values()}
    is_plain = features <= {"Value", "ClassLabel", "Sequence", "List", "LargeList"}
    if type(given) is not kind or not files or not is_plain or given.format["type"] not in (None, "torch", "numpy"):
        return None
    try:
        dataset = Dataset(files, format="arrow", columns=list(given.column_names))
    except Error:
        return None
    if len(dataset) != given._data.num_rows or [*dataset.columns] != given.column_names:
        return None
    if given._indices is not None:
        dataset = dataset.select(given._indices.column(0).to_pylist())
    return Source(dataset, f"{described(given)} is read natively from its {len(files)} Arrow files")


#: Modules, classes and what recognises their objects; nothing here imports any of them.
_KNOWN: list[tuple[str, str, Callable[[Any, Any], Source | None]]] = [
    ("uringload.torch", "Dataset", _ours),
    ("torch.utils.data", "Subset", _subset),
    ("torch.utils.data", "ConcatDataset", _concat),
    ("torch.utils.data", "TensorDataset", _tensors),
    ("torchvision.datasets.folder", "DatasetFolder", _photos),
    ("datasets.arrow_dataset", "Dataset", _arrow),
]
