"""Metrics in the user's own training: `watch`, `report` and callbacks."""

from __future__ import annotations

import importlib.util
import io
import os
import pathlib
import re
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from conftest import RECORDS, needs_numpy, needs_torch, of_records

import uringload

pytestmark = needs_numpy


def loader_of(records: pathlib.Path, **given: Any) -> uringload.DataLoader:
    return uringload.DataLoader(**of_records(records, **given))


def test_a_line_now_and_then_and_a_report_at_the_end(records: pathlib.Path) -> None:
    out = io.StringIO()
    with loader_of(records) as loader:
        with uringload.watch(loader, 0.05, file=out) as watched:
            assert watched is loader
            for _ in loader:
                time.sleep(0.02)
            end = time.monotonic() + 60
            while ", 0 samples/s" not in out.getvalue() and time.monotonic() < end:
                time.sleep(0.01)
        lines = [line for line in out.getvalue().splitlines() if line.startswith("uringload: ")]
        form = r"uringload: epoch 0, ([0-9,]+) samples/s, .*/s, waited .* of .* for batches, bottleneck: \w+ \("
        found = [re.match(form, line) for line in lines]
        assert all(found), lines
        rates = [int(match[1].replace(",", "")) for match in found if match]
        assert 0 < max(rates) < 20 * 1600 and rates[-1] == 0, "a line is about the time since the last one"
        report = out.getvalue()
        for words in ("verdict: ", "samples              1,000", "wait for a batch", loader.route()["text"]):
            assert words in report, report
    assert threading.active_count() < 20 and not [each for each in threading.enumerate() if "watch" in each.name]


def test_an_exception_of_the_block_passes_and_the_report_still_comes(records: pathlib.Path) -> None:
    out = io.StringIO()
    with loader_of(records) as loader, pytest.raises(ZeroDivisionError):
        with uringload.watch(loader, file=out):
            next(iter(loader))
            raise ZeroDivisionError
    assert "verdict: " in out.getvalue()


def test_a_file_that_is_closed_does_not_end_the_training(records: pathlib.Path, caplog: Any) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    with loader_of(records) as loader, uringload.watch(loader, 0.01, file=Full()):
        count = sum(len(batch.ids) for batch in loader)
        time.sleep(0.1)
    assert count == RECORDS
    assert 1 <= caplog.text.count("cannot write any more") <= 2


def test_nothing_read_yet(records: pathlib.Path) -> None:
    out = io.StringIO()
    with loader_of(records) as loader, uringload.watch(loader, file=out):
        assert loader.metrics() == {} and "unknown" in loader.report()
    assert "none yet" in out.getvalue()


def test_what_is_watched_is_a_loader(records: pathlib.Path) -> None:
    with pytest.raises(TypeError, match="list"):
        uringload.watch([1, 2])
    with loader_of(records) as loader:
        for wrong in (0, -1, float("nan"), float("inf")):
            with pytest.raises(ValueError, match="every"):
                uringload.watch(loader, wrong)
        watch = uringload.watch(loader, file=io.StringIO())
        with watch, pytest.raises(uringload.InvalidArgumentError, match="in use"):
            watch.__enter__()


