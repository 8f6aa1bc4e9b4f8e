#!/usr/bin/env python3
"""Writes tests/data/arrays: small files by the reference writers, which the tests read.

Needs numpy and safetensors; the tests do not. Run it in a scratch environment and check in what changes:

    python3 -m venv .venv && .venv/bin/pip install numpy safetensors && .venv/bin/python tests/data/make_arrays.py

Megatron-LM's index is written as its own `_IndexWriter` does (megatron/core/datasets/indexed_dataset.py), because
importing that needs torch. Elements are 0, 1, 2, ... in every array, so that a test knows them.
"""

import itertools
import pathlib
import struct
import zipfile

import numpy
from numpy.lib import format as npy
from safetensors.numpy import save_file

OUT = pathlib.Path(__file__).parent / "arrays"

PLAIN = ["|b1", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8"]


def elements(dtype, shape):
    return numpy.arange(numpy.prod(shape, dtype=int)).astype(dtype).reshape(shape)


def write_npy(name, array, version=None):
    with open(OUT / name, "wb") as file:
        npy.write_array(file, array, version=version)


def write_npy_files():
    for dtype in PLAIN:
        write_npy(f"plain_{dtype[1:]}.npy", elements(dtype, (3, 4)))
    write_npy("golden.npy", numpy.arange(3, dtype="<i4"), version=(1, 0))
    for version in [(1, 0), (2, 0), (3, 0)]:
        write_npy(f"version_{version[0]}.npy", elements("<u2", (2, 3)), version=version)
    write_npy("scalar.npy", numpy.array(7, dtype="<f8"))
    write_npy("empty.npy", numpy.zeros((0, 5), dtype="<f4"))
    write_npy("fortran_column.npy", numpy.asfortranarray(elements("<i4", (5, 1))))
    write_npy("fortran.npy", numpy.asfortranarray(elements("<i4", (3, 4))))
    write_npy("fortran_deep.npy", numpy.asfortranarray(elements(">i2", (3, 4, 2, 5))))
    write_npy("big_endian.npy", elements(">f4", (3, 4)))
    write_npy("bad_object.npy", numpy.array([{"a": 1}], dtype=object))
    write_npy("bad_structured.npy", numpy.zeros(2, dtype=[("a", "<i4"), ("b", "<f8")]))
    write_npy("bad_complex.npy", elements("<c8", (3,)))
    write_npy("bad_text.npy", numpy.array(["ab", "c"]))
    write_npy("bad_time.npy", numpy.array(["2020-01-01"], dtype="<M8[D]"))


def write_npz_files():
    x, y = elements("<f4", (6, 3)), elements("<i8", (6,))
    numpy.savez(OUT / "stored.npz", x=x, y=y)
    odd = {"f": numpy.asfortranarray(x), "b": y.astype(">i8"), "fb": numpy.asfortranarray(elements(">u2", (6, 2, 3)))}
    numpy.savez(OUT / "orders.npz", **odd)
    numpy.savez_compressed(OUT / "orders_deflated.npz", **odd)
    # A program that unpacks itself, as zip has it: offsets count from the archive's own first byte.
    for name in ["stored", "wide_before"]:
        if name == "wide_before":
            limit, zipfile.ZIP64_LIMIT, zipfile.ZIP_FILECOUNT_LIMIT = zipfile.ZIP64_LIMIT, 10, 0
            numpy.savez(OUT / "wide_before.npz", x=x, y=y)
            zipfile.ZIP64_LIMIT, zipfile.ZIP_FILECOUNT_LIMIT = limit, (1 << 16) - 1
        archive = (OUT / f"{name}.npz").read_bytes()
        (OUT / ("before.npz" if name == "stored" else f"{name}.npz")).write_bytes(b"#!/bin/sh\nexit\n" + archive)
    numpy.savez_compressed(OUT / "deflated.npz", x=x, y=y)
    numpy.savez(OUT / "bad_object_beside.npz", x=x, o=numpy.array([None]))
    # As zipfile writes what is larger than 2 GiB: with the 64-bit forms of all fields.
    limit, zipfile.ZIP64_LIMIT = zipfile.ZIP64_LIMIT, 10
    numpy.savez(OUT / "wide.npz", x=x, y=y)
    zipfile.ZIP64_LIMIT = limit
    with zipfile.ZipFile(OUT / "other.npz", "w") as archive:
        with archive.open("x.npy", "w", force_zip64=True) as member:
            npy.write_array(member, x)
        archive.writestr("readme.txt", "no array")
        archive.comment = b"a comment"
    with zipfile.ZipFile(OUT / "mixed.npz", "w") as archive:
        write_member(archive, "x.npy", x, zipfile.ZIP_DEFLATED)
        write_member(archive, "y.npy", y, zipfile.ZIP_STORED)
    for name, method in [("bzip2", zipfile.ZIP_BZIP2), ("lzma", zipfile.ZIP_LZMA)]:
        with zipfile.ZipFile(OUT / f"bad_{name}.npz", "w") as archive:
            write_member(archive, "x.npy", x, method)


def write_member(archive, name, array, method):
    # ZipInfo's own time of 1980, as numpy.savez has it: the same bytes each time.
    info = zipfile.ZipInfo(name)
    info.compress_type = method
    with archive.open(info, "w", force_zip64=True) as member:
        npy.write_array(member, array)


def write_safetensors_files():
    save_file({"a": elements("<f4", (2, 3)), "b": elements("<f4", (4,)), "c": elements("<i8", (2, 5))},
              OUT / "tensors.safetensors", metadata={"made": "by the reference writer"})


def write_megatron_files():
    # Codes of Megatron-LM's DType.
    codes = {"|u1": 1, "<i4": 4, "<u2": 8}
    documents = [[5, 6], [0], [1], [], [12]]
    for dtype, code in codes.items():
        lengths = list(itertools.chain(*documents))
        size = numpy.dtype(dtype).itemsize
        pointers = list(itertools.accumulate([0] + [n * size for n in lengths[:-1]]))
        borders = list(itertools.accumulate([0] + [len(d) for d in documents]))
        name = f"megatron_{dtype[1:]}"
        elements(dtype, (sum(lengths),)).tofile(OUT / f"{name}.bin")
        with open(OUT / f"{name}.idx", "wb") as index:
            index.write(b"MMIDIDX\x00\x00")
            index.write(struct.pack("<Q", 1))
            index.write(struct.pack("<B", code))
            index.write(struct.pack("<Q", len(lengths)))
            index.write(struct.pack("<Q", len(borders)))
            index.write(numpy.array(lengths, dtype=numpy.int32).tobytes(order="C"))
            index.write(numpy.array(pointers, dtype=numpy.int64).tobytes(order="C"))
            index.write(numpy.array(borders, dtype=numpy.int64).tobytes(order="C"))


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    write_npy_files()
    write_npz_files()
    write_safetensors_files()
    write_megatron_files()
