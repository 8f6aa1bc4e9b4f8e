#!/usr/bin/env python3
"""What others get to the GPU of the same files: PyTorch's DataLoader and plain pinned copies, torchvision, KvikIO.

usage: benches/gpu/peers.py DIR --json FILE --only pytorch|torchvision|kvikio [--seconds N] [--workers 4,8,16]
       [--device cuda]

DIR is where the suite made its works: small/, records/records.bin and large/. What is not installed is told as skipped.
FILE keeps what runs with other peers have written to it.

Everything is in the peers' favour. DataLoader (pin_memory, non_blocking copies, four batches ahead a worker) reads
straight into tensors, its batches are put together by its workers, its rate is counted from its first batch on, so that
starting workers is free, and the best of several numbers of workers stands for it. KvikIO has its own pool of threads,
of the number and with the task size that do best, and buffers that are there before it starts. torchvision decodes in
workers, or on the GPU by batches, whichever does better; its photographs are in the page cache. Else the page cache is
dropped before each run, where that is allowed. A run ends at its part of the time.
"""

import argparse
import itertools
import json
import os
import statistics
import sys
import time

import merge

try:
    import numpy
    import torch
    from torch.utils.data import DataLoader, Dataset
except ImportError as error:
    torch, Dataset, MISSING = None, object, str(error)

RECORD_BYTES = 150_528
PREFETCH = 4
BATCHES = {"small": 64, "records": 64, "large": 1}
MIB = 1 << 20
PHOTOGRAPH = os.path.join(os.path.dirname(__file__), "../../images/tests/data/photo.jpg")
PHOTOGRAPHS = 12_000
PASSES = 20
CHAIN = "random_resized_crop(224), hflip, normalize(imagenet)"
KVIKIO_THREADS = (8, 16, 32, 64)
KVIKIO_TASK_BYTES = (4 * MIB, MIB, 16 * MIB)


def drop_caches():
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
            file.write("3\n")
    except OSError:
        return False
    return True


def paths_below(folder):
    return sorted(os.path.join(base, name) for base, _, names in os.walk(folder) for name in names)


class Files(Dataset):
    """Whole files."""

    def __init__(self, folder):
        self.paths = paths_below(folder)

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return torch.from_numpy(numpy.fromfile(self.paths[index], dtype=numpy.uint8))


class Records(Dataset):
    """Records of one length, each by one call."""

    def __init__(self, path):
        self.path, self.file = path, None
        self.count = os.stat(path).st_size // RECORD_BYTES

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.file is None:
            # Each worker its own.
            self.file = os.open(self.path, os.O_RDONLY)
        record = numpy.empty(RECORD_BYTES, dtype=numpy.uint8)
        os.preadv(self.file, [record], index * RECORD_BYTES)
        return torch.from_numpy(record)


def joined(samples):
    """Values end to end and their lengths, which is what a ragged column is."""
    values = samples[0] if len(samples) == 1 else torch.cat(samples)
    return values, torch.tensor([len(sample) for sample in samples])


def stacked(samples):
    return torch.stack(samples), None


def dataset(folder, work):
    if work == "records":
        return Records(os.path.join(folder, "records/records.bin")), stacked
    return Files(os.path.join(folder, work)), joined


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def data_loader(folder, work, workers, device, seconds):
    """Bytes a second from the first batch on."""
    samples, collate = dataset(folder, work)
    loader = DataLoader(samples, batch_size=BATCHES[work], shuffle=True, num_workers=workers, collate_fn=collate,
                        pin_memory=device == "cuda", prefetch_factor=PREFETCH)
    begin = first = None
    moved = 0
    asked = time.monotonic()
    for values, lengths in loader:
        there = values.to(device, non_blocking=True)
        if lengths is not None:
            lengths.to(device, non_blocking=True)
        if first is None:
            wait(device)
            begin = time.monotonic()
            first = begin - asked
        else:
            moved += there.numel()
        if time.monotonic() - asked > seconds:
            break
    wait(device)
    took = time.monotonic() - begin
    return {"bytes_per_s": moved / max(took, 1e-9), "first_s": first, "bytes": moved}


def pytorch(folder, work, counts, device, seconds):
    """The number of workers that did best, and the runs of all."""
    each = seconds / (len(counts) + 2)
    runs = {}
    for workers in counts:
        drop_caches()
        runs[workers] = [data_loader(folder, work, workers, device, each)]
    best = max(runs, key=lambda workers: runs[workers][0]["bytes_per_s"])
    # Once more each, so that the best is not the luckiest.
    for _ in range(2):
        drop_caches()
        runs[best].append(data_loader(folder, work, best, device, each))
    rate = statistics.median(run["bytes_per_s"] for run in runs[best])
    return {"bytes_per_s": rate, "workers": best, "runs": runs}


