"""Turns the runs of benches/spine.py into a table of targets and what was measured."""

import argparse
import json
import os
import random
import statistics
import sys

import machine

BATCH_MS = 20
OPENING_MS = 150
BESIDE_POOL_BYTES = 40 << 20
BINARY_BYTES = 8 << 20
RESAMPLES = 2000

#: Medians of fewer say little.
MIN_ROUNDS = 5

median = statistics.median


def arguments(about, rounds, *more):
    """The arguments of a script that `about` describes, checked: `more` are pairs of a name and what argparse takes."""
    name = os.path.basename(sys.argv[0]).removesuffix(".py")
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--binary", default=os.path.join(here, "../target/release/uringload"))
    parser.add_argument("--out", default=os.path.join(here, "results"))
    for option, given in more:
        parser.add_argument(option, **given)
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit(f"{name}: cold runs need root (to write /proc/sys/vm/drop_caches): run it with sudo")
    if args.rounds < MIN_ROUNDS and not getattr(args, "tiny", False):
        sys.exit(f"{name}: medians need at least {MIN_ROUNDS} rounds")
    if not os.access(args.binary, os.X_OK):
        sys.exit(f"{name}: {args.binary} is not there: cargo build --release")
    return args


def values(runs, key):
    return [run[key] for run in runs]


