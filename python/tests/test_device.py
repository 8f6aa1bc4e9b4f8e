"""Batches on a GPU, with a mock of its driver: where they are, when they may be read, and when their memory is free."""

from __future__ import annotations

import ctypes
import gc
import pathlib
import shutil
import subprocess
import sys
import time
import types
from typing import Any

import pytest
from conftest import RECORDS, needs_numpy, needs_torch, of_records
from mock_cuda import Mock, needs_mock

import uringload
from uringload import DataLoader, Images, Padded, Ragged, Tokens, _device, _output

pytestmark = needs_mock

PHOTOS = pathlib.Path(__file__).parents[2] / "images/tests/data"


@pytest.fixture
def mock(tmp_path: pathlib.Path) -> Mock:
    return Mock(tmp_path)


def on_device(path: pathlib.Path, mock: Mock, **given: object) -> dict[str, Any]:
    return of_records(path, **{"output": "dlpack", "device": "cuda:0", "cuda_library": mock.path, **given})


def elements(batch: Any) -> list[int]:
    bytes_of = batch["data"].tobytes()
    return [int.from_bytes(bytes_of[at : at + 4], "little") for at in range(0, len(bytes_of), 256)]


def test_batches_are_there_and_the_same_as_on_the_host(records: pathlib.Path, mock: Mock) -> None:
    with DataLoader(**of_records(records, output="dlpack", shuffle=True, index=True)) as host:
        wanted = [(batch.ids, batch["data"].tobytes(), batch["index"].tobytes()) for batch in host]
    with DataLoader(**on_device(records, mock, shuffle=True, index=True)) as loader:
        for number, batch in enumerate(loader):
            data = batch["data"]
            assert data.__dlpack_device__() == (2, 0) and data.device_name == "cuda:0" and "cuda:0" in repr(data)
            assert data.shape == (len(batch.ids), 64) and data.dtype == "i32"
            assert (batch.ids, data.tobytes(), batch["index"].tobytes()) == wanted[number]
            with pytest.raises(AttributeError, match="DLPack"):
                data.__array_interface__
            with pytest.raises(BufferError):
                data.__dlpack__(dl_device=(2, 1))
        assert number == 31 and "cuda:0" in loader.route()["devices"][0]
        state = loader.state_dict()
    with DataLoader(**of_records(records, output="dlpack", shuffle=True)) as host:
        host.load_state_dict(state)
    del batch, data
    gc.collect()
    assert mock.violations() == [] and mock.alive() == {}


def test_forms_and_what_stays_on_the_host(folder: pathlib.Path, mock: Mock) -> None:
    given: dict[str, Any] = {"batch_size": 16, "output": "dlpack", "key": True}
    there: dict[str, Any] = {**given, "device": "cuda", "cuda_library": mock.path}
    with DataLoader(folder, collate="ragged", **given) as host, DataLoader(folder, **there) as loader:
        for a, b in zip(host, loader, strict=True):
            assert isinstance(b["data"], Ragged) and b["data"].values.__dlpack_device__() == (2, 0)
            assert b["data"].offsets.__dlpack_device__() == (1, 0) and a["key"] == b["key"]
            assert [part.tobytes() for part in a["data"]] == [part.tobytes() for part in b["data"]]
            assert a["label"].tobytes() == b["label"].tobytes()
    padded = {"collate": {"data": "padded"}, "pad_value": 7, "pad_multiple": 64}
    with DataLoader(folder, **padded, **given) as host, DataLoader(folder, **padded, **there) as loader:
        for a, b in zip(host, loader, strict=True):
            assert isinstance(b["data"], Padded)
            assert [part.tobytes() for part in a["data"]] == [part.tobytes() for part in b["data"]]
    with DataLoader(folder, text="data", **given) as host, DataLoader(folder, text="data", **there) as loader:
        assert [batch["data"] for batch in host] == [batch["data"] for batch in loader]
    del a, b
    gc.collect()
    assert mock.violations() == [] and mock.alive() == {}


