"""Numbers that are stored big endian arrive as they are: in every format that has them, of every type."""

from __future__ import annotations

import pathlib
import struct
from typing import Any

import pytest
from conftest import needs_numpy

import uringload

pytestmark = needs_numpy
ROWS, WIDTH = 50, 7
KINDS = ("i2", "i4", "i8", "u2", "u4", "u8", "f2", "f4", "f8")
#: The types of idx files: their codes.
IDX = {"i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}


def values(kind: str, rows: int = ROWS) -> Any:
    """Numbers of which each byte matters, big endian."""
    import numpy

    # Whatever bits come, but no NaN: it equals nothing.
    bits = numpy.random.default_rng(len(kind)).integers(0, 256, rows * WIDTH * int(kind[1]), dtype=numpy.uint8)
    made = bits.view(f">{kind}").reshape(rows, WIDTH).copy()
    if kind[0] == "f":
        made[~numpy.isfinite(made)] = 1.5
    assert made.dtype.byteorder == ">"
    return made


def check(path: pathlib.Path, column: str, expected: Any, **given: Any) -> None:
    """All samples, in order and shuffled, whole batches and one by one, hold the numbers."""
    import numpy

    for shuffle in (False, True):
        with uringload.DataLoader(path, 8, shuffle, output="numpy", index=True, **given) as loader:
            found = {int(index): row for batch in loader for index, row in zip(batch["index"], batch[column])}
        assert len(found) == len(expected)
        for index, row in found.items():
            assert row.dtype.newbyteorder("=") == expected.dtype.newbyteorder("=") and row.dtype.isnative
            assert numpy.array_equal(row, expected[index])
    dataset = uringload.Dataset(path, **given)
    for index in (0, len(expected) // 2, len(expected) - 1):
        assert numpy.array_equal(numpy.asarray(dataset[index][column]), expected[index])


@pytest.mark.parametrize("kind", KINDS)
def test_npy(kind: str, tmp_path: pathlib.Path) -> None:
    import numpy

    expected = values(kind)
    numpy.save(tmp_path / "a.npy", expected)
    check(tmp_path / "a.npy", "data", expected, rows=True)
    numpy.save(tmp_path / "f.npy", numpy.asfortranarray(expected))
    check(tmp_path / "f.npy", "data", expected, rows=True)


@pytest.mark.parametrize("save", ["savez", "savez_compressed"])
def test_npz(save: str, tmp_path: pathlib.Path) -> None:
    import numpy

    columns = {kind: values(kind) for kind in KINDS}
    getattr(numpy, save)(tmp_path / "a.npz", **columns)
    for kind, expected in columns.items():
        check(tmp_path / "a.npz", kind, expected, rows=True)


@pytest.mark.parametrize("kind", IDX)
def test_idx(kind: str, tmp_path: pathlib.Path) -> None:
    expected = values(kind)
    path = tmp_path / "train-images-idx2-ubyte"
    path.write_bytes(bytes([0, 0, IDX[kind], 2]) + struct.pack(">II", ROWS, WIDTH) + expected.tobytes())
    check(path, "data", expected, format="idx")


@pytest.mark.parametrize("how", [{}, {"chunks": (8, WIDTH)}, {"chunks": (8, WIDTH), "compression": "gzip"},
                                 {"chunks": (8, WIDTH), "compression": "gzip", "shuffle": True}])  # fmt: skip
def test_hdf5(how: dict[str, Any], tmp_path: pathlib.Path) -> None:
    h5py = pytest.importorskip("h5py", reason="skipped: h5py is not installed")
    columns = {kind: values(kind) for kind in KINDS}
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for kind, expected in columns.items():
            file.create_dataset(kind, data=expected, dtype=f">{kind}", **how)
    for kind, expected in columns.items():
        check(tmp_path / "a.h5", kind, expected)
