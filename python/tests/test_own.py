"""People's own data: an index of their own, columns in memory, labels by name, pairs, and samples by number."""

from __future__ import annotations

import os
import pathlib
import pickle
import subprocess
import sys

import pytest
from conftest import needs_numpy, needs_torch

import uringload


@pytest.fixture
def blobs(tmp_path: pathlib.Path) -> list[pathlib.Path]:
    """Two files: "catdogs" and "bird"."""
    paths = [tmp_path / "a.blob", tmp_path / "b.blob"]
    for path, content in zip(paths, (b"catdogs", b"bird")):
        path.write_bytes(content)
    return paths


@pytest.fixture
def photos(tmp_path: pathlib.Path) -> pathlib.Path:
    """Three files in a folder."""
    for name in ("x/1.jpg", "x/2.jpg", "y/3.jpg"):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return tmp_path / "photos"


def everything(dataset: object, **given: object) -> dict[str, list[object]]:
    """All columns of a dataset, in order, without an array package."""
    columns: dict[str, list[object]] = {}
    with uringload.DataLoader(dataset, 2, output="dlpack", **given) as loader:  # type: ignore[arg-type]
        for batch in loader:
            for name, values in batch.items():
                columns.setdefault(name, []).extend(values if isinstance(values, list) else [values.tobytes()])
    return columns


def test_an_index_of_ones_own(blobs: list[pathlib.Path]) -> None:
    words = [b"cat", b"bird", b"dogs"]
    columns = {"label": [3, 1, 2], "caption": ["a", "b", "c"]}
    each = uringload.Dataset.from_index([blobs[0], blobs[1], blobs[0]], [0, 0, 3], [3, 4, 4], columns=columns)
    table = uringload.Dataset.from_index((blobs, [0, 1, 0]), [0, 0, 3], [3, 4, 4], columns=columns)
    for dataset in (each, table, pickle.loads(pickle.dumps(each)), each.select(range(3))):
        assert len(dataset) == 3 and dataset.columns["label"] == ("i64", ())
        read = everything(dataset, binary="data")
        assert read["data"] == words and read["caption"] == ["a", "b", "c"]
        assert b"".join(read["label"]) == b"".join(n.to_bytes(8, "little") for n in (3, 1, 2))  # type: ignore[arg-type]
    assert each.fingerprint == table.fingerprint != table.select([0, 2, 1]).fingerprint
    whole = uringload.Dataset.from_index(blobs)
    assert everything(whole, binary="data")["data"] == [b"catdogs", b"bird"] and whole.key(1) == "b.blob"


@needs_numpy
def test_what_parses_its_bytes(blobs: list[pathlib.Path]) -> None:
    dataset = uringload.Dataset.from_index(blobs, columns={"label": [0, 1]}, parse=_upper)
    for again in (dataset, pickle.loads(pickle.dumps(dataset)), dataset[:]):
        with uringload.DataLoader(again, 2, output="numpy", collate_fn=list) as loader:
            assert [sample["data"] for batch in loader for sample in batch] == ["CATDOGS", "BIRD"]
        with uringload.DataLoader(
            again, 2, output="numpy", transform=lambda sample: sample["data"][0], collate_fn=list
        ) as loader:
            assert list(loader) == [["C", "B"]]
        assert again[1]["data"] == "BIRD"
    with pytest.raises(uringload.ArgumentTypeError, match="parse is a str"):
        uringload.Dataset.from_index(blobs, parse="upper")  # type: ignore[arg-type]


def _upper(data: bytes) -> str:
    return data.decode().upper()


