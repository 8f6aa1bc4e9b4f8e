#!/usr/bin/env python3
"""Writes the datasets that tests/shards reads, with the writers of mosaicml-streaming 0.13 and litdata 0.2.76.

    python3 -m venv /somewhere && /somewhere/bin/pip install mosaicml-streaming==0.13.0 litdata==0.2.76 pyarrow zstd
    /somewhere/bin/python tests/data/make_shards.py

Beside each dataset stands expected.json: for each sample, the bytes of each column in hex, made from the values that
were written and not from the files. FFCV needs a compiler and OpenCV; its files are made by the test itself.
"""

import decimal
import io
import json
import os
import shutil
import struct
from pathlib import Path

import numpy as np
import torch
from litdata.streaming.item_loader import TokensLoader
from litdata.streaming.writer import BinaryWriter
from litdata.types import Jpeg
from PIL import Image
from streaming import MDSWriter
from streaming.base.util import merge_index

HERE = Path(__file__).resolve().parent
SCALARS = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]


def fresh(name: str) -> str:
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return str(folder)


def expect(name: str, samples: list) -> None:
    rows = [{column: value.hex() for column, value in sample.items()} for sample in samples]
    (HERE / name / "expected.json").write_text(json.dumps(rows, indent=0) + "\n")


def image(number: int) -> Image.Image:
    return Image.fromarray((np.arange(8 * 6 * 3).reshape(6, 8, 3) * (number + 3) % 251).astype(np.uint8))


def encoded(picture: Image.Image, kind: str) -> bytes:
    out = io.BytesIO()
    picture.save(out, format=kind)
    return out.getvalue()


def pil(picture: Image.Image) -> bytes:
    return struct.pack("<III", *picture.size, 3) + b"RGB" + picture.tobytes()


def listed(head: list, parts: list) -> bytes:
    return struct.pack(f"<{len(head) + len(parts)}I", *head, *map(len, parts)) + b"".join(parts)


def shape(array: np.ndarray, code: int, dtype: str) -> bytes:
    return bytes([array.ndim << 2 | code]) + np.array(array.shape, dtype).tobytes()


def mds_columns(number: int) -> tuple:
    """Values for the writer, encodings, and bytes of the columns."""
    wide = np.arange(300 + number, dtype=np.int16) * 7
    deep = (np.arange(2 * (number + 1) * 3, dtype=np.float32) / 4).reshape(2, number + 1, 3)
    fixed = np.arange(6, dtype=np.uint16).reshape(2, 3) + number
    text = "zwölf " * number
    jpeg, png = encoded(image(number), "JPEG"), encoded(image(number), "PNG")
    rows = [
        ("array", "ndarray:int16", wide, wide.tobytes()),
        ("bytes", "bytes", bytes(range(number)), bytes(range(number))),
        ("decimal", "str_decimal", decimal.Decimal("1.5"), b"1.5"),
        ("deep", "ndarray", deep, deep.tobytes()),
        ("fixed", "ndarray:uint16:2,3", fixed, fixed.tobytes()),
        ("float", "str_float", 0.1, b"0.1"),
        ("int", "int", number - 5, (number - 5).to_bytes(8, "little", signed=True)),
        ("jpeg", "jpeg", jpeg, jpeg),
        ("jpegs", "jpegarray", [jpeg, jpeg[:9]], listed([2], [jpeg, jpeg[:9]])),
        ("json", "json", {"n": number}, b'{"n": %d}' % number),
        ("long", "str_int", 10**30 + number, str(10**30 + number).encode()),
        ("pil", "pil", image(number), pil(image(number))),
        ("pils", "list[pil]", [image(1), image(2)], listed([0, 2], [pil(image(1)), pil(image(2))])),
        ("png", "png", png, png),
        ("pngs", "list[png]", [image(1)], listed([0, 1], [encoded(image(1), "PNG")])),
        ("text", "str", text, text.encode()),
    ]
    for dtype in SCALARS:
        value = np.dtype(dtype).type(number + 1)
        rows.append((f"x_{dtype}", dtype, value, value.tobytes()))
    expected = {name: value for name, _, _, value in rows}
    expected["deep.shape"] = shape(deep, 0, "<u1")
    return {row[0]: row[2] for row in rows}, {row[0]: row[1] for row in rows}, expected


def mds() -> None:
    """Two folders of shards, merged by the writer's own tool."""
    root = fresh("mds")
    samples = [mds_columns(number) for number in range(10)]
    for part, chosen in [("0", samples[:7]), ("1", samples[7:])]:
        with MDSWriter(out=f"{root}/{part}", columns=samples[0][1], size_limit=12000, hashes=["sha1"]) as writer:
            for values, _, _ in chosen:
                writer.write(values)
    merge_index(root, keep_local=True)
    expect("mds", [expected for _, _, expected in samples])


def zipped_mds() -> None:
    """The same samples by every compression, some with a level."""
    fresh("mds-zip")
    columns = {"array": "ndarray:int16", "number": "int", "text": "str"}
    samples, expected = [], []
    for number in range(7):
        array = np.arange(20 + number, dtype=np.int16).reshape(1, -1)
        text = "zwölf " * (3 * number)
        samples.append({"array": array, "number": number, "text": text})
        expected.append({
            "array": array.tobytes(), "array.shape": shape(array, 0, "<u1"), "number": struct.pack("<q", number),
            "text": text.encode(),
        })
    for compression in [None, "zstd", "gz:1", "br", "bz2:9", "snappy"]:
        root = fresh(f"mds-zip/{(compression or 'raw').split(':')[0]}")
        with MDSWriter(out=root, columns=columns, compression=compression, size_limit=900) as writer:
            for sample in samples:
                writer.write(sample)
    expect("mds-zip", expected)


