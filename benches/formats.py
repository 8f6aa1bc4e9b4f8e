#!/usr/bin/env python3
"""Measures every format against one file of records and against the format's own loader, in one run.

usage: sudo benches/formats.py DIR --peers VENV [--rounds N] [--binary FILE] [--out FOLDER]

benches/peers/setup.sh makes VENV. benches/peers/make.py runs first, with VENV, and writes some 12 GB under DIR. Needs
root, to drop the page cache. Each round runs every way once, every second round in reverse order. Every other loader
runs with its best number of workers, chosen in a round before the first.

  records    the payloads as one file of records, in a full shuffle
  tar, mds, tfrecord, litdata   the same samples, in a full shuffle by sample
  tokens     windows of 2049 tokens of 16 bits, at random

Then it measures building the index of the archives, opening with that index, and packing.
"""

import datetime
import glob
import json
import mmap
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time

import machine
import report
from spine import drop_caches

HERE = os.path.dirname(os.path.abspath(__file__))
PEERS = os.path.join(HERE, "peers")
RUN_LIMIT_S = 600
FORMATS = ("tar", "mds", "tfrecord", "litdata")
NAMES = {"tar": "webdataset", "mds": "mosaicml-streaming", "tfrecord": "tf.data", "litdata": "litdata"}
WORKERS = (0, 1, 2, 4)
# Targets: times the samples/s of the format's own loader, and share of its CPU time per sample.
LEAST_OF_PEER = {"tar": 3, "mds": 4, "tfrecord": 3, "litdata": 4}
MOST_CPU_OF_PEER = 1 / 8
WINDOW = 2049
WRITE_CHUNK = 1 << 22


def usage():
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime, own.ru_inblock * 512


def timed(command):
    """Wall time, CPU time and bytes read from the disk of a command."""
    cpu, read = usage()
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
                          timeout=RUN_LIMIT_S)
    wall = time.perf_counter() - start
    if done.returncode != 0:
        sys.exit(f"formats: {' '.join(command)} failed with {done.returncode}\n{done.stderr}{done.stdout}")
    cpu_after, read_after = usage()
    return {"wall_s": wall, "cpu_s": cpu_after - cpu, "read_bytes": read_after - read}, done.stdout


def ours(binary, data, name):
    folder = os.path.join(data, name)
    options = {"records": lambda: ["--format", "records", "--record-bytes",
                                   machine.text(os.path.join(folder, "record_size"))],
               "tokens": lambda: ["--format", "tokens", "--token-dtype", "u16", "--window-tokens", str(WINDOW)]}
    files = {"records": "records.bin", "tokens": "tokens.bin", "mds": "data"}
    paths = [os.path.join(folder, files.get(name, ""))]
    drop_caches(folder)
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        # Windows are so small that an epoch takes minutes.
        length = ["--duration", "8s"] if name == "tokens" else ["--epochs", "1"]
        command = [binary, "bench", *paths, *options.get(name, list)(), "--shuffle", "--batch-size", "64", *length,
                   "--cold", "--json", out.name]
        spent, _ = timed(command)
        # The report took the place of the file that is open here.
        with open(out.name, encoding="utf-8") as file:
            result = json.load(file)
    result["process_cpu_s"] = spent["cpu_s"]
    # A published result does not name folders of this machine.
    del result["dataset"]["roots"]
    result["samples_per_s"] = result["samples"] / result["wall_s"]
    # Not the process's CPU time, which includes the raw read that comes first.
    result["cpu_s_per_sample"] = result["cpu_s"] / result["samples"]
    return result


def theirs(venv, data, name, workers):
    folder = os.path.join(data, name)
    drop_caches(folder)
    command = [os.path.join(venv, "bin/python"), os.path.join(PEERS, "read.py"), name, folder, str(workers)]
    _, text = timed(command)
    result = json.loads(text.strip().splitlines()[-1])
    result["workers"] = workers
    result["samples_per_s"] = result["samples"] / result["wall_s"]
    result["cpu_s_per_sample"] = result["cpu_s"] / result["samples"]
    return result


def best_workers(venv, data, name):
    runs = [theirs(venv, data, name, workers) for workers in WORKERS]
    for run in runs:
        print(f"formats: {NAMES[name]} with {run['workers']} workers: {run['samples_per_s']:.0f} samples/s",
              file=sys.stderr, flush=True)
    return max(runs, key=lambda run: run["samples_per_s"])["workers"], runs