def test_images_are_decoded_by_the_host_on_their_way_to_the_device(tmp_path: pathlib.Path, mock: Mock) -> None:
    photos = tmp_path / "photos"
    for number in range(20):
        (photos / f"class{number % 3}").mkdir(parents=True, exist_ok=True)
        shutil.copy(PHOTOS / ("420.jpg", "coffee.png")[number % 2], photos / f"class{number % 3}" / f"{number:02}.jpg")
    pixels = ["resize(40x40), to_tensor(u8, hwc)", Images(size=32, crop="random", flip=0.5, dtype="bf16")]
    chain = "random_resized_crop(24), hflip, normalize(imagenet)"
    for transform, shape in [(chain, (3, 24, 24)), (pixels, (3, 32, 32))]:
        given: dict[str, Any] = {"batch_size": 6, "shuffle": True, "output": "dlpack"}
        given["transforms"] = {"data": transform}
        there: dict[str, Any] = {**given, "device": "cuda:0", "cuda_library": mock.path}
        with DataLoader(photos, **given) as host, DataLoader(photos, **there) as loader:
            for a, b in zip(host, loader, strict=True):
                assert b["data"].__dlpack_device__() == (2, 0) and b["data"].shape == (len(b.ids), *shape)
                assert a.ids == b.ids and a["data"].tobytes() == b["data"].tobytes()
                assert a["label"].tobytes() == b["label"].tobytes()
    for wrong in (["hflip", "normalize(half)"], [], [Images()], [Images(), chain]):
        with pytest.raises(TypeError, match=r"a chain and then uringload\.Images"):
            DataLoader(photos, **{**given, "transforms": {"data": wrong}})
    del a, b
    gc.collect()
    assert mock.violations() == [] and mock.alive() == {}


def is_pinned(mock: Mock, tensor: Any) -> bool:
    mock.enter()
    found = ctypes.c_uint64()
    code = mock.library.cuMemHostGetDevicePointer_v2(ctypes.byref(found), ctypes.c_void_p(tensor.data_ptr), 0)
    mock.leave()
    return bool(code == 0)


def test_lists_of_tensors_do_not_lie_in_pinned_memory(records: pathlib.Path, mock: Mock) -> None:
    """torch would queue copies out of it, and they would be read when they are gone."""
    with DataLoader(**on_device(records, mock, collate="list")) as loader:
        assert not any(is_pinned(mock, tensor) for batch in loader for tensor in batch["data"])
        assert "pinned" in loader.route()["devices"][0]
    assert mock.violations() == []


def pinned(path: pathlib.Path, mock: Mock, **given: object) -> dict[str, Any]:
    return of_records(path, **{"output": "dlpack", "pin_memory": True, "cuda_library": mock.path, **given})


@pytest.mark.parametrize(("collate", "waits"), [("auto", True), ("list", True), ("auto", False)])
def test_pinned_memory_waits_for_the_copies_out_of_it(
    records: pathlib.Path, tmp_path: pathlib.Path, collate: str, waits: bool
) -> None:
    """A trainer's copies are queued in the default stream, and the tensors dropped. It shows a missing wait."""
    mock = Mock(tmp_path, "copy_us=1000" if collate == "list" else "copy_us=5000")
    mock.enter()
    memory = ctypes.c_uint64()
    mock.call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(RECORDS * 256))
    wanted = b""
    given = pinned(records, mock, collate=collate, shuffle=True, memory_limit="288KiB")
    with DataLoader(**given) as loader:
        if not waits:
            loader._stream = lambda: -1
        for batch in loader:
            tensors = batch["data"]
            for tensor in tensors if collate == "list" else [tensors]:
                assert is_pinned(mock, tensor) and tensor.__dlpack_device__() == (1, 0)
                to, source = ctypes.c_uint64(memory.value + len(wanted)), ctypes.c_void_p(tensor.data_ptr)
                mock.call("cuMemcpyHtoDAsync_v2", to, source, ctypes.c_size_t(tensor.nbytes), ctypes.c_size_t(1))
                wanted += tensor.tobytes()
            del batch, tensors, tensor
        assert loader.route()["pinned"] and "pinned" in loader.route()["text"]
        came = ctypes.create_string_buffer(len(wanted))
        mock.call("cuMemcpyDtoH_v2", came, memory, ctypes.c_size_t(len(wanted)))
    assert len(wanted) == RECORDS * 256 and (came.raw == wanted, mock.violations() == []) == (waits, waits)
    mock.call("cuMemFree_v2", memory)
    mock.leave()
    del loader
    gc.collect()
    # A thread has waited for the copies, and ends.
    deadline = time.monotonic() + 20
    while mock.alive() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert mock.alive() == {}


