#!/usr/bin/env python3
"""Reads one epoch of a format with the format's own loader, used as documented, and prints the time and CPU it took.

usage: VENV/bin/python benches/peers/read.py FORMAT FOLDER WORKERS

FORMAT is tar (webdataset), mds (mosaicml-streaming), tfrecord (tf.data) or litdata. Payloads stay bytes: nothing is
decoded, as uringload decodes nothing either. Time counts from the first request to the last sample; Python's start-up
and imports do not count, processes that the loader starts do. The CPU time is that of this process and its children.
"""

import glob
import json
import os
import resource
import shutil
import sys
import tempfile
import time

BATCH = 64
BUFFER = 1000


def pairs(rows):
    """Makes a batch; litdata's payloads are views, which one process cannot send to another."""
    return [(bytes(row["jpg"]), row["cls"]) for row in rows]


def tar(folder, workers):
    import webdataset

    urls = sorted(glob.glob(os.path.join(folder, "*.tar")))
    dataset = webdataset.WebDataset(urls, shardshuffle=len(urls), seed=1).shuffle(BUFFER).to_tuple("jpg", "cls")
    return webdataset.WebLoader(dataset.batched(BATCH, collation_fn=list), batch_size=None, num_workers=workers)


def mds(folder, workers):
    from streaming import StreamingDataset
    from torch.utils.data import DataLoader

    dataset = StreamingDataset(local=os.path.join(folder, "data"), shuffle=True, batch_size=BATCH)
    return DataLoader(dataset, batch_size=BATCH, num_workers=workers, collate_fn=pairs)


def tfrecord(folder, workers):
    import tensorflow as tf

    files = sorted(glob.glob(os.path.join(folder, "*.tfrecord")))
    features = {"jpg": tf.io.FixedLenFeature([], tf.string), "cls": tf.io.FixedLenFeature([], tf.int64)}
    dataset = tf.data.Dataset.from_tensor_slices(files).shuffle(len(files), seed=1)
    reads = workers or 1
    dataset = dataset.interleave(tf.data.TFRecordDataset, cycle_length=reads, num_parallel_calls=reads)
    dataset = dataset.shuffle(BUFFER, seed=1).batch(BATCH)
    dataset = dataset.map(lambda batch: tf.io.parse_example(batch, features), num_parallel_calls=reads)
    rows = dataset.prefetch(4).as_numpy_iterator()
    return (list(zip(batch["jpg"], batch["cls"])) for batch in rows)


def litdata(folder, workers):
    from litdata import StreamingDataLoader, StreamingDataset

    dataset = StreamingDataset(folder, shuffle=True, seed=1)
    return StreamingDataLoader(dataset, batch_size=BATCH, num_workers=workers, collate_fn=pairs)


FORMATS = {reader.__name__: reader for reader in (tar, mds, tfrecord, litdata)}


def cpu():
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def read(name, folder, workers):
    # Imported here, so that the import is not timed.
    FORMATS[name](folder, 0)
    before, start = cpu(), time.perf_counter()
    samples = payload = 0
    for batch in FORMATS[name](folder, workers):
        for image, _ in batch:
            samples += 1
            payload += len(image)
    return {"samples": samples, "bytes": payload, "wall_s": time.perf_counter() - start, "cpu_s": cpu() - before}


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in FORMATS:
        sys.exit(__doc__)
    # Some loaders leave files in the temporary folder that break the next run.
    scratch = tempfile.mkdtemp()
    os.environ["TMPDIR"] = tempfile.tempdir = scratch
    try:
        print(json.dumps(read(sys.argv[1], sys.argv[2], int(sys.argv[3]))), flush=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
