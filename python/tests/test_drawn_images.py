"""Images that Pillow and tifffile wrote, of every mode and option: the pixels that Pillow reads, or refused by name."""

from __future__ import annotations

import importlib.util
import io
import pathlib
import random
import struct
import tempfile
import warnings
from typing import Any

import pytest

if importlib.util.find_spec("hypothesis") is None or importlib.util.find_spec("PIL") is None:
    pytest.skip("skipped: hypothesis or Pillow is not installed", allow_module_level=True)

import hypothesis
import hypothesis.strategies as st
import numpy as np
import uringload
from drawn import TOGETHER, Written, decoded, settings
from PIL import Image

HAS_TIFFFILE = importlib.util.find_spec("tifffile") is not None

# All images are put into the middle of such a square.
SIDE = 40
CHAIN = f"center_crop({SIDE}), to_tensor(u8)"


def pixels(seed: int, kind: str, height: int, width: int, channels: int) -> Any:
    """Levels of 8 bits: noise, a slope, or a few colours."""
    random = np.random.default_rng(seed)
    if kind == "noise":
        return random.integers(0, 256, (height, width, channels), np.uint8)
    y, x, c = np.mgrid[0:height, 0:width, 0:channels]
    if kind == "slope":
        return ((x * 5 + y * 3 + c * 40 + seed) % 256).astype(np.uint8)
    return (random.integers(0, 4, (height, width, channels)) * 85).astype(np.uint8)


def image(mode: str, seed: int, kind: str, height: int, width: int) -> Image.Image:
    """An image of a mode of Pillow."""
    if mode in ("I;16", "I", "F"):
        wide = pixels(seed, kind, height, width, 2).astype(np.uint16)
        wide = wide[..., 0] * 256 + wide[..., 1]
        return Image.fromarray(wide.astype({"I;16": np.uint16, "I": np.int32, "F": np.float32}[mode]))
    if mode in ("1", "P", "PA"):
        return Image.fromarray(pixels(seed, kind, height, width, 3), "RGB").convert(
            "P" if mode == "PA" else mode, palette=Image.Palette.ADAPTIVE, colors=2 + seed % 255
        ).convert(mode)
    channels = len(Image.new(mode, (1, 1)).getbands())
    return Image.frombytes(mode, (width, height), pixels(seed, kind, height, width, channels).tobytes())


MODES = {
    "PNG": ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"],
    "BMP": ["1", "L", "P", "RGB", "RGBA"],
    "GIF": ["1", "L", "P", "RGB", "RGBA"],
    "TIFF": ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "I;16", "I", "F"],
    "WEBP": ["L", "RGB", "RGBA"],
    "JPEG": ["L", "RGB", "CMYK"],
}
COMPRESSIONS = [None, "raw", "tiff_lzw", "tiff_adobe_deflate", "tiff_deflate", "packbits", "jpeg", "zstd", "lzma"]
OF_BITS = ["tiff_ccitt", "group3", "group4"]


@st.composite
def options(draw: st.DrawFn, form: str, mode: str) -> dict[str, Any]:
    """Options of `Image.save`."""
    if form == "PNG":
        given: dict[str, Any] = {"compress_level": draw(st.integers(0, 9)), "optimize": draw(st.booleans())}
        if mode == "P":
            given["transparency"] = draw(st.integers(0, 1))
        return given
    if form == "GIF":
        return {"interlace": draw(st.integers(0, 1)), "optimize": draw(st.booleans())}
    if form == "WEBP":
        return {"lossless": True, "exact": True, "method": draw(st.integers(0, 2))}
    if form == "JPEG":
        given = {"quality": draw(st.integers(1, 100)), "subsampling": draw(st.sampled_from([0, 1, 2])),
                 "progressive": draw(st.booleans()), "optimize": draw(st.booleans()),
                 "restart_marker_blocks": draw(st.integers(0, 3))}  # fmt: skip
        return {**given, "keep_rgb": draw(st.booleans())} if mode == "RGB" else given
    if form == "TIFF":
        tags = {
            266: draw(st.sampled_from([None, None, 1, 2])),
            278: draw(st.sampled_from([None, 1, 3, 8, 64])),
            317: draw(st.sampled_from([None, 1, 2])),
            338: draw(st.sampled_from([None, None, 0, 1, 2])) if mode in ("RGBA", "RGBX", "LA") else None,
        }
        compressions = OF_BITS if mode == "1" and draw(st.booleans()) else COMPRESSIONS
        # Pillow writes wrong offsets of several strips into a BigTIFF.
        return {"compression": draw(st.sampled_from(compressions)),
                "big_tiff": tags[278] is None and draw(st.booleans()),
                "tiffinfo": {tag: value for tag, value in tags.items() if value is not None}}  # fmt: skip
    return {}


