#!/usr/bin/env python3
"""Writes the first inputs of each fuzz target to fuzz/corpus, from what the reference writers made for the tests.

usage: fuzz/seeds.py [URINGLOAD]

URINGLOAD, the built program, makes the sidecar indexes; without it the existing ones stay.

Whatever else a fuzzer finds stays on the machine; inputs that broke something become tests.
"""

import gzip
import io
import json
import os
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile

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
    """Joins two files into one input: see `two` in src/lib.rs."""
    return struct.pack("<H", len(first)) + first + second


def archive(form, names):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = len(name)
            tar.addfile(member, io.BytesIO(name.encode()))
    # Blocks of zeros after the end are useless to a fuzzer.
    used = out.getvalue().rstrip(b"\0")
    return used + bytes(-len(used) % 512 + 1024)


def archives():
    names = ("a.jpg", "a.cls", "dir/b.jpg", "dir/b.cls")
    put("tar", "two.tar", archive(tarfile.USTAR_FORMAT, names))
    put("tar", "long.tar", archive(tarfile.GNU_FORMAT, ("x" * 120 + ".jpg", "y.jpg")))
    put("tar", "pax.tar", archive(tarfile.PAX_FORMAT, ("z" * 300 + "ü.jpg", "y.jpg")))


def packed_archives():
    """The first byte says how the harness compresses what follows: "g", "z", or not at all."""
    two = archive(tarfile.USTAR_FORMAT, ("a.jpg", "a.cls", "dir/b.jpg", "dir/b.cls"))
    put("tar_zip", "in_gzip", b"g" + two)
    put("tar_zip", "in_zstd", b"z" + two)
    for name in os.listdir(os.path.join(DATA, "tar")):
        put("tar_zip", name, b"-" + read("tar", name))


def shards():
    one_mds(["mds", "0"], "mds", "raw", b"")
    one_mds(["mds-zip", "raw"], "mds", "small", b"")
    for kind in ("br", "bz2", "gz", "snappy", "zstd"):
        one_mds(["mds-zip", kind], "mds_zip", kind, b"-")
    one_mds(["mds-zip", "zstd"], "mds_zip", "in_zstd", b"z", read("mds-zip", "raw", "shard.00000.mds"))
    one_mds(["mds-zip", "gz"], "mds_zip", "in_gzip", b"g", read("mds-zip", "raw", "shard.00000.mds"))
    one_chunk(["litdata"], "litdata", "raw", b"")
    one_chunk(["litdata-tokens"], "litdata", "tokens", b"")
    one_chunk(["litdata-zip", "raw"], "litdata", "small", b"")
    for kind in ("plain", "zstd"):
        one_chunk(["litdata-rows", kind], "litdata", f"rows_{kind}", b"")
    for level in ("batch", "chunk", "sample", "sample-count", "tokens"):
        one_chunk(["litdata-zip", level], "litdata_zip", level, b"-")
    one_chunk(["litdata-zip", "chunk"], "litdata_zip", "in_zstd", b"z", read("litdata-zip", "raw", "chunk-0-0.bin"))


def one_mds(folder, target, name, how, raw=None):
    """The index, cut to the first shard, and that shard; `$raw` and `$zip` stand for lengths: see `with_lengths`."""
    index = json.loads(read(*folder, "index.json"))
    index["shards"] = index["shards"][:1]
    shard = index["shards"][0]
    stored = shard["raw_data"] if shard["zip_data"] is None else shard["zip_data"]
    content = read(*folder, stored["basename"]) if raw is None else raw
    if shard["zip_data"] is None:
        stored["bytes"] = "$raw"
    else:
        stored["bytes"] = "$zip"
        if raw is not None:
            shard["raw_data"]["bytes"] = "$raw"
    put(target, name, both(unquoted(index), how + content))


def one_chunk(folder, target, name, how, raw=None):
    index = json.loads(read(*folder, "index.json"))
    index["chunks"] = index["chunks"][:1]
    chunk = index["chunks"][0]
    # Stored without the ":" of a level (`.zstd:7`), which not every system has in names.
    content = read(*folder, chunk["filename"].replace(":", "-")) if raw is None else raw
    # The name has the level, too (`.zstd:7`); the harness writes only `.zstd`.
    chunk["filename"] = chunk["filename"].replace(":7", "")
    if index["config"]["compression"] is not None:
        index["config"]["compression"] = "zstd"
    if raw is not None:
        chunk["chunk_bytes"] = "$raw"
    put(target, name, both(unquoted(index), how + content))


def unquoted(index):
    return json.dumps(index).replace('"$raw"', "$raw").replace('"$zip"', "$zip").encode()