def test_states_of_pinned_loaders_are_told_without_pinning(records: pathlib.Path, mock: Mock) -> None:
    with DataLoader(**pinned(records, mock)) as loader:
        loader.load_state_dict(loader.state_dict())
        assert mock.count("registrations") == 0
        first = next(iter(loader))
        assert mock.count("registrations") == 1 and first.ids == list(range(32))


def test_what_is_not_pinned_is_told(
    records: pathlib.Path, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = of_records(records, output="dlpack", pin_memory=True, cuda_library=tmp_path / "libcuda.so.1")
    with DataLoader(**given) as loader:
        assert len(list(loader)) == len(list(loader)) == 32 and not loader.route()["pinned"]
        assert [record.levelname for record in caplog.records] == ["WARNING"] and "CUDA driver" in caplog.text
        assert loader.read([3])["data"].shape == (1, 64)
    with pytest.raises(uringload.UnavailableError, match="is not available"):
        iter(DataLoader(**given, pin_memory_device="cuda:0"))
    with pytest.raises(uringload.Error, match="pin_memory_device cannot be 'cpu'"):
        DataLoader(**given, pin_memory_device="cpu")


def test_on_a_device_nothing_is_pinned_for_others(records: pathlib.Path, mock: Mock) -> None:
    with pytest.warns(uringload.IgnoredArgumentWarning, match="pin_memory is ignored: batches are on a GPU") as caught:
        DataLoader(**on_device(records, mock, pin_memory=True)).close()
    assert caught[0].filename == __file__


@pytest.mark.parametrize("stream", [None, 1, 2, "own"])
def test_a_stream_waits_for_the_values_and_their_memory_for_the_stream(
    records: pathlib.Path, tmp_path: pathlib.Path, stream: Any
) -> None:
    mock = Mock(tmp_path, "copy_us=2000,kernel_us=2000")
    mock.enter()
    number = mock.stream() if stream == "own" else stream
    used = 1 if number is None else number
    # Room for one batch: what is read here is overwritten soon, if nothing waits for the reading.
    with DataLoader(**on_device(records, mock, device_memory="300KiB")) as loader:
        answers = []
        for batch in loader:
            data = batch["data"]
            wanted = (batch.ids, data.nbytes)
            capsule = data.__dlpack__(stream=number)
            answers.append((wanted, mock.consume(used, data.data_ptr, data.nbytes, micros=3000)))
            del batch, data, capsule
        for (ids, length), answer in answers:
            read = mock.consumed(used, answer, length)
            assert [int.from_bytes(read[at : at + 4], "little") for at in range(0, length, 256)] == ids
    assert len(answers) == 32
    gc.collect()
    if stream == "own":
        mock.destroy(number)
    mock.leave()
    assert mock.violations() == [] and mock.alive() == {}


def test_without_a_stream_nobody_waits(records: pathlib.Path, tmp_path: pathlib.Path) -> None:
    mock = Mock(tmp_path, "copy_us=20000")
    mock.enter()
    with DataLoader(**on_device(records, mock)) as loader:
        data = next(iter(loader))["data"]
        for wrong in (0, -2):
            with pytest.raises(ValueError, match=f"stream cannot be {wrong}"):
                data.__dlpack__(stream=wrong)
        capsule = data.__dlpack__(stream=-1)
        mock.consumed(1, mock.consume(1, data.data_ptr, data.nbytes), data.nbytes)
        data.tobytes()
        assert mock.violations(), "the mock sees that nothing was waited for"
        del data, capsule
    mock.leave()


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)), ("flags", ctypes.c_uint64),
        ("data", ctypes.c_void_p), ("device", ctypes.c_int32), ("number", ctypes.c_int32),
        ("dimensions", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
    ]  # fmt: skip