@st.composite
def written(draw: st.DrawFn) -> Written | None:
    """A file of Pillow; `None` where it refuses to write it."""
    form = draw(st.sampled_from([*MODES, "TIFF", "TIFF"]))
    mode = draw(st.sampled_from(MODES[form]))
    height, width = draw(st.integers(1, SIDE)), draw(st.integers(1, SIDE))
    made = image(mode, draw(st.integers(0, 255)), draw(st.sampled_from(["noise", "slope", "few"])), height, width)
    given, file = draw(options(form, mode)), io.BytesIO()
    try:
        made.save(file, form, **given)
    except Exception:  # Pillow refuses what it cannot write, in many ways.
        return None
    return Written(f"{form} {mode} {height}x{width} {given}", file.getvalue(), file.getvalue())


@st.composite
def written_by_tifffile(draw: st.DrawFn) -> Written | None:
    import tifffile

    photometric = draw(st.sampled_from(["minisblack", "miniswhite", "rgb", "separated", "palette"]))
    channels = {"rgb": 3, "separated": 4}.get(photometric, 1)
    extra = draw(st.sampled_from([[], [], ["unspecified"], ["assocalpha"], ["unassalpha"], ["unspecified"] * 2]))
    bits = draw(st.sampled_from([8, 8, 16, 1] if channels == 1 else [8, 8, 16]))
    height, width = draw(st.integers(1, SIDE)), draw(st.integers(1, SIDE))
    kind, seed = draw(st.sampled_from(["noise", "slope", "few"])), draw(st.integers(0, 255))
    levels = pixels(seed, kind, height, width, channels + len(extra))
    if bits == 16:
        levels = levels.astype(np.uint16) * 256 + levels[::-1]
    elif bits == 1:
        levels = levels > 127
    is_planar = draw(st.booleans()) and levels.shape[2] > 1
    levels = np.moveaxis(levels, 2, 0) if is_planar else levels if levels.shape[2] > 1 else levels[..., 0]
    given = {
        "photometric": photometric, "extrasamples": extra, "byteorder": draw(st.sampled_from("<>")),
        "bigtiff": draw(st.booleans()), "planarconfig": "separate" if is_planar else "contig",
        "compression": draw(st.sampled_from([None, "deflate"])), "predictor": draw(st.sampled_from([False, False, 2])),
        "tile": draw(st.sampled_from([None, (16, 16), (16, 32)])), "rowsperstrip": draw(st.sampled_from([None, 1, 7])),
        "metadata": None,
    }  # fmt: skip
    if photometric == "palette":
        given["colormap"] = np.random.default_rng(seed).integers(0, 65536, (3, 2 ** min(bits, 8)), np.uint16)
    if given["tile"]:
        given["rowsperstrip"] = None
    file, twin = io.BytesIO(), io.BytesIO()
    plain = {name: given[name] for name in ("photometric", "extrasamples", "colormap", "metadata") if name in given}
    try:
        tifffile.imwrite(file, levels, **given)
        # Pillow reads no tiles with padding and confuses planes of 16 bits.
        tifffile.imwrite(twin, np.moveaxis(levels, 0, 2) if is_planar else levels, planarconfig="contig", **plain)
    except Exception:  # As above.
        return None
    what = f"tifffile {bits} bits {levels.shape} { {**given, 'colormap': None} }"
    return Written(what, file.getvalue(), twin.getvalue())


