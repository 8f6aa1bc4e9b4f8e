"""Which way is up: as Pillow's `exif_transpose` finds it, in every format and wherever it is said."""

from __future__ import annotations

import io
import os
import pathlib
import struct
import tempfile
import warnings
import zlib
from typing import Any

import pytest
from conftest import needs_numpy

import uringload

hypothesis = pytest.importorskip("hypothesis", reason="skipped: hypothesis is not installed")
Image = pytest.importorskip("PIL.Image", reason="skipped: Pillow is not installed")
np = pytest.importorskip("numpy", reason="skipped: NumPy is not installed")
st = hypothesis.strategies

pytestmark = needs_numpy

DRAWS = int(os.environ.get("URINGLOAD_DRAWS", "300"))
SIDE = 24
KINDS = {1: "B", 3: "H", 4: "L", 5: "2L", 6: "b", 7: "B", 8: "h", 9: "l", 11: "f", 12: "d", 13: "L", 16: "Q", 99: "L"}
PLACES = ("JPEG", "PNG", "PNG behind", "PNG raw profile", "WEBP", "TIFF")


def exif(value: int, kind: int, count: int, endian: str) -> bytes:
    """EXIF data, from its TIFF header on: another tag, and the orientation."""
    numbers = struct.pack(endian + KINDS[kind] * count, *([value, *([1] if kind == 5 else [])] * count))
    is_far = len(numbers) > 4
    field = struct.pack(endian + "L", 38) if is_far else numbers.ljust(4, b"\0")
    head = (b"II\x2a\0" if endian == "<" else b"MM\0\x2a") + struct.pack(endian + "L", 8)
    other = struct.pack(endian + "HHLHH", 0x10F, 3, 1, 7, 0)
    entry = struct.pack(endian + "HHL", 0x112, kind, count) + field
    return head + struct.pack(endian + "H", 2) + other + entry + bytes(4) + (numbers if is_far else b"")


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">L", len(data)) + name + data + struct.pack(">L", zlib.crc32(name + data))


def png(pixels: Any, chunks: list[bytes], is_behind: bool) -> bytes:
    made = io.BytesIO()
    Image.fromarray(pixels).save(made, "PNG")
    whole = made.getvalue()
    at = len(whole) - 12 if is_behind else 33
    return whole[:at] + b"".join(chunks) + whole[at:]


def xmp_of(value: int, is_tag: bool) -> bytes:
    said = f"<tiff:Orientation>{value}</tiff:Orientation>" if is_tag else f'<a tiff:Orientation="{value}"/>'
    return b"<x:xmpmeta>" + said.encode() + b"</x:xmpmeta>"


def file_of(pixels: Any, place: str, tags: bytes, xmp: bytes, is_deflated: bool) -> bytes:
    made, kind = io.BytesIO(), place.split()[0]
    if kind == "PNG":
        chunks = []
        if tags and place == "PNG raw profile":
            text = f"\nexif\n{len(tags) + 6:8}\n{(b'Exif' + bytes(2) + tags).hex()}\n".encode()
            key = b"Raw profile type exif\0"
            deflated = chunk(b"zTXt", key + b"\0" + zlib.compress(text))
            chunks.append(deflated if is_deflated else chunk(b"tEXt", key + text))
        elif tags:
            chunks.append(chunk(b"eXIf", tags))
        if xmp:
            text = zlib.compress(xmp) if is_deflated else xmp
            chunks.append(chunk(b"iTXt", b"XML:com.adobe.xmp\0" + bytes([is_deflated, 0]) + b"\0\0" + text))
        return png(pixels, chunks, place == "PNG behind")
    image = Image.fromarray(pixels)
    if kind == "TIFF":
        image.save(made, "TIFF", tiffinfo={700: xmp} if xmp else {})
    else:
        how: dict[str, Any] = {"lossless": True} if kind == "WEBP" else {"quality": 100, "subsampling": 0}
        given = {name: value for name, value in (("exif", b"Exif\0\0" + tags if tags else b""), ("xmp", xmp)) if value}
        image.save(made, kind, **how, **given)
    return made.getvalue()


def read(data: bytes, orient: bool | None) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "0.img").write_bytes(data)
        chain = f"center_crop({SIDE}x{SIDE}), to_tensor(u8, hwc)"
        with uringload.DataLoader(folder, 1, output="numpy", transforms={"data": chain}, orient=orient) as loader:
            return next(iter(loader))["data"][0].astype(int)


