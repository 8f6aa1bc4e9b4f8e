#!/usr/bin/env python3
"""One rank of a training run, whichever launcher starts it: it notes which records it was given.

    worker.py TRAINER KIND PATH FOLDER WORLD_SIZE STEPS

TRAINER is loop, lightning, lightning_spawn, accelerate, trainer, spawn or ray. KIND is what reads: plain
(`uringload.DataLoader`), iterable (`uringload.torch.IterableDataset`) or map (`uringload.torch.Dataset`). With STEPS,
it stops after so many and saves; without (0), it resumes from what was saved, if anything was, and ends the epoch.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.utils.data as data

import uringload
import uringload.torch

#: Samples of a step, over all ranks; it has 1, 2 and 3 as divisors, and the epoch is a multiple of it.
STEP = 60
RECORDS = 960
GIVEN: dict[str, Any] = {"record_bytes": 256, "dtype": "i32"}


class Run(NamedTuple):
    """What to do."""

    trainer: str
    kind: str
    path: str
    folder: pathlib.Path
    world_size: int
    steps: int

    @property
    def own(self) -> int:
        """Samples of a step on one rank."""
        return STEP // self.world_size

    @property
    def saved(self) -> pathlib.Path:
        """Where a state or a checkpoint is."""
        return self.folder / "saved"

    @property
    def resumes(self) -> bool:
        """Whether to go on from what was saved."""
        return self.steps == 0 and self.saved.exists()

    def note(self, seen: list[int]) -> None:
        """Writes down what this rank was given."""
        rank = dist.get_rank() if dist.is_initialized() else 0
        (self.folder / f"seen-{self.steps}-{rank}.json").write_text(json.dumps(seen))

    def loader(self, **given: Any) -> uringload.DataLoader:
        """The plain loader."""
        return uringload.DataLoader(self.path, shuffle=True, seed=3, global_batch_size=STEP, **GIVEN, **given)

    def iterable(self, **given: Any) -> uringload.torch.IterableDataset:
        """The dataset of batches."""
        sizes = given or {"global_batch_size": STEP}
        return uringload.torch.IterableDataset(self.path, shuffle=True, seed=3, **GIVEN, **sizes)

    def mapped(self) -> uringload.torch.Dataset:
        """The dataset of samples by number."""
        return uringload.torch.Dataset(self.path, **GIVEN)


def numbers(batch: Any) -> list[int]:
    """The records of a batch."""
    told: list[int] = batch["data"][:, 0].tolist()
    return told


def some(batches: Iterable[Any], steps: int) -> Iterator[Any]:
    """All batches, or the first of them."""
    for done, batch in enumerate(batches, 1):
        yield batch
        if done == steps:
            break


def loop(run: Run) -> None:
    """A loop of one's own, in a process group that is there."""
    if run.kind == "map":
        return loop_by_number(run)
    reading: Any = run.loader() if run.kind == "plain" else run.iterable()
    if run.resumes:
        reading.load_state_dict(json.loads(run.saved.read_text()))
    batches = reading if run.kind == "plain" else data.DataLoader(reading, batch_size=None)
    run.note([number for batch in some(batches, run.steps) for number in numbers(batch)])
    if run.steps and dist.get_rank() == 0:
        run.saved.write_text(json.dumps(reading.state_dict()))
    return None


def loop_by_number(run: Run) -> None:
    """With torch's sampler. It has no state: the order is known, and what was read is its beginning."""
    order = torch.randperm(RECORDS, generator=torch.Generator().manual_seed(3)).tolist()
    rest = data.Subset(run.mapped(), order[int(run.saved.read_text()) * STEP if run.resumes else 0 :])
    sampler: Any = data.DistributedSampler(rest, run.world_size, dist.get_rank(), shuffle=False)
    batches = data.DataLoader(rest, batch_size=run.own, sampler=sampler)
    run.note([number for batch in some(batches, run.steps) for number in numbers(batch)])
    if run.steps and dist.get_rank() == 0:
        run.saved.write_text(str(run.steps))


def lightning(run: Run) -> None:
    """Lightning's own launcher: it starts the other ranks itself."""
    import lightning as pl
    from of_lightning import Model, Saves
    from torchdata.stateful_dataloader import StatefulDataLoader

    trainer = pl.Trainer(
        accelerator="cpu", devices=run.world_size, max_epochs=1, max_steps=run.steps or -1, logger=False,
        strategy="ddp_spawn" if run.trainer == "lightning_spawn" else "ddp",
        callbacks=[Saves(run.steps, str(run.saved))] if run.steps else [],
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
        default_root_dir=run.folder,
    )  # fmt: skip
    loader: Any = {
        "plain": run.loader,
        "iterable": lambda: StatefulDataLoader(run.iterable(), batch_size=None),
        "map": lambda: data.DataLoader(run.mapped(), batch_size=run.own, shuffle=True),
    }[run.kind]()
    trainer.fit(Model(numbers, run.note), loader, ckpt_path=str(run.saved) if run.resumes else None, weights_only=False)


