"""Datasets of other libraries in a `DataLoader`: recognised ones natively, others by their own `__getitem__`."""

from __future__ import annotations

import logging
import os
import pathlib
import signal
import time
from typing import Any

import pytest
from conftest import needs_numpy, needs_torch, same

import uringload


class Squares:
    """A map-style dataset in Python."""

    def __init__(self, count: int = 100, bad: int | None = None, how: str = "raise") -> None:
        self.count, self.bad, self.how = count, bad, how

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[int, int]:
        if index == self.bad:
            if self.how == "raise":
                raise KeyError(f"no square of {index}")
            if self.how == "exit":
                os._exit(3)
            if self.how == "hang":
                time.sleep(600)
            os.kill(os.getpid(), signal.SIGKILL)
        return index, index * index


class Arrays(Squares):
    """Large arrays."""

    def __getitem__(self, index: int) -> Any:
        import numpy

        return numpy.full((64, 64), index, dtype="f4")


def first_of_each(samples: list[Any]) -> list[int]:
    return [sample[0] for sample in samples]


def stacked(samples: list[Any]) -> Any:
    import numpy

    return numpy.stack(samples)


def test_an_object_with_a_length(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "uringload")
    with uringload.DataLoader(Squares(), 8, shuffle=True, collate_fn=first_of_each) as loader:
        assert len(loader) == 13
        epochs = [[number for batch in loader for number in batch] for _ in range(2)]
        assert [sorted(epoch) for epoch in epochs] == [list(range(100))] * 2 and epochs[0] != epochs[1]
    assert "test_sources.Squares is asked sample by sample, in threads" in caplog.text
    ranks = []
    for rank in range(3):
        with uringload.DataLoader(Squares(), 8, rank=rank, world_size=3, collate_fn=first_of_each) as loader:
            ranks += [number for batch in loader for number in batch]
    assert set(ranks) == set(range(100)) and len(ranks) == 102


@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_it_goes_on_from_a_state(workers: str) -> None:
    given: dict[str, Any] = dict(batch_size=8, shuffle=True, collate_fn=first_of_each, workers=workers, num_workers=2)
    with uringload.DataLoader(Squares(), **given) as loader:
        batches = iter(loader)
        [next(batches) for _ in range(5)]
        state = loader.state_dict()
        rest = list(batches)
    with uringload.DataLoader(Squares(), **given) as loader:
        loader.load_state_dict(state)
        assert list(loader) == rest and len(rest) == 8
    with uringload.DataLoader(Squares(99), **given) as loader:
        with pytest.raises(uringload.StateMismatchError):
            loader.load_state_dict(state)


def test_what_is_no_dataset() -> None:
    class Endless:
        def __getitem__(self, index: int) -> int:
            return index

    class Stream:
        def __iter__(self) -> Any:
            return iter(())

    with pytest.raises(uringload.ArgumentTypeError, match="Endless has no __len__"):
        uringload.DataLoader(Endless(), 8)
    with pytest.raises(uringload.ArgumentTypeError, match="not a path"):
        uringload.DataLoader(7, 8, output="dlpack")
    with pytest.raises(uringload.Error):
        uringload.DataLoader(Stream(), 8, output="dlpack")
    with pytest.raises(uringload.EmptyError, match="Squares has no sample"):
        uringload.DataLoader(Squares(0), 8)
    with pytest.raises(uringload.InvalidArgumentError, match="processes.* is for datasets in Python"):
        uringload.DataLoader("/tmp", 8, workers="processes")
    with pytest.raises(uringload.InvalidArgumentError, match="device='cuda' is of no use"):
        uringload.DataLoader(Squares(), 8, device="cuda")
    with pytest.raises(uringload.InvalidArgumentError, match="record_bytes is of use where a path is opened"):
        uringload.DataLoader(Squares(), 8, record_bytes=3)


