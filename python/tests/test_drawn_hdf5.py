"""Files that h5py wrote, of types, filters and groups drawn at random: the rows that h5py reads, or refused."""

from __future__ import annotations

import importlib.util
import pathlib
import tempfile
from typing import Any

import pytest

if any(importlib.util.find_spec(name) is None for name in ("hypothesis", "h5py")):
    pytest.skip("skipped: hypothesis or h5py is not installed", allow_module_level=True)

import h5py
import hypothesis
import hypothesis.strategies as st
import numpy as np
import uringload
from drawn import settings

TYPES = ["i1", "u1", "<i2", ">i2", "<u4", ">u4", "<i8", ">i8", "<f2", "<f4", ">f4", "<f8", ">f8", "?", "S5"]


@st.composite
def plans(draw: st.DrawFn) -> dict[str, Any]:
    """How a file is written: options of the file, and of each dataset."""
    rows = draw(st.integers(1, 30))
    datasets = []
    for _ in range(draw(st.integers(1, 4))):
        shape = (rows, *draw(st.lists(st.integers(1, 4), max_size=2)))
        is_chunked = draw(st.booleans())
        given: dict[str, Any] = {}
        if is_chunked:
            given = {
                "chunks": tuple(draw(st.integers(1, side)) for side in shape),
                "shuffle": draw(st.booleans()), "fletcher32": draw(st.booleans()),
                "compression": draw(st.sampled_from([None, "gzip", "lzf"])),
                "maxshape": draw(st.sampled_from([None, (None, *shape[1:]), (rows * 2, *shape[1:])])),
            }  # fmt: skip
        datasets.append({
            "shape": shape, "dtype": draw(st.sampled_from(TYPES)), "seed": draw(st.integers(0, 255)),
            "fillvalue": draw(st.sampled_from([None, 0, 1])), "given": given,
            "is_empty": draw(st.integers(0, 9)) == 0, "depth": draw(st.integers(0, 2)),
            "attributes": draw(st.sampled_from([0, 1, 20])),
        })  # fmt: skip
    return {"libver": draw(st.sampled_from(["earliest", "latest", "v108", "v110", ("earliest", "v112")])),
            "track_order": draw(st.booleans()), "groups": draw(st.sampled_from([0, 0, 5, 40])),
            "userblock_size": draw(st.sampled_from([0, 0, 512])), "datasets": datasets}  # fmt: skip


def write(path: pathlib.Path, plan: dict[str, Any]) -> dict[str, Any]:
    """Writes a file, and returns what each dataset holds."""
    held = {}
    with h5py.File(path, "w", libver=plan["libver"], track_order=plan["track_order"],
                   userblock_size=plan["userblock_size"]) as file:  # fmt: skip
        for number in range(plan["groups"]):
            file.create_group(f"empty {number:03}", track_order=plan["track_order"])
        for number, dataset in enumerate(plan["datasets"]):
            name = "/".join([f"g{level}" for level in range(dataset["depth"])] + [f"d{number}"])
            given = {**dataset["given"]}
            if dataset["dtype"] != "S5" and dataset["fillvalue"] is not None:
                given["fillvalue"] = dataset["fillvalue"]
            made = file.create_dataset(name, dataset["shape"], dataset["dtype"], **given)
            if not dataset["is_empty"]:
                random = np.random.default_rng(dataset["seed"])
                values = random.integers(0, 100, dataset["shape"])
                made[...] = values.astype(dataset["dtype"]) if dataset["dtype"] != "?" else values > 50
            for attribute in range(dataset["attributes"]):
                made.attrs[f"a{attribute}"] = attribute
            held[name] = made[...]
    return held