def test_an_index_that_points_outside_its_file(blobs: list[pathlib.Path]) -> None:
    with pytest.raises(uringload.TruncatedError, match="sample 1 ends at byte 5 of a file of 4 bytes") as caught:
        uringload.Dataset.from_index(blobs, [0, 2], [7, 3])
    assert caught.value.file == str(blobs[1]) and caught.value.offset == 2 and caught.value.remedy
    for files, offsets, lengths, words in [
        (blobs, [0], [1, 1], "1 have offsets"),
        (blobs, [0, -1], [1, 1], "offsets of sample 1 cannot be -1"),
        (blobs, [0, 1.5], [1, 1], "offsets of sample 1 cannot be 1.5"),
        ((blobs, [0, 2]), [0, 0], [1, 1], "sample 1 is in file 2, and there are 2"),
        ((blobs, [0, 2]), None, None, "sample 1 is in file 2, and there are 2"),
        (blobs, [0, 1], None, "offsets and lengths are of use together"),
        (blobs, 7, [1, 1], "offsets is a int"),
    ]:
        with pytest.raises(uringload.InvalidArgumentError, match=words):
            uringload.Dataset.from_index(files, offsets, lengths)
    with pytest.raises(uringload.NotFoundError):
        uringload.Dataset.from_index([blobs[0].with_name("no")])


@needs_numpy
def test_columns_of_arrays(blobs: list[pathlib.Path]) -> None:
    import numpy

    boxes = numpy.arange(4, dtype="f4").reshape(2, 2)
    dataset = uringload.Dataset.from_index(
        blobs, numpy.array([0, 1]), numpy.array([3, 2]),
        columns={"box": boxes, "label": numpy.array([5, 6], "i4"), "name": numpy.array(["a", "bc"]),
                 "on": boxes[:, 0] > 1},
    )  # fmt: skip
    with uringload.DataLoader(dataset, 2, output="numpy") as loader:
        (batch,) = loader
    assert (batch["box"] == boxes).all() and batch["label"].tolist() == [5, 6] and batch["name"] == ["a", "bc"]
    assert batch["on"].tolist() == [False, True] and batch["label"].dtype == numpy.int64
    assert [value.tobytes() for value in batch["data"]] == [b"cat", b"ir"]
    for columns, words in [
        ({"label": [1]}, '"label" has 1 values, and the dataset has 2 samples'),
        ({"data": [1, 2]}, 'a column "data" already'),
        ({"label": [1, "a"]}, "several types"),
        ({"label": numpy.array([1, 2], "c8")}, "complex64"),
        ({"label": [1 << 63, 0]}, "no 64-bit integer"),
        ([1, 2], "columns is a list"),
    ]:
        with pytest.raises(uringload.InvalidArgumentError, match=words):
            uringload.Dataset.from_index(blobs, columns=columns)  # type: ignore[arg-type]


@needs_torch
def test_columns_of_tensors(blobs: list[pathlib.Path]) -> None:
    import torch

    scores = torch.tensor([[1.5, 2], [3, 4]], dtype=torch.bfloat16)
    dataset = uringload.Dataset.from_index(blobs, columns={"score": scores, "label": torch.tensor([7, 8])})
    with uringload.DataLoader(dataset, 2) as loader:
        (batch,) = loader
    assert torch.equal(batch["score"], scores) and batch["label"].tolist() == [7, 8]


def test_labels_from_a_table_or_a_dictionary(photos: pathlib.Path, tmp_path: pathlib.Path) -> None:
    table = tmp_path / "train.csv"
    table.write_text("file,label\n1.jpg,cat\n3.jpg,ant\n2.jpg,cat\n")
    named = {"x/1.jpg": "cat", "2": "cat", pathlib.Path("y/3.jpg"): "ant"}
    for labels in (table, str(table), named):
        dataset = uringload.Dataset(photos, labels=labels)
        for again in (dataset, pickle.loads(pickle.dumps(dataset))):
            assert again.classes == ["ant", "cat"]
            assert b"".join(everything(again)["label"])[::8] == bytes([1, 1, 0])  # type: ignore[arg-type]
    dataset = uringload.Dataset(photos, labels={"1.jpg": 1.5, "2.jpg": 2, "3.jpg": 3})
    assert dataset.columns["label"] == ("f64", ())


