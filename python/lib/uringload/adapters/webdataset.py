"""Samples as webdataset has them, for its pipelines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .._dataset import LISTS, OPTIONS, Dataset
from .._loader import DataLoader
from ..errors import refused

__all__ = ["Samples"]


class Samples:
    """Samples as dictionaries of bytes by field, with ``__key__``: what webdataset's ``tarfile_to_samples`` gives.

        pipeline = webdataset.DataPipeline(Samples("/data/train", batch_size=64, shuffle=True),
                                           webdataset.decode("pil"), webdataset.to_tuple("jpg", "cls"))

    Each iteration is the loader's next epoch. Columns that are numbers in the dataset come as `int` or NumPy arrays.
    It needs no webdataset to be imported.

    Args:
        dataset: as for `uringload.DataLoader`.
        given: arguments of `uringload.DataLoader`; ``batch_size`` (64 by default) is how many are read together.
    """

    def __init__(self, dataset: Any, *, batch_size: int = 64, **given: Any) -> None:
        for name in ("output", "text", "binary", "key", "transform", "batch_transform", "collate", "collate_fn"):
            if name in given:
                raise refused(f"{name} is of no use to samples as webdataset has them", f"leave out {name}")
        options = {name: given.pop(name) for name in [*given] if name in (*OPTIONS, *LISTS)}
        if not isinstance(dataset, Dataset):
            dataset = Dataset(dataset, **options)
        self._binary = [name for name, (dtype, shape) in dataset.columns.items() if dtype == "u8" and shape is None]
        #: The loader that reads.
        self.loader = DataLoader(
            dataset, batch_size, output="numpy", key=True, text=[], binary=self._binary, **given
        )

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self.loader:
            for sample in batch.samples():
                key = sample.pop("key")
                yield {"__key__": key, **{name: _plain(value) for name, value in sample.items()}}

    def __call__(self) -> Iterator[dict[str, Any]]:
        """The same: how a ``DataPipeline`` asks its first stage."""
        return iter(self)

    def state_dict(self) -> dict[str, Any]:
        """The loader's state: before the batch that the last sample is from, unless that was its last."""
        return self.loader.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Makes the next iteration go on at a state."""
        self.loader.load_state_dict(state_dict)


def _plain(value: Any) -> Any:
    return value.item() if getattr(value, "ndim", None) == 0 else value
