"""JPEGs whose signs of colour contradict each other (JFIF, Adobe's transform, names of components), against Pillow."""

from __future__ import annotations

import io
import itertools
import pathlib
from collections.abc import Iterator

import pytest

Image = pytest.importorskip("PIL.Image", reason="skipped: Pillow is not installed")
np = pytest.importorskip("numpy", reason="skipped: NumPy is not installed")

from drawn import decoded  # noqa: E402

JFIF = b"\xff\xe0\0\x10JFIF\0\1\1\0\0\1\0\1\0\0"
SIDE = 48
NAMES = {3: (b"\1\2\3", b"\0\1\2", b"RGB", b"\1\2\4"), 4: (b"\1\2\3\4", b"CMYK")}
UNKNOWN = 7


def photo(components: int) -> Image.Image:
    y, x = np.mgrid[0:SIDE, 0:SIDE]
    planes = [x * 4, y * 5, (x + y) * 2, 255 - x * 2][:components]
    return Image.fromarray(np.stack(planes, -1).astype("u1"), {3: "RGB", 4: "CMYK"}[components])


def signed(encoded: bytes, before: bytes, names: bytes) -> bytes:
    """The same codes, after other signs of what they are."""
    out, at, known = b"\xff\xd8" + before, 2, b""
    while encoded[at + 1] != 0xD9:
        segment = bytearray(encoded[at : at + 2 + int.from_bytes(encoded[at + 2 : at + 4], "big")])
        at += len(segment)
        if segment[1] in (0xC0, 0xC2):
            known = bytes(segment[10::3])
            segment[10::3] = names
        if segment[1] == 0xDA:
            count = segment[4]
            segment[5 : 5 + 2 * count : 2] = bytes(names[known.index(name)] for name in segment[5 : 5 + 2 * count : 2])
            while encoded[at] != 0xFF or encoded[at + 1] == 0:
                segment.append(encoded[at])
                at += 1
        if segment[1] not in (0xE0, 0xEE):
            out += segment
    return out + b"\xff\xd9"


def files() -> Iterator[tuple[str, bytes]]:
    for components, sampling, progressive in [(3, 0, False), (3, 2, False), (3, 2, True), (4, 0, False), (4, 0, True)]:
        held = io.BytesIO()
        photo(components).save(held, "JPEG", quality=90, subsampling=sampling, progressive=progressive)
        for jfif, adobe, names in itertools.product((b"", JFIF), (None, 0, 1, 2, UNKNOWN), NAMES[components]):
            segment = b"" if adobe is None else b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0" + bytes([adobe])
            for before in {jfif + segment, segment + jfif}:
                name = f"{components} {sampling} {progressive} {before.hex()} {names.hex()} adobe {adobe}.jpg"
                yield name, signed(held.getvalue(), before, names)


@pytest.mark.parametrize("side", [SIDE, 8])
def test_signs_that_contradict(tmp_path: pathlib.Path, side: int) -> None:
    all_files = dict(files())
    for name, content in all_files.items():
        (tmp_path / name).write_bytes(content)
    made, by_turbo = decoded(tmp_path, f"center_crop({side}), to_tensor(u8)")
    from_end = (SIDE - side) // 2
    for name, found in made.items():
        with Image.open(tmp_path / name) as image:
            want = np.asarray(image.convert("RGB"), "i4")[from_end : from_end + side, from_end : from_end + side]
        if name.endswith(f"adobe {UNKNOWN}.jpg") and not by_turbo:
            assert f"Unknown Adobe colorspace {UNKNOWN}" in str(found), name
            continue
        assert not isinstance(found, (str, Exception)), f"{name}: {found}"
        # The embedded decoder rounds otherwise, and takes the chroma of the last column from the padding.
        apart = np.abs(np.moveaxis(np.asarray(found, "i4"), 0, -1) - want).max()
        assert apart <= (0 if by_turbo else 8), f"{name}: {apart} levels apart"