def test_labels_that_miss_files_or_have_too_many(photos: pathlib.Path) -> None:
    labels = {"1.jpg": 1, "8.jpg": 2, "9.jpg": 2}
    with pytest.raises(uringload.InvalidArgumentError) as caught:
        uringload.Dataset(photos, labels=labels)
    assert '2 samples have no label ("x/2.jpg", "y/3.jpg"), and 2 labels have no sample ("8.jpg", "9.jpg")' in str(
        caught.value
    )
    dataset = uringload.Dataset(photos, labels=labels, unlabelled="skip")
    assert len(dataset) == 1 and [(what, count) for what, count, _ in dataset.skipped] == [
        ("samples without a label", 2), ("labels without a sample", 2)
    ]  # fmt: skip
    with pytest.raises(uringload.InvalidArgumentError, match="the label of '1.jpg' is a NoneType"):
        uringload.Dataset(photos, labels={"1.jpg": None})


def test_files_of_one_stem(tmp_path: pathlib.Path) -> None:
    for name in ("images/a.jpg", "images/b.jpg", "masks/a.png", "masks/b.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    read = everything(uringload.Dataset(tmp_path, pairs="folder"), binary=["images", "masks"])
    assert read == {"images": [b"images/a.jpg", b"images/b.jpg"], "masks": [b"masks/a.png", b"masks/b.png"]}
    labelled = uringload.Dataset(tmp_path, pairs="folder", labels={"a": 5, "b": 6})
    assert b"".join(everything(labelled)["label"])[::8] == bytes([5, 6])  # type: ignore[arg-type]
    assert len(uringload.Dataset(tmp_path)) == 4, "a plain class folder is not taken for pairs"
    with pytest.raises(uringload.InvalidArgumentError, match="no two files have one stem"):
        uringload.Dataset(tmp_path, pairs="extension", fields=["jpg", "png"], format="folder").key(0)


@needs_numpy
def test_samples_by_number(folder: pathlib.Path, records: pathlib.Path) -> None:
    from uringload._samples import Samples

    dataset = uringload.Dataset(folder)
    reader = Samples(dataset._native, "numpy", key=True, index=True)
    with uringload.DataLoader(dataset, 200, output="numpy", key=True, index=True) as loader:
        (batch,) = loader
    for number, want in enumerate(batch.samples()):
        (got,) = reader.read([number])
        assert {**got, "data": got["data"].tolist()} == {**want, "data": want["data"].tolist()}
    numbers = uringload.Dataset(records, record_bytes=256, dtype="i32")
    (sample,) = Samples(numbers._native, "numpy").read([999])
    assert sample["data"].tolist() == [999] * 64 and sample["data"].flags.writeable
    assert [sample["data"][0] for sample in numbers[-3:-1].__getitems__([0, -1])] == [997, 998]
    assert len(numbers[::10]) == 100 and int(numbers[::10][99]["data"][0]) == 990
    with pytest.raises(IndexError, match="no sample 1000 among 1000"):
        numbers[1000]
    with pytest.raises(IndexError):
        numbers.select([0, 1000])
    assert sum(1 for _ in numbers[:5]) == 5


@needs_numpy
def test_samples_of_a_file_that_changed(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "all.bin"
    path.write_bytes(bytes(4000))
    dataset = uringload.Dataset(path, record_bytes=1000)
    assert bytes(dataset[3]["data"].tolist()) == bytes(1000)
    os.truncate(path, 3500)
    with pytest.raises(uringload.TruncatedError) as caught:
        dataset[3]
    assert caught.value.file == str(path)


@needs_numpy
def test_a_reader_after_a_fork(records: pathlib.Path) -> None:
    dataset = uringload.Dataset(records, record_bytes=256, dtype="i32")
    dataset[0]
    child = os.fork()
    if child == 0:
        os._exit(0 if int(dataset[7]["data"][0]) == 7 else 1)
    assert os.waitpid(child, 0)[1] == 0 and int(dataset[8]["data"][0]) == 8


def test_nothing_is_imported(records: pathlib.Path) -> None:
    code = (
        "import sys, uringload, uringload.adapters\n"
        f"dataset = uringload.Dataset.from_index([{str(records)!r}])\n"
        "loader = uringload.DataLoader([(1, 2), (3, 4)], 2, collate='list')\n"
        "assert list(loader) == [[(1, 2), (3, 4)]]\n"
        "found = {'numpy', 'torch', 'multiprocessing', 'datasets', 'torchdata'} & set(sys.modules)\n"
        "assert not found, found\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
