#!/usr/bin/env python3
"""Reads one epoch of a work as tensors of torch, with uringload or with PyTorch's DataLoader, and prints what it took.

usage: VENV/bin/python benches/peers/python_read.py uringload|torch WORK FOLDER BATCH WORKERS

WORK is small or large (a file is a sample), records (of 150 528 bytes in one file) or npy (a file is an array). Time
counts from when the loader is constructed; start-up of Python and imports do not count, processes that the loader starts
do. The CPU time is that of this process and its children. The dataset of PyTorch is what its tutorials have: files are
listed beforehand, `__getitem__` reads one, and the loader's own collation stacks what can be stacked.
"""

import glob
import json
import os
import resource
import sys
import time

RECORD_BYTES = 150_528
FILES = {"small": "*/*.bin", "large": "*.bin", "npy": "*.npy"}


def files(work, folder):
    return sorted(glob.glob(os.path.join(folder, FILES[work])))


def ours(work, folder, batch, _):
    import uringload

    given = {"small": {"format": "folder"}, "large": {"format": "folder"}, "npy": {"format": "npy"},
             "records": {"record_bytes": RECORD_BYTES}}[work]
    return lambda: uringload.DataLoader(folder, batch_size=batch, shuffle=True, rank=0, world_size=1, io="direct",
                                        **given)


def theirs(work, folder, batch, workers):
    import numpy
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Files(Dataset):
        def __init__(self):
            self.paths = files(work, folder)

        def __len__(self):
            return len(self.paths)

        def __getitem__(self, index):
            if work == "npy":
                return torch.from_numpy(numpy.load(self.paths[index]))
            with open(self.paths[index], "rb") as file:
                return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)

    class Records(Dataset):
        def __init__(self):
            self.file = os.open(os.path.join(folder, "records.bin"), os.O_RDONLY)
            self.count = os.fstat(self.file).st_size // RECORD_BYTES

        def __len__(self):
            return self.count

        def __getitem__(self, index):
            record = os.pread(self.file, RECORD_BYTES, index * RECORD_BYTES)
            return torch.frombuffer(bytearray(record), dtype=torch.uint8)

    # Samples of different lengths cannot be stacked.
    collate = list if work in ("small", "large") else None
    made = Records if work == "records" else Files
    return lambda: DataLoader(made(), batch_size=batch, shuffle=True, num_workers=workers, collate_fn=collate)


def cpu_s():
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in spent)


def main():
    who, work, folder, batch, workers = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
    import torch

    make = {"uringload": ours, "torch": theirs}[who](work, folder, batch, workers)
    # Whoever measures memory looks from here on.
    print("ready", flush=True)
    sys.stdin.readline()
    torch.manual_seed(1)
    samples = batches = 0
    first = None
    cpu, thread, start = cpu_s(), time.thread_time(), time.perf_counter()
    loader = make()
    for got in loader:
        first = first or time.perf_counter() - start
        data = got["data"] if isinstance(got, dict) else got
        batches += 1
        samples += len(data)
    wall, thread = time.perf_counter() - start, time.thread_time() - thread
    if hasattr(loader, "close"):
        loader.close()
    # Workers are children that have ended, and are waited for, when the loader is gone.
    del loader, got, data
    print(json.dumps({"samples": samples, "batches": batches, "wall_s": wall, "cpu_s": cpu_s() - cpu,
                      "first_batch_s": first, "thread_us_per_batch": thread / batches * 1e6}))


if __name__ == "__main__":
    main()
