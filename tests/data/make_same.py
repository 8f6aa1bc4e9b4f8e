#!/usr/bin/env python3
"""Writes the samples of tests/formats in the formats that the test does not write itself.

    python3 -m venv /somewhere && /somewhere/bin/pip install h5py pyarrow
    /somewhere/bin/python tests/data/make_same.py
"""

import os

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "same")
SAMPLES, BYTES = 60, 96
DIGITS = b"0123456789abcdef"


def payload(number):
    """As `payload` in tests/formats/main.rs."""
    return bytes(DIGITS[(number * 31 + at * 7 + number * at) % 16] for at in range(BYTES))


def hdf5(rows):
    with h5py.File(os.path.join(HERE, "plain.h5"), "w") as file:
        file.create_dataset("x", data=rows)
    with h5py.File(os.path.join(HERE, "chunked.h5"), "w", libver="latest") as file:
        file.create_dataset("x", data=rows, chunks=(7, 40), compression="gzip", shuffle=True, fletcher32=True)
    texts = [bytes(row) for row in rows]
    with h5py.File(os.path.join(HERE, "text.h5"), "w") as file:
        file.create_dataset("x", data=texts, dtype=h5py.string_dtype())
    with h5py.File(os.path.join(HERE, "fixed.h5"), "w") as file:
        file.create_dataset("x", data=texts, dtype=f"S{BYTES}")


def tables(rows):
    table = pa.table({"x": pa.array([bytes(row) for row in rows], pa.binary())})
    pyarrow.parquet.write_table(table, os.path.join(HERE, "same.parquet"), row_group_size=11, compression="zstd")
    with pa.OSFile(os.path.join(HERE, "same.arrow"), "wb") as sink:
        with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
            writer.write_table(table, max_chunksize=11)


def nested(rows):
    table = pa.table({"x": pa.array([[bytes(row).decode()] for row in rows], pa.list_(pa.string()))})
    pyarrow.parquet.write_table(table, os.path.join(HERE, "nested.parquet"), row_group_size=11, compression="snappy")
    with pa.OSFile(os.path.join(HERE, "nested.arrow"), "wb") as sink:
        with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(table, max_chunksize=11)


def main():
    os.makedirs(HERE, exist_ok=True)
    rows = np.array([list(payload(number)) for number in range(SAMPLES)], dtype=np.uint8)
    hdf5(rows)
    tables(rows)
    nested(rows)


if __name__ == "__main__":
    main()
