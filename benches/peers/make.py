#!/usr/bin/env python3
"""Writes the same samples in every format that benches/formats.py reads, with the formats' own writers.

usage: VENV/bin/python benches/peers/make.py DIR [FORMAT...]

  DIR/records   one file: the payloads end to end, as records of their mean size
  DIR/tar       webdataset's ShardWriter
  DIR/mds       mosaicml-streaming's MDSWriter
  DIR/tfrecord  TensorFlow's TFRecordWriter, tf.train.Example
  DIR/litdata   litdata's BinaryWriter
  DIR/tokens    a file of 1.5 * 10^9 tokens of 16 bits, 3 GB

20 000 samples of a payload ("jpg", 110 kB in the mean) and a label ("cls"), 2.2 GB per format. A format that exists is
kept. Each is written under another name and renamed when it is complete.
"""

import os
import random
import shutil
import sys

import samples

TOKENS = 1_500_000_000
CHUNK_BYTES = 1 << 24


def records(folder):
    size = sum(samples.sizes()) // samples.SAMPLES
    left = size * samples.SAMPLES
    with open(os.path.join(folder, "records.bin"), "wb") as file:
        for _, payload, _ in samples.samples():
            file.write(payload[:left])
            left -= min(left, len(payload))
    with open(os.path.join(folder, "record_size"), "w", encoding="utf-8") as file:
        file.write(str(size))


def tar(folder):
    import webdataset

    pattern = os.path.join(folder, "shard-%06d.tar")
    with webdataset.ShardWriter(pattern, maxcount=samples.SHARD_SAMPLES, maxsize=10**12, verbose=0) as writer:
        for number, payload, label in samples.samples():
            writer.write({"__key__": f"{number:06}", "jpg": payload, "cls": label})


def mds(folder):
    from streaming import MDSWriter

    columns = {"jpg": "bytes", "cls": "int"}
    with MDSWriter(out=os.path.join(folder, "data"), columns=columns, size_limit=samples.SHARD_BYTES) as writer:
        for _, payload, label in samples.samples():
            writer.write({"jpg": payload, "cls": label})


def tfrecord(folder):
    import tensorflow as tf

    def feature(payload, label):
        image = tf.train.Feature(bytes_list=tf.train.BytesList(value=[payload]))
        number = tf.train.Feature(int64_list=tf.train.Int64List(value=[label]))
        return tf.train.Example(features=tf.train.Features(feature={"jpg": image, "cls": number}))

    shards = -(-samples.SAMPLES // samples.SHARD_SAMPLES)
    writer = None
    for number, payload, label in samples.samples():
        shard, at = divmod(number, samples.SHARD_SAMPLES)
        if at == 0:
            if writer:
                writer.close()
            writer = tf.io.TFRecordWriter(os.path.join(folder, f"data-{shard:05}-of-{shards:05}.tfrecord"))
        writer.write(feature(payload, label).SerializeToString())
    writer.close()


def litdata(folder):
    from litdata.streaming.writer import BinaryWriter

    writer = BinaryWriter(cache_dir=folder, chunk_bytes=samples.SHARD_BYTES)
    for number, payload, label in samples.samples():
        writer[number] = {"cls": label, "jpg": payload}
    writer.done()
    writer.merge()


def tokens(folder):
    law = random.Random(f"{samples.SEED}/tokens")
    with open(os.path.join(folder, "tokens.bin"), "wb") as file:
        left = 2 * TOKENS
        while left:
            file.write(law.randbytes(min(left, CHUNK_BYTES)))
            left -= min(left, CHUNK_BYTES)


FORMATS = {writer.__name__: writer for writer in (records, tar, mds, tfrecord, litdata, tokens)}


def main():
    if len(sys.argv) < 2 or any(name not in FORMATS for name in sys.argv[2:]):
        sys.exit(__doc__)
    for name in sys.argv[2:] or FORMATS:
        folder = os.path.join(sys.argv[1], name)
        if os.path.isdir(folder):
            continue
        shutil.rmtree(f"{folder}.part", ignore_errors=True)
        os.makedirs(f"{folder}.part")
        print(f"make: {folder}", file=sys.stderr, flush=True)
        FORMATS[name](f"{folder}.part")
        os.sync()
        os.rename(f"{folder}.part", folder)


if __name__ == "__main__":
    main()
