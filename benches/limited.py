#!/usr/bin/env python3
"""Storage whose operations are rare: what the loader gets out of a limited number of reads a second.

    cargo build --release && sudo benches/limited.py DIR [--binary target/release/uringload] [--rounds 5]

Makes 0.8 GB of data in DIR, once. Each run is a process in a control group of its own (version 1, blkio) that may make
a number of reads, and of bytes, a second; the page cache is dropped before it. Prints medians, writes nothing.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tarfile
import time
import io

GROUP = "/sys/fs/cgroup/blkio/uringload-limited"
MEMORY_GROUP = "/sys/fs/cgroup/memory/uringload-limited"


def find(value, name):
    """The first value of that name anywhere in a document."""
    if isinstance(value, dict):
        if name in value:
            return value[name]
        value = list(value.values())
    for one in value if isinstance(value, list) else []:
        found = find(one, name)
        if found is not None:
            return found
    return None


def drop_caches():
    """Empties the page cache. Needs root."""
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
        file.write("3")


def bench(binary, path, seconds, options, groups=(), during=None, may_fail=False):
    """One run of `bench`, past the page cache, within these control groups: its report. `during` is called a
    second after it has begun. A run that fails ends the script, or if it `may_fail` gives its exit status and what it
    said in place of the report.
    """
    command = [binary, "bench", path, "--io", "direct", "--duration", f"{seconds}s", "--json", "-", *options]
    # /bin/sh enters the groups, and becomes the program.
    enter = "".join(f"echo $$ > {group}/cgroup.procs && " for group in groups)
    process = subprocess.Popen(["/bin/sh", "-c", f'{enter}exec "$@"', "sh", *command], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    if during:
        time.sleep(1)
        during()
    out, problems = process.communicate()
    if process.returncode:
        if may_fail:
            return process.returncode, problems
        sys.exit(f"{' '.join(command)}: {problems}")
    return json.loads(out)


def rate(report):
    """Samples and bytes a second."""
    return find(report, "samples_per_s"), find(report, "bytes_per_s") or 0


def make_tar(path, shards, samples, mean, seed):
    """Shards of JPEG-sized members, with a class each."""
    if os.path.exists(f"{path}/done"):
        return
    os.makedirs(path, exist_ok=True)
    rng = random.Random(seed)
    for shard in range(shards):
        with tarfile.open(f"{path}/{shard:03}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for number in range(samples):
                size = max(1000, int(rng.lognormvariate(0, 0.4) * mean))
                for suffix, content in (("jpg", rng.randbytes(size)), ("cls", str(number % 1000).encode())):
                    member = tarfile.TarInfo(f"{shard:03}{number:06}.{suffix}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
    open(f"{path}/done", "w").close()


def make_tiny(path, binary, count):
    """Tiny files, packed."""
    if os.path.isdir(f"{path}/packed"):
        return
    os.makedirs(f"{path}/source", exist_ok=True)
    rng = random.Random(2)
    for number in range(count):
        with open(f"{path}/source/{number:06}.txt", "wb") as file:
            file.write(rng.randbytes(rng.randint(100, 800)))
    subprocess.run([binary, "pack", f"{path}/source", f"{path}/packed", "--shard-size", "1MB"], check=True,
                   stdout=subprocess.DEVNULL)


def make_folder(path, binary, count, mean):
    """A folder of JPEG-sized files in ten classes, packed."""
    if os.path.isdir(f"{path}/packed"):
        return
    rng = random.Random(3)
    for number in range(count):
        folder = f"{path}/source/{number % 10}"
        os.makedirs(folder, exist_ok=True)
        with open(f"{folder}/{number:06}.jpg", "wb") as file:
            file.write(rng.randbytes(max(1000, int(rng.lognormvariate(0, 0.4) * mean))))
    subprocess.run([binary, "pack", f"{path}/source", f"{path}/packed", "--shard-size", "64MB"], check=True,
                   stdout=subprocess.DEVNULL)


def make_labelled(path, rows):
    """A column of images and one of labels, as HDF5 and safetensors store them."""
    if os.path.exists(f"{path}/a.safetensors"):
        return
    os.makedirs(path, exist_ok=True)
    images, labels = rows * 150528, rows * 8
    header = json.dumps({"image": {"dtype": "U8", "shape": [rows, 150528], "data_offsets": [0, images]},
                         "label": {"dtype": "I64", "shape": [rows], "data_offsets": [images, images + labels]}})
    with open(f"{path}/a.part", "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header.encode())
        for _ in range(rows):
            file.write(os.urandom(150528))
        file.write(bytes(labels))
    os.rename(f"{path}/a.part", f"{path}/a.safetensors")


def limit(device, operations, rate):
    os.makedirs(GROUP, exist_ok=True)
    for name, value in (("read_iops", operations), ("read_bps", rate)):
        with open(f"{GROUP}/blkio.throttle.{name}_device", "w", encoding="ascii") as file:
            file.write(f"{device} {value}")


def at_last(report, share):
    """Samples/s and MB/s in the last part of a run: where a limit was imposed in the middle of it."""
    points = find(report, "series") or []
    late = [point for point in points if point["s"] >= points[-1]["s"] * (1 - share)]
    time = late[-1]["s"] - late[0]["s"]
    return tuple((late[-1][what] - late[0][what]) / time for what in ("samples", "bytes"))


def is_wanted(what, only, names=()):
    """Whether a row is asked for: by its name, or by a part of it that is no row's name."""
    return any(part == what or (part not in names and part in what) for part in only)


