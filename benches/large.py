#!/usr/bin/env python3
"""Long samples of many lengths: rate, CPU and resident memory, of one binary or of several in turn.

    cargo build --release && benches/large.py DIR [--binary target/release/uringload ...] [--rounds 5] [--files 40]

Makes 40 files of 77 to 218 MB in DIR, once (5.9 GB). Each run is a process that reads for some seconds past the page
cache, whole files in a shuffled order. Memory that the machine's host has to give first is most of the CPU time of a
short run: `--warm` takes and frees some GiB before each run, so that the machine has it. With several binaries their
runs take turns. The reference is the raw read of `bench` in the same run: the same reads with the bytes thrown away.
Prints medians, writes nothing.
"""

import argparse
import json
import os
import random
import statistics
import subprocess

from loop import bench, find, medians


def make(path, files):
    """Files of 77 to 218 MB, most of them about 140."""
    os.makedirs(path, exist_ok=True)
    rng = random.Random(7)
    piece = os.urandom(8 << 20)
    for number in range(files):
        length = int(min(218e6, max(77e6, rng.lognormvariate(0, 0.3) * 140e6)))
        name = f"{path}/{number:02}.bin"
        if os.path.exists(name) and os.path.getsize(name) == length:
            continue
        with open(name, "wb") as file:
            while (left := length - file.tell()) > 0:
                file.write(piece[:left])
            os.fsync(file.fileno())


OPTIONS = ["--format", "folder", "--batch-size", "1", "--shuffle=full", "--epochs", "1000"]


def measured(binary, path, seconds):
    """As run, without the raw read, whose memory and CPU would count: MB/s, CPU s/GB, MiB."""
    report, cpu = bench(binary, path, seconds, ["--no-raw", *OPTIONS])
    bytes_per_second = find(report, "bytes_per_s")
    resident = (find(report, "peak_rss_bytes") or 0) / (1 << 20)
    return bytes_per_second / 1e6, cpu / (bytes_per_second * seconds / 1e9), resident


def warm(gibibytes):
    """Has the host give this machine memory, in a process that ends."""
    code = "import sys; held = [bytearray(b'x') * (1 << 30) for _ in range(int(sys.argv[1]))]"
    subprocess.run(["python3", "-c", code, str(gibibytes)], check=True)


def by_fio(path, seconds, depth):
    """MB/s of fio over the same files with a number of reads of 512 KiB in flight; `None` without fio."""
    files = ":".join(sorted(os.path.join(path, name) for name in os.listdir(path) if name.endswith(".bin")))
    command = ["fio", "--name=read", f"--filename={files}", "--rw=read", "--bs=512k", "--direct=1", "--readonly",
               "--ioengine=io_uring", f"--iodepth={depth}", "--file_service_type=sequential", "--time_based",
               f"--runtime={seconds}", "--output-format=json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return json.loads(done.stdout)["jobs"][0]["read"]["bw_bytes"] / 1e6


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--binary", nargs="+", default=["target/release/uringload"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--warm", type=int, default=0, metavar="GIB", help="take and free so much memory before a run")
    arguments = parser.parse_args()
    make(arguments.folder, arguments.files)
    found = {binary: [] for binary in arguments.binary}
    reference = []
    for _ in range(arguments.rounds):
        reference.append(max((by_fio(arguments.folder, arguments.seconds, depth) or 0.0) for depth in (16, 64, 128)))
        for binary in arguments.binary:
            if arguments.warm:
                warm(arguments.warm)
            report, _ = bench(binary, arguments.folder, arguments.seconds, OPTIONS)
            whole = find(report, "bytes_per_s") / 1e6, find(report, "share_of_raw") or 0.0
            found[binary].append((*whole, *measured(binary, arguments.folder, arguments.seconds)))
    print(f"{'':40} {'MB/s':>7} {'of raw':>7} {'alone':>7} {'CPU s/GB':>9} {'MiB':>6}")
    if any(reference):
        print(f"{'fio, the best of 16, 64 and 128':40} {'':7} {'':7} {statistics.median(reference):7.0f}"
              f"  ({min(reference):.0f} to {max(reference):.0f})")
    for binary, rounds in found.items():
        rate, share, alone, cpu, resident = medians(rounds)
        spread = f"{min(one[1] for one in rounds):.2f} to {max(one[1] for one in rounds):.2f}"
        print(f"{binary:40} {rate:7.0f} {share:7.2f} {alone:7.0f} {cpu:9.3f} {resident:6.0f}  (of raw {spread})")


if __name__ == "__main__":
    main()
