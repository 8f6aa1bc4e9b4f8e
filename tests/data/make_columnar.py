#!/usr/bin/env python3
"""Writes tests/data/columnar: small Parquet and Arrow files by pyarrow, which the tests read.

Needs pyarrow; the tests do not. Run it in a scratch environment and check in what changes:

    python3 -m venv .venv && .venv/bin/pip install pyarrow && .venv/bin/python tests/data/make_columnar.py

The files called legacy are by a version before 19, which the script must be run with as well (pyarrow<19).

rows.json has the bytes that each value of the files called types is to be delivered as, in hexadecimal; by its own
reckoning, not by that of the files.
"""

import datetime
import decimal
import json
import pathlib
import random
import struct
import sys

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import ipc

OUT = pathlib.Path(__file__).parent / "columnar"
ROWS = 10


def pack(form, *numbers):
    return struct.pack("<" + form * len(numbers), *numbers)


def text(row):
    return "" if row == 3 else f"row {row} " * (row % 4 + 1)


def label(row):
    return ["cat", "dog", "a longer label"][row % 3]


def big(row, bits):
    return (-1) ** row * (10**20 + row) % 2**bits


def columns():
    """Name, type, value of a row, its bytes; of types that Parquet stores otherwise, its bytes there."""
    for bits, form in [(8, "b"), (16, "h"), (32, "i"), (64, "q")]:
        low = -(2 ** (bits - 1))
        packed = lambda row, low=low, form=form: pack(form, low + row)
        yield f"i{bits}", pa.type_for_alias(f"int{bits}"), lambda row, low=low: low + row, packed
        high = 2**bits - 1
        packed = lambda row, high=high, form=form: pack(form.upper(), high - row)
        yield f"u{bits}", pa.type_for_alias(f"uint{bits}"), lambda row, high=high: high - row, packed
    yield "bool", pa.bool_(), lambda row: row % 3 == 0, lambda row: bytes([row % 3 == 0])
    yield "f16", pa.float16(), lambda row: row / 2, lambda row: pack("e", row / 2)
    yield "f32", pa.float32(), lambda row: row / 2, lambda row: pack("f", row / 2)
    yield "f64", pa.float64(), lambda row: row / 3, lambda row: pack("d", row / 3)
    yield "fixed_binary", pa.binary(3), lambda row: bytes([row] * 3), lambda row: bytes([row] * 3)
    for name, kind in [("binary", pa.binary()), ("large_binary", pa.large_binary()), ("binary_view", pa.binary_view())]:
        yield name, kind, lambda row: bytes([row]) * row, lambda row: bytes([row]) * row
    for name, kind in [("string", pa.string()), ("large_string", pa.large_string()), ("string_view", pa.string_view())]:
        yield name, kind, text, lambda row: text(row).encode()
    yield "list", pa.list_(pa.int32()), lambda row: list(range(row % 4)), lambda row: pack("i", *range(row % 4))
    repeated = lambda row: [row] * (row % 3)
    yield "large_list", pa.large_list(pa.float32()), repeated, lambda row: pack("f", *repeated(row))
    yield "fixed_list", pa.list_(pa.float32(), 3), lambda row: [row, 1, 2], lambda row: pack("f", row, 1, 2)
    yield "bools", pa.list_(pa.bool_()), lambda row: [True, False] * (row % 3), lambda row: bytes([1, 0] * (row % 3))
    yield "date32", pa.date32(), lambda row: datetime.date.fromordinal(719163 + row), lambda row: pack("i", row)
    day = lambda row: datetime.date.fromordinal(719163 + row)
    yield "date64", pa.date64(), day, lambda row: pack("q", row * 86400000), lambda row: pack("i", row)
    yield "time32", pa.time32("ms"), lambda row: datetime.time(0, 0, row), lambda row: pack("i", 1000 * row)
    yield "time64", pa.time64("us"), lambda row: datetime.time(0, 0, row), lambda row: pack("q", 1000000 * row)
    yield "timestamp", pa.timestamp("us", "UTC"), lambda row: row * 1000, lambda row: pack("q", row * 1000)
    yield "duration", pa.duration("ns"), lambda row: row, lambda row: pack("q", row)
    wide = lambda number, length: number.to_bytes(length, "little", signed=True)
    number = lambda row: decimal.Decimal(-row).scaleb(-2)
    yield "decimal_10", pa.decimal128(10, 2), number, lambda row: wide(-row, 16), lambda row: pack("q", -row)
    number = lambda row: decimal.Decimal(-(10**25) - row).scaleb(-2, decimal.Context(prec=50))
    yield "decimal_30", pa.decimal128(30, 2), number, lambda row: wide(-(10**25) - row, 16)
    number = lambda row: decimal.Decimal(10**45 + row).scaleb(-3, decimal.Context(prec=60))
    yield "decimal_50", pa.decimal256(50, 3), number, lambda row: wide(10**45 + row, 32)
    yield "label", pa.dictionary(pa.int8(), pa.string()), label, lambda row: label(row).encode()
    parity = lambda row: row % 2 + 5
    yield "number_label", pa.dictionary(pa.uint16(), pa.int64()), parity, lambda row: pack("q", parity(row))
    image = lambda row: {"bytes": bytes([255 - row]) * (20 + row), "path": f"{row}.jpg"}
    yield "image", pa.struct([("bytes", pa.binary()), ("path", pa.string())]), image, None