def opened(data: bytes, orient: bool) -> Any:
    """The same by Pillow."""
    from PIL import ImageOps

    image = Image.open(io.BytesIO(data))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pixels = np.array((ImageOps.exif_transpose(image) if orient else image).convert("RGB"))
    whole = np.zeros((SIDE, SIDE, 3), int)
    top, left = (SIDE - pixels.shape[0]) // 2, (SIDE - pixels.shape[1]) // 2
    whole[top:][: pixels.shape[0], left:][:, : pixels.shape[1]] = pixels
    return whole


def check(place: str, tags: bytes, xmp: bytes, is_deflated: bool) -> None:
    pixels = np.zeros((10, 16, 3), np.uint8)
    pixels[:5, :8], pixels[5:, 8:], pixels[:3, 13:] = (250, 20, 20), (20, 20, 250), (20, 250, 20)
    data = file_of(pixels, place, tags, xmp, is_deflated)
    for orient in (True, False):
        difference = np.abs(read(data, orient) - opened(data, orient))
        # Two decoders of JPEG.
        assert difference.max() <= (8 if place == "JPEG" else 0), (place, tags, xmp, orient)


@hypothesis.settings(max_examples=DRAWS, deadline=None, derandomize=DRAWS <= 300, database=None)
@hypothesis.given(st.sampled_from(PLACES), st.sampled_from([*KINDS]), st.integers(0, 9), st.integers(1, 2),
                  st.sampled_from("<>"), st.sampled_from(["none", "tag", "quoted"]), st.integers(0, 9), st.booleans(),
                  st.booleans())
def test_any_file_is_turned_as_pillow_turns_it(place: str, kind: int, value: int, count: int, endian: str, xmp: str,
                                               other: int, has_exif: bool, is_deflated: bool) -> None:
    tags = exif(value, kind, count, endian) if has_exif else b""
    check(place, tags, b"" if xmp == "none" else xmp_of(other, xmp == "tag"), is_deflated)


@pytest.mark.parametrize("place", PLACES[:-1])
def test_orientations_that_were_passed_over(place: str) -> None:
    """LONG values, `eXIf` after the pixels, and XMP: nothing was turned for them."""
    check(place, exif(6, 4, 1, ">"), b"", True)
    check(place, b"", xmp_of(8, False), True)


def test_orient_is_for_paths(tmp_path: pathlib.Path) -> None:
    with pytest.raises(uringload.InvalidArgumentError, match="orient is for images that are read by their paths"):
        uringload.DataLoader([1, 2, 3], 1, orient=True)
    (tmp_path / "0.dat").write_bytes(b"0")
    with pytest.raises(uringload.ArgumentTypeError, match="orient"):
        uringload.DataLoader(tmp_path, 1, orient="up")


def test_an_image_folder_is_not_turned(tmp_path: pathlib.Path) -> None:
    """As torchvision opens it, wherever its transform runs; by their paths the same photos are turned."""
    pytest.importorskip("torchvision", reason="skipped: torchvision is not installed")
    import torch
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    (tmp_path / "a").mkdir()
    pixels = np.zeros((20, 30, 3), np.uint8)
    pixels[:8, :8], pixels[15:] = (250, 20, 20), (20, 20, 250)
    for value in (1, 3, 6, 8):
        (tmp_path / f"a/{value}.png").write_bytes(png(pixels, [chunk(b"eXIf", exif(value, 3, 1, "<"))], False))
    resize, tensor = transforms.Resize((16, 16)), transforms.ToTensor()
    for steps in ([resize, tensor], [resize, transforms.RandomPerspective(p=0), tensor],
                  [transforms.Lambda(lambda image: image), resize, tensor]):  # fmt: skip
        compose = transforms.Compose(steps)
        folder = ImageFolder(str(tmp_path), compose)
        theirs = torch.stack([image for image, _ in folder])
        with uringload.DataLoader(folder, 4) as loader:
            assert (next(iter(loader))[0] - theirs).abs().max() < 1e-6
        for orient in (True, False):
            with uringload.DataLoader(tmp_path, 4, transforms={"data": compose}, orient=orient) as loader:
                ours = next(iter(loader))["data"]
            same = [bool((image - other).abs().max() < 1e-6) for image, other in zip(ours, theirs, strict=True)]
            assert same == ([True, False, False, False] if orient else [True] * 4)
