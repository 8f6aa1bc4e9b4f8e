#!/usr/bin/env python3
"""Packs a dataset by jobs on a Ray, Dask or Spark cluster, and proves that each sample is in the shards once.

    pip install ray                      # or "dask[distributed]", or pyspark
    examples/pack_on_cluster.py /data/photos /data/packed --on ray --jobs 16
    examples/pack_on_cluster.py /data/photos /data/packed --on dask --scheduler tcp://head:8786
    examples/pack_on_cluster.py train.uls s3://bucket/packed --on spark --scheduler spark://head:7077

All nodes see both folders, or both are in a store. A job that the cluster starts again keeps the shards that are there,
and the bytes are those of one job.
"""

import argparse
import os
import sys
from typing import Any

import uringload


def job(source: str, folder: str, index: int, jobs: int, options: dict[str, Any]) -> int:
    """Runs on a worker: writes the shards index, index + jobs, index + 2 jobs ..."""
    return uringload.pack(source, folder, part=f"{index}/{jobs}", **options).samples


def on_ray(address: str | None, jobs: list[tuple[Any, ...]]) -> list[int]:
    import ray

    ray.init(address, include_dashboard=False)
    task = ray.remote(job)
    return ray.get([task.remote(*each) for each in jobs])


def on_dask(address: str | None, jobs: list[tuple[Any, ...]]) -> list[int]:
    from dask.distributed import Client

    with Client(address, dashboard_address=None) if address is None else Client(address) as client:
        return client.gather([client.submit(job, *each, pure=False) for each in jobs])


def on_spark(address: str | None, jobs: list[tuple[Any, ...]]) -> list[int]:
    from pyspark.sql import SparkSession

    if address is None:
        # Else Spark's workers are whichever python3 is found first. The nodes of a cluster have their own.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    master = address or f"local[{len(jobs)}]"
    with SparkSession.builder.master(master).config("spark.ui.enabled", "false").getOrCreate() as spark:
        # A partition for each, so that each is a task of its own.
        return spark.sparkContext.parallelize(jobs, len(jobs)).map(lambda each: job(*each)).collect()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("folder")
    parser.add_argument("--on", choices=["ray", "dask", "spark"], required=True)
    parser.add_argument("--scheduler", help="where the cluster is [default: processes of this machine]")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--shard-size", default="1GB")
    asked = parser.parse_args()
    options = {"shard_size": asked.shard_size}
    jobs = [(asked.source, asked.folder, index, asked.jobs, options) for index in range(asked.jobs)]
    run = {"ray": on_ray, "dask": on_dask, "spark": on_spark}[asked.on]
    print("samples of each job:", *run(asked.scheduler, jobs))
    proved = uringload.pack(asked.source, asked.folder, finish=True, **options)
    print(f"{proved.samples} samples in {proved.shards} shards, each once")


if __name__ == "__main__":
    main()
