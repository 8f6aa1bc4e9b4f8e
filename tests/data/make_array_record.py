#!/usr/bin/env python3
"""Writes tests/data/array_record: small files by the reference writer, which the tests read.

Needs array_record; the tests do not. Run it in a scratch environment and check in what changes:

    python3 -m venv .venv && .venv/bin/pip install array_record && .venv/bin/python tests/data/make_array_record.py

Record n has the byte n as often as LENGTHS says; those of tests/data/same are the samples of make_same.py.
"""

import pathlib

from array_record.python import array_record_module

DATA = pathlib.Path(__file__).parent
LENGTHS = [0, 1, 2, 100, 65_536, 0, 7, 70_000, 3, 65_511, 12]
WAYS = {
    "plain": "group_size:1,uncompressed",
    "groups": "group_size:4,uncompressed",
    "zstd": "group_size:3,zstd:3",
    "brotli": "group_size:3,brotli:6",
    "snappy": "group_size:4,snappy",
    "default": "",
    "padded": "group_size:5,zstd,pad_to_block_boundary:true",
    "transposed": "group_size:4,transpose:true",
}


def write(path, options, records):
    writer = array_record_module.ArrayRecordWriter(str(path), options)
    for record in records:
        writer.write(record)
    writer.close()


def payload(number):
    return bytes(b"0123456789abcdef"[(number * 31 + at * 7 + number * at) % 16] for at in range(96))


if __name__ == "__main__":
    (DATA / "array_record").mkdir(exist_ok=True)
    for name, options in WAYS.items():
        records = [bytes([number]) * length for number, length in enumerate(LENGTHS)]
        write(DATA / "array_record" / f"{name}.array_record", options, records)
    write(DATA / "array_record" / "empty.array_record", "", [])
    for name, options in {"one": "group_size:1", "groups": "group_size:7,uncompressed"}.items():
        write(DATA / "same" / f"{name}.array_record", options, [payload(number) for number in range(60)])
