"""HDF5 headers as libraries before 1.6.3 wrote them, made from those of h5py, which reads them too."""

from __future__ import annotations

import importlib.util
import pathlib
import struct
from collections.abc import Callable

import pytest

if importlib.util.find_spec("h5py") is None:
    pytest.skip("skipped: h5py is not installed", allow_module_level=True)

import h5py
import numpy as np
import uringload
from h5py import h5d, h5p, h5s, h5t

DATATYPE, LAYOUT, FILTERS = 0x03, 0x08, 0x0B
PAIR = np.dtype([("x", "<i4"), ("y", "<f8")])


def rewritten(path: pathlib.Path, name: str, kind: int, change: Callable[[bytes], bytes]) -> None:
    """Changes one message of a dataset's header; empty space after the messages makes room for it."""
    with h5py.File(path) as file:
        at = h5py.h5o.get_info(file[name].id).addr
    raw = bytearray(path.read_bytes())
    (size,) = struct.unpack_from("<I", raw, at + 8)
    start = at = at + 16
    new = b""
    while at < start + size:
        of, length, flags = struct.unpack_from("<HHB", raw, at)
        body = bytes(raw[at + 8 : at + 8 + length])
        at += 8 + length
        if of == kind:
            body = change(body)
            body += bytes(-len(body) % 8)
        if of != 0:
            new += struct.pack("<HHB3x", of, len(body), flags) + body
    left = size - len(new)
    new += struct.pack("<HHB3x", 0, left - 8, 0) + bytes(left - 8)
    raw[start : start + size] = new
    path.write_bytes(raw)


def is_read(path: pathlib.Path, name: str) -> None:
    """What h5py reads is read."""
    with h5py.File(path) as file:
        want = file[name][...]
    fields = want.dtype.names
    names = [f"{name}/{field}" for field in fields] if fields else [name]
    with uringload.DataLoader(uringload.Dataset(path, tensors=names), len(want), output="numpy") as loader:
        batch = next(iter(loader))
    for column in names:
        of = want[column.split("/")[1]] if fields else want
        assert batch[column].dtype == of.dtype and batch[column].tolist() == of.tolist()


@pytest.mark.parametrize("is_written", [True, False])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("kind", ["contiguous", "chunked", "compact"])
@pytest.mark.parametrize("shape", [(10,), (6, 3)])
def test_layouts(tmp_path: pathlib.Path, shape: tuple[int, ...], kind: str, version: int, is_written: bool) -> None:
    path = tmp_path / "0.h5"
    values = np.arange(np.prod(shape), dtype="<i4").reshape(shape)
    with h5py.File(path, "w", libver="earliest") as file:
        plan = h5p.create(h5p.DATASET_CREATE)
        plan.set_layout({"contiguous": h5d.CONTIGUOUS, "chunked": h5d.CHUNKED, "compact": h5d.COMPACT}[kind])
        if kind == "chunked":
            plan.set_chunk((4, 2)[: len(shape)])
            plan.set_deflate(4)
        made = h5d.create(file.id, b"d", h5t.STD_I32LE, h5s.create_simple(shape), plan)
        if is_written:
            made.write(h5s.ALL, h5s.ALL, values)

    def change(body: bytes) -> bytes:
        assert body[0] == 3
        sizes = struct.pack(f"<{len(shape)}I", *shape)
        head = struct.pack("<BBB5x", version, len(shape) + 1, body[1])
        if body[1] == 0:
            (length,) = struct.unpack_from("<H", body, 2)
            stored = struct.pack("<I", length) + body[4 : 4 + length]
            return struct.pack("<BBB5x", version, len(shape), 0) + sizes + stored
        if body[1] == 1:
            return struct.pack("<BBB5x", version, len(shape), 1) + body[2:10] + sizes
        return head + body[3:11] + body[11 : 11 + 4 * (len(shape) + 1)]

    rewritten(path, "d", LAYOUT, change)
    is_read(path, "d")


@pytest.mark.parametrize("version", [1, 2])
def test_shared_types(tmp_path: pathlib.Path, version: int) -> None:
    path = tmp_path / "0.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        file["type"] = PAIR
        file.create_dataset("d", (5,), file["type"])[...] = np.array([(i, 2 * i) for i in range(5)], PAIR)

    def change(body: bytes) -> bytes:
        assert body[:2] == b"\2\2"
        # Before the address stands, as in a group, the offset of a name; behind it, what groups keep of an object.
        return body if version == 2 else bytes([1, 0]) + bytes(6) + struct.pack("<Q", 24) + body[2:10] + bytes(24)

    rewritten(path, "d", DATATYPE, change)
    is_read(path, "d")


NAMED = {4: "szip", 5: "nbit", 305: "lzo", 32001: "blosc", 32008: "bitshuffle", 32013: "zfp", 32026: "blosc2"}


@pytest.mark.parametrize("number", [*NAMED, 40000])
def test_filters_that_are_refused_by_name(tmp_path: pathlib.Path, number: int) -> None:
    path = tmp_path / "0.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        file.create_dataset("d", data=np.arange(10), chunks=(5,), compression="gzip")
    one = struct.pack("<BB6xHHHH", 1, 1, number, 0, 0, 0)
    rewritten(path, "d", FILTERS, lambda body: one)
    name = NAMED.get(number, "without a name")
    with pytest.raises(uringload.UnavailableError, match=rf"(?s)filter {number} \({name}\).*h5repack"):
        uringload.Dataset(path)