def types():
    arrays, expected = {}, {"arrow": {}, "parquet": {}}
    for name, kind, value, as_bytes, *others in columns():
        values = [value(row) for row in range(ROWS)]
        if pa.types.is_dictionary(kind):
            arrays[name] = pa.array(values, kind.value_type).dictionary_encode().cast(kind)
        else:
            arrays[name] = pa.array(values, kind)
        if name == "image":
            for form in expected.values():
                form["image"] = [value["bytes"].hex() for value in values]
            continue
        expected["arrow"][name] = [as_bytes(row).hex() for row in range(ROWS)]
        expected["parquet"][name] = [(others or [as_bytes])[0](row).hex() for row in range(ROWS)]
    (OUT / "rows.json").write_text(json.dumps(expected, indent=0) + "\n")
    return pa.table(arrays)


def without_views(table):
    """Parquet knows no views; their columns come as what they are views of."""
    kinds = {pa.binary_view(): pa.binary(), pa.string_view(): pa.string()}
    for number, field in enumerate(table.schema):
        if field.type in kinds:
            table = table.set_column(number, field.name, table.column(number).cast(kinds[field.type]))
    return table


def write_parquet(table):
    table = without_views(table)
    for codec in ["none", "snappy", "gzip", "zstd", "brotli", "lz4"]:
        for version in ["1.0", "2.0"]:
            pq.write_table(
                table,
                OUT / f"types-{codec}-v{version[0]}.parquet",
                row_group_size=4,
                compression=codec,
                data_page_version=version,
                use_dictionary=codec in ["snappy", "zstd", "none"],
                write_page_checksum=True,
                store_decimal_as_integer=codec == "gzip",
                write_page_index=codec == "zstd",
            )
    # Two files of one dataset, and one that does not belong to them.
    small = table.select(["i32", "string"])
    (OUT / "split").mkdir(exist_ok=True)
    pq.write_table(small.slice(0, 6), OUT / "split" / "a.parquet", row_group_size=4)
    pq.write_table(small.slice(6), OUT / "split" / "b.parquet")
    pq.write_table(table.select(["i64", "string"]), OUT / "other.parquet")
    for encoding in ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY", "PLAIN"]:
        pq.write_table(
            table.select(["string"]),
            OUT / f"{encoding.lower()}.parquet",
            use_dictionary=False,
            column_encoding={"string": encoding},
            data_page_size=32,
            write_batch_size=2,
        )
    pq.write_table(table.select(["string", "i64"]), OUT / "with_one_more.parquet")
    integers = table.select(["i32", "i64"])
    pq.write_table(
        integers,
        OUT / "delta_integers.parquet",
        use_dictionary=False,
        column_encoding={"i32": "DELTA_BINARY_PACKED", "i64": "BYTE_STREAM_SPLIT"},
    )
    write_dictionaries("")


def write_dictionaries(prefix):
    """A dictionary that becomes too large, so that strings follow one by one; of old writers, others too."""
    random.seed(7)
    long = [random.randbytes(60).hex() for _ in range(40)]
    table = pa.table({"text": [long[row % 40 if row < 60 else 39] for row in range(100)]})
    pages = {"dictionary_pagesize_limit": 1000, "write_batch_size": 4, "data_page_size": 256}
    pq.write_table(table, OUT / f"{prefix}overflow.parquet", **pages)
    if not prefix:
        return
    # Long and without repetition, and short when it is compressed.
    table = pa.table({"image": [bytes([row]) * 100_000 for row in range(20)]})
    pq.write_table(table, OUT / f"{prefix}images.parquet", compression="zstd")
    table = pa.table({"label": [label(row) for row in range(1000)]})
    pq.write_table(table, OUT / f"{prefix}labels.parquet")