@needs_numpy
def test_arrays_come_in_shared_memory(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "uringload")
    with uringload.DataLoader(Arrays(), 16, collate_fn=stacked, workers="processes", num_workers=2) as loader:
        kept = list(loader)
    assert "in worker processes" in caplog.text
    # They outlive the processes, and may be written to.
    assert [int(row[0, 0]) for batch in kept for row in batch] == list(range(100))
    kept[0][0] += 1
    assert kept[0][0, 5, 5] == 1 and kept[0].shape == (16, 64, 64)


@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_an_error_of_the_dataset(workers: str) -> None:
    with uringload.DataLoader(
        Squares(bad=20), 8, collate_fn=first_of_each, workers=workers, num_workers=2
    ) as loader:
        batches = iter(loader)
        assert [next(batches) for _ in range(2)] == [list(range(8)), list(range(8, 16))]
        with pytest.raises(KeyError, match="no square of 20") as caught:
            next(batches)
        if workers == "processes" and hasattr(caught.value, "__notes__"):
            assert "in worker process" in caught.value.__notes__[0] and "__getitem__" in caught.value.__notes__[0]


@pytest.mark.parametrize(("how", "words"), [("exit", "ended with exit code 3"), ("kill", "was ended by SIGKILL")])
def test_a_process_that_dies(how: str, words: str) -> None:
    start = time.monotonic()
    with uringload.DataLoader(
        Squares(bad=20, how=how), 8, collate_fn=first_of_each, workers="processes", num_workers=2
    ) as loader:
        batches = iter(loader)
        [next(batches) for _ in range(2)]
        with pytest.raises(uringload.WorkerError) as caught:
            next(batches)
        assert words in str(caught.value) and "samples 16, 17, 18" in str(caught.value) and caught.value.remedy
        # Another process takes its place.
        assert next(batches) == list(range(24, 32))
    assert time.monotonic() - start < 200, "it does not wait for a process that is gone"


def test_a_process_that_dies_while_nobody_waits_for_it() -> None:
    with uringload.DataLoader(
        Squares(), 8, collate_fn=first_of_each, workers="processes", num_workers=1, on_error="raise"
    ) as loader:
        batches = iter(loader)
        seen = [next(batches)]
        workers = loader._source._workers
        deadline = time.monotonic() + 60
        while not workers._idle.qsize() and time.monotonic() < deadline:
            time.sleep(0.01)
        (worker,) = workers._all
        os.kill(worker._process.pid, signal.SIGKILL)
        worker._process.join(60)
        errors = []
        while True:
            try:
                seen.append(next(batches))
            except StopIteration:
                break
            except uringload.WorkerError as error:
                errors.append(str(error))
        assert len(errors) == 1 and "was ended by SIGKILL" in errors[0], errors
        assert len(seen) == 12, "the other batches come, from another process"
        assert sorted(number for batch in loader for number in batch) == list(range(100)), "the next pass is whole"


def test_a_process_that_takes_too_long() -> None:
    with uringload.DataLoader(
        Squares(bad=20, how="hang"), 8, collate_fn=first_of_each, workers="processes", num_workers=2, timeout=2
    ) as loader:
        batches = iter(loader)
        assert [next(batches) for _ in range(2)] == [list(range(8)), list(range(8, 16))]
        start = time.monotonic()
        with pytest.raises(uringload.WorkerError, match="took more than 2 s to make samples 16, 17, 18") as caught:
            next(batches)
        assert time.monotonic() - start < 60 and "longer timeout" in str(caught.value.remedy)
        assert [number for batch in batches for number in batch] == list(range(24, 100))


def test_a_generator_in_processes_is_refused() -> None:
    with pytest.raises(uringload.InvalidArgumentError, match="has no generator of its own"):
        uringload.DataLoader(Squares(), 8, workers="processes", transform=lambda sample, rng: sample)


