"""`uringload.pack`: shards from Python, with images made smaller."""

from __future__ import annotations

import pathlib
import shutil
import tarfile
from typing import Any

import pytest

import uringload

DATA = pathlib.Path(__file__).parents[2] / "images/tests/data"
PHOTOS = 12


@pytest.fixture
def photos(tmp_path: pathlib.Path) -> pathlib.Path:
    """Images in two classes."""
    for number in range(PHOTOS):
        place = tmp_path / "photos" / ("cats" if number % 2 else "dogs")
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(DATA / "420.jpg", place / f"{number:02}.jpg")
    return tmp_path / "photos"


def members(folder: pathlib.Path) -> dict[str, bytes]:
    """Of all shards, as Python's own tar module reads them."""
    found: dict[str, bytes] = {}
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as shard:
            for member in shard:
                content = shard.extractfile(member)
                assert content is not None and member.name not in found
                found[member.name] = content.read()
    return found


def size_of(jpeg: bytes) -> tuple[int, int]:
    """Height and width of a baseline JPEG."""
    at = jpeg.index(b"\xff\xc0")
    return int.from_bytes(jpeg[at + 5 : at + 7], "big"), int.from_bytes(jpeg[at + 7 : at + 9], "big")


def test_a_folder_becomes_shards(photos: pathlib.Path, tmp_path: pathlib.Path) -> None:
    told: list[tuple[int, int, int]] = []
    report = uringload.pack(photos, tmp_path / "shards", shard_samples=5, progress=lambda *now: told.append(now))
    assert (report.samples, report.shards, report.lacking, report.failed, report.errors) == (PHOTOS, 3, 0, 0, [])
    assert report.images is None and report.predicted is None
    assert report.bytes_written == sum(path.stat().st_size for path in (tmp_path / "shards").glob("*.tar"))
    assert told[-1][:2] == (PHOTOS, PHOTOS) and told[-1][2] >= PHOTOS * (DATA / "420.jpg").stat().st_size
    found = members(tmp_path / "shards")
    assert len(found) == 2 * PHOTOS and found["cats/01.cls"] == b"0" and found["dogs/10.cls"] == b"1"
    assert found["dogs/10.jpg"] == (DATA / "420.jpg").read_bytes()
    # Again: all is there. In parts, of a dataset that is open: the same bytes.
    again = uringload.pack(photos, tmp_path / "shards", shard_samples=5)
    assert (again.samples, again.shards, again.bytes_written) == (PHOTOS, 3, 0)
    dataset = uringload.Dataset(photos)
    shards = [uringload.pack(dataset, tmp_path / "parts", shard_samples=5, part=f"{n}/2").shards for n in range(2)]
    assert shards == [2, 1] and members(tmp_path / "parts") == found


def test_parts_are_proved_at_the_end(photos: pathlib.Path, tmp_path: pathlib.Path) -> None:
    out = tmp_path / "parts"

    def prove() -> uringload.PackReport:
        return uringload.pack(photos, out, shard_samples=5, finish=True)

    with pytest.raises(uringload.NotFoundError, match="no pack has written"):
        prove()
    uringload.pack(photos, out, shard_samples=5, part="0/2")
    with pytest.raises(uringload.NotFoundError, match="1 of 3 shards are missing: numbers 1"):
        prove()
    uringload.pack(photos, out, shard_samples=5, part="1/2")
    assert prove()[:6] == (PHOTOS, 3, 0, 0, [], 0)
    (out / "shard-000001.tar").write_bytes((out / "shard-000000.tar").read_bytes())
    with pytest.raises(uringload.CorruptError, match="is not planned there"):
        prove()


