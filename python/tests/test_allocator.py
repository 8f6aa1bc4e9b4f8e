"""A GPU's memory from somebody else's allocator: a pair of C functions, or that of a library of tensors."""

from __future__ import annotations

import ctypes
import gc
import pathlib
from typing import Any

import pytest
from conftest import of_records
from mock_cuda import Mock, needs_mock

from uringload import DataLoader

pytestmark = needs_mock

ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)


@pytest.fixture
def mock(tmp_path: pathlib.Path) -> Mock:
    return Mock(tmp_path)


class Pool:
    """The mock's memory. What was taken is counted, by address."""

    def __init__(self, mock: Mock) -> None:
        self.mock = mock
        self.taken: dict[int, int] = {}
        self.most = 1 << 40
        self.wrong: list[object] = []
        self.functions = (ALLOCATE(self.allocate), FREE(self.free))

    def take(self, length: int) -> int:
        if length > self.most:
            return 0
        address = ctypes.c_uint64()
        self.mock.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(length))
        self.taken[address.value] = length
        return address.value

    def allocate(self, length: int, device: int, stream: int | None) -> int:
        self.wrong += [seen for seen in (device, stream) if seen]
        return self.take(length)

    def give(self, address: int) -> int:
        length = self.taken.pop(address)
        self.mock.call("cuMemFree_v2", ctypes.c_uint64(address))
        return length

    def free(self, address: int, length: int, device: int, stream: int | None) -> None:
        self.wrong += [seen for seen in (device, stream, length - self.give(address)) if seen]


class Tensor(ctypes.Structure):
    """``DLTensor``."""

    _fields_ = (
        ("data", ctypes.c_uint64), ("kind", ctypes.c_int32), ("number", ctypes.c_int32), ("dimensions", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64),
    )


class Managed(ctypes.Structure):
    """``DLManagedTensorVersioned``."""

    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", Tensor),
    )


class Table(ctypes.Structure):
    """``DLPackExchangeAPI``."""

    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("previous", ctypes.c_void_p),
        ("allocator", ctypes.c_void_p), ("others", ctypes.c_void_p * 3), ("current_stream", ctypes.c_void_p),
    )


TELL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
MAKE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(Tensor), ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p, TELL
)
DELETE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
CURRENT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))


def tensors(pool: Pool, major: int = 1, has_allocator: bool = True) -> type:
    """A type of tensors whose memory is the pool's."""
    made: dict[int, Managed] = {}

    @MAKE
    def make(asked: Any, to: Any, context: int, tell: Any) -> int:
        wanted = asked[0]
        if (wanted.kind, wanted.number, wanted.dimensions, wanted.code, wanted.bits, wanted.lanes) != (2, 0, 1, 1, 8, 1):
            pool.wrong.append("a prototype")
        address = pool.take(wanted.shape[0])
        if address == 0:
            tell(context, b"MemoryError", b"the pool is empty")
            return -1
        # Somewhere within an allocation, as a tensor may be.
        tensor = Tensor(address - 512, 2, 0, 1, 1, 8, 1, None, None, 512)
        managed = Managed(1, 1, None, ctypes.cast(delete, ctypes.c_void_p), 0, tensor)
        made[ctypes.addressof(managed)] = managed
        to[0] = ctypes.addressof(managed)
        return 0

    @DELETE
    def delete(managed: int) -> None:
        tensor = made.pop(managed).tensor
        pool.give(tensor.data + tensor.offset)

    @CURRENT
    def current(kind: int, device: int, stream: Any) -> int:
        stream[0] = None
        return 0

    functions = [ctypes.cast(function, ctypes.c_void_p) for function in (make, current)]
    table = Table(major, 3, None, functions[0] if has_allocator else None)
    table.current_stream = functions[1]
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype, capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    api = capsule(ctypes.addressof(table), b"dlpack_exchange_api", None)
    return type("Tensors", (), {"__dlpack_c_exchange_api__": api, "kept": (table, make, delete, current, made)})


