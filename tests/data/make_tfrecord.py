#!/usr/bin/env python3
"""Writes the files that tests/tfrecord reads, with TensorFlow's own writer (2.21).

    python3 -m venv /somewhere && /somewhere/bin/pip install tensorflow-cpu
    /somewhere/bin/python tests/data/make_tfrecord.py

Beside them stands expected.json: for each file and record, the payload in hex or the bytes of each column in hex, made
from the values that were written and not from the files.
"""

import json
import os
import shutil
import struct
from pathlib import Path

import tensorflow as tf

HERE = Path(__file__).resolve().parent / "tfrecord"
EXPECTED = {}


def write(name: str, payloads: list, expected: list, compression: str = "") -> None:
    (HERE / name).parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(HERE / name), tf.io.TFRecordOptions(compression_type=compression)) as writer:
        for payload in payloads:
            writer.write(payload)
    EXPECTED[name] = expected


def example(number: int) -> tuple:
    """The payload, and the bytes of the columns."""
    image = bytes((number * 7 + at) % 251 for at in range(number * 40))
    scores = [number / 4 + at for at in range(number % 4)]
    box = [0.5, -1.5, number, 1e30]
    ids = [number, -number, 2**63 - 1, -(2**63)][: number % 5]
    features = {
        "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
        "text/ü": tf.train.Feature(bytes_list=tf.train.BytesList(value=["zwölf".encode()])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[number - 3])),
        "ids": tf.train.Feature(int64_list=tf.train.Int64List(value=ids)),
        "box": tf.train.Feature(float_list=tf.train.FloatList(value=box)),
        "scores": tf.train.Feature(float_list=tf.train.FloatList(value=scores)),
    }
    message = tf.train.Example(features=tf.train.Features(feature=features))
    columns = {
        "image": image,
        "text/ü": "zwölf".encode(),
        "label": struct.pack("<q", number - 3),
        "ids": struct.pack(f"<{len(ids)}q", *ids),
        "box": struct.pack("<4f", *box),
        "scores": struct.pack(f"<{len(scores)}f", *scores),
    }
    # Maps have no order of their own; sorted, the test can write the same bytes.
    return message.SerializeToString(deterministic=True), {name: value.hex() for name, value in columns.items()}


def sequence() -> bytes:
    feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[1]))
    lists = tf.train.FeatureLists(feature_list={"steps": tf.train.FeatureList(feature=[feature, feature])})
    context = tf.train.Features(feature={"label": feature})
    return tf.train.SequenceExample(context=context, feature_lists=lists).SerializeToString(deterministic=True)


def main() -> None:
    shutil.rmtree(HERE, ignore_errors=True)
    examples = [example(number) for number in range(11)]
    payloads, expected = [payload for payload, _ in examples], [columns for _, columns in examples]
    write("examples/train.tfrecord-00000-of-00002", payloads[:6], expected[:6])
    write("examples/train.tfrecord-00001-of-00002", payloads[6:], expected[6:])
    write("gzip/train.tfrecord.gz", payloads, expected, "GZIP")
    write("zlib/train.tfrecord", payloads, expected, "ZLIB")
    raw = [b"hello", b"", bytes(range(256)) * 3, b"\n\x00", b"last"]
    write("bytes/raw.tfrecord", raw, [payload.hex() for payload in raw])
    write("sequence/steps.tfrecord", [sequence()], [])
    (HERE / "expected.json").write_text(json.dumps(EXPECTED, indent=0, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    os.umask(0o022)
    main()