def kvikio_reads(kvikio, folder, work, seconds):
    """Batches of files or records, into one buffer for each of the two batches that are under way."""
    import cupy
    path = os.path.join(folder, "records/records.bin")
    if work == "records":
        with open(path, "rb") as file:
            count = os.fstat(file.fileno()).st_size // RECORD_BYTES
        pieces = [(path, index * RECORD_BYTES, RECORD_BYTES) for index in range(count)]
    else:
        pieces = [(path, 0, os.stat(path).st_size) for path in paths_below(os.path.join(folder, work))]
    numpy.random.default_rng(1).shuffle(pieces)
    size = BATCHES[work]
    batches = [pieces[at:at + size] for at in range(0, len(pieces), size)]
    room = max(sum(int(length) for _, _, length in batch) for batch in batches)
    buffers = [cupy.empty(room, dtype=cupy.uint8) for _ in range(2)]
    shared = kvikio.CuFile(path, "r") if work == "records" else None
    moved, pending = 0, []
    begin = time.monotonic()
    for number, batch in enumerate(batches):
        if len(pending) == 2:
            moved += finish(pending.pop(0))
        at, reads = 0, []
        for name, offset, length in batch:
            file = shared or kvikio.CuFile(str(name), "r")
            offset, length = int(offset), int(length)
            target = buffers[number % 2][at:at + length]
            reads.append((None if shared else file, file.pread(target, length, offset)))
            at += length
        pending.append(reads)
        if time.monotonic() - begin > seconds:
            break
    moved += sum(map(finish, pending))
    cupy.cuda.runtime.deviceSynchronize()
    return {"bytes_per_s": moved / max(time.monotonic() - begin, 1e-9), "bytes": moved}


def finish(reads):
    moved = 0
    for file, read in reads:
        moved += read.get()
        if file is not None:
            file.close()
    return moved


def with_kvikio(folder, work, seconds):
    try:
        import kvikio.defaults
    except ImportError as error:
        return {"skipped": str(error)}
    def run(threads, task_bytes):
        # Its default is one thread.
        kvikio.defaults.set({"num_threads": threads, "task_size": task_bytes})
        drop_caches()
        return {"threads": threads, "task_bytes": task_bytes, **kvikio_reads(kvikio, folder, work, seconds / 8)}

    def best(runs):
        return max(runs, key=lambda run: run["bytes_per_s"])

    runs = [run(threads, KVIKIO_TASK_BYTES[0]) for threads in KVIKIO_THREADS]
    threads = best(runs)["threads"]
    runs += [run(threads, task_bytes) for task_bytes in KVIKIO_TASK_BYTES[1:]]
    chosen = best(runs)
    # Twice more, so that the best is not the luckiest.
    again = [chosen] + [run(threads, chosen["task_bytes"]) for _ in range(2)]
    rate = statistics.median(run["bytes_per_s"] for run in again)
    return {"bytes_per_s": rate, "workers": threads, "task_bytes": chosen["task_bytes"], "runs": runs + again[1:]}


class Photographs(Files):
    """JPEGs as tensors ready to train on."""

    def __getitem__(self, index):
        from torchvision import io
        return augmented()(io.decode_jpeg(super().__getitem__(index), io.ImageReadMode.RGB))


def augmented():
    """What CHAIN does."""
    from torchvision.transforms import v2
    return v2.Compose([v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True),
                       v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])


def photographs(folder):
    """A folder of PHOTOGRAPHS JPEGs of 500 x 375: one picture in 16 qualities."""
    from torchvision import io
    from torchvision.transforms.v2 import functional
    folder = os.path.join(folder, "photographs")
    os.makedirs(folder, exist_ok=True)
    picture = functional.resize(io.decode_image(io.read_file(PHOTOGRAPH), io.ImageReadMode.RGB), (375, 500))
    encoded = [io.encode_jpeg(picture, quality) for quality in range(80, 96)]
    for number in range(PHOTOGRAPHS):
        io.write_file(os.path.join(folder, f"{number:05}.jpg"), encoded[number % len(encoded)])
    return folder


def images_a_second(batches, device, seconds):
    """Batches of tensors on the device, from the first on, and microseconds of our processor for each image."""
    begin, cpu, images = None, 0, 0
    for batch in batches:
        if begin is None:
            wait(device)
            begin, cpu = time.monotonic(), time.process_time()
        else:
            images += len(batch)
        if time.monotonic() - begin > seconds:
            break
    wait(device)
    took, cpu = time.monotonic() - begin, time.process_time() - cpu
    batches.close()
    return {"images_per_s": images / max(took, 1e-9), "cpu_us": 1e6 * cpu / max(images, 1)}