def ratio(ours, theirs):
    """Ratio of the medians, and the range that holds 90 % of resampled ratios (bootstrap, seeded)."""
    draw = random.Random(1)
    drawn = sorted(median(draw.choices(ours, k=len(ours))) / median(draw.choices(theirs, k=len(theirs)))
                   for _ in range(RESAMPLES))
    return median(ours) / median(theirs), drawn[RESAMPLES // 20], drawn[-RESAMPLES // 20]


def save(folder, name, result, text):
    """Writes every run as JSON and the table as Markdown, and prints the table."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, f"{name}.json"), "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
        file.write("\n")
    with open(os.path.join(folder, f"{name}.md"), "w", encoding="utf-8") as file:
        file.write(text)
    print(text)


def at_least(value, bound):
    return "PASS" if value >= bound else f"short by {(1 - value / bound) * 100:.0f} %"


def at_most(value, bound):
    return "PASS" if value <= bound else f"over by {(value / bound - 1) * 100:.0f} %"


def cold_lines(work, result, least_share_of_threads_engine):
    runs = result["runs"]
    fio, ours, threads, denied = runs["fio"], runs["uringload"], runs["threads"], runs["denied"]
    rate, low, high = ratio(values(ours, "bytes_per_s"), values(fio, "bytes_per_s"))
    cpu = median(values(ours, "cpu_s_per_gb"))
    of_threads = cpu / median(values(threads, "cpu_s_per_gb"))
    yield (f"throughput vs fio QD{result['depth']} ({median(values(fio, 'bytes_per_s')) / 1e6:.0f} MB/s)",
           f"{median(values(ours, 'bytes_per_s')) / 1e6:.0f} MB/s, {rate:.2f} of fio ({low:.2f} to {high:.2f})",
           f"≥ {work.least_share}", at_least(rate, work.least_share))
    yield ("CPU s per GB, whole process", f"{cpu:.4f} (fio {median(values(fio, 'cpu_s_per_gb')):.4f})",
           f"≤ {work.most_cpu_s_per_gb}", at_most(cpu, work.most_cpu_s_per_gb))
    yield (f"CPU, share of {result['threads']} O_DIRECT threads'", f"{of_threads:.2f}", f"≤ {work.most_cpu_of_threads}",
           at_most(of_threads, work.most_cpu_of_threads))
    rate, low, high = ratio(values(ours, "bytes_per_s"), values(threads, "bytes_per_s"))
    bound = work.least_rate_of_threads
    yield (f"throughput, share of {result['threads']} O_DIRECT threads'", f"{rate:.2f} ({low:.2f} to {high:.2f})",
           f"≥ {bound}" if bound else "-", at_least(rate, bound) if bound else "-")
    engines = {run["route"]["engine"] for run in denied}
    rate, low, high = ratio(values(denied, "bytes_per_s"), values(fio, "bytes_per_s"))
    yield (f"io_uring denied (engine {', '.join(sorted(engines))})",
           f"{rate:.2f} of fio ({low:.2f} to {high:.2f}), {median(values(denied, 'cpu_s_per_gb')):.4f} CPU s/GB",
           f"≥ {least_share_of_threads_engine}", at_least(rate, least_share_of_threads_engine))
    yield ("p99 of a read, µs", f"{median([run['read_latency_us']['p99'] for run in ours]):.0f} "
           f"(fio {median(values(fio, 'p99_us')):.0f})", "-", "-")
    first = median(values(ours, "first_batch_ms"))
    yield ("time to first batch, ms", f"{first:.1f}", f"≤ {BATCH_MS}", at_most(first, BATCH_MS))
    peak, pool = median(values(ours, "peak_rss_bytes")), median(values(ours, "pool_bytes"))
    bound = (pool + BESIDE_POOL_BYTES) / 2**20
    yield ("peak memory, MiB", f"{peak / 2**20:.0f}", f"≤ {bound:.0f} (pool + {BESIDE_POOL_BYTES >> 20})",
           at_most(peak / 2**20, bound))


def warm_lines(result):
    ours, buffered = result["runs"]["uringload"], result["runs"]["buffered"]
    rate, low, high = ratio(values(ours, "bytes_per_s"), values(buffered, "bytes_per_s"))
    yield (f"throughput vs {result['threads']} buffered pread threads",
           f"{median(values(ours, 'bytes_per_s')) / 1e6:.0f} MB/s, {rate:.2f} ({low:.2f} to {high:.2f})",
           "≥ 1.0", at_least(rate, 1.0))
    yield ("CPU s per GB", f"{median(values(ours, 'cpu_s_per_gb')):.4f} "
           f"(threads {median(values(buffered, 'cpu_s_per_gb')):.4f})", "-", "-")


def choice(runs, name):
    """The results of the candidates for a reference."""
    rates = (f"{name}{candidate} {median(values(of, 'bytes_per_s')) / 1e6:.0f}" for candidate, of in runs.items())
    return f"references to choose from, MB/s: {', '.join(rates)}"


def table(lines):
    return ["| what | measured | promised | |", "|---|---|---|---|",
            *("| " + " | ".join(line) + " |" for line in lines), ""]


def markdown(result, works, least_share_of_threads_engine):
    out = [f"# The spine, {result['date'][:10]}", "", machine.describe(result["machine"]),
           f"- `{result['command']}`: medians of {result['rounds']} interleaved rounds, 90 % intervals by bootstrap",
           ""]
    for work in works:
        out += [f"## {work.title}", ""]
        out += table(cold_lines(work, result["cold"][work.name], least_share_of_threads_engine))
        out += [choice(result["cold"][work.name]["depths"], "fio QD"), "",
                choice(result["cold"][work.name]["counts"], "threads "), ""]
    for work in works:
        if work.name in result["warm"]:
            out += [f"## {work.title}, warm", "", *table(warm_lines(result["warm"][work.name]))]
    rest = [("release binary, MiB", f"{result['binary_bytes'] / 2**20:.1f}", f"≤ {BINARY_BYTES >> 20}",
             at_most(result["binary_bytes"], BINARY_BYTES))]
    if "opening_ms" in result:
        opening = median(result["opening_ms"])
        rest.append(("opening 20 000 files, ms (whole `inspect` process, warm)", f"{opening:.0f}", f"≤ {OPENING_MS}",
                     at_most(opening, OPENING_MS)))
    out += ["## The rest", "", *table(rest)]
    return "\n".join(out)