def write_nulls():
    table = pa.table(
        {
            "number": pa.array([1, None, 3, 4], pa.int32()),
            "text": pa.array(["a", "b", None, ""], pa.string()),
            "list": pa.array([[1], [2, None], None, []], pa.list_(pa.int16())),
            "image": pa.array([{"bytes": b"x"}, None, {"bytes": None}, {"bytes": b"yz"}],
                              pa.struct([("bytes", pa.binary())])),
            "label": pa.array(["a", None, "b", "a"]).dictionary_encode(),
        }
    )
    pq.write_table(table, OUT / "nulls.parquet")
    with ipc.new_file(OUT / "nulls.arrow", table.schema) as writer:
        writer.write_table(table)
    half = pa.array([1.5, None, -2], pa.float16())
    numbers = pa.table(
        {
            "i32": pa.array([7, None, -7], pa.int32()),
            "bool": pa.array([True, None, False]),
            "f16": half,
            "f32": pa.array([1.5, None, -2], pa.float32()),
            "f64": pa.array([1.5, None, -2], pa.float64()),
            "decimal": pa.array([decimal.Decimal(1), None, decimal.Decimal(2)], pa.decimal128(25, 0)),
            "floats": pa.array([[1.5, None, None], None, []], pa.list_(pa.float32())),
            "shorts": pa.array([[None, 2], [3], None], pa.list_(pa.int16())),
            "pair": pa.array([[1.5, None], None, [2, 3]], pa.list_(pa.float64(), 2)),
            "none": pa.array([4, 5, 6], pa.uint8()),
        },
    )
    numbers = numbers.cast(numbers.schema.set(9, pa.field("none", pa.uint8(), nullable=False)))
    pq.write_table(numbers, OUT / "numbers.parquet")
    with ipc.new_file(OUT / "numbers.arrow", numbers.schema) as writer:
        writer.write_table(numbers)
    required = pa.schema([pa.field("number", pa.int32(), nullable=False),
                          pa.field("text", pa.string(), nullable=False)])
    pq.write_table(pa.table({"number": [1, 2], "text": ["a", "b"]}, schema=required), OUT / "required.parquet")


def write_empty():
    schema = pa.schema([("id", pa.int64())])
    with ipc.new_file(OUT / "empty.arrow", schema):
        pass
    pq.write_table(schema.empty_table(), OUT / "empty.parquet")


