#!/usr/bin/env python3
"""Times how long Python takes to get a batch that is ready, as torch tensors, and prints the medians.

usage: VENV/bin/python benches/peers/python_handover.py FILE RECORD_BYTES BATCH

FILE has records, BATCH of which make a batch: `dense_us` is for one tensor, `list_us` for a list of BATCH tensors.
Before each batch the program computes until the batch has been read, as a trainer does, and drops the previous batch;
that is not timed. `cargo bench --bench handover` measures the same in Rust.
"""

import json
import statistics
import sys
import time

BATCHES = 300
COMPUTE_S = 0.01


def handover_us(file, record_bytes, batch, collate):
    import uringload

    took = []
    with uringload.DataLoader(file, format="records", record_bytes=record_bytes, batch_size=batch, rank=0, world_size=1,
                              io="direct", collate=collate) as loader:
        batches = iter(loader)
        got = next(batches)
        for _ in range(min(BATCHES, len(loader) - 2)):
            got = None
            ready = time.perf_counter() + COMPUTE_S
            while time.perf_counter() < ready:
                pass
            start = time.perf_counter()
            got = next(batches)
            took.append(time.perf_counter() - start)
        del got
    return statistics.median(took) * 1e6


def main():
    file, record_bytes, batch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    import torch  # noqa: F401, so that its import is not timed

    print(json.dumps({"dense_us": handover_us(file, record_bytes, batch, "auto"),
                      "list_us": handover_us(file, record_bytes, batch, "list")}))


if __name__ == "__main__":
    main()
