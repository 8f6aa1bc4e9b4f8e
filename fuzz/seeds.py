#!/usr/bin/env python3
"""Writes the first inputs of each fuzz target to fuzz/corpus, from what the reference writers made for the tests.

usage: fuzz/seeds.py

What a fuzzer finds beside these stays on the machine; inputs that broke something become tests.
"""

import io
import os
import struct
import tarfile

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "../tests/data")
GOLDEN = os.path.join(HERE, "../tests/golden")


def read(*path):
    with open(os.path.join(DATA, *path), "rb") as file:
        return file.read()


def put(target, name, data):
    folder = os.path.join(HERE, "corpus", target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data)


def both(first, second):
    """Two files as one input: see `two` in src/lib.rs."""
    return struct.pack("<H", len(first)) + first + second


def archive(form, names):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = len(name)
            tar.addfile(member, io.BytesIO(name.encode()))
    # Blocks of zeros behind the end are of no use to a fuzzer.
    return out.getvalue().rstrip(b"\0") + bytes(1024)


def archives():
    names = ("a.jpg", "a.cls", "dir/b.jpg", "dir/b.cls")
    put("tar", "two.tar", archive(tarfile.USTAR_FORMAT, names))
    put("tar", "long.tar", archive(tarfile.GNU_FORMAT, ("x" * 120 + ".jpg", "y.jpg")))
    put("tar", "pax.tar", archive(tarfile.PAX_FORMAT, ("z" * 300 + "ü.jpg", "y.jpg")))
    put("dali", "two.idx", b"v1.2 2\njpg 512 5 a.jpg cls 1536 5 a.cls\njpg 2560 9 dir/b.jpg cls 3584 9 dir/b.cls\n")


def shards():
    index = read("mds", "index.json").replace(b"0/shard", b"shard")
    put("mds", "raw", both(index, read("mds", "0", "shard.00000.mds")))
    put("litdata", "raw", both(read("litdata", "index.json"), read("litdata", "chunk-0-0.bin")))


def arrays():
    for name in os.listdir(os.path.join(DATA, "arrays")):
        data = read("arrays", name)
        extension = name.rsplit(".")[-1]
        if extension in ("npy", "npz", "safetensors") and len(data) < 4096:
            put(extension, name, data)
        if extension == "idx":
            put("megatron", name, both(data, read("arrays", name.replace(".idx", ".bin"))))


def states():
    for name in os.listdir(GOLDEN):
        if name.startswith("state"):
            with open(os.path.join(GOLDEN, name), "rb") as file:
                put("state", name, file.read())
    put("quarantine", "numbers", b"1\n2\n99\n")


if __name__ == "__main__":
    for write in (archives, shards, arrays, states):
        write()
