"""Tables of Hugging Face's `datasets`: which of them are plain columns of files, and what their samples are then."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from . import _uringload as native
from ._output import Batch, Packed, Padded, Ragged, Raw

_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
_FLOATS = ("float16", "float32", "float64")
_TEXTS = ("string", "large_string")

#: What a table may have gone through and still be its files: columns were left out.
_REPLAYS = {"drop", "select", "remove_column", "replace_schema_metadata", "combine_chunks"}


class Table(NamedTuple):
    """A dataset that is columns of its files, in an order of its own at most."""

    files: list[str]
    columns: list[str]
    #: The rows that there are; None: all.
    rows: list[int] | None
    #: The names of the types that columns of numbers come in, where that is not how they are stored.
    dtypes: dict[str, str]
    #: The columns of lists.
    lists: list[str]
    #: Whether samples are objects of Python: no format was set.
    is_python: bool


def plain(given: Any) -> Table | str:
    """A dataset as columns of files; or why it is something else."""
    form = given.format
    dtype = form["format_kwargs"].get("dtype")
    if form["type"] not in (None, "torch") or form["output_all_columns"] or set(form["format_kwargs"]) - {"dtype"}:
        others = ", with other columns" if form["output_all_columns"] else ""
        return f"its format ({form['type']}{others}) is one that it makes itself"
    columns = [name for name in given.column_names if name in form["columns"]]
    files = _files(given._data)
    if not files:
        return "its table is not all of its files, as they are"
    if not columns:
        return "its format has no columns"
    stored, lists = {}, []
    for name in columns:
        kind, is_list = _element(given.features[name])
        # Without a format, objects of 16-bit floats are NumPy's.
        if kind is None or (form["type"] is None and kind == "float16"):
            return f"column {name!r} is neither text nor numbers, nor lists of numbers"
        if not _is_whole(given, name, is_list):
            return f"column {name!r} has nulls, or is stored as something else"
        stored[name] = kind
        if is_list:
            lists.append(name)
    rows = None if given._indices is None else given._indices.column(0).to_pylist()
    if form["type"] is None:
        wide = {name: "float64" for name, kind in stored.items() if kind in _FLOATS}
        return Table(files, columns, rows, _changed(stored, wide, None), lists, True)
    wide = {name: "float32" for name, kind in stored.items() if kind in _FLOATS}
    named = None if dtype is None else str(dtype).removeprefix("torch.")
    return Table(files, columns, rows, _changed(stored, wide, named), lists, False)


def of_python(sample: dict[str, Any]) -> dict[str, Any]:
    """A sample with objects of Python for its values."""
    return {name: value.tolist() if hasattr(value, "tolist") else value for name, value in sample.items()}


def formatted(convert: Callable[[Raw], Batch], table: Table, stacks: bool) -> Callable[[Raw], Batch]:
    """`convert`, with columns in the types of a format; lists of one length become a tensor, if `stacks` says so."""
    lists = table.lists if stacks else []
    if not table.dtypes and not lists:
        return convert

    def columns(raw: Raw) -> Batch:
        batch = convert(raw)
        for name in lists:
            if name in batch:
                batch[name] = _stacked(batch[name])
        for name in table.dtypes.keys() & batch.keys():
            batch[name] = _as(batch[name], table.dtypes[name])
        return batch

    return columns


def _stacked(column: Any) -> Any:
    if not isinstance(column, list) or any(value.shape != column[0].shape for value in column):
        return column
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(column[0], torch.Tensor):
        return torch.stack(column)
    if isinstance(column[0], native.Tensor):
        return column
    import numpy

    return numpy.stack(column)


def _as(column: Any, dtype: str) -> Any:
    if isinstance(column, list):
        return [_as(value, dtype) for value in column]
    if isinstance(column, (Ragged, Padded, Packed)):
        return column._replace(values=_as(column.values, dtype))
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(column, torch.Tensor):
        return column.to(getattr(torch, dtype))
    return column if isinstance(column, native.Tensor) else column.astype(dtype)


def _changed(stored: dict[str, str], wide: dict[str, str], named: str | None) -> dict[str, str]:
    """The columns whose type is another: integers of 64 bits, floats as `wide` says; or all as it is named."""
    wanted = {name: named or wide.get(name, kind if kind == "bool" else "int64")
              for name, kind in stored.items() if kind not in _TEXTS}
    return {name: dtype for name, dtype in wanted.items() if dtype != stored[name]}


def _element(feature: Any) -> tuple[str | None, bool]:
    """The type of a column's elements, and whether it has lists of them; None: what is not plain."""
    kind = type(feature).__name__
    if kind == "ClassLabel":
        return "int64", False
    if kind in ("List", "LargeList", "Sequence"):
        inner, is_list = _element(feature.feature)
        return (None, True) if is_list or inner in _TEXTS else (inner, True)
    dtype = feature.dtype if kind == "Value" else None
    return (dtype if dtype in (*_INTEGERS, *_FLOATS, *_TEXTS, "bool") else None), False


def _is_whole(given: Any, name: str, is_list: bool) -> bool:
    """Whether a column has no nulls, and is stored as its feature says."""
    column = given._data.column(name)
    if column.null_count or column.type != given.features.arrow_schema.field(name).type:
        return False
    return not is_list or all(chunk.values.null_count == 0 for chunk in column.chunks)


def _files(table: Any) -> list[str]:
    """The files that a table is the rows of, end to end; none where it is more, less or something else."""
    tables = sys.modules["datasets.table"]
    if isinstance(table, tables.MemoryMappedTable):
        is_all = {name for name, _, _ in table.replays} <= _REPLAYS
        return [table.path] if is_all else []
    if not isinstance(table, tables.ConcatenationTable):
        return []
    parts = [_files(blocks[0]) if len(blocks) == 1 else [] for blocks in table.blocks]
    return [path for part in parts for path in part] if all(parts) else []