def test_images_are_made_smaller_once(photos: pathlib.Path, tmp_path: pathlib.Path) -> None:
    before = (DATA / "420.jpg").read_bytes()
    height, width = size_of(before)
    side = min(height, width) // 2
    report = uringload.pack(photos, tmp_path / "small", resize=side, quality=60)
    jpegs = [data for name, data in members(tmp_path / "small").items() if name.endswith(".jpg")]
    assert len(jpegs) == PHOTOS and {min(size_of(jpeg)) for jpeg in jpegs} == {side}
    assert report.images == (PHOTOS, PHOTOS * len(before), sum(map(len, jpegs)))
    assert report.images.bytes_after < report.images.bytes_before
    assert report.predicted is not None and report.predicted.images == PHOTOS
    assert report.predicted.bytes_after == report.images.bytes_after
    rates = report.predicted.images_per_s
    assert rates is not None and min(rates) > 0
    uringload.pack(photos, tmp_path / "best", resize=side, quality=100)
    best = [data for name, data in members(tmp_path / "best").items() if name.endswith(".jpg")]
    assert len(best[0]) > len(jpegs[0])
    uringload.pack(photos, tmp_path / "pixels", transform=f"resize({side}x{side})", pixels=True)
    bitmaps = [data for name, data in members(tmp_path / "pixels").items() if name.endswith(".jpg")]
    assert {data[:2] for data in bitmaps} == {b"BM"} and {len(data) // (side * side) for data in bitmaps} == {3}


def test_what_cannot_be_packed_is_refused(photos: pathlib.Path, tmp_path: pathlib.Path) -> None:
    out = tmp_path / "shards"
    two = uringload.mix([uringload.Dataset(photos), uringload.Dataset(photos)], weights=[1, 1])
    parsed = uringload.Dataset.from_index([photos / "cats" / "01.jpg"], parse=len)
    refused: list[tuple[Any, dict[str, Any], str]] = [
        (photos, {"resize": 64, "transform": "resize(64)"}, "resize and transform are given"),
        (photos, {"quality": 50, "pixels": True}, "pixels=True stores none"),
        (photos, {"quality": 101}, "quality cannot be 101"),
        (photos, {"resize": 0}, "resize"),
        (photos, {"resize": 70_000}, "resize cannot be 70000"),
        (photos, {"transform": "resize(64), hflip"}, "random operations"),
        (photos, {"transform": "rezise(64)"}, "rezise"),
        (photos, {"transform": len}, "transform is a"),
        (photos, {"resize": 64, "image_column": "jpg"}, "jpg"),
        (photos, {"align": 100}, "align cannot be 100"),
        (photos, {"keys": "names"}, "keys"),
        (photos, {"part": "2/2"}, "part"),
        (photos, {"part": "0/2", "overwrite": True}, "overwrite|part"),
        (photos, {"shard_samples": 0}, "shard_samples"),
        (photos, {"progress": 7}, "progress is a int"),
        (photos, {"on_error": "replace"}, "replace"),
        (uringload.Dataset(photos), {"format": "folder"}, "format is of use where a path is opened"),
        (two, {}, "a mixture"),
        (parsed, {}, "parse makes samples in Python"),
    ]
    for source, given, words in refused:
        with pytest.raises((uringload.InvalidArgumentError, uringload.ArgumentTypeError), match=words):
            uringload.pack(source, out, **given)
        assert not out.exists(), given
    (tmp_path / "link").symlink_to(photos / "cats")
    for inside in (photos / "shards", photos, tmp_path / "link" / "shards"):
        for source in (photos, uringload.Dataset(photos)):
            with pytest.raises(uringload.InvalidArgumentError, match="within the source"):
                uringload.pack(source, inside)
    with pytest.raises(uringload.NotFoundError):
        uringload.pack(tmp_path / "nothing", out)


def test_an_image_that_cannot_be_decoded(photos: pathlib.Path, tmp_path: pathlib.Path) -> None:
    broken = photos / "cats" / "03.jpg"
    broken.write_bytes(broken.read_bytes()[:300])
    with pytest.raises(uringload.TruncatedError, match='sample 1 ."cats/03".: the JPEG ends early'):
        uringload.pack(photos, tmp_path / "all", resize=64)
    report = uringload.pack(photos, tmp_path / "rest", resize=64, on_error="skip")
    assert (report.samples, report.lacking, report.failed) == (PHOTOS - 1, 1, 1)
    assert [type(error) for error in report.errors] == [uringload.TruncatedError]
    assert len(uringload.Dataset(tmp_path / "rest")) == PHOTOS - 1


def test_a_pack_that_is_ended_goes_on(photos: pathlib.Path, tmp_path: pathlib.Path) -> None:
    class Enough(Exception):
        pass

    def enough(*_: int) -> None:
        raise Enough

    given: dict[str, Any] = {"shard_samples": 1, "num_threads": 1, "resize": 64}
    with pytest.raises(Enough):
        uringload.pack(photos, tmp_path / "shards", progress=enough, **given)
    whole = uringload.pack(photos, tmp_path / "whole", **given)
    assert whole.shards == PHOTOS
    assert uringload.pack(photos, tmp_path / "shards", **given).samples == PHOTOS
    assert members(tmp_path / "shards") == members(tmp_path / "whole")
