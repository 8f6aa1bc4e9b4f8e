"""Datasets as WebDataset shards, and images made smaller on their way there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _arguments as arguments
from . import _settings
from . import _uringload as native
from ._dataset import Dataset, Paths
from .errors import Error, mistyped, refused

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._typed import FormatOptions


class PackedImages(NamedTuple):
    """Images that a pack has made: how many, the bytes that they had, and those that they have now."""

    images: int
    bytes_before: int
    bytes_after: int


class PackPrediction(NamedTuple):
    """Some images of the source (at most 64), before and after: bytes, and the seconds that decoding all of them takes
    on one thread."""

    images: int
    bytes_before: int
    bytes_after: int
    decode_before_s: float
    decode_after_s: float
    processors: int

    @property
    def images_per_s(self) -> tuple[float, float] | None:
        """Images that the processors of this machine decode in a second, before and after; None: not measured."""
        if not self.images or not self.decode_before_s or not self.decode_after_s:
            return None
        rate = self.images * self.processors
        return rate / self.decode_before_s, rate / self.decode_after_s


class PackReport(NamedTuple):
    """The result of a pack.

    `samples` and `shards` are those of this part in the folder, also where an earlier run wrote them; `lacking` counts
    samples of the source that the shards lack, `failed` those of this run, of which `errors` has the first hundred.
    `bytes_written` is what this run wrote. `images` and `predicted` are None where images are stored as they are.
    """

    samples: int
    shards: int
    lacking: int
    failed: int
    errors: list[Error]
    bytes_written: int
    images: PackedImages | None
    predicted: PackPrediction | None


def pack(
    source: Dataset | Paths,
    folder: str | os.PathLike[str],
    *,
    resize: int | None = None,
    transform: str | None = None,
    quality: int | None = None,
    pixels: bool = False,
    image_column: str | None = None,
    shard_size: int | str | None = None,
    shard_samples: int | None = None,
    prefix: str = "shard",
    align: int = 4096,
    keys: str = "source",
    num_threads: int | None = None,
    part: str = "0/1",
    overwrite: bool = False,
    finish: bool = False,
    staging: str | os.PathLike[str] | None = None,
    memory_limit: int | str | None = None,
    on_error: str = "raise",
    max_failures: int | float | None = None,
    quarantine: str | os.PathLike[str] | None = None,
    timeout: float | None = None,
    progress: Callable[[int, int, int], Any] | None = None,
    **options: Unpack[FormatOptions],
) -> PackReport:
    """Writes a dataset as WebDataset shards, ``folder/shard-000000.tar`` and so on, with an index beside each.

        report = uringload.pack("/data/photos", "/data/packed", resize=256, quality=90)
        print(report.images, report.predicted.images_per_s)

    The bytes depend on the source and the arguments alone. A pack that was interrupted leaves whole shards only; call
    it again to go on. Ctrl-C, and an exception of `progress`, end it so.

    Args:
        source: a `Dataset`, or folders, files or patterns as `Dataset` takes them, with its ``options``. Samples are
            packed in its order.
        folder: where the shards go: empty, new, or that of an earlier pack; not within the source. Also one of a store,
            ``s3://bucket/folder``, reached by the options of the source.
        resize: decode images once and store them smaller: the shorter side of larger ones becomes this many pixels
            long. JPEGs that are no larger stay as they are.
        transform: do this to images once, such as "resize(256), center_crop(256)": no random operations.
        quality: of the JPEGs that are stored, 1 to 100; 90 by default. Given alone, images are encoded anew.
        pixels: store pixels (uncompressed BMP) instead of JPEGs: nothing is left to decode.
        image_column: the column that has the images; by default the only one that has some in the first sample.
        shard_size, shard_samples: most bytes ("1GB" by default) and samples of a shard.
        prefix: what the names of shards begin with.
        align: 4096 for values that begin at multiples of it, or 512 for archives without padding.
        keys: "source" to name samples as the source does (by number where it has no names), or "numbers".
        num_threads: shards that are written at once.
        part: "I/N" writes the shards I, I + N, I + 2 N, ...: job I of N, counted from 0.
        overwrite: replace the shards of another pack.
        finish: write no shard, but prove from the indexes of the shards, after all parts, that each sample of the
            source is in one of them, once.
        staging: the folder that shards for a store are made in before they are sent; by default that for temporary
            files.
        memory_limit: bytes that each thread reads into.
        on_error, max_failures, quarantine, timeout: as for `DataLoader`; "replace" is refused. The quarantine lists
            samples that cannot be read; an image that cannot be decoded is in the report's `errors` alone.
        progress: called a few times a second with samples packed, all samples, and bytes written.

    Raises `InvalidArgumentError` for arguments that make no sense together, for a folder with other files in it or
    within the source, and for keys that come twice in a shard; the error of a sample that cannot be read or decoded,
    unless `on_error` skips it; `OSError` for what cannot be written. With `finish`: `NotFoundError` for shards and
    samples that are missing, `CorruptError` for a shard that has others.
    """
    optional = _settings.optional
    _check_images(resize, transform, quality, pixels)
    if arguments.integer("align", align) not in (512, 4096):
        raise refused(f"align cannot be {align}", "give 4096, or 512 for no padding")
    if progress is not None and not callable(progress):
        raise mistyped(f"progress is a {type(progress).__name__}", "give a function of three numbers")
    asked = {
        "resize": _at_most("resize", optional(arguments.integer, "resize", resize, 1), 65535),
        "transform": transform,
        "quality": _at_most("quality", optional(arguments.integer, "quality", quality, 1), 100),
        "pixels": arguments.boolean("pixels", pixels),
        "image_column": optional(arguments.text, "image_column", image_column),
        "shard_bytes": optional(arguments.size, "shard_size", shard_size),
        "shard_samples": optional(arguments.integer, "shard_samples", shard_samples, 1),
        "prefix": arguments.text("prefix", prefix),
        "align": align,
        "keys": arguments.text("keys", keys, ("source", "numbers")),
        "threads": optional(arguments.integer, "num_threads", num_threads, 1),
        "part": arguments.text("part", part),
        "overwrite": arguments.boolean("overwrite", overwrite),
        "finish": arguments.boolean("finish", finish),
        "staging": arguments.paths("staging", tempfile.gettempdir() if staging is None else staging)[0],
    }
    settings = _settings.settings({
        "memory_limit": memory_limit, "on_error": on_error, "max_failures": max_failures, "quarantine": quarantine,
        "timeout": _settings.timeout(timeout),
    })  # fmt: skip
    place = arguments.paths("folder", folder)[0]
    dataset = _opened(source, timeout, options)
    _check_apart(dataset, place)
    told = native.pack(dataset._native, place, asked, getattr(dataset, "_options", {}), settings, progress)
    return _reported(told)


def _reported(told: dict[str, Any]) -> PackReport:
    images, predicted = told.pop("images"), told.pop("predicted")
    return PackReport(
        **told,
        images=None if images is None else PackedImages(*images),
        predicted=None if predicted is None else PackPrediction(*predicted),
    )


def _opened(source: Any, timeout: float | None, options: Any) -> Dataset:
    if not isinstance(source, Dataset):
        return Dataset(source, timeout=timeout, **options)
    if options:
        raise refused(f"{next(iter(options))} is of use where a path is opened", "give it to uringload.Dataset")
    if source._mixed is not None:
        raise refused("a mixture is an order of samples, and shards have the source's", "pack its datasets one by one")
    if source._prepare is not None:
        raise refused("parse makes samples in Python, and shards have the bytes", "pack without parse=")
    return source


def _check_images(resize: int | None, transform: str | None, quality: int | None, pixels: bool) -> None:
    if resize is not None and transform is not None:
        raise refused("resize and transform are given", "give one; a transform can begin with resize(256)")
    if quality is not None and pixels:
        raise refused("quality is of JPEGs, and pixels=True stores none", "leave out one of the two")
    if transform is not None and not isinstance(transform, str):
        raise mistyped(f"transform is a {type(transform).__name__}", 'give a chain, such as "resize(256)"')


def _check_apart(dataset: Dataset, folder: str) -> None:
    """Refuses a folder in which the next look at the source would find the shards."""
    if "://" in folder:
        return  # The library looks at URLs.
    place = os.path.realpath(folder)
    for path in map(os.path.realpath, dataset._paths):
        if os.path.isdir(path) and os.path.commonpath([path, place]) == path:
            raise refused(f"the shards in {folder} would lie within the source {path}", "name a folder apart from it")


def _at_most(name: str, value: int | None, most: int) -> int | None:
    if value is not None and value > most:
        raise refused(f"{name} cannot be {value}", f"give 1 to {most}")
    return value
