"""Datasets of others, drawn at random: a loader gives what torch's DataLoader gives of the same object, or refuses."""

from __future__ import annotations

import collections
import json
import os
import pathlib
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch", reason="skipped: torch is not installed")
hypothesis = pytest.importorskip("hypothesis", reason="skipped: hypothesis is not installed")
folders = pytest.importorskip("torchvision.datasets", reason="skipped: torchvision is not installed")
tables = pytest.importorskip("datasets", reason="skipped: datasets is not installed")
import numpy as np
from conftest import Listed, same
from hypothesis import event, given, settings
from hypothesis import strategies as st
from PIL import Image
from torch.utils import data
from torchvision import transforms as v1
from torchvision.transforms import v2

import uringload

DRAWS = int(os.environ.get("URINGLOAD_DRAWS", "300"))
ROWS = 24
#: How samples were read, to see that the draws are about something.
WAYS: collections.Counter[str] = collections.Counter()

tables.disable_progress_bars()


class Place(NamedTuple):
    """What lies in files."""

    one: pathlib.Path
    two: pathlib.Path
    table: pathlib.Path
    other: pathlib.Path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    root = tmp_path_factory.mktemp("same")
    for tree, classes in (("one", ("ant", "bee", "cat")), ("two", ("bee", "dog"))):
        for number in range(9):
            where = root / tree / classes[number % len(classes)]
            where.mkdir(parents=True, exist_ok=True)
            pixels = np.arange(8 * 6 * 3, dtype=np.uint8).reshape(6, 8, 3) * (number + 1)
            Image.fromarray(pixels).save(where / f"{number}.png")
    for name, shift in (("table", 0), ("other", 100)):
        _table(shift).save_to_disk(root / name, num_shards=3 if name == "table" else 1)
    return Place(root / "one", root / "two", root / "table", root / "other")


def _table(shift: int) -> Any:
    numbers = range(shift, shift + ROWS)
    kinds = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")
    columns: dict[str, Any] = {}
    for kind in kinds:
        part = 3 if "float" in kind else None
        columns[kind] = (tables.Value(kind), [number % 100 / part if part else number % 100 for number in numbers])
    columns["flag"] = (tables.Value("bool"), [number % 3 == 0 for number in numbers])
    columns["text"] = (tables.Value("string"), [f"line {number}" for number in numbers])
    columns["label"] = (tables.ClassLabel(names=["a", "b"]), [number % 2 for number in numbers])
    columns["even"] = (tables.Sequence(tables.Value("int32")), [[number] * 4 for number in numbers])
    columns["fixed"] = (tables.Sequence(tables.Value("float32"), length=3), [[number / 7] * 3 for number in numbers])
    columns["bytes"] = (tables.Sequence(tables.Value("int8")), [[number % 100, 1] for number in numbers])
    columns["uneven"] = (tables.Sequence(tables.Value("int64")), [[1] * (number % 4) for number in numbers])
    columns["large"] = (tables.Value("large_string"), [f"word {number}" for number in numbers])
    columns["wide"] = (tables.LargeList(tables.Value("int16")), [[number, 7] for number in numbers])
    columns["words"] = (tables.Sequence(tables.Value("string")), [["x", str(number)] for number in numbers])
    columns["deep"] = (tables.Sequence(tables.Sequence(tables.Value("int64"))), [[[number], [2]] for number in numbers])
    columns["holes"] = (tables.Value("int64"), [None if number % 5 == 0 else number for number in numbers])
    columns["within"] = (tables.Sequence(tables.Value("int64")), [[number, None if number == 3 else 1]
                                                                  for number in numbers])
    columns["when"] = (tables.Value("timestamp[s]"), list(numbers))
    features = tables.Features({name: feature for name, (feature, _) in columns.items()})
    return tables.Dataset.from_dict({name: values for name, (_, values) in columns.items()}, features=features)


# Transforms, which draw nothing at random.


def size_of(image: Any) -> Any:
    return image.size


