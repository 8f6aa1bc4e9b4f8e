"""A CUDA driver without a GPU: the mock of tests/mocks/cuda, a copy of its file for each test."""

from __future__ import annotations

import ctypes
import os
import pathlib
import shutil

import pytest

LIBRARY = pathlib.Path(
    os.environ.get("URINGLOAD_MOCK_CUDA_LIBRARY")
    or pathlib.Path(__file__).parents[2] / "target" / "debug" / "liburingload_mock_cuda.so"
)

needs_mock = pytest.mark.skipif(
    not LIBRARY.exists(), reason="skipped: no mock of CUDA (cargo build -p uringload-mock-cuda)"
)

#: Counters that are zero when everything was given back.
ALIVE = ("contexts", "streams", "events", "modules", "allocations", "registrations")


class Mock:
    """A driver of its own: what one test sets no other one sees."""

    def __init__(self, folder: pathlib.Path, settings: str = "") -> None:
        self.path = folder / "libcuda.so.1"
        shutil.copy(LIBRARY, self.path)
        self.library = ctypes.CDLL(str(self.path))
        self.call("mock_cuda_configure", settings.encode())

    def call(self, name: str, *arguments: object) -> None:
        code = getattr(self.library, name)(*arguments)
        assert code == 0, f"{name}: code {code}"

    def count(self, name: str) -> int:
        count = ctypes.c_uint64()
        self.call("mock_cuda_count", name.encode(), ctypes.byref(count))
        return count.value

    def alive(self) -> dict[str, int]:
        return {name: self.count(name) for name in ALIVE if self.count(name)}

    def violations(self) -> list[str]:
        found = []
        text = ctypes.create_string_buffer(512)
        while self.library.mock_cuda_violation(ctypes.c_size_t(len(found)), text, len(text)) == 0:
            found.append(text.value.decode())
        return found

    def enter(self) -> None:
        """Makes the context of device 0 the current one of this thread, and keeps it alive until `leave`."""
        context = ctypes.c_size_t()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxPushCurrent_v2", context)

    def leave(self) -> None:
        self.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_size_t()))
        self.call("cuDevicePrimaryCtxRelease_v2", 0)

    def stream(self) -> int:
        stream = ctypes.c_size_t()
        self.call("cuStreamCreateWithPriority", ctypes.byref(stream), 1, 0)
        return stream.value

    def destroy(self, stream: int) -> None:
        self.call("cuStreamDestroy_v2", ctypes.c_size_t(stream))

    def consume(self, stream: int, address: int, length: int, micros: int = 0) -> int:
        """Puts a trainer's kernel into a stream, which reads that many bytes."""
        answer = ctypes.c_size_t()
        numbers = ctypes.c_size_t(stream), ctypes.c_uint64(address), ctypes.c_size_t(length), ctypes.c_uint64(micros)
        self.call("mock_cuda_consume", *numbers, ctypes.byref(answer))
        return answer.value

    def consumed(self, stream: int, answer: int, length: int) -> bytes:
        """What it has read."""
        to = ctypes.create_string_buffer(length)
        self.call("mock_cuda_consumed", ctypes.c_size_t(stream), ctypes.c_size_t(answer), to, ctypes.c_size_t(length))
        return to.raw