def records():
    raw = read("tfrecord", "bytes", "raw.tfrecord")
    train = read("tfrecord", "examples", "train.tfrecord-00000-of-00002")
    put("tfrecord", "raw", b"-" + raw)
    put("tfrecord", "examples", b"-" + train)
    put("tfrecord", "sequence", b"-" + read("tfrecord", "sequence", "steps.tfrecord"))
    put("tfrecord", "gzip", b"-" + read("tfrecord", "gzip", "train.tfrecord.gz"))
    put("tfrecord", "zlib", b"-" + read("tfrecord", "zlib", "train.tfrecord"))
    put("tfrecord", "in_gzip", b"g" + train)
    put("tfrecord", "in_zlib", b"l" + raw)
    payloads = []
    while train:
        (size,) = struct.unpack_from("<Q", train)
        payloads.append(train[12 : 12 + size])
        train = train[16 + size :]
    put("example", "two", both(payloads[1], payloads[2]))
    put("example", "first", both(payloads[0], payloads[4]))
    put("example", "sequence", both(read("tfrecord", "sequence", "steps.tfrecord")[12:-4], b""))


def lines():
    for name in os.listdir(os.path.join(DATA, "lines")):
        data = read("lines", name)
        if name.endswith((".gz", ".zst", ".bz2")):
            put("lines_zip", name, b"-" + data)
        if name.endswith(".jsonl"):
            put("lines_zip", name, (b"g" if "ascii" in name else b"z") + data)
            put("jsonl", name, data)
            put("text", name, data)
        if name.endswith((".csv", ".tsv")):
            put("csv", name, {"semicolon.csv": b";", "excel.tsv": b"\t"}.get(name, b",") + data)
    put("csv", "open", b'|a|"b\n')
    put("text", "ends", b"\xef\xbb\xbfone\r\n\n\r\r\ntwo")


def patterns():
    texts = ("{a,b}{0..1}", "b{0,1}", "b{00..01}", "b[0-9]", "**", "?{,b}", "*{[ab],}*", "{9..1}", "{a,{b,c}}", "[")
    for number, text in enumerate(texts):
        put("patterns", str(number), text.encode())