def test_an_object_that_cannot_be_sent() -> None:
    class Local(Squares):
        pass

    with uringload.DataLoader(Local(), 8, workers="processes", collate_fn=first_of_each) as loader:
        with pytest.raises(uringload.InvalidArgumentError, match="cannot be sent to a worker process"):
            next(iter(loader))


@needs_torch
@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_torch_tensors_from_workers(workers: str) -> None:
    import torch

    with uringload.DataLoader(Squares(), 40, workers=workers, num_workers=1) as loader:
        batches = list(loader)
    assert torch.equal(torch.cat([batch[1] for batch in batches]), torch.arange(100) ** 2)


@needs_torch
def test_a_stream_is_refused() -> None:
    from torch.utils.data import IterableDataset

    class Stream(IterableDataset):  # type: ignore[misc, type-arg]
        def __len__(self) -> int:
            return 3

        def __iter__(self) -> Any:
            return iter(range(3))

    with pytest.raises(uringload.ArgumentTypeError, match="Stream is a stream"):
        uringload.DataLoader(Stream(), 8, output="dlpack")


@needs_torch
def test_subsets_and_splits(records: pathlib.Path) -> None:
    import torch
    from torch.utils.data import ConcatDataset, DataLoader, Subset, random_split

    whole = uringload.Dataset(records, record_bytes=256, dtype="i32")
    train, test = random_split(whole, [0.9, 0.1], generator=torch.Generator().manual_seed(1))

    def read(dataset: object) -> list[int]:
        with uringload.DataLoader(dataset, 64) as loader:  # type: ignore[arg-type]
            assert loader._dataset.format == "records"
            return [int(row[0]) for batch in loader for row in batch["data"]]

    assert read(train) == list(train.indices) and sorted(read(train) + read(test)) == list(range(1000))
    assert read(Subset(Subset(whole, range(0, 1000, 2)), [3, 1])) == [6, 2]
    assert read(ConcatDataset([whole, test])) == [*range(1000), *test.indices]
    # And under torch's own loader, with and without its workers.
    for count in (0, 2):
        loader = DataLoader(train, batch_size=100, num_workers=count)
        assert [int(row[0]) for batch in loader for row in batch["data"]] == list(train.indices)


@needs_torch
def test_tensors(tmp_path: pathlib.Path) -> None:
    import numpy
    import torch
    from torch.utils.data import DataLoader, Subset, TensorDataset

    numpy.arange(4000, dtype="f4").tofile(tmp_path / "x.bin")
    mapped = numpy.memmap(tmp_path / "x.bin", "f4", "r+", shape=(1000, 4))
    dataset = TensorDataset(torch.from_numpy(mapped), torch.arange(1000))
    for given in (dataset, Subset(dataset, range(5, 995))):
        with uringload.DataLoader(given, 64) as loader:
            for mine, theirs in zip(loader, DataLoader(given, 64), strict=True):
                assert isinstance(mine, list) and all(map(torch.equal, mine, theirs))
    with uringload.DataLoader(dataset, 64, transform=lambda sample: sample[1] + 1) as loader:
        assert torch.equal(torch.cat(list(loader)), torch.arange(1, 1001))


@pytest.fixture
def images(tmp_path: pathlib.Path) -> pathlib.Path:
    """Forty photos in two classes, of one size."""
    Image = pytest.importorskip("PIL.Image")
    for number in range(40):
        place = tmp_path / ("cat" if number % 2 else "dog")
        place.mkdir(exist_ok=True)
        Image.new("RGB", (8, 6), (number, 2 * number, 3 * number)).save(place / f"{number:02}.png")
    return tmp_path


