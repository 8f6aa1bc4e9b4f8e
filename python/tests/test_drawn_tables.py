"""Tables that pyarrow wrote, of types, nulls and options drawn at random: the values that pyarrow reads, or refused."""

from __future__ import annotations

import base64
import importlib.util
import io
import json
import pathlib
import tempfile
from typing import Any

import pytest

if any(importlib.util.find_spec(name) is None for name in ("hypothesis", "pyarrow")):
    pytest.skip("skipped: hypothesis or pyarrow is not installed", allow_module_level=True)

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import uringload
from drawn import settings

NUMBERS = [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64(),
           pa.float32(), pa.float64(), pa.bool_()]  # fmt: skip
TEXTS = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]
VIEWS = [pa.string_view(), pa.binary_view()]


def of(name: str, kind: pa.DataType, nullable: bool) -> pa.Field:
    return pa.field(name, kind, nullable=nullable or pa.types.is_null(kind))


@st.composite
def types(draw: st.DrawFn, has_views: bool, depth: int = 0) -> pa.DataType:
    kinds = ["number", "number", "text", "dictionary", "list", "fixed list", "tensor", "null"]
    kind = draw(st.sampled_from([*kinds, "struct", "map"] if depth < 2 else kinds))
    inner = types(has_views, depth + 1)
    if kind == "number":
        return draw(st.sampled_from(NUMBERS))
    if kind == "text":
        return draw(st.sampled_from([*TEXTS, *VIEWS] if has_views else TEXTS))
    if kind == "dictionary":
        words = draw(st.sampled_from([pa.string(), pa.int64()]))
        return pa.dictionary(draw(st.sampled_from([pa.int8(), pa.int32()])), words)
    if kind == "null":
        return pa.null()
    if kind == "tensor":
        of_numbers = of("item", draw(st.sampled_from(NUMBERS)), draw(st.booleans()))
        return pa.list_(of("item", pa.list_(of_numbers, draw(st.integers(1, 3))), draw(st.booleans())),
                        draw(st.integers(1, 3)))  # fmt: skip
    field = of("item", draw(st.sampled_from(NUMBERS) | inner), draw(st.booleans()))
    if kind == "list":
        return draw(st.sampled_from([pa.list_, pa.large_list]))(field)
    if kind == "fixed list":
        return pa.list_(field, draw(st.integers(1, 3)))
    if kind == "map":
        return pa.map_(pa.string(), draw(inner))
    return pa.struct([of(name, draw(inner), draw(st.booleans())) for name in "ab"[: draw(st.integers(1, 2))]])


def value(random: np.random.Generator, kind: pa.DataType, nullable: bool) -> Any:
    """A value of a type."""
    if pa.types.is_null(kind) or nullable and random.random() < 0.2:
        return None
    if pa.types.is_dictionary(kind):
        number = int(random.integers(0, 4))
        return f"word {number}" if pa.types.is_string(kind.value_type) else number
    if pa.types.is_boolean(kind):
        return bool(random.integers(0, 2))
    if pa.types.is_integer(kind):
        lowest = 0 if pa.types.is_unsigned_integer(kind) else -(2 ** (kind.bit_width - 1))
        return lowest + int(random.integers(0, 2**63)) % 2**kind.bit_width
    if pa.types.is_floating(kind):
        return float(np.float32(random.normal()))
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        count = kind.list_size if pa.types.is_fixed_size_list(kind) else int(random.integers(0, 4))
        return [value(random, kind.value_type, kind.value_field.nullable) for _ in range(count)]
    if pa.types.is_map(kind):
        return [(f"key {number}", value(random, kind.item_type, True)) for number in range(int(random.integers(0, 3)))]
    if pa.types.is_struct(kind):
        return {field.name: value(random, field.type, field.nullable) for field in kind}
    word = "é" * int(random.integers(0, 12)) + str(random.integers(0, 99))
    return word if kind in (pa.string(), pa.large_string(), pa.string_view()) else word.encode()


@st.composite
def tables(draw: st.DrawFn, has_views: bool) -> pa.Table:
    random = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    rows = draw(st.integers(1, 20))
    count = draw(st.integers(1, 4))
    fields = [of(f"c{number}", draw(types(has_views)), draw(st.booleans())) for number in range(count)]
    columns = [pa.array([value(random, field.type, field.nullable) for _ in range(rows + 3)], field.type)
               for field in fields]  # fmt: skip
    # Arrays that begin within their buffers.
    return pa.Table.from_arrays(columns, schema=pa.schema(fields)).slice(draw(st.integers(0, 3)), rows)


