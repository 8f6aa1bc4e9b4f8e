"""A data loader that keeps a GPU fed from NVMe: io_uring, O_DIRECT, no worker processes.

    loader = uringload.DataLoader("/data/train", batch_size=256, shuffle=True)
    for epoch in range(90):
        for batch in loader:
            train(batch["data"], batch["label"])

Importing it starts no thread and imports neither NumPy nor torch.
"""

from __future__ import annotations

from . import _process
from ._dataset import Dataset, mix
from ._device import Images, Tokens
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
    "Packed",
    "Padded",
    "PermissionDeniedError",
    "Ragged",
    "ReadTimeoutError",
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
    "mix",
]
