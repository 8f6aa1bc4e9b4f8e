"""Makes one batch of what a transform returned for its samples, as torch's `default_collate` does."""

from __future__ import annotations

import copy
import operator
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from . import _log
from ._output import Batch, _import_torch

#: Smaller arrays are stacked when all are there: they are still in the processor's cache then.
ROW_BYTES_LEAST = 64 << 10


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
        self._rows = Rows(0)

    def of_batch(self, samples: int) -> Stack:
        """The same for one batch of this number of samples: `put` says when each is made."""
        made = copy.copy(self)
        made._rows = Rows(samples)
        return made

    def put(self, index: int, sample: Any) -> Any:
        """The sample, with its large arrays in the memory of the batch."""
        return self._rows.put(index, sample)

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
        whole = self._rows.whole(values)
        if whole is not None:
            return whole
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


class Rows:
    """The memory of a batch, into which large arrays are copied one by one as samples are made.

    An array that has just been made is in the processor's cache, and the next sample's takes its memory. Where all are
    kept until the last is there, each is in memory that the system has to clear first, and is read from there again.
    """

    def __init__(self, samples: int) -> None:
        self._samples = samples
        #: By key or position of the column: its memory, once two arrays were alike, and the arrays in it.
        self._columns: dict[Any, tuple[Any, list[Any]]] = {}

    def put(self, index: int, sample: Any) -> Any:
        """The sample, with its large arrays in the memory of the batch. It has the place `index` there."""
        if index > 0 and not self._columns:
            return sample
        if type(sample) is dict:
            return {key: self._put(index, key, value) for key, value in sample.items()}
        if type(sample) in (tuple, list):
            return type(sample)(self._put(index, position, value) for position, value in enumerate(sample))
        return self._put(index, None, sample)

    def whole(self, values: list[Any]) -> Any:
        """The memory in which exactly these arrays lie, in this order; None if there is none."""
        for whole, rows in self._columns.values():
            if whole is not None and len(rows) == len(values) and all(map(operator.is_, rows, values)):
                # The last ones may have failed.
                return whole[: len(rows)]
        return None

    def _put(self, index: int, key: Any, value: Any) -> Any:
        if index == 0:
            if _is_row(value):
                self._columns[key] = None, [value]
            return value
        whole, rows = self._columns.get(key, (None, []))
        if len(rows) != index or not _is_row(value) or not _are_alike(rows[0], value):
            # This column is stacked at the end, if at all.
            self._columns.pop(key, None)
            return value
        try:
            if whole is None:
                whole = _memory(self._samples, value)
                _copied(whole, 0, rows[0])
                self._columns[key] = whole, rows
            rows.append(_copied(whole, index, value))
        except (MemoryError, TypeError, ValueError, RuntimeError, NotImplementedError):
            self._columns.pop(key, None)
            return value
        return rows[-1]


def _is_row(value: Any) -> bool:
    """Whether a value is a large array of NumPy or torch that lies in memory as it does in a stack."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if numpy is not None and type(value) is numpy.ndarray:
        is_plain = value.dtype.kind in "biufc" and value.dtype.isnative and value.flags.c_contiguous
        return is_plain and value.nbytes >= ROW_BYTES_LEAST
    if torch is not None and type(value) is torch.Tensor:
        is_plain = value.device.type == "cpu" and value.layout is torch.strided and not value.requires_grad
        return is_plain and value.is_contiguous() and value.nbytes >= ROW_BYTES_LEAST
    return False


def _are_alike(first: Any, value: Any) -> bool:
    return type(first) is type(value) and first.shape == value.shape and first.dtype == value.dtype


def _memory(samples: int, first: Any) -> Any:
    """Memory for as many arrays as there are samples."""
    shape = (samples, *first.shape)
    if hasattr(first, "new_empty"):
        return first.new_empty(shape)
    import numpy

    return numpy.empty(shape, first.dtype)


def _copied(whole: Any, index: int, value: Any) -> Any:
    """The row of `whole` that has a copy of `value` now."""
    if hasattr(value, "new_empty"):
        import torch

        # In this thread alone, which `copy_` is not.
        torch.stack([value], out=whole[index : index + 1])
    else:
        whole[index] = value
    return whole[index]