def chats():
    """Nested columns by their values, and what JSON text each row becomes."""
    message = pa.struct([("role", pa.string()), ("content", pa.string())])
    cents = decimal.Decimal("12.34")
    moment = datetime.datetime(2024, 1, 2, 3, 4, 5, 678)
    since = 1704164645000678
    yield "messages", pa.list_(message), [
        ([{"role": "user", "content": 'Say "hi"\n\tü'}, {"role": "assistant", "content": None}],) * 2,
        ([], []),
        (None, None),
        ([None, {"role": "", "content": "\x1b[1m"}],) * 2,
    ]
    words = [["a", ""], [], None, ["\\", None, "ß"]]
    yield "words", pa.list_(pa.string()), [(row, row) for row in words]
    yield "large_words", pa.large_list(pa.large_string()), [(row, row) for row in words]
    deep = [[[1, 2], [], None], [], None, [[None, -7]]]
    yield "lists", pa.list_(pa.list_(pa.int32())), [(row, row) for row in deep]
    tags = [[("a", 1), ("b", None)], [], None, [("ü", -3)]]
    yield "map", pa.map_(pa.string(), pa.int64()), [(row, None if row is None else dict(row)) for row in tags]
    numbers = [[(1, [True])], [], None, [(-2, None)]]
    yield "numbered", pa.map_(pa.int32(), pa.list_(pa.bool_())), [
        (row, None if row is None else {str(key): value for key, value in row}) for row in numbers
    ]
    images = [[{"bytes": b"\xff\x00\x01", "path": "a.jpg"}], [{"bytes": b"", "path": None}], [], None]
    shown = [[{"bytes": "/wAB", "path": "a.jpg"}], [{"bytes": "", "path": None}], [], None]
    yield "images", pa.list_(pa.struct([("bytes", pa.binary()), ("path", pa.string())])), list(zip(images, shown))
    kinds = [
        ("i8", pa.int8(), -128, -128),
        ("u64", pa.uint64(), 2**64 - 1, 2**64 - 1),
        ("f16", pa.float16(), 0.5, 0.5),
        ("f32", pa.float32(), 0.25, 0.25),
        ("f64", pa.float64(), 1 / 3, 1 / 3),
        ("no", pa.float64(), float("-inf"), float("-inf")),
        ("ok", pa.bool_(), True, True),
        ("cents", pa.decimal128(10, 2), cents, 12.34),
        ("long", pa.decimal256(50, 3), decimal.Decimal("-0.005"), -0.005),
        ("day", pa.date32(), moment.date(), 19724),
        ("at", pa.timestamp("us"), moment, since),
        ("three", pa.binary(3), b"abc", "YWJj"),
        ("pair", pa.list_(pa.int16(), 2), [1, 2], [1, 2]),
        ("in", pa.struct([("a", pa.list_(pa.struct([("b", pa.list_(pa.string()))])))]),
         {"a": [{"b": ["x"]}, {"b": None}]}, None),
    ]
    everything = pa.list_(pa.struct([(name, kind) for name, kind, _, _ in kinds]))
    row = {name: value for name, _, value, _ in kinds}
    told = {name: value if told is None else told for name, _, value, told in kinds}
    lacking = {name: None for name in row}
    yield "everything", everything, [([row], [told]), ([row, None], [told, None]), ([], []), ([lacking], [lacking])]


def write_chats():
    """Chats and other nested columns, with what JSON text they are in nested.json; structs are columns of their own."""
    columns = {name: (kind, rows) for name, kind, rows in chats()}
    table = pa.table({name: pa.array([row for row, _ in rows], kind) for name, (kind, rows) in columns.items()})
    inner = pa.array([{"tags": ["a"], "n": 1}, None, {"tags": [], "n": 2}, {"tags": None, "n": None}],
                     pa.struct([("tags", pa.list_(pa.string())), ("n", pa.int64())]))
    table = table.append_column("info", inner)
    text = lambda told: None if told is None else json.dumps(told, separators=(",", ":"), ensure_ascii=False)
    expected = {name: [text(told) for _, told in rows] for name, (_, rows) in columns.items()}
    expected["info.tags"] = ['["a"]', None, "[]", None]
    (OUT / "nested.json").write_text(json.dumps(expected, indent=0) + "\n")
    for codec, version, group in [("none", "1.0", 4), ("zstd", "2.0", 3), ("snappy", "1.0", 1)]:
        name = OUT / f"nested-{codec}.parquet"
        pq.write_table(table, name, row_group_size=group, compression=codec, data_page_version=version,
                       data_page_size=32, write_batch_size=1)
    for codec in [None, "lz4", "zstd"]:
        options = ipc.IpcWriteOptions(compression=codec)
        with ipc.new_file(OUT / f"nested-{codec or 'none'}.arrow", table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=3)
    views = pa.table({"words": pa.array([["short", "longer than twelve bytes"], [], None], pa.list_(pa.string_view()))})
    with ipc.new_file(OUT / "nested-views.arrow", views.schema) as writer:
        writer.write_table(views)


def write_tensors():
    """Lists of one length, and such within each other, with nulls of each level."""
    states = pa.array([[0, 1, 2], None, [3, None, 5], [6, 7, 8]], pa.list_(pa.float32(), 3))
    grids = [[[0, 1, 2], [3, 4, 5]], [None, [1, 2, 3]], None, [[None, 7, 8], [9, 10, 11]]]
    table = pa.table({"state": states, "grid": pa.array(grids, pa.list_(pa.list_(pa.int16(), 3), 2))})
    pq.write_table(table, OUT / "tensors.parquet", row_group_size=4)
    write_file(table, OUT / "tensors.arrow")


