"""Tensors: without a copy where that is right, writable, alive as long as they are held, and freed once."""

from __future__ import annotations

import gc
import json
import pathlib

import conftest
import pytest
from conftest import RECORDS, needs_torch, numbers, of_records

import uringload
from uringload import DataLoader, Padded, Ragged

np = pytest.importorskip("numpy")


def test_arrays_are_writable_and_outlive_the_loader(records: pathlib.Path) -> None:
    loader = DataLoader(**of_records(records))
    batches = [batch["data"] for batch in loader]
    loader.close()
    del loader
    gc.collect()
    assert [int(row[0]) for data in batches for row in data] == list(range(RECORDS))
    for data in batches:
        assert data.flags.writeable and data.flags.c_contiguous and data.dtype == np.int32
        data += 1
    assert [int(row[63]) for data in batches for row in data] == list(range(1, RECORDS + 1))


def test_what_is_written_to_is_no_other_batchs(records: pathlib.Path) -> None:
    with DataLoader(**of_records(records, memory_limit="4MiB", batch_size=100)) as loader:
        for _ in range(5):
            seen = []
            for batch in loader:
                seen += numbers(batch)
                batch["data"][:] = -1
            assert seen == list(range(RECORDS))


def test_a_sample_that_comes_twice_is_two(records: pathlib.Path) -> None:
    given = of_records(records, sampler=[3, 3, 4, 3], batch_size=4)
    for collate in ("auto", "list"):
        with DataLoader(**{**given, "collate": collate}) as loader:
            data = next(iter(loader))["data"]
            data[0][:] = 99
            assert [int(row[0]) for row in data] == [99, 3, 4, 3]


