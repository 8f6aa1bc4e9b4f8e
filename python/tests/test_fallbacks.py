"""What the loader does without: the log says it once, with its remedy. And the arrays that a default gives."""

from __future__ import annotations

import logging
import pathlib
import subprocess
import sys
import textwrap

import pytest
from conftest import needs_numpy, needs_torch, of_records

import uringload
from uringload import DataLoader

#: Has the kernel refuse io_uring_setup(2), number 425 everywhere, with EPERM, as containers do.
DENIED = """
    import ctypes, struct

    load, jump_if, give = 0x20, 0x15, 0x06
    program = [(load, 0, 0, 0), (jump_if, 0, 1, 425), (give, 0, 0, 0x00050001), (give, 0, 0, 0x7FFF0000)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in program))
    filter = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program), ctypes.addressof(code)))
    libc = ctypes.CDLL(None)
    assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, filter, 0, 0) == 0
"""


def run(script: str, *arguments: object) -> str:
    """What a script leaves on stderr."""
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_io_uring_that_is_denied_is_one_warning(records: pathlib.Path) -> None:
    try:
        with DataLoader(**of_records(records, io="direct", output="dlpack")) as loader:
            next(iter(loader))
            if loader.route()["engine"] != "uring":
                pytest.skip("skipped: this machine has no io_uring")
    except uringload.Error as error:
        pytest.skip(f"skipped: no O_DIRECT here: {error.headline}")
    told = run(
        DENIED
        + """
    import sys, uringload

    for _ in range(2):
        with uringload.DataLoader(sys.argv[1], 32, record_bytes=256, io="direct", output="dlpack") as loader:
            assert len(list(loader)) == len(list(loader)) == 32
            assert loader.route()["engine"] == "threads"
    with uringload.Reader(sys.argv[1], io="direct") as reader:
        reader.submit(0, (0, 0, 4096))
        assert len(reader.next()[1].tobytes()) == 4096
    memory = bytearray(4096)
    uringload.read_into(memory, sys.argv[1], io="direct")
    """,
        records,
    )
    lines = [line for line in told.splitlines() if "io_uring" in line]
    assert len(lines) == 1 and lines[0].startswith("pread threads instead of io_uring: "), told
    assert "seccomp" in lines[0].partition("; ")[2], told


def test_auto_without_a_gpu_is_a_warning(
    records: pathlib.Path, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = of_records(records, output="dlpack", device="auto", cuda_library=tmp_path / "libcuda.so.1")
    with DataLoader(**given) as loader:
        assert len(list(loader)) == len(list(loader)) == 32
        (step,) = (step for step in loader.route()["fallbacks"] if "instead of a GPU" in step)
    assert [(one.levelname, one.message) for one in caplog.records if "GPU" in one.message] == [("WARNING", step)]


@needs_torch
def test_auto_without_a_gpu_that_torch_finds(records: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("skipped: torch finds a GPU")
    for _ in range(2):
        with DataLoader(**of_records(records, output="torch", device="auto")) as loader:
            assert next(iter(loader))["data"].device.type == "cpu"
            (step,) = (step for step in loader.route()["fallbacks"] if "instead of a GPU" in step)
    assert [(one.levelname, one.message) for one in caplog.records if "GPU" in one.message] == [("WARNING", step)]
    with DataLoader(**of_records(records, output="torch")) as loader:
        next(iter(loader))
        assert not [step for step in loader.route()["fallbacks"] if "GPU" in step], "it was not asked for"


@needs_numpy
def test_a_choice_is_no_warning(records: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "uringload")
    records.read_bytes()
    with DataLoader(**of_records(records)) as loader:
        list(loader)
        steps = [step for step in loader.route()["fallbacks"] if "page cache" in step]
    levels = [one.levelname for one in caplog.records if one.message in steps]
    assert steps and levels == ["INFO"]


def test_without_torch_and_numpy_arrays_are_our_own(records: pathlib.Path) -> None:
    script = """
    import sys
    sys.modules.update(torch=None, numpy=None)
    import uringload

    with uringload.DataLoader(sys.argv[1], 32, record_bytes=256) as loader:
        assert type(next(iter(loader))["data"]) is uringload.Tensor
    for name in ("torch", "numpy"):
        try:
            uringload.DataLoader(sys.argv[1], 32, record_bytes=256, output=name)
        except uringload.UnavailableError as error:
            assert f"pip install {name}" in error.remedy
        else:
            raise AssertionError("it was asked for by name")
    """
    run(script, records)


@needs_numpy
def test_without_torch_arrays_are_numpys(records: pathlib.Path) -> None:
    test = """
    import sys
    sys.modules["torch"] = None
    import numpy, uringload

    with uringload.DataLoader(sys.argv[1], 32, record_bytes=256) as loader:
        assert type(next(iter(loader))["data"]) is numpy.ndarray
    with uringload.DataLoader(sys.argv[1], 32, record_bytes=256, device="auto", cuda_library="/no/libcuda") as loader:
        assert type(next(iter(loader))["data"]) is uringload.Tensor, "NumPy has no arrays on a GPU"
    """
    assert "instead of a GPU" in run(test, records)


@needs_torch
def test_with_torch_arrays_are_torchs(records: pathlib.Path) -> None:
    import torch

    with DataLoader(records, 32, record_bytes=256) as loader:
        assert type(next(iter(loader))["data"]) is torch.Tensor
