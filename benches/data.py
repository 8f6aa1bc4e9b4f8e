#!/usr/bin/env python3
"""Makes the data that benches/spine.py and benches/orders.py read: the same bytes every time.

usage: benches/data.py DIR [--only small|records|large|mixed]

  DIR/small    20 000 files in 100 class folders, sizes log-normal with a mean of 110 KB (ImageNet's law)
  DIR/records  one file of 39 860 records of 150 528 bytes (224 x 224 x 3), 6.0 GB
  DIR/large    40 files, sizes normal around 140 MB (a volume of medical images), 5.6 GB
  DIR/mixed    8 folders with a file of 4 982 such records each, 6.0 GB: datasets to mix

The bytes are random, so that no compressing disk or deduplicating host can cheat, and a function of the seed and the
file's name. Files that exist with the right size are kept: a second run costs nothing, an interrupted one continues.
"""

import argparse
import math
import multiprocessing
import os
import random
import shutil
import sys
import time

SEED = "uringload 1"
CHUNK_BYTES = 1 << 20

SMALL_FILES = 20_000
SMALL_CLASSES = 100
SMALL_MEAN_BYTES = 110_000
SMALL_SIGMA = 0.5

RECORD_BYTES = 150_528
RECORDS = 39_860

LARGE_FILES = 40
LARGE_MEAN_BYTES = 140_000_000
LARGE_DEVIATION_BYTES = 14_000_000

MIXED_PARTS = 8
MIXED_RECORDS = 4982

# Space that must stay free on the disk.
RESERVE_BYTES = 1 << 30


def small():
    """Yields (name, size) of each file."""
    law = random.Random(f"{SEED}/small")
    mu = math.log(SMALL_MEAN_BYTES) - SMALL_SIGMA**2 / 2
    for number in range(SMALL_FILES):
        size = max(1, int(law.lognormvariate(mu, SMALL_SIGMA)))
        yield f"small/class_{number % SMALL_CLASSES:03}/{number:05}.dat", size


def records():
    yield "records/records.bin", RECORDS * RECORD_BYTES


def large():
    law = random.Random(f"{SEED}/large")
    for number in range(LARGE_FILES):
        yield f"large/volume_{number:02}.dat", int(law.normalvariate(LARGE_MEAN_BYTES, LARGE_DEVIATION_BYTES))


def mixed():
    for part in range(MIXED_PARTS):
        yield f"mixed/part_{part}/records.bin", MIXED_RECORDS * RECORD_BYTES


WORKS = {"records": records, "large": large, "small": small, "mixed": mixed}


def write(task):
    """Writes one file from front to back. An interrupted one is too short, so the next run writes it again."""
    root, name, size = task
    generator = random.Random(f"{SEED}/{name}")
    with open(os.path.join(root, name), "wb", buffering=0) as file:
        left = size
        while left:
            chunk = generator.randbytes(min(left, CHUNK_BYTES))
            left -= len(chunk)
            view = memoryview(chunk)
            while view:
                view = view[file.write(view):]
        # Dirty pages cannot be dropped from the cache, and a cold run needs them on the disk. fdatasync of each small
        # file would take minutes; main syncs them all at once.
        if size > CHUNK_BYTES:
            os.fdatasync(file.fileno())
    return size


def missing(root, works):
    for work in works:
        for name, size in WORKS[work]():
            try:
                there = os.stat(os.path.join(root, name)).st_size
            except FileNotFoundError:
                there = -1
            if there != size:
                yield root, name, size


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir")
    parser.add_argument("--only", choices=sorted(WORKS), action="append")
    args = parser.parse_args()
    works = args.only or list(WORKS)

    tasks = list(missing(args.dir, works))
    wanted = sum(size for _, _, size in tasks)
    if tasks:
        os.makedirs(args.dir, exist_ok=True)
        free = shutil.disk_usage(args.dir).free
        if free < wanted + RESERVE_BYTES:
            sys.exit(
                f"data.py: {args.dir} has {free / 1e9:.1f} GB free, the works need {wanted / 1e9:.1f} GB "
                f"and {RESERVE_BYTES / 1e9:.1f} GB in reserve: free some, or name another DIR"
            )
        for folder in {os.path.dirname(os.path.join(root, name)) for root, name, _ in tasks}:
            os.makedirs(folder, exist_ok=True)
        print(f"data.py: writing {len(tasks)} files, {wanted / 1e9:.1f} GB, below {args.dir}", flush=True)
        start = time.monotonic()
        with multiprocessing.Pool(2) as pool:
            for _ in pool.imap_unordered(write, tasks, chunksize=1 if len(tasks) < 1000 else 16):
                pass
        os.sync()
        print(f"data.py: done in {time.monotonic() - start:.0f} s")
    for work in works:
        sizes = [size for _, size in WORKS[work]()]
        print(f"data.py: {work:8} {len(sizes):6} files {sum(sizes):14,} bytes")


if __name__ == "__main__":
    main()
