#!/usr/bin/env python3
"""What `tune` finds on a device that is limited, from good and bad starts, against a full sweep.

    cargo build --release && sudo benches/tune.py DIR [--binary target/release/uringload] [--seconds 2]

Makes 64 MB of records of 4 KiB in DIR, once. Every command runs in a control group of its own (version 1, blkio) that
may make a limited number of reads, and read limited bytes, a second. The sweep tries all of depth x read size x gap;
what it found and what `tune` found are then measured by turns, five times. Prints a Markdown table.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time

GROUP = "/sys/fs/cgroup/blkio/uringload-tune"
DEPTHS = (1, 4, 16, 64, 256)
READS = ("16KiB", "512KiB", "4MiB")
GAPS = ("0", "64KiB", "1MiB")
STARTS = {
    "all automatic": [],
    "one read at a time": ["--queue-depth", "1"],
    "short reads, no gap": ["--queue-depth", "64", "--read-size", "16KiB", "--coalesce-gap", "0"],
}
CASES = {
    "300 reads/s, shuffled by windows": ((300, 0), ["--shuffle=window:2048"]),
    "20 MB/s, shuffled": ((0, 20_000_000), ["--shuffle=full"]),
    "600 reads/s and 40 MB/s, in order": ((600, 40_000_000), []),
}


def limit(device, operations, rate):
    os.makedirs(GROUP, exist_ok=True)
    for name, value in (("read_iops", operations), ("read_bps", rate)):
        with open(f"{GROUP}/blkio.throttle.{name}_device", "w", encoding="ascii") as file:
            file.write(f"{device} {value}")


def run(command):
    """What a command prints as JSON, from within the group."""
    shell = ["/bin/sh", "-c", f'echo $$ > {GROUP}/cgroup.procs && exec "$@"', "sh", *command]
    done = subprocess.run(shell, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--binary", default="target/release/uringload")
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--only", default="", help="a part of the cases' names")
    arguments = parser.parse_args()
    folder = os.path.join(arguments.folder, "tune")
    os.makedirs(folder, exist_ok=True)
    if not os.path.exists(f"{folder}/all.bin"):
        with open(f"{folder}/all.bin", "wb") as file:
            file.write(os.urandom(64_000_000 // 4096 * 4096))
            os.fsync(file.fileno())
    number = os.stat(folder).st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    data = [folder, "--format", "records", "--record-bytes", "4096", "--io", "direct"]
    print("| device | start | the sweep's best | what tune chose | took | tune / sweep, by turns |")
    print("|---|---|---|---|---|---|")
    for name, (limits, order) in CASES.items():
        if arguments.only not in name:
            continue

        def rate(options, seconds=arguments.seconds):
            command = [arguments.binary, "bench", *data, *order, "--no-raw", "--duration", f"{seconds}s", "--json", "-"]
            return run(command + options)["samples_per_s"]

        limit(device, *limits)
        grid = [["--queue-depth", str(depth), "--read-size", read, "--coalesce-gap", gap]
                for depth, read, gap in itertools.product(DEPTHS, READS, GAPS)]
        best = max(grid, key=rate)
        for start, options in STARTS.items():
            profile = f"{arguments.folder}/found.toml"
            begun = time.monotonic()
            found = run([arguments.binary, "tune", *data, *order, *options, "--json", "--out", profile])
            took = time.monotonic() - begun
            pairs = []
            for _ in range(5):
                theirs = rate(best)
                pairs.append(rate(["--profile", profile]) / theirs)
            told = " ".join(word.removeprefix("--") for word in best)
            print(f"| {name} | {start} | {told} | {found['best']['what']} | {took:.0f} s | "
                  f"{statistics.median(pairs):.2f} ({min(pairs):.2f} to {max(pairs):.2f}) |", flush=True)
    os.rmdir(GROUP)


if __name__ == "__main__":
    main()
