"""Pictures of a batch, for notebooks and files: what a loader gives, to look at."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from . import _uringload as native
from .errors import Error, mistyped, refused, unavailable

#: Rows and columns of a picture, at most.
SIDE = 160

#: Pictures beside each other in a file.
ACROSS = 8

#: Pixels around a picture in a file, and their level.
_GAP, _PAPER = 4, b"\xff"

#: First bytes of images that can be decoded.
_HEADS = (b"\xff\xd8\xff", b"\x89PNG\r\n", b"GIF8", b"RIFF", b"BM", b"II*\0", b"MM\0*")

#: Characters of a caption's value.
_VALUE_CHARS = 24


class Picture(NamedTuple):
    """An image made small."""

    height: int
    width: int
    #: RGB.
    pixels: bytes
    #: What it was: "375 x 500".
    of: str

    def png(self) -> bytes:
        return _png(self.height, self.width, self.pixels)


class Sheet:
    """Pictures of samples, with a line below each. A notebook shows it; `save` writes a PNG or a page of HTML."""

    def __init__(self, cells: Sequence[tuple[list[Picture], str]], note: str = "") -> None:
        #: For each sample, its pictures (before and after a transform, or one) and what is said of it.
        self.cells = list(cells)
        self.note = note

    def _repr_html_(self) -> str:
        from base64 import b64encode
        from html import escape

        figures = []
        for pictures, caption in self.cells:
            images = "".join(
                f'<img src="data:image/png;base64,{b64encode(picture.png()).decode()}" width="{picture.width}" '
                f'height="{picture.height}" alt="{escape(picture.of, quote=True)}" title="{escape(picture.of)}"> '
                for picture in pictures
            )
            figures.append(f'<figure style="display:inline-block;margin:4px;vertical-align:top">{images}'
                           f'<figcaption style="font-size:smaller">{escape(caption)}</figcaption></figure>')
        note = f"<p>{escape(self.note)}</p>" if self.note else ""
        return f"<div>{note}{''.join(figures)}</div>"

    def _repr_png_(self) -> bytes:
        across = min(ACROSS, max(len(self.cells), 1))
        beside = max((len(pictures) for pictures, _ in self.cells), default=1)
        cell_width, cell_height = beside * (SIDE + _GAP) + _GAP, SIDE + 2 * _GAP
        width, height = across * cell_width, max(-(-len(self.cells) // across), 1) * cell_height
        paper = bytearray(_PAPER * (3 * width * height))
        for place, (pictures, _) in enumerate(self.cells):
            top, left = place // across * cell_height + _GAP, place % across * cell_width + _GAP
            for picture in pictures:
                for row in range(picture.height):
                    start = 3 * ((top + row) * width + left)
                    row_bytes = 3 * picture.width
                    paper[start : start + row_bytes] = picture.pixels[row * row_bytes : (row + 1) * row_bytes]
                left += SIDE + _GAP
        return _png(height, width, bytes(paper))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a PNG, or a page if the name ends in ".html"."""
        is_page = os.fspath(path).endswith((".html", ".htm"))
        page = f'<!doctype html><meta charset="utf-8"><title>samples</title>{self._repr_html_()}' if is_page else ""
        with open(path, "wb") as file:
            file.write(page.encode() if is_page else self._repr_png_())

    def __len__(self) -> int:
        return len(self.cells)

    def __repr__(self) -> str:
        return f"<uringload sheet of {len(self.cells)} samples: a notebook shows it, save(PATH) writes it>"


def of_batch(batch: Any, column: str | None, samples: int, before: Sequence[Picture | None] = ()) -> Sheet:
    """The first samples of a batch.

    Raises `InvalidArgumentError` if there is no column of images, or several and none is named.
    """
    columns = _columns(batch)
    name = _image_column(columns, column)
    cells, is_stretched = [], False
    ids = getattr(batch, "ids", None)
    for number, value in enumerate(_values(columns[name], samples)):
        shown, stretched = _picture(value)
        is_stretched |= stretched
        first = before[number] if number < len(before) else None
        said = [f"sample {ids[number]}"] if ids else [f"{number}"]
        said += [f"{other} {text}" for other, text in _said(columns, name, number)]
        cells.append(([shown] if first is None else [first, shown], ", ".join(said)))
    note = "normalized values are stretched from the least to the greatest of each image" if is_stretched else ""
    return Sheet(cells, note)


