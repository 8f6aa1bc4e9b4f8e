"""Orders that are made in Python: the samples of one epoch as a list, over all ranks.

Each has an identity, which states store: a dictionary of what decides the order. ``version`` is that of the algorithm
and must go up when the same parameters give another order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, NamedTuple

from . import _arguments as arguments
from ._output import _import_torch
from .errors import mistyped

#: The identity of samples that are read by number; no state has it.
BY_NUMBER: dict[str, Any] = {"name": "by number", "digest": 0, "version": 1}


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

    def identity(self) -> dict[str, Any]:
        """What decides the order."""
        return {"ranks": self.world_size, "seed": self.seed if self.shuffle else None, "version": 1}

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

    def identity(self) -> dict[str, Any]:
        """The sampler's type, and what the sampler itself says decides its order.

        The samples are no part of it: they are those of one rank and one epoch, and a state is of all of them.
        """
        said, digest = getattr(self.sampler, "order_id", None), 0
        if said is not None:
            if not isinstance(said, (str, int)):
                raise mistyped(f"order_id of the sampler is a {type(said).__name__}", "make it text or a whole number")
            kind = "text" if isinstance(said, str) else "number"
            told = f"{kind}:{said}".encode(errors="backslashreplace")
            digest = int.from_bytes(hashlib.blake2b(told, digest_size=8).digest(), "little")
        # States of version 1 are recognised by this name.
        return {"name": f"python:{type(self.sampler).__name__}", "digest": digest, "version": 1}

    def total(self) -> int:
        """Positions of an epoch."""
        return len(self.sampler)


def sampled(sampler: Any, samples: int) -> Sampled:
    """An order from an iterable of numbers."""
    if not isinstance(sampler, Iterable) or not hasattr(sampler, "__len__"):
        raise mistyped(f"sampler is a {type(sampler).__name__}, which has no len() or cannot be iterated",
                       "give a torch sampler or a list of numbers of samples")
    order = Sampled(sampler, samples)
    order.identity()  # Refuses what cannot be one, before anything is read.
    return order
