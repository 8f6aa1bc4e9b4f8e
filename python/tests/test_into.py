"""`uringload.read_into`: ranges of files into memory that exists."""

from __future__ import annotations

import json
import mmap
import os
import pathlib
import re
import subprocess
import sys
import threading
from array import array
from typing import Any

import pytest
from conftest import needs_numpy, needs_torch

import uringload

SIZE = 9_000_011


def content(start: int, length: int) -> bytes:
    return bytes((at * 7 + at // 251) % 256 for at in range(start, start + length))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    made = tmp_path_factory.mktemp("into") / "model.bin"
    made.write_bytes(content(0, SIZE))
    return made


@pytest.mark.parametrize("io", ["auto", "direct", "buffered"])
@pytest.mark.parametrize("engine", ["auto", "uring", "threads"])
def test_buffers_get_the_bytes(path: pathlib.Path, engine: str, io: str) -> None:
    wanted = content(0, SIZE)
    whole, words, small = bytearray(SIZE), array("i", [0] * 1000), bytearray(b"x" * 10)
    anonymous = mmap.mmap(-1, 8192)
    try:
        uringload.read_into(
            [(whole, path, 0), (words, str(path), 3), (anonymous, path, 4095, 5000), (memoryview(small)[2:5], path, 9)],
            engine=engine,
            io=io,
            memory_limit="8MiB",
        )
    except uringload.UnavailableError as error:
        pytest.skip(f"skipped: {error}")
    assert whole == wanted
    assert words.tobytes() == wanted[3:4003]
    assert anonymous[:] == wanted[4095:9095] + bytes(8192 - 5000)
    assert small == b"xx" + wanted[9:12] + b"xxxxx"
    whole.append(1)  # Nothing holds it any more.
    uringload.read_into(small, path, SIZE - 4, length=4)
    assert small[:4] == wanted[-4:]
    uringload.read_into([], engine=engine)
    uringload.read_into(bytearray(), path, 5)


@needs_numpy
def test_arrays_get_the_bytes(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    import numpy

    grid, times = numpy.empty((300, 1000), numpy.float32), numpy.zeros(7, "datetime64[ns]")
    scalar, nothing = numpy.zeros((), numpy.uint16), numpy.empty((0, 4))
    field = numpy.zeros(4, [("a", "u1"), ("b", ">u2")])
    mapped = numpy.memmap(tmp_path / "copy.bin", numpy.uint8, "w+", shape=(5000,))
    targets = [grid, times, scalar, nothing, field, mapped, grid[:0]]
    uringload.read_into([(target, path, 11 * index) for index, target in enumerate(targets)])
    for index, target in enumerate(targets):
        assert target.tobytes() == content(11 * index, target.nbytes), index
    rows = numpy.zeros((4, 100), numpy.int64)
    uringload.read_into([(row, path, 800 * index) for index, row in reversed(list(enumerate(rows)))])
    assert rows.tobytes() == content(0, 3200)
    uringload.read_into(rows[1], path, 5, length=16)
    assert rows[1].tobytes() == content(5, 16) + content(816, 784)


@needs_torch
def test_tensors_get_the_bytes(path: pathlib.Path) -> None:
    import torch

    half = torch.empty(300, 500, dtype=torch.bfloat16)
    weight = torch.nn.Parameter(torch.zeros(1000, 1000))
    uringload.read_into([(half, path, 1), (weight, path, 300_001), (half.new_zeros(0), path, 0)])
    assert half.view(torch.uint8).numpy().tobytes() == content(1, 300_000)
    assert weight.detach().numpy().tobytes() == content(300_001, 4_000_000)
    for wrong, told in [
        (half.t(), "contiguous"),
        (torch.empty(4, device="meta"), "is on meta and has no memory"),
        (torch.zeros(4, dtype=torch.complex64).conj(), "not simply its memory"),
        (torch.eye(3).to_sparse(), "not simply its memory"),
    ]:
        with pytest.raises(uringload.InvalidArgumentError, match=told) as raised:
            uringload.read_into(wrong, path)
        assert "torch.empty" in raised.value.remedy


@needs_torch
def test_tensors_on_devices_are_read_by_way_of_the_host(
    path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tensors of the host stand in for a device's: the way is the same but for pinned memory and events."""
    import torch

    from uringload import _into

    monkeypatch.setattr(_into, "_is_on_device", lambda target: isinstance(target, torch.Tensor))
    monkeypatch.setattr(_into, "STAGE_BYTES", 1_000_003)
    host = bytearray(100)
    half, weight = torch.zeros(300, 500, dtype=torch.bfloat16), torch.nn.Parameter(torch.zeros(1000, 1000))
    scalar, flag, nothing = torch.zeros((), dtype=torch.int64), torch.zeros(5, dtype=torch.bool), torch.zeros(0, 3)
    part = torch.full((100,), 7, dtype=torch.uint8)
    uringload.read_into(
        [
            (half, path, 1),
            (host, path, 2),
            (weight, path, 300_001),
            (scalar, path, 9),
            (nothing, path, 0),
            (part, path, 40, 60),
        ]
    )
    uringload.read_into(flag.view(torch.uint8), path, 12)
    for tensor, start in [(half, 1), (weight, 300_001), (scalar, 9)]:
        found = tensor.detach().reshape(-1).view(torch.uint8).numpy().tobytes()
        assert found == content(start, len(found))
    assert host == content(2, 100)
    assert part.numpy().tobytes() == content(40, 60) + b"\x07" * 40
    with pytest.raises(uringload.InvalidArgumentError, match="share memory"):
        uringload.read_into([(half[:10], path, 0), (half[9:], path, 0)])
    with pytest.raises(uringload.InvalidArgumentError, match=f"the file has {SIZE}"):
        uringload.read_into(half, path, SIZE - 5)


def test_what_cannot_be_read_into_is_refused(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    small = bytearray(100)
    refused, mistyped = uringload.InvalidArgumentError, uringload.ArgumentTypeError
    cases: list[tuple[Any, tuple[Any, ...], Any, str]] = [
        (b"0123", (path,), refused, "target is read-only"),
        (memoryview(small)[::2], (path,), refused, "not contiguous"),
        ("text", (path,), mistyped, "a str, which has no memory"),
        (7, (path,), mistyped, "a int, which has no memory"),
        (small, (path, -1), refused, "offset cannot be -1"),
        (small, (path, 0, 101), refused, "length is 101 bytes, and target has 100"),
        (array("d", [0.0] * 4), (path, 0, 9), refused, "no whole number of the 8 bytes"),
        (small, (path, SIZE - 99), refused, f"the file has {SIZE}"),
        (small, (path, 1 << 63), refused, "the file has|no file goes"),
        (small, (7,), mistyped, "path is a int"),
        (small, (), mistyped, "ranges are not"),
        (None, (None, 5), refused, "without a path"),
        ([(small, path)], (), mistyped, "ranges are not"),
        ([[small, path, 0]], (), mistyped, "ranges are not"),
        ([(small, path, 0), (memoryview(small)[99:], path, 0)], (), refused, "share memory"),
        ([(bytearray(1), path, 0), (b"1", path, 0)], (), refused, "target 1 is read-only"),
        (small, (tmp_path / "missing",), uringload.NotFoundError, "missing"),
        (small, (tmp_path,), uringload.WrongFileTypeError, "no file"),
    ]
    for target, arguments, kind, told in cases:
        with pytest.raises(kind, match=told) as raised:
            uringload.read_into(target, *arguments)
        assert raised.value.remedy, raised.value
        assert small == bytes(100), "nothing was read"
    with pytest.raises(refused, match="engine"):
        uringload.read_into(small, path, engine="steam")


@needs_numpy
def test_arrays_that_cannot_be_read_into_are_refused(path: pathlib.Path) -> None:
    import numpy

    fixed = numpy.zeros(4)
    fixed.flags.writeable = False
    grid = numpy.zeros((4, 4))
    for wrong, told in [
        (fixed, "read-only"),
        (grid.T[:, :2], "not contiguous"),
        (numpy.asfortranarray(grid), "not contiguous"),
        (numpy.array([None, 1]), "Python objects"),
        (numpy.zeros(2, [("a", "O")]), "Python objects"),
    ]:
        with pytest.raises(uringload.InvalidArgumentError, match=told):
            uringload.read_into(wrong, path)


def test_other_threads_go_on_and_a_signal_ends_it(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A file of holes is long to read, and short to make."""
    large = tmp_path / "large.bin"
    with large.open("wb") as file:
        file.truncate(20 << 30)
    script = (
        "import os, signal, sys, threading, time, mmap, uringload\n"
        "memory, ticks = mmap.mmap(-1, 1 << 30), 0\n"
        "def tick():\n"
        "    global ticks\n"
        "    while True:\n"
        "        ticks += 1\n"
        "        time.sleep(0.001)\n"
        "        if ticks == 20: os.kill(os.getpid(), signal.SIGINT)\n"
        "try:\n"
        "    threading.Thread(target=tick, daemon=True).start()\n"
        "    for part in range(20): uringload.read_into(memory, sys.argv[1], part << 30)\n"
        "    print('all of it')\n"
        "except KeyboardInterrupt:\n"
        "    print('ended')\n"
    )
    command = [sys.executable, "-c", script, str(large)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=120, check=False)
    if done.stdout == "all of it\n":
        pytest.skip("skipped: this machine reads 20 GiB of holes in no time")
    assert done.stdout == "ended\n"


def test_threads_read_at_the_same_time(path: pathlib.Path) -> None:
    targets = [bytearray(2_000_000) for _ in range(4)]

    def read(index: int) -> None:
        for _ in range(5):
            uringload.read_into(targets[index], path, index * 1_000_001)

    threads = [threading.Thread(target=read, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [bytes(target) for target in targets] == [content(index * 1_000_001, 2_000_000) for index in range(4)]


@needs_torch
def test_the_guide_loads_a_checkpoint(tmp_path: pathlib.Path) -> None:
    import torch

    guide = pathlib.Path(__file__).resolve().parents[2] / "docs" / "read-into.md"
    (code,) = re.findall(r"```python\n(.*?)```", guide.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, str(guide), "exec"), names)
    header, data = {"__metadata__": {"format": "pt"}}, b""
    shapes = {"F32": [1000, 700], "BF16": [3, 5], "I64": [], "BOOL": [7], "U8": [0, 4]}
    for name, shape in shapes.items():
        length = torch.Size(shape).numel() * names["TYPES"][name].itemsize
        header[name] = {"dtype": name, "shape": shape, "data_offsets": [len(data), len(data) + length]}
        data += content(len(data), length) if name != "BOOL" else bytes(length)
    written = json.dumps(header).encode()
    checkpoint = tmp_path / "model.safetensors"
    checkpoint.write_bytes(len(written).to_bytes(8, "little") + written + data)
    tensors = names["load"](checkpoint)
    assert list(tensors) == list(shapes)
    found = [tensor.flatten().view(torch.uint8).numpy().tobytes() for tensor in tensors.values() if tensor.numel()]
    assert b"".join(found) == data
