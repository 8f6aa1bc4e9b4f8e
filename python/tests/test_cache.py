"""`cache="memory"`: the same batches, and fewer reads."""

from __future__ import annotations

import pathlib
import shutil

import pytest
from conftest import RECORDS, numbers, of_records

import uringload


def test_later_epochs_are_copied_from_memory(records: pathlib.Path) -> None:
    def read(**given: object) -> tuple[list[int], int]:
        with uringload.DataLoader(**of_records(records, shuffle=True, seed=3, **given)) as loader:
            found = [number for _ in range(3) for batch in loader for number in numbers(batch)]
            return found, loader.stats()["bytes_read"]

    plain, all_bytes = read()
    kept, once = read(cache="memory")
    assert plain == kept and sorted(kept) == sorted(list(range(RECORDS)) * 3)
    assert once * 2 < all_bytes


def test_what_is_kept_is_not_lent(folder: pathlib.Path) -> None:
    """A consumer may write to its arrays; the next epoch gets what the files have."""
    with uringload.DataLoader(folder, output="numpy", batch_size=16) as loader:
        wanted = [array.tolist() for batch in loader for array in batch["data"]]
    with uringload.DataLoader(folder, cache="memory", output="numpy", batch_size=16) as loader:
        for _ in range(3):
            found = []
            for batch in loader:
                for array in batch["data"]:
                    found.append(array.tolist())
                    array[:] = 255
            assert found == wanted


def test_only_memory_is_a_cache(records: pathlib.Path) -> None:
    with pytest.raises(uringload.InvalidArgumentError, match="disk"):
        uringload.DataLoader(**of_records(records, cache="disk"))


def test_decoded_images_are_kept(tmp_path: pathlib.Path) -> None:
    data = pathlib.Path(__file__).parents[2] / "images/tests/data"
    (tmp_path / "photos").mkdir()
    for number in range(10):
        shutil.copy(data / ("420.jpg", "rgb.png")[number % 2], tmp_path / "photos" / f"{number}.jpg")

    def read(**given: object) -> tuple[list[object], int, int]:
        chain = "random_resized_crop(16), hflip, normalize(imagenet)"
        with uringload.DataLoader(tmp_path / "photos", 4, shuffle=True, seed=3, output="numpy",
                                  transforms={"data": chain}, **given) as loader:
            found = [batch["data"].tobytes() for _ in range(3) for batch in loader]
            return found, loader.stats()["cache_hits"], loader.stats()["cache_misses"]

    plain, *none = read()
    assert none == [0, 0]
    # Epochs that are read ahead hit too.
    for given, missed in ((None, 10), (tmp_path / "kept", 10), (tmp_path / "kept", 0)):
        found, hits, misses = read(cache_images="1GiB", cache_images_dir=given)
        assert found == plain and misses == missed and hits >= 30 - missed, (given, hits, misses)
    with pytest.raises(uringload.InvalidArgumentError, match="cache_images"):
        uringload.DataLoader(tmp_path / "photos", cache_images_dir=tmp_path / "kept")
