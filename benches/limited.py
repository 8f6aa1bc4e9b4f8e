#!/usr/bin/env python3
"""Storage whose operations are rare: what the loader gets out of so many reads a second.

    cargo build --release && sudo benches/limited.py DIR [--binary target/release/uringload] [--rounds 5]

Makes 0.8 GB of data in DIR, once. Each run is a process in a control group of its own (version 1, blkio) that may make
so many reads, and read so many bytes, a second; the page cache is dropped before it. Prints medians, writes nothing.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tarfile
import io

GROUP = "/sys/fs/cgroup/blkio/uringload-limited"


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


def run(binary, path, seconds, options):
    """Samples/s, MB/s of samples and CPU seconds a GB of one run, and its route."""
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
        file.write("3")
    command = [binary, "bench", path, "--no-raw", "--io", "direct", "--duration", f"{seconds}s", "--json", "-"]
    command += options
    # /bin/sh enters the group, and becomes the program.
    shell = ["/bin/sh", "-c", f'echo $$ > {GROUP}/cgroup.procs && exec "$@"', "sh", *command]
    done = subprocess.run(shell, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout)


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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--binary", default="target/release/uringload")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=12)
    parser.add_argument("--only", default="", help="a part of the rows' names")
    arguments = parser.parse_args()
    number = os.stat(arguments.folder).st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    at = lambda name: os.path.join(arguments.folder, name)
    make_tar(at("jpeg"), 16, 250, 115_000, 1)
    make_tiny(at("tiny"), arguments.binary, 30_000)
    make_labelled(at("labelled"), 1500)
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
    for what, path, (operations, rate), options in rows:
        if arguments.only not in what:
            continue
        limit(device, operations, rate)
        found = [run(arguments.binary, path, arguments.seconds, options) for _ in range(arguments.rounds)]
        samples = [find(one, "samples_per_s") for one in found]
        megabytes = [(find(one, "bytes_per_s") or 0) / 1e6 for one in found]
        print(f"{what:36} {statistics.median(samples):9.0f} samples/s {statistics.median(megabytes):8.1f} MB/s  "
              f"({min(samples):.0f} to {max(samples):.0f})", flush=True)
        locality = find(found[-1], "locality")
        print(f"{'':36} {'; '.join(locality or [])}", flush=True)
    os.rmdir(GROUP)


if __name__ == "__main__":
    main()
