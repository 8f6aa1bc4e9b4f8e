"""`async for`: batches without blocking the event loop."""

from __future__ import annotations

import asyncio
import os
import pathlib
import threading
import time
from typing import Any

import pytest
from conftest import RECORDS, needs_numpy, numbers, of_records

import uringload
from uringload import DataLoader

pytestmark = needs_numpy


def drained(loader: DataLoader) -> list[list[int]]:
    async def run() -> list[list[int]]:
        return [batch.ids if isinstance(batch, uringload.Batch) else batch.tolist() async for batch in loader]

    return asyncio.run(asyncio.wait_for(run(), 60))


def test_a_pass_is_the_one_that_for_gives(records: pathlib.Path) -> None:
    def transform(sample: dict[str, Any]) -> dict[str, int]:
        return {"n": int(sample["data"][0])}

    for given in ({}, {"transform": transform, "num_threads": 3}, {"transform": transform, "num_threads": 0},
                  {"collate": "tuple", "batch_transform": lambda batch: batch[0][:, 0]}):
        with DataLoader(**of_records(records, shuffle=True, **given)) as loader:
            before = [batch.ids if isinstance(batch, uringload.Batch) else batch.tolist() for batch in loader]
            loader.set_epoch(0)
            assert drained(loader) == before and loader.epoch == 1
            assert drained(loader) != before, "the next epoch"
            assert loader.stats()["batches"] >= 32


def test_the_event_loop_runs_while_a_batch_is_awaited(records: pathlib.Path) -> None:
    """A transform waits for the loop, which would never go on if the transform or a read kept it."""
    ticks = 0

    def waits(batch: Any) -> int:
        seen, end = ticks, time.monotonic() + 60
        while ticks < seen + 3 and time.monotonic() < end:
            time.sleep(0.001)
        return ticks - seen

    async def run(loader: DataLoader) -> list[int]:
        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        ticking = asyncio.create_task(tick())
        found = [ticked async for ticked in loader]
        ticking.cancel()
        return found

    with DataLoader(**of_records(records, batch_size=500, batch_transform=waits, num_threads=1)) as loader:
        found = asyncio.run(run(loader))
    assert len(found) == 2 and min(found) >= 3


@pytest.mark.slow  # It measures time.
def test_the_event_loop_takes_next_to_no_processor_time(records: pathlib.Path) -> None:
    """Nothing spins while a batch is awaited."""

    def slow(batch: Any) -> int:
        time.sleep(0.3)
        return 1

    async def run(loader: DataLoader) -> tuple[int, int, float]:
        ticks, done = 0, False

        async def tick() -> None:
            nonlocal ticks
            while not done:
                await asyncio.sleep(0.01)
                ticks += 1

        ticking = asyncio.create_task(tick())
        started, count = time.thread_time(), 0
        async for _ in loader:
            count += 1
        done = True
        await ticking
        return count, ticks, time.thread_time() - started

    with DataLoader(**of_records(records, batch_size=500, batch_transform=slow, num_threads=1)) as loader:
        count, ticks, cpu = asyncio.run(run(loader))
        assert loader.verdict().bottleneck == "transform"
    assert count == 2 and ticks >= 20 and cpu < 0.2


def test_reads_are_awaited_by_descriptor(records: pathlib.Path) -> None:
    async def run(loader: DataLoader) -> int:
        descriptors = len(os.listdir("/proc/self/fd"))
        seen = sum([len(batch.ids) async for batch in loader])
        assert len(os.listdir("/proc/self/fd")) <= descriptors + 4, "each wait closes its own"
        return seen

    for _ in range(3):
        with DataLoader(**of_records(records, batch_size=1, io="direct")) as loader:
            assert asyncio.run(run(loader)) == RECORDS


def test_tasks_share_a_pass_and_one_that_is_cancelled_loses_nothing(records: pathlib.Path) -> None:
    def slow(batch: Any) -> list[int]:
        time.sleep(0.01)
        return numbers(batch)

    async def run(loader: DataLoader) -> list[int]:
        batches, seen = aiter(loader), []

        async def take() -> None:
            async for batch in batches:
                seen.extend(batch)

        tasks = [asyncio.create_task(take()) for _ in range(3)]
        await asyncio.sleep(0.03)
        tasks[0].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return seen

    with DataLoader(**of_records(records, batch_transform=slow, num_threads=2)) as loader:
        assert sorted(asyncio.run(run(loader))) == list(range(RECORDS))


@pytest.mark.parametrize("last", [False, True])
def test_errors_come_in_their_place(tmp_path: pathlib.Path, last: bool) -> None:
    for index in range(20):
        (tmp_path / f"{index:02}.dat").write_bytes(bytes([index]) * 100)
    dataset = uringload.Dataset(tmp_path)
    os.truncate(tmp_path / ("19.dat" if last else "07.dat"), 10)

    async def run(loader: DataLoader) -> list[int]:
        seen, batches = [], aiter(loader)
        while True:
            try:
                seen.append(len((await anext(batches)).ids))
            except StopAsyncIteration:
                return seen
            except uringload.TruncatedError:
                seen.append(0)

    for given in ({}, {"batch_transform": lambda batch: batch}, {"sampler": list(range(20))}):
        with DataLoader(dataset, batch_size=5, output="numpy", **given) as loader:
            expected = [5, 5, 5, 0] if last else [5, 0, 5, 5]
            assert asyncio.run(asyncio.wait_for(run(loader), 30)) == expected


def test_closing_ends_a_wait(records: pathlib.Path) -> None:
    async def run(loader: DataLoader) -> None:
        async for _ in loader:
            loader.close()

    with DataLoader(**of_records(records)) as loader, pytest.raises(uringload.InvalidArgumentError, match="closed"):
        asyncio.run(asyncio.wait_for(run(loader), 30))


@pytest.mark.parametrize("is_async", [False, True])
def test_a_thread_without_work_gets_the_next_batch_while_one_is_awaited(
    records: pathlib.Path, monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    """Each batch waits for its neighbour, which is read only after it was asked for."""
    neighbours, pull, pulled = threading.Barrier(2), DataLoader._pull, [0.0]

    def slowly(self: DataLoader, epoch: int, wait: bool) -> Any:
        if not wait and time.monotonic() < pulled[0] + 0.005:
            return None
        raw = pull(self, epoch, wait)
        pulled[0] = time.monotonic()
        return raw

    monkeypatch.setattr(DataLoader, "_pull", slowly)

    def meet(batch: Any) -> Any:
        neighbours.wait(20)
        return batch

    async def gathered(loader: DataLoader) -> list[Any]:
        return [batch async for batch in loader]

    with DataLoader(**of_records(records, batch_transform=meet, num_threads=2)) as loader:
        for _ in range(3):
            batches = asyncio.run(gathered(loader)) if is_async else list(loader)
            assert [int(batch["data"][0, 0]) for batch in batches] == [*range(0, RECORDS, 32)]
