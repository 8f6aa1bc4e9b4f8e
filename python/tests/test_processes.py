"""Threads, signals, children and ends: nothing hangs, nothing is delivered twice, and what cannot be is said."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time

import conftest
import pytest
from conftest import RECORDS, numbers, of_records

import uringload
from uringload import DataLoader

pytestmark = conftest.needs_numpy


def run(code: str, *arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Runs a program of its own."""
    program = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    return subprocess.run(program, capture_output=True, text=True, timeout=timeout, check=False)


def test_import_starts_nothing() -> None:
    code = """
        import os, sys
        import uringload
        assert not {"numpy", "torch"} & set(sys.modules), sorted(sys.modules)
        assert len(os.listdir("/proc/self/task")) == 1
    """
    done = run(code)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow  # It measures time.
def test_import_is_quick() -> None:
    code = """
        import sys, time, threading, os
        # Of the processor, so that a machine that is busy with something else makes no difference.
        start = time.process_time()
        import uringload
        took = time.process_time() - start
        import asyncio
        other = time.process_time() - start - took
        print(took, other)
    """
    done = [run(code) for _ in range(5)]
    assert all(it.returncode == 0 for it in done), done[0].stderr
    # Against what Python itself takes to import asyncio, which is 40 ms where ours are 18, because a processor that is
    # shared is slower, too.
    took, other = (min(times) for times in zip(*(map(float, it.stdout.split()) for it in done)))
    assert took < 0.8 * other, [it.stdout for it in done]


def test_it_needs_neither_numpy_nor_torch(records: pathlib.Path) -> None:
    code = """
        import sys
        sys.modules["numpy"] = sys.modules["torch"] = None
        import uringload
        given = dict(record_bytes=256, batch_size=100)
        for output, package in (("numpy", "numpy"), ("torch", "torch")):
            try:
                uringload.DataLoader(sys.argv[1], output=output, **given)
            except uringload.UnavailableError as error:
                assert f"pip install {package}" in str(error), error
            else:
                raise AssertionError(output)
        with uringload.DataLoader(sys.argv[1], output="dlpack", **given) as loader:
            print(sum(len(batch["data"].tobytes()) for batch in loader))
    """
    done = run(code, str(records))
    assert done.stdout.strip() == "256000", done.stderr


def test_ctrl_c_ends_the_opening(tmp_path: pathlib.Path) -> None:
    # To find the lines of so much, though it is a hole, takes many seconds.
    path = tmp_path / "hole.txt"
    with path.open("wb") as file:
        # What begins with zeros is no text.
        file.write(b"a line\n" * (1 << 20))
        file.truncate(64 << 30)
    code = """
        import os, signal, sys, threading, time
        import uringload
        try:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            uringload.Dataset(sys.argv[1])
            print("opened")
        except KeyboardInterrupt:
            print("interrupted")
    """
    done = run(code, str(path), timeout=120)
    assert done.stdout == "interrupted\n", done.stdout + done.stderr