@st.composite
def arrow(draw: st.DrawFn) -> tuple[str, bytes, pa.Table]:
    table, file = draw(tables(True)), io.BytesIO()
    given = {"compression": draw(st.sampled_from([None, "lz4", "zstd"])),
             "metadata_version": draw(st.sampled_from([pa.ipc.MetadataVersion.V4, pa.ipc.MetadataVersion.V5])),
             "unify_dictionaries": True}  # fmt: skip
    new = draw(st.sampled_from([pa.ipc.new_file, pa.ipc.new_stream]))
    with new(file, table.schema, options=pa.ipc.IpcWriteOptions(**given)) as writer:
        writer.write_table(table, draw(st.integers(1, 20)))
    return f"{new.__name__} {given}", file.getvalue(), table


@st.composite
def parquet(draw: st.DrawFn) -> tuple[str, bytes, pa.Table]:
    table, file = draw(tables(False)), io.BytesIO()
    given = {
        "compression": draw(st.sampled_from(["none", "snappy", "gzip", "brotli", "zstd", "lz4"])),
        "version": draw(st.sampled_from(["1.0", "2.4", "2.6"])),
        "data_page_version": draw(st.sampled_from(["1.0", "2.0"])),
        "use_dictionary": draw(st.booleans()), "row_group_size": draw(st.integers(1, 20)),
        "data_page_size": draw(st.sampled_from([1, 64, 1 << 20])), "write_page_checksum": draw(st.booleans()),
        "write_statistics": draw(st.booleans()), "use_byte_stream_split": False,
        "store_schema": draw(st.booleans()),
    }  # fmt: skip
    try:
        pa.parquet.write_table(table, file, **given)
        read = pa.parquet.read_table(io.BytesIO(file.getvalue()))
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, OSError):
        # What it cannot write, and a few that it cannot read again.
        hypothesis.reject()
    hypothesis.assume(len(read) == len(table))
    return f"Parquet {given}", file.getvalue(), read


def plain(found: Any) -> Any:
    """A value of a batch, as Python has it."""
    return found.tolist() if isinstance(found, np.ndarray | np.generic) else found


def flat(table: pa.Table) -> pa.Table:
    """Fields of structs as columns of their own; a null of a struct is one of each field."""
    while any(pa.types.is_struct(kind) for kind in table.schema.types):
        table = table.flatten()
    return table


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def same(found: Any, want: Any, kind: pa.DataType) -> bool:
    """Whether a value is the one that was written. What is null is 0, or empty, and what is nested is JSON."""
    if pa.types.is_null(kind):
        return True
    if isinstance(found, str) and (is_list(kind) or pa.types.is_map(kind)):
        return found == "" if want is None else same_json(json.loads(found), want, kind)
    found = plain(found)
    if is_list(kind):
        return bool(found == filled(want, kind))
    if want is None:
        return bool(found in (0, "", b"", []))
    return bool(bytes(found) == want if isinstance(want, bytes) else found == want)


def filled(want: Any, kind: pa.DataType) -> Any:
    """A value with what stands for its nulls."""
    if not is_list(kind):
        return want or 0
    if want is None:
        want = [None] * kind.list_size if pa.types.is_fixed_size_list(kind) else []
    return [filled(element, kind.value_type) for element in want]


def is_whole(want: Any) -> bool:
    """Whether neither a value nor an element of it is null."""
    return want is not None and (not isinstance(want, list) or all(map(is_whole, want)))


def has_numbers(kind: pa.DataType) -> bool:
    """Whether it is a list of numbers, also within others."""
    return is_list(kind) and (kind.value_type in NUMBERS or has_numbers(kind.value_type))


def lengths(kind: pa.DataType) -> tuple[int, ...] | None:
    """The shape of a list of numbers, where all rows have one."""
    inner: tuple[int, ...] | None = ()
    if is_list(kind):
        inner = lengths(kind.value_type)
        return (kind.list_size, *inner) if pa.types.is_fixed_size_list(kind) and inner is not None else None
    return inner if kind in NUMBERS else None


