"""Orders made in Python: the samples of one epoch as a list, over all ranks.

Each order has an identity, which states store: a dictionary of all that decides the order. ``version`` is the version
of the algorithm and must go up when the same parameters give another order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from ._output import _import_torch
from .errors import mistyped

if TYPE_CHECKING:
    from ._draws import Draws
    from ._loader import DataLoader

#: The identity of samples read by number; no state contains it.
BY_NUMBER: dict[str, Any] = {"name": "by number", "digest": 0, "version": 1}


class Distributed(NamedTuple):
    """The order of `torch.utils.data.DistributedSampler`, to compare a run with an old one."""

    samples: int
    world_size: int
    seed: int
    shuffle: bool

    def ids(self, epoch: int) -> list[int]:
        """The samples of all ranks: rank r takes every `world_size`-th one, starting at position r."""
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
        """All that decides the order."""
        return {"ranks": self.world_size, "seed": self.seed if self.shuffle else None, "version": 1}

    def total(self) -> int:
        """Number of positions in an epoch."""
        return -(-self.samples // self.world_size) * self.world_size


class Own:
    """Stands where torch's loader has a sampler, for scripts that set its epoch and ask for its length."""

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next pass."""
        self._loader.set_epoch(epoch)

    def __len__(self) -> int:
        """Samples of this rank, those included that fill up the ranks to the same number."""
        # Refuses where rows are made of samples.
        len(self._loader)
        return -(-len(self._loader._dataset) // self._loader.world_size)


class Sampled(NamedTuple):
    """The order of the caller's own sampler: the samples of this rank."""

    sampler: Any
    draws: Draws

    def identity(self) -> dict[str, Any]:
        """The sampler's type, and its own `order_id` if it has one.

        The samples are not part of it: they belong to one rank and one epoch, and a state covers all ranks and epochs.
        """
        said, digest = getattr(self.sampler, "order_id", None), 0
        if said is not None:
            if not isinstance(said, (str, int)):
                raise mistyped(f"order_id of the sampler is a {type(said).__name__}", "make it text or a whole number")
            kind = "text" if isinstance(said, str) else "number"
            told = f"{kind}:{said}".encode(errors="backslashreplace")
            # Here: it loads OpenSSL, which takes a tenth of the time of importing this package.
            import hashlib

            digest = int.from_bytes(hashlib.blake2b(told, digest_size=8).digest(), "little")
        return {"name": f"python:{type(self.sampler).__name__}", "digest": digest, "version": 1}

    def total(self) -> int:
        """Number of positions in an epoch."""
        return len(self.sampler)


def sampled(sampler: Any) -> Sampled:
    """An order from an iterable of numbers."""
    if not isinstance(sampler, Iterable) or not hasattr(sampler, "__len__"):
        raise mistyped(f"sampler is a {type(sampler).__name__}, which has no len() or cannot be iterated",
                       "give a torch sampler or a list of numbers of samples")
    from ._draws import Draws

    order = Sampled(sampler, Draws(sampler))
    order.identity()  # Refuses a bad order_id before anything is read.
    return order