@settings(2)
@hypothesis.given(plans())
def test_files_of_h5py(plan: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "0.h5"
        held = write(path, plan)
        dataset = uringload.Dataset(path)
        with uringload.DataLoader(dataset, len(dataset), output="numpy") as loader:
            batch = next(iter(loader))
    for name, want in held.items():
        assert name in batch, f"{name} is left out: {plan}"
        found = np.asarray(batch[name])
        if want.dtype.kind == "S":
            want = want.view("u1").reshape(*want.shape, 5)
        assert found.shape == want.shape and (found == want).all(), f"{name}: {plan}"


NUMBERS = [of for of in TYPES if of != "S5"]
# A path that ends with a slash is taken for one without.
NAMES = st.text("ab./ é", min_size=1, max_size=4).filter(lambda name: not name.endswith("/"))


def compounds(of: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    arrays = st.tuples(of, st.lists(st.integers(1, 3), min_size=1, max_size=2).map(tuple))
    fields = st.dictionaries(NAMES, of | arrays, min_size=1, max_size=4)
    return fields.map(lambda fields: [(name, *(of if isinstance(of, tuple) else (of,))) for name, of in fields.items()])


def leaves(values: Any, path: str) -> list[tuple[str, Any]]:
    """The fields of compounds with their paths; without what arrays of compounds have."""
    if values.dtype.names is None:
        return [(path, values)]
    if values.ndim > 1:
        return []
    return [leaf for name in values.dtype.names for leaf in leaves(values[name], f"{path}/{name}")]


@settings(2)
@hypothesis.given(
    fields=compounds(st.sampled_from(NUMBERS) | compounds(st.sampled_from(NUMBERS))), rows=st.integers(1, 9),
    libver=st.sampled_from(["earliest", "v108", "latest"]), chunks=st.sampled_from([None, (1,), (3,)]),
    is_written=st.booleans(), is_filled=st.booleans(), seed=st.integers(0, 255),
)  # fmt: skip
def test_compounds_of_h5py(
    fields: Any, rows: int, libver: str, chunks: Any, is_written: bool, is_filled: bool, seed: int
) -> None:
    of = np.dtype(fields)

    def values(count: int) -> Any:
        random = np.random.default_rng(seed).integers(0, 2, count * of.itemsize, dtype="u1")
        return random.view(of)

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "0.h5"
        with h5py.File(path, "w", libver=libver) as file:
            fill = values(1)[0] if is_filled else None
            made = file.create_dataset("t", (rows,), of, chunks=chunks and (min(rows, *chunks),), fillvalue=fill)
            if is_written:
                made[...] = values(rows)
            found = leaves(made[...], "t")
        held = dict(found)
        hypothesis.assume(held)
        if len(held) < len(found):
            with pytest.raises(uringload.InvalidArgumentError, match="two fields are called"):
                uringload.Dataset(path)
            return
        for wanted in (None, list(held)):
            dataset = uringload.Dataset(path, tensors=wanted)
            with uringload.DataLoader(dataset, rows, output="numpy") as loader:
                batch = next(iter(loader))
            assert list(dataset.columns) == list(held)
            for name, want in held.items():
                read = np.asarray(batch[name])
                assert read.shape == want.shape and np.array_equal(read, want, equal_nan=want.dtype.kind == "f"), name


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_a_group_of_many_names_is_read(tmp_path: pathlib.Path, libver: str) -> None:
    with h5py.File(tmp_path / "0.h5", "w", libver=libver) as file:
        for number in range(3000):
            file[f"a_{number}"] = np.full(10, number, "f4")
    names = [f"a_{number}" for number in range(0, 3000, 100)]
    with uringload.DataLoader(uringload.Dataset(tmp_path, tensors=names), 10, output="numpy") as loader:
        batch = next(iter(loader))
    assert [batch[name][0] for name in names] == list(range(0, 3000, 100))


def episodes(path: pathlib.Path, lengths: dict[str, int], names: tuple[str, ...] = ("actions", "obs/state")) -> None:
    with h5py.File(path, "w", track_order=True) as file:
        start = 0
        for group, rows in lengths.items():
            for name in names:
                file[f"{group}/{name}"] = np.arange(start, start + rows)
            file[f"{group}/length"] = rows
            start += rows


def test_numbered_groups_are_read_end_to_end(tmp_path: pathlib.Path) -> None:
    episodes(tmp_path / "0.h5", {f"data/demo_{number}": 10 + number for number in range(12)})
    dataset = uringload.Dataset(tmp_path)
    assert list(dataset.columns) == ["data/*/actions", "data/*/obs/state"]
    assert str(dataset.key(10)) == "0.h5/data/demo_1#0"
    with uringload.DataLoader(dataset, len(dataset), output="numpy") as loader:
        batch = next(iter(loader))
    assert batch["data/*/actions"].tolist() == batch["data/*/obs/state"].tolist() == list(range(186))


def test_groups_that_are_no_numbers_are_not_joined(tmp_path: pathlib.Path) -> None:
    episodes(tmp_path / "0.h5", {"train": 20, "test": 10})
    with pytest.raises(uringload.InvalidArgumentError, match="groups of one form have different numbers of rows"):
        uringload.Dataset(tmp_path)
    parts = [uringload.Dataset(tmp_path, tensors=[f"{group}/actions"]) for group in ("train", "test")]
    torch = pytest.importorskip("torch", reason="skipped: torch is not installed")
    both = torch.utils.data.ConcatDataset(parts)
    with uringload.DataLoader(both, 30, output="numpy") as loader:
        assert next(iter(loader))["*/actions"].tolist() == list(range(30))


def test_a_group_that_lacks_a_dataset_is_told(tmp_path: pathlib.Path) -> None:
    episodes(tmp_path / "0.h5", {"data/demo_0": 10, "data/demo_1": 12})
    with h5py.File(tmp_path / "0.h5", "a") as file:
        del file["data/demo_1/actions"]
    with pytest.raises(uringload.InvalidArgumentError, match="different datasets"):
        uringload.Dataset(tmp_path)