def test_a_consumer_has_the_memory_until_it_frees_it_once(records: pathlib.Path, mock: Mock) -> None:
    api = ctypes.pythonapi
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
    loader = DataLoader(**on_device(records, mock))
    data = next(iter(loader))["data"]
    capsule = data.__dlpack__(max_version=(1, 0))
    address = api.PyCapsule_GetPointer(capsule, b"dltensor_versioned")
    taken = Versioned.from_address(address)
    assert (taken.major, taken.device, taken.number, taken.flags, taken.data) == (1, 2, 0, 0, data.data_ptr)
    assert (taken.dimensions, taken.code, taken.bits, taken.lanes) == (2, 0, 32, 1)
    assert (taken.shape[0], taken.shape[1], taken.strides[0], taken.strides[1]) == (32, 64, 64, 1)
    used = b"used_dltensor_versioned"
    api.PyCapsule_SetName(capsule, used)
    # On the host, where it is wanted there, it is a copy of its own.
    copied = data.__dlpack__(max_version=(1, 0), dl_device=(1, 0))
    copy = Versioned.from_address(api.PyCapsule_GetPointer(copied, b"dltensor_versioned"))
    assert (copy.device, copy.flags) == (1, 2) and ctypes.string_at(copy.data, 256 * 32) == data.tobytes()
    loader.close()
    del loader, data, capsule, copy, copied
    gc.collect()
    assert mock.count("allocations") == 1, "the tensor holds the memory that its loader has left"
    taken.deleter(address)
    assert mock.violations() == [] and mock.alive() == {}


def test_capsules_that_nobody_takes_are_freed(records: pathlib.Path, mock: Mock) -> None:
    with DataLoader(**on_device(records, mock, device_memory="300KiB")) as loader:
        for _ in range(3):
            for batch in loader:
                batch["data"].__dlpack__(), batch["data"].__dlpack__(max_version=(1, 0), stream=1)
    del batch
    gc.collect()
    assert mock.violations() == [] and mock.alive() == {}


IMAGES = Images(size=(24, 20), crop="resized", flip=0.5, mean=(0.5, 0.4, 0.3), std=0.25, dtype="bf16")