@needs_torch
def test_an_image_folder(images: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    datasets = pytest.importorskip("torchvision.datasets")
    transforms = pytest.importorskip("torchvision.transforms")
    import torch
    from torch.utils.data import DataLoader, Subset

    caplog.set_level(logging.INFO, "uringload")
    dataset = datasets.ImageFolder(images, transforms.ToTensor(), target_transform=lambda label: label + 10)
    for given in (dataset, Subset(dataset, [7, 3, 30])):
        with uringload.DataLoader(given, batch_size=16) as loader:
            assert loader._dataset.format == "ranges"
            for (x, y), (a, b) in zip(loader, DataLoader(given, batch_size=16), strict=True):
                assert torch.equal(x, a) and torch.equal(y, b)
    assert "ImageFolder is read natively" in caplog.text

    class Own(datasets.ImageFolder):  # type: ignore[misc, name-defined]
        def __getitem__(self, index: int) -> Any:
            return index

    loaded = datasets.DatasetFolder(images, lambda path: len(path), extensions=(".png",))
    for slow in (Own(images), loaded):
        caplog.clear()
        with uringload.DataLoader(slow, batch_size=40) as loader:
            assert len(list(loader)) == 1
        assert "sample by sample" in caplog.text


def test_hugging_faces_datasets(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    datasets = pytest.importorskip("datasets")
    pytest.importorskip("torch")
    caplog.set_level(logging.INFO, "uringload")
    rows = {"text": [f"line {n}" for n in range(100)], "label": list(range(100))}
    datasets.Dataset.from_dict(rows).save_to_disk(tmp_path / "saved", num_shards=3)
    saved = datasets.load_from_disk(str(tmp_path / "saved"))
    shuffled = saved.shuffle(seed=3)

    def read(given: object) -> list[tuple[str, int]]:
        with uringload.DataLoader(given, 16) as loader:  # type: ignore[arg-type]
            return [(text, int(label)) for batch in loader for text, label in zip(batch["text"], batch["label"])]

    for given in (saved, shuffled, saved.filter(lambda row: row["label"] % 3 == 0)):
        caplog.clear()
        assert read(given) == [(row["text"], row["label"]) for row in given]
        assert "read natively from its 3 Arrow files" in caplog.text
    # What is not its files is asked sample by sample.
    for given in (saved.select(range(10, 20)), saved.rename_column("text", "words"), datasets.Dataset.from_dict(rows)):
        caplog.clear()
        with uringload.DataLoader(given, 16) as loader:
            assert [int(label) for batch in loader for label in batch["label"]] == given["label"][:]
        assert "asked a batch at a time, because its table is not all of its files" in caplog.text


def of_torch(given: Any, **more: Any) -> list[Any]:
    """What torch's loader gives."""
    from torch.utils.data import DataLoader

    return list(DataLoader(given, 4, **more))


@pytest.fixture
def saved(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A dataset of Hugging Face on disk."""
    datasets, _ = pytest.importorskip("datasets"), pytest.importorskip("torch")
    place = tmp_path_factory.mktemp("saved") / "d"
    rows = {"text": ["a"] * 8, "ids": [[n] * 6 for n in range(8)], "label": list(range(8)),
            "score": [n / 3 for n in range(8)], "small": list(range(8)), "other": list(range(8, 16))}
    kinds = {"text": "string", "label": "int64", "score": "float64", "small": "int8", "other": "int64"}
    features = datasets.Features({"ids": datasets.Sequence(datasets.Value("int32")),
                                  **{name: datasets.Value(kind) for name, kind in kinds.items()}})
    datasets.Dataset.from_dict({name: rows[name] for name in features}, features=features).save_to_disk(place)
    return datasets.load_from_disk(str(place))


def test_formats_are_what_the_dataset_says(saved: Any, caplog: pytest.LogCaptureFixture) -> None:
    import numpy
    import torch

    caplog.set_level(logging.INFO, "uringload")
    natively: list[Any] = [
        saved, saved.shuffle(seed=1), saved.select_columns(["small", "score"]), saved.remove_columns("text"),
        saved.with_format("torch"), saved.with_format("torch", columns=["label", "ids"]),
        saved.with_format("torch", columns=["score", "small"], dtype=torch.float16),
        saved.with_format("torch", columns=["score"], dtype=torch.int32),
        saved.cast_column("small", type(saved.features["small"])("float64")),
    ]
    for given in natively:
        caplog.clear()
        with uringload.DataLoader(given, 4) as loader:
            assert same(list(loader), of_torch(given)), given.format
        assert "is read natively from its 1 Arrow files" in caplog.text
    asked: list[tuple[Any, str]] = [
        (saved.with_format("numpy"), "its format (numpy)"),
        (saved.with_format("numpy", dtype=numpy.float64, columns=["score"]), "its format (numpy)"),
        (saved.with_format("torch", columns=["label"], output_all_columns=True), "its format (torch, with"),
        (saved.with_transform(lambda batch: {"n": [len(batch["text"])] * len(batch["text"])}), "its format (custom)"),
        (saved.select(range(2, 7)), "its table is not all of its files"),
        (saved.rename_columns({"label": "other", "other": "label"}), "its table is not all of its files"),
    ]
    for given, why in asked:
        caplog.clear()
        with uringload.DataLoader(given, 4) as loader:
            assert same(list(loader), of_torch(given)), why
        assert f"is asked a batch at a time, because {why}" in caplog.text


def test_functions_get_the_samples_that_the_dataset_has(saved: Any) -> None:
    def whole(samples: list[Any]) -> Any:
        return samples

    for given in (saved, saved.with_format("torch"), saved.with_format("numpy")):
        with uringload.DataLoader(given, 4, collate_fn=whole) as loader:
            assert same(list(loader), of_torch(given, collate_fn=whole))
        with uringload.DataLoader(given, 4, batch_transform=whole) as loader:
            assert same(list(loader), of_torch(given))
    # Lists of Python are made on the host.
    with pytest.raises(uringload.InvalidArgumentError, match="samples that Python makes") as caught:
        uringload.DataLoader(saved, 4, device="cuda:0")
    assert 'with_format("torch")' in str(caught.value.remedy)
    # The loader's own ways to collate are about its columns.
    with uringload.DataLoader(saved, 4, collate={"ids": "ragged"}) as loader:
        assert isinstance(next(iter(loader))["ids"], uringload.Ragged)


def test_tables_that_have_the_rows_of_their_files_otherwise(saved: Any) -> None:
    datasets = pytest.importorskip("datasets")
    halves = datasets.concatenate_datasets([saved.select(range(4, 8)), saved.select(range(4))])
    with uringload.DataLoader(halves, 4) as loader:
        assert [int(label) for batch in loader for label in batch["label"]] == [4, 5, 6, 7, 0, 1, 2, 3]
    twice = datasets.concatenate_datasets([saved, saved])
    with uringload.DataLoader(twice, 4) as loader:
        assert same(list(loader), of_torch(twice)) and "natively" in loader._source.says


@needs_torch
def test_classes_of_a_script_are_asked(images: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    folders = pytest.importorskip("torchvision.datasets")
    from torch.utils.data import Subset

    caplog.set_level(logging.INFO, "uringload")

    class Shorter(folders.ImageFolder):  # type: ignore[misc, name-defined]
        def __len__(self) -> int:
            return 5

    class Together(folders.ImageFolder):  # type: ignore[misc, name-defined]
        def __getitems__(self, ids: list[int]) -> list[Any]:
            return [(number, len(ids)) for number in ids]

    class Property(folders.ImageFolder):  # type: ignore[misc, name-defined]
        target_transform = property(lambda self: lambda label: label + 7, lambda self, value: None)

    def size(image: Any) -> Any:
        return image.size

    patched = folders.ImageFolder(images, size)
    patched.__getitems__ = lambda ids: [(number, 3) for number in ids]
    loads = folders.ImageFolder(images, size, loader=lambda path: folders.folder.pil_loader(path).resize((3, 2)))
    subset = Subset(folders.ImageFolder(images, size), [3, 1])
    subset.__getitems__ = lambda ids: [(number, 4) for number in ids]  # type: ignore[method-assign]
    own = {"own __len__": Shorter(images, size), "own __getitems__": Together(images, size),
           "own way to target_transform": Property(images, size), "its loader": loads}
    for why, given in [*own.items(), ("own __getitems__", patched), ("own __getitems__", subset)]:
        caplog.clear()
        with uringload.DataLoader(given, 4) as loader:
            assert same(list(loader), of_torch(given)), why
        assert "is asked" in caplog.text and why in caplog.text

    class Plain(folders.ImageFolder):  # type: ignore[misc, name-defined]
        """As torchvision's own classes are derived from it."""

    with uringload.DataLoader(Plain(images, size), 4) as loader:
        assert same(list(loader), of_torch(Plain(images, size))) and "natively" in loader._source.says


@needs_torch
def test_what_changes_counts_from_the_next_pass_on(images: pathlib.Path, saved: Any) -> None:
    folders = pytest.importorskip("torchvision.datasets")
    transforms = pytest.importorskip("torchvision.transforms")
    import torch
    from torch.utils.data import Subset, TensorDataset

    folder = folders.ImageFolder(images, transforms.Compose([transforms.CenterCrop(4), transforms.ToTensor()]))
    part = Subset(folder, range(6))
    steps = [
        lambda: setattr(folder, "transform", transforms.Compose([transforms.CenterCrop(2), transforms.ToTensor()])),
        lambda: folder.transform.transforms.insert(0, transforms.CenterCrop(1)),
        lambda: setattr(folder, "target_transform", lambda label: label + 5),
        lambda: setattr(folder, "transform", lambda image: len(image.getbands())),
        lambda: setattr(folder, "samples", folder.samples[::-3]),
        lambda: setattr(part, "indices", [5, 5]),
        lambda: setattr(folder, "loader", lambda path: folders.folder.pil_loader(path).convert("L")),
    ]
    with uringload.DataLoader(folder, 4) as whole, uringload.DataLoader(part, 4) as some:
        for step in [lambda: None, *steps]:
            step()
            assert same(list(whole), of_torch(folder)) and same(list(some), of_torch(part))
        assert whole.epoch == len(steps) + 1 and whole.dataset is folder and some.dataset is part
    with uringload.DataLoader(saved, 4) as loader:
        for form in ({}, {"type": "torch", "columns": ["label"]}, {"type": "numpy", "columns": ["score"]}, {}):
            saved.set_format(**form)
            assert same(list(loader), of_torch(saved)), form
    tensors = TensorDataset(torch.arange(6), torch.ones(6))
    with uringload.DataLoader(tensors, 4) as loader:
        list(loader)
        tensors.tensors = (torch.arange(9),)
        assert same(list(loader), of_torch(tensors))
    squares = Squares(6)
    with uringload.DataLoader(squares, 4) as loader:
        list(loader)
        squares.count = 9
        assert same(list(loader), of_torch(squares))


@needs_torch
def test_a_change_that_cannot_be_read_leaves_the_loader(images: pathlib.Path) -> None:
    folders = pytest.importorskip("torchvision.datasets")
    folder = folders.ImageFolder(images, lambda image: image.size)
    with uringload.DataLoader(folder, 4, sampler=[0, 1, 2]) as loader:
        first, state = list(loader), loader.state_dict()
        samples, folder.samples = folder.samples, [(str(images / "gone.png"), 0)]
        for _ in range(2):
            with pytest.raises(uringload.NotFoundError, match=r"gone\.png"):
                list(loader)
        folder.samples = samples
        loader.load_state_dict(state)
        assert same(list(loader), first) and loader.epoch == 2


@needs_torch
def test_a_loader_has_the_dataset_that_it_was_given(images: pathlib.Path, records: pathlib.Path) -> None:
    folders = pytest.importorskip("torchvision.datasets")
    from torch.utils.data import ConcatDataset, Subset

    one, two = folders.ImageFolder(images), folders.ImageFolder(images, target_transform=lambda label: label + 2)
    for given in (one, Subset(one, [1, 2]), ConcatDataset([one, two])):
        with uringload.DataLoader(given, 4) as loader:
            assert loader.dataset is given
    assert uringload.DataLoader(one, 4).dataset.classes == ["cat", "dog"]
    with uringload.DataLoader(records, 4, record_bytes=256) as loader:
        assert isinstance(loader.dataset, uringload.Dataset) and loader.dataset.classes == []
    both = ConcatDataset([folders.ImageFolder(images, lambda image: image.size),
                          folders.ImageFolder(images, lambda image: image.size, lambda label: label + 2)])
    with uringload.DataLoader(both, 4) as loader:
        assert same(list(loader), of_torch(both))


@needs_torch
def test_parts_that_a_script_changed(records: pathlib.Path) -> None:
    from torch.utils.data import ConcatDataset

    import uringload.torch

    whole = uringload.Dataset(records, record_bytes=256, dtype="i32")
    both = ConcatDataset([whole[:6], whole[6:10]])
    with uringload.DataLoader(both, 4) as loader:
        assert same(list(loader), of_torch(both)) and "natively" in loader._source.says
        # Its length stays what it was.
        both.datasets.append(whole[10:20])
        assert same(list(loader), of_torch(both)) and len(both) == 10
    for more in ({}, {"key": True}, {"output": "numpy"}, {"engine": "threads"}):
        own = uringload.torch.Dataset(records, record_bytes=256, dtype="i32", only=range(9), **more)
        with uringload.DataLoader(own, 4) as loader:
            assert same(list(loader), of_torch(own)), more
            assert ("natively" in loader._source.says) == (more.keys() <= {"engine"})


def test_a_dictionary_of_datasets_is_refused(saved: Any) -> None:
    datasets = pytest.importorskip("datasets")
    with pytest.raises(uringload.ArgumentTypeError, match="DatasetDict is a dictionary") as caught:
        uringload.DataLoader(datasets.DatasetDict(train=saved, test=saved), 4)
    assert "'train', 'test'" in str(caught.value.remedy)


class Together(Squares):
    """Asked for a batch at once."""

    def __getitems__(self, ids: list[int]) -> list[Any]:
        return [self[number] for number in ids]


class Tensors(Squares):
    """Gives a batch that is one already."""

    def __getitems__(self, ids: list[int]) -> Any:
        import torch

        return torch.tensor(ids)


@needs_torch
@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_a_batch_at_once(workers: str) -> None:
    import torch

    given: dict[str, Any] = dict(workers=workers, num_workers=1)
    with uringload.DataLoader(Together(9), 4, **given) as loader:
        assert same(list(loader), of_torch(Together(9)))
    with uringload.DataLoader(Tensors(9), 4, collate_fn=lambda batch: batch, num_workers=1) as loader:
        assert torch.equal(torch.cat(list(loader)), torch.arange(9))
    with uringload.DataLoader(Tensors(9), 4, transform=lambda sample: sample, num_workers=1) as loader:
        with pytest.raises(uringload.InvalidArgumentError, match="gives no list of 4 samples"):
            next(iter(loader))


def test_an_error_of_one_sample_of_a_batch_at_once() -> None:
    for on_error, expected in (("skip", [0, 1, 3]), ("replace", None)):
        with uringload.DataLoader(Together(4, bad=2), 4, on_error=on_error, collate_fn=first_of_each) as loader:
            (batch,) = loader
            assert loader.last_batch.failed[0][0] == 2
            assert batch == expected if expected else len(batch) == 4 and 2 not in batch
    with uringload.DataLoader(Together(4, bad=2), 4, collate_fn=first_of_each) as loader:
        with pytest.raises(KeyError, match="no square of 2"):
            next(iter(loader))
