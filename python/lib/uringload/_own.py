"""Datasets that a program describes itself: an index of its own, columns in memory, labels by name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from . import _arguments as arguments
from . import _uringload as native
from .errors import mistyped, refused

#: NumPy's and torch's names of types, by ours.
_DTYPES = {
    "uint8": "u8", "int8": "i8", "uint16": "u16", "int16": "i16", "uint32": "u32", "int32": "i32", "uint64": "u64",
    "int64": "i64", "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "bool": "bool",
}  # fmt: skip


def ranges(files: Any, offsets: Any, lengths: Any, columns: Any, dtype: Any) -> native.Dataset:
    """The dataset of an index: see `Dataset.from_index`."""
    table, which = _files(files)
    if (offsets is None) != (lengths is None):
        raise refused("offsets and lengths are of use together", "give both, or none for whole files")
    name = arguments.text("dtype", dtype)
    if offsets is None:
        whole = table if which is None else [_at(table, number, sample) for sample, number in enumerate(which)]
        dataset = native.ranges(whole, None, _DTYPES.get(name, name))
    else:
        places = (_integers("offsets", offsets), _integers("lengths", lengths))
        numbers = range(len(table)) if which is None else which
        # A file named once for each sample: the table has it once.
        known: dict[str, int] = {}
        if which is None:
            numbers = [known.setdefault(path, len(known)) for path in table]
            table = list(known)
        dataset = native.ranges(table, (list(numbers), *places), _DTYPES.get(name, name))
    return dataset if columns is None else with_columns(dataset, columns)


def with_columns(dataset: native.Dataset, columns: Any) -> native.Dataset:
    """The dataset with columns in memory: arrays, or lists of numbers or texts, by name."""
    if not isinstance(columns, Mapping):
        raise mistyped(f"columns is a {type(columns).__name__}", "give a dictionary of arrays by name")
    return native.with_columns(dataset, [_column(str(name), values) for name, values in columns.items()])


def labelled(dataset: native.Dataset, labels: Mapping[Any, Any], unlabelled: str) -> native.Dataset:
    """The dataset with labels by name."""
    names = [os.fsdecode(name) if isinstance(name, (str, bytes, os.PathLike)) else str(name) for name in labels]
    texts = []
    for name, label in zip(names, labels.values()):
        if hasattr(label, "item"):
            label = label.item()
        if isinstance(label, bool) or not isinstance(label, (int, float, str)):
            raise mistyped(f"the label of {name!r} is a {type(label).__name__}", "give numbers or names of classes")
        texts.append(str(label))
    arguments.text("unlabelled", unlabelled, ("error", "skip"))
    return native.labelled(dataset, names, texts, unlabelled == "skip")


def _files(files: Any) -> tuple[list[str], list[int] | None]:
    """A table of paths, and which of them each sample lies in; None: one path for each sample."""
    if isinstance(files, tuple) and len(files) == 2 and not isinstance(files[0], (str, bytes, os.PathLike)):
        return arguments.paths("files", files[0]), _integers("files", files[1])
    return arguments.paths("files", files), None


def _at(table: list[str], number: int, sample: int) -> str:
    if number >= len(table):
        raise refused(f"sample {sample} is in file {number}, and there are {len(table)}", "count files from 0")
    return table[number]


def _integers(name: str, values: Any) -> list[int]:
    listed = values.tolist() if hasattr(values, "tolist") else values
    if not isinstance(listed, Iterable) or isinstance(listed, (str, bytes)):
        raise mistyped(f"{name} is a {type(values).__name__}", "give an array or a list of whole numbers")
    numbers = list(listed)
    for sample, number in enumerate(numbers):
        if type(number) is not int or number < 0:
            raise refused(f"{name} of sample {sample} cannot be {number!r}", "give whole numbers from 0 on")
    return numbers


def _column(name: str, values: Any) -> tuple[str, Any, str, list[int]]:
    """Name, values, type and shape of one value."""
    if not hasattr(values, "dtype"):
        listed = list(values)
        if all(isinstance(value, str) for value in listed):
            return name, listed, "", []
        if all(type(value) is int for value in listed):
            return name, b"".join(_eight(name, value) for value in listed), "i64", []
        if all(isinstance(value, (int, float)) for value in listed):
            import struct

            return name, struct.pack(f"<{len(listed)}d", *listed), "f64", []
        raise mistyped(f"column {name!r} has values of several types", "give an array, or a list of numbers or texts")
    if hasattr(values, "detach"):
        values = values.detach().cpu().contiguous()
        dtype = str(values.dtype).rpartition(".")[2]
        # Some of torch's types are not NumPy's; bytes are.
        flat = values.reshape(-1)
        raw = flat.view(_torch_bytes(flat)).numpy().tobytes() if flat.numel() else b""
    else:
        if values.dtype.kind in "UO":
            return _column(name, values.tolist())
        dtype, values = values.dtype.name, values.astype(values.dtype.newbyteorder("<"))
        raw = values.tobytes()
    if dtype not in _DTYPES:
        raise mistyped(f"column {name!r} has elements of type {dtype}", "give integers, floats, booleans or texts")
    if values.ndim == 0:
        raise mistyped(f"column {name!r} is one value", "give a value for each sample")
    # Whole numbers are 64-bit integers: what labels are.
    if values.ndim == 1 and dtype in ("int8", "int16", "int32", "uint8", "uint16", "uint32"):
        return _column(name, values.tolist())
    return name, raw, _DTYPES[dtype], [int(size) for size in values.shape[1:]]


def _torch_bytes(tensor: Any) -> Any:
    import torch

    return torch.uint8


def _eight(name: str, value: int) -> bytes:
    try:
        return value.to_bytes(8, "little", signed=True)
    except OverflowError:
        raise refused(f"column {name!r} has {value}, which is no 64-bit integer", "give smaller numbers") from None
