"""Makes one batch of what a transform returned for its samples, as torch's `default_collate` does."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from . import _log
from ._output import Batch, _import_torch


class Stack:
    """Stacks samples: dictionaries give a `Batch` of columns, tuples and lists a tuple or list by position.

    In a column, arrays and tensors of one shape become one with a dimension more, and numbers become an array. Strings,
    bytes, None and objects stay lists. So do arrays whose shapes differ; the log says so, once for each column.
    """

    def __init__(self, output: str, is_tuple: bool = False) -> None:
        self._is_tuple = is_tuple
        self._torch = _import_torch('output="torch"') if output == "torch" else None
        self._stacks_numbers = output != "dlpack"
        self._told: dict[str, object] = {}

    def __call__(self, samples: list[Any], facts: Any) -> Any:
        """The batch of at least one sample. `facts` are those of a `Batch`, if it becomes one."""
        if isinstance(samples[0], Mapping):
            columns = self._columns(samples, "")
            if columns is None:
                return samples
            if self._is_tuple:
                return tuple(columns.values())
            return Batch(columns, facts)
        return self._column(samples, "")

    def _columns(self, samples: Sequence[Mapping[Any, Any]], name: str) -> dict[Any, Any] | None:
        """The columns of dictionaries; None if their keys differ."""
        first = samples[0].keys()
        if any(not isinstance(sample, Mapping) or sample.keys() != first for sample in samples):
            self._stays(name, "samples have other keys than the first")
            return None
        return {key: self._column([sample[key] for sample in samples], f"{name}.{key}" if name else str(key))
                for key in first}

    def _column(self, values: list[Any], name: str) -> Any:
        first = values[0]
        if first is None or isinstance(first, (str, bytes)):
            return values
        torch, numpy = self._torch or sys.modules.get("torch"), sys.modules.get("numpy")
        if torch is not None and isinstance(first, torch.Tensor):
            return self._arrays(values, name, torch.Tensor, torch.stack)
        if numpy is not None and isinstance(first, numpy.ndarray):
            return values if first.dtype.kind in "OSU" else self._own(
                self._arrays(values, name, numpy.ndarray, numpy.stack))
        if numpy is not None and isinstance(first, numpy.generic):
            return values if first.dtype.kind in "OSU" else self._own(self._numbers(values, name, numpy.asarray))
        if isinstance(first, (bool, int, float, complex)):
            return self._plain_numbers(values, name)
        if isinstance(first, Mapping):
            columns = self._columns(values, name)
            return values if columns is None else columns
        if isinstance(first, (tuple, list)):
            return self._by_position(values, name)
        self._stays(name, f"its values are of type {type(first).__module__}.{type(first).__qualname__}")
        return values

    def _by_position(self, values: list[Any], name: str) -> Any:
        first = values[0]
        if any(type(value) is not type(first) or len(value) != len(first) for value in values):
            self._stays(name, "samples have other types or lengths than the first")
            return values
        columns = [self._column(list(column), f"{name}[{index}]") for index, column in enumerate(zip(*values))]
        if hasattr(first, "_fields"):
            return type(first)(*columns)
        return tuple(columns) if isinstance(first, tuple) else columns

    def _plain_numbers(self, values: list[Any], name: str) -> Any:
        if self._torch is not None:
            # default_collate gives 64 bits, too.
            wide = {"dtype": self._torch.float64} if isinstance(values[0], float) else {}
            return self._numbers(values, name, lambda numbers: self._torch.tensor(numbers, **wide))
        if not self._stacks_numbers:
            return values
        import numpy

        return self._numbers(values, name, numpy.asarray)

    def _numbers(self, values: list[Any], name: str, stacked: Any) -> Any:
        try:
            array = stacked(values)
        except (TypeError, ValueError, OverflowError, RuntimeError) as error:
            self._stays(name, str(error))
            return values
        # NumPy makes an array of objects of what is no number of 64 bits.
        return values if getattr(array.dtype, "kind", "") == "O" else array

    def _arrays(self, values: list[Any], name: str, kind: Any, stacked: Any) -> Any:
        first = values[0]
        for value in values:
            if not isinstance(value, kind):
                self._stays(name, f"some values are {type(value).__name__}")
                return values
            if value.shape != first.shape:
                self._stays(name, f"shapes differ: {tuple(first.shape)} and {tuple(value.shape)}")
                return values
        try:
            return stacked(values)
        except (TypeError, ValueError, RuntimeError, NotImplementedError) as error:
            self._stays(name, str(error))
            return values

    def _own(self, array: Any) -> Any:
        """A stacked array of NumPy as the output's own kind; torch lacks some element types."""
        if self._torch is None or isinstance(array, list):
            return array
        try:
            return self._torch.from_numpy(array)
        except (TypeError, ValueError):
            return array

    def _stays(self, name: str, why: str) -> None:
        own = object()
        # Of several threads, one is the first.
        if self._told.setdefault(name, own) is own:
            what = f"column {name!r}" if name else "the batch"
            _log.warning("%s of transformed samples stays a list: %s; make them alike in the transform, or give a "
                         "function as collate (collate=\"list\" for lists without this line)", what, why)