def answers():
    head = b"HTTP/1.1 206 x\r\nContent-Range: bytes 5-14/20\r\nETag: \"a\"\r\n"
    put("remote", "whole", b"\x02" + head + b"Content-Length: 10\r\n\r\n0123456789")
    chunks = b"4\r\n0123\r\n6;a=b\r\n456789\r\n0\r\n\r\n"
    put("remote", "chunks", b"\x02" + head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
    put("remote", "refused", b"\x02HTTP/1.1 403 x\r\nContent-Length: 30\r\n\r\n<Error><Code>A</Code></Error>\n")
    put("remote", "moved", b"\x02HTTP/1.1 307 x\r\nLocation: /x?y\r\nContent-Length: 0\r\n\r\n")
    entry = b"<Contents><Key>a&amp;&#37;</Key><Size>3</Size><ETag>x</ETag></Contents>"
    put("remote", "page", b"\x01<ListBucketResult><EncodingType>url</EncodingType>" + entry + b"</ListBucketResult>")
    put("remote", "blobs", b"\x01<EnumerationResults><Blobs><Blob><Name Encoded='true'>%61</Name><Properties>"
        b"<Content-Length>1</Content-Length></Properties></Blob></Blobs></EnumerationResults>")
    for number, text in enumerate((b"s3://b/k?versionId=x", b"https://u:p@[::1]:9/a?b#c", b"abfs://c@a.x/k")):
        put("remote", f"url{number}", b"\x00" + text)


def hdf5():
    for name in os.listdir(os.path.join(DATA, "hdf5")):
        data = read("hdf5", name)
        if len(data) <= 20000:
            put("hdf5", name, data)


def columnar():
    for name in os.listdir(os.path.join(DATA, "columnar")):
        target = name.rpartition(".")[2]
        if target in ("parquet", "arrow"):
            data = read("columnar", name)
            if len(data) <= 20000:
                put(target, name, data)


def array_records():
    """Without the blocks in the middle, which have nothing but padding."""
    for name in ("one.array_record", "groups.array_record"):
        data = read("same", name)
        # The postscript's record comes after the headers of its block and its chunk, and three bytes.
        footer, at, shift = 0, 65536 + 24 + 40 + 3 + 1, 0
        while True:
            footer |= (data[at] & 0x7F) << shift
            shift += 7
            at += 1
            if data[at - 1] < 0x80:
                break
        put("array_record", name, struct.pack("<H", footer) + data[:65536].rstrip(b"\0"))


def sidecars():
    """Sidecars of the files that the harness uses: see fuzz_targets/sidecar.rs."""
    if len(sys.argv) < 2:
        return
    two = archive(tarfile.USTAR_FORMAT, ("a.jpg", "a.cls", "dir/b.jpg", "dir/b.cls"))
    whole = (
        ("a.tar", two),
        ("a.tar.gz", gzip.compress(two, mtime=0)),
        ("a.tfrecord", read("tfrecord", "bytes", "raw.tfrecord")),
        ("a.txt", b"one\ntwo\n\nthree\n"),
    )
    for number, (name, data) in enumerate(whole):
        folder = tempfile.mkdtemp()
        path = os.path.join(folder, name)
        with open(path, "wb") as file:
            file.write(data)
        subprocess.run([sys.argv[1], "index", path], check=True, stdout=subprocess.DEVNULL)
        with open(path + ".uidx", "rb") as file:
            put("sidecar", name, bytes([number]) + file.read())
        shutil.rmtree(folder)


def arrays():
    for name in os.listdir(os.path.join(DATA, "arrays")):
        data = read("arrays", name)
        extension = name.rsplit(".")[-1]
        if extension == "npz":
            # Its members are arrays, and called as such: as files they are samples.
            put("zip", name, data.replace(b".npy", b".jpg"))
        if extension in ("npy", "npz", "safetensors") and len(data) < 4096:
            put(extension, name, data)
        if extension == "idx":
            put("megatron", name, both(data, read("arrays", name.replace(".idx", ".bin"))))


def betons():
    """Two samples with every kind of field, in the parts that fuzz_targets/beton.rs puts in their places."""
    page = 2 << 20

    def array(dtype, *shape):
        text = ('[["", "%s"]]' % dtype).encode()
        return struct.pack("<33Q", *shape, *[0] * (32 - len(shape)), len(text)) + text

    # Name, number, arguments, record format, and the values of both samples; bytes stand for a pointer to them.
    fields = (
        ("image", 2, b"", "<BHHQ", ((1, 2, 1, b"raw..."), (0, 2, 1, b"jpeg"))),
        ("raw", 3, b"", "<QQ", ((b"bytes", 5), (b"", 0))),
        ("text", 5, b"", "<QQ", ((b"{}\0", 3), (b"[1]\0", 4))),
        ("vector", 4, array("<f4", 2), "<Q", ((bytes(8),), (b"12345678",))),
        ("label", 1, b"", "<q", ((-1,), (7,))),
        ("score", 0, b"", "<d", ((0.5,), (-1.5,))),
    )
    for name, chosen in (("all", fields), ("images", fields[:1]), ("numbers", fields[3:])):
        values, allocations, records = b"", b"", b""
        for sample in range(2):
            record = b""
            for _, number, _, form, given in chosen:
                # Structures are packed; everything else is a multiple of 8.
                record += bytes(0 if number in (2, 3, 5) else -len(record) % 8)
                places = []
                for value in given[sample]:
                    if isinstance(value, bytes):
                        place, values = page + len(values), values + value
                        allocations += struct.pack("<QQQ", sample, place, len(value)) if value else b""
                        value = place
                    places.append(value)
                record += struct.pack(form, *places)
            records += record + bytes(-len(record) % 8 if len(chosen) != 1 else 0)
        head = struct.pack("<HHIQQ", 2, len(chosen), page, 2, 2 * page)
        for title, number, arguments, _, _ in chosen:
            head += struct.pack("<B16s1024s", number, title.encode(), arguments)
        put("beton", name, both(head + records, both(values, allocations)))


def states():
    for name in os.listdir(GOLDEN):
        if name.startswith("state"):
            with open(os.path.join(GOLDEN, name), "rb") as file:
                put("state", name, file.read())
    put("quarantine", "numbers", b"1\n2\n99\n")


def images():
    """One small file of each format and kind; the reference writers are those of images/tests/make.py."""
    data = os.path.join(HERE, "../images/tests/data")
    names = "420.jpg progressive.jpg cmyk.jpg exif6.jpg palette4.png gray16.png lossy.webp moving.webp palette.bmp"
    for name in names.split() + ["bits.bmp", "moving.gif", "lzw.tif", "bits.tif"]:
        with open(os.path.join(data, name), "rb") as file:
            put("image", name, file.read())
    # What the first byte chooses is in fuzz_targets/ready.rs.
    for choice, name in zip((0x00, 0x41, 0x82, 0x80), ("420.jpg", "progressive.jpg", "cmyk.jpg", "exif6.jpg")):
        with open(os.path.join(data, name), "rb") as file:
            put("ready", name, bytes((choice,)) + file.read())
    size = bytes((40, 30, 7))
    chains = (
        "random_resized_crop(24), hflip, normalize(imagenet)",
        "resize(20, lanczos), center_crop(30x40), rotate(20, bilinear, 9), to_tensor(bf16, hwc)",
        "pad(1:2:3:4), affine(5, 0.1, 0.9..1.1, 3), color_jitter(0.4, 0.4, 0.4, 0.1), blur(5), random_erasing(1)",
        "random_crop(20, 4), auto_augment(svhn), rand_augment(2, 9), trivial_augment, grayscale(p=0.2), vflip",
    )
    for number, chain in enumerate(chains):
        put("chain", str(number), size + chain.encode())


if __name__ == "__main__":
    tables = (hdf5, array_records, columnar, states, sidecars, images)
    for write in (archives, packed_archives, shards, betons, arrays, records, lines, patterns, answers, *tables):
        write()
