#!/usr/bin/env python3
"""The constructed situations of tests/situations.rs, three times: what was predicted of each remedy, and what came.

    sudo benches/situations.py [--times 3] [--python target/python/bin/python] [-- cargo test options]

They measure time, so the gate leaves them out (`#[ignore = "slow: measures time"]`), and nothing else should run beside
them. With `--python`, an interpreter that has the package, the situations of a program in Python are among them. Prints
a Markdown table. What came is the median of five measurements. The tests themselves assert the bottleneck, and that the
remedy helps.
"""

import argparse
import collections
import os
import statistics
import subprocess
import tempfile


def run(command, table, **given):
    done = subprocess.run(command, env={**os.environ, "URINGLOAD_SITUATIONS": table}, text=True, capture_output=True,
                          check=False, **given)
    lines = done.stdout.splitlines()
    told = [line for line in lines if line.startswith("test ") and line.endswith("FAILED") or " passed" in line]
    return told + [line for line in done.stderr.splitlines() if line.startswith("skipped:")]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--python")
    parser.add_argument("options", nargs="*", default=["--workspace", "--exclude", "uringload-python", "--locked"])
    arguments = parser.parse_args()
    rows, runs = collections.defaultdict(list), []
    for _ in range(arguments.times):
        with tempfile.TemporaryDirectory() as folder:
            table = f"{folder}/table"
            runs += run(["cargo", "test", "--quiet", *arguments.options, "--test", "situations", "--",
                         "--include-ignored", "--nocapture"], table)
            if arguments.python:
                runs += run([os.path.abspath(arguments.python), "-m", "pytest", "-q", "--slow", "-p",
                             "no:cacheprovider", "tests/test_situations.py"], table, cwd="python")
            if not os.path.exists(table):
                continue
            with open(table, encoding="utf-8") as file:
                for line in file:
                    what, remedy, predicted, gain = line.rstrip("\n").split("\t")
                    what = what.rpartition("::")[2].replace("_", " ")
                    rows[what].append((remedy, float(predicted), float(gain)))
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
