#!/usr/bin/env python3
"""Measures readers of what people have beside the plain form of the same samples, and beside the format's own loader.

usage: benches/readers.py DIR [--rounds N] [--binary FILE] [--out FILE]

Needs numpy, h5py, array_record, pyarrow, safetensors and the program zstd; writes some 1.6 GB below DIR, in the page
cache when it is read. Each round runs every way once, all samples in order, batches of 64. Rates are samples per second
of CPU time, which a machine that is shared with others leaves as they are, each the best of all rounds; and what share
that is of the rate of the plain form (which decodes to the same bytes, so the share is that of the rate per decoded
byte) and how many times that of the format's own loader in one process.
"""

import argparse
import gzip
import io
import json
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import h5py
import numpy
import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import safetensors.numpy
from array_record.python import array_record_module

SHARDS, LINES = 8, 20_000
ROWS, WIDTH = 40_000, 1024


def texts(shard):
    law = numpy.random.default_rng(shard)
    words = ["".join(chr(97 + letter) for letter in law.integers(0, 26, 6)) for _ in range(2000)]
    for _ in range(LINES):
        yield " ".join(words[word] for word in law.integers(0, 2000, 120))


def write_lines(root):
    for kind in ("jsonl", "jsonl.gz", "jsonl.zst", "csv", "csv.gz"):
        (root / kind).mkdir(parents=True, exist_ok=True)
    for shard in range(SHARDS):
        rows = list(texts(shard))
        lines = "".join(json.dumps({"text": text, "label": at}) + "\n" for at, text in enumerate(rows)).encode()
        table = ("text,label\n" + "".join(f"{text},{at}\n" for at, text in enumerate(rows))).encode()
        for name, data in (("jsonl", lines), ("csv", table)):
            (root / name / f"{shard}.{name}").write_bytes(data)
            (root / f"{name}.gz" / f"{shard}.{name}.gz").write_bytes(gzip.compress(data, 6))
        plain, packed = root / "jsonl" / f"{shard}.jsonl", root / "jsonl.zst" / f"{shard}.jsonl.zst"
        subprocess.run(["zstd", "-q", "-f", plain, "-o", packed], check=True)
        ways = {
            "array_record": "group_size:1,uncompressed",
            "array_record.zstd": "group_size:64,zstd",
            "array_record.brotli": "group_size:64,brotli",
        }
        for name, options in ways.items():
            (root / name).mkdir(exist_ok=True)
            writer = array_record_module.ArrayRecordWriter(str(root / name / f"{shard}.array_record"), options)
            for text in rows:
                writer.write(text.encode())
            writer.close()


def write_arrays(root):
    data = numpy.random.default_rng(1).integers(0, 1000, (ROWS, WIDTH), dtype="<i4")
    for name, array in (("npy", data), ("npy.fortran", numpy.asfortranarray(data)), ("npy.big", data.astype(">i4"))):
        (root / name).mkdir(exist_ok=True)
        numpy.save(root / name / "x.npy", array)
    chunks = {"chunks": (64, WIDTH)}
    for name, dtype, options in (
        ("hdf5", "<i4", {}), ("hdf5.big", ">i4", {}), ("hdf5.shuffled", "<i4", {**chunks, "compression": "gzip"}),
        ("hdf5.scaled", "<i4", {**chunks, "scaleoffset": 0}),
    ):
        (root / name).mkdir(exist_ok=True)
        with h5py.File(root / name / "x.h5", "w") as file:
            file.create_dataset("x", data=data.astype(dtype), **options)
    for name, dtype in (("hdf5.text", h5py.string_dtype()), ("hdf5.fixed", "S840")):
        (root / name).mkdir(exist_ok=True)
        with h5py.File(root / name / "x.h5", "w") as file:
            file.create_dataset("x", data=[text.encode() for text in texts(0)], dtype=dtype)


