"""A GPU's memory from another allocator: a pair of C functions, or that of a library of tensors."""

from __future__ import annotations

import gc
import pathlib
from typing import Any

import pytest
from conftest import of_records
from mock_cuda import Mock, needs_mock
from pool import FREE, Pool, tensors

from uringload import DataLoader

pytestmark = needs_mock


@pytest.fixture
def mock(tmp_path: pathlib.Path) -> Mock:
    return Mock(tmp_path)


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
    pairs = ((allocate,), (allocate, pool.free), (allocate, True), [1.5, free], (allocate, free, free))
    for wrong in (7, "torch", *pairs):
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
