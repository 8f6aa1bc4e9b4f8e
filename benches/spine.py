#!/usr/bin/env python3
"""Measures every target of the spine in one run, against fio on the same files.

usage: sudo benches/spine.py DIR [--rounds N] [--work small|records|large] [--binary FILE] [--out FOLDER]
       sudo benches/spine.py DIR --against FILE [--rounds N] [--work ...] [--binary FILE]

benches/data.py writes its data to DIR first. Needs root, to drop the page cache. For each work (set of data):

  1. It runs fio at queue depths 16, 32, 64 and 128, and our own engine of O_DIRECT pread threads at 2, 4, 8 and 16
     threads, a few rounds each. Those with the best medians are the references.
  2. Each measured round runs fio at that depth, `uringload bench --cold`, the engine threads at that count, and
     `uringload bench` with io_uring denied by a seccomp filter. Every second round runs in reverse order, so that the
     drift of a shared disk affects all alike. Choosing the references in separate rounds keeps a lucky run from
     becoming the reference.
  3. small and records run warm too: `uringload bench --io auto` against plain buffered pread threads at their best
     count.

Before each run the page cache, names and inodes are dropped, and names and inodes are read again: a loader has walked
the folder before it reads, so fio gets them warm too. The result is a table in Markdown and every single run in JSON.

--against only compares two builds of uringload; FILE is the other one, such as that of the previous commit. Each round
runs both, in turn, on cold data and, for small and records, on warm data. The table has the medians and the ratio of
each pair of runs (median and range), so that the drift of the disk cancels out; no file is written.
"""

import ctypes
import dataclasses
import datetime
import json
import os
import resource
import struct
import subprocess
import sys
import tempfile
import time

import machine
import reference
import report

HERE = os.path.dirname(os.path.abspath(__file__))
CHOICE_ROUNDS = 3
THREAD_COUNTS = (2, 4, 8, 16)
RUN_LIMIT_S = 300


@dataclasses.dataclass(frozen=True)
class Work:
    name: str
    title: str
    options: tuple
    # Targets: share of fio's rate, CPU s per GB, share of the CPU of O_DIRECT threads, share of their rate.
    least_share: float
    most_cpu_s_per_gb: float
    most_cpu_of_threads: float
    least_rate_of_threads: float = None
    warm: bool = False


WORKS = (
    Work("small", "20 000 files, log-normal around 110 KB", ("--shuffle", "--batch-size", "64"),
         0.95, 0.10, 0.6, 1.0, warm=True),
    Work("records", "one 6 GB file, shuffled 150 528-byte records",
         ("--format", "records", "--record-bytes", "150528", "--shuffle", "--batch-size", "64"),
         0.97, 0.03, 0.4, warm=True),
    Work("large", "40 files of about 140 MB, whole-file samples", ("--shuffle", "--batch-size", "1"), 0.97, 0.02, 0.4),
)
LEAST_SHARE_OF_THREADS_ENGINE = 0.85

# Linux numbers io_uring_setup 425 on every architecture.
SYS_IO_URING_SETUP = 425
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, EPERM = 0x7FFF0000, 0x00050000, 1


def deny_io_uring():
    """Runs in a child before exec: installs a seccomp filter like a container's, so that io_uring_setup gives EPERM."""
    program = b"".join(struct.pack("HBBI", *line) for line in (
        (0x20, 0, 0, 0),  # load the number of the system call
        (0x15, 0, 1, SYS_IO_URING_SETUP),  # if it is io_uring_setup
        (0x06, 0, 0, SECCOMP_RET_ERRNO | EPERM),
        (0x06, 0, 0, SECCOMP_RET_ALLOW),
    ))
    code = ctypes.create_string_buffer(program)
    filter_ = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 4, ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter_, 0, 0):
        raise OSError(ctypes.get_errno(), "cannot install the seccomp filter")


def drop_caches(folder):
    """Empties the page cache, except for the names and inodes below `folder`."""
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
        file.write("3\n")
    for base, _, names in os.walk(folder):
        for name in names:
            os.stat(os.path.join(base, name))


