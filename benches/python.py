#!/usr/bin/env python3
"""Measures the Python package against the Rust bench and against PyTorch's DataLoader on the same files, in one run.

usage: sudo benches/python.py DIR --peers VENV [--rounds N] [--binary FILE] [--out FOLDER] [--tiny]

VENV has torch, NumPy and the package (VENV/bin/pip install ./python). benches/data.py runs first; 10 000 arrays of
150 528 bytes in .npy files are made beside its data. Needs root, to drop the page cache before each run.

  the spine's data    what Python costs: `uringload bench` and the package with torch tensors, in turn, three epochs
                      each, timed from the first read. Three, because a loader takes its memory in the first epoch, and
                      a Python `for` keeps one batch more than the bench does
  handing over        how long the consumer's thread takes to get a batch that is ready, in Rust and in Python
  small, records, npy the package, and PyTorch's DataLoader with its best number of workers of two rounds before the
                      first: one epoch, timed from listing the files: samples per second, CPU time per sample, time to
                      the first batch. Peak memory is measured in separate runs, because sampling slows them down

Each round runs every way once, every second round in reverse order, so that the drift of a shared disk affects all ways
alike. Memory is the proportional share (PSS) of all processes, sampled ten times a second. --tiny makes a few megabytes
of data and accepts one round: it shows that the program runs, and nothing about speed.
"""

import datetime
import json
import math
import os
import random
import struct
import subprocess
import sys
import tempfile
import threading

import machine
import report
from spine import drop_caches

HERE = os.path.dirname(os.path.abspath(__file__))
PEERS = os.path.join(HERE, "peers")
RUN_LIMIT_S = 600
WORKERS = (0, 1, 2, 4, 8)
RECORD_BYTES = 150_528
ARRAYS = 10_000
SHAPE = (224, 224, 3)
LOOK_S = 0.1
# By work: options of the Rust bench and samples per batch; then the least multiple of PyTorch's samples/s.
SPINE = {
    "small": (("--format", "folder"), 64),
    "records": (("--format", "records", "--record-bytes", str(RECORD_BYTES)), 64),
    "large": (("--format", "folder"), 1),
}
AGAINST = {"small": 2.8, "records": 3.5, "npy": 3.0}
BATCH = 64
SPINE_EPOCHS = 3
MOST_OVERHEAD = 0.03
MOST_US_PER_BATCH = 10
MOST_CPU_OF_PEER = 1 / 10
MOST_MEMORY_OF_PEER = 1 / 4
FIRST_BATCH_MS = 50
TINY = {"small": 400, "records": 300, "large": 3, "npy": 200}


def npy_header():
    """The header that NumPy writes before the elements: version 1.0, 128 bytes."""
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {SHAPE}, }}".encode()
    text += b" " * (128 - 10 - len(text) - 1) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def make_arrays(folder, count):
    """Writes arrays of random bytes, the same every time; keeps those that exist."""
    os.makedirs(folder, exist_ok=True)
    header = npy_header()
    for number in range(count):
        path = os.path.join(folder, f"{number:05}.npy")
        if not os.path.exists(path) or os.path.getsize(path) != len(header) + math.prod(SHAPE):
            with open(path, "wb") as file:
                file.write(header + random.Random(f"uringload 1/npy/{number}").randbytes(math.prod(SHAPE)))


def make_tiny(data):
    """Writes data like that of benches/data.py, but only a few megabytes."""
    law = random.Random(1)
    os.makedirs(os.path.join(data, "records"), exist_ok=True)
    for work, count in (("small", TINY["small"]), ("large", TINY["large"])):
        for number in range(count):
            folder = os.path.join(data, work, *([f"class_{number % 10:03}"] if work == "small" else []))
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, f"{number:05}.dat"), "wb") as file:
                file.write(law.randbytes(law.randrange(1000, 200_000)))
    with open(os.path.join(data, "records", "records.bin"), "wb") as file:
        file.write(law.randbytes(TINY["records"] * RECORD_BYTES))


def tree(process):
    """A process and all its descendants."""
    found, below = [process], [process]
    while below:
        children = machine.text(f"/proc/{below[0]}/task/{below[0]}/children", "").split()
        found += children
        below = below[1:] + children
    return found


def pss(process):
    """Bytes of memory of a process and all its descendants, shared pages counted once."""
    total = 0
    for number in tree(process):
        for line in machine.text(f"/proc/{number}/smaps_rollup", "").splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


class Peak(threading.Thread):
    """Tracks the peak memory of a process and its descendants."""

    def __init__(self, process):
        super().__init__(daemon=True)
        self.process, self.bytes, self.ended = process, 0, threading.Event()
        self.start()

    def run(self):
        while not self.ended.is_set():
            self.bytes = max(self.bytes, pss(self.process))
            self.ended.wait(LOOK_S)

    def stop(self):
        self.ended.set()
        self.join()
        return self.bytes


