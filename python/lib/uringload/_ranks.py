"""Finds the rank and the world size of this process: from arguments, Ray Train, or a launcher's variables."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from .errors import refused

#: The variables of rank and world size, in the order in which they are tried: torchrun's, SLURM's (`srun`) and
#: Open MPI's.
VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
)

_REMEDY = "give rank and world_size, or set both variables or none"


def find(
    rank: int | None, world_size: int | None, environment: Mapping[str, str] | None = None
) -> tuple[int, int, str | None]:
    """Rank, world size, and their source: None if arguments alone decide or there is one rank."""
    if rank is not None and world_size is not None:
        return rank, world_size, None
    if rank is None and world_size is None and environment is None:
        of_ray = _of_ray()
        if of_ray is not None:
            # Takes precedence over the variables: those of the job that Ray runs in say nothing about its workers.
            return *of_ray, "ray.train.get_context()" if of_ray[1] > 1 else None
    variables = os.environ if environment is None else environment
    for rank_name, size_name in VARIABLES:
        # An empty variable counts as unset: `RANK= command` leaves one.
        values = variables.get(rank_name) or None, variables.get(size_name) or None
        if values == (None, None):
            continue
        if values[0] is None or values[1] is None:
            there, absent = (rank_name, size_name) if values[1] is None else (size_name, rank_name)
            raise refused(f"the variable {there} is set and {absent} is not: the rank cannot be told", _REMEDY)
        found = _number(rank_name, values[0]), _number(size_name, values[1])
        if rank is not None:
            found, source = (rank, found[1]), f"rank and {size_name}"
        elif world_size is not None:
            found, source = (found[0], world_size), f"{rank_name} and world_size"
        else:
            source = f"{rank_name} and {size_name}"
        if found[0] >= found[1]:
            raise refused(f"rank {found[0]} is not below the world size {found[1]} (from {source})", _REMEDY)
        return found[0], found[1], source if found[1] > 1 else None
    return rank or 0, 1 if world_size is None else world_size, None


def _of_ray() -> tuple[int, int] | None:
    """Rank and world size in a Ray Train worker, which always has ray.train imported; None elsewhere."""
    train = sys.modules.get("ray.train")
    if train is None:
        return None
    try:
        context = train.get_context()
        found = context.get_world_rank(), context.get_world_size()
    except Exception:
        # Outside a worker there is no context, and each version of Ray raises a different error.
        return None
    return found if all(isinstance(number, int) for number in found) and 0 <= found[0] < found[1] else None


def _number(name: str, value: str) -> int:
    if value.isascii() and value.isdigit():
        return int(value)
    raise refused(f"the variable {name} is {value!r}, not a whole number from 0 on", _REMEDY)