def same_json(found: Any, want: Any, kind: pa.DataType) -> bool:
    if want is None or found is None:
        return want is found
    if pa.types.is_map(kind):
        return list(found) == [key for key, _ in want] and all(
            same_json(found[key], item, kind.item_type) for key, item in want
        )
    if pa.types.is_struct(kind):
        return all(same_json(found[field.name], want[field.name], field.type) for field in kind)
    if isinstance(want, list):
        return len(found) == len(want) and all(
            same_json(one, other, kind.value_type) for one, other in zip(found, want, strict=True)
        )
    if pa.types.is_float32(kind):
        return np.float32(found) == np.float32(want)
    return bool(found == (base64.b64encode(want).decode() if isinstance(want, bytes) else want))


def check(what: str, file: bytes, table: pa.Table, suffix: str) -> list[str]:
    """Compares a file with a table, and returns the columns that were left out."""
    table = flat(table)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / f"0.{suffix}"
        path.write_bytes(file)
        try:
            dataset = uringload.Dataset(path, nulls="mask")
        except uringload.UnavailableError:
            return list(table.column_names)
        with uringload.DataLoader(dataset, len(table), output="numpy") as loader:
            batch = next(iter(loader))
    left_out = []
    for field, column in zip(table.schema, table.columns, strict=True):
        if field.name not in batch:
            left_out.append(field.name)
            continue
        told = f"{what}: {field}"
        shape = dataset.columns[field.name][1]
        assert not has_numbers(field.type) or shape == lengths(field.type), f"{told}: {shape}"
        for row, want in enumerate(column.to_pylist(maps_as_pydicts=None)):
            found = batch[field.name][row]
            assert same(found, want, field.type), f"{told}, row {row}: {found!r} is not {want!r}"
            mask = batch.get(f"{field.name}.valid")
            whole = want is not None and (isinstance(found, str) or is_whole(want))
            assert mask is None or bool(mask[row]) == whole, f"{told}, row {row}: {want!r} has a mask {mask[row]}"
            assert mask is not None or whole, f"{told}, row {row}: {want!r} has no mask"
    return left_out


@settings(1)
@hypothesis.given(arrow())
def test_files_of_arrow(drawn: tuple[str, bytes, pa.Table]) -> None:
    check(*drawn, suffix="arrow")


@settings(1)
@hypothesis.given(parquet())
def test_files_of_parquet(drawn: tuple[str, bytes, pa.Table]) -> None:
    check(*drawn, suffix="parquet")


@pytest.mark.parametrize("codec", ["LZ4", "ZSTD", "lz4", "zstd"])
def test_buffers_that_arrow_0_17_compressed_are_decompressed(tmp_path: pathlib.Path, codec: str) -> None:
    numbers = pa.array(np.arange(1000) // 100, pa.int64())
    stored = pa.compress(numbers.buffers()[1], "lz4" if codec.lower() == "lz4" else "zstd")
    # Each buffer says how long it is.
    length = np.array([numbers.buffers()[1].size], "<i8").tobytes()
    file = length + stored.to_pybytes()
    array = pa.Array.from_buffers(pa.int64(), 1000, [None, pa.py_buffer(file.ljust(8000, b"\0"))])
    options = pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V4)
    batch = pa.RecordBatch.from_arrays([array], ["x"])
    with pa.ipc.new_file(tmp_path / "0.feather", batch.schema, options=options) as writer:
        writer.write_batch(batch, custom_metadata={"ARROW:experimental_compression": codec})
    # The batch says where the buffer lies, and how long it is.
    plain, short = (np.array([0, size], "<i8").tobytes() for size in (8000, len(file)))
    whole = (tmp_path / "0.feather").read_bytes()
    assert plain in whole
    (tmp_path / "0.feather").write_bytes(whole.replace(plain, short, 1))
    assert pa.feather.read_table(tmp_path / "0.feather")["x"].combine_chunks() == numbers
    with uringload.DataLoader(tmp_path, 1000, output="numpy") as loader:
        assert next(iter(loader))["x"].tolist() == numbers.to_pylist()


def test_elements_of_lists_without_nulls_may_be_null(tmp_path: pathlib.Path) -> None:
    field = pa.field("x", pa.list_(pa.int64()), nullable=False)
    table = pa.table([pa.array([[1, None], [2]], field.type)], schema=pa.schema([field]))
    assert check("a list", written(table), table, "arrow") == []


SIX = [[float(row + number) for number in range(6)] for row in range(4)]