@pytest.mark.parametrize("kind", ["functions", "tensors"])
def test_memory_is_the_allocators_and_comes_back(records: pathlib.Path, mock: Mock, kind: str) -> None:
    pool = Pool(mock)
    given: Any = pool.functions if kind == "functions" else tensors(pool)
    on_gpu = of_records(records, output="dlpack", shuffle=True, device="cuda:0", cuda_library=mock.path)
    with DataLoader(**of_records(records, output="dlpack", shuffle=True)) as host:
        wanted = [batch["data"].tobytes() for batch in host]
    with DataLoader(**on_gpu, device_memory="300KiB", device_allocator=given) as loader:
        for number, batch in enumerate(loader):
            data = batch["data"]
            assert data.tobytes() == wanted[number]
            assert list(pool.taken.values()) == [300 << 10]
            [start] = pool.taken
            assert start <= data.data_ptr < start + (300 << 10)
        assert number == len(wanted) - 1
    del batch
    gc.collect()
    assert len(pool.taken) == 1, "a tensor keeps its memory"
    del data, loader
    gc.collect()
    assert pool.taken == {} and pool.wrong == []
    assert mock.violations() == [] and mock.alive() == {}


@pytest.mark.parametrize("kind", ["functions", "tensors"])
def test_an_allocator_without_memory(records: pathlib.Path, mock: Mock, kind: str) -> None:
    pool = Pool(mock)
    given: Any = pool.functions if kind == "functions" else tensors(pool)
    on_gpu = of_records(records, output="dlpack", device="cuda:0", cuda_library=mock.path, device_allocator=given)
    # Less than three batches, and less than one.
    pool.most = 600_000
    with DataLoader(**on_gpu) as loader:
        assert sum(len(batch.ids) for batch in loader) > 0
        assert any("were not free" in str(step) for step in loader.route()["fallbacks"])
    pool.most = 100
    told = "MemoryError: the pool is empty" if kind == "tensors" else "it returned null"
    with pytest.raises(MemoryError, match=f"does not fit on cuda:0.*{told}"), DataLoader(**on_gpu) as loader:
        next(iter(loader))
    del loader
    gc.collect()
    assert pool.taken == {} and mock.alive() == {}


def test_torchs_own_allocator_is_asked(records: pathlib.Path, mock: Mock) -> None:
    """Of torch without CUDA, which has no memory of a GPU and says so by its own error."""
    torch = pytest.importorskip("torch", reason="skipped: torch is not installed")
    if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__") or torch.cuda.is_available():
        pytest.skip("skipped: this torch has no C exchange API of DLPack, or a GPU")
    given = of_records(records, output="dlpack", device="cuda:0", cuda_library=mock.path)
    with pytest.raises(MemoryError, match="does not fit"), DataLoader(**given, device_allocator=torch.Tensor) as loader:
        next(iter(loader))


def test_what_is_no_allocator_is_refused(records: pathlib.Path, mock: Mock) -> None:
    pool = Pool(mock)
    allocate, free = pool.functions
    given = of_records(records, output="dlpack", device="cuda:0", cuda_library=mock.path)
    for wrong in (7, "torch", (allocate,), (allocate, pool.free), (allocate, True), [1.5, free], (allocate, free, free)):
        with pytest.raises(TypeError, match="device_allocator"):
            DataLoader(**given, device_allocator=wrong)
    for wrong in ((0, free), (allocate, -1), (allocate, 1 << 64), (FREE(), free)):
        with pytest.raises(ValueError, match="is at address"):
            DataLoader(**given, device_allocator=wrong)
    for kind in (int, tensors(pool, major=0), tensors(pool, has_allocator=False)):
        with pytest.raises(RuntimeError, match="lends no allocator"):
            DataLoader(**given, device_allocator=kind)
    with pytest.raises(ValueError, match="of no use"):
        DataLoader(**of_records(records, output="dlpack", device_allocator=pool.functions))
