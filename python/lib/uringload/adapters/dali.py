"""A source for DALI's ``fn.external_source``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .._loader import DataLoader
from ..errors import refused

__all__ = ["Batches"]


class Batches:
    """Batches as DALI takes them: for each column a list with an array of every sample.

        jpegs, labels = fn.external_source(
            source=Batches("/data/train", batch_size=64, columns=["data", "label"]),
            num_outputs=2, batch=True, cycle="raise",
        )

    DALI asks for an iterator at the start of each epoch, which is then the loader's next one. Text comes as bytes. It
    needs no DALI to be imported.

    Args:
        dataset: as for `uringload.DataLoader`.
        columns: the columns to return, in this order; all by default.
        given: arguments of `uringload.DataLoader`; ``batch_size`` is at most that of the pipeline.
    """

    def __init__(self, dataset: Any, *, columns: list[str] | None = None, **given: Any) -> None:
        for name in ("output", "text", "binary", "transform", "batch_transform", "collate", "collate_fn"):
            if name in given:
                raise refused(f"{name} is of no use to DALI, which takes arrays", f"leave out {name}")
        #: The loader that reads.
        self.loader = DataLoader(dataset, output="numpy", text=[], **given)
        known = [*self.loader._dataset.columns]
        for name in columns or ():
            if name not in known:
                raise refused(f"there is no column {name!r}", f"choose from {', '.join(known)}")
        self._columns = columns or known
        self._batches: Iterator[Any] | None = None

    def __iter__(self) -> Batches:
        self._batches = iter(self.loader)
        return self

    def __next__(self) -> tuple[list[Any], ...]:
        if self._batches is None:
            self._batches = iter(self.loader)
        import numpy

        samples = list(next(self._batches).samples())
        return tuple([numpy.asarray(sample[name]) for sample in samples] for name in self._columns)
