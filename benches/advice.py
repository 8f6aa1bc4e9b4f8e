#!/usr/bin/env python3
"""Whether what `tune` writes is ever slower than what it was given, on a quiet machine and beside a busy one.

    cargo build --release && benches/advice.py DIR [--binary target/release/uringload] [--runs 10] [--seconds 2]

Makes 64 MB of records of 4 KiB in DIR, once. Runs `tune` so often on the machine as it is, and so often beside programs
that take its processors and its disk in bursts. The written profile and the start are then measured by turns, on the
quiet machine: where the profile is the start itself, that shows the noise of these figures. Prints a row of Markdown
for each run, how often the advice was the same, and the slowest of the profiles that are not the start.
"""

import argparse
import collections
import json
import os
import random
import statistics
import subprocess
import sys
import time

PAIRS = 7
STARTS = {"all automatic": [], "one read at a time": ["--queue-depth", "1"]}


def bursts(path):
    """Takes a processor or the disk for a while, and rests for a while."""
    while True:
        end = time.monotonic() + random.uniform(0.1, 1.5)
        reads = random.random() < 0.5
        while time.monotonic() < end:
            if reads:
                with open(path, "rb", buffering=0) as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                    while file.read(1 << 20) and time.monotonic() < end:
                        pass
            else:
                sum(range(10_000))
        time.sleep(random.uniform(0, 1))


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--binary", default="target/release/uringload")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--limit", default="28s")
    parser.add_argument("--more", default="", help="more options for both, such as '--io direct'")
    parser.add_argument("--bursts", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.bursts:
        bursts(arguments.bursts)
    folder = os.path.join(arguments.folder, "advice")
    os.makedirs(folder, exist_ok=True)
    path = f"{folder}/all.bin"
    if not os.path.exists(path):
        with open(path, "wb") as file:
            file.write(os.urandom(64_000_000 // 4096 * 4096))
            os.fsync(file.fileno())
    data = [folder, "--format", "records", "--record-bytes", "4096", "--shuffle=full", *arguments.more.split()]
    profile = f"{arguments.folder}/advice.toml"

    def rate(options):
        bench = [arguments.binary, "bench", *data, "--no-raw", "--duration", f"{arguments.seconds}s", "--json", "-"]
        return run(bench + options)["samples_per_s"]

    print("| machine | start | judgement | spread | advice | profile / start, by turns |")
    print("|---|---|---|---|---|---|")
    advice, worst = collections.defaultdict(collections.Counter), {}
    for machine in ("quiet", "busy"):
        for number in range(arguments.runs * len(STARTS)):
            start = list(STARTS)[number % len(STARTS)]
            beside = [sys.executable, __file__, folder, "--bursts", path]
            others = [subprocess.Popen(beside) for _ in range(2 * os.cpu_count() if machine == "busy" else 0)]
            tune = [arguments.binary, "tune", *data, *STARTS[start], "--limit", arguments.limit, "--json"]
            found = run([*tune, "--out", profile])
            for other in others:
                other.kill()
                other.wait()
            ratios = []
            for pair in range(PAIRS):
                both = [("start", STARTS[start]), ("profile", ["--profile", profile])]
                rates = {name: rate(options) for name, options in (both if pair % 2 else both[::-1])}
                ratios.append(rates["profile"] / rates["start"])
            ratio = statistics.median(ratios)
            said = found["best"]["what"]
            advice[machine, start][said] += 1
            is_start = said == found["now"]["what"]
            if not is_start:
                worst[machine] = min(worst.get(machine, ratio), ratio)
            said += " (the start itself)" if is_start else ""
            print(f"| {machine} | {start} | {found['judgement']} | {100 * (found['spread'] or 0):.0f} % | {said} | "
                  f"{ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |", flush=True)
    print()
    for (machine, start), said in advice.items():
        print(f"- {machine}, {start}: the same advice in {said.most_common(1)[0][1]} of {said.total()} runs")
    for machine, ratio in worst.items():
        print(f"- {machine}: the slowest profile gave {ratio:.2f} of its start")


if __name__ == "__main__":
    main()