def test_a_forked_child_is_refused(records: pathlib.Path) -> None:
    with DataLoader(**of_records(records)) as loader:
        batches = iter(loader)
        next(batches)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            told = []
            for ask in (lambda: next(batches), lambda: iter(loader), lambda: loader.state_dict()):
                try:
                    ask()
                    told.append("nothing")
                except uringload.Error as error:
                    told.append(str(error))
            os.write(writing, json.dumps(told).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            told = json.loads(pipe.read())
        os.waitpid(child, 0)
        assert len(told) == 3 and all("forked" in it and "num_workers=0" in it for it in told), told
        assert len(list(batches)) == 31, "the parent goes on"


def test_a_spawned_child_gets_the_configuration(records: pathlib.Path) -> None:
    code = """
        import multiprocessing, pickle, sys
        import uringload

        def child(loader, pipe):
            pipe.send([int(row[0]) for batch in loader for row in batch["data"]])

        if __name__ == "__main__":
            context = multiprocessing.get_context("spawn")
            loader = uringload.DataLoader(sys.argv[1], record_bytes=256, dtype="i32", batch_size=32, output="numpy")
            mine = [int(row[0]) for batch in loader for row in batch["data"]]
            receiving, sending = context.Pipe(False)
            process = context.Process(target=child, args=(loader, sending))
            process.start()
            assert receiving.recv() == mine and len(mine) == 1000
            process.join()
            print("same")
    """
    place = records.parent / "spawned.py"
    place.write_text(textwrap.dedent(code))
    done = subprocess.run([sys.executable, place, records], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "same\n", done.stderr


def test_ctrl_c_ends_a_wait(tmp_path: pathlib.Path) -> None:
    # The wait is one for memory, which the program holds itself: no disk is slow enough.
    path = tmp_path / "all.bin"
    path.write_bytes(bytes(8 << 20))
    code = """
        import signal, sys, threading, time, os
        import uringload
        loader = uringload.DataLoader(sys.argv[1], record_bytes=4096, batch_size=500, output="numpy",
                                      memory_limit="16MiB", starved_after=3600.0)
        kept, waits = [], 0

        def interrupt():
            seen = -1
            # Until no more comes for a while.
            while seen != len(kept) or len(kept) < 2:
                seen = len(kept)
                time.sleep(0.3)
            print("interrupted", flush=True)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt, daemon=True).start()
        try:
            while True:
                for batch in loader:
                    kept.append(batch)
        except KeyboardInterrupt:
            print("caught", len(kept) > 1, flush=True)
            kept.clear()
            del batch
            print(len(list(loader)), flush=True)
    """
    done = run(code, str(path), timeout=120)
    assert done.stdout.split() == ["interrupted", "caught", "True", "5"], done.stdout + done.stderr


def test_two_loaders_at_once(records: pathlib.Path, folder: pathlib.Path) -> None:
    two = DataLoader(folder, batch_size=7, output="numpy")
    with DataLoader(**of_records(records, shuffle=True)) as one, two:
        seen, files = [], 0
        for batch, other in zip(one, two):
            seen += numbers(batch)
            files += len(other.ids)
        assert files == 29 * 7 - 3 and len(set(seen)) == len(seen) == 29 * 32


def test_threads_share_a_pass(records: pathlib.Path) -> None:
    with DataLoader(**of_records(records, shuffle=True, batch_size=5)) as loader:
        for _ in range(3):
            batches, seen, failures = iter(loader), [], []

            def take() -> None:
                try:
                    for batch in batches:
                        seen.extend(numbers(batch))
                        loader.stats()
                except BaseException as error:
                    failures.append(error)

            threads = [threading.Thread(target=take) for _ in range(8)]
            [thread.start() for thread in threads]
            [thread.join(30) for thread in threads]
            assert not failures and sorted(seen) == list(range(RECORDS))


def test_other_threads_run_while_one_waits(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "all.bin"
    path.write_bytes(bytes(4 << 20))
    given = {"record_bytes": 4096, "batch_size": 500, "output": "numpy"}
    loader = DataLoader(path, memory_limit="16MiB", starved_after=3600.0, **given)
    kept: list[object] = []
    ended: list[BaseException] = []

    def take() -> None:
        try:
            while True:
                kept.extend(loader)
        except uringload.Error as error:
            ended.append(error)

    thread = threading.Thread(target=take)
    thread.start()
    deadline = time.perf_counter() + 60
    for _ in range(200):
        time.sleep(0.001)
        assert time.perf_counter() < deadline, "the waiting thread holds the interpreter's lock"
    assert thread.is_alive()
    loader.close()
    thread.join(60)
    assert not thread.is_alive() and "closed" in str(ended[0])


@pytest.mark.parametrize("how", ["end", "exit", "thread", "exception", "transform"])
def test_the_interpreter_ends_with_reads_in_flight(records: pathlib.Path, how: str) -> None:
    code = """
        import sys, threading, os
        import uringload
        how = sys.argv[2]
        transform = (lambda batch: batch) if how == "transform" else None
        loader = uringload.DataLoader(sys.argv[1], record_bytes=256, batch_size=2, output="numpy", shuffle=True,
                                      batch_transform=transform)
        batches = iter(loader)
        kept = [next(batches) for _ in range(3)]
        if how == "thread":
            def forever():
                while True:
                    for _ in loader:
                        pass
            threading.Thread(target=forever, daemon=True).start()
        if how == "exit":
            sys.exit(3)
        if how == "exception":
            raise ValueError("on purpose")
    """
    for _ in range(3):
        done = run(code, str(records), how)
        assert done.returncode == {"exit": 3, "exception": 1}.get(how, 0), done.stderr
        if how in ("end", "exit", "transform"):
            assert done.stderr == ""


def test_a_loader_that_is_dropped_ends(records: pathlib.Path) -> None:
    def tasks() -> list[str]:
        """Threads of ours: those of NumPy and torch come and go as they like."""
        names = []
        for task in os.listdir("/proc/self/task"):
            try:
                names.append(pathlib.Path("/proc/self/task", task, "comm").read_text())
            except OSError:
                pass
        return [name for name in names if name.startswith("uringload")]

    before = len(tasks())
    for _ in range(20):
        loader = DataLoader(**of_records(records))
        next(iter(loader))
        assert tasks()
        del loader
    # They end by themselves, which takes as long as they have to wait for a processor.
    # While others end, a listing of threads may lack some that are there, so one look is not enough.
    deadline, looks = time.perf_counter() + 60, 0
    while looks < 5:
        assert time.perf_counter() < deadline, tasks()
        looks = looks + 1 if len(tasks()) <= before else 0
        time.sleep(0.01)


def test_transforms_keep_the_order_and_the_state(records: pathlib.Path) -> None:
    def slow(batch: object) -> list[int]:
        found = numbers(batch)
        time.sleep(0.001 * (found[0] % 5))
        return found

    given = of_records(records, shuffle=True, batch_transform=slow)
    for threads in (0, 1, 4):
        with DataLoader(**{**given, "num_threads": threads}) as loader:
            whole = list(loader)
            assert sorted(sum(whole, [])) == list(range(RECORDS))
            loader.set_epoch(0)
            batches = iter(loader)
            taken = [next(batches) for _ in range(7)]
            state = loader.state_dict()
            assert state["position"] == 7 * 32, "what is being transformed was not delivered"
            loader.load_state_dict(state)
            assert taken + list(loader) == whole


def test_samples_are_transformed_and_collated(folder: pathlib.Path) -> None:
    def transform(sample: dict[str, object]) -> tuple[int, int]:
        return len(sample["data"]), int(sample["label"])  # type: ignore[arg-type, call-overload]

    with DataLoader(folder, batch_size=50, output="numpy", transform=transform, collate="list") as loader:
        batches = list(loader)
        assert [len(batch) for batch in batches] == [50] * 4 and batches[0][0][1] == 0

    def collate(samples: list[tuple[int, int]]) -> int:
        return sum(length for length, _ in samples)

    with DataLoader(folder, batch_size=50, output="numpy", transform=transform, collate_fn=collate) as loader:
        assert sum(loader) == loader.dataset.nbytes
    with DataLoader(folder, batch_size=50, output="numpy", collate=len) as loader:
        assert list(loader) == [50] * 4


@pytest.mark.parametrize("threads", [0, 2])
def test_an_exception_in_a_transform_comes_in_its_place(records: pathlib.Path, threads: int) -> None:
    def breaks(batch: object) -> list[int]:
        found = numbers(batch)
        if 100 in found:
            raise KeyError("on purpose")
        return found

    with DataLoader(**of_records(records, batch_transform=breaks, num_threads=threads)) as loader:
        batches, seen, failed = iter(loader), [], 0
        while True:
            try:
                seen += next(batches)
            except StopIteration:
                break
            except KeyError as error:
                assert "on purpose" in str(error) and len(seen) == 96
                failed += 1
                assert loader.state_dict()["position"] == 96, "going on from here tries it again"
        assert failed == 1 and len(seen) == RECORDS - 32
        assert loader.epoch == 1


@pytest.mark.parametrize("threads", [0, 2])
def test_a_transform_that_stops_does_not_end_the_pass(records: pathlib.Path, threads: int) -> None:
    def stops(batch: object) -> object:
        return next(iter([]))

    with DataLoader(**of_records(records, batch_transform=stops, num_threads=threads)) as loader:
        with pytest.raises(RuntimeError, match="raised StopIteration"):
            list(loader)


def test_ctrl_c_in_a_transform_loses_nothing(records: pathlib.Path) -> None:
    code = """
        import os, signal, sys, threading, time
        import uringload

        def slow(batch):
            number = batch.ids[0] // 20
            if number in (5, 20, 35):
                # One after the other: signals that are on their way at the same time are one.
                while interrupts < (5, 20, 35).index(number):
                    time.sleep(0.001)
                os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.002)
            return batch.ids[0]

        loader = uringload.DataLoader(sys.argv[1], record_bytes=256, batch_size=20, output="dlpack", num_threads=1,
                                      batch_transform=slow)
        interrupts = 0
        batches, seen = iter(loader), []
        while True:
            try:
                for first in batches:
                    seen.append(first)
                break
            except KeyboardInterrupt:
                interrupts += 1
        print(interrupts, len(seen), len(set(seen)))
    """
    done = run(code, str(records), timeout=120)
    interrupts, seen, different = map(int, done.stdout.split())
    # One that comes between the wait and the list takes a number along.
    assert interrupts == 3 and seen == different and seen >= 47, done.stdout + done.stderr


def test_bad_samples(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    for index in range(20):
        (tmp_path / f"{index:02}.dat").write_bytes(bytes([index]) * 100)
    dataset = uringload.Dataset(tmp_path)
    os.truncate(tmp_path / "07.dat", 10)
    given = {"batch_size": 5, "output": "numpy"}
    with DataLoader(dataset, **given) as loader:
        batches = iter(loader)
        assert len(next(batches).ids) == 5
        with pytest.raises(uringload.TruncatedError) as caught:
            next(batches)
        assert caught.value.file == str(tmp_path / "07.dat") and caught.value.remedy
        assert loader.state_dict()["position"] == 5
        assert [batch.ids[0] for batch in batches] == [10, 15], "it goes on after the batch"
    time = os.stat(tmp_path / "07.dat").st_mtime_ns
    dataset = uringload.Dataset(tmp_path)
    (tmp_path / "new").write_bytes(bytes(10))
    os.utime(tmp_path / "new", ns=(time, time))
    os.replace(tmp_path / "new", tmp_path / "07.dat")
    with DataLoader(dataset, **given, on_error="skip") as loader:
        assert sum(len(batch.ids) for batch in loader) == 19, "a file of the same size and time took its place"
    with DataLoader(dataset, **given) as loader, pytest.raises(uringload.ChangedError, match="07.dat"):
        list(loader)
    with DataLoader(dataset, on_error="warn", quarantine=tmp_path.parent / "bad.jsonl", **given) as loader:
        batches = list(loader)
        assert [len(batch.ids) for batch in batches] == [5, 4, 5, 5]
        number, position, error, replaced = batches[1].failed[0]
        assert (number, position, replaced) == (7, 7, None) and isinstance(error, uringload.ChangedError)
        assert "07.dat" in caplog.text
    with DataLoader(dataset, on_error="replace", **given) as loader:
        assert [len(batch.ids) for batch in loader] == [5, 5, 5, 5]
    with DataLoader(dataset, on_error="skip", max_failures=0, **given) as loader:
        with pytest.raises(uringload.TooManyFailuresError):
            list(loader)


def test_an_error_in_the_place_of_the_last_batch_ends_the_pass(tmp_path: pathlib.Path) -> None:
    for index in range(20):
        (tmp_path / f"{index:02}.dat").write_bytes(bytes([index]) * 100)
    dataset = uringload.Dataset(tmp_path)
    os.truncate(tmp_path / "19.dat", 10)
    with DataLoader(dataset, batch_size=5, output="numpy") as loader:
        for epoch in range(3):
            batches, seen = iter(loader), []
            while True:
                try:
                    batch = next(batches)
                    assert batch.epoch == epoch
                    seen += batch.ids
                except uringload.TruncatedError:
                    seen.append(-1)
                except StopIteration:
                    break
            assert seen == [*range(15), -1]
            assert loader.state_dict()["epoch"] == epoch and loader.state_dict()["position"] == 15


def _resident() -> int:
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _leak(records: pathlib.Path, batches: int) -> None:
    """Two loaders of 6 MiB: their arenas take these from the system bit by bit, and nothing else may grow."""
    given = of_records(records, shuffle=True, batch_size=8, key=True, memory_limit="6MiB")
    with DataLoader(**given) as loader, DataLoader(**{**given, "output": "dlpack", "collate": "list"}) as other:

        def consume(count: int) -> None:
            while count > 0:
                for batch, listed in zip(loader, other):
                    assert batch["key"] and len(listed["data"]) == 8
                    count -= 1

        consume(2000)
        gc.collect()
        before = _resident(), sys.getallocatedblocks()
        consume(batches)
        gc.collect()
        grown = _resident() - before[0], sys.getallocatedblocks() - before[1]
    assert grown[0] < 13 << 20, f"{grown[0]} bytes more after {batches} batches"
    assert grown[1] < 500, f"{grown[1]} objects more after {batches} batches"


def test_memory_stays_flat(records: pathlib.Path) -> None:
    _leak(records, 4000)


@pytest.mark.slow
def test_memory_stays_flat_for_long(records: pathlib.Path) -> None:
    _leak(records, 100_000)
