#!/usr/bin/env python3
"""Reads epochs of a work as torch tensors, with uringload or PyTorch's DataLoader, and prints the time and CPU it took.

usage: VENV/bin/python benches/peers/python_read.py uringload|torch WORK FOLDER BATCH WORKERS EPOCHS

WORK is small or large (a file is a sample), records (of 150 528 bytes in one file) or npy (a file is an array). Of the
results, `wall_s`, `cpu_s` and `first_batch_s` count from the listing or opening of the dataset; `read_s` and
`thread_us_per_batch` count from the first read, as `uringload bench` does. `again_s` is the time to open, construct and
get a first batch once more, while the files' metadata is in memory. Python's start-up and imports do not count,
processes that the loader starts do. The CPU time is that of this process and its children. PyTorch's dataset is the one
of its tutorials: files are listed, `__getitem__` reads one, and the loader's own collation stacks what can be stacked.
"""

import glob
import json
import os
import resource
import sys
import time

RECORD_BYTES = 150_528
FILES = {"small": "*/*.dat", "large": "*.dat", "npy": "*.npy"}


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


def first_batch_s(make):
    """From the construction to the first batch."""
    start = time.perf_counter()
    loader = make()
    batches = iter(loader)
    next(batches)
    first = time.perf_counter() - start
    if hasattr(loader, "close"):
        loader.close()
    return first


def main():
    who, work, folder = sys.argv[1:4]
    batch, workers, epochs = map(int, sys.argv[4:7])
    import torch

    make = {"uringload": ours, "torch": theirs}[who](work, folder, batch, workers)
    # Memory is sampled from here on.
    print("ready", flush=True)
    sys.stdin.readline()
    torch.manual_seed(1)
    samples = batches = 0
    first = None
    cpu, start = cpu_s(), time.perf_counter()
    loader = make()
    taking = iter(loader)
    reading, thread = time.perf_counter(), time.thread_time()
    for epoch in range(epochs):
        for got in taking if epoch == 0 else loader:
            first = first or time.perf_counter() - start
            data = got["data"] if isinstance(got, dict) else got
            batches += 1
            samples += len(data)
    end, thread = time.perf_counter(), time.thread_time() - thread
    if hasattr(loader, "close"):
        loader.close()
    # Dropping the loader ends its workers and waits for them, so that their CPU time counts.
    del loader, taking, got, data
    cpu = cpu_s() - cpu
    print(json.dumps({"samples": samples, "batches": batches, "epochs": epochs, "wall_s": end - start,
                      "read_s": end - reading, "cpu_s": cpu, "first_batch_s": first, "again_s": first_batch_s(make),
                      "thread_us_per_batch": thread / batches * 1e6}))


if __name__ == "__main__":
    main()