def warm(folder):
    """Reads everything below `folder` into the page cache."""
    buffer = bytearray(1 << 20)
    for base, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(base, name), "rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass


class Bench:
    """Runs `uringload bench` and reads its JSON."""

    def __init__(self, binary, data):
        self.binary = binary
        self.data = data

    def run(self, work, *options, denied=False):
        folder = os.path.join(self.data, work.name)
        with tempfile.NamedTemporaryFile(suffix=".json") as out:
            command = [self.binary, "bench", folder, *work.options, "--epochs", "1", *options, "--json", out.name]
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
                                  timeout=RUN_LIMIT_S, preexec_fn=deny_io_uring if denied else None)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            if done.returncode != 0:
                sys.exit(f"spine: {' '.join(command)} failed with {done.returncode}\n{done.stderr}{done.stdout}")
            # The report took the place of the file that is open here.
            with open(out.name, encoding="utf-8") as file:
                result = json.load(file)
        result["process_cpu_s"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return result


def best(options, candidates, step, log):
    """The candidate with the best median rate, and all runs."""
    runs = {candidate: [] for candidate in candidates}
    for number in range(CHOICE_ROUNDS):
        for candidate in candidates if number % 2 == 0 else candidates[::-1]:
            runs[candidate].append(step(candidate))
            log(f"{options} {candidate:4} {runs[candidate][-1]['bytes_per_s'] / 1e6:6.0f} MB/s")
    rates = {candidate: report.median(report.values(of, "bytes_per_s")) for candidate, of in runs.items()}
    return max(rates, key=rates.get), runs


def cold(work, bench, rounds, scratch, log):
    folder = os.path.join(bench.data, work.name)
    if work.name == "records":
        options = reference.fixed_records(os.path.join(folder, "records.bin"), 150528)
    else:
        replay = os.path.join(scratch, f"{work.name}.log")
        reference.whole_files_log(folder, replay)
        options = reference.whole_files(replay)

    def fio(depth):
        drop_caches(folder)
        return reference.run(options, depth)

    def ours(*options, denied=False):
        drop_caches(folder)
        return bench.run(work, "--cold", "--no-raw", *options, denied=denied)

    def threads(count):
        return ours("--engine", "threads", "--io", "direct", "--io-threads", str(count))

    depth, depths = best("fio QD", reference.DEPTHS, fio, log)
    count, counts = best("threads", THREAD_COUNTS, threads, log)
    steps = [("fio", lambda: fio(depth)), ("uringload", ours), ("threads", lambda: threads(count)),
             ("denied", lambda: ours(denied=True))]
    runs = {name: [] for name, _ in steps}
    for number in range(rounds):
        for name, step in steps if number % 2 == 0 else steps[::-1]:
            runs[name].append(step())
            run = runs[name][-1]
            log(f"round {number + 1} {name:9} {run['bytes_per_s'] / 1e6:6.0f} MB/s {run['cpu_s_per_gb']:.4f} CPU s/GB")
    return {"depth": depth, "depths": depths, "threads": count, "counts": counts, "runs": runs}


def warmed(work, bench, rounds, log):
    """Compares with the plain loop of buffered pread threads of `--compare buffered`."""
    def buffered(count):
        warm(os.path.join(bench.data, work.name))
        run = bench.run(work, "--no-raw", "--compare", "buffered", "--io-threads", str(count))
        return next(entry for entry in run["comparisons"] if entry["name"] == "buffered")

    def ours():
        warm(os.path.join(bench.data, work.name))
        return bench.run(work, "--no-raw", "--io", "auto")

    count, counts = best("buffered threads", THREAD_COUNTS, buffered, log)
    steps = [("uringload", ours), ("buffered", lambda: buffered(count))]
    runs = {name: [] for name, _ in steps}
    for number in range(rounds):
        for name, step in steps if number % 2 == 0 else steps[::-1]:
            runs[name].append(step())
            log(f"round {number + 1} warm {name:9} {runs[name][-1]['bytes_per_s'] / 1e6:6.0f} MB/s")
    return {"threads": count, "counts": counts, "runs": runs}


def opening_ms(bench, rounds):
    """Time of `uringload inspect` on the small files with warm names and inodes: a process start and the walk."""
    times = []
    for _ in range(rounds + 1):
        start = time.monotonic()
        subprocess.run([bench.binary, "inspect", os.path.join(bench.data, "small")], check=True,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        times.append((time.monotonic() - start) * 1000)
    return times[1:]


def against(bench, other, works, rounds, log):
    """Runs two builds in turn: the lines of a Markdown table."""
    yield "| work | MB/s, other | MB/s | ratio | CPU s, other | CPU s | ratio |\n|---|---|---|---|---|---|---|"
    kinds = [(work, drop_caches, ("--cold", "--no-raw")) for work in works]
    kinds += [(work, warm, ("--no-raw", "--io", "auto")) for work in works if work.warm]
    for work, prepare, options in kinds:
        name = f"{work.name} {'cold' if prepare is drop_caches else 'warm'}"
        runs = {other: [], bench: []}
        for number in range(rounds):
            for build in (other, bench) if number % 2 == 0 else (bench, other):
                prepare(os.path.join(build.data, work.name))
                runs[build].append(build.run(work, *options))
            of_each = ", ".join(f"{it[-1]['bytes_per_s'] / 1e6:.0f}" for it in runs.values())
            log(f"round {number + 1} {name}, MB/s: {of_each}")
        rates = compared(*([run["bytes_per_s"] / 1e6 for run in it] for it in runs.values()), digits=0)
        seconds = [report.values(it, "process_cpu_s") for it in runs.values()]
        yield f"| {name} | {rates} | {compared(*seconds, digits=3)} |"


def compared(old, new, digits):
    """Both medians, and the median and range of the pairwise ratios."""
    ratios = [after / before for before, after in zip(old, new)]
    medians = " | ".join(f"{report.median(values):.{digits}f}" for values in (old, new))
    return f"{medians} | {report.median(ratios):.3f} ({min(ratios):.2f} to {max(ratios):.2f})"


def main():
    args = report.arguments(__doc__, 7, ("--work", {"choices": [work.name for work in WORKS], "action": "append"}),
                            ("--against", {}))

    works = [work for work in WORKS if not args.work or work.name in args.work]
    only = [option for work in works for option in ("--only", work.name)]
    subprocess.run([os.path.join(HERE, "data.py"), args.dir, *only], check=True)

    def log(line):
        print(f"spine: {line}", file=sys.stderr, flush=True)

    bench = Bench(os.path.realpath(args.binary), os.path.realpath(args.dir))
    if args.against:
        for line in against(bench, Bench(os.path.realpath(args.against), bench.data), works, args.rounds, log):
            print(line, flush=True)
        return
    result = {"version": 1, "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
              "command": " ".join(["benches/spine.py", *sys.argv[1:]]), "rounds": args.rounds,
              "machine": machine.facts(bench.data), "binary_bytes": os.stat(bench.binary).st_size,
              "cold": {}, "warm": {}}
    with tempfile.TemporaryDirectory() as scratch:
        for work in works:
            log(f"{work.title}, cold")
            result["cold"][work.name] = cold(work, bench, args.rounds, scratch, log)
        for work in works:
            if work.warm:
                log(f"{work.title}, warm")
                result["warm"][work.name] = warmed(work, bench, args.rounds, log)
    if any(work.name == "small" for work in works):
        result["opening_ms"] = opening_ms(bench, args.rounds)

    name = f"{result['date'][:10]}-{machine.short_name(result['machine'])}"
    text = report.markdown(result, works, LEAST_SHARE_OF_THREADS_ENGINE)
    report.save(args.out, name, result, text)


if __name__ == "__main__":
    main()
