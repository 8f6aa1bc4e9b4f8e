"""Broken JPEGs before healthy ones: the pixels of a file depend on its bytes alone, whatever came before."""

from __future__ import annotations

import importlib.util
import io
import os
import pathlib
import random
from typing import Any

import pytest

if importlib.util.find_spec("PIL") is None or importlib.util.find_spec("numpy") is None:
    pytest.skip("skipped: Pillow or NumPy is not installed", allow_module_level=True)

import numpy as np
import uringload
from drawn import decoded
from PIL import Image

FILES = 10_000 if "URINGLOAD_DRAWS" in os.environ else 400
SIDE = 48


def healthy(chance: random.Random) -> bytes:
    levels = np.random.default_rng(chance.randrange(1 << 32)).integers(0, 256, (6, 6, 3), np.uint8)
    image = Image.fromarray(levels).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=chance.randrange(30, 96), subsampling=chance.randrange(3),
               progressive=chance.random() < 0.3, optimize=chance.random() < 0.5)  # fmt: skip
    return file.getvalue()


def without_tables(file: bytes, marker: int) -> bytes:
    """A file without its segments of a kind: as frames of MJPEG, which has no Huffman tables."""
    kept, at = bytearray(file[:2]), 2
    while file[at + 1] != 0xDA:
        length = 2 + int.from_bytes(file[at + 2 : at + 4], "big")
        if file[at + 1] != marker:
            kept += file[at : at + length]
        at += length
    return bytes(kept + file[at:])


def broken(file: bytes, chance: random.Random) -> bytes:
    kind = chance.randrange(4)
    if kind == 0:
        return file[: chance.randrange(20, len(file) - 2)]
    if kind == 1:
        changed = bytearray(file)
        for _ in range(chance.randrange(1, 20)):
            changed[chance.randrange(2, len(file) - 2)] = chance.randrange(256)
        return bytes(changed)
    if kind == 2:
        return without_tables(file, 0xC4)
    return without_tables(file, 0xDB)


def test_what_is_decoded_before_changes_no_pixel(tmp_path: pathlib.Path) -> None:
    chance = random.Random(int(os.environ.get("URINGLOAD_SEED", "7")))
    are_broken = [number % 20 == 0 for number in range(FILES)]
    for number, is_broken in enumerate(are_broken):
        file = healthy(chance)
        (tmp_path / f"{number:05}.jpg").write_bytes(broken(file, chance) if is_broken else file)
    chain = f"center_crop({SIDE}), to_tensor(u8)"
    first, by_turbo = decoded(tmp_path, chain, num_threads=1)
    shuffled, _ = decoded(tmp_path, chain, num_threads=3, shuffle=True, seed=3)
    for name, pixels in first.items():
        assert type(shuffled[name]) is type(pixels), f"{name}: {pixels}, and {shuffled[name]}"
        if isinstance(pixels, uringload.Error):
            assert are_broken[int(name[:5])], f"{name}: {pixels}"
        else:
            assert (shuffled[name] == pixels).all(), f"{name} has other pixels"
    if by_turbo:
        as_pillow(tmp_path, first)


def as_pillow(folder: pathlib.Path, made: Any) -> None:
    """Where libjpeg-turbo decodes: the pixels of Pillow, whose files fail that fail there or have no end.

    It tells no error from a warning, and where it wrote the last row all the same there are pixels: of 500 broken files
    there was one.
    """
    more = 0
    for name, pixels in made.items():
        file = (folder / name).read_bytes()
        try:
            with Image.open(io.BytesIO(file)) as read:
                want = np.moveaxis(np.asarray(read.convert("RGB")), 2, 0)
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
            want = None
        if isinstance(pixels, uringload.Error):
            has_no_end = isinstance(pixels, uringload.TruncatedError)
            is_other = isinstance(pixels, uringload.UnavailableError | uringload.MemoryLimitError)
            assert want is None or has_no_end or is_other, f"{name}: Pillow reads it, and here: {pixels}"
        else:
            more += want is None
            if want is not None and want.shape == pixels.shape:
                assert (pixels == want).all(), f"{name}: other pixels than Pillow's"
    assert more <= max(1, len(made) // 20 // 100), f"Pillow refuses {more} files that are decoded here"