def darker(image: Any) -> Any:
    return image.point(lambda level: level // 2)


def both(image: Any) -> Any:
    return v2.functional.pil_to_tensor(image), "same"


def plus(label: int) -> int:
    return label + 10


def named(label: int) -> str:
    return f"no {label}"


TRANSFORMS: dict[str, Callable[[], Any]] = {
    "crop": lambda: v1.Compose([v1.CenterCrop(4), v1.ToTensor()]),
    "crop, v2": lambda: v2.Compose([v2.CenterCrop((3, 5)), v2.PILToTensor()]),
    "crop, own": lambda: v2.Compose([v2.CenterCrop(4), darker, v2.PILToTensor()]),
    "own, crop": lambda: v2.Compose([darker, v2.CenterCrop(4), v2.PILToTensor()]),
    "tensor": lambda: v2.Compose([v2.PILToTensor()]),
    "size": lambda: size_of,
    "both": lambda: both,
    "none": lambda: None,
}
TARGETS: dict[str, Any] = {"none": None, "plus": plus, "named": named}


class Shorter(folders.ImageFolder):  # type: ignore[misc, name-defined]
    def __len__(self) -> int:
        return len(self.samples) - 2


class Twice(folders.ImageFolder):  # type: ignore[misc, name-defined]
    def __getitem__(self, index: int) -> Any:
        sample, label = super().__getitem__(index)
        return sample, label, label


class Together(folders.ImageFolder):  # type: ignore[misc, name-defined]
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [(index, len(indices)) for index in indices]


class Whole(data.Dataset):  # type: ignore[misc, type-arg]
    """A dataset that gives batches where it can."""

    def __len__(self) -> int:
        return 11

    def __getitem__(self, index: int) -> Any:
        return torch.full((2,), index)

    def __getitems__(self, indices: list[int]) -> Any:
        return torch.tensor(indices) * 2


class Reversing(folders.ImageFolder):  # type: ignore[misc, name-defined]
    """One whose attribute is a property."""

    @property
    def samples(self) -> Any:
        return list(reversed(self.__dict__["kept"]))

    @samples.setter
    def samples(self, found: Any) -> None:
        self.__dict__["kept"] = found


def by_size(path: str) -> int:
    return os.path.getsize(path)


def grayed(path: str) -> Any:
    return Image.open(path).convert("L")


class ListedForTorch(Listed, data.Dataset):  # type: ignore[misc, type-arg]
    """The same as torch has datasets."""


Pair = collections.namedtuple("Pair", ["x", "y"])

SAMPLES: dict[str, Callable[[int], Any]] = {
    "number": lambda number: number,
    "float": lambda number: number / 3,
    "text": lambda number: str(number),
    "bool": lambda number: number % 2 == 0,
    "tuple": lambda number: (number, str(number)),
    "list": lambda number: [number, number / 2],
    "dict": lambda number: {"b": number, "a": {"deep": (number, [number])}},
    "named": lambda number: Pair(number, torch.full((2,), number)),
    "array": lambda number: np.full((2, 2), number, np.float16),
    "scalar": lambda number: np.int16(number),
    "tensor": lambda number: torch.full((3,), number, dtype=torch.bfloat16),
    "uneven": lambda number: torch.zeros(number % 3),
    "none": lambda number: None,
}


def images(draw: Any, place: Place) -> Any:
    root = draw(st.sampled_from([place.one, place.two]))
    more = {"transform": TRANSFORMS[draw(st.sampled_from(sorted(TRANSFORMS)))](),
            "target_transform": TARGETS[draw(st.sampled_from(sorted(TARGETS)))]}
    others = ["Shorter", "Twice", "Together", "Reversing", "valid", "gray", "sizes", "folder", "patched", "edited"]
    kind = draw(st.sampled_from([*["ImageFolder"] * 10, *others]))
    if kind == "valid":
        return folders.ImageFolder(root, is_valid_file=lambda path: int(pathlib.Path(path).stem) % 2 == 0,
                                   allow_empty=True, **more)
    if kind == "gray":
        return folders.ImageFolder(root, loader=grayed, **more)
    if kind == "sizes":
        return folders.DatasetFolder(root, by_size, extensions=(".png",))
    if kind == "folder":
        return folders.DatasetFolder(root, folders.folder.default_loader, extensions=(".png",), **more)
    if kind == "patched":
        made = folders.ImageFolder(root, **more)
        made.__getitems__ = lambda indices: [(index, 7) for index in indices]
        return made
    if kind == "edited":
        made = folders.ImageFolder(root, **more)
        made.samples = [(path, label + 0.5) for path, label in made.samples[2:]]
        return made
    kinds = {"ImageFolder": folders.ImageFolder, "Shorter": Shorter, "Twice": Twice, "Together": Together,
             "Reversing": Reversing}
    return kinds[kind](root, **more)


def padded(batch: dict[str, list[Any]]) -> dict[str, Any]:
    """What a tokenizer does: to the longest of the batch."""
    most = max(map(len, batch["uneven"]))
    return {"ids": [torch.tensor(row + [0] * (most - len(row))) for row in batch["uneven"]]}


FORMATS: list[dict[str, Any]] = [
    {}, {}, {"type": "torch"}, {"type": "torch"}, {"type": "torch", "dtype": torch.float16},
    {"type": "torch", "dtype": torch.int32}, {"type": "numpy"}, {"type": "numpy", "dtype": np.float64},
    {"type": "torch", "output_all_columns": True}, {"type": "pandas"}, {"type": "arrow"},
]  # fmt: skip
EASY = ["large", "wide", "uneven", "int8", "int32", "int64", "uint8", "uint32", "float32", "float64", "flag", "text",
        "label", "even", "fixed", "bytes"]


STEPS = ["shuffle", "select", "remove", "sort", "shard", "split", "swap", "slice", "rename", "cast", "filter", "ends",
         "twice", "memory", "flatten"]


def rows(draw: Any, place: Place) -> Any:
    found = tables.load_from_disk(str(place.table))
    # Two of three are what is read natively.
    is_easy = draw(st.sampled_from([True, True, False]))
    names = EASY if is_easy else found.column_names
    columns = draw(st.lists(st.sampled_from(names), min_size=1, max_size=4, unique=True))
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2]))):
        step = draw(st.sampled_from(STEPS[:7] if is_easy else STEPS))
        if step == "shuffle":
            found = found.shuffle(seed=draw(st.integers(0, 9)))
        elif step == "select":
            found = found.select(draw(st.lists(st.integers(0, len(found) - 1), min_size=1, max_size=30)))
        elif step == "slice" and len(found) > 3:
            found = found.select(range(2, len(found)))
        elif step == "rename" and "int64" in found.column_names and "new" not in found.column_names:
            found = found.rename_column("int64", "new")
        elif step == "swap" and {"int64", "int32"} <= {*found.column_names}:
            found = found.rename_columns({"int64": "int32", "int32": "int64"})
        elif step == "remove" and "text" in found.column_names:
            found = found.remove_columns("text")
        elif step == "cast" and "int8" in found.column_names:
            found = found.cast_column("int8", tables.Value("float64"))
        elif step == "filter" and len(found) > 5:
            found = found.filter(_few, with_indices=True, keep_in_memory=True)
        elif step == "ends":
            other = tables.load_from_disk(str(place.other))
            if other.features == found.features:
                found = tables.concatenate_datasets([other, found])
        elif step == "twice" and len(found) < 60:
            half = len(found) // 2
            if half:
                found = tables.concatenate_datasets([found.select(range(half, len(found))), found.select(range(half))])
        elif step == "memory":
            memory = _table(7)
            if memory.features == found.features:
                found = tables.concatenate_datasets([found, memory])
        elif step == "sort" and "float64" in found.column_names:
            found = found.sort("float64", reverse=True)
        elif step == "shard":
            found = found.shard(2, 1, contiguous=False)
        elif step == "split" and len(found) > 4:
            found = found.train_test_split(0.3, seed=1)["train"]
        elif step == "flatten":
            found = found.flatten_indices(keep_in_memory=True)
    columns = [name for name in columns if name in found.column_names] or found.column_names[:1]
    return formatted(draw, found, columns, is_easy)


