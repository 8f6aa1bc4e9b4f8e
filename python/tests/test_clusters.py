"""Real launchers: Ray Train and torchrun, with two workers, and going on with three. The digests of what each worker
was given add up to that of the epoch, so that no sample is lost and none comes twice."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import textwrap
from typing import Any

import pytest
from conftest import needs_numpy, needs_torch, of_records

import uringload
from uringload import _ranks

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
EXAMPLE = EXAMPLES / "ray_train.py"
LAUNCH_LIMIT_S = 900

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None or importlib.util.find_spec("pyarrow") is None,
    reason="skipped: ray[train] is not installed",
)

WORKER = """
    import json, sys
    import torch.distributed as dist
    import uringload

    dist.init_process_group("gloo")
    path, batch_size, steps, resume = sys.argv[1:]
    with uringload.DataLoader(path, record_bytes=256, dtype="i32", shuffle=True, batch_size=int(batch_size)) as loader:
        if resume != "-":
            loader.load_state_dict(json.load(open(resume)))
        done = 0
        for _ in loader:
            done += 1
            if done == int(steps):
                break
        state = loader.state_dict()
    told = [None] * dist.get_world_size()
    dist.all_gather_object(told, {"steps": done, **state["delivered"]})
    if dist.get_rank() == 0:
        print(json.dumps({"workers": told, "state": state}))
    dist.destroy_process_group()
"""

PREPARES = """
    import json, pathlib, sys
    import ray, ray.train, ray.train.torch

    def work(config):
        import uringload

        rank = ray.train.get_context().get_world_rank()
        loader = uringload.DataLoader(config["path"], 32, record_bytes=256)
        try:
            ray.train.torch.prepare_data_loader(loader)
            told = "prepared"
        except uringload.InvalidArgumentError as error:
            told = str(error)
        assert sum(len(batch.ids) for batch in loader) == 500, "it can be used as it is"
        pathlib.Path(config["folder"], f"told-{rank}").write_text(told)

    folder = pathlib.Path(__file__).parent
    ray.init(num_cpus=4, include_dashboard=False)
    scaling = ray.train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.3})
    storage = ray.train.RunConfig(storage_path=str(folder / "ray"))
    config = {"path": sys.argv[1], "folder": str(folder)}
    ray.train.torch.TorchTrainer(work, train_loop_config=config, scaling_config=scaling, run_config=storage).fit()
    print(json.dumps([path.read_text() for path in sorted(folder.glob("told-*"))]))
