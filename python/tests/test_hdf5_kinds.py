"""HDF5: kinds of elements, fields and headers that people have, against h5py: the same values, or refused by name."""

from __future__ import annotations

import importlib.util
import pathlib
from typing import Any

import pytest

if importlib.util.find_spec("h5py") is None:
    pytest.skip("skipped: h5py is not installed", allow_module_level=True)

import h5py
import numpy as np
import uringload
from h5py import h5d, h5s, h5t


def read(path: pathlib.Path, *names: str) -> dict[str, Any]:
    dataset = uringload.Dataset(path, tensors=list(names) or None)
    with uringload.DataLoader(dataset, len(dataset), output="numpy") as loader:
        return dict(next(iter(loader)))


FIELDS = np.dtype([
    ("a", "i4"), ("b.c", "f4"), ("s/t", "i2"), ("d//e", "i2"), (".", "i2"), ("/begin", "i2"), ("end/", "i2"),
    ("text", h5py.string_dtype()), ("inner", [("x", "i4"), ("y", "f8")]), ("items", [("p", "i4")], (2,)),
    ("ref", h5py.ref_dtype),
])  # fmt: skip


def test_fields_are_found_by_the_names_they_have(tmp_path: pathlib.Path) -> None:
    with h5py.File(tmp_path / "0.h5", "w") as file:
        file.create_dataset("g/t", (3,), FIELDS)
        file["link"] = h5py.SoftLink("/g/t")
    for name in ("a", "b.c", "s/t", "d//e", ".", "/begin", "end/", "inner/x", "/inner//y"):
        for dataset in ("g/t", "/g/t", "./g//t", "link"):
            assert [*read(tmp_path, f"{dataset}/{name}").values()][0].tolist() == [0, 0, 0], name
    refused = {
        "text": "variable length within a compound", "items": "arrays of compounds", "ref": "references",
        "inner": "name its fields: g/t/inner/x, g/t/inner/y",
    }  # fmt: skip
    for name, word in refused.items():
        with pytest.raises(uringload.UnavailableError, match=f"(?s)g/t/{name}.*{word}"):
            read(tmp_path, f"g/t/{name}")
    with pytest.raises(uringload.InvalidArgumentError, match="no such field"):
        read(tmp_path, "g/t/A")
    # Without names, what is left out is told, and another file has the columns of the first.
    (tmp_path / "1.h5").write_bytes((tmp_path / "0.h5").read_bytes())
    dataset = uringload.Dataset(tmp_path)
    assert list(dataset.columns) == [
        *(f"g/t/{name}" for name in ("a", "b.c", "s/t", "d//e", ".", "/begin", "end/", "inner/x", "inner/y"))
    ]
    assert [count for _, count, _ in dataset.skipped] == [3]


def enumeration(base: Any, **values: int) -> Any:
    of = h5t.enum_create(base)
    for name, value in values.items():
        of.enum_insert(name.encode(), value)
    return of


def few_bits(of: Any) -> Any:
    of = of.copy()
    of.set_precision(4)
    return of


ELEMENTS = {
    "few": (enumeration(few_bits(h5t.STD_I8LE), A=0, B=1), "enumerations of integers of 4 bits"),
    "few_bool": (enumeration(few_bits(h5t.STD_U8LE), FALSE=0, TRUE=1), "enumerations of integers of 4 bits"),
    "nibble": (few_bits(h5t.STD_I8LE), "integers of 4 bits"),
    "bits": (h5t.STD_B8LE, "u1"),
    "bits_16": (h5t.STD_B16BE, "u2"),
    "bool": (enumeration(h5t.STD_I8LE, FALSE=0, TRUE=1), "?"),
    "turned_bool": (enumeration(h5t.STD_I8LE, TRUE=1, FALSE=0), "?"),
    "wide": (enumeration(h5t.STD_I16BE, A=0, B=1), "i2"),
}


@pytest.mark.parametrize("name", ELEMENTS)
def test_numbers_by_their_bits(tmp_path: pathlib.Path, name: str) -> None:
    of, want = ELEMENTS[name]
    with h5py.File(tmp_path / "0.h5", "w") as file:
        both = h5t.create(h5t.COMPOUND, 4 + of.get_size())
        both.insert(b"x", 0, h5t.STD_I32LE)
        both.insert(b"e", 4, of)
        for called, of_dataset in ((b"d", of), (b"c", both)):
            made = h5d.create(file.id, called, of_dataset, h5s.create_simple((3,)))
            stored = np.zeros(3, f"V{of_dataset.get_size()}").view("u1").reshape(3, -1)
            stored[:, -1] = [0, 1, 1]
            made.write(h5s.ALL, h5s.ALL, np.ascontiguousarray(stored), mtype=of_dataset)
    assert read(tmp_path, "c/x")["c/x"].tolist() == [0, 0, 0]
    for column in ("d", "c/e"):
        if len(want) > 2:
            with pytest.raises(uringload.UnavailableError, match=f"{want}.* no column can hold"):
                read(tmp_path, column)
            continue
        found = read(tmp_path, column)[column]
        assert found.dtype == np.dtype(want) and found.tolist() == [0, 1, 1]


@pytest.mark.parametrize("chunks", [None, (2,)])
def test_what_was_never_written_has_the_fill_value(tmp_path: pathlib.Path, chunks: Any) -> None:
    pair = np.dtype([("x", "<i4"), ("y", ">f8")])
    with h5py.File(tmp_path / "0.h5", "w") as file:
        file.create_dataset("zero", (5,), pair, chunks=chunks)
        file.create_dataset("filled", (5,), pair, fillvalue=np.array((3, 2.5), pair)[()], chunks=chunks)
        file.create_dataset("text", (5,), h5py.string_dtype(), chunks=chunks)
        file.create_dataset("words", (5,), h5py.string_dtype(), fillvalue="abc", chunks=chunks)
        file.create_dataset("lists", (5,), h5py.vlen_dtype("i4"), chunks=chunks)
    batch = read(tmp_path)
    with h5py.File(tmp_path / "0.h5") as file:
        for name in ("zero", "filled"):
            for field in ("x", "y"):
                assert batch[f"{name}/{field}"].tolist() == file[name][field].tolist()
        for name in ("text", "words"):
            assert [bytes(value) for value in batch[name]] == file[name][...].tolist()
        assert [len(value) for value in batch["lists"]] == [len(value) for value in file["lists"][...]]


def test_two_fields_of_one_path_are_refused(tmp_path: pathlib.Path) -> None:
    with h5py.File(tmp_path / "0.h5", "w") as file:
        file.create_dataset("t", (3,), np.dtype([("a/b", "i4"), ("a", [("b", "f4")])]))
    with pytest.raises(uringload.InvalidArgumentError, match='two fields are called "t/a/b"'):
        uringload.Dataset(tmp_path)