def stored(value: Any) -> Picture | None:
    """The picture of an image as it is stored; None for what is none."""
    data = _encoded(value)
    if data is None:
        return None
    try:
        return _small(data, None)
    except Error:
        return None


def facts(batch: Any) -> list[tuple[str, str]]:
    """The columns of a batch in words."""
    rows = []
    for name, column in batch.items():
        shape, dtype = getattr(column, "shape", None), getattr(column, "dtype", None)
        if shape is not None:
            text = f"{dtype} {list(shape)}"
        elif isinstance(column, list):
            text = f"{len(column)} of {type(column[0]).__name__}" if column else "empty"
        else:
            text = type(column).__name__
        rows.append((str(name), text))
    return rows


def has_images(batch: Any) -> bool:
    """Whether there is one column of images."""
    columns = _columns(batch)
    return sum(_is_images(column) for column in columns.values()) == 1


def _columns(batch: Any) -> dict[str, Any]:
    if isinstance(batch, dict):
        return {str(name): column for name, column in batch.items()}
    if isinstance(batch, (tuple, list)):
        return {f"[{index}]": column for index, column in enumerate(batch)}
    raise mistyped(f"a batch of type {type(batch).__name__} has no columns",
                   "show what the loader gives without collate_fn")


def _image_column(columns: dict[str, Any], column: str | None) -> str:
    if column is not None:
        if column not in columns:
            raise refused(f"there is no column {column!r}", f"give one of {', '.join(columns)}")
        return column
    found = [name for name, values in columns.items() if _is_images(values)]
    if len(found) != 1:
        what = f"the columns {', '.join(found)} have images" if found else "no column has images"
        raise refused(what, f"name one with column=: {', '.join(columns) or 'there is none'}")
    return found[0]


def _is_images(column: Any) -> bool:
    first = next(iter(_values(column, 1)), None)
    return first is not None and (_encoded(first) is not None or _pixels_shape(first) is not None)


def _values(column: Any, most: int) -> Iterator[Any]:
    """The first values of a column."""
    if isinstance(column, native.Tensor):
        column = _numpy().asarray(column)
    if hasattr(column, "values") and hasattr(column, "offsets"):
        ends = column.offsets.tolist()[: most + 1]
        column = [column.values[start:end] for start, end in zip(ends, ends[1:])]
    if isinstance(column, (str, bytes, dict)) or not hasattr(column, "__getitem__") or not hasattr(column, "__len__"):
        return
    if hasattr(column, "shape") and len(column.shape) < 2:
        return
    for index in range(min(most, len(column))):
        yield column[index]


def _encoded(value: Any) -> bytes | None:
    """The bytes of an image as it is stored; None for anything else."""
    if not isinstance(value, bytes):
        shape = getattr(value, "shape", None)
        if shape is None or len(shape) != 1 or "int8" not in str(value.dtype) and str(value.dtype) != "u8":
            return None
        value = _array(value).tobytes()
    return value if value.startswith(_HEADS) else None


def _pixels_shape(value: Any) -> tuple[int, int, int] | None:
    """Where height, width and channels are in an array's shape; None for what is no image."""
    shape = getattr(value, "shape", None)
    if shape is None:
        return None
    if len(shape) == 2 and min(shape) > 1:
        return 0, 1, -1
    if len(shape) != 3 or min(shape) < 1:
        return None
    if shape[0] in (1, 3, 4) and shape[2] not in (3, 4):
        return 1, 2, 0
    return (0, 1, 2) if shape[2] in (1, 3, 4) else (1, 2, 0) if shape[0] in (1, 3, 4) else None


