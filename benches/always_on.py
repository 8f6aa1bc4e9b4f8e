#!/usr/bin/env python3
"""What the loader's own statistics cost while they are not read: their share of a run's processor time.

    CARGO_PROFILE_RELEASE_DEBUG=line-tables-only CARGO_PROFILE_RELEASE_STRIP=none cargo build --release
    benches/always_on.py DIR [--binary target/release/uringload] [--rounds 15]

`perf` stops the program 1 999 times for each second of processor time and notes where it is. A place counts if it lies
in a function of src/stats, or in one that the compiler put elsewhere (`addr2line -i` tells). Reading the clock is the
kernel's code, in pages of its own (vdso), and is told apart: the engines read it for latencies, too. With `--trace` the
trace has a share of its own: the thread that writes it, and what other threads leave for it. Needs perf and addr2line.
DIR gets 64 MiB of records of 1 KiB, read twenty times: as small as samples come, through the page cache, so that as
much of the time as possible is the loader's own.
"""

import argparse
import collections
import os
import re
import statistics
import subprocess
import tempfile

RECORD = re.compile(r"^\s*(\S.*?)\s+([0-9a-f]{6,})\s+(\S.*)?\((\S+)\)$")
CLOCK = re.compile(r"clock_gettime|Timespec::now|Instant::now")


def places(binary, addresses):
    """The functions at each address, the innermost first, as (function, file)."""
    asked = "\n".join(addresses)
    told = subprocess.run(["addr2line", "-i", "-f", "-a", "-C", "-e", binary], input=asked, text=True,
                          capture_output=True, check=True).stdout.splitlines()
    found, now = {}, None
    index = 0
    while index < len(told):
        if told[index].startswith("0x"):
            now = f"{int(told[index], 16):x}"
            found[now] = []
            index += 1
        else:
            found[now].append((told[index], told[index + 1]))
            index += 2
    return found


def load_base(data, binary):
    """Where the program lies: address in memory minus place in the file, for each of its executable mappings."""
    events = subprocess.run(["perf", "script", "-i", data, "--show-mmap-events"], text=True, capture_output=True,
                            check=True).stdout
    maps = []
    for line in events.splitlines():
        match = re.search(r"PERF_RECORD_MMAP2? .*?\[0x([0-9a-f]+)\(0x([0-9a-f]+)\) @ (0x[0-9a-f]+|0) .*?\]: (\S+) (.*)",
                          line)
        if match and "x" in match[4] and os.path.realpath(match[5]) == os.path.realpath(binary):
            maps.append((int(match[1], 16), int(match[2], 16), int(match[3], 16)))
    return maps


def segments(binary):
    """(offset in the file, virtual address, length) of what is loaded."""
    told = subprocess.run(["readelf", "-lW", binary], text=True, capture_output=True, check=True).stdout
    rows = re.findall(r"LOAD\s+0x([0-9a-f]+)\s+0x([0-9a-f]+)\s+0x[0-9a-f]+\s+0x([0-9a-f]+)", told)
    return [tuple(int(number, 16) for number in row) for row in rows]


def round_of(binary, folder, options):
    with tempfile.TemporaryDirectory() as scratch:
        data = f"{scratch}/perf.data"
        command = [binary, "bench", folder, "--format", "records", "--record-bytes", "1024", "--io", "buffered",
                   "--epochs", "20", "--no-raw", *options]
        subprocess.run(["perf", "record", "-q", "-o", data, "-F", "1999", "-e", "cpu-clock", "--", *command],
                       stdout=subprocess.DEVNULL, check=True)
        maps, parts = load_base(data, binary), segments(binary)
        script = subprocess.run(["perf", "script", "-i", data, "-F", "comm,ip,sym,dso"], text=True, capture_output=True,
                                check=True).stdout
        addresses, all_of_them, clock, writer = collections.Counter(), 0, 0, 0
        for line in script.splitlines():
            match = RECORD.match(line)
            if not match:
                continue
            all_of_them += 1
            ip, dso = int(match[2], 16), match[4]
            if match[1].startswith("uringload-trac"):
                writer += 1
                continue
            if dso == "[vdso]" or CLOCK.search(match[3] or ""):
                clock += 1
                continue
            for start, length, offset in maps:
                if start <= ip < start + length:
                    at = ip - start + offset
                    for file_at, virtual, size in parts:
                        if file_at <= at < file_at + size:
                            addresses[f"{at - file_at + virtual:x}"] += 1
        found = places(binary, list(addresses))
        of = collections.Counter()
        for address, count in addresses.items():
            chain = found.get(address, [])
            if any("/src/stats/trace" in file for _, file in chain):
                writer += count
            elif any("/src/stats" in file for _, file in chain):
                name = next(function for function, file in chain if "/src/stats" in file)
                of[name] += count
        return all_of_them, sum(of.values()), clock, writer, of


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--binary", default="target/release/uringload")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    folder = os.path.join(arguments.folder, "records")
    os.makedirs(folder, exist_ok=True)
    if not os.path.exists(f"{folder}/all.bin"):
        with open(f"{folder}/all.bin", "wb") as file:
            file.write(os.urandom(64 << 20))
    trace = os.path.join(arguments.folder, "run.json")
    rows = [("full shuffle", ["--shuffle=full"]), ("windows", ["--shuffle=window:4096"])]
    rows += [(f"{name}, traced", [*options, "--trace", trace]) for name, options in rows]
    for name, options in rows:
        shares, clocks, writers, functions, samples = [], [], [], collections.Counter(), 0
        for _ in range(arguments.rounds):
            count, stats, clock, writer, of = round_of(arguments.binary, folder, options)
            writers.append(100 * writer / count)
            shares.append(100 * stats / count)
            clocks.append(100 * clock / count)
            functions.update(of)
            samples += count
        if "traced" in name:
            print(f"{name:22} the trace {statistics.median(writers):.2f} % ({min(writers):.2f} to {max(writers):.2f})")
        print(f"{name:22} statistics {statistics.median(shares):.2f} % ({min(shares):.2f} to {max(shares):.2f}), "
              f"reading the clock {statistics.median(clocks):.2f} % ({min(clocks):.2f} to {max(clocks):.2f}), "
              f"of {samples} places in {arguments.rounds} rounds", flush=True)
        for function, count in functions.most_common(6):
            print(f"{'':22} {100 * count / samples:.2f} % {function}")


if __name__ == "__main__":
    main()
