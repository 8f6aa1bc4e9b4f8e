"""Describes the machine that a result was measured on."""

import os
import platform
import re
import subprocess


def text(path, default="?"):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return default


def output(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "?"


def disk_of(path):
    """Name and queue settings of the block device below `path`."""
    number = os.stat(path).st_dev
    link = os.path.realpath(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    # A partition's queue is its disk's, one folder up.
    folder = link if os.path.isdir(f"{link}/queue") else os.path.dirname(link)
    queue = {}
    for setting in ("scheduler", "nr_requests", "max_sectors_kb", "logical_block_size", "physical_block_size",
                    "rotational", "read_ahead_kb", "max_segments", "io_poll"):
        queue[setting] = text(f"{folder}/queue/{setting}")
    kind = "virtio" if "virtio" in folder else "nvme" if "nvme" in folder else "scsi" if "host" in folder else "other"
    gigabytes = int(text(f"{folder}/size", "0")) * 512 // 10**9
    return {"name": os.path.basename(folder), "kind": kind, "gigabytes": gigabytes, "queue": queue}


def facts(data):
    cpu = re.search(r"^model name\s*:\s*(.*)$", text("/proc/cpuinfo"), re.MULTILINE)
    memory = re.search(r"^MemTotal:\s*(\d+) kB", text("/proc/meminfo"), re.MULTILINE)
    return {
        "kernel": platform.release(),
        "cpu": cpu.group(1) if cpu else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(int(memory.group(1)) / 2**20, 1) if memory else 0,
        "disk": disk_of(data),
        "filesystem": output("findmnt", "-no", "FSTYPE", "-T", data),
        "transparent_hugepage": text("/sys/kernel/mm/transparent_hugepage/enabled"),
        "fio": output("fio", "--version"),
        "rustc": output("rustc", "--version"),
        "commit": output("git", "rev-parse", "--short=12", "HEAD"),
        "changed_files": len(output("git", "status", "--porcelain", "-uno").splitlines()),
        "load_at_start": os.getloadavg()[0],
    }


def short_name(facts_):
    return f"{facts_['cores']}core-{facts_['disk']['kind']}"


def describe(facts_):
    disk = facts_["disk"]
    queue = ", ".join(f"{name} {value}" for name, value in disk["queue"].items())
    commit = facts_["commit"] + (f" with {facts_['changed_files']} changed files" if facts_["changed_files"] else "")
    return "\n".join([
        f"- {facts_['cores']} cores ({facts_['cpu']}), {facts_['memory_gib']} GiB of memory, Linux {facts_['kernel']}, "
        f"transparent huge pages {facts_['transparent_hugepage']}",
        f"- disk {disk['name']} ({disk['kind']}, {disk['gigabytes']} GB, {facts_['filesystem']}): {queue}",
        f"- commit {commit}, {facts_['rustc']}, {facts_['fio']}",
        f"- load average when it began: {facts_['load_at_start']:.2f}",
    ])
