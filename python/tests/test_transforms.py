"""The user's own functions: whose error is whose, what they draw, what they return, and their time."""

from __future__ import annotations

import functools
import gc
import json
import os
import pathlib
import pickle
import re
import subprocess
import sys
import threading
import time
import traceback
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from conftest import RECORDS, judged, needs_numpy, of_records

import uringload
from uringload import DataLoader

pytestmark = needs_numpy

BAD = {7, 40, 41, 999}


def number(sample: dict[str, Any]) -> int:
    return int(sample["data"][0])


def breaks(sample: dict[str, Any]) -> int:
    found = number(sample)
    if found in BAD:
        raise OSError(f"image file is truncated ({found})")
    return found


def drained(loader: DataLoader, get: Callable[[Any], list[int]] = lambda batch: batch.tolist()) -> list[list[int]]:
    """What the batches of a pass hold; an error in the place of one is an empty list."""
    batches, seen = iter(loader), []
    while True:
        try:
            seen.append(get(next(batches)))
        except StopIteration:
            return seen
        except OSError:
            seen.append([])


@pytest.mark.parametrize("threads", [0, 3])
def test_an_error_of_a_sample_names_it(folder: pathlib.Path, threads: int) -> None:
    """`raise`, the default: number, key, file and offset are in the exception's notes, and its own type stays."""

    def transform(sample: dict[str, Any]) -> int:
        if sample["data"][0] == 33:
            raise KeyError("no such pixel")
        return 1

    given = {"batch_size": 10, "output": "numpy", "num_threads": threads, "transform": transform}
    with DataLoader(folder, **given) as loader:
        wrong = next(index for index in range(200) if "0033.dat" in loader.dataset.key(index))
        batches, failed, seen = iter(loader), [], 0
        while True:
            try:
                seen += len(next(batches))
            except StopIteration:
                break
            except KeyError as error:
                failed.append(error)
                assert loader.state_dict()["position"] == wrong // 10 * 10, "a resume tries the batch again"
        (error,) = failed
        (note,) = error.__notes__
        key = loader.dataset.key(wrong)
        assert f"sample {wrong} (key {key!r}), in {folder / 'cat' / '0033.dat'} at byte 0, epoch 0" in note
        if hasattr(error, "add_note"):
            assert note in "".join(traceback.format_exception(error))
        assert seen == 190 and loader.stats()["samples_failed"] == 1


def test_the_offset_is_that_of_the_sample(records: pathlib.Path) -> None:
    with DataLoader(**of_records(records, transform=breaks)) as loader, pytest.raises(OSError) as caught:
        list(loader)
    assert f"{records} at byte {7 * 256}" in caught.value.__notes__[0]


@pytest.mark.parametrize("on_error", ["raise", "warn", "skip", "replace"])
@pytest.mark.parametrize("threads", [0, 4])
def test_every_policy_is_obeyed(
    records: pathlib.Path, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture, on_error: str, threads: int
) -> None:
    """One bad sample costs no other: all but the bad ones come, in order, in as many batches as ever."""
    listed = tmp_path / "bad.jsonl"
    given = of_records(records, transform=breaks, on_error=on_error, num_threads=threads, quarantine=listed)
    with DataLoader(**given) as loader:
        seen = drained(loader)
        stats = loader.stats()
    assert len(seen) == 32, "ranks have the same number of batches"
    there = [list(range(start, min(start + 32, RECORDS))) for start in range(0, RECORDS, 32)]
    for batch, all_of_it in zip(seen, there):
        bad = BAD & set(all_of_it)
        if on_error == "raise" and bad:
            assert batch == []
        elif on_error == "replace":
            assert len(batch) == len(all_of_it)
            assert [new == old for new, old in zip(batch, all_of_it)] == [old not in BAD for old in all_of_it]
        else:
            assert batch == [one for one in all_of_it if one not in BAD]
    counted = {"raise": "samples_failed", "replace": "samples_replaced"}.get(on_error, "samples_skipped")
    # Of a batch in whose place there is an error, the first that failed is told.
    found = {7, 40, 999} if on_error == "raise" else BAD
    assert stats[counted] == len(found)
    assert (caplog.text.count("image file is truncated") == len(BAD)) == (on_error == "warn")
    lines = [json.loads(line) for line in listed.read_text().splitlines()]
    assert {line["id"] for line in lines} == found and all(line["position"] == line["id"] for line in lines)
    for line in lines:
        assert (line["kind"], line["file"], line["offset"]) == ("Transform", str(records), line["id"] * 256)
        assert f"OSError: image file is truncated ({line['id']})" in line["reason"]
        assert ("replaced_by" in line) == (on_error == "replace")
    with DataLoader(**{**given, "exclude": listed, "quarantine": None, "on_error": "raise", "batch_size": 1}) as loader:
        assert len(loader) == RECORDS - len(found), "the list is one that exclude reads"


