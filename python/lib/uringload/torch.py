"""PyTorch datasets on top of the loader, for code that needs one.

`IterableDataset` gives batches or samples to torch's DataLoader, and has a state for torchdata's StatefulDataLoader.
`Dataset` returns samples by number, and reads those of a batch together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch.utils.data

from . import _arguments as arguments
from ._dataset import LISTS, OPTIONS, Paths
from ._dataset import Dataset as Index
from ._loader import DataLoader
from .errors import refused

__all__ = ["Dataset", "IterableDataset"]


class IterableDataset(torch.utils.data.IterableDataset):  # type: ignore[misc]
    """The batches of a `DataLoader` as a dataset: ``torch.utils.data.DataLoader(dataset, batch_size=None)``.

    It takes the arguments of `uringload.DataLoader`. With ``samples=True`` it gives samples instead of batches, for
    code that collates them again. It reads in the process that made it: give a DataLoader around it ``num_workers=0``.

    Its state is the loader's, so torchdata's StatefulDataLoader resumes at the next batch without reading the earlier
    ones. With ``samples=True``, a state taken within a batch stands before that batch.
    """

    def __init__(self, path_or_dataset: Paths | Index, *, samples: bool = False, **given: Any) -> None:
        super().__init__()
        self._samples = arguments.boolean("samples", samples)
        self._behind: dict[str, Any] | None = None
        if self._samples and given.get("collate") == "tuple":
            raise refused('collate="tuple" makes batches, and samples=True asks for samples',
                          "give a transform that returns tuples, or leave out samples")
        if self._samples and "collate_fn" not in given:
            # Samples as the transform returned them: whoever collates again stacks them.
            given.setdefault("collate", "list" if given.get("transform") is not None else "auto")
        #: The loader that reads.
        self.loader = DataLoader(path_or_dataset, **given)

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self.loader)
        if not self._samples:
            return batches
        return self._one_by_one(batches)

    def _one_by_one(self, batches: Iterator[Any]) -> Iterator[Any]:
        self._behind = self.loader.state_dict()
        for batch in batches:
            count = 0
            every = list(batch.samples()) if hasattr(batch, "samples") else list(batch)
            for sample in every:
                count += 1
                if count == len(every):
                    self._behind = self.loader.state_dict()
                yield sample
        self._behind = None

    def __len__(self) -> int:
        if self._samples:
            raise TypeError("how many samples a pass has is not known where some may be left out; take len(loader)")
        return len(self.loader)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next pass."""
        self.loader.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """The state to resume from."""
        return self.loader.state_dict() if self._behind is None else self._behind

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Makes the next pass resume from a state."""
        self._behind = None
        self.loader.load_state_dict(state_dict)


class Dataset(torch.utils.data.Dataset):  # type: ignore[misc]
    """Samples by number, for torch's DataLoader with its own sampler.

    ``torch.utils.data.DataLoader`` asks for all samples of a batch at once (``__getitems__``): they are read together,
    many at a time, into memory of their own. Each such call opens and closes a ring, so it works in any process,
    including torch's workers. `uringload.DataLoader` reads ahead and is faster.

    Args:
        path_or_dataset: as for `uringload.DataLoader`.
        transform: a function of one sample, a dictionary.
        output: "torch", "numpy" or "dlpack".
        given: arguments of `uringload.Dataset`, and those of the loader that say how bytes are read.
    """

    def __init__(
        self,
        path_or_dataset: Paths | Index,
        *,
        transform: Callable[[dict[str, Any]], Any] | None = None,
        output: str = "torch",
        **given: Any,
    ) -> None:
        super().__init__()
        options = {name: value for name, value in given.items() if name in (*OPTIONS, *LISTS)}
        others = {name: value for name, value in given.items() if name not in options}
        for name in ("batch_size", "shuffle", "drop_last", "sampler", "order", "collate_fn", "rank", "world_size"):
            if name in others:
                raise refused(f"{name} is of no use to a dataset whose samples are asked for by number",
                              f"give {name} to the DataLoader around it, or use uringload.DataLoader")
        if isinstance(path_or_dataset, Index) and options:
            raise refused(f"{next(iter(options))} is of use where a path is opened", "give it to uringload.Dataset")
        index = path_or_dataset if isinstance(path_or_dataset, Index) else Index(path_or_dataset, **options)
        #: Reads samples and checks the arguments; it never starts a pass.
        self._loader = DataLoader(index, batch_size=1, rank=0, world_size=1, output=output, **others)
        self._transform = transform
        self.dataset = index

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        samples = list(self._loader.read(indices).samples())
        return samples if self._transform is None else [self._transform(sample) for sample in samples]
