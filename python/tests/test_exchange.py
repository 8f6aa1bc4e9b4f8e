"""torch's tensors by DLPack's C exchange API, and by capsules where there is none: the same bytes, without a copy."""

from __future__ import annotations

import gc
import pathlib
import types
import weakref
from typing import Any

import pytest
from conftest import RECORDS, numbers, of_records

import uringload
from uringload import _output
from uringload import _uringload as native

torch = pytest.importorskip("torch", reason="skipped: torch is not installed")

HAS_API = hasattr(torch.Tensor, "__dlpack_c_exchange_api__")


@pytest.fixture(params=["exchange", "capsules"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each of the two ways to make tensors; the second is that of an older torch."""
    if request.param == "capsules":
        monkeypatch.setattr(_output, "_exchange", lambda torch: None)
    elif not HAS_API:
        pytest.skip("skipped: this torch has no C exchange API of DLPack")
    return str(request.param)


def test_the_same_tensors_either_way(records: pathlib.Path, folder: pathlib.Path, way: str) -> None:
    with uringload.DataLoader(**of_records(records, output="torch", shuffle=True)) as loader:
        assert sorted(number for batch in loader for number in numbers(batch)) == list(range(RECORDS))
    with uringload.DataLoader(folder, output="numpy", batch_size=16) as loader:
        wanted = [array.tolist() for batch in loader for array in batch["data"]]
    with uringload.DataLoader(folder, output="torch", batch_size=16) as loader:
        found = [array for batch in loader for array in batch["data"]]
    assert all(array.dtype == torch.uint8 for array in found)
    assert [array.tolist() for array in found] == wanted


@pytest.mark.parametrize("dtype", ["u8", "i8", "u16", "i32", "i64", "f16", "bf16", "f32", "f64", "bool", "f8e4m3"])
def test_every_type(records: pathlib.Path, way: str, dtype: str) -> None:
    given = of_records(records, output="torch", dtype=dtype)
    with uringload.DataLoader(**given) as loader:
        batch = next(iter(loader))
    array = batch["data"].view(torch.uint8)
    assert bytes(array.flatten().numpy().tobytes()) == records.read_bytes()[: array.numel()]


def test_memory_is_shared_and_freed_once(records: pathlib.Path, way: str) -> None:
    given = of_records(records, output="dlpack", collate="views", batch_size=8)
    tensors = next(iter(uringload.DataLoader(**given)))["data"]
    made = _output._torch_tensors()(tensors)
    assert [array.data_ptr() for array in made] == [tensor.data_ptr for tensor in tensors]
    made[0][:] = -1
    assert set(tensors[0].tobytes()) == {0xFF}
    del tensors
    gc.collect()
    assert made[1].tolist() == [1] * 64
    gone = weakref.ref(made[1])
    del made
    gc.collect()
    assert gone() is None


def test_an_empty_list_of_another_type_and_of_none(records: pathlib.Path) -> None:
    if not HAS_API:
        pytest.skip("skipped: this torch has no C exchange API of DLPack")
    exchange = native.Exchange(torch.Tensor)
    assert exchange.tensors([]) == []
    with pytest.raises(TypeError):
        exchange.tensors([torch.zeros(1)])  # type: ignore[list-item]
    assert "DLPack 1." in repr(exchange)


def test_a_type_without_the_api_or_with_another() -> None:
    with pytest.raises(AttributeError):
        native.Exchange(int)
    for wrong in (7, None, "dlpack_exchange_api"):
        with pytest.raises((ValueError, TypeError)):
            native.Exchange(type("Wrong", (), {"__dlpack_c_exchange_api__": wrong}))
    old: Any = types.SimpleNamespace(Tensor=int)
    assert _output._exchange(old) is None