def test_failed_samples_are_in_the_batch(records: pathlib.Path) -> None:
    def transform(sample: dict[str, Any]) -> dict[str, Any]:
        return {"x": breaks(sample)}

    for on_error in ("skip", "replace"):
        with DataLoader(**of_records(records, transform=transform, on_error=on_error)) as loader:
            batch = list(loader)[1]
        assert batch.ids == batch["x"].tolist(), "numbers are those of the samples in it"
        assert [(entry[0], entry[1]) for entry in batch.failed] == [(40, 40), (41, 41)]
        for _, _, error, replaced_by in batch.failed:
            assert isinstance(error, uringload.TransformError) and isinstance(error.__cause__, OSError)
            assert error.kind == "Transform" and error.file == str(records) and error.offset
            assert (replaced_by in batch.ids) if on_error == "replace" else replaced_by is None
        again = pickle.loads(pickle.dumps(batch))
        assert again.ids == batch.ids and [str(entry[2]) for entry in again.failed] == [
            str(entry[2]) for entry in batch.failed]


def test_replacements_are_the_librarys(records: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The same sample stands in, whether one cannot be read or not be used, on any rank and in any epoch."""
    for index in range(50):
        (tmp_path / f"{index:02}.dat").write_bytes(bytes([index]) * 10)
    given: dict[str, Any] = {"batch_size": 5, "output": "numpy", "on_error": "replace", "seed": 5}
    dataset = uringload.Dataset(tmp_path)

    def transform(sample: dict[str, Any]) -> dict[str, Any]:
        if sample["data"][0] in (7, 31):
            raise ValueError("on purpose")
        return sample

    def replaced(loader: DataLoader) -> dict[int, int]:
        return {old: new for batch in loader for old, _, _, new in batch.failed}

    with DataLoader(dataset, transform=transform, **given) as loader:
        ours = replaced(loader)
        assert replaced(loader) == ours and set(ours) == {7, 31}, "in the next epoch, too"
    halves: dict[int, int] = {}
    for rank in (0, 1):
        with DataLoader(dataset, transform=transform, rank=rank, world_size=2, **given) as loader:
            assert len(list(loader)) == len(loader) == 5
            loader.set_epoch(0)
            halves |= replaced(loader)
    assert halves == ours
    for index in (7, 31):
        os.truncate(tmp_path / f"{index:02}.dat", 3)
    with DataLoader(dataset, **given) as loader:
        assert replaced(loader) == ours


def test_where_no_sample_can_stand_in_the_error_says_so(records: pathlib.Path) -> None:
    def never(sample: dict[str, Any]) -> int:
        raise ValueError("never")

    with DataLoader(**of_records(records, transform=never, on_error="replace")) as loader:
        with pytest.raises(ValueError) as caught:
            next(iter(loader))
    assert "16 failed" in caught.value.__notes__[-1] and "sample 0 " in caught.value.__notes__[0]


@pytest.mark.parametrize("limit", [2, 0.0025])
@pytest.mark.parametrize("threads", [0, 3])
def test_the_limit_ends_the_pass(records: pathlib.Path, limit: float, threads: int) -> None:
    given = of_records(records, transform=breaks, on_error="skip", num_threads=threads)
    with DataLoader(**given, max_failures=limit) as loader:
        seen, batches = 0, iter(loader)
        with pytest.raises(uringload.TooManyFailuresError, match="3 ") as caught:
            for batch in batches:
                seen += len(batch)
        assert seen == 31 and isinstance(caught.value.__cause__, OSError)
        assert loader.state_dict()["position"] == 32, "before the batch that was too much"
        assert list(batches) == [], "nothing comes after it"
        with pytest.raises(uringload.TooManyFailuresError):
            list(loader)
    with DataLoader(**given, max_failures=4) as loader:
        assert sum(map(len, loader)) == RECORDS - 4


def test_failures_of_both_kinds_count_together(tmp_path: pathlib.Path) -> None:
    for index in range(20):
        (tmp_path / f"{index:02}.dat").write_bytes(bytes([index]) * 100)
    dataset = uringload.Dataset(tmp_path)
    os.truncate(tmp_path / "03.dat", 10)

    def transform(sample: dict[str, Any]) -> int:
        if sample["data"][0] == 17:
            raise ValueError("on purpose")
        return 0

    given: dict[str, Any] = {"batch_size": 5, "output": "numpy", "on_error": "skip", "transform": transform}
    with DataLoader(dataset, max_failures=2, **given) as loader:
        assert sum(map(len, loader)) == 18
    with DataLoader(dataset, max_failures=1, **given) as loader:
        with pytest.raises(uringload.TooManyFailuresError, match="2 samples failed, and max_failures allows 1"):
            list(loader)


def test_a_batch_whose_samples_all_fail_is_empty_and_comes(records: pathlib.Path) -> None:
    def transform(sample: dict[str, Any]) -> int:
        if number(sample) < 32:
            raise ValueError("on purpose")
        return number(sample)

    with DataLoader(**of_records(records, transform=transform, on_error="skip", collate_fn=sum)) as loader:
        first, *others = list(loader)
        assert len(loader) == 32 == 1 + len(others) and others[0] == sum(range(32, 64))
        assert isinstance(first, uringload.Batch) and not first and first.ids == [] and len(first.failed) == 32


@pytest.mark.parametrize("what", ["batch_transform", "collate"])
@pytest.mark.parametrize("threads", [0, 2])
def test_an_error_of_a_batch_names_the_batch(records: pathlib.Path, what: str, threads: int) -> None:
    """It is no sample's fault, so no policy about samples applies."""

    def of_batch(batch: Any) -> int:
        first = batch.ids[0] if what == "batch_transform" else number(batch[0])
        if first == 64:
            raise ValueError("on purpose")
        return 1

    given = of_records(records, on_error="skip", num_threads=threads, max_failures=0)
    with DataLoader(**{**given, what: of_batch}) as loader:
        batches, seen = iter(loader), 0
        with pytest.raises(ValueError) as caught:
            for one in batches:
                seen += one
        assert seen == 2 and caught.value.__notes__ == [
            f"in {what} of the batch at position 64 of epoch 0 (samples 64, 65, 66, 67, ... 95)"]
        assert sum(batches) == 29, "the pass goes on after it"


@pytest.mark.parametrize("threads", [0, 2])
def test_a_transform_of_samples_that_stops_does_not_end_the_pass(records: pathlib.Path, threads: int) -> None:
    def stops(sample: dict[str, Any]) -> Any:
        return next(iter([]))

    with DataLoader(**of_records(records, transform=stops, num_threads=threads)) as loader:
        with pytest.raises(RuntimeError, match="a transform raised StopIteration"):
            list(loader)
    with DataLoader(**of_records(records, transform=stops, num_threads=threads, on_error="skip")) as loader:
        assert len(list(loader)) == 32


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("threads", [0, 2])
def test_an_exception_keeps_no_batch_alive(records: pathlib.Path, on_error: str, threads: int) -> None:
    """Its frames hold the sample. Once it is dropped, so is the sample, whenever the garbage collector comes."""
    seen: list[weakref.ref[Any]] = []

    def transform(sample: dict[str, Any]) -> int:
        # A view, which holds the batch's memory.
        part = sample["data"][:3]
        seen.append(weakref.ref(part))
        return breaks(sample)

    def alive() -> list[Any]:
        return [part for part in (each() for each in seen) if part is not None]

    with DataLoader(**of_records(records, transform=transform, on_error=on_error, num_threads=threads)) as loader:
        gc.collect()
        gc.disable()
        try:
            assert len(drained(loader)) == 32
            deadline = time.perf_counter() + 60
            # A thread lets go of its last batch when it takes the next.
            while len(alive()) > threads and time.perf_counter() < deadline:
                time.sleep(0.01)
            assert len(seen) >= RECORDS - 100 and len(alive()) <= threads
        finally:
            gc.enable()


# Random numbers.


def drawing(sample: dict[str, Any], rng: Any) -> tuple[int, float]:
    return number(sample), float(rng.random())


def draws(records: pathlib.Path, transform: Any = drawing, epoch: int = 0, **given: Any) -> dict[int, float]:
    with DataLoader(**of_records(records, **{"shuffle": True, "transform": transform, **given})) as loader:
        loader.set_epoch(epoch)
        found: dict[int, float] = {}
        for numbers, values in loader:
            found.update(zip(numbers.tolist(), values.tolist()))
    return found


def test_what_a_sample_draws_is_a_function_of_seed_epoch_and_sample(records: pathlib.Path) -> None:
    once = draws(records)
    assert len(once) == RECORDS == len(set(once.values()))
    for threads in (0, 1, 5):
        assert draws(records, num_threads=threads) == once
    ranks = [draws(records, rank=rank, world_size=3, drop_last=False, batch_size=10) for rank in range(3)]
    assert {**ranks[0], **ranks[1], **ranks[2]} == once
    assert draws(records, shuffle=False, batch_size=7) == once
    for other in (draws(records, epoch=1), draws(records, seed=1)):
        assert not set(other.values()) & set(once.values())
    # Runs that are resumed with a later version must draw as before.
    assert [round(once[number], 6) for number in (0, 1, 999)] == GOLDEN


GOLDEN = [0.121987, 0.637716, 0.872598]


def test_a_resumed_pass_draws_the_same(records: pathlib.Path) -> None:
    with DataLoader(**of_records(records, shuffle=True, transform=drawing)) as loader:
        batches = iter(loader)
        for _ in range(5):
            next(batches)
        state = loader.state_dict()
        rest = [[column.tolist() for column in batch] for batch in batches]
    with DataLoader(**of_records(records, shuffle=True, transform=drawing, num_threads=0)) as loader:
        loader.load_state_dict(state)
        assert [[column.tolist() for column in batch] for batch in loader] == rest


def test_the_kind_of_generator_follows_from_the_signature(records: pathlib.Path) -> None:
    import random

    import numpy as np

    def named(sample: Any, rng: Any) -> Any:
        return rng

    def of_numpy(sample: Any, draw: np.random.Generator) -> Any:
        return draw

    def of_python(sample: Any, draw: random.Random) -> Any:
        return draw

    def in_words(sample: Any, draw: "np.random.Generator") -> Any:
        return draw

    def by_name(sample: Any, random: Any) -> Any:
        return random

    def by_keyword(sample: Any, *, rng: Any = None) -> Any:
        return rng

    class Augment:
        def __call__(self, sample: Any, rng: Any) -> Any:
            return rng

    kinds = {named: np.random.Generator, of_numpy: np.random.Generator, in_words: np.random.Generator,
             of_python: random.Random, by_name: random.Random, by_keyword: np.random.Generator,
             Augment(): np.random.Generator, lambda sample, g: g: np.random.Generator}
    for transform, kind in kinds.items():
        with DataLoader(**of_records(records, transform=transform, collate="list", batch_size=2)) as loader:
            got = next(iter(loader))
        assert all(type(one) is kind for one in got) and got[0] is not got[1], transform

    def sized(sample: Any, size: int = 3) -> int:
        return size

    bound = functools.partial(named, rng=3)
    for transform in (sized, bound, lambda sample: 3, lambda sample, **others: 3, lambda *samples: 2 + len(samples)):
        with DataLoader(**of_records(records, transform=transform, batch_size=2)) as loader:
            assert next(iter(loader)).tolist() == [3, 3], "a default that is no generator's is left alone"


def test_generators_of_torch(records: pathlib.Path) -> None:
    torch = pytest.importorskip("torch")

    def by_name(sample: dict[str, Any], generator: Any) -> tuple[int, float]:
        return number(sample), float(torch.rand((), generator=generator, dtype=torch.float64))

    def annotated(sample: dict[str, Any], g: torch.Generator) -> tuple[int, float]:
        return by_name(sample, g)

    class Module(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, sample: dict[str, Any], generator: Any) -> tuple[int, float]:
            return by_name(sample, generator)

    once = draws(records, by_name)
    assert once == draws(records, annotated, num_threads=0) == draws(records, Module()) != draws(records, by_name, 1)


def test_worker_init_fn_is_called_once_in_each_thread(records: pathlib.Path) -> None:
    begun: list[tuple[int, int]] = []

    def init(number: int) -> None:
        begun.append((number, threading.get_ident()))

    def transform(sample: dict[str, Any]) -> bool:
        end = time.monotonic() + 60
        # No thread is done with all before the others have begun.
        while len(begun) < 3 and time.monotonic() < end:
            time.sleep(0.0002)
        return threading.get_ident() in {thread for _, thread in begun}

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with DataLoader(**of_records(records, transform=transform, num_threads=3, worker_init_fn=init)) as loader:
            assert all(batch.all() for _ in range(2) for batch in loader), "before the thread's first sample"
    assert sorted(number for number, _ in begun) == [0, 1, 2] and len({thread for _, thread in begun}) == 3
    for given in ({"transform": transform, "num_threads": 0}, {}):
        with pytest.warns(uringload.IgnoredArgumentWarning, match="worker_init_fn is ignored: with"):
            DataLoader(**of_records(records, worker_init_fn=init, **given)).close()

    def fails(number: int) -> None:
        raise ValueError("not today")

    with DataLoader(**of_records(records, transform=number, num_threads=2, worker_init_fn=fails)) as loader:
        for _ in range(3):
            with pytest.raises(ValueError, match="not today"):
                next(iter(loader))
    with pytest.raises(uringload.ArgumentTypeError, match="worker_init_fn is a int"):
        DataLoader(**of_records(records, worker_init_fn=3))


class Seeded:
    """What counts of a torch.Generator."""

    def initial_seed(self) -> int:
        return 42


def test_a_generator_gives_its_seed(records: pathlib.Path) -> None:
    with pytest.warns(uringload.IgnoredArgumentWarning, match="generator is ignored: except for its seed: seed=42"):
        loader = DataLoader(**of_records(records, shuffle=True, generator=Seeded()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = pickle.loads(pickle.dumps(loader))
    with loader, again, DataLoader(**of_records(records, shuffle=True, seed=42)) as seeded:
        assert [b.ids for b in loader] == [b.ids for b in seeded] == [b.ids for b in again]
    with pytest.raises(uringload.InvalidArgumentError, match="seed is 7, and that of generator is 42"):
        DataLoader(**of_records(records, seed=7, generator=Seeded()))


# Whose time it is. The verdict is one on measured times, so it belongs to the slow suite.


def test_what_transforms_take_is_counted(records: pathlib.Path) -> None:
    for threads in (2, 0):
        # So few samples may be done before the second thread begins.
        all_begin, begun = threading.Barrier(max(threads, 1)), threading.Event()

        def transform(sample: Any) -> Any:
            if not begun.is_set():
                all_begin.wait(60)
                begun.set()
            return number(sample)

        with DataLoader(**of_records(records, transform=transform, num_threads=threads)) as loader:
            assert sum(1 for _ in loader) == 32
            stats = loader.stats()
        at_work = [times for role, times in stats["threads"] if role == "transform"]
        assert len(at_work) == max(threads, 1) and sum(times["transform"] for times in at_work) > 0
        assert stats["samples_transformed"] == RECORDS and stats["transform_cpu_s"] > 0
        assert stats["batches"] == 32 and stats["batch_wait"]["count"] == 32


@pytest.mark.slow
def test_the_verdict_knows_a_slow_transform(records: pathlib.Path) -> None:
    def slow(sample: dict[str, Any]) -> int:
        time.sleep(0.001)
        return 1

    def run(threads: int) -> tuple[uringload.Verdict, uringload.Stats]:
        with DataLoader(**of_records(records, transform=slow, num_threads=threads)) as loader:
            for _ in loader:
                pass
            return loader.verdict(), loader.stats()

    for threads in (2, 0):
        verdict, stats = judged("transform", lambda threads=threads: run(threads))  # type: ignore[misc]
        assert verdict.share > 0.5, verdict
        said = re.match(r"your transform: (\d+\.\d+) ms a sample x (\d) threads; it mostly waits", verdict.advice)
        assert said is not None and 1 <= float(said[1]) < 50 and int(said[2]) == max(threads, 1), verdict
        at_work = [times for role, times in stats["threads"] if role == "transform"]
        assert len(at_work) == max(threads, 1) and sum(times["transform"] for times in at_work) >= 1.0
        assert stats["samples_transformed"] == RECORDS and 0 < stats["transform_cpu_s"] < 1
        assert stats["batch_wait"]["p50_s"] > 0.01 or threads == 2, "the user waited for it"


@pytest.mark.slow
def test_the_verdict_knows_a_slow_collate_function_and_a_slow_batch_transform(records: pathlib.Path) -> None:
    def slow(batch: Any) -> int:
        time.sleep(0.02)
        return 1

    def run(what: str) -> tuple[uringload.Verdict, None]:
        with DataLoader(**of_records(records, num_threads=1, **{what: slow})) as loader:
            list(loader)
            return loader.verdict(), None

    for what, told in (("collate_fn", "your collate function: "), ("batch_transform", "your transform: ")):
        verdict, _ = judged("transform", lambda what=what: run(what))  # type: ignore[misc]
        assert verdict.advice.startswith(told)


@pytest.mark.slow
def test_the_verdict_knows_a_slow_trainer(records: pathlib.Path) -> None:
    """A loader that reads and transforms ahead of a slow trainer keeps no one waiting."""

    def run() -> tuple[uringload.Verdict, uringload.Stats]:
        with DataLoader(**of_records(records, transform=number, num_threads=2)) as loader:
            for _ in loader:
                time.sleep(0.02)
            return loader.verdict(), loader.stats()

    verdict, stats = judged("trainer", run)
    assert verdict.share > 0.5, (verdict, stats)
    assert stats["batches"] == 32 and stats["batches_ready"] >= 16 and stats["batch_wait"]["count"] == 32


# How a transform's result becomes a batch.


def test_what_is_returned_is_stacked(records: pathlib.Path) -> None:
    import numpy as np

    def transform(sample: dict[str, Any]) -> dict[str, Any]:
        found = number(sample)
        return {"x": sample["data"][:4].reshape(2, 2), "n": found, "f": found / 2, "even": found % 2 == 0,
                "name": f"no {found}", "at": np.float32(found), "in": {"deep": (found, sample["data"][0])},
                "none": None, "raw": b"x"}

    with DataLoader(**of_records(records, transform=transform)) as loader:
        batch = next(iter(loader))
    assert isinstance(batch, uringload.Batch) and batch.ids == list(range(32)) == batch["n"].tolist()
    assert batch["x"].shape == (32, 2, 2) and batch["x"].dtype == np.int32 and batch["n"].dtype == np.int64
    assert batch["f"].dtype == np.float64 and batch["even"].dtype == bool and batch["at"].dtype == np.float32
    assert batch["name"][3] == "no 3" and batch["none"] == [None] * 32 and batch["raw"] == [b"x"] * 32
    deep, first = batch["in"]["deep"]
    assert type(batch["in"]) is dict and deep.tolist() == first.tolist() == list(range(32))
    assert [sample["n"] for sample in batch.samples()] == list(range(32))
    with DataLoader(**of_records(records, transform=lambda sample: (sample["data"], number(sample)))) as loader:
        for x, y in loader:
            assert x.shape == (len(y), 64) and x[:, 0].tolist() == y.tolist()
    with DataLoader(**of_records(records, transform=lambda sample: sample["data"][:3])) as loader:
        assert next(iter(loader)).shape == (32, 3)
    with DataLoader(**of_records(records, transform=transform, collate="list")) as loader:
        listed = next(iter(loader))
    assert isinstance(listed, list) and len(listed) == 32 and listed[5]["n"] == 5 and listed[5]["x"].shape == (2, 2)


def test_what_cannot_be_stacked_stays_a_list_and_the_log_says_so_once(
    records: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    def ragged(sample: dict[str, Any]) -> dict[str, Any]:
        found = number(sample)
        return {"n": found, "ragged": sample["data"][: 1 + found % 3], "thing": object(), "longs": [0] * (found % 2)}

    with DataLoader(**of_records(records, transform=ragged)) as loader:
        batches = list(loader)
    assert all(isinstance(batch["ragged"], list) and len(batch["n"]) == len(batch["ragged"]) for batch in batches)
    assert [len(one) for one in batches[0]["ragged"][:4]] == [1, 2, 3, 1]
    told = sorted(record.message for record in caplog.records if "stays a list" in record.message)
    assert len(told) == 3 and "'longs'" in told[0] and "shapes differ: (" in told[1] and "'ragged'" in told[1]
    assert "builtins.object" in told[2]
    caplog.clear()

    def other_keys(sample: dict[str, Any]) -> dict[str, Any]:
        return {str(number(sample)): 1}

    with DataLoader(**of_records(records, transform=other_keys)) as loader:
        assert all(isinstance(batch, list) for batch in loader)
    assert caplog.text.count("the batch of transformed samples stays a list") == 1


def test_torch_stacks_as_its_own_collate_does(records: pathlib.Path) -> None:
    torch = pytest.importorskip("torch")
    import numpy as np

    def transform(sample: dict[str, Any]) -> dict[str, Any]:
        found = int(sample["data"][0])
        return {"t": sample["data"].float(), "a": np.arange(3) + found, "i": found, "f": found / 2, "b": found > 3,
                "s": str(found), "p": (found, np.float32(1)), "l": [found, 2], "d": {"k": sample["data"][:2]}}

    given = of_records(records, output="torch", transform=transform, batch_size=8)
    with DataLoader(**given) as ours, DataLoader(**given, collate="list") as plain:
        made, samples = next(iter(ours)), next(iter(plain))
    theirs = torch.utils.data.default_collate(samples)

    def same(one: Any, other: Any) -> bool:
        if isinstance(other, torch.Tensor):
            return one.dtype == other.dtype and torch.equal(one, other)
        if isinstance(other, dict):
            return one.keys() == other.keys() and all(same(one[key], other[key]) for key in other)
        if isinstance(other, (list, tuple)):
            return len(one) == len(other) and all(map(same, one, other))
        return bool(one == other)

    assert same(made, theirs), (made, theirs)


def test_batches_as_tuples(folder: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    given: dict[str, Any] = {"batch_size": 8, "output": "numpy", "collate": "tuple"}
    with caplog.at_level("INFO", "uringload"), DataLoader(folder, **given) as loader:
        for x, y in loader:
            assert len(x) == len(y) == 8
        assert list(loader.read([1, 2])) == list(loader.dataset.columns) == ["data", "label"], "read gives columns"
    assert caplog.text.count('collate="tuple" gives (data, label)') == 1
    with DataLoader(folder, **given, transform=lambda sample: {"y": sample["label"], "x": 1}) as loader:
        y, x = next(iter(loader))
        assert x.tolist() == [1] * 8 and set(y.tolist()) <= {0, 1}
    with DataLoader(folder, **given, batch_transform=lambda batch: (len(batch), batch[1])) as loader:
        assert next(iter(loader))[0] == 2


def test_windows_of_tokens_have_a_label_for_each_id(tmp_path: pathlib.Path) -> None:
    import numpy as np

    path = tmp_path / "tokens.bin"
    path.write_bytes(np.arange(2000, dtype=np.uint16).tobytes())
    given: dict[str, Any] = {"format": "tokens", "token_dtype": "u16", "window_tokens": 11, "batch_size": 4,
                             "output": "numpy"}
    for tokens, length in ((uringload.Tokens(), 10), (uringload.Tokens(labels=False), 11),
                           (uringload.Tokens(seq_len=11), 11), (uringload.Tokens(seq_len=4), 4)):
        with DataLoader(path, **given, transforms={"tokens": tokens}) as loader:
            batch = next(iter(loader))
        assert batch["tokens"].shape == (4, length)
        if tokens.labels and length < 11:
            assert (batch["labels"] == batch["tokens"] + 1).all()


def test_packed_rows_have_no_samples_to_transform(tmp_path: pathlib.Path) -> None:
    given: dict[str, Any] = {"batch_size": 2, "output": "numpy", "packing": "concat", "seq_len": 8, "transform": len}
    (tmp_path / "0.dat").write_bytes(bytes(100))
    with pytest.raises(uringload.InvalidArgumentError, match="packed rows hold pieces of samples"):
        DataLoader(tmp_path, **given)


@pytest.mark.parametrize("how", ["interrupt", "break"])
def test_what_is_queued_keeps_no_process(how: str, records: pathlib.Path) -> None:
    """At Ctrl-C, and after a loop that was left, the sample in work is the last: a batch takes two seconds."""
    script = f"""
import os, signal, threading, time, uringload
def slow(sample):
    time.sleep(0.1)
    return sample
loader = uringload.DataLoader({str(records)!r}, format="records", record_bytes=256, batch_size=20, transform=slow,
                              collate_fn=len, output="numpy", num_threads=2)
if {how!r} == "interrupt":
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    for batch in loader:
        break
finally:
    print(time.time(), flush=True)
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    took = time.time() - float(ended.stdout.split()[-1])
    assert took < 1.5, (took, ended.stderr)
    assert ended.returncode == (0 if how == "break" else -2), ended.stderr


def test_replacements_of_a_batch_are_read_at_once(records: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader is made for each batch with failed samples, and not for each of these."""
    from uringload import _transform

    made = []
    plain = _transform.native.Loader
    monkeypatch.setattr(_transform.native, "Loader", lambda *given, **named: made.append(1) or plain(*given, **named))

    def half(sample: Any) -> Any:
        if sample["data"][0] % 2:
            raise ValueError("odd")
        return sample

    given = of_records(records, batch_size=100, output="numpy", on_error="replace", transform=half)
    with DataLoader(**given) as loader:
        batches = list(loader)
    assert sum(len(batch.ids) for batch in batches) == RECORDS
    assert all(number % 2 == 0 for batch in batches for number in batch.ids)
    # The batches' own, and for each of ten batches one for each attempt that any of its samples needs.
    assert len(made) <= 1 + 10 * _transform.ATTEMPTS