@pytest.mark.parametrize(
    "images", [IMAGES, IMAGES._replace(channels_last=True, dtype="f32"), Images(dtype="u8", size=16)]
)
def test_images_are_the_same_on_a_device_and_without_one(tmp_path: pathlib.Path, mock: Mock, images: Images) -> None:
    path = tmp_path / "images.bin"
    path.write_bytes(bytes((index * index // 7) % 256 for index in range(40 * 32 * 30 * 3)))
    given: dict[str, Any] = {"record_bytes": 32 * 30 * 3, "shape": (32, 30, 3), "batch_size": 7, "shuffle": True,
                             "output": "dlpack", "transforms": {"data": images}}  # fmt: skip
    with DataLoader(path, **given) as host, DataLoader(path, device="cuda:0", cuda_library=mock.path, **given) as there:
        for epoch in range(2):
            for a, b in zip(host, there, strict=True):
                assert a["data"].__dlpack_device__() == (1, 0) and b["data"].__dlpack_device__() == (2, 0)
                assert a["data"].shape == b["data"].shape and a["data"].dtype == b["data"].dtype
                assert a["data"].tobytes() == b["data"].tobytes(), f"epoch {epoch}"
        height, width = (16, 16) if images.size == 16 else (24, 20)
        shape = (height, width, 3) if images.channels_last else (3, height, width)
        assert a["data"].shape[1:] == shape
        assert host.read([3, 4])["data"].shape == (2, *shape)


def test_without_nvjpeg_the_processor_decodes_and_the_route_says_so(
    tmp_path: pathlib.Path, mock: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = [shutil.copy(PHOTOS / "420.jpg", tmp_path / f"{index}.jpg") for index in range(8)]
    # Where PyPI's packages have it; a file of that name that is no library.
    folder = tmp_path / "packages" / "nvidia" / "nvjpeg" / "lib"
    folder.mkdir(parents=True)
    (folder / "libnvjpeg.so.12").write_bytes(b"nothing")
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    assert str(folder) in _device.nvjpeg_places()
    given: dict[str, Any] = {"batch_size": 4, "output": "dlpack", "transforms": {"data": "resize(4x4), to_tensor(u8)"}}
    with DataLoader(data, device="cuda:0", cuda_library=mock.path, nvjpeg=0.5, **given) as loader:
        assert sum(batch["data"].shape[0] for batch in loader) == 8
        assert loader.stats()["samples_decoded_on_device"] == 0
        steps = [step for step in loader.route()["fallbacks"] if "images decoded by the GPU" in step]
        assert len(steps) == 1 and steps[0].startswith("images decoded by the processor instead of "), steps


@needs_numpy
def test_tokens_have_labels(tmp_path: pathlib.Path, mock: Mock) -> None:
    import numpy as np

    path = tmp_path / "tokens.bin"
    path.write_bytes(np.arange(1000, dtype=np.uint16).tobytes())
    given: dict[str, Any] = {"format": "tokens", "token_dtype": "u16", "window_tokens": 11, "batch_size": 4}
    with DataLoader(path, output="numpy", **given) as plain:
        (name,) = next(iter(plain)).keys()
    given["transforms"] = {name: Tokens(seq_len=10)}
    with DataLoader(path, output="numpy", **given) as host:
        first = next(iter(host))
        assert first[name].dtype == np.int64 and first[name].flags.writeable
        assert first[name][1].tolist() == list(range(10, 20)) or first[name][1].tolist() == list(range(11, 21))
        assert (first["labels"] == first[name] + 1).all()
    with DataLoader(path, output="dlpack", device="cuda", cuda_library=mock.path, **given) as there:
        batch = next(iter(there))
        for column in (name, "labels"):
            assert batch[column].tobytes() == first[column].tobytes()


def test_devices_take_turns(records: pathlib.Path, tmp_path: pathlib.Path) -> None:
    mock = Mock(tmp_path, "devices=2")
    with DataLoader(**on_device(records, mock, device=["cuda:0", "cuda:1"])) as loader:
        seen = [(batch["data"].__dlpack_device__(), elements(batch)) for batch in loader]
    assert [place for place, _ in seen] == [(2, 0), (2, 1)] * 16
    assert [number for _, numbers in seen for number in numbers] == list(range(RECORDS))
    gc.collect()
    assert mock.violations() == [] and mock.alive() == {}


def test_transforms_of_the_users_own_come_behind(records: pathlib.Path, mock: Mock) -> None:
    given = on_device(records, mock, batch_transform=lambda batch: (elements(batch), batch["data"].device_name))
    with DataLoader(**given) as loader:
        seen = list(loader)
    assert [number for numbers, _ in seen for number in numbers] == list(range(RECORDS))
    assert {name for _, name in seen} == {"cuda:0"} and mock.violations() == []


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"device": "cuda:1"}, "cuda:1"),
        ({"device": ["cuda:0", "cuda:0"]}, "twice"),
        ({"device": ["cuda:0", "cpu"]}, "device cannot be 'cpu'"),
        ({"device": "cuda:x"}, "device cannot be 'cuda:x'"),
        ({"device": []}, "device is []"),
        ({"output": "numpy"}, "NumPy has no arrays"),
        ({"device_memory": 100}, "does not fit"),
        ({"device": "cpu", "cuda_library": None, "device_memory": 100}, "device_memory"),
        ({"device": "cpu", "cuda_library": None, "nvjpeg": 0.5}, "device='cpu' has none"),
        ({"device": "cpu", "cuda_library": None, "gds": "on"}, "device='cpu' has none"),
        ({"gds": "maybe"}, "gds cannot be 'maybe'"),
        ({"nvjpeg": 1}, "no column of images is decoded"),
        ({"nvjpeg": -1}, "nvjpeg cannot be -1"),
        ({"nvjpeg": 3}, "nvjpeg cannot be 3"),
        ({"cuda_library": "/nowhere/libcuda.so.1"}, "is not available"),
        ({"transforms": {"nothing": Images()}}, "nothing"),
        ({"transforms": {"data": Images()}}, "data"),
        ({"transforms": {"data": 7}}, "transforms['data'] is a int"),
        ({"transforms": {"data": "bf16"}}, "no operation is called"),
        ({"transforms": Images()}, "give a dictionary"),
        ({"transforms": {"data": Images(crop="centre")}}, "did you mean 'center'"),
        ({"transforms": {"data": Images(size=(1, 2, 3))}}, "3 numbers"),
        ({"transforms": {"data": Images(dtype="f64")}}, "dtype cannot be 'f64'"),
        ({"transforms": {"data": Tokens(seq_len=0)}}, "seq_len cannot be 0"),
        ({"transforms": {"data": Tokens()}}, "no tokens"),
    ],
)
def test_what_cannot_be_is_refused(records: pathlib.Path, mock: Mock, given: dict[str, Any], told: str) -> None:
    with pytest.raises(uringload.Error) as caught:
        with DataLoader(**on_device(records, mock, **given)) as loader:
            next(iter(loader))
    assert told in str(caught.value) and caught.value.remedy, str(caught.value)
    assert mock.alive() == {}


