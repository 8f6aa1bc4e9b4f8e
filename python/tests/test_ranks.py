"""Who a process is among the ranks: which source decides, when it is asked, and what is refused."""

from __future__ import annotations

import json
import logging
import os
import pathlib
import pickle
import subprocess
import sys
import textwrap
from typing import Any

import conftest
import pytest
from conftest import LAUNCHERS, RECORDS, needs_torch, numbers, of_records

import uringload
from uringload import DataLoader, _ranks

pytestmark = conftest.needs_numpy


class Distributed:
    """Stands for `torch.distributed`, without torch."""

    def __init__(self) -> None:
        self.told: tuple[int, int] | None = None
        self.groups: dict[object, tuple[int, int]] = {}

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return self.told is not None

    def _of(self, group: object) -> tuple[int, int]:
        if group is None:
            assert self.told is not None
            return self.told
        if group not in self.groups:
            raise ValueError("Group is not registered")
        return self.groups[group]

    def get_rank(self, group: object = None) -> int:
        return self._of(group)[0]

    def get_world_size(self, group: object = None) -> int:
        return self._of(group)[1]


class Group:
    """Stands for a process group."""

    def size(self) -> int:
        return 2


class Mesh:
    """Stands for a device mesh of so many dimensions."""

    def __init__(self, group: Group, dimensions: int) -> None:
        self._group, self._dimensions = group, dimensions

    def get_group(self) -> Group:
        if self._dimensions > 1:
            raise RuntimeError("there is more than one dimension")
        return self._group


@pytest.fixture
def distributed(monkeypatch: pytest.MonkeyPatch) -> Distributed:
    module = Distributed()
    monkeypatch.setitem(sys.modules, "torch.distributed", module)  # type: ignore[arg-type]
    return module


LIGHTNING = {"LOCAL_RANK": "1", "WORLD_SIZE": "2"}


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, (0, 1, None)),
        ({"RANK": "1", "WORLD_SIZE": "4", "SLURM_PROCID": "5", "SLURM_NTASKS": "8"}, (1, 4, "RANK and WORLD_SIZE")),
        ({"PMI_RANK": "2", "PMI_SIZE": "3"}, (2, 3, "PMI_RANK and PMI_SIZE")),
        ({"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "2"},
         (1, 2, "MV2_COMM_WORLD_RANK and MV2_COMM_WORLD_SIZE")),
        ({"JSM_NAMESPACE_RANK": "1", "JSM_NAMESPACE_SIZE": "2"}, (1, 2, "JSM_NAMESPACE_RANK and JSM_NAMESPACE_SIZE")),
        # Open MPI sets PMIX_RANK, too.
        ({"PMIX_RANK": "1", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"},
         (1, 2, "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE")),
        # One variable of a pair says nothing, and the next pair decides.
        ({"WORLD_SIZE": "2", "SLURM_PROCID": "5", "SLURM_NTASKS": "8"}, (5, 8, "SLURM_PROCID and SLURM_NTASKS")),
        ({"RANK": "0", "PMI_RANK": "2", "PMI_SIZE": "3"}, (2, 3, "PMI_RANK and PMI_SIZE")),
        # Lightning's launcher, also within a job of one task.
        (LIGHTNING, (1, 2, "LOCAL_RANK and WORLD_SIZE")),
        ({**LIGHTNING, "NODE_RANK": "0"}, (1, 2, "LOCAL_RANK and WORLD_SIZE")),
        ({**LIGHTNING, "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, (1, 2, "LOCAL_RANK and WORLD_SIZE")),
        ({"LOCAL_RANK": "1", "WORLD_SIZE": "4", "NODE_RANK": "1", "LOCAL_WORLD_SIZE": "2"},
         (3, 4, "LOCAL_RANK, NODE_RANK and WORLD_SIZE")),
        # `mpirun` within a job of one task.
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "PMI_RANK": "1", "PMI_SIZE": "2"}, (1, 2, "PMI_RANK and PMI_SIZE")),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, (0, 1, "SLURM_PROCID and SLURM_NTASKS")),
        # Several jobs of one process each, in the tasks of one batch job.
        ({"RANK": "0", "WORLD_SIZE": "1", "SLURM_PROCID": "5", "SLURM_NTASKS": "8"}, (0, 1, "RANK and WORLD_SIZE")),
        ({"RANK": "", "WORLD_SIZE": ""}, (0, 1, None)),
        # A pod of Kubernetes' indexed job, which has to be told how many there are; and torchrun within it.
        ({"JOB_COMPLETION_INDEX": "2", "WORLD_SIZE": "3"}, (2, 3, "JOB_COMPLETION_INDEX and WORLD_SIZE")),
        ({"JOB_COMPLETION_INDEX": "1", "RANK": "5", "WORLD_SIZE": "8"}, (5, 8, "RANK and WORLD_SIZE")),
        ({"JOB_COMPLETION_INDEX": "0", **LIGHTNING}, (1, 2, "LOCAL_RANK and WORLD_SIZE")),
    ],
)  # fmt: skip
def test_what_launchers_set(variables: dict[str, str], found: tuple[int, int, str | None]) -> None:
    assert _ranks.find(None, None, variables) == found


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"RANK": "0"}, "the variable RANK is set and WORLD_SIZE is not"),
        ({"WORLD_SIZE": "2"}, "the variable WORLD_SIZE is set and RANK is not"),
        ({"LOCAL_RANK": "0", "WORLD_SIZE": "4", "NODE_RANK": "1"}, "the variable WORLD_SIZE is set and RANK is not"),
        ({"JOB_COMPLETION_INDEX": "0"}, "JOB_COMPLETION_INDEX is set and WORLD_SIZE is not"),
        ({"PMIX_RANK": "0"}, "PMIX_RANK is set and a variable with the number of ranks is not"),
        ({"PMI_RANK": "2", "PMI_SIZE": "2"}, "rank 2 is not below the world size 2 .from PMI_RANK and PMI_SIZE"),
        ({"PMI_RANK": "-1", "PMI_SIZE": "2"}, "PMI_RANK is '-1'"),
    ],
)
def test_what_launchers_leave_open(variables: dict[str, str], message: str) -> None:
    with pytest.raises(uringload.InvalidArgumentError, match=message) as error:
        _ranks.find(None, None, variables)
    assert "give rank and world_size" in str(error.value.remedy)


