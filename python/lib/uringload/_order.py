"""Orders that are made in Python: the samples of one epoch as a list, over all ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from . import _arguments as arguments
from ._output import _import_torch
from .errors import mistyped


class Distributed(NamedTuple):
    """The order of `torch.utils.data.DistributedSampler`, so that a run can be compared with an old one."""

    samples: int
    world_size: int
    seed: int
    shuffle: bool

    def ids(self, epoch: int) -> list[int]:
        """The samples of all ranks: rank r has every `world_size`-th one from the r-th on."""
        ids = list(range(self.samples))
        if self.shuffle:
            torch = _import_torch('order="distributed"')
            generator = torch.Generator()
            generator.manual_seed(self.seed + epoch)
            ids = torch.randperm(self.samples, generator=generator).tolist()
        missing = self.total() - len(ids)
        while missing > 0:
            ids += ids[:missing]
            missing = self.total() - len(ids)
        return ids

    def describe(self) -> str:
        """In words, with all that it depends on."""
        how = f"shuffled by seed {self.seed}" if self.shuffle else "not shuffled"
        return f"torch's DistributedSampler, {how}, for a multiple of {self.world_size} ranks"

    def total(self) -> int:
        """Positions of an epoch."""
        return -(-self.samples // self.world_size) * self.world_size


class Sampled(NamedTuple):
    """What a sampler of the caller's gives: the samples of this rank."""

    sampler: Any
    samples: int

    def ids(self, epoch: int) -> list[int]:
        """The samples of an epoch, of which the sampler is told if it wants to know."""
        told = getattr(self.sampler, "set_epoch", None)
        if callable(told):
            told(epoch)
        return arguments.integers("sampler", self.sampler)

    def describe(self) -> str:
        """In words."""
        return f"a sampler of the caller's ({type(self.sampler).__name__})"

    def total(self) -> int:
        """Positions of an epoch."""
        return len(self.sampler)


def sampled(sampler: Any, samples: int) -> Sampled:
    """An order from an iterable of numbers."""
    if not isinstance(sampler, Iterable) or not hasattr(sampler, "__len__"):
        raise mistyped(f"sampler is a {type(sampler).__name__}, which has no len() or cannot be iterated",
                       "give a torch sampler or a list of numbers of samples")
    return Sampled(sampler, samples)