#: Masks of red, green, blue and alpha that Pillow knows, by the bits of a pixel.
MASKS = {
    16: [(0xF800, 0x7E0, 0x1F, 0), (0x7C00, 0x3E0, 0x1F, 0)],
    24: [(0xFF0000, 0xFF00, 0xFF, 0)],
    32: [(0xFF0000, 0xFF00, 0xFF, 0), (0xFF000000, 0xFF0000, 0xFF00, 0), (0xFF000000, 0xFF00, 0xFF, 0), (0, 0, 0, 0)],
}


@st.composite
def bitmaps(draw: st.DrawFn) -> Written:
    """A BMP that no library writes: of 16 bits, with masks, run lengths or an old header."""
    width, height = draw(st.integers(1, 24)), draw(st.integers(1, 24))
    head = draw(st.sampled_from([12, 40, 40, 52, 56, 64, 108, 124]))
    kinds = [(4, 2), (8, 1), (16, 0), (16, 3), (24, 3), (32, 3), (1, 0), (4, 0), (8, 0)]
    bits, compression = draw(st.sampled_from(kinds))
    if head == 12:
        bits, compression = draw(st.sampled_from([1, 4, 8, 24])), 0
    seed = draw(st.integers(0, 1 << 32))
    chance = random.Random(seed)
    colors = draw(st.sampled_from([0, 1 << bits])) if bits <= 8 else 0
    # Small files may have fewer than all.
    entries = 0 if bits > 8 else draw(st.sampled_from([1 << bits, 1 << bits, min(16, 1 << bits)]))
    palette = b"".join(chance.randbytes(3) + bytes(head != 12) for _ in range(entries))
    masks = draw(st.sampled_from(MASKS[bits])) if compression == 3 else (0, 0, 0, 0)
    if compression in (1, 2):
        pixels = runs(chance, bits, width * height)
    else:
        pixels = chance.randbytes((width * bits + 31) // 32 * 4 * height)
    if head == 12:
        header = struct.pack("<IHHHH", 12, width, height, 1, bits)
    else:
        up = draw(st.booleans()) or compression in (1, 2)
        numbers = (head, width, height if up else -height, 1, bits, compression, len(pixels), 0, 0, colors, 0)
        header = struct.pack("<IiiHHIIiiII", *numbers) + struct.pack("<4I", *masks) + bytes(124)
        header = header[: head if head > 40 or compression != 3 else 52]
    start = 14 + len(header) + len(palette)
    is_whole = entries == 1 << bits or bits > 8
    given = draw(st.sampled_from([start, start, 0])) if is_whole and (compression != 3 or head == 40) else start
    file = b"BM" + struct.pack("<IHHI", start + len(pixels), 0, 0, given) + header + palette + pixels
    return Written(f"BMP {head} {bits} {compression} {masks} {height} x {width} {colors} {given} of {seed}", file, file)


def runs(chance: random.Random, bits: int, pixels: int) -> bytes:
    """Codes for at least so many pixels, most of which fit their rows."""
    codes, done = bytearray(), 0
    while done < pixels:
        kind, count = chance.randrange(8), chance.randrange(1, 12)
        if kind < 4:
            codes += bytes([count, chance.randrange(256)])
        elif kind < 6:
            count += 2
            literal = chance.randbytes((count + 1) // 2 if bits == 4 else count)
            codes += bytes([0, count]) + literal + bytes(len(literal) % 2)
        elif kind == 6:
            count = 0
            codes += bytes([0, 0])
        else:
            count = 0
            codes += bytes([0, 2, chance.randrange(4), chance.randrange(2)])
        done += count
    # Those that did not fit are made up for.
    codes += b"\0\0\x03\x05" * pixels if chance.randrange(4) else b""
    return bytes(codes) + b"\0\1"


def expected(file: bytes) -> Any:
    """What Pillow reads as RGB, in the middle of the square; `None` where it refuses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            read = Image.open(io.BytesIO(file))
            read.load()
            if read.mode.startswith("I;16"):
                # Documented: the upper 8 bits.
                rgb = np.repeat((np.asarray(read) >> 8).astype(np.uint8)[..., None], 3, 2)
            else:
                rgb = np.asarray(read.convert("RGB"))
        except Exception:
            return None
    whole = np.zeros((SIDE, SIDE, 3), np.uint8)
    top, left = (SIDE - rgb.shape[0]) // 2, (SIDE - rgb.shape[1]) // 2
    whole[top : top + rgb.shape[0], left : left + rgb.shape[1]] = rgb
    return np.moveaxis(whole, 2, 0)


def read(file: bytes) -> Any:
    """What one file becomes, pixels or an error."""
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "0.img").write_bytes(file)
        return decoded(pathlib.Path(folder), CHAIN)[0]["0.img"]


def check(files: list[Written]) -> list[str]:
    """Compares all files, and returns which were refused."""
    refused = []
    with tempfile.TemporaryDirectory() as folder:
        for number, (_, file, _) in enumerate(files):
            (pathlib.Path(folder) / f"{number:04}.img").write_bytes(file)
        made, by_turbo = decoded(pathlib.Path(folder), CHAIN)
    for number, (what, _, twin) in enumerate(files):
        found, want = made[f"{number:04}.img"], expected(twin)
        if isinstance(found, uringload.Error):
            refused.append(what)
            assert isinstance(found, uringload.UnavailableError) or want is None, f"{what}: {found}"
            continue
        assert want is not None, f"{what}: Pillow refuses it"
        most, least = off(found, want, twin, by_turbo)
        assert most <= least, f"{what}: {most} levels off"
    return refused


def off(found: Any, want: Any, file: bytes, by_turbo: bool) -> tuple[int, int]:
    """How many levels an image differs, and how many are documented."""
    levels = np.abs(found.astype(int) - want)
    with Image.open(io.BytesIO(file)) as read:
        is_jpeg = read.format == "JPEG" or read.info.get("compression") == "jpeg"
        width, height, parts = *read.size, getattr(read, "layer", [])
    if not is_jpeg or by_turbo:
        return int(levels.max()), 0
    if len({part[1:3] for part in parts}) < 2 and read.format == "JPEG":
        return int(levels.max()), 3
    # zune-jpeg takes the chroma beside the last column and row from the padding.
    if width <= 4:
        return int(levels.max()), 255
    top, left = (SIDE - height) // 2, (SIDE - width) // 2
    inner = levels[:, top : top + height - 1, left : left + width - 1]
    return int(inner.max(initial=0)), 5


@pytest.mark.parametrize(
    ("mode", "given", "refused"),
    [
        ("YCbCr", {}, "YCbCr"),
        ("YCbCr", {"compression": "tiff_lzw"}, "YCbCr"),
        ("YCbCr", {"compression": "jpeg"}, None),
        ("RGB", {"compression": "jpeg"}, None),
        ("L", {"compression": "jpeg"}, None),
        ("RGBA", {"tiffinfo": {338: 1}}, None),
        ("RGB", {"tiffinfo": {266: 2}}, None),
        ("1", {"tiffinfo": {266: 2}, "compression": "tiff_lzw"}, None),
        ("RGBX", {"compression": "tiff_lzw", "tiffinfo": {317: 2}}, None),
        ("RGB", {"compression": "raw", "tiffinfo": {317: 2}}, None),
        ("LA", {}, None),
        ("P", {"compression": "tiff_lzw"}, None),
        ("1", {"compression": "group4"}, None),
        ("1", {"compression": "group3"}, "Group 3"),
        ("RGB", {"compression": "zstd"}, None),
        ("RGB", {"compression": "zstd", "tiffinfo": {317: 2}}, None),
        ("RGB", {"compression": "lzma"}, "LZMA"),
        ("F", {}, "a fraction"),
    ],
)
def test_a_tiff_is_right_or_refused_by_name(mode: str, given: dict[str, Any], refused: str | None) -> None:
    file = io.BytesIO()
    image(mode, 1, "slope", 30, 40).save(file, "TIFF", **given)
    if refused is None:
        assert check([Written("", file.getvalue(), file.getvalue())]) == []
    else:
        with pytest.raises(uringload.UnavailableError, match=refused):
            raise read(file.getvalue())


@pytest.mark.skipif(not HAS_TIFFFILE, reason="skipped: tifffile is not installed")
def test_samples_that_look_like_an_entry_of_the_directory_are_kept() -> None:
    import tifffile

    levels = pixels(160, "slope", 29, 27, 4).astype(np.uint16)
    file = io.BytesIO()
    tifffile.imwrite(file, levels * 256 + levels[::-1], photometric="separated", metadata=None)
    assert check([Written("", file.getvalue(), file.getvalue())]) == []


@pytest.mark.parametrize("background", [0, 1, 200])
def test_around_a_small_first_frame_is_what_pillow_puts_there(background: int) -> None:
    file = io.BytesIO()
    image("P", 3, "few", 10, 12).save(file, "GIF")
    whole = bytearray(file.getvalue())
    whole[6:12] = bytes([20, 0, 16, 0, whole[10], background])
    frame = whole.index(b"\x2c\0\0\0\0\x0c\0\x0a\0")
    whole[frame + 1 : frame + 5] = bytes([3, 0, 2, 0])
    assert check([Written("", bytes(whole), bytes(whole))]) == []


@pytest.mark.parametrize("offset", [0, 54])
def test_a_bmp_whose_offset_forgets_the_palette_is_read(offset: int) -> None:
    file = io.BytesIO()
    image("P", 3, "few", 10, 12).save(file, "BMP")
    whole = bytearray(file.getvalue())
    whole[10:14] = offset.to_bytes(4, "little")
    assert check([Written("", bytes(whole), bytes(whole))]) == []


@settings()
@hypothesis.given(st.lists(written(), min_size=TOGETHER, max_size=TOGETHER))
def test_files_of_pillow(files: list[Written | None]) -> None:
    check([file for file in files if file])


@pytest.mark.skipif(not HAS_TIFFFILE, reason="skipped: tifffile is not installed")
@settings()
@hypothesis.given(st.lists(written_by_tifffile(), min_size=TOGETHER, max_size=TOGETHER))
def test_files_of_tifffile(files: list[Written | None]) -> None:
    check([file for file in files if file])


@settings()
@hypothesis.given(st.lists(bitmaps(), min_size=TOGETHER, max_size=TOGETHER))
def test_bitmaps(files: list[Written]) -> None:
    refused = check(files)
    assert [file.what for file in files if file.what in refused and expected(file.file) is not None] == []


@settings()
@hypothesis.given(st.lists(written(), min_size=TOGETHER, max_size=TOGETHER), st.integers(0, 1 << 32))
def test_broken_files_are_pixels_or_errors(files: list[Written | None], seed: int) -> None:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        for number, drawn in enumerate(file for file in files if file):
            broken = bytearray(drawn.file)
            for _ in range(chance.randrange(1, 8)):
                broken[chance.randrange(len(broken))] = chance.randrange(256)
            end = chance.randrange(len(broken) // 2, len(broken))
            (pathlib.Path(folder) / f"{number}.img").write_bytes(broken[:end])
        for found in decoded(pathlib.Path(folder), CHAIN)[0].values():
            assert "panic" not in str(found)