def contained(arguments, path):
    """The same data in containers of little memory: what a run gives there, or how it refuses."""
    for mebibytes in (100, 256, 512):
        what = f"in a container of {mebibytes} MiB"
        if not is_wanted(what, arguments.only):
            continue
        os.makedirs(MEMORY_GROUP, exist_ok=True)
        with open(f"{MEMORY_GROUP}/memory.limit_in_bytes", "w", encoding="ascii") as file:
            file.write(str(mebibytes << 20))
        rates, ends = [], []
        for _ in range(arguments.rounds):
            drop_caches()
            options = ["--no-raw", "--shuffle", "--epochs", "1000"]
            report = bench(arguments.binary, path, 5, options, [MEMORY_GROUP], may_fail=True)
            if isinstance(report, tuple):
                ends.append(f"exit {report[0]}: {report[1].strip().splitlines()[-1]}")
            else:
                rates.append(find(report, "bytes_per_s") / 1e6)
        found = f"{statistics.median(rates):8.1f} MB/s  ({min(rates):.0f} to {max(rates):.0f})" if rates else ""
        print(f"{what:46} {len(rates)} of {arguments.rounds} ran {found} {'; '.join(sorted(set(ends)))}", flush=True)
        os.rmdir(MEMORY_GROUP)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--binary", default="target/release/uringload")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=12)
    parser.add_argument("--only", default=[""], nargs="*", help="names of rows, or parts of them")
    arguments = parser.parse_args()
    os.makedirs(arguments.folder, exist_ok=True)
    number = os.stat(arguments.folder).st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    at = lambda name: os.path.join(arguments.folder, name)
    make_tar(at("jpeg"), 16, 250, 115_000, 1)
    make_tiny(at("tiny"), arguments.binary, 30_000)
    make_labelled(at("labelled"), 1500)
    make_folder(at("folder"), arguments.binary, 8000, 110_000)
    slow, heads = (150, 0), (150, 120_000_000)
    rows = [
        ("tar of 115 KB, in order", at("jpeg"), slow, []),
        ("tar of 115 KB, in order, no gap", at("jpeg"), slow, ["--coalesce-gap", "0"]),
        ("tiny, packed, in order", at("tiny/packed"), slow, []),
        ("tiny, packed, in order, no gap", at("tiny/packed"), slow, ["--coalesce-gap", "0"]),
        ("tiny, packed, shards:4", at("tiny/packed"), slow, ["--shuffle=shards:4"]),
        ("tiny, packed, window:4096", at("tiny/packed"), slow, ["--shuffle=window:4096"]),
        ("tar of 115 KB, shards:2, 120 MB/s", at("jpeg"), heads, ["--shuffle=shards:2"]),
        ("tar of 115 KB, in order, 120 MB/s", at("jpeg"), heads, []),
        ("image and label, shuffled", at("labelled"), slow, ["--rows", "--shuffle=full"]),
    ]
    rows += [
        ("folder of 110 KB, packed, --shuffle, 120 MB/s", at("folder/packed"), heads, ["--shuffle"]),
        # Without warning: the limit comes while it reads, and its last third counts.
        ("late: tar of 115 KB, in order", at("jpeg"), slow, []),
        ("late: tar of 115 KB, shards:2", at("jpeg"), slow, ["--shuffle=shards:2"]),
        ("late: folder of 110 KB, packed, --shuffle", at("folder/packed"), heads, ["--shuffle"]),
        ("late: tiny, packed, in order", at("tiny/packed"), slow, []),
        ("late: tiny, packed, in order, no gap", at("tiny/packed"), slow, ["--coalesce-gap", "0"]),
    ]
    for what, path, (operations, most), options in rows:
        if not is_wanted(what, arguments.only, [row[0] for row in rows]):
            continue
        is_late = what.startswith("late: ")
        found, last = [], []
        for _ in range(arguments.rounds):
            limit(device, *((0, 0) if is_late else (operations, most)))
            seconds = 3 * arguments.seconds if is_late else arguments.seconds
            # Epochs are short where nothing limits them.
            more = ["--epochs", "1000"] if is_late else []
            # A limit that is imposed while it reads cannot be announced.
            late = (lambda: limit(device, operations, most)) if is_late else None
            drop_caches()
            report = bench(arguments.binary, path, seconds, ["--no-raw", *options, *more], [GROUP], late)
            found.append(report)
            last.append(at_last(report, 1 / 3) if is_late else rate(report))
        samples = [one[0] for one in last]
        megabytes = [one[1] / 1e6 for one in last]
        print(f"{what:46} {statistics.median(samples):9.0f} samples/s {statistics.median(megabytes):8.1f} MB/s  "
              f"({min(samples):.0f} to {max(samples):.0f})", flush=True)
        locality = find(found[-1], "locality")
        gaps = [one for one in find(found[-1], "decisions") or [] if one["knob"] in ("coalesce_gap", "read_whole")]
        told = [f"{one['knob']} {one['from']} -> {one['to']} after {one['after_s']:.1f} s: {one['why']}, "
                f"an operation costs "
                f"{one['operation_bytes']} bytes" for one in gaps[-3:]]
        print(f"{'':46} {'; '.join((locality or []) + told)}", flush=True)
    contained(arguments, at("jpeg"))
    os.rmdir(GROUP)


if __name__ == "__main__":
    main()
