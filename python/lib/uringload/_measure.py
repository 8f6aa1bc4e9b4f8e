"""How fast a loader reads, what limits it, and what would be faster: `uringload bench` and `tune`, as functions."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from . import _arguments as arguments
from . import _log
from . import _uringload as native
from ._loader import DataLoader
from .errors import refused

#: What runs in Python, so that the library by itself cannot measure it.
_PYTHONS = ("transform", "batch_transform", "collate_fn", "sampler", "order")


def bench(
    dataset: Any,
    *,
    epochs: int | None = None,
    duration: float | None = None,
    rounds: int = 1,
    cold: bool = False,
    raw: bool = True,
    compare: str | Sequence[str] = (),
    emulate_step: float | None = None,
    **loader: Any,
) -> dict[str, Any]:
    """Reads a dataset as ``DataLoader(dataset, **loader)`` would, and says how fast it is and what limits it.

        report = uringload.bench("/data/train", batch_size=256, shuffle=True, duration=10)
        print(report["samples_per_s"], report["share_of_raw"], report["verdict"]["advice"])

    It measures the library's own work: what `output` makes of batches is left out. Ctrl-C ends it.

    Args:
        dataset: as `DataLoader` takes it.
        epochs: how many to read; by default one, or without an end where `duration` is given.
        duration: seconds after which each round ends.
        rounds: how often to measure; the report is of the round with the median rate.
        cold: empty the page cache of the dataset's files before each measurement.
        raw: also read the same files as fast as the storage gives them, and compare.
        compare: other ways to read the same samples: "threads", "buffered", "mmap".
        emulate_step: seconds of an emulated training step after each batch.
        **loader: arguments of `DataLoader`. Functions in Python, samplers and kernels of a GPU are refused: time your
            own loop, and see `DataLoader.stats`.

    Returns:
        What ``uringload bench --json`` writes: docs/bench-json.md has each key.

    Raises:
        InvalidArgumentError: an argument cannot work, or cannot be measured.
        Error: the dataset cannot be read.
    """
    made = _Loaded(dataset, loader)
    rounds = arguments.integer("rounds", rounds, 1)
    if epochs is not None:
        epochs = arguments.integer("epochs", epochs, 1)
    elif duration is None:
        epochs = 1
    report: dict[str, Any] = json.loads(
        native.bench(
            *made.native,
            text=made.text,
            epochs=epochs,
            duration=_seconds("duration", duration),
            rounds=rounds,
            cold=arguments.boolean("cold", cold),
            raw=arguments.boolean("raw", raw),
            compare=arguments.names("compare", compare),
            emulate_step=_seconds("emulate_step", emulate_step),
        )
    )
    return report


def tune(
    dataset: Any,
    *,
    out: str | os.PathLike[str] | None = None,
    limit: float | None = None,
    cold: bool = False,
    emulate_step: float | None = None,
    scratch: str | os.PathLike[str] | None = None,
    **loader: Any,
) -> dict[str, Any]:
    """Searches for a faster way to read a dataset on this machine, in the order that ``**loader`` asks for.

        found = uringload.tune("/data/train", batch_size=256, shuffle=True, out="train.toml")
        loader = uringload.DataLoader("/data/train", batch_size=256, shuffle=True, profile="train.toml")

    It changes one thing after the other: reads in flight, their length, gaps that are read along, engine, page cache,
    threads, memory. Other orders and packed shards are measured too and left to you. Ctrl-C ends it.

    Args:
        dataset: as `DataLoader` takes it.
        out: the file for the profile; by default none is written.
        limit: seconds to measure for at most; by default as many as the command line has.
        cold: empty the page cache of the dataset's files before each measurement.
        emulate_step: seconds of an emulated training step after each batch: what is faster is not searched for.
        scratch: a folder on the dataset's device in which a sample of it is packed; by default beside the dataset.
        **loader: as for `bench`.

    Returns:
        What ``uringload tune --json`` writes; ``found["profile"]`` has the settings: yours, unless others were shown to
        be faster.

    Raises:
        InvalidArgumentError: an argument cannot work, or cannot be measured.
        ReadTimeoutError: no batch came within the limit.
        Error: the dataset cannot be read, or the profile not be written.
    """
    made = _Loaded(dataset, loader)
    found: dict[str, Any] = json.loads(
        native.tune(
            *made.native,
            text=made.text,
            paths=made.paths,
            out=None if out is None else arguments.paths("out", out)[0],
            limit=_seconds("limit", limit),
            cold=arguments.boolean("cold", cold),
            emulate_step=_seconds("emulate_step", emulate_step),
            scratch=None if scratch is None else arguments.paths("scratch", scratch)[0],
        )
    )
    return found


class _Loaded:
    """What a loader with these arguments would read, and how."""

    def __init__(self, dataset: Any, given: dict[str, Any]) -> None:
        for name in _PYTHONS:
            if given.get(name) is not None:
                raise refused(f"{name} is work of Python's, which this does not run", _REMEDY)
        # Nothing is made of batches, so no other package need be there.
        with DataLoader(dataset, **{"output": "dlpack", **given}) as loader:
            if loader._pool is not None or loader._order is not None:
                raise refused("a part of this loader is work of Python's, which this does not run", _REMEDY)
            if loader._options["transforms"]:
                raise refused("transforms has kernels of a GPU, which this does not run", _REMEDY)
            self.native = (loader._dataset._native, loader._options, _log.warning)
            self.text = loader._text
            self.paths = list(loader._dataset._paths)


_REMEDY = "leave it out, or time a loop over the DataLoader and read its stats()"


def _seconds(name: str, value: float | None) -> float | None:
    if value is None:
        return None
    seconds = arguments.number(name, value)
    if not 0.0 < seconds < 3.2e9:
        raise refused(f"{name} is {value!r}", "give a number of seconds above 0")
    return seconds
