#!/usr/bin/env python3
"""Trains on several Ray Train workers, and resumes from a state with another number of workers.

    pip install "ray[train]" torch
    examples/ray_train.py data/train.bin --record-bytes 256 --dtype f32 --workers 2 --steps 100 --state state.json
    examples/ray_train.py data/train.bin --record-bytes 256 --dtype f32 --workers 3 --resume state.json

Each worker makes its own loader, which asks Ray Train for its rank. At the end every worker reports the digest of what
it received. The digests of all workers add up to that of the epoch, for any number of workers, if no sample was lost or
duplicated.
"""

import argparse
import json
import os
import shutil
import tempfile
from typing import Any

import ray
import ray.train
from ray.train.torch import TorchTrainer

#: The file in a checkpoint that holds the loader's state.
STATE = "loader.json"


def train(config: dict[str, Any]) -> None:
    """Runs on each worker."""
    import torch
    import torch.distributed as dist

    import uringload

    resume = config["resume"]
    with uringload.DataLoader(config["path"], batch_size=config["batch_size"], shuffle=True, seed=config["seed"],
                              **config["dataset"]) as loader:  # fmt: skip
        if resume is not None:
            loader.load_state_dict(resume)
        elements = next(iter(loader.dataset.columns.values()))[1] or (1,)
        model = torch.nn.Linear(elements[-1], 1)
        for parameter in model.parameters():
            dist.broadcast(parameter.data, 0)
        optimizer = torch.optim.SGD(model.parameters(), 1e-9)
        steps, loss = 0, torch.zeros(())
        for batch in loader:
            loss = model(batch["data"].float()).square().mean()
            optimizer.zero_grad()
            loss.backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
            optimizer.step()
            steps += 1
            if steps == config["steps"]:
                break
        state = loader.state_dict()
    told: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(told, {"steps": steps, **state["delivered"]})
    metrics = {"loss": float(loss.detach()), "workers": told}
    if dist.get_rank() > 0:
        ray.train.report(metrics)
        return
    # Everything in a state except `delivered` is the same on every worker, so one worker's state is enough.
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, STATE), "w", encoding="utf-8") as file:
            json.dump(state, file)
        torch.save(model.state_dict(), os.path.join(folder, "model.pt"))
        ray.train.report(metrics, checkpoint=ray.train.Checkpoint.from_directory(folder))


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path")
    parser.add_argument("--record-bytes", type=int)
    parser.add_argument("--dtype")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cpus", type=float, default=1, help="processors of each worker")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, help="end after so many steps instead of at the epoch's end")
    parser.add_argument("--state", help="file that gets the state at the end")
    parser.add_argument("--resume", help="file with a state to go on from")
    options = parser.parse_args()
    resume = None
    if options.resume:
        with open(options.resume, encoding="utf-8") as file:
            resume = json.load(file)
    wishes = {"record_bytes": options.record_bytes, "dtype": options.dtype}
    config = {"path": options.path, "batch_size": options.batch_size, "seed": options.seed, "steps": options.steps,
              "resume": resume, "dataset": {name: value for name, value in wishes.items() if value is not None}}
    scaling = ray.train.ScalingConfig(num_workers=options.workers, resources_per_worker={"CPU": options.cpus})
    result = TorchTrainer(train, train_loop_config=config, scaling_config=scaling).fit()
    if options.state:
        with result.checkpoint.as_directory() as folder:
            shutil.copy(os.path.join(folder, STATE), options.state)
    print(json.dumps({"loss": result.metrics["loss"], "workers": result.metrics["workers"]}))


if __name__ == "__main__":
    main()