def _few(row: Any, index: int) -> bool:
    return index % 2 == 0


def formatted(draw: Any, found: Any, columns: list[str], is_easy: bool = False) -> Any:
    ways = ["format", "columns"] if is_easy else ["format", "format", "columns", "transform", "pad"]
    how = draw(st.sampled_from(ways))
    if how == "pad" and "uneven" in found.column_names:
        return found.with_transform(padded)
    if how == "transform":
        return found.with_transform(lambda batch: {name: [str(value) for value in batch[name]] for name in columns})
    form = draw(st.sampled_from(FORMATS[:6] if is_easy else FORMATS))
    if how == "columns":
        return found.select_columns(columns).with_format(**form)
    return found.with_format(columns=columns, **form) if form else found.select_columns(columns)


def tensors(draw: Any, place: Place) -> Any:
    count = draw(st.integers(1, 12))
    made = [torch.arange(count), torch.rand(count, 3, generator=torch.Generator().manual_seed(1)),
            torch.zeros(count, 0, dtype=torch.int8), torch.arange(count * 2).reshape(2, count).T,
            torch.rand(count, generator=torch.Generator().manual_seed(1)).bfloat16()]
    chosen = draw(st.lists(st.sampled_from(range(len(made))), min_size=1, max_size=3))
    return data.TensorDataset(*[made[index] for index in chosen])


