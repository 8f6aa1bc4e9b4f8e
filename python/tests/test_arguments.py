"""Arguments that cannot be are refused with their name and a remedy; PyTorch's that mean nothing are told."""

from __future__ import annotations

import inspect
import os
import pathlib
import pickle
import re
import warnings
from collections.abc import Callable

import conftest
import pytest
from conftest import of_records, unlike_python

import uringload
from uringload import DataLoader

pytestmark = conftest.needs_numpy


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"batch_size": "8"}, "batch_size is '8' (a str)"),
        ({"batch_size": True}, "batch_size is True (a bool)"),
        ({"batch_size": 0}, "batch_size cannot be 0"),
        ({"batch_size": None}, "batch_size"),
        ({"global_batch_size": 64}, "batch_size"),
        ({"seed": 1.5}, "seed is 1.5 (a float)"),
        ({"seed": -1}, "seed cannot be -1"),
        ({"drop_last": 1}, "drop_last is 1 (a int)"),
        ({"shuffle": "ful"}, "did you mean \"full\""),
        ({"shuffle": "shards:0"}, "shards:0"),
        ({"shuffle": 42}, "shuffle=True, seed=42"),
        ({"shuffle": "full", "shuffle_window": 10}, "shuffle_window"),
        ({"on_error": "ignore"}, "on_error cannot be \"ignore\""),
        ({"output": "jax"}, "output cannot be 'jax'"),
        ({"collate": "pad"}, "did you mean 'padded'"),
        ({"collate": 3}, "collate is a int"),
        ({"collate": {"nothing": "dense"}}, "nothing"),
        ({"collate_fn": 3}, "collate_fn is a int"),
        ({"memory_limit": "8 parsecs"}, "memory_limit cannot be \"8 parsecs\""),
        ({"memory_limit": 4096}, "limit"),
        ({"timeout": -1}, "timeout cannot be -1"),
        ({"timeout": "soon"}, "timeout is 'soon'"),
        ({"rank": 2, "world_size": 2}, "rank 2 is not below the world size 2"),
        ({"num_threads": 1, "num_workers": 2}, "num_workers is 2"),
        ({"packing": "first_fit"}, "seq_len"),
        ({"batch_sampler": [[0]]}, "batch_sampler"),
        ({"sampler": [0], "shuffle": True}, "sampler"),
        ({"sampler": [0, 5000]}, "sample 5000"),
        ({"text": "label"}, "label"),
        ({"batchsize": 8}, "did you mean 'batch_size'"),
        ({"record_byte": 8}, "did you mean 'record_bytes'"),
        ({"device": "cuda:0"}, "NumPy has no arrays on device='cuda:0'"),
        ({"device": "cuda:0", "output": "dlpack", "cuda_library": "/nowhere"}, "cuda:0 is not available"),
        ({"device": "tpu"}, "device cannot be 'tpu'"),
        ({"device": 3}, "device is 3"),
        ({"format": "folders"}, "there is no format"),
        ({"format": "webdataset"}, "did you mean \"tar\""),
        ({"format": "mds"}, "record_bytes is only for records"),
        ({"dtype": "i33"}, "i33"),
        ({"labels": True}, "labels is only for zip, folder"),
        ({"shape": [3, 5]}, "shape"),
        ({"dataset": 3}, "paths is 3 (a int)"),
        ({"dataset": []}, "paths"),
        ({"transform": 3}, "transform is a int"),
    ],
)
def test_what_cannot_be_is_refused(records: pathlib.Path, given: dict[str, object], told: str) -> None:
    with pytest.raises(uringload.Error) as caught:
        with DataLoader(**{**of_records(records), **given}) as loader:
            next(iter(loader))
    error = caught.value
    assert told in str(error), str(error)
    assert error.remedy and str(error) == f"{error.headline}\nhelp: {error.remedy}", str(error)
    assert "\n" not in error.headline


def test_remedies_have_pythons_words() -> None:
    """Those of the library name an option as `io=direct (--io direct)`: Python's word, and the command line's."""
    root, remedies = pathlib.Path(__file__).resolve().parents[2], []
    for folder in ("core/src", "formats/src", "images/src", "sys/src", "src", "measure/src"):
        for path in (root / folder).rglob("*.rs"):
            # The command shows what the doctor finds, and orders to try as it takes them.
            is_test = "tests" in path.name or "tests" in path.relative_to(root).parts
            if is_test or "doctor" in path.parts or path.name == "others.rs":
                continue
            code = re.sub(r"^\s*//.*$", "", path.read_text().partition("#[cfg(test)]")[0], flags=re.M)
            texts = re.findall(r'"((?:[^"\\]|\\.)*)"', code.replace("'\"'", ""), re.S)
            remedies += [(path.name, re.sub(r"\\\n\s*", "", text)) for text in texts if "--" in text]
    wrong = [(name, found, text) for name, text in remedies if (found := unlike_python(text))]
    assert len(remedies) > 25 and not wrong, "\n".join(map(str, wrong))
    assert unlike_python("name a folder with --index-cache") == ["index-cache"]
    assert unlike_python("give record_bytes (--record-bytes)") == []