def _picture(value: Any) -> tuple[Picture, bool]:
    """The picture of a value, and whether its levels were stretched."""
    data = _encoded(value)
    if data is not None:
        return _small(data, None), False
    if hasattr(value, "convert") and hasattr(value, "tobytes"):
        # Pillow's.
        rgb = value.convert("RGB")
        return _small(rgb.tobytes(), (rgb.height, rgb.width, 3)), False
    axes = _pixels_shape(value)
    if axes is None:
        raise refused(f"a value of shape {list(getattr(value, 'shape', []))} is no image", "name another column")
    numpy, array = _numpy(), _array(value)
    if axes[2] == -1:
        array = array[:, :, None]
    elif axes == (1, 2, 0):
        array = array.transpose(1, 2, 0)
    is_stretched = False
    if array.dtype != numpy.uint8:
        array = array.astype(numpy.float32)
        low, high = (float(array.min()), float(array.max())) if array.size else (0.0, 1.0)
        is_stretched = low < 0.0 or high > 1.0
        if is_stretched:
            array = (array - low) / ((high - low) or 1.0)
        array = (numpy.nan_to_num(array).clip(0, 1) * 255 + 0.5).astype(numpy.uint8)
    height, width, channels = array.shape
    return _small(numpy.ascontiguousarray(array).tobytes(), (height, width, channels)), is_stretched


def _small(data: bytes, shape: tuple[int, int, int] | None) -> Picture:
    (rows, columns), (height, width), pixels = native.thumbnail(data, shape, SIDE)
    return Picture(height, width, pixels, f"{rows} x {columns}")


def _said(columns: dict[str, Any], shown: str, number: int) -> Iterator[tuple[str, str]]:
    """What the other columns have of a sample, where that is a number or a text."""
    for name, column in columns.items():
        if name == shown or isinstance(column, dict) or not hasattr(column, "__getitem__"):
            continue
        if isinstance(column, native.Tensor):
            column = _numpy().asarray(column)
        if (hasattr(column, "shape") and len(column.shape) != 1) or number >= len(column):
            continue
        value = column[number]
        value = value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else value
        if isinstance(value, (str, int, float)):
            text = str(value) if len(str(value)) <= _VALUE_CHARS else str(value)[:_VALUE_CHARS] + "..."
            yield name, text


def _array(value: Any) -> Any:
    """An array of NumPy, on the host."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if "bfloat16" in str(value.dtype) else value
        return value.numpy()
    return _numpy().asarray(value)


def _numpy() -> Any:
    try:
        import numpy
    except ImportError as error:
        raise unavailable("pictures of pixels need NumPy", "pip install numpy") from error
    return numpy


def _png(height: int, width: int, pixels: bytes) -> bytes:
    """A PNG of RGB pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    # Each row begins with the number of its filter: none.
    rows = b"".join(b"\0" + pixels[3 * width * row : 3 * width * (row + 1)] for row in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 6)) + chunk(b"IEND", b"")


def of_loader(loader: Any, column: str | None, samples: int, first: tuple[Any, list[int]]) -> Sheet:
    """The first batch of the next pass of a loader, with the numbers of its samples, beside what is stored."""
    batch, kept = first
    ids = list(getattr(batch, "ids", None) or kept)[:samples]
    return of_batch(batch, column, samples, list(_before(loader, column, ids)))


def _before(loader: Any, column: str | None, ids: list[int]) -> Iterator[Picture | None]:
    """The images as they are stored, where something is done to them."""
    reader = native.Samples(loader._dataset._native)
    images = reader.image_columns()
    if column in images:
        images = [str(column)]
    if len(images) != 1 or not ids or not _changes_images(loader):
        return
    place = list(loader._dataset.columns).index(images[0])
    reader = native.Samples(loader._dataset._native, binary=images)
    for values in reader.read(ids):
        yield stored(values[place])


def _changes_images(loader: Any) -> bool:
    """Whether images are something else in batches than they are in the dataset."""
    return bool(loader._options["chains"] or loader._options["transforms"] or loader._pool is not None)