def python(venv, data, who, work, batch, workers=0, epochs=1, looks=False):
    """Runs epochs with the package or PyTorch's DataLoader, from a cold disk. Samples memory only with `looks`, because
    sampling slows down a process that takes memory.
    """
    folder = os.path.join(data, work)
    drop_caches(folder)
    command = [os.path.join(venv, "bin/python"), os.path.join(PEERS, "python_read.py"), who, work, folder, str(batch),
               str(workers), str(epochs)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        if process.stdout.readline() != "ready\n":
            sys.exit(f"python: {' '.join(command)} did not begin")
        # Importing torch is over; now make the data cold again.
        drop_caches(folder)
        # The memory of Python and torch, before there is a loader.
        before = pss(process.pid)
        peak = Peak(process.pid) if looks else None
        told, _ = process.communicate("go\n", timeout=RUN_LIMIT_S)
        memory = peak.stop() if peak else None
    if process.returncode != 0:
        sys.exit(f"python: {' '.join(command)} failed with {process.returncode}")
    result = json.loads(told.strip().splitlines()[-1])
    return {**result, "workers": workers, "peak_bytes": memory, "bytes_before": before,
            "samples_per_s": result["samples"] / result["wall_s"],
            "read_samples_per_s": result["samples"] / result["read_s"],
            "cpu_s_per_sample": result["cpu_s"] / result["samples"]}


def handover(command, data):
    """How long the consumer's thread takes to get a batch that is ready."""
    command = [*command, os.path.join(data, "records", "records.bin"), str(RECORD_BYTES), str(BATCH)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RUN_LIMIT_S, cwd=HERE)
    if done.returncode != 0:
        sys.exit(f"python: {' '.join(command)} failed with {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


def rust(binary, data, work):
    """Runs the same epochs with `uringload bench`, from a cold disk."""
    options, batch = SPINE[work]
    folder = os.path.join(data, work)
    drop_caches(folder)
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [binary, "bench", folder, *options, "--shuffle", "--batch-size", str(batch), "--epochs",
                   str(SPINE_EPOCHS), "--cold", "--no-raw", "--io", "direct", "--json", out.name]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
                              timeout=RUN_LIMIT_S)
        if done.returncode != 0:
            sys.exit(f"python: {' '.join(command)} failed with {done.returncode}\n{done.stderr}{done.stdout}")
        # The report took the place of the file that is open here.
        with open(out.name, encoding="utf-8") as file:
            result = json.load(file)
    # A published result does not name folders of this machine.
    del result["dataset"]["roots"]
    return {**result, "read_samples_per_s": result["samples"] / result["wall_s"]}


def best_workers(venv, data, work, log):
    """The number of workers whose two runs together were the fastest, and all runs."""
    runs = []
    for workers in (*WORKERS, *WORKERS[::-1]):
        runs.append(python(venv, data, "torch", work, BATCH, workers))
        log(f"{work}: torch with {workers} workers, {runs[-1]['samples_per_s']:.0f} samples/s")
    return min(WORKERS, key=lambda workers: sum(run["wall_s"] for run in runs if run["workers"] == workers)), runs


def overhead_lines(runs):
    for work in SPINE:
        ours, bench = runs[f"python {work}"], runs[f"rust {work}"]
        share, low, high = report.ratio(report.values(ours, "read_samples_per_s"),
                                        report.values(bench, "read_samples_per_s"))
        yield (f"{work}: samples/s, of the Rust bench's "
               f"({report.median(report.values(bench, 'bytes_per_s')) / 1e6:.0f} "
               "MB/s)", f"{share:.3f} ({low:.3f} to {high:.3f})", f"≥ {1 - MOST_OVERHEAD}",
               report.at_least(share, 1 - MOST_OVERHEAD))
    for form, what in (("dense", "one tensor"), ("list", f"a list of {BATCH} tensors")):
        spent = [report.median(report.values(runs[f"handing over, {who}"], f"{form}_us")) for who in ("Python", "Rust")]
        yield (f"µs of Python in handing over a ready batch, {what}",
               f"{spent[0] - spent[1]:.1f} ({spent[0]:.1f} in Python, {spent[1]:.1f} in Rust)",
               f"≤ {MOST_US_PER_BATCH}", report.at_most(max(spent[0] - spent[1], 0), MOST_US_PER_BATCH))


def peer_lines(runs):
    for work, least in AGAINST.items():
        ours, theirs = runs[f"uringload {work}"], runs[f"torch {work}"]
        name = f"{work}, PyTorch's DataLoader with {theirs[0]['workers']} workers"
        rates = [report.median(report.values(of, "samples_per_s")) for of in (ours, theirs)]
        share, low, high = report.ratio(report.values(ours, "samples_per_s"), report.values(theirs, "samples_per_s"))
        yield (f"{name}: samples/s", f"{rates[0]:.0f} to {rates[1]:.0f}, {share:.2f} ({low:.2f} to {high:.2f})",
               f"≥ {least}", report.at_least(share, least))
        cpu, low, high = report.ratio(*(report.values(it, "cpu_s_per_sample") for it in (ours, theirs)))
        yield (f"{name}: CPU a sample", f"{cpu:.3f} ({low:.3f} to {high:.3f})", f"≤ {MOST_CPU_OF_PEER}",
               report.at_most(cpu, MOST_CPU_OF_PEER))
        looked = [runs[f"memory of {who} {work}"] for who in ("uringload", "torch")]
        memory, low, high = report.ratio(*(report.values(of, "peak_bytes") for of in looked))
        peaks = [report.median(report.values(of, "peak_bytes")) / 2**20 for of in looked]
        before = report.median(report.values(looked[0], "bytes_before")) / 2**20
        yield (f"{name}: peak memory, all processes",
               f"{peaks[0]:.0f} to {peaks[1]:.0f} MiB, {memory:.2f} ({low:.2f} to {high:.2f}), "
               f"of which {before:.0f} are "
               "one Python with torch before the loader", f"≤ {MOST_MEMORY_OF_PEER}",
               report.at_most(memory, MOST_MEMORY_OF_PEER))
        first = [report.median(report.values(of, "first_batch_s")) * 1e3 for of in (ours, theirs)]
        again = [report.median(report.values(of, "again_s")) * 1e3 for of in (ours, theirs)]
        yield (f"{name}: construct to first batch, ms, when the files' names and headers are in memory",
               f"{again[0]:.1f} to {again[1]:.1f}; when only names are: {first[0]:.1f} to {first[1]:.1f}",
               f"≤ {FIRST_BATCH_MS}", report.at_most(again[0], FIRST_BATCH_MS))


def markdown(result):
    lines = [*overhead_lines(result["runs"]), *peer_lines(result["runs"])]
    return "\n".join([
        f"# Python, {result['date'][:10]}", "", machine.describe(result["machine"]),
        f"- `{result['command']}`: medians of {result['rounds']} interleaved rounds, 90 % intervals by bootstrap",
        f"- {', '.join(f'{package} {version}' for package, version in result['versions'].items())}", "",
        *report.table(lines)])


def versions(venv):
    script = ("import json, platform, numpy, torch, uringload; print(json.dumps({'Python': platform.python_version(), "
              "'torch': torch.__version__, 'numpy': numpy.__version__}))")
    command = [os.path.join(venv, "bin/python"), "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"python: the environment lacks a package: VENV/bin/pip install ./python torch numpy\n{done.stderr}")
    return json.loads(done.stdout)


def main():
    args = report.arguments(__doc__, 5, ("--peers", {"required": True}), ("--tiny", {"action": "store_true"}))
    subprocess.run(("cargo", "bench", "--quiet", "--bench", "handover", "--no-run"), cwd=HERE, check=True)
    found, data, binary = versions(args.peers), os.path.realpath(args.dir), os.path.realpath(args.binary)
    if args.tiny:
        make_tiny(data)
    else:
        only = [option for work in SPINE for option in ("--only", work)]
        subprocess.run([sys.executable, os.path.join(HERE, "data.py"), data, *only], check=True)
    make_arrays(os.path.join(data, "npy"), TINY["npy"] if args.tiny else ARRAYS)
    os.sync()

    def log(line):
        print(f"python: {line}", file=sys.stderr, flush=True)

    best = {work: best_workers(args.peers, data, work, log) for work in AGAINST}
    steps = {}
    for work, (_, batch) in SPINE.items():
        steps[f"rust {work}"] = lambda work=work: rust(binary, data, work)
        steps[f"python {work}"] = lambda work=work, batch=batch: python(args.peers, data, "uringload", work, batch,
                                                                        epochs=SPINE_EPOCHS)
    in_python = (os.path.join(args.peers, "bin/python"), os.path.join(PEERS, "python_handover.py"))
    in_rust = ("cargo", "bench", "--quiet", "--bench", "handover", "--")
    steps["handing over, Python"] = lambda: handover(in_python, data)
    steps["handing over, Rust"] = lambda: handover(in_rust, data)
    for work in AGAINST:
        for who, workers in (("uringload", 0), ("torch", best[work][0])):
            given = (args.peers, data, who, work, BATCH, workers)
            steps[f"{who} {work}"] = lambda given=given: python(*given)
            steps[f"memory of {who} {work}"] = lambda given=given: python(*given, looks=True)
    runs = {name: [] for name in steps}
    for number in range(args.rounds):
        for name in list(steps) if number % 2 == 0 else list(steps)[::-1]:
            run = steps[name]()
            runs[name].append(run)
            told = f"{run['samples'] / run['wall_s']:8.0f} samples/s" if "samples" in run else run
            log(f"round {number + 1} {name:26} {told}")
    result = {"version": 1, "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
              "command": f"benches/python.py DIR --peers VENV --rounds {args.rounds}{' --tiny' if args.tiny else ''}",
              "rounds": args.rounds, "machine": machine.facts(data), "runs": runs,
              "workers": {work: tried for work, (_, tried) in best.items()}, "versions": found}
    name = f"{result['date'][:10]}-python-{machine.short_name(result['machine'])}"
    report.save(args.out, name, result, markdown(result))


if __name__ == "__main__":
    main()