def accelerate(run: Run) -> None:
    """Accelerate: the loader by its state, datasets by skipping batches."""
    import accelerate as hf

    # As the documentation says: else torch's sampler draws another order in a run with another number of ranks.
    is_seeded = hf.DataLoaderConfiguration(use_seedable_sampler=run.kind == "map")
    accelerator = hf.Accelerator(cpu=True, dataloader_config=is_seeded)
    torch.manual_seed(3)
    loader: Any = {
        "plain": run.loader,
        "iterable": lambda: data.DataLoader(run.iterable(batch_size=run.own), batch_size=None),
        "map": lambda: data.DataLoader(run.mapped(), batch_size=run.own, shuffle=True),
    }[run.kind]()
    batches = accelerator.prepare(loader)
    if run.resumes:
        saved = json.loads(run.saved.read_text())
        if run.kind == "plain":
            loader.load_state_dict(saved["state"])
        batches = accelerator.skip_first_batches(batches, saved["steps"])
    run.note([number for batch in some(batches, run.steps) for number in numbers(batch)])
    if run.steps and accelerator.is_main_process:
        state = loader.state_dict() if run.kind == "plain" else None
        run.saved.write_text(json.dumps({"steps": run.steps, "state": state}))


def trainer(run: Run) -> None:
    """The Trainer of Hugging Face."""
    import transformers

    import uringload.transformers

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(64, 1)
            self.seen: list[int] = []

        def forward(self, data: Any) -> Any:
            self.seen += data[:, 0].tolist()
            return {"loss": self.layer(data.float() / RECORDS).mean()}

    class Trainer(transformers.Trainer):  # type: ignore[misc, name-defined]
        def get_train_dataloader(self) -> Any:
            return run.loader() if run.kind == "plain" else super().get_train_dataloader()

    class Stops(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == run.steps:
                control.should_save = control.should_training_stop = True

    arguments = transformers.TrainingArguments(
        output_dir=str(run.folder / "saved"), num_train_epochs=1, report_to=[], use_cpu=True, save_strategy="no",
        max_steps=RECORDS // STEP if run.kind == "iterable" else -1, per_device_train_batch_size=run.own,
        disable_tqdm=True, remove_unused_columns=False, seed=3, ignore_data_skip=run.kind == "plain",
        dataloader_drop_last=False,
    )  # fmt: skip
    dataset: Any = run.iterable(batch_size=run.own, samples=True) if run.kind == "iterable" else run.mapped()
    callbacks: list[Any] = [uringload.transformers.LoaderState()] if run.kind == "plain" else []
    model = Model()
    Trainer(model=model, args=arguments, train_dataset=dataset, callbacks=[Stops(), *callbacks]).train(
        resume_from_checkpoint=run.resumes
    )
    run.note(model.seen)


def spawned(rank: int, run: Run) -> None:
    """One process of `mp.spawn`, which sets no variables."""
    meet = run.folder / f"meet-{run.steps}"
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=run.world_size)
    loop(run)


def ray_train(run: Run) -> None:
    """Ray Train's workers."""
    import ray
    import ray.train
    from ray.train.torch import TorchTrainer

    def work() -> None:
        loop(run)

    sys.modules["__main__"].__dict__.setdefault("__file__", __file__)
    ray.init(num_cpus=max(4, run.world_size), include_dashboard=False, log_to_driver=True)
    scaling = ray.train.ScalingConfig(num_workers=run.world_size, resources_per_worker={"CPU": 0.3})
    TorchTrainer(work, scaling_config=scaling,
                 run_config=ray.train.RunConfig(storage_path=str(run.folder / "ray"))).fit()  # fmt: skip


def main() -> None:
    """Runs as the arguments say."""
    trainer_name, kind, path, folder, world_size, steps = sys.argv[1:]
    run = Run(trainer_name, kind, path, pathlib.Path(folder), int(world_size), int(steps))
    if trainer_name == "spawn":
        torch.multiprocessing.spawn(spawned, (run,), nprocs=run.world_size)
    elif trainer_name == "loop":
        dist.init_process_group("gloo")
        loop(run)
    else:
        {"lightning": lightning, "lightning_spawn": lightning, "accelerate": accelerate, "trainer": trainer,
         "ray": ray_train}[trainer_name](run)  # fmt: skip
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("USE_TF", "0")
    main()
