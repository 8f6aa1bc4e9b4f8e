"""From the runs of benches/spine.py to a table that says what was promised and what was reached."""

import random
import statistics

import machine

BATCH_MS = 20
OPENING_MS = 150
BESIDE_POOL_BYTES = 40 << 20
BINARY_BYTES = 8 << 20
RESAMPLES = 2000

median = statistics.median


def values(runs, key):
    return [run[key] for run in runs]


def ratio(ours, theirs):
    """Ratio of the medians, and the range in which 90 % of resampled ratios lie (bootstrap, seeded)."""
    draw = random.Random(1)
    drawn = sorted(median(draw.choices(ours, k=len(ours))) / median(draw.choices(theirs, k=len(theirs)))
                   for _ in range(RESAMPLES))
    return median(ours) / median(theirs), drawn[RESAMPLES // 20], drawn[-RESAMPLES // 20]


def at_least(value, bound):
    return "PASS" if value >= bound else f"short by {(1 - value / bound) * 100:.0f} %"


def at_most(value, bound):
    return "PASS" if value <= bound else f"over by {(value / bound - 1) * 100:.0f} %"


def comparison(run, name):
    """The result of `--compare name` in a run's JSON."""
    return next(entry for entry in run["comparisons"] if entry["name"] == name)


def cold_lines(work, runs, least_share_of_threads_engine):
    fio, ours, denied = runs["fio"], runs["uringload"], runs["denied"]
    threads = [comparison(run, "threads") for run in ours]
    rate, low, high = ratio(values(ours, "bytes_per_s"), values(fio, "bytes_per_s"))
    cpu = median(values(ours, "cpu_s_per_gb"))
    of_threads = cpu / median(values(threads, "cpu_s_per_gb"))
    rate_of_threads = median(values(ours, "bytes_per_s")) / median(values(threads, "bytes_per_s"))
    yield (f"throughput vs fio QD{runs['depth']} ({median(values(fio, 'bytes_per_s')) / 1e6:.0f} MB/s)",
           f"{median(values(ours, 'bytes_per_s')) / 1e6:.0f} MB/s, {rate:.2f} of fio ({low:.2f} to {high:.2f})",
           f"≥ {work.least_share}", at_least(rate, work.least_share))
    yield ("CPU s per GB", f"{cpu:.4f} (fio {median(values(fio, 'cpu_s_per_gb')):.4f})",
           f"≤ {work.most_cpu_s_per_gb}", at_most(cpu, work.most_cpu_s_per_gb))
    yield ("CPU, share of O_DIRECT threads'", f"{of_threads:.2f}", f"≤ {work.most_cpu_of_threads}",
           at_most(of_threads, work.most_cpu_of_threads))
    if work.least_rate_of_threads:
        yield ("throughput, share of O_DIRECT threads'", f"{rate_of_threads:.2f}", f"≥ {work.least_rate_of_threads}",
               at_least(rate_of_threads, work.least_rate_of_threads))
    engines = {run["route"]["engine"] for run in denied}
    rate, low, high = ratio(values(denied, "bytes_per_s"), values(fio, "bytes_per_s"))
    yield (f"io_uring denied (engine {', '.join(sorted(engines))})",
           f"{rate:.2f} of fio ({low:.2f} to {high:.2f}), {median(values(denied, 'cpu_s_per_gb')):.4f} CPU s/GB",
           f"≥ {least_share_of_threads_engine}", at_least(rate, least_share_of_threads_engine))
    yield ("p99 of a read, µs", f"{median([run['read_latency_us']['p99'] for run in ours]):.0f} "
           f"(fio {median(values(fio, 'p99_us')):.0f})", "-", "-")
    first = median(values(ours, "first_batch_ms"))
    yield ("time to first batch, ms", f"{first:.1f}", f"≤ {BATCH_MS}", at_most(first, BATCH_MS))
    beside = median([run["peak_rss_bytes"] - run["pool_bytes"] for run in ours])
    yield ("peak memory beside the pool, MiB", f"{beside / 2**20:.0f}", f"≤ {BESIDE_POOL_BYTES >> 20}",
           at_most(beside, BESIDE_POOL_BYTES))


def warm_lines(runs):
    buffered = [comparison(run, "buffered") for run in runs]
    rate, low, high = ratio(values(runs, "bytes_per_s"), values(buffered, "bytes_per_s"))
    yield ("throughput vs buffered pread threads", f"{median(values(runs, 'bytes_per_s')) / 1e6:.0f} MB/s, {rate:.2f} "
           f"({low:.2f} to {high:.2f})", "≥ 1.0", at_least(rate, 1.0))
    yield ("CPU s per GB", f"{median(values(runs, 'cpu_s_per_gb')):.4f} "
           f"(threads {median(values(buffered, 'cpu_s_per_gb')):.4f})", "-", "-")


def table(lines):
    return ["| what | measured | promised | |", "|---|---|---|---|",
            *("| " + " | ".join(line) + " |" for line in lines), ""]


def markdown(result, works, least_share_of_threads_engine):
    out = [f"# The spine, {result['date'][:10]}", "", machine.describe(result["machine"]),
           f"- `{result['command']}`: medians of {result['rounds']} interleaved rounds, 90 % intervals by bootstrap", ""]
    for work in works:
        out += [f"## {work.title}", ""]
        out += table(cold_lines(work, result["cold"][work.name], least_share_of_threads_engine))
        depths = result["cold"][work.name]["depths"]
        rates = (f"QD{depth} {median([run['bytes_per_s'] for run in depths if run['depth'] == depth]) / 1e6:.0f}"
                 for depth in sorted({run["depth"] for run in depths}))
        out += [f"fio by depth, MB/s: {', '.join(rates)}", ""]
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
