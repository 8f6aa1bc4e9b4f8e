"""Datasets for other libraries' loaders, each thin: the reading, the order and the state are uringload's.

- `uringload.adapters.torchdata.Node`: a node for ``torchdata.nodes``, with its state.
- `uringload.adapters.grain.DataSource`: a ``RandomAccessDataSource`` for Grain.
- `uringload.adapters.dali.Batches`: a source for DALI's ``fn.external_source``.
- `uringload.adapters.webdataset.Samples`: samples as webdataset has them, for its pipelines.
- `uringload.adapters.huggingface.iterable`: a Hugging Face ``IterableDataset``.
- `uringload.adapters.keras.Batches`: a ``keras.utils.PyDataset``, for ``Model.fit``.

Importing this imports none of them.
"""

from __future__ import annotations

from typing import Any

from .. import _later

_MODULES = ("dali", "grain", "huggingface", "keras", "torchdata", "webdataset")


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise _later.missing(__name__, name)
    return _later.module(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