def test_windows_that_overlap_are_apart(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "tokens.bin"
    path.write_bytes(np.arange(100, dtype=np.uint16).tobytes())
    given = {"format": "tokens", "token_dtype": "u16", "window_tokens": 10, "stride": 5, "batch_size": 4}
    for collate in ("auto", "list"):
        with DataLoader(path, output="numpy", collate=collate, **given) as loader:
            data = next(iter(loader))
            (rows,) = data.values()
            rows[0][:] = 0
            assert rows[1].tolist() == list(range(5, 15))


def test_units_are_shared_by_batches_and_not_by_arrays(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "packed.npz"
    np.savez_compressed(path, data=np.arange(600, dtype=np.int64).reshape(60, 10))
    for collate in ("auto", "list"):
        with DataLoader(path, rows=True, batch_size=7, output="numpy", collate=collate, io="buffered") as loader:
            for _ in range(2):
                seen = []
                for batch in loader:
                    for row in batch["data"]:
                        seen.append(int(row[0]))
                        row[:] = -1
                assert seen == list(range(0, 600, 10))


def test_forms(folder: pathlib.Path) -> None:
    given = {"batch_size": 16, "output": "numpy", "key": True, "index": True}
    with DataLoader(folder, **given) as loader:
        plain = next(iter(loader))
        assert isinstance(plain["data"], list) and plain["data"][3].dtype == np.uint8
        assert plain["label"].tolist() == [0] * 16 and plain["index"].tolist() == plain.ids == list(range(16))
        assert plain["key"][0] == "cat/0001.dat" and loader.dataset.classes == ["cat", "dog"]
        assert loader.dataset.key(0) == "cat/0001.dat"
    with DataLoader(folder, collate="ragged", **given) as loader:
        ragged = next(iter(loader))["data"]
        assert isinstance(ragged, Ragged) and ragged.offsets.dtype == np.int64
        pieces = [ragged.values[start:end] for start, end in zip(ragged.offsets, ragged.offsets[1:])]
        assert all((piece == whole).all() for piece, whole in zip(pieces, plain["data"]))
    padding = {"pad_value": 7, "max_length": 5000, "pad_multiple": 64}
    with DataLoader(folder, collate={"data": "padded"}, **padding, **given) as loader:
        batch = next(iter(loader))
        padded = batch["data"]
        assert isinstance(padded, Padded) and padded.values.shape == (16, 5056)
        for row, length, whole in zip(padded.values, padded.lengths, plain["data"]):
            assert (row[:length] == whole[:5000]).all() and (row[length:] == 7).all()
        assert [len(sample["data"]) for sample in batch.samples()] == padded.lengths.tolist()
    with DataLoader(folder, binary="data", **given) as loader:
        assert next(iter(loader))["data"] == [whole.tobytes() for whole in plain["data"]]
    with DataLoader(folder, text=["data"], **given) as loader:
        text = next(iter(loader))["data"]
        assert [it.encode("utf-8", "surrogateescape") for it in text] == [whole.tobytes() for whole in plain["data"]]


def test_text_is_known_where_the_format_says_so(tmp_path: pathlib.Path) -> None:
    rows = [{"text": "grüße" + "x" * index, "id": index, "ok": index % 2 == 0} for index in range(5)]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    given = {"columns": ["text", "id:i64", "ok:bool"], "batch_size": 5, "output": "numpy"}
    with DataLoader(path, **given) as loader:
        batch = next(iter(loader))
        assert batch["text"] == [row["text"] for row in rows]
        assert batch["id"].tolist() == list(range(5)) and batch["ok"].tolist() == [row["ok"] for row in rows]
        batch["ok"][:] = False
        batch["id"] += 1
    with DataLoader(path, **{**given, "batch_size": 1}) as loader:
        for turn in range(2):
            seen = []
            for batch in loader:
                seen += batch["ok"].tolist()
                batch["ok"][:] = not batch["ok"][0]
            assert seen == [row["ok"] for row in rows], f"turn {turn}: a constant was written to"
    with DataLoader(path, binary="text", **given) as loader:
        batch = next(iter(loader))
        assert batch["text"][1] == rows[1]["text"].encode() and batch["ok"].tolist() == [row["ok"] for row in rows]


def test_tables_have_text_too(tmp_path: pathlib.Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="skipped: pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    names = [f"name {index} ü" for index in range(300)]
    columns = {"name": names, "number": list(range(300)), "share": [index / 7 for index in range(300)]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet", row_group_size=70)
    with DataLoader(tmp_path / "a.parquet", batch_size=11, output="numpy") as loader:
        for _ in range(2):
            seen: list[str] = []
            for batch in loader:
                assert batch["number"].tolist() == list(range(len(seen), len(seen) + len(batch.ids)))
                assert batch["share"].tolist() == [number / 7 for number in batch["number"]]
                seen += batch["name"]
                batch["number"][:] = -1
                batch["share"][:] = -1
            assert seen == names


def test_nested_values_are_json_text_and_nulls_empty(tmp_path: pathlib.Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="skipped: pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    answer = {"role": "assistant", "content": None}
    chats = [[{"role": "user", "content": f'Say "{index}"\nü'}, answer] for index in range(30)]
    words = [None if index % 3 == 0 else ["a"] * (index % 4) for index in range(30)]
    parquet.write_table(pyarrow.table({"messages": chats, "words": words}), tmp_path / "a.parquet", row_group_size=7)
    with DataLoader(tmp_path / "a.parquet", batch_size=4, output="numpy") as loader:
        with pytest.raises(RuntimeError, match="nulls=empty"):
            next(iter(loader))
    with DataLoader(tmp_path / "a.parquet", batch_size=4, output="numpy", nulls="empty") as loader:
        seen = [(json.loads(chat), row) for batch in loader for chat, row in zip(batch["messages"], batch["words"])]
    assert [chat for chat, _ in seen] == chats
    assert [json.loads(row) if row else None for _, row in seen] == words


def test_nulls_of_numbers_are_nan_or_zero_or_told_by_a_mask() -> None:
    numbers = pathlib.Path(__file__).parents[2] / "tests/data/columnar/numbers.arrow"
    with DataLoader(numbers, columns=["f32"], batch_size=3, output="numpy", nulls="nan") as loader:
        assert [np.isnan(batch["f32"]).tolist() for batch in loader] == [[False, True, False]]
    with DataLoader(numbers, columns=["i32"], batch_size=3, output="numpy") as loader:
        with pytest.raises(RuntimeError, match="nulls=zero"):
            next(iter(loader))
    for nulls, names in (("zero", ["i32", "none"]), ("mask", ["i32", "i32.valid", "none"])):
        with DataLoader(numbers, columns=["i32", "none"], batch_size=3, output="numpy", nulls=nulls) as loader:
            (batch,) = loader
        assert [name for name in batch if not name.startswith("__")] == names
        assert batch["i32"].tolist() == [7, 0, -7] and batch["none"].tolist() == [4, 5, 6]
    assert batch["i32.valid"].tolist() == [True, False, True] and batch["i32.valid"].dtype == np.bool_


def test_packing(tmp_path: pathlib.Path) -> None:
    for index, length in enumerate((5, 3, 8, 2)):
        (tmp_path / f"{index}.dat").write_bytes(bytes([index + 1]) * length)
    with DataLoader(tmp_path, batch_size=2, packing="first_fit", seq_len=8, output="numpy") as loader:
        with pytest.raises(TypeError, match="only known at its end"):
            len(loader)
        batches = [batch["data"] for batch in loader]
    values, segments, positions, ends = batches[0]
    assert values.tolist() == [[1] * 5 + [2] * 3, [3] * 8]
    assert segments.tolist() == [[1] * 5 + [2] * 3, [1] * 8]
    assert positions.tolist() == [[0, 1, 2, 3, 4, 0, 1, 2], list(range(8))] and ends.tolist() == [0, 5, 8, 16]
    assert batches[1].values.tolist() == [[4, 4, 0, 0, 0, 0, 0, 0]]
    assert ends.dtype == segments.dtype == np.int32


@pytest.mark.parametrize("name", ["u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "f16", "f32", "f64"])
def test_types(tmp_path: pathlib.Path, name: str) -> None:
    kind = {"u": "uint", "i": "int", "f": "float"}[name[0]] + name[1:]
    wanted = np.arange(12).astype(kind).reshape(3, 4)
    path = tmp_path / "all.bin"
    path.write_bytes(wanted.tobytes())
    given = {"record_bytes": wanted.itemsize * 4, "dtype": name, "batch_size": 3}
    with DataLoader(path, output="numpy", **given) as loader:
        data = next(iter(loader))["data"]
        assert data.dtype == wanted.dtype and (data == wanted).all()
    with DataLoader(path, output="dlpack", **given) as loader:
        tensor = next(iter(loader))["data"]
        assert (tensor.dtype, tensor.shape, tensor.nbytes) == (name, (3, 4), wanted.nbytes)
        assert (np.from_dlpack(tensor) == wanted).all() and tensor.tobytes() == wanted.tobytes()
        assert tensor.__dlpack_device__() == (1, 0)
        with pytest.raises(BufferError):
            tensor.__dlpack__(dl_device=(2, 0))


def test_types_that_numpy_lacks(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "all.bin"
    path.write_bytes(bytes([0x80, 0x3F, 0x00, 0x40]))
    with DataLoader(path, record_bytes=4, dtype="bf16", batch_size=1, output="numpy") as loader:
        data = next(iter(loader))["data"]
    try:
        import ml_dtypes

        assert data.dtype == ml_dtypes.bfloat16 and data.astype("f4").tolist() == [[1.0, 2.0]]
    except ImportError:
        assert data.dtype == np.uint16 and data.tolist() == [[0x3F80, 0x4000]]


def test_a_capsule_is_freed_once_whoever_takes_it(records: pathlib.Path) -> None:
    loader = DataLoader(**of_records(records, output="dlpack", memory_limit="16MiB", batch_size=RECORDS))
    for turn in range(50):
        tensor = next(iter(loader))["data"]
        untaken = tensor.__dlpack__(), tensor.__dlpack__(max_version=(1, 1))
        del untaken
        taken = np.from_dlpack(tensor)
        copied = np.from_dlpack(tensor, copy=True) if np.lib.NumpyVersion(np.__version__) >= "2.1.0" else taken.copy()
        address = tensor.data_ptr
        del tensor
        assert taken.ctypes.data == address and int(taken[-1, 0]) == RECORDS - 1, f"turn {turn}"
        assert copied.ctypes.data != address
        del taken
        gc.collect()
    loader.close()


def test_memory_goes_home_when_the_last_array_is_gone(records: pathlib.Path) -> None:
    loader = DataLoader(**of_records(records, memory_limit="6MiB", batch_size=RECORDS // 2, starved_after=0.3))
    kept = []
    with pytest.raises(uringload.StarvedError) as caught:
        for _ in range(100):
            kept += [batch["data"] for batch in loader]
    assert "memory" in str(caught.value) and caught.value.remedy
    kept.clear()
    assert len(list(loader)) == 2
    loader.close()


def test_batches_pickle(folder: pathlib.Path) -> None:
    import pickle

    with DataLoader(folder, batch_size=4, output="numpy") as loader:
        batch = next(iter(loader))
    again = pickle.loads(pickle.dumps(batch))
    assert again["label"].tolist() == batch["label"].tolist() and again.ids == batch.ids == [0, 1, 2, 3]
    assert (again.epoch, again.position, again.failed, again.padding) == (0, 0, [], None)
    assert pickle.loads(pickle.dumps(again)).ids == batch.ids
    assert type(batch)(batch) == {**batch} and type(batch)(batch).ids == []


@needs_torch
def test_torch(records: pathlib.Path, folder: pathlib.Path) -> None:
    import torch

    with DataLoader(**of_records(records, output="torch")) as loader:
        data = next(iter(loader))["data"]
        assert data.dtype == torch.int32 and data.shape == (32, 64) and data[:, 0].tolist() == list(range(32))
        data += 1
        loader.close()
        assert data[31, 63].item() == 32
    with DataLoader(folder, batch_size=8, collate="ragged", ragged="nested") as loader:
        nested = next(iter(loader))["data"]
        assert nested.is_nested and len(nested.unbind()) == 8
    path = folder.parent / "types.bin"
    path.write_bytes(np.array([1.0, 2.0], np.float32).view(np.uint16)[1::2].tobytes())
    with DataLoader(path, record_bytes=4, dtype="bf16", batch_size=1) as loader:
        data = next(iter(loader))["data"]
        assert data.dtype == torch.bfloat16 and data.float().tolist() == [[1.0, 2.0]]
    with DataLoader(path, record_bytes=4, dtype="f8e4m3", batch_size=1) as loader:
        assert next(iter(loader))["data"].dtype == torch.float8_e4m3fn


def test_what_is_not_installed_is_told(records: pathlib.Path) -> None:
    if conftest.HAS_TORCH:
        pytest.skip("skipped: torch is installed, so that nothing is missing")
    with pytest.raises(uringload.UnavailableError, match="pip install torch"):
        DataLoader(**of_records(records, output="torch"))
