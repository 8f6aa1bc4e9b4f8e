"""The real trainers: PyTorch's process groups, Lightning, Accelerate and the Trainer of Hugging Face."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import socket
import subprocess
import sys
import textwrap
from typing import Any

import conftest
import pytest
from conftest import RECORDS, numbers, of_records

import uringload

# Else transformers looks for a TensorFlow, which is of no use to these tests, and takes long to import.
os.environ.setdefault("USE_TF", "0")

torch = pytest.importorskip("torch", reason="skipped: torch is not installed")


def needs(package: str) -> pytest.MarkDecorator:
    absent = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(absent, reason=f"skipped: {package} is not installed")


RANK = """
    import json, os, sys
    import torch.distributed as dist
    import uringload

    dist.init_process_group("gloo")
    loader = uringload.DataLoader(sys.argv[1], record_bytes=256, dtype="i32", shuffle=True, seed=3,
                                  batch_size=int(sys.argv[2]))
    if sys.argv[3] != "-":
        loader.load_state_dict(json.loads(sys.argv[3]))
    seen, steps = [], 0
    for batch in loader:
        padding = batch.padding or [False] * len(batch.ids)
        seen += [int(row[0]) for row, pad in zip(batch["data"], padding) if not pad]
        steps += 1
        if steps == int(sys.argv[4]):
            break
    everybody = [None] * dist.get_world_size()
    dist.all_gather_object(everybody, (seen, steps, loader.state_dict()))
    if dist.get_rank() == 0:
        print(json.dumps(everybody))
    dist.destroy_process_group()
"""


METRICS = """
    import json, sys
    import accelerate
    import torch
    import uringload

    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=4)
    model = torch.nn.Linear(1, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
    loader = accelerator.prepare(uringload.DataLoader(sys.argv[1], record_bytes=256, dtype="i32", shuffle=True,
                                                      batch_size=int(sys.argv[2]), only=range(int(sys.argv[3]))))
    seen, steps = [], []
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(batch["data"][:, :1].float()).mean())
            steps.append(accelerator.sync_gradients)
            optimizer.step()
            optimizer.zero_grad()
        seen += accelerator.gather_for_metrics(batch["data"][:, 0].contiguous()).tolist()
    if accelerator.is_main_process:
        print(json.dumps([seen, steps]))
    accelerator.end_training()
"""


def launch(world_size: int, *arguments: str, script: str = RANK) -> Any:
    """What `torchrun` does, for processes of one machine; returns what rank 0 says."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launched = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(world_size)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script), *arguments],
            env={**os.environ, **launched, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE, text=True,
        )
        for rank in range(world_size)
    ]  # fmt: skip
    told = [process.communicate(timeout=120)[0] for process in processes]
    assert all(process.returncode == 0 for process in processes)
    return json.loads(told[0])


def test_two_ranks_share_an_epoch_and_three_go_on_with_it(records: pathlib.Path) -> None:
    first = launch(2, str(records), "32", "-", "6")
    assert [steps for _, steps, _ in first] == [6, 6]
    rest = launch(3, str(records), "16", json.dumps(first[1][2]), "-1")
    assert len({steps for _, steps, _ in rest}) == 1, "every rank has the same number of steps"
    seen = [number for numbers, _, _ in first + rest for number in numbers]
    assert sorted(seen) == list(range(RECORDS)), "none is lost, and none comes twice"


