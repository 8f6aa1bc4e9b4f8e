#!/usr/bin/env python3
"""The constructed situations of tests/situations.rs, three times: what was predicted of each remedy, and what came.

    benches/situations.py [--times 3] [-- cargo test options]

Prints a Markdown table. The tests themselves assert the bottleneck, and that the remedy helps.
"""

import argparse
import collections
import os
import statistics
import subprocess
import tempfile


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("options", nargs="*", default=["--workspace", "--exclude", "uringload-python", "--locked"])
    arguments = parser.parse_args()
    rows, runs = collections.defaultdict(list), []
    for _ in range(arguments.times):
        with tempfile.TemporaryDirectory() as folder:
            table = f"{folder}/table"
            command = ["cargo", "test", "--quiet", *arguments.options, "--test", "situations"]
            done = subprocess.run(command, env={**os.environ, "URINGLOAD_SITUATIONS": table}, text=True,
                                  capture_output=True)
            lines = done.stdout.splitlines()
            runs += [line for line in lines if line.startswith("test result:")]
            runs += [line for line in lines if line.startswith("test ") and line.endswith("FAILED")]
            if not os.path.exists(table):
                continue
            with open(table, encoding="utf-8") as file:
                for line in file:
                    what, remedy, predicted, gain = line.rstrip("\n").split("\t")
                    rows[what.replace("_", " ")].append((remedy, float(predicted), float(gain)))
    print("| situation | remedy | predicted | brought | off by |\n|---|---|---|---|---|")
    near = 0
    for what, seen in sorted(rows.items()):
        off = [gain / predicted - 1 for _, predicted, gain in seen]
        middle = statistics.median(off)
        near += abs(middle) <= 0.15
        predicted = ", ".join(f"{one[1]:.2f}x" for one in seen)
        brought = ", ".join(f"{one[2]:.2f}x" for one in seen)
        print(f"| {what} | {seen[0][0]} | {predicted} | {brought} | {100 * middle:+.0f} % |")
    print(f"\n{near} of {len(rows)} within 15 % (medians of {arguments.times} runs).\n")
    print("\n".join(f"    {run}" for run in runs))


if __name__ == "__main__":
    main()
