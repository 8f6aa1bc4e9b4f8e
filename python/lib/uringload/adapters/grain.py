"""A data source for Grain, which asks for samples by number from threads or processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsIndex

from .. import _arguments as arguments
from .._dataset import Dataset
from .._output import OUTPUTS
from .._samples import Samples, numbers

__all__ = ["DataSource"]


class DataSource:
    """A ``grain.RandomAccessDataSource`` of a dataset: samples are dictionaries of their columns.

    Threads may share it, and a copy in another process opens its own files. It needs no Grain to be imported.

    Args:
        dataset: paths, or a `uringload.Dataset`.
        output: "numpy", "torch" or "dlpack".
        given: arguments of `uringload.Dataset`, and ``text``, ``binary``, ``key`` and ``index`` of the loader.
    """

    def __init__(self, dataset: Any, *, output: str = "numpy", **given: Any) -> None:
        self._wishes = {name: given.pop(name) for name in ("text", "binary", "key", "index") if name in given}
        arguments.text("output", output, OUTPUTS)
        for name in ("text", "binary"):
            if name in self._wishes:
                self._wishes[name] = arguments.names(name, self._wishes[name])
        self._output = output
        #: The dataset.
        self.dataset = dataset if isinstance(dataset, Dataset) else Dataset(dataset, **given)
        if self.dataset._prepare is not None:
            self._wishes["binary"] = [*self._wishes.get("binary", ()), "data"]
        self._samples: Samples | None = None

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.dataset)

    def __getitem__(self, index: SupportsIndex) -> Any:
        """One sample."""
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[Any]:
        """Several samples, in this order."""
        wanted = numbers(indices, len(self.dataset))
        if self._samples is None:
            self._samples = Samples(self.dataset._native, self._output, **self._wishes)
        samples = self._samples.read(wanted)
        prepare = self.dataset._prepare
        return samples if prepare is None else [prepare(sample) for sample in samples]

    def __repr__(self) -> str:
        # Grain's checkpoints compare it: it names the data, and no place in memory.
        return f"DataSource({self.dataset.format}, {len(self)} samples, {self.dataset.fingerprint})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_samples": None}