@needs("lightning")
def test_lightning_trains_and_goes_on(records: pathlib.Path, tmp_path: pathlib.Path) -> None:
    import lightning

    class Model(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(64, 1)
            self.seen: list[list[int]] = []

        def training_step(self, batch: dict[str, torch.Tensor], _: int) -> torch.Tensor:
            self.seen.append(numbers(batch))
            return self.layer(batch["data"].float() / RECORDS).mean()  # type: ignore[no-any-return]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    place = tmp_path / "40.ckpt"

    class Saves(lightning.Callback):  # type: ignore[misc, name-defined]
        def on_train_batch_end(self, trainer: lightning.Trainer, *_: object) -> None:
            if trainer.global_step == 40:
                trainer.save_checkpoint(place)

    def fit(**going_on: object) -> list[list[int]]:
        model = Model()
        trainer = lightning.Trainer(
            accelerator="cpu", max_epochs=2, logger=False, enable_progress_bar=False, enable_model_summary=False,
            enable_checkpointing=False, default_root_dir=tmp_path, callbacks=[] if going_on else [Saves()],
        )  # fmt: skip
        with uringload.DataLoader(**of_records(records, shuffle=True, output="torch")) as loader:
            trainer.fit(model, loader, **going_on)
        return model.seen

    whole = fit()
    assert sorted(sum(whole[:32], [])) == sorted(sum(whole[32:], [])) == list(range(RECORDS))
    assert fit(ckpt_path=str(place), weights_only=False) == whole[40:]


@needs("accelerate")
def test_accelerate_leaves_it_alone_and_keeps_its_state(records: pathlib.Path, tmp_path: pathlib.Path) -> None:
    import accelerate

    accelerator = accelerate.Accelerator(cpu=True)
    with uringload.DataLoader(**of_records(records, shuffle=True, output="torch")) as loader:
        model, prepared = accelerator.prepare(torch.nn.Linear(64, 1), loader)
        assert prepared is loader
        accelerator.register_for_checkpointing(loader)
        batches = iter(loader)
        [model(next(batches)["data"].float()) for _ in range(5)]
        accelerator.save_state(str(tmp_path / "state"))
        rest = [numbers(batch) for batch in batches]
        accelerator.load_state(str(tmp_path / "state"), load_kwargs={"weights_only": False})
        assert [numbers(batch) for batch in loader] == rest and len(rest) == 27


@needs("accelerate")
def test_accelerate_skips_batches(records: pathlib.Path) -> None:
    import accelerate

    accelerator = accelerate.Accelerator(cpu=True)
    with uringload.DataLoader(**of_records(records, shuffle=True, output="torch")) as loader:
        first, second = ([numbers(batch) for batch in loader] for _ in range(2))
        loader.set_epoch(0)
        rest = accelerator.skip_first_batches(accelerator.prepare(loader), 7)
        assert len(rest) == 25 and [numbers(batch) for batch in rest] == first[7:]
        assert [numbers(batch) for batch in loader] == second


@needs("accelerate")
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_accelerate_steps_at_the_end_and_counts_each_sample_once(records: pathlib.Path, world_size: int) -> None:
    samples = 998 if world_size == 3 else 999
    seen, steps = launch(world_size, str(records), str(60 // world_size), str(samples), script=METRICS)
    assert sorted(seen) == list(range(samples)), "what ranks repeat is left out"
    # 17 batches, of which 4 are accumulated.
    assert [number for number, steps_now in enumerate(steps, 1) if steps_now] == [4, 8, 12, 16, 17]


@needs("lightning")
def test_lightning_is_refused_what_it_would_leave_out(records: pathlib.Path, tmp_path: pathlib.Path) -> None:
    import lightning

    class Model(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(64, 1)

        def training_step(self, batch: dict[str, torch.Tensor], _: int) -> torch.Tensor:
            return self.layer(batch["data"].float() / RECORDS).mean()  # type: ignore[no-any-return]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    place = str(tmp_path / "20.ckpt")

    class Saves(lightning.Callback):  # type: ignore[misc, name-defined]
        def on_train_batch_end(self, trainer: lightning.Trainer, *_: object) -> None:
            if trainer.global_step == 20:
                trainer.save_checkpoint(place)

    def fit(batch_size: int, **going_on: object) -> None:
        trainer = lightning.Trainer(
            accelerator="cpu", max_epochs=1, logger=False, enable_progress_bar=False, enable_model_summary=False,
            enable_checkpointing=False, default_root_dir=tmp_path, callbacks=[] if going_on else [Saves()],
        )  # fmt: skip
        with uringload.DataLoader(**of_records(records, output="torch", batch_size=batch_size)) as loader:
            trainer.fit(Model(), loader, **going_on)

    fit(32)
    with pytest.raises(uringload.InvalidArgumentError, match="Lightning has counted 20 batches") as error:
        fit(64, ckpt_path=place, weights_only=False)
    assert "global_batch_size=32" in str(error.value.remedy)


@needs("transformers")
@needs("accelerate")
def test_the_trainer_of_hugging_face(records: pathlib.Path, tmp_path: pathlib.Path) -> None:
    import transformers

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(64, 1)
            self.seen: list[int] = []

        def forward(self, data: torch.Tensor) -> dict[str, torch.Tensor]:
            self.seen += data[:, 0].tolist()
            return {"loss": self.layer(data.float() / RECORDS).mean()}

    with uringload.DataLoader(**of_records(records, shuffle=True, output="torch")) as loader:

        class Trainer(transformers.Trainer):  # type: ignore[misc, name-defined]
            def get_train_dataloader(self) -> uringload.DataLoader:
                return loader

        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path), num_train_epochs=2, report_to=[], use_cpu=True, save_strategy="no",
            disable_tqdm=True, remove_unused_columns=False,
        )  # fmt: skip
        model = Model()
        Trainer(model=model, args=arguments, train_dataset=torch.zeros(RECORDS)).train()
    assert len(model.seen) == 2 * RECORDS
    assert sorted(model.seen[:RECORDS]) == sorted(model.seen[RECORDS:]) == list(range(RECORDS))
    assert model.seen[:RECORDS] != model.seen[RECORDS:]