def write_tables(root):
    rows = list(texts(0))
    chats = [[{"role": "user", "content": text[:200]}, {"role": "assistant", "content": text[200:]}] for text in rows]
    words = [text.split()[:20] for text in rows]
    for name, nested in (("chats", chats), ("words", words)):
        plain = [json.dumps(row, separators=(",", ":")) for row in nested]
        for kind, data in ((name, nested), (f"{name}.text", plain)):
            table = pyarrow.table({"x": data})
            for form in ("parquet", "arrow"):
                folder = root / f"{form}.{kind}"
                folder.mkdir(exist_ok=True)
                if form == "parquet":
                    pyarrow.parquet.write_table(table, folder / "x.parquet", row_group_size=2000, compression="zstd")
                    continue
                options = pyarrow.ipc.IpcWriteOptions(compression="zstd")
                with pyarrow.ipc.new_file(folder / "x.arrow", table.schema, options=options) as writer:
                    writer.write_table(table, max_chunksize=2000)
    law = numpy.random.default_rng(2)
    halves = {"a": law.integers(0, 9, (ROWS, WIDTH // 2), dtype="<i4"), "b": law.random((ROWS, WIDTH // 2), "<f4")}
    one = {"a": law.integers(0, 9, (ROWS, WIDTH), dtype="<i4")}
    for name, tensors in (("safetensors", one), ("safetensors.two", halves)):
        (root / name).mkdir(exist_ok=True)
        safetensors.numpy.save_file(tensors, root / name / "x.safetensors")


def table_rows(folder):
    path = next(folder.glob("x.*"))
    if path.suffix == ".parquet":
        batches = pyarrow.parquet.ParquetFile(path).iter_batches(2000)
    else:
        file = pyarrow.ipc.open_file(path)
        batches = (file.get_batch(at) for at in range(file.num_record_batches))
    return sum(sum(1 for row in batch.to_pylist() if row["x"] is not None) for batch in batches)


def tensor_rows(folder):
    tensors = list(safetensors.numpy.load_file(folder / "x.safetensors").values())
    return sum(1 for row in zip(*tensors) if row[0] is not None)


def cpu():
    """Seconds of CPU time of this process, and of those that it has started and that have ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def ours(binary, folder, arguments):
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [binary, "bench", str(folder), *arguments, "--batch-size", "64", "--epochs", "2", "--json", out.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"readers: {' '.join(command)}: {done.stderr}")
        # The report took the place of the file that is open here.
        with open(out.name, encoding="utf-8") as file:
            told = json.load(file)
        return told["samples"] / told["cpu_s"]


def json_lines(folder):
    count = 0
    for path in sorted(folder.iterdir()):
        if path.suffix == ".uidx":
            continue
        if path.suffix == ".zst":
            file = io.BytesIO(subprocess.run(["zstd", "-dcq", path], capture_output=True, check=True).stdout)
        else:
            file = gzip.open(path) if path.suffix == ".gz" else open(path, "rb")
        with file:
            for line in file:
                row = json.loads(line)
                count += len(row["text"]) > 0
    return count


def csv_rows(folder):
    import csv
    count = 0
    for path in sorted(folder.iterdir()):
        if path.suffix != ".uidx":
            with (gzip.open(path, "rt") if path.suffix == ".gz" else open(path)) as file:
                count += sum(1 for row in csv.DictReader(file) if int(row["label"]) >= 0)
    return count


def h5_rows(folder):
    with h5py.File(folder / "x.h5") as file:
        data = file["x"]
        return sum(1 for row in range(0, len(data)) if data[row] is not None)


def npy_rows(folder):
    data = numpy.load(folder / "x.npy", mmap_mode="r")
    return sum(1 for row in data if numpy.ascontiguousarray(row, dtype="<i4") is not None)


def array_records(folder):
    count = 0
    for path in sorted(folder.iterdir()):
        reader = array_record_module.ArrayRecordReader(str(path))
        count += sum(1 for at in range(reader.num_records()) if reader.read([at]))
        reader.close()
    return count


# Name, its plain sibling, arguments of ours, the format's own loader.
LINES_OF = ["--columns", "text,label:i64"]
WAYS = (
    ("jsonl", None, LINES_OF, json_lines),
    ("jsonl.gz", "jsonl", LINES_OF, json_lines),
    ("jsonl.zst", "jsonl", LINES_OF, json_lines),
    ("csv", None, LINES_OF, csv_rows),
    ("csv.gz", "csv", LINES_OF, csv_rows),
    ("array_record", None, [], array_records),
    ("array_record.zstd", "array_record", [], array_records),
    ("array_record.brotli", "array_record", [], array_records),
    ("parquet.chats.text", None, [], table_rows),
    ("parquet.chats", "parquet.chats.text", [], table_rows),
    ("parquet.words.text", None, [], table_rows),
    ("parquet.words", "parquet.words.text", [], table_rows),
    ("arrow.chats.text", None, [], table_rows),
    ("arrow.chats", "arrow.chats.text", [], table_rows),
    ("arrow.words.text", None, [], table_rows),
    ("arrow.words", "arrow.words.text", [], table_rows),
    ("safetensors", None, ["--rows"], tensor_rows),
    ("safetensors.two", "safetensors", ["--rows"], tensor_rows),
    ("npy", None, ["--rows"], npy_rows),
    ("npy.fortran", "npy", ["--rows"], npy_rows),
    ("npy.big", "npy", ["--rows"], npy_rows),
    ("hdf5", None, [], h5_rows),
    ("hdf5.big", "hdf5", [], h5_rows),
    ("hdf5.shuffled", None, [], h5_rows),
    ("hdf5.scaled", "hdf5.shuffled", [], h5_rows),
    ("hdf5.fixed", None, [], h5_rows),
    ("hdf5.text", "hdf5.fixed", [], h5_rows),
)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--binary", default="target/release/uringload")
    parser.add_argument("--only", default="", help="readers whose names begin like this")
    parser.add_argument("--out")
    options = parser.parse_args()
    if not (options.dir / "safetensors.two").exists():
        write_lines(options.dir)
        write_arrays(options.dir)
        write_tables(options.dir)
    ways = [way for way in WAYS if way[0].startswith(options.only)]
    rates = {name: ([], []) for name, *_ in ways}
    for name, _, arguments, _ in ways:
        # The index is made once, and everything is in the page cache.
        ours(options.binary, options.dir / name, arguments)
    for _ in range(options.rounds):
        for name, _, arguments, peer in ways:
            rates[name][0].append(ours(options.binary, options.dir / name, arguments))
            start = cpu()
            count = peer(options.dir / name)
            rates[name][1].append(count / (cpu() - start))
    lines = ["| reader | samples per CPU second | of its plain sibling | times its own loader |", "|---|---|---|---|"]
    best = {name: [max(of) for of in both] for name, both in rates.items()}
    for name, sibling, *_ in ways:
        own, peer = best[name]
        share = f"{own / best[sibling][0]:.2f} ({sibling})" if sibling else ""
        lines.append(f"| {name} | {own:,.0f} | {share} | {own / peer:.1f} |")
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if options.out:
        command = "benches/readers.py " + " ".join(arg for arg in sys.argv[1:])
        head = f"# Readers, {time.strftime('%Y-%m-%d')}, 2-core virtio VM\n\n`{command}`\n\n"
        pathlib.Path(options.out).write_text(head + text)


if __name__ == "__main__":
    main()
