"""The arguments that formats declare, as types: type checkers find a misspelt one. Never imported at run time, where
Python 3.10 has no `Unpack`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from typing_extensions import TypedDict


class FormatOptions(TypedDict, total=False):
    """How to read the files; `uringload.Dataset` explains each."""

    format: str | None
    split: str | None
    endpoint: str | None
    region: str | None
    anonymous: bool | None
    ca_file: str | os.PathLike[str] | None
    allow_http: bool | None
    requester_pays: bool | None
    record_bytes: int | str | None
    record_fields: str | None
    header_bytes: int | str | None
    drop_tail: bool | None
    dtype: Any | None
    shape: Iterable[int] | None
    index_cache: str | os.PathLike[str] | None
    write_index: bool | None
    keep_damaged: bool | None
    columns: str | Sequence[str] | None
    delimiter: Literal[",", "tab", ";", "|"] | None
    header: bool | None
    allow_bad_shards: bool | None
    verify_hashes: bool | None
    block_size: int | None
    rows: bool | None
    tensors: str | Sequence[str] | None
    samples: Literal["files", "rows", "arrays"] | None
    window_tokens: int | None
    stride: int | None
    token_dtype: Any | None
    documents: bool | None
    whole_windows: bool | None
    nulls: Literal["refuse", "empty", "nan", "zero", "mask"] | None
    fields: str | Sequence[str] | None
    missing: Literal["error", "empty"] | None
    whole_records: bool | None
    examples: bool | None
    fixed: str | Sequence[str] | None
    verify_crc: bool | None
    labels: bool | str | os.PathLike[str] | Mapping[Any, Any] | None
    label_file: str | os.PathLike[str] | None
    unlabelled: Literal["error", "skip"] | None
    pairs: Literal["extension", "folder"] | None


class LoaderOptions(FormatOptions, total=False):
    """What a loader passes on to its dataset, and what it accepts of PyTorch's DataLoader without a use for it."""

    only: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | Iterable[int] | None
    exclude: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None
    prefetch_factor: int | None
    persistent_workers: bool
    multiprocessing_context: Any
    in_order: bool
