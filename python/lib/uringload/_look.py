"""What a loader gives outside of its passes: samples by their numbers, and the batch that comes next."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from . import _order
from . import _uringload as native
from ._output import Batch
from .errors import InternalError, refused

if TYPE_CHECKING:
    from ._loader import DataLoader


def read(loader: DataLoader, indices: Iterable[int]) -> Batch:
    """The samples with these numbers as one batch on the host."""
    count, wanted = len(loader._dataset), []
    for index in indices:
        number = operator.index(index)
        if not -count <= number < count:
            raise IndexError(f"there is no sample {number} among {count}")
        wanted.append(number % count)
    if not wanted:
        raise refused("no samples were asked for", "name at least one")
    alone = {"batch_size": len(wanted), "rank": 0, "world_size": 1, "drop_last": False,
             "devices": ["host"] if loader._options["transforms"] else [], "pin": None, "nvjpeg": 0.0}
    reading = native.Loader(
        loader._dataset._native,
        {**loader._options, **alone, "packing": None, "buckets": None},
        epochs=1,
        order=(wanted, _order.BY_NUMBER),
        text=loader._text,
        binary=loader._binary,
    )
    try:
        raw = reading.next()
    finally:
        reading.close()
    if raw is None:
        raise InternalError("no batch came: this is a bug of uringload (please report it)")
    return loader._convert(raw)


def first_batch(loader: DataLoader) -> tuple[Any, list[int]]:
    """What the next pass would give first, and the numbers of its samples."""
    with loader._lock:
        loader._check()
        loader._settled()
        reading = loader._build(loader._next_epoch, loader._resume, position=loader._begin_at, is_pass=False)
    try:
        raw = reading.next()
        if raw is None:
            raise refused("there is no batch to show: the epoch is over", "set_epoch, or load another state")
        ids = raw[1].ids
        if loader._pool is None:
            return loader._finish(raw), ids
        made, error, _, _ = loader._pool.work(raw, reading).take()
        if error is not None:
            raise error
        return made, ids
    finally:
        reading.close()
