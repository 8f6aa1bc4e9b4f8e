"""``python -m uringload bench PATH``: measures how fast batches reach Python, and names the bottleneck.

The script ``uringload`` is the whole command line; its own ``bench`` measures without Python.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from typing import Any

from . import DataLoader, Error


def _make(folder: str) -> None:
    """Writes a small real dataset: 1024 files of around 110 KB, in eight classes."""
    for index in range(1024):
        place = os.path.join(folder, f"class-{index % 8}")
        os.makedirs(place, exist_ok=True)
        with open(os.path.join(place, f"{index:04}.dat"), "wb") as file:
            file.write(os.urandom(60_000 + index * 97 % 100_000))


def _bench(options: argparse.Namespace, path: list[str]) -> dict[str, Any]:
    given: dict[str, Any] = {
        "batch_size": options.batch_size, "shuffle": options.shuffle, "output": options.output,
        "device": options.device, "engine": options.engine, "io": options.io, "memory_limit": options.memory_limit,
        "num_threads": options.num_threads, "record_bytes": options.record_bytes, "format": options.format,
        "rank": 0, "world_size": 1,
    }  # fmt: skip
    with DataLoader(path, **{name: value for name, value in given.items() if value is not None}) as loader:
        cpu, start = time.process_time(), time.perf_counter()
        first = 0.0
        samples = batches = 0
        for _ in range(options.epochs):
            for batch in loader:
                first = first or time.perf_counter() - start
                batches += 1
                samples += len(batch.ids)
        wall = time.perf_counter() - start
        stats = loader.stats()
        return {
            "dataset": {"format": loader.dataset.format, "samples": len(loader.dataset), "files": loader.dataset.files},
            "output": options.output,
            "batches": batches,
            "samples": samples,
            "wall_s": wall,
            "samples_per_s": samples / wall,
            "bytes_per_s": stats["bytes_delivered"] / wall,
            "us_per_batch": wall / max(batches, 1) * 1e6,
            "first_batch_s": first,
            "cpu_s": time.process_time() - cpu,
            "verdict": str(loader.verdict()),
            "route": dict(loader.route()),
        }


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line and returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m uringload", description="A data loader for training.",
                                     epilog="The script `uringload` has all other commands.")
    commands = parser.add_subparsers(dest="command", required=True)
    bench = commands.add_parser("bench", help="measure how fast batches reach Python")
    bench.add_argument("path", nargs="*", help="folders, files or patterns [default: a small temporary dataset]")
    bench.add_argument("--batch-size", type=int, default=64)
    bench.add_argument("--shuffle", action="store_true")
    bench.add_argument("--epochs", type=int, default=1)
    bench.add_argument("--output", default="numpy", choices=["torch", "numpy", "dlpack"])
    bench.add_argument("--device", default="cpu", help="cpu, auto or cuda:N, with --output torch or dlpack")
    bench.add_argument("--engine", default="auto", choices=["auto", "uring", "threads"])
    bench.add_argument("--io", default="auto", choices=["auto", "direct", "buffered"])
    bench.add_argument("--memory-limit")
    bench.add_argument("--num-threads", type=int)
    bench.add_argument("--record-bytes")
    bench.add_argument("--format")
    bench.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    try:
        if options.path:
            result = _bench(options, options.path)
        else:
            with tempfile.TemporaryDirectory(prefix="uringload-bench-") as folder:
                print(f"no path given: making 1024 files in {folder} (deleted at the end)", file=sys.stderr)
                _make(folder)
                result = _bench(options, [folder])
    except Error as error:
        print("uringload: " + str(error).replace("\n", "\n  "), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    if options.json:
        print(json.dumps(result))
        return 0
    data = result["dataset"]
    print(f"{data['format']}: {data['samples']:,} samples in {data['files']:,} files, as {result['output']}")
    print(f"{result['samples']:,} samples in {result['wall_s']:.2f} s: {result['samples_per_s']:,.0f}/s, "
          f"{result['bytes_per_s'] / 1e9:.2f} GB/s, {result['us_per_batch']:,.0f} us a batch, "
          f"{result['cpu_s']:.2f} s of CPU")
    print(f"first batch after {result['first_batch_s'] * 1e3:.1f} ms")
    print(f"bottleneck: {result['verdict']}")
    print(f"route: {result['route'].get('text', '')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
