"""The reference that the results are measured against: fio (io_uring, O_DIRECT) doing the same reads on the same files.

fio cannot read each file once and whole with its usual options: it skips what does not fill a block, so it never reads
a file smaller than the block size, or the tail of a larger one. But it can replay a log of opens, reads and closes
(read_iolog, version 2, which carries no times): each file is opened, read in pieces of at most 512 KiB with lengths
rounded up to the sector, and closed. That is byte for byte what a loader of whole files has to do. For records of a
fixed size we use fio's own randread, each block once, with registered buffers and file (its fastest form).

fio stops its clock when the last read of a log is submitted, so the reads still in flight, at most QD of them, count in
neither its bytes nor its time; the rate is right all the same.
"""

import json
import os
import random
import subprocess

READ_BYTES = 512 << 10
SECTOR_BYTES = 512
DEPTHS = (16, 32, 64, 128)


def whole_files_log(folder, log):
    """Writes the replay log of every file below `folder`, in a seeded random order."""
    paths = sorted(os.path.join(base, name) for base, _, names in os.walk(folder) for name in names)
    random.Random(1).shuffle(paths)
    with open(log, "w", encoding="utf-8") as out:
        out.write("fio version 2 iolog\n")
        out.writelines(f"{path} add\n" for path in paths)
        for path in paths:
            size = os.stat(path).st_size
            out.write(f"{path} open\n")
            for offset in range(0, size, READ_BYTES):
                length = min(READ_BYTES, size - offset)
                out.write(f"{path} read {offset} {-(-length // SECTOR_BYTES) * SECTOR_BYTES}\n")
            out.write(f"{path} close\n")


def whole_files(log):
    return [f"--read_iolog={log}"]


def fixed_records(path, record_bytes):
    return [f"--filename={path}", "--rw=randread", f"--bs={record_bytes}", "--fixedbufs=1", "--registerfiles=1"]


def run(options, depth):
    """Runs fio once: bytes, seconds, bytes/s, CPU seconds per GB and the 99th percentile of read latency in us."""
    command = ["fio", "--name=reference", "--ioengine=io_uring", "--direct=1", f"--iodepth={depth}", *options,
               "--output-format=json", "--eta=never"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise SystemExit(f"spine: fio failed: {' '.join(command)}\n{done.stderr}{done.stdout[-2000:]}")
    # fio prints notes to stdout before the JSON.
    job = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]
    read = job["read"]
    cpu_s = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1000
    return {
        "depth": depth,
        "bytes": read["io_bytes"],
        "wall_s": read["runtime"] / 1000,
        "bytes_per_s": read["io_bytes"] * 1000 / read["runtime"],
        "cpu_s_per_gb": cpu_s / (read["io_bytes"] / 1e9),
        "p99_us": read["clat_ns"].get("percentile", {}).get("99.000000", 0) / 1000,
    }