def objects(draw: Any, place: Place) -> Any:
    make = SAMPLES[draw(st.sampled_from(sorted(SAMPLES)))]
    return ListedForTorch([make(number) for number in range(draw(st.integers(1, 12)))])


def leaves(draw: Any, place: Place) -> Any:
    kinds = {"images": images, "rows": rows, "tensors": tensors, "objects": objects, "whole": lambda *_: Whole()}
    kind = draw(st.sampled_from(["images"] * 4 + ["rows"] * 6 + ["tensors", "objects", "objects", "whole"]))
    event(kind)
    return kinds[kind](draw, place)


def datasets(draw: Any, place: Place) -> Any:
    made = leaves(draw, place)
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 1, 2])) if len(made) else 0):
        count = len(made)
        how = draw(st.sampled_from(["subset"] * 5 + ["array", "concat", "patched", "same"]))
        numbers = draw(st.lists(st.integers(-count, count - 1), min_size=1, max_size=20))
        if how == "subset":
            made = data.Subset(made, numbers)
        elif how == "array":
            made = data.Subset(made, np.array(numbers) % count)  # type: ignore[arg-type]
        elif how == "concat":
            made = data.ConcatDataset([made, data.Subset(made, range(count // 2))])
        elif how == "same":
            made = data.ConcatDataset([made, made])
        else:
            part: Any = data.Subset(made, range(count))
            part.__getitems__ = lambda indices, of=made: [of[index] for index in reversed(indices)]
            made = part
    return made


def changed(draw: Any, given: Any) -> None:
    """What a script does to its dataset between two epochs."""
    while isinstance(given, data.Subset):
        if draw(st.booleans()):
            given.indices = [*given.indices][::-1]
        given = given.dataset
    if isinstance(given, folders.DatasetFolder):
        how = draw(st.sampled_from(["transform", "step", "target", "samples", "loader"]))
        if how == "transform":
            given.transform = TRANSFORMS[draw(st.sampled_from(sorted(TRANSFORMS)))]()
        elif how == "step" and isinstance(given.transform, v2.Compose):
            given.transform.transforms.insert(0, v2.CenterCrop(3))
        elif how == "target":
            given.target_transform = TARGETS[draw(st.sampled_from(sorted(TARGETS)))]
        elif how == "samples":
            given.samples = given.samples[::-2]
        elif how == "loader":
            given.loader = grayed
    elif isinstance(given, tables.Dataset):
        formatted_now = formatted(draw, given, given.column_names[:2])
        form = formatted_now.format
        given.set_format(form["type"], form["columns"] or None, form["output_all_columns"], **form["format_kwargs"])
    elif isinstance(given, data.TensorDataset):
        given.tensors = tuple(tensor.clone() for tensor in given.tensors[::-1])
    elif isinstance(given, Listed):
        given.samples = given.samples[:1] + given.samples


def as_is(samples: Any) -> Any:
    return samples


def first_type(samples: Any) -> Any:
    return str(type(samples[0])), len(samples)


COLLATES: list[Any] = [None, None, None, None, as_is, first_type]


def outcome(batches: Any) -> tuple[list[Any], Exception | None]:
    """What comes, and the error that ends it."""
    found = []
    try:
        for batch in batches:
            found.append(batch)
    except Exception as error:
        return found, error
    return found, None


def compare(mine: tuple[list[Any], Exception | None], theirs: tuple[list[Any], Exception | None], words: str) -> None:
    """Where torch has no result, neither has the loader, or it leaves values of different shapes in lists."""
    (found, error), (wanted, failure) = mine, theirs
    if error is not None and failure is None:
        raise AssertionError(f"{words}: torch gives {wanted}, and this raises") from error
    for index, batch in enumerate(wanted):
        assert index < len(found), f"{words}: batch {index} is missing: {error!r}"
        assert same(found[index], batch), f"{words}: batch {index} is {found[index]!r}, and torch's {batch!r}"
    if failure is None:
        assert len(found) == len(wanted), words


@settings(max_examples=DRAWS, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck))
@given(st.data())
def test_batches_are_torchs(place: Place, drawn: Any) -> None:
    draw = drawn.draw
    dataset, collate = datasets(draw, place), draw(st.sampled_from(COLLATES))
    size, drop_last = draw(st.integers(1, 7)), draw(st.booleans())
    sampler = draw(st.sampled_from([None, "random", "list"]))

    def made_sampler() -> Any:
        if sampler == "random":
            return data.RandomSampler(range(len(dataset)), generator=torch.Generator().manual_seed(5))
        return None if sampler is None else [0] * 3 + [*range(len(dataset))][::2]

    def torchs(of: Any) -> tuple[list[Any], Exception | None]:
        return outcome(data.DataLoader(dataset, size, sampler=of, drop_last=drop_last, collate_fn=collate))

    def loader_of() -> uringload.DataLoader:
        return uringload.DataLoader(dataset, size, sampler=made_sampler(), drop_last=drop_last, collate_fn=collate,
                                    num_threads=draw(st.integers(0, 2)), rank=0, world_size=1,
                                    batch_transform=draw(st.sampled_from([None, None, None, as_is])))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if len(dataset) < (size if drop_last else 1) or not len(dataset):
            return
        wanted = torchs(made_sampler())
        loader = loader_of()
        with loader:
            source = loader._source
            is_asked = source.item is not None
            way = "asked" if is_asked else "prepared" if source._prepare is not None else "native"
            WAYS[way] += 1
            event(way)
            assert loader.dataset is dataset and len(loader.dataset) == len(dataset)
            mine = outcome(loader)
            compare(mine, wanted, f"{source.says}, {dataset!r}")
            if wanted[1] is None and len(wanted[0]) > 1 and draw(st.booleans()):
                # Stopped, and resumed in another loader.
                loader.set_epoch(loader.epoch)
                with loader_of() as first, loader_of() as second:
                    batches, taken = iter(first), draw(st.integers(1, len(wanted[0]) - 1))
                    begun = [next(batches) for _ in range(taken)]
                    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
                    compare((begun + list(second), None), wanted, "resumed")
            if sampler is None and draw(st.booleans()):
                changed(draw, dataset)
                if len(dataset) >= size:
                    compare(outcome(loader), torchs(None), f"changed: {loader._source.says}, {dataset!r}")


def test_the_draws_are_about_something() -> None:
    """That the draws above were read natively often enough to find what differs."""
    total = WAYS["asked"] + WAYS["prepared"] + WAYS["native"]
    if total < 100:
        pytest.skip("skipped: too few draws")
    assert all(WAYS[way] > total * 0.1 for way in ("asked", "prepared", "native")), WAYS
