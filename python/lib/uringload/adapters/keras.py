"""Batches for ``keras.Model.fit``, ``evaluate`` and ``predict``, with every backend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from .._loader import DataLoader
from .._pass import Pass
from ..errors import mistyped, refused

__all__ = ["Batches"]


class Batches(keras.utils.PyDataset):  # type: ignore[misc]
    """A loader as a ``keras.utils.PyDataset``.

        loader = uringload.DataLoader("/data/train", 256, shuffle=True, collate="tuple", output="numpy")
        model.fit(uringload.adapters.keras.Batches(loader), epochs=90)

    An epoch of Keras is one of the loader, whose order it is: ``shuffle=`` of ``fit`` changes nothing. Where Keras
    leaves an epoch (it looks at a batch to build a model), the same epoch begins again.

    Args:
        loader: its batches are tuples: of inputs, or of inputs and targets, or of these and sample weights.
    """

    def __init__(self, loader: DataLoader) -> None:
        super().__init__()
        if not isinstance(loader, DataLoader):
            raise mistyped(f"loader is a {type(loader).__name__}", "give a uringload.DataLoader")
        #: The loader that reads.
        self.loader = loader
        self._batches: Pass | None = None
        # The epoch of that pass.
        self._epoch = 0
        # Keras asks for the number of batches when it begins to iterate, and says nothing else then.
        self._begins = True

    @property
    def num_batches(self) -> int:
        """Batches of an epoch."""
        self._begins = True
        return len(self.loader)

    def __len__(self) -> int:
        return len(self.loader)

    def __getitem__(self, index: int) -> Any:
        """The next batch, whatever its number."""
        if self._begins or self._batches is None:
            self._begin()
        assert self._batches is not None
        batch = _plain(next(self._batches))
        if not isinstance(batch, (tuple, list)):
            raise refused("Keras takes a batch as a tuple (inputs, targets), and this is no tuple",
                          'give the loader collate="tuple", or a transform that returns a tuple')
        return tuple(batch)

    def _begin(self) -> None:
        if self._batches is not None and not self._batches.has_given_all:
            self.loader.set_epoch(self._epoch)
        if self.loader._resume is not None:
            left, every = self.loader._remaining(self.loader.state_dict()), len(self.loader)
            if left != every:
                raise refused(f"the state has {left} batches of its epoch left, and Keras counts {every} in each",
                              "load a state of the end of an epoch, or give these batches to train_on_batch before fit")
        self._epoch = self.loader.epoch
        self._batches, self._begins = self.loader._begin(), False


def _plain(value: Any) -> Any:
    """Containers as Keras's trees know them, which have no subclasses."""
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if type(value) is not tuple and isinstance(value, tuple) and hasattr(value, "_fields"):
        return value
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return [*map(_plain, value)] if isinstance(value, list) else value