@pytest.mark.parametrize(
    "names",
    [("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
     ("PMI_RANK", "PMI_SIZE"), ("LOCAL_RANK", "WORLD_SIZE"), ("JOB_COMPLETION_INDEX", "WORLD_SIZE")],
    ids=lambda names: names[0],
)  # fmt: skip
@pytest.mark.parametrize("then", [1, 2, 3])
def test_each_record_comes_once_under_every_launcher(
    records: pathlib.Path, names: tuple[str, str], then: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, state = [], None
    for ranks, steps in ((2, 5), (then, RECORDS)):
        saved = state
        for rank in range(ranks):
            monkeypatch.setenv(names[0], str(rank))
            monkeypatch.setenv(names[1], str(ranks))
            with DataLoader(**of_records(records, shuffle=True, batch_size=16)) as loader:
                if saved is not None:
                    loader.load_state_dict(saved)
                for _, batch in zip(range(steps), loader):
                    padding = batch.padding or [False] * len(batch.ids)
                    seen += [number for number, pad in zip(numbers(batch), padding) if not pad]
                state = loader.state_dict()
    assert sorted(seen) == list(range(RECORDS))


def test_arguments_take_the_rest_from_the_first_source() -> None:
    variables = {"WORLD_SIZE": "4", "SLURM_PROCID": "5", "SLURM_NTASKS": "8"}
    assert _ranks.find(3, None, variables) == (3, 4, "rank and WORLD_SIZE")
    assert _ranks.find(None, 16, variables) == (5, 16, "SLURM_PROCID and world_size")
    assert _ranks.find(0, 3, variables) == (0, 3, None)


def test_the_process_group_comes_before_all_else(
    records: pathlib.Path, distributed: Distributed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "uringload")
    monkeypatch.setenv("WORLD_SIZE", "8")
    with DataLoader(**of_records(records, batch_size=None, global_batch_size=32)) as loader:
        # Nothing can tell the rank yet. The loader is there, and says so when it is asked.
        assert "an unknown rank" in repr(loader)
        with pytest.raises(uringload.InvalidArgumentError, match="RANK is not"):
            iter(loader)
        distributed.told = (1, 4)
        assert (loader.rank, loader.world_size, loader.batch_size, len(loader)) == (1, 4, 8, 32)
        assert numbers(next(iter(loader))) == list(range(1, 32, 4))
    assert "rank 1 of 4 (from torch.distributed)" in caplog.text
    with DataLoader(**of_records(records, rank=0, world_size=2)) as loader:
        assert (loader.rank, loader.world_size) == (0, 2), "arguments come first"


def test_len_that_was_told_too_early(
    records: pathlib.Path, distributed: Distributed, caplog: pytest.LogCaptureFixture
) -> None:
    with DataLoader(**of_records(records)) as loader:
        assert len(loader) == 32
        distributed.told = (1, 2)
        next(iter(loader))
        assert "was for rank 0 of 1, and this pass is for rank 1 of 2 (from torch.distributed)" in caplog.text
        assert len(loader) == 16


def test_a_process_group_that_is_torn_down_in_mid_epoch(records: pathlib.Path, distributed: Distributed) -> None:
    seen = []
    for rank in range(2):
        distributed.told = (rank, 2)
        with DataLoader(**of_records(records, shuffle=True)) as loader:
            batches = iter(loader)
            first = [next(batches) for _ in range(3)]
            distributed.told = None
            # The pass has its samples, and ends with them.
            seen += [number for batch in [*first, *batches] for number in numbers(batch)]
            assert len(loader) == 16 and loader.state_dict()["delivered"]["world_size"] == 2
            with pytest.raises(uringload.InvalidArgumentError) as error:
                iter(loader)
            assert f"has read as rank {rank} of 2 (from torch.distributed)" in str(error.value)
            assert "is now rank 0 of 1" in str(error.value) and "state_dict()" in str(error.value.remedy)
            distributed.told = (rank, 2)
            assert len(list(loader)) == 16, "a group like the first is as good"
    assert sorted(seen) == list(range(RECORDS))


def test_ranks_that_differ_between_loaders(records: pathlib.Path, distributed: Distributed) -> None:
    with DataLoader(**of_records(records)) as early, DataLoader(**of_records(records)) as late:
        next(iter(early))
        distributed.told = (2, 3)
        next(iter(late))
        with pytest.raises(uringload.InvalidArgumentError) as error:
            next(iter(early))
        assert "rank 0 of 1, and this process is now rank 2 of 3 (from torch.distributed)" in str(error.value)
        state = early.state_dict()
        with DataLoader(**of_records(records)) as another:
            another.load_state_dict(state)
            batch = next(iter(another))
            assert batch.position == 32 and numbers(batch)[0] == 34


def test_a_process_group_of_ones_own(records: pathlib.Path, distributed: Distributed) -> None:
    distributed.told, group = (5, 8), Group()
    distributed.groups[group] = (1, 2)
    with DataLoader(**of_records(records, process_group=group)) as loader:
        assert (loader.rank, loader.world_size) == (1, 2)
        with pytest.raises(uringload.InvalidArgumentError, match="cannot be pickled"):
            pickle.dumps(loader)
        next(iter(loader))
        del distributed.groups[group]
        with pytest.raises(uringload.InvalidArgumentError, match="does not know process_group"):
            iter(loader)
        distributed.told = None
        with pytest.raises(uringload.InvalidArgumentError, match="belongs to no initialized"):
            iter(loader)
    distributed.told, distributed.groups[group] = (5, 8), (0, 2)
    with DataLoader(**of_records(records, process_group=Mesh(group, 1))) as loader:
        assert (loader.rank, loader.world_size) == (0, 2)
    distributed.groups[group] = (-1, -1)
    bad: list[tuple[dict[str, Any], str]] = [
        ({"process_group": group}, "not a member"),
        ({"process_group": Mesh(group, 2)}, "a device mesh of which one dimension must be named"),
        ({"process_group": -100}, "a int, and no group that this process is a member of"),
        ({"process_group": group, "rank": 0}, "process_group and rank or world_size are given"),
    ]
    for given, message in bad:
        with pytest.raises(uringload.InvalidArgumentError, match=message):
            DataLoader(**of_records(records, **given))


SPAWNED = """
    import json, os, sys
    import torch.distributed as dist
    import torch.multiprocessing as mp
    import uringload

    def work(rank, world_size, path, folder, loader):
        made_before = loader or uringload.DataLoader(path, record_bytes=256, dtype="i32", batch_size=32, shuffle=True)
        dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world_size)
        group = dist.new_group([0, 1])
        with made_before, uringload.DataLoader(path, record_bytes=256, dtype="i32", batch_size=32,
                                               process_group=group if rank < 2 else None) as of_group:
            seen = [int(row) for batch in made_before for row, pad in zip(batch["data"][:, 0].tolist(),
                    batch.padding or [False] * 32) if not pad]
            told = (seen, of_group.rank, of_group.world_size)
        with open(f"{folder}/{rank}.json", "w") as file:
            json.dump(told, file)
        dist.destroy_process_group()

    if __name__ == "__main__":
        path, folder, world_size, pickled = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "pickled"
        loader = uringload.DataLoader(path, record_bytes=256, dtype="i32", batch_size=32, shuffle=True)
        mp.spawn(work, (world_size, path, folder, loader if pickled else None), nprocs=world_size)
"""


@needs_torch
@pytest.mark.parametrize(("world_size", "pickled"), [(2, False), (3, True)])
def test_spawned_processes_without_variables(
    records: pathlib.Path, tmp_path: pathlib.Path, world_size: int, pickled: bool
) -> None:
    script = tmp_path / "spawned.py"
    script.write_text(textwrap.dedent(SPAWNED))
    command = [sys.executable, script, records, tmp_path, str(world_size), "pickled" if pickled else "made"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    told = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(world_size)]
    assert sorted(number for seen, _, _ in told for number in seen) == list(range(RECORDS))
    assert [tuple(of_group) for _, *of_group in told] == [(0, 2), (1, 2), (2, 3)][:world_size]


TORN_DOWN = """
    import json, sys
    import torch.distributed as dist
    import torch.multiprocessing as mp
    import uringload

    def numbers(batches):
        return [int(row[0]) for batch in batches for row, pad in zip(batch["data"], batch.padding or [False] * 32)
                if not pad]

    def work(rank, world_size, path, folder):
        def meet(number):
            dist.init_process_group("gloo", init_method=f"file://{folder}/meet-{number}", rank=rank,
                                    world_size=world_size)

        meet(0)
        with uringload.DataLoader(path, record_bytes=256, dtype="i32", batch_size=32, shuffle=True) as loader:
            batches = iter(loader)
            begun = [next(batches) for _ in range(3)]
            dist.barrier()
            dist.destroy_process_group()
            first = numbers([*begun, *batches])
            try:
                refused = f"{len(list(loader))} batches"
            except uringload.InvalidArgumentError as error:
                refused = str(error)
            meet(1)
            told = (first, refused, numbers(loader))
        with open(f"{folder}/{rank}.json", "w") as file:
            json.dump(told, file)
        dist.barrier()
        dist.destroy_process_group()

    if __name__ == "__main__":
        mp.spawn(work, (int(sys.argv[3]), sys.argv[1], sys.argv[2]), nprocs=int(sys.argv[3]))
"""


@needs_torch
def test_real_process_groups_that_are_torn_down_in_mid_epoch(records: pathlib.Path, tmp_path: pathlib.Path) -> None:
    script = tmp_path / "torn_down.py"
    script.write_text(textwrap.dedent(TORN_DOWN))
    done = subprocess.run([sys.executable, script, records, tmp_path, "2"], capture_output=True, text=True, timeout=240,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    told = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    for which in (0, 2):
        assert sorted(number for of_rank in told for number in of_rank[which]) == list(range(RECORDS))
    for rank, (_, refused, _) in enumerate(told):
        assert f"has read as rank {rank} of 2" in refused and "is now rank 0 of 1" in refused, refused


@pytest.mark.parametrize(
    "variables",
    [
        {"RANK": "1", "WORLD_SIZE": "4", "SLURM_PROCID": "5", "SLURM_NTASKS": "8"},
        {"PMI_RANK": "2", "PMI_SIZE": "3"},
        {"PMIX_RANK": "1", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"},
        {"RANK": "0", "JSM_NAMESPACE_RANK": "2", "JSM_NAMESPACE_SIZE": "3"},
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "2"},
        {"PMIX_RANK": "0"},
        {"JOB_COMPLETION_INDEX": "1", "WORLD_SIZE": "3"},
        {"JOB_COMPLETION_INDEX": "1"},
    ],
)
def test_the_command_line_agrees(variables: dict[str, str], tmp_path: pathlib.Path) -> None:
    """It reads the same table."""
    (tmp_path / "a.txt").write_text("one")
    environment = {name: value for name, value in os.environ.items() if name not in LAUNCHERS} | variables
    main = "import sys; from uringload._command import main; sys.exit(main())"
    command = [sys.executable, "-c", main, "list", str(tmp_path), "--format", "folder"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    try:
        rank, world_size, source = _ranks.find(None, None, variables)
    except uringload.InvalidArgumentError as error:
        assert done.returncode == 2 and str(error).split(":")[0] in done.stderr
    else:
        assert f"rank {rank} of {world_size} (from {source})" in done.stderr and done.returncode == 0