def index(binary, data):
    """Measures building the archives' sidecars from nothing, and a start with them in place."""
    folder = os.path.join(data, "tar")
    for sidecar in glob.glob(os.path.join(folder, "*.uidx")):
        os.remove(sidecar)
    drop_caches(folder)
    built, _ = timed([binary, "index", folder])
    starts = [timed([binary, "inspect", folder])[0]["wall_s"] for _ in range(report.MIN_ROUNDS)]
    return {"built": built, "start_s": starts, "bytes": folder_bytes(folder)}


def folder_bytes(folder):
    return sum(os.path.getsize(path) for path in glob.glob(os.path.join(folder, "**"), recursive=True)
               if os.path.isfile(path))


def write_rate(path, size, flags):
    """Bytes per second of plain large writes to one file, one at a time, synced at the end."""
    # A mapping begins at a page, as direct writes need.
    chunk = mmap.mmap(-1, WRITE_CHUNK)
    chunk.write(os.urandom(WRITE_CHUNK))
    start = time.perf_counter()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | flags, 0o644)
    for _ in range(size // WRITE_CHUNK):
        os.write(file, chunk)
    os.fsync(file)
    os.close(file)
    rate = size // WRITE_CHUNK * WRITE_CHUNK / (time.perf_counter() - start)
    os.remove(path)
    return rate


def pack(binary, data, rounds):
    """Measures packing the archives from the disk, and plain writes of as many bytes, in turn."""
    folder, target = os.path.join(data, "tar"), os.path.join(data, "packed")
    plain, done = os.path.join(data, "plain.part"), []
    for _ in range(rounds):
        shutil.rmtree(target, ignore_errors=True)
        drop_caches(folder)
        packed, _ = timed([binary, "pack", folder, target, "--shard-size", "64MiB"])
        size = folder_bytes(target)
        shutil.rmtree(target)
        rates = {"direct": write_rate(plain, size, os.O_DIRECT), "buffered": write_rate(plain, size, 0)}
        done.append({**packed, "bytes": size, "bytes_per_s": size / packed["wall_s"], "plain_bytes_per_s": rates})
    return done


def format_lines(runs, peers, name):
    bytes_rate, low, high = report.ratio(report.values(runs[name], "bytes_per_s"),
                                         report.values(runs["records"], "bytes_per_s"))
    of_tar, _, _ = report.ratio(report.values(runs[name], "bytes_per_s"), report.values(runs["tar"], "bytes_per_s"))
    bound, share, reference = (0.95, bytes_rate, "records") if name == "tar" else (0.9, of_tar, "tar")
    yield (f"{name}, of {reference}", f"{report.median(report.values(runs[name], 'bytes_per_s')) / 1e6:.0f} MB/s, "
           f"{share:.3f}; of records {bytes_rate:.3f} ({low:.3f} to {high:.3f})", f"≥ {bound}",
           report.at_least(share, bound))
    raw, low, high = report.ratio(report.values(runs[name], "bytes_per_s"),
                                  report.values(runs[name], "raw_read_bytes_per_s"))
    yield (f"{name}, of raw reads of the same in the same order", f"{raw:.3f} ({low:.3f} to {high:.3f})", "-", "-")
    cpu = report.median(report.values(runs[name], "cpu_s_per_gb"))
    bound = 0.06 if name == "tar" else None
    yield (f"{name}, CPU s/GB", f"{cpu:.4f}", f"≤ {bound}" if bound else "-",
           report.at_most(cpu, bound) if bound else "-")
    if name not in peers:
        return
    rate, low, high = report.ratio(report.values(runs[name], "samples_per_s"),
                                   report.values(peers[name], "samples_per_s"))
    mine = report.median(report.values(runs[name], "samples_per_s"))
    other = report.median(report.values(peers[name], "samples_per_s"))
    yield (f"{name}, samples/s to {NAMES[name]} with {peers[name][0]['workers']} workers",
           f"{mine:.0f} to {other:.0f}, {rate:.2f} ({low:.2f} to {high:.2f})", f"≥ {LEAST_OF_PEER[name]}",
           report.at_least(rate, LEAST_OF_PEER[name]))
    cpu, low, high = report.ratio(report.values(runs[name], "cpu_s_per_sample"),
                                  report.values(peers[name], "cpu_s_per_sample"))
    yield (f"{name}, CPU a sample, of {NAMES[name]}'s", f"{cpu:.3f} ({low:.3f} to {high:.3f})",
           f"≤ {MOST_CPU_OF_PEER}", report.at_most(cpu, MOST_CPU_OF_PEER))


def token_lines(runs):
    read = [run["bytes_read"] / run["wall_s"] for run in runs["tokens"]]
    share, low, high = report.ratio(read, report.values(runs["tokens"], "raw_read_bytes_per_s"))
    amplification = report.median(report.values(runs["tokens"], "read_amplification"))
    yield (f"tokens, windows of {WINDOW}: bytes read, of raw reads", f"{report.median(read) / 1e6:.0f} MB/s, "
           f"{share:.3f} ({low:.3f} to {high:.3f}); {amplification:.2f} bytes read for each wanted", "≥ 0.9",
           report.at_least(share, 0.9))


def rest_lines(indexed, packed, runs):
    built = indexed["built"]
    share = built["read_bytes"] / indexed["bytes"]
    rate = indexed["bytes"] / built["wall_s"]
    of_disk = rate / report.median(report.values(runs["records"], "raw_read_bytes_per_s"))
    yield ("index of the archives", f"{built['wall_s']:.2f} s, {100 * share:.1f} % of the bytes read, "
           f"{rate / 1e6:.0f} MB of archives a second, {of_disk:.2f} of raw reads", "≤ 5 % or ≥ 0.8 of the disk",
           "PASS" if share <= 0.05 else report.at_least(of_disk, 0.8))
    start = report.median(indexed["start_s"]) * 1e3
    yield ("start with the index there, ms (whole `inspect` process)", f"{start:.0f}", "≤ 20",
           report.at_most(start, 20))
    plain = {way: [one["plain_bytes_per_s"][way] for one in packed] for way in packed[0]["plain_bytes_per_s"]}
    way = max(plain, key=lambda way: report.median(plain[way]))
    share, low, high = report.ratio(report.values(packed, "bytes_per_s"), plain[way])
    yield (f"pack (from a cold disk to the same), of plain {way} writes of as many bytes",
           f"{report.median(report.values(packed, 'bytes_per_s')) / 1e6:.0f} MB/s, "
           f"{share:.2f} ({low:.2f} to {high:.2f})",
           "≥ 0.7", report.at_least(share, 0.7))


def main():
    args = report.arguments(__doc__, 5, ("--peers", {"required": True}))
    python = os.path.join(args.peers, "bin/python")
    subprocess.run([python, os.path.join(PEERS, "make.py"), args.dir], check=True)

    data, binary = os.path.realpath(args.dir), os.path.realpath(args.binary)
    indexed = index(binary, data)
    best = {name: best_workers(args.peers, data, name) for name in FORMATS}
    steps = [("ours", name) for name in ("records", *FORMATS, "tokens")] + [("theirs", name) for name in FORMATS]
    runs, peers = {}, {}
    for number in range(args.rounds):
        for who, name in steps if number % 2 == 0 else steps[::-1]:
            if who == "ours":
                done = ours(binary, data, name)
                runs.setdefault(name, []).append(done)
            else:
                done = theirs(args.peers, data, name, best[name][0])
                peers.setdefault(name, []).append(done)
            print(f"formats: round {number + 1} {who:6} {name:8} {done['samples_per_s']:8.0f} samples/s "
                  f"{done['cpu_s_per_sample'] * 1e6:6.1f} CPU us/sample", file=sys.stderr, flush=True)
    packed = pack(binary, data, args.rounds)
    result = {"version": 1, "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
              "command": " ".join(["benches/formats.py", *sys.argv[1:]]), "rounds": args.rounds,
              "machine": machine.facts(data), "runs": runs, "peers": peers,
              "workers": {name: tried for name, (_, tried) in best.items()}, "index": indexed, "pack": packed,
              "versions": versions(python)}
    name = f"{result['date'][:10]}-formats-{machine.short_name(result['machine'])}"
    report.save(args.out, name, result, markdown(result))


def markdown(result):
    runs = result["runs"]
    lines = [line for name in FORMATS for line in format_lines(runs, result["peers"], name)]
    lines += [*token_lines(runs), *rest_lines(result["index"], result["pack"], runs)]
    out = [f"# Formats, {result['date'][:10]}", "", machine.describe(result["machine"]),
           f"- `{result['command']}`: medians of {result['rounds']} interleaved rounds, 90 % intervals by bootstrap",
           f"- {', '.join(f'{package} {version}' for package, version in result['versions'].items())}", "",
           *report.table(lines)]
    return "\n".join(out)


def versions(python):
    script = ("import importlib.metadata as m, json; print(json.dumps({n: m.version(n) for n in "
              "('webdataset', 'mosaicml-streaming', 'tensorflow-cpu', 'litdata', 'torch')}))")
    return json.loads(subprocess.run([python, "-c", script], capture_output=True, text=True, check=True).stdout)


if __name__ == "__main__":
    main()
