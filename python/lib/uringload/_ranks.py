"""Finds the rank and the world size of this process, as late as they are needed.

The first source that knows decides: arguments, a process group, `torch.distributed` or `jax.distributed` where it is
initialized, Ray Train, or a launcher's variables. Nothing is imported to find out: what the program has not imported
has not told it anything.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from . import _uringload as native
from .errors import Error, mistyped, refused

#: The variables of rank and world size, in the order in which they are tried. The command line has the same ones.
VARIABLES = native.rank_variables()

_REMEDY = "give rank and world_size, or set both variables or none"


class Found(NamedTuple):
    """A rank among the ranks."""

    rank: int
    world_size: int
    #: Where they come from; None if arguments alone decide, or if there is nothing that could.
    source: str | None

    @property
    def words(self) -> str:
        """As in "rank 1 of 2 (from torch.distributed)"."""
        return f"rank {self.rank} of {self.world_size}" + (f" (from {self.source})" if self.source else "")


class _Told(NamedTuple):
    """What one source says. None: it does not say."""

    rank: int | None
    world_size: int | None
    rank_name: str
    size_name: str
    name: str
    #: Whether to believe it that there is one rank. A batch system says so of a job of one task, in which a launcher
    #: may then start several processes.
    decides_alone: bool = True


class Ranks:
    """The rank of a loader: asked for again until the first pass, and checked by each pass from then on."""

    def __init__(self, rank: int | None, world_size: int | None, group: Any = None) -> None:
        if group is not None and (rank is not None or world_size is not None):
            raise refused("process_group and rank or world_size are given", "give the process group, or both numbers")
        self._given = rank, world_size
        self._group = _group(group)
        self._among: str | None = None
        self._bound: Found | None = None

    def at_first(self) -> Found:
        """The rank that is known now, while a later source may still decide."""
        try:
            return self._find()
        except Error:
            if self._group is not None or None not in self._given:
                raise
            rank = self._given[0] or 0
            return Found(rank, self._given[1] or rank + 1, None)

    def now(self) -> Found:
        """The rank that passes have; before the first pass, the rank that it would have now."""
        return self._find() if self._bound is None else self._bound

    def of_pass(self) -> Found:
        """The rank for a new pass. Refused if the last pass had another one: some samples would be read twice, and
        others never."""
        found = self._find()
        if self._bound is not None and found[:2] != self._bound[:2]:
            what = found.words if found.source else f"{found.words}: no process group or launcher says otherwise"
            raise refused(f"this DataLoader has read as {self._bound.words}, and this process is now {what}",
                          "make another DataLoader and give it this one's state_dict(), or name rank and world_size")
        self._bound = found
        return found

    def share(self, among: str | None) -> None:
        """Lets this loader read for all ranks, if `among` hands out what it reads; None: nothing does."""
        if among is not None and (self._group is not None or (self._given[1] or 1) > 1):
            mine = self._of_own()
            raise refused(f"{among} shares out among the ranks what is already the share of {mine.words}",
                          "leave out rank, world_size and process_group, or give it the uringload.DataLoader itself, "
                          "which shares by its own ranks")
        self._among = among

    @property
    def among(self) -> str | None:
        """What hands out to the ranks the batches that this loader reads for all; None: it reads for its own rank."""
        return self._among

    def words(self) -> str:
        """The rank in words, known or not."""
        try:
            found = self.now()
        except Error:
            return "an unknown rank"
        return f"rank {found.rank} of {found.world_size}"

    def _find(self) -> Found:
        return self._of_own() if self._among is None else Found(0, 1, self._among)

    def _of_own(self) -> Found:
        return find(*self._given) if self._group is None else _of_group(self._group)


def find(rank: int | None, world_size: int | None, environment: Mapping[str, str] | None = None) -> Found:
    """Rank and world size, from what is given and then from the first source that knows the rest."""
    if rank is not None and world_size is not None:
        return Found(rank, world_size, None)
    alone: Found | None = None
    incomplete: _Told | None = None
    for told in _sources(environment):
        own = told.rank if rank is None else rank
        size = told.world_size if world_size is None else world_size
        if own is None or size is None:
            incomplete = incomplete or told
            continue
        name = f"rank and {told.size_name}" if rank is not None else told.name
        name = f"{told.rank_name} and world_size" if world_size is not None else name
        if own >= size:
            raise refused(f"rank {own} is not below the world size {size} (from {name})", _REMEDY)
        if size > 1 or told.decides_alone:
            return Found(own, size, name)
        alone = alone or Found(own, size, name)
    if alone is not None:
        return alone
    if incomplete is not None:
        there, absent = incomplete.rank_name, incomplete.size_name
        if incomplete.rank is None:
            there, absent = absent, there
        raise refused(f"the variable {there} is set and {absent} is not: the rank is unknown", _REMEDY)
    return Found(rank or 0, 1 if world_size is None else world_size, None)


#: What launchers call the number of a process among those of its machine.
_LOCAL = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK",
          "JSM_NAMESPACE_LOCAL_RANK")  # fmt: skip


def local_rank() -> int:
    """The number of this process among those of its machine; 0 where no launcher tells it."""
    found = (_number(os.environ, name) for name in _LOCAL)
    return next((number for number in found if number is not None), 0)


def _sources(environment: Mapping[str, str] | None) -> Iterator[_Told]:
    if environment is None:
        yield from _of_torch()
        yield from _of_jax()
        # Before the variables: those of the job that Ray runs in say nothing about its workers.
        yield from _of_ray()
        environment = os.environ
    for rank_name, size_name in VARIABLES:
        if size_name is None:
            # Lightning's name a number as well.
            yield from _of_lightning(environment)
        rank = _number(environment, rank_name)
        size = None if size_name is None else _number(environment, size_name)
        if rank is not None or size is not None:
            size_name = size_name or "a variable with the number of ranks"
            yield _Told(rank, size, rank_name, size_name, f"{rank_name} and {size_name}", rank_name == "RANK")


def _of_torch() -> Iterator[_Told]:
    distributed = _initialized()
    if distributed is not None:
        yield _Told(distributed.get_rank(), distributed.get_world_size(), "torch.distributed.get_rank()",
                    "torch.distributed.get_world_size()", "torch.distributed")


def _initialized() -> Any:
    """The module `torch.distributed`, if the program has imported it and its process group is there; else None."""
    distributed = sys.modules.get("torch.distributed")
    # While another thread imports the module, it has no such function yet.
    ask = getattr(distributed, "is_initialized", None)
    return distributed if ask is not None and distributed.is_available() and ask() else None  # type: ignore[union-attr]


def _of_jax() -> Iterator[_Told]:
    jax: Any = sys.modules.get("jax")
    # Its own state answers without starting JAX's backends, which take the GPUs' memory.
    state: Any = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    name = "jax.distributed"
    if hasattr(state, "client") and hasattr(state, "process_id") and hasattr(state, "num_processes"):
        if state.client is not None:
            yield _Told(state.process_id, state.num_processes, name, name, name)
    elif hasattr(getattr(jax, "distributed", None), "is_initialized") and jax.distributed.is_initialized():
        yield _Told(jax.process_index(), jax.process_count(), name, name, name)


def _of_ray() -> Iterator[_Told]:
    """From Ray Train's context in a Ray Train worker, which always has ray.train imported."""
    train = sys.modules.get("ray.train")
    if train is None:
        return
    try:
        context = train.get_context()
        rank, size = context.get_world_rank(), context.get_world_size()
    except Exception:
        # Outside a worker there is no context, and each version of Ray raises a different error.
        return
    if isinstance(rank, int) and isinstance(size, int) and 0 <= rank < size:
        name = "ray.train.get_context()"
        yield _Told(rank, size, name, name, name)