def write_large():
    """Much more when it is decoded than when it is stored: for what decoding takes."""
    rows = 4000
    columns = {
        "text": [chr(97 + row % 26) * 250 for row in range(rows)],
        "words": [["word " * 20, None, str(row % 10)] for row in range(rows)],
        "label": ["a longer label than most are"] * rows,
        "number": [row % 7 for row in range(rows)],
    }
    table = pa.table(columns)
    for codec in ["none", "zstd", "snappy"]:
        chosen = table if codec != "none" else table.slice(0, 100)
        name = OUT / f"large-{codec}.parquet"
        pq.write_table(chosen, name, row_group_size=2000, compression=codec, use_dictionary=["label"])
    for codec in ["lz4", "zstd"]:
        options = ipc.IpcWriteOptions(compression=codec)
        with ipc.new_file(OUT / f"large-{codec}.arrow", table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=2000)


def write_unreadable():
    """Columns that cannot be read between others, and files with columns in another order, or more or fewer."""
    union = pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])])
    table = pa.table({"id": [1, 2], "union": union, "nothing": pa.nulls(2), "text": ["a", "b"]})
    with ipc.new_file(OUT / "odd.arrow", table.schema) as writer:
        writer.write_table(table)
    # What nested columns may not have inside, each before a column that can be read.
    words = pa.array(["x", "y", "x"]).dictionary_encode()
    dense = pa.UnionArray.from_dense(pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()),
                                     [pa.array([1]), pa.array(["z"])])
    table = pa.table(
        {
            "id": [1, 2],
            "words": pa.ListArray.from_arrays([0, 2, 3], words),
            "views": pa.array([[1], [2, 3]], pa.list_view(pa.int32())),
            "union": dense,
            "unions": pa.ListArray.from_arrays([0, 1, 2], dense),
            "runs": pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array([7])),
            "text": ["a", "b"],
        }
    )
    with ipc.new_file(OUT / "nested-odd.arrow", table.schema) as writer:
        writer.write_table(table)
    # A map whose keys are structs.
    keys = pa.map_(pa.struct([("a", pa.int32())]), pa.int32())
    table = pa.table({"id": [1, 2], "keys": pa.array([[({"a": 1}, 1)], []], keys), "text": ["a", "b"]})
    pq.write_table(table, OUT / "odd.parquet")
    for kind, write in [("parquet", pq.write_table), ("arrow", write_file)]:
        folder = OUT / f"order-{kind}"
        folder.mkdir(exist_ok=True)
        write(pa.table({"id": [1, 2], "text": ["a", "b"], "list": [[1], []]}), folder / f"a.{kind}")
        write(pa.table({"list": [[2, 3]], "more": [1.5], "id": [3], "text": ["c"]}), folder / f"b.{kind}")
        write(pa.table({"text": ["d"], "list": [[4]]}), OUT / f"fewer.{kind}")


def write_file(table, path):
    with ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)


def write_arrow(table):
    for codec in [None, "lz4", "zstd"]:
        options = ipc.IpcWriteOptions(compression=codec)
        for kind, new in [("file", ipc.new_file), ("stream", ipc.new_stream)]:
            with new(OUT / f"types-{kind}-{codec or 'none'}.arrow", table.schema, options=options) as writer:
                writer.write_table(table, max_chunksize=4)
    (OUT / "split-arrow").mkdir(exist_ok=True)
    small = table.select(["i32", "string"])
    for name, part in [("a", small.slice(0, 6)), ("b", small.slice(6))]:
        # A slice is written with what is cut away of it.
        with ipc.new_stream(OUT / "split-arrow" / f"{name}.arrow", part.schema) as writer:
            writer.write_table(part, max_chunksize=4)
    with ipc.new_file(OUT / "other.arrow", table.select(["i64", "string"]).schema) as writer:
        writer.write_table(table.select(["i64", "string"]))
    # A dictionary that grows, and one that is replaced.
    parts = [pa.array(words).dictionary_encode() for words in [["a", "bb"], ["a", "bb", "ccc", "a"], ["dddd", "e"]]]
    schema = pa.schema([("word", parts[0].type)])
    options = ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    with ipc.new_stream(OUT / "dictionaries.arrow", schema, options=options) as writer:
        for part in parts:
            writer.write_batch(pa.record_batch([part], schema=schema))


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    if int(pa.__version__.split(".")[0]) < 19:
        # Footers of these versions do not tell how long strings are.
        sys.exit(write_dictionaries("legacy-"))
    table = types()
    write_parquet(table)
    write_nulls()
    write_empty()
    write_chats()
    write_unreadable()
    write_tensors()
    write_large()
    write_arrow(table)