def torchvision(args, counts, result):
    """Images a second of JPEGs to tensors on the GPU: ours, and torchvision's."""
    try:
        import uringload
        from torchvision import io
    except ImportError as error:
        result["photographs"] = {"skipped": str(error)}
        return
    folder, device = photographs(args.dir), args.device

    def by_workers(workers):
        loader = DataLoader(Photographs(folder), batch_size=64, shuffle=True, num_workers=workers,
                            pin_memory=device == "cuda", prefetch_factor=PREFETCH)
        return (batch.to(device, non_blocking=True) for batch in loader)

    def on_device():
        augment = augmented()
        loader = DataLoader(Files(folder), batch_size=64, shuffle=True, num_workers=4, collate_fn=joined,
                            prefetch_factor=PREFETCH)
        for values, lengths in loader:
            decoded = io.decode_jpeg(list(values.split(lengths.tolist())), io.ImageReadMode.RGB, device=device)
            yield torch.stack([augment(image) for image in decoded])

    def ours(**given):
        with uringload.DataLoader(folder, batch_size=64, shuffle=True, output="torch", device=on, **given,
                                  transforms={"data": CHAIN}) as loader:
            # One pass takes less than a second.
            for batch in itertools.chain.from_iterable(itertools.repeat(loader, PASSES)):
                yield batch["data"]

    def decoded_alone(seconds):
        """Images a second of its decoder by itself, of files in memory."""
        files = [Files(folder)[number] for number in range(64)]

        def decode():
            return io.decode_jpeg(files, io.ImageReadMode.RGB, device=device)

        decode()
        wait(device)
        begin, images = time.monotonic(), 0
        while (took := time.monotonic() - begin) < seconds:
            images += len(decode())
            wait(device)
        return images / took

    on = "cuda:0" if device == "cuda" else "cpu"
    shares = (1.0, 0.75, 0.5) if device == "cuda" else ()
    runs = {f"ours, nvjpeg={share}": ours(nvjpeg=share) for share in shares}
    runs.update({"ours": ours(), "decoded by batches": on_device()})
    runs.update({f"{workers} workers": by_workers(workers) for workers in counts})
    told = result["photographs"] = {"runs": {}}
    if device == "cuda":
        told["decode_jpeg_per_s"] = decoded_alone(args.seconds / (len(runs) + 2))
        save(args, result)
        print(f"decode_jpeg alone: {told['decode_jpeg_per_s']:.0f} images/s", flush=True)
    for name, batches in runs.items():
        run = told["runs"][name] = images_a_second(batches, device, args.seconds / (len(runs) + 2))
        save(args, result)
        print(name, f"{run['images_per_s']:.0f} images/s, {run['cpu_us']:.0f} us of this process for each", flush=True)


def timed(work):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3


def copies():
    """PyTorch's own copies from pinned memory by size, and within the device (bytes read and written)."""
    rates = {}
    for size in (MIB, 16 * MIB, 64 * MIB, 256 * MIB):
        pinned = torch.randint(0, 256, (size,), dtype=torch.uint8).pin_memory()
        there = torch.empty(size, dtype=torch.uint8, device="cuda")
        count = max(1, 512 * MIB // size)

        def copy(pinned=pinned, there=there, count=count):
            for _ in range(count):
                there.copy_(pinned, non_blocking=True)

        rates[size] = statistics.median(count * size / timed(copy) for _ in range(6))
    a = torch.randint(0, 256, (1 << 30,), dtype=torch.uint8, device="cuda")
    b = torch.empty_like(a)
    within = statistics.median(2 * a.numel() / timed(lambda: b.copy_(a)) for _ in range(10))
    return {"pinned_bytes_per_s": rates, "within_bytes_per_s": within}


def of_works(args, name, measure, result):
    """Measures each of the works, and goes on where one fails."""
    for work in BATCHES:
        if not os.path.isdir(os.path.join(args.dir, work)):
            print(f"skipped: peers: the suite made no {work}")
            continue
        try:
            told = measure(work, args.seconds / len(BATCHES))
        except Exception as error:  # Whatever it fails with, the others are not lost.
            told = {"skipped": repr(error)}
        result.setdefault(work, {})[name] = told
        save(args, result)
        print(work, name, told.get("bytes_per_s", told.get("skipped")), flush=True)


def save(args, result):
    merge.replace(args.json, json.dumps(result, indent=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir")
    parser.add_argument("--json", required=True)
    parser.add_argument("--only", required=True, choices=["pytorch", "torchvision", "kvikio"])
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--workers", default="4,8,16")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help="cpu: to try this script")
    args = parser.parse_args()
    result = merge.load(args.json)
    if torch is None:
        result["skipped"] = MISSING
    elif args.device == "cuda" and not torch.cuda.is_available():
        result["skipped"] = "PyTorch sees no GPU"
    if "skipped" in result:
        save(args, result)
        sys.exit(print(f"skipped: peers: {result['skipped']}"))
    counts = [int(count) for count in args.workers.split(",")]
    if args.only == "kvikio":
        of_works(args, "kvikio", lambda work, seconds: with_kvikio(args.dir, work, seconds), result)
    elif args.only == "torchvision":
        torchvision(args, counts, result)
    else:
        if args.device == "cuda":
            result["copies"] = copies()
            save(args, result)
        of_works(args, "pytorch", lambda work, seconds: pytorch(args.dir, work, counts, args.device, seconds), result)
    save(args, result)


if __name__ == "__main__":
    main()
