"""JAX's own processes: `jax.distributed` says which rank each is, without its backends being started."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import socket
import subprocess
import sys
import textwrap
from typing import Any

import pytest
from conftest import RECORDS

import uringload
from uringload import _ranks

needs_jax = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="skipped: jax is not installed")

WORK = """
    import json, os, sys
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax, numpy, uringload

    path, address, rank, folder = sys.argv[1:]
    given = dict(record_bytes=256, dtype="i32", global_batch_size=64, shuffle=True, output="numpy")
    with uringload.DataLoader(path, **given) as loader:
        before = loader.rank, loader.world_size
        jax.distributed.initialize(address, 2, int(rank))
        after = loader.rank, loader.world_size
        seen = [int(row[0]) for batch in loader for row, pad in zip(batch["data"], batch.padding or [False] * 32)
                if not pad]
        from jax._src import xla_bridge
        started = xla_bridge.backends_are_initialized()
        agrees = (jax.process_index(), jax.process_count()) == after
        # As docs/jax-keras.md has it: a process's batch is its part of the array of all.
        sharding = jax.sharding.NamedSharding(jax.sharding.Mesh(jax.devices(), ("data",)),
                                              jax.sharding.PartitionSpec("data"))
        batch = loader.read(range(32))
        made = jax.tree.map(lambda column: jax.make_array_from_process_local_data(sharding, column), batch)
        agrees = agrees and made["data"].shape == (64, 64) and len(made["data"].addressable_shards) == 1
        jax.distributed.shutdown()
        try:
            iter(loader)
            refused = ""
        except uringload.InvalidArgumentError as error:
            refused = str(error)
    with open(f"{folder}/{rank}.json", "w") as file:
        json.dump([before, after, seen, started, agrees, refused], file)
"""


@needs_jax
def test_two_processes_of_jax_share_the_samples(records: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    script = tmp_path / "work.py"
    script.write_text(textwrap.dedent(WORK))
    running = [subprocess.Popen([sys.executable, script, records, address, str(rank), tmp_path], text=True,
                                stderr=subprocess.PIPE) for rank in range(2)]  # fmt: skip
    for process in running:
        _, told = process.communicate(timeout=240)
        assert process.returncode == 0, told[-4000:]
    found: list[Any] = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert sorted(number for one in found for number in one[2]) == list(range(RECORDS)), "each sample once"
    for rank, (before, after, _, started, agrees, refused) in enumerate(found):
        assert (before, after) == ([0, 1], [rank, 2]) and agrees
        assert not started, "the loader does not take the GPUs' memory to know its rank"
        assert f"has read as rank {rank} of 2 (from jax.distributed)" in refused and "is now rank 0 of 1" in refused


class Jax:
    """Stands for a JAX that keeps its state elsewhere."""

    class distributed:
        told = False

        @classmethod
        def is_initialized(cls) -> bool:
            return cls.told

    @staticmethod
    def process_index() -> int:
        return 1

    @staticmethod
    def process_count() -> int:
        return 2


def test_a_jax_that_keeps_its_state_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", Jax)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "jax._src.distributed", None)  # type: ignore[arg-type]
    assert _ranks.find(None, None) == (0, 1, None)
    monkeypatch.setattr(Jax.distributed, "told", True)
    assert _ranks.find(None, None) == (1, 2, "jax.distributed")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert _ranks.find(None, None) == (1, 2, "jax.distributed"), "it comes before variables"
    assert _ranks.find(3, 4) == (3, 4, None)
    with pytest.raises(uringload.InvalidArgumentError, match="rank 2 is not below the world size 2"):
        _ranks.find(2, None)