"""


def whole_epoch(records: pathlib.Path) -> dict[str, Any]:
    """What one process is given of an epoch."""
    with uringload.DataLoader(**of_records(records, shuffle=True, seed=0)) as loader:
        for _ in loader:
            pass
        delivered: dict[str, Any] = loader.state_dict()["delivered"]
    return delivered


def check(records: pathlib.Path, first: list[dict[str, Any]], rest: list[dict[str, Any]]) -> None:
    assert [len({worker["steps"] for worker in workers}) for workers in (first, rest)] == [1, 1], "equal steps"
    assert [worker["world_size"] for worker in first + rest] == [2, 2, 3, 3, 3]
    assert [worker["rank"] for worker in first + rest] == [0, 1, 0, 1, 2]
    whole = whole_epoch(records)
    assert sum(worker["samples"] for worker in first + rest) == whole["samples"] == 1000
    digest = sum(int(worker["sum"], 16) for worker in first + rest) % (1 << 64)
    assert f"{digest:016x}" == whole["sum"], "a sample is lost, or comes twice"


def run(command: list[str], **variables: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    done = subprocess.run(command, env={**environment, **variables}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=LAUNCH_LIMIT_S, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.strip().splitlines()[-1]


@pytest.mark.slow
@needs_torch
@needs_numpy
def test_torchrun(records: pathlib.Path, tmp_path: pathlib.Path) -> None:
    script, saved = tmp_path / "worker.py", tmp_path / "state.json"
    script.write_text(textwrap.dedent(WORKER))

    def launch(workers: int, *arguments: str) -> dict[str, Any]:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}"]
        told: dict[str, Any] = json.loads(run([*torchrun, str(script), str(records), *arguments]))
        return told

    first = launch(2, "32", "6", "-")
    saved.write_text(json.dumps(first["state"]))
    check(records, first["workers"], launch(3, "16", "-1", str(saved))["workers"])


@pytest.mark.slow
@needs_torch
@needs_numpy
@needs_ray
def test_ray_train(records: pathlib.Path, tmp_path: pathlib.Path) -> None:
    saved = tmp_path / "state.json"

    def launch(*arguments: str) -> list[dict[str, Any]]:
        given = [str(EXAMPLE), str(records), "--record-bytes", "256", "--dtype", "i32", "--cpus", "0.3", *arguments]
        # The variables of a job that Ray runs in are not those of its workers.
        outer = {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "RAY_USAGE_STATS_ENABLED": "0", "HOME": str(tmp_path)}
        told: list[dict[str, Any]] = json.loads(run([sys.executable, *given], **outer))["workers"]
        return told

    first = launch("--workers", "2", "--batch-size", "32", "--steps", "6", "--state", str(saved))
    check(records, first, launch("--workers", "3", "--batch-size", "16", "--resume", str(saved)))


@pytest.mark.slow
@pytest.mark.parametrize("system", ["ray", "dask", "spark"])
def test_packing_on_a_cluster(system: str, tmp_path: pathlib.Path) -> None:
    pytest.importorskip({"ray": "ray", "dask": "dask.distributed", "spark": "pyspark"}[system])
    if system == "spark" and shutil.which("java") is None:
        pytest.skip("skipped: Spark wants a Java")
    source = tmp_path / "source"
    source.mkdir()
    for number in range(60):
        (source / f"{number:02}.dat").write_bytes(bytes([number]) * 5000)
    given = [str(EXAMPLES / "pack_on_cluster.py"), str(source), str(tmp_path / "packed"), "--shard-size", "40kB"]
    outer = {"RAY_USAGE_STATS_ENABLED": "0", "HOME": str(tmp_path)}
    told = run([sys.executable, *given, "--on", system, "--jobs", "2"], **outer)
    uringload.pack(source, tmp_path / "whole", shard_size="40kB")
    shards = {path.name: path.read_bytes() for path in (tmp_path / "whole").glob("*.tar")}
    assert {path.name: path.read_bytes() for path in (tmp_path / "packed").glob("*.tar")} == shards
    assert len(shards) > 4 and f"60 samples in {len(shards)} shards, each once" in told


def test_what_ray_says_comes_before_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    class Context:
        def get_world_rank(self) -> int:
            return 1

        def get_world_size(self) -> int:
            return 4

    class Train:
        get_context = Context

    monkeypatch.setitem(sys.modules, "ray.train", Train)  # type: ignore[arg-type]
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert _ranks.find(None, None) == (1, 4, "ray.train.get_context()")
    assert _ranks.find(0, 3) == (0, 3, None)
    # Outside of a worker, it raises.
    monkeypatch.setattr(Train, "get_context", lambda: 1 / 0)
    assert _ranks.find(None, None) == (0, 2, "RANK and WORLD_SIZE")


@pytest.mark.slow
@needs_torch
@needs_ray
def test_rays_prepare_data_loader_is_refused_on_every_rank(records: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """It puts a loader of torch's in our place. The error comes before that, on all ranks, so no rank waits."""
    script = tmp_path / "prepare.py"
    script.write_text(textwrap.dedent(PREPARES))
    told = json.loads(run([sys.executable, str(script), str(records)], RAY_USAGE_STATS_ENABLED="0", HOME=str(tmp_path)))
    assert len(told) == 2
    for error in told:
        assert "prepare_data_loader puts a sampler" in error and 'device="cuda:0"' in error
