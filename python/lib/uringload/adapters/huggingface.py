"""A Hugging Face ``IterableDataset``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import datasets

__all__ = ["iterable"]


def iterable(path: Any, *, batch_size: int = 64, **given: Any) -> datasets.IterableDataset:
    """The samples of a dataset as a ``datasets.IterableDataset``: dictionaries of their columns.

    Columns of bytes come as `bytes` (an ``Image`` feature decodes them: give ``features``), texts as `str`, numbers as
    NumPy arrays. Each iteration reads the first epoch, unless ``epoch`` says otherwise.

    Args:
        path: folders, files or patterns.
        given: ``features`` of Hugging Face's, ``epoch``, and arguments of `uringload.DataLoader`; ``batch_size`` is how
            many samples are read together.
    """
    features = given.pop("features", None)
    given = {"path": path, "batch_size": batch_size, **given}
    return datasets.IterableDataset.from_generator(_samples, features=features, gen_kwargs=given)


def _samples(path: Any, epoch: int = 0, **given: Any) -> Iterator[dict[str, Any]]:
    from .._dataset import LISTS, OPTIONS, Dataset
    from .._loader import DataLoader

    options = {name: given.pop(name) for name in [*given] if name in (*OPTIONS, *LISTS)}
    dataset = path if isinstance(path, Dataset) else Dataset(path, **options)
    texts = dataset.text_columns
    plain = [name for name, (dtype, shape) in dataset.columns.items()
             if dtype == "u8" and shape is None and name not in texts]
    with DataLoader(dataset, output="numpy", binary=plain, **given) as loader:
        loader.set_epoch(epoch)
        for batch in loader:
            yield from batch.samples()
