"""A data loader that keeps a GPU fed from NVMe: io_uring, O_DIRECT, no worker processes.

    loader = uringload.DataLoader("/data/train", batch_size=256, shuffle=True)
    for epoch in range(90):
        for batch in loader:
            train(batch["data"], batch["label"])

Importing it starts no thread and imports neither NumPy nor torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _later, _process
from ._dataset import Dataset, mix
from ._loader import DataLoader
from ._output import Batch, Packed, Padded, Ragged
from ._report import Remedy, Route, Stats, Verdict
from ._uringload import VERSION as __version__
from ._uringload import Tensor
from .errors import (
    ArgumentTypeError,
    ChangedError,
    CorruptError,
    EmptyError,
    Error,
    IgnoredArgumentWarning,
    InternalError,
    InvalidArgumentError,
    IoError,
    MemoryLimitError,
    NotFoundError,
    PermissionDeniedError,
    ReadTimeoutError,
    StarvedError,
    StateMismatchError,
    TooManyFailuresError,
    TransformError,
    TruncatedError,
    UnavailableError,
    WorkerError,
    WrongFileTypeError,
)

if TYPE_CHECKING:
    from ._device import Images, Tokens
    from ._into import read_into
    from ._measure import bench, tune
    from ._merge import merge_traces
    from ._pack import PackedImages, PackPrediction, PackReport, pack
    from ._reader import Reader
    from ._watch import watch

#: What is imported when it is first asked for: most programs do without it.
_LATER = {
    "Images": "_device",
    "PackPrediction": "_pack",
    "PackReport": "_pack",
    "PackedImages": "_pack",
    "Reader": "_reader",
    "Tokens": "_device",
    "bench": "_measure",
    "merge_traces": "_merge",
    "pack": "_pack",
    "read_into": "_into",
    "tune": "_measure",
    "watch": "_watch",
}

#: Modules that need another package each.
_MODULES = ("adapters", "lightning", "prometheus", "tensorboard", "torch", "transformers", "wandb")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return _later.module(__name__, name)
    if name not in _LATER:
        raise _later.missing(__name__, name)
    found = globals()[name] = getattr(_later.module(__name__, _LATER[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER, *_MODULES})


__all__ = [
    "ArgumentTypeError",
    "Batch",
    "ChangedError",
    "CorruptError",
    "DataLoader",
    "Dataset",
    "EmptyError",
    "Error",
    "IgnoredArgumentWarning",
    "Images",
    "InternalError",
    "InvalidArgumentError",
    "IoError",
    "MemoryLimitError",
    "NotFoundError",
    "PackPrediction",
    "PackReport",
    "Packed",
    "PackedImages",
    "Padded",
    "PermissionDeniedError",
    "Ragged",
    "ReadTimeoutError",
    "Reader",
    "Remedy",
    "Route",
    "StarvedError",
    "StateMismatchError",
    "Stats",
    "Tensor",
    "Tokens",
    "TooManyFailuresError",
    "TransformError",
    "TruncatedError",
    "UnavailableError",
    "Verdict",
    "WorkerError",
    "WrongFileTypeError",
    "__version__",
    "bench",
    "merge_traces",
    "mix",
    "pack",
    "read_into",
    "tune",
    "watch",
]
