#!/usr/bin/env python3
"""Measures the cost of orders, mixtures and accounting in one run, each against the plain way on the same bytes.

usage: sudo benches/orders.py DIR [--rounds N] [--binary FILE] [--out FOLDER]

benches/data.py writes its data to DIR first. Needs root, to drop the page cache. Each round runs every way once, every
second round in reverse order, so that the drift of a shared disk affects all ways alike:

  sequential   one 6 GB file of 150 528-byte records, in file order
  shuffled     the same in a full shuffle; as tensors, and as views (which begin at whole pages of memory)
  window, shards  the same, shuffled in windows of 4096 samples and in shards
  one          8 files of such records as one dataset, shuffled
  mixture      the same 8 as separate datasets, mixed by weight, shuffled
  watched      `shuffled` with a quarantine file, a failure limit and a timeout, none of which takes effect

Then it runs the micro benchmarks of `cargo bench` that need no disk, one by one. The result is a table in Markdown and
every single run in JSON.
"""

import datetime
import json
import os
import resource
import subprocess
import sys
import tempfile

import machine
import report
from spine import drop_caches

HERE = os.path.dirname(os.path.abspath(__file__))
RUN_LIMIT_S = 300
RECORDS = ("--format", "records", "--record-bytes", "150528", "--batch-size", "64")
WEIGHTS = (1, 1, 1, 1, 1, 1, 1, 1)
# Ways that also measure a raw read of the same bytes: the disk's own rate in that order.
RAW = ("seq. views", "views")
MICRO = ("order", "pack", "gather", "state")


def parts(data):
    return [os.path.join(data, "mixed", f"part_{part}") for part in range(len(WEIGHTS))]


def ways(data, scratch):
    """By name: the folder whose names are kept warm, and the paths and options."""
    records, mixed = os.path.join(data, "records"), os.path.join(data, "mixed")
    return {
        "sequential": (records, [records]),
        "shuffled": (records, [records, "--shuffle"]),
        "seq. views": (records, [records, "--collate", "views"]),
        "views": (records, [records, "--shuffle", "--collate", "views"]),
        "window": (records, [records, "--shuffle=window:4096"]),
        "shards": (records, [records, "--shuffle=shards:4"]),
        "one": (mixed, [*parts(data), "--shuffle"]),
        "mixture": (mixed, [*parts(data), "--shuffle", "--weights", ",".join(map(str, WEIGHTS)),
                            "--stopping", "first_exhausted"]),
        "watched": (records, [records, "--shuffle", "--on-error", "skip", "--max-failures", "100", "--timeout", "10s",
                              "--quarantine", os.path.join(scratch, "quarantine.jsonl")]),
    }


def run(binary, folder, arguments, raw):
    drop_caches(folder)
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [binary, "bench", *arguments, *RECORDS, "--epochs", "1", "--cold", "--json", out.name]
        command += [] if raw else ["--no-raw"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
                              timeout=RUN_LIMIT_S)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode != 0:
            sys.exit(f"orders: {' '.join(command)} failed with {done.returncode}\n{done.stderr}{done.stdout}")
        # The report took the place of the file that is open here.
        with open(out.name, encoding="utf-8") as file:
            result = json.load(file)
    result["process_cpu_s"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    result["process_cpu_s_per_gb"] = result["process_cpu_s"] / (result["bytes"] / 1e9)
    return result


def lines(runs):
    def rate(name, reference):
        value, low, high = report.ratio(report.values(runs[name], "bytes_per_s"),
                                        report.values(runs[reference], "bytes_per_s"))
        return value, f"{value:.3f} ({low:.3f} to {high:.3f})"

    def megabytes(name):
        return f"{report.median(report.values(runs[name], 'bytes_per_s')) / 1e6:.0f} MB/s"

    for name, reference, bound in (("shuffled", "sequential", 0.97), ("views", "seq. views", 0.97),
                                   ("window", "sequential", None),
                                   ("shards", "sequential", None), ("mixture", "one", 0.95)):
        value, text = rate(name, reference)
        yield (f"throughput, {name} to {reference}", f"{megabytes(name)} to {megabytes(reference)}, {text}",
               f"≥ {bound}" if bound else "-", report.at_least(value, bound) if bound else "-")
    value, low, high = report.ratio(report.values(runs["views"], "raw_read_bytes_per_s"),
                                    report.values(runs["seq. views"], "raw_read_bytes_per_s"))
    yield ("raw reads of the same, shuffled to sequential: the disk's own", f"{value:.3f} ({low:.3f} to {high:.3f})",
           "-", "-")
    value, low, high = report.ratio(report.values(runs["views"], "bytes_per_s"),
                                    report.values(runs["views"], "raw_read_bytes_per_s"))
    yield ("views to raw reads in the same order", f"{value:.3f} ({low:.3f} to {high:.3f})", "-", "-")
    value, low, high = report.ratio(report.values(runs["watched"], "process_cpu_s_per_gb"),
                                    report.values(runs["shuffled"], "process_cpu_s_per_gb"))
    yield ("CPU per GB, with quarantine, limit and timeout to without", f"{value:.3f} ({low:.3f} to {high:.3f})",
           "≤ 1.01", report.at_most(value, 1.01))
    for name in ("sequential", "shuffled", "mixture"):
        peak = report.median(report.values(runs[name], "peak_rss_bytes"))
        yield (f"peak memory, {name}, MiB", f"{peak / 2**20:.0f}", "-", "-")


def micro(name):
    done = subprocess.run(["cargo", "bench", "--quiet", "--bench", name], capture_output=True, text=True, check=True,
                          stdin=subprocess.DEVNULL, cwd=os.path.join(HERE, ".."))
    return done.stdout.rstrip()


def main():
    args = report.arguments(__doc__, 7)
    subprocess.run([os.path.join(HERE, "data.py"), args.dir, "--only", "records", "--only", "mixed"], check=True)

    data, binary = os.path.realpath(args.dir), os.path.realpath(args.binary)
    texts = {name: micro(name) for name in MICRO}
    with tempfile.TemporaryDirectory() as scratch:
        steps = list(ways(data, scratch).items())
        runs = {name: [] for name, _ in steps}
        for number in range(args.rounds):
            for name, (folder, arguments) in steps if number % 2 == 0 else steps[::-1]:
                runs[name].append(run(binary, folder, arguments, name in RAW))
                done = runs[name][-1]
                print(f"orders: round {number + 1} {name:10} {done['bytes_per_s'] / 1e6:6.0f} MB/s "
                      f"{done['process_cpu_s_per_gb']:.4f} CPU s/GB", file=sys.stderr, flush=True)
    result = {"version": 1, "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
              "command": " ".join(["benches/orders.py", *sys.argv[1:]]), "rounds": args.rounds,
              "machine": machine.facts(data), "runs": runs, "micro": texts}
    name = f"{result['date'][:10]}-orders-{machine.short_name(result['machine'])}"
    out = [f"# Orders, mixtures and accounting, {result['date'][:10]}", "", machine.describe(result["machine"]),
           f"- `{result['command']}`: medians of {args.rounds} interleaved rounds, 90 % intervals by bootstrap", "",
           "## 6 GB of 150 528-byte records, cold", "", *report.table(lines(runs))]
    for bench, text in texts.items():
        out += [f"## `cargo bench --bench {bench}`", "", "```", text, "```", ""]
    text = "\n".join(out)
    report.save(args.out, name, result, text)


if __name__ == "__main__":
    main()
