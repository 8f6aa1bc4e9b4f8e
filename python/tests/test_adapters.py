"""uringload within other libraries' loaders: the same samples and bytes by each, with the real packages."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import pathlib
import pickle
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import pytest
from conftest import needs_numpy

import uringload

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


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


@pytest.fixture
def read_ahead() -> Any:
    """The example of a `Reader` within torchdata's nodes, as a module."""
    pytest.importorskip("torchdata.nodes", reason="skipped: torchdata is not installed")
    spec = importlib.util.spec_from_file_location("torchdata_reader", EXAMPLES / "torchdata_reader.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_reader_within_torchdata(folder: pathlib.Path, wanted: str, read_ahead: Any) -> None:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())

    def read(batches: Iterable[Any]) -> list[tuple[str, bytes]]:
        named = [(str(paths[number].relative_to(folder)), data) for batch in batches for number, data in batch]
        return [(name, data.tobytes()) for name, data in named]

    loader = read_ahead.pipeline(paths, 16)
    epochs = [read(loader) for _ in range(2)]
    assert [digest(epoch) for epoch in epochs] == [wanted] * 2 and epochs[0] != epochs[1], "torchdata shuffles"
    batches = iter(loader)
    first = read(next(batches) for _ in range(5))
    # As JSON, for another process. What was read ahead was not handed out, so it comes again.
    state = json.loads(json.dumps(loader.state_dict()))
    rest = read(batches)
    again = read_ahead.pipeline(paths, 16, ahead=3)
    again.load_state_dict(state)
    assert read(again) == rest and digest(first + rest) == wanted
    # An epoch that is left, and one that is begun in its place: what is still being read belongs to neither.
    abandoned = iter(loader)
    next(abandoned)
    assert digest(read(loader)) == wanted


def test_a_file_that_a_node_cannot_read(tmp_path: pathlib.Path, read_ahead: Any) -> None:
    paths = [tmp_path / f"{number}.bin" for number in range(20)]
    for number, path in enumerate(paths):
        path.write_bytes(bytes([number]) * 100)
    numbers = read_ahead.torchdata.nodes.IterableWrapper(range(20))
    node = read_ahead.ReadAhead(numbers, uringload.Reader(paths), [(file, 0, 100) for file in range(20)], ahead=4)
    paths[7].write_bytes(b"short")
    node.reset()
    assert [next(node)[0] for _ in range(7)] == list(range(7))
    with pytest.raises(uringload.Error) as error:
        next(node)
    assert error.value.file == str(paths[7])
    assert [(number, data.tobytes()[0]) for number, data in node] == [(number, number) for number in range(8, 20)]


@pytest.mark.slow
def test_the_example_within_torchdata(folder: pathlib.Path, tmp_path: pathlib.Path, read_ahead: Any) -> None:
    def run(*arguments: object) -> Any:
        command = [sys.executable, EXAMPLES / "torchdata_reader.py", folder, "--batch-size", "16", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        return json.loads(done.stdout)

    state = tmp_path / "state.json"
    whole, first, rest = run(), run("--stop", 4, "--state", state), run("--resume", state)
    assert (whole["samples"], first["samples"], rest["samples"]) == (200, 64, 136)
    assert (first["digest"] + rest["digest"]) % (1 << 64) == whole["digest"]


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
def test_a_pipeline_of_dali(folder: pathlib.Path, wanted: str) -> None:
    """The real package, whose pipelines of the processor need no GPU."""
    dali = pytest.importorskip("nvidia.dali", reason="skipped: nvidia-dali is not installed")
    import numpy

    from uringload.adapters.dali import Batches

    source = Batches(folder, batch_size=16, columns=["data", "label"], shuffle=True)
    pipeline = dali.Pipeline(batch_size=16, num_threads=1, device_id=None)
    with pipeline:
        given = dali.fn.external_source(source=source, num_outputs=2, batch=True, cycle="raise")
        # An operator of DALI's, so that the bytes go through its memory.
        pipeline.set_outputs(dali.fn.cat(given[0], given[0]), given[1])
    pipeline.build()
    of = {path.read_bytes(): path for path in folder.rglob("*") if path.is_file()}
    orders = []
    for _ in range(2):
        read, sizes = [], []
        while True:
            try:
                doubled, labels = pipeline.run()
            except StopIteration:
                pipeline.reset()
                break
            sizes.append(len(doubled))
            for number in range(len(doubled)):
                data = numpy.asarray(doubled.at(number)).tobytes()
                assert data[: len(data) // 2] == data[len(data) // 2 :]
                path = of[data[: len(data) // 2]]
                assert int(labels.at(number)) == ["cat", "dog"].index(path.parent.name)
                read.append((str(path.relative_to(folder)), path.read_bytes()))
        assert digest(read) == wanted and sizes == [16] * 12 + [8]
        orders.append([name for name, _ in read])
    assert orders[0] != orders[1], "each epoch has an order of its own"


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
    later = iterable(str(folder), key=True, shuffle=True, epoch=1)
    assert [row["key"] for row in later] != [row["key"] for row in rows]
