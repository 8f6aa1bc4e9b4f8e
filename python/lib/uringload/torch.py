"""PyTorch datasets on top of the loader, for code that needs one.

`IterableDataset` gives batches or samples to torch's DataLoader, and has a state for torchdata's StatefulDataLoader.
`Dataset` returns samples by number, and reads those of a batch together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch.utils.data

from . import _accelerate
from . import _arguments as arguments
from ._dataset import LISTS, OPTIONS, Paths
from ._dataset import Dataset as Index
from ._loader import DataLoader
from ._samples import Samples, numbers
from .errors import refused

__all__ = ["Dataset", "IterableDataset"]

#: Up to this many samples are read one after the other: a ring, which reads them together, takes 1 ms to set up.
FEW = 8


class IterableDataset(torch.utils.data.IterableDataset):  # type: ignore[misc]
    """The batches of a `DataLoader` as a dataset: ``torch.utils.data.DataLoader(dataset, batch_size=None)``.

    It takes the arguments of `uringload.DataLoader`. With ``samples=True`` it gives samples instead of batches, for
    code that collates them again. It reads in the process that made it: give a DataLoader around it ``num_workers=0``.

    Its state is the loader's, so torchdata's StatefulDataLoader resumes at the next batch without reading the earlier
    ones. With ``samples=True``, a state taken within a batch is the one before that batch.

    Accelerate and Hugging Face's Trainer share out such a dataset by themselves, and read ahead of what they hand out.
    Under them it reads for all ranks, and has a state only for a StatefulDataLoader. `uringload.DataLoader` itself is
    faster there: each rank reads its own share.
    """

    def __init__(self, dataset: Paths | Index, *, samples: bool = False, **given: Any) -> None:
        super().__init__()
        self._samples = arguments.boolean("samples", samples)
        self._behind: dict[str, Any] | None = None
        # The object that has read further than it has handed out, if there is one.
        self._ahead: str | None = None
        if self._samples and given.get("collate") == "tuple":
            raise refused('collate="tuple" makes batches, and samples=True asks for samples',
                          "give a transform that returns tuples, or leave out samples")
        if self._samples and "collate_fn" not in given:
            # Samples as the transform returned them: the code that collates again stacks them.
            given.setdefault("collate", "list" if given.get("transform") is not None else "auto")
        #: The loader that reads.
        self.loader = DataLoader(dataset, **given)

    def __iter__(self) -> Iterator[Any]:
        self.loader._ranks.share(_accelerate.sharder())
        outer = _accelerate.iterating()
        self._ahead = None if outer is None else f"accelerate's {type(outer).__name__}"
        batches = iter(self.loader)
        given = self._one_by_one(batches) if self._samples else batches
        return given if outer is None else self._to_the_end(given)

    def _to_the_end(self, given: Iterator[Any]) -> Iterator[Any]:
        yield from given
        self._ahead = None

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
        among = _accelerate.sharder()
        if among is not None:
            self.loader._ranks.share(among)
        if self._samples:
            raise TypeError("how many samples a pass has is not known where some may be left out; take len(loader)")
        return len(self.loader)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next pass."""
        if not self._samples:
            _accelerate.refuse_batches()
        outer = _accelerate.iterating()
        if outer is not None and self.loader._resume is not None:
            # Accelerate numbers its own passes from 0, whatever was resumed: it goes on from the state's epoch.
            outer.iteration = self.loader.epoch
            return
        self.loader.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """The state to resume from."""
        # The dispatcher counts batches back that it has read for other ranks, which a state of ours does not know.
        ahead = _accelerate.sharder() or (None if _accelerate.is_saving() else self._ahead)
        if ahead is not None:
            raise refused(f"{ahead} reads further than it has handed out, so a state would leave samples out",
                          "give Accelerate the uringload.DataLoader itself, whose state is exact, or leave out "
                          "use_stateful_dataloader and call accelerate.skip_first_batches")
        return self.loader.state_dict() if self._behind is None else self._behind

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Makes the next pass resume from a state."""
        self._behind = None
        self.loader.load_state_dict(state_dict)


class Dataset(torch.utils.data.Dataset):  # type: ignore[misc]
    """Samples by number, for torch's DataLoader with its own sampler.

    ``torch.utils.data.DataLoader`` asks for all samples of a batch at once (``__getitems__``): they are read together,
    many at a time, into memory of their own. A call for many samples opens and closes a ring; a few are read by a
    reader that is kept, through the page cache. So it works in any process, including torch's workers.
    `uringload.DataLoader` reads ahead and is faster.

    Args:
        dataset: as for `uringload.DataLoader`.
        transform: a function of one sample, a dictionary.
        output: "torch", "numpy" or "dlpack".
        given: arguments of `uringload.Dataset`, and those of the loader that say how bytes are read.
    """

    def __init__(
        self,
        dataset: Paths | Index,
        *,
        transform: Callable[[dict[str, Any]], Any] | None = None,
        output: str = "torch",
        **given: Any,
    ) -> None:
        super().__init__()
        options = {name: value for name, value in given.items() if name in (*OPTIONS, *LISTS)}
        others = {name: value for name, value in given.items() if name not in options}
        for name in ("batch_size", "shuffle", "drop_last", "sampler", "order", "collate_fn", "rank", "world_size",
                     "process_group"):
            if name in others:
                raise refused(f"{name} is of no use to a dataset whose samples are asked for by number",
                              f"give {name} to the DataLoader around it, or use uringload.DataLoader")
        if isinstance(dataset, Index) and options:
            raise refused(f"{next(iter(options))} is of use where a path is opened", "give it to uringload.Dataset")
        index = dataset if isinstance(dataset, Index) else Index(dataset, **options)
        if index._prepare is not None:
            # It wants bytes.
            others["binary"] = [*arguments.names("binary", others.get("binary", ())), "data"]
        #: Reads samples and checks the arguments; it never starts a pass.
        self._loader = DataLoader(index, batch_size=1, rank=0, world_size=1, output=output, **others)
        self._transform = transform
        self.dataset = index
        #: Reads few samples with less ado than a loader, where nothing but plain columns is asked for.
        self._samples: Samples | None = None
        self._is_plain = not {*others} - {"text", "binary", "key", "index"}
        self._wishes = (output, others)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        if self._is_plain and len(indices) <= FEW:
            samples = self._few(numbers(indices, len(self.dataset)))
        else:
            samples = list(self._loader.read(indices).samples())
        if self.dataset._prepare is not None:
            samples = [self.dataset._prepare(sample) for sample in samples]
        return samples if self._transform is None else [self._transform(sample) for sample in samples]

    def _few(self, wanted: list[int]) -> list[dict[str, Any]]:
        if self._samples is None:
            output, others = self._wishes
            text = others.get("text")
            self._samples = Samples(
                self.dataset._native,
                output,
                None if text is None else arguments.names("text", text),
                arguments.names("binary", others.get("binary", ())),
                bool(others.get("key")),
                bool(others.get("index")),
            )
        return self._samples.read(wanted)

    def __getstate__(self) -> dict[str, Any]:
        # Open files do not travel: a copy in another process opens its own.
        return {**self.__dict__, "_samples": None}
