"""What a notebook shows of batches and loaders."""

from __future__ import annotations

import pathlib
import shutil
import struct
import zlib
from typing import Any

import pytest
from conftest import needs_numpy, of_records

import uringload

DATA = pathlib.Path(__file__).parents[2] / "images/tests/data"
CHAIN = "random_resized_crop(24x36), hflip, normalize(imagenet)"

pytestmark = needs_numpy


@pytest.fixture
def photos(tmp_path: pathlib.Path) -> pathlib.Path:
    """Six images in two classes."""
    for number in range(6):
        folder = tmp_path / "photos" / ("cats" if number % 2 else "dogs")
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(DATA / ("420.jpg", "rgb.png")[number % 2], folder / f"{number}.jpg")
    return tmp_path / "photos"


def read_png(data: bytes) -> tuple[int, int, list[bytes]]:
    """Width, height and rows of a PNG of RGB whose rows are not filtered."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, chunks = 8, {}
    while at < len(data):
        (length,), kind = struct.unpack(">I", data[at : at + 4]), data[at + 4 : at + 8]
        body = data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length])[0] == zlib.crc32(kind + body)
        chunks[kind] = body
        at += 12 + length
    width, height, depth, color = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert (depth, color) == (8, 2)
    raw = zlib.decompress(chunks[b"IDAT"])
    rows = [raw[row * (3 * width + 1) : (row + 1) * (3 * width + 1)] for row in range(height)]
    assert len(raw) == height * (3 * width + 1) and all(row[0] == 0 for row in rows)
    return width, height, [row[1:] for row in rows]


def test_a_loader_shows_images_before_and_after(photos: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with uringload.DataLoader(photos, 4, shuffle=True, seed=1, output="numpy", key=True,
                              transforms={"data": CHAIN}) as loader:
        sheet = loader.show(samples=3)
        first = next(iter(loader))
        assert len(sheet) == 3
        captions = [caption for _, caption in sheet.cells]
        assert captions == [f"sample {number}, label {label}, key {key}" for number, label, key in
                            zip(first.ids[:3], first["label"].tolist(), first["key"])], "the loader stood still"
        for (before, after), number in zip((pictures for pictures, _ in sheet.cells), first.ids, strict=False):
            assert before.of != after.of and after.of == "24 x 36", number
        page = sheet._repr_html_()
        assert page.count("<img ") == 6 and "stretched" in page and f"sample {first.ids[0]}" in page
        sheet.save(tmp_path / "sheet.png")
        width, height, rows = read_png((tmp_path / "sheet.png").read_bytes())
        assert (width, height) == (3 * (2 * 164 + 4), 168)
        assert any(row != b"\xff" * len(row) for row in rows)
        sheet.save(tmp_path / "sheet.html")
        assert (tmp_path / "sheet.html").read_text().startswith("<!doctype html>")


def test_pictures_are_of_what_is_in_the_batch() -> None:
    import numpy

    red = numpy.zeros((2, 3, 4, 6), numpy.float32)
    red[:, 0] = 1.0
    batch = uringload.Batch({"image": red, "label": numpy.array([3, 4]), "mask": numpy.zeros((2, 5))})
    sheet = batch.show()
    assert [caption for _, caption in sheet.cells] == ["0, label 3", "1, label 4"]
    (picture,), _ = sheet.cells[0]
    # Small images are made larger.
    size = 106 * 160
    assert (picture.height, picture.width, picture.of) == (106, 160, "4 x 6")
    assert picture.pixels == b"\xff\0\0" * size
    assert sheet.note == ""
    width, height, rows = read_png(sheet._repr_png_())
    assert rows[4][12:492] == b"\xff\0\0" * 160 and rows[4][492:504] == rows[4][:12] == b"\xff" * 12
    assert (width, height) == (2 * 168, 168) and rows[0] == rows[110] == b"\xff" * (3 * width)
    # Channels after, of bytes; gray; a float beyond 0 to 1.
    blue = numpy.zeros((1, 4, 6, 3), numpy.uint8)
    blue[..., 2] = 255
    assert uringload.Batch({"x": blue}).show().cells[0][0][0].pixels == b"\0\0\xff" * size
    gray = numpy.full((1, 1, 4, 6), 128, numpy.uint8)
    assert uringload.Batch({"x": gray}).show().cells[0][0][0].pixels == b"\x80\x80\x80" * size
    wide = numpy.linspace(-2, 2, 72, dtype=numpy.float32).reshape(1, 3, 4, 6)
    shown = uringload.Batch({"x": wide}).show()
    pixels = shown.cells[0][0][0].pixels
    assert min(pixels) < 4 and max(pixels) > 251 and "stretched" in shown.note
    page = batch._repr_html_()
    assert "float32 [2, 3, 4, 6]" in page and page.count("<img ") == 2 and "sample" not in page


def test_stored_images_are_shown_too(photos: pathlib.Path) -> None:
    with uringload.DataLoader(photos, 6, output="numpy") as loader:
        batch = next(iter(loader))
        sheet = batch.show(samples=2)
        assert [len(pictures) for pictures, _ in sheet.cells] == [1, 1]
        assert [len(pictures) for pictures, _ in loader.show(samples=2).cells] == [1, 1], "nothing is done to them"
        assert batch._repr_html_().count("<img ") == 6


def test_what_has_no_images_says_so(records: pathlib.Path) -> None:
    with uringload.DataLoader(**of_records(records)) as loader:
        with pytest.raises(uringload.InvalidArgumentError, match="no column has images"):
            loader.show()
        batch = next(iter(loader))
        assert "int32 [32, 64]" in batch._repr_html_() and "<img" not in batch._repr_html_()
        with pytest.raises(uringload.InvalidArgumentError, match="there is no column 'image'"):
            batch.show("image")
        with pytest.raises(uringload.InvalidArgumentError, match="is no image"):
            batch.show("data")
    two: Any = uringload.Batch({"a": [b"\xff\xd8\xff"], "b": [b"GIF8"]})
    with pytest.raises(uringload.InvalidArgumentError, match="the columns a, b have images"):
        two.show()
    # One that cannot be decoded is an error where it is asked for, and a table where it is not.
    broken: Any = uringload.Batch({"a": [b"\xff\xd8\xff"]})
    with pytest.raises(uringload.Error):
        broken.show()
    assert "<table>" in broken._repr_html_()