def _of_lightning(environment: Mapping[str, str]) -> Iterator[_Told]:
    """From what Lightning's own launcher leaves to the processes that it starts, until they have their process group.

    It says how many processes there are, and how many this machine has before this one. Of the other machines it says
    which one this is, and not how many processes each has, unless LOCAL_WORLD_SIZE does.
    """
    local, size = _number(environment, "LOCAL_RANK"), _number(environment, "WORLD_SIZE")
    if local is None or size is None:
        return
    node, here = _number(environment, "NODE_RANK") or 0, _number(environment, "LOCAL_WORLD_SIZE")
    if node > 0 and here is None:
        return
    names = "LOCAL_RANK, NODE_RANK" if node else "LOCAL_RANK"
    yield _Told(node * (here or 0) + local, size, names, "WORLD_SIZE", f"{names} and WORLD_SIZE")


def _group(group: Any) -> Any:
    """A process group, or that of a device mesh of one dimension; checked."""
    if group is None:
        return None
    if callable(getattr(group, "get_group", None)):
        try:
            group = group.get_group()
        except RuntimeError as error:
            raise refused(f"process_group is a device mesh of which one dimension must be named: {error}",
                          'give mesh["dp"], with the name of the dimension whose ranks share the samples') from None
    if not callable(getattr(group, "size", None)):
        raise mistyped(f"process_group is a {type(group).__name__}, and no group that this process is a member of",
                       "give what torch.distributed.new_group() returned to a member, or a device mesh of one "
                       "dimension")
    _of_group(group)
    return group


def _of_group(group: Any) -> Found:
    distributed = _initialized()
    remedy = "make the DataLoader after torch.distributed.init_process_group(), and use it before the group's end"
    if distributed is None:
        raise refused("process_group belongs to no initialized torch.distributed (any more)", remedy)
    try:
        rank, size = distributed.get_rank(group), distributed.get_world_size(group)
    except (RuntimeError, ValueError) as error:
        raise refused(f"torch.distributed does not know process_group (any more): {error}", remedy) from None
    if rank < 0:
        raise refused("this process is not a member of process_group", "make the DataLoader in its members only")
    return Found(rank, size, "process_group")


def _number(environment: Mapping[str, str], name: str) -> int | None:
    # An empty variable counts as unset: `RANK= command` leaves one.
    value = environment.get(name) or None
    if value is None:
        return None
    if value.isascii() and value.isdigit():
        return int(value)
    raise refused(f"the variable {name} is {value!r}, not a whole number from 0 on", _REMEDY)