def test_auto_goes_on_without_a_gpu_and_says_why(records: pathlib.Path, tmp_path: pathlib.Path) -> None:
    given = of_records(records, output="dlpack", device="auto", cuda_library=tmp_path / "libcuda.so.1")
    with DataLoader(**given) as loader:
        assert [number for batch in loader for number in elements(batch)] == list(range(RECORDS))
        assert next(iter(loader))["data"].__dlpack_device__() == (1, 0)
        assert "batches on the host" in str(loader.route())


def test_a_device_that_fails_is_an_error_and_nothing_hangs(records: pathlib.Path, tmp_path: pathlib.Path) -> None:
    mock = Mock(tmp_path, "fault=40:719")
    with DataLoader(**on_device(records, mock)) as loader:
        with pytest.raises(uringload.Error) as caught:
            for _ in loader:
                pass
        assert caught.value.kind == "Device" and caught.value.remedy


def test_an_interpreter_ends_with_batches_on_a_device(records: pathlib.Path, mock: Mock) -> None:
    script = f"""
import uringload
loader = uringload.DataLoader({str(records)!r}, record_bytes=256, batch_size=32, output="dlpack", device="cuda:0",
                              cuda_library={str(mock.path)!r})
batches = iter(loader)
held = [next(batches)["data"].__dlpack__() for _ in range(3)] + [next(batches)]
print(len(held))
"""
    for forget in ("", "import os; del loader"):
        done = subprocess.run([sys.executable, "-c", script + forget], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (0, "4\n", ""), done.stderr


@needs_torch
def test_torch_takes_them_on_its_current_stream(
    records: pathlib.Path, mock: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch as it is where there is a GPU, in so far as the loader calls it."""
    import torch

    cuda = types.SimpleNamespace(
        is_available=lambda: True, current_device=lambda: 0,
        current_stream=lambda number: types.SimpleNamespace(cuda_stream=0 if number == 0 else 99),
    )  # fmt: skip
    monkeypatch.setattr(torch, "cuda", cuda)
    monkeypatch.setattr(torch.utils.dlpack, "from_dlpack", lambda capsule: capsule)
    # torch's C functions ask the real driver, which is not there: the way of an older torch.
    monkeypatch.setattr(_output, "_exchange", lambda torch: None)
    with DataLoader(**on_device(records, mock, output="torch", device=torch.device("cuda"))) as loader:
        assert loader._options["devices"] == ["cuda:0"]
        taken = [batch["data"] for batch in loader]
    assert len(taken) == 32 and all("dltensor" in repr(capsule) for capsule in taken)
    assert mock.violations() == []
    with DataLoader(**pinned(records, mock, output="torch", pin_memory_device="cuda")) as loader:
        assert loader._options["pin"] == "cuda:0" and loader._stream is not None and loader._stream() == 1
        assert len(list(loader)) == 32 and loader.route()["pinned"]
    monkeypatch.setattr(cuda, "is_available", lambda: False)
    with pytest.raises(uringload.UnavailableError, match="torch finds no CUDA"):
        DataLoader(**on_device(records, mock, output="torch"))
    with DataLoader(**pinned(records, mock, output="torch")) as loader:
        assert loader._options["pin"] == "auto" and len(list(loader)) == 32
    with DataLoader(**on_device(records, mock, output="torch", device="auto")) as loader:
        assert loader._options["devices"] == ["host"]