def litdata(name: str, items: list, **options) -> None:
    root = fresh(name)
    writer = BinaryWriter(root, **options)
    for number, item in enumerate(items):
        writer.add_item(number, item)
    writer.done()
    writer.merge()
    index = Path(root, "index.json")
    content = json.loads(index.read_text())
    content["updated_at"] = "0"
    index.write_text(json.dumps(content, sort_keys=True) + "\n")


def trees() -> None:
    items, expected = [], []
    for number in range(9):
        tensor = torch.arange(6 * (number + 1), dtype=torch.int32).reshape(2, number + 1, 3)
        array = np.arange(4.0).reshape(2, 2) + number
        row = torch.arange(number, dtype=torch.int64)
        jpeg = encoded(image(number), "JPEG")
        items.append({
            "image": Jpeg(bytes=jpeg), "label": number, "score": number / 2, "flag": number % 2 == 1,
            "text": "é" * number, "raw": bytes([number]), "nest": {"a": tensor, "b": [array, row]},
            "numbers": np.arange(number + 1, dtype=np.float32),
        })
        expected.append({
            "image": jpeg, "label": struct.pack("<q", number), "score": struct.pack("<d", number / 2),
            "flag": bytes([number % 2]), "text": ("é" * number).encode(), "raw": bytes([number]),
            "nest.a": tensor.numpy().tobytes(), "nest.a.shape": struct.pack(">3I", 2, number + 1, 3),
            "nest.b.0": array.tobytes(), "nest.b.0.shape": struct.pack("<2I", 2, 2), "nest.b.1": row.numpy().tobytes(),
            "numbers": np.arange(number + 1, dtype="<f4").tobytes(),
        })
    litdata("litdata", items, chunk_size=4)
    expect("litdata", expected)


def zipped_trees() -> None:
    """The same items by everything that can be compressed at a time."""
    fresh("litdata-zip")
    items, expected = [], []
    for number in range(9):
        array = np.arange(60.0 + number, dtype=np.float32).reshape(1, -1)
        text = "fünf " * (4 * number)
        items.append({"label": number, "text": text, "numbers": array})
        expected.append({
            "label": struct.pack("<q", number), "text": text.encode(), "numbers": array.tobytes(),
            "numbers.shape": struct.pack("<2I", *array.shape),
        })
    litdata("litdata-zip/raw", items, chunk_size=4)
    litdata("litdata-zip/chunk", items, chunk_size=4, compression="zstd:7", compression_level="chunk")
    # Not every system has a ":" in names, and cargo packages none: the tests give them their names back.
    for chunk in sorted(Path(HERE, "litdata-zip/chunk").glob("*.zstd:7.bin")):
        chunk.rename(chunk.with_name(chunk.name.replace(":", "-")))
    litdata("litdata-zip/batch", items, chunk_size=7, compression="zstd", compression_batch_size=3)
    litdata("litdata-zip/sample", items, chunk_bytes=1200, compression="zstd", compression_level="sample")
    litdata("litdata-zip/sample-count", items, chunk_size=4, compression="zstd", compression_level="sample")
    expect("litdata-zip", expected)


def tokens() -> None:
    documents = [torch.arange(100 * number, 100 * number + 3 + 5 * number, dtype=torch.int32) for number in range(8)]
    litdata("litdata-tokens", documents, chunk_bytes=300, item_loader=TokensLoader())
    options = {"compression": "zstd", "compression_level": "chunk"}
    litdata("litdata-zip/tokens", documents, chunk_bytes=300, item_loader=TokensLoader(), **options)
    expect("litdata-tokens", [{"tokens": document.numpy().tobytes()} for document in documents])


def rows() -> None:
    """Rows of plain values, which litdata writes as Arrow where pyarrow is installed. Its chunks differ in their types:
    in the first, no row has `late`, `meta` is never there and all `tags` are empty; in the last, all `counts` are."""
    samples, expected = [], []
    text = lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    for number in range(9):
        tags = [f"t{at}" for at in range(number)] if number > 3 else []
        counts = list(range(number)) if number < 8 else []
        turns = [{"role": "user", "content": f'say "{number}"\n'}, {"role": "assistant", "content": "é" * number}]
        sample = {
            "id": number, "score": number / 4, "flag": number % 2 == 1, "text": None if number == 5 else "ü" * number,
            "raw": bytes(range(number)), "tags": tags, "counts": counts, "turns": turns[: number % 3],
            "meta": {"source": "web", "rank": -number} if number > 3 else None, "note": None,
        }
        if number > 3:
            sample["late"] = 10 * number
        samples.append(sample)
        expected.append({
            "id": struct.pack("<q", number), "score": struct.pack("<d", number / 4), "flag": bytes([number % 2]),
            "text": (sample["text"] or "").encode(), "raw": sample["raw"], "tags": text(tags),
            "counts": struct.pack(f"<{len(counts)}q", *counts), "turns": text(turns[: number % 3]),
            "meta.source": b"web" if number > 3 else b"", "meta.rank": struct.pack("<q", -number if number > 3 else 0),
            "late": struct.pack("<q", sample.get("late", 0)),
        })
    fresh("litdata-rows")
    litdata("litdata-rows/plain", samples, chunk_size=4)
    litdata("litdata-rows/zstd", samples, chunk_size=4, compression="zstd")
    litdata("litdata-rows/other", [{"id": "a"}, {"id": "b"}], chunk_size=2)
    expect("litdata-rows", expected)


if __name__ == "__main__":
    os.umask(0o022)
    mds()
    zipped_mds()
    trees()
    zipped_trees()
    tokens()
    rows()
