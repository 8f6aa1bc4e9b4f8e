"""Large arrays of a transform: they go into their batch one by one, and a batch is what it would be without that."""

from __future__ import annotations

import pathlib
import weakref
from typing import Any

import pytest
from conftest import needs_numpy, of_records

from uringload import DataLoader

pytestmark = needs_numpy


def number(sample: dict[str, Any]) -> int:
    return int(sample["data"][0])


def large(found: int, kind: str) -> Any:
    """A large array of a column, as transforms of several kinds make it."""
    import numpy as np

    shape = (3, 6000) if kind != "shapes" or found % 7 else (3, 6001)
    made = np.full(shape, found, np.float64 if kind == "types" and found % 7 == 3 else np.float32)
    if kind == "layouts" and found % 7 == 3:
        return np.asfortranarray(made)
    if kind == "torch":
        import torch

        return torch.from_numpy(made)
    return made.view(made.dtype.newbyteorder(">")) if kind == "bytes" else made


@pytest.mark.parametrize("kind", ["alike", "shapes", "types", "layouts", "bytes", "none", "torch"])
@pytest.mark.parametrize("form", ["dict", "tuple", "bare"])
def test_large_arrays_are_stacked_as_small_ones_are(
    records: pathlib.Path, monkeypatch: pytest.MonkeyPatch, kind: str, form: str
) -> None:
    import numpy as np

    if kind == "torch":
        pytest.importorskip("torch")
    given: list[Any] = []

    def transform(sample: dict[str, Any]) -> Any:
        found = number(sample)
        made = None if kind == "none" and found % 7 == 3 else large(found, kind)
        wrapped = {"dict": {"x": made, "n": found}, "tuple": (made, found), "bare": made}[form]
        given.append((wrapped, made))
        return wrapped

    def arrays(batch: Any) -> list[Any]:
        return list(batch["x"] if form == "dict" else batch[0] if form == "tuple" else batch)

    def run() -> list[Any]:
        with DataLoader(**of_records(records, batch_size=16, transform=transform)) as loader:
            return [batch for batch, _ in zip(loader, range(4))]

    made = run()
    assert all(form == "bare" or wrapped["x" if form == "dict" else 0] is own for wrapped, own in given), "it is theirs"
    monkeypatch.setattr("uringload._collate.ROW_BYTES_LEAST", 1 << 40)
    for one, other in zip(made, run()):
        assert type(one) is type(other) and (form != "dict" or one["n"].tolist() == other["n"].tolist())
        assert len(arrays(one)) == len(arrays(other)) == 16
        for row, expected in zip(arrays(one), arrays(other)):
            assert type(row) is type(expected)
            assert row is None or (row.dtype == expected.dtype and np.array_equal(row, expected))


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_large_arrays_of_failed_samples_leave_no_gap(records: pathlib.Path, on_error: str) -> None:
    def transform(sample: dict[str, Any]) -> dict[str, Any]:
        if number(sample) in (0, 7, 31, 40):
            raise OSError("image file is truncated")
        return {"x": large(number(sample), "alike"), "n": number(sample)}

    with DataLoader(**of_records(records, batch_size=16, on_error=on_error, transform=transform)) as loader:
        for batch, _ in zip(loader, range(4)):
            assert len(batch["x"]) == len(batch["n"]) >= 14
            assert (batch["x"] == batch["n"][:, None, None]).all(), "each row is its sample's"


def test_the_memory_of_a_large_array_is_free_when_the_next_is_made(records: pathlib.Path) -> None:
    made: list[weakref.ref[Any]] = []
    alive: list[int] = []

    def transform(sample: dict[str, Any]) -> dict[str, Any]:
        alive.append(sum(one() is not None for one in made))
        array = large(number(sample), "alike")
        made.append(weakref.ref(array))
        return {"x": array}

    with DataLoader(**of_records(records, batch_size=16, num_threads=0, transform=transform)) as loader:
        assert next(iter(loader))["x"].shape == (16, 3, 6000)
    # The first waits for one like it.
    assert max(alive[:16]) == 1, alive