#: Settings of the library's table whose keyword has another default, or is none, and why.
OTHERWISE = {
    "epochs": "a pass is an epoch",
    "batch_size": "global_batch_size may say it",
    "rank": "a launcher says it",
    "world_size": "a launcher says it",
    "shuffle": "False, as PyTorch has it",
    "orient": "an object of Python is read as it reads itself",
}


def test_keywords_have_the_names_and_defaults_of_the_table() -> None:
    from uringload import _uringload as native

    keywords = inspect.signature(DataLoader).parameters
    for name, _, _, default in native.settings():
        assert name in OTHERWISE or keywords[name].default == default, f"Python's DataLoader: {name}"
        assert name == "epochs" or name in (DataLoader.__doc__ or ""), f"Python's DataLoader: {name}"


def test_wrong_types_are_type_errors_and_wrong_values_value_errors(records: pathlib.Path) -> None:
    with pytest.raises(TypeError):
        DataLoader(**of_records(records, batch_size="8"))
    with pytest.raises(ValueError):
        DataLoader(**of_records(records, batch_size=0))
    with pytest.raises(FileNotFoundError) as caught:
        DataLoader("/nowhere/at/all", batch_size=1, output="numpy")
    assert caught.value.kind == "NotFound" and caught.value.file == "/nowhere/at/all"
    again = __import__("pickle").loads(__import__("pickle").dumps(caught.value))
    assert (type(again), again.file, str(again)) == (type(caught.value), caught.value.file, str(caught.value))


