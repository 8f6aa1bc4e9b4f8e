"""Samples by number: a reader that is kept, and what its values become."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterable, Sequence
from typing import Any, final

from . import _output
from . import _uringload as native


@final
class Samples:
    """Reads single samples of a dataset as dictionaries, in the calling thread and through the page cache.

    Threads may share it, and a forked child may go on with it: it holds open files and no ring.
    """

    __slots__ = ("_dataset", "_output", "_text", "_binary", "_key", "_index", "_reader", "_names", "_array")

    def __init__(
        self,
        dataset: native.Dataset,
        output: str,
        text: Sequence[str] | None = None,
        binary: Sequence[str] = (),
        key: bool = False,
        index: bool = False,
    ) -> None:
        self._dataset, self._output, self._text, self._binary = dataset, output, text, binary
        self._key, self._index = key, index
        self._reader = native.Samples(dataset, text=None if text is None else list(text), binary=list(binary))
        self._names = [name for name, *_ in dataset.columns]
        self._array = _output.array_of(output)

    def read(self, ids: list[int]) -> list[dict[str, Any]]:
        """The samples with these numbers, each with a value for every column."""
        array, tensor = self._array, native.Tensor
        samples = []
        for number, values in zip(ids, self._reader.read(ids)):
            sample = {
                name: array(value) if type(value) is tensor else value for name, value in zip(self._names, values)
            }
            if self._key:
                sample["key"] = self._dataset.key(number).decode("utf-8", "surrogateescape")
            if self._index:
                sample["index"] = number
            samples.append(sample)
        return samples


def numbers(indices: Iterable[Any], count: int) -> list[int]:
    """Numbers of samples, counted from the end where they are negative, as in a list."""
    found = []
    for index in indices:
        number = operator.index(index)
        if not -count <= number < count:
            raise IndexError(f"there is no sample {number} among {count}")
        found.append(number % count)
    return found


def default_output() -> str:
    """The default arrays of samples: torch's if it is imported, else NumPy's if it is installed."""
    if "torch" in sys.modules:
        return "torch"
    import importlib.util

    return "numpy" if importlib.util.find_spec("numpy") is not None else "dlpack"