def write_lists(path: pathlib.Path, rows: list[Any], length: int | None, note: bytes | None = None) -> None:
    """A column x of lists, whose length Arrow's schema in the footer says; or without it, or with another one."""
    kind = pa.list_(pa.float32()) if length is None else pa.list_(pa.float32(), length)
    table = pa.table({"x": pa.array(rows, kind)})
    with pa.parquet.ParquetWriter(path, table.schema, store_schema=length is not None) as writer:
        writer.write_table(table)
        if note is not None:
            writer.add_key_value_metadata({"ARROW:schema": note.decode()})


def read(path: pathlib.Path) -> list[Any]:
    with uringload.DataLoader(path, 100, output="numpy") as loader:
        return [row.tolist() for batch in loader for row in batch["x"]]


def test_the_first_file_says_whether_lists_have_a_length(tmp_path: pathlib.Path) -> None:
    for name, length in (("0", 6), ("1", None), ("2", 6)):
        write_lists(tmp_path / f"{name}.parquet", SIX, length)
    for given in ({}, {"columns": ["x"]}):
        assert uringload.Dataset(tmp_path, **given).columns == {"x": ("f32", (6,))}
    assert read(tmp_path) == SIX * 3
    (tmp_path / "0.parquet").unlink()
    assert uringload.Dataset(tmp_path).columns == {"x": ("f32", None)}
    assert read(tmp_path) == SIX * 2


def test_rows_of_another_length_are_named(tmp_path: pathlib.Path) -> None:
    write_lists(tmp_path / "0.parquet", SIX, 6)
    write_lists(tmp_path / "1.parquet", [SIX[0], SIX[1][:5]], None)
    with pytest.raises(uringload.CorruptError, match=r"row 1 of it has not the shape \[6\]") as caught:
        read(tmp_path)
    assert "1.parquet" in str(caught.value) and "store_schema=False" in str(caught.value)
    write_lists(tmp_path / "1.parquet", [[1.0] * 7], 7)
    with pytest.raises(uringload.CorruptError, match=r"of shape \[7\].*of shape \[6\]") as caught:
        uringload.Dataset(tmp_path)
    assert "1.parquet" in str(caught.value)


def noted(*fields: tuple[str, pa.DataType]) -> bytes:
    return base64.b64encode(pa.schema(fields).serialize().to_pybytes())


@pytest.mark.parametrize("note", [
    noted(), noted(("y", pa.list_(pa.float32(), 6))), noted(("x", pa.int8())), noted(("x", pa.list_(pa.float32()))),
    noted(("x", pa.list_(pa.float32(), 6)), ("y", pa.int8())), noted(("x", pa.list_(pa.list_(pa.int8(), 6), 6))),
])  # fmt: skip
def test_an_arrow_schema_of_another_table_does_not_count(tmp_path: pathlib.Path, note: bytes) -> None:
    write_lists(tmp_path / "0.parquet", [*SIX, [1.0]], None, note)
    assert uringload.Dataset(tmp_path).columns == {"x": ("f32", None)}
    assert read(tmp_path) == [*SIX, [1.0]]


@pytest.mark.parametrize("note", [b"", b"!", b"AAAA", noted()[:40], noted()[:-30] + b"?" * 30])
def test_a_broken_arrow_schema_is_named(tmp_path: pathlib.Path, note: bytes) -> None:
    write_lists(tmp_path / "0.parquet", SIX, None, note)
    with pytest.raises(uringload.CorruptError, match="the Arrow schema in the footer is broken") as caught:
        uringload.Dataset(tmp_path)
    assert "0.parquet" in str(caught.value) and "store_schema=False" in str(caught.value)


def test_lengths_that_an_arrow_schema_makes_up_are_refused(tmp_path: pathlib.Path) -> None:
    for length in (5, 7, 2**31 - 1):
        write_lists(tmp_path / "0.parquet", SIX, None, noted(("x", pa.list_(pa.float32(), length))))
        with pytest.raises((uringload.CorruptError, uringload.MemoryLimitError)):
            read(tmp_path)
    with pytest.raises(uringload.UnavailableError, match="negative"):
        write_lists(tmp_path / "0.parquet", SIX, None, negative(noted(("x", pa.list_(pa.float32(), 12345)))))
        uringload.Dataset(tmp_path)


def negative(note: bytes) -> bytes:
    """The note with a length below 0."""
    length, below = ((12345).to_bytes(4, "little"), (-12345).to_bytes(4, "little", signed=True))
    return base64.b64encode(base64.b64decode(note).replace(length, below))


