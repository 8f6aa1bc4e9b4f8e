"""uringload within other libraries' loaders: the same samples and bytes by each, with the real packages."""

from __future__ import annotations

import hashlib
import pathlib
import pickle
from collections.abc import Iterable
from typing import Any

import pytest
from conftest import needs_numpy

import uringload


def digest(samples: Iterable[tuple[str, bytes]]) -> str:
    """Of names and bytes, in any order."""
    sums = [hashlib.sha256(name.encode() + b"\0" + data).digest() for name, data in samples]
    return hashlib.sha256(b"".join(sorted(sums))).hexdigest()


@pytest.fixture
def wanted(folder: pathlib.Path) -> str:
    """The digest of all files."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    assert len(files) == 200
    return digest((str(path.relative_to(folder)), path.read_bytes()) for path in files)


def test_a_node_of_torchdata(folder: pathlib.Path, wanted: str) -> None:
    nodes = pytest.importorskip("torchdata.nodes", reason="skipped: torchdata is not installed")
    from uringload.adapters.torchdata import Node

    def make() -> Any:
        return nodes.Loader(Node(folder, batch_size=16, shuffle=True, key=True, binary="data"))

    def read(batches: Iterable[Any]) -> list[tuple[str, bytes]]:
        return [pair for batch in batches for pair in zip(batch["key"], batch["data"])]

    loader = make()
    epochs = [read(loader) for _ in range(2)]
    assert [digest(epoch) for epoch in epochs] == [wanted] * 2 and epochs[0] != epochs[1]
    loader = make()
    batches = iter(loader)
    first = read(next(batches) for _ in range(5))
    state = loader.state_dict()
    rest = read(batches)
    again = make()
    again.load_state_dict(state)
    assert read(again) == rest and digest(first + rest) == wanted
    # Behind threads that read ahead.
    ahead = nodes.Loader(nodes.Prefetcher(Node(folder, batch_size=16, key=True, binary="data"), prefetch_factor=2))
    assert digest(read(ahead)) == wanted


@needs_numpy
def test_a_source_of_grain(folder: pathlib.Path, wanted: str) -> None:
    from uringload.adapters.grain import DataSource

    source = DataSource(folder, key=True)
    assert digest((sample["key"], sample["data"].tobytes()) for sample in source) == wanted
    copy = pickle.loads(pickle.dumps(source))
    assert repr(copy) == repr(source) and copy[-1]["key"] == source[199]["key"]
    assert [sample["key"] for sample in source.__getitems__([3, 0])] == [source[3]["key"], source[0]["key"]]
    grain = pytest.importorskip("grain.python", reason="skipped: grain is not installed")
    assert isinstance(source, grain.RandomAccessDataSource)
    read = grain.MapDataset.source(source).shuffle(seed=1).to_iter_dataset()
    assert digest((sample["key"], sample["data"].tobytes()) for sample in read) == wanted
    sampler = grain.IndexSampler(len(source), grain.NoSharding(), shuffle=True, num_epochs=1, seed=1)
    loader = grain.DataLoader(data_source=source, sampler=sampler, worker_count=0)
    assert digest((sample["key"], sample["data"].tobytes()) for sample in loader) == wanted


@needs_numpy
def test_a_source_for_dali(folder: pathlib.Path, wanted: str) -> None:
    """DALI's own loop over an external source with ``cycle="raise"``, as its documentation has it."""
    from uringload.adapters.dali import Batches

    source = Batches(folder, batch_size=16, columns=["data", "label"], shuffle=True)
    keys = uringload.Dataset(folder)
    by_bytes = {}
    for number in range(200):
        name = keys.key(number)
        by_bytes[(folder / name).read_bytes()] = name
    for _ in range(2):
        batches, read = iter(source), []
        while True:
            try:
                data, labels = next(batches)
            except StopIteration:
                break
            assert len(data) == len(labels) <= 16 and labels[0].shape == ()
            read += [(by_bytes[value.tobytes()], value.tobytes()) for value in data]
        assert digest(read) == wanted
    with pytest.raises(uringload.InvalidArgumentError, match="no column 'jpg'"):
        Batches(folder, batch_size=16, columns=["jpg"])
    with pytest.raises(uringload.InvalidArgumentError, match="transform is of no use to DALI"):
        Batches(folder, batch_size=16, transform=len)


@needs_numpy
def test_samples_for_webdataset(folder: pathlib.Path, wanted: str) -> None:
    from uringload.adapters.webdataset import Samples

    samples = Samples(folder, shuffle=True)
    assert digest((sample["__key__"], sample["data"]) for sample in samples) == wanted
    sample = next(iter(samples))
    assert type(sample["label"]) is int
    webdataset = pytest.importorskip("webdataset", reason="skipped: webdataset is not installed")
    pipeline = webdataset.DataPipeline(samples, webdataset.to_tuple("__key__", "data"))
    assert digest(pipeline) == wanted


@needs_numpy
def test_an_iterable_dataset_of_hugging_face(folder: pathlib.Path, wanted: str) -> None:
    pytest.importorskip("datasets", reason="skipped: datasets is not installed")
    from uringload.adapters.huggingface import iterable

    dataset = iterable(str(folder), key=True, shuffle=True)
    rows = list(dataset)
    assert digest((row["key"], row["data"]) for row in rows) == wanted
    assert [row["key"] for row in iterable(str(folder), key=True, shuffle=True, epoch=1)] != [row["key"] for row in rows]