def test_a_process_ends_while_it_watches(records: pathlib.Path) -> None:
    script = f"""
import uringload
loader = uringload.DataLoader({str(records)!r}, batch_size=32, record_bytes=256, output="numpy")
watch = uringload.watch(loader, 0.01)
watch.__enter__()
for batch in loader:
    pass
print("ended")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr


@needs_torch
@pytest.mark.skipif(importlib.util.find_spec("lightning") is None, reason="skipped: lightning is not installed")
def test_lightnings_loggers_get_the_numbers(records: pathlib.Path, tmp_path: pathlib.Path) -> None:
    import lightning as pl
    import torch
    from lightning.pytorch.loggers import CSVLogger

    import uringload.lightning

    class Model(pl.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(64, 1)

        def training_step(self, batch: Any, number: int) -> Any:
            return self.layer(batch["data"].float()).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 1e-9)

    logger = CSVLogger(tmp_path, flush_logs_every_n_steps=1)
    with loader_of(records, output="torch") as loader:
        pl.Trainer(accelerator="cpu", devices=1, max_epochs=1, logger=logger, log_every_n_steps=5,
                   callbacks=[uringload.lightning.Metrics()], enable_progress_bar=False, enable_model_summary=False,
                   enable_checkpointing=False).fit(Model(), loader)  # fmt: skip
    rows = pathlib.Path(logger.log_dir, "metrics.csv").read_text().splitlines()
    assert "loader/samples_per_s" in rows[0] and len(rows) == 1 + 32 // 5


@needs_torch
@pytest.mark.skipif(importlib.util.find_spec("transformers") is None or importlib.util.find_spec("accelerate") is None,
                    reason="skipped: transformers or accelerate is not installed")
def test_the_trainer_logs_the_numbers(records: pathlib.Path, tmp_path: pathlib.Path) -> None:
    import torch
    import transformers

    import uringload.transformers

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(64, 1)

        def forward(self, data: Any) -> Any:
            return {"loss": self.layer(data.float() / RECORDS).mean()}

    class Trainer(transformers.Trainer):  # type: ignore[misc, name-defined]
        def get_train_dataloader(self) -> Any:
            return loader

    told: list[tuple[int, float]] = []
    metrics = uringload.transformers.Metrics(lambda found, step: told.append((step, found["loader/samples"])))
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), num_train_epochs=1, report_to=[], use_cpu=True, save_strategy="no", logging_steps=10,
        per_device_train_batch_size=32, disable_tqdm=True, remove_unused_columns=False,
    )  # fmt: skip
    with loader_of(records, output="torch") as loader:
        Trainer(model=Model(), args=arguments, callbacks=[metrics]).train()
    assert [step for step, _ in told][:3] == [10, 20, 30] and told[0][1] >= 320


def test_watch_logs_numbers_by_steps(records: pathlib.Path, caplog: Any) -> None:
    told: list[tuple[int, float]] = []

    def log(metrics: dict[str, float], step: int) -> None:
        told.append((step, metrics["loader/samples"]))

    with loader_of(records) as loader:
        with uringload.watch(loader, 100, file=io.StringIO(), log=log):
            list(loader)
        assert told == [(32, RECORDS)]
        # The counts begin anew with a state, and steps go on.
        with uringload.watch(loader, 100, file=io.StringIO(), log=log) as watched:
            list(watched)
            list(watched)
        assert told[-1][0] == 64, told

        def fails(metrics: dict[str, float], step: int) -> None:
            raise ConnectionError("the server is away")

        out = io.StringIO()
        with uringload.watch(loader, 0.01, file=out, log=fails):
            for _ in loader:
                time.sleep(0.001)
            end = time.monotonic() + 60
            while out.getvalue().count("uringload: ") <= 2 and time.monotonic() < end:
                time.sleep(0.01)
        assert caplog.text.count("watch() logs no more: ConnectionError: the server is away") == 1
        assert "verdict: " in out.getvalue() and out.getvalue().count("uringload: ") > 2, "and it goes on"
        with pytest.raises(TypeError, match="int"):
            uringload.watch(loader, log=3)  # type: ignore[arg-type]


@pytest.mark.skipif(importlib.util.find_spec("tensorboardX") is None, reason="skipped: tensorboardX is not installed")
def test_tensorboard_shows_the_numbers(records: pathlib.Path, tmp_path: pathlib.Path) -> None:
    from tensorboardX import SummaryWriter

    import uringload.tensorboard

    writer = SummaryWriter(str(tmp_path))
    metrics = uringload.tensorboard.Metrics(writer)
    with loader_of(records) as loader:
        metrics.log(loader, 0)
        with uringload.watch(loader, 100, file=io.StringIO(), log=metrics):
            list(loader)
        bottleneck = loader.verdict().bottleneck
    writer.close()
    if importlib.util.find_spec("tensorboard") is None:
        pytest.skip("skipped: tensorboard is not installed, so nothing reads what was written")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(tmp_path))
    found.Reload()
    (samples,) = found.Scalars("loader/samples")
    assert (samples.step, samples.value) == (32, RECORDS), "nothing was measured before the first batch"
    (said,) = found.Tensors("loader/verdict/text_summary")
    assert bottleneck.encode() in said.tensor_proto.string_val[0]


def test_what_is_no_writer_is_refused(tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    import uringload.tensorboard
    import uringload.wandb

    with pytest.raises(TypeError, match="add_scalar"):
        uringload.tensorboard.Metrics(3)
    for name in ("torch.utils.tensorboard", "tensorboardX"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(uringload.InvalidArgumentError, match="tensorboardX") as error:
        uringload.tensorboard.Metrics(tmp_path)
    assert "pip install" in str(error.value.remedy)
    with pytest.raises(TypeError, match="without log"):
        uringload.wandb.Metrics(3)


def wandb_records(path: pathlib.Path) -> list[bytes]:
    """Those of a run that was offline: LevelDB's log, after 7 bytes of W&B's own."""
    block, head = 32768, 7
    data, at, whole, found = path.read_bytes(), head, b"", []
    assert data.startswith(b":W&B")
    while at + head <= len(data):
        if block - at % block < head:
            at += block - at % block
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        whole += data[at + head : at + head + length]
        at += head + length
        # A record is whole (1), or begins, goes on and ends (2 to 4).
        if kind in (1, 4):
            found.append(whole)
            whole = b""
    return found


@pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="skipped: wandb is not installed")
def test_wandb_keeps_the_numbers(records: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    import wandb

    import uringload.wandb

    for name, value in {"WANDB_SILENT": "true", "HOME": str(tmp_path), "WANDB_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(uringload.InvalidArgumentError, match="no run"):
        uringload.wandb.Metrics()
    with wandb.init(mode="offline", project="tests", dir=str(tmp_path)) as run, loader_of(records) as loader:
        metrics = uringload.wandb.Metrics()
        assert metrics.run is run
        list(loader)
        metrics.log(loader, 32)
        # Beside what the program logs, in its row.
        run.log({"loss": 0.5}, step=0)
        bottleneck = loader.verdict().bottleneck
    (file,) = {path.resolve() for path in tmp_path.rglob("*.wandb")}
    from wandb.proto import wandb_internal_pb2

    rows: list[dict[str, str]] = []
    summary: dict[str, str] = {}
    # Its server writes now and then after the end of the run.
    deadline = time.monotonic() + 30
    while len(wandb_records(file)) < 10 and time.monotonic() < deadline:
        time.sleep(0.1)
    for data in wandb_records(file):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.history.item:
            rows.append({item.key or "/".join(item.nested_key): item.value_json for item in record.history.item})
        for item in record.summary.update:
            summary[item.key or "/".join(item.nested_key)] = item.value_json
    (row,) = (row for row in rows if "loss" in row)
    assert (float(row["loader/samples"]), float(row["loader/step"])) == (RECORDS, 32), rows
    assert bottleneck in summary["loader/verdict"], summary
