"""What Accelerate, and with it Hugging Face's Trainer, and Ray Train do around a loader or a dataset.

Accelerate does not pass a dataset the object that it wraps around it. So this looks at the call stack, once a
pass: the object that iterates over the dataset is on it.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from . import _callers, _log
from .errors import refused

if TYPE_CHECKING:
    from ._loader import DataLoader
    from ._pass import Pass

_DATA = "accelerate.data_loader"
#: Those that give each rank a share of what they iterate over. The first reads on every rank, the second on rank 0.
_SHARDERS = ((_DATA, "IterableDatasetShard"), ("transformers.trainer_pt_utils", "IterableDatasetShard"),
             (_DATA, "DataLoaderDispatcher"))  # fmt: skip
#: Those that read a batch further than they have handed out, and number their passes.
_LOADERS = ((_DATA, "DataLoaderShard"), (_DATA, "DataLoaderDispatcher"))
_RAY = "ray.train"
_STATEFUL = (("torchdata.stateful_dataloader", "StatefulDataLoader"),)


def sharder() -> str | None:
    """What shares out among the ranks the batches that the caller gives; None: nothing does, or there is one rank."""
    found = _callers.caller(_SHARDERS)
    if found is None:
        return None
    # The dispatcher asks a stateful loader for a state while it is being made, before it has a `state` of its own.
    ranks = getattr(found, "num_processes", None) or sys.modules["accelerate.state"].PartialState().num_processes
    return f"accelerate's {type(found).__name__}" if ranks > 1 else None


def refuse_batches() -> None:
    """Refuses the one case in which Accelerate cannot share out batches. It would fail with a TypeError of its own."""
    found = _callers.caller(_SHARDERS[:1])
    if found is not None and found.batch_size is None:
        raise refused("accelerate's IterableDatasetShard shares out samples, and this dataset gives whole batches",
                      "give Accelerate the uringload.DataLoader itself; or leave dispatch_batches on; or give samples="
                      "True, and batch_size to torch's DataLoader")


def iterating() -> Any:
    """The loader of Accelerate that is at the start or within a pass over the caller; None: there is none."""
    return _callers.caller(_LOADERS, "__iter__")


def is_saving() -> bool:
    """Whether torchdata's StatefulDataLoader asks for the caller's state. Accelerate asks it before it reads ahead."""
    return _callers.caller(_STATEFUL) is not None


def refuse_ray() -> None:
    """Refuses Ray Train's `prepare_data_loader`, if it is what asks, which it does on every rank where there are
    several. It makes another loader of torch's around the dataset, whose samples no longer come from here; it failed
    midway there, and workers that waited for each other never came back."""
    frame = sys._getframe(2)
    if frame.f_code.co_name == "prepare_data_loader" and frame.f_globals.get("__name__", "").startswith(_RAY):
        raise refused("ray.train.torch.prepare_data_loader puts a sampler and a loader of torch's in the place of this "
                      "DataLoader, which has its share of the samples by Ray's rank already",
                      'use the DataLoader as it is, with device="cuda:0" (or "auto") for batches on the GPU')


def told(loader: DataLoader, of: Pass) -> InPass | None:
    """Reports a new pass to Accelerate; None: there is no Accelerate, or a loader of its own is around this one,
    which reports itself."""
    kind = getattr(sys.modules.get("accelerate.state"), "GradientState", None)
    if kind is None or not kind._shared_state or iterating() is not None:
        return None
    return InPass(kind(), loader, of)


class InPass:
    """A pass as Accelerate's gradient state asks for it, from which the training loop gets to know the last batch:
    `accumulate` steps there, and `gather_for_metrics` leaves out the samples that ranks repeat to fill up their batch.

    Accelerate holds it weakly. It belongs to the pass, and ends with it, also where that is left before its end.
    """

    def __init__(self, state: Any, loader: DataLoader, of: Pass) -> None:
        self._state, self._pass = state, weakref.ref(of)
        self._world_size = loader.world_size
        # How many samples an epoch has: unknown where each rank has a sampler of its own, or makes rows of them.
        is_known = loader._asked_order[1] is None and not loader._makes_rows
        self._samples = len(loader.dataset) if is_known else None
        self._drops = loader.drop_last
        self._was_told = False
        state._add_dataloader(self)

    @property
    def end_of_dataloader(self) -> bool:
        """Whether the last batch was handed out."""
        of = self._pass()
        return of is not None and of.has_given_all

    @property
    def remainder(self) -> int:
        """Samples of the last batches of all ranks together without those that are repeated, 0 if none is, or -1 if
        they are not at the end, where they could be left out."""
        of = self._pass()
        if self._drops or self._world_size == 1:
            return 0
        if of is None or self._samples is None or of.last_position is None:
            return -1
        left = self._samples - of.last_position
        repeated = -left % self._world_size
        if repeated < 2:
            # Only the last rank repeats one, as its last: it is the last of all.
            return left if repeated else 0
        if not self._was_told:
            self._was_told = True
            _log.warning("gather_for_metrics gets %d samples twice, because ranks repeat them to fill up their last "
                         "batch: batch.padding says which", repeated)
        return -1

    def __del__(self) -> None:
        # In a plain list without what is dead: Accelerate takes the last entry for the innermost pass.
        others = [one for one in self._state.dataloader_references if one is not None and one is not self]
        self._state.dataloader_references = [None, *others]


class Batches:
    """The batches of a loader in the shape of torch's batch sampler, for `accelerate.skip_first_batches`.

    That function makes one of torch's loaders from a dataset, a batch sampler without its first batches, and a function
    that collates. Here the sampler only counts, and each of its batches is an empty list: the dataset is asked for no
    samples, and the function gives the loader's next batch. The first time it has seen how many were skipped, and
    begins the pass there.
    """

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader
        self._counted = 0
        self._pass: Iterator[Any] | None = None

    @property
    def batch_size(self) -> int:
        """Samples per batch on this rank."""
        return self._loader.batch_size

    @property
    def drop_last(self) -> bool:
        """Whether samples that do not fill a batch on every rank are left out."""
        return self._loader.drop_last

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next pass. The Trainer calls it after it has skipped."""
        self._loader.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[list[int]]:
        """Counts for as long as it is asked; `next_batch` ends the pass."""
        self._counted, self._pass = 0, None
        while True:
            self._counted += 1
            yield []

    def next_batch(self, samples: list[Any]) -> Any:
        """The next batch of the pass; raises StopIteration at its end."""
        if samples:
            raise refused("another loader was made of this one's collate_fn, and its own sampler",
                          "use the uringload.DataLoader itself, which has its own share of the samples on each rank")
        if self._pass is None:
            self._pass = without_first(self._loader, self._counted - 1)
        return next(self._pass)


def without_first(loader: DataLoader, batches: int) -> Iterator[Any]:
    """A pass without its first batches, which are not read. Where a loaded state waits, the pass begins there: it is
    about the same batches, and more exact."""
    if loader._resume is not None:
        _log.info("the loaded state decides where the pass begins, and not the %d batches to skip", batches)
        return iter(loader)
    if not loader._makes_rows:
        if 0 < len(loader) <= batches:
            loader.set_epoch(loader.epoch + 1)
            return iter(())
        loader._begin_after(batches)
        return iter(loader)
    # Where rows are made of samples, only reading tells how many samples a row has.
    iterator = iter(loader)
    for _ in range(batches):
        next(iterator, None)
    return iterator
