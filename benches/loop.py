"""What the scripts here that run `uringload bench` share: one run and its report, numbers in it, and medians of rounds.

Used by large.py and limited.py; it does nothing by itself.
"""

import json
import resource
import statistics
import subprocess
import sys
import time


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
    """One run of `bench`, past the page cache, within these control groups: its report and its CPU seconds.
    `during` is called a second after it has begun. A run that fails ends the script, or if it `may_fail`
    gives its exit status and what it said in place of the report.
    """
    command = [binary, "bench", path, "--io", "direct", "--duration", f"{seconds}s", "--json", "-", *options]
    # /bin/sh enters the groups, and becomes the program.
    enter = "".join(f"echo $$ > {group}/cgroup.procs && " for group in groups)
    process = subprocess.Popen(["/bin/sh", "-c", f'{enter}exec "$@"', "sh", *command], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    if during:
        time.sleep(1)
        during()
    out, problems = process.communicate()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if process.returncode:
        if may_fail:
            return (process.returncode, problems), cpu
        sys.exit(f"{' '.join(command)}: {problems}")
    return json.loads(out), cpu


def rate(report):
    """Samples and bytes a second."""
    return find(report, "samples_per_s"), find(report, "bytes_per_s") or 0


def medians(rounds):
    """Of each column of the rounds."""
    return tuple(statistics.median(column) for column in zip(*rounds))
