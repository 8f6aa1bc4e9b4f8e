"""Situations in which the user's own Python is the limit, or is not: the verdict, and what its remedy brings.

The rest of them is in tests/situations.rs.
"""

from __future__ import annotations

import os
import pathlib
import statistics
import time
from typing import Any

import pytest
from conftest import judged, of_records, takes_turns

import uringload

# What these compare is how long threads sleep and work, so a machine with other work decides it.
pytestmark = pytest.mark.slow

# On a machine that others work on too, another program is now and then rightly named: then it is tried again.
TRIES = 8
# A gain is the median of so many.
MEASURED = 5
# A multiple of the threads: what is transformed in turns of eight is not kept waiting by a turn of two.
BATCH = 64
# Of a sample. Long beside what a thread waits for a processor, which no number of threads shortens.
WAIT_S = 0.01
WORK_S = 0.001


def read(
    records: pathlib.Path, step: float = 0.0, spent: list[tuple[float, float]] | None = None, **given: Any
) -> tuple[Any, float]:
    """The verdict on a run, and samples a second. `spent` gets the seconds that each batch was waited for and used."""
    times = [] if spent is None else spent
    times.clear()
    with uringload.DataLoader(**of_records(records, **{"batch_size": BATCH, **given})) as loader:
        begun = asked = time.perf_counter()
        count = 0
        for _ in loader:
            given_at = time.perf_counter()
            count += given.get("batch_size", BATCH)
            time.sleep(step)
            times.append((given_at - asked, time.perf_counter() - given_at))
            asked = time.perf_counter()
        return loader.verdict(), count / (time.perf_counter() - begun)


def find(bottleneck: str, records: pathlib.Path, **given: object) -> tuple[Any, float]:
    """A run of this verdict."""
    return judged(bottleneck, lambda: read(records, **given), TRIES)  # type: ignore[arg-type]


def tell(what: str, remedy: Any, gain: float) -> None:
    """Leaves a row of the table that benches/situations.py makes: what was predicted, and what came."""
    path = os.environ.get("URINGLOAD_SITUATIONS")
    if path is not None and remedy.gain is not None:
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{what}\t{remedy.what}\t{remedy.gain:.3f}\t{gain:.3f}\n")


def waits(sample: Any) -> Any:
    time.sleep(WAIT_S)
    return sample


def holds_the_lock(sample: Any) -> Any:
    end = time.thread_time() + WORK_S
    while time.thread_time() < end:
        pass
    return sample


def test_a_transform_that_waits_wants_threads(records: pathlib.Path) -> None:
    # A thread works on a batch, so there are four for each of eight threads.
    few: dict[str, Any] = {"transform": waits, "num_threads": 2, "batch_size": 16, "only": range(32 * 16)}
    gains, predicted = [], []
    for _ in range(MEASURED):
        # One right after the other: what slows the machine slows both.
        verdict, before = find("transform", records, **few)
        gains.append(read(records, **{**few, "num_threads": 8})[1] / before)
        remedy = verdict.remedies[0]
        assert remedy.what == "num_threads = 8", verdict.remedies
        predicted.append(remedy.gain)
    gain, expected = statistics.median(gains), statistics.median(predicted)
    tell("a transform in Python that waits", remedy, gain)
    if takes_turns():
        pytest.skip(f"skipped: other programs take the processors: {gains} for {predicted}")
    assert gain == pytest.approx(expected, rel=0.25) and expected > 2.5, (gains, predicted)


def test_a_transform_under_pythons_lock_does_not_want_threads(records: pathlib.Path) -> None:
    # A batch takes 64 ms to transform and 10 ms to use. The loop waits for the lock whenever it has slept: CPython lets
    # two busy threads hand it to each other, so that takes 5 ms or tenths of a second. Nothing distinguishes that wait
    # from the loop's own work. So the gain in the verdict is the least, and is compared with the loop's clock.
    given: dict[str, Any] = {"num_threads": 2, "only": range(12 * BATCH), "step": 0.01}
    ratios: list[float] = []
    gains: list[float] = []
    for _ in range(MEASURED):
        spent: list[tuple[float, float]] = []
        verdict, before = find("transform", records, transform=holds_the_lock, spent=spent, **given)
        assert "Python's lock" in verdict.advice, verdict
        assert not any("num_threads" in remedy.what for remedy in verdict.remedies), verdict.remedies
        (built_in,) = (remedy for remedy in verdict.remedies if "built-in" in remedy.what)
        assert "at least" in built_in.what
        # The wait for the first batch is no part of a steady state.
        waited, stepped = sum(wait for wait, _ in spent[1:]), sum(step for _, step in spent)
        ratios.append(built_in.gain * stepped / (waited + stepped))
        gains.append(read(records, **given)[1] / before / built_in.gain)
    tell("a transform that holds Python's lock", built_in, statistics.median(gains) * built_in.gain)
    if takes_turns():
        pytest.skip(f"skipped: other programs take the processors: {ratios}, {gains}")
    assert statistics.median(ratios) == pytest.approx(1.0, rel=0.05), (ratios, gains)
    assert statistics.median(gains) > 1.0, (ratios, gains)


def test_a_wait_for_pythons_lock_is_no_step(records: pathlib.Path) -> None:
    # A loop that does nothing: all of its time is the loader's, also what a call waits for the lock to hand over a
    # batch that is ready.
    given: dict[str, Any] = {"batch_size": 8, "num_threads": 2, "only": range(32 * 8)}
    steps = []
    for _ in range(MEASURED):
        with uringload.DataLoader(**of_records(records, transform=holds_the_lock, **given)) as loader:
            for _ in loader:
                pass
            stats = loader.stats()
        (times,) = (times for role, times in stats["threads"] if role == "consumer")
        steps.append(times.get("step", 0.0) / stats["elapsed_s"])
    if takes_turns():
        pytest.skip(f"skipped: other programs take the processors: {steps}")
    assert statistics.median(steps) < 0.1, f"the step's shares of the time: {steps}"


def test_a_slow_loop_is_the_trainer(records: pathlib.Path) -> None:
    given: dict[str, Any] = {"transform": waits, "num_threads": 8, "only": range(8 * BATCH)}
    # A batch takes 80 ms to make, and 200 ms to use.
    verdict, before = find("trainer", records, step=0.2, **given)
    assert verdict.remedies[0].what.startswith("a faster step")
    gains = [read(records, **given)[1] / before for _ in range(MEASURED)]
    gain = statistics.median(gains)
    tell("a loop in Python that is slow", verdict.remedies[0], gain)
    if takes_turns():
        pytest.skip(f"skipped: other programs take the processors: {gains}")
    assert gain > 1.6, gains
