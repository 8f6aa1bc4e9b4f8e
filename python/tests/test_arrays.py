"""Arrays of numbers: parts of them and other types, held against NumPy."""

from __future__ import annotations

import pathlib
import time
from typing import Any

import pytest
from conftest import needs_numpy

import uringload

STEPS: dict[str, Any] = {
    "array(slice(1:, :-1, -4:))": lambda array: array[1:, :-1, -4:],
    "array(center_crop(3x4x5))": lambda array: array[0:3, 1:5, 1:6],
    "array(random_flip(1, p=1), slice(:, 0:2))": lambda array: array[:, ::-1][:, 0:2],
}


def stored(folder: pathlib.Path, dtype: str) -> list[Any]:
    import numpy as np

    rng = np.random.default_rng(3)
    kind = np.dtype(dtype).kind
    low, high = (0, 250) if kind == "u" else (-120, 120)
    arrays = [(rng.random((4, 6, 7)) * (high - low) + low).astype(dtype) for _ in range(9)]
    for number, array in enumerate(arrays):
        np.save(folder / f"{number}.npy", array)
    return arrays


@needs_numpy
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "int16", "uint8"])
def test_parts_and_types_are_those_of_numpy(tmp_path: pathlib.Path, dtype: str) -> None:
    import numpy as np

    arrays = stored(tmp_path, dtype)
    for text, part in STEPS.items():
        for to, name in [(dtype, None), ("float32", "f32"), ("float16", "f16"), ("int32", "i32"), ("float64", "f64")]:
            steps = text if name is None else f"{text[:-1]}, cast({name}))"
            given: dict[str, Any] = {"format": "npy", "batch_size": 4, "output": "numpy", "shuffle": True}
            with uringload.DataLoader(tmp_path, transforms={"data": steps}, **given) as loader:
                count = 0
                for batch in loader:
                    wanted = np.stack([part(arrays[number]) for number in batch.ids]).astype(to)
                    assert batch["data"].dtype == wanted.dtype and np.array_equal(batch["data"], wanted), (steps, to)
                    count += len(batch.ids)
                assert count == 9


@needs_numpy
def test_random_parts_are_the_same_in_each_pass_of_an_epoch(tmp_path: pathlib.Path) -> None:
    stored(tmp_path, "float32")
    given: dict[str, Any] = {"format": "npy", "batch_size": 3, "output": "numpy", "shuffle": True, "seed": 4}
    passes = []
    for threads in (1, 3):
        with uringload.DataLoader(tmp_path, transforms={"data": "array(random_crop(2x3x3))"}, num_threads=threads,
                                  **given) as loader:  # fmt: skip
            passes.append([batch["data"].tobytes() for _ in range(2) for batch in loader])
    assert passes[0] == passes[1] and passes[0][:3] != passes[0][3:]


def at_rest(loader: uringload.DataLoader) -> dict[str, Any]:
    """The numbers of a loader that has read ahead what it may.

    Earlier it may have read the images of some samples, and not their masks.
    """
    before, deadline = loader.stats(), time.monotonic() + 30
    while True:
        time.sleep(0.2)
        after = loader.stats()
        if after["bytes_read"] == before["bytes_read"]:
            return after
        assert time.monotonic() < deadline, "it reads on and on"
        before = after


@needs_numpy
@pytest.mark.parametrize("kind", ["npz", "hdf5", "deflated"])
def test_only_the_rows_of_a_crop_are_read(tmp_path: pathlib.Path, kind: str) -> None:
    import numpy as np

    rng = np.random.default_rng(5)
    images = rng.random((9, 32, 64, 64), dtype=np.float32)
    masks = rng.integers(0, 9, (9, 32, 64, 64), dtype=np.uint8)
    if kind == "hdf5":
        h5py = pytest.importorskip("h5py", reason="skipped: h5py is not installed")
        with h5py.File(tmp_path / "scans.h5", "w") as file:
            file["image"], file["mask"] = images, masks
    else:
        save = np.savez if kind == "npz" else np.savez_compressed
        for number in range(9):
            save(tmp_path / f"{number}.npz", image=images[number], mask=masks[number])
    steps = {"image": "array(slice(24:), random_crop(64x64))", "mask": "array(slice(24:))"}
    given: dict[str, Any] = {"batch_size": 4, "output": "numpy", "shuffle": True, "index": True}
    with uringload.DataLoader(tmp_path, transforms=steps, **given) as loader:
        for batch in loader:
            assert np.array_equal(batch["image"], images[batch["index"], 24:])
            assert np.array_equal(batch["mask"], masks[batch["index"], 24:])
        stats, told = at_rest(loader), loader.route()["text"]
    # Of an image and a mask. The loader reads ahead, into the next pass.
    read = 2 * stats["bytes_read"] / stats["read_latency"]["count"]
    whole = (images.nbytes + masks.nbytes) / 9
    is_told = "of image, mask only the rows that are used are read (25 % of the bytes)" in told
    assert is_told == (kind != "deflated"), told
    # Reads past the page cache are of whole pages.
    assert kind == "deflated" or whole * 0.24 < read < whole * 0.29, (read, whole)


def test_what_says_nothing_of_arrays_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "numbers.bin").write_bytes(bytes(64))
    given: dict[str, Any] = {"record_bytes": 16, "dtype": "u8", "batch_size": 2, "output": "dlpack"}
    for text, why in [("array(crop(2))", "no step of array"), ("array(random_crop(99))", "larger than"),
                      ("array(cast(f31))", "no step of array")]:
        with pytest.raises(ValueError, match=why), uringload.DataLoader(
                tmp_path / "numbers.bin", transforms={"data": text}, **given) as loader:
            next(iter(loader))