def test_errors_name_file_offset_and_remedy(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "short.bin"
    path.write_bytes(bytes(1000))
    with pytest.raises(uringload.TruncatedError) as caught:
        DataLoader(path, batch_size=1, record_bytes=300, output="numpy")
    error = caught.value
    assert error.file == str(path) and error.offset == 900 and error.remedy and error.kind == "Truncated"
    assert str(error).startswith(f"{path}:900: ") and str(error).endswith(f"\nhelp: {error.remedy}")
    with DataLoader(path, batch_size=1, record_bytes=300, drop_tail=True, output="numpy") as loader:
        assert len(loader) == 3 and loader.dataset.skipped[0][1] == 1


def test_arguments_of_pytorch_that_mean_nothing_are_told_once(records: pathlib.Path) -> None:
    ignored = {
        "prefetch_factor": 4,
        "persistent_workers": True,
        "worker_init_fn": print,
        "multiprocessing_context": "spawn",
        "generator": object(),
        "in_order": False,
    }
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with DataLoader(**of_records(records, num_workers=2, **ignored)) as loader:
            assert len(list(loader)) == 32
    told = [str(warning.message) for warning in caught if warning.category is uringload.IgnoredArgumentWarning]
    assert sorted(message.split()[0] for message in told) == sorted(ignored)
    assert all(": " in message for message in told) and all(warning.filename == __file__ for warning in caught)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        given = {"pin_memory": False, "pin_memory_device": "", "persistent_workers": False, "in_order": True}
        DataLoader(**of_records(records, **given)).close()


def test_sizes_may_be_words(records: pathlib.Path) -> None:
    with DataLoader(**of_records(records, memory_limit="64MiB", record_bytes="256B", read_size="64 KiB")) as loader:
        batches = iter(loader)
        next(batches)
        assert loader._native is not None and loader._native.memory_limit == 64 << 20


def test_splits_are_asked_for_and_companions_are_left_out(tmp_path: pathlib.Path) -> None:
    for name in ("train/0.csv", "train/1.csv", "val/0.csv", "README.md", "train/LICENSE"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("id,text\n1,a\n2,b\n")
    with pytest.raises(ValueError, match="several splits") as caught:
        uringload.Dataset(tmp_path)
    assert "split=" in caught.value.remedy
    train = uringload.Dataset(tmp_path, split="train")
    assert (train.format, len(train), train.skipped[0][:2]) == ("csv", 4, ("companions of the data", 1))
    assert len(uringload.Dataset(tmp_path, split="all")) == 6


def test_element_types_are_named_as_anywhere(records: pathlib.Path) -> None:
    import numpy as np

    from uringload import _dtypes

    for dtype in ("i32", "int32", "torch.int32", np.int32, np.dtype("int32"), np.dtype("<i4")):
        with DataLoader(**of_records(records, dtype=dtype)) as loader:
            assert loader.dataset.columns["data"][0] == "i32", dtype
    known = {"float64": "f64", "float16": "f16", "bfloat16": "bf16", "uint8": "u8", "bool": "bool", "half": "f16"}
    assert {name: _dtypes.named("dtype", name) for name in known} == known
    assert _dtypes.named("dtype", float) == "f64" and _dtypes.named("dtype", np.bool_) == "bool"
    for dtype in ("float32", np.float32, np.dtype("f4")):
        assert uringload.Images(dtype=dtype)._wishes("x")["dtype"] == "f32"
    for wrong, told in (("int33", "int33"), (np.dtype(">i4"), "byte order"), (np.complex64, "complex64"), (3, "3")):
        with pytest.raises(uringload.InvalidArgumentError, match=told):
            DataLoader(**of_records(records, dtype=wrong))


def test_element_types_of_torch(records: pathlib.Path) -> None:
    torch = pytest.importorskip("torch")
    from uringload import _dtypes

    for name, own in (("int32", "i32"), ("bfloat16", "bf16"), ("float8_e4m3fn", "f8e4m3"), ("bool", "bool")):
        assert _dtypes.named("dtype", getattr(torch, name)) == own
    with DataLoader(**of_records(records, dtype=torch.float32)) as loader:
        assert loader.dataset.columns["data"][0] == "f32"


def bytes_of(path: pathlib.Path, count: int) -> pathlib.Path:
    path.touch()
    os.truncate(path, count)
    return path


@pytest.mark.slow  # It measures time.
def test_millions_of_numbers_are_quick(tmp_path: pathlib.Path) -> None:
    import time

    import numpy as np

    count = 10_000_000
    path = bytes_of(tmp_path / "bytes.bin", count)
    dataset, many = uringload.Dataset(path, record_bytes=1), list(range(count))

    def best(what: Callable[[], object]) -> float:
        times = []
        for _ in range(3):
            start = time.process_time()
            what()
            times.append(time.process_time() - start)
        return min(times)

    # Optimised and alone it takes 0.1 to 0.3 s; item by item it took 6 s.
    for numbers in (range(count), many, np.arange(count)):
        assert best(lambda: uringload.Dataset(path, record_bytes=1, only=numbers)) < 2.0, type(numbers)

    def first() -> None:
        with DataLoader(dataset, batch_size=4, sampler=many, output="numpy") as loader:
            assert next(iter(loader)).ids == [0, 1, 2, 3]

    assert best(first) < 2.0


def test_many_numbers_are_taken_and_wrong_ones_are_named(tmp_path: pathlib.Path) -> None:
    import numpy as np

    count = 100_000
    path = bytes_of(tmp_path / "bytes.bin", count)
    many = list(range(count))
    for numbers in (range(count), many, np.arange(count)):
        dataset = uringload.Dataset(path, record_bytes=1, only=numbers)
    with DataLoader(dataset, batch_size=4, sampler=many, output="numpy") as loader:
        assert next(iter(loader)).ids == [0, 1, 2, 3]
    for wrong, told in (([1, -2], r"only\[1\] cannot be -2"), ([1, 2.5], r"only\[1\] is 2.5"), ([True], r"only\[0\]"),
                        (np.array([3, -1]), r"only\[1\] cannot be -1"), ([1 << 64], r"only\[0\] cannot be 18446")):
        with pytest.raises(uringload.InvalidArgumentError, match=told):
            uringload.Dataset(path, record_bytes=1, only=wrong)
    for numbers in ([5, 3], range(5, 1, -2), np.array([5, 3], np.uint8), (np.int64(5), 3), iter([5, 3])):
        chosen = uringload.Dataset(path, record_bytes=1, only=numbers)
        again = pickle.loads(pickle.dumps(chosen))
        assert len(chosen) == 2 and chosen.key(0) == again.key(0) == dataset.key(5)


def test_keys_count_from_the_end_too(records: pathlib.Path) -> None:
    dataset = uringload.Dataset(records, record_bytes=256)
    assert dataset.key(-1) == dataset.key(999) and dataset.key(-1000) == dataset.key(0)
    for beyond in (1000, -1001):
        with pytest.raises(uringload.InvalidArgumentError, match=str(beyond)):
            dataset.key(beyond)


def test_epochs_beyond_all_numbers_are_refused(records: pathlib.Path) -> None:
    with DataLoader(**of_records(records)) as loader:
        for epoch in ((1 << 64) - 1, 1 << 64, 1 << 80):
            with pytest.raises(uringload.InvalidArgumentError, match=f"epoch cannot be {epoch}"):
                loader.set_epoch(epoch)
        state = loader.state_dict()
        for epoch in (1 << 64, -1):
            with pytest.raises(uringload.Error):
                loader.load_state_dict({**state, "epoch": epoch})
        loader.set_epoch((1 << 64) - 2)
        assert len(list(loader)) == 32
        with pytest.raises(uringload.InvalidArgumentError, match="epoch cannot be"):
            iter(loader)


def test_the_version_is_known() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", uringload.__version__)


def test_help_leads_a_user_of_pip_somewhere(records: pathlib.Path) -> None:
    """Paths of the repository are of no use where there is none."""
    for thing in (DataLoader, uringload.Dataset, uringload.Images, uringload.Tokens, uringload.mix):
        for line in (thing.__doc__ or "").splitlines():
            assert "docs/" not in line or "https://" in line, line
            assert "documentation of the library" not in line
    with pytest.raises(TypeError, match=r"help\(uringload\.DataLoader\) lists"):
        DataLoader(**of_records(records, zzzzzz=1))