def test_states_and_episodes_of_lerobot(tmp_path: pathlib.Path) -> None:
    six = pa.list_(pa.float32(), 6)
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta" / "info.json").write_text('{"codebase_version": "v2.1"}')
    for folder in ("data", "videos"):
        (tmp_path / folder / "chunk-000").mkdir(parents=True)
    for episode in range(3):
        states = [[float(10 * episode + row)] * 6 for row in range(4 + episode)]
        rows = pa.table({"observation.state": pa.array(states, six), "action": pa.array(states, six),
                         "timestamp": pa.array([row / 30 for row in range(len(states))], pa.float32()),
                         "episode_index": [episode] * len(states), "frame_index": range(len(states))})  # fmt: skip
        pa.parquet.write_table(rows, tmp_path / "data" / "chunk-000" / f"episode_{episode:06}.parquet")
        (tmp_path / "videos" / "chunk-000" / f"episode_{episode:06}.mp4").write_bytes(b"a film")
    with pytest.raises(uringload.InvalidArgumentError, match="looks like a LeRobot dataset: open its tables, .*/data"):
        uringload.Dataset(tmp_path)
    with uringload.DataLoader(tmp_path / "data", 5, output="numpy") as loader:
        batches = list(loader)
    assert [batch["observation.state"].shape for batch in batches] == [(5, 6)] * 3
    assert batches[0]["timestamp"].dtype == np.float32 and batches[0]["action"].dtype == np.float32
    episodes = np.concatenate([batch["episode_index"] for batch in batches])
    assert episodes.tolist() == [0] * 4 + [1] * 5 + [2] * 6
    some = uringload.Dataset(tmp_path / "data", only=np.flatnonzero(np.isin(episodes, [0, 2])))
    with uringload.DataLoader(some, 100, output="numpy", shuffle=True) as loader:
        (batch,) = loader
    assert sorted(batch["episode_index"].tolist()) == [0] * 4 + [2] * 6
    assert (batch["action"][:, 0] == 10 * batch["episode_index"] + batch["frame_index"]).all()


def test_two_columns_of_one_name_are_refused(tmp_path: pathlib.Path) -> None:
    table = pa.table([pa.array([1, 2]), pa.array(["c", "d"]), pa.array([5, 6])], names=["x", "x", "y"])
    (tmp_path / "0.arrow").write_bytes(written(table))
    for given in ({}, {"columns": ["x"]}):
        with pytest.raises(uringload.InvalidArgumentError, match="two columns of the file are called \"x\""):
            uringload.Dataset(tmp_path, **given)
    assert list(uringload.Dataset(tmp_path, columns=["y"]).columns) == ["y"]


def test_unions_of_version_4_do_not_move_what_is_behind_them(tmp_path: pathlib.Path) -> None:
    union = pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])])
    table = pa.table([union, pa.array([7, 8])], names=["u", "x"])
    assert check("a union", written(table, pa.ipc.MetadataVersion.V4), table, "arrow") == ["u"]


def written(table: pa.Table, version: Any = pa.ipc.MetadataVersion.V5) -> bytes:
    file = io.BytesIO()
    with pa.ipc.new_file(file, table.schema, options=pa.ipc.IpcWriteOptions(metadata_version=version)) as writer:
        writer.write_table(table)
    return file.getvalue()


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
@pytest.mark.parametrize("values", [list(range(100)), [f"word {number}" for number in range(100)]])
def test_a_chunk_that_says_it_has_no_decoded_bytes_is_read(
    tmp_path: pathlib.Path, values: list[Any], compression: str
) -> None:
    table = pa.table({"x": values})
    pa.parquet.write_table(table, tmp_path / "0.parquet", compression=compression, data_page_size=64)
    file = bytearray((tmp_path / "0.parquet").read_bytes())
    said = pa.parquet.read_metadata(tmp_path / "0.parquet").row_group(0).column(0).total_uncompressed_size
    footer = len(file) - 8 - int.from_bytes(file[-8:-4], "little")
    # Field 6, an integer in zigzag: as many bytes that say 0.
    number = b"\x16" + bytes([said * 2 & 127 | 128, said * 2 >> 7])
    assert number in file[footer:]
    at = file.index(number, footer)
    file[at + 1 : at + 3] = b"\x80\0"
    (tmp_path / "0.parquet").write_bytes(file)
    assert check("0 bytes", bytes(file), table, "parquet") == []
